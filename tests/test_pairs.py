"Minimal pairs: files of every test as they are published, what accuracies are made of, the commands"
import json, subprocess, sys
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fastcore.test import test_close as close
from scipy.stats import binomtest, spearmanr

import electra_nbdev.scoring.ranking as pairs_of
from electra_nbdev import cli
from electra_nbdev.engine.files import InputError
from electra_nbdev.scoring.likelihood import Likelihood, load_likelihood, surprisal
from electra_nbdev.scoring.ranking import (accuracies, compare_on_pairs, compared, difference, score_pairs,
                                         told_differences, told_ties, wilson)
from electra_nbdev.scoring.score_files import read_pairs, texts_of
from make import TOY, electric_runs, pieces
from published import BLIMP, FILES
from terminal import typed

TOK = pieces(TOY)

@pytest.fixture(scope='module')
def home(tmp_path_factory): return electric_runs(tmp_path_factory.mktemp('user'))

PAIRS = {
    'irregular_past.jsonl': dict(good='Who left?', bad='Who leaved?', phenomenon='irregular_forms',
                                 set='irregular_past'),
    'hypernym.jsonl': dict(good='It is a dog.', bad='It is a cat.', phenomenon='hypernym', set='hypernym'),
    'agreement-across_1.txt': dict(good='look at this thing .', bad='look at this things .', phenomenon='agreement',
                                   set='agreement-across_1'),
    'social-properties.jsonl': dict(good='Ann is kind. She helps.', bad='Ann is mean. She helps.', given=[13, 13],
                                    phenomenon='social-properties', set='social-properties'),
    'comps_base.jsonl': dict(good='a robin can fly.', bad='a cat can fly.', given=[8, 6], phenomenon='comps',
                             set='comps_base'),
    'regular.jsonl': dict(good='Box 0 contains the egg. Box 0 contains the egg.',
                          bad=[f'Box 0 contains the egg. Box 0 contains {o}'
                               for o in ('a cat.', 'a hat.', 'a ring.', 'a key.')],
                          given=[39]*5, phenomenon='regular', set='regular_4_ops'),
    'wug_adj.jsonl': dict(good='the daxity', bad='the daxness', ratio=.25, phenomenon='wug_adj', set='wug_adj')}
TESTS = dict(zip(PAIRS, ('BLiMP', 'BLiMP', 'Zorro', 'EWoK', 'COMPS', 'entity tracking', 'WUG')))
for name,o in PAIRS.items(): o.update(test=TESTS[name], line=1)
BACK = PAIRS['social-properties.jsonl'] | dict(good='Ann is mean. She hits.', bad='Ann is kind. She hits.')

def known(name): return [PAIRS[name], *([BACK] if TESTS[name]=='EWoK' else [])]

@pytest.fixture
def published(tmp_path):
    for name,lines in FILES.items():
        (tmp_path/name).write_text('\n'.join(o if isinstance(o, str) else json.dumps(o) for o in lines)+'\n')
    return tmp_path

def assert_known(found, want):
    "Pairs have what is known of them, and other fields of their files"
    assert [{k: o[k] for k in w} for o,w in zip(found, want, strict=True)]==want

@pytest.mark.parametrize('name', FILES)
def test_each_test_is_known_by_its_fields(name, published):
    assert_known(read_pairs(published/name), known(name))

HUB = """---
configs:
- config_name: irregular_past
  data_files: [{split: train, path: irregular_past.jsonl}]
- config_name: wug
  data_files: [{split: train, path: wug_adj.jsonl}, {split: test, path: wug_adj.jsonl}]
---
"""

def test_pairs_of_the_hub(published):
    "A dataset with two configurations, one of them with two splits, which `datasets` reads off the disk"
    (published/'README.md').write_text(HUB)
    assert_known(read_pairs(f'hf:{published}:irregular_past'), [PAIRS['irregular_past.jsonl']])
    assert_known(read_pairs(f'hf:{published}:wug:test'), [PAIRS['wug_adj.jsonl'] | dict(phenomenon='wug', set='wug')])
    with pytest.raises(InputError, match='needs a split.*wug has train, test'): read_pairs(f'hf:{published}')
    with pytest.raises(InputError, match='as in hf:.*:wug:train; wug has'): read_pairs(f'hf:{published}:wug:dev')
    assert len(read_pairs(f'hf:{published}::train'))==2
    with pytest.raises(InputError, match='cannot be loaded'): read_pairs(f'hf:{published}:nothing')

