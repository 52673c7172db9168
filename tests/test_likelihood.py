"Likelihoods: the commands as a user types them, any texts, and what cannot be read"
import json, shutil
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings, strategies as st

import electra_nbdev.likelihood as likelihood
from electra_nbdev.electric import pretraining_model
from electra_nbdev.hparams import preset, save_hparams
from electra_nbdev.tokenizer import fingerprint, wordpiece
from test_commands import typed
from test_score import PIECES

LINES = ['The cat sat on the mat.', '', "  the cat's mat ", 'mat', '\u200b', 'the cat sat on the mat . '*9]

@pytest.fixture(scope='module')
def home(tmp_path_factory):
    "A run of Electric, a run of ELECTRA-TT, files to score"
    d, tok = tmp_path_factory.mktemp('user'), wordpiece({o:i for i,o in enumerate(PIECES)})
    for name,electra in (('electric', False), ('tt', True)):
        hp = preset('tiny', vocab_size=len(tok), max_seq_length=16, length_schedule=(), electra_objective=electra, electric_objective=not electra,
                    two_tower_generator=True, untied_generator=True)
        pretraining_model(hp).save(d/name, tok)
        save_hparams(hp, d/name/'hparams.json', data=dict(tokenizer=fingerprint(tok)))
    (d/'lines.txt').write_text('\n'.join(LINES)+'\n')
    (d/'pairs').mkdir()
    for uid in ('a', 'b'): (d/f'pairs/{uid}.jsonl').write_text(''.join(json.dumps(dict(sentence_good='the cat sat.', sentence_bad='the sat cat.', UID=uid, linguistics_term='order', pairID=str(i)))+'\n' for i in range(5)))
    lists = [dict(input=['the cat sat on', 'the mat', ''], output=f'the cat sat {i}') for i in range(30)]
    (d/'lists.json').write_text(json.dumps(lists))
    (d/'scored.jsonl').write_text(''.join(json.dumps(o | dict(scores=[-1, -2, -3.5]))+'\n' for o in lists))
    (d/'bad.jsonl').write_text('{"sentence_good": "a", "sentence_bad": "b"}\n{"sentence_good": "a"}\n')
    (d/'bad.json').write_text(json.dumps([lists[0], dict(input=['a'], output='')]))
    return d

@pytest.mark.parametrize('flags', ['--model electric', '--model electric --by towers', '--model tt', '--model electric/electric'])
def test_lines_of_a_file(home, flags):
    "A row for each line, in order, tokens included; without --out the scores are printed"
    said, plain = typed(f'electra_score --text lines.txt --out rows.jsonl {flags}', home), typed(f'electra_score --text lines.txt {flags}', home)
    assert said.code==plain.code==0 and said.err=='' and said.out=='rows in rows.jsonl\n', said
    rows = [json.loads(o) for o in (home/'rows.jsonl').read_text().splitlines()]
    assert [r['text'] for r in rows]==LINES
    assert [r['score'] is None for r in rows]==[False, True, False, False, True, False]
    for r in rows: assert len(r['tokens'])==len(r['scores']) and (r['score'] is None or abs(r['score']-sum(r['scores']))<1e-4)
    assert [o.split('\t')[1] for o in plain.out.splitlines()]==LINES

@pytest.mark.parametrize('file', ['lists.json', 'scored.jsonl'])
def test_lists(home, file):
    said = typed(f'electra_score --nbest {file} --model electric --out lists.jsonl', home)
    assert said.code==0 and 'first' in said.out and 'oracle' in said.out, said
    rows = [json.loads(o) for o in (home/'lists.jsonl').read_text().splitlines()]
    assert [r['reference'] for r in rows]==[f'the cat sat {i}' for i in range(30)]
    assert all(r['chosen']==r['hypotheses'][r['index']]['text']!='' for r in rows)

def test_pairs(home):
    said = typed('electra_score --pairs pairs --model electric --out pairs.jsonl', home)
    assert said.code==0 and 'order' in said.out and 'all pairs' in said.out, said
    assert len((home/'pairs.jsonl').read_text().splitlines())==10

BAD = {'--text nowhere.txt': 'nowhere.txt', '--pairs bad.jsonl': 'line 2', '--pairs empty': 'no pairs', '--nbest bad.json': 'item 2', '--nbest lines.txt': 'not JSON',
       '--text lines.txt --by passes': 'energy, towers', '--text lines.txt --model lines.txt': 'no folder', '--show cat': 'electra_objective is false'}

@pytest.mark.parametrize('flags', BAD)
def test_bad_input(home, flags):
    before = sorted(home.rglob('*'))
    said = typed(f"electra_score {flags}{'' if '--model' in flags else ' --model electric'}{'' if '--show' in flags else ' --out never.jsonl'}", home)
    lines = [o for o in said.err.splitlines() if o.strip()]
    assert said.code==2 and len(lines)==1 and lines[0].startswith('electra_score: ') and BAD[flags] in lines[0], said
    assert sorted(home.rglob('*'))==before

@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.text(max_size=20), st.lists(st.sampled_from(['the', 'Cat', ' ', 'mathematics', '[MASK]', 'é', '.', 'mat ']), max_size=40).map(''.join)), max_size=6), st.integers(1, 4))
def test_any_texts(model, texts, bs):
    "Batches change nothing, and every token of every text has a score"
    rows = likelihood.pseudo_log_likelihood(model, texts, bs)
    assert [r['text'] for r in rows]==texts
    for r in rows:
        alone, = likelihood.pseudo_log_likelihood(model, [r['text']])
        assert r['tokens']==alone['tokens'] and len(r['scores'])==len(r['tokens'])
        assert torch.allclose(torch.tensor(r['scores']), torch.tensor(alone['scores']), atol=1e-4)

@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(['the', 'Cat', ' ', 'mathematics', '.', 'mat ']), min_size=1, max_size=40).map(''.join), st.integers(4, 16))
def test_scores_stand_at_their_tokens(model, text, length):
    "A network whose score of a token is its number, so that a score at another token's place shows"
    known = likelihood.Likelihood(lambda ids, mask: ids.float(), model.tokenizer, length)
    row, = likelihood.pseudo_log_likelihood(known, [text])
    assert row['scores']==model.tokenizer.convert_tokens_to_ids(row['tokens'])

@pytest.fixture(scope='module')
def model(home): return likelihood.load_likelihood(home/'electric')
