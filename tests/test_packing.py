"Documents that share a row: hidden states, masks, losses and gradients are those of documents that stand alone"
import json, shutil
from copy import deepcopy

import numpy as np
import pytest
import torch
from fastai.callback.core import Callback
from fastai.torch_core import no_random
from torch import tensor
from torch.utils.data import DataLoader
from transformers import (AutoModelForMaskedLM, AutoModelForTokenClassification, BertConfig, CamembertConfig,
                          DebertaV2Config, ElectraConfig, ModernBertConfig, RobertaConfig, XLMRobertaConfig)

import electra_nbdev.data.examples as data
from electra_nbdev.data.batches import LengthSchedule, NumberedExamples
from electra_nbdev.data.examples import ExampleTasks, build_examples, fit_rows, load_examples, packed_padding
from electra_nbdev.data.tokenizer import train_vocab
from electra_nbdev.engine.fast import with_packed_dropout, with_unread_masks
from electra_nbdev.engine.files import InputError
from electra_nbdev.engine.ranks import KeyedRandom
from electra_nbdev.method.electra import MaskedLanguageModel, ReplacedTokenDetection
from electra_nbdev.method.electric import NoiseContrastiveEstimation
from electra_nbdev.method.towers import TwoTowers
from electra_nbdev.method.generator import context_of, generator_config, hidden_states
from electra_nbdev.method.masking import MaskCollator, MaskedBatch, SpecialTokenIds, mask_examples
from electra_nbdev.pretrain import electra_learner, match_examples, preset
from electra_nbdev.pretraining.learner import pretrain_dls
from electra_nbdev.pretraining.request import PretrainRequest
from fake_device import GPU, learner as fake_learner, pretended_gpu, put, train
from terminal import files_of, typed

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

def examples():
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

def towers(body='electra'):
    cfg = deepcopy(BODIES[body])
    if body=='modernbert': cfg.layer_types = ['full_attention']*3 # towers have no windows
    return TwoTowers(cfg), networks(body)[1]

