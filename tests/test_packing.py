"Documents that share a row: hidden states, masks, losses and gradients are those of documents that stand alone"
from copy import deepcopy

import pytest
import torch
from torch import tensor
from transformers import (AutoModelForMaskedLM, AutoModelForTokenClassification, BertConfig, CamembertConfig,
                          DebertaV2Config, ElectraConfig, ModernBertConfig, RobertaConfig, XLMRobertaConfig)

from electra_nbdev.engine.fast_cpu import with_packed_dropout, with_unread_masks
from electra_nbdev.engine.files import InputError
from electra_nbdev.method.electra import MaskedLanguageModel, ReplacedTokenDetection
from electra_nbdev.method.electric import NoiseContrastiveEstimation, TwoTowers
from electra_nbdev.method.generator import context_of, generator_config, hidden_states
from electra_nbdev.method.masking import MaskCollator, MaskedBatch, SpecialTokenIds, mask_examples

SPECIAL_IDS = SpecialTokenIds(0, 2, 3, 4)
SL, V = 40, 60
SIZE = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=2, vocab_size=V,
            max_position_embeddings=64)
DRY = dict(hidden_dropout_prob=0., attention_probs_dropout_prob=0.)
ROBERTA = SIZE | dict(pad_token_id=1, type_vocab_size=1)
BODIES = dict(electra=ElectraConfig(**SIZE, **DRY, embedding_size=16), bert=BertConfig(**SIZE, **DRY),
              roberta=RobertaConfig(**ROBERTA, **DRY), xlm_roberta=XLMRobertaConfig(**ROBERTA, **DRY),
              camembert=CamembertConfig(**ROBERTA, **DRY),
              modernbert=ModernBertConfig(**SIZE, local_attention=8, global_attn_every_n_layers=2, pad_token_id=0,
                                          cls_token_id=2, sep_token_id=3, bos_token_id=2, eos_token_id=3))
# Tokens of each document, of its segment A, of two rows of two and three documents
LENGTHS, FIRST = tensor([[21, 12, 0], [9, 8, 23]]), tensor([[10, 12, 0], [9, 4, 23]])
PLACES = tensor([6, 7])
bodies = pytest.mark.parametrize('body', BODIES)

def close(a, b): torch.testing.assert_close(a, b, atol=2e-5, rtol=1e-4)

def documents(pad=0):
    "Two rows of documents, and each document in a row of its own: ids, lengths of segment A, places"
    rng = torch.Generator().manual_seed(0)
    texts = [[torch.randint(5, V, (int(n),), generator=rng) for n in o if n] for o in LENGTHS]
    for text in (t for o in texts for t in o): text[0], text[-1] = 2, 3
    def padded(t): return torch.nn.functional.pad(t, (0, SL-len(t)), value=pad)
    alone = torch.stack([padded(t) for o in texts for t in o])
    places = torch.cat([p + 2**40*torch.arange(len(o)) for p,o in zip(PLACES, texts)])
    return torch.stack([padded(torch.cat(o)) for o in texts]), alone, FIRST[LENGTHS>0], places

def examples(masked=None):
    "The same as dicts for `MaskCollator`"
    rows, alone, first, places = documents()
    packed = [dict(input_ids=i, segment_a_length=a, document_lengths=n, place=p)
              for i,a,n,p in zip(rows, FIRST, LENGTHS, PLACES)]
    return packed, [dict(input_ids=i, segment_a_length=a, place=p) for i,a,p in zip(alone, first, places)]

def batches(**kw):
    "Masked: rows of documents, and documents alone"
    return [MaskedBatch.named(**MaskCollator(SPECIAL_IDS, **kw)(o)) for o in examples()]

def unpacked(x):
    "What belongs to each document, of (bs, sl, ...)"
    return [t for row,o in zip(x, LENGTHS) for t in row[:o.sum()].split(o[o>0].tolist())]

def of_alone(x): return [row[:n] for row,n in zip(x, LENGTHS[LENGTHS>0])]

# Hidden states

