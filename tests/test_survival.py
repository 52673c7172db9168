"A run that is killed, stopped, starved of disk or fed with garbage; the promises are listed in 92_checkpoint"
import errno, json, os, random, shutil, signal, time, warnings
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fastai.callback.core import Callback
from fastai.callback.fp16 import AMPMode
from fastai.callback.training import GradientAccumulation
from hypothesis import HealthCheck, given, settings, strategies as st
from safetensors.torch import load_file, save_file

from electra_nbdev.data import examples as examples_of_text
from electra_nbdev.finetuning import trials
from electra_nbdev.pretraining import runs
from electra_nbdev.sharing.convert import convert_weights
from electra_nbdev.engine import checkpoint, files
from electra_nbdev.engine.checkpoint import file_facts, latest_checkpoint
from electra_nbdev.data.batches import PretrainDL
from electra_nbdev.pretraining.learner import pretrain_dls
from electra_nbdev.data.examples import build_examples, load_examples
from electra_nbdev.pretraining.monitor import read_history
from electra_nbdev.engine.files import InputError
from electra_nbdev.engine.models import quiet_loading
from electra_nbdev.engine.training import DeviceMixedPrecision
from electra_nbdev.networks.build import body_config
from electra_nbdev.networks.recipe import preset
from electra_nbdev.pretrain import electra_learner
from electra_nbdev.pretraining.runs import SaveCheckpoints, restore
from electra_nbdev.pretraining.request import PretrainRequest
from electra_nbdev.finetuning.tasks import text_task
from electra_nbdev.data.tokenizer import load_tokenizer
from electra_nbdev.finetuning.request import run_trials
from survival import At, assert_same, checkpoints, fork, result, train
from make import NARROW, examples_of_tales, tales
from terminal import files_of

STEPS = 24

@pytest.fixture(scope='module')
def made(tmp_path_factory):
    "Examples, a recipe of one narrow layer with dropout, and the result of a run that nobody stopped"
    d, hp = examples_of_tales(tmp_path_factory.mktemp('survival'), 110, train_batch_size=4, eval_batch_size=4,
                              num_train_steps=STEPS, save_checkpoints_steps=8, iterations_per_loop=3,
                              model_hparam_overrides=NARROW, keep_checkpoints_at=tuple(range(2, STEPS, 3)))
    start = time.monotonic()
    child = fork(lambda: train(d/'whole', d/'examples', hp)).wait()
    assert child.code==0 and child.start==0, child.text
    return d, hp, result(d/'whole'), time.monotonic()-start

def start(made, out, *cbs, **kw):
    "A child that trains by the recipe with changes"
    d, hp, *_ = made
    return fork(lambda: train(out, d/'examples', replace(hp, **kw), cbs))

def run(*args, **kw): return start(*args, **kw).wait()

def finish(made, out, *cbs, **kw):
    "The same command again, to the end; equal to a run that was never stopped"
    child = run(made, out, *cbs, **kw)
    assert child.code==0, child.text
    return child

def send(signum, at, training=True):
    "A callback by which a run sends itself a signal at a step"
    return At(at, lambda _: os.kill(os.getpid(), signum), training)

def kill_at(step): return send(signal.SIGKILL, step)
def stop_at(step): return send(signal.SIGTERM, step)

# Exact resume

def test_killed_at_random_moments(made, tmp_path):
    "At least 20 SIGKILLs after the first checkpoint, from outside, at any moment; at least 15 starts above step 0"
    _, _, whole, secs = made
    rng, kills, above, n = random.Random(0), 0, 0, 0
    while kills<20 or above<15:
        n += 1
        # A run may end before its first kill: on a fast machine half of them do
        assert n<=100, f'{kills} kills after {n} runs, {above} starts above step 0'
        out = tmp_path/str(n)
        while True:
            child = start(made, out)
            while child.running() and not checkpoints(out): time.sleep(.001)
            begun = time.monotonic()
            while child.start is None and child.running(): time.sleep(.001)
            wait = rng.uniform(0, secs/2)
            while child.running() and time.monotonic()-begun<wait: time.sleep(.001)
            alive = child.running()
            child.kill()
            above += bool(child.start)
            if not alive: break
            kills += 1
        assert child.code==0, child.text
        assert_same(result(out), whole)
    print(kills, 'kills,', above, 'starts above step 0')

@pytest.mark.parametrize('electric', [True, False])
def test_two_towers_continue(made, tmp_path, electric):
    "Electric and ELECTRA-TT, killed in the middle of a round"
    kind = dict(electra_objective=not electric, electric_objective=electric, two_tower_generator=True,
                untied_generator=True, num_train_steps=12)
    finish(made, tmp_path/'whole', **kind)
    assert run(made, tmp_path/'killed', kill_at(10), **kind).code==128+9
    assert finish(made, tmp_path/'killed', **kind).start>0
    assert_same(result(tmp_path/'killed'), result(tmp_path/'whole'))

def test_stopped_between_two_batches_of_an_update(made, tmp_path):
    "With accumulated gradients a signal waits for the end of the update"
    def two(): return GradientAccumulation(2*made[1].train_batch_size)
    finish(made, tmp_path/'whole', two())
    assert run(made, tmp_path/'stopped', two(), stop_at(12)).code==128+signal.SIGTERM
    assert finish(made, tmp_path/'stopped', two()).start==13
    assert_same(result(tmp_path/'stopped'), result(tmp_path/'whole'))
    assert result(tmp_path/'whole')[1]['position']==2*STEPS

# Precisions

