"Mistakes as people make them: the table of a vocabulary, rows with mistakes, the objective, and the measure of its use"
import json
from itertools import product

import numpy as np
import pytest
import torch

import ged_noise
import human_noise as human
from electra_nbdev.cli import electra_evaluate, electra_pretrain
from electra_nbdev.data.examples import load_examples
from electra_nbdev.data.tokenizer import wordpiece
from electra_nbdev.engine.files import InputError
from electra_nbdev.finetuning.ged import read_ged
from electra_nbdev.finetuning.tagging import Tagged
from electra_nbdev.method.masking import MaskedBatch
from electra_nbdev.networks.build import build_networks
from electra_nbdev.networks.recipe import preset
from electra_nbdev.pretrain import run_pretraining
from electra_nbdev.pretraining.runs import load_objective
from learners import StopAt, same_weights
from make import NARROW, NO_DROPOUT, SMALL, batch, made

STEMS, ENDS = 'walk talk jump limp glimmer'.split(), ('', 's', 'ed', 'ing')
VERBS = [o+e for o,e in product(STEMS, ENDS)]
WORDS = [*VERBS, *'the a my his house mouse horse garden Garden of in on at'.split(), '.', ',']
LETTERS = [*'abcdefghijklmnopqrstuvwxyzGH']
VOCAB = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', *WORDS, *(o for o in LETTERS if o not in WORDS),
         *(f'##{o}' for o in (*LETTERS, 'ed', 'ing', 'er'))]
ID = {o: i for i,o in enumerate(VOCAB)}

@pytest.fixture(scope='module')
def tok(): return wordpiece(ID, lower_case=False)

@pytest.fixture(scope='module')
def rows():
    "Sentences in which articles and prepositions have the same neighbours"
    rng = np.random.default_rng(0)
    def some(*o): return rng.choice(o)
    def sentence():
        art, noun = 'the a my his'.split(), 'house mouse horse garden Garden'.split()
        return [some(*art), some(*noun), some(*VERBS), some('of', 'in', 'on', 'at'), some(*art), some(*noun), '.']
    found = [['[CLS]', *sentence(), *sentence(), 'l', '##im', '##er', '[SEP]', '[PAD]'] for _ in range(3000)]
    return torch.tensor([[ID.get(w, ID['##m']) for w in o] for o in found])

@pytest.fixture(scope='module')
def table(tok, rows): return human.build_table(tok, rows)

def ways(table, word, kind):
    "What may come of a word"
    probs = torch.diff(table.upto[ID[word]], prepend=torch.zeros(1))
    found = zip(human.KINDS, table.pieces[ID[word]].tolist(), probs)
    return {' '.join(VOCAB[i] for i in o if i>=0) for k,o,p in found if k==kind and p>0}

def test_what_may_come_of_a_word_is_plausible(table):
    assert {'walked', 'walking', 'walks'}<=ways(table, 'walk', 'inflected') and not ways(table, 'house', 'inflected')
    assert ways(table, '##ed', 'inflected')>={'', '##ing', '##s'} # the ending may vanish
    assert ways(table, 'mouse', 'similar')=={'house'} and 'talk' in ways(table, 'walk', 'similar')
    assert ways(table, 'the', 'function')>={'a', 'my', 'his'} and ways(table, 'in', 'function')>={'of', 'on', 'at'}
    best = table.pieces[ID['in'], human.KINDS.index('function'), 0]
    assert VOCAB[best] in ('of', 'on', 'at') # which stand where it stands
    assert ways(table, 'Garden', 'case')=={'garden'} and ways(table, 'garden', 'case')=={'Garden'}
    assert ways(table, 'the', 'doubled')=={'the the'} and ways(table, '.', 'dropped')=={''}
    assert not table.upto[:5].any() # special tokens

def test_what_is_misspelt_is_no_word_but_nearly_one(table):
    for word in ('house', 'walk'):
        found = {o.replace(' ##', '') for o in ways(table, word, 'misspelt')}
        assert len(found)>5 and not found & {*VOCAB}
        assert all(human.near(word, o, 1) and o[0]==word[0] for o in found), found

@pytest.mark.parametrize('a,b,apart', [('form', 'from', 1), ('stop', 'stopp', 1), ('house', 'mouse', 1),
                                       ('walk', 'tall', 2), ('their', 'there', 2), ('receive', 'recieve', 1)])
def test_letters_apart(a, b, apart):
    assert human.near(a, b, apart) and human.near(b, a, apart) and not human.near(a, b, apart-1)

def mistakes(table, text, width=12, **events):
    "Words of a row with mistakes of the given kinds, {place: (kind, number)}, a * on what is wrong"
    words = text.split()
    ids = torch.tensor([[ID[o] for o in words] + [0]*(width-len(words))])
    u = torch.full(ids.shape, .9999)
    for place,(kind,n) in events.items():
        i = int(place[1:])
        slot, upto = human.KINDS.index(kind)+n, table.upto[ids[0,i]]
        u[0,i] = (upto[slot]+(upto[slot-1] if slot else 0))/2
    special, segments = torch.tensor([ID['[PAD]'], ID['[CLS]'], ID['[SEP]']]), torch.zeros_like(ids)
    out = human.apply_noise(table, ids, ~torch.isin(ids, special), ids!=0, segments, u)
    assert (out.input_ids[~out.real]==0).all() and not out.wrong[~out.real].any()
    return ' '.join(VOCAB[i]+'*'*m for i,m,real in zip(*(o[0].tolist() for o in out[:3])) if real)

