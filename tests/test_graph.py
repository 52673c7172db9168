"The step as one graph: no break, one version for each length, the numbers of the eager step, also when it is replayed"
import pytest
import torch
from fastai.callback.core import Callback
from fastai.callback.fp16 import AMPMode
from fastai.torch_core import no_random
from torch._dynamo.utils import counters

from electra_nbdev.data.batches import LengthSchedule
from electra_nbdev.engine.checkpoint import latest_checkpoint, load_checkpoint
from electra_nbdev.engine.fast import WorkingWeights, weights_in, with_weights, works_in_step
from electra_nbdev.engine.training import DeviceMixedPrecision
from electra_nbdev.method import generator
from electra_nbdev.method.electra import ReplacedTokenDetection
from electra_nbdev.method.masking import MaskTokens, mask_examples
from electra_nbdev.method.optimizer import ElectraAdam
from electra_nbdev.pretrain import electra_learner
from electra_nbdev.pretraining.graph import CompileStep
from electra_nbdev.pretraining.monitor import SkipBadGradients
from electra_nbdev.pretraining import runs
from electra_nbdev.networks.build import build_networks
from electra_nbdev.pretraining.request import run_pretraining
from official import SPECIAL_IDS, loaders
from learners import StopAt
from tape import Tape
from make import CONFIGS, ONE_LAYER, VARIANTS, made, no_curves, small_recipe

MODERN = dict(body=CONFIGS['modernbert'].to_diff_dict(), untied_generator=True)
KINDS = {'RTD': VARIANTS['tied'], 'MLM': VARIANTS['BERT'], 'Electric': VARIANTS['Electric'],
         'ELECTRA-TT': VARIANTS['ELECTRA-TT'], 'one network': VARIANTS['one network'], 'GDES': VARIANTS['gdes'],
         'noise': VARIANTS['unigram noise'], 'ModernBERT': MODERN,
         'corrective': MODERN | VARIANTS['corrective']}
LENGTHS = (8, .3), (16, .3), (32, .4)
EAGER = dict(backend='eager', dynamic=False)

@pytest.fixture(scope='module', autouse=True)
def known():
    "dynamo keeps, for the whole process, how it treats `is_compiling`: it has to see the real one first"
    torch.compile(lambda o: o+1 if torch.compiler.is_compiling() else o, backend='eager')(torch.ones(1))

@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    "As on a GPU: dropout of torch, and no look for padding"
    torch._dynamo.reset()
    counters.clear()
    monkeypatch.setattr(torch.compiler, 'is_compiling', lambda: True)

class Taped(CompileStep):
    "Captured on a CPU, by a `Tape`, without kernels"
    name, graph = 'compile_step', Tape
    def __init__(self): super().__init__(**EAGER)
    def before_fit(self):
        super().before_fit()
        self.masked_step = getattr(self.masked_step, '_torchdynamo_orig_callable', self.masked_step)
        self.choose_capture()
        self.taken = self.learn.captured or getattr(self, 'taken', None)

def rows(n):
    "Examples, of which every second batch has padding"
    ids = torch.randint(7, 100, (4*n, 32), generator=torch.Generator().manual_seed(0))
    for i in range(0, 4*n, 8): ids[i:i+4,20:] = 0
    return ids, torch.full((4*n,), 10)

def trained(kind, *cbs, n=20, schedule=LENGTHS, **kw):
    "A learner after `n` updates"
    hp = small_recipe(**KINDS[kind] | kw)
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
    "In sixteen steps, two lengths: two compilations, no break"
    lengths = (8, .5), (32, .5)
    compiled = trained(kind, CompileStep(**EAGER), n=16, schedule=lengths)
    assert counters['stats']['unique_graphs']==len(lengths) and not counters['graph_break']
    assert_same(compiled, trained(kind, n=16, schedule=lengths))

@pytest.mark.parametrize('half', [False, True], ids=['fp32', 'bf16'])
@pytest.mark.parametrize('kind', KINDS)
def test_a_replayed_step_is_the_eager_step(kind, half):
    "With dropout, a schedule of rates and lengths, decay and clipping: rates, places and noise are those of each step"
    amp = [WorkingWeights()] if half else []
    taped = trained(kind, Taped(), *amp)
    steps = taped.compile_step.taken
    assert sorted(o.replays for o,_ in steps.steps.values())==[4, 4, 6] # two of each length come before
    assert_same(taped, trained(kind, *[WorkingWeights() for _ in amp]))