def half_on_cpu():
    "Scale the gradients, as float16 on a GPU does; for a child"
    scaler = torch.amp.GradScaler
    torch.amp.GradScaler = lambda device, enabled: scaler(device, 4., growth_interval=5)

class Overflow(Callback):
    "Gradients of some batches are infinite, as in half precision"
    def __init__(self, batches): self.batches = batches
    def after_backward(self):
        if self.dls.train.position in self.batches: next(self.model.parameters()).grad[0, 0] = float('inf')

@pytest.mark.parametrize('scaled', [False, True], ids=['bf16', 'fp16'])
def test_precisions_continue(made, tmp_path, scaled):
    "Killed in the middle of an interval, scale of the gradients included; overflows cost batches, no updates"
    d, hp, *_ = made
    overflow = [3, 4, 12] if scaled else []
    def run_in(out, *cbs, precision='bf16'):
        def main():
            if scaled: half_on_cpu()
            return train(tmp_path/out, d/'examples', hp, [Overflow(overflow), *cbs], precision=precision)
        return fork(main).wait()
    assert run_in('whole').code==0
    assert run_in('killed', kill_at(13)).code==128+9
    shutil.copytree(tmp_path/'killed', tmp_path/'other')
    child = run_in('killed')
    assert child.code==0 and child.start==11 and 'bit-exact' not in child.text, child.text
    tensors, state, rows = whole = result(tmp_path/'whole')
    assert_same(result(tmp_path/'killed'), whole)
    assert (state['step'], state['position'])==(STEPS, STEPS+len(overflow))
    assert [o['step'] for o in rows if 'loss' in o]==[*range(3, STEPS+1, 3)]
    assert all(t.dtype==torch.float32 for k,t in tensors.items() if k.startswith('model/'))
    if scaled: # 5 updates in a row double it
        assert state['scaler']['scale']==8
        assert state['scaler']['_growth_tracker']==0
    child = run_in('other', precision='fp32')
    assert child.code==0 and 'precision was bf16, is fp32' in child.text, child.text

class Sum(Callback):
    "Of the losses of a run, and how many there were; a user's callback"
    def __init__(self): self.total, self.n = torch.zeros(()), 0
    def after_step(self): self.total, self.n = self.total+self.loss.detach(), self.n+1
    def state(self): return dict(total=self.total, n=self.n)
    def load_state(self, state): self.total, self.n = state['total'], state['n']

def test_a_callback_of_a_users_own_remembers(made, tmp_path):
    "Killed and continued it has the state of a run that never stopped; without it a line says so"
    finish(made, tmp_path/'whole', Sum())
    assert run(made, tmp_path/'run', Sum(), kill_at(13)).code==128+9
    shutil.copytree(tmp_path/'run', tmp_path/'other')
    assert finish(made, tmp_path/'run', Sum()).start==11
    whole = result(tmp_path/'whole')
    assert_same(result(tmp_path/'run'), whole)
    assert whole[1]['callbacks']['Sum']==dict(n=STEPS) and whole[0]['callbacks/Sum/total']>0
    said, state = finish(made, tmp_path/'other').text, result(tmp_path/'other')[1]
    assert 'the callback Sum, which had a state, is gone' in said and 'Sum' not in state['callbacks']

def test_checkpoints_of_0_3(made, tmp_path):
    "A run that has ended opens; one that was interrupted is refused in a line"
    shutil.copytree(made[0]/'whole', tmp_path/'whole')
    assert run(made, tmp_path/'run', stop_at(13)).code==128+15
    for out in ('whole', 'run'):
        path = latest_checkpoint(tmp_path/out)
        state = json.loads((path/'state.json').read_text())
        del state['callbacks']
        (path/'state.json').write_text(json.dumps(state | dict(format=3, seconds=1., skipped=0)))
        sign(path)
    assert 'Finished already' in finish(made, tmp_path/'whole').text
    child = run(made, tmp_path/'run')
    assert child.code and 'was written by another version of this program' in child.text

def test_endless_overflow_stops_a_run(made, tmp_path, monkeypatch, capsys):
    "After fifty steps in a row, with the weights of the last update"
    scaler = torch.amp.GradScaler
    monkeypatch.setattr(torch.amp, 'GradScaler', lambda device, enabled: scaler(device))
    learn = learner(made, tmp_path, [SaveCheckpoints(tmp_path), Overflow(range(7, 1000)), Watch()]).to_bf16()
    learn.fit_steps()
    assert learn.stopped and '50 steps in a row overflowed' in learn.stopped
    assert learn.stopped in capsys.readouterr().out
    assert (learn.n_updates, learn.dls.train.position, learn.skip_bad_gradients.skipped)==(6, 6+51, 0)
    assert [o['step'] for o in learn.history.rows]==[3, 6] and checkpoints(tmp_path)==['step-00000006']
    for (n,p),q in zip(learn.model.named_parameters(), learn.watch.was[0], strict=True):
        assert p.isfinite().all() and p.shape==q.shape, n

