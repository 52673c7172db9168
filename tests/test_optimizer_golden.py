"Schedules, layer-wise rates and whole optimizer runs of the official implementation: all that the golden folder holds"
import json, re
from functools import partial

import numpy as np
import pytest
import torch
from fastai.basics import DataLoader, DataLoaders, Learner
from fastai.callback.core import Callback
from torch import nn

from conftest import GOLDEN
from electra_nbdev.engine.training import count_updates
from electra_nbdev.method.optimizer import (ClipNorm, LinearWarmupDecay, decays, electra_optimizer, layer_lrs,
                                            param_depth, param_groups, warmup_decay)

FOLDER = GOLDEN/'optimizer'
TOL = 1e-6

def npz(path): return dict(np.load(path))

# Schedules: the name of an array says lr, total, warmup (steps, proportion or both) and power,
# as in lr5e4_total100_warm20_prop0p1_p1

SCHEDULES = npz(FOLDER/'lr_schedules.npz') if (FOLDER/'lr_schedules.npz').exists() else {}
STEPS = SCHEDULES.pop('steps', None)

def number(text): return float(text.replace('p', '.'))

def schedule_args(name):
    "Arguments of `warmup_decay` from the name of an array"
    m = re.fullmatch(r'lr(\d+)e(\d+)_total(\d+)_(?:warm(\d+))?_?(?:(?:warm)?prop([\dp]+?))?_p([\dp]+)', name)
    assert m, f"cannot read the schedule's name: {name}"
    a, b, total, steps, share, power = m.groups()
    warmup = dict(warmup_steps=int(steps or 0), warmup_proportion=number(share or '0'))
    return dict(lr=float(f'{a}e-{b}'), total=int(total), power=number(power), **warmup)

def test_there_are_golden_schedules(golden): assert SCHEDULES and STEPS is not None

@pytest.mark.parametrize('name', sorted(SCHEDULES))
def test_golden_schedule(name):
    args, want = schedule_args(name), SCHEDULES[name]
    ours = warmup_decay(STEPS, **args)
    odd = np.isnan(want)
    no_warmup = max(args['warmup_steps'], args['warmup_proportion'])==0
    assert (STEPS[odd]==0).all() and odd.any()==no_warmup, "official: 0/0 at step 0 without warmup, nowhere else"
    assert np.isfinite(ours).all()
    np.testing.assert_allclose(ours[odd], args['lr'])
    np.testing.assert_allclose(ours[~odd], want[~odd], rtol=0, atol=TOL*args['lr'])
    np.testing.assert_allclose([warmup_decay(int(t), **args) for t in STEPS], ours, rtol=1e-12)

# Rates by layer

LAYER_LRS = json.loads((FOLDER/'layer_lrs.json').read_text()) if (FOLDER/'layer_lrs.json').exists() else dict(tables={})

def table_args(table):
    n, decay = re.fullmatch(r'n(\d+)_decay([\d.]+)', table).groups()
    return int(n), float(decay)

@pytest.mark.parametrize('table', sorted(LAYER_LRS['tables']))
def test_golden_layer_lrs(table):
    n, decay = table_args(table)
    lr, want = LAYER_LRS['base_learning_rate'], LAYER_LRS['tables'][table]
    official, paper = layer_lrs(lr, decay, n), layer_lrs(lr, decay, n, 'paper')
    assert len(want)==n+3, "embeddings and their projection, n layers, the head"
    for key,rate in want.items():
        depth = param_depth(f"electra/{key.strip('/')}/kernel" if 'task_specific' not in key else f'{key}mnli/kernel')
        np.testing.assert_allclose(official[depth], rate, rtol=TOL)
        np.testing.assert_allclose(paper[depth], rate if depth==-1 else rate/decay, rtol=TOL)

def test_there_are_golden_layer_lrs(golden): assert LAYER_LRS['tables']

# Whole runs: gradients in, weights and moments out

RUNS = sorted(p.stem for p in FOLDER.glob('adam*.npz'))

