"""What a row of `ladder.py` changes beside hyper-parameters: an optimizer, objectives and callbacks.

None is in the package: a change goes there when the ladder has shown that it helps."""
from functools import partial

import torch
from fastai.callback.core import Callback
from torch.optim.swa_utils import AveragedModel

from electra_nbdev.method.discriminator import IGNORE, corrupt, disc_labels, disc_nll, is_replaced
from electra_nbdev.method.electra import ReplacedTokenDetection
from electra_nbdev.method.generator import context_of
from electra_nbdev.method.objective import StepOutput
from electra_nbdev.method.optimizer import ElectraAdam, ElectraOptimizer, param_groups

def orthogonal(grads, steps=5):
    "Matrices (n, rows, columns) with their singular values near 1: Newton-Schulz as in Muon (Jordan et al. 2024)"
    tall = grads.shape[1]>grads.shape[2]
    x = grads.mT if tall else grads
    x = x/x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(steps):
        a = x@x.mT
        x = 3.4445*x + torch.baddbmm(a, a, a, beta=-4.775, alpha=2.0315)@x
    return x.mT if tall else x

class MuonAdam(ElectraAdam):
    "Muon for the matrices of the layers, Adam for everything else; updates have the size of Adam's"
    momentum = .95

    @torch.no_grad()
    def step(self, closure=None):
        shapes = {}
        for group in self.param_groups:
            for n,p in zip(group['param_names'], group['params']):
                if p.grad is None or p.ndim!=2 or not 0<group['depth']<self.top: continue
                shapes.setdefault((tuple(p.shape), group['lr'], group['weight_decay']), []).append(p)
        for (shape, lr, wd), params in shapes.items():
            momenta = [self.buffers.setdefault(p, torch.zeros_like(p)) for p in params]
            grads = [p.grad for p in params]
            torch._foreach_lerp_(momenta, grads, 1-self.momentum)
            torch._foreach_lerp_(grads, momenta, self.momentum) # Nesterov's look ahead
            updates = orthogonal(torch.stack(grads)).unbind()
            torch._foreach_mul_(params, 1-lr*wd)
            torch._foreach_add_(params, updates, alpha=-lr*.2*max(shape)**.5)
            for p in params: p.grad = None # Adam leaves them alone
        return super().step(closure)

def muon_optimizer(params, lr, wd=.01, bias_correction=False):
    "An `opt_func` like `electra_optimizer`"
    opt = ElectraOptimizer(params, lr, wd, bias_correction)
    opt.opt.__class__, opt.opt.buffers = MuonAdam, {}
    opt.opt.top = max(g['depth'] for g in opt.opt.param_groups) # the depth of heads
    return opt

def muon(**adam):
    "What a learner with Muon is given; `bias_correction` of Adam for the rest"
    return dict(opt_func=partial(muon_optimizer, **adam), splitter=param_groups)

class MaskedAlone(ReplacedTokenDetection):
    "The discriminator learns from the masked positions alone (paper, section 3.4: ELECTRA 15 %)"
    def labels_of(self, mb, replaced):
        "Labels of the masked positions; the place of padding among them has weight 0"
        masked = torch.zeros_like(replaced, dtype=mb.weights.dtype).scatter_add_(1, mb.positions, mb.weights)>0
        return disc_labels(replaced, masked)

    def counts(self, mb):
        real = self.labels_of(mb, torch.zeros_like(mb.input_ids, dtype=torch.bool))!=IGNORE
        return super().counts(mb) | dict(disc=real.sum())

    def step(self, mb):
        out = super().step(mb)
        out.sums['disc'] = disc_nll(out.logits, self.labels_of(mb, out.labels==1)).sum()
        return out

class GeneratorAlone(ReplacedTokenDetection):
    "The first stage of a generator that stays as it is afterwards: only its own loss"
    columns = 'gen_loss', 'below_unigram'
    @property
    def weights(self): return dict(gen=1.)
    def counts(self, mb): return dict(gen=super().counts(mb)['gen'])
    def step(self, mb):
        prediction = self.predict(mb)
        return StepOutput(logits=prediction.sampled, labels=mb.targets, sums=dict(gen=prediction.total),
                          prediction=prediction)

class FixedGenerator(ReplacedTokenDetection):
    "Only the discriminator learns, from samples whose temperature falls from 2 to 1 (Fast-ELECTRA, Dong et al. 2023)"
    @property
    def weights(self): return dict(disc=1.)
    def counts(self, mb): return dict(disc=super().counts(mb)['disc'])
    def sampling(self):
        falling = 2**(1-float(self.run_fraction)) if self.training else 1.
        return super().sampling() | dict(temperature=falling)
    def step(self, mb):
        with torch.no_grad(): prediction = self.predict(mb)
        fake = corrupt(mb, prediction.sampled)
        labels = disc_labels(is_replaced(mb, fake), mb.attention_mask)
        logits = self.token_logits(fake, *context_of(mb))
        return StepOutput(logits=logits, labels=labels, sums=dict(disc=disc_nll(logits, labels).sum()),
                          prediction=prediction)

class FallingWeight(Callback):
    "The weight of the discriminator's loss falls along a line"
    def __init__(self, start=50., end=10.): self.start, self.end = start, end
    def before_batch(self):
        weight = self.start + (self.end-self.start)*float(self.model.run_fraction)
        self.model.config.arguments['disc_weight'] = weight

class GrowingBatch(Callback):
    "Batches of half the size in the first half of the updates, and of one and a half of it in the second"
    def before_fit(self): self.size = self.dls.train.bs
    def before_train(self):
        loader = self.dls.train
        loader.bs = self.size*(3 if self.n_updates>=self.hp.num_train_steps/2 else 1)//2
        loader.per_epoch = len(loader.dataset)//loader.bs
        loader._order = None, None
    def after_fit(self): self.dls.train.bs = self.size

class AverageWeights(Callback):
    "The mean of the weights after each of the last updates takes their place at the end"
    def __init__(self, share=.2): self.share = share
    def before_fit(self): self.mean = None
    def after_batch(self):
        if not self.training or self.n_updates<=(1-self.share)*self.hp.num_train_steps: return
        if self.mean is None: self.mean = AveragedModel(self.model)
        self.mean.update_parameters(self.model)
    def before_validate(self):
        if self.mean is None or self.n_updates<self.hp.num_train_steps: return
        self.model.load_state_dict(self.mean.module.state_dict())
