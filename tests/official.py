"The official implementation's numbers, its names as our modules call them, and learners with its weights and draws"
import json, re
from dataclasses import fields, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fastai.basics import DataLoader, DataLoaders, Learner
from fastai.callback.core import Callback
from fastai.callback.fp16 import AMPMode
from torch import tensor
from transformers import ElectraConfig, ElectraModel

from conftest import GOLDEN
from electra_nbdev.finetuning.finetune import TaskNetwork
from electra_nbdev.method import electric, generator, masking
from electra_nbdev.method.discriminator import IGNORE, corrupt, disc_nll
from electra_nbdev.method.objective import step_loss
from electra_nbdev.engine.training import DeviceMixedPrecision
from electra_nbdev.method.masking import MaskTokens, SpecialTokenIds, candidates, make_inputs
from electra_nbdev.method.optimizer import ClipNorm, electra_optimizer, param_groups
from electra_nbdev.pretrain import electra_learner
from electra_nbdev.pretraining import learner as fast_steps
from electra_nbdev.networks.build import build_networks
from electra_nbdev.networks.recipe import PretrainHParams, preset

SPECIAL_IDS = SpecialTokenIds(pad=0, cls=4, sep=5, mask=6)

def load(name): return dict(np.load(GOLDEN/f'{name}.npz'))
def info(name): return json.loads((GOLDEN/f'{name}.json').read_text(encoding='utf-8'))

def pretrain_vars(variant):
    "Official name -> value, for every trainable variable of a variant; variants share values, which are stored once"
    base, electric, extra = (load(f'pretrain/{o}') for o in ('electra_base.vars', 'electric.vars', 'extra_vars'))
    found = {}
    for name,shape in info(f'pretrain/{variant}')['variables_in_creation_order']:
        places = [(base, name), (electric, name), (extra, f"{name}|{'x'.join(map(str, shape))}")]
        found[name] = next(src[k] for src,k in places if k in src and list(src[k].shape)==shape)
    return found

LAYER = {'attention/self': 'attention.self', 'attention/output': 'attention.output', 'intermediate': 'intermediate',
         'output': 'output'}
BODY = {'electra': 'discriminator.electra', 'generator': 'generator.electra', 'generator_ltr': 'generator.ltr',
        'generator_rtl': 'generator.rtl'}

def our_name(official):
    "Parameter of an objective, and whether its matrix is transposed"
    head, _, rest = official.partition('/')
    if head in ('generator_predictions', 'cloze_predictions'):
        if rest=='output_bias': return 'generator.generator_lm_head.bias', False
        half, rest = 'generator.generator_predictions', rest
    elif head=='discriminator_predictions':
        half, rest = 'discriminator.discriminator_predictions', rest.replace('dense_1', 'dense_prediction')
    else: half = BODY[head]
    transposed = rest.endswith('kernel')
    rest = re.sub(r'layer_(\d+)', r'layer/\1', rest)
    rest = re.sub(r'(word|position|token_type)_embeddings$', r'\1_embeddings/weight', rest)
    for tf,hf in (('kernel', 'weight'), ('gamma', 'weight'), ('beta', 'bias')): rest = re.sub(f'{tf}$', hf, rest)
    return f"{half}.{rest.replace('/', '.')}", transposed

OURS = {o.name for o in fields(PretrainHParams)}

def recipe(config):
    "Our recipe of an official configuration; the maximal number of predictions follows from the others"
    kw = {k:v for k,v in config.items() if k in OURS}
    return preset('small', **kw | dict(duplicates='official', cloze_mode='official', num_warmup_steps=1))

def close(got, want, rtol=0., atol=0.):
    got = got.detach().float().numpy() if torch.is_tensor(got) else got
    np.testing.assert_allclose(got, want, rtol=rtol, atol=atol)

def check_gradients(found, grads, norm, variant, rtol=1e-3, slack=1e-8):
    "Ours within `rtol` of the official ones, for every variable; `norm` is that of all of them"
    for name,g in grads.items():
        ours, transposed = our_name(name)
        mine = found[ours].T if transposed else found[ours]
        # the bias of an attention's keys changes nothing, so its gradient is zero but for rounding
        assert np.linalg.norm(mine.numpy()-g) <= rtol*np.linalg.norm(g) + slack*norm, name
    assert set(grads)==set(pretrain_vars(variant)), 'a gradient for every variable'

# Networks and batch

def by_name(model, of=lambda p: p):
    "{name: of(parameter)} under every name; without a discriminator, the official encoder is the generator's"
    found = {n: of(p) for n,p in model.named_parameters(remove_duplicate=False)}
    if model.discriminator: return found
    return found | {k.replace('generator.electra', 'discriminator.electra'): v for k,v in found.items()}

