"The examples folder: the same whoever builds it, whole or absent, and refused where it does not fit"
import errno, json, os, random, shutil, signal, tempfile, time
from pathlib import Path
import pytest, torch
from datasets import load_from_disk
from transformers import AlbertTokenizer, AutoTokenizer, CanineTokenizer, PreTrainedTokenizerFast
from conftest import GOLDEN
from electra_nbdev.data import examples as data
from electra_nbdev.data.batches import PretrainDL
from electra_nbdev.pretraining.learner import pretrain_dls
from electra_nbdev.cli import electra_data
from electra_nbdev.data.examples import ExampleBuilder, build_examples, examples_of, load_examples
from electra_nbdev.engine.files import InputError, build_lock
from electra_nbdev.networks.recipe import preset
from electra_nbdev.data.text import chunks
from electra_nbdev.data.tokenizer import (SPECIALS, fingerprint, load_tokenizer, save_tokenizer, special_token_ids,
                                          train_vocab, vocab_list, wordpiece)
from make import byte_level, deberta_tokenizer, pieces, roberta_tokenizer, unigram
from terminal import files_of

VOCAB = GOLDEN/'vocab.txt'
ARROW = 'data-00000-of-00001.arrow'
V0_1 = Path(__file__).parent/'fixtures'/'v0_1'
WORDS = [o for o in VOCAB.read_text(encoding='utf-8').split() if o.isalpha()]

def write_text(path, n_docs, seed=0):
    "Documents of 1 to 12 sentences of 3 to 20 words"
    rng = random.Random(seed)
    def sentence(): return ' '.join(rng.choices(WORDS, k=rng.randint(3, 20))) + '.'
    def document(): return '\n'.join(sentence() for _ in range(rng.randint(1, 12)))
    path.write_text('\n\n'.join(document() for _ in range(n_docs)) + '\n', encoding='utf-8')
    return path

@pytest.fixture
def corpus(tmp_path):
    (tmp_path/'text').mkdir()
    for i in range(4): write_text(tmp_path/'text'/f'{i}.txt', 30, seed=i)
    return tmp_path/'text'

def waiting(path): return sorted(path.parent.glob(f'.{path.name}.*.building'))

def left_beside(path): return sorted(o.name for o in path.parent.iterdir() if path.name in o.name)

def lines_of(corpus):
    lines = []
    for o in sorted(corpus.iterdir()): lines += o.read_text(encoding='utf-8').split('\n')
    return [o for o in lines if o]

def rows_of(path): return [o for o in load_from_disk(path)]

# The result depends on the text and on nothing else

