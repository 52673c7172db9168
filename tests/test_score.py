"Scoring with a discriminator: the command as typed, any text, any body, folders without a model, and `make demo`"
import json, math, os, shutil, subprocess, sys, warnings
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings, strategies as st
from transformers import AutoConfig, AutoModelForMaskedLM, AutoModelForTokenClassification
from transformers import ElectraConfig, ElectraForPreTraining, PreTrainedTokenizerFast

import electra_nbdev.engine.models as models_of_the_package
import electra_nbdev.scoring.score as score
from electra_nbdev.scoring.likelihood import load_likelihood, pseudo_log_likelihood
from electra_nbdev.engine.checkpoint import save_checkpoint
from electra_nbdev.engine.files import InputError
from electra_nbdev.networks.build import build_networks, save_networks
from electra_nbdev.networks.recipe import preset, save_hparams, scoring_ways
from electra_nbdev.data.tokenizer import save_tokenizer
from terminal import no_color, terminal, typed
from make import PIECES, TOY, bpe, pieces, run_folder, save_run

@pytest.fixture(scope='module')
def home(tmp_path_factory):
    "A folder with a finished run"
    d = tmp_path_factory.mktemp('user')
    run_folder(d/'run', pieces(PIECES))
    return d

@pytest.fixture(scope='module')
def scorer(home): return score.load_scorer(home/'run')

def test_colours_are_for_terminals(home):
    line = 'electra_score --model run --show "The cat\'s on the mathematics."'
    plain, forced = typed(line, home), typed(line+' --color', home)
    assert plain.code==forced.code==0 and plain.err==forced.err==''
    assert '\x1b' not in plain.out and ' %; the generator would write' in plain.out
    assert forced.out.count('\x1b[48;2;')==8 and '[' not in forced.out.replace('\x1b[', '')
    assert typed(line, home, terminal).out==forced.out
    assert typed(line, home, no_color).out==plain.out

def test_the_model_of_the_package(home, tmp_path, monkeypatch):
    "It is found by its name in the package"
    monkeypatch.setattr(models_of_the_package, 'files', lambda name: tmp_path)
    monkeypatch.chdir(home)
    with pytest.raises(InputError, match='no model `electra-baby`'): score.load_scorer()
    shutil.copytree(home/'run', tmp_path/'models/electra-baby-en')
    assert score.load_scorer().max_length==16

def test_only_a_discriminator(home, tmp_path):
    shutil.copytree(home/'run/discriminator', tmp_path/'downloaded')
    v = score.show_scores(tmp_path/'downloaded', 'The cat.')
    assert v.alternatives=={} and 'generator' not in str(v) and v.shown

def test_as_transformers_says(scorer):
    "A short text is scored as by `transformers` alone, corrected to 15 % masked; of a word's pieces the maximum counts"
    assert scorer.mask_prob==preset('tiny').mask_prob==.3
    text = 'The cat sat on the mathematics.'
    v = score.score_tokens(scorer, text)
    with torch.no_grad():
        want = scorer.discriminator(**scorer.tokenizer(text, return_tensors='pt')).logits[0, 1:-1].sigmoid()
    odds = want/(1-want) * (.15/.85)/(.3/.7)
    want = (odds/(1+odds)).tolist()
    assert v.probs==pytest.approx([*want[:5], max(want[5:7]), want[7]], abs=1e-6)

def test_scoring_loads_no_training_stack():
    "`import electra_nbdev.scoring.score` is quick: neither the trainer nor what draws and evaluates"
    code = """import sys, electra_nbdev.scoring.score
print(*(o for o in ('electra_nbdev.pretraining.learner', 'fastai', 'matplotlib', 'sklearn') if o in sys.modules))"""
    found = subprocess.run([sys.executable, '-c', code], check=True, text=True, capture_output=True).stdout.split()
    assert not found

def test_windows_of_a_book():
    "Memory grows with the tokens, not with tokens times windows"
    starts, best = score.windows(500_000, 126)
    assert len(best)==500_000 and starts[best[-1]]==500_000-126 and best==sorted(best)

TEXT = 'The cat sat on the mathematics.'
BODIES = dict(bert=lambda: pieces(PIECES), modernbert=lambda: bpe([TEXT.lower()]*9))

