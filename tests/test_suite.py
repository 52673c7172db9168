"Suites of tests as BabyLM's evaluation has them: what is a test, what stands in the table, reading times, refusals"
import csv, gzip, json

import numpy as np
import pandas as pd
import pytest
from fastcore.test import test_close as close
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from electra_nbdev import cli
from electra_nbdev.engine.files import InputError
from electra_nbdev.scoring.likelihood import Likelihood, load_likelihood, pseudo_log_likelihood, surprisal
from electra_nbdev.scoring.ranking import accuracies, score_pairs
from electra_nbdev.scoring.score_files import (EYE_TRACKING, OF_WORD, OF_WORD_BEFORE, SELF_PACED, read_pairs,
                                               read_suite)
from electra_nbdev.scoring.suite import next_surprisals, reading_gain, write_predictions
from published import FILES

PLACES = {'blimp_filtered': ['irregular_past.jsonl'], 'supplement_filtered': ['hypernym.jsonl'],
          'ewok_filtered': ['social-properties.jsonl'], 'comps': ['comps_base.jsonl'],
          'entity_tracking/regular': ['regular.jsonl'], 'wug_adj_nominalization': ['wug_adj.jsonl'],
          'zorro': ['agreement-across_1.txt']} # Files of each folder
COLUMNS = ['item', 'word', 'prev_item', 'prev_word', *OF_WORD, OF_WORD_BEFORE, *EYE_TRACKING, SELF_PACED]

def lines(rows): return ''.join(f'{o if isinstance(o, str) else json.dumps(o)}\n' for o in rows)

def reading(path, n=60, **changed):
    "Words of a text with times that are drawn; the first of each sentence of eight has nothing before it"
    path.parent.mkdir(parents=True, exist_ok=True)
    rng, words = np.random.default_rng(0), 'the captain saw the old ship at sea'.split()
    with open(path, 'w', newline='') as f:
        out = csv.DictWriter(f, [*COLUMNS, 'N400'])
        out.writeheader()
        for i in range(n):
            at = i%8
            row = dict(item=' '.join(words[:at]), word=words[at], prev_item=' '.join(words[:max(at-1, 0)]),
                       prev_word=words[at-1] if at else '', N400='')
            numbers = {o: round(200+rng.normal(), 3) for o in (*OF_WORD, OF_WORD_BEFORE, *EYE_TRACKING, SELF_PACED)}
            out.writerow(row | numbers | changed)
    return path

@pytest.fixture
def full(tmp_path):
    "The folder of an evaluation"
    for folder,names in PLACES.items():
        (tmp_path/'full'/folder).mkdir(parents=True)
        for o in names: (tmp_path/'full'/folder/o).write_text(lines(FILES[o]))
    (tmp_path/'full'/'glue_filtered').mkdir()
    (tmp_path/'full'/'glue_filtered'/'boolq.train.jsonl').write_text(lines([dict(question='Is it?', label=1)]))
    (tmp_path/'full'/'cdi').mkdir()
    reading(tmp_path/'full'/'reading'/'reading_data.csv')
    one, = FILES['social-properties.jsonl'] # the pipeline's file has a row for each target
    other = one | {f'{k}{i}': one[f'{k}{3-i}'] for k in ('Context', 'Target') for i in (1, 2)}
    (tmp_path/'full'/'ewok_filtered'/'social-properties.jsonl').write_text(lines([one, other]))
    return tmp_path/'full'

@pytest.fixture(scope='module')
def tiny(): return load_likelihood('electric', device='cpu')

def test_every_folder_is_a_test(full, capsys):
    suite = read_suite(full)
    assert {k: o[0].get('test', 'times') for k,o in suite.items()}==dict(
        blimp_filtered='BLiMP', comps='COMPS', entity_tracking='entity tracking', ewok_filtered='EWoK', reading='times',
        supplement_filtered='BLiMP', wug_adj_nominalization='WUG', zorro='Zorro')
    assert 'not read, without pairs or reading times: cdi, glue_filtered' in capsys.readouterr().out
    def texts(pairs): return [o | dict(line=0) for o in pairs] # of EWoK a file alone numbers items, a suite rows
    for folder in PLACES: assert texts(suite[folder.split('/')[0]])==texts(read_pairs(full/folder))