def networks(hp, variant):
    "Our networks with the golden weights; every variable finds its place and every parameter gets one"
    model = build_networks(hp)
    params, given = by_name(model), set()
    for name,value in pretrain_vars(variant).items():
        ours, transposed = our_name(name)
        value = torch.from_numpy(value.T.copy() if transposed else value)
        assert params[ours].shape==value.shape, name
        params[ours].data.copy_(value)
        given.add(params[ours])
    assert given==set(model.parameters())
    return model

def batch():
    "Official examples as our loaders give them: token ids and lengths of the first segments"
    d = load('pretrain/inputs')
    return tensor(d['input_ids']).long(), tensor(d['input_mask']-d['segment_ids']).sum(1).long()

def inputs(): return make_inputs(*batch(), SPECIAL_IDS.pad)

def loaders(rows, bs=None):
    "The same batches for training and validation"
    dl = DataLoader(list(zip(*rows)), bs=bs or len(rows[0]))
    dls = DataLoaders(dl, dl, device='cpu')
    dls.n_inp = 2
    return dls

# Draws. Masking and sampling run as they are; only the uniform numbers are such that they give the official draws

def sample_uniforms(ids, vocab_size): return (tensor(ids)+.5)/vocab_size

def uniforms(sampling):
    "What `mask_batch` asks for: numbers for positions, for [MASK], and for samples"
    d = load('pretrain/inputs')
    running = candidates(inputs(), SPECIAL_IDS).cumsum(1)
    rank = running.gather(1, tensor(d['raw_categorical_positions']).long())
    return (rank-.5)/running[:,-1:], tensor(d['mask_uniform']), sampling

def feed(monkeypatch, hp, sampling):
    "Official uniform numbers for `KeyedRandom`'s, samples that they name, and one masking rate for all steps"
    class Official:
        def __init__(self, *args, **kwargs): self.left = iter(uniforms(sampling))
        def __call__(self, rows, cols):
            u = next(self.left)
            assert u.shape[:2]==(rows, cols)
            return u
    monkeypatch.setattr(masking, 'KeyedRandom', Official)
    for module in (masking, electric): monkeypatch.setattr(module, 'EVAL_MASK_PROB', hp.mask_prob)
    if sampling.ndim==3: return
    def named(probs, u): return (u*probs.shape[-1]).long()
    for module in (generator, fast_steps): monkeypatch.setattr(module, 'sample_inverse_cdf', named)

# Learners

class Seen(Callback):
    "What a step made, before anything is done with it"
    order = DeviceMixedPrecision.order+30
    def before_fit(self): self.steps = []
    def before_batch(self):
        self.step = SimpleNamespace()
        self.steps.append(self.step)
    def after_loss(self):
        learn, now, out = self.learn, self.step, self.learn.output
        now.masked, now.generated = learn.masked, out.prediction
        now.pred, now.loss = learn.pred.detach(), learn.loss_grad.detach()
        now.fake, now.labels = seen_ids(learn), learn.yb[0]
        now.gen_sum, now.gen_count = out.sums['gen'].detach(), out.counts['gen']
        if 'disc' in out.sums:
            with torch.no_grad(): energies = learn.model.token_logits(now.fake, *now.masked[1:3])
            now.offset = now.pred - energies
    def after_backward(self):
        self.step.grads = by_name(self.model, lambda p: torch.zeros_like(p) if p.grad is None else p.grad.clone())
    def after_step(self): self.step.norm = self.learn.grad_norm

def seen_ids(learn):
    "What the discriminator has seen in a step; without one, what the generator has"
    mb, out = learn.masked, learn.output
    return corrupt(mb, out.prediction.sampled) if 'disc' in out.sums else mb.masked_ids

def plain_learner(dls, hp, model, cbs=()):
    "fastai's `Learner` with the method's callbacks, none of them a fast one"
    parts = [MaskTokens(SPECIAL_IDS, hp.mask_prob, hp.duplicates), model.callback(), ClipNorm(1.), *cbs]
    return Learner(dls, model, loss_func=step_loss, opt_func=electra_optimizer, splitter=param_groups, cbs=parts)

# the least share of dropout lets the packed kernels run and drops nothing
DROPOUT = dict(hidden_dropout_prob=1e-9, attention_probs_dropout_prob=1e-9)

def learner(variant, fast, bf16=False, cbs=(), changes={}, **kwargs):
    "A learner of the official configuration and weights: ours, with all that is fast, or the plain one"
    hp = recipe(info(f'pretrain/{variant}')['config'] | changes)
    if fast: hp = replace(hp, model_hparam_overrides=hp.model_hparam_overrides | DROPOUT)
    cbs = [Seen(), *([DeviceMixedPrecision(AMPMode.BF16)] if bf16 else []), *cbs]
    args = loaders(batch()), hp, networks(hp, variant)
    if not fast: return plain_learner(*args, cbs), hp
    return electra_learner(*args, special_ids=SPECIAL_IDS, cbs=cbs, **kwargs), hp