@pytest.fixture(scope='module', params=BODIES)
def foreign(request, tmp_path_factory):
    "A run whose networks are no ELECTRA, random, with their own tokenizer"
    run, tok = tmp_path_factory.mktemp(request.param), BODIES[request.param]()
    torch.manual_seed(0)
    sizes = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, num_labels=1)
    sizes |= dict(vocab_size=len(tok), pad_token_id=tok.pad_token_id, max_position_embeddings=64)
    config = AutoConfig.for_model(request.param, initializer_range=1., **sizes)
    nets = dict(discriminator=AutoModelForTokenClassification, generator=AutoModelForMaskedLM)
    for name,cls in nets.items():
        cls.from_config(config).save_pretrained(run/name)
        tok.save_pretrained(run/name)
    save_hparams(preset('tiny', vocab_size=len(tok), max_seq_length=32, length_schedule=()), run/'hparams.json')
    return run, tok, *(cls.from_pretrained(run/name).eval() for name,cls in nets.items())

@torch.no_grad()
def test_any_body(foreign):
    "Scores and alternatives are those that `transformers` computes, whatever the body and the tokenizer"
    run, tok, disc, gen = foreign
    v = score.Scorer.from_pretrained(run, device='cpu')(TEXT)
    assert v.words==['The', 'cat', 'sat', 'on', 'the', 'mathematics', '.'] and v.gaps==['', *[' ']*5, '', '']
    enc = tok(TEXT, add_special_tokens=False)
    ids = torch.tensor([[tok.cls_token_id, *enc['input_ids'], tok.sep_token_id]])
    probs = (disc(ids).logits[0,1:-1,0] + score.prior_step(.3)).sigmoid()
    where = [[i for i,w in enumerate(enc.word_ids()) if w==k] for k in range(7)]
    assert v.probs==pytest.approx([probs[o].max().item() for o in where], abs=1e-5)
    at = v.shown[0]
    row = [*enc['input_ids'][:where[at][0]], tok.mask_token_id, *enc['input_ids'][where[at][-1]+1:]]
    dist = gen(torch.tensor([[tok.cls_token_id, *row, tok.sep_token_id]])).logits[0, where[at][0]+1].softmax(-1)
    for word,p in v.alternatives[at]:
        named = [i for o,i in tok.get_vocab().items() if o in (word, 'Ġ'+word)]
        assert len(named) and min(abs(dist[i].item()-p) for i in named)<1e-5

@torch.no_grad()
def test_likelihoods_of_any_body(foreign):
    "A pass for each token, by the generator alone"
    run, tok, _, gen = foreign
    texts = [TEXT, 'the cat', '']
    found = [o['score'] for o in pseudo_log_likelihood(load_likelihood(run, device='cpu'), texts)]
    for text,got in zip(texts[:2], found):
        ids, want = [tok.cls_token_id, *tok(text, add_special_tokens=False)['input_ids'], tok.sep_token_id], 0.
        for t in range(1, len(ids)-1):
            hidden = torch.tensor([[*ids[:t], tok.mask_token_id, *ids[t+1:]]])
            want += gen(hidden).logits[0,t].log_softmax(-1)[ids[t]].item()
        assert got==pytest.approx(want, abs=1e-3)
    assert found[2] is None

def test_a_classifier_of_more_labels_is_refused(foreign, tmp_path):
    _, tok, disc, _ = foreign
    config = type(disc.config)(**disc.config.to_dict() | dict(num_labels=3))
    type(disc)(config).save_pretrained(tmp_path)
    tok.save_pretrained(tmp_path)
    with pytest.raises(InputError, match='has 3 labels; a discriminator has one'): score.load_scorer(tmp_path)

def test_special_tokens_are_needed(tmp_path):
    tok = pieces(PIECES)
    config = ElectraConfig(vocab_size=len(tok), hidden_size=8, num_hidden_layers=1, num_attention_heads=1)
    ElectraForPreTraining(config).save_pretrained(tmp_path)
    names = dict(cls_token='[CLS]', sep_token='[SEP]', pad_token='[PAD]')
    PreTrainedTokenizerFast(tokenizer_object=tok.backend_tokenizer, **names).save_pretrained(tmp_path)
    with pytest.raises(InputError, match='has no mask_token'): score.load_scorer(tmp_path)

