"The step as one graph: no break, one version for each length, the numbers of the eager step, also when it is replayed"
import pytest
import torch
from fastai.callback.core import Callback
from fastai.callback.fp16 import AMPMode
from fastai.torch_core import no_random
from torch._dynamo.utils import counters

from electra_nbdev.data.batches import LengthSchedule
from electra_nbdev.engine.gpu import WorkingWeights, works_in_step
from electra_nbdev.engine.training import DeviceMixedPrecision
from electra_nbdev.method.electra import ReplacedTokenDetection
from electra_nbdev.method.masking import MaskTokens
from electra_nbdev.pretrain import electra_learner
from electra_nbdev.pretraining.graph import CompileStep
from electra_nbdev.pretraining.monitor import SkipBadGradients
from electra_nbdev.pretraining.recipe import build_networks
from official import SPECIAL_IDS, loaders
from tape import Tape
from test_bodies import CONFIGS
from test_fake_device import VARIANTS, recipe

MODERN = dict(body=CONFIGS['modernbert'].to_diff_dict(), untied_generator=True)
KINDS = {'RTD': VARIANTS['tied'], 'MLM': VARIANTS['BERT'], 'Electric': VARIANTS['Electric'],
         'ELECTRA-TT': VARIANTS['ELECTRA-TT'], 'one network': VARIANTS['one network'], 'GDES': VARIANTS['gdes'],
         'noise': VARIANTS['unigram noise'], 'ModernBERT': MODERN}
LENGTHS = (8, .3), (16, .3), (32, .4)
EAGER = dict(backend='eager', dynamic=False)

@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    "As on a GPU: dropout of torch, and no look for padding"
    torch._dynamo.reset()
    counters.clear()
    monkeypatch.setattr(torch.compiler, 'is_compiling', lambda: True)

class Taped(CompileStep):
    "Captured on a CPU, by a `Tape`, without kernels"
    name = 'compile_step'
    def __init__(self): super().__init__(**EAGER)
    def before_fit(self):
        super().before_fit()
        self.masked_step, self.steps.graph = getattr(self.masked_step, '_torchdynamo_orig_callable'), Tape
        self.choose_capture()

def rows(n):
    "Examples, of which every second batch has padding"
    ids = torch.randint(7, 100, (4*n, 32), generator=torch.Generator().manual_seed(0))
    for i in range(0, 4*n, 8): ids[i:i+4,20:] = 0
    return ids, torch.full((4*n,), 10)

def trained(kind, *cbs, n=20, schedule=LENGTHS, **kw):
    "A learner after `n` updates"
    hp = recipe(**KINDS[kind] | kw)
    with no_random(0):
        cbs = [*cbs, *([LengthSchedule(schedule, n, True)] if schedule else [])]
        counts = torch.arange(hp.vocab_size)
        learn = electra_learner(loaders(rows(n), bs=4), hp, build_networks(hp), special_ids=SPECIAL_IDS, counts=counts,
                                cbs=cbs)
        with learn.no_logging(), learn.no_bar(): learn.fit(1)
    return learn

def assert_same(a, b):
    "Losses, history and weights, bit for bit"
    assert len(a.recorder.losses)==len(b.recorder.losses)>10
    assert list(a.recorder.losses)==list(b.recorder.losses) and a.recorder.lrs==b.recorder.lrs
    def lines(learn): return [{k: v for k,v in o.items() if k!='tokens_per_s'} for o in learn.history.rows]
    assert lines(a)==lines(b) and lines(a)
    for (name,p),q in zip(a.model.named_parameters(), b.model.parameters(), strict=True): assert torch.equal(p, q), name

@pytest.mark.parametrize('kind', KINDS)
def test_one_graph_for_each_length(kind):
    "In fifty steps, three lengths: three compilations, no break"
    compiled = trained(kind, CompileStep(**EAGER), n=50)
    assert counters['stats']['unique_graphs']==len(LENGTHS) and not counters['graph_break']
    assert_same(compiled, trained(kind, n=50))

