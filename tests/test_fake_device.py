"All that computes, on a pretended GPU: no reading on the host, no copy between devices, no float64, no large tensor"
import weakref
from dataclasses import replace
from functools import partial
from itertools import permutations
from types import SimpleNamespace

import pytest
import torch
from fastai.callback.core import Callback
from fastai.callback.fp16 import AMPMode
from fastai.torch_core import to_device
from packaging.version import Version
from torch import tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.utils._pytree import tree_map_only
from torch.utils.checkpoint import checkpoint
from transformers import ElectraForMaskedLM

from electra_nbdev.finetuning import finetune
from electra_nbdev.method import generator
from electra_nbdev.networks import build
from electra_nbdev.pretraining import continue_pretraining, learner as pretrain
from electra_nbdev.scoring import score
from electra_nbdev.data.batches import PretrainDL
from electra_nbdev.method.towers import cloze_step
from electra_nbdev.engine.fast import WorkingWeights
from electra_nbdev.engine.ranks import KeyedRandom
from electra_nbdev.engine.training import DeviceMixedPrecision
from electra_nbdev.finetuning.finetune import finetune_dls, finetune_learner
from electra_nbdev.finetuning.recipe import FinetuneHParams, open_model
from electra_nbdev.method.generator import generator_config, mlm_step, predict_masked
from electra_nbdev.finetuning.tasks import glue_task
from electra_nbdev.scoring.likelihood import load_likelihood
from electra_nbdev.method.masking import make_inputs, mask_batch
from electra_nbdev.method.optimizer import joined_groups
from electra_nbdev.pretrain import electra_learner
from electra_nbdev.finetuning.qa import qa_task
from electra_nbdev.networks.build import body_config, build_networks
from electra_nbdev.networks.recipe import preset
from electra_nbdev.scoring.score import generator_choices, load_scorer, replaced_probs
from electra_nbdev.finetuning.tagging import chunk_task
from electra_nbdev.finetuning.finetune import read_rows
from official import SPECIAL_IDS, loaders
from fake_device import (GPU, Batches, HostCopy, Watch, counted_kernels, learner, pretended_gpu, put, tensors, to_gpu,
                         train)
from make import ALL_VARIANTS, ONE_LAYER, electra_folder, small_recipe, task_files

pytestmark = pytest.mark.skipif(Version(torch.__version__).release<(2, 13),
                                reason="older versions of torch look for a driver")

READING = HostCopy, DataDependentOutputException, DynamicOutputShapeException

def test_the_pretended_gpu_refuses_what_would_stop_one():
    with pretended_gpu():
        x = torch.ones(4, 3, device=GPU)
        for f in (x.cpu, x.sum().item, x.nonzero, lambda: x[x>0], lambda: bool(x.all()), lambda: x.new_tensor(3.),
                  lambda: tensor([1.], device=GPU), lambda: torch.ones(3).to(GPU), lambda: x[[0, 1]],
                  lambda: x.copy_(torch.ones(4, 3)), lambda: torch.where(x>0, tensor(0.), x)):
            with pytest.raises(READING): f()
        with torch.autocast('cuda', torch.bfloat16): assert (x@x.T).dtype==torch.bfloat16
        assert (x + tensor(1.)).device==GPU

@pytest.mark.parametrize('precision', ['fp32', 'bf16'])
@pytest.mark.parametrize('variant', ALL_VARIANTS)
def test_training_does_not_stop_the_gpu(variant, precision):
    learn = learner(variant, precision)
    copies = 3 if learn.hp.unigram_noise else 1 # the usual norm; the unigram's probabilities, at the first batch
    with pretended_gpu(copies) as watch:
        train(put(learn))
    assert learn.n_updates==2 and torch.float64 not in watch.dtypes()
    assert (torch.bfloat16 in watch.dtypes())==(precision=='bf16')

def test_whole_words_do_not_stop_the_gpu():
    "Where words begin goes to the device once"
    learn = learner('tied')
    learn.mask_tokens.word_starts = torch.ones(learn.hp.vocab_size, dtype=torch.bool)
    with pretended_gpu(copies=2): train(put(learn))
    assert learn.n_updates==2

