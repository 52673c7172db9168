"Names of devices are checked once, precisions fit the GPU, and what does not fit into memory is one line"
from pathlib import Path

import pandas as pd
import pytest
import torch
from fastai.callback.core import Callback
from fastai.data.core import DataLoaders
from fastai.data.load import DataLoader
from fastai.optimizer import SGD
from torch import nn
from torch.nn import functional as F

from electra_nbdev.engine.files import InputError
from electra_nbdev.engine.models import device_of, devices
from electra_nbdev.engine.training import (CountUpdates, DeviceLearner, LossesAsNumbers, default_precision,
                                           precision_callbacks)
from electra_nbdev.finetuning.finetune import TextTaskDataLoaders, electra_classifier
from electra_nbdev.method.metrics import auc_200
from learners import Largest
from make import home
from terminal import bad, typed

CUDA = torch.device('cuda:0')
TASK = Path(__file__).with_name('fixtures')/'v0_1/task' # fine-tuned on texts

def gpus(monkeypatch, kind, n):
    "As if this machine had `n` GPUs of a kind"
    monkeypatch.setattr(torch.accelerator, 'current_accelerator', lambda: kind and torch.device(kind))
    monkeypatch.setattr(torch.accelerator, 'device_count', lambda: n)

@pytest.mark.parametrize('kind,n,has', [(None, 0, 'cpu'), ('cuda', 0, 'cpu'), ('cuda', 2, 'cpu, cuda, cuda:0, cuda:1'),
                                        ('mps', 1, 'cpu, mps, mps:0')])
def test_device_names(monkeypatch, kind, n, has):
    "One that is not there, a number too high, a misspelt one; tensors of `meta` hold nothing"
    gpus(monkeypatch, kind, n)
    assert ', '.join(devices())==has
    assert device_of('cpu')==torch.device('cpu')
    for name in ('cuda:7', 'cpu:1', *(['cuda'] if 'cuda' not in has else [])):
        with pytest.raises(InputError) as e: device_of(name)
        assert str(e.value)==f"`device` is {name!r}, which this machine does not have; it has {has}"
    for name in ('cudo', 'meta', ''): # what no machine has is refused without asking torch
        with pytest.raises(InputError, match=f"^`device` is '{name}'; allowed: cpu, cuda, "): device_of(name)
    with pytest.raises(InputError, match='Leave it out: a GPU is taken if there is one'): device_of('gpu')

def test_a_device_that_is_there_but_does_not_work(monkeypatch):
    gpus(monkeypatch, 'cuda', 2)
    def broken(*args, device): raise RuntimeError(f"CUDA error: device {device} is busy\nand more lines")
    monkeypatch.setattr(torch, 'empty', broken)
    with pytest.raises(InputError, match='^`device` cuda:1 cannot be used: RuntimeError: CUDA error: .*1 is busy$'):
        device_of('cuda:1')

def sentences_to_judge(home):
    "Files of CoLA"
    (home/'cola').mkdir(exist_ok=True)
    for o in ('train', 'dev'): (home/f'cola/{o}.tsv').write_text('s\t1\t\tthe storm was there.\n'*2)

@pytest.mark.parametrize('command', ['electra_pretrain --data examples --hparams recipe.json --out r2',
                                     'electra_evaluate --run run --data examples/held_out',
                                     'electra_finetune --task cola --data-dir . --out t2',
                                     f'electra_predict --model {TASK} --input texts.txt',
                                     'electra_score --show "a storm"', 'electra_score --text texts.txt'])
@pytest.mark.parametrize('name', ['cuda:77', 'cudo'])
def test_every_command_that_computes_checks_its_device(home, command, name):
    (home/'texts.txt').write_text('the storm was there.\n')
    sentences_to_judge(home)
    bad(home, f'{command} --device {name}', f"--device is '{name}'", 'cpu')

# Precision

