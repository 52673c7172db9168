"The fast ways of a CPU against the plain ones: same numbers, same gradients, same statistics, same files"
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn, tensor
from transformers import ElectraConfig, ElectraForPreTraining, ElectraModel

from electra_nbdev.data.batches import LengthSchedule
from electra_nbdev.method.towers import cloze_step
from electra_nbdev.engine import fast
from electra_nbdev.engine.fast import (ATTENTION, LOGITS_CHUNK, SDPA, PackedDropout, dropout_mask, dropout_scale,
                                       electra_attention, fused_cloze_step, fused_mlm_step, with_packed_dropout,
                                       with_unread_masks)
from electra_nbdev.method.generator import generator_config, masked_logits, mlm_step, sample_inverse_cdf
from electra_nbdev.method.masking import MaskedBatch, SpecialTokenIds
from electra_nbdev.pretrain import electra_learner
from electra_nbdev.networks.build import body_config, build_networks, save_networks
from electra_nbdev.networks.recipe import preset
from make import close
from official import Seen, loaders

SPECIAL_IDS = SpecialTokenIds(0, 2, 3, 4)
STEPS = dict(mlm=(mlm_step, fused_mlm_step), cloze=(cloze_step, fused_cloze_step))
CHANGES = [{}, dict(temperature=2.), dict(temperature=.5, disallow_correct=True), dict(disallow_correct=True)]

def twins(kind):
    plain, fused = STEPS[kind]
    return plain, partial(fused, plain=plain, sample=sample_inverse_cdf)

@pytest.fixture(scope='module')
def generators():
    hp = dict(vocab_size=100, max_seq_length=40, length_schedule=())
    def head(**kw): return build_networks(preset('tiny', **hp | kw)).generator.train()
    return dict(mlm=head(untied_generator=True), cloze=head(two_tower_generator=True))