def test_a_folder_of_all(published):
    "Pairs of several tests are read, and refused where a mean is made"
    assert_known(read_pairs(published), [p for o in sorted(PAIRS) for p in known(o)])
    with pytest.raises(InputError, match='several tests .*2 of BLiMP'): cli.electra_score(pairs=published)

def test_an_item_of_ewok_is_two_pairs(published):
    "Its authors have a row for it, BabyLM's script writes the other direction into the next; neither is counted twice"
    path, (first,) = published/'social-properties.jsonl', FILES['social-properties.jsonl']
    rows = [first, first | dict(Context1='Ann is mean.', Context2='Ann is kind.', Target1='She hits.',
                                Target2='She helps.')]
    path.write_text('\n'.join(map(json.dumps, [*rows, *rows, first])))
    want = [(o['good'], n) for n in (1, 3, 5) for o in known(path.name)]
    assert [(o['good'], o['line']) for o in read_pairs(path)]==want

def test_the_other_direction_may_come_later(published):
    path, (first,) = published/'social-properties.jsonl', FILES['social-properties.jsonl']
    items = [first | dict(Context1=f'{o} is kind.') for o in ('Ann', 'Bob')]
    others = [o | dict(Context1=o['Context2'], Context2=o['Context1'], Target1='She hits.', Target2='She helps.')
              for o in items]
    path.write_text('\n'.join(map(json.dumps, items+others)))
    assert [o['line'] for o in read_pairs(path)]==[1, 1, 2, 2]
    path.write_text('\n'.join(map(json.dumps, [items[0]]*2+[others[0]]*2))) # an item that stands twice
    assert [o['line'] for o in read_pairs(path)]==[1, 1, 2, 2]

def test_folders_in_a_folder_are_named(published):
    with pytest.raises(InputError, match=f'it has the folders .*{published.name}'): read_pairs(published.parent)

ABOUT = {'irregular_past.jsonl': '1 pair, 1 set, chance 50 %', 'regular.jsonl': '1 pair, 1 set, chance 20 %',
         'social-properties.jsonl': '2 pairs, 1 set, chance 50 %',
         'wug_adj.jsonl': "1 pair, 1 set, correlation with people's judgement, times 100"}

@pytest.mark.parametrize('name', ABOUT)
def test_the_chance_of_each_test(name, published, monkeypatch, capsys):
    "In the first line, and in the figure"
    model, drawn = Likelihood(lambda ids, mask: ids.float(), TOK, 64, by='towers'), []
    monkeypatch.setattr(pairs_of, 'plot_accuracies', lambda found, path, chance: drawn.append(chance))
    compare_on_pairs([model], read_pairs(published/name), published/'rows.jsonl')
    assert capsys.readouterr().out.splitlines()[0]==f'{TESTS[name]}: {ABOUT[name]}'
    assert drawn==[dict(regular=20, wug_adj=0).get(name.removesuffix('.jsonl'), 50)]

def test_one_model_need_not_be_a_list(published, capsys):
    model = Likelihood(lambda ids, mask: ids.float(), TOK, 64, by='towers')
    pairs = read_pairs(published/'irregular_past.jsonl')
    assert compare_on_pairs(model, pairs).equals(compare_on_pairs([model], pairs))

def test_two_models_by_one_way(published, capsys):
    "Names are opened and stand in the table; how far the second is from the first stands below it"
    found = cli.electra_score(pairs=published/'irregular_past.jsonl', model=['electric', 'electric-baby'])
    ways = 'towers of electric', 'towers of electric-baby'
    assert [*dict.fromkeys(found.columns.get_level_values(0))]==['', *ways]
    gap = found.loc['mean over sets', (ways[1], 'accuracy')]-found.loc['mean over sets', (ways[0], 'accuracy')]
    told = capsys.readouterr().out.splitlines()[-1]
    assert told.startswith(f'{ways[1]} minus {ways[0]}, mean over sets, pair by pair: {gap:+.1f} points [')
    cli.electra_score(pairs=published/'wug_adj.jsonl', model=['electric', 'electric-baby'])
    assert 'pair by pair' not in capsys.readouterr().out # where nothing is right or wrong

def test_a_difference_is_the_later_way_minus_the_first():
    def rows(*right): return [dict(set='a', right=o, ties=0) for o in right]
    told, = told_differences(dict(one=rows(*[False]*4), other=rows(*[True]*4)))
    assert told.startswith('other minus one, mean over sets, pair by pair: +100.0 points [+')
    with pytest.raises(ValueError): difference(rows(True), rows(True, False)) # not the same pairs

