"The official implementation's numbers, and its names as our modules call them"
import json, re
from dataclasses import fields

import numpy as np
import torch

from conftest import GOLDEN
from electra_nbdev.hparams import PretrainHParams, preset

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

LAYER = {'attention/self': 'attention.self', 'attention/output': 'attention.output', 'intermediate': 'intermediate', 'output': 'output'}

def our_name(official):
    "Parameter of `ElectraPretraining`, and whether its matrix is transposed"
    head, _, rest = official.partition('/')
    if head in ('generator_predictions', 'cloze_predictions'):
        if rest=='output_bias': return 'generator.generator_lm_head.bias', False
        half, rest = 'generator.generator_predictions', rest
    elif head=='discriminator_predictions':
        half, rest = 'discriminator.discriminator_predictions', rest.replace('dense_1', 'dense_prediction')
    else: half = {'electra': 'discriminator.electra', 'generator': 'generator.electra', 'generator_ltr': 'generator.ltr', 'generator_rtl': 'generator.rtl'}[head]
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

def check_gradients(params, grads, norm, variant):
    "Ours within a thousandth of the official ones, for every variable; `norm` is that of all of them"
    for name,g in grads.items():
        ours, transposed = our_name(name)
        mine = torch.zeros_like(params[ours]) if params[ours].grad is None else params[ours].grad
        mine = mine.T if transposed else mine
        # the bias of an attention's keys changes nothing, so its gradient is zero but for rounding
        assert np.linalg.norm(mine.numpy()-g) <= 1e-3*np.linalg.norm(g) + 1e-8*norm, name
    assert set(grads)==set(pretrain_vars(variant)), 'a gradient for every variable'
