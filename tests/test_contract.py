"What a fastai user expects of pre-training: the objective is a callback, and everything else of fastai keeps working"
import re, warnings

import numpy as np
import pandas as pd
import pytest
import torch
from fastai.callback.core import Callback, CancelBatchException, CancelStepException
from fastai.callback.fp16 import MixedPrecision
from fastai.callback.progress import CSVLogger
from fastai.callback.schedule import ParamScheduler, SchedLin
from fastai.callback.tracker import EarlyStoppingCallback, SaveModelCallback
from fastai.callback.training import GradientAccumulation
from fastai.data.core import DataLoaders
from fastai.data.load import DataLoader
from fastai.learner import Learner, load_learner
from fastai.optimizer import Adam
from fastai.torch_core import no_random
from fastprogress import fastprogress
from transformers import BertConfig, BertForMaskedLM, BertForTokenClassification
from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

from electra_nbdev.engine.files import InputError
from electra_nbdev.engine.training import DeviceMixedPrecision
from electra_nbdev.method.generator import generator_config
from electra_nbdev.method.optimizer import ElectraAdam, clip_by_global_norm
from electra_nbdev.pretrain import (ClipNorm, ElectraLearner, LinearWarmupDecay, MaskedLanguageModel, MaskedLM,
                                    MaskTokens, NoiseContrast, NoiseContrastiveEstimation, PretrainDataLoaders,
                                    ReplacedTokenDetection, ReplaceTokens, TwoTowers, build_examples, electra_learner,
                                    electra_optimizer, load_examples, param_groups, preset, step_loss, train_vocab)
from electra_nbdev.data.tokenizer import special_token_ids
from electra_nbdev.pretraining.learner import EvaluationInterval
from official import seen_ids
from learners import Interrupt, Norms, Watch, assert_swept, moved, quiet, remove, same_weights, weights

DIMS = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, embedding_size=16, intermediate_size=64,
            max_position_embeddings=32,
            hidden_dropout_prob=0., attention_probs_dropout_prob=0.)
WORDS, LOW, TOP, HEAD = ('discriminator.electra.embeddings.word_embeddings.weight',
                         'discriminator.electra.encoder.layer.0.output.dense.weight',
                         'discriminator.electra.encoder.layer.1.output.dense.weight',
                         'discriminator.discriminator_predictions.dense.weight')
GEN_LOW = 'generator.electra.encoder.layer.0.output.dense.weight'
GEN_HEAD = 'generator.generator_predictions.dense.weight'

@pytest.fixture(scope='module')
def examples(tmp_path_factory):
    "Training and held-out examples of 16 tokens, all of them full"
    d = tmp_path_factory.mktemp('contract')
    animals, places = 'dog cat bird fish horse'.split(), 'house river wood town hill field'.split()
    lines = [f'the {a} of the {p} saw a {b} in the {q} and it was there for a day'
             for a in animals for p in places for b in animals for q in places]
    (d/'text.txt').write_text('\n\n'.join(lines[::3]))
    train_vocab(d/'text.txt', d/'vocab', 120)
    folder = build_examples(d/'text.txt', d/'vocab', d/'examples', max_length=16, held_out=.2, long_lines='official')
    found = load_examples(folder), load_examples(folder/'held_out')
    assert all((o.lengths()==16).all() for o in found) and len(found[0])>=64 and len(found[1])>=24
    return found

@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    "fastai writes to the working folder; a fit that makes no updates ends soon"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(EvaluationInterval, 'most_idle', 20)

def ordinary_dls(examples, bs=16, shuffle=True):
    "Stock DataLoaders: 64 examples to train on, 24 to validate on: token ids and length of the first segment"
    train, held = ([*zip(*o[range(n)])] for o,n in zip(examples, (64, 24)))
    return DataLoaders(DataLoader(train, bs=bs, shuffle=shuffle, drop_last=True), DataLoader(held, bs=16), device='cpu')

def recipe(examples, **kw):
    return preset('tiny',
                  **dict(vocab_size=len(examples[0].tokenizer), max_seq_length=16, length_schedule=(),
                         train_batch_size=16, eval_batch_size=16,
                         num_train_steps=40, num_warmup_steps=2, save_checkpoints_steps=4, iterations_per_loop=2,
                         num_eval_steps=2, mask_prob=.15, untied_generator=True, generator_hidden_size=.5,
                         model_hparam_overrides=DIMS) | kw)