@pytest.mark.parametrize('precision', ['fp32', 'bf16'])
@pytest.mark.parametrize('variant', ALL_VARIANTS)
def test_evaluation_does_not_stop_the_gpu(variant, precision):
    "Both networks, and the replacements of the unigram in the same precision; read when all batches are done"
    learn, read = learner(variant, precision), []
    learn.held_out_metrics.after_validate = lambda: read.append(1)
    with pretended_gpu(copies=3) as watch: # the unigram twice and the usual norm, before the first batch
        with put(learn).no_logging(): learn.validate()
    bodies = [o for o in watch.on_gpu() if o[0]=='aten.addmm.default' and o[1][-1]==ONE_LAYER['intermediate_size']]
    assert read and bodies and torch.float64 not in watch.dtypes()
    assert {o[2] for o in bodies}=={torch.float32 if precision=='fp32' else torch.bfloat16}
    assert all(o['logit'].dtype==torch.float32 for o in learn.held_out_metrics.d + learn.held_out_metrics.u)

# Sizes

BASE, ROWS, WIDTH = preset('base', train_batch_size=256, max_seq_length=128, length_schedule=()), 256, 128
FEED_FORWARD = ROWS*WIDTH*body_config(BASE).intermediate_size

def sizes(watch, vocab_size):
    "The largest result, and the largest that has a dimension of the vocabulary; an expanded view holds nothing"
    shapes = [o[1] for o in watch.seen if 'expand' not in o[0]]
    return [max((torch.Size(o).numel() for o in some), default=0)
            for some in (shapes, [o for o in shapes if vocab_size in o])]

@pytest.mark.parametrize('change,precision', [(dict(disallow_correct=True, temperature=2.), 'fp32'), ({}, 'bf16'),
    (dict(electra_objective=False, electric_objective=True, two_tower_generator=True), 'bf16')],
    ids=['disallow_correct', 'ELECTRA', 'Electric'])
def test_a_step_of_base_holds_little(monkeypatch, change, precision):
    monkeypatch.setattr(build, 'official_init_', lambda net, *args: net) # there are no values
    hp, amp = replace(BASE, **change), [] if precision=='fp32' else [DeviceMixedPrecision(AMPMode.BF16)]
    rows = torch.ones(2, WIDTH, dtype=torch.long), tensor([10]*2)
    with pretended_gpu(copies=1) as watch:
        train(put(electra_learner(loaders(rows), hp, special_ids=SPECIAL_IDS, cbs=amp), ROWS), 1)
    largest, of_words = sizes(watch, hp.vocab_size)
    products = {o[2] for o in watch.seen if o[0]=='aten.addmm.default' and hp.vocab_size in o[1]}
    assert products=={torch.float32 if precision=='fp32' else torch.bfloat16}
    assert 0<of_words<=generator.GPU_LOGITS and largest<=max(FEED_FORWARD, generator.GPU_LOGITS)

class Marks(Callback):
    "How many kernels there were after each batch"
    order = 999
    def __init__(self, calls): self.calls, self.at = calls, []
    def after_batch(self): self.at.append(len(self.calls))

@pytest.mark.parametrize('padded,most', [(False, 560), (True, 590)])
def test_a_step_of_base_starts_few_kernels(monkeypatch, padded, most):
    "Half of the 1,144 operations, 428 of them casts, that the step had with autocast, 28 groups and three parts"
    monkeypatch.setattr(build, 'official_init_', lambda net, *args: net) # there are no values
    rows = torch.ones(2, WIDTH, dtype=torch.long), tensor([10]*2)
    with pretended_gpu(copies=1), counted_kernels() as calls:
        learn = electra_learner(loaders(rows), BASE, special_ids=SPECIAL_IDS, cbs=[WorkingWeights(), Marks(calls)])
        put(learn, 128)
        monkeypatch.setattr(Batches, 'no_padding', not padded, raising=False)
        with learn.no_bar(): train(learn, 2)
    step = calls[learn.marks.at[0]:]
    assert 500<len(step)<=most and step.count('_to_copy')<=20 and step.count('_fused_adamw_')==2
    assert step.count('attention')==24 and step.count('addmm')==149

