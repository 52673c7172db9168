"Losses, logits and every gradient of the official implementation in a learner's own step, for each variant"
import numpy as np
import pytest
import torch
from torch import tensor

from electra_nbdev.method.discriminator import IGNORE, disc_nll
from electra_nbdev.engine.ranks import KeyedRandom
from electra_nbdev.method.generator import hidden_states, masked_logits, top_and_entropy
from electra_nbdev.method.masking import Inputs, candidates, mask_batch
from conftest import GOLDEN
from official import (FAST, SPECIAL_IDS, TRAINING, check_discriminator, check_mask, check_training, close, fed, feed,
                      info, inputs, learner, load, one_step, recipe, variants)

VARIANTS = variants(towers=False)

def test_folder_holds_variants(): assert VARIANTS, f"no variant in {GOLDEN/'pretrain'}"

def check_generator(learn, seen, want, training):
    mb, found = seen.masked, seen.generated
    close(found.nll*mb.weights, want['mlm_per_example_loss']*want['masked_lm_weights'], rtol=1e-5, atol=1e-5)
    close(seen.gen_sum/(seen.gen_count+1e-6), want['mlm_loss'], rtol=1e-5)
    if not training: close(found.top, want['mlm_preds'])
    if 'mlm_logits' not in want: return
    if not training: close(found.entropy, top_and_entropy(tensor(want['mlm_logits']))[1], atol=1e-4)

@torch.no_grad()
def check_logits(learn, seen, want):
    "The generator's logits, which a step does not keep"
    if learn.model.generator is None: return
    mb = seen.masked
    hidden = hidden_states(learn.model.generator, mb.masked_ids, mb.attention_mask, mb.token_type_ids)
    close(masked_logits(learn.model.generator, hidden, mb.positions), want['mlm_logits'], atol=1e-4)

@FAST
@TRAINING
@pytest.mark.parametrize('variant', VARIANTS)
def test_golden_step(monkeypatch, variant, training, fast):
    want = load(f'pretrain/{variant}.io')
    learn, seen = fed(monkeypatch, variant, fast, training)
    check_mask(seen.masked, want)
    check_generator(learn, seen, want, training)
    if 'disc_logits' in want: check_discriminator(seen, want)
    else: close(-seen.pred, seen.generated.nll)
    close(seen.loss, want['total_loss'], rtol=1e-5)
    if training: check_training(seen, variant, want)
    else: check_logits(learn, seen, want)

@FAST
@TRAINING
@pytest.mark.parametrize('variant', VARIANTS)
def test_golden_step_in_bf16(monkeypatch, variant, training, fast):
    "Masks, samples and labels are the same; losses and gradients within bfloat16's eight bits"
    want = load(f'pretrain/{variant}.io')
    learn, seen = fed(monkeypatch, variant, fast, training, bf16=True)
    check_mask(seen.masked, want)
    close(seen.gen_sum/(seen.gen_count+1e-6), want['mlm_loss'], rtol=3e-3)
    close(seen.loss, want['total_loss'], rtol=3e-3)
    if 'disc_logits' in want:
        close(seen.fake, want['updated_input_ids'])
        close(seen.pred*seen.masked.attention_mask, want['disc_logits']*seen.masked.attention_mask.numpy(), atol=.05)
    if training: check_training(seen, variant, want, .1, 3e-4)

SAMPLED = [p.name[:-len('_natural_sampling.npz')] for p in (GOLDEN/'pretrain').glob('*_natural_sampling.npz')]
KEYS = sorted({(o, k.split('.')[0]) for o in SAMPLED for k in load(f'pretrain/{o}_natural_sampling') if '.' in k})

def test_folder_holds_samples(): assert KEYS

@pytest.mark.parametrize('variant,key', KEYS)
@TRAINING
def test_golden_sampling(monkeypatch, variant, key, training):
    "The official noise, through the same step; the temperature is for training alone"
    want = load(f'pretrain/{variant}_natural_sampling')
    changes = dict(temperature=2. if '2' in key else 1., disallow_correct='disallow' in key)
    feed(monkeypatch, recipe(info(f'pretrain/{variant}')['config']), tensor(want['uniform_noise']))
    learn, hp = learner(variant, fast=False, changes=changes)
    seen = one_step(learn, training)
    if not training: key = key.replace('t2', 't1')
    want = {k.split('.')[1]: v for k,v in want.items() if k.startswith(f'{key}.')}
    mb, used = seen.masked, seen.masked.weights>0
    close(seen.generated.sampled[used], want['sampled_ids'][used.numpy()])
    close(seen.fake, want['updated_input_ids'])
    close(seen.labels[mb.attention_mask], want['is_fake'][mb.attention_mask.numpy()])
    close(seen.pred*mb.attention_mask, want['disc_logits']*mb.attention_mask.numpy(), atol=1e-4)
    close(seen.gen_sum/(seen.gen_count+1e-6), want['mlm_loss'], rtol=1e-5)
    close(disc_nll(seen.pred, seen.labels).sum()/((seen.labels!=IGNORE).sum()+1e-6), want['disc_loss'], rtol=1e-5)
    close(seen.loss, want['total_loss'], rtol=1e-5)

STATISTICS = info('build/mask_statistics')

@pytest.mark.parametrize('rand', ['torch', 'keyed'])
@pytest.mark.parametrize('prob', STATISTICS)
def test_golden_mask_statistics(prob, rand):
    "Two samples of 20,000 draws of the official mask and of ours come from one distribution"
    for want in STATISTICS[prob]:
        row, draws = want['row'], want['draws']
        many = Inputs(*(o[row:row+1].expand(draws, -1) for o in inputs()))
        mb = mask_batch(many, SPECIAL_IDS, float(prob.removeprefix('mask_prob')), 'official', random_numbers(rand, row))
        assert mb.positions.shape[1]==want['max_predictions_per_seq']
        assert (mb.weights.sum(1)==want['num_to_predict']).all()
        times = torch.zeros_like(mb.input_ids).scatter_add(1, mb.positions, mb.weights.long())
        drawn, hidden = times>0, (mb.masked_ids==SPECIAL_IDS.mask) & (times>0)
        assert (~drawn).all(0).nonzero().flatten().tolist()==want['positions_never_chosen']
        for found,name in ((drawn, 'unique_positions'), (hidden, 'replaced_per_sequence')):
            official = want[f'{name}_distribution']
            same_distribution(torch.bincount(found.sum(1), minlength=len(official)), official)
        same_distribution(times.sum(0), want['position_draw_counts'])
        assert abs(hidden.sum()/drawn.sum() - want['fraction_of_unique_chosen_positions_replaced_by_MASK']) < 0.01

def random_numbers(kind, seed):
    if kind=='keyed': return KeyedRandom(0, seed)
    rng = torch.Generator().manual_seed(seed)
    return lambda rows, cols: torch.rand(rows, cols, generator=rng)

def same_distribution(ours, theirs):
    "Chi-square test of homogeneity; p below one in a million fails"
    from scipy.stats import chi2_contingency
    table = np.array([np.asarray(ours), np.asarray(theirs)])
    table = table[:, table.sum(0)>20]
    if table.shape[1]>1: assert chi2_contingency(table).pvalue > 1e-6

def test_candidates_golden():
    "The official proposal is -inf exactly where we have no candidate"
    want = load('pretrain/electra_base.io')['mask_sample_logits']
    close(candidates(inputs(), SPECIAL_IDS), want>-1e3)