def test_scale_of_a_checkpoint(made, tmp_path, monkeypatch):
    "A float16 run on a GPU gets its scaler back, with whole numbers where it counts"
    state = dict(scale=1024., growth_factor=2., backoff_factor=.5, growth_interval=2000, _growth_tracker=7)
    learn = learner(made, tmp_path, [SaveCheckpoints(tmp_path)])
    learn.fit_steps(2)
    learn.scaler = SimpleNamespace(state_dict=lambda: state)
    learn.save_checkpoints.save()
    again = learner(made)
    restore(again, latest_checkpoint(tmp_path))
    assert again.scaler_state==state
    assert [type(o) for o in again.scaler_state.values()]==[type(o) for o in state.values()]
    loaded = []
    stub = SimpleNamespace(load_state_dict=loaded.append, state_dict=lambda: dict(scale=512.))
    monkeypatch.setattr(torch.amp, 'GradScaler',
                        lambda device, enabled: stub if (device, enabled)==('cuda', True) else None)
    half = DeviceMixedPrecision(AMPMode.FP16)
    half.learn = SimpleNamespace(dls=SimpleNamespace(device='cuda'), scaler_state=again.scaler_state, cbs=[])
    with warnings.catch_warnings():
        warnings.simplefilter('ignore') # there is no GPU
        half.before_fit()
    assert loaded==[state] and half.learn.scaler is stub
    half.after_fit()
    assert half.learn.scaler_state==dict(scale=512.) # of the next fit

def test_the_scaler_has_the_arguments_of_to_fp16(monkeypatch):
    asked = []
    monkeypatch.setattr(torch.amp, 'GradScaler', lambda device, **kw: asked.append(kw))
    half = DeviceMixedPrecision(AMPMode.FP16, init_scale=1024., growth_interval=7)
    half.learn = SimpleNamespace(dls=SimpleNamespace(device='cuda'), cbs=[])
    with warnings.catch_warnings():
        warnings.simplefilter('ignore') # there is no GPU
        half.before_fit()
    assert asked==[dict(init_scale=1024., growth_interval=7, enabled=True)]

@contextmanager
def mortal(n):
    "Every call that changes the disk counts; at the n-th the process dies as from a kill, half of a file written"
    calls = [0]
    def wrap(module, name, half=None):
        f = getattr(module, name)
        def g(*args, **kw):
            calls[0] += 1
            if calls[0]==n:
                if half: half(*args)
                os.kill(os.getpid(), signal.SIGKILL)
            return f(*args, **kw)
        setattr(module, name, g)
    wrap(os, 'replace'); wrap(os, 'fsync'); wrap(shutil, 'rmtree')
    wrap(checkpoint, 'save_file', lambda tensors, path: Path(path).write_bytes(b'half'))
    def half_a_shard(path, *_):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b'half')
    wrap(examples_of_text, '_write_arrow', half_a_shard)
    wrap(examples_of_text, 'save_file', lambda tensors, path: Path(path).write_bytes(b'half'))
    yield calls

def counted(f, n=None):
    "Run in a mortal child; the child, and how many calls it made if it lived"
    def work():
        with mortal(n) as calls: code = f()
        print('calls', calls[0])
        return code
    child = fork(work).wait()
    return child, int(child.text.split()[-1]) if child.code==0 else None

def test_killed_inside_saving(made, tmp_path):
    "At twelve of the calls that write checkpoints, history, networks"
    d, hp, whole, _ = made
    child, total = counted(lambda: train(tmp_path/'count', d/'examples', hp))
    assert total>100
    above = 0
    for n in sorted(random.Random(1).sample(range(10, total+1), 12)):
        out = tmp_path/str(n)
        assert counted(lambda: train(out, d/'examples', hp), n)[0].code==128+9
        above += finish(made, out).start>0
        assert_same(result(out), whole)
        assert not [o for o in out.rglob('.*') if o.name!='.lock'], 'what the killed process left is cleared'
    assert above>=9

def test_killed_before_there_is_a_run(made, tmp_path):
    "At each of the first calls: the folder is made, the recipe is written"
    d, hp, whole, _ = made
    for n in (1, 2, 3, 4):
        assert counted(lambda: train(tmp_path/str(n), d/'examples', hp), n)[0].code==128+9
    assert finish(made, tmp_path/'1').start==0
    assert finish(made, tmp_path/'2').start==0
    assert_same(result(tmp_path/'1'), whole)

def test_killed_while_building_examples(made, tmp_path):
    "The same folder to the byte, and nothing beside it"
    d = made[0]
    corpus = tmp_path/'corpus'
    corpus.mkdir()
    for i in range(4): (corpus/f'{i}.txt').write_text(tales())
    def build(out): build_examples(corpus, d/'vocab', out, max_length=16, held_out=.1)
    child, total = counted(lambda: build(tmp_path/'0'/'examples'))
    assert total>20, child.text
    whole = files_of(tmp_path/'0'/'examples')
    for n in sorted(random.Random(2).sample(range(1, total+1), 10)):
        out = tmp_path/str(n)/'examples'
        assert (o := counted(lambda: build(out), n)[0]).code==128+9, (n, total, o.text)
        assert fork(lambda: build(out)).wait().code==0
        assert files_of(out)==whole and os.listdir(out.parent)==['examples']

@pytest.mark.parametrize('name', ['out', 'out.npz'])
def test_killed_while_converting(made, tmp_path, name):
    "The same file or folder to the byte, and nothing beside it"
    def convert(folder):
        with quiet_loading(): convert_weights(made[0]/'whole', folder/name)
    child, total = counted(lambda: convert(tmp_path/'0'))
    assert child.code==0, child.text
    whole = files_of(tmp_path/'0')
    for n in sorted(random.Random(3).sample(range(1, total+1), min(total, 6))):
        out = tmp_path/str(n)
        assert (o := counted(lambda: convert(out), n)[0]).code==128+9, (n, total, o.text)
        again = fork(lambda: convert(out)).wait()
        assert again.code==0 or 'exists already' in again.text, again.text
        assert files_of(out).keys()==whole.keys() and all(files_of(out)[k]==v for k,v in whole.items() if k[-3:]!='png')

