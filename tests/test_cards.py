"The numbers of the models' cards: a part on the embedded text, all of them where ELECTRA_DATA names the data"
import json, math, os, re, shutil
from inspect import signature
from pathlib import Path
from statistics import mean, median, stdev

import pytest
from fastcore.docments import docments

from electra_nbdev.cli import electra_score
from electra_nbdev.engine.checkpoint import saved_networks
from electra_nbdev.engine.files import SHIPPED
from electra_nbdev.engine.models import shipped
from electra_nbdev.finetuning.recipe import open_model
from electra_nbdev.networks.recipe import load_hparams, preset
from electra_nbdev.pretraining.plan import run_cost
from electra_nbdev.pretraining.runs import write_cards
from electra_nbdev.scoring.likelihood import load_likelihood
from electra_nbdev.scoring.ranking import load_chooser
from electra_nbdev.scoring.request import ChoicesJob, ShowJob
from electra_nbdev.scoring.score import load_scorer
from electra_nbdev.data.text import sample_corpus

ROOT = Path(__file__).resolve().parents[1]
import baby, encoders, likelihoods, pairs, small, supplement

RESULTS = ROOT/'benchmarks/results'
ELECTRICS = 'electric', 'electric-baby'
FOUND = {o: json.loads((RESULTS/f'{o}.json').read_text())['found'] for o in ELECTRICS}
PAIRS = json.loads((RESULTS/'pairs.json').read_text())['found']
DATA = os.environ.get('ELECTRA_DATA')

@pytest.mark.parametrize('by', likelihoods.WAYS)
@pytest.mark.parametrize('name', ELECTRICS)
def test_word_order(name, by):
    found = likelihoods.word_order(load_likelihood(name, likelihoods.WAYS[by], device='cpu'),
                                   (sample_corpus()/'held_out.txt').read_text())
    assert found==pytest.approx(FOUND[name][by]['order_sample'], abs=.01)

def test_lists_are_tuned_on_one_half_and_judged_on_the_other(tmp_path):
    words = ('man', 'ship', 'sea', 'house', 'king'), ('old', 'new', 'lost', 'good')
    said = [f'the {a} was {b} .' for a in words[0] for b in words[1]]
    lists = [dict(hypotheses=[o.replace('was', 'because'), o], scores=[-1., -1.1], reference=o) for o in said]
    (tmp_path/'lists.json').write_text(json.dumps(lists))
    model = load_likelihood('electric', device='cpu')
    whole, parts = (f(model, tmp_path/'lists.json') for f in (likelihoods.lists, likelihoods.halves))
    assert whole['first']['WER']==20. and whole['reranked']['WER']<5.
    assert sum(o['lists'] for o in parts)==len(lists) and all(o['change']['WER']<=0 for o in parts)

@pytest.mark.skipif(not DATA, reason='ELECTRA_DATA names no folder')
@pytest.mark.parametrize('by', likelihoods.WAYS)
@pytest.mark.parametrize('name', ELECTRICS)
def test_all_numbers(name, by):
    model, want = load_likelihood(name, likelihoods.WAYS[by], device='cpu'), FOUND[name][by]
    found = likelihoods.measure(model, Path(DATA))
    for k,o in want['blimp'].items(): assert found['blimp'][k]['accuracy']==pytest.approx(o['accuracy'], abs=.2)
    for k in ('test_cv', 'wsj_scored_dev'):
        assert found[k]['change']['WER']==pytest.approx(want[k]['change']['WER'], abs=.1)

def test_the_default_is_the_way_that_was_better():
    "Plain energies are behind the towers in every kind of use, residual ones equal them and take longer"
    towers, energy = FOUND['electric']['towers'], FOUND['electric']['energy']
    for text in likelihoods.ONE_WORD:
        for k in ('replaced', 'chosen'):
            assert towers[f'one_word_{text}'][k]['low']>energy[f'one_word_{text}'][k]['high']
    for name in ('test_cv', 'wsj_scored_dev'): assert towers[name]['change']['WER']<energy[name]['change']['WER']
    for judge in PAIRS:
        right = {by: PAIRS[judge][f'electric-baby, {by}']['mean over sets'] for by in ('towers', 'energies')}
        assert abs(right['towers']['accuracy']-right['energies']['accuracy'])<.2
    assert all(load_likelihood(o, device='cpu').by=='towers' for o in ELECTRICS)

def test_the_help_has_the_numbers_of_the_pairs():
    told = docments(electra_score)['by']
    ways = 'electric-baby, towers', 'electric-baby, energies', 'electra-baby, p-replaced'
    right = [PAIRS['blimp'][o]['all pairs']['accuracy'] for o in ways]
    assert right[0]==right[1] and [f'{o:.0f}' for o in right[1:]]==re.findall(r'(\d+) %', told), told

def interval(o): return f"{o['accuracy']} [{o['low']}, {o['high']}]"

@pytest.mark.parametrize('by', likelihoods.WAYS)
def test_the_card_says_what_was_measured(by):
    card = (shipped('electric')/'README.md').read_text()
    assert interval(FOUND['electric'][by]['blimp']['all pairs']) in card

@pytest.mark.parametrize('judge', PAIRS)
def test_the_larger_models_card_has_every_phenomenon(judge):
    card = (shipped('electric-baby')/'README.md').read_text()
    grams = json.loads((RESULTS/'ngram_baby.json').read_text())['found'][judge]['5-gram']
    energies, towers = (PAIRS[judge][f'electric-baby, {o}'] for o in ('energies', 'towers'))
    for name in set(towers)-{'all pairs', 'ties'}:
        assert ' | '.join(interval(o[name]) for o in (energies, towers, grams)) in card

@pytest.mark.parametrize('page', ['tutorials/58_minimal_pairs.qmd', 'scoring/44_ranking.ipynb'])
def test_pages_have_the_pairs_of_the_larger_models(page):
    "The larger models of the package and those before them: the means of both tests with intervals in one row"
    text = (ROOT/'nbs'/page).read_text(encoding='utf-8')
    larger = 'electric-baby', 'electric-sentences-again', 'masked-baby-en', 'electra-baby'
    ways = [o for o in PAIRS['blimp'] if o.startswith(larger)]
    assert len(ways)==8
    runs = 'electric-sentences-again', 'electric-baby'
    before, after = (PAIRS['zorro'][f'{o}, towers']['mean over sets'] for o in runs)
    assert before['high']<after['low']
    for way in ways:
        assert ' | '.join(interval(PAIRS[o][way]['mean over sets']) for o in ('blimp', 'zorro')) in text, way

def test_pairs_without_the_weights_of_the_model_before(monkeypatch, tmp_path, capsys):
    "Every other way stays, and one line says which commit has them"
    before = pairs.ROOT/'absent'
    ways = [*pairs.TIMED, (before, 'energies'), (before, 'towers')]
    monkeypatch.setattr(pairs, 'BEFORE', before)
    assert pairs.present(ways)==pairs.TIMED and len(lines := capsys.readouterr().out.splitlines())==1
    assert 'git checkout 5dc23a0 -- absent' in lines[0]
    monkeypatch.setattr(pairs, 'BEFORE', tmp_path)
    assert pairs.present([(tmp_path, 'towers')])==[(tmp_path, 'towers')] and not capsys.readouterr().out

