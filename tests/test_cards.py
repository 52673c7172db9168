"The numbers of the models' cards: a part on the embedded text, all of them where ELECTRA_DATA names the data"
import json, os, re, shutil, sys
from pathlib import Path

import pytest
from fastcore.docments import docments

from electra_nbdev.cli import electra_score
from electra_nbdev.engine.checkpoint import saved_networks
from electra_nbdev.engine.models import shipped
from electra_nbdev.pretraining.recipe import load_hparams
from electra_nbdev.pretraining.runs import write_cards
from electra_nbdev.using.likelihood import load_likelihood
from electra_nbdev.data.text import sample_corpus

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT/'benchmarks'))
import likelihoods

FOUND = json.loads((ROOT/'benchmarks/results/electric.json').read_text())['found']
DATA = os.environ.get('ELECTRA_DATA')

@pytest.mark.parametrize('by', likelihoods.WAYS)
def test_word_order(by):
    found = likelihoods.word_order(load_likelihood('electric', by, device='cpu'),
                                   (sample_corpus()/'held_out.txt').read_text())
    assert found==pytest.approx(FOUND[by]['order_sample'], abs=.01)

@pytest.mark.skipif(not DATA, reason='ELECTRA_DATA names no folder')
@pytest.mark.parametrize('by', likelihoods.WAYS)
def test_all_numbers(by):
    found, want = likelihoods.measure(load_likelihood('electric', by, device='cpu'), Path(DATA)), FOUND[by]
    for name,o in want['blimp'].items(): assert found['blimp'][name]['accuracy']==pytest.approx(o['accuracy'], abs=.2)
    for name in ('test_cv', 'wsj_scored_dev'):
        assert found[name]['change']['WER']==pytest.approx(want[name]['change']['WER'], abs=.1)

def test_the_default_is_the_way_that_was_better():
    "In every kind of use, and the help of the command has the numbers of the pairs"
    towers, energy = FOUND['towers'], FOUND['energy']
    for text in likelihoods.ONE_WORD:
        for k in ('replaced', 'chosen'):
            assert towers[f'one_word_{text}'][k]['low']>energy[f'one_word_{text}'][k]['high']
    right = [o['blimp']['all pairs'] for o in (towers, energy)]
    assert right[0]['low']>right[1]['high'] and load_likelihood('electric', device='cpu').by=='towers'
    for name in ('test_cv', 'wsj_scored_dev'): assert towers[name]['change']['WER']<energy[name]['change']['WER']
    told = docments(electra_score)['by']
    replaced = json.loads((ROOT/'benchmarks/results/pairs.json').read_text())['found']['blimp']['tiny, p-replaced']
    told_of = [*right, replaced['all pairs']]
    assert [f"{o['accuracy']:.0f}" for o in told_of]==re.findall(r'(\d+) %', told), told

@pytest.mark.parametrize('by', likelihoods.WAYS)
def test_the_card_says_what_was_measured(by):
    card = (shipped('electric')/'README.md').read_text()
    total = FOUND[by]['blimp']['all pairs']
    assert f"{total['accuracy']} [{total['low']}, {total['high']}]" in card

@pytest.mark.parametrize('name', ['tiny', 'electric'])
def test_shipped_networks_say_what_they_are_for(name, tmp_path):
    "Each folder has the card that a new run gives it, which names the network that fills masks"
    shutil.copytree(shipped(name), tmp_path/'run')
    networks = saved_networks(tmp_path/'run')
    for o in networks: (o/'README.md').write_text('')
    write_cards(tmp_path/'run')
    for o in networks:
        card = (shipped(name)/o.name/'README.md').read_text()
        assert card==(o/'README.md').read_text() and 'fill-mask' in card

NOTE, RESULTS = ROOT/'benchmarks/shipped_model.md', ROOT/'benchmarks/results/shipped_model'

@pytest.mark.parametrize('name', ['fourth_run', 'ends', 'noise', 'sentences'])
def test_the_note_on_the_shipped_model_has_the_results(name):
    "Each network's odd words found and AUC on unigram replacements stand in its row of a table"
    rows = [o.split(' | ') for o in NOTE.read_text(encoding='utf-8').splitlines() if o.startswith('| ')]
    for network,o in json.loads((RESULTS/f'{name}.json').read_text()).items():
        told = [r for r in rows if r[0]==f'| {network}']
        assert any({str(o['found']), str(o['rows']['128']['auc_unigram'])}<={*r} for r in told), (network, told)

def test_what_the_note_on_the_shipped_model_concludes():
    "Higher masking rates find more odd words; of all networks the shipped one finds the most, and its recipe is told"
    fourth, noise, sixth = (json.loads((RESULTS/f'{o}.json').read_text()) for o in ('fourth_run', 'noise', 'sentences'))
    rates = [fourth[f'{o} % masked'] for o in (15, 30, 45)]
    for of in (lambda o: o['found'], lambda o: o['rows']['128']['auc_unigram']):
        assert sorted(map(of, rates))==[*map(of, rates)]
    assert max(noise, key=lambda o: noise[o]['found'])=='1 : 1 with the fifth'
    final = sixth['sixth run, shipped']
    assert max(sixth, key=lambda o: sixth[o]['found'])=='sixth run, shipped'
    assert final['found']>.58 and final['second_draw']['found']>.58 and final['rows']['128']['auc_unigram']>.92
    hp = load_hparams(shipped('tiny')/'hparams.json')
    assert (hp.mask_prob, hp.unigram_noise, hp.num_train_steps, hp.learning_rate)==(.15, .5, 30_000, 1e-3)