class Shown(HTMLParser):
    "What a reader of the first line sees, without the numbers"
    def __init__(self): super().__init__(convert_charrefs=True); self.tags, self.text = [], ''
    def handle_starttag(self, tag, attrs): self.tags.append(tag)
    def handle_endtag(self, tag): assert self.tags.pop()==tag
    def handle_data(self, data): self.text += data if not {'sub', 'small'} & {*self.tags} else ''

ODDITIES = ['the', 'Cat', ' ', '\n', '<b>', '&amp;', 'mathematics', '[MASK]', 'é', 'e\u0301', '漢字', '.', "'s"]
ODDITIES += ['\x1b[0m']

@settings(max_examples=200, deadline=None)
@given(st.one_of(st.text(), st.lists(st.sampled_from(ODDITIES), max_size=60).map(''.join)))
def test_any_text(scorer, text):
    "Every text is shown as it was typed, or refused"
    try: v = score.score_tokens(scorer, text)
    except InputError: return
    assert v.gaps[0] + ''.join(w+g for w,g in zip(v.words, v.gaps[1:]))==text
    assert len(v.words)==len(v.probs) and all(0<=p<=1 for p in v.probs) and {*v.alternatives}=={*v.shown}
    page = Shown()
    page.feed(v._repr_html_()); page.close()
    assert page.text==text and not page.tags

def test_demo_passes_the_sentence_on(tmp_path):
    "Whatever is in it; and the model of the package is asked too, if there is one"
    root = Path(__file__).parents[1]
    shutil.copy(root/'Makefile', tmp_path)
    for o in ('settings.ini', 'setup.py', '.venv/.installed'):
        (tmp_path/o).parent.mkdir(exist_ok=True)
        (tmp_path/o).touch()
    (tmp_path/'.venv/bin').mkdir()
    for o in ('electra_pretrain', 'electra_score', 'python'):
        (tmp_path/'.venv/bin'/o).write_text('#!/bin/sh\nfor last; do :; done\nprintf "%s\\n" "$last"\n')
        (tmp_path/'.venv/bin'/o).chmod(0o755)
    env = {k:v for k,v in os.environ.items() if k not in ('TEXT', 'MAKEFLAGS', 'MAKELEVEL')}
    def demo(*args):
        how = dict(cwd=tmp_path, env=env, check=True, text=True, capture_output=True)
        return subprocess.run(['make', '-s', 'demo', *args], **how).stdout.splitlines()
    assert demo()[-3:]==['--show=He opened the because and walked into the room.', '', 'runs/demo']
    odd = 'It\'s "odd": $5 $(x) `ls` \\ # % & ; don\'t'
    assert demo(f'TEXT={odd}').count(f'--show={odd}')==1
    (tmp_path/'electra_nbdev/models/electra-baby-en').mkdir(parents=True)
    assert demo(f'TEXT={odd}').count(f'--show={odd}')==2

# Networks whose outputs are known

class KnowsPairs(torch.nn.Module):
    "P(replaced) is 10 % for a known pair and 80 % for any other"
    def __init__(self, known): super().__init__(); self.known = known
    def forward(self, ids):
        return SimpleNamespace(logits=torch.where(self.known[ids.roll(1, 1), ids], -math.log(9), math.log(4)))

class KnowsLeft(torch.nn.Module):
    "What follows a piece, by counts"
    def __init__(self, follows): super().__init__(); self.follows = follows
    def forward(self, ids): return SimpleNamespace(logits=self.follows[ids.roll(1, 1)].log())

LONG = 'The cat sat on the mat. The cat sat on the mathematics. '*9

@pytest.fixture(scope='module')
def toy():
    known, follows = torch.zeros(len(TOY), len(TOY), dtype=torch.bool), torch.full((len(TOY), len(TOY)), 1e-9)
    for line in ('[CLS] the cat sat on the mat . the cat sat on the floor .', '[CLS] the cat loves mathema ##tics .'):
        ids = [TOY.index(o) for o in line.split()]
        known[ids[:-1], ids[1:]] = True
    for word,n in (('mat', 3), ('floor', 2), ('cat', 1)): follows[TOY.index('the'), TOY.index(word)] = n
    return score.Scorer(KnowsPairs(known), KnowsLeft(follows), pieces(TOY), 16)

