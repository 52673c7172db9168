"Runs in real processes that are stopped in every way, and what is compared afterwards"
import json, os, re, signal, sys, threading, time, traceback, warnings
from contextlib import suppress
from dataclasses import dataclass

import torch
from fastai.callback.core import Callback
from fastai.torch_core import set_seed
from safetensors.torch import load_file
from tqdm import tqdm

from electra_nbdev.pretraining import runs # what a run imports, once for all the children
from electra_nbdev.engine import fast_cpu
from electra_nbdev.engine.checkpoint import latest_checkpoint, load_checkpoint
from electra_nbdev.pretraining.monitor import read_history

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
    learn = runs.run_pretraining(examples, out, hp, device='cpu', cbs=cbs, **kwargs)
    return learn.exit_code if learn.stopped else 0

def checkpoints(out): return sorted(o.name for o in out.glob('checkpoints/step-*'))

def timeless(row): return {k: v for k,v in row.items() if k!='tokens_per_s'}

def result(out):
    "All that two runs have to have in common at their end, bit-exact; only times are left out"
    tensors, state = load_checkpoint(latest_checkpoint(out))
    state.pop('seconds')
    nets = {f'{o.parent.name}/{k}': t for o in sorted(out.rglob('model.safetensors')) for k,t in load_file(o).items()}
    assert nets
    return tensors | nets, state, [timeless(o) for o in read_history(out/'history.jsonl')]

def assert_same(a, b):
    "Two results are the same"
    assert a[0].keys()==b[0].keys() and any(k.endswith('exp_avg_sq') for k in a[0])
    for k,t in a[0].items(): assert t.dtype==b[0][k].dtype and torch.equal(t, b[0][k]), k
    assert a[1]==b[1]
    assert a[2]==b[2]