def networks(examples, variant):
    "The objective, and the callback of its step"
    cfg = ElectraConfig(vocab_size=len(examples[0].tokenizer), **DIMS)
    small = generator_config(cfg, .5)
    def disc(): return ElectraForPreTraining(cfg)
    rtd, nce = ReplacedTokenDetection.of, NoiseContrastiveEstimation.of
    return {'tied': lambda: (rtd(ElectraForMaskedLM(small), disc(), disc_weight=50), ReplaceTokens()),
            'separate': lambda: (rtd(ElectraForMaskedLM(small), disc(), 'none'), ReplaceTokens()),
            'one network': lambda: (rtd(ElectraForMaskedLM(cfg), disc(), 'encoder'), ReplaceTokens()),
            'uniform': lambda: (rtd(None, disc()), ReplaceTokens()),
            'ELECTRA-TT': lambda: (rtd(TwoTowers(small), disc()), ReplaceTokens()),
            'Electric': lambda: (nce(TwoTowers(small), disc()), NoiseContrast()),
            'BERT': lambda: (MaskedLanguageModel.of(ElectraForMaskedLM(cfg)), MaskedLM())}[variant]()

def stock(examples, dls=None, variant='tied', cbs=(), **kw):
    "The cell of the design: a stock Learner on stock DataLoaders"
    with no_random(0): model, step = networks(examples, variant)
    special_ids = special_token_ids(examples[0].tokenizer)
    return Learner(dls or ordinary_dls(examples), model, loss_func=step_loss,
                   opt_func=electra_optimizer, splitter=param_groups,
                   cbs=[MaskTokens(special_ids, mask_prob=0.15), step, ClipNorm(1.), LinearWarmupDecay(warmup=0.1),
                        *cbs], **kw)

def ordinary(examples, dls=None, cbs=(), **kw):
    "`electra_learner` on stock DataLoaders"
    return electra_learner(dls or ordinary_dls(examples), recipe(examples, unigram_noise=0.),
                           special_ids=special_token_ids(examples[0].tokenizer), cbs=cbs, **kw)

def of_recipe(examples, dls=None, cbs=(), **kw):
    "`electra_learner` on the loaders of this library, with an evaluation interval of four updates"
    return electra_learner(dls or PretrainDataLoaders.from_examples(*examples, 16, device='cpu'), recipe(examples),
                           cbs=cbs, **kw)

def as_an_interval_of_four_updates(learn):
    "Let `validate`, which reads all held-out text, read the batches that a recipe reads after so few updates"
    if isinstance(learn.dls, PretrainDataLoaders): learn.dls.valid.n_batches = 2

class Skip(Callback):
    "Leave out a training batch"
    order = -5
    def __init__(self, at): self.at, self.seen = at, -1
    def before_batch(self):
        if not self.training: return
        self.seen += 1
        if self.seen==self.at: raise CancelBatchException()

KINDS = dict(stock=stock, ordinary=ordinary, recipe=of_recipe)
OURS = dict(ordinary=ordinary, recipe=of_recipe)

@pytest.mark.parametrize('at', [0, 3, 4])
def test_a_batch_that_is_left_out_is_no_update(examples, at):
    "It ended its interval, and the fit, too early"
    learn = of_recipe(examples)
    learn.fit_steps(12, cbs=Skip(at))
    assert learn.n_updates==12 and [o['step'] for o in learn.history.rows if 'held_out' in o]==[4, 8, 12]

def test_no_callback_hides_an_attribute_of_the_learner(examples):
    "fastai says so when it is set, as in a run that goes on"
    learn = quiet(of_recipe(examples))
    learn.fit_steps(2)
    with warnings.catch_warnings(action='error'):
        for o in learn.cbs:
            if hasattr(o, 'load_state'): o.load_state(o.state())

class SkipAll(Callback):
    "Leave out every training batch, or cancel its update"
    def __init__(self, event, exception): setattr(self, event, lambda: self.leave_out(exception))
    def leave_out(self, exception):
        if self.training: raise exception()

@pytest.mark.parametrize('event,exception',
                         [('before_batch', CancelBatchException), ('before_step', CancelStepException)])
def test_a_fit_without_updates_ends_in_a_line(examples, event, exception):
    "It went on for ever"
    learn = of_recipe(examples)
    with pytest.raises(InputError, match='batches in a row made no update'):
        learn.fit_steps(2, cbs=SkipAll(event, exception))
    assert learn.n_updates==0

def test_a_model_of_ones_own_is_told_from_the_recipe(examples, capsys):
    "So is a masking of one's own, since P(replaced) is computed by the rate of the recipe"
    model, _ = networks(examples, 'tied')
    masks = MaskTokens(special_token_ids(examples[0].tokenizer), mask_prob=.25)
    learn, said = of_recipe(examples, model=model, cbs=masks), capsys.readouterr().out
    assert 'disc_weight is 50, as you gave it, and 20.0' in said and 'mask_prob is 0.25, as you gave it' in said
    assert learn.hp.mask_prob==.15
    of_recipe(examples, cbs=MaskTokens(masks.special_ids, mask_prob=.15))
    assert 'as you gave it' not in capsys.readouterr().out

@pytest.mark.parametrize('warmup', ['2', None, 30., -1])
def test_a_warmup_is_a_count_or_a_share(warmup):
    with pytest.raises(InputError, match='`warmup`'): LinearWarmupDecay(warmup)

