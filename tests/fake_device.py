"""A pretended GPU, for machines that have none

Under `FakeTensorMode` tensors have a shape, a type and a device, and no values: what needs a value on the host
(`.item()`, `nonzero`, a boolean index) fails there, where it would stop a GPU. What passes there, copies between
devices, is refused by `Watch`, which also notes every result. Autograd's engine asks for a real driver, so gradients
come from nowhere here, and backward passes run on torch's `meta` device."""
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import torch
from fastai.callback.core import Callback, CancelFitException
from fastai.callback.fp16 import AMPMode
from torch import tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.overrides import TorchFunctionMode

from electra_nbdev.engine.training import DeviceMixedPrecision
from electra_nbdev.pretrain import electra_learner
from make import ALL_VARIANTS, small_recipe
from official import SPECIAL_IDS, loaders
from tape import tensors

GPU = torch.device('cuda', 0)
aten = torch.ops.aten
# What copies, and what takes a number of the CPU only by copying it; others get such a number as an argument
COPIES = {aten._to_copy, aten.copy_, aten.where, aten.index, aten.index_put, aten.index_put_, aten._local_scalar_dense}

class HostCopy(Exception):
    "A copy between devices"

class Watch(TorchDispatchMode):
    "Refuse copies between devices after the first `copies`, and note every result"
    def __init__(self, copies=0):
        super().__init__()
        self.copies, self.copied, self.seen = copies, 0, [] # of (operation, shape, type, device)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        took, gave = tensors((args, kwargs)), tensors(out)
        strict = func.overloadpacket in COPIES
        if len({o.device.type for o in took+gave if o.ndim or strict})>1 and not (kwargs or {}).get('non_blocking'):
            self.copied += 1
            if self.copied>self.copies: raise HostCopy(f'{func} {[(tuple(o.shape), o.device.type) for o in took+gave]}')
        self.seen += [(str(func), tuple(o.shape), o.dtype, o.device.type) for o in gave]
        return out

    def on_gpu(self): return [o for o in self.seen if o[3]!='cpu']
    def dtypes(self): return {o[2] for o in self.on_gpu()}

VIEWS = {'view', 't', 'transpose', '_unsafe_view', 'expand', 'unsqueeze', 'detach', 'split', 'slice', 'squeeze',
         'alias', 'select', 'permute', 'unbind', 'split_with_sizes', 'as_strided', 'scalar_tensor', 'empty',
         'empty_like', 'new_empty', 'empty_strided'} # Operations without a kernel
TOGETHER = {getattr(torch, o): o for o in ('_foreach_copy_', '_foreach_mul_', '_foreach_add_', '_foreach_sub_',
                                           '_fused_adamw_')}

class _OneKernel(TorchFunctionMode):
    "What a GPU does in one kernel and a pretended one in several"
    def __init__(self, calls):
        super().__init__()
        self.calls = calls

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in TOGETHER:
            self.calls.append(TOGETHER[func])
            return args[0]
        if func is not torch.nn.functional.scaled_dot_product_attention: return func(*args, **(kwargs or {}))
        self.calls.append('attention')
        bs, heads, sl, d = args[0].shape
        return args[0].new_empty(bs, sl, heads, d).transpose(1, 2)

class _Kernels(TorchDispatchMode):
    "Operations with a result on the GPU; of norms in a row, which are one kernel for all gradients, the first"
    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out, name = func(*args, **(kwargs or {})), func.overloadpacket.__name__
        again = name=='linalg_vector_norm' and self.calls[-1:]==[name]
        on_gpu = any(o.device.type!='cpu' for o in tensors(out))
        if on_gpu and name not in VIEWS and not again: self.calls.append(name)
        return out

@contextmanager
def counted_kernels():
    "Names of the kernels that a GPU would start, in the context of `pretended_gpu`"
    with _Kernels() as kernels, _OneKernel(kernels.calls): yield kernels.calls

@contextmanager
def pretended_gpu(copies=0):
    """Tensors may be on `cuda`; gives the `Watch`

    Without a GPU torch turns autocast off with a warning; and transformers takes tensors without values for a trace,
    and leaves its readings out. Both shall do as on a GPU."""
    on = {'torch.cuda.amp.common.amp_definitely_not_available': False, 'torch.cuda.is_bf16_supported': True,
          'transformers.masking_utils.is_tracing': False}
    with ExitStack() as stack:
        for name,value in on.items(): stack.enter_context(patch(name, lambda *args, value=value, **kwargs: value))
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        yield stack.enter_context(Watch(copies))

def to_gpu(model):
    "Put a model on the pretended GPU, in its context; what was shared stays shared"
    moved = {}
    def tensor(t):
        if id(t) not in moved:
            new = torch.empty(t.shape, dtype=t.dtype, device=GPU)
            moved[id(t)] = torch.nn.Parameter(new, t.requires_grad) if isinstance(t, torch.nn.Parameter) else new
        return moved[id(t)]
    for o in model.modules():
        for held in (o._parameters, o._buffers): held.update({k: tensor(t) for k,t in held.items() if t is not None})
    return model

# Learners

class Batches(list):
    "What a Learner asks of its loaders"
    bs, dataset, device = 4, (), GPU
    train = valid = property(lambda self: self)
    def __getitem__(self, i): return self

class Stop(Callback):
    "End a fit after so many batches"
    order, run_valid = 1000, False
    def __init__(self, n): self.n = n
    def after_batch(self):
        if self.train_iter==self.n: raise CancelFitException

def learner(variant, precision='fp32', **kw):
    "Our learner, on the CPU"
    hp = small_recipe(**ALL_VARIANTS[variant] | kw)
    amp = [] if precision=='fp32' else [DeviceMixedPrecision(AMPMode.BF16)]
    rows = torch.ones(4, hp.max_seq_length, dtype=torch.long), tensor([10]*4)
    return electra_learner(loaders(rows), hp, special_ids=SPECIAL_IDS, counts=[1]*hp.vocab_size, cbs=amp)

def put(learn, bs=4, batches=None):
    "On the pretended GPU, with batches of token ids and lengths of first segments, and gradients from nowhere"
    def batch():
        ids = torch.empty(bs, learn.hp.max_seq_length, dtype=torch.long, device=GPU)
        return ids, torch.empty(bs, dtype=torch.long, device=GPU)
    def backward():
        for p in weights: p.grad = torch.empty_like(p)
    learn.model, learn.dls, learn._backward = to_gpu(learn.model), Batches(batches or [batch(), batch()]), backward
    weights = list(learn.model.parameters())
    learn.model.to, learn.dls.n_inp = lambda *args: learn.model, 1 if batches else 2
    learn.opt = None
    learn.create_opt()
    return learn

def train(learn, n=2):
    with learn.no_logging(): learn.fit(1, cbs=Stop(n))