def test_options_follow_as_they_are(tmp_path):
    "Published options may begin with a space"
    row = dict(input_prefix='Box 0 has', options=[' ice.', ' a key.'], numops=0)
    (tmp_path/'a.jsonl').write_text(json.dumps(row))
    found, = read_pairs(tmp_path)
    assert texts_of(found)==['Box 0 has ice.', 'Box 0 has a key.'] and found['given']==[9, 9]

def test_files_are_read_without_torch(published):
    code = f"import sys, electra_nbdev.scoring.score_files as s; s.read_pairs({str(published)!r})"
    code += "; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, '-c', code]).returncode==0

# Accuracies

def row(good, *bad, **more):
    "A pair whose scores are known, as `score_pairs` returns it"
    scores = iter([good, *bad])
    with pytest.MonkeyPatch.context() as m:
        m.setattr(pairs_of, 'pseudo_log_likelihood', lambda *_, **__: [dict(score=o) for o in scores])
        pair = dict(good='good', bad='bad' if len(bad)==1 else ['bad']*len(bad), phenomenon='p', set='s') | more
        return score_pairs(Likelihood(None, TOK, 16, by='towers'), [pair])[0]

@pytest.mark.parametrize('good,bad,right,ties', [(-1, [-2], True, 0), (-2, [-1], False, 0), (-1, [-1], False, 1),
    (-1, [-1.00001], False, 1), (-1, [-2, -.5], False, 0), (-1, [-1, -.5], False, 0), (-1, [-1, -1, -2], False, 2),
    (None, [-1], False, 0)])
def test_what_is_right(good, bad, right, ties):
    found = row(good, *bad)
    assert (found['right'], found['ties'])==(right, ties)

def test_a_constant_model_guesses():
    "Half of the pairs, a fifth of five options"
    pairs, fives = [row(-1, -1) for _ in range(10)], [row(-1, *[-1]*4) for _ in range(10)]
    assert accuracies(pairs).accuracy['all pairs']==50 and accuracies(fives).accuracy['all pairs']==20
    assert told_ties(pairs)=='ties, counted as half: 10 of 10 pairs by towers'
    assert told_ties(fives)=='ties, counted as a guess among them: 10 of 10 pairs by towers'

@pytest.mark.parametrize('k,n', [(0, 5), (1, 7), (50, 100), (100, 100)])
def test_wilson(k, n):
    want = binomtest(k, n).proportion_ci(method='wilson')
    close(wilson(k, n), [100*k/n, 100*want.low, 100*want.high], .01)

def test_the_mean_over_sets_and_its_interval():
    "Sets count alike, whatever their size; the interval holds the truth in 95 of 100 draws"
    few, many = [row(-1, -2, set='few')]*4, [row(-2, -1, set='many')]*96
    found = accuracies(few+many)
    assert found.accuracy['mean over sets']==50 and found.accuracy['all pairs']==4
    rng, rates, hits = np.random.default_rng(0), (.5, .7, .9), 0
    for _ in range(300):
        rows = [row(-1, -2 if rng.random()<p else 0, set=f's{i}') for i,p in enumerate(rates) for _ in range(40)]
        low, high = accuracies(rows).loc['mean over sets', ['low', 'high']]
        hits += low<=100*np.mean(rates)<=high
    assert .91<hits/300<.99

def test_wugs_correlate(monkeypatch):
    rng = np.random.default_rng(0)
    ratios, differences = rng.random(50), rng.random(50)
    rows = [row(d, 0, phenomenon='wug', ratio=r) for d,r in zip(differences+ratios, ratios)]
    found = accuracies(rows)
    assert found.index.tolist()==['wug, correlation'] and told_ties(rows)=='scored by towers'
    close(found.accuracy.iloc[0], 100*spearmanr(differences+ratios, ratios).statistic, .06)
    assert found.low.iloc[0]<found.accuracy.iloc[0]<found.high.iloc[0]
    for r in (.3, .7): # ranks of 10,000 pairs with that correlation: about sqrt((1 + r^2/2)/n) in Fisher's z
        a, b = rng.multivariate_normal([0, 0], [[1, r], [r, 1]], 10**4).T
        many = accuracies([row(d, 0, phenomenon='wug', ratio=o) for d,o in zip(a, b)]).iloc[0]
        half = 196*np.sqrt((1+r*r/2)/10**4)*(1-r*r)
        assert many.high-many.low==pytest.approx(2*half, rel=.1)
    assert accuracies([*rows, row(-1, -2)]).index.tolist()==['p', 'all pairs', 'mean over sets', 'wug, correlation']