@bodies
@pytest.mark.parametrize('attention', ['sdpa', 'eager', 'electra_nbdev', 'electra_nbdev_sdpa'])
def test_hidden_states_are_those_of_single_documents(body, attention):
    cfg = BODIES[body]
    torch.manual_seed(0)
    net = AutoModelForMaskedLM.from_config(cfg).eval()
    net.set_attn_implementation(attention)
    for o in net.parameters(): torch.nn.init.normal_(o, std=.3) # so that what is wrong is seen
    rows, alone, first, _ = documents(cfg.pad_token_id)
    ids = SPECIAL_IDS._replace(pad=cfg.pad_token_id)
    packed, single = (mask_examples(o, a, ids, lengths=n) for o,a,n in ((rows, FIRST, LENGTHS), (alone, first, None)))
    with torch.no_grad():
        a, b = (hidden_states(net, o.input_ids, *context_of(o)) for o in (packed, single))
    for x,y in zip(unpacked(a), of_alone(b), strict=True): close(x, y)

def test_documents_that_see_each_other_would_be_noticed():
    net = AutoModelForMaskedLM.from_config(BODIES['electra']).eval()
    packed, single = batches()
    with torch.no_grad():
        a = hidden_states(net, packed.input_ids, packed.attention_mask, packed.token_type_ids)
        b = hidden_states(net, single.input_ids, single.attention_mask, single.token_type_ids)
    assert all((x-y).abs().max()>1e-3 for x,y in zip(unpacked(a), of_alone(b)))

def test_bodies_that_cannot_be_packed_are_refused():
    packed, _ = batches()
    size = dict(relative_attention=True, pos_att_type=['p2c', 'c2p'])
    net = AutoModelForMaskedLM.from_config(DebertaV2Config(**SIZE, **size))
    with pytest.raises(InputError, match="'deberta-v2' cannot read rows"):
        hidden_states(net, packed.input_ids, *context_of(packed))
    electra = AutoModelForMaskedLM.from_config(deepcopy(BODIES['electra']))
    electra.config._attn_implementation_internal = 'flex_attention'
    with pytest.raises(InputError, match="attention 'flex_attention' cannot"):
        hidden_states(electra, packed.input_ids, *context_of(packed))

# Masks and samples

STARTS = torch.rand(V, generator=torch.Generator().manual_seed(1))<.6

@pytest.mark.parametrize('how', [dict(), dict(mask_prob=.4), dict(seed=3, word_starts=STARTS), dict(mask_prob=.02)])
def test_masks_and_samples_are_those_of_single_documents(how):
    packed, single = batches(**how)
    for a,b in zip(unpacked(packed.masked_ids), of_alone(single.masked_ids), strict=True): assert torch.equal(a, b)
    def draws(mb): return [o[w>0] for o,w in zip(torch.stack([mb.targets, mb.u], -1), mb.weights)]
    assert torch.equal(torch.cat(draws(packed)), torch.cat(draws(single)))
    n = [o.weights.sum() for o in (packed, single)]
    assert n[0]==n[1]>=5
    where = packed.documents.gather(1, packed.positions)[packed.weights>0]
    assert (where>0).all() and packed.positions[packed.weights==0].eq(0).all()

def test_a_row_of_one_document_keeps_its_masks():
    "Those of an example at the same place of the stream"
    _, (_, *single) = examples()
    one = single[0] | dict(place=5)
    packed = one | dict(segment_a_length=one['segment_a_length'][None], document_lengths=tensor([12]))
    a, b = (MaskCollator(SPECIAL_IDS)([o]) for o in (packed, one))
    assert torch.equal(a['masked_ids'], b['masked_ids']) and torch.equal(a['token_type_ids'], b['token_type_ids'])

