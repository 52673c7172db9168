"The README: its length, links and numbers; the guide's Python lines, run as they stand on small data"
import json, re
from pathlib import Path
from statistics import mean

import pages
import pytest

from electra_nbdev.scoring.ranking import load_chooser, rank_choices
from electra_nbdev.scoring.score import load_scorer, show_scores
from make import judged, sentence, squad, tales
from terminal import typed

ROOT = Path(__file__).parent.parent
README = (ROOT/'README.md').read_text(encoding='utf-8')
BLOCKS = re.findall(r'```\s*python\n(.*?)```', (ROOT/'nbs/guide.qmd').read_text(encoding='utf-8'), re.S)

def test_the_readme_is_short(): assert len(README.split())<=700

def test_its_links_lead_somewhere():
    nbs = ROOT/'nbs'
    known = {pages.address(o.relative_to(nbs)) for o in [*nbs.rglob('*.ipynb'), *nbs.rglob('*.qmd')]}
    assert {o for o,_ in pages.SITE.findall(README)}<=known
    local = [o for _,_,o in pages.LINK.findall(README)]
    assert len(local)>4 and all((ROOT/o).exists() for o in local)

def test_its_demo_is_a_recorded_one():
    "The held-out line and the scored sentence; `make demo` prints such a file"
    log = (ROOT/'benchmarks/results/demo.txt').read_text(encoding='utf-8')
    held, = re.findall('^Held-out: .*$', README, re.M)
    assert held in log
    assert '9 of 10 exchanged words found' in log and 'it found 9 of ten exchanged words' in README
    shown = README.split('--model runs/demo --show')[1].splitlines()[1:3]
    assert '\n'.join(shown) in log

def test_its_first_sentence_is_scored_so():
    "By the model of the package, and the share of odd words that it finds is the measured one"
    text, *shown = README.split('$ electra_score --show ')[1].splitlines()[:3]
    assert str(show_scores(load_scorer(device='cpu'), text.strip('"'))).splitlines()==shown
    texts = json.loads((ROOT/'benchmarks/results/wrong_sentences.json').read_text())['found']['electra-baby'].values()
    def share(kind, what): return mean(o[kind][what]['accuracy'] for o in texts)
    n, right = (sum(o[k]['n'] for o in texts) for k in ('exchanged word', 'right'))
    told = (f"Of {n} sentences with an exchanged word, from text that it never read, it flags "
            f"{share('exchanged word', 'flagged'):.0f} % and ranks the exchanged word first in "
            f"{share('exchanged word', 'first'):.0f} %; of {right} right sentences it flags "
            f"{share('right', 'flagged'):.0f} %")
    assert told in README

def test_the_guides_candidates_are_ranked_as_they_stand():
    guide = (ROOT/'nbs/guide.qmd').read_text(encoding='utf-8')
    text, named = re.search('electra_score --choices "(.*)" --candidates (.*) #', guide).groups()
    found = rank_choices(load_chooser(device='cpu'), text, named.split()[::-1])
    assert [o for o,_ in found]==named.split()

def test_the_run_on_spanish_novels_is_a_recorded_one():
    log = (ROOT/'benchmarks/results/spanish.txt').read_text(encoding='utf-8')
    held = re.search(r'^Held-out: .* ([\d.]+) nats below .* AUC ([\d.]+) .* and ([\d.]+) on', log, re.M)
    nats, samples, unigram = held.groups()
    steps = int(re.search(r'^Starting at step 0 of (\d+)', log, re.M)[1])
    told = (f'AUC on unigram replacements {unigram}, on its own samples {samples}, the generator {nats} nats below the '
            f'unigram baseline, after {steps:,} updates')
    assert told in (ROOT/'nbs/evidence.qmd').read_text(encoding='utf-8') and '--minutes 3' in log

@pytest.mark.parametrize('page', ['README.md', 'nbs/evidence.qmd', 'paper/paper.md'])
def test_kills_are_recorded_ones(page):
    "`benchmarks/kills.py` prints such a file"
    log = (ROOT/'benchmarks/results/kills.txt').read_text(encoding='utf-8')
    equal, n = re.search(r'^(\d+) of (\d+) kills: ', log, re.M).groups()
    text = (ROOT/page).read_text(encoding='utf-8')
    assert re.search(rf'{equal} of {n} kills|Of {n} processes that were killed at random moments, {equal} ', text)

def test_the_cures_of_the_plateau_are_measured_ones():
    "The table of notebook 03, its columns the settings of `benchmarks/plateau.py`, and the README's numbers"
    found = json.loads((ROOT/'benchmarks/results/plateau.json').read_text())['found']
    cells = json.loads((ROOT/'nbs/method/03_discriminator.ipynb').read_text(encoding='utf-8'))['cells']
    rows = re.findall(r'^\| ([^|]+) \| (yes|no) \| (\w+) \| (\w+) \| (\w+) \| ([\d.]+) \| ([\d.]+) \|$',
                      '\n'.join(''.join(c['source']) for c in cells), re.M)
    names = ('tiny', 'no unigram noise', 'whole rows from the beginning', 'clipped at 1', 'no bias correction',
             'clipped, no bias correction', 'all three as in the paper')
    assert len(rows)==len(names)
    for name,(shown,easy,short,whole,corrected,*told) in zip(names, rows):
        assert shown==name # as in the legend
        all_three = name.startswith('all')
        assert (easy=='no')==(name=='no unigram noise' or all_three)
        assert (short=='no')==(name.startswith('whole') or all_three)
        assert (whole=='no')==(name.startswith('clipped') or all_three)
        assert (corrected=='no')==('no bias' in name or all_three)
        for k,o in zip(('auc_unigram', 'disc_auc'), told):
            assert float(o)==pytest.approx(mean(run[-1][k] for run in found[name].values()), abs=.0051), (name, k)
    ends = (mean(run[-1]['auc_unigram'] for run in found[o].values()) for o in ('tiny', names[5]))
    assert 'AUC on unigram replacements {:.3f} against {:.3f}'.format(*ends) in README

