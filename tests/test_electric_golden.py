"Losses, logits and every gradient of the official Electric, with its leaks and its nominal share of noise"
import pytest
import torch
from torch import tensor

from electra_nbdev.discriminator import corrupt, disc_nll, masked_sum
from electra_nbdev.electra import PretrainLoss, PretrainOutput
from electra_nbdev.electric import cloze_loss, log_q
from conftest import GOLDEN
from official import check_gradients, load
from test_electra_golden import build, close, masked

VARIANTS = sorted(p.name[:-len('.io.npz')] for p in (GOLDEN/'pretrain').glob('electric*.io.npz'))

def run(model, mb, sampled):
    "A step with the given samples; what is compared on the way"
    head = model.generator.generator_lm_head
    x = model.generator(mb, 'official')
    total, nll = cloze_loss(head, x, mb.input_ids, mb.candidates, torch.ones_like(mb.candidates), model.hp)
    fake = corrupt(mb, sampled)
    logq = log_q(head, x, mb.input_ids, nll, fake)
    labels, logits, scored = model.contrast(mb, model.discriminate(fake, mb.attention_mask, mb.token_type_ids), logq)
    bce = disc_nll(logits, labels)
    return PretrainOutput(total, mb.candidates.sum(), *masked_sum(bce, scored), nll.gather(1, mb.positions), None, None, sampled, fake, labels, logits, bce, scored), head(x), nll, logq

def test_folder_holds_electric(): assert VARIANTS, f"no Electric in {GOLDEN/'pretrain'}"

@pytest.mark.parametrize('variant', VARIANTS)
def test_golden_step(variant):
    model, params = build(variant)
    want, grads = load(f'pretrain/{variant}.io'), load(f'pretrain/{variant}.grads')
    mb, d = masked(model.hp)
    out, cloze, nll, logq = run(model, mb, tensor(d['fed_sampled_ids']).long())
    close(mb.candidates, want['cloze_weights'])
    close(cloze, want['cloze_logits'], atol=1e-3)
    close(nll, want['cloze_per_token_loss'], atol=1e-3)
    close(logq, want['log_q'], atol=1e-3)
    close(out.gen_sum/(out.gen_count+1e-6), want['cloze_loss'], rtol=1e-5)
    close((out.gen_nll*mb.weights).sum()/mb.weights.sum(), want['mlm_loss'], rtol=1e-5)
    close(out.fake_ids, want['updated_input_ids'])
    close(out.labels, want['is_fake'])
    close(out.disc_logits*mb.attention_mask, want['disc_logits']*d['input_mask'], atol=1e-3)
    close(out.disc_sum/(out.disc_count+1e-6), want['disc_loss'], rtol=1e-5)
    loss = PretrainLoss(model.hp)(out)
    close(loss, want['total_loss'], rtol=1e-5)
    loss.backward()
    check_gradients(params, grads, want['global_norm_dense'], variant)

@pytest.mark.parametrize('variant', VARIANTS)
def test_golden_forward_is_these_parts(variant):
    "The whole forward pass, with samples of its own, is made of the parts that were compared"
    model, _ = build(variant)
    mb, _ = masked(model.hp)
    model.rng = torch.Generator().manual_seed(0)
    got = model(mb)
    want, *_ = run(model, mb, got.sampled)
    for name in ('gen_sum', 'disc_sum', 'disc_count', 'gen_nll', 'fake_ids', 'labels', 'disc_logits'): close(getattr(got, name), getattr(want, name).detach(), rtol=1e-5, atol=1e-5)