def test_number_of_processes_makes_no_difference(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(data, 'chunks', lambda c, blank: chunks(c, blank, chunk_bytes=3000))
    assert len(data.chunks(corpus, True))>8
    built = [files_of(build_examples(corpus, VOCAB, tmp_path/f'x{n}', num_proc=n, held_out=.2)) for n in (1, 2, 3)]
    assert built[0]==built[1]==built[2]

def test_a_file_gives_the_same_examples_whatever_its_neighbours(corpus, tmp_path):
    together = rows_of(build_examples(corpus, VOCAB, tmp_path/'all'))
    alone = [rows_of(build_examples(o, VOCAB, tmp_path/o.stem)) for o in sorted(corpus.iterdir())]
    assert together==sum(alone, [])
    elsewhere = shutil.copytree(corpus, tmp_path/'elsewhere')
    assert rows_of(build_examples(elsewhere, VOCAB, tmp_path/'moved'))==together

def test_seed_makes_a_difference(corpus, tmp_path):
    a, b = build_examples(corpus, VOCAB, tmp_path/'a'), build_examples(corpus, VOCAB, tmp_path/'b', seed=1)
    assert rows_of(a)!=rows_of(b)

def test_document_boundaries_can_be_switched_off(tmp_path):
    text = tmp_path/'t.txt'
    text.write_text('the dog\n\nthe cat\n\nthe tree\n')
    counts = {}
    for o in (True, False):
        path = build_examples(text, VOCAB, tmp_path/str(o), blank_lines_separate_docs=o)
        counts[o] = load_examples(path).counts
    assert (counts[True]['examples'], counts[False]['examples'])==(3, 1)
    assert (counts[True]['documents'], counts[False]['documents'])==(3, 1)

def test_held_out_documents_are_whole_and_elsewhere(corpus, tmp_path):
    path = build_examples(corpus, VOCAB, tmp_path/'rows', held_out=.25)
    train,held = load_examples(path),load_examples(path/'held_out')
    assert train.counts['documents']+held.counts['documents']==120 and 15<held.counts['documents']<45
    assert train.counts['lines']+held.counts['lines']==len(lines_of(corpus))
    pretrain_dls(train, held, preset('tiny', vocab_size=200, max_seq_length=128), 'cpu')

def test_counts_add_up(corpus, tmp_path):
    ex = load_examples(build_examples(corpus, VOCAB, tmp_path/'rows'))
    rows,c = rows_of(tmp_path/'rows'),ex.counts
    assert (c['examples'], c['documents'])==(len(rows), 120)
    assert c['tokens']==sum(len(o['input_ids']) for o in rows)==ex.token_counts().sum()==ex.lengths().sum()
    tok,text = ex.tokenizer,lines_of(corpus)
    specials = sum(o['input_ids'].count(i) for o in rows for i in (tok.cls_token_id, tok.sep_token_id))
    encoded = tok.backend_tokenizer.encode_batch(text, add_special_tokens=False)
    assert sum(len(o.ids) for o in encoded)==c['tokens']-specials+c['dropped_tokens']

def test_large_vocabularies_get_wide_integers(tmp_path):
    save_tokenizer(pieces([*SPECIALS, *map(str, range(70_000))]), tmp_path/'v')
    (tmp_path/'t.txt').write_text('1 69999')
    ids,_ = load_examples(build_examples(tmp_path/'t.txt', tmp_path/'v', tmp_path/'rows', max_length=8))[0]
    assert ids.tolist()==[[2, 6, 70_004, 3, 0, 0, 0, 0]]
    assert load_from_disk(tmp_path/'rows').features['input_ids'].feature.dtype=='int32'

def test_folder_opens_without_this_library(corpus, tmp_path):
    path = build_examples(corpus, VOCAB, tmp_path/'rows')
    assert load_from_disk(path).features['input_ids'].feature.dtype=='uint16'
    assert vocab_list(AutoTokenizer.from_pretrained(path/'vocab'))==vocab_list(load_tokenizer(VOCAB))
    assert fingerprint(load_tokenizer(path/'vocab'))==json.loads((path/'data.json').read_text())['recipe']['tokenizer']

def test_examples_of_the_version_before_open_and_are_the_same(tmp_path):
    "Written by version 0.1.0, which had Arrow writing and reading of its own"
    old = V0_1/'examples'
    how = dict(max_length=32, held_out=.2, long_lines='official')
    new = build_examples(V0_1/'text.txt', old/'vocab', tmp_path/'rows', **how)
    for part in ('', 'held_out'):
        assert rows_of(new/part)==rows_of(old/part)
        a,b = load_examples(old/part),load_examples(new/part)
        assert a.recipe | dict(long_lines='official', pack=False)==b.recipe and a.counts==b.counts
        assert (a.token_counts()==b.token_counts()).all()
        for x,y in zip(a[:], b[:]): assert torch.equal(x, y)
    mine = shutil.copytree(old, tmp_path/'old')
    was = files_of(mine)
    assert build_examples(V0_1/'text.txt', old/'vocab', mine, **how)==mine and files_of(mine)==was
    refuse("long_lines is 'official' there and 'split' here", V0_1/'text.txt', old/'vocab', mine, max_length=32,
           held_out=.2)

# Any fast tokenizer

def roberta(corpus): return roberta_tokenizer(lines_of(corpus))
def deberta(corpus): return deberta_tokenizer(lines_of(corpus))

def gpt(corpus, **special):
    special = special or dict(bos_token='<s>', eos_token='</s>', pad_token='<pad>', mask_token='<mask>')
    tok = byte_level(lines_of(corpus), [*special.values()], 400)
    return PreTrainedTokenizerFast(tokenizer_object=tok, **special)

def albert(corpus):
    special = ['<pad>', '<unk>', '[CLS]', '[SEP]', '[MASK]']
    return AlbertTokenizer(vocab=unigram(lines_of(corpus), special, '<unk>', 300))

def saved(tok, folder):
    tok.save_pretrained(folder)
    return folder

KINDS = [roberta, gpt, deberta, albert]

@pytest.mark.parametrize('make', KINDS, ids=lambda o: o.__name__)
def test_any_fast_tokenizer(make, corpus, tmp_path):
    "The official rule over the ids that the tokenizer itself gives for each line, read back and decoded"
    tok = make(corpus)
    electra_data(corpus/'1.txt', saved(tok, tmp_path/'tok'), tmp_path/'rows', max_length=32, held_out=0.)
    ex,special = load_examples(tmp_path/'rows'),special_token_ids(tok)
    lines = (corpus/'1.txt').read_text(encoding='utf-8').split('\n')
    builder = ExampleBuilder(32, special.cls, special.sep, random.Random('0 1.txt 0'))
    want = list(examples_of(builder, (tok(o, add_special_tokens=False)['input_ids'] if o else None for o in lines)))
    assert [(o['input_ids'], o['segment_a_length']) for o in rows_of(tmp_path/'rows')]==want and len(want)>30
    ids,a = ex[:]
    for row,n,(example,size) in zip(ids.tolist(), a.tolist(), want):
        assert row==example+[special.pad]*(32-len(example)) and n==size
        assert row[0]==special.cls and row[n-1]==special.sep
    (tmp_path/'t.txt').write_text(lines[0])
    path = build_examples(tmp_path/'t.txt', tmp_path/'tok', tmp_path/'one', max_length=128)
    assert load_examples(path).decode(0)==(lines[0], '')
    assert (ex.unknown(), ex.recipe['vocab_size'])==(0, len(tok))
    assert ex.dataset.features['input_ids'].feature.dtype=='uint16'
    assert len(rows_of(build_examples(corpus, tmp_path/'tok', tmp_path/'split', num_proc=2, held_out=.2)/'held_out'))
    assert fingerprint(ex.tokenizer)==fingerprint(tok)!=fingerprint(load_tokenizer(VOCAB))

@pytest.mark.parametrize('make', KINDS, ids=lambda o: o.__name__)
def test_special_tokens_in_the_text_are_text(make, corpus, tmp_path):
    tok = make(corpus)
    (tmp_path/'t.txt').write_text(f"the {' the '.join(tok.all_special_tokens)} the")
    row = rows_of(build_examples(tmp_path/'t.txt', saved(tok, tmp_path/'tok'), tmp_path/'rows'))[0]['input_ids']
    special = special_token_ids(tok)
    assert (row[0], row[-1])==(special.cls, special.sep) and not set(row[1:-1]) & set(special)

def test_saved_truncation_and_padding_are_not_applied_to_lines(corpus, tmp_path):
    tok = roberta(corpus)
    plain = rows_of(build_examples(corpus, saved(tok, tmp_path/'a'), tmp_path/'plain'))
    tok(['the', 'of the'], truncation=True, max_length=4, padding='max_length')
    assert json.loads((saved(tok, tmp_path/'b')/'tokenizer.json').read_text())['truncation']
    assert rows_of(build_examples(corpus, tmp_path/'b', tmp_path/'rows'))==plain

NAMES = dict(pad='<pad>', mask='<mask>', cls='<s>', sep='</s>')

@pytest.mark.parametrize('name', NAMES)
def test_a_tokenizer_without_a_special_token(name, corpus, tmp_path):
    tok = gpt(corpus, **{f'{k}_token': o for k,o in NAMES.items() if k!=name})
    vocab = saved(tok, tmp_path/'tok')
    refuse(f'{tmp_path}/tok has no {name}_token; add what is missing', corpus, vocab, tmp_path/'rows')
    assert left_beside(tmp_path/'rows')==[]

def test_a_slow_tokenizer(corpus, tmp_path):
    refuse('holds a slow tokenizer; give a fast one', corpus, saved(CanineTokenizer(), tmp_path/'tok'), tmp_path/'rows')

# Interrupted, failed, full

def dies_at(shard, how, write=data._write_arrow):
    "A `_write_arrow` that ends as `how` does when it comes to a shard"
    def f(path, *args):
        if path.stem==f'{shard:07}': how()
        return write(path, *args)
    return f

def kill_me(): os.kill(os.getpid(), signal.SIGKILL)
def interrupt(): raise KeyboardInterrupt

def build_noting_shards(monkeypatch, *args, **kw):
    made,write = [],data._write_arrow
    monkeypatch.setattr(data, '_write_arrow', lambda path, *a: made.append(path.stem) or write(path, *a))
    return build_examples(*args, **kw),made

def test_killed_build_continues(corpus, tmp_path, monkeypatch):
    whole = files_of(build_examples(corpus, VOCAB, tmp_path/'whole'))
    child = os.fork()
    if child==0:
        data._write_arrow = dies_at(2, kill_me)
        build_examples(corpus, VOCAB, tmp_path/'rows')
    assert os.WTERMSIG(os.waitpid(child, 0)[1])==signal.SIGKILL
    assert len(waiting(tmp_path/'rows'))==1
    path,made = build_noting_shards(monkeypatch, corpus, VOCAB, tmp_path/'rows')
    assert made==['0000002', '0000003'] and files_of(path)==whole and left_beside(path)==['rows']

def test_builds_of_other_recipes_keep_their_shards(corpus, tmp_path, monkeypatch):
    "Neither continues the other nor deletes what it has finished, and each is told of the other"
    with monkeypatch.context() as m:
        m.setattr(data, '_write_arrow', dies_at(1, interrupt))
        with pytest.raises(KeyboardInterrupt): build_examples(corpus, VOCAB, tmp_path/'rows')
    first, = waiting(tmp_path/'rows')
    with pytest.warns(UserWarning, match=f'shards of other recipes .*{first.name}'):
        path,made = build_noting_shards(monkeypatch, corpus, VOCAB, tmp_path/'rows', max_length=64)
    assert len(made)==4 and load_examples(path).width==64
    assert waiting(path)==[first] and len(list(first.glob('train/*.json')))==1

def test_a_refusal_deletes_no_shards(corpus, tmp_path, monkeypatch):
    "Those of a build that was stopped wait, though the folder holds another recipe now; nor is `rows.64` named `rows`"
    whole = files_of(build_examples(corpus, VOCAB, tmp_path/'whole'))
    with monkeypatch.context() as m:
        m.setattr(data, '_write_arrow', dies_at(2, interrupt))
        for name in ('rows', 'rows.64'):
            with pytest.raises(KeyboardInterrupt): build_examples(corpus, VOCAB, tmp_path/name)
    with pytest.warns(UserWarning, match='shards of other recipes') as told:
        path = build_examples(corpus, VOCAB, tmp_path/'rows', max_length=64)
    assert not any('rows.64' in str(o.message) for o in told)
    refuse('holds examples of another recipe: max_length', corpus, VOCAB, path)
    assert waiting(path)
    shutil.rmtree(path)
    path,made = build_noting_shards(monkeypatch, corpus, VOCAB, path)
    assert made==['0000002', '0000003'] and files_of(path)==whole

def test_killed_worker_keeps_what_is_done(corpus, tmp_path, monkeypatch):
    with monkeypatch.context() as m:
        m.setattr(data, '_write_arrow', dies_at(3, kill_me))
        with pytest.raises(ChildProcessError, match='smaller num_proc'):
            build_examples(corpus, VOCAB, tmp_path/'rows', num_proc=2)
    path,made = build_noting_shards(monkeypatch, corpus, VOCAB, tmp_path/'rows')
    assert '0000003' in made and len(made)<4
    assert files_of(path)==files_of(build_examples(corpus, VOCAB, tmp_path/'whole'))

@pytest.fixture
def locks(tmp_path, monkeypatch):
    "Where the locks of this test are"
    monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path/'locks'))
    (tmp_path/'locks').mkdir()
    return tmp_path/'locks'

