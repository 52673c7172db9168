"The fast ways of a CPU against the plain ones: same numbers, same gradients, same files"
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers import ElectraConfig, ElectraForPreTraining, ElectraModel

from electra_nbdev.electra import ATTENTION, ElectraPretraining, PackedDropout, PretrainLoss, keep_bits, kept_scale, with_packed_dropout
from electra_nbdev.generator import ROWS, mlm_logits, mlm_nll, mlm_step, sample_tokens
from electra_nbdev.hparams import preset
from electra_nbdev.masking import Specials, make_inputs, mask_batch

def close(a, b, tol=1e-5): torch.testing.assert_close(a, b, rtol=tol, atol=tol)

@pytest.fixture(scope='module')
def model(): return ElectraPretraining(preset('tiny', untied_generator=True))

def predictions(model, bs=5, n=ROWS//4, sl=40):
    "Hidden states and what is to be predicted; the last buffer is not full, and some predictions do not count"
    rng = torch.Generator().manual_seed(0)
    hidden = torch.randn(bs, sl, model.generator.config.hidden_size, generator=rng).requires_grad_()
    positions, targets = (torch.randint(o, (bs, n), generator=rng) for o in (sl, model.hp.vocab_size))
    assert (bs*n)%ROWS
    return hidden, positions, targets, (torch.rand(bs, n, generator=rng)<.8).float()

@pytest.mark.parametrize('change', [{}, dict(temperature=2.), dict(temperature=.5, disallow_correct=True), dict(disallow_correct=True)])
def test_head_equals_plain(model, change):
    hp = preset('tiny', **change)
    hidden, positions, targets, weights = predictions(model)
    params = [hidden, *model.generator.generator_predictions.parameters(), *model.generator.generator_lm_head.parameters()]
    total, nll, sampled = mlm_step(model.generator, hidden, positions, targets, weights, hp, torch.Generator().manual_seed(1))
    logits = mlm_logits(model.generator, hidden, positions)
    want = mlm_nll(logits, targets)
    close(nll, want)
    assert not nll.requires_grad
    assert (sampled!=sample_tokens(logits, targets, hp, torch.Generator().manual_seed(1))).float().mean() < .03, 'only where a random number falls on an edge'
    if hp.disallow_correct: assert (sampled!=targets).all()
    ours, plain = (torch.autograd.grad(3*o/(weights.sum()+1e-6), params) for o in (total, (want*weights).sum()))
    for a,b in zip(ours, plain): close(a, b)

def test_head_samples_from_the_softmax(model):
    hp, (hidden, *_) = preset('tiny'), predictions(model)
    positions = torch.zeros(5, 4000, dtype=torch.long)
    with torch.no_grad():
        model.generator.generator_lm_head.bias[:8] += torch.arange(8.)
        *_, sampled = mlm_step(model.generator, hidden, positions, positions, positions.float(), hp, torch.Generator().manual_seed(0))
        p = mlm_logits(model.generator, hidden, positions[:,:1]).softmax(-1)[:,0]
        model.generator.generator_lm_head.bias[:8] -= torch.arange(8.)
    share = F.one_hot(sampled, p.shape[1]).float().mean(1)
    assert ((share-p).abs() < 5*(p*(1-p)/4000).sqrt()+2e-3).all()

def test_head_in_bf16_is_the_plain_one(model):
    args = predictions(model)
    with torch.autocast('cpu', torch.bfloat16):
        total, nll, _ = mlm_step(model.generator, *args, model.hp, torch.Generator().manual_seed(0))
        close(nll, mlm_nll(mlm_logits(model.generator, *args[:2]), args[2]), 1e-3)
    total.backward()
    assert model.generator.generator_predictions.dense.weight.grad.isfinite().all()

def towers(heads=4, p=.1):
    "A body as it comes, and ours with the same weights"
    cfg = ElectraConfig(vocab_size=100, embedding_size=32, hidden_size=64, num_hidden_layers=2, num_attention_heads=heads, intermediate_size=128, attention_probs_dropout_prob=p, hidden_dropout_prob=p)
    torch.manual_seed(0)
    theirs = ElectraModel(cfg)
    ours = with_packed_dropout(ElectraModel(ElectraConfig(**cfg.to_dict())))
    ours.load_state_dict(theirs.state_dict())
    ids, real = torch.randint(5, 100, (3, 12)), torch.ones(3, 12, dtype=torch.long)
    real[0, 7:], real[2, 3:] = 0, 0
    return theirs, ours, ids, real

def grads(model, ids, real):
    out = model(ids, real)[0]*real[...,None]
    model.zero_grad()
    out.pow(2).sum().backward()
    return out, {n: p.grad for n,p in model.named_parameters()}

@pytest.mark.parametrize('heads', [1, 4])
@pytest.mark.parametrize('padded', [False, True])
def test_body_equals_hugging_face(heads, padded):
    "Output and every gradient, with a share so small that it drops nothing, so that our attention does run"
    theirs, ours, ids, real = towers(heads)
    if not padded: real = torch.ones_like(real)
    for m in (*theirs.modules(), *ours.modules()):
        if isinstance(m, nn.Dropout): m.p = 1e-9
    (a, da), (b, db) = grads(ours.train(), ids, real), grads(theirs.train(), ids, real)
    close(a, b)
    for n in db: close(da[n], db[n], 1e-4)

def test_padding_is_not_attended_to():
    _, ours, ids, real = towers()
    other = ids.where(real>0, 99)
    for mode in (ours.eval(), ours.train()):
        outs = []
        for o in (ids, other):
            torch.manual_seed(0)
            outs.append(mode(o, real)[0][real>0])
        close(*outs)

def test_seed_repeats_a_step():
    _, ours, ids, real = towers()
    def out():
        torch.manual_seed(3)
        return ours.train()(ids, real)[0]
    assert torch.equal(out(), out()) and not torch.equal(out(), ours(ids, real)[0])

@pytest.mark.parametrize('p', [.1, .5, .9])
def test_share_of_dropped(p):
    torch.manual_seed(0)
    keep = keep_bits(torch.Size([1999, 501]), p)
    assert abs(keep.float().mean()-(1-p)) < 5*(p*(1-p)/keep.numel())**.5
    for lane in range(4): assert abs(keep.flatten()[lane::4].float().mean()-(1-p)) < 5*(4*p*(1-p)/keep.numel())**.5
    assert abs(kept_scale(p)*(1-p)-1) < 1e-4

def test_dropout_elsewhere_is_torchs():
    x = torch.ones(64, 64)
    assert torch.equal(PackedDropout(1.)(x), x*0) and torch.equal(PackedDropout(0.)(x), x)
    assert PackedDropout(.5)(x.bfloat16()).dtype==torch.bfloat16

def test_folders_are_plain(tmp_path):
    model = ElectraPretraining(preset('tiny'))
    assert model.discriminator.config._attn_implementation==ATTENTION
    model.save(tmp_path)
    for half in ('discriminator', 'generator'): assert ATTENTION not in (tmp_path/half/'config.json').read_text()
    plain = ElectraForPreTraining.from_pretrained(tmp_path/'discriminator')
    assert plain.config._attn_implementation=='sdpa' and not any(isinstance(m, PackedDropout) for m in plain.modules())

def test_a_step_has_a_gradient_everywhere():
    hp = preset('tiny', untied_generator=True)
    model = ElectraPretraining(hp).train()
    ids = torch.randint(5, hp.vocab_size, (4, 128))
    PretrainLoss(hp)(model(mask_batch(make_inputs(ids, torch.full((4,), 60), 0), hp, Specials(0, 2, 3, 4)))).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