@pytest.fixture(scope='module')
def table(tmp_path_factory):
    "Sentences and classes"
    path = tmp_path_factory.mktemp('table')/'rows.csv'
    path.write_text('text,label\n' + ''.join(f'the king saw {i} of it,{i%3}\n' for i in range(40)))
    return path

def tuned(made, table, out):
    task = text_task('rows', table, text='text', label='label')
    run_trials(str(made[0]/'whole'), [task], out, device='cpu', num_trials=2, num_train_epochs=1, max_seq_length=16)

def test_killed_while_fine_tuning(made, table, tmp_path):
    "Finished trials are kept, and nothing stays of the one that was being written"
    child, total = counted(lambda: tuned(made, table, tmp_path/'0'))
    assert child.code==0, child.text
    whole = files_of(tmp_path/'0')
    for n in sorted(random.Random(4).sample(range(1, total+1), 6)):
        out = tmp_path/str(n)
        assert (o := counted(lambda: tuned(made, table, out), n)[0]).code==128+9, (n, total, o.text)
        assert (o := fork(lambda: tuned(made, table, out)).wait()).code==0, o.text
        assert files_of(out).keys()==whole.keys()
        assert all(o==whole[k] for k,o in files_of(out).items() if k.endswith('.safetensors'))

def test_one_process_fine_tunes_a_folder(made, table, tmp_path):
    "Another would delete what the first is writing"
    def stopped():
        trials.save_trial = lambda *_: os.kill(os.getpid(), signal.SIGSTOP)
        tuned(made, table, tmp_path/'out')
    first = fork(stopped)
    while first.running() and 'trial 0, seed 0' not in first.text: time.sleep(.01)
    second = fork(lambda: tuned(made, table, tmp_path/'out')).wait()
    first.kill()
    assert second.code==1 and f'out is being written by process {first.pid} on' in second.text, second.text