def test_only_what_follows_is_scored():
    "A model whose score of a token is its number"
    model = Likelihood(lambda ids, mask: ids.float(), TOK, 16, by='towers')
    pair = dict(good='The cat sat.', bad=['The cat mat.', 'The mat sat.'], given=[8, 8, 8], phenomenon='p', set='s')
    found, = score_pairs(model, [pair])
    ids = dict(zip(('sat', 'mat', '.'), TOK.convert_tokens_to_ids(['sat', 'mat', '.'])))
    assert found['good_score']==ids['sat']+ids['.']
    assert found['bad_score']==[ids['mat']+ids['.'], ids['sat']+ids['.']] and found['ties']==0 and not found['right']
    assert texts_of(found)[0]==pair['good']

def test_ways_side_by_side():
    one = accuracies([row(-1, -2)])
    both = compared(dict(towers=one, energies=accuracies([row(-2, -1)])))
    assert compared(dict(towers=one)) is one
    assert both['towers'].accuracy.tolist()==[100]*3 and both['energies'].accuracy.tolist()==[0]*3
    assert both[('', 'pairs')].tolist()==[1]*3

# Commands

def test_several_ways(home):
    "What is scored, columns and a line about ties for each, a row for each pair and way, a figure; former names too"
    said = typed('electra_score --pairs pairs --model electric --by energy towers --out two.jsonl', home)
    rows = [json.loads(o) for o in (home/'two.jsonl').read_text().splitlines()]
    lines = said.out.splitlines()
    assert said.code==0 and lines[0]=='BLiMP: 10 pairs, 2 sets, chance 50 %', said
    assert lines[1].split()==['energies', 'towers'] and said.out.count('counted as half: 0 of 10')==2
    assert {r['model'] for r in rows}=={'electric'} and [r['by'] for r in rows]==['energies']*10+['towers']*10
    assert [o.split()[:2] for o in lines if o.startswith(('all', 'mean'))]==[['all', 'pairs'], ['mean', 'over']]
    assert (home/'two.png').read_bytes()[1:4]==b'PNG' and lines[-1]=='rows in two.jsonl, a picture in two.png'
    old, new, twice = (cli.electra_score(pairs=home/'pairs', model=home/'electric', by=o)
                       for o in ('energy', ['energies'], ['energy', 'energies']))
    assert old.equals(new) and twice.equals(new)

def test_several_models(home):
    "Each by its own default way; a row for each pair and model, whose fields of one's own stay"
    lines = [dict(sentence_good='the cat sat', sentence_bad='sat the cat', UID='a', item=i) for i in (4, 7)]
    (home/'own.jsonl').write_text('\n'.join(map(json.dumps, lines)))
    said = typed('electra_score --pairs own.jsonl --model electric tt --out own.rows', home)
    assert said.code==0 and 'towers of electric' in said.out and 'towers of tt' in said.out, said
    rows = [json.loads(o) for o in (home/'own.rows').read_text().splitlines()]
    assert [(r['model'], r['item'], r['line']) for r in rows]==[('electric', 4, 1), ('electric', 7, 2), ('tt', 4, 1),
                                                                ('tt', 7, 2)]

def test_sets(home):
    said = typed('electra_score --pairs pairs --model electric --per set', home)
    assert [o.split()[0] for o in said.out.splitlines()[2:4]]==['a', 'b'], said

def test_a_discriminator(home):
    "Of an ELECTRA-TT by the command, and the same numbers as P(replaced) of the words"
    said = typed('electra_score --text lines.txt --model tt --by p-replaced', home)
    probs = cli.electra_score(show='mat', model=home/'tt').probs
    assert said.code==0, said
    close(float(dict(reversed(o.split('\t')) for o in said.out.splitlines())['mat']), np.log1p(-probs[0]), 1e-3)

TABLE = 'line\tword\tstart\tend\tstring\ttokens\tsurprisal\tunknown'

