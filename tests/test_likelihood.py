"Likelihoods: the commands as a user types them, any texts, and what cannot be read"
import json, shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import electra_nbdev.likelihood as likelihood
from electra_nbdev.recipe import build_networks, preset, save_hparams, save_networks
from electra_nbdev.tokenizer import fingerprint, wordpiece
from test_commands import typed
from test_score import PIECES

pytestmark = pytest.mark.filterwarnings("ignore:.* of the tokens are .UNK.")

LINES = ['The cat sat on the mat.', '', "  the cat's mat ", 'mat', '\u200b', 'the cat sat on the mat . '*9]

PAIRS = dict(a=('the cat sat.', 'the sat cat on.'), b=('the sat cat on.', 'the cat sat.'))

@pytest.fixture(scope='module')
def home(tmp_path_factory):
    "A run of Electric, a run of ELECTRA-TT, files to score"
    d, tok = tmp_path_factory.mktemp('user'), wordpiece({o:i for i,o in enumerate(PIECES)})
    for name,electra in (('electric', False), ('tt', True)):
        hp = preset('tiny', vocab_size=len(tok), max_seq_length=16, length_schedule=(), electra_objective=electra,
                    electric_objective=not electra, two_tower_generator=True, untied_generator=True)
        save_networks(build_networks(hp), hp, d/name, tok)
        save_hparams(hp, d/name/'hparams.json', data=dict(tokenizer=fingerprint(tok)))
    (d/'lines.txt').write_text('\n'.join(LINES)+'\n')
    (d/'pairs').mkdir()
    for uid,(good,bad) in PAIRS.items():
        pair = dict(sentence_good=good, sentence_bad=bad, UID=uid, linguistics_term=f'order {uid}')
        (d/f'pairs/{uid}.jsonl').write_text((json.dumps(pair)+'\n')*5)
    lists = [dict(input=['the cat sat on', 'the mat', ''], output=f'the cat sat {i}') for i in range(30)]
    (d/'lists.json').write_text(json.dumps(lists))
    (d/'scored.jsonl').write_text(''.join(json.dumps(o | dict(scores=[-1, -2, -3.5]))+'\n' for o in lists))
    (d/'bad.jsonl').write_text('{"sentence_good": "a", "sentence_bad": "b"}\n{"sentence_good": "a"}\n')
    (d/'bad.json').write_text(json.dumps([lists[0], dict(input=['a'], output='')]))
    return d

@pytest.mark.parametrize('model', ['electric', 'electric --by towers', 'tt', 'electric/electric'])
def test_lines_of_a_file(home, model):
    "A row for each line, in order, tokens included; without --out the scores are printed"
    line = f'electra_score --text lines.txt --model {model}'
    said, plain = typed(f'{line} --out rows.jsonl', home), typed(line, home)
    assert said.code==plain.code==0 and said.err=='' and said.out=='rows in rows.jsonl\n', said
    rows = [json.loads(o) for o in (home/'rows.jsonl').read_text().splitlines()]
    assert [r['text'] for r in rows]==LINES
    assert [r['score'] is None for r in rows]==[False, True, False, False, True, False]
    for r in rows:
        assert len(r['tokens'])==len(r['scores'])
        if r['scores']: assert r['score']==pytest.approx(sum(r['scores']), abs=1e-4)
    assert [o.split('\t')[1] for o in plain.out.splitlines()]==LINES

@pytest.mark.parametrize('file', ['lists.json', 'scored.jsonl'])
def test_lists(home, file):
    said = typed(f'electra_score --nbest {file} --model electric --out lists.jsonl', home)
    assert said.code==0 and 'first' in said.out and 'oracle' in said.out, said
    rows = [json.loads(o) for o in (home/'lists.jsonl').read_text().splitlines()]
    assert [r['reference'] for r in rows]==[f'the cat sat {i}' for i in range(30)]
    assert all(r['chosen']==r['hypotheses'][r['index']]['text']!='' for r in rows)
    assert 'Re-ranking changes the word error rate by' in said.out
    assert ('has no scores of the ASR system' in said.out)==(file=='lists.json')

SCRAMBLED = 'dog', 'ship', 'captain', 'storm', 'house', 'river', 'road'

@pytest.mark.parametrize('scale', [None, 1e-3, 1e3])
def test_chance_never_harms(scale):
    "A model whose likelihoods mean nothing: the first hypotheses are kept, whatever the size of the scores"
    rng = np.random.default_rng(0)
    lists, rows = [], []
    for i in range(200):
        ref = f'the {rng.choice(SCRAMBLED)} and the {rng.choice(SCRAMBLED)} {i}'
        hyps = [ref, f'{ref} the', ref[4:]] if rng.random()<.6 else [f'{ref} the', ref, ref[4:]]
        lists.append(likelihood.NBest(ref, hyps, None if scale is None else [scale*-o for o in (1., 1.2, 1.9)]))
        rows.append([dict(score=-10+8*rng.normal(), tokens=h.split()) for h in hyps])
    chosen, how, found = likelihood.rerank(lists, rows)
    assert set(chosen)=={0} and how==(0., 0.) and found['change'][1]<=0<=found['change'][2]