def test_pages_have_the_differences():
    "From the masked language model, pair by pair: of the towers of equal compute, and of P(replaced), which are losses"
    page = (ROOT/'nbs/tutorials/58_minimal_pairs.qmd').read_text(encoding='utf-8')
    found = json.loads((RESULTS/'pairs.json').read_text())['differences']
    towers, replaced = ([found[o][k] for o in PAIRS] for k in ('electric-sentences-again, towers',
                                                               'electra-baby, p-replaced'))
    assert '{points:+.1f} [{low:+.1f}, {high:+.1f}] points on BLiMP'.format(**towers[0]) in page
    assert '{points:+.1f} [{low:+.1f}, {high:+.1f}] on Zorro'.format(**towers[1]) in page
    losses = [f"{-o['points']:.1f} [{-o['high']:.1f}, {-o['low']:.1f}]" for o in replaced]
    assert f'{losses[0]} and {losses[1]} points less' in page

@pytest.mark.parametrize('judge', PAIRS)
def test_the_card_of_the_larger_electra_has_every_phenomenon(judge):
    card = (shipped('electra-baby')/'README.md').read_text()
    ways = 'electra-baby, p-replaced', 'electra-baby, pll', 'masked-baby-en, pll'
    for name in set(PAIRS[judge][ways[0]])-{'all pairs', 'ties'}:
        assert ' | '.join(interval(PAIRS[judge][o][name]) for o in ways) in card

def test_cards_have_the_operations_of_their_histories():
    "Every example counts as one of full length"
    def operations(name, stages=None):
        for stage,_,_,given in baby.MODEL_STAGES[name][:stages]:
            run = baby.place(name, stage)
            history = run/'history.jsonl' if run.is_dir() else run.with_suffix('.jsonl')
            steps = json.loads(history.read_text().splitlines()[-1])['step']
            yield steps*given['train_batch_size']*baby.operations(baby.recipe(name, given))
    masked, electra, electric = (sum(operations(o)) for o in ('masked', 'electra', 'electric'))
    electric_card, electra_card = ((shipped(o)/'README.md').read_text() for o in ('electric-baby', 'electra-baby'))
    assert f'{masked+electra:.1e} FLOPs (an example'.replace('+', '') in electra_card
    assert f'{electra:.1e} of them in the last run'.replace('+', '') in electra_card
    assert f'{electric:.1e} FLOPs (an example'.replace('+', '') in electric_card
    early = f'{sum(operations("electric", 4)):.1e}'
    assert early==f'{masked:.1e}' and f'2.6 passes, {early} FLOPs'.replace('+', '') in electric_card

def test_the_card_of_the_larger_electra_has_its_last_evaluation():
    card, history = ((shipped('electra-baby')/o).read_text() for o in ('README.md', 'history.jsonl'))
    last = [r['held_out'] for r in map(json.loads, history.splitlines()) if 'held_out' in r][-1]
    told = 'is {below_unigram:.2f} nats below the unigram baseline'.format(**last)
    assert told in card and '{disc_auc:.3f} on the generator'.format(**last) in card

def test_blanks_and_odd_words_are_measured_ones():
    "Notebook 34 has the blanks, the cards of both ELECTRAs their odd words; the larger one, the default, finds more"
    found = json.loads((RESULTS/'odd_words.json').read_text())['found']
    page = (ROOT/'nbs/scoring/44_ranking.ipynb').read_text(encoding='utf-8')
    for way,o in found['blanks'].items(): assert ' | '.join(map(interval, o.values())) in page, way
    best = found['blanks'].pop('electra-baby, generator')
    assert all(best[k]['low']>o[k]['high'] for o in found['blanks'].values() for k in best)
    for model in ('tiny', 'electra-baby'): assert load_chooser(model, device='cpu').by=='generator'
    small, large = found['odd']['tiny'], found['odd']['electra-baby']
    assert all(o['low']>small[k]['high'] for k,o in large.items())
    told = [f"{o['accuracy']:.0f} % [{o['low']:.0f}, {o['high']:.0f}]" for o in small.values()]
    assert all(o in (shipped('tiny')/'README.md').read_text() for o in told)
    card = (shipped('electra-baby')/'README.md').read_text()
    for o in (large, small, best, *found['blanks'].values()): assert ' | '.join(map(interval, o.values())) in card
    for odd in (small, large):
        shares = 'on WikiText-2 {:.0f} %, on film subtitles {:.0f} %'.format(*(o['accuracy'] for o in odd.values()))
        assert shares in (ROOT/'nbs/evidence.qmd').read_text(encoding='utf-8')
    assert ShowJob.default==ChoicesJob.default=='electra-baby'
    defaults = [signature(o).parameters['path'].default for o in (load_scorer, load_chooser)]
    assert defaults==['electra-baby']*2

def test_the_card_says_how_it_fine_tunes():
    "Every number of `benchmarks/encoders.py`, the row of each task in one line"
    found = json.loads((RESULTS/'encoders.json').read_text())['found']
    assert [*found]==[*encoders.SIDES]
    assert all(open_model(o) for k,o in encoders.SIDES.items() if k!='masked-baby-en') # whose weights git has
    card = (shipped('electra-baby')/'README.md').read_text()
    for task in next(iter(found.values())):
        assert ' | '.join(f"{o[task]['mean']:.1f} ± {o[task]['sd']:.1f}" for o in found.values()) in card

def test_the_page_on_a_checker_has_the_results():
    "Means and spreads of each arm of `benchmarks/ged_german.py` and `ged_noise.py`, shares of `benchmarks/gate.py`"
    page = (ROOT/'nbs/tutorials/55_wrong_words.qmd').read_text(encoding='utf-8')
    german, noise, gate = (json.loads((RESULTS/f'{o}.json').read_text()) for o in ('ged_german', 'ged_noise', 'gate'))
    def told(v): return f'{mean(v):.1f}' + (f' ± {stdev(v):.1f}' if len(v)>1 else '')
    for arm in {o['arm'] for o in german['runs']}:
        sizes = [[o['scores']['f0.5'] for o in german['runs'] if (o['arm'], o['size'])==(arm, n)]
                 for n in (500, 2000, 8000, None)]
        assert f"| {' | '.join(map(told, sizes))} |" in page, arm
    for language,found in noise['languages'].items():
        for arm in {o['arm'] for o in found['runs']}:
            odd = [o['odd'] for o in found['runs'] if o['arm']==arm]
            values = ' | '.join(told([o[k] for o in odd]) for k in ('f0.5', 'average_precision', 'auc'))
            assert f'| {values} |' in page, (language, arm)
    for name,o in gate['files']['de_falko-merlin_dev.tsv'].items():
        assert f"{o['gate']['found']:.1f} | {o['gate']['kept_back']:.1f} |" in page, name
    card = (shipped('electra-check')/'README.md').read_text()
    for name in ('tiny', 'electra-baby', 'electra-check'):
        o = gate['files']['en_realec_dev.tsv'][name]
        c = o['chosen']
        assert f"| `{name}` | {c['f0.5']:.1f} | {c['precision']:.1f} | {c['recall']:.1f} |" in card