@pytest.mark.parametrize('signum', [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize('training,step,done', [(True, 12, 13), (False, 16, 16), (False, STEPS, STEPS), (True, 7, 8)])
def test_told_to_stop(made, tmp_path, signum, training, step, done):
    "Within one step, in training and in an evaluation, with all saved"
    child = run(made, tmp_path/'run', send(signum, step, training))
    assert child.code==128+signum and f'Stopped by {signum.name} at step {done}' in child.text, child.text
    assert latest_checkpoint(tmp_path/'run').name==f'step-{done:08d}'
    assert finish(made, tmp_path/'run').start==done
    assert_same(result(tmp_path/'run'), made[2])

@pytest.mark.parametrize('first', [signal.SIGINT, signal.SIGTERM])
def test_told_twice(made, tmp_path, first):
    "The second signal does not wait, whichever came first"
    d, hp, *_ = made
    def tell(learn):
        for o in (first, signal.SIGINT): os.kill(os.getpid(), o)
    def work():
        # A shell that runs tests in the background lets them ignore it
        signal.signal(signal.SIGINT, signal.default_int_handler)
        return train(tmp_path/'run', d/'examples', hp, [At(12, tell)])
    child = fork(work).wait()
    assert child.code==1 and 'KeyboardInterrupt' in child.text and 'Stopped by' not in child.text

def test_killed_before_the_curves_are_drawn(made, tmp_path):
    "After the last checkpoint: the same command draws them"
    d, hp, *_ = made
    def die(*_): os.kill(os.getpid(), signal.SIGKILL)
    def work():
        write, runs.plot_history = runs.SaveCheckpoints.write, die
        runs.SaveCheckpoints.write = lambda self, curves: write(self, curves and self.n_updates==STEPS)
        return train(tmp_path/'run', d/'examples', hp, curves=True)
    assert fork(work).wait().code==128+9 and checkpoints(tmp_path/'run')[-1]==f'step-{STEPS:08d}'
    assert fork(lambda: train(tmp_path/'run', d/'examples', hp, curves=True)).wait().code==0
    assert (tmp_path/'run/curves.png').stat().st_size and (tmp_path/'run/discriminator').is_dir()

def test_evaluation_is_not_repeated(made, tmp_path):
    "Stopped in an evaluation, then killed right after it, before its checkpoint"
    out = tmp_path/'run'
    run(made, out, send(signal.SIGTERM, 8, training=False))
    class Die(Callback):
        order = SaveCheckpoints.order-1
        def after_epoch(self): os.kill(os.getpid(), signal.SIGKILL)
    child = run(made, out, Die())
    assert child.code==128+9 and child.start==8 and any('held_out' in o for o in read_history(out/'history.jsonl'))
    finish(made, out)
    assert_same(result(out), made[2])

def test_other_circumstances_are_said(made, tmp_path):
    "Another number of threads: the same data, and a warning"
    d, hp, whole, _ = made
    out = tmp_path/'run'
    run(made, out, stop_at(10))
    def other():
        torch.get_num_threads = lambda: 2
        return train(out, d/'examples', hp)
    child = fork(other).wait()
    assert child.code==0 and 'not bit-exact' in child.text and 'threads was 1, is 2' in child.text
    assert result(out)[1]['position']==whole[1]['position']==STEPS

def test_examples_in_the_same_order(made):
    "A stream that is continued anywhere gives each example of an epoch once, whatever was read before"
    d, hp, *_ = made
    dl = lambda: PretrainDL(load_examples(d/'examples', hp), hp.train_batch_size, True, hp.seed, 'cpu')
    whole, n = dl(), 2*dl().per_epoch
    stream = [whole.numbers(i).tolist() for i in range(n)]
    assert len({o for b in stream[:n//2] for o in b})==n//2*hp.train_batch_size
    for at in (1, n//3, n//2, n-1):
        again = dl()
        again.position = at
        assert again.one_batch()[0].tolist()==whole.batch(at)[0].tolist() and again.numbers(at).tolist()==stream[at]

# Checkpoints: which are written, which stay

def test_chosen_steps_stay(made, tmp_path):
    finish(made, tmp_path/'run', keep_checkpoints_at=(.0625, .125, .25, .5, 1, 11), keep_checkpoint_max=1)
    assert checkpoints(tmp_path/'run')==[f'step-{o:08d}' for o in (2, 3, 6, 11, 12, 24)]

@pytest.mark.parametrize('cost,saved', [(0, [5, 10, 15, 20]), (.21, [5, 16]), (1, [5])])
def test_saved_by_the_clock(made, tmp_path, cost, saved):
    "Every five seconds in a round of 24 steps of a second each; after a save of 0.21 s 10.5 s pass, which is 2 %"
    d, hp, *_ = made
    def main():
        now, save = [0.], runs.save_checkpoint
        runs.time = SimpleNamespace(monotonic=lambda: now[0])
        def slow(*args):
            now[0] += cost
            return save(*args)
        runs.save_checkpoint = slow
        class Clock(Callback):
            def after_step(self): now[0] += 1
        often = replace(hp, keep_checkpoints_at=(), keep_checkpoint_max=None, save_checkpoints_steps=STEPS,
                        save_checkpoints_secs=5)
        return train(tmp_path/'run', d/'examples', often, [Clock()])
    child = fork(main).wait()
    assert child.code==0 and checkpoints(tmp_path/'run')==[f'step-{o:08d}' for o in (*saved, STEPS)], child.text

def test_all_damaged_is_refused(made, tmp_path):
    shutil.copytree(made[0]/'whole', tmp_path/'run')
    for o in (tmp_path/'run/checkpoints').glob('step-*'): (o/'state.json').write_text('{}')
    for _ in range(2):
        child = run(made, tmp_path/'run')
        assert child.code==1 and 'InputError: every checkpoint' in child.text
    assert read_history(tmp_path/'run/history.jsonl')==read_history(made[0]/'whole/history.jsonl')

def test_damaged_newest_means_the_one_before(made, tmp_path):
    d, hp, whole, _ = made
    shutil.copytree(d/'whole', tmp_path/'run')
    with open(tmp_path/f'run/checkpoints/step-{STEPS:08d}/tensors.safetensors', 'r+b') as f:
        f.seek(-9, 2)
        f.write(b'x')
    child = finish(made, tmp_path/'run')
    assert child.start==23 and f'step-{STEPS:08d} is damaged' in child.text
    assert 'does not match its checksum' in child.text
    assert_same(result(tmp_path/'run'), whole)

# Disks that fail

def full_disk(learn):
    "No file may grow past 3,000 bytes: less than a checkpoint has, and a log to which the run prints has them already"
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    log = os.open(learn.save_checkpoints.out.with_name('log'), os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.write(log, b'x'*3000)
    os.dup2(log, 1)
    import resource # unknown on Windows
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, resource.RLIM_INFINITY))
def free_disk(learn):
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

def away(learn):
    "An empty mount point where the run was"
    learn.save_checkpoints.out.rename(learn.save_checkpoints.out.with_name('away'))
    learn.save_checkpoints.out.mkdir()
def back(learn): mount(learn.save_checkpoints.out)
def mount(out):
    assert not (out/'checkpoints').exists()
    shutil.rmtree(out)
    out.with_name('away').rename(out)

def read_only(learn):
    def refuse(*args, **kw): raise OSError(errno.EROFS, os.strerror(errno.EROFS))
    files.tempfile.mkdtemp, learn.mkdtemp = refuse, files.tempfile.mkdtemp
def writable(learn): files.tempfile.mkdtemp = learn.mkdtemp

DISKS = {
    'full': (full_disk, free_disk, 'File too large'),
    'gone': (away, back, 'the folder is gone'),
    'read-only': (read_only, writable, 'Read-only file system'),
}

@pytest.mark.parametrize('how', DISKS)
def test_training_goes_on_without_a_disk(made, tmp_path, how):
    "Nothing can be saved from step 4 to step 19; then all is as if nothing had been"
    d, hp, whole, _ = made
    ill, well, words = DISKS[how]
    def main():
        SaveCheckpoints.pause = 0
        return train(tmp_path/'run', d/'examples', hp, [At(4, ill), At(19, well)])
    child = fork(main).wait()
    assert child.code==0 and 'NOT SAVED at step 5' in child.text and words in child.text, child.text
    assert checkpoints(tmp_path/'run')[:2]==['step-00000002', 'step-00000020']
    assert_same(result(tmp_path/'run'), whole)

@pytest.mark.parametrize('how', DISKS)
def test_killed_without_a_disk(made, tmp_path, how):
    "The last good checkpoint is still there"
    assert run(made, tmp_path/'run', At(4, DISKS[how][0]), kill_at(15)).code==128+9
    if how=='gone': mount(tmp_path/'run')
    assert finish(made, tmp_path/'run').start==2
    assert_same(result(tmp_path/'run'), made[2])

def test_end_that_cannot_be_saved(made, tmp_path):
    "Is an error that says from where the same command continues; it does"
    child = run(made, tmp_path/'run', At(16, full_disk))
    assert child.code==1 and 'could not be saved' in child.text and 'step-00000016' in child.text, child.text
    assert not (tmp_path/'run/discriminator').exists(), child.text
    assert finish(made, tmp_path/'run').start==16
    assert_same(result(tmp_path/'run'), made[2])

# Two processes, changed data, changed recipes

def test_lock(made, tmp_path):
    "A second process is refused; the lock of a killed one is none"
    first = start(made, tmp_path/'run', send(signal.SIGSTOP, 10))
    while not (tmp_path/'run/checkpoints/step-00000008').is_dir(): time.sleep(.01)
    second = run(made, tmp_path/'run')
    assert second.code==1 and f'InputError: {tmp_path}/run is being written by process {first.pid} on' in second.text
    first.kill()
    assert finish(made, tmp_path/'run').start==8
    assert_same(result(tmp_path/'run'), made[2])

@pytest.mark.parametrize('name', [
    'data-00000-of-00001.arrow',
    'token_counts.safetensors',
    'held_out/data-00000-of-00001.arrow',
    'vocab/tokenizer.json',
])
def test_changed_data_is_refused(made, tmp_path, name):
    d, hp, *_ = made
    shutil.copytree(d/'examples', tmp_path/'examples')
    here, out = (tmp_path, hp), tmp_path/'run'
    assert run(here, out, stop_at(4)).code==128+15
    file = tmp_path/'examples'/name
    was = file.read_bytes()
    if name.endswith('.json'):
        changed = was.replace(b'"king"', b'"kong"').replace(b'"ship"', b'"shop"')
        file.write_bytes(changed.replace(b'"##a"', b'"##\xc3\xa0"'))
    else: file.write_bytes(was[:-40] + bytes([was[-40]^1]) + was[-39:])
    child = run(here, out)
    assert child.code==1 and 'InputError' in child.text, child.text
    assert str(file) in child.text or 'vocabulary' in child.text, child.text
    file.write_bytes(was)
    os.utime(file)
    assert finish(here, out).start==5

def test_what_may_change_between_starts(made, tmp_path):
    run(made, tmp_path/'run', stop_at(4))
    kept = dict(keep_checkpoint_max=2, keep_checkpoints_at=(), save_checkpoints_secs=None, max_skipped_updates=3)
    assert finish(made, tmp_path/'run', **kept).start==5
    assert_same(result(tmp_path/'run'), made[2])

# Guards

class Spoil(Callback):
    "Multiplies the gradient at some steps"
    def __init__(self, steps, factor): self.steps, self.factor = steps, factor
    def after_backward(self):
        if self.learn.n_updates in self.steps:
            for p in self.model.parameters():
                if p.grad is not None: p.grad.mul_(self.factor)

class Watch(Callback):
    "Which updates moved a weight or a moment"
    order = 95
    def before_fit(self): self.learn.moved = {}
    def now(self):
        moments = [v.clone() for k,v in self.opt.moments().items() if not k.endswith('step')]
        return [p.detach().clone() for p in self.model.parameters()], moments
    def before_step(self): self.was = self.now()
    def after_step(self):
        moved = any(len(a)!=len(b) or not all(map(torch.equal, a, b)) for a,b in zip(self.was, self.now()))
        self.learn.moved[self.learn.n_updates-1] = moved

def learner(made, out=None, cbs=(), **kw):
    d, hp, *_ = made
    hp = replace(hp, **kw)
    train, held = load_examples(d/'examples', hp), load_examples(d/'examples/held_out', hp)
    torch.manual_seed(0)
    return electra_learner(pretrain_dls(train, held, hp, 'cpu'), hp, out=out, cbs=cbs)

@pytest.mark.parametrize('factor', [float('nan'), float('inf'), 1e6])
def test_spoilt_updates_are_left_out_and_counted(made, tmp_path, factor, capsys):
    learn = learner(made, tmp_path, [Spoil([6, 13], factor), Watch()])
    learn.fit_steps()
    assert [k for k,v in learn.moved.items() if not v]==[6, 13] and len(learn.moved)==STEPS and learn.stopped is None
    rows = [o for o in read_history(tmp_path/'history.jsonl') if 'skipped' in o]
    found = [(o['step'], o['skipped']['number'], o['skipped']['examples']) for o in rows]
    assert found==[(s+1, i+1, learn.dls.train.numbers(s).tolist()) for i,s in enumerate((6, 13))]
    assert 'Step 7: update skipped' in capsys.readouterr().out
    assert all(np.isfinite(o['loss']) for o in read_history(tmp_path/'history.jsonl') if 'loss' in o)

def test_a_loss_that_is_not_finite_is_left_out_of_the_history(made, tmp_path):
    class SpoilLoss(Callback):
        def after_loss(self):
            if self.training and self.learn.n_updates==6:
                self.learn.loss, self.learn.loss_grad = self.loss*float('nan'), self.loss_grad*float('nan')
    learn = learner(made, tmp_path, [SpoilLoss(), Watch()])
    learn.fit_steps(9)
    rows = read_history(tmp_path/'history.jsonl')
    assert [k for k,v in learn.moved.items() if not v]==[6]
    assert [o['skipped']['loss'] for o in rows if 'skipped' in o]==['nan']
    assert len(losses := [o['loss'] for o in rows if 'loss' in o])==3 and np.isfinite(losses).all()

def test_spikes_can_be_let_through(made):
    learn = learner(made, None, [Spoil([6], 1e6), Watch()], grad_spike_factor=None)
    learn.fit_steps(8)
    assert all(learn.moved.values()) and learn.skip_bad_gradients.skipped==0

def test_a_spike_of_short_gradients_is_one(made):
    "Usual are norms far below 1: what counts is the ratio"
    learn = learner(made, None, [Spoil([6], 1e6), Watch()], gen_weight=1e-4, disc_weight=1e-4)
    learn.fit_steps(8)
    assert [k for k,v in learn.moved.items() if not v]==[6] and learn.skip_bad_gradients.usual<1

def test_too_many_skipped_updates_stop_the_run(made, tmp_path):
    "With the last good weights saved; the same command stops again, a larger bound goes on; what was skipped stays so"
    def spoil(): return Spoil([6, 7, 13], float('nan'))
    child = run(made, tmp_path/'run', spoil(), max_skipped_updates=1)
    assert child.code==1 and 'Stopped at step 8: 2 updates had to be skipped' in child.text
    assert checkpoints(tmp_path/'run')[-1]=='step-00000008'
    assert run(made, tmp_path/'run', spoil(), max_skipped_updates=1).code==1
    assert finish(made, tmp_path/'run', spoil()).start==8
    finish(made, tmp_path/'whole', spoil())
    a, b = result(tmp_path/'run'), result(tmp_path/'whole')
    assert_same(a, b)
    assert [o['step'] for o in a[2] if 'skipped' in o]==[7, 8, 14]
    assert a[1]['callbacks']['SkipBadGradients']['skipped']==3

# Garbage: an InputError that names the file, or it works

FUZZ = dict(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
JSON = st.recursive(VALUES, lambda o: st.lists(o, max_size=3) | st.dictionaries(st.text(max_size=4), o, max_size=3),
                    max_leaves=6)

@st.composite
def garbled(draw, size):
    "What happens to the bytes of a file: some are changed, some are missing, some are too many, or all are others"
    cuts = st.integers(0, size-1)
    kind = draw(st.sampled_from(['change', 'cut', 'remove', 'insert', 'other']))
    if kind=='other': return lambda b, o=draw(st.binary(max_size=64)): o
    if kind=='cut': return lambda b, n=draw(cuts): b[:n]
    if kind=='remove': return lambda b, i=draw(cuts), n=draw(st.integers(1, 64)): b[:i] + b[i+n:]
    if kind=='insert': return lambda b, i=draw(cuts), o=draw(st.binary(min_size=1, max_size=16)): b[:i] + o + b[i:]
    place = st.integers(0, min(size, 4000)-1) | cuts
    where = draw(st.lists(st.tuples(place, st.integers(1, 255)), min_size=1, max_size=4))
    def change(b):
        b = bytearray(b)
        for i,x in where: b[i] ^= x
        return bytes(b)
    return change

def sign(folder):
    "Checksums that agree, as somebody who means ill would write them"
    facts = {o: file_facts(folder/o) for o in ('tensors.safetensors', 'state.json')}
    (folder/'checksums.json').write_text(json.dumps(facts))

@pytest.fixture(scope='module')
def victim(made, tmp_path_factory):
    "A run with one checkpoint, and a learner to restore"
    d, hp, *_ = made
    run = tmp_path_factory.mktemp('victim')
    shutil.copytree(d/'whole/checkpoints'/f'step-{STEPS:08d}', run/'good')
    return run, learner(made)

def trial(victim, spoil, signed):
    "Restore from a spoilt checkpoint; whether it was accepted"
    run, learn = victim
    shutil.rmtree(run/'checkpoints', ignore_errors=True)
    bad = run/'checkpoints/step-00000024'
    shutil.copytree(run/'good', bad)
    spoil(bad)
    if signed: sign(bad)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            restore(learn, latest_checkpoint(run))
    except InputError as e:
        assert 'step-00000024' in str(e) or 'checkpoints' in str(e)
        return False
    np.random.rand(700); random.random(); torch.rand(700); torch.rand(700)
    return True

@settings(max_examples=80, **FUZZ)
@given(st.data())
def test_fuzzed_checkpoint_files(victim, data):
    file = data.draw(st.sampled_from(['tensors.safetensors', 'state.json', 'checksums.json']))
    was = (victim[0]/'good'/file).read_bytes()
    garble = data.draw(garbled(len(was)))
    changed = garble(was)
    signed = file!='checksums.json' and data.draw(st.booleans())
    accepted = trial(victim, lambda bad: (bad/file).write_bytes(changed), signed)
    assert signed or not accepted or changed==was or file=='checksums.json'

def restate(change):
    "What spoils the state of a checkpoint"
    def spoil(bad):
        state = json.loads((bad/'state.json').read_text())
        change(state)
        (bad/'state.json').write_text(json.dumps(state))
    return spoil

@settings(max_examples=80, **FUZZ)
@given(st.data())
def test_fuzzed_checkpoint_state(victim, data):
    "One value of the state, at any depth of its first two levels, is something else"
    def change(state):
        at, key = state, data.draw(st.sampled_from(sorted(state)))
        if isinstance(at[key], dict) and at[key] and data.draw(st.booleans()):
            at, key = at[key], data.draw(st.sampled_from(sorted(at[key])))
        if data.draw(st.booleans()): at[key] = data.draw(JSON)
        else: del at[key]
    trial(victim, restate(change), True)

@settings(max_examples=60, **FUZZ)
@given(st.data())
def test_fuzzed_checkpoint_tensors(victim, data):
    "One tensor is gone, of another shape or type, or full of other numbers; or one is there that nobody knows"
    def spoil(bad):
        tensors = load_file(bad/'tensors.safetensors')
        tensors = {k: t.clone() for k,t in tensors.items()}
        key = data.draw(st.sampled_from(sorted(tensors)))
        t = tensors[key]
        how = data.draw(st.sampled_from(['gone', 'shape', 'type', 'numbers', 'stranger']))
        if how=='gone': del tensors[key]
        if how=='shape':
            shapes = [t.flatten()[:-1], t.repeat(2) if t.ndim<2 else t.T.contiguous(), t[None]]
            tensors[key] = data.draw(st.sampled_from(shapes))
        if how=='type':
            types = [torch.float16, torch.int32, torch.uint8, torch.bool]
            tensors[key] = t.to(data.draw(st.sampled_from(types)))
        if how=='numbers': t.view(-1).view(torch.uint8).random_(0, 256)
        if how=='stranger':
            group = data.draw(st.sampled_from(['model/', 'optimizer/', 'rng/', '']))
            tensors[group+data.draw(st.text(max_size=8))] = torch.zeros(2)
        save_file(tensors, bad/'tensors.safetensors')
        return how
    trial(victim, spoil, True)

@pytest.mark.parametrize('name,value', [('step', STEPS+1), ('evaluated', STEPS+1), ('position', -1), ('rows', 2**53),
                                        ('callbacks', dict(SkipBadGradients=dict(skipped=1.))),
                                        ('callbacks', dict(JSONLLogger={})), ('callbacks', [])])
def test_counts_that_no_run_has_are_refused(victim, name, value):
    assert not trial(victim, restate(lambda state: state.update({name: value})), True)

@pytest.mark.parametrize('at', [625, -1, 2**40, 1., True])
def test_generators_do_not_read_where_they_should_not(victim, at):
    "numpy takes any place in its 624 words for true"
    def change(state): state['rng']['numpy'][0] = at
    assert not trial(victim, restate(change), True)

def test_pipes_are_not_waited_for(victim):
    def spoil(bad):
        (bad/'state.json').unlink()
        os.mkfifo(bad/'state.json')
    assert not trial(victim, spoil, False)

@settings(max_examples=80, **FUZZ)
@given(st.data())
def test_fuzzed_examples(made, tmp_path, data):
    "Refused with the name of the folder when they are opened or when the batch is read, or they have the right form"
    (d, hp, *_), folder = made, tmp_path/'examples'
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(d/'examples', folder)
    file = data.draw(st.sampled_from(['data-00000-of-00001.arrow', 'data.json', 'token_counts.safetensors',
                                      'vocab/tokenizer.json', 'vocab/vocab.txt']))
    was = (folder/file).read_bytes()
    (folder/file).write_bytes(data.draw(garbled(len(was)))(was))
    try:
        examples = load_examples(folder, hp)
        dl = PretrainDL(examples, 4, True, 0, 'cpu')
        for i in range(min(dl.per_epoch, 50)): ids, a = dl.batch(i)
        assert ids.shape==(4, 16) and 0<=ids.min() and ids.max()<hp.vocab_size
        assert examples.token_counts().shape==(hp.vocab_size,)
    except InputError as e: assert str(folder) in str(e)

SPECIAL = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]']
ODD = ['a', '##a', '', ' ', '##', '\x00', '\u2028', 'é', '[unused1]', 'x'*300]
PIECES = st.sampled_from([*SPECIAL, *ODD]) | st.text(max_size=5)
def vocab_bytes(pieces): return '\n'.join([*SPECIAL, *pieces]).encode('utf-8', 'surrogatepass')

@settings(max_examples=80, **FUZZ)
@given(st.one_of(st.binary(max_size=60), st.lists(PIECES, max_size=12).map(vocab_bytes)), st.booleans())
def test_fuzzed_vocabularies(tmp_path, content, lower):
    file = tmp_path/'vocab.txt'
    file.write_bytes(content)
    try: tok = load_tokenizer(file, lower)
    except InputError as e: assert 'vocab.txt' in str(e)
    else: assert set(tok('a xyz')['input_ids'])<=set(range(len(tok)))

NAMES = st.sampled_from([*preset().__dataclass_fields__])
ALMOST = ['tiny', 'distinct', 10**400, -1, [[8, 1.0]], [0.5], {'hidden_size': 0}, {'num_attention_heads': 0}]
NUMBERS = st.integers(-1, 1100) | st.floats(0, 1) | st.booleans()

def asked_of(text): return PretrainRequest(preset='tiny', hparams=text).new_recipe()

@settings(max_examples=120, **FUZZ)
@given(st.dictionaries(NAMES, JSON | NUMBERS | st.sampled_from(ALMOST), max_size=3) | JSON)
def test_fuzzed_hparams(said):
    text = json.dumps(said)
    try: body_config(hp := asked_of(text))
    except InputError as e: assert 'hparam' in str(e) or '`' in str(e)
    else: assert asked_of(json.dumps(asdict(hp)))==hp

@settings(max_examples=40, **FUZZ)
@given(st.data())
def test_fuzzed_recipe_of_a_run(made, tmp_path, data):
    "hparams.json of a run that is there"
    d, hp, *_ = made
    was = (d/'whole/hparams.json').read_bytes()
    (tmp_path/'hparams.json').write_bytes(data.draw(garbled(len(was)))(was))
    try: assert PretrainRequest(d/'examples', tmp_path, hparams=hp).settle().hp==hp
    except InputError: pass

@pytest.mark.parametrize('text', [
    '{"a":'*100_000,
    '['*100_000,
    '{"seed": 1' + '0'*5000 + '}',
    'x'*5000,
    'a\x00b',
    '{"mask_prob": NaN}',
    '{"gen_weight": Infinity}',
    '{"model_hparam_overrides": {"hidden_act": 3}}',
])
def test_hparams_that_break_parsers(text):
    with pytest.raises(InputError): body_config(asked_of(text))