def test_surprisal(home):
    "A table on the screen or in a file, words of every line by their offsets"
    line = 'electra_score --surprisal lines.txt --model electric'
    shown, said = typed(line, home), typed(f'{line} --out s.tsv', home)
    assert shown.code==said.code==0 and said.out=='rows in s.tsv\n' and shown.out==(home/'s.tsv').read_text(), said
    assert said.err=='surprisal in nats by towers of electric, from the words before and after, 16 tokens at a time\n'
    first, *rows = shown.out.splitlines()
    lines = (home/'lines.txt').read_text().split('\n')
    assert first==TABLE and [o.split('\t')[4] for o in rows]==[w for o in lines for w in o.split()]
    for n,i,a,b,word,*_ in (o.split('\t') for o in rows):
        assert lines[int(n)-1][int(a):int(b)]==word==lines[int(n)-1].split()[int(i)-1]
    bits = typed(f'{line} --unit bits --per sentence', home).out.splitlines()[1:]
    text = [o.split('\t')[0] for o in typed('electra_score --text lines.txt --model electric', home).out.splitlines()]
    for a,b in zip((o.split('\t')[6] for o in bits), text, strict=True):
        assert a==b=='' or abs(float(a)*np.log(2)+float(b))<.01

def test_tokens_have_their_accents():
    "Those of decomposed text too, which this vocabulary leaves out"
    text = 'The cafe\u0301 was closed.'
    rows = surprisal(load_likelihood('electric', device='cpu'), text, per='token')
    assert ''.join(rows.string)==text.replace(' ', '') and 'fe\u0301' in [*rows.string][2]

@pytest.mark.parametrize('name,table', [
    ('items.csv', 'item,text\n7,"the cat sat, the dog sat"\n8,the mat\n'),
    ('items.tsv', 'item\ttext\n7\tthe cat sat, the dog sat\n8\tthe mat\n'),
    ('items.jsonl', '{"item": 7, "text": "the cat sat, the dog sat"}\n{"text": "the mat", "item": 8}\n')])
def test_tables_of_texts(name, table, home):
    "They were read as prose: their column `text` is scored, and the results keep the others"
    (home/name).write_text(table)
    (home/'texts.txt').write_text('the cat sat, the dog sat\nthe mat\n')
    (home/'contexts.txt').write_text('the dog sat\nthe cat sat\n')
    line = 'electra_score --model electric --context contexts.txt --surprisal'
    plain, said = (typed(f'{line} {o}', home) for o in ('texts.txt', name))
    want, found = (pd.read_csv(StringIO(o.out), sep='\t') for o in (plain, said))
    assert found.pop('item').tolist()==[7]*6+[8]*2, said
    assert (found.pop('line')==want.pop('line')+(name!='items.jsonl')).all() and found.equals(want)
    for o in (name, 'texts.txt'): typed(f'electra_score --text {o} --model electric --out {o}.rows', home)
    rows = [[json.loads(o) for o in (home/f'{f}.rows').read_text().splitlines()] for f in (name, 'texts.txt')]
    assert [int(o.pop('item')) for o in rows[0]]==[7, 8] and rows[0]==rows[1]

def test_surprisal_after_a_context(home):
    (home/'contexts.txt').write_text('the cat sat on the mat .\n'*(len((home/'lines.txt').read_text().split('\n'))-1))
    line = 'electra_score --surprisal lines.txt --model electric'
    one, each, none = (typed(f'{line} {o}', home).out
                       for o in ("--context 'the cat sat on the mat .'", '--context contexts.txt', ''))
    assert one==each!=none and one.startswith(TABLE)

def test_a_context_may_be_long(home):
    "A text that is longer than the name of a file may be"
    context = 'the cat sat on the mat . '*30
    said = typed(f"electra_score --surprisal lines.txt --model electric --context '{context}'", home)
    assert said.code==0 and said.out.startswith(TABLE), said

def test_the_notebook_has_the_measured_numbers():
    "The means of every way, and the seconds; the phenomena are in the model's card"
    root = Path(__file__).resolve().parents[1]
    facts = json.loads((root/'benchmarks/results/pairs.json').read_text())
    grams = [json.loads((root/f'benchmarks/results/{o}.json').read_text()) for o in ('ngram', 'ngram_baby')]
    text = (root/'nbs/scoring/44_ranking.ipynb').read_text(encoding='utf-8')
    def line(ways): return ' | '.join('{accuracy} [{low}, {high}]'.format(**o['mean over sets']) for o in ways)
    blimp, zorro = facts['found'].values()
    for o in blimp: assert line((blimp[o], zorro[o])) in text
    for o in grams: assert line(v['5-gram'] for v in o['found'].values()) in text
    for o in facts['seconds'].values(): assert f'{o:.1f} s' in text

def test_a_name_of_the_table_is_no_phenomenon():
    row = dict(good='a', bad='b', right=True, ties=0, set='s')
    with pytest.raises(InputError, match="is called 'all pairs'"): accuracies([row | dict(phenomenon='all pairs')])