def test_a_checker_that_was_not_taken():
    "Noise like people's from a larger encoder, beside the model of the package"
    log = (ROOT/'nbs/trials.qmd').read_text(encoding='utf-8')
    rows = json.loads((RESULTS/'gate.json').read_text())['files']['en_realec_dev.tsv']
    new, own = rows['electra-small-en-2, an hour of noise'], rows['electra-check']
    told = (f"{o['chosen']['f0.5']:.1f}" for o in (new, own))
    assert 'F0.5 {}, `electra-check` {}; average precision'.format(*told) in log
    other = rows['electra-small-en-2, 2,400 updates on the other text']['chosen']['f0.5']
    assert f'After 2,400 updates on the text of `electra-check` F0.5 is {other:.1f},' in log
    told = (f"{o['average_precision']:.1f}" for o in (new, own))
    assert 'average precision {} and {}.'.format(*told) in log
    told = (f'{o["alarms"][k]:.1f}' for k in ('wikitext2.valid.detok', 'open_subtitles') for o in (new, own))
    assert 'with a word flagged {} % and {} %, of subtitles {} % and {} %.'.format(*told) in log

def above(ones, others):
    "Mean of three paired differences and its 95 % interval, which is 4.303 standard errors to each side"
    found = [a-b for a,b in zip(ones, others)]
    half = 4.303*stdev(found)/math.sqrt(3)
    return f'{mean(found):.1f} [{mean(found)-half:.1f}, {mean(found)+half:.1f}]'

def test_the_log_of_trials_has_the_results():
    "Settings that were chosen from, rates of Muon, and tasks after 1e14 operations"
    page = (ROOT/'nbs/trials.qmd').read_text(encoding='utf-8')
    equal, later, ladder = (json.loads((RESULTS/f'{o}.json').read_text()) for o in
                            ('equal_compute', 'equal_compute_1e14', 'ladder'))
    for objective,found in equal['choices'].items():
        if len(found)>1: assert f"| {objective} | {' | '.join(f'{o:.1f}' for o in found.values())} |" in page
        else: assert f'{next(iter(found.values())):.1f}' in page, objective
    last = [r['parts'][-1]['scores'] for r in later['rows']]
    chunk, means = [f"{o['chunk']:.1f}" for o in last], [f'{mean(o.values()):.1f}' for o in last]
    assert f'F1 {chunk[0]} for ELECTRA, {chunk[2]} and {chunk[1]} for masked language models' in page
    assert f'The mean of five tasks is {means[0]}, {means[2]} and {means[1]}' in page
    assert (f'A second seed of ELECTRA, on 28 November: F1 {chunk[3]}, and {means[3]}; '
            f'of the first masked language model {chunk[4]}, and {means[4]}') in page
    def of(base, change):
        found = [r for r in ladder['runs'] if (r['base'], r['change'], r['share'])==(base, change, 1.)]
        return sorted(found, key=lambda r: r['seed'])
    rows = [of('RTD', 'MLM first, 40 %'), of('RTD', 'base'), of('MLM', 'base')]
    def spread(values): return mean(values), stdev(values)
    def told(what, n, rows=rows): return ['{:.{}f} ± {:.{}f}'.format(m, n, s, n) for m,s in
                                          (spread([*map(what, o)]) for o in rows)]
    assert 'F1 {}, from the beginning {}, the masked language model alone {};'.format(
        *told(lambda r: r['scores']['chunk'], 1)) in page
    assert 'the mean of five tasks {}, {} and {}.'.format(*told(lambda r: r['mean'], 1)) in page
    for name,n,words in (('below_unigram', 2, '{} nats below the unigram baseline, and {};'),
                         ('disc_auc', 3, 'which are harder then, {} and {}.')):
        assert words.format(*told(lambda r: r['held_out'][name], n, rows[:2])) in page
    means = [[r['mean'] for r in o] for o in rows]
    budget = (ROOT/'nbs/budget.qmd').read_text(encoding='utf-8')
    assert (f'the mean of an ELECTRA is {above(means[1], means[2])} above that of a masked language model, and that '
            f'of one after the other {above(means[0], means[2])}.') in budget
    both, alone, mlm = zip(told(lambda r: r['scores']['chunk'], 1), told(lambda r: r['mean'], 1))
    for name,o in (('one after the other', both), ('ELECTRA', alone), ('masked language model', mlm)):
        assert f'| {name} | {o[0]} | {o[1]} |' in budget
    assert (f"That mean is {above(means[0], means[2])} above the masked language model's (95 % interval, seed by "
            f'seed), without the first stage {above(means[1], means[2])}.') in page
    gains = [a['scores']['chunk']-b['scores']['chunk'] for a,b in zip(*rows[:2])]
    assert 'is {:.1f}, {:.1f} and {:.1f}'.format(*gains) in page
    later, = of('RTD', 'MLM first, 70 %')
    assert f"With 70 % (one run) {later['scores']['chunk']:.1f} and {later['mean']:.1f}" in page
    def rates(base, change='Muon'): return sorted((r['rate'], r['share'], r['scores']['chunk'])
                                                  for r in ladder['runs'] if (r['base'], r['change'])==(base, change))
    for base,told in dict(RTD="ELECTRA's F1 ", MLM='A masked language model: ').items():
        half = [f'{f1:.1f}' for _,share,f1 in rates(base) if share==.5]
        end, = (f'{f1:.1f}' for _,share,f1 in rates(base) if share==1.)
        row, = (o for o in page.split('\n') if '| Muon for the matrices' in o)
        assert f"{told}{', '.join(half[:3])} and {half[3]}" in row and f'at the end {end}' in row
    modern, = (o for o in page.split('\n') if "| Muon with ModernBERT's body" in o)
    *half, (_, _, end) = sorted(rates('RTD', 'ModernBERT body, Muon'), key=lambda o: o[1])
    assert "ELECTRA's F1 {:.1f}, {:.1f} and {:.1f} with".format(*(o for *_,o in half)) in modern
    own, adam = ([r for r in ladder['runs'] if (r['base'], r['change'], r['seed'])==('RTD', o, 0)][0]
                 for o in ('ModernBERT body, Muon', 'ModernBERT body'))
    assert f"at the end {end:.1f} and the mean of five tasks {own['mean']:.1f}, with Adam " \
           f"{adam['scores']['chunk']:.1f} and {adam['mean']:.1f} (one seed)" in modern
    for k,words in (('below_unigram', 'is {:.2f} nats below the unigram baseline, with Adam {:.2f}'),
                    ('auc_unigram', 'replacements is {:.3f} and {:.3f}')):
        assert words.format(own['held_out'][k], adam['held_out'][k]) in modern

