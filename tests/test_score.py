"The verdict of a model: the command as a user types it, any text, folders that are no model, and `make demo`"
import json, os, shutil, subprocess, sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings, strategies as st

import electra_nbdev.score as score
from electra_nbdev.electra import ElectraPretraining
from electra_nbdev.hparams import InputError, preset, save_hparams
from electra_nbdev.tokenizer import fingerprint, wordpiece
from test_commands import typed

PIECES = '[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat on mat mathema ##tics . , \' s [ ] é'.split()

@pytest.fixture(scope='module')
def home(tmp_path_factory):
    "A folder with a finished run, one that trains no discriminator, and folders that are none"
    d, tok = tmp_path_factory.mktemp('user'), wordpiece({o:i for i,o in enumerate(PIECES)})
    hp = preset('tiny', vocab_size=len(tok), max_seq_length=16, length_schedule=())
    ElectraPretraining(hp).save(d/'run', tok)
    for o in ('run', 'bert'): (d/o).mkdir(exist_ok=True)
    save_hparams(hp, d/'run/hparams.json', data=dict(tokenizer=fingerprint(tok)))
    save_hparams(preset('tiny', electra_objective=False), d/'bert/hparams.json')
    (d/'empty').mkdir()
    shutil.copytree(d/'run', d/'torn')
    weights = d/'torn/discriminator/model.safetensors'
    weights.write_bytes(weights.read_bytes()[:1000])
    shutil.copytree(d/'run', d/'odd')
    config = json.loads((d/'odd/discriminator/config.json').read_text())
    (d/'odd/discriminator/config.json').write_text(json.dumps(config | dict(hidden_size=32)))
    return d

@pytest.fixture(scope='module')
def scorer(home): return score.load_scorer(home/'run')

def terminal(): sys.stdout.isatty = lambda: True

def no_color():
    terminal()
    os.environ['NO_COLOR'] = '1'

def test_colours_are_for_terminals(home):
    line = 'electra_score --model run --show "The cat\'s on the mathematics."'
    plain, forced = typed(line, home), typed(line+' --color', home)
    assert plain.code==forced.code==0 and plain.err==forced.err==''
    assert '\x1b' not in plain.out and ' %]' in plain.out and 'the generator would write' in plain.out
    assert forced.out.count('\x1b[48;2;')==8 and '[' not in forced.out.replace('\x1b[', '')
    assert typed(line, home, terminal).out==forced.out
    assert typed(line, home, no_color).out==plain.out

def test_help(home):
    said = typed('electra_score --help', home)
    assert said.code==0 and '--show' in said.out

BAD = {'--show ""': 'no words', '--show "\u200b"': 'no words', '--show cat --model nowhere': 'nowhere', '--show cat --model empty': 'holds no model',
       '--show cat --model run/hparams.json': 'no folder', '--show cat --model run/generator': 'is no ElectraForPreTraining', '--show cat --model torn': 'torn',
       '--show cat --model odd': 'odd', '--show cat --model bert': 'electra_objective is false', '': 'one of --show, --text, --pairs, --nbest', '--show cat --text run/hparams.json': 'came',
       '--show cat --out rows': 'writes no file'}

@pytest.mark.parametrize('flags', BAD)
def test_bad_input(home, flags):
    said = typed(f"electra_score {flags}{'' if '--model' in flags else ' --model run'}", home)
    lines = [o for o in said.err.splitlines() if o.strip()]
    assert said.code==2 and len(lines)==1 and lines[0].startswith('electra_score: ') and BAD[flags] in lines[0], said

def test_the_model_of_the_package(home, tmp_path, monkeypatch):
    "It is found by its name in the package, and nowhere else"
    monkeypatch.setattr(score, 'files', lambda name: tmp_path)
    monkeypatch.chdir(home)
    with pytest.raises(InputError, match='no model `tiny`'): score.load_scorer()
    shutil.copytree(home/'run', tmp_path/'models/tiny')
    assert score.load_scorer().max_length==16

def test_only_a_discriminator(home, tmp_path):
    shutil.copytree(home/'run/discriminator', tmp_path/'downloaded')
    v = score.show_verdict(tmp_path/'downloaded', 'The cat.')
    assert v.alternatives=={} and 'generator' not in str(v) and v.suspects

def test_as_transformers_says(scorer):
    "A text that fits is judged as `transformers` alone judges it, but as if 15 % had been masked; a word is its worst piece"
    assert scorer.mask_prob==preset('tiny').mask_prob==.3
    v = score.verdict(scorer, 'The cat sat on the mathematics.')
    with torch.no_grad(): want = scorer.discriminator(**scorer.tokenizer('The cat sat on the mathematics.', return_tensors='pt')).logits[0, 1:-1].sigmoid()
    odds = want/(1-want) * (.15/.85)/(.3/.7)
    want = (odds/(1+odds)).tolist()
    assert v.probs==pytest.approx([*want[:5], max(want[5:7]), want[7]], abs=1e-6)

class Shown(HTMLParser):
    "What a reader of the first line sees, without the numbers"
    def __init__(self): super().__init__(convert_charrefs=True); self.tags, self.text = [], ''
    def handle_starttag(self, tag, attrs): self.tags.append(tag)
    def handle_endtag(self, tag): assert self.tags.pop()==tag
    def handle_data(self, data): self.text += data if not {'sub', 'small'} & {*self.tags} else ''

@settings(max_examples=200, deadline=None)
@given(st.one_of(st.text(), st.lists(st.sampled_from(['the', 'Cat', ' ', '\n', '<b>', '&amp;', 'mathematics', '[MASK]', 'é', 'e\u0301', '漢字', '.', "'s", '\x1b[0m']), max_size=60).map(''.join)))
def test_any_text(scorer, text):
    "Every text is shown as it was typed, or refused"
    try: v = score.verdict(scorer, text)
    except InputError: return
    assert v.gaps[0] + ''.join(w+g for w,g in zip(v.words, v.gaps[1:]))==text
    assert len(v.words)==len(v.probs) and all(0<=p<=1 for p in v.probs) and {*v.alternatives}=={*v.suspects}
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
    for o in ('electra_pretrain', 'electra_score'):
        (tmp_path/'.venv/bin'/o).write_text('#!/bin/sh\nfor last; do :; done\nprintf "%s\\n" "$last"\n')
        (tmp_path/'.venv/bin'/o).chmod(0o755)
    env = {k:v for k,v in os.environ.items() if k not in ('TEXT', 'MAKEFLAGS', 'MAKELEVEL')}
    def demo(*args): return subprocess.run(['make', '-s', 'demo', *args], cwd=tmp_path, env=env, check=True, text=True, capture_output=True).stdout.splitlines()
    assert demo()[-1]=='--show=The cat sat on the mathematics.'
    odd = 'It\'s "odd": $5 $(x) `ls` \\ # % & ; don\'t'
    assert demo(f'TEXT={odd}').count(f'--show={odd}')==1
    (tmp_path/'electra_nbdev/models/tiny').mkdir(parents=True)
    assert demo(f'TEXT={odd}').count(f'--show={odd}')==2