def test_the_command_gives_what_each_test_gives_alone(full, tiny, tmp_path):
    "And keeps a row of each pair and word, and the table"
    out = tmp_path/'scored.jsonl'
    table = cli.electra_score(pairs=str(full), model='electric', out=str(out), device='cpu')
    for folder in PLACES:
        found = accuracies(score_pairs(tiny, read_pairs(full/folder)), 'test')
        want = found.loc['mean over sets'] if 'mean over sets' in found.index else found.iloc[0]
        pd.testing.assert_series_equal(table.loc[folder.split('/')[0]][['score', 'low', 'high']], want[[
            'accuracy', 'low', 'high']], check_names=False, check_index=False, check_dtype=False)
    assert table.loc['entity_tracking'].chance==20 and table.loc['wug_adj_nominalization'].chance==0
    words = pd.DataFrame([o for o in map(json.loads, out.read_text().splitlines()) if o['folder']=='reading'])
    eye = np.mean([reading_gain(words, o, OF_WORD) for o in EYE_TRACKING])
    close(table.loc['reading, eye tracking'].score, eye, .0051)
    assert table.loc['reading, eye tracking']['items']==52 # the rows that are used
    assert [*pd.read_csv(tmp_path/'scored.csv').test]==[*table.index]

def test_a_suite_counts_as_the_pipeline_of_2026(full, capsys):
    "A row of EWoK is an item, and items with an option of nothing are left out"
    (full/'ewok_filtered').rename(full/'ewok_fast')
    (full/'ewok_fast'/'social-properties.jsonl').write_text(lines(FILES['social-properties.jsonl']))
    boxes, = FILES['regular.jsonl']
    empty = boxes | dict(options=['nothing.', *boxes['options'][:4]])
    (full/'entity_tracking'/'regular'/'regular.jsonl').write_text(lines([empty, boxes, empty]))
    suite = read_suite(full)
    assert [o['good'] for o in suite['ewok_fast']]==['Ann is kind. She helps.']
    assert [o['line'] for o in suite['entity_tracking']]==[2]
    assert '2 of 3 items have `nothing` as an option and are left out' in capsys.readouterr().out
    assert len(read_pairs(full/'ewok_fast'))==2 and len(read_pairs(full/'entity_tracking'/'regular'))==3

PIQA = dict(prompt='To open a jar,', solution0='sing to the lid.', solution1='turn the lid to the left.', label=1,
            example_id='en_7')

def test_global_piqa_is_a_mean_over_tokens(full, tiny):
    (full/'global_piqa_nonparallel').mkdir()
    (full/'global_piqa_nonparallel'/'eng_latn.jsonl').write_text(lines([PIQA]))
    pair, = read_suite(full)['global_piqa_nonparallel']
    assert pair['good']=='To open a jar, turn the lid to the left.' and pair['bad']=='To open a jar, sing to the lid.'
    row, = score_pairs(tiny, [pair])
    (_,good), (_,bad) = surprisal_of_end(tiny, pair)
    close(row['good_score'], good, 1e-4)
    close(row['bad_score'], bad, 1e-4)
    for label in (None, 2, 'first'):
        (full/'global_piqa_nonparallel'/'eng_latn.jsonl').write_text(lines([PIQA | dict(label=label)]))
        with pytest.raises(InputError, match='line 1 has the fields of Global PIQA, but not its texts and numbers'):
            read_suite(full)

def surprisal_of_end(model, pair):
    "Of each text: how many tokens stand after the prompt, and their mean log-probability"
    found = []
    for text in (pair['good'], pair['bad']):
        n = len(model.tokenizer.tokenize(PIQA['prompt']))
        own = pseudo_log_likelihood(model, [text])[0]['scores'][n:]
        found.append((len(own), sum(own)/len(own)))
    return found

def test_pairs_may_have_a_column_called_word(full):
    "It is kept, as other columns are, and makes no reading times of them"
    pair = FILES['irregular_past.jsonl'][0]
    (full/'blimp_filtered'/'irregular_past.jsonl').write_text(lines([pair | dict(word='broke')]))
    table = cli.electra_score(pairs=str(full), model='electric', device='cpu')
    assert table.loc['blimp_filtered']['items']==1

def test_long_texts_are_told(full, tiny, capsys):
    boxes, = FILES['regular.jsonl']
    long = boxes | dict(input_prefix='Box 1 contains the hat. '*40 + boxes['input_prefix'])
    (full/'entity_tracking'/'regular'/'regular.jsonl').write_text(lines([boxes, long]))
    score_pairs(tiny, read_pairs(full/'entity_tracking'/'regular'))
    room = tiny.max_length-2
    assert f'NOTE: 5 of 10 texts are longer than the {room} tokens that electric' in capsys.readouterr().out