def test_an_encoder_that_begins_as_a_masked_language_model():
    "F1 and the mean of five tasks after 1e14 operations, three seeds, with differences seed by seed"
    later, ladder = (json.loads((RESULTS/f'{o}.json').read_text()) for o in ('equal_compute_1e14', 'ladder_1e14'))
    def alone(name): return {r['seed']: r['parts'][-1]['scores'] for r in later['rows']
                             if r['objective']==name and r['setting'].startswith('1,024')}
    both = {r['seed']: r['scores'] for r in ladder['runs'] if r['change']=='MLM first, 40 %'}
    sides = [[o[k] for k in range(3)] for o in (both, alone('ELECTRA, two networks'), alone('MLM, 40 %'))]
    def told(v): return f'{mean(v):.1f} ± {stdev(v):.1f}'
    chunk, means = [[o['chunk'] for o in v] for v in sides], [[mean(o.values()) for o in v] for v in sides]
    (f, e, m), (fm, em, mm) = map(told, chunk), map(told, means)
    to_e, to_m, m_to_e = above(chunk[0], chunk[1]), above(chunk[0], chunk[2]), above(chunk[2], chunk[1])
    pages = {o: (ROOT/o).read_text(encoding='utf-8') for o in
             ('nbs/trials.qmd', 'nbs/budget.qmd', 'nbs/evidence.qmd', 'nbs/tutorials/54_objectives.ipynb', 'README.md')}
    cola = [told([o['cola'] for o in v]) for v in sides]
    assert 'CoLA differs most, {}, {} and {} |'.format(*cola) in pages['nbs/trials.qmd']
    for words in (f'F1 {f}, ELECTRA from the beginning {e}, the masked language model alone {m}: {to_e} above the '
                  f'first and {to_m} above the second, which is {m_to_e} above the first (',
                  f'The mean of five tasks is {fm}, {em} and {mm}'):
        assert words in pages['nbs/trials.qmd']
    for words in (f'F1 {f} for one after the other; an ELECTRA has {e}, a masked language model {m} |',
                  f'{to_e} above that of an ELECTRA and {to_m} above that of a masked language model, which is '
                  f'{m_to_e} above that of an ELECTRA.', f'| {f} | {fm} |', f'| {e} | {em} |', f'| {m} | {mm} |'):
        assert words in pages['nbs/budget.qmd']
    for words in (f'{e}, with 40 % masked {m} ', f'and {f} with 40 %'): assert words in pages['nbs/evidence.qmd']
    for words in (f'reaches {f}, {to_e} above', f'{to_m} above the masked language model alone',
                  f'reaches {m}, {m_to_e} above them', f'the mean of five tasks is {fm}',
                  f'The mean of the five tasks is {em} and {mm}'):
        assert words in pages['nbs/tutorials/54_objectives.ipynb'], words

def test_pages_have_the_pairs_of_the_supplement():
    "Whole sets of the shipped models and n-gram models, and the stages of `electric-baby`"
    found = json.loads((RESULTS/'supplement.json').read_text())['models']
    def of(name, k='mean over sets'): return f"{found[name][k]['accuracy']:.1f}"
    pages = 'evidence', 'budget', 'trials'
    evidence, budget, log = ((ROOT/f'nbs/{o}.qmd').read_text(encoding='utf-8') for o in pages)
    shipped_ones, ways = ('electric, towers', 'electric-baby, towers', 'electra-baby, pll'), 'n-gram, 5-gram'
    kinds = 'hypernym', 'turn_taking', 'qa_congruence_easy'
    spans = {k: sorted(found[o][k]['accuracy'] for o in shipped_ones) for k in kinds}
    names = 'hypernyms', 'turns', 'answers'
    told = [f'{what} {spans[k][0]:.1f} to {spans[k][-1]:.1f}' for what,k in zip(names, kinds)]
    assert f"{told[0]} %, {told[1]}, {told[2]}; a 5-gram model {of(ways, kinds[0])}, {of(ways, kinds[1])} and " \
           f"{of(ways, kinds[2])}." in evidence
    tricky = [of(f'{o}, towers', 'qa_congruence_tricky') for o in
              ('electric', 'electric-baby', 'electric-rows', 'electric-discriminator')]
    assert '`electric-tiny-en` has {} %, `electric-baby-en` {}; after its first stage it had {}, after the second, ' \
           'which read the same rows cut to 32 tokens, {}.'.format(*tricky) in evidence
    assert 'fell from {2} to {3} in the second stage, which read rows too, and to {1} at'.format(*tricky) in log
    assert '({2} to {1}), and most of that, to {3}, in a second'.format(*tricky) in budget
    first, last = of('electric-rows, towers'), of('electric-baby, towers')
    assert f'fell from {first} to {last} % over' in budget and f'{first} and {last} %: answers' in log
    stages = [{k: found[f'{o}, towers'][k]['accuracy'] for k in found[f'{o}, towers'] if k in supplement.SETS}
              for o in ('electric-rows', 'electric-baby')]
    changes = {k: abs(v-stages[1][k]) for k,v in stages[0].items()}
    assert sorted(changes, key=changes.get)[-2:]==['qa_congruence_easy', 'qa_congruence_tricky']
    assert sorted(changes.values())[2]==3
    for k in ('qa_congruence_easy', 'qa_congruence_tricky'):
        before, after = (o[k] for o in stages)
        assert k=='qa_congruence_tricky' or f'from {before:.1f} to {after:.1f}' in log
        assert f'{before:.1f} to {after:.1f}' in budget
    card = (shipped('electric-baby')/'README.md').read_text()
    assert f'it gets {last} % [' in card and f'a 5-gram model of its text {of(ways)};' in card

def test_rates_of_fine_tuning():
    "Two encoders, four pairs of rates, one seed"
    found = json.loads((RESULTS/'finetune_rates.json').read_text())['scores']
    def told(model, task): return {k: f"{o['0']:.1f}" for k,o in found[model][task].items()}
    baby, bert, sst = told('electra-baby', 'chunk'), told('bert', 'chunk'), told('electra-baby', 'sst')
    log, budget = ((ROOT/f'nbs/{o}.qmd').read_text(encoding='utf-8') for o in ('trials', 'budget'))
    def pairs(o): return '{1e-4, falling} and {3e-4, falling} falling, {1e-4, even} and {3e-4, even} even'.format(**o)
    assert f'F1: `electra-baby` {pairs(baby)}; BERT {pairs(bert)}.' in log
    card = (shipped('electra-baby')/'README.md').read_text(encoding='utf-8')
    even = re.search(r'SST-2, accuracy \| (.*?) \|', card)[1]
    assert f"`electra-baby` {sst['1e-4, falling']} and {sst['3e-4, falling']} falling, {even} even" in log
    assert f"`electra-baby` has F1 {baby['3e-4, even']} in this way and {baby['1e-4, falling']} with the official " \
           f"rates, a published BERT " \
           f"{bert['3e-4, even']} and {bert['1e-4, falling']} (one seed" in budget

def test_the_first_stage_of_a_wider_electra():
    "Held-out text, and fine-tuning with one rate for all layers beside `electra-baby` from the same rows"
    log = (ROOT/'nbs/trials.qmd').read_text(encoding='utf-8')
    row, = (o for o in log.split('\n') if 'one pass over 24 million words' in o)
    history = (RESULTS/'small/electra-small-en-1.jsonl').read_text().splitlines()
    last = [o['held_out'] for o in map(json.loads, history) if 'held_out' in o][-1]
    assert '{auc_unigram:.3f}, generator {below_unigram:.2f} nats below the unigram baseline'.format(**last) in row
    wide = json.loads((RESULTS/'finetune_rates.json').read_text())['scores']['electra-small-en-1']
    baby = json.loads((RESULTS/'encoders.json').read_text())['found']['electra-baby']
    for task,name in dict(chunk='F1 of chunking', cola='CoLA', sst='SST-2', mrpc='MRPC').items():
        own = wide[task]['3e-4, even'].values()
        assert f"{name} {mean(own):.1f} ± {stdev(own):.1f} and {baby[task]['mean']:.1f} ± {baby[task]['sd']:.1f}" in row
    facts = dict(vocab_size=small.VOCAB, max_seq_length=small.LENGTH, num_train_steps=16_300)
    flops = run_cost(preset('modern', **small.ALL | small.STAGES[0][2] | facts), bf16=True).flops
    assert f'({flops:.1e} FLOPs,'.replace('+', '') in row

