"Electric's towers, loss and share of noise against the plain ways, in the learner's own step, and its folders"
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn, tensor
from transformers import ElectraConfig, ElectraForPreTraining

from electra_nbdev.data.tokenizer import SPECIALS
from electra_nbdev.method.discriminator import corrupt
from electra_nbdev.method.electric import NoiseContrastiveEstimation, noise_mask, noise_prob
from electra_nbdev.method.towers import TwoTowers, cloze_step
from electra_nbdev.engine.fast import with_packed_dropout
from electra_nbdev.engine.files import InputError
from electra_nbdev.engine.ranks import KeyedRandom
from electra_nbdev.method.generator import gather_positions
from electra_nbdev.method.masking import Inputs, MaskedBatch, SpecialTokenIds, make_inputs, mask_batch
from electra_nbdev.pretrain import electra_learner
from electra_nbdev.networks.build import build_networks, load_networks, save_networks
from electra_nbdev.networks.recipe import preset
from electra_nbdev.sharing.convert import convert_weights
from electra_nbdev.scoring.likelihood import load_likelihood, pseudo_log_likelihood
from learners import Largest
from official import Seen, loaders, one_step
from make import close, pieces, save_run

SPECIAL_IDS = SpecialTokenIds(pad=0, cls=2, sep=3, mask=4)
ELECTRIC = dict(electra_objective=False, electric_objective=True)
SIZE = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48,
            max_position_embeddings=20)
DRY = dict(hidden_dropout_prob=0., attention_probs_dropout_prob=0.)
OTHERS = {'modernbert': dict(model_type='modernbert', global_attn_every_n_layers=1, **SIZE), # positions by rotation
          'roberta': dict(model_type='roberta', **SIZE, **DRY), # positions from 2 on, no segments
          'distilbert': dict(model_type='distilbert', dim=32, n_layers=2, n_heads=2, hidden_dim=48, dropout=0.,
                           attention_dropout=0.)}
bodies = pytest.mark.parametrize('body', [{}, *OTHERS.values()], ids=['electra', *OTHERS])

def recipe(**kw):
    small = dict(vocab_size=50, max_seq_length=16, length_schedule=(), generator_hidden_size=.5, unigram_noise=0.)
    if kw.get('body'): small |= dict(model_hparam_overrides={}, generator_layers=1.)
    return preset('tiny', **small | ELECTRIC | kw)

def rows(hp, lengths=(16, 11, 5, 3), seed=0):
    "Examples of these lengths, with [CLS] and [SEP]"
    rng = torch.Generator().manual_seed(seed)
    ids = torch.zeros(len(lengths), hp.max_seq_length, dtype=torch.long)
    cls, sep = tensor([SPECIAL_IDS.cls]), tensor([SPECIAL_IDS.sep])
    for row,n in zip(ids, lengths):
        row[:n] = torch.cat([cls, torch.randint(5, hp.vocab_size, (n-2,), generator=rng), sep])
    return ids, tensor(lengths)

def batch(hp, *args):
    inp = make_inputs(*rows(hp, *args), SPECIAL_IDS.pad)
    return mask_batch(inp, SPECIAL_IDS, hp.mask_prob, hp.duplicates, KeyedRandom(0))

def towers_of(hp): return build_networks(hp).generator

def step_of(hp, *args):
    "A learner that has made a step on such rows, and what was seen"
    learn = electra_learner(loaders(rows(hp, *args)), hp, special_ids=SPECIAL_IDS, cbs=[Seen()])
    return learn, one_step(learn, True)

