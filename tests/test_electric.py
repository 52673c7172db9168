"Electric's towers, loss and share of noise against the plain ways, and its run from the command to the folder"
import json

import pytest
import torch
import torch.nn.functional as F
from torch import tensor

from electra_nbdev.electra import PretrainLoss
from electra_nbdev.electric import ElectricPretraining, chosen, chosen_share, draw_noise, pretraining_model
from electra_nbdev.generator import gather_positions
from electra_nbdev.hparams import InputError, preset
from electra_nbdev.masking import Specials, make_inputs, mask_batch

SPECIALS = Specials(pad=0, cls=2, sep=3, mask=4)
ELECTRIC = dict(electra_objective=False, electric_objective=True)

def close(a, b, tol=1e-5): torch.testing.assert_close(a, b, rtol=tol, atol=tol)

def recipe(**kw): return preset('tiny', **dict(vocab_size=50, max_seq_length=16, length_schedule=(), generator_hidden_size=.5, **ELECTRIC) | kw)

def batch(hp, lengths=(16, 11, 5, 3), seed=0):
    "Rows of these lengths, with [CLS] and [SEP]"
    rng = torch.Generator().manual_seed(seed)
    ids = torch.zeros(len(lengths), hp.max_seq_length, dtype=torch.long)
    for row,n in zip(ids, lengths): row[:n] = torch.cat([tensor([SPECIALS.cls]), torch.randint(5, hp.vocab_size, (n-2,), generator=rng), tensor([SPECIALS.sep])])
    return mask_batch(make_inputs(ids, tensor(lengths), SPECIALS.pad), hp, SPECIALS, rng)

def model_of(hp):
    model = pretraining_model(hp)
    model.rng = torch.Generator().manual_seed(0)
    return model

def test_no_position_sees_itself_or_padding():
    "By gradient: the context of a position depends on every other real token and on nothing else"
    hp = recipe()
    model, mb = model_of(hp).eval(), batch(hp)
    seen = {}
    def watch(m, _, out): # the embeddings of both towers, in reading order
        out.retain_grad()
        seen.setdefault('out', []).append(out)
        return out
    hook = model.generator.ltr.embeddings.register_forward_hook(watch)
    for t in range(16):
        seen.clear()
        context = model.generator.context(mb.input_ids, mb.attention_mask, mb.token_type_ids)
        (context[:,t]*torch.randn(context.shape[-1], generator=torch.Generator().manual_seed(t))).sum().backward()
        left, right = (o.grad.abs().sum(-1)>0 for o in seen['out'])
        for row,n in enumerate(mb.attention_mask.sum(1).tolist()):
            if t>=n: continue
            right_here = torch.zeros(16, dtype=torch.bool)
            right_here[:n] = right[row,:n].flip(0)
            assert not right[row,n:].any() and not left[row,n:].any()
            assert (left[row] | right_here).nonzero().flatten().tolist()==[s for s in range(n) if s!=t]
    hook.remove()

def test_towers_are_the_masked_towers():
    "The causal flag and the turned rows give what explicit masks give: `official` in the middle of rows without padding"
    hp = recipe()
    model, mb = model_of(hp).eval(), batch(hp, (16, 16))
    with torch.no_grad(): a, b = (f(mb.input_ids, mb.attention_mask, mb.token_type_ids) for f in (model.generator.context, model.generator.official_context))
    close(a[:,1:-1], b[:,1:-1])
    assert (a[:,0]-b[:,0]).abs().max()>1e-2 and (a[:,-1]-b[:,-1]).abs().max()>1e-2

def test_padding_changes_nothing():
    hp = recipe()
    model, long, short = model_of(hp).eval(), batch(hp, (11,)), batch(recipe(max_seq_length=11), (11,))
    assert torch.equal(long.input_ids[:,:11], short.input_ids) and short.attention_mask is None
    with torch.no_grad(): close(model.generator(long)[:,:11], model.generator(short))