def test_updates_that_are_skipped_stay_skipped():
    "The decision is made on the device, at each step anew, and the history says the same"
    how = dict(grad_spike_factor=1.02, max_skipped_updates=10**6, learning_rate=.1, num_warmup_steps=1)
    def run(*cbs): return trained('RTD', *cbs, **how)
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

def test_a_fit_that_was_interrupted_leaves_nothing_behind():
    "Nor what a search for a rate, or numbers that are loaded, leave at other addresses"
    class Interrupt(Callback):
        def after_batch(self):
            if self.training and self.train_iter==7: raise KeyboardInterrupt
    def run(*cbs):
        learn = trained('RTD', *cbs, schedule=())
        with no_random(1), learn.no_logging(), learn.no_bar():
            with pytest.raises(KeyboardInterrupt): learn.fit(1, cbs=Interrupt())
            learn.opt.opt.found_inf = None # of the step that was interrupted
            assert learn.around==() and learn.captured is None and learn.opt.opt.rates is None
            learn.opt.load_moments({k: o.clone() for k,o in learn.opt.moments().items()})
            learn.fit(1)
        return learn
    assert_same(run(Taped(), WorkingWeights()), run(WorkingWeights()))

def test_what_a_callback_changes_in_a_fit_is_seen():
    "A rate of masking, a group that freezes, two schedules of rates over groups of one size"
    class Changes(Callback):
        order = MaskTokens.order-2
        def before_batch(self):
            if self.training: self.mask_tokens.mask_prob = .15 if self.n_updates<10 else .3
            if self.training and self.n_updates==14: self.learn.freeze_to(-1)
    assert_same(trained('RTD', Taped(), Changes(), schedule=()), trained('RTD', Changes(), schedule=()))

def test_weights_that_are_not_used_stay():
    net = torch.nn.ModuleDict(dict(used=torch.nn.Linear(2, 2), idle=torch.nn.Linear(2, 2)))
    with with_weights(net, weights_in(net)): net['used'](torch.ones(1, 2, dtype=torch.bfloat16)).sum().backward()
    assert net['used'].weight.grad is not None and net['idle'].weight.grad is None

def test_groups_of_one_size_are_told_apart():
    "Their rates go to the tensors of the groups that were joined"
    opt = ElectraAdam([dict(params=[torch.nn.Parameter(torch.ones(1))]) for _ in range(4)])
    def fixed(*rates):
        for g,lr in zip(opt.param_groups, rates): g['lr'] = lr
        return opt.put_rates('cpu')
    assert fixed(1., 1., 2., 2.)!=fixed(1., 2., 1., 2.) and fixed(3., 3., 4., 4.)==fixed(1., 1., 2., 2.)

def test_a_learner_that_compiles_is_exported(tmp_path):
    learn = trained('RTD', CompileStep(**EAGER), schedule=())
    learn.export(tmp_path/'learner.pkl')
    assert (tmp_path/'learner.pkl').stat().st_size

def test_kept_numbers_are_those_of_their_step():
    class Keep(Callback):
        def before_fit(self): self.sums = []
        def after_batch(self):
            if self.training: self.sums.append(self.output.sums['gen'])
    kept = trained('RTD', Taped(), Keep(), schedule=()).keep.sums
    assert len({float(o.detach()) for o in kept})==20

def test_an_observer_in_one_fit_and_not_in_the_next():
    "The step masks where it may, in any order of fits"
    def run(*cbs, first=(), second=()):
        with no_random(0):
            hp = small_recipe(**KINDS['RTD'])
            learn = electra_learner(loaders(rows(6), bs=4), hp, build_networks(hp), special_ids=SPECIAL_IDS, cbs=cbs)
            with learn.no_logging(), learn.no_bar():
                learn.fit(1, cbs=first)
                learn.fit(1, cbs=second)
        return list(learn.model.parameters())
    plain = run()
    for how in (dict(first=Looks()), dict(second=Looks())):
        for a,b in zip(plain, run(CompileStep(**EAGER), **how), strict=True): assert torch.equal(a, b)

def test_rows_that_are_known_to_be_full_have_no_mask():
    "On a GPU nobody looks; the loader knows"
    ids = torch.full((2, 8), 9)
    masks = [mask_examples(ids, None, SPECIAL_IDS, full=o).attention_mask for o in (True, False)]
    assert masks[0] is None and masks[1].all()

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
    learn = trained('RTD', Choose(**EAGER), cb, schedule=())
    assert capsys.readouterr().out.count(f'not replayed as a CUDA graph: {why}')==1
    assert learn.captured is None and (cb.seen==20 if why.startswith('Mine') else cb.seen.shape==(4, 32))
    assert_same(learn, trained('RTD', schedule=()))