@pytest.mark.parametrize('prob', [.02, .15, .25, .3, .5, .9])
@pytest.mark.parametrize('n', [1, 3, 7, 13])
def test_the_width_holds_all_draws(prob, n):
    "Documents of every length, so many that rows are full"
    rng = torch.Generator().manual_seed(n)
    cuts = [sorted((torch.randperm(40//3-1, generator=rng)[:n-1]+1).mul(3).tolist()) for _ in range(50)]
    lengths = tensor([[b-a for a,b in zip([0, *o], [*o, 40])] for o in cuts])
    ids = torch.randint(5, V, (50, 40), generator=rng)
    for row,o in zip(ids, lengths):
        row[o.cumsum(0)-1], row[o.cumsum(0)-o] = 3, 2
    mb = mask_examples(ids, lengths, SPECIAL_IDS, prob, lengths=lengths)
    most = max(1, int((prob+.005)*40))
    due = (lengths*prob).round().clamp(1, most).minimum(lengths-2).sum(1)
    assert torch.equal(mb.weights.sum(1), due.float())
    assert mb.weights.shape[1]<=40 and all(len({*p[w>0].tolist()})==w.sum() for p,w in zip(mb.positions, mb.weights))

def test_draws_with_replacement_are_refused():
    with pytest.raises(InputError, match="duplicates is 'official'"): batches(duplicates='official')

# Losses and gradients

def networks(body='electra'):
    torch.manual_seed(0)
    cfg = deepcopy(BODIES[body])
    gen = AutoModelForMaskedLM.from_config(generator_config(cfg, width=.5, depth=1/3))
    cfg.num_labels = 1
    return gen, AutoModelForTokenClassification.from_config(cfg)

def towers(): return TwoTowers(BODIES['electra']), networks()[1]

OBJECTIVES = {
    'ELECTRA': lambda: ReplacedTokenDetection.of(*networks()),
    'BERT body': lambda: ReplacedTokenDetection.of(*networks('bert')),
    'ModernBERT body': lambda: ReplacedTokenDetection.of(*networks('modernbert')),
    'uniform': lambda: ReplacedTokenDetection.of(None, networks()[1]),
    'masked language model': lambda: MaskedLanguageModel.of(networks()[0]),
    'unigram noise': lambda: ReplacedTokenDetection.of(*networks(), unigram_noise=.5, token_counts=torch.ones(V)),
    'ELECTRA-TT': lambda: ReplacedTokenDetection.of(*towers()),
    'Electric': lambda: NoiseContrastiveEstimation.of(*towers()),
    'residual energies': lambda: NoiseContrastiveEstimation.of(*towers(), residual_energies=True),
    'fast': lambda: with_packed_dropout(ReplacedTokenDetection.of(*networks())),
    'unread': lambda: with_unread_masks(ReplacedTokenDetection.of(*networks()))}

@pytest.mark.parametrize('name', OBJECTIVES)
def test_loss_and_gradients_are_those_of_single_documents(name):
    model, found = OBJECTIVES[name]().train(), []
    for mb in batches():
        model.zero_grad()
        out = model(*mb)
        out.loss.backward()
        grads = {n: p.grad.clone() for n,p in model.named_parameters() if p.grad is not None}
        found.append((out, grads))
    (a, grads), (b, others) = found
    assert {k: float(v) for k,v in a.counts.items()}=={k: float(v) for k,v in b.counts.items()}
    close(a.loss, b.loss)
    assert grads.keys()==others.keys() and any(o.abs().max()>1e-3 for o in grads.values())
    for n,g in grads.items(): torch.testing.assert_close(g, others[n], atol=2e-4, rtol=1e-3, msg=n)

def test_official_towers_are_refused():
    model = ReplacedTokenDetection.of(TwoTowers(BODIES['electra'], 'official'), networks()[1])
    with pytest.raises(InputError, match="official leaks cannot read rows"): model(*batches()[0])

def test_an_objective_whose_step_ignores_documents_is_refused():
    class Own(ReplacedTokenDetection):
        def step(self, mb): raise AssertionError
    class Heir(ReplacedTokenDetection): pass
    assert Heir.packed and not Own.packed
    with pytest.raises(InputError, match="Own does not say that documents may share a row"):
        Own.of(*networks())(*batches()[0])
