"""What has to be seen on a GPU: a step of every variant in each precision, a run that continues, scoring, fine-tuning

`pytest -m gpu` runs them on `cuda`; ELECTRA_TEST_DEVICE names another (`mps`, `cuda:1`; `cpu` tests the tests)."""
import os, signal
from dataclasses import replace

import pandas as pd
import pytest
import torch
from fastai.callback.core import Callback

from electra_nbdev.engine.checkpoint import latest_checkpoint, load_checkpoint
from electra_nbdev.engine.models import device_of, devices
from electra_nbdev.scoring.likelihood import load_likelihood, pseudo_log_likelihood
from electra_nbdev.finetuning.finetune import TextTaskDataLoaders, electra_classifier
from electra_nbdev.pretraining.graph import CompileStep
from electra_nbdev.pretraining.request import evaluate_run, run_pretraining
from electra_nbdev.scoring.score import load_scorer, score_tokens
from learners import Dtypes, StopAt
from make import NARROW, RUN_VARIANTS, made, no_curves

GPU = os.environ.get('ELECTRA_TEST_DEVICE', 'cuda')
if GPU not in devices():
    pytest.skip(f"there is no {GPU}: NOT RUN are a step of every variant in fp32, bf16 and fp16, resuming, scoring and "
                "fine-tuning on a GPU", allow_module_level=True)
pytestmark = pytest.mark.gpu
DTYPES = dict(fp32=torch.float32, bf16=torch.bfloat16, fp16=torch.float16)
PRECISIONS = ('fp32', 'bf16') if GPU=='cpu' else DTYPES
NETS = dict(BERT={'generator'}, uniform={'discriminator'})

@pytest.fixture(autouse=True)
def fast(monkeypatch, tmp_path):
    no_curves(monkeypatch)
    monkeypatch.chdir(tmp_path)

@pytest.mark.parametrize('precision', PRECISIONS)
@pytest.mark.parametrize('name', RUN_VARIANTS)
def test_a_step_of_every_variant(made, tmp_path, name, precision):
    "Everything is on the GPU, both networks multiply in the precision, all weights move and stay finite float32"
    d, hp = made
    hp = replace(hp, model_hparam_overrides=NARROW, num_train_steps=4, save_checkpoints_steps=4, num_warmup_steps=1,
                 **dict(untied_generator=True) | RUN_VARIANTS[name])
    begin = {}
    class Begin(Callback):
        def before_fit(self): begin.update({n: p.detach().clone() for n,p in self.model.named_parameters()})
    learn = run_pretraining(d/'examples', tmp_path/'run', hp, device=GPU, precision=precision, cbs=[Begin(), Dtypes()])
    named = dict(learn.model.named_parameters())
    assert {p.device for p in named.values()}=={device_of(GPU)} and {p.dtype for p in named.values()}=={torch.float32}
    assert learn.dtypes.seen=={(o, DTYPES[precision]) for o in NETS.get(name, {'generator', 'discriminator'})}
    assert learn.n_updates==4 and all(p.isfinite().all() for p in named.values())
    still = [n for n,p in named.items() if torch.equal(p, begin[n].to(p.device))]
    assert not still, still
    assert learn.held_out['gen_loss']>0 and ('disc_auc' in learn.held_out)==hp.has_discriminator

@pytest.mark.parametrize('precision', PRECISIONS)
def test_a_stopped_run_continues(made, tmp_path, capsys, precision):
    "Same examples, masks and random numbers; equal weights if torch is asked for a fixed order of sums"
    d, hp = made
    class Tell(Callback):
        def after_step(self):
            if self.learn.n_updates==5: os.kill(os.getpid(), signal.SIGTERM) # runs once: it stops after this batch
    def run(out, *cbs): return run_pretraining(d/'examples', tmp_path/out, hp, device=GPU, precision=precision, cbs=cbs)
    os.environ.setdefault('CUBLAS_WORKSPACE_CONFIG', ':4096:8')
    torch.use_deterministic_algorithms(True)
    try:
        run('whole')
        assert run('stopped', Tell()).stopped
        capsys.readouterr()
        run('stopped')
    finally: torch.use_deterministic_algorithms(False)
    said = capsys.readouterr().out
    assert 'Continuing at step' in said and 'bit-exact' not in said
    (a, state), (b, same) = (load_checkpoint(latest_checkpoint(tmp_path/o)) for o in ('whole', 'stopped'))
    assert state['scaler']==same['scaler'] and state['position']==same['position']
    for k,t in a.items(): assert torch.equal(t, b[k]), k

