"""A pretended CUDA graph, for machines that have no GPU

A CUDA graph repeats kernels with the addresses and numbers that they had. A `Tape` writes down every operation of torch
with its arguments and results, and repeats it into the same results: what a step takes from Python, such as a rate, a
place in the data or a counter, stays what it was, as on a GPU, and a number that is read is an error."""
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

READS = {torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default, torch.ops.aten.is_nonzero.default}

def tensors(tree): return [o for o in tree_leaves(tree) if isinstance(o, torch.Tensor)]

class Tape(TorchDispatchMode):
    "What a function does, to be repeated"
    def __init__(self, memory=None):
        super().__init__()
        self.calls, self.fresh, self.replays, self.memory = [], True, 0, memory

    @staticmethod
    def before(run): run()

    def capture(self, run):
        "Unlike a GPU, a CPU has done it afterwards: the first `replay` is over"
        with self: run()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func in READS: raise RuntimeError(f'{func} while a step is captured')
        out = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, out))
        return out

    def replay(self):
        self.replays += 1
        if self.fresh: self.fresh = False
        else:
            for o in self.calls: self.again(*o)

    @torch.no_grad()
    def again(self, func, args, kwargs, out):
        "Once more, into the tensors that it gave; views and what is changed in place are these already"
        given = {o.untyped_storage()._cdata for o in tensors((args, kwargs))}
        for old,new in zip(tensors(out), tensors(func(*args, **kwargs)), strict=True):
            if old.untyped_storage()._cdata not in given: old.copy_(new)