def one_step(learn, training):
    "Train or validate on the batch; what was seen"
    with learn.no_bar(), learn.no_logging():
        if training: learn.fit(1)
        else: learn.validate()
    return learn.seen.steps[0]

# What the tests of ELECTRA and of Electric check in a step

ALL = sorted(p.name[:-len('.io.npz')] for p in (GOLDEN/'pretrain').glob('*.io.npz'))

def variants(towers):
    "Names of the golden variants with or without towers"
    return [o for o in ALL if ('cloze_loss' in np.load(GOLDEN/f'pretrain/{o}.io.npz').files)==towers]

FAST = pytest.mark.parametrize('fast', [False, True], ids=['plain', 'fast'])
TRAINING = pytest.mark.parametrize('training', [True, False], ids=['train', 'eval'])
INPUTS = dict(input_ids='input_ids', attention_mask='input_mask', token_type_ids='segment_ids')
MASKED = dict(masked_ids='masked_input_ids', positions='masked_lm_positions', weights='masked_lm_weights')

def fed(monkeypatch, variant, fast, training, bf16=False, **kwargs):
    "A learner that has made its step, and what was seen"
    hp = recipe(info(f'pretrain/{variant}')['config'])
    feed(monkeypatch, hp, sample_uniforms(load('pretrain/inputs')['fed_sampled_ids'], hp.vocab_size))
    learn, hp = learner(variant, fast, bf16, **kwargs)
    return learn, one_step(learn, training)

def check_mask(mb, want):
    d = load('pretrain/inputs')
    for ours,official in INPUTS.items(): close(getattr(mb, ours), d[official])
    for ours,official in MASKED.items(): close(getattr(mb, ours), want[official])
    close(mb.targets*(mb.weights>0), want['masked_lm_ids'])
    if 'mask_sample_logits' in want: close(mb.candidates, want['mask_sample_logits']>-1e3)

def check_discriminator(seen, want, tol=1e-4):
    mask = load('pretrain/inputs')['input_mask']
    close(seen.fake, want['updated_input_ids'])
    close(seen.labels, np.where(mask, want['is_fake'], IGNORE))
    close(seen.pred*seen.masked.attention_mask, want['disc_logits']*mask, atol=tol)
    nll = disc_nll(seen.pred, seen.labels)
    close(nll.sum()/((seen.labels!=IGNORE).sum()+1e-6), want['disc_loss'], rtol=1e-5)
    close(nll.sum(1)/seen.masked.attention_mask.sum(1), want['disc_per_example_loss'], rtol=1e-5, atol=1e-6)

def check_training(seen, variant, want, rtol=1e-3, slack=1e-8):
    check_gradients(seen.grads, load(f'pretrain/{variant}.grads'), want['global_norm_dense'], variant, rtol, slack)
    close(seen.norm, want['global_norm_dense'], rtol=rtol)

# Networks of tasks

def task_parameter(official, layers={}):
    "Name in `TaskNetwork`, and whether the matrix is transposed; `layers` are our names of those of a head"
    if official.startswith('task_specific/'):
        _, name, layer, kind = official.split('/')
        return f"heads.{name}.{layers.get(layer, layer)}.{'weight' if kind=='kernel' else 'bias'}", kind=='kernel'
    name, transposed = our_name(official)
    return name.replace('discriminator.electra.', 'encoder.'), transposed

def task_network(tasks, heads, layers={}):
    "The network of the official runs, with these values of its heads by their official names"
    shared, base = info('finetune/heads')['_shared'], pretrain_vars('electra_base')
    model = TaskNetwork(ElectraModel(ElectraConfig(**shared['model_hparam_overrides'], embedding_size=16)), tasks)
    params = dict(model.named_parameters())
    with torch.no_grad():
        for official,v in ({o: base[o] for o in shared['encoder_variables_in_creation_order']} | heads).items():
            name, transposed = task_parameter(official, layers)
            params.pop(name).copy_(torch.from_numpy(v.T if transposed else v))
    assert not params, f'not set: {sorted(params)}'
    return model

def check_task_gradients(model, arrays, norm, layers={}, least=1e-4):
    "All that a backward pass has left, each by its own size, and the norm of all"
    params, squares, seen = dict(model.named_parameters()), 0., 0
    for k,want in arrays.items():
        if not k.startswith('grad/'): continue
        name, transposed = task_parameter(k[5:], layers)
        got = params[name].grad.numpy()
        got, scale = got.T if transposed else got, max(np.abs(want).max(), least)
        np.testing.assert_allclose(got/scale, want/scale, rtol=0, atol=1e-3, err_msg=k)
        squares, seen = squares+float((got.astype(float)**2).sum()), seen+1
    assert seen==len(params)
    np.testing.assert_allclose(squares**.5, norm, rtol=1e-4)