TEXT = '[CLS] the house walk ##ed in my garden . [SEP]'

@pytest.mark.parametrize('events,want', [
    ({}, TEXT),
    (dict(_1=('dropped', 0)), '[CLS] house* walk ##ed in my garden . [SEP]'), # what comes after it is wrong
    (dict(_8=('dropped', 0)), TEXT), # nothing after it could be marked
    (dict(_2=('doubled', 0)), TEXT), # nobody says half a word twice: `house` is one, `walk ##ed` comes next
    (dict(_6=('doubled', 0)), '[CLS] the house walk ##ed in my my* garden . [SEP]'),
    (dict(_1=('dropped', 0), _6=('doubled', 0)), '[CLS] house* walk ##ed in my my* garden . [SEP]'),
    (dict(_5=('moved', 0)), '[CLS] the house walk ##ed my* in* garden . [SEP]'),
    (dict(_5=('moved', 1)), '[CLS] the house walk ##ed my* garden in* . [SEP]'),
    (dict(_7=('moved', 1)), TEXT), # it would pass the end
    (dict(_5=('moved', 1), _6=('doubled', 0)), '[CLS] the house walk ##ed my* garden in* . [SEP]'), # one at a time
    (dict(_3=('doubled', 0)), TEXT)]) # a piece that begins a word is none
def test_rows_with_mistakes(table, events, want):
    if events==dict(_2=('doubled', 0)): want = want.replace('house', 'house house*')
    assert mistakes(table, TEXT, **events)==want

def test_an_ending_that_vanishes_or_changes_makes_its_word_wrong(table):
    n = [o.tolist() for o in table.pieces[ID['##ed']]][human.KINDS.index('inflected'):].index([-1]*human.PIECES)
    assert mistakes(table, TEXT, _4=('inflected', n))==TEXT.replace('walk ##ed', 'walk*')
    other = next(i for i in range(8) if i!=n)
    assert mistakes(table, TEXT, _4=('inflected', other)).split()[3:5]!=['walk', '##ed']

def test_a_row_that_gets_too_long_keeps_its_end(table):
    assert mistakes(table, TEXT, width=10, _6=('doubled', 0))=='[CLS] the house walk ##ed in my my* garden [SEP]'

def noisy(table, ids, u):
    special = torch.tensor([ID[o] for o in ('[PAD]', '[CLS]', '[SEP]')])
    return human.apply_noise(table, ids, ~torch.isin(ids, special), ids!=0, torch.zeros_like(ids), u)

def test_special_tokens_stay(table, rows):
    torch.manual_seed(0)
    out = noisy(table, rows, torch.rand(rows.shape)/2)
    special = out.input_ids<5
    assert not out.wrong[special].any() and (out.input_ids[:,0]==ID['[CLS]']).all()
    assert ((out.input_ids==ID['[SEP]']).sum(1)==1).all()
    last = out.real.sum(1)-1
    assert (out.input_ids.gather(1, last[:,None])==ID['[SEP]']).all() # and nothing but padding after it
    assert .2<(out.input_ids!=rows).float().mean()

@pytest.mark.parametrize('kind,each', [('similar', 1), ('function', 1), ('doubled', 1), ('inserted', 1), ('dropped', 1),
                                       ('moved', 2)])
def test_rates_are_as_asked(tok, rows, kind, each):
    "Marks of a kind alone; some of what is left out has nothing after it, and what moves may not pass the end"
    rates = {k: .03*(k==kind) for k in human.RATES}
    torch.manual_seed(1)
    wide = torch.cat([rows, torch.zeros(len(rows), 8, dtype=rows.dtype)], 1) # with room
    marks = int(noisy(human.build_table(tok, rows, rates), wide, torch.rand(wide.shape)).wrong.sum())/each
    n = int((rows>=5).sum())
    want, spread = .03*n, (.03*n)**.5
    lost = dict(dropped=.02, moved=.35).get(kind, 0)
    assert want*(1-lost)-4*spread<marks<want+4*spread

def model(share=1., **hparams):
    "In training, with an invented table: ids of 10 and above may become their neighbours"
    own = type('Human', (human.HumanNoise,), dict(arguments=dict(human_noise=share)))
    net = build_networks(preset('tiny', **SMALL | hparams), own).train()
    table = human.empty_table(60)
    table.pieces[10:59,0,0] = torch.arange(11, 60)
    table.upto[10:59] = .2
    net.set_table(table)
    return net