def masked(V, bs=5, sl=40, n=LOGITS_CHUNK//4):
    "Predictions that do not fill the last buffer; some of them do not count, and some tokens are no candidates"
    rng = torch.Generator().manual_seed(0)
    def ids(*shape, high=V): return torch.randint(high, shape, generator=rng)
    text, positions = ids(bs, sl), ids(bs, n, high=sl)
    weights = (torch.rand(bs, n, generator=rng)<.8).float()
    assert (bs*n)%LOGITS_CHUNK and 0<weights.mean()<1
    candidates, u = torch.rand(bs, sl, generator=rng)<.7, torch.rand(bs, n, generator=rng)
    return MaskedBatch(text, None, text*0, text, positions, text.gather(1, positions), weights, candidates, u)

def case(kind, generators):
    "Input of a head with its parameters, and the arguments of its step"
    generator, mb, rng = generators[kind], masked(100), torch.Generator().manual_seed(1)
    wide = generator.config.hidden_size if kind=='mlm' else generator.config.embedding_size
    x = torch.randn(*mb.input_ids.shape, wide, generator=rng).requires_grad_()
    modules = [generator.generator_lm_head] + ([generator.generator_predictions] if kind=='mlm' else [])
    args = (generator, x, mb) if kind=='mlm' else (generator.generator_lm_head, x, mb, mb.candidates)
    return [x, *(p for m in modules for p in m.parameters())], args, mb

@pytest.mark.parametrize('kind', STEPS)
@pytest.mark.parametrize('change', CHANGES)
def test_fused_step_equals_plain(generators, kind, change):
    "Total, losses, gradients; samples but where a random number falls on an edge"
    (plain, fused), (params, args, mb) = twins(kind), case(kind, generators)
    (a, nll_a, sampled_a), (b, nll_b, sampled_b) = fused(*args, **change), plain(*args, **change)
    close(a, b)
    close(nll_a, nll_b)
    assert not nll_a.requires_grad and not nll_b.requires_grad
    assert (sampled_a!=sampled_b).float().mean() < .03
    if change.get('disallow_correct'): assert (sampled_a!=mb.targets).all() and (sampled_b!=mb.targets).all()
    for x,y in zip(*(torch.autograd.grad(o/(3*mb.weights.sum()), params) for o in (a, b)), strict=True): close(x, y)

@pytest.mark.parametrize('kind', STEPS)
def test_only_what_counts_is_in_the_total(generators, kind):
    "Predictions of weight 0, and tokens that are no candidates, add nothing"
    plain, fused = twins(kind)
    _, args, mb = case(kind, generators)
    for step in (plain, fused):
        total, nll, _ = step(*args)
        counted = mb.weights if kind=='mlm' else mb.candidates
        close(total, (nll*counted).sum())
        if kind=='mlm': assert nll[mb.weights==0].sum()>1

@pytest.mark.parametrize('kind', STEPS)
@pytest.mark.parametrize('temperature', [1., 2.])
def test_samples_of_both_twins_follow_the_softmax(generators, kind, temperature):
    "20,000 samples at one position; five standard errors"
    params, (net, x, mb, *rest), _ = case(kind, generators)
    n, head = 20000, generators[kind].generator_lm_head
    rows = mb._replace(input_ids=mb.input_ids[:1], positions=torch.zeros(1, n, dtype=torch.long),
                       targets=mb.input_ids[:1,:1].expand(1, n), weights=torch.ones(1, n), candidates=mb.candidates[:1],
                       u=torch.rand(1, n, generator=torch.Generator().manual_seed(0)))
    with torch.no_grad():
        head.bias[:8] += torch.arange(8.)
        args = net, x[:1], rows, *(o[:1] for o in rest)
        samples = [step(*args, temperature=temperature)[2][0] for step in twins(kind)]
        logits = masked_logits(net, x[:1], rows.positions[:,:1])[0,0] if kind=='mlm' else head(x[0,0])
        head.bias[:8] -= torch.arange(8.)
    p = (logits/temperature).softmax(-1)
    for drawn in samples: assert ((drawn.bincount(minlength=100)/n-p).abs() < 5*(p*(1-p)/n).sqrt()+1e-4).all()

def error(found, want): return ((found.float()-want.float()).norm()/want.float().norm()).item()

def in_bf16(step, params, args, mb, **change):
    "Total, losses, samples and gradients of a step under autocast; the input of the towers' matrix is bfloat16 there"
    with torch.autocast('cpu', torch.bfloat16):
        if not isinstance(args[0], nn.Linear): got = step(*args, **change)
        else: got = step(args[0], args[1].bfloat16(), *args[2:], **change)
    return *got, torch.autograd.grad(got[0]/(3*mb.weights.sum()), params)

@pytest.mark.parametrize('kind', STEPS)
@pytest.mark.parametrize('change', CHANGES)
def test_fused_step_in_bf16(generators, kind, change):
    "As near to float32 as the plain step is under autocast; the losses are float32, and so are the sums"
    (plain, fused), (params, args, mb) = twins(kind), case(kind, generators)
    def unused(*args, **kwargs): raise AssertionError("this is the plain step")
    total, nll, sampled, grads = in_bf16(partial(fused, plain=unused), params, args, mb, **change)
    _, rough, drawn, rough_grads = in_bf16(plain, params, args, mb, **change)
    want, want_nll, _ = plain(*args, **change)
    assert nll.dtype==total.dtype==torch.float32 and not nll.requires_grad
    close(nll, want_nll, 3e-2)
    close(total, want, 1e-2)
    close(total, (nll*(mb.weights if kind=='mlm' else mb.candidates)).sum(), 1e-4)
    assert (sampled!=drawn).float().mean() < .05
    for a,b,c in zip(grads, rough_grads, torch.autograd.grad(want/(3*mb.weights.sum()), params), strict=True):
        assert a.dtype==torch.float32 and error(a, c) < max(.01, 1.2*error(b, c))

def towers(heads=4, p=.1):
    "A body as it comes, and ours with the same weights"
    cfg = ElectraConfig(vocab_size=100, embedding_size=32, hidden_size=64, num_hidden_layers=2,
                        num_attention_heads=heads, intermediate_size=128, hidden_dropout_prob=p,
                        attention_probs_dropout_prob=p)
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

@pytest.mark.parametrize('padded', [False, True])
def test_body_in_bf16(monkeypatch, padded):
    "Output and gradients are as near to float32 as those of Hugging Face's under autocast, and our attention does run"
    theirs, ours, ids, real = towers()
    if not padded: real = torch.ones_like(real)
    for m in (*theirs.modules(), *ours.modules()):
        if isinstance(m, nn.Dropout): m.p = 1e-9
    seen, run = set(), fast.attention_weights
    monkeypatch.setattr(fast, 'attention_weights', lambda q, *args: seen.add(q.dtype) or run(q, *args))
    want, wanted = grads(theirs.train(), ids, real)
    with torch.autocast('cpu', torch.bfloat16):
        (a, da), (b, db) = grads(ours.train(), ids, real), grads(theirs, ids, real)
    assert seen=={torch.bfloat16} and error(a, want) < 1.2*error(b, want)
    assert all(o.dtype==torch.float32 for o in da.values())
    for n,o in wanted.items(): # no query's softmax depends on what all keys have in common
        if 'key.bias' not in n: assert error(da[n], o) < max(.02, 1.2*error(db[n], o)), n

@pytest.mark.parametrize('padded', [False, True])
def test_attention_in_bf16_drops_as_in_float32(padded):
    "Same masks from the same seed, so that output and gradients differ by roundings alone"
    rng, g = torch.Generator().manual_seed(0), torch.randn(2, 16, 4, 8, generator=torch.Generator().manual_seed(1))
    exact = [torch.randn(2, 4, 16, 8, generator=rng).bfloat16().float().requires_grad_() for _ in range(3)]
    rough = [o.detach().bfloat16().requires_grad_() for o in exact]
    seen = tensor([[True]*10+[False]*6, [True]*16])[:,None,None] if padded else None
    found = []
    for qkv in (rough, exact):
        torch.manual_seed(2)
        out = fast._Attention.apply(*qkv, seen, 8**-.5, .3)
        found.append([out, *torch.autograd.grad(out, qkv, g.to(out.dtype))])
    for a,b in zip(*found): assert a.dtype==torch.bfloat16 and error(a, b) < .01

def test_padding_is_not_attended_to():
    _, ours, ids, real = towers()
    other = ids.where(real>0, 99)
    for mode in (ours.eval(), ours.train()):
        outs = []
        for o in (ids, other):
            torch.manual_seed(0)
            outs.append(mode(o, real)[0][real>0])
        close(*outs)

def test_a_row_of_padding_is_finite_in_attention():
    "Output and gradients, as in a short example that a length schedule has split"
    _, ours, ids, real = towers()
    real[1] = 0
    out, found = grads(ours.train(), ids, real)
    assert out.isfinite().all() and all(o.isfinite().all() for o in found.values())

@pytest.mark.parametrize('objective', [{}, dict(electra_objective=False), dict(two_tower_generator=True),
                                       dict(electra_objective=False, electric_objective=True)])
def test_a_row_of_padding_is_finite_in_training(objective):
    "Short examples under a length schedule, with dropout in the attention"
    dropout = dict(attention_probs_dropout_prob=.1, hidden_dropout_prob=.1, max_position_embeddings=16)
    hp = preset('tiny', vocab_size=60, max_seq_length=16, length_schedule=(), untied_generator=True,
                model_hparam_overrides=dropout, **objective)
    ids = torch.zeros(4, 16, dtype=torch.long)
    for row,n in zip(ids, (5, 16, 8, 7)): row[:n] = tensor([2, *range(5, 3+n), 3])
    dls, split = loaders((ids, tensor([5, 16, 8, 7]))), LengthSchedule(((8, 1.),), 10)
    learn = electra_learner(dls, hp, special_ids=SPECIAL_IDS, counts=[1]*60, cbs=[split])
    with learn.no_bar(), learn.no_logging(): learn.fit(2)
    assert learn.n_updates==2 and tensor(learn.recorder.values).isfinite().all()
    assert all(p.isfinite().all() for p in learn.model.parameters())

def test_seed_repeats_a_step():
    _, ours, ids, real = towers()
    def out():
        torch.manual_seed(3)
        return ours.train()(ids, real)[0]
    assert torch.equal(out(), out()) and not torch.equal(out(), ours(ids, real)[0])

@pytest.mark.parametrize('p', [.1, .5, .9])
def test_share_of_dropped(p):
    torch.manual_seed(0)
    keep = dropout_mask(torch.Size([1999, 501]), p)
    assert abs(keep.float().mean()-(1-p)) < 5*(p*(1-p)/keep.numel())**.5
    for lane in range(4): assert abs(keep.flatten()[lane::4].float().mean()-(1-p)) < 5*(4*p*(1-p)/keep.numel())**.5
    assert abs(dropout_scale(p)*(1-p)-1) < 1e-4

@pytest.mark.parametrize('p', [.1, .5])
@pytest.mark.parametrize('dtype', [torch.float32, torch.bfloat16])
def test_packed_dropout_against_torchs(p, dtype):
    "Share of zeros and sum are torch's within five standard errors; survivors and gradients carry the same factor"
    torch.manual_seed(0)
    x = torch.ones(1000, 100, dtype=dtype, requires_grad=True)
    outs = [m(p)(x) for m in (PackedDropout, nn.Dropout)]
    for out in outs:
        assert abs((out==0).float().mean()-p) < 5*(p*(1-p)/x.numel())**.5
        assert out.dtype==dtype
        close(out[out>0].unique(), tensor([1/(1-p)], dtype=dtype), 1e-4)
        close(torch.autograd.grad(out.sum(), x)[0], out, 1e-6)
    assert torch.equal(PackedDropout(p).eval()(x), nn.Dropout(p).eval()(x))

def test_dropout_elsewhere_is_torchs():
    x = torch.ones(64, 64)
    assert torch.equal(PackedDropout(1.)(x), x*0) and torch.equal(PackedDropout(0.)(x), x)
    assert PackedDropout(.5)(x.double()).dtype==torch.float64

@pytest.mark.parametrize('dtype', [torch.float32, torch.bfloat16])
def test_packed_dropout_takes_any_layout(dtype):
    "Transposed and expanded activations and gradients, signs included, and nothing that was not finite survives a drop"
    torch.manual_seed(0)
    x = torch.randn(40, 30, dtype=dtype).t().requires_grad_()
    torch.manual_seed(1)
    out = PackedDropout(.5)(x)
    torch.manual_seed(1)
    keep = dropout_mask(x.shape, .5)
    assert torch.equal(out, x*keep*2) and torch.equal(torch.autograd.grad(out.sum(), x)[0], keep.to(dtype)*2)
    torch.manual_seed(1)
    assert PackedDropout(.5)(torch.full(x.shape, torch.inf, dtype=dtype))[~keep].eq(0).all()

def test_causal_attention_stays_causal():
    "With dropout on a CPU, where our attention would run: what comes later changes nothing"
    module = nn.Module().train()
    module.is_causal = True
    q, k, v = torch.randn(3, 2, 4, 6, 8, generator=torch.Generator().manual_seed(0))
    later = [o.index_add(2, tensor([5]), torch.ones(2, 4, 1, 8)) for o in (k, v)]
    a, b = (electra_attention(module, q, *kv, None, dropout=1e-9, scaling=8**-.5)[0] for kv in ((k, v), later))
    close(a[:,:5], b[:,:5])
    assert (a[:,5]-b[:,5]).abs().max()>1e-2

def test_causal_attention_drops_like_ours():
    "The towers' attention is ours with a triangle for a mask; a mask of numbers stays with torch"
    module = nn.Module().train()
    module.is_causal = True
    q, k, v = torch.randn(3, 2, 4, 6, 8, generator=torch.Generator().manual_seed(0)).requires_grad_()
    how, triangle = dict(dropout=.3, scaling=8**-.5), torch.ones(1, 1, 6, 6).tril().bool()
    torch.manual_seed(1)
    found = electra_attention(module, q, k, v, None, **how)[0]
    torch.manual_seed(1)
    module.is_causal = False
    close(found, electra_attention(module, q, k, v, triangle, **how)[0], 0.)
    assert type(found.grad_fn).__name__=='_AttentionBackward'
    module.is_causal = True
    by_numbers = electra_attention(module, q, k, v, -1e4*(1-triangle.float()), **how)[0]
    assert type(by_numbers.grad_fn).__name__!='_AttentionBackward'

@pytest.mark.parametrize('make,ours', [(with_packed_dropout, ATTENTION), (with_unread_masks, SDPA)])
@pytest.mark.parametrize('chosen', ['eager', 'flash_attention_2', 'flex_attention'])
def test_an_attention_that_was_chosen_stays(make, ours, chosen):
    "Of one network, or of all of an objective; torch's is the usual one"
    def attention(model): return [o.config._attn_implementation for o in (model.generator, model.discriminator)]
    def choose(config): config._attn_implementation_internal = chosen # without the packages of some
    model = build_networks(preset('tiny', untied_generator=True))
    choose(model.generator.config)
    assert attention(make(model))==[chosen, ours]
    model = build_networks(preset('tiny', untied_generator=True))
    for o in (model, model.generator, model.discriminator): choose(o.config)
    assert attention(make(model))==[chosen, chosen]

def test_folders_are_plain(tmp_path):
    hp = preset('tiny')
    model = with_packed_dropout(build_networks(hp))
    assert model.discriminator.config._attn_implementation==ATTENTION
    save_networks(model, hp, tmp_path)
    for name in ('discriminator', 'generator'): assert ATTENTION not in (tmp_path/name/'config.json').read_text()
    plain = ElectraForPreTraining.from_pretrained(tmp_path/'discriminator')
    assert plain.config._attn_implementation=='sdpa' and not any(isinstance(m, PackedDropout) for m in plain.modules())

def test_a_step_has_a_gradient_everywhere():
    hp = preset('tiny', untied_generator=True)
    ids = torch.randint(5, hp.vocab_size, (4, 32), generator=torch.Generator().manual_seed(0))
    ids[1:, 20:] = 0
    learn = electra_learner(loaders((ids, tensor([15]*4))), hp, special_ids=SPECIAL_IDS, counts=[1]*hp.vocab_size,
                            cbs=[Seen()])
    with learn.no_bar(), learn.no_logging(): learn.fit(1)
    found = learn.seen.steps[0].grads
    assert found and all(o.isfinite().all() and o.any() for o in found.values())

@pytest.mark.parametrize('size', ['small', 'base'])
def test_the_plain_loop_of_the_benchmarks_has_the_networks_of_a_preset(size, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1]/'benchmarks')
    from pretrain import WIDTHS, config
    hp = preset(size)
    embedding, *widths = WIDTHS[size]
    sizes = ('embedding_size', 'hidden_size', 'num_hidden_layers', 'num_attention_heads', 'intermediate_size',
             'vocab_size')
    for width,cfg in zip(widths, (generator_config(body_config(hp), hp.generator_hidden_size), body_config(hp))):
        assert [getattr(config(embedding, width), o) for o in sizes]==[getattr(cfg, o) for o in sizes]