def probs_of(scorer, text): return score.replaced_probs(scorer, score.words_of(scorer.tokenizer, text)[0]).tolist()

@pytest.mark.parametrize('rate', [.15, .3, .5])
def test_correction_of_the_masking_rate(rate):
    "The optimal discriminator of any masking rate becomes that of 15 % for words that are rare"
    p, q = 1e-4, 1e-4*torch.logspace(-1, 2, 61)
    def optimal(m): return m*q*(1-p) / (m*q*(1-p) + p*(1-m+m*q))
    assert ((optimal(rate).logit() + score.prior_step(rate)).sigmoid() - optimal(.15)).abs().max()<1e-3

def test_words_of(toy):
    ids, groups, spans = score.words_of(toy.tokenizer, 'The Cat  loves mathématics.')
    assert [TOY[i] for i in ids]==['the', 'cat', 'loves', 'mathema', '##tics', '.']
    assert groups==[[0], [1], [2], [3, 4], [5]] and spans==[(0, 3), (4, 7), (9, 14), (15, 26), (26, 27)]
    assert [TOY[i] for i in score.words_of(toy.tokenizer, '[MASK]')[0]]==['[', 'mask', ']']
    with pytest.raises(InputError, match='no words'): score.words_of(toy.tokenizer, ' \u200b ')
    with pytest.raises(InputError, match=r'not UTF-8 \(character 4\)'): score.words_of(toy.tokenizer, 'caf\udce9')

def test_replaced_probs(toy):
    assert probs_of(toy, 'The cat sat on the mathematics.')==pytest.approx([.1]*5 + [.8, .1, .1])
    assert probs_of(toy, 'The cat floor.')==pytest.approx([.1, .1, .8, .1])
    half = probs_of(replace(toy, mask_prob=.5), 'The cat sat on the mathematics.')
    assert half[5]==pytest.approx(4*.15/(4*.15+.85), abs=1e-6)