@bodies
def test_no_position_sees_itself_or_padding(body):
    "By gradient: the context of a position depends on every other real token and on nothing else"
    hp = recipe(body=body)
    towers, mb = towers_of(hp).eval(), batch(hp)
    seen = []
    def watch(m, _, out): # the embeddings of both towers, in reading order
        out.retain_grad()
        seen.append(out)
        return out
    hook = towers.ltr.embeddings.register_forward_hook(watch)
    for t in range(16):
        seen.clear()
        context = towers.bidirectional_states(mb)
        (context[:,t]*torch.randn(context.shape[-1], generator=torch.Generator().manual_seed(t))).sum().backward()
        left, right = (o.grad.abs().sum(-1)>0 for o in seen)
        for row,n in enumerate(mb.attention_mask.sum(1).tolist()):
            if t>=n: continue
            right_here = torch.zeros(16, dtype=torch.bool)
            right_here[:n] = right[row,:n].flip(0)
            assert not right[row,n:].any() and not left[row,n:].any()
            assert (left[row] | right_here).nonzero().flatten().tolist()==[s for s in range(n) if s!=t]
    hook.remove()

@bodies
@pytest.mark.parametrize('dropout', [0., 1e-9])
def test_no_state_notices_its_own_token_in_training(dropout, body):
    "With fast dropout too, with a share that drops nothing"
    hp = recipe(body=body)
    towers, mb = with_packed_dropout(towers_of(hp)).train(), batch(hp)
    for m in towers.modules():
        if isinstance(m, nn.Dropout): m.p = dropout
    def states(ids): return towers.bidirectional_states(mb._replace(input_ids=ids))
    with torch.no_grad():
        was = states(mb.input_ids)
        for t in range(1, 10): # the first two examples have a token there
            other = mb.input_ids.clone()
            other[:2,t] = 5 + (other[:2,t]-4)%45
            now = states(other)
            close(now[:2,t], was[:2,t], 1e-6)
            assert (now[0]-was[0]).abs().amax(-1).nonzero().numel()>=14

def test_towers_are_the_masked_towers():
    "The causal flag and the turned rows give what explicit masks give: `official` in the middle of full rows"
    hp = recipe()
    towers, mb = towers_of(hp).eval(), batch(hp, (16, 16))
    with torch.no_grad(): a, b = (f(mb) for f in (towers.bidirectional_states, towers.official_states))
    close(a[:,1:-1], b[:,1:-1])
    assert (a[:,0]-b[:,0]).abs().max()>1e-2 and (a[:,-1]-b[:,-1]).abs().max()>1e-2

@bodies
def test_padding_changes_nothing(body):
    hp = recipe(body=body)
    towers, long, short = towers_of(hp).eval(), batch(hp, (11,)), batch(recipe(max_seq_length=11), (11,))
    assert torch.equal(long.input_ids[:,:11], short.input_ids) and short.attention_mask is None
    with torch.no_grad(): close(towers(long)[:,:11], towers(short))

TT = dict(electra_objective=True, electric_objective=False, two_tower_generator=True)
RESIDUAL = dict(residual_energies=True)

@pytest.mark.parametrize('change', [{}, dict(cloze_mode='official', duplicates='official'), TT, RESIDUAL])
def test_step_equals_the_plain_step(change):
    "Loss and gradients against a softmax over all positions at once, with the same samples"
    hp = recipe(**change)
    _, seen = step_of(hp)
    mb, model = seen.masked, build_networks(hp).train()
    logp = model.generator.generator_lm_head(model.generator(mb)).log_softmax(-1)
    cloze = -(logp*F.one_hot(mb.input_ids, hp.vocab_size)).sum(-1)
    logit = model.token_logits(seen.fake, mb.attention_mask, mb.token_type_ids)
    log_q = logp.detach().gather(-1, seen.fake[...,None])[...,0]
    if hp.electra_objective: labels, scored = seen.fake!=mb.input_ids, mb.attention_mask
    elif hp.cloze_mode=='official':
        labels, scored = noise_mask(mb), mb.attention_mask
        logit = logit + log_q + tensor(hp.mask_prob/(1-hp.mask_prob)).log()
    else:
        n, c = mb.weights.sum(1), mb.candidates.sum(1)
        labels, scored = noise_mask(mb), mb.candidates & (n<c)[:,None]
        logit = logit + (0 if hp.residual_energies else log_q) + (n/(c-n).clamp(min=.5)).log()[:,None]
    assert torch.equal(seen.labels>=0, scored) and torch.equal(seen.labels[scored]>0, labels[scored])
    nce = F.binary_cross_entropy_with_logits(logit[scored], labels[scored].float())
    loss = (cloze*mb.candidates).sum()/mb.candidates.sum() + hp.disc_weight*nce
    close(seen.loss, loss.detach())
    loss.backward()
    for n,p in model.named_parameters(): close(seen.grads[n], p.grad, 1e-4)

