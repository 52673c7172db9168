"Losses, logits and every gradient of the official implementation, for each variant that the golden folder holds"
import numpy as np
import pytest
import torch
from torch import tensor

from electra_nbdev.discriminator import corrupt, disc_nll, is_replaced, masked_sum
from electra_nbdev.electra import PretrainLoss, PretrainOutput
from electra_nbdev.electric import pretraining_model
from electra_nbdev.generator import mlm_logits, mlm_nll, sample_tokens
from electra_nbdev.masking import Inputs, Specials, apply_mask, candidates, mask_batch, mask_budget
from conftest import GOLDEN
from official import check_gradients, info, load, our_name, pretrain_vars, recipe

SPECIALS = Specials(pad=0, cls=4, sep=5, mask=6)
VARIANTS = sorted(p.name[:-len('.io.npz')] for p in (GOLDEN/'pretrain').glob('*.io.npz') if not p.name.startswith('electric'))

def close(got, want, rtol=0., atol=0.): np.testing.assert_allclose(got.detach().numpy() if torch.is_tensor(got) else got, want, rtol=rtol, atol=atol)

def inputs():
    d = load('pretrain/inputs')
    return Inputs(*(torch.from_numpy(d[o]).long() for o in ('input_ids', 'input_mask', 'segment_ids')))._replace(attention_mask=tensor(d['input_mask'])>0), d

def masked(hp):
    "The official draws, through our masking"
    inp, d = inputs()
    n = mask_budget(inp.attention_mask.sum(1), hp.mask_prob, hp.max_predictions_per_seq)
    mb = apply_mask(inp, tensor(d['raw_categorical_positions']).long(), n, tensor(d['mask_uniform']), SPECIALS.mask)
    return mb._replace(candidates=candidates(inp, SPECIALS)), d

def build(variant):
    "Our modules with the golden weights; every variable finds its place and every parameter gets one"
    hp = recipe(info(f'pretrain/{variant}')['config'])
    model = pretraining_model(hp)
    params, given = dict(model.named_parameters(remove_duplicate=False)), set()
    if model.generator and not model.discriminator:
        params.update({k.replace('generator.electra', 'discriminator.electra'): v for k,v in params.items()})
    for name,value in pretrain_vars(variant).items():
        ours, transposed = our_name(name)
        value = torch.from_numpy(value.T.copy() if transposed else value)
        assert params[ours].shape==value.shape, name
        params[ours].data.copy_(value)
        given.add(params[ours])
    assert given==set(model.parameters())
    return model, params

def run(model, mb, sampled):
    "A step with the given samples"
    hp, zero = model.hp, torch.zeros(())
    if model.generator is None: nll, logits = torch.full(mb.targets.shape, float(np.log(hp.vocab_size))), None
    else:
        hidden = model.generator.electra(mb.masked_ids, attention_mask=mb.attention_mask, token_type_ids=mb.token_type_ids)[0]
        logits = mlm_logits(model.generator, hidden, mb.positions)
        nll = mlm_nll(logits, mb.targets)
    fake = corrupt(mb, sampled)
    labels = is_replaced(mb, fake)
    gen = ((nll*mb.weights).sum(), mb.weights.sum())
    if model.discriminator is None: return PretrainOutput(*gen, zero, zero, nll, None, None, sampled, fake, labels, None, None), logits
    z = model.discriminate(fake, mb.attention_mask, mb.token_type_ids)
    bce = disc_nll(z, labels)
    return PretrainOutput(*gen, *masked_sum(bce, mb.attention_mask), nll, None, None, sampled, fake, labels, z, bce), logits

def test_folder_holds_variants(): assert VARIANTS, f"no variant in {GOLDEN/'pretrain'}"

@pytest.mark.parametrize('variant', VARIANTS)
def test_golden_step(variant):
    model, params = build(variant)
    want, grads = load(f'pretrain/{variant}.io'), load(f'pretrain/{variant}.grads')
    mb, d = masked(model.hp)
    for ours,official in (('masked_ids', 'masked_input_ids'), ('positions', 'masked_lm_positions'), ('weights', 'masked_lm_weights')):
        close(getattr(mb, ours), want[official])
    close(mb.targets*(mb.weights>0), want['masked_lm_ids'])
    out, logits = run(model, mb, tensor(d['fed_sampled_ids']).long())
    close(out.fake_ids, want['updated_input_ids'])
    close(out.gen_nll*mb.weights, want['mlm_per_example_loss']*want['masked_lm_weights'], rtol=1e-5, atol=1e-5)
    close(out.gen_sum/(out.gen_count+1e-6), want['mlm_loss'], rtol=1e-5)
    if 'mlm_logits' in want: close(logits, want['mlm_logits'], atol=1e-4)
    if 'disc_logits' in want:
        close(out.labels, want['is_fake'])
        close(out.disc_logits*mb.attention_mask, want['disc_logits']*d['input_mask'], atol=1e-4)
        close(out.disc_sum/(out.disc_count+1e-6), want['disc_loss'], rtol=1e-5)
    loss = PretrainLoss(model.hp)(out)
    close(loss, want['total_loss'], rtol=1e-5)
    loss.backward()
    check_gradients(params, grads, want['global_norm_dense'], variant)

