"Jobs of `benchmarks/one_gpu.py` at a thousandth of their size: they end, go on where they stopped, say what there is"
import json, shutil, sys, time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from electra_nbdev.data.text import sample_text

BENCHMARKS = Path(__file__).parents[1]/'benchmarks'
import common, one_gpu
from gpu_jobs import bring, kit, models

@pytest.fixture(autouse=True)
def eager(monkeypatch):
    "Nothing is compiled, here and in the processes that jobs start: sides take the same way, in seconds"
    monkeypatch.setenv('TORCHDYNAMO_DISABLE', '1')
    with torch.compiler.set_stance('force_eager'): yield

@pytest.fixture(scope='module')
def data(tmp_path_factory):
    "What jobs read, made from a little text and a task of a few rows"
    d = tmp_path_factory.mktemp('one_gpu')
    lines = sample_text().splitlines()
    for i,o in enumerate(('babylm/simple_wiki.train', 'babylm/gutenberg.train', 'text/novels/Nobody_Tale_1900.txt')):
        (d/o).parent.mkdir(parents=True, exist_ok=True)
        (d/o).write_text('\n'.join(lines[i*900:i*900+900]))
    (d/'glue/CoLA').mkdir(parents=True)
    for o in ('train', 'dev'): (d/f'glue/CoLA/{o}.tsv').write_text('x\t1\t\tthe cat sat\nx\t0\t*\tcat the sat\n'*16)
    for job in ('race-4M', 'baby'): typed('--prepare', job, '--text', d, '--words', 20_000, '--data', d/'data')
    return d/'data'

def typed(*words):
    "Type a command"
    one_gpu.START = time.monotonic() # a command starts when it is typed
    had, sys.argv = sys.argv, [str(BENCHMARKS/'one_gpu.py'), *map(str, words)]
    try: one_gpu.main()
    finally: sys.argv = had

def tried(job, data, out, *more):
    "The result of a job at a thousandth of its size"
    typed(job, '--data', data, '--out', out, '--device', 'cpu', '--scale', .001, *more)
    return json.loads((out/f'{job}.json').read_text())

def test_text_comes_back_as_it_was_packed(data, tmp_path):
    text = kit.PackedText(data/'small.xz')
    train, held = (list(text.lines(o)) for o in ('train', 'held_out'))
    assert len(train)>3*len(held)>0 and train[-1] is None
    spoken = text.tokenizer.decode(train[0])
    assert spoken.replace(' ', '')[:20] in sample_text().lower().replace(' ', '')
    kit.pack(tmp_path/'again.xz', text.vocab, dict(train=train, held_out=held))
    assert list(kit.PackedText(tmp_path/'again.xz').lines('train'))==train
    rows, alone = text.examples('train', 32), text.examples('train', 32, alone=True)
    assert rows.n.mean()>30>alone.n.mean() and (alone.ids==text.tokenizer.sep_token_id).any(1).all()
    assert rows.token_counts().sum()==rows.n.sum()==rows.counts['tokens']

def test_a_folder_that_is_too_large_is_told(data, capsys, monkeypatch):
    monkeypatch.setattr(bring, 'LIMIT', 10**9)
    typed('--prepare', 'small', '--data', data)
    assert 'which fits' in capsys.readouterr().out
    monkeypatch.setattr(bring, 'LIMIT', 10**6)
    typed('--prepare', 'small', '--data', data)
    assert 'MiB too large (at most' in capsys.readouterr().out
    assert (data/'COMMIT').read_text().strip()==common.commit()

def test_what_is_missing_is_named(tmp_path, capsys):
    with pytest.raises(SystemExit): typed('small', '--data', tmp_path)
    assert 'has no small.xz: one_gpu.py small --prepare --text FOLDER makes it' in capsys.readouterr().err
    with pytest.raises(SystemExit, match='give its folder with --text'):
        typed('--prepare', 'small', '--data', tmp_path)

def test_a_checkout_without_git_says_what_it_is(tmp_path):
    assert common.commit(tmp_path)=='unknown'
    (tmp_path/'gpu-data').mkdir()
    (tmp_path/'gpu-data/COMMIT').write_text('abc1234+changes\n')
    assert common.commit(tmp_path)=='abc1234+changes'

def test_weights_in_parts_are_joined_bit_for_bit(tmp_path, monkeypatch):
    monkeypatch.setattr(kit, 'PART', 1000)
    params = [(f'w{i}', torch.randn(20, 20)) for i in range(3)]
    told = kit.write_parts(tmp_path, 'some', params)
    assert told['parts']==3 and all(o.stat().st_size<=1000 for o in tmp_path.glob('*.fp16'))
    found = kit.join_parts(tmp_path, 'some', told)
    assert all(torch.equal(found[k], v.half()) for k,v in params)
    part = tmp_path/'some.1.fp16'
    part.write_bytes(part.read_bytes()[:-1]+b'x')
    with pytest.raises(SystemExit, match='do not fit together'): kit.join_parts(tmp_path, 'some', told)
    part.unlink()
    with pytest.raises(SystemExit, match='part 1 of some is missing'): kit.join_parts(tmp_path, 'some', told)