def test_the_size_of_a_vocabulary():
    "Three seeds each of half the size that is taken, it and twice it"
    runs = json.loads((RESULTS/'vocab_size.json').read_text())['runs']
    each = [[o for o in runs if o['size']==size] for size in (3600, 7200, 14400)]
    def told(key, form): return [form([o[key] for o in own]) for own in each]
    bits = told('bits_per_byte', lambda o: f'{mean(o):.2f}')
    scores = told('chunk', lambda o: f'{mean(o):.1f} ± {stdev(o):.1f}')
    assert all(len(o)==3 for o in each)
    for page in ('trials.qmd', 'data/12_tokenizer.ipynb'):
        text = (ROOT/'nbs'/page).read_text(encoding='utf-8')
        for o in (bits, scores): assert '{}, {} and {}'.format(*o) in text

def test_the_second_stage_of_a_wider_electra():
    "Held-out text before and after, and what is fine-tuned so far"
    log = (ROOT/'nbs/trials.qmd').read_text(encoding='utf-8')
    row, = (o for o in log.split('\n') if 'half a pass more' in o)
    def last(stage, part):
        lines = (RESULTS/f'small/electra-small-en-{stage}.jsonl').read_text().splitlines()
        return [o[part] for o in map(json.loads, lines) if part in o][-1]
    for name,form in (('auc_unigram', '.3f'), ('gen_loss', '.2f')):
        assert f"{last(2, 'held_out')[name]:{form}} for {last(1, 'held_out')[name]:{form}}" in row
    bits = [last(i, 'domain')['after']['bits_per_byte'] for i in (2, 1)]
    assert '{:.2f} for {:.2f} bits per byte'.format(*bits) in row
    scores = json.loads((RESULTS/'finetune_rates.json').read_text())['scores']
    for task,found in scores['electra-small-en-2'].items():
        now, before = (scores[f'electra-small-en-{i}'][task]['3e-4, even'] for i in (2, 1))
        assert all(f'{now[seed]:.1f} for {before[seed]:.1f}' in row for seed in now)
    facts = dict(vocab_size=small.VOCAB, max_seq_length=small.LENGTH, num_train_steps=9144)
    flops = run_cost(preset('modern', **small.ALL | small.STAGES[1][2] | facts), bf16=True).flops
    assert f'({flops:.1e} FLOPs,'.replace('+', '') in row

def test_modernbert_with_more_and_fewer_operations():
    "One seed each, of two thirds of the operations three"
    pages = 'trials', 'budget', 'evidence'
    log, budget, evidence = ((ROOT/f'nbs/{o}.qmd').read_text(encoding='utf-8') for o in pages)
    def of(name, base='RTD', seed=0):
        runs = json.loads((RESULTS/f'{name}.json').read_text())['runs']
        row, = [r for r in runs if (r['base'], r['change'], r['seed'])==(base, 'ModernBERT body', seed)]
        return f"{row['scores']['chunk']:.1f}", f"{row['mean']:.1f}"
    (m, mm), (e, em) = of('ladder_1e14', 'MLM'), of('ladder_1e14')
    assert f'F1 {m} and {e}, the mean of five tasks {mm} and {em};' in log
    assert 'A second seed of the ELECTRA has F1 {} and a mean of {}.'.format(*of('ladder_1e14', seed=1)) in log
    assert 'With half of them F1 {} and a mean of {},'.format(*of('ladder_1e13')) in log
    def measured(name, change):
        rows = [r for r in json.loads((RESULTS/f'{name}.json').read_text())['runs']
                if (r['base'], r['change'], r['share'])==('RTD', change, 1.)]
        rows = sorted(rows, key=lambda r: r['seed'])
        return [r['scores']['chunk'] for r in rows], [r['mean'] for r in rows]
    fewer, base = measured('ladder_13e12', 'ModernBERT body'), measured('ladder', 'base')
    def told(side): return [f'{mean(o):.1f} ± {stdev(o):.1f}' for o in side]
    (f1, all_tasks), (f1_base, tasks_base) = told(fewer), told(base)
    gain, gain_tasks = (above(a, b) for a,b in zip(fewer, base))
    assert f"F1 {f1}, {gain} above ELECTRA's own body after 2e13 ({f1_base}); the mean of five tasks {all_tasks}, " \
           f"{gain_tasks} above ({tasks_base})" in log
    assert f"ModernBERT's body has {f1}, {gain} above ELECTRA's own with all of them |" in evidence

