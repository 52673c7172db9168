"Checkpoints that the official code wrote, opened without TensorFlow, give the official logits"
import numpy as np
import pytest
import torch
from torch import tensor

from electra_nbdev.hparams import InputError
from electra_nbdev.interop import open_pretrained, read_bundle, tensorflow_prefix
from conftest import GOLDEN
from official import info, load, pretrain_vars
from test_electra_golden import close, masked, run
from test_electric_golden import run as run_electric

CKPTS = sorted(o.name[:-len('_ckpt')] for o in (GOLDEN/'pretrain').glob('*_ckpt'))

def opened(name):
    "What the shapes cannot tell is said: heads, what was switched off, and how the official code treats its rows"
    config = info(f'pretrain/{name}')['config']
    said = {k: config['model_hparam_overrides'][k] for k in ('num_attention_heads', 'hidden_dropout_prob', 'attention_probs_dropout_prob')}
    recipe = dict(model_hparam_overrides=said, max_seq_length=config['max_seq_length'], mask_prob=config['mask_prob'], duplicates='official', cloze_mode='official')
    return open_pretrained(GOLDEN/'pretrain'/f'{name}_ckpt', recipe)

def test_folder_holds_checkpoints(): assert CKPTS, f"no checkpoint in {GOLDEN/'pretrain'}"

@pytest.mark.parametrize('name', CKPTS)
def test_golden_variables(name):
    "To the bit, and none is lost"
    found, others = read_bundle(tensorflow_prefix(GOLDEN/'pretrain'/f'{name}_ckpt'))
    want = pretrain_vars(name)
    assert not others and found.keys()=={*want, 'global_step'}
    for k,v in want.items(): assert np.array_equal(found[k].numpy(), v), k

@pytest.mark.parametrize('name', CKPTS)
def test_golden_logits(name):
    out, want = opened(name), load(f'pretrain/{name}.io')
    assert not out.made and not out.unused and len(out.taken)==len(list(out.model.parameters()))
    assert out.hp.two_tower_generator==out.hp.electric_objective==('cloze_logits' in want)
    mb, d = masked(out.hp)
    sampled = tensor(d['fed_sampled_ids']).long()
    if 'cloze_logits' in want:
        step, cloze, *_ = run_electric(out.model, mb, sampled)
        close(cloze, want['cloze_logits'], atol=1e-3)
    else:
        step, logits = run(out.model, mb, sampled)
        close(logits, want['mlm_logits'], atol=1e-4)
    close(step.disc_logits*mb.attention_mask, want['disc_logits']*d['input_mask'], atol=1e-3 if 'cloze_logits' in want else 1e-4)

@pytest.mark.parametrize('name', CKPTS)
def test_golden_needs_the_heads(name):
    "The official rule gives one head of 32 units, the checkpoint was made with two: other logits, so the logits above are a test of it"
    model = open_pretrained(GOLDEN/'pretrain'/f'{name}_ckpt').model
    assert model.discriminator.config.num_attention_heads==1 and opened(name).model.discriminator.config.num_attention_heads==2
    ids = tensor([[4, 20, 30, 5]])
    assert (model.eval().discriminator(ids).logits - opened(name).model.eval().discriminator(ids).logits).abs().max()>1e-4

@pytest.mark.parametrize('name', CKPTS)
def test_golden_wrong_recipe_is_refused(name):
    with pytest.raises(InputError, match=r'has shape \[64, 32\], the recipe asks for \[128, 32\]'):
        open_pretrained(GOLDEN/'pretrain'/f'{name}_ckpt', dict(model_hparam_overrides=dict(intermediate_size=128)))