@bodies
def test_residual_energies_begin_as_those_of_the_towers(body, tmp_path):
    "Saved and read back too; unigram noise leaves its share of the odds"
    hp = recipe(**RESIDUAL, body=body)
    model = build_networks(hp).eval()
    ids = rows(hp)[0]
    inputs = ids, ids>0, torch.zeros_like(ids)
    with torch.no_grad(): close(model.text_logits(*inputs), model.generator.text_nll(Inputs(*inputs)))
    save_run(tmp_path, model, hp, tokenizer_of(50))
    score = {o: load_likelihood(str(tmp_path), o, device='cpu') for o in ('energies', 'towers')}
    text = ' '.join(score['towers'].tokenizer.convert_ids_to_tokens([7, 9, 30, 11]))
    def scores(by): return tensor(pseudo_log_likelihood(score[by], [text])[0]['scores'])
    close(scores('energies'), scores('towers'))
    mixed = build_networks(replace(hp, unigram_noise=.5)).train()
    mixed.set_token_counts(torch.ones(50).index_fill(0, torch.arange(5), 0.))
    mb = batch(hp)
    out, towers = mixed(*mb), mixed.generator
    fake, counted = corrupt(mb, out.prediction.sampled), out.labels>=0
    log_q = towers.generator_lm_head(towers(mb)).log_softmax(-1).gather(-1, fake[...,None])[...,0]
    odds = (.5 + .5*mixed.unigram_probs[fake]/log_q.exp()).log() + torch.logit(noise_prob(mb))
    close(out.logits[counted], odds[counted])
    with pytest.raises(InputError, match='`residual_energies` is about Electric'): preset('tiny', **RESIDUAL)

def tokenizer_of(n): return pieces([*SPECIALS, *(f'w{i}' for i in range(n-5))])

def test_rows_without_a_question_are_not_asked():
    "No candidate, or no candidate that is left as it was"
    _, seen = step_of(recipe(mask_prob=.8), (16, 3, 2))
    assert (seen.labels>=0).any(1).tolist()==[True, False, False] and seen.loss.isfinite()

@pytest.mark.parametrize('duplicates', ['distinct', 'official'])
def test_share_of_noise_by_counting(duplicates):
    "20,000 draws; four standard errors"
    hp = recipe(duplicates=duplicates)
    mb = batch(hp, (16,)*20000)
    share, found = noise_prob(mb, hp.duplicates)[0,0], noise_mask(mb)[mb.candidates].float().mean()
    assert abs(found-share) < 4*(share*(1-share)/mb.candidates.sum())**.5
    assert abs(share-hp.mask_prob) > .01, 'not the nominal share'

def test_samples_come_from_the_towers():
    hp = recipe(**TT)
    towers, mb = towers_of(hp), batch(hp, (16,))
    many = MaskedBatch(*(None if o is None else o.expand(4000, *o.shape[1:]) for o in mb))
    many = many._replace(u=KeyedRandom(1)(4000, mb.positions.shape[1]))
    with torch.no_grad():
        x, head = towers(mb), towers.generator_lm_head
        sampled = cloze_step(head, x.expand(4000, -1, -1), many, many.candidates, temperature=2.)[2]
        p = (head(gather_positions(x, mb.positions))[0]/2).softmax(-1)
    share = F.one_hot(sampled, hp.vocab_size).float().mean(0)
    used = mb.weights[0]>0
    assert ((share-p).abs() < 5*(p*(1-p)/4000).sqrt()+2e-3)[used].all()