@pytest.mark.parametrize('kind', ['mlm', 'cloze'])
def test_the_backward_pass_of_base_holds_little(kind):
    "Logits are computed again in parts, and none are kept until then; on `meta`, where autograd works"
    cfg, kept = generator_config(body_config(BASE), BASE.generator_hidden_size), []
    def keep(t):
        kept.append(t.numel() if BASE.vocab_size in t.shape and not isinstance(t, torch.nn.Parameter) else 0)
        return t
    with torch.device('meta'):
        net = ElectraForMaskedLM(cfg)
        rows = 4*ROWS # too many for a single part
        ids = torch.empty(rows, WIDTH, dtype=torch.long)
        wide = cfg.hidden_size if kind=='mlm' else cfg.embedding_size
        x = torch.empty(rows, WIDTH, wide, requires_grad=True)
    mb = mask_batch(make_inputs(ids, None, 0), SPECIAL_IDS, rand=KeyedRandom(0, device='meta'))
    with Watch() as watch, torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        if kind=='mlm': total = mlm_step(net, x, mb)[0]
        else: total = cloze_step(net.generator_lm_head, x, mb, mb.candidates)[0]
        assert max(kept)==0
        total.backward()
    largest, of_words = sizes(watch, BASE.vocab_size)
    assert x.grad is not None and 0<of_words<=generator.GPU_LOGITS and largest<=generator.GPU_LOGITS

def outcome(monkeypatch, kind, held, drop=0., again=True):
    "Prediction and gradients of a generator that holds so many logits, and in how many parts they were made"
    net = build_networks(small_recipe(**ALL_VARIANTS['tied' if kind=='mlm' else 'Electric'])).generator.train()
    for o in net.modules():
        if isinstance(o, torch.nn.Dropout): o.p = 0.
    head = net.generator_predictions
    head.LayerNorm = torch.nn.Sequential(head.LayerNorm, torch.nn.Dropout(drop))
    ids = torch.randint(7, 100, (5, 32), generator=torch.Generator().manual_seed(0))
    mb, parts = mask_batch(make_inputs(ids, None, 0), SPECIAL_IDS, rand=KeyedRandom(0)), []
    def counted(f, *args, **kwargs):
        parts.append(f)
        return checkpoint(f, *args, **kwargs) if again else f(*args)
    monkeypatch.setattr(generator, 'checkpoint', counted)
    monkeypatch.setattr(generator, 'LOGITS', held)
    torch.manual_seed(0)
    found = predict_masked(net, mb, True)
    grads = torch.autograd.grad(found.total, list(net.parameters()))
    return [*found[:4], *grads, *predict_masked(net.eval(), mb, False)], len(parts)

PER_SEQUENCE = dict(mlm=5*100, cloze=32*100) # Logits

@pytest.mark.parametrize('kind', PER_SEQUENCE)
def test_parts_make_the_whole(monkeypatch, kind):
    "Total, losses, samples, gradients, and what an evaluation adds"
    (whole, one), (parted, some) = (outcome(monkeypatch, kind, n*PER_SEQUENCE[kind]) for n in (5, 2))
    assert one==0 and some>=6
    for a,b in zip(whole, parted, strict=True): torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)

@pytest.mark.parametrize('kind', PER_SEQUENCE)
def test_a_part_repeats_its_dropout(monkeypatch, kind):
    "The gradient belongs to the loss that was computed, not to a second one"
    (a, n), (b, _) = (outcome(monkeypatch, kind, 2*PER_SEQUENCE[kind], .5, again) for again in (True, False))
    assert n>=6
    for x,y in zip(a, b, strict=True): torch.testing.assert_close(x, y)

# Scores, likelihoods, tasks

def test_batches_are_copied_without_waiting(monkeypatch):
    pinned = []
    monkeypatch.setattr(torch.Tensor, 'pin_memory', lambda self: pinned.append(1) or self)
    class Rows(list):
        def __getitem__(self, idxs): return torch.ones(len(idxs), 8, dtype=torch.long), torch.ones(len(idxs))
    dl = PretrainDL(Rows([0]*8), bs=4, device=GPU)
    with pretended_gpu(): assert {o.device for o in dl.one_batch()}=={GPU} and len(pinned)==2

@pytest.fixture
def scorer():
    "The shipped model, and the ids of a text"
    scorer, text = load_scorer('tiny', device='cpu'), 'The captain steered the ship through a storm.'
    return scorer, scorer.tokenizer(text, add_special_tokens=False)['input_ids']

def test_scores_go_once_to_the_gpu_and_back(monkeypatch, scorer):
    scorer, ids = scorer
    scorer.max_length, found = 6, score.windows(len(ids), 4) # several windows in a batch
    monkeypatch.setattr(score, 'windows', lambda *args: found)
    with pretended_gpu(copies=2) as watch:
        scorer.discriminator, scorer.device = to_gpu(scorer.discriminator), GPU
        assert replaced_probs(scorer, ids).shape==(len(ids),)
    assert watch.copied==2 and torch.float64 not in watch.dtypes()