def block(words):
    "The one block with these words"
    found, = [o for o in BLOCKS if words in o]
    return found

@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path

def test_pre_training_takes_the_vocabulary_of_the_examples(here, monkeypatch):
    (here/'text').write_text(tales())
    from electra_nbdev.pretraining import learner as pretrain
    one = pretrain.ElectraLearner.fit_steps
    monkeypatch.setattr(pretrain.ElectraLearner, 'fit_steps', lambda self: one(self, 1))
    names = {}
    small = block('electra_learner(').replace('bs=8', "bs=2, device='cpu'")
    exec(small.replace('held_out=.02', 'max_length=16, held_out=.1'), names)
    n = len((here/'vocab/vocab.txt').read_text().splitlines())
    learn = names['learn']
    config = learn.model.discriminator.config
    assert learn.n_updates==1 and config.vocab_size==n and config.hidden_size==96
    assert {'discriminator', 'generator'}<={o.name for o in (here/'runs/mine').iterdir()}

def test_a_table(here):
    rows = [f'{sentence(i)},{("animal", "pet")[i%2]}\n' for i in range(40)]
    (here/'questions.csv').write_text(''.join(['question,about\n', *rows]))
    exec(block("text_task('questions'"), {})
    assert len(json.loads((here/'results/questions/results.json').read_text())['trials'])==3

def test_questions(here):
    (here/'QA/squad').mkdir(parents=True)
    for split,first in (('train', 0), ('dev', 40)):
        (here/f'QA/squad/{split}.json').write_text(json.dumps(squad(8, True, first)))
    exec(block("qa_task('squad'"), {})
    assert 'f1' in json.loads((here/'results/squad/results.json').read_text())['tasks']['squad']

def test_tags(here):
    for split in ('train', 'dev'): (here/f'{split}.txt').write_text('The DT O\nking NN B-PER\nleft VBD O\n\n'*12)
    exec(block("tag_task('names'"), {})
    assert (here/'results/names/model/tasks.json').is_file()

def test_the_commands_of_the_page_on_a_checker(here):
    "As they stand, with fewer steps, on a text and sentences that stand in for another language's"
    page = (ROOT/'nbs/tutorials/55_wrong_words.qmd').read_text(encoding='utf-8')
    shell = next(o for o in re.findall(r'```sh\n(.*?)```', page, re.S) if 'electra_vocab' in o)
    lines = re.findall(r'^electra_[^#\n]*', shell, re.M)
    for folder in ('ELTeC-deu/level1', 'multiged-2023/german'): (here/folder).mkdir(parents=True)
    paragraphs = ''.join(f'<p>{o}<pb/>\n  and on.</p>' for o in tales().splitlines() if o)
    (here/'ELTeC-deu/level1/DEU001.xml').write_text(
        f'<TEI xmlns="http://www.tei-c.org/ns/1.0"><teiHeader><p>no text</p></teiHeader><text><body><div>{paragraphs}'
        '</div></body></text></TEI>')
    for o in ('train', 'dev'): (here/f'multiged-2023/german/de_falko-merlin_{o}.tsv').write_text(judged(12))
    exec(re.search(r'```python\n(.*?)```', page, re.S)[1], {})
    novel = (here/'eltec_de/DEU001.txt').read_text().splitlines()
    assert len(novel)==paragraphs.count('<p>') and 'no text' not in novel and novel[0].endswith(' and on.')
    (here/'essay.txt').write_text('The king saw the sea. It was the storm.\n')
    few = json.dumps(dict(num_warmup_steps=1, save_checkpoints_steps=2, num_eval_steps=2))
    for line in lines:
        said = typed(line.replace('--minutes 10', f"--steps 4 --device cpu --hparams '{few}'"), here)
        assert said.code in ((0, 1) if line.startswith('electra_check') else (0,)), (line, said)
    assert len(lines)==5 and re.search(r'^\d words? of \d+ flagged, in \d of 2 sentences', said.err, re.M), said

def test_the_commands_for_assistants(here):
    "As they stand, with fewer steps; each says what comes next or what it found"
    rows = [f'{sentence(i)},{("animal", "pet")[i%2]}\n' for i in range(40)]
    (here/'text.txt').write_text(tales())
    (here/'rows.csv').write_text(''.join(['text,label\n', *rows]))
    (here/'new.csv').write_text('text\nthe king saw the sea .\nit was the storm .\n')
    page = (ROOT/'nbs/assistants.qmd').read_text(encoding='utf-8')
    lines = re.findall(r'^electra_.*$', re.findall(r'```sh\n(.*?)```', page, re.S)[1], re.M)
    few = json.dumps(dict(num_warmup_steps=1, save_checkpoints_steps=2, num_eval_steps=2))
    for line in lines:
        if line.startswith('electra_pretrain'): line = line.replace('3000', '4')+f" --hparams '{few}'"
        said = typed(line.replace('--vocab vocab', '--vocab vocab --held-out 0.2'), here)
        assert said.code==0, (line, said)
    assert {'vocab', 'examples', 'runs', 'tasks', 'predicted.csv', 'shared'}<={o.name for o in here.iterdir()}
    assert len((here/'predicted.csv').read_text().splitlines())==3
    assert len(lines)==8 and (here/'tasks/rows/results.json').is_file() and (here/'examples/held_out').is_dir()