@pytest.mark.parametrize('n,size', [(50, 7), (33, 8), (9, 1), (8, 8), (3, 4), (7, 4)])
def test_windows(n, size):
    "A token belongs to the window with the nearest middle, the first of two"
    starts, best = score.windows(n, size)
    assert best==(torch.arange(n)[:,None] - torch.tensor(starts) - (size-1)/2).abs().argmin(1).tolist()
    assert starts==[*range(0, max(0, n-size), max(1, size//2)), max(0, n-size)]

@pytest.mark.parametrize('length', [6, 7, 16, 31])
def test_windows_of_a_long_text(toy, length):
    "Where one piece of context is enough, windows give the scores and the alternatives of the whole text at once"
    ids = score.words_of(toy.tokenizer, LONG)[0]
    whole, short = replace(toy, max_length=512), replace(toy, max_length=length)
    want = score.replaced_probs(whole, ids)
    assert score.replaced_probs(short, ids).equal(want) and (want>.5).sum()==9 and len(ids)==135
    odd = [[i, i+1] for i,o in enumerate(ids) if TOY[o]=='mathema']
    found = score.generator_choices(short, ids, odd)
    assert len(found)==9 and all(o==found[0] for o in found) and found==score.generator_choices(whole, ids, odd)

def test_alternatives(toy):
    "The most probable first, without the word itself"
    def others(text, n):
        ids, groups, _ = score.words_of(toy.tokenizer, text)
        return score.generator_choices(toy, ids, [groups[5]], n)[0]
    found = others('The cat sat on the mathematics.', 3)
    assert [w for w,_ in found]==['mat', 'floor', 'cat']
    assert [p for _,p in found]==pytest.approx([3/6, 2/6, 1/6])
    assert [w for w,_ in others('The cat sat on the mat.', 2)]==['floor', 'cat']

def test_context_decides(toy):
    v, loves = toy('The cat sat on the mathematics.'), toy('The cat loves mathematics.')
    assert v.words==['The', 'cat', 'sat', 'on', 'the', 'mathematics', '.'] and v.flagged==[5]==[*v.alternatives]
    assert v.probs==pytest.approx([.1]*5 + [.8, .1]) and loves.probs==pytest.approx([.1]*5)
    assert loves.flagged==[] and loves.shown==[loves.highest]
    assert str(v).splitlines()==['The cat sat on the mathematics [80 %].',
                                 '  mathematics 80 %; the generator would write mat 50 % · floor 33 % · cat 17 %']
    assert str(replace(toy, generator=None)('The mat.'))=='The mat.\n  no word reaches 50 %; highest: The 10 %'
    almost = replace(toy('The mat.'), threshold=.1004, ranks=None, alternatives={})
    assert str(almost).endswith('no word reaches 10 %; highest: The 9 %')
    assert '<sub>80 %</sub>' in v._repr_html_() and '<sub>' not in toy('The mat.')._repr_html_()

def test_colours():
    "Black text keeps the contrast that the web's guidelines ask for on every shade, white text never has it"
    def luminance(rgb):
        r, g, b = (c/12.92 if c<=.04045 else ((c+.055)/1.055)**2.4 for c in (o/255 for o in rgb))
        return .2126*r + .7152*g + .0722*b
    def contrast(*colours):
        lo, hi = sorted(map(luminance, colours))
        return (hi+.05) / (lo+.05)
    shades = [score.shade(i/20) for i in range(21)]
    assert contrast((0, 0, 0), (255, 255, 255))==pytest.approx(21)
    assert min(contrast(o, (0, 0, 0)) for o in shades)>=4.5>max(contrast(o, (255, 255, 255)) for o in shades)
    line = score.TokenScores(['a', 'cat'], [0., 1.]).ansi().splitlines()[0]
    assert line==('\x1b[48;2;238;238;238m\x1b[38;2;0;0;0ma\x1b[0m '
                  '\x1b[48;2;222;70;55m\x1b[38;2;0;0;0mcat\x1b[0m')

def test_html_is_escaped():
    page = score.TokenScores(['<b>', 'cat'], [.2, .9], gaps=['', ' & ', ''])._repr_html_()
    assert '&lt;b&gt;</span> &amp; <span' in page and '<b>' not in page and page.count('<sub>')==1

# Folders

@pytest.fixture(scope='module')
def runs(tmp_path_factory, toy):
    "One untrained ELECTRA: as a finished run, as two in training, as a discriminator alone, and as itself"
    d, tok = tmp_path_factory.mktemp('runs'), toy.tokenizer
    sizes = dict(vocab_size=len(tok), max_seq_length=16, num_train_steps=40, length_schedule=((8, .5), (16, .5)))
    hp = preset('tiny', **sizes)
    model = build_networks(hp).eval()
    save_networks(model, hp, d/'alone', tok)
    save_run(d/'done', model, hp, tok)
    for o in ('busy', 'early'):
        (d/o).mkdir()
        shutil.copy(d/'done/hparams.json', d/o)
    weights = {f'model/{n}': p for n,p in model.named_parameters()}
    for o,step in (('early', 20), ('busy', 30)): save_checkpoint(d/o, step, weights, dict(step=step))
    save_tokenizer(tok, d/'vocab')
    save_tokenizer(pieces(reversed(TOY)), d/'other')
    return d, score.Scorer(model.discriminator, model.generator, tok, 16, hp.mask_prob)

@pytest.mark.parametrize('name', ['done', 'done/discriminator', 'busy'])
def test_a_run_is_opened(runs, name):
    "It scores as its networks do, finished or in training"
    d, networks = runs
    text = 'The cat sat on the mat.'
    want, got = networks(text), score.Scorer.from_pretrained(d/name, d/'vocab', device='cpu')(text)
    assert got.probs==pytest.approx(want.probs, abs=1e-6)
    for o in want.shown: assert [w for w,_ in got.alternatives[o]]==[w for w,_ in want.alternatives[o]]

@pytest.mark.parametrize('gone', [dict(replacements_from_data=True), dict(temperature_decay=.1)])
def test_a_run_of_0_3_whose_replacements_came_from_a_table(runs, tmp_path, gone):
    "It is refused in a line, and a copy of its discriminator opens; a run that only names both is like others"
    d, run = runs[0], tmp_path/'run'
    shutil.copytree(d/'done', run)
    shutil.rmtree(run/'generator')
    recipe = json.loads((run/'hparams.json').read_text())
    (run/'hparams.json').write_text(json.dumps(recipe | gone))
    with pytest.raises(InputError, match='was removed in 0.4; version 0.3.0 [^\n]*$'):
        score.load_scorer(run)
    shutil.copytree(run/'discriminator', tmp_path/'copy')
    assert score.load_scorer(tmp_path/'copy')('The cat.').probs
    (run/'hparams.json').write_text(json.dumps(recipe | dict(replacements_from_data=False, temperature_decay=None)))
    assert score.load_scorer(run)('The cat.').probs

def test_lengths_of_windows(runs):
    "In training those of the schedule so far; without a recipe what the network's configuration says it has read"
    d, _ = runs
    lengths = [score.load_scorer(d/o, d/'vocab').max_length for o in ('early', 'busy', 'done', 'alone')]
    assert lengths==[8, 16, 16, 16]

def test_the_vocabulary_of_a_run_in_training(runs):
    d, _ = runs
    with pytest.raises(InputError, match='with `vocab`'): score.load_scorer(d/'busy')
    with pytest.raises(InputError, match='is not the vocabulary'): score.load_scorer(d/'busy', d/'other')

def test_a_recipe_tells_by_what_its_networks_score():
    "Without a trained generator there is no pseudo-log-likelihood"
    masked, replaced = ('pll', 'word-l2r'), ('p-replaced',)
    found = {(): (*masked, *replaced), ('uniform_generator',): replaced,
             ('two_tower_generator',): ('towers', 'energies', *replaced)}
    for flags,ways in found.items():
        assert scoring_ways(preset('tiny', **dict.fromkeys(flags, True)))==ways
    assert scoring_ways(preset('tiny', electra_objective=False))==masked
    assert scoring_ways(preset('tiny', electra_objective=False, uniform_generator=True))==masked
    assert scoring_ways(preset('tiny', electra_objective=False, electric_objective=True))==('towers', 'energies')

def test_a_word_is_flagged_if_right_sentences_do_not_get_as_high(toy, tmp_path):
    "Names and common words have limits of their own; what was measured is read with the discriminator"
    toy = replace(toy, mask_prob=.15) # known pairs have 10 %, others 80 %
    found = score.right_sentences(toy, ['The cat sat.']*185 + ['The cat the cat sat.']*15)
    assert [found.limit('common'), found.rank(.8, 'common'), found.rank(.5, 'common')]==pytest.approx([.8, 1, .925])
    v = replace(toy, right=found)('The cat sat on the mathematics.')
    assert [v.words[i] for i in v.flagged]==['mathematics'] and 'higher than in 100 of 100 right sentences' in str(v)
    v = replace(toy, right=replace(found, common=[.9]*201))('The mat sat.')
    assert not [p for p,limit in zip(v.probs, v.limits) if p>=limit] # a mark is compared with common words too
    assert score.score_tokens(replace(toy, right=found), 'The cat sat.', threshold=.05).ranks is None

class Documents:
    "What is read of examples"
    def __init__(self, n): self.n = n
    def __len__(self): return self.n
    def decode(self, i):
        return f"first . the cat no {i} sat on the mat . and is this mat the cat ' s ? the last one", ''

def test_sentences_of_examples_are_whole(monkeypatch, tmp_path, toy):
    first, question, second = score.sentences_of(Documents(2))
    assert [first, second]==[f'the cat no {i} sat on the mat .' for i in range(2)]
    assert question=="and is this mat the cat ' s ?"
    monkeypatch.setattr(score, 'load_scorer', lambda *_, **__: toy)
    (tmp_path/'discriminator').mkdir()
    assert not score.measure_right_sentences(tmp_path, Documents(20)) and not [*tmp_path.glob('*/*.json')]
    assert score.measure_right_sentences(tmp_path, Documents(250))==251
    assert score.read_right_sentences(tmp_path/'discriminator').limit('common')>0

def test_a_run_of_short_sequences_is_scored_by_such(tmp_path):
    "Examples of 16 tokens, of which 8 were read: positions beyond have learnt nothing"
    run_folder(tmp_path/'run', pieces(TOY), length_schedule=((8, 1.), (16, 0.)))
    assert [score.load_scorer(tmp_path/o).max_length for o in ('run', 'run/discriminator')]==[8, 8]
    assert json.loads((tmp_path/'run/discriminator/config.json').read_text())['read_length']==8

def test_a_discriminator_alone_scores_as_in_its_run(tmp_path):
    "Its config.json has the masking rate; what was measured of right sentences goes with it, and with nothing else"
    run_folder(tmp_path/'run', pieces(TOY), mask_prob=.4)
    levels = dict(common=[i/200 for i in range(201)], rare=[i/200 for i in range(201)])
    (tmp_path/'run/discriminator/right_sentences.json').write_text(json.dumps(levels))
    alone = Path(shutil.copytree(tmp_path/'run/discriminator', tmp_path/'alone'))
    found = [score.load_scorer(o, device='cpu') for o in (tmp_path/'run', alone)]
    assert [o.mask_prob for o in found]==[.4, .4] and found[0].right==found[1].right!=None
    assert found[1]('The cat sat.').probs==found[0]('The cat sat.').probs
    models = [load_likelihood(o, 'p-replaced', device='cpu') for o in (tmp_path/'run', alone)]
    assert pseudo_log_likelihood(models[0], ['The cat sat.'])==pseudo_log_likelihood(models[1], ['The cat sat.'])
    config = json.loads((alone/'config.json').read_text())
    (alone/'config.json').write_text(json.dumps(config | dict(mask_prob='much')))
    with pytest.raises(InputError, match="`mask_prob` of .*config.json is 'much'"): score.load_scorer(alone)
    (alone/'config.json').write_text(json.dumps({k: v for k,v in config.items() if k!='mask_prob'}))
    old = score.load_scorer(alone, device='cpu') # what was measured is of corrected probabilities
    assert old.mask_prob==score.SCORE_MASK_PROB and old.right is None

ODD = [dict(common='0.5'), dict(rare=[.1]), dict(rare=[.5]*200+[2.]), dict(common=[None]*201),
       dict(common=[.5, .1]*100+[1.]), dict(more=[0.]*201)]

@pytest.mark.parametrize('change', ODD, ids=range(6))
def test_a_strangers_measures_are_refused(change, tmp_path):
    (tmp_path/'discriminator').mkdir()
    found = dict(common=[i/200 for i in range(201)], rare=[i/200 for i in range(201)])
    def read(): return score.read_right_sentences(tmp_path/'discriminator')
    (tmp_path/'discriminator/right_sentences.json').write_text(json.dumps(found))
    assert [read().limit('common'), read().limit('rare')]==[.95, .995]
    assert replace(read(), rare=[0.]*201).limit('rare')==.95, 'a rare word is not flagged more easily'
    (tmp_path/'discriminator/right_sentences.json').write_text(json.dumps(found | change))
    with pytest.raises(InputError, match='right_sentences.json has not 201 .*electra_evaluate'): read()

@pytest.fixture(scope='module')
def english(): return score.load_scorer(device='cpu')

@pytest.mark.parametrize('text,told', [
    ('Привет, как дела?', True), ('今日は天気がいいですね。', True),
    ('Ich habe gestern einen Brief zur Post gebracht.', True), ('The captain saw the old ship.', False),
    ('Mitochondria synthesize adenosine.', False), ('12 345 678 9 10 11', False)])
def test_a_model_of_the_package_says_once_that_a_text_is_not_english(english, text, told):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter('always')
        english(text)
    assert ['learnt English alone' in str(o.message) for o in found]==[True]*told, found
    with warnings.catch_warnings(record=True) as found: replace(english, english=False)(text)
    assert not [o for o in found if 'English' in str(o.message)]

@pytest.mark.parametrize('mark', '.!?…؟।॥۔።։。')
def test_sentences_of_every_script_can_be_measured(mark):
    "Whole ones: the first of an example may lack its beginning"
    class Held(list):
        def decode(self, i): return [self[i]]
    said = [f'{o} b c d e f{mark}' for o in 'wxyz']
    assert score.sentences_of(Held([' '.join(said)]))==said[1:]