def test_a_warmup_of_numpy_is_a_count(examples):
    def rates(warmup):
        learn = stock(examples, cbs=[LinearWarmupDecay(warmup)])
        learn.remove_cb(next(o for o in learn.cbs if isinstance(o, LinearWarmupDecay)))
        with learn.no_bar(), learn.no_logging(): learn.fit(2, 1e-3)
        return learn.recorder.lrs
    assert rates(2)==rates(np.int64(2))

def test_parameter_groups_in_a_plain_loop(examples):
    "Biases do not decay, lower layers have lower rates"
    model, _ = networks(examples, 'tied')
    opt = ElectraAdam(param_groups(model.discriminator, .5), lr=.1, weight_decay=.5)
    for g in opt.param_groups:
        assert g['lr']==pytest.approx(.1*g['lr_mult']) and g['weight_decay']==.5*g['wd_mult']
    assert len({g['lr'] for g in opt.param_groups})>2

@pytest.mark.parametrize('how, why', [(dict(temperature=0.), '`temperature`'), (dict(disc_weight=-1.), '`disc_weight`'),
    (dict(unigram_noise=2.), '`unigram_noise`'),
    (dict(unigram_noise=.5, token_counts=np.zeros(60)), 'with a sum of 0')])
def test_arguments_out_of_range_are_refused(how, why):
    cfg = ElectraConfig(vocab_size=60, **DIMS)
    with pytest.raises(InputError, match=why):
        ReplacedTokenDetection.of(ElectraForMaskedLM(cfg), ElectraForPreTraining(cfg), **how)