@pytest.mark.parametrize('half', [False, True], ids=['fp32', 'bf16'])
@pytest.mark.parametrize('kind', KINDS)
def test_a_replayed_step_is_the_eager_step(kind, half):
    "With dropout, a schedule of rates and lengths, decay and clipping: rates, places and noise are those of each step"
    how = dict(model_hparam_overrides=dict(hidden_dropout_prob=.1)) if kind=='ModernBERT' else {}
    amp = [WorkingWeights()] if half else []
    taped = trained(kind, Taped(), *amp)
    steps = taped.compile_step.steps
    assert sorted(o.replays for o,_ in steps.steps.values())==[4, 4, 6] # two of each length come before
    assert_same(taped, trained(kind, *[WorkingWeights() for _ in amp]))

def test_updates_that_are_skipped_stay_skipped():
    "The decision is made on the device, at each step anew, and the history says the same"
    def run(*cbs): return trained('RTD', *cbs, grad_spike_factor=1.02, max_skipped_updates=10**6)
    taped, eager = run(Taped()), run()
    skipped = [o['step'] for o in eager.history.rows if 'skipped' in o]
    assert 3<len(skipped)<18
    assert_same(taped, eager)

def test_a_second_fit_and_an_evaluation_between():
    "What a step leaves in the learner is back after an evaluation has taken its place"
    def twice(*cbs):
        learn = trained('RTD', *cbs, schedule=())
        with no_random(1), learn.no_logging(), learn.no_bar(): learn.fit(1)
        return learn
    assert_same(twice(Taped()), twice())

class Mine(Callback):
    "A callback of a user's that works within the step"
    def before_step(self): self.seen = getattr(self, 'seen', 0) + 1

class Looks(Callback):
    "A callback of a user's that looks at the masked batch"
    order = MaskTokens.order+1
    def before_batch(self): self.seen = self.masked.masked_ids.clone()

@pytest.mark.parametrize('cb,why', [(Mine(), 'Mine works within the step'),
                                    (Looks(), 'the batch is masked before the step')])
def test_what_cannot_be_captured_is_told_once(capsys, cb, why):
    "and nothing of it is lost"
    class Choose(CompileStep):
        def before_fit(self):
            super().before_fit()
            self.choose_capture()
    learn = trained('RTD', Choose(**EAGER), cb)
    assert capsys.readouterr().out.count(f'not replayed as a CUDA graph: {why}')==1
    assert learn.captured is None and (cb.seen==20 if why.startswith('Mine') else cb.seen.shape==(4, 32))
    assert_same(learn, trained('RTD'))

class Breaks(ReplacedTokenDetection):
    "An objective that reads a number in its step"
    def step(self, mb):
        out = super().step(mb)
        self.last = out.sums['gen'].item()
        return out

def test_an_objective_with_a_break_is_compiled_in_parts(capsys):
    hp = recipe(**KINDS['RTD'])
    def run(*cbs):
        with no_random(0):
            learn = electra_learner(loaders(rows(12), bs=4), hp, build_networks(hp, Breaks), special_ids=SPECIAL_IDS,
                                    cbs=cbs)
            with learn.no_logging(), learn.no_bar(): learn.fit(2)
        return learn
    learn = run(CompileStep(**EAGER))
    said = capsys.readouterr().out
    assert said.count('Breaks cannot be compiled as one graph, so it is compiled in parts (')==1
    assert counters['graph_break']
    assert_same(learn, run())

def test_a_subclass_has_to_say_again_what_belongs_to_the_host():
    "Or Python of its own would run once, silently"
    class Longer(SkipBadGradients):
        def before_step(self): super().before_step()
    class Says(Longer): on_host = 'after_step',
    assert (works_in_step(SkipBadGradients), works_in_step(Longer), works_in_step(Says))==(False, True, False)

def test_weights_in_bfloat16_learn_as_autocast_does():
    "Losses of a hundred updates, one seed"
    def last(*cbs):
        losses = trained('RTD', *cbs, n=100, schedule=()).recorder.losses
        return torch.tensor([float(o) for o in losses[-20:]]).mean()
    full, auto, half = last(), last(DeviceMixedPrecision(AMPMode.BF16)), last(WorkingWeights())
    assert abs(half-full)<.05*full and abs(auto-full)<.05*full