def test_the_body_of_modernbert():
    "Three seeds of two objectives with 2e13 operations, beside ELECTRA's body"
    runs = json.loads((RESULTS/'ladder.json').read_text())['runs']
    def of(base, change):
        rows = [r for r in runs if (r['base'], r['change'], r['share'])==(base, change, 1.)]
        return sorted(rows, key=lambda r: r['seed'])
    def told(rows, k='chunk'):
        values = [r['mean'] if k=='mean' else r['scores'][k] for r in rows]
        return f'{mean(values):.1f}' + (f' ± {stdev(values):.1f}' if len(values)>1 else '')
    def gain(own, base): return above(*([r['scores']['chunk'] for r in o] for o in (own, base)))
    rtd, mlm = ([of(o, 'ModernBERT body'), of(o, 'base')] for o in ('RTD', 'MLM'))
    assert all(len(o)==3 for o in (*rtd, *mlm))
    def pair(sides, *k): return ' for '.join(told(o, *k) for o in sides)
    log, budget, recipe = ((ROOT/o).read_text(encoding='utf-8') for o in
                           ('nbs/trials.qmd', 'nbs/budget.qmd', 'nbs/networks/16_recipe.ipynb'))
    lows, highs = zip(*[(min(t), max(t)) for t in ([r['seconds'] for r in o] for o in rtd)])
    for words in (f"ELECTRA's F1 is {pair(rtd)}, {gain(*rtd)} above",
                  f"SST-2 {pair(rtd, 'sst')}, MRPC {pair(rtd, 'mrpc')}",
                  f"the mean of five tasks {pair(rtd, 'mean')}; in {lows[0]:.0f} to {highs[0]:.0f} seconds, and "
                  f"{lows[1]:.0f} to {highs[1]:.0f}.",
                  f"masked language model's F1 is {pair(mlm)}, {gain(*mlm)} above, the mean {pair(mlm, 'mean')};"):
        assert words in log, words
    evidence = (ROOT/'nbs/evidence.qmd').read_text(encoding='utf-8')
    (e, e0), (m, m0) = ([told(o) for o in side] for side in (rtd, mlm))
    means = above(*([r['mean'] for r in o] for o in mlm))
    assert f'ELECTRA {e}, with its own body {e0}, {gain(*rtd)} above; a masked language model {m}, {m0}, ' \
           f'{gain(*mlm)} above (mean of five tasks {means});' in evidence
    wide, (modern, plain) = of('RTD', 'embeddings of 96'), rtd
    assert len(wide)==3
    def by_seed(own, base, k):
        return above(*([r['mean'] if k=='mean' else r['scores'][k] for r in o] for o in (own, base)))
    for words in (f"F1 {told(wide)}, {by_seed(wide, plain, 'chunk')} above embeddings of 64",
                  f"and {by_seed(modern, wide, 'chunk')} below ModernBERT's body",
                  f"SST-2 {told(wide, 'sst')} and the mean of five tasks {told(wide, 'mean')}, "
                  f"{by_seed(wide, plain, 'mean')} above embeddings of 64; ModernBERT's body has "
                  f"{told(modern, 'sst')} and {told(modern, 'mean')}"): assert words in log, words
    assert f'embeddings as wide {told(wide)}, {by_seed(modern, wide, "chunk")} below.' in evidence
    more = of('RTD', 'ModernBERT body, corrective')
    assert len(more)==3
    for words in (f"F1 {told(more)}, the body alone {told(modern)}, {by_seed(more, modern, 'chunk')} above (",
                  f"CoLA {told(more, 'cola')} and {told(modern, 'cola')}, SST-2 {told(more, 'sst')} and "
                  f"{told(modern, 'sst')}, the mean of five tasks {told(more, 'mean')} and {told(modern, 'mean')}, "
                  f"{by_seed(more, modern, 'mean')} above"): assert words in log, words
    assert f'WikiText-2 {told(more)}, without it {told(modern)}, {by_seed(more, modern, "chunk")} above;' in evidence
    assert f'F1 is {told(more)} and SST-2 {told(more, "sst")}, where `tiny` has' in budget
    fixed, both = of('RTD', 'fixed generator of all lengths')[0], plain[0]
    assert f"F1 {fixed['scores']['chunk']:.1f}, together {both['scores']['chunk']:.1f} with that seed; the mean of " \
           f"five tasks {fixed['mean']:.1f} and {both['mean']:.1f}; the generator is " \
           f"{fixed['held_out']['below_unigram']:.2f} nats below the unigram baseline, together " \
           f"{both['held_out']['below_unigram']:.2f}." in log
    first, same = of('RTD', 'ModernBERT body, MLM first, 40 %')[0]['scores'], modern[0]['scores']
    for k,name in (('chunk', 'F1'), ('sst', 'SST-2')): assert f'{name} {first[k]:.1f}' in log
    assert f"from the beginning {same['chunk']:.1f} with that seed; SST-2 {first['sst']:.1f} and {same['sst']:.1f}:" \
        in log
    (f, f0), (s, s0) = ([told(o, k).split()[0] for o in rtd] for k in ('chunk', 'sst'))
    assert f'where `tiny` has {f0} and {s0}; without' in budget and f'a part of the preset, {f} and {s};' in budget
    longer, plain = (json.loads((RESULTS/f'{o}_1e14.json').read_text()) for o in ('ladder', 'equal_compute'))
    first = {r['change']: r for r in longer['runs'] if r['base']=='RTD' and r['seed']==0}
    own = plain['rows'][0]
    assert (own['objective'], own['seed'])==('ELECTRA, two networks', 0)
    sides = [first['ModernBERT body']['scores'], own['parts'][-1]['scores'], first['MLM first, 40 %']['scores']]
    f, e, m = (f"{o['chunk']:.1f}" for o in sides)
    assert f"F1 {f}; with ELECTRA's own body {e} with that seed, and {m} where" in log
    assert 'mean of five tasks is {:.1f}, {:.1f} and {:.1f}; AUC'.format(*(mean(o.values()) for o in sides)) in log
    assert f"replacements {first['ModernBERT body']['held_out']['auc_unigram']:.3f} |" in log
    assert f'F1 of chunking is {told(more)}, with the body alone {told(rtd[0])}, that of `tiny` ' \
           f'{told(rtd[1])}' in recipe

def test_muon_with_the_body_of_modernbert():
    "Rates after half of the operations, the end, and the same seed with Adam"
    runs = json.loads((RESULTS/'ladder.json').read_text())['runs']
    log, evidence = ((ROOT/f'nbs/{o}.qmd').read_text(encoding='utf-8') for o in ('trials', 'evidence'))
    row, = (o for o in log.split('\n') if '| Muon for a masked language model with' in o)
    ends = {}
    for base,change,words in (('MLM', 'ModernBERT body', "the masked language model's F1"),
                              ('RTD', 'ModernBERT body, corrective', "ELECTRA's")):
        own = [r for r in runs if (r['base'], r['change'])==(base, f'{change}, Muon')]
        half = sorted((r['rate'], r['scores']['chunk']) for r in own if r['share']==.5)
        end, = (r for r in own if r['share']==1. and r['seed']==0)
        adam, = (r for r in runs if (r['base'], r['change'], r['seed'])==(base, change, 0))
        told = '{} {:.1f}, {:.1f} and {:.1f}'.format(words, *(o for _,o in half))
        assert told in row and [o for o,_ in half]==[1e-3, 2e-3, 4e-3]
        ends[base] = f"{end['scores']['chunk']:.1f}"
        assert f"at the end {ends[base]} and" in row and f"{end['mean']:.1f}, with Adam " \
               f"{adam['scores']['chunk']:.1f} and {adam['mean']:.1f}" in row
    second = {o: next(r for r in runs if (r['base'], r['change'], r['seed'], r['share'])==('MLM', o, 1, 1.))
              for o in ('ModernBERT body, Muon', 'ModernBERT body')}
    told = [f"{r['scores']['chunk']:.1f} and {r['mean']:.1f}" for r in second.values()]
    assert 'with a second seed {}, with Adam {}.'.format(*told) in row
    assert f"F1 {ends['RTD']} (one seed), and {ends['MLM']} and {told[0].split()[0]} (two)" in evidence
    gdes, plain = (next(r for r in runs if (r['base'], r['change'], r['seed'])==('RTD', o, 0))
                   for o in ('GDES', 'base'))
    assert f"F1 {gdes['scores']['chunk']:.1f}, with shared embeddings {plain['scores']['chunk']:.1f} with" in log
    assert f"the mean of five tasks {gdes['mean']:.1f} and {plain['mean']:.1f}; AUC on unigram replacements " \
           f"{gdes['held_out']['auc_unigram']:.3f} and {plain['held_out']['auc_unigram']:.3f}: no gain" in log

def test_whole_words_and_batches_that_grow():
    "One seed each, beside the same objective and seed without the change"
    log = (ROOT/'nbs/trials.qmd').read_text(encoding='utf-8')
    found = json.loads((RESULTS/'ladder.json').read_text())['runs']
    runs = {(r['base'], r['change']): r for r in found if r['seed']==0}
    def told(base, change, form):
        sides = runs[base, change], runs[base, 'base']
        return form.format(*(f"{r['scores']['chunk']:.1f}" for r in sides), *(f"{r['mean']:.1f}" for r in sides))
    apart = 'F1 {}, without {} with that seed; the mean of five tasks {} and {}'
    for words in (told('RTD', 'whole words', f'ELECTRA: {apart}. M'),
                  told('RTD', 'batch grows', f'{apart}: no gain'),
                  told('MLM', 'batch grows', 'model: F1 {} and {}; {} and {}, nearly'),
                  told('MLM', 'whole words', 'model: F1 {} and {}; {} and {}: no gain')): assert words in log, words