@pytest.mark.parametrize('variant', [p.name[:-len('_natural_sampling.npz')] for p in (GOLDEN/'pretrain').glob('*_natural_sampling.npz')])
def test_golden_sampling(variant):
    want = load(f'pretrain/{variant}_natural_sampling')
    u = tensor(want['uniform_noise'])
    for key in sorted({k.split('.')[0] for k in want if '.' in k}):
        model, _ = build(variant)
        hp = recipe(info(f'pretrain/{variant}')['config'] | dict(temperature=2. if '2' in key else 1., disallow_correct='disallow' in key))
        mb, _ = masked(hp)
        _, logits = run(model, mb, mb.targets)
        sampled = sample_tokens(logits, mb.targets, hp, u=u)
        used = mb.weights>0
        close(sampled[used], want[f'{key}.sampled_ids'][used.numpy()])
        out, _ = run(model, mb, sampled)
        close(out.fake_ids, want[f'{key}.updated_input_ids'])
        close(out.labels, want[f'{key}.is_fake'])
        close(out.disc_logits*mb.attention_mask, want[f'{key}.disc_logits']*mb.attention_mask.numpy(), atol=1e-4)
        close(out.gen_sum/(out.gen_count+1e-6), want[f'{key}.mlm_loss'], rtol=1e-5)
        close(out.disc_sum/(out.disc_count+1e-6), want[f'{key}.disc_loss'], rtol=1e-5)
        close(PretrainLoss(hp)(out), want[f'{key}.total_loss'], rtol=1e-5)

STATISTICS = info('build/mask_statistics')

@pytest.mark.parametrize('prob', STATISTICS)
def test_golden_mask_statistics(prob):
    "Two samples of 20,000 draws of the official mask and of ours come from one distribution"
    inp, _ = inputs()
    hp = recipe(dict(mask_prob=float(prob.removeprefix('mask_prob')), max_seq_length=inp.input_ids.shape[1]))
    for want in STATISTICS[prob]:
        row, draws = want['row'], want['draws']
        many = Inputs(*(o[row:row+1].expand(draws, -1) for o in inp))
        mb = mask_batch(many, hp, SPECIALS, torch.Generator().manual_seed(row))
        assert mb.positions.shape[1]==want['max_predictions_per_seq']
        assert (mb.weights.sum(1)==want['num_to_predict']).all()
        times = torch.zeros_like(mb.input_ids).scatter_add(1, mb.positions, mb.weights.long())
        drawn, hidden = times>0, (mb.masked_ids==SPECIALS.mask) & (times>0)
        assert (~drawn).all(0).nonzero().flatten().tolist()==want['positions_never_chosen']
        same_distribution(torch.bincount(drawn.sum(1), minlength=len(want['unique_positions_distribution'])), want['unique_positions_distribution'])
        same_distribution(torch.bincount(hidden.sum(1), minlength=len(want['replaced_per_sequence_distribution'])), want['replaced_per_sequence_distribution'])
        same_distribution(times.sum(0), want['position_draw_counts'])
        assert abs(hidden.sum()/drawn.sum() - want['fraction_of_unique_chosen_positions_replaced_by_MASK']) < 0.01

def same_distribution(ours, theirs):
    "Chi-square test of homogeneity; p below one in a million fails"
    from scipy.stats import chi2_contingency
    table = np.array([np.asarray(ours), np.asarray(theirs)])
    table = table[:, table.sum(0)>20]
    if table.shape[1]>1: assert chi2_contingency(table).pvalue > 1e-6

def test_candidates_golden():
    "The official proposal is -inf exactly where we have no candidate"
    for variant in VARIANTS:
        want = load(f'pretrain/{variant}.io')
        if 'mask_sample_logits' in want: close(candidates(inputs()[0], SPECIALS), np.isfinite(want['mask_sample_logits']) & (want['mask_sample_logits']>-1e3))