def test_what_the_leaderboard_collects(full, tmp_path):
    "Names of files and sets, numbers and texts as `collate_preds.py` of babylm-org/babylm-eval has them"
    (full/'global_piqa_nonparallel').mkdir()
    (full/'global_piqa_nonparallel'/'eng_latn.jsonl').write_text(lines([PIQA]))
    out, to = tmp_path/'scored.jsonl', tmp_path/'mlm'
    cli.electra_score(pairs=str(full), model='electric', out=str(out), device='cpu')
    paths = write_predictions(out, to)
    found = {o.relative_to(to).as_posix(): json.loads(o.read_text()) for o in paths}
    assert {k.removesuffix('/predictions.json'): [*o] for k,o in found.items()}=={
        'blimp/blimp_filtered': ['irregular_past'], 'blimp/supplement_filtered': ['hypernym'],
        'comps/comps': ['base'], 'entity_tracking/entity_tracking': ['regular_4_ops'],
        'ewok/ewok_filtered': ['social-properties'], 'global_piqa_nonparallel/global_piqa_nonparallel': ['en_7'],
        'reading': ['reading']}
    rows = {(o['folder'], o['line']): o for o in map(json.loads, out.read_text().splitlines()) if 'word' not in o}
    def chosen(folder, line=1):
        row = rows[folder, line]
        return row['good'] if row['right'] else row['bad']
    piqa, = found['global_piqa_nonparallel/global_piqa_nonparallel/predictions.json']['en_7']['predictions']
    assert piqa==dict(id='en_7_0', pred=chosen('global_piqa_nonparallel').removeprefix(PIQA['prompt']))
    both = found['ewok/ewok_filtered/predictions.json']['social-properties']['predictions']
    assert both==[dict(id=f'social-properties_{i}', pred=chosen('ewok_filtered', i+1)) for i in range(2)]
    box, = found['entity_tracking/entity_tracking/predictions.json']['regular_4_ops']['predictions']
    assert box['pred'] in FILES['regular.jsonl'][0]['options']
    words = found['reading/predictions.json']['reading']['predictions']
    assert [o['id'] for o in words]==[*range(60)] and np.isnan(words[8]['pred']) and words[9]['pred']>0
    was = {o: o.read_bytes() for o in paths}
    assert write_predictions(out, to)==paths and {o: o.read_bytes() for o in paths}==was
    one = rows['global_piqa_nonparallel', 1]
    for lost in ('folder', 'model', 'example_id'):
        (tmp_path/'other.jsonl').write_text(lines([{k: v for k,v in one.items() if k!=lost}]))
        with pytest.raises(InputError, match=f'line 1 has no `{lost}`; give what `electra_score` has written'):
            write_predictions(tmp_path/'other.jsonl', to)
    with pytest.raises(InputError, match='has scores of 2'):
        out.write_text(out.read_text() + lines([rows['comps', 1] | dict(by='energies')]))
        write_predictions(out, to)

def test_words_are_surprising_after_the_text_before_them(full, tiny, tmp_path):
    "A row for each word; none where nothing stands before it, and the word before has that of its own row"
    out = tmp_path/'scored.jsonl'
    cli.electra_score(pairs=str(full/'reading'), model='electric', out=str(out), device='cpu')
    rows = [json.loads(o) for o in out.read_text().splitlines()]
    assert [i for i,o in enumerate(rows) if o['surprisal'] is None]==[*range(0, 60, 8)]
    for before,o in zip(rows, rows[1:]):
        if before['surprisal'] is not None and o['item']: close(o['prev_surprisal'], before['surprisal'], 1e-4)
    want, = next_surprisals(tiny, ['the captain'], ['saw'])
    close(rows[2]['surprisal'], want, 1e-4)

def test_several_ways_stand_side_by_side(full, tmp_path, capsys):
    table = cli.electra_score(pairs=str(full), model=['electric', 'tiny'], out=str(tmp_path/'a.jsonl'), device='cpu')
    assert 'score of pll of tiny' in pd.read_csv(tmp_path/'a.csv')
    assert [*table.columns.get_level_values(0).unique()]==['', 'towers of electric', 'pll of tiny']
    assert table['pll of tiny'].score.notna().sum()==len(table)-1 # one WUG has no correlation
    assert 'pll of tiny: 0 ties' in capsys.readouterr().out