def test_processes_of_a_killed_build_end(corpus, tmp_path, locks):
    r,w = os.pipe()
    if (child := os.fork())==0:
        def tell_and_wait(*args):
            os.write(w, b'%9d' % os.getpid())
            time.sleep(600)
        data._write_arrow = tell_and_wait
        build_examples(corpus, VOCAB, tmp_path/'rows', num_proc=2)
    workers = [int(os.read(r, 9)) for _ in range(2)]
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    def alive(pid): return Path(f'/proc/{pid}').exists() and 'State:\tZ' not in Path(f'/proc/{pid}/status').read_text()
    until = time.time()+20
    while any(map(alive, workers)) and time.time()<until: time.sleep(.2)
    assert not any(map(alive, workers))

def at_once(n, f):
    "Call a function in so many processes at a time"
    children = []
    for _ in range(n):
        if (child := os.fork())==0:
            try:
                f()
                os._exit(0)
            finally: os._exit(1)
        children.append(child)
    assert not any([os.waitpid(o, 0)[1] for o in children])

def test_builds_of_the_same_folder_wait_for_each_other(corpus, tmp_path, locks):
    at_once(3, lambda: build_examples(corpus, VOCAB, tmp_path/'rows'))
    assert files_of(tmp_path/'rows')==files_of(build_examples(corpus, VOCAB, tmp_path/'whole'))
    assert left_beside(tmp_path/'rows')==['rows']
    assert not any(locks.iterdir())