def test_choices_go_once_to_the_gpu_and_back(scorer):
    "As far as a device without values goes: to the most probable words, which are then read"
    scorer, ids = scorer
    with pretended_gpu(copies=2) as watch, pytest.raises(DataDependentOutputException):
        scorer.generator, scorer.device = to_gpu(scorer.generator), GPU
        generator_choices(scorer, ids, [[1]])
    assert watch.copied==2 and watch.seen[-1][3]=='cpu' and 'topk' in ' '.join(o[0] for o in watch.seen[-20:])

@pytest.mark.parametrize('padded', [False, True])
@pytest.mark.parametrize('how', ['energy', 'towers', 'ELECTRA-TT', 'passes'])
def test_likelihoods_stay_on_the_gpu(monkeypatch, how, padded):
    "The shipped models; which tokens are asked for one by one is not known where there are no values"
    monkeypatch.setattr(torch.Tensor, 'nonzero', lambda o: torch.zeros(7, 2, dtype=torch.long, device=o.device))
    if how=='passes': scores = load_likelihood('tiny', device='cpu').scores
    else: scores = load_likelihood('electric', 'towers' if how=='towers' else 'energies', device='cpu').scores
    if how=='ELECTRA-TT': scores = partial(scores, mask_prob=.15)
    with pretended_gpu() as watch, torch.no_grad():
        to_gpu(scores.args[0])
        ids, mask = torch.empty(3, 16, dtype=torch.long, device=GPU), torch.empty(3, 16, dtype=torch.bool, device=GPU)
        found = scores(ids, mask if padded else None)
    assert found.shape==ids.shape and found.device==GPU and torch.float64 not in watch.dtypes()

TASKS = dict(cola=glue_task, sts=glue_task, squad=qa_task, chunk=chunk_task)

@pytest.fixture(scope='module')
def tasks_of(tmp_path_factory):
    "A few rows of a class, a number, questions and tags, and an encoder"
    d = tmp_path_factory.mktemp('tasks')
    task_files(d)
    electra_folder(d/'model')
    return d

def task_learner(tasks_of, names, cbs=()):
    "A learner of tasks on the CPU"
    hp = FinetuneHParams(max_seq_length=32, train_batch_size=8)
    encoder, tok = open_model(tasks_of/'model')
    tasks = {o: TASKS[o](o, tasks_of) for o in names.split('+')}
    rows = read_rows(tasks, tok, hp)
    return finetune_learner(finetune_dls(tasks, rows['train'], rows['dev'], tok, hp, 'cpu'), encoder, hp, cbs=cbs)

def to(device, tree): return tree_map_only(torch.Tensor, lambda o: o.to(device), tree)

@pytest.mark.parametrize('precision', ['fp32', 'bf16'])
@pytest.mark.parametrize('names', [*TASKS, 'cola+sts+squad+chunk'])
def test_tasks_do_not_stop_the_gpu(tasks_of, names, precision):
    "A step with its optimizer, and an evaluation's pass"
    learn = task_learner(tasks_of, names, [] if precision=='fp32' else [DeviceMixedPrecision(AMPMode.BF16)])
    batch = next(iter(learn.dls.valid))
    with pretended_gpu(copies=100) as watch:
        on_gpu = to(GPU, batch)
        watch.copies = watch.copied
        train(put(learn, batches=[on_gpu]*2))
        with torch.no_grad(): learn.model.eval()(on_gpu[0])
    assert learn.n_updates==2 and torch.float64 not in watch.dtypes()
    assert (torch.bfloat16 in watch.dtypes())==(precision=='bf16')

def test_batches_of_tasks_are_copied_without_waiting(monkeypatch, tasks_of):
    "From pinned memory, with tags and answers; fastai's own copy finds nothing to do. Not by the workers of a loader"
    dl, pinned = task_learner(tasks_of, 'cola+squad+chunk').dls.train, []
    batch, _ = found = dl.one_batch()
    monkeypatch.setattr(torch.Tensor, 'pin_memory', lambda self: pinned.append(1) or self)
    monkeypatch.setattr(finetune, 'task_batch', lambda *args: found)
    dl.device = GPU
    with pretended_gpu():
        copied = dl.create_batch([0])
        assert {o.device for o in tensors(copied)}=={GPU} and len(pinned)==len(tensors(batch))
        assert all(a is b for a,b in zip(tensors(copied), tensors(to_device(copied, GPU)), strict=True))
    monkeypatch.setattr(finetune, 'get_worker_info', lambda: 'a worker')
    assert dl.create_batch([0])[0] is batch

