"Examples in tasks of datatrove: the bytes of one machine, whatever the number of tasks and whoever was killed"
import json, os, random, shutil, signal
from contextlib import suppress

import pytest
from datatrove.executor import LocalPipelineExecutor
from datatrove.utils.logging import logger

from conftest import GOLDEN
from electra_nbdev.data import examples
from electra_nbdev.cli import electra_data
from electra_nbdev.engine.files import InputError
from electra_nbdev.data.examples import DataJob, ExampleTasks, build_examples
from terminal import files_of, typed

VOCAB = GOLDEN/'vocab.txt'
WORDS = [o for o in VOCAB.read_text(encoding='utf-8').split() if o.isalpha()]
RULES = dict(max_length=64, held_out=.2)
N = 9 # Chunks

logger.disable('datatrove')

def shards_of(work): return {k: v for k,v in files_of(work).items() if k.startswith(('train/', 'held_out/'))}

@pytest.fixture(scope='module')
def corpus(tmp_path_factory):
    "A file for each chunk"
    d, rng = tmp_path_factory.mktemp('corpus'), random.Random(0)
    def document(): return '\n'.join(' '.join(rng.choices(WORDS, k=9)) for _ in range(rng.randint(1, 9)))
    for i in range(N): (d/f'{i}.txt').write_text('\n\n'.join(document() for _ in range(30)))
    return d

@pytest.fixture(scope='module')
def one(corpus, tmp_path_factory):
    "Shards and folder of `build_examples`, which is stopped before it joins the shards"
    out = tmp_path_factory.mktemp('one')/'rows'
    def stop(*args): raise KeyboardInterrupt
    with pytest.MonkeyPatch.context() as m, pytest.raises(KeyboardInterrupt):
        m.setattr(examples, '_fill_folder', stop)
        build_examples(corpus, VOCAB, out, **RULES)
    shards = shards_of(next(out.parent.glob('.rows.*.building')))
    assert len(shards)==2*2*N
    return shards, files_of(build_examples(corpus, VOCAB, out, **RULES))

@pytest.fixture
def made(monkeypatch):
    "The shards that are made, as they are made"
    found, write = [], examples._write_arrow
    def note(path, *args):
        found.append(f'{path.parent.name}/{path.stem}')
        return write(path, *args)
    monkeypatch.setattr(examples, '_write_arrow', note)
    return found

def names(chunks): return {f'{part}/{i:07}' for i in chunks for part in ('train', 'held_out')}

def executor(build, tasks, workers=1, **kw):
    return LocalPipelineExecutor([build.make_shards], tasks, workers, str(build.work/'logs'), start_method='fork', **kw)

@pytest.mark.parametrize('tasks,workers', [(1, 1), (3, 2), (7, 1)])
def test_bytes_of_one_machine(corpus, one, tmp_path, tasks, workers):
    build = ExampleTasks(corpus, VOCAB, tmp_path/'rows', **RULES)
    executor(build, tasks, workers).run()
    assert shards_of(build.work)==one[0]
    build.make_folder()
    assert files_of(tmp_path/'rows')==one[1] and os.listdir(tmp_path)==['rows']

def test_assembling_can_be_a_pipeline_too(corpus, one, tmp_path):
    build = ExampleTasks(corpus, VOCAB, tmp_path/'rows', **RULES)
    shards = LocalPipelineExecutor([build.make_shards], 2, 1, str(tmp_path/'a'))
    LocalPipelineExecutor([build.make_folder], 1, 1, str(tmp_path/'b'), depends=shards).run()
    assert files_of(tmp_path/'rows')==one[1]

def killed_at(shard, run):
    "Run in a process of its own, which kills itself when it comes to a shard"
    write = examples._write_arrow
    def kill(path, *args):
        if f'{path.parent.name}/{path.stem}'==shard: os.kill(os.getpid(), signal.SIGKILL)
        return write(path, *args)
    if (child := os.fork())==0:
        os.setsid()
        examples._write_arrow = kill
        run()
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1])==signal.SIGKILL
    with suppress(ProcessLookupError): os.killpg(child, signal.SIGKILL) # what the killed process had started

def test_a_killed_task_continues_at_its_first_missing_shard(corpus, one, tmp_path, made):
    build = ExampleTasks(corpus, VOCAB, tmp_path/'rows', **RULES)
    killed_at('train/0000004', executor(build, 3).run)
    assert os.listdir(build.work/'logs/completions')==['00000']
    executor(ExampleTasks(corpus, VOCAB, tmp_path/'rows', **RULES), 3).run()
    assert len(made)==10 and set(made)==names([4, 7, 2, 5, 8])
    assert shards_of(build.work)==one[0]

@pytest.mark.parametrize('tasks', [3, 7])
def test_a_killed_build_in_tasks_continues(corpus, one, tmp_path, made, monkeypatch, tasks):
    "Without its finished tasks; with another number of tasks all start, and find the shards of the first"
    args, ranks, make = (corpus, VOCAB, tmp_path/'rows'), [], DataJob.make_shards
    def noted(self, data, rank, world_size):
        ranks.append(rank)
        return make(self, data, rank, world_size)
    killed_at('train/0000004', lambda: build_examples(*args, tasks=3, **RULES))
    monkeypatch.setattr(DataJob, 'make_shards', noted)
    path = build_examples(*args, tasks=tasks, **RULES)
    assert ranks==([1, 2] if tasks==3 else [*range(7)])
    assert len(made)==10 and set(made)==names([4, 7, 2, 5, 8])
    assert files_of(path)==one[1] and os.listdir(tmp_path)==['rows']

