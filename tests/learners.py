"What the tests of both learners watch: weights that move, gradient norms, a fit that is interrupted"
from functools import partial

import numpy as np
import torch
from fastai.callback.core import Callback
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

def weights(learn): return {k: v.detach().clone() for k,v in learn.model.named_parameters()}
def moved(learn, before): return {k for k,v in learn.model.named_parameters() if not torch.equal(v, before[k])}

class Watch(Callback):
    "What moved in each epoch"
    order = 100
    def __init__(self): self.seen = []
    def before_epoch(self): self.before = weights(self.learn)
    def after_epoch(self): self.seen.append(moved(self.learn, self.before))

class Norms(Callback):
    "Norms of the gradients of a fit"
    run_valid, order = False, 90
    def before_fit(self): self.seen = []
    def after_step(self): self.seen.append(float(self.learn.grad_norm))

class StopAt(Callback):
    "Stop after an update: as a signal does, or as where the power is cut"
    order = 99
    def __init__(self, update, at_once=False): self.update, self.at_once = update, at_once
    def after_batch(self):
        if not self.training or self.learn.n_updates!=self.update: return
        if self.at_once: raise KeyboardInterrupt
        self.learn.stop_on_signal.came = 15

class Largest(TorchDispatchMode):
    "The most memory that a tensor takes while this is on, in numbers of four bytes"
    n = 0
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **kwargs or {})
        for o in tree_leaves(out):
            if isinstance(o, torch.Tensor): self.n = max(self.n, o.untyped_storage().nbytes()//4)
        return out

class Interrupt(Callback):
    "Stop in the third batch, as Ctrl-C does"
    def after_batch(self):
        if self.training and self.train_iter==2: raise KeyboardInterrupt

def quiet(learn):
    "Without bars and tables"
    if hasattr(learn, 'progress'): learn.remove_cb(learn.progress)
    learn.logger = lambda *o: None
    return learn

def remove(learn, kind):
    "Take the callbacks of a kind off a learner"
    for o in learn.cbs.filter(lambda o: isinstance(o, kind)): learn.remove_cb(o)

def assert_swept(learn, found, n):
    "Rates of a search grow by the same factor, and its suggestion is one of them"
    lrs = learn.recorder.lrs
    assert np.allclose(np.diff(np.log(lrs)), np.log(1e8)/n, atol=1e-4) and min(lrs)<=found.valley<=max(lrs)

class Dtypes(Callback):
    "What the linear layers of both networks give in a training step"
    def before_fit(self):
        self.seen = set()
        for name,m in self.model.named_modules():
            if isinstance(m, torch.nn.Linear): m.register_forward_hook(partial(self.look, name.split('.')[0]))
    def look(self, net, module, xs, out):
        if module.training: self.seen.add((net, out.dtype))

def same_weights(a, b):
    for (n,p),(m,q) in zip(a.named_parameters(), b.named_parameters(), strict=True):
        assert n==m and torch.equal(p, q), n
