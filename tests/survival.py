"Runs in real processes that are stopped in every way, and what is compared afterwards"
import os, re, signal, socket, sys, threading, time, traceback, warnings
from contextlib import closing, suppress
from dataclasses import dataclass

import pytest
import torch
from accelerate.state import AcceleratorState
from fastai.callback.core import Callback
from fastai.torch_core import set_seed
from safetensors.torch import load_file
from tqdm import tqdm

from electra_nbdev.pretraining.request import run_pretraining
from electra_nbdev.pretraining import runs # what a run imports, once for all the children
from electra_nbdev.engine.checkpoint import latest_checkpoint, load_checkpoint
from electra_nbdev.engine.ranks import rank
from electra_nbdev.pretraining.monitor import read_history
from make import NARROW, NO_DROPOUT, examples_of_tales
from official import seen_ids

# Forks share the lock of tqdm, and one that is killed while it draws would stop the others
tqdm.set_lock(threading.RLock())

@dataclass
class Child:
    "A forked process that runs a function; its output comes through a pipe, which no full disk and no limit concerns"
    pid:int
    pipe:int
    code:int|None = None # as a shell counts: 128+9 for a SIGKILL
    said:bytes = b''

    def running(self):
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid: self.code = self._shell(status)
        return self.code is None

    def wait(self, secs=60):
        "Until it has ended; one that hangs is killed"
        end = time.monotonic()+secs
        while self.running():
            if time.monotonic()>end:
                self.kill()
                raise TimeoutError(self.text)
            time.sleep(.002)
        return self

    def kill(self, signum=9):
        "Send a signal; after a SIGKILL it is dead when this returns"
        if not self.running(): return
        os.kill(self.pid, signum)
        if signum==signal.SIGKILL: self.code = self._shell(os.waitpid(self.pid, 0)[1])

    @staticmethod
    def _shell(status):
        code = os.waitstatus_to_exitcode(status)
        return code if code>=0 else 128-code

    @property
    def text(self):
        "What it has printed so far"
        try:
            while piece := os.read(self.pipe, 1<<16): self.said += piece
        except BlockingIOError: pass
        return self.said.decode()

    @property
    def start(self):
        "From which step it says it began"
        found = re.search(r"(?:Starting|Continuing|Finished already) at step (\d+)", self.text)
        return found and int(found[1])

def fork(f):
    "Run `f` in a child of this process"
    sys.stdout.flush(); sys.stderr.flush()
    reader, writer = os.pipe()
    if pid := os.fork():
        os.close(writer)
        os.set_blocking(reader, False)
        return Child(pid, reader)
    code = 1
    try:
        os.dup2(writer, 1); os.dup2(writer, 2)
        sys.stdout, sys.stderr = os.fdopen(1, 'w', closefd=False), os.fdopen(2, 'w', closefd=False)
        warnings.simplefilter('always') # pytest keeps those of its own process to itself
        warnings.showwarning = lambda message, *_: print(f'Warning: {message}', file=sys.stderr, flush=True)
        # The thread pool is renewed at its first use after a fork; two threads at once would race for that
        torch.set_num_threads(1)
        code = f() or 0
    except SystemExit as e: code = e.code
    except BaseException: traceback.print_exc()
    finally:
        for o in (sys.stderr, sys.stdout):
            with suppress(OSError): o.flush()
        os._exit(code)

class At(Callback):
    "Does something when a step begins, of training or of the evaluation after it; late: the batch is there already"
    order = 90
    def __init__(self, step, act, training=True): self.step, self.act, self.when = step, act, training
    def before_batch(self):
        if self.training==self.when and self.learn.n_updates==self.step:
            self.step = None
            self.act(self.learn)

def train(out, examples, hp, cbs=(), curves=False, **kwargs):
    "What a child does: `run_pretraining` with further callbacks"
    set_seed(os.getpid()) # a process of its own would be somewhere else in its random numbers
    if not curves: runs.plot_history = lambda *_: None # half a second each, and no part of what is compared
    learn = run_pretraining(examples, out, hp, device='cpu', cbs=cbs, **kwargs)
    return learn.exit_code if learn.stopped else 0

def checkpoints(out): return sorted(o.name for o in out.glob('checkpoints/step-*'))