@pytest.mark.parametrize('capability,name', [((7, 0), 'fp16'), ((7, 5), 'fp16'), ((8, 0), 'bf16'), ((9, 0), 'bf16')])
def test_bf16_only_where_the_gpu_has_it(monkeypatch, capability, name):
    "`torch.cuda.is_bf16_supported` says yes to emulation, so the compute capability of that device decides"
    asked = []
    monkeypatch.setattr(torch.cuda, 'is_bf16_supported', lambda *a, **k: True)
    monkeypatch.setattr(torch.cuda, 'get_device_capability', lambda o: asked.append(o) or capability)
    assert default_precision(CUDA)==name and asked==[CUDA]
    assert [o.amp_mode.value for o in precision_callbacks(None, CUDA)]==[name]
    assert [o.amp_mode.value for o in precision_callbacks('bf16', CUDA)]==['bf16'], "it is there for those who ask"
    assert precision_callbacks('fp32', CUDA)==[]
    assert [o.amp_mode.value for o in precision_callbacks('auto', CUDA)]==[name]

def test_elsewhere_the_precision_is_fp32_unless_asked():
    for o in ('cpu', 'mps'):
        for name in (None, 'auto'): assert precision_callbacks(name, torch.device(o))==[]
    assert [o.amp_mode.value for o in precision_callbacks('fp16', torch.device('mps'))]==['fp16']
    with pytest.raises(InputError, match='float16 needs a GPU'): precision_callbacks('fp16', torch.device('cpu'))

# Memory

class Exhaust(Callback):
    "Memory runs out at a step, as torch says it"
    def __init__(self, at, error): self.at, self.error = at, error
    def before_batch(self):
        if self.training and self.learn.n_updates==self.at: raise self.error

GPU = 'CUDA out of memory. Tried to allocate 2.00 GiB'
APPLE = 'MPS backend out of memory (MPS allocated: 8 GB)'
HOST = "[enforce fail at alloc_cpu.cpp:121] data. DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 B"
FULL = torch.OutOfMemoryError(f'{GPU}. GPU 0 has a total capacity of 15 GiB')
ERRORS = {GPU: FULL, APPLE: RuntimeError(APPLE), HOST: RuntimeError(f'{HOST}. Error 12'), 'MemoryError': MemoryError()}

def exhausted(module, name, error):
    "For `typed`: a function of a module runs out of memory"
    def setup():
        import importlib
        def f(*args, **kwargs): raise error
        setattr(importlib.import_module(module), name, f)
    return setup

@pytest.mark.parametrize('what', ERRORS)
def test_out_of_memory_is_one_line(home, what):
    line = 'electra_evaluate --run run --data examples/held_out --device cpu'
    bad(home, line, f'electra_evaluate: {what}; use --device cpu, or lower eval_batch_size',
        setup=exhausted('electra_nbdev.pretraining.continue_pretraining', 'newest_metrics', ERRORS[what]))

@pytest.mark.parametrize('line,module,name,words', [
    ('electra_score --show "a storm"', 'electra_nbdev.scoring.score', 'score_tokens', ['--device cpu']),
    ('electra_finetune --task cola --data-dir . --out t2', 'electra_nbdev.finetuning.trials', 'train_networks',
     ['--batch-size', '--eval-batch-size']),
    (f'electra_predict --model {TASK} --input one.txt', 'electra_nbdev.finetuning.finetune', 'load_finetuned',
     ['predict_batch'])])
def test_out_of_memory_names_what_to_lower(home, line, module, name, words):
    sentences_to_judge(home)
    (home/'one.txt').write_text('the king saw the sea .\n')
    bad(home, line, *words, setup=exhausted(module, name, FULL))

def test_checkpoints_stay_where_memory_runs_out(home):
    "At step 13 of 20; with free memory the same command continues at the last checkpoint"
    line = 'electra_pretrain --data examples --hparams recipe.json --steps 20 --out small --device cpu'
    def setup():
        from electra_nbdev.pretraining import runs
        was = runs.electra_learner
        def learner(*args, cbs=(), **kwargs): return was(*args, cbs=[*cbs, Exhaust(13, FULL)], **kwargs)
        runs.electra_learner = learner
    said = typed(line, home, setup)
    last = said.err.strip().splitlines()[-1]
    assert said.code==2 and 'Traceback' not in said.err
    assert last.startswith('electra_pretrain: CUDA out of memory. Tried to allocate 2.00 GiB; lower --batch-size')
    assert sorted(o.name for o in (home/'small/checkpoints').iterdir())[-1]=='step-00000012'
    again = typed(line, home)
    assert again.code==0 and 'Continuing at step 12 of 20' in again.out

