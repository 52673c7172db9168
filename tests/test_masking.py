"Masks and samples depend on seed, update and the example's place in the global batch, and on nothing else"
import pytest
import torch
from fastai.callback.core import Callback
from fastai.callback.training import GradientAccumulation

from electra_nbdev.method import masking
from electra_nbdev.engine.files import InputError
from electra_nbdev.engine.ranks import KeyedRandom
from electra_nbdev.method.masking import MaskCollator, MaskedBatch, SpecialTokenIds, make_inputs, mask_batch
from electra_nbdev.pretrain import electra_learner
from electra_nbdev.pretraining.learner import give_counts
from electra_nbdev.networks.build import build_networks
from electra_nbdev.networks.recipe import preset
from official import Seen, loaders
from make import pieces

SPECIAL_IDS = SpecialTokenIds(pad=0, cls=2, sep=3, mask=4)

def rows(n=16, sl=16):
    "Examples of several lengths"
    rng = torch.Generator().manual_seed(0)
    ids = torch.randint(5, 60, (n, sl), generator=rng)
    for row,length in zip(ids, torch.randint(6, sl+1, (n,), generator=rng)): row[length:] = 0
    ids[:,0] = 2
    return ids, torch.full((n,), 4)

@pytest.mark.parametrize('further', [1, 2])
def test_masks_and_segments_are_no_lengths(further):
    "They would be read as lengths of documents, and all of a row as padding"
    ids, _ = rows(8, 24)
    batch = ids, (ids!=0).long(), torch.zeros_like(ids)
    with pytest.raises(InputError, match='leave out attention masks'):
        masking.mask_examples(ids, batch[1], SPECIAL_IDS, lengths=batch[2] if further==2 else None)

@pytest.mark.parametrize('how, why', [(dict(mask_prob=15), '`mask_prob` is 15'),
    (dict(mask_prob=-1), '`mask_prob` is -1'), (dict(special_ids='the tokenizer'), 'take special_token_ids')])
@pytest.mark.parametrize('kind', [MaskCollator, masking.MaskTokens])
def test_what_cannot_mask_is_refused(kind, how, why):
    with pytest.raises(InputError, match=why): kind(**dict(special_ids=SPECIAL_IDS) | how)

def test_a_collator_reads_segment_ids():
    "As a tokenizer gives them for a pair"
    examples = [dict(input_ids=[2, 7, 8, 3, 9, 3, 0], token_type_ids=[0, 0, 0, 0, 1, 1, 0], place=0),
                dict(input_ids=[2, 7, 8, 9, 9, 9, 3], token_type_ids=[0]*7, place=1)]
    found = MaskCollator(SPECIAL_IDS)(examples)['token_type_ids']
    assert found.tolist()==[o['token_type_ids'] for o in examples]
    with pytest.raises(InputError, match='`NumberedExamples`'): MaskCollator(SPECIAL_IDS)([dict(input_ids=[2, 7, 3])])

def joined_field(parts):
    "A field of several masked batches, if they have it"
    return None if parts[0] is None else torch.cat(parts)

def same(a, b):
    for name,x,y in zip(MaskedBatch._fields, a, b): assert x is y is None or torch.equal(x, y), name

@pytest.mark.parametrize('duplicates', ['distinct', 'official'])
def test_parts_of_a_batch_are_masked_like_the_batch(duplicates):
    inp = make_inputs(*rows(8), 0)
    def mask(part, first):
        rows = type(inp)(*(o[part] for o in inp))
        return mask_batch(rows, SPECIAL_IDS, .3, duplicates, KeyedRandom(7, 3, first=first))
    whole, halves = mask(slice(8), 0), [mask(slice(o, o+4), o) for o in (0, 4)]
    same(whole, [joined_field(o) for o in zip(*halves)])
    assert not torch.equal(halves[1].u, mask(slice(4, 8), 0).u)

@pytest.mark.parametrize('sl,prob,width', [(4, .15, 1), (10, .15, 1), (32, .3, 9)])
def test_a_batch_is_as_wide_as_its_longest_example_needs(sl, prob, width):
    inp = make_inputs(torch.full((2, sl), 7), None, 0)
    assert mask_batch(inp, SPECIAL_IDS, prob).positions.shape==(2, width)

class Disturb(Callback):
    "Draws random numbers that have nothing to do with masking"
    order = -10
    def before_batch(self): torch.rand(17)