def adam_run(run):
    "Arrays and recipe of a run; a variant is named after the run whose gradients it uses"
    base = run.split('_')[0]
    arrays = {k: v for k,v in npz(FOLDER/f'{base}.npz').items() if k.startswith('grads/')} | npz(FOLDER/f'{run}.npz')
    return arrays, json.loads((FOLDER/f'{base}.json').read_text())

def under(arrays, prefix): return {k[len(prefix)+1:]: v for k,v in arrays.items() if k.startswith(prefix+'/')}

def check(ours, want, what):
    "Equal to 1e-6: of the value where that is above 1 (float32's own unit is 2.4e-7 at 2.5), absolute below"
    unit = np.maximum(1, np.abs(want))
    np.testing.assert_allclose(ours.detach().numpy()/unit, want/unit, rtol=0, atol=TOL, err_msg=what)

def check_weights(model, want, when):
    for n,p in model.named_parameters(): check(p, want[n], f'{n} {when}')

def test_there_are_golden_runs(golden): assert RUNS

class FedGradients(nn.Module):
    "Official names, and a loss whose gradients at batch `t` are the given ones"
    def __init__(self, values, grads):
        super().__init__()
        for n,v in values.items(): self.register_parameter(n, nn.Parameter(torch.from_numpy(v.copy())))
        self.grads = grads
    def forward(self, t):
        return sum((p*torch.from_numpy(self.grads[n][t.item()])).sum() for n,p in self.named_parameters())

class CompareWeights(Callback):
    "Compare norm and weights after every update"
    order = 100
    def __init__(self, arrays): self.arrays = arrays
    def after_step(self):
        t = int(self.xb[0])
        np.testing.assert_allclose(self.learn.grad_norm, self.arrays['global_norms'][t], rtol=TOL)
        if want := under(self.arrays, f'after_step{t}'): check_weights(self.model, want, f'after step {t}')

@pytest.mark.parametrize('run', RUNS)
def test_golden_adam(run):
    arrays, recipe = adam_run(run)
    grads = under(arrays, 'grads')
    model, steps = FedGradients(under(arrays, 'init'), grads), recipe['steps']
    layer_decay = recipe['layerwise_lr_decay_power'].get(run, -1)
    if m := re.search(r'layerwise([\d.]+)', run): assert float(m[1])==layer_decay
    splitter = partial(param_groups, layer_decay=layer_decay if layer_decay>0 else 1.)
    schedule = LinearWarmupDecay(recipe['warmup_steps'], recipe['num_train_steps'], recipe['lr_decay_power'])
    dl = DataLoader([(t, t) for t in range(steps)], bs=1) # without targets fastai makes no step
    parts = ClipNorm(recipe['clip_norm']), schedule, CompareWeights(arrays)
    optimizer = partial(electra_optimizer, wd=recipe['weight_decay_rate'])
    learn = Learner(DataLoaders(dl, dl, device='cpu'), model, loss_func=lambda pred, *_: pred, opt_func=optimizer,
                    splitter=splitter, lr=recipe['learning_rate'], cbs=parts)
    count_updates(learn)
    late = int('refvariables' in run) # TensorFlow 1's variables: the step is read after it was counted
    learn.n_updates = late
    with learn.no_bar(), learn.no_logging(): learn.fit(1)
    assert learn.n_updates==steps+late
    check_weights(model, under(arrays, 'final'), 'at the end')
    slots, seen = learn.opt.moments(), 0
    for name,want in under(arrays, 'slot').items():
        name, kind = name.rsplit('/', 1)
        check(slots[f'{name}/' + {'adam_m': 'exp_avg', 'adam_v': 'exp_avg_sq'}[kind]], want, f'{name} {kind}')
        seen += 1
    assert seen in (0, 2*len(grads))

@pytest.mark.parametrize('run', [o for o in RUNS if (FOLDER/f'{o}.json').exists()])
def test_golden_names_that_decay(run):
    _, recipe = adam_run(run)
    assert {n: decays(n) for n in recipe['weight_decay_applied']}==recipe['weight_decay_applied']