def test_ties_are_counted(full, capsys):
    "Characters that the vocabulary lacks are all one token; WUG's pairs have no right word, so none is tied"
    same = dict(FILES['irregular_past.jsonl'][0], sentence_good='\u2603 left?', sentence_bad='\u2602 left?')
    (full/'blimp_filtered'/'irregular_past.jsonl').write_text(lines([same, *FILES['irregular_past.jsonl']]))
    wug = dict(FILES['wug_adj.jsonl'][0], sentences='the \u2603\tthe \u2602')
    (full/'wug_adj_nominalization'/'wug_adj.jsonl').write_text(lines([wug]))
    cli.electra_score(pairs=str(full), model='electric', device='cpu')
    assert 'towers of electric: 1 tie\n' in capsys.readouterr().out

def test_a_discriminator_reads_no_times(full, capsys):
    table = cli.electra_score(pairs=str(full), model='tiny', by='p-replaced', device='cpu')
    assert 'reading: left out by p-replaced' in capsys.readouterr().out and 'blimp_filtered' in table.index
    table = cli.electra_score(pairs=str(full), model='tiny', by=['p-replaced', 'pll'], device='cpu')
    assert (table['']['items']>0).all()
    with pytest.raises(InputError, match='tiny by p-replaced gives no surprisal'):
        cli.electra_score(pairs=str(full/'reading'), model='tiny', by='p-replaced', device='cpu')

def test_a_folder_of_two_tests_is_refused(full):
    (full/'comps'/'a.txt').write_text(lines(FILES['agreement-across_1.txt']))
    with pytest.raises(InputError, match='comps has pairs of several tests'): read_suite(full)

@pytest.mark.parametrize('changed, said', [
    (dict(length='three'), "line 2, column length has 'three'; it has to be a number"),
    (dict(RTgopast=''), 'has 0 rows with `item, word, RTgopast, Subtlex_log10'),
    (dict(prev_word='N/A', prev_length='null'), 'has 0 rows with `item, word, self_paced_reading_time'),
    (dict(RTgopast=200), '`RTgopast` is 200 in all rows')])
def test_reading_times_that_cannot_be_used(full, changed, said):
    "They are refused before anything is scored"
    reading(full/'reading'/'reading_data.csv', **changed)
    with pytest.raises(InputError, match=said): read_suite(full)

def test_texts_of_json_lines(full):
    "NaN is missing, as pandas writes it; a number is no text"
    path, rows = full/'reading'/'reading_data.csv', read_suite(full)['reading']
    path.unlink()
    def write(**changed):
        kept = [o | dict(prev_item=o['prev_item'] or float('nan')) for o in rows]
        (full/'reading'/'a.jsonl').write_text(lines([kept[0] | changed, *kept[1:]]))
    write()
    assert read_suite(full)['reading']==rows
    write(word=7)
    with pytest.raises(InputError, match='line 1, column word has 7; it has to be a text'): read_suite(full)

def test_none_stands_for_no_text_before_a_word(full):
    "As pandas reads and writes it; a word may be called so"
    path, rows = full/'reading'/'reading_data.csv', read_suite(full)['reading']
    said = path.read_text().splitlines()
    assert said[1].startswith(',the,')
    path.write_text('\n'.join([said[0], f'None,None{said[1][4:]}', *said[2:]]))
    first = read_suite(full)['reading'][0]
    assert first['item'] is None and first['word']=='None' and rows[0]['item'] is None

def test_a_column_that_lacks_is_named(tmp_path):
    path = reading(tmp_path/'reading.csv')
    path.write_text(path.read_text().replace('prev_length', 'length_before', 1))
    with pytest.raises(InputError, match='has no column `prev_length`'): read_suite(tmp_path)

def test_reading_times_are_read_from_a_file_or_its_folder(tmp_path):
    "In several files too, of which one alone has too few rows, and beside notes"
    path = reading(tmp_path/'reading'/'a.csv')
    whole, = read_suite(path).values()
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(''.join(lines[:-5]))
    (tmp_path/'reading'/'b.csv').write_text(''.join([lines[0], *lines[-5:]]))
    (tmp_path/'reading'/'notes.txt').write_text('What the columns are')
    assert read_suite(tmp_path/'reading')==dict(reading=whole)

STRAY = {'.ipynb_checkpoints/a.jsonl': None, '__MACOSX/._a.jsonl': '\0\0', '._a.jsonl': '\0\0', '.DS_Store': '\0'}

@pytest.mark.parametrize('name', STRAY)
def test_hidden_files_are_not_read(full, name, capsys):
    folder, text = full/'blimp_filtered', STRAY[name]
    before = read_suite(full)
    (folder/name).parent.mkdir(exist_ok=True)
    (folder/name).write_text(text or lines(FILES['irregular_past.jsonl']))
    assert read_suite(full)==before and name not in capsys.readouterr().out