def timeless(row): return {k: v for k,v in row.items() if k!='tokens_per_s'}

def result(out):
    "All that two runs have to have in common at their end, bit-exact; only times are left out"
    tensors, state = load_checkpoint(latest_checkpoint(out))
    state['callbacks']['JSONLLogger'].pop('seconds')
    nets = {f'{o.parent.name}/{k}': t for o in sorted(out.rglob('model.safetensors')) for k,t in load_file(o).items()}
    assert nets
    return tensors | nets, state, [timeless(o) for o in read_history(out/'history.jsonl')]

def assert_same(a, b):
    "Two results are the same"
    assert a[0].keys()==b[0].keys() and any(k.endswith('exp_avg_sq') for k in a[0])
    for k,t in a[0].items(): assert t.dtype==b[0][k].dtype and torch.equal(t, b[0][k]), k
    assert a[1]==b[1]
    assert a[2]==b[2]

# Several processes that share a run

def free_port():
    with closing(socket.socket()) as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]

def launch(n, f):
    "What a launcher does: the same function in `n` processes that know of each other"
    port = free_port()
    def member(i):
        os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port), WORLD_SIZE=str(n), LOCAL_WORLD_SIZE=str(n),
                          RANK=str(i), LOCAL_RANK=str(i))
        AcceleratorState._reset_state(True) # of a `Trainer` that ran in this process before
        return f()
    return [fork(lambda: member(i)) for i in range(n)] if n>1 else [fork(f)]

def finished(children):
    "All of them have ended well"
    codes = [o.wait(120).code for o in children]
    assert not any(codes), '\n'.join(f'process {i}: {codes[i]}\n{o.text}' for i,o in enumerate(children))

@pytest.fixture(scope='module')
def made(tmp_path_factory):
    "Examples, and a narrow recipe without dropout and without warmup"
    return examples_of_tales(tmp_path_factory.mktemp('ranks'), 110, length_schedule=((8, .3), (16, .7)),
                             num_train_steps=50, num_warmup_steps=0, save_checkpoints_steps=25, iterations_per_loop=5,
                             num_eval_steps=3, model_hparam_overrides=NARROW | NO_DROPOUT)

class Seen(Callback):
    "What this process sees in each step, and the norm of the gradient of each update"
    order, run_valid = 900, False
    def __init__(self, path): self.path, self.rows, self.norms = path, [], []
    def after_pred(self):
        mb = self.masked
        self.rows.append([mb.masked_ids, mb.u, seen_ids(self.learn)])
    def after_step(self): self.norms.append(float(self.grad_norm))
    def after_fit(self): torch.save((self.rows, self.norms), f'{self.path}.{rank()}')

def weights(out): return {k: t for k,t in load_checkpoint(latest_checkpoint(out))[0].items() if k.startswith('model/')}

def distance(a, b): return sum(((a[k]-b[k]).double()**2).sum() for k in a)**.5

def run(d, out, hp, n, cbs=lambda: (), **kwargs):
    "A run of `n` processes, to its end"
    finished(launch(n, lambda: train(out, d/'examples', hp, cbs(), **kwargs)))

def assert_alike(a, b, begin, bound=1e-3):
    "Weights of two runs are close, by how far they have moved; what they have counted is the same"
    moved = distance(weights(a), begin)
    assert moved>.1
    assert distance(weights(a), weights(b))<bound*moved, (float(distance(weights(a), weights(b))), float(moved))
    rows = [result(o)[2] for o in (a, b)]
    assert len(rows[0])==len(rows[1])
    for one,two in zip(*rows):
        assert one.keys()==two.keys()
        for k,v in one.items():
            for name,x in (v if isinstance(v, dict) else {k: v}).items():
                y = two[k][name] if isinstance(v, dict) else two[k]
                assert y==pytest.approx(x, rel=.02, abs=.02, nan_ok=True), (one['step'], name)

def killed(children, victim, out, at, later):
    "Kill one a moment after a checkpoint; whether the run had ended before, and the other process when it has ended"
    while all(o.running() for o in children) and len(checkpoints(out))<at: time.sleep(.001)
    time.sleep(later)
    ended = not all(o.running() for o in children)
    if ended: finished(children)
    else: children[victim].kill()
    return ended, children[1-victim].wait(60)