@pytest.fixture
def began(monkeypatch):
    "Weights with which trainings begin that do not begin anew"
    seen, begin_with = [], models.begin_with
    def spy(model, *how):
        begin_with(model, *how)
        seen.append({k: p.detach().clone() for k,p in model.named_parameters()})
    monkeypatch.setattr(models, 'begin_with', spy)
    return seen

def same(found, kept):
    return found.keys()==kept.keys() and all(torch.equal(p, kept[k].float()) for k,p in found.items())

def test_a_stage_begins_with_the_weights_of_the_one_before(data, tmp_path, monkeypatch, began):
    "Also in a command of its own"
    first, second = models.STAGES['small'].items()
    monkeypatch.setitem(models.STAGES, 'small', dict([first]))
    row = tried('small', data, tmp_path)['stages'][first[0]]
    kept = kit.join_parts(tmp_path, f'small-{first[0]}', row['weights'])
    monkeypatch.setitem(models.STAGES, 'small', dict([first, second]))
    assert not began and tried('small', data, tmp_path)['finished']
    assert len(began)==1 and same(began[0], kept)

def test_a_model_goes_on_where_time_was_up(data, tmp_path, monkeypatch, capsys, began):
    "In its stages, on another machine too, and is joined to networks; the list says how far it is"
    left, calls = kit.Work.left, []
    def few(self): # time is up in the second stage
        calls.append(1)
        return left(self) if len(calls)<25 else -1
    monkeypatch.setattr(kit.Work, 'left', few)
    found = tried('small', data, tmp_path/'one')
    first, second = found['stages'].values()
    assert first['finished'] and not second['finished'] and 4<second['updates']<second['steps']
    assert first['weights'] is None and not found['finished'] and found['seconds']>0
    monkeypatch.setattr(kit.Work, 'left', left)
    typed('--out', tmp_path/'one', '--data', data)
    assert f"begun at {found['commit']}" in capsys.readouterr().out
    (tmp_path/'two').mkdir()
    for o in (tmp_path/'one').iterdir(): shutil.copy(o, tmp_path/'two')
    kept = kit.join_parts(tmp_path/'one', 'small-to-512', second['weights'])
    again = tried('small', data, tmp_path/'two')
    last = again['stages']['to-512']
    assert len(began)==2 and same(began[1], kept)
    assert again['finished'] and last['updates']==last['steps']==second['steps']
    assert again['stages']['to-128']==first and again['seconds']>found['seconds']
    assert {'gen_loss', 'disc_auc'}<=last['held_out'].keys() and last['flops']==last['steps']*last['flops_a_step']
    typed('--join', 'small', '--out', tmp_path/'two', '--data', data, '--to', tmp_path/'networks')
    params = kit.join_parts(tmp_path/'two', 'small-to-512', last['weights'])
    kept = load_file(tmp_path/'networks/discriminator/model.safetensors')
    name = 'electra.encoder.layer.0.output.dense.weight'
    assert torch.equal(kept[name], params[f'discriminator.{name}'].float())
    assert tried('small', data, tmp_path/'two')['stages']==again['stages']

def test_an_electric_of_ten_passes_at_most(data, tmp_path, monkeypatch):
    found = tried('baby', data, tmp_path)
    assert [*found['stages']]==[*models.STAGES['baby']] and found['finished']
    assert len(list(tmp_path.glob('*.fp16')))==1 # of the last stage
    monkeypatch.setattr(models, 'PASSES', 9)
    with pytest.raises(SystemExit, match='too many passes'): tried('baby', data, tmp_path)

@pytest.mark.parametrize('job', ['small', 'baby'])
def test_sizes_of_the_models(data, job):
    "14 M and at most 12.2 M parameters, with the vocabularies that they get"
    from electra_nbdev.pretraining.count import counted_parameters
    class Text: vocab = range(bring.VOCAB if job=='small' else 8192)
    for stage in models.STAGES[job].values():
        sizes = counted_parameters(models.recipe(stage, Text, 1.))
        if job=='baby': assert 11e6<sizes['both']<=models.MOST
        else: assert 13e6<sizes['discriminator']<14.5e6

def test_both_objectives_have_equal_flops_and_the_same_tasks(data, tmp_path):
    found = tried('race-4M', data, tmp_path, '--sides', 'cola')
    a, b = found['objectives'].values()
    assert b['flops']==pytest.approx(a['flops'], rel=.05) and a['scores'].keys()==b['scores'].keys()=={'cola'}
    assert found['finished']

def test_speed_of_two_sides(data, tmp_path, capsys):
    found = tried('speed-small-128', data, tmp_path, '--sides', 'plain,eager')
    (bs, batch), = found['batches'].items()
    assert found['finished'] and bs=='2' and batch['floor']['flops']==pytest.approx(8.98e9, rel=.01)
    for o in batch['sides'].values(): assert o['per_s']>0 and o['of_measured']>0 and o['rounds']==2
    said = capsys.readouterr().out
    assert said.index('GFLOP and')<said.index('sequences/s  rounds') and found['card']==common.cpu()

@pytest.mark.slow
def test_a_killed_run_ends_as_the_others(data, tmp_path):
    found = tried('exact', data, tmp_path, '--sides', 'eager-fp32')
    assert found['finished'] and found['runs']==found['equal']==1 and found['cpu']['eager']==0
    assert found['sides']['eager-fp32']['kills']>0