@pytest.mark.parametrize('change', [{}, dict(cloze_mode='official', duplicates='official'), dict(electra_objective=True, electric_objective=False, two_tower_generator=True)])
def test_step_equals_the_plain_step(change):
    "Loss and gradients against a softmax over all positions at once, with the same samples"
    hp = recipe(**change)
    model, mb = model_of(hp), batch(hp)
    out = model(mb)
    PretrainLoss(hp)(out).backward()
    fast = {n: p.grad.clone() for n,p in model.named_parameters()}
    model.zero_grad()
    logp = model.generator.generator_lm_head(model.generator(mb, hp.cloze_mode)).log_softmax(-1)
    cloze = -(logp*F.one_hot(mb.input_ids, hp.vocab_size)).sum(-1)
    logit = model.discriminate(out.fake_ids, mb.attention_mask, mb.token_type_ids)
    if hp.electra_objective: labels, scored = out.fake_ids!=mb.input_ids, mb.attention_mask
    elif hp.cloze_mode=='official':
        labels, scored = chosen(mb), mb.attention_mask
        logit = logit + logp.detach().gather(-1, out.fake_ids[...,None])[...,0] + torch.tensor(hp.mask_prob/(1-hp.mask_prob)).log()
    else:
        n, c = mb.weights.sum(1), mb.candidates.sum(1)
        labels, scored = chosen(mb), mb.candidates & (n<c)[:,None]
        logit = logit + logp.detach().gather(-1, out.fake_ids[...,None])[...,0] + (n/(c-n).clamp(min=.5)).log()[:,None]
    nce = F.binary_cross_entropy_with_logits(logit[scored], labels[scored].float())
    loss = (cloze*mb.candidates).sum()/mb.candidates.sum() + hp.disc_weight*nce
    close(PretrainLoss(hp)(out), loss)
    loss.backward()
    for n,p in model.named_parameters(): close(fast[n], p.grad, 1e-4)

def test_rows_without_a_question_are_not_asked():
    "No candidate, or no candidate that is left as it was"
    hp = recipe(mask_prob=.8)
    mb = batch(hp, (16, 3, 2))
    out = model_of(hp)(mb)
    assert out.scored.any(1).tolist()==[True, False, False] and out.disc_sum.isfinite() and PretrainLoss(hp)(out).isfinite()

@pytest.mark.parametrize('duplicates', ['distinct', 'official'])
def test_share_of_noise_by_counting(duplicates):
    "20,000 draws; four standard errors"
    hp = recipe(duplicates=duplicates)
    mb = batch(hp, (16,)*20000)
    share, found = chosen_share(mb, hp)[0,0], chosen(mb)[mb.candidates].float().mean()
    assert abs(found-share) < 4*(share*(1-share)/mb.candidates.sum())**.5
    assert abs(share-hp.mask_prob) > .01, 'not the nominal share'

def test_samples_come_from_the_towers():
    hp = recipe(temperature=2., electra_objective=True, electric_objective=False, two_tower_generator=True)
    model = model_of(hp)
    mb = batch(hp, (16,))
    many = type(mb)(*(None if o is None else o.expand(4000, *o.shape[1:]) for o in mb))
    with torch.no_grad():
        x = model.generator(mb)
        sampled = draw_noise(model.generator.generator_lm_head, x.expand(4000, -1, -1), many, hp, torch.Generator().manual_seed(0))
        p = (model.generator.generator_lm_head(gather_positions(x, mb.positions))[0]/2).softmax(-1)
    share = F.one_hot(sampled, hp.vocab_size).float().mean(0)
    used = mb.weights[0]>0
    assert ((share-p).abs() < 5*(p*(1-p)/4000).sqrt()+2e-3)[used].all()

def test_a_position_drawn_twice_gets_one_sample():
    hp = recipe(duplicates='official', mask_prob=.9)
    model, mb = model_of(hp), batch(hp, (16,)*8)
    out = model(mb)
    assert (mb.weights.sum(1) > chosen(mb).sum(1)).all(), 'some are drawn twice'
    assert torch.equal(out.fake_ids.gather(1, mb.positions)[mb.weights>0], out.sampled[mb.weights>0])

def test_vocabulary_sized_tensors_stay_small():
    "No tensor of a step is as large as the scores of all positions"
    from torch.utils._python_dispatch import TorchDispatchMode
    hp = recipe(vocab_size=4000, max_seq_length=64, train_batch_size=8)
    model, mb = model_of(hp), batch(hp, (64,)*8)
    class Largest(TorchDispatchMode):
        most = 0
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **kwargs or {})
            for o in out if isinstance(out, (tuple, list)) else [out]:
                if torch.is_tensor(o): self.most = max(self.most, o.untyped_storage().nbytes()//4)
            return out
    with Largest() as seen: PretrainLoss(hp)(model(mb)).backward()
    assert 4000*64 <= seen.most < mb.input_ids.numel()*hp.vocab_size/4

def test_folders(tmp_path):
    hp = recipe(untied_generator_embeddings=True)
    model = model_of(hp)
    model.save(tmp_path)
    assert sorted(o.name for o in (tmp_path/'electric'/'towers').iterdir())==['hparams.json', 'model.safetensors']
    back = ElectricPretraining.load(tmp_path, hp)
    for (n,a),b in zip(model.named_parameters(), back.parameters(), strict=True): assert torch.equal(a, b), n
    with pytest.raises(InputError, match='no folder `discriminator`'): ElectricPretraining.load(tmp_path, recipe(electra_objective=True, electric_objective=False, two_tower_generator=True))
    with pytest.raises(InputError, match='do not fit'): ElectricPretraining.load(tmp_path, recipe())