@pytest.mark.parametrize('name', ['LICENSE.txt', 'comps/README.txt', 'comps/a.json', 'reading/columns.csv',
                                  'reading/empty.csv'])
def test_files_of_something_else_are_named(full, name, capsys):
    before = read_suite(full)
    capsys.readouterr()
    text = 'MIT License\n\nPermission is hereby granted' if name.endswith('.txt') else 'column,what\nitem,a text\n'
    (full/name).write_text('' if 'empty' in name else text)
    assert read_suite(full)==before
    assert name in capsys.readouterr().out

def test_compressed_files_are_read(full):
    before, path = read_suite(full), full/'comps'/'comps_base.jsonl'
    (full/'comps'/'comps_base.jsonl.gz').write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    assert read_suite(full)==before

def test_a_folder_with_files_of_its_own_is_one_test(full, capsys):
    (full/'extra.jsonl').write_text(lines(FILES['comps_base.jsonl']))
    assert read_suite(full)=={}
    assert 'is one test; not read: blimp_filtered, cdi, comps' in capsys.readouterr().out

def test_a_suite_in_a_suite_is_refused(full):
    with pytest.raises(InputError, match='full has pairs and reading times; if it is a suite of its own'):
        read_suite(full.parent)

def test_files_of_one_name_are_sets_of_their_own(full):
    for o in ('ambiref', 'regular'):
        (full/'entity_tracking'/o).mkdir(exist_ok=True)
        (full/'entity_tracking'/o/'test.jsonl').write_text(lines(FILES['regular.jsonl']))
    sets = {o['set'] for o in read_suite(full)['entity_tracking']}
    assert sets=={'regular_4_ops', 'ambiref/test_4_ops', 'regular/test_4_ops'}

def test_what_is_explained_already(tiny):
    rows = pd.DataFrame({o: np.arange(60.)%(i+3) for i,o in enumerate((*OF_WORD, 'surprisal'))})
    with pytest.raises(InputError, match='explained without the surprisal'):
        reading_gain(rows.assign(time=2*rows.length), 'time', OF_WORD)

def test_a_blank_stands_before_a_word():
    "In byte-level vocabularies it belongs to the token: as of a whole text"
    model = causal()
    found, = next_surprisals(model, ['he took the'], ['ship'])
    want = surprisal(model, ['ship'], ['he took the']).surprisal[0]
    close(found, want, 1e-4)
    assert next_surprisals(model, ['he took the'], [' ship'])==[found]

def causal():
    "A causal language model with a byte-level vocabulary, in which a blank is a token's first letter"
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer, tok.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tok.train_from_iterator(['he took the ship']*4, trainers.BpeTrainer(vocab_size=300, show_progress=False))
    tok = PreTrainedTokenizerFast(tokenizer_object=tok)
    def scores(ids, mask): return -ids.float()
    return Likelihood(scores, tok, 64, by='log-likelihood', frame=([], []), name='causal')

@pytest.mark.parametrize('given, said', [
    (dict(per='set'), '`per` is for one test'), (dict(out='scored.csv'), 'the name of its table'),
    (dict(out='full/comps/scored.jsonl'), 'in the folder of `pairs`')])
def test_what_a_suite_does_not_take(full, tmp_path, given, said):
    if 'out' in given: given = dict(out=str(tmp_path/given['out']))
    with pytest.raises(InputError, match=said): cli.electra_score(pairs=str(full), model='electric', **given)

def test_the_last_tokens_of_a_long_text_are_read(tiny):
    size = tiny.max_length-sum(map(len, tiny.frame))-len(tiny.tokenizer.tokenize('ship'))
    words = ('the captain saw '*100).split()
    assert tiny.tokenizer.tokenize(' '.join(words[-size:]))==words[-size:] # a token a word
    close(*next_surprisals(tiny, [' '.join(words), ' '.join(words[-size:])], ['ship', 'ship']), 1e-4)

def test_words_that_the_vocabulary_lacks_are_told(tiny):
    with pytest.warns(UserWarning, match=r'50.0% of the tokens are .UNK. \(1 of 2 in the words\)'):
        next_surprisals(tiny, ['the', 'the'], ['ship', '\u2603'])

def test_a_causal_model_begins_with_what_it_has(tmp_path):
    "Without a token before a text, a word that nothing stands before has no surprisal"
    model = load_likelihood('tiny', 'pll', device='cpu')
    model.frame, model.words = ([], []), False
    model.scores = lambda ids, mask: -ids.float()
    assert next_surprisals(model, ['', 'the'], ['ship', 'ship'])[0] is None