def test_a_position_drawn_twice_gets_one_sample():
    _, seen = step_of(recipe(duplicates='official', mask_prob=.9), (16,)*8)
    mb = seen.masked
    assert (mb.weights.sum(1) > noise_mask(mb).sum(1)).all(), 'some are drawn twice'
    assert torch.equal(seen.fake.gather(1, mb.positions)[mb.weights>0], seen.generated.sampled[mb.weights>0])

@pytest.mark.parametrize('how', [dict(temperature=2.), dict(disallow_correct=True)])
def test_noise_of_another_softmax_is_refused(how):
    "From Python too, where no recipe is asked"
    hp = recipe(**TT)
    towers = towers_of(hp)
    energies = ElectraForPreTraining(ElectraConfig(vocab_size=hp.vocab_size, embedding_size=16, hidden_size=16,
                                                   num_hidden_layers=1, num_attention_heads=1, intermediate_size=32))
    with pytest.raises(InputError, match='how probable its noise is'):
        NoiseContrastiveEstimation.of(towers, energies, tie='none', **how)
    NoiseContrastiveEstimation.of(towers, energies, tie='none', unigram_noise=.5)

def test_noise_of_a_mixture():
    "What is added to energies is the log-odds of the mixture, in training; held-out text has noise of the towers alone"
    counts = torch.arange(50).float()
    counts[:5] = 0
    hp = recipe(unigram_noise=.25)
    learn = electra_learner(loaders(rows(hp)), hp, special_ids=SPECIAL_IDS, counts=counts, cbs=[Seen()])
    for share,training in ((.25, True), (0., False)):
        seen = one_step(learn, training)
        mb, towers = seen.masked, learn.model.generator
        with torch.no_grad():
            q = towers.generator_lm_head(towers(mb)).softmax(-1).gather(-1, seen.fake[...,None])[...,0]
        mixed = (1-share)*q + share*(counts/counts.sum())[seen.fake]
        close(seen.offset[mb.candidates], (mixed.log()+torch.logit(noise_prob(mb), 1e-6))[mb.candidates], 1e-4)

def test_vocabulary_sized_tensors_stay_small():
    "No tensor of a step is as large as the scores of all positions"
    hp = recipe(vocab_size=4000, max_seq_length=64)
    learn = electra_learner(loaders(rows(hp, (64,)*8)), hp, special_ids=SPECIAL_IDS)
    with Largest() as seen, learn.no_bar(), learn.no_logging(): learn.fit(1)
    assert 4000*64 <= seen.n <= 8*64*hp.vocab_size/4 # a chunk, in float64 where it is sampled from

@bodies
def test_folders(body, tmp_path):
    hp = recipe(untied_generator_embeddings=True, body=body)
    model = build_networks(hp)
    save_networks(model, hp, tmp_path)
    assert sorted(o.name for o in (tmp_path/'electric'/'towers').iterdir())==['hparams.json', 'model.safetensors']
    back = load_networks(tmp_path, hp)
    for (n,a),b in zip(model.named_parameters(), back.parameters(), strict=True): assert torch.equal(a, b), n

def test_folders_of_other_recipes_are_refused(tmp_path):
    hp, other = recipe(untied_generator_embeddings=True), recipe(body=OTHERS['distilbert'])
    save_networks(build_networks(hp), hp, tmp_path/'own')
    save_networks(build_networks(other), other, tmp_path/'other')
    with pytest.raises(InputError, match='no folder `discriminator`'): load_networks(tmp_path/'own', recipe(**TT))
    for o in ('own', 'other'):
        with pytest.raises(InputError, match='does not fit'): load_networks(tmp_path/o, recipe())

def test_towers_under_eager_attention_are_refused():
    "It does not read `is_causal`: every position would see its own token"
    with pytest.raises(ValueError, match='eager attention ignores is_causal'):
        TwoTowers(ElectraConfig(vocab_size=50, attn_implementation='eager'))

def test_residual_energies_have_no_official_form(tmp_path):
    hp = recipe(**RESIDUAL)
    save_run(tmp_path/'run', build_networks(hp), hp, tokenizer_of(50))
    with pytest.raises(InputError, match='has residual energies'):
        convert_weights(tmp_path/'run', tmp_path/'official.npz')