def steps_of(bs, n=1, cbs=(), part=slice(None), masks_seed=0, start=0, counts=None, **change):
    "What the training batches of a pass saw"
    plain = dict(length_schedule=(), unigram_noise=0., train_batch_size=16)
    hp = preset('tiny', vocab_size=60, max_seq_length=16, mask_prob=.3, duplicates='official', **plain | change)
    data = [o[part] for o in rows(8*n)]
    learn = electra_learner(loaders(data, bs), hp, special_ids=SPECIAL_IDS, counts=counts, cbs=[Seen(), *cbs])
    learn.mask_tokens.seed, learn.n_updates = masks_seed, start
    with learn.no_bar(), learn.no_logging(): learn.fit(1)
    return learn.seen.steps[:len(data[0])//bs]

def joined(steps): return [joined_field(o) for o in zip(*(s.masked for s in steps))]

def test_accumulated_parts_see_what_one_batch_sees():
    whole, parts = steps_of(8), steps_of(4, cbs=[GradientAccumulation(8)])
    same(joined(whole), joined(parts))
    for name in ('fake', 'labels'):
        assert torch.equal(getattr(whole[0], name), torch.cat([getattr(o, name) for o in parts])), name
    assert torch.equal(whole[0].generated.sampled, torch.cat([o.generated.sampled for o in parts]))

def test_accumulated_parts_have_the_same_unigram_noise():
    "And it is noise: not what the generator wrote, labelled as replaced, never a special token"
    counts = torch.ones(60).index_fill(0, torch.arange(5), 0.)
    noise = dict(counts=counts, unigram_noise=.5)
    whole = steps_of(8, **noise)[0]
    parts = steps_of(4, cbs=[GradientAccumulation(8)], **noise)
    plain = steps_of(8)[0]
    for name in ('fake', 'labels'):
        assert torch.equal(getattr(whole, name), torch.cat([getattr(o, name) for o in parts])), name
    assert (whole.fake!=plain.fake).any() and torch.equal(whole.masked.masked_ids, plain.masked.masked_ids)
    changed = whole.fake!=whole.masked.input_ids
    assert torch.equal(whole.labels==1, changed)
    alone = steps_of(8, **noise | dict(unigram_noise=1.))[0]
    assert (alone.fake[alone.fake!=alone.masked.input_ids]>=5).all()

def test_unigram_noise_needs_counts():
    with pytest.raises(InputError, match='needs token counts'): steps_of(8, unigram_noise=.5)
    with pytest.raises(InputError, match='about replaced tokens'):
        preset('tiny', electra_objective=False, unigram_noise=.5)
    with pytest.raises(InputError, match='set `unigram_noise` too'): preset('small', unigram_noise_until=.5)

def test_an_objective_that_has_counts_takes_others_and_needs_none():
    model, counts = build_networks(preset('tiny', vocab_size=60)), torch.arange(60.)
    first, same, other = (give_counts(model, o, SPECIAL_IDS).unigram_probs.clone() for o in (counts, None, counts**2))
    assert torch.equal(first, same) and not torch.equal(same, other)

def test_the_share_of_unigram_noise_falls():
    "Linearly to zero; from then on batches are as without it"
    counts = torch.ones(60).index_fill(0, torch.arange(5), 0.)
    model = build_networks(preset('tiny', unigram_noise_until=.4)).train()
    for done,share in ((0, .5), (.1, .375), (.4, 0.), (.5, 0.)):
        model.run_fraction.fill_(done)
        assert model.noise_share().item()==pytest.approx(share)
    fading = dict(counts=counts, unigram_noise=.5, unigram_noise_until=.5, num_train_steps=100)
    plain, late, early = (steps_of(8, start=o, **how)[0] for o,how in ((60, {}), (60, fading), (10, fading)))
    assert torch.equal(late.fake, plain.fake)
    assert (early.fake!=steps_of(8, start=10)[0].fake).any()

@pytest.mark.parametrize('bs', [4, 2])
def test_processes_see_what_one_process_sees(monkeypatch, bs):
    "Two of them, alone or with an accumulation of two batches each"
    whole = steps_of(8)[0]
    monkeypatch.setattr(masking, 'n_processes', lambda: 2)
    found = torch.zeros_like(whole.masked.masked_ids), torch.zeros_like(whole.fake)
    for rank in range(2):
        monkeypatch.setattr(masking, 'rank', lambda: rank)
        places = torch.arange(8).view(-1, 2, bs)[:,rank] # batches of this process
        for place,step in zip(places, steps_of(bs, cbs=[GradientAccumulation(4)], part=places.flatten()), strict=True):
            found[0][place], found[1][place] = step.masked.masked_ids, step.fake
    assert torch.equal(found[0], whole.masked.masked_ids) and torch.equal(found[1], whole.fake)

def test_other_random_numbers_change_nothing():
    torch.manual_seed(0)
    a = steps_of(8, 2)
    torch.manual_seed(1)
    dropout = dict(hidden_dropout_prob=.1, max_position_embeddings=128)
    b = steps_of(8, 2, cbs=[Disturb()], model_hparam_overrides=dropout)
    same(joined(a), joined(b))

def test_update_and_seed_change_masks_and_samples():
    a, b = steps_of(8, 2)
    assert not torch.equal(a.masked.u, b.masked.u)
    assert not torch.equal(a.masked.masked_ids, steps_of(8, masks_seed=1)[0].masked.masked_ids)
    later = steps_of(8, part=slice(8, None), n=2, start=1)[0]
    same(b.masked, later.masked)

def test_held_out_masks_are_those_of_the_seed():
    "Whatever was trained, and not those of training"
    hp = preset('tiny', vocab_size=60, max_seq_length=16, length_schedule=(), unigram_noise=0.)
    learn = electra_learner(loaders(rows(8)), hp, special_ids=SPECIAL_IDS, cbs=[Seen()])
    def validate():
        with learn.no_bar(), learn.no_logging(): learn.validate()
        return learn.seen.steps[-1]
    a = validate()
    with learn.no_bar(), learn.no_logging(): learn.fit(2)
    trained, b = learn.seen.steps[0], validate()
    same(a.masked, b.masked)
    assert not torch.equal(a.masked.u[:,:2], trained.masked.u[:,:2])

def test_a_collator_masks_by_place():
    "As the callback does at the same place in the stream, whatever stands beside an example; each pass anew"
    ids, lens = rows(16)
    examples = [dict(input_ids=i, segment_a_length=n, place=p) for p,(i,n) in enumerate(zip(ids, lens))]
    collate = MaskCollator(SPECIAL_IDS, .3, 'official')
    whole, some = collate(examples), collate([examples[9], examples[2]])
    for k,v in some.items(): assert torch.equal(v, whole[k][[9, 2]]), k
    for step,at in zip(steps_of(8, 2), (slice(0, 8), slice(8, 16))):
        for k in ('masked_ids', 'u'): assert torch.equal(getattr(step.masked, k), whole[k][at]), k
    again = collate([o | dict(place=o['place']+16) for o in examples])
    assert not torch.equal(again['masked_ids'], whole['masked_ids'])

def test_words_are_masked_whole():
    "Pieces of a word are drawn together but for the last word of an example; the number of tokens is the same"
    starts = torch.arange(60)%3>0 # every third id goes on with the word before
    inp = make_inputs(*rows(64, 32), 0)
    how = SPECIAL_IDS, .3, 'distinct', KeyedRandom(0, 0)
    plain, whole = mask_batch(inp, *how), mask_batch(inp, *how, starts[inp.input_ids])
    assert torch.equal(plain.weights, whole.weights)
    drawn = torch.zeros_like(inp.input_ids).scatter_add(1, whole.positions, whole.weights.long())>0
    word = (starts[inp.input_ids] | ~whole.candidates).cumsum(1)
    for row,words,cand in zip(drawn, word, whole.candidates):
        parts = [row[(words==w) & cand] for w in words.unique()]
        assert sum(0<o.sum()<len(o) for o in parts if len(o))<=1
    assert not torch.equal(plain.positions, whole.positions)

def test_a_run_masks_whole_words(tmp_path):
    "From the hparam to the batches; a learner without a tokenizer refuses, held-out text is masked as always"
    from electra_nbdev.networks.build import masking_of
    tok = pieces(['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'a', '##b'])
    hp = preset('tiny', vocab_size=7, whole_words=True, unigram_noise=0.)
    masks = masking_of(hp, SPECIAL_IDS, tok)
    assert masks.word_starts.tolist()==[True]*6+[False]
    with pytest.raises(InputError, match='needs a tokenizer'): masking_of(hp, SPECIAL_IDS)
    with pytest.raises(InputError, match='distinct positions'): preset('tiny', whole_words=True, duplicates='official')