def test_an_electra_that_corrects_is_ahead_of_a_masked_language_model():
    "After 1e14 operations; intervals seed by seed, where there are two seeds by Student's test of two samples"
    from scipy.stats import ttest_ind, ttest_rel
    runs = sorted(json.loads((RESULTS/'ladder_1e14.json').read_text())['runs'], key=lambda r: r['seed'])
    pages = 'trials', 'budget', 'evidence'
    log, budget, evidence = ((ROOT/f'nbs/{o}.qmd').read_text(encoding='utf-8') for o in pages)
    readme = (ROOT/'README.md').read_text(encoding='utf-8')
    rows = dict(more=('RTD', 'ModernBERT body, corrective'), alone=('RTD', 'ModernBERT body'),
                mlm=('MLM', 'ModernBERT body'))
    def values(row, k):
        found = [r for r in runs if (r['base'], r['change'])==rows[row]]
        return [r['mean'] if k=='mean' else r['scores'][k] for r in found]
    def told(row, k): return f'{mean(values(row, k)):.1f} ± {stdev(values(row, k)):.1f}'
    def two(row, k): return '{:.1f} and {:.1f}'.format(*values(row, k))
    def above(row, k):
        sides = values('more', k), values(row, k)
        test = ttest_rel if len(sides[0])==len(sides[1]) else ttest_ind
        low, high = test(*sides).confidence_interval()
        return f'{mean(sides[0])-mean(sides[1]):.1f} [{low:.1f}, {high:.1f}]'
    f1, tasks, mlm, means = told('more', 'chunk'), told('more', 'mean'), told('mlm', 'chunk'), told('mlm', 'mean')
    gain, gains = above('mlm', 'chunk'), above('mlm', 'mean')
    assert f'F1 {f1} (by seeds ' in log and f"without it {two('alone', 'chunk')} (two seeds)" in log
    assert f'language model {mlm} (' in log and f'the mean of five tasks {tasks} (' in log
    assert f'and {means}; CoLA' in log
    assert f'F1 is {gain} above it, the mean {gains} (' in log
    assert f"{above('alone', 'chunk')} and {above('alone', 'mean')} above the ELECTRA without" in log
    assert f'F1 {f1}, and {tasks} on the mean' in budget and f'with that body {mlm}, and {means}.' in budget
    assert f'F1 of chunking is {gain} above' in budget and f'its mean of five tasks {gains};' in budget
    assert f'F1 {f1} where the masked language model has {mlm}, {gain} above; the mean {tasks} and {means}, ' \
           f'{gains} above' in evidence
    shown = [f'{mean(values(row, k)):.1f}' for k in ('chunk', 'mean') for row in ('more', 'mlm')]
    assert 'F1 of chunking {} against {}, five tasks {} against {}'.format(*shown) in readme

def test_pages_on_a_bert_that_finds_wrong_words():
    "Means and spreads by marked sentences, before, and after updates as an ELECTRA and as a masked language model"
    electra, mlm = (json.loads((RESULTS/f'{o}.json').read_text())['found'] for o in ('domain_ged', 'domain_ged_mlm'))
    assert [o['before'] for o in electra.values()]==[o['before'] for o in mlm.values()]
    rows = [[o[k] for o in found.values()] for found,k in ((electra, 'before'), (mlm, 'after'), (electra, 'after'))]
    page, evidence, log = ((ROOT/f'nbs/{o}.qmd').read_text(encoding='utf-8') for o in
                           ('tutorials/55_wrong_words', 'evidence', 'trials'))
    for row in rows: assert f"| {' | '.join(f'{mean(o):.1f} ± {stdev(o):.1f}' for o in row)} |" in page
    (b, b5, b2), (m, m5, m2), (e, e5, e2) = ([f'{mean(o):.1f}' for o in row] for row in rows)
    assert f'from 500 sentences {b5}, {e5} and {m5}; from 2,000 {b2}, {e2} and {m2}' in evidence
    assert f'{e}, {e5} and {e2}; the masked language model {m}, {m5} and {m2}; without either {b}, {b5} and {b2}' in log

def test_muon_after_ten_times_the_operations():
    "Rates after half of the operations, and the ends with either optimizer"
    runs = json.loads((RESULTS/'ladder_1e14.json').read_text())['runs']
    log, evidence = ((ROOT/f'nbs/{o}.qmd').read_text(encoding='utf-8') for o in ('trials', 'evidence'))
    row, = (o for o in log.split('\n') if '| Muon and 1e14 FLOPs' in o)
    own = [r for r in runs if r['change']=='ModernBERT body, Muon']
    half = sorted((r['rate'], r['scores']['chunk']) for r in own if r['share']==.5)
    assert [o for o,_ in half]==[1e-3, 2e-3, 4e-3]
    assert 'F1 {:.1f}, {:.1f} and {:.1f} with rates'.format(*(o for _,o in half)) in row
    def ends(base, change):
        found = [r for r in runs if (r['base'], r['change'], r['share'])==(base, change, 1.)]
        for values in ([r['scores']['chunk'] for r in found], [r['mean'] for r in found]):
            yield f'{mean(values):.1f} ± {stdev(values):.1f}'
    f, m, a, am = *ends('MLM', 'ModernBERT body, Muon'), *ends('MLM', 'ModernBERT body')
    assert f'at the end {f} and the mean of five tasks {m}, with Adam {a} and {am}:' in row
    def two(change, k):
        found = {r['seed']: r for r in runs if (r['base'], r['change'], r['share'])==('RTD', change, 1.)}
        return ' and '.join(f"{found[s]['mean'] if k=='mean' else found[s]['scores'][k]:.1f}" for s in (0, 1))
    muon, adam = ([two(o, k) for k in ('chunk', 'mean')] for o in
                  ('ModernBERT body, corrective, Muon', 'ModernBERT body, corrective'))
    assert 'at the end {} and the mean {}, with Adam and these seeds {}, and {}.'.format(*muon, *adam) in row
    assert f'has F1 {f} and the mean {m}, the ELECTRA {muon[0]}, and {muon[1]} (two seeds)' in evidence
    def sides(k, *rows):
        found = [{r['seed']: dict(r['scores'], mean=r['mean'])[k] for r in runs if r['share']==1.
                  and (r['base'], r['change'])==o} for o in rows]
        return [[o[s] for s in range(3)] for o in found]
    rivals = ('RTD', 'ModernBERT body, corrective'), ('MLM', 'ModernBERT body, Muon')
    gain, gains = (above(*sides(k, *rivals)) for k in ('chunk', 'mean'))
    assert f'is then {gains} above the masked language model with Muon (F1 {gain}, three seeds)' in row
    half = sorted((r['rate'], r['scores']['chunk']) for r in runs
                  if r['change']=='ModernBERT body, corrective, Muon' and r['share']==.5)
    assert [o for o,_ in half]==[1e-3, 2e-3, 4e-3]
    assert "The ELECTRA's F1 {:.1f}, {:.1f} and {:.1f} with these rates".format(*(o for _,o in half)) in row