@pytest.mark.parametrize('scale', [None, 1e-3, 1e3])
def test_knowledge_helps(scale):
    "Likelihoods that lower the right one by less than noise: gained whatever the size of the scores"
    rng = np.random.default_rng(1)
    lists, rows = [], []
    for i in range(200):
        ref = f'the {rng.choice(SCRAMBLED)} and the {rng.choice(SCRAMBLED)} {i}'
        hyps = [ref, f'{ref} the', ref[4:]] if rng.random()<.5 else [f'{ref} the', ref, ref[4:]]
        lists.append(likelihood.NBest(ref, hyps, None if scale is None else [scale*-o for o in (1., 1.2, 1.9)]))
        rows.append([dict(score=-30+6*(h==ref)+rng.normal(), tokens=h.split()) for h in hyps])
    chosen, how, found = likelihood.rerank(lists, rows)
    assert how[0]>0 and found['change'][2]<0 and sum(l.hypotheses[i]==l.reference for l,i in zip(lists, chosen))>150

def test_pairs(home, model):
    "Both scores, what they decide, and the accuracies: of a pair and the same pair reversed one is right"
    said = typed('electra_score --pairs pairs --model electric --out pairs.jsonl', home)
    rows = [json.loads(o) for o in (home/'pairs.jsonl').read_text().splitlines()]
    score = {o: likelihood.pseudo_log_likelihood(model, [o])[0]['score'] for o in PAIRS['a']}
    assert said.code==0 and len(rows)==10 and abs(score[PAIRS['a'][0]]-score[PAIRS['a'][1]])>.01, said
    for r in rows:
        assert (r['good'], r['bad'])==PAIRS[r['set']] and r['right']==(score[r['good']]>score[r['bad']])
        assert [r['good_score'], r['bad_score']]==pytest.approx([score[r['good']], score[r['bad']]], abs=1e-4)
    shown = dict(o.rsplit(None, 4)[::2][:2] for o in said.out.splitlines()[1:4])
    want = {f'order {k}': '100.0' if score[g]>score[b] else '0.0' for k,(g,b) in PAIRS.items()}
    assert shown==want | {'all pairs': '50.0'}

def test_choices(home):
    "A text from the command line, and a file with answers; by energies here, by the discriminator of an ELECTRA-TT"
    said = typed("electra_score --choices 'the ___ sat.' --candidates cat 'mat the' --model electric", home)
    lines = [o.split('\t') for o in said.out.splitlines()]
    assert said.code==0 and {o for _,o in lines}=={'cat', 'mat the'} and float(lines[0][0])>=float(lines[1][0]), said
    rows = [dict(text='the ___ sat.', choices=['cat', 'mat'], answer=o) for o in ('cat', 'mat')]
    (home/'choices.jsonl').write_text('\n'.join(map(json.dumps, rows)))
    said = typed('electra_score --choices choices.jsonl --model tt --by discriminator --out chosen.jsonl', home)
    assert said.code==0 and '50.0 % right' in said.out and 'of 2 texts' in said.out, said
    assert [json.loads(o)['answer'] for o in (home/'chosen.jsonl').read_text().splitlines()]==['cat', 'mat']

BAD = {"--choices 'the cat' --candidates a b": '0 blanks', "--choices 'the ___'": 'no file',
       "--choices 'the ___' --candidates a b --by discriminator": 'does not have',
       '--text lines.txt --candidates a': 'for the blank of --choices', '--choices bad.jsonl': 'line 1',
       '--text nowhere.txt': 'nowhere.txt', '--pairs bad.jsonl': 'line 2', '--pairs empty': 'where there is nothing',
       '--nbest bad.json': 'item 2', '--nbest lines.txt': 'allowed: .json', '--pairs lines.txt': 'allowed: .jsonl',
       '--text lines.txt --by passes': 'energy, towers',
       '--text lines.txt --model lines.txt': 'no folder', '--show cat': 'electra_objective is false'}

@pytest.mark.parametrize('flags', BAD)
def test_bad_input(home, flags):
    before = sorted(home.rglob('*'))
    model = '' if '--model' in flags else '--model electric'
    out = '' if '--show' in flags or '--candidates' in flags else '--out never.jsonl'
    said = typed(f'electra_score {flags} {model} {out}', home)
    lines = [o for o in said.err.splitlines() if o.strip()]
    assert said.code==2 and len(lines)==1 and lines[0].startswith('electra_score: ') and BAD[flags] in lines[0], said
    assert sorted(home.rglob('*'))==before

ODDITIES = ['the', 'Cat', ' ', 'mathematics', '[MASK]', 'é', '.', 'mat ']
ANY = st.one_of(st.text(max_size=20), st.lists(st.sampled_from(ODDITIES), max_size=40).map(''.join))
WORDS = st.lists(st.sampled_from(['the', 'Cat', ' ', 'mathematics', '.', 'mat ']), min_size=1, max_size=40).map(''.join)

@settings(max_examples=60, deadline=None)
@given(st.lists(ANY, max_size=6), st.integers(1, 4))
def test_any_texts(model, texts, bs):
    "Batches change nothing, and every token of every text has a score"
    rows = likelihood.pseudo_log_likelihood(model, texts, bs)
    assert [r['text'] for r in rows]==texts
    for r in rows:
        alone, = likelihood.pseudo_log_likelihood(model, [r['text']])
        assert r['tokens']==alone['tokens'] and len(r['scores'])==len(r['tokens'])
        assert torch.allclose(torch.tensor(r['scores']), torch.tensor(alone['scores']), atol=1e-4)

@settings(max_examples=60, deadline=None)
@given(WORDS, st.integers(4, 16))
def test_scores_stand_at_their_tokens(model, text, length):
    "A network whose score of a token is its number, so that a score at another token's place shows"
    known = likelihood.Likelihood(lambda ids, mask: ids.float(), model.tokenizer, length)
    row, = likelihood.pseudo_log_likelihood(known, [text])
    assert row['scores']==model.tokenizer.convert_tokens_to_ids(row['tokens'])

@pytest.fixture(scope='module')
def model(home): return likelihood.load_likelihood(home/'electric', device='cpu')