def test_one_at_a_time_though_locks_are_removed(tmp_path, locks):
    "Each removes its lock, for which others are waiting; the lock of a killed process is none"
    count = tmp_path/'count'
    count.write_text('0')
    def add():
        for _ in range(100):
            with build_lock(count):
                n = int(count.read_text())
                time.sleep(.0002)
                count.write_text(f'{n+1}')
    if (child := os.fork())==0:
        with build_lock(count): kill_me()
    os.waitpid(child, 0)
    assert len(list(locks.iterdir()))==1
    at_once(4, add)
    assert count.read_text()=='400' and not any(locks.iterdir())

@pytest.fixture
def small_disk(monkeypatch):
    "No file may grow beyond a size, which fails as a full disk does"
    resource = pytest.importorskip('resource', reason="Windows does not limit the size of files")
    soft,hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda n: resource.setrlimit(resource.RLIMIT_FSIZE, (n, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

@pytest.mark.parametrize('num_proc', [1, 2])
@pytest.mark.parametrize('stage', ['vocab', 'shard', 'joined'])
def test_full_disk_keeps_what_is_finished(stage, num_proc, tmp_path, small_disk, monkeypatch):
    "With free space the same command makes what is missing; where nothing was finished nothing is left"
    for i in range(4): write_text(tmp_path/f'{i}.txt', 400 if i==2 else 200, seed=i)
    whole = files_of(build_examples(tmp_path/'*.txt', VOCAB, tmp_path/'whole'))
    joined, largest = len(whole[ARROW]), max(len(v) for k,v in whole.items() if k!=ARROW)
    assert largest<joined//5<.3*joined
    small_disk(dict(vocab=1000, shard=int(.3*joined), joined=joined//2)[stage])
    told = 'nothing of it is left' if stage=='vocab' else 'finished shards wait in'
    with pytest.raises(OSError, match=told) as e:
        build_examples(tmp_path/'*.txt', VOCAB, tmp_path/'rows', num_proc=num_proc)
    assert e.value.errno==errno.EFBIG and str(tmp_path/'rows') in str(e.value)
    n = len([o for work in waiting(tmp_path/'rows') for o in work.glob('train/*.json')])
    assert n==0 and left_beside(tmp_path/'rows')==[] if stage=='vocab' else n==4 if stage=='joined' else 2<=n<4
    small_disk(-1)
    path,made = build_noting_shards(monkeypatch, tmp_path/'*.txt', VOCAB, tmp_path/'rows')
    assert len(made)==4-n and files_of(path)==whole and left_beside(path)==['rows']

def test_an_error_of_a_hub_keeps_what_is_finished(corpus, tmp_path, monkeypatch):
    "A connection that breaks is an error of the operating system too"
    def broken(): raise ConnectionError('the server went away')
    with monkeypatch.context() as m:
        m.setattr(data, '_write_arrow', dies_at(2, broken))
        with pytest.raises(ConnectionError): build_examples(corpus, VOCAB, tmp_path/'rows')
    path,made = build_noting_shards(monkeypatch, corpus, VOCAB, tmp_path/'rows')
    assert made==['0000002', '0000003'] and left_beside(path)==['rows']

# What does not fit is refused

def refuse(match, *args, **kw):
    with pytest.raises(InputError, match=match): build_examples(*args, **kw)

def test_bad_rows_are_skipped_and_reported_where_asked_for(tmp_path):
    (tmp_path/'t.txt').write_bytes(b'the dog\n\xff\xfe\nthe cat\n\xff\n')
    with pytest.warns(UserWarning, match='2 unreadable lines left out, 2 used'):
        path = build_examples(tmp_path/'t.txt', VOCAB, tmp_path/'rows', skip_bad_rows=True)
    assert load_examples(path).counts['skipped_lines']==2 and load_examples(path).decode(0)[0]=='the dog the cat'

OTHER_RECIPE = dict(max_length=64, seed=3, blank_lines_separate_docs=False, held_out=.1, long_lines='official')

@pytest.mark.parametrize('name,value', OTHER_RECIPE.items())
def test_other_recipe_in_the_folder(name, value, corpus, tmp_path):
    path = build_examples(corpus, VOCAB, tmp_path/'rows')
    was = files_of(path)
    refuse(f'{name} is .* there and {value!r} here', corpus, VOCAB, path, **{name: value})
    assert files_of(path)==was

def test_other_text_or_vocabulary_in_the_folder(corpus, tmp_path):
    path = build_examples(corpus, VOCAB, tmp_path/'rows')
    train_vocab(corpus, tmp_path/'v', vocab_size=150)
    refuse('examples of another vocabulary than ', corpus, tmp_path/'v', path)
    (corpus/'0.txt').write_text('another text')
    refuse('another recipe: the text of 0.txt.* is another', corpus, VOCAB, path)

def test_held_out_examples_of_another_vocabulary(corpus, tmp_path):
    path = build_examples(corpus, VOCAB, tmp_path/'rows')
    backwards = wordpiece({o: i for i,o in enumerate(reversed(vocab_list(load_tokenizer(VOCAB))))})
    other = load_examples(build_examples(corpus, save_tokenizer(backwards, tmp_path/'v'), tmp_path/'other'))
    with pytest.raises(InputError, match='different vocabularies'):
        pretrain_dls(load_examples(path), other, preset('small', vocab_size=200), 'cpu')

@pytest.mark.parametrize('name', [ARROW, 'data.json', 'vocab/tokenizer.json'])
def test_damaged_folders(name, corpus, tmp_path):
    path = build_examples(corpus, VOCAB, tmp_path/'rows')
    raw = (path/name).read_bytes()
    for cut in (len(raw)//2, 10):
        (path/name).write_bytes(raw[:cut])
        with pytest.raises(InputError): load_examples(path)
    with pytest.raises(InputError, match='holds no examples'): load_examples(tmp_path)

@pytest.mark.parametrize('what', ['id', 'length', 'segment'])
def test_a_damaged_example_is_named(what, corpus, tmp_path):
    "An id beyond the vocabulary, an end beyond the file, a segment longer than its example"
    path = build_examples(corpus, VOCAB, tmp_path/'rows')
    ex = load_examples(path)
    (ids,a),n = ex[7],ex.lengths()
    at = int(n[:7].sum())
    columns = dict(id=ids[0].numpy().astype('uint16')[:n[7]], length=n[:9].cumsum(dtype='int32')[5:],
                   segment=ex[5:9][1].numpy().astype('int32'))
    here = columns[what].tobytes()
    raw = (path/ARROW).read_bytes()
    assert raw.count(here)==1
    place = raw.index(here) + dict(id=0, length=8, segment=8)[what]
    (path/ARROW).write_bytes(raw[:place] + b'\xff\x7f' + raw[place+2:])
    ex = load_examples(path)
    first = dict(id=7, length=8, segment=7)[what]
    rows = [3, 1, 8, 7] if what=='length' else [3, 1, 7, 2]
    with pytest.raises(InputError, match=f'example {first} in {path} is damaged; delete'): ex[rows]
    assert len(ex[[3, 1, 2]][0])==3

def test_a_library_with_a_long_story_gives_one_line(corpus, tmp_path):
    "Arrow columns of another name, on which `datasets` has three lines to say"
    path = build_examples(corpus, VOCAB, tmp_path/'rows')
    (path/ARROW).write_bytes((path/ARROW).read_bytes().replace(b'segment_a_length', b'segment_b_length'))
    with pytest.raises(InputError, match=r'are damaged \(.*; delete the folder') as e: load_examples(path)
    assert '\n' not in str(e.value)

# Fast and flat

def test_loader_gives_20000_rows_a_second(tmp_path):
    ex = load_examples(build_examples(write_text(tmp_path/'t.txt', 1500), VOCAB, tmp_path/'rows'))
    dl = PretrainDL(ex, bs=128, shuffle=True, device='cpu')
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    dl.n_batches,start = 400,time.process_time()
    n = sum(len(ids) for ids,_ in dl)
    torch.set_num_threads(threads)
    assert n/(time.process_time()-start)>20_000

def peak_memory(text, out):
    "Megabytes that a build adds in a process of its own"
    r,w = os.pipe()
    if os.fork()==0:
        os.environ['TOKENIZERS_PARALLELISM'] = 'false'
        import resource # unknown on Windows
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        build_examples(text, VOCAB, out)
        os.write(w, str((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss-before)//1024).encode())
        os._exit(0)
    os.close(w)
    os.wait()
    return int(os.read(r, 99))

def test_memory_does_not_grow_with_the_corpus(tmp_path):
    text = write_text(tmp_path/'t.txt', 8000).read_text()
    (tmp_path/'large.txt').write_text((text + '\n')*6)
    small,large = peak_memory(tmp_path/'t.txt', tmp_path/'rows'),peak_memory(tmp_path/'large.txt', tmp_path/'y')
    assert large<small+50, f"{small} MB for {len(text)>>20} MB of text, {large} MB for six times as much"

def test_a_copy_of_a_loader_has_its_order(corpus, tmp_path):
    "As fastai makes one for predictions"
    dl = PretrainDL(load_examples(build_examples(corpus, VOCAB, tmp_path/'rows', max_length=16)), bs=2, seed=5)
    assert torch.equal(dl.new().one_batch()[0], dl.one_batch()[0])

def test_a_share_that_first_lines_decide_is_told(tmp_path):
    "Documents that begin alike are held out together"
    letters = [f"{'Dear all,' if i%2 else f'Letter {i}.'}\nwe write again {i}." for i in range(300)]
    (tmp_path/'letters.txt').write_text('\n\n'.join(letters))
    train_vocab(tmp_path/'letters.txt', tmp_path/'v', 100)
    with pytest.warns(UserWarning, match='documents are held out, .* the same first line') as told:
        build_examples(tmp_path/'letters.txt', tmp_path/'v', tmp_path/'e', 16, held_out=.5)
    n = load_examples(tmp_path/'e'/'held_out').counts['documents']
    assert not 120<n<180 and f'{n:,} of 300 documents' in str(told[-1].message)

def test_unreadable_lines_are_told_where_nothing_is_left(tmp_path):
    (tmp_path/'t.txt').write_bytes(b'\xff\xfe\xff\n\xfe\xff\n')
    with pytest.raises(InputError, match='0 documents, and 2 unreadable lines left out'):
        build_examples(tmp_path/'t.txt', VOCAB, tmp_path/'e', skip_bad_rows=True)