def test_networks_that_cannot_be_an_objective_are_refused():
    cfg = BertConfig(vocab_size=60, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    of, generator = ReplacedTokenDetection.of, BertForMaskedLM(cfg)
    with pytest.raises(InputError, match='give it num_labels=1'): of(generator, BertForTokenClassification(cfg))
    with pytest.raises(InputError, match='needs a discriminator'): of(generator)
    with pytest.raises(InputError, match='give a generator, a discriminator'): of()

@pytest.mark.parametrize('kind', OURS)
def test_one_callback_needs_no_list(examples, kind):
    learn = OURS[kind](examples, cbs=(norms := Norms()))
    assert norms in list(learn.cbs)

@pytest.fixture(params=KINDS)
def make(request, examples):
    def made(**kw): return quiet(KINDS[request.param](examples, **kw))
    made.kind = request.param
    return made

@pytest.fixture
def learn(make): return make(lr=2e-3)

@pytest.fixture(params=OURS)
def our_learn(request, examples): return quiet(OURS[request.param](examples, lr=2e-3))

# The cell, for each row of the table

VARIANTS = ['tied', 'separate', 'one network', 'uniform', 'ELECTRA-TT', 'Electric', 'BERT']

@pytest.mark.parametrize('variant', VARIANTS)
def test_the_cell_trains(examples, variant):
    learn = quiet(stock(examples, variant=variant, lr=5e-3))
    before = weights(learn)
    first = learn.validate()
    learn.fit(3)
    assert learn.n_updates==12 and moved(learn, before)==set(before)
    assert learn.validate()[0]<first[0]
    preds, targets = learn.get_preds()
    assert len(preds)==24 and len(targets)==2 and preds.isfinite().all()

def test_what_is_shared(examples):
    def names(variant): return {n for n,_ in stock(examples, variant=variant).model.named_parameters()}
    assert 'generator.electra.embeddings.word_embeddings.weight' in names('separate')-names('tied')
    assert not any('generator.electra' in n for n in names('one network'))
    assert not any(n.startswith('generator') for n in names('uniform'))
    assert 'generator.rtl.encoder.layer.0.output.dense.weight' in names('Electric')==names('ELECTRA-TT')
    assert not any(n.startswith('discriminator') for n in names('BERT'))

def test_a_step_that_does_not_fit_is_refused(examples):
    "The step of another objective, a network that is none, two steps, and no mask"
    learn = quiet(stock(examples, variant='BERT'))
    learn.remove_cb(MaskedLM)
    learn.add_cb(ReplaceTokens())
    with pytest.raises(InputError, match='does not train MaskedLanguageModel.*MaskedLM\\(\\)'): learn.fit(1)
    learn.add_cb(MaskedLM())
    with pytest.raises(InputError, match='one objective, not'): learn.fit(1)
    learn = quiet(stock(examples))
    learn.remove_cb(MaskTokens)
    with pytest.raises(InputError, match='needs masked batches'): learn.fit(1)
    learn.model = learn.model.discriminator
    with pytest.raises(InputError, match='trains an objective, and the model is ElectraForPreTraining'): learn.fit(1)

@pytest.mark.parametrize('form', ['ids', 'ids and lengths', 'n_inp'])
def test_batches_of_any_form(examples, form):
    "Token ids alone, lengths of the first segments as target, or both as input"
    dls = ordinary_dls(examples)
    if form=='ids':
        dls = DataLoaders(*(DataLoader([(o[0],) for o in dl.dataset], bs=16) for dl in dls.loaders), device='cpu')
    if form=='n_inp': dls.n_inp = 2
    learn = quiet(stock(examples, dls))
    learn.fit(1)
    assert learn.n_updates==4

def test_examples_that_are_no_tuples(examples):
    dls = DataLoaders(*(DataLoader([o[0] for o in dl.dataset], bs=16) for dl in ordinary_dls(examples).loaders),
                      device='cpu')
    with pytest.raises(InputError, match='tuple'): quiet(stock(examples, dls)).fit(1)

# Fits

def test_fit(learn):
    before = weights(learn)
    learn.fit(2)
    assert learn.n_updates==8 and {WORDS, LOW, TOP, HEAD, GEN_LOW, GEN_HEAD} <= moved(learn, before)
    assert len(learn.recorder.losses)==len(learn.recorder.lrs)==8 and len(learn.recorder.values)==2
    assert learn.recorder.lrs[0]==0 and 0<max(learn.recorder.lrs)<=2e-3
    learn.fit(1, 1e-3)
    assert learn.n_updates==12 and max(learn.recorder.lrs)<=1e-3

def test_fit_one_cycle(learn, capsys):
    before = weights(learn)
    learn.fit_one_cycle(3, 1e-2)
    lrs = learn.recorder.lrs
    assert learn.n_updates==12 and len(lrs)==12 and lrs[0]==pytest.approx(1e-2/25)
    assert max(lrs)==pytest.approx(1e-2, rel=.05) and lrs[-1]<1e-3
    assert capsys.readouterr().out.count('LinearWarmupDecay steps aside')==1
    assert {WORDS, LOW, HEAD, GEN_HEAD} <= moved(learn, before)
    learn.fit(1)
    assert 'steps aside' not in capsys.readouterr().out and learn.recorder.lrs[0]<=2e-3

def test_an_interrupted_fit_gives_the_schedule_back(learn, capsys):
    with pytest.raises(KeyboardInterrupt): learn.fit_one_cycle(3, 1e-2, cbs=Interrupt())
    assert 'steps aside' in capsys.readouterr().out
    learn.fit(1)
    assert 'steps aside' not in capsys.readouterr().out and max(learn.recorder.lrs)<=2e-3

def test_a_gradient_that_is_not_finite_shows_in_the_norm():
    p = torch.nn.Parameter(torch.zeros(2))
    p.grad = torch.tensor([float('nan'), 1.])
    assert clip_by_global_norm([p]).isnan() and p.grad.isnan().all()

def test_param_scheduler(learn, capsys):
    learn.fit(1, cbs=ParamScheduler(dict(lr=SchedLin(1e-3, 2e-3))))
    assert learn.recorder.lrs==pytest.approx([1e-3, 1.25e-3, 1.5e-3, 1.75e-3])
    assert 'steps aside' in capsys.readouterr().out
    learn.fit(1, cbs=ParamScheduler(dict(wd=SchedLin(.1, .2))))
    assert len(set(learn.recorder.lrs))>1 and 'steps aside' not in capsys.readouterr().out
    assert [h['wd'] for h in learn.opt.hypers if h['wd']]
    assert max(h['wd'] for h in learn.opt.hypers)==pytest.approx(.175)

def test_fine_tune_freezes_the_bodies_first(learn):
    watch = Watch()
    learn.add_cb(watch)
    learn.fine_tune(2, 1e-3)
    assert learn.n_updates==12 and len(watch.seen)==3
    assert HEAD in watch.seen[0] and not any('encoder' in o or 'embeddings' in o for o in watch.seen[0])
    assert {WORDS, LOW, TOP, HEAD, GEN_LOW, GEN_HEAD} <= watch.seen[1]

def test_freeze_goes_by_depth(learn):
    for act,still,move in ((learn.freeze, {WORDS, LOW, TOP, GEN_LOW}, {HEAD, GEN_HEAD}),
                           (lambda: learn.freeze_to(-2), {WORDS, LOW, GEN_LOW}, {TOP, HEAD}),
                           (learn.unfreeze, set(), {WORDS, LOW, TOP, HEAD, GEN_LOW})):
        act()
        before = weights(learn)
        learn.validate()
        assert not moved(learn, before)
        learn.fit(1, 1e-3)
        assert not moved(learn, before)&still and move <= moved(learn, before)
    assert learn.n_updates==12
    learn.fit_one_cycle(1, slice(1e-5, 1e-3))
    assert learn.opt.hypers[0]['lr']<learn.opt.hypers[-1]['lr']/50

def fixed_dls(make, examples, bs):
    "The same examples in the same order, in batches of any size"
    if make.kind!='recipe': return ordinary_dls(examples, bs, shuffle=False)
    return PretrainDataLoaders.from_examples(*examples, bs, 16, device='cpu')

def test_lr_find_leaves_no_trace(make, examples):
    found = []
    for search in (False, True):
        learn = make(dls=fixed_dls(make, examples, 16), lr=2e-3)
        learn.fit(1)
        if search:
            before, updates, place = weights(learn), learn.n_updates, getattr(learn.dls.train, 'position', None)
            suggested = learn.lr_find(show_plot=False, num_it=12, stop_div=False)
            assert len(learn.recorder.lrs)==12
            assert_swept(learn, suggested, 12)
            assert not moved(learn, before) and learn.n_updates==updates
            assert getattr(learn.dls.train, 'position', None)==place
        learn.fit(1)
        found.append(weights(learn))
    same = [torch.equal(a, b) for a,b in zip(*(o.values() for o in found))]
    assert all(same), "training goes on as if nothing had been searched"

def test_fit_steps(our_learn):
    "A stock `Learner` has no `fit_steps`"
    our_learn.fit_steps(6)
    assert our_learn.n_updates==6 and len(our_learn.recorder.values)==2, "the pass that ends early is validated too"
    our_learn.fit_steps(3)
    assert our_learn.n_updates==9
    our_learn.fit(1)
    with pytest.raises(InputError, match='at least 1'): our_learn.fit_steps(0)

def test_interrupted_fit_steps(our_learn):
    with pytest.raises(KeyboardInterrupt): our_learn.fit_steps(6, cbs=Interrupt())
    remove(our_learn, Interrupt)
    n = our_learn.n_updates
    our_learn.fit_steps(4)
    our_learn.fit(2)
    end = 12 if hasattr(our_learn, 'evaluation_interval') else n+12 # intervals end at 4, 8, 12 ...
    assert our_learn.n_updates==end, "an interrupted fit_steps limits nothing afterwards"

# Gradients

def test_accumulation_averages(make, examples):
    "Two batches of 8 are one of 16: same gradient, masks and samples, since randomness goes by place in the update"
    found = {}
    for name,bs,cbs in (('large', 16, []), ('small', 8, [GradientAccumulation(16)])):
        learn, norms = make(dls=fixed_dls(make, examples, bs), cbs=cbs), Norms()
        learn.fit(2, 1e-3, cbs=norms)
        assert learn.n_updates==8 and len(norms.seen)==8
        found[name] = norms.seen, learn.recorder.values[-1][1], learn.recorder.lrs[-1], weights(learn)
    (norms, loss, lr, w), (norms2, loss2, lr2, w2) = found['large'], found['small']
    assert norms==pytest.approx(norms2, rel=1e-4) and loss==pytest.approx(loss2, rel=1e-4) and lr==lr2
    for k in w: torch.testing.assert_close(w[k], w2[k], atol=1e-4, rtol=1e-3)

class Dtypes(Callback):
    "Types of what a layer computes"
    def __init__(self): self.seen = set()
    def before_fit(self):
        layer = self.model.discriminator.electra.encoder.layer[0].output.dense
        self.hook = layer.register_forward_hook(lambda m,i,o: self.seen.add(o.dtype))
    def after_fit(self): self.hook.remove()

WAYS = dict(to_bf16=lambda o: o.to_bf16(), DeviceMixedPrecision=lambda o: o.add_cb(DeviceMixedPrecision('bf16')),
            MixedPrecision=lambda o: o.add_cb(MixedPrecision('bf16')))

@pytest.mark.parametrize('way', WAYS)
def test_autocast_is_really_on(our_learn, way):
    watch, before = Dtypes(), weights(our_learn)
    WAYS[way](our_learn)
    our_learn.fit(1, cbs=watch)
    assert watch.seen=={torch.bfloat16} and {LOW, GEN_LOW} <= moved(our_learn, before) and our_learn.n_updates==4
    assert {p.dtype for p in our_learn.model.parameters()}=={torch.float32}
    watch = Dtypes()
    our_learn.validate(cbs=watch)
    assert watch.seen=={torch.bfloat16}
    our_learn.to_fp32()
    our_learn.fit(1, cbs=(watch := Dtypes()))
    assert watch.seen=={torch.float32}

def test_autocast_of_a_stock_learner(examples):
    """`DeviceMixedPrecision` works on a stock `Learner`. fastai's own `to_bf16` and `to_fp16` do not on a CPU: they ask
    for CUDA's autocast, and the learner trains in float32 without a word; on a GPU they are right"""
    for cb,dtype in ((DeviceMixedPrecision('bf16'), torch.bfloat16), (MixedPrecision('bf16'), torch.float32)):
        learn, watch = quiet(stock(examples, cbs=[cb])), Dtypes()
        learn.fit(1, cbs=watch)
        assert watch.seen=={dtype} and learn.n_updates==4

def test_float16_is_refused_on_a_cpu(our_learn):
    for act in (our_learn.to_fp16, lambda: our_learn.add_cb(MixedPrecision()),
                lambda: our_learn.add_cb(MixedPrecision)):
        with pytest.raises(InputError, match='float16 needs a GPU'): act()
    our_learn.fit(1)

# Callbacks

def test_early_stopping(learn):
    learn.fit(5, cbs=EarlyStoppingCallback(monitor='valid_loss', min_delta=1e6, patience=1))
    assert learn.n_updates==8 and len(learn.recorder.values)==2
    learn.fit(1)
    assert learn.n_updates==12

def test_save_model(learn, tmp_path):
    learn.fit(3, cbs=SaveModelCallback(monitor='valid_loss', comp=np.greater, fname='worst'))
    assert (tmp_path/'models/worst.pth').is_file() and learn.n_updates==12
    worst = max(o[1] for o in learn.recorder.values)
    as_an_interval_of_four_updates(learn)
    assert learn.validate()[0]==pytest.approx(worst, rel=1e-5), "the weights that were saved are back"

@pytest.mark.parametrize('opt_func', [None, Adam]) # of a recipe, of fastai
def test_a_saved_learner_goes_on_where_it_was(examples, opt_func):
    "In the schedule and in the data, as one that was never saved"
    def new():
        with no_random(0): return quiet(of_recipe(examples, **dict(opt_func=opt_func) if opt_func else {}))
    straight, half, loaded, late = new(), new(), new(), new()
    straight.fit_steps(10)
    half.fit_steps(6)
    half.save('six')
    loaded.load('six')
    assert (loaded.n_updates, loaded.evaluated, loaded.dls.train.position)==(6, 6, 6)
    loaded.fit_steps(4)
    assert loaded.recorder.lrs==straight.recorder.lrs[6:]
    same_weights(loaded.model, straight.model)
    late.load('six', with_opt=False)
    assert late.n_updates==0

def test_a_file_of_another_learner_does_not_know_where_it_was(examples, tmp_path, capsys):
    learn = quiet(of_recipe(examples))
    learn.fit_steps(2)
    (tmp_path/'models').mkdir()
    torch.save(dict(model=learn.model.state_dict(), opt=learn.opt.state_dict()), tmp_path/'models/old.pth')
    learn.load('old')
    assert learn.n_updates==2 and 'NOTE: ' in (said := capsys.readouterr().out) and 'update 2' in said, said

@pytest.mark.parametrize('kind,word', [('stock', 'Epoch'), ('ordinary', 'Epoch'), ('recipe', 'Interval')])
def test_a_bar_in_a_terminal_counts_what_fit_counts(examples, kind, word, monkeypatch, capsys):
    monkeypatch.setattr(fastprogress, 'printing', lambda: True)
    learn = KINDS[kind](examples, lr=2e-3)
    with learn.no_logging(): learn.fit(2)
    shown = capsys.readouterr().out
    assert {o.split()[0] for o in re.findall(r'\w+ \d/2 :', shown)}=={word} and f'{word} 2/2 :' in shown

def test_csv_logger(learn, tmp_path):
    learn.fit(2, cbs=CSVLogger())
    rows = pd.read_csv(tmp_path/'history.csv')
    assert list(rows)[:3]==['epoch', 'train_loss', 'valid_loss'] and len(rows)==2 and rows['valid_loss'].notna().all()

def test_tensorboard(learn, tmp_path):
    from fastai.callback.tensorboard import TensorBoardCallback
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    learn.fit(1, cbs=TensorBoardCallback(tmp_path/'tb', trace_model=False, log_preds=False))
    losses = EventAccumulator(str(tmp_path/'tb')).Reload().Scalars('train_loss')
    assert {o.step for o in losses}=={1, 2, 3, 4} # fastai repeats the last one during the validation

def test_tensorboard_draws_no_network(our_learn, tmp_path):
    "On a stock `Learner` fastai's defaults end in an error of torch"
    from fastai.callback.tensorboard import TensorBoardCallback
    with pytest.raises(InputError, match='trace_model=False, log_preds=False'):
        our_learn.fit(1, cbs=TensorBoardCallback(tmp_path/'tb'))

@pytest.mark.parametrize('kind', KINDS)
def test_callbacks_can_be_removed(examples, kind):
    fastais = 'train_eval', 'recorder', 'cast_to_tensor', 'progress'
    for name in [o.name for o in KINDS[kind](examples).cbs if o.name not in fastais]:
        learn = quiet(KINDS[kind](examples, lr=1e-3))
        if name in ('mask_tokens', 'count_updates'): learn.fit(1)
        learn.remove_cb(getattr(learn, name))
        before, n = weights(learn), getattr(learn, 'n_updates', 0)
        if name in ('mask_tokens', 'replace_tokens'): # without which there is nothing to learn
            with pytest.raises(InputError if name=='mask_tokens' else Exception): learn.fit(1)
            assert not moved(learn, before)
            continue
        learn.fit(1)
        assert learn.n_updates==n+4 and {WORDS, LOW, HEAD, GEN_HEAD} <= moved(learn, before), name
        if name=='linear_warmup_decay': assert learn.recorder.lrs==pytest.approx([1e-3]*4)

def test_arguments_of_learner(examples):
    def double(logits, labels, loss): return 2*loss[0]
    learn = quiet(of_recipe(examples, opt_func=Adam, loss_func=double, metrics=[], lr=1e-3))
    before = weights(learn)
    learn.fit(1)
    assert {LOW, HEAD, GEN_LOW} <= moved(learn, before)
    assert learn.recorder.metric_names==['epoch', 'train_loss', 'valid_loss', 'time']

# Predictions

class Keep(Callback):
    "What the networks were given"
    order = 100
    def before_validate(self): self.ids, self.seen = [], []
    def after_pred(self): self.ids.append(self.learn.masked.input_ids), self.seen.append(seen_ids(self.learn))

def test_get_preds(learn, examples):
    n = 24 if len(learn.dls.valid.dataset)==24 else len(examples[1])
    for trained in (False, True):
        keep = Keep()
        logits, (labels, losses) = learn.get_preds(cbs=keep)
        again, (labels2, *_) = learn.get_preds()
        assert torch.equal(logits, again) and torch.equal(labels, labels2)
        assert logits.shape==labels.shape==(n, 16) and set(labels.unique().tolist())=={0, 1}
        ids, seen = torch.cat(keep.ids), torch.cat(keep.seen)
        back = [(ids==o).all(1).nonzero()[:,0] for o in examples[1][range(n)][0]]
        assert all(len(o) for o in back), "every held-out example was asked"
        for i in range(n):
            same = [torch.equal(labels[i]>0, seen[j]!=ids[j]) for j in back[i]]
            assert any(same), "labels are those of the example at this place"
            with torch.no_grad(): own = torch.cat([learn.model.eval().token_logits(seen[j][None]) for j in back[i]])
            assert (own-logits[i]).abs().amax(1).min()<1e-4
        if not trained: learn.fit(1)

def test_get_preds_of_training_examples(learn, examples):
    logits, (labels, *_) = learn.get_preds(ds_idx=0)
    assert len(logits)==len(labels)==len(learn.dls.train.dataset)
    place = getattr(learn.dls.train, 'position', 0)
    assert place==0

def test_validate(learn):
    before = weights(learn)
    a, b = learn.validate(), learn.validate()
    assert a==b and not moved(learn, before) and np.isfinite(a[0])
    learn.fit(1)
    assert learn.n_updates==4
    last = learn.recorder.values[-1][1]
    as_an_interval_of_four_updates(learn)
    assert learn.validate()[0]==pytest.approx(last) and learn.n_updates==4

def test_predict(examples):
    "fastai's `predict` needs a `test_dl`, which stock DataLoaders of tensors do not have"
    learn = quiet(of_recipe(examples))
    found = learn.predict('the dog of the house')
    assert [o[0] for o in found]==examples[0].tokenizer.tokenize('the dog of the house') and all(0<p<1 for _,p in found)
    learn.to_bf16()
    assert [o[1] for o in learn.predict('the dog of the house')]==pytest.approx([o[1] for o in found], abs=.02)
    with pytest.raises(InputError, match='does not know its tokenizer'): ordinary(examples).predict('the dog')
    with pytest.raises(InputError, match='a masked language model alone'):
        quiet(electra_learner(learn.dls, recipe(examples, electra_objective=False))).predict('a')

def test_shown(examples, shown):
    "Stock DataLoaders of tensors have nothing to show: fastai knows no type for them, and no tokenizer"
    learn = quiet(of_recipe(examples))
    learn.dls.show_batch(max_n=2)
    learn.show_results(max_n=2)
    assert 'generator sees' in shown[0] and 'discriminator sees' in shown[1] and '[CLS]' in shown[1] and len(shown)==2
    with pytest.raises(InputError, match='does not know its tokenizer'): ordinary(examples).show_results()

def test_shown_without_a_discriminator(examples, shown):
    "A masked language model alone: what it saw, and what it predicted at the masked positions"
    learn = of_recipe(examples)
    learn = quiet(electra_learner(learn.dls, recipe(examples, electra_objective=False)))
    learn.show_results(max_n=2)
    assert 'generator sees' in shown[0] and 'original → prediction' in shown[0] and '[MASK]' in shown[0]

def test_summary(learn):
    place = getattr(learn.dls.train, 'position', None)
    text = str(learn.summary())
    assert re.search(r'Total params: [\d,]+', text) and 'electra_optimizer' in text and 'MaskTokens' in text
    assert 'Linear' in text
    assert getattr(learn.dls.train, 'position', None)==place
    learn.freeze()
    assert 'Total non-trainable params: 0' not in str(learn.summary())

def test_export(our_learn, tmp_path):
    "fastai empties a learner by `dataset.new_empty`, which a list lacks: a stock `Learner` on lists is not exported"
    our_learn.fit(1)
    our_learn.export('out.pkl')
    back = load_learner(tmp_path/'out.pkl')
    assert type(back) is ElectraLearner and not moved(back, weights(our_learn))
    assert (tmp_path/'out.pkl').stat().st_size<2e6
    if our_learn.tokenizer: assert back.predict('the dog')==our_learn.predict('the dog')
    our_learn.fit(1)
    assert our_learn.n_updates==8, "the learner goes on after its export"

def test_several_processes_are_refused(our_learn):
    "A stock `Learner` gets what fastai has: data parallelism by `accelerate` where that is installed"
    import fastai.distributed
    for name in ('distrib_ctx', 'to_distributed', 'parallel_ctx', 'to_parallel'):
        with pytest.raises(InputError, match='25_distributed'): getattr(our_learn, name)()

def test_what_is_made_for_images_is_refused(our_learn):
    from fastai.callback.mixup import CutMix, MixUp
    for cb in (MixUp, CutMix):
        with pytest.raises(InputError, match=f'{cb.__name__} mixes images'): our_learn.add_cb(cb())
    with pytest.raises(InputError, match='no augmentations .* use get_preds'): our_learn.tta()

def test_an_example_has_no_loss(our_learn):
    with pytest.raises(InputError, match='`with_loss` asks .* `validate` gives'): our_learn.get_preds(with_loss=True)

def test_all_held_out_text_is_read_after_a_fit(examples):
    "An interval reads a part of it"
    learn = quiet(of_recipe(examples, PretrainDataLoaders.from_examples(*examples, 4, device='cpu')))
    learn.fit(1)
    found = learn.validate()
    again = quiet(of_recipe(examples, PretrainDataLoaders.from_examples(*examples, 4, device='cpu')))
    again.model.load_state_dict(learn.model.state_dict())
    assert list(found)==list(again.validate()) and len(learn.dls.valid)==learn.dls.valid.per_epoch>2

def test_an_evaluation_of_training_batches_leaves_no_trace(examples):
    plain, evaluated = quiet(of_recipe(examples)), quiet(of_recipe(examples))
    for learn in (plain, evaluated):
        learn.fit(1)
        if learn is evaluated: learn.validate(ds_idx=0)
        learn.fit(1)
    same_weights(plain.model, evaluated.model)
    assert plain.dls.train.position==evaluated.dls.train.position

def test_the_history_of_another_run_is_not_continued(examples, tmp_path):
    first, second = (quiet(of_recipe(examples, out=tmp_path/'run')) for _ in range(2))
    for _ in range(2): first.fit(1)
    lines = (tmp_path/'run/history.jsonl').read_text()
    with pytest.raises(InputError, match='has the history of another run; give another folder'): second.fit(1)
    assert (tmp_path/'run/history.jsonl').read_text()==lines

def test_too_many_intervals_are_refused(examples):
    learn = quiet(of_recipe(examples))
    with pytest.raises(InputError, match='11 intervals of 4 updates are more than the 10'): learn.fit(11)
    assert isinstance(learn, ElectraLearner) and learn.n_updates==0

# Slightly wrong calls

def test_loaders_ask_for_examples_and_a_batch(examples):
    with pytest.raises(InputError, match='`valid` is of type PosixPath; open the folder .* with `load_examples`'):
        PretrainDataLoaders.from_examples(examples[0], examples[1].path)
    for bs in (0, -1, '8', 4.):
        with pytest.raises(InputError, match=f"`bs` is {bs!r}; allowed: a whole number of at least 1"):
            PretrainDataLoaders.from_examples(*examples, bs)

def test_a_finished_recipe_says_so(examples, capsys):
    learn = quiet(of_recipe(examples, lr=2e-3))
    with learn.no_bar(): learn.fit_steps()
    assert 'All ' not in capsys.readouterr().out
    learn.fit_steps()
    assert 'All 40 steps of the recipe are done. To train longer, make a learner' in capsys.readouterr().out
    for n in (0, 2.5, '3'):
        with pytest.raises(InputError, match=f"`n` is {n!r}; allowed: a whole number"): learn.fit_steps(n)

def test_a_warm_up_that_never_ends_is_said_by_a_learner_too(examples, capsys):
    dls = PretrainDataLoaders.from_examples(*examples, 16, device='cpu')
    electra_learner(dls, recipe(examples, num_warmup_steps=50))
    assert 'The warmup of 50 steps is more than half of the 40 steps' in capsys.readouterr().out

def test_one_line_tells_what_a_thing_is(examples):
    learn = quiet(of_recipe(examples))
    n = [len(o) for o in examples]
    assert repr(learn.dls)==(f'PretrainDataLoaders: {n[0]:,} training examples in batches of 16 and {n[1]:,} held-out '
                             'examples in batches of 16, on cpu')
    assert repr(learn.dls.train)==f'PretrainDL: {n[0]:,} examples, batches of 16'
    assert re.fullmatch(r'ElectraLearner: ReplacedTokenDetection of [0-9,]+ parameters, 0 updates, on cpu', repr(learn))
    assert repr(learn.history)=='History: 0 rows, in memory'