OBJECTIVES = {
    'ELECTRA': lambda: ReplacedTokenDetection.of(*networks()),
    'BERT body': lambda: ReplacedTokenDetection.of(*networks('bert')),
    'ModernBERT body': lambda: ReplacedTokenDetection.of(*networks('modernbert')),
    'uniform': lambda: ReplacedTokenDetection.of(None, networks()[1]),
    'masked language model': lambda: MaskedLanguageModel.of(networks()[0]),
    'unigram noise': lambda: ReplacedTokenDetection.of(*networks(), unigram_noise=.5, token_counts=torch.ones(V)),
    'ELECTRA-TT': lambda: ReplacedTokenDetection.of(*towers()),
    'Electric': lambda: NoiseContrastiveEstimation.of(*towers()),
    'Electric, ModernBERT body': lambda: NoiseContrastiveEstimation.of(*towers('modernbert')),
    'Electric, RoBERTa body': lambda: NoiseContrastiveEstimation.of(*towers('roberta'), tie='none'),
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

# Rows on disk

def text(n=400):
    "Documents of one to four lines of two to eight words"
    rng, words = np.random.default_rng(0), 'the king saw a ship on the sea and went home'.split()
    def line(): return ' '.join(rng.choice(words, rng.integers(2, 9)))
    return '\n\n'.join('\n'.join(line() for _ in range(rng.integers(1, 5))) for _ in range(n))

@pytest.fixture(scope='module')
def home(tmp_path_factory):
    "Three files of text, a vocabulary, and the same examples alone and packed, 32 tokens wide"
    d = tmp_path_factory.mktemp('packing')
    (d/'text').mkdir()
    for i,part in enumerate(text().split('\n\n')[j::3] for j in range(3)):
        (d/f'text/{i}.txt').write_text('\n\n'.join(part))
    train_vocab(d/'text', d/'vocab', 100)
    for name in ('alone', 'packed'): build(d, name, pack=name=='packed')
    return d

def build(home, name, **kw):
    return build_examples(home/'text', home/'vocab', home/name, max_length=32, held_out=.2, **kw)

def one_by_one(examples):
    "Token ids and lengths of segment A of all documents"
    ids, a, *lengths = examples[:]
    if not lengths: return [(tuple(o[o!=examples.pad].tolist()), int(n)) for o,n in zip(ids, a)]
    parts = [(o[:n.sum()].split(n[n>0].tolist()), b) for o,b,n in zip(ids, a, *lengths)]
    return [(tuple(t.tolist()), int(n)) for ts,b in parts for t,n in zip(ts, b)]

@pytest.mark.parametrize('part', ['.', 'held_out'])
def test_packed_rows_hold_the_same_examples(home, part):
    alone, packed = (load_examples(home/o/part) for o in ('alone', 'packed'))
    assert sorted(one_by_one(alone))==sorted(one_by_one(packed))
    assert packed.counts==alone.counts | dict(rows=len(packed)) and len(packed)<.8*len(alone)
    assert packed.padding<.05<.2<alone.padding and (packed.token_counts()==alone.token_counts()).all()
    left = packed_padding(alone.lengths(), 32)
    assert packed.padding==pytest.approx(left)==pytest.approx(1-packed.lengths().mean()/32)
    assert packed.recipe==alone.recipe | dict(pack=True)
    assert sorted(packed.decode(0))!=[''] and len(packed.decode(0))==2*(packed[0][2]>0).sum()

@pytest.mark.parametrize('of', ['alone', 'packed'])
def test_a_pass_is_all_rows_once(home, tmp_path, of):
    asked = PretrainRequest(home/of, tmp_path/'run', 'tiny', dict(train_batch_size=4), passes=2)
    assert asked.settle().hp.num_train_steps==2*(len(load_examples(home/of))//4)

def test_rows_are_filled_within_windows(home, monkeypatch):
    monkeypatch.setattr(data, '_WINDOW', 50)
    found = load_examples(build(home, 'windows', pack=True))
    assert sorted(one_by_one(found))==sorted(one_by_one(load_examples(home/'packed')))
    assert len(load_examples(home/'packed'))<len(found)<1.1*len(load_examples(home/'packed'))

def test_best_fit_keeps_within_rows_and_loses_nothing():
    lengths = np.random.default_rng(0).integers(3, 129, 3000)
    rows = fit_rows(lengths, 128)
    assert sorted(i for o in rows for i in o)==[*range(3000)] and all(lengths[o].sum()<=128 for o in rows)
    assert len(rows)<=1.03*lengths.sum()/128

def test_a_packed_build_does_not_depend_on_processes_or_tasks(home):
    assert files_of(home/'packed')==files_of(build(home, 'two', pack=True, num_proc=2))
    tasks = ExampleTasks(home/'text', home/'vocab', home/'tasks', 32, held_out=.2, pack=True)
    for i in range(2): tasks.make_shards(rank=i, world_size=2)
    tasks.make_folder()
    assert files_of(home/'packed')==files_of(home/'tasks')

class Killed(Exception): pass

@pytest.mark.parametrize('at', [0, 3, 5])
def test_a_packed_build_that_was_killed_continues(home, monkeypatch, at):
    "In a shard; when rows are packed; when the held-out rows are packed"
    write, n = data._write_tables, iter(range(100))
    def killed(*args):
        if next(n)==2+at: raise Killed
        return write(*args)
    monkeypatch.setattr(data, '_write_tables', killed)
    with pytest.raises(Killed): build(home, f'killed{at}', pack=True)
    assert not (home/f'killed{at}').exists()
    written = []
    monkeypatch.setattr(data, '_write_tables', lambda path, *args: written.append(path.name) or write(path, *args))
    assert files_of(home/'packed')==files_of(build(home, f'killed{at}', pack=True))
    assert len(written)==8-min(6, 2+at)

def test_packed_and_single_examples_are_not_taken_for_each_other(home):
    with pytest.raises(InputError, match='pack is True there and False here'): build(home, 'packed')
    with pytest.raises(InputError, match='pack is False there and True here'): build(home, 'alone', pack=True)

def test_older_examples_are_not_packed(home):
    shutil.copytree(home/'alone', home/'older')
    facts = json.loads((home/'older/data.json').read_text())
    del facts['recipe']['pack']
    (home/'older/data.json').write_text(json.dumps(facts))
    build(home, 'older')
    assert not load_examples(home/'older').packed

def test_damaged_packed_rows_are_named(home):
    from datasets import Dataset
    for o in ('source', 'damaged'): shutil.copytree(home/'packed', home/o)
    rows = Dataset.load_from_disk(str(home/'source')) # where `map` keeps a cache
    def wrong(o, i): return dict(document_lengths=[1]*len(o['document_lengths'])) if i==3 else o
    rows.map(wrong, with_indices=True).cast(rows.features).save_to_disk(str(home/'damaged'))
    with pytest.raises(InputError, match='example 3 in .* is damaged'): load_examples(home/'damaged')[:]

# In every loop

DIMS = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, embedding_size=16, intermediate_size=64,
            max_position_embeddings=32, hidden_dropout_prob=0., attention_probs_dropout_prob=0.)

def recipe(examples, **kw):
    hp = preset('tiny', **dict(train_batch_size=16, eval_batch_size=16, num_train_steps=40, num_warmup_steps=2,
                               save_checkpoints_steps=20, iterations_per_loop=20, num_eval_steps=2,
                               untied_generator=True, model_hparam_overrides=DIMS) | kw)
    return match_examples(hp, examples, kw)

def learner(home, seed=0, **kw):
    train, held = load_examples(home/'packed'), load_examples(home/'packed/held_out')
    hp = recipe(train, **kw)
    with no_random(seed): return electra_learner(pretrain_dls(train, held, hp, 'cpu'), hp)

def test_a_learner_learns_from_packed_rows(home, capsys):
    learn = learner(home)
    assert learn.hp.length_schedule==() and 'length_schedule ()' in capsys.readouterr().out
    with learn.no_bar(), learn.no_logging():
        before = learn.validate()[0]
        learn.fit_steps(40)
        after = learn.validate()[0]
        learn.dls.train.show_batch(max_n=2); learn.show_results(max_n=2)
        logits, (labels, _) = learn.get_preds()
    assert after<.9*before and len(logits)==len(labels)==len(learn.dls.valid.dataset)

@pytest.mark.parametrize('how', [dict(electra_objective=False, electric_objective=True, residual_energies=True),
                                 dict(electra_objective=False, unigram_noise=0.)], ids=['Electric', 'MLM'])
def test_other_objectives_train_and_are_evaluated(home, how):
    learn = learner(home, num_train_steps=3, save_checkpoints_steps=3, num_warmup_steps=1, **how)
    with learn.no_bar(), learn.no_logging(): learn.fit_steps(3)
    assert learn.n_updates==3 and all(np.isfinite(v) for k,v in learn.held_out.items() if k.endswith('loss'))

def test_parts_of_a_batch_are_one_update(home):
    found = []
    for parts in (1, 2):
        learn = learner(home, grad_accumulation=parts, unigram_noise=0.)
        with learn.no_bar(), learn.no_logging(): learn.fit_steps(2)
        found.append(torch.cat([o.detach().flatten() for o in learn.model.parameters()]))
    torch.testing.assert_close(*found, atol=1e-4, rtol=1e-3)

def test_other_loops_mask_as_the_learner(home):
    learn, seen = learner(home, whole_words=True), []
    rows = NumberedExamples(learn.dls.train.dataset)
    collate = MaskCollator(learn.mask_tokens.special_ids, learn.hp.mask_prob, word_starts=learn.mask_tokens.word_starts)
    order = learn.dls.train.order(0)
    learn.dls.train.n_batches = 2
    class See(Callback):
        order = 50
        def before_batch(self):
            if self.training: seen.append(self.masked)
    with learn.no_bar(), learn.no_logging(): learn.fit_steps(2, cbs=See())
    for i,mb in enumerate(seen):
        batch = collate([rows[int(n)] | dict(place=16*i+j) for j,n in enumerate(order[16*i:16*i+16])])
        assert batch.keys()=={k for k,v in mb._asdict().items() if v is not None}
        assert all(torch.equal(v, batch[k]) for k,v in mb._asdict().items() if v is not None)
    assert len(seen)==2

def test_a_plain_loop_and_the_trainer_read_packed_rows(home, tmp_path):
    from transformers import Trainer, TrainingArguments
    learn = learner(home)
    rows = NumberedExamples(learn.dls.train.dataset, 64)
    collate = MaskCollator(learn.mask_tokens.special_ids)
    plain, model = [], deepcopy(learn.model)
    opt = torch.optim.SGD(model.parameters(), 1e-3)
    for batch in DataLoader(rows, 16, collate_fn=collate):
        loss = model.train()(**batch).loss
        loss.backward(); opt.step(); opt.zero_grad()
        plain.append(loss.item())
    class InOrder(Trainer):
        def _get_train_sampler(self, *_): return torch.utils.data.SequentialSampler(self.train_dataset)
    args = TrainingArguments(tmp_path, per_device_train_batch_size=16, num_train_epochs=1, logging_steps=1,
                             use_cpu=True, max_grad_norm=0., lr_scheduler_type='constant', optim='sgd',
                             learning_rate=1e-3, report_to='none', save_strategy='no',
                             remove_unused_columns=False, disable_tqdm=True)
    trainer = InOrder(learn.model, args, train_dataset=rows, data_collator=collate)
    trainer.train()
    found = [o['loss'] for o in trainer.state.log_history if 'loss' in o]
    assert np.allclose(found, plain, rtol=1e-3) and len(found)==4

# What packed rows cannot have

def test_packed_rows_are_not_split(home):
    ids, a, n = load_examples(home/'packed')[:2]
    split = LengthSchedule(((8, 1.),), 1)
    split.learn = type('L', (), dict(xb=(ids, a, n), n_updates=0, training=True))
    with pytest.raises(InputError, match='cannot be split'): split.before_batch()

# By command

RECIPE = dict(train_batch_size=8, eval_batch_size=8, iterations_per_loop=2, num_eval_steps=4, save_checkpoints_steps=4,
              untied_generator=False, unigram_noise=.5)

def test_the_commands_pack_train_and_continue_bit_exactly(home):
    (home/'recipe.json').write_text(json.dumps(RECIPE))
    build = 'electra_data --corpus text --vocab vocab --max-length 32 --held-out .2 --out'
    said, packed = typed(f'{build} single', home), typed(f'{build} shared --pack', home)
    told = f"{load_examples(home/'alone').padding:.1%} of the rows is padding"
    left = f"{load_examples(home/'packed').padding:.1%}"
    assert f'{told}; --pack, with another --out, leaves {left}\n' in said.out and said.code==0, said
    assert f'{left} of the rows is padding\n' in packed.out and ' rows, ' in packed.out, packed
    assert files_of(home/'shared')==files_of(home/'packed')
    line = 'electra_pretrain --data shared --hparams recipe.json --preset tiny --steps 8 --device cpu --out'
    said = typed(f'{line} whole', home)
    assert said.code==0 and 'length_schedule ()' in said.out, said
    shutil.copytree(home/'whole', home/'again')
    for o in ('discriminator', 'generator', 'checkpoints/step-00000008'): shutil.rmtree(home/'again'/o)
    said = typed(f'{line} again', home)
    assert said.code==0 and 'Continuing at step 4 of 8' in said.out, said
    whole, again = (files_of(home/o/'discriminator') for o in ('whole', 'again'))
    assert whole['model.safetensors']==again['model.safetensors']
    said = typed('electra_evaluate --run again --data shared/held_out --device cpu', home)
    assert said.code==0 and 'disc_auc' in said.out, said

# On a GPU

@pytest.mark.parametrize('variant', ['separate', 'ELECTRA-TT', 'Electric', 'another body'])
def test_packed_rows_do_not_stop_the_gpu(variant):
    learn = fake_learner(variant, 'bf16')
    learn.mask_tokens.word_starts = torch.ones(learn.hp.vocab_size, dtype=torch.bool)
    def batch():
        sizes = (learn.hp.max_seq_length,), (3,), (3,) # of token ids, lengths of segments, of documents
        return tuple(torch.empty(4, *o, dtype=torch.long, device=GPU) for o in sizes)
    with pretended_gpu(copies=2) as watch: # the usual norm, where words begin
        put(learn, batches=[batch(), batch()]).dls.n_inp = 3
        train(learn)
    assert learn.n_updates==2 and torch.float64 not in watch.dtypes()
    wide = {o[1] for o in watch.on_gpu() if o[1][-2:]==(learn.hp.max_seq_length,)*2}
    assert (4, 1, *[learn.hp.max_seq_length]*2) in wide

@pytest.mark.parametrize('name', ['ELECTRA', 'ModernBERT body'])
def test_a_packed_step_is_one_graph(name):
    model, (rows, *_) = OBJECTIVES[name]().eval(), documents()
    def step(ids, a, n, places):
        mb = mask_examples(ids, a, SPECIAL_IDS, rand=KeyedRandom(0, 0, first=places), lengths=n)
        return model(*mb).loss
    given = rows, FIRST, LENGTHS, PLACES
    compiled = torch.compile(step, backend='eager', fullgraph=True)
    with torch.no_grad(): close(compiled(*given), step(*given))