class Breaks(ReplacedTokenDetection):
    "An objective that reads a number in its step"
    def step(self, mb):
        out = super().step(mb)
        if out.sums['gen'].item()<0: raise ValueError
        return out

def with_breaks(hp, *cbs, epochs=1):
    "A learner of that objective after some updates"
    with no_random(0):
        model = build_networks(hp, Breaks)
        learn = electra_learner(loaders(rows(12), bs=4), hp, model, special_ids=SPECIAL_IDS, cbs=cbs)
        with learn.no_logging(), learn.no_bar(): learn.fit(epochs)
    return learn

@pytest.mark.filterwarnings('ignore:The .grad attribute') # torch's own, where it goes on after a break
def test_an_objective_with_a_break_is_compiled_in_parts(capsys):
    def run(*cbs): return with_breaks(small_recipe(**KINDS['RTD']), *cbs, epochs=2)
    learn = run(CompileStep(**EAGER))
    said = capsys.readouterr().out
    assert said.count('Breaks cannot be compiled as one graph, so it is compiled in parts (')==1
    assert counters['graph_break']
    assert_same(learn, run())

def test_a_step_that_cannot_be_captured_runs_on(capsys):
    "A number that is read is an error of CUDA; nothing of the batch is lost"
    still = ONE_LAYER | dict(hidden_dropout_prob=0., attention_probs_dropout_prob=0.) # a Tape has drawn when it fails
    def run(*cbs): return with_breaks(small_recipe(**KINDS['RTD'], model_hparam_overrides=still), *cbs)
    learn = run(Taped())
    assert capsys.readouterr().out.count('The update cannot be replayed as a CUDA graph (RuntimeError')==1
    assert_same(learn, run())

@pytest.mark.parametrize('half', [False, True], ids=['fp32', 'bf16'])
def test_a_replayed_run_continues(monkeypatch, made, tmp_path, half):
    "Bit for bit, though the first steps after the start are not replayed"
    d, hp = made
    no_curves(monkeypatch)
    monkeypatch.setattr(runs, 'compile_callbacks', lambda wanted, device, kind, **how: [Taped()]*wanted)
    def run(out, *cbs):
        amp = [WorkingWeights()] if half else []
        return run_pretraining(d/'examples', tmp_path/out, hp, device='cpu', compile=True, cbs=[*amp, *cbs])
    def tensors(out): return load_checkpoint(latest_checkpoint(tmp_path/out))[0]
    run('whole')
    assert run('stopped', StopAt(5)).stopped
    learn = run('stopped')
    assert learn.n_updates==hp.num_train_steps and learn.compile_step.taken.steps
    a, b = tensors('whole'), tensors('stopped')
    assert list(a)==list(b) and all(torch.equal(a[k], b[k]) for k in a if k.startswith(('model', 'optimizer')))

def test_a_subclass_has_to_say_again_what_belongs_to_the_host():
    "Or Python of its own would run once, silently"
    class Longer(SkipBadGradients):
        def before_step(self): super().before_step()
    class Says(Longer): on_host = 'after_step',
    assert (works_in_step(SkipBadGradients), works_in_step(Longer), works_in_step(Says))==(False, True, False)

@pytest.mark.parametrize('again', ['layers', 'logits'])
def test_what_is_computed_again_has_the_same_weights(monkeypatch, again):
    "In the backward pass, when the forward pass is over"
    def run(): return trained('RTD', WorkingWeights(), n=12, gradient_checkpointing=again=='layers')
    if again=='logits': monkeypatch.setattr(generator, 'LOGITS', 600)
    found = run()
    monkeypatch.undo()
    monkeypatch.setattr(torch.compiler, 'is_compiling', lambda: True)
    plain = trained('RTD', WorkingWeights(), n=12)
    for a,b in zip(found.recorder.losses, plain.recorder.losses, strict=True): assert a==pytest.approx(b, rel=1e-3)
    assert all(isinstance(p, torch.nn.Parameter) and p.dtype==torch.float32 for p in found.model.parameters())

def test_weights_in_bfloat16_learn_as_autocast_does():
    "Losses of a hundred updates, one seed"
    def last(*cbs):
        losses = trained('RTD', *cbs, n=100, schedule=()).recorder.losses
        return torch.tensor([float(o) for o in losses[-20:]]).mean()
    full, auto, half = last(), last(DeviceMixedPrecision(AMPMode.BF16)), last(WorkingWeights())
    assert abs(half-full)<.05*full and abs(auto-full)<.05*full