def test_a_row_has_the_same_mistakes_wherever_it_is_computed():
    net = model()
    whole = net(**batch())
    assert torch.equal(net(**batch()).labels, whole.labels) and (whole.labels==1).sum()>3
    part = {k: v[2:] for k,v in batch().items()}
    assert torch.equal(net(**part).labels, whole.labels[2:])
    assert not torch.equal(net(**batch(place=4)).labels, whole.labels) # another pass has others

def test_wrong_are_the_tokens_that_have_changed():
    seen, net = {}, model()
    net.token_logits = lambda ids, *_: seen.update(ids=ids) or torch.zeros(ids.shape)
    b = batch()
    labels = net(**b).labels
    assert torch.equal(labels==1, seen['ids']!=b['input_ids'])
    assert torch.equal(labels==-100, b['input_ids']==0) and (seen['ids'][labels==1]>10).all()

def test_a_share_of_the_examples_has_the_samples_of_the_generator():
    many = {k: v.repeat(64, *[1]*(v.ndim-1)) for k,v in batch().items()}
    many['u'] = torch.rand(many['u'].shape, generator=torch.Generator().manual_seed(0))
    mine = model(.25).noisy(MaskedBatch.named(**many))[0]
    assert abs(mine.float().mean()-.25)<4*(.25*.75/256)**.5
    whole, none = model(1.)(**many), model(0.)(**many)
    plain = build_networks(preset('tiny', **SMALL)).train()
    assert torch.equal(none.labels, plain(**many).labels) and not torch.equal(none.labels, whole.labels)

def test_it_compiles_as_one_graph():
    net, mb = model(.5, model_hparam_overrides=NARROW | NO_DROPOUT), batch()
    compiled = torch.compile(net, backend='aot_eager', fullgraph=True)
    torch.testing.assert_close(compiled(**mb).loss, net(**mb).loss, rtol=1e-5, atol=1e-5)

def test_without_a_table_and_with_strange_rates_it_says_so(made):
    net = build_networks(preset('tiny', **SMALL), human.HumanNoise).train()
    with pytest.raises(InputError, match='needs its table'): net(**batch())
    net.config.arguments['rates'] = dict(typos=.1)
    with pytest.raises(InputError, match='`rates` has typos; the kinds are similar'):
        net.set_examples(load_examples(made[0]/'examples'))

def test_a_run_goes_on_as_if_it_had_not_stopped(made, tmp_path):
    d, hp = made
    objective = load_objective(f'{human.__file__}:HalfHumanNoise')
    def run(out, cbs=()): return run_pretraining(d/'examples', out, hp, device='cpu', cbs=cbs, objective=objective)
    with pytest.raises(KeyboardInterrupt): run(tmp_path/'cut', [StopAt(6, at_once=True)])
    human.table_of.cache_clear()
    same_weights(run(tmp_path/'cut').model, run(tmp_path/'whole').model)

def test_by_command(made, tmp_path):
    d, hp = made
    few = json.dumps({k: getattr(hp, k) for k in ('num_warmup_steps', 'save_checkpoints_steps', 'num_eval_steps')}
                     | dict(uniform_generator=True))
    how = dict(objective=f'{human.__file__}:HumanNoise', device='cpu')
    learn = electra_pretrain(data=d/'examples', preset='tiny', steps=8, hparams=few, out=tmp_path/'run', **how)
    assert .02<learn.held_out['replaced']<.3 and learn.model.generator is None
    assert 'below_unigram' not in learn.held_out and 'gen_loss' in learn.held_out # there is no generator to judge
    again = electra_evaluate(run=tmp_path/'run', data=d/'examples', **how)
    assert again['disc_auc']==pytest.approx(learn.held_out['disc_auc'], abs=1e-3)

# The benchmark

def test_words_of_marked_sentences_are_scored_in_their_order(tmp_path, tok):
    (tmp_path/'dev.tsv').write_text('the\tc\nhouse\ti\n\n'+'walked\tc\n'*200+'zq\ti\n\n')
    sentences = read_ged(tmp_path/'dev.tsv')
    class Net(torch.nn.Module):
        def forward(self, ids, attention_mask):
            assert ids.shape[1]<=128
            return type('Out', (), dict(logits=torch.logit(ids/1000)))
    found = ged_noise.probabilities(Net(), tok, sentences)
    want = [[ID[p]/1000 for p in o] for o in (['the'], ['house'], *[['walked']]*200, ['z', '##q'])]
    assert len(found)==len(want) and all(np.allclose(a, b, atol=1e-5) for a,b in zip(found, want))

def test_detection_chooses_on_even_sentences_alone():
    sentences = [Tagged((0, 0), ('a', 'b'), tags) for tags in (('i', 'c'), ('c', 'i'))]*9
    found = ged_noise.detection([[.9, .1], [.2, .3]]*18, sentences)
    assert found['even']['f0.5']==100 and found['odd']['f0.5']==0 and found['way']=='first'

def test_a_word_is_wrong_if_any_of_its_pieces_is():
    assert ged_noise.WAYS['any']([.5, .5])==.75 and ged_noise.WAYS['any']([.2])==pytest.approx(.2)
