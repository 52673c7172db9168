"Runs of the version before: finished ones score, convert, are evaluated and begin other runs; others are refused"
import json, shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoModelForPreTraining, AutoTokenizer

from electra_nbdev import cli
from make import tales
from terminal import bad

OLD = Path(__file__).parent/'fixtures'/'v0_1' # made by make_runs.py there
ANSWERS = json.loads((OLD/'answers.json').read_text())
SENTENCES = ANSWERS['sentences']

@pytest.fixture
def here(tmp_path, monkeypatch):
    "A folder with copies of the runs, and the text that they were trained on"
    for name in ('run', 'electric_run', 'interrupted'): shutil.copytree(OLD/name, tmp_path/name)
    (tmp_path/'tales.txt').write_text(tales())
    monkeypatch.chdir(tmp_path)
    return tmp_path

def build_examples():
    "Examples of that text in the vocabulary of the runs, by the rule of that version"
    cli.electra_data('tales.txt', 'run/discriminator', 'examples', 16, held_out=.1, long_lines='official')

def near(found, want): torch.testing.assert_close(torch.tensor(found), torch.tensor(want), rtol=0, atol=1e-5)

@pytest.mark.parametrize('i', range(len(SENTENCES)))
def test_show(here, i):
    found, want = cli.electra_score(show=SENTENCES[i], model='run'), ANSWERS['show'][i]
    assert list(found.words)==want['words']
    near(list(found.probs), want['probs'])

def test_show_without_the_checkpoint(here):
    "The discriminator that was saved at the end is the one of the last checkpoint"
    shutil.rmtree('run/checkpoints')
    near(list(cli.electra_score(show=SENTENCES[0], model='run').probs), ANSWERS['show'][0]['probs'])

@pytest.mark.parametrize('name,by', [('run', 'passes'), ('electric_run', 'energy'), ('electric_run', 'towers')])
def test_text(here, name, by):
    Path('text').write_text('\n'.join(SENTENCES))
    cli.electra_score(text='text', out='rows', model=name, by=by)
    found = [json.loads(o) for o in Path('rows').read_text().splitlines()]
    for row,want in zip(found, ANSWERS['text'][by], strict=True):
        assert (row['text'], row['tokens'])==(want['text'], want['tokens'])
        near([row['score'], *row['scores']], [want['score'], *want['scores']])

PARTS = dict(run=dict(discriminator=AutoModelForPreTraining, generator=AutoModelForMaskedLM),
             electric_run=dict(electric=AutoModelForPreTraining))

@pytest.mark.parametrize('name', PARTS)
def test_convert(here, name):
    cli.electra_convert(name, 'converted')
    for part,cls in PARTS[name].items():
        ids = AutoTokenizer.from_pretrained(f'converted/{part}')(SENTENCES[0], return_tensors='pt')['input_ids']
        with torch.no_grad(): logits = cls.from_pretrained(f'converted/{part}').eval()(ids).logits[0]
        near(logits.tolist(), ANSWERS['convert'][name][part])

def test_begins_another_run(here):
    "The first update has rate 0, so a run of one step still has the weights it began with"
    build_examples()
    cli.electra_pretrain('examples', 'next', init='run', steps=1, device='cpu')
    assert json.loads(Path('next/hparams.json').read_text())['run']['init']['folder']=='run'
    near(list(cli.electra_score(show=SENTENCES[0], model='next').probs), ANSWERS['show'][0]['probs'])

def test_evaluate(here):
    "20 masked positions of 10 held-out examples; which ones the mask hides is not the same in all versions"
    build_examples()
    found = cli.electra_evaluate('run', 'examples/held_out', 'cpu')
    want = ANSWERS['evaluate']['run']
    assert abs(found['gen_loss']-want['gen_loss'])<.7 and abs(found['unigram_loss']-want['unigram_loss'])<.7
    assert found['below_unigram']>.3 and found['auc_unigram']>.8

def test_interrupted_run_is_refused(here):
    build_examples()
    (here/'interrupted/.lock').touch()
    line = 'electra_pretrain --data examples --out interrupted --hparams interrupted/hparams.json --device cpu'
    bad(here, line, 'was written by another version')