@pytest.mark.parametrize('kind', ['pre-training', 'fine-tuning'])
def test_an_update_is_fused(monkeypatch, tasks_of, kind):
    "One kernel for the groups that share rate and decay, on the CPU and on a GPU"
    fused, calls = torch._fused_adamw_, []
    def step(params, *args, **kwargs):
        calls.append((len(params), {o.device.type for o in params}))
        return fused(params, *args, **kwargs)
    monkeypatch.setattr(torch, '_fused_adamw_', step)
    learn = learner('tied') if kind=='pre-training' else task_learner(tasks_of, 'cola')
    with learn.no_bar(): train(learn, 1)
    groups = [(len(o['params']), {'cpu'}) for o in joined_groups(learn.opt.opt.param_groups)]
    assert calls==groups and len(groups)<len(learn.opt.opt.param_groups)
    assert len(groups)==2 or kind=='fine-tuning'
    calls.clear()
    batch = learn.dls.valid.one_batch()
    with pretended_gpu(copies=100):
        train(put(learn, batches=None if kind=='pre-training' else [to(GPU, batch)]*2), 1)
    assert calls==[(n, {'cuda'}) for n,_ in groups]

# Networks that are made for a moment, and numbers that are rounded

ANIMALS = 'dog cat bird fish horse cow'.split()

def test_logits_of_an_evaluation_are_not_rounded():
    "In mixed precision the head computes in float32, so that the area under the curve ranks no roundings"
    model, ids = build_networks(small_recipe()).eval(), torch.randint(7, 100, (4, 32))
    with torch.no_grad(), torch.autocast('cpu', torch.bfloat16):
        logits, rough = model.token_logits(ids), model.discriminator(ids).logits
    assert rough.dtype==torch.bfloat16 and logits.dtype==torch.float32
    assert (logits.bfloat16()!=logits).float().mean()>.9 and (logits-rough).abs().max()<.05
    with torch.autocast('cpu', torch.bfloat16): assert model.train().token_logits(ids).dtype==torch.bfloat16

def test_networks_that_were_timed_are_gone(tmp_path, monkeypatch):
    "`--minutes` times networks of its own; a GPU has to have room for those that are trained"
    built, new = [], pretrain.build_networks
    def noted(hp, objective=None):
        model = new(hp)
        built.append(weakref.ref(model))
        return model
    monkeypatch.setattr(pretrain, 'build_networks', noted)
    lines = [f'the {a} saw the {b} of the {c}' for a,b,c in permutations(ANIMALS, 3)]
    (tmp_path/'text.txt').write_text('\n\n'.join(lines))
    dls = pretrain.PretrainDataLoaders.from_text(tmp_path/'text.txt', 100, 16, .3, tmp_path/'out', bs=16, device='cpu')
    hp = pretrain.match_examples(small_recipe(untied_generator=True), dls.train.dataset)
    assert pretrain.steps_within(1, hp, dls, [DeviceMixedPrecision(AMPMode.BF16)])>=20
    assert len(built)==1 and all(o() is None for o in built)

def test_networks_that_a_run_began_with_leave_the_gpu(monkeypatch):
    "They are measured there before the first step"
    class Network:
        def to(self, device):
            self.device = device
            return self
    old, measured = Network(), []
    known = Network, continue_pretraining.PreTrainedModel
    monkeypatch.setattr(continue_pretraining, 'PreTrainedModel', known)
    monkeypatch.setattr(continue_pretraining, 'held_out_texts', lambda *args: [])
    monkeypatch.setattr(continue_pretraining, 'bits_per_byte', lambda mlm, *args: measured.append(mlm.device) or {})
    tok, hp = load_scorer('tiny', device='cpu').tokenizer, small_recipe()
    origin = SimpleNamespace(model=SimpleNamespace(generator=old), tokenizer=tok, hp=hp, made=())
    bits = continue_pretraining.DomainBits(origin)
    history, held = SimpleNamespace(rows=[], add=lambda row: None), SimpleNamespace(tokenizer=tok)
    dls = SimpleNamespace(device=GPU, valid=SimpleNamespace(dataset=held))
    bits.learn = SimpleNamespace(model=build_networks(small_recipe(untied_generator=True)), opt=1, n_updates=0, hp=hp,
                                 history=history, dls=dls)
    bits.before_fit()
    assert measured==[GPU] and old.device=='cpu'