def test_other_errors_keep_their_traceback(home):
    said = typed('electra_evaluate --run run --data examples/held_out', home,
                 exhausted('electra_nbdev.pretraining.continue_pretraining', 'newest_metrics', RuntimeError('a bug')))
    assert said.code==1 and 'Traceback' in said.err and 'RuntimeError: a bug' in said.err

def test_losses_of_a_long_run_are_numbers():
    "fastai's recorder keeps a tensor for every step; while a pass goes on, at most `every` of them are left"
    x, most = torch.randn(90, 1), []
    dl = DataLoader(list(zip(x, x)), bs=1)
    class Count(Callback):
        order = 60
        def after_batch(self):
            if self.training: most.append(sum(isinstance(o, torch.Tensor) for o in self.recorder.losses))
    def run(*cbs):
        torch.manual_seed(0)
        learn = DeviceLearner(DataLoaders(dl, dl, device='cpu'), nn.Linear(1, 1), F.mse_loss, opt_func=SGD,
                              cbs=[CountUpdates(), *cbs])
        with learn.no_bar(), learn.no_logging(): learn.fit_steps(100)
        return learn.recorder.losses
    numbers = LossesAsNumbers()
    numbers.every = 20
    found, plain = run(numbers, Count()), run()
    assert all(isinstance(o, float) for o in found) and max(most)==19
    assert [o.item() for o in found]==[o.item() for o in plain], "`item` works as with fastai's tensors"

def test_both_learners_keep_numbers(home):
    from electra_nbdev.finetuning.finetune import load_finetuned
    from electra_nbdev.pretrain import PretrainDataLoaders, electra_learner
    from electra_nbdev.data.examples import load_examples
    examples = load_examples(home/'examples'), load_examples(home/'examples/held_out')
    dls = PretrainDataLoaders.from_examples(*examples, 8, device='cpu')
    for learn in (electra_learner(dls, 'tiny'), load_finetuned(TASK, 'cpu')): assert hasattr(learn, 'losses_as_numbers')

def test_the_official_area_needs_no_row_for_each_threshold():
    "200 thresholds times all tokens of an evaluation would be gigabytes"
    labels, probs = torch.arange(20_000)%7==0, torch.rand(20_000)
    with Largest() as most: auc_200(labels, probs)
    assert 20_000<=most.n<=40_000 # one for each token, of at most eight bytes

class Overflow(Callback):
    "Gradients of some batches are infinite, as in half precision"
    def __init__(self, batches): self.batches, self.n = batches, 0
    def after_backward(self):
        self.n += 1
        if self.n in self.batches: next(self.model.parameters()).grad.fill_(float('inf'))

@pytest.mark.parametrize('batches', [[2, 3], range(1000)])
def test_overflows_of_fine_tuning_are_said(monkeypatch, capsys, batches):
    "Fewer updates than asked are reported; a model that never learnt is no result"
    scaler = torch.amp.GradScaler
    monkeypatch.setattr(torch.amp, 'GradScaler', lambda device, enabled: scaler(device, 4.))
    table = pd.DataFrame([('the cat sat', 'animal'), ('the house stood', 'place')]*16, columns=['text', 'about'])
    dls = TextTaskDataLoaders.from_df(table, 'text', 'about', 'tiny', valid=table[:4], bs=8, device='cpu',
                                      num_train_epochs=2.)
    learn = electra_classifier(dls, cbs=[Overflow(batches)]).to_bf16()
    if len(batches)>2:
        with pytest.raises(InputError, match='all 8 steps overflowed in half precision'): learn.fit_recipe()
    else:
        learn.fit_recipe()
        assert learn.n_updates==6
        assert '2 steps overflowed in half precision and were skipped, 6 updates were made' in capsys.readouterr().out