def test_finished_tasks_are_skipped(corpus, one, tmp_path, made):
    "By datatrove's files, though their shards are gone; the last step makes what is missing"
    build = ExampleTasks(corpus, VOCAB, tmp_path/'rows', **RULES)
    executor(build, 3).run()
    (build.work/'logs/completions/00001').unlink()
    for part in ('train', 'held_out'): shutil.rmtree(build.work/part)
    made.clear()
    executor(build, 3).run()
    assert set(made)==names([1, 4, 7])
    build.make_folder()
    assert len(made)==2*N and files_of(tmp_path/'rows')==one[1]

def test_complete_examples_are_left_alone(corpus, one, tmp_path, made):
    path = build_examples(corpus, VOCAB, tmp_path/'rows', tasks=2, **RULES)
    made.clear()
    build_examples(corpus, VOCAB, path, tasks=2, **RULES)
    assert made==[] and files_of(path)==one[1] and os.listdir(tmp_path)==['rows']
    with pytest.raises(InputError, match='max_length is 64 there and 32 here'):
        build_examples(corpus, VOCAB, path, tasks=2, **RULES | dict(max_length=32))

def test_files_of_a_dataset_in_tasks(corpus, tmp_path):
    (tmp_path/'rows').mkdir()
    for o in corpus.iterdir():
        texts = o.read_text().split('\n\n')
        (tmp_path/f'rows/train-{o.stem}.jsonl').write_text(''.join(json.dumps(dict(text=t))+'\n' for t in texts))
    args = f'hf:{tmp_path}/rows', VOCAB
    path = build_examples(*args, tmp_path/'tasks', tasks=4, num_proc=2, **RULES)
    assert files_of(path)==files_of(build_examples(*args, tmp_path/'one', num_proc=2, **RULES))
    assert json.loads((path/'data.json').read_text())['counts']['documents']>30*N//2

def test_a_killed_process_is_an_error(corpus, one, tmp_path, monkeypatch):
    "And the same call continues"
    write = examples._write_arrow
    def kill(path, *args):
        if path.stem=='0000005': os.kill(os.getpid(), signal.SIGKILL)
        return write(path, *args)
    def build(): return build_examples(corpus, VOCAB, tmp_path/'rows', tasks=3, num_proc=2, **RULES)
    with monkeypatch.context() as m, pytest.raises(ChildProcessError, match='one of 2 processes was killed'):
        m.setattr(examples, '_write_arrow', kill)
        build()
    assert files_of(build())==one[1]

# Errors

def test_an_undecodable_line(tmp_path, capfd):
    (tmp_path/'a.txt').write_bytes(b'fine\n')
    (tmp_path/'b.txt').write_bytes(b'fine\n\xff\n')
    logger.enable('datatrove')
    with pytest.raises(InputError, match='b.txt, line 2 is not UTF-8'):
        build_examples(tmp_path/'?.txt', VOCAB, tmp_path/'rows', tasks=2, num_proc=2)
    assert capfd.readouterr().err==''
    assert sorted(o.name for o in tmp_path.iterdir())==['a.txt', 'b.txt'] # no shards of it

@pytest.mark.parametrize('numbers', [dict(tasks=0), dict(tasks=2, num_proc=0)])
def test_numbers(corpus, tmp_path, numbers):
    with pytest.raises(InputError, match='`(tasks|num_proc)` is 0'):
        build_examples(corpus, VOCAB, tmp_path/'x', **numbers)

def without(): examples.find_spec = lambda name: None

def test_the_command(corpus, one, tmp_path):
    line = f'electra_data --corpus {corpus} --vocab {VOCAB} --out rows --max-length 64 --held-out .2 --tasks 3'
    said = typed(line, tmp_path, without)
    assert (said.code, said.out)==(2, '') and os.listdir(tmp_path)==[]
    assert said.err=="electra_data: tasks need datatrove: pip install 'electra_nbdev[cluster]'\n"
    said = typed(f'{line} --num-proc 2', tmp_path)
    assert said.code==0 and said.err=='' and 'examples' in said.out, said
    assert files_of(tmp_path/'rows')==one[1]
    assert electra_data(corpus, VOCAB, tmp_path/'rows', max_length=64, held_out=.2).path==tmp_path/'rows'

def test_tasks_of_two_recipes_stay_apart(corpus, tmp_path, one):
    "Neither finds or deletes the shards of the other"
    old = ExampleTasks(corpus, VOCAB, tmp_path/'rows', **RULES)
    old.make_shards(rank=0, world_size=2)
    with pytest.warns(UserWarning, match='shards of other recipes'):
        other = ExampleTasks(corpus, VOCAB, tmp_path/'rows', **RULES | dict(held_out=.5))
    other.make_shards()
    old.make_shards(rank=1, world_size=2)
    old.make_folder()
    assert files_of(tmp_path/'rows')==one[1]
    assert not old.work.exists() and len(list(other.work.glob('train/*.json')))==N

def test_a_build_that_is_complete_leaves_nothing_beside_it(corpus, tmp_path):
    for _ in range(2):
        build = ExampleTasks(corpus, VOCAB, tmp_path/'rows', **RULES)
        build.make_shards()
        build.make_folder()
        assert os.listdir(tmp_path)==['rows']
    assert not build.chunks