def test_fine_tuning_a_real_bert():
    "Medians and extremes of three seeds of five tasks, seconds, and the first two seeds without a bias correction"
    runs = json.loads((RESULTS/'real_weights.json').read_text())['runs']
    runs.sort(key=lambda o: o['seed'])
    def of(side, k='score', task='cola'): return [o[k] for o in runs if (o['task'], o['side'])==(task, side)]
    page, log = ((ROOT/f'nbs/{o}.qmd').read_text(encoding='utf-8') for o in ('evidence', 'trials'))
    def told(side, task='cola'):
        scores = of(side, task=task)
        return f'{median(scores):.1f} ({min(scores):.1f} to {max(scores):.1f})'
    ours, theirs, any_ = map(told, ('ours', 'theirs', 'any lengths'))
    assert f'{ours}, the Trainer {theirs}, here with batches of any lengths {any_}' in page
    seconds = [median(of(o, 'seconds')) for o in ('ours', 'theirs', 'any lengths')]
    assert '{}, {} and {} seconds of a core'.format(*seconds) in page
    shares, medians = [seconds[0]/seconds[1]], []
    for task in ('mrpc', 'rte', 'sts', 'sst'):
        took = [median(of(o, 'seconds', task)) for o in ('ours', 'theirs')]
        assert '{}, the Trainer {}; {} and {} seconds'.format(told('ours', task), told('theirs', task), *took) in page
        shares.append(took[0]/took[1])
        medians += [median(of(o, task=task)) for o in ('ours', 'theirs')]
    assert f'{min(shares):.2f} to {max(shares):.2f} of the' in page
    assert 'MRPC, F1, {:.1f} and {:.1f}; of RTE, accuracy, {:.1f} and {:.1f}'.format(*medians[:4]) in log
    assert 'STS-B, Spearman, {:.1f} and {:.1f}; of SST-2 (8,000 rows), accuracy, {:.1f} and {:.1f}'.format(
        *medians[4:]) in log
    first = [of('ours')[:2], of('uncorrected')]
    assert '{:.1f} and {:.1f} with it, {:.1f} and {:.1f} without'.format(*first[0], *first[1]) in log
    assert '{:.1f} and {:.1f}, with a standard deviation of {:.1f} each'.format(
        mean(of('ours')), mean(of('any lengths')), stdev(of('any lengths'))) in log

def test_a_budget_says_how_soon_the_stock_loop_is_reached():
    page, found = ((ROOT/'nbs/budget.qmd').read_text(encoding='utf-8'),
                   json.loads((RESULTS/'time_to_quality.json').read_text()))
    def of(side): return {r['part']: r for r in found['runs'] if r['side']==side}
    ours, mlm, (loop,) = of('ELECTRA'), of('MLM'), of('run_mlm').values()
    assert f"and the loop has {loop['chunk']:.1f}" in page and f"and the loop has {loop['bits']:.2f}" in page
    assert f"{ours[.2]['bits']:.2f} and {mlm[.2]['bits']:.2f}" in page
    for part in (1/40, 1/20, 1/10):
        pair = f"{ours[part]['chunk']:.1f}", f"{mlm[part]['chunk']:.1f}"
        assert f'{pair[0]} and {pair[1]}' in page or f'F1 {pair[0]} where the other has {pair[1]}' in page

@pytest.mark.parametrize('name', SHIPPED)
def test_shipped_networks_say_what_they_are_for(name, tmp_path):
    "Each folder has the card that a new run gives it, which names the network that fills masks"
    shutil.copytree(shipped(name), tmp_path/'run')
    networks = saved_networks(tmp_path/'run')
    for o in networks: (o/'README.md').write_text('')
    write_cards(tmp_path/'run')
    for o in networks:
        card = (shipped(name)/o.name/'README.md').read_text()
        assert card==(o/'README.md').read_text() and 'fill-mask' in card

@pytest.mark.parametrize('name', SHIPPED)
def test_shipped_recipes_name_no_place_of_a_machine(name):
    told = (shipped(name)/'hparams.json').read_text()
    init = json.loads(told)['run'].get('init') or dict(folder='')
    assert '/' not in init['folder'] and 'tmp' not in told

NOTE, NOTED = ROOT/'benchmarks/shipped_model.md', RESULTS/'shipped_model'

@pytest.mark.parametrize('name', ['fourth_run', 'ends', 'noise', 'sentences'])
def test_the_note_on_the_shipped_model_has_the_results(name):
    "Each network's odd words found and AUC on unigram replacements stand in its row of a table"
    rows = [o.split(' | ') for o in NOTE.read_text(encoding='utf-8').splitlines() if o.startswith('| ')]
    for network,o in json.loads((NOTED/f'{name}.json').read_text()).items():
        told = [r for r in rows if r[0]==f'| {network}']
        assert any({str(o['found']), str(o['rows']['128']['auc_unigram'])}<={*r} for r in told), (network, told)

def test_what_the_note_on_the_shipped_model_concludes():
    "Higher masking rates find more odd words; of all networks the shipped one finds the most, and its recipe is told"
    fourth, noise, sixth = (json.loads((NOTED/f'{o}.json').read_text()) for o in ('fourth_run', 'noise', 'sentences'))
    rates = [fourth[f'{o} % masked'] for o in (15, 30, 45)]
    for of in (lambda o: o['found'], lambda o: o['rows']['128']['auc_unigram']):
        assert sorted(map(of, rates))==[*map(of, rates)]
    assert max(noise, key=lambda o: noise[o]['found'])=='1 : 1 with the fifth'
    final = sixth['sixth run, shipped']
    assert max(sixth, key=lambda o: sixth[o]['found'])=='sixth run, shipped'
    assert final['found']>.58 and final['second_draw']['found']>.58 and final['rows']['128']['auc_unigram']>.92
    hp = load_hparams(shipped('tiny')/'hparams.json')
    assert (hp.mask_prob, hp.unigram_noise, hp.num_train_steps, hp.learning_rate)==(.15, .5, 30_000, 1e-3)

def test_the_numbers_of_the_gpu_are_on_the_page():
    "Medians, ratios with their spread, and memory; shares of the peak"
    found = json.loads((RESULTS/'nvidia-h200.json').read_text())['runs'][-1]
    page, gpu = (ROOT/'nbs/gpu.qmd').read_text(encoding='utf-8'), found['gpu']
    shown = {'small-128': 'Small, 512 × 128', 'base-128': 'Base, 128 × 128', 'base-512': 'Base, 32 × 512'}
    for name,told in shown.items():
        sides = [f'{name}-{o}' for o in ('plain', 'ours', 'compiled')]
        speed = ', '.join(f"{gpu['sequences_per_s'][o]:,}" for o in sides)
        memory = ', '.join(f"{gpu['peak_mib'][o]/1024:.1f}" for o in sides)
        ratios = [f"{o['ratio']:.2f} ({o['spread'][0]:.2f} to {o['spread'][1]:.2f})" for o in map(gpu.get, sides[1:])]
        assert f"| {told} | {' | '.join([speed, *ratios, memory])} |" in page
    from gpu_jobs.speed import BATCHES, PEAK, floors
    flops = [floors(o.split('-')[0], int(o.split('-')[1]), BATCHES[o][0])['flops'] for o in shown]
    shares = [f*gpu['sequences_per_s'][f'{o}-compiled']/PEAK['H200'] for o,f in zip(shown, flops)]
    assert f'{flops[0]/1e9:.1f}, {flops[1]/1e9:.1f} and {flops[2]/1e9:.0f} GFLOP' in page
    assert f'used {100*shares[0]:.1f}, {100*shares[1]:.1f} and {100*shares[2]:.1f} %' in page