@pytest.mark.parametrize('precision', ['fp32', 'bf16'])
def test_a_replayed_run_is_the_eager_run(made, tmp_path, capsys, precision):
    "Forward pass, backward pass, clipping and update as one CUDA graph: the same bits, also after a restart"
    d, hp = made
    def run(out, *cbs): return run_pretraining(d/'examples', tmp_path/out, hp, device=GPU, precision=precision, cbs=cbs)
    def graph(): return CompileStep(backend='eager', dynamic=False)
    os.environ.setdefault('CUBLAS_WORKSPACE_CONFIG', ':4096:8')
    torch.use_deterministic_algorithms(True)
    try:
        run('eager')
        run('graph', graph())
        assert run('stopped', graph(), StopAt(5)).stopped
        run('stopped', graph())
    finally: torch.use_deterministic_algorithms(False)
    if GPU!='cpu': assert 'not replayed' not in (said := capsys.readouterr().out), said
    runs = 'graph', 'stopped', *['eager']*(GPU!='cpu') # where dropout is another
    a, *others = (load_checkpoint(latest_checkpoint(tmp_path/o))[0] for o in runs)
    for b in others:
        for k,t in a.items():
            if k.startswith(('model', 'optimizer')): assert torch.equal(t, b[k]), k

def test_a_continued_run_says_what_it_does_not_promise(made, tmp_path, capsys):
    d, hp = made
    run_pretraining(d/'examples', tmp_path/'run', replace(hp, num_train_steps=4), device=GPU)
    capsys.readouterr()
    run_pretraining(d/'examples', tmp_path/'run', hp, device=GPU, extend=True)
    assert ('sums have no fixed order' in capsys.readouterr().out)==(GPU!='cpu')

def test_evaluation_is_that_of_the_cpu(made, tmp_path):
    d, hp = made
    run_pretraining(d/'examples', tmp_path/'run', hp, device=GPU, precision='fp32')
    here, there = (evaluate_run(tmp_path/'run', d/'examples/held_out', o) for o in (GPU, 'cpu'))
    for k in ('gen_loss', 'disc_loss', 'unigram_loss'): assert here[k]==pytest.approx(there[k], rel=1e-3), k

def test_scores_are_those_of_the_cpu():
    text = 'The cat sat on the mathematics, and nobody had asked why.'
    here, there = (score_tokens(load_scorer('tiny', device=o), text) for o in (GPU, 'cpu'))
    assert here.probs==pytest.approx(there.probs, abs=1e-3) and here.alternatives.keys()==there.alternatives.keys()
    for by in ('energies', 'towers'):
        a, b = (pseudo_log_likelihood(load_likelihood('electric', by, device=o), [text])[0] for o in (GPU, 'cpu'))
        assert a['scores']==pytest.approx(b['scores'], abs=1e-2)

@pytest.mark.parametrize('precision', PRECISIONS)
def test_fine_tuning(precision):
    "A class of two texts is learnt, and predicted alike on the CPU"
    table = pd.DataFrame([('the cat sat', 'animal'), ('the house stood', 'place')]*16, columns=['text', 'about'])
    dls = TextTaskDataLoaders.from_df(table, 'text', 'about', 'tiny', valid=table[:4], bs=8, device=GPU)
    learn = electra_classifier(dls)
    if precision!='fp32': learn = getattr(learn, f'to_{precision}')()
    learn.fit_one_cycle(8, 1e-3)
    assert {p.device for p in learn.model.parameters()}=={device_of(GPU)} and learn.n_updates>=28
    found = learn.predict(['the cat sat', 'the house stood'])
    assert [o.label for o in found]==['animal', 'place']
