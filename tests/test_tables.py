"A task of a table by command, and predictions that keep every column"
import csv, gzip, json

import pandas as pd
import pytest

import electra_nbdev.finetuning.finetune as ft
import electra_nbdev.finetuning.request as rq
import electra_nbdev.finetuning.tasks as tk
from electra_nbdev.data.text import is_held_out
from electra_nbdev.engine.files import InputError
from electra_nbdev.finetuning.recipe import task_defaults
from electra_nbdev.finetuning.tables import PREDICTION_FORMS, as_table, few_names, labelled_texts, read_table
from electra_nbdev.finetuning.tasks import TextTask, glue_task, text_task
from make import SHORT, electra_folder, sentence, untrained, write
from terminal import bad, typed, worked

ROWS = [(f'q{i}', f'{sentence(i)} "{i}", ok', 'pet' if i%2 else 'animal', i/8, f'seen, {i}') for i in range(60)]
NAMES = ('id', 'question', 'about', 'size', 'remark')

def table(path, rows=ROWS, sep=','):
    quoting = csv.QUOTE_MINIMAL if sep==',' else csv.QUOTE_NONE
    with open(path, 'w', newline='') as f:
        csv.writer(f, delimiter=sep, quoting=quoting, quotechar='"' if sep==',' else None).writerows([NAMES, *rows])

@pytest.fixture(scope='module')
def home(tmp_path_factory):
    d = tmp_path_factory.mktemp('owner')
    electra_folder(d/'model')
    table(d/'train.csv')
    table(d/'my.data.tsv', sep='\t')
    table(d/'other.tsv', ROWS[:12], sep='\t')
    write(d/'recipe.json', json.dumps(SHORT))
    return d

TRAIN = 'electra_finetune --model model --hparams recipe.json --device cpu'

def test_a_table_becomes_a_task_and_keeps_its_columns(home):
    "Its name is the file's, also where modules cannot be called so; the quotes of a CSV are read and written"
    said = typed(f'{TRAIN} --csv train.csv --text question --label about --out own --trials 2', home)
    assert said.code==0 and 'train: `about` has 2 classes: animal, pet' in said.out, said.err
    assert 'train has no dev set. 10% of the training rows' in said.out
    results = json.loads((home/'own/results.json').read_text())['train']
    assert len(results['trials'])==2 and (home/'own/train/trial-1/result.json').is_file()
    for model in ('own', 'own/train'): # the folder of the results holds one task only
        said = typed(f'electra_predict --model {model} --input train.csv --out said.csv --device cpu', home)
        assert said.code==0 and '60 predictions' in said.out, said.err
    read = pd.read_csv(home/'said.csv')
    assert list(read)==[*NAMES, 'prediction', 'p_animal', 'p_pet']
    pd.testing.assert_frame_equal(read[list(NAMES)], pd.read_csv(home/'train.csv'))
    learn = ft.load_finetuned(home/'own', 'cpu')
    want = learn.predict(ROWS[7][1])
    row = read.iloc[7]
    assert row['prediction']==want.label and row['p_pet']==pytest.approx(want.probs['pet'], abs=1e-4)
    again = typed(f'{TRAIN} --csv train.csv --text question --label about --out own --trials 2 --eval-only', home)
    assert again.code==0 and 'train trial-1: accuracy' in again.out, again.err

def test_pairs_numbers_a_dev_set_and_a_name(home):
    line = f'{TRAIN} --csv my.data.tsv --text question --pair remark --label size --dev other.tsv'
    said = typed(f'{line} --out numbers', home)
    assert said.code==0 and 'my.data: `size` is a number' in said.out and 'no dev set' not in said.out, said.err
    assert 'my.data trial 0, seed 0: 60 sequences' in said.out
    said = typed(f'{line} --out numbers --task sizes', home)
    assert said.code==0 and {o.name for o in (home/'numbers').glob('*/')} >= {'my.data', 'sizes'}, said.err
    learn = ft.load_finetuned(home/'numbers/my.data', 'cpu')
    assert learn.tasks['my.data'].labels is None and learn.tasks['my.data'].columns==('question', 'remark')
    said = typed('electra_predict --model numbers/sizes --input other.tsv --device cpu', home)
    head, first = list(csv.reader(said.out.splitlines(), delimiter='\t'))[:2]
    assert head==[*NAMES, 'prediction'] and first[:5]==[str(o) for o in ROWS[0]]
    bad(home, 'electra_predict --model numbers --input other.tsv --device cpu', 'several models', 'numbers/sizes')

def test_what_labels_are_taken_for_is_said_and_can_be_changed(home):
    "Whole numbers are classes, and a name may bring settings of a task of the papers: both are printed"
    write(home/'rte.csv', ''.join(['question,stars\n', *[f'{sentence(i)},{i%3}\n' for i in range(30)]]))
    line = f'{TRAIN} --csv rte.csv --text question --label stars --dev rte.csv'
    said = typed(f'{line} --out stars', home)
    assert said.code==0 and 'rte: `stars` has 3 classes: 0, 1, 2 (for numbers give `regression` true)' in said.out
    assert 'NOTE: a task named rte has num_train_epochs 10.0 unless' in said.out, said.err
    said = typed(f'{line} --out stars --regression true --task stars', home)
    assert said.code==0 and 'stars: `stars` is a number' in said.out and 'a task named' not in said.out, said.err

def test_a_model_of_numbers_is_evaluated_on_whole_numbers(home):
    "They are classes to a new model; and a model of classes has no use for numbers"
    for name,label in (('halves', '{}.5'), ('whole', '{}')):
        rows = [f'{sentence(i)},{label.format(i%3)}\n' for i in range(30)]
        write(home/f'{name}.csv', ''.join(['question,stars\n', *rows]))
    line = f'{TRAIN} --text question --label stars --task stars --out'
    def evaluated(trained, on): return typed(f'{line} {trained} --csv {on}.csv --dev {on}.csv --eval-only', home)
    for o in ('halves', 'whole'): worked(f'{line} of-{o} --csv {o}.csv --dev {o}.csv', home)
    said = evaluated('of-halves', 'whole')
    assert said.code==0 and 'stars: `stars` is a number' in said.out and 'mse' in said.out, said.err
    said = evaluated('of-whole', 'halves')
    assert said.code==2 and 'gives classes for each text, and the labels of its data are numbers' in said.err

def test_a_task_has_settings_of_the_papers_by_its_whole_name():
    for o in ('aqa_reviews', 'my_squad', 'rte2'): assert task_defaults([o])=={}
    assert task_defaults(['squad']) and task_defaults(['rte'])

def test_a_column_of_almost_as_many_classes_as_rows_is_noted(capsys):
    "As where the column of a text was named as that of the label"
    def said(n):
        rows = [dict(text=f'day {i}', label=f'c{i%n}') for i in range(40)]
        labelled_texts('days', rows)
        return capsys.readouterr().out
    assert '`label` has 30 classes in 40 training rows' in said(30) and 'classes' not in said(20)

def test_as_many_classes_as_texts_are_refused():
    "Columns that are exchanged, or numbers of rows; few rows, numbers and long names are not"
    def task(n, text='day {i}', label='{i}', **kw):
        return text_task('many', [dict(text=text.format(i=i), label=label.format(i=i)) for i in range(n)], **kw)
    with pytest.raises(InputError, match='text_column` is text, with 1 different text; are the two exchanged'):
        task(40, text='sea', label='a day {i}')
    with pytest.raises(InputError, match='40 classes in 40 training rows'): task(40)
    assert len(task(39).labels)==39 and task(40, regression=True).labels is None

def test_names_of_classes_are_cut():
    assert few_names(['a'*50, 'b'])=='a'*40+'..., b'
    assert few_names(map(str, range(11)))=='0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ...'

def test_rows_without_a_label_can_be_left_out(home):
    rows = [f'{sentence(i)},{("pet", "animal", "")[i%3]}\n' for i in range(30)]
    write(home/'gaps.csv', ''.join(['question,about\n', *rows]))
    columns = '--text question --label about --dev train.csv'
    said = typed(f'{TRAIN} --csv gaps.csv {columns} --out gaps --skip-bad-rows', home)
    assert said.code==0 and 'gaps.csv: 10 unreadable rows left out' in said.out and '2 classes: animal, pet' in said.out

MNLI = ['index', 'promptID', 'pairID', 'genre', 'sentence1_binary_parse', 'sentence2_binary_parse', 'sentence1_parse',
        'sentence2_parse', 'sentence1', 'sentence2', 'label1', 'gold_label']
OFFICIAL = dict( # As GLUE has them: names of a dev file or None, a row, its texts
    cola=(None, ['gj04', '1', '', '"The dog walks.'], ('"The dog walks.', None)),
    mrpc=(['Quality', '#1 ID', '#2 ID', '#1 String', '#2 String'], ['1', '7', '8', 'A "dog walks .', 'A cat .'],
          ('A "dog walks .', 'A cat .')),
    mnli=(MNLI, ['0', '6n', '6n', 'slate', '(', '(', '(', '(', 'The dog walks.', 'A cat.', 'neutral', 'neutral'],
          ('The dog walks.', 'A cat.')),
    sts=(['index', 'genre', 'filename', 'year', 'old_index', 'source1', 'source2', 'sentence1', 'sentence2', 'score'],
         ['0', 'c', 'M', '2012', '0', 'n', 'n', 'red dog', 'dog', '5.000'], ('red dog', 'dog')))

@pytest.mark.parametrize('name', OFFICIAL)
def test_own_files_of_glue_are_predicted(home, tmp_path, name):
    head, row, texts = OFFICIAL[name]
    write(tmp_path/'dev.tsv', '\ufeff' + ''.join('\t'.join(o)+'\n' for o in ([head] if head else []) + [row, row]))
    (tmp_path/name).mkdir()
    untrained(glue_task(name, tmp_path), home/'model', tmp_path/'task')
    said = typed('electra_predict --model task --input dev.tsv --out said.tsv --device cpu', tmp_path)
    assert said.code==0 and '2 predictions' in said.out, said.err
    names = head or ['source', 'label', 'notation', 'sentence']
    found = read_table(tmp_path/'said.tsv', names)[1][1]
    assert [found[o] for o in names]==row and list(found)[len(names)]=='prediction'
    learn = ft.load_finetuned(tmp_path/'task', 'cpu')
    want, said = learn.predict(texts if texts[1] else texts[0]).label, found['prediction']
    assert (said==want) if learn.tasks[name].labels else float(said)==pytest.approx(want, abs=1e-4)
    new = f'{",".join(o for o in learn.tasks[name].columns if o)}\n{",".join("xy"[:1+bool(texts[1])])}\n'
    write(tmp_path/'new.csv', new)
    assert len(rq.predict_file(tmp_path/'task', tmp_path/'new.csv', device='cpu'))==1, "the names of the hub"

def test_a_row_is_left_out_where_that_is_asked_for(home, tmp_path, capsys):
    untrained(tk.TextTask('kinds', ('a', 'b')), home/'model', tmp_path/'task')
    write(tmp_path/'a.csv', 'text\nred\n"dog')
    assert len(rq.predict_file(tmp_path/'task', tmp_path/'a.csv', skip_bad_rows=True))==1
    write(tmp_path/'b.csv', 'text,label\n"",x\n,y\n')
    capsys.readouterr()
    with pytest.raises(InputError, match='b.csv has no row that can be read'):
        rq.predict_file(tmp_path/'task', tmp_path/'b.csv', skip_bad_rows=True)
    assert capsys.readouterr().out.count('2 unreadable rows left out')==1

def test_classes_of_a_datasets_object_keep_their_names():
    from datasets import ClassLabel, Dataset, Features, Value
    features = Features(dict(text=Value('string'), label=ClassLabel(names=['thing', 'person'])))
    rows = [dict(text=sentence(i), label=i%2) for i in range(8)]
    task = tk.text_task('kinds', Dataset.from_list(rows, features), rows[:2] and Dataset.from_list(rows[:2], features))
    assert task.labels==('person', 'thing')
    assert [o.label for o in task.examples('dev', None)]==['thing', 'person']
    hidden = Dataset.from_list(rows[:3] + [dict(text='red', label=-1)], features)
    with pytest.raises(InputError, match='row 3 has no `label`'): tk.text_task('kinds', hidden)

def test_tables_are_written_as_they_are_read(tmp_path):
    rows = [dict(id='1', text='a "b" c'), dict(id='2', text='"so'), dict(id='3', text='two\tcells,\nor "three"')]
    for ending,sep in {'.csv': ',', '.tsv': '\t', '.jsonl': None}.items():
        write(tmp_path/f'a{ending}', PREDICTION_FORMS[ending](rows))
        assert [o for _,o in read_table(tmp_path/f'a{ending}', ['text'])]==rows
        if sep: assert pd.read_csv(tmp_path/f'a{ending}', sep=sep, dtype=str).to_dict('records')==rows

# Tables of spreadsheets and of pandas (read_table is what fine-tuning and predicting read by)

REVIEWS = [dict(text=f'The film {i} was {"good" if i%2 else "dull"}, "really"', label=str(i%2)) for i in range(12)]

PLAIN = [dict(text=o['text'].replace('"', ''), label='1') for o in REVIEWS]

def as_pandas(rows, **how): return pd.DataFrame(rows).to_csv(index=False, **how)

@pytest.mark.parametrize('name,text', {
    'quotes and tabs': ('a.tsv', as_pandas(REVIEWS, sep='\t')),
    'everything in quotes': ('a.tsv', as_pandas(REVIEWS, sep='\t', quoting=csv.QUOTE_ALL)),
    'numbers without quotes': ('a.tsv', as_pandas([o | dict(label=1) for o in REVIEWS], sep='\t',
                                                  quoting=csv.QUOTE_NONNUMERIC)),
    'quotes for no reason': ('b.tsv', '"text"\t"label"\n' + ''.join(f'"{o["text"]}"\t"1"\n' for o in PLAIN)),
    'not quoted, as GLUE': ('a.tsv', as_pandas(REVIEWS, sep='\t', quoting=csv.QUOTE_NONE)),
    'commas': ('a.csv', as_pandas(REVIEWS)),
    'line ends of Windows': ('a.csv', as_pandas(REVIEWS, lineterminator='\r\n')),
    'a mark at the beginning': ('a.csv', '\ufeff' + as_pandas(REVIEWS))}.values(), ids=str)
def test_what_others_write_is_read_as_written(name, text, tmp_path):
    (tmp_path/name).write_bytes(text.encode())
    expected = [o['text'] for o in (PLAIN if name=='b.tsv' else REVIEWS)]
    assert [o['text'] for _,o in read_table(tmp_path/name, ['text', 'label'])]==expected

def test_lone_quotation_marks_of_glue_stay(tmp_path):
    "Also where a field looks as if it was quoted"
    texts = ['"Good."', '"Good," he said.', 'He said "no".', 'a 5" disk', '""']
    like_csv = '"so ""he"" said"' # as pandas would quote it, beside a mark that nobody quoted
    for some in (texts, texts[:1]+['plain'], texts[3:], texts[:2], [like_csv, 'a 5" disk']):
        write(tmp_path/'a.tsv', '\n'.join(['text\tlabel', *(f'{o}\tx' for o in some)]))
        assert [o['text'] for _,o in read_table(tmp_path/'a.tsv', ['text'])]==some

def test_lines_of_old_macs_are_refused(tmp_path):
    "A text with them would be one row"
    write(tmp_path/'a.txt', 'a red dog\ra cat\r')
    for name,said in {'a.txt': 'its lines end in carriage returns alone', 'b.txt': 'there is no file'}.items():
        with pytest.raises(InputError, match=said): read_table(tmp_path/name, ['text'])

def test_lone_quotation_marks_of_two_rows_do_not_join_them(tmp_path):
    "They look like a field of two lines: where both lines are rows, they are read as such"
    write(tmp_path/'a.tsv', 'id\ttext\n1\t"Hello\n2\tWorld"\n')
    assert [o['text'] for _,o in read_table(tmp_path/'a.tsv', ['text'])]==['"Hello', 'World"']

@pytest.mark.parametrize('rows', [[dict(id='1', text='two\nlines'), dict(id='2', text='one')],
                                  [dict(text='two\nlines'), dict(text='a')],
                                  [dict(text='a\rb', id='3'), dict(text='c', id='4')]])
@pytest.mark.parametrize('sep', ['\t', ','])
def test_texts_of_several_lines(rows, sep, tmp_path):
    "As pandas writes them, and as predictions are written, with carriage returns too"
    path = tmp_path/('a.tsv' if sep=='\t' else 'a.csv')
    for written in [as_pandas(rows, sep=sep)]*('\r' not in rows[0]['text']) + [as_table(rows, sep)]:
        path.write_bytes(written.encode())
        assert [o for _,o in read_table(path, ['text'])]==rows
        assert pd.read_csv(path, sep=sep, dtype=str).to_dict('records')==rows

@pytest.mark.parametrize('ending', ['.csv.gz', '.tsv.gz', '.jsonl.gz', '.txt.gz'])
def test_compressed_tables_are_read(ending, tmp_path):
    rows = dict(csv=as_pandas(REVIEWS), tsv=as_pandas(REVIEWS, sep='\t'),
                jsonl=''.join(json.dumps(o)+'\n' for o in REVIEWS), txt=''.join(o['text']+'\n' for o in REVIEWS))
    (tmp_path/f'a{ending}').write_bytes(gzip.compress(rows[ending.split('.')[1]].encode()))
    assert [o['text'] for _,o in read_table(tmp_path/f'a{ending}', ['text'])]==[o['text'] for o in REVIEWS]
    (tmp_path/f'b{ending}').write_bytes(gzip.compress(b'text\n'*9999)[:-20])
    with pytest.raises(InputError, match='is damaged after line'): read_table(tmp_path/f'b{ending}', ['text'])

@pytest.mark.parametrize('code', ['utf-16', 'utf-16-le', 'utf-16-be', 'utf-32'])
@pytest.mark.parametrize('skip', [False, True])
def test_other_encodings_are_refused_with_a_cure(code, skip, tmp_path):
    "Leaving rows out is no cure: no row can be read"
    for name in ('a.csv', 'a.tsv', 'a.txt', 'a.jsonl'):
        (tmp_path/name).write_bytes(as_pandas(REVIEWS).encode(code))
        with pytest.raises(InputError, match='line 1: .*(zero byte|not UTF-8).*iconv') as e:
            read_table(tmp_path/name, ['text'], skip_bad_rows=skip)
        assert 'skip_bad_rows' not in str(e.value)

@pytest.mark.parametrize('text', ['text;label\n"The film";0\n', '\ufefftext;label\nThe film;0,5\n',
                                  'id;text;label\n1;"a ""b""";x\n'])
def test_semicolons_are_called_so_first(text, tmp_path):
    write(tmp_path/'a.csv', text)
    with pytest.raises(InputError, match='separate columns with commas .and write decimals with points'):
        read_table(tmp_path/'a.csv', ['text'])

def test_decimal_commas_are_refused(tmp_path):
    "As `read_csv(sep=';')` of European numbers gives them: every number would be a class"
    def task(label, **kw): return labelled_texts('size', pd.DataFrame(dict(text=[*'abcdef'], label=label)), **kw)
    for label in (['0,5', '1,0', '1,5', '2', '2,5', '3,0'], ['0,5', '1', '2', '3', '4', '5']):
        with pytest.raises(InputError, match="row 0: label '0,5' has a decimal comma; write numbers with a point"):
            task(label, regression=None)
    assert task(['0,5', '1,0']*3, regression=False)[0]==('0,5', '1,0')
    assert task(['a', 'b', 'c', 'd', 'e', '1,2'], regression=None)[0][0]=='1,2'

def test_a_column_that_is_there_twice_and_no_rows_are_refused():
    table = pd.DataFrame([['a', 'x', 'b'], ['c', 'y', 'd']], columns=['text', 'label', 'text'])
    with pytest.raises(InputError, match='a column of the table is there twice: text'): labelled_texts('own', table)
    rows = pd.DataFrame(dict(text=['a', 'b'], label=['x', 'y']))
    with pytest.raises(InputError, match='the train set of own has no rows'): labelled_texts('own', rows.head(0))
    with pytest.raises(InputError, match='the dev set of own has no rows'): labelled_texts('own', rows, rows.head(0))

def test_an_array_of_json_has_a_cure_one_can_type(tmp_path):
    for text in (json.dumps(REVIEWS), json.dumps(REVIEWS, indent=1)):
        write(tmp_path/'a.jsonl', text)
        with pytest.raises(InputError, match=r"jq -c '.\[\]' a.json > a.jsonl"):
            read_table(tmp_path/'a.jsonl', ['text'])

def test_half_a_surrogate_pair(tmp_path):
    "What is left of an emoji where somebody cut a text"
    write(tmp_path/'cut.jsonl', '{"text": "so \\ud83d", "label": "a"}\n{"text": "\\ud83d\\ude00", "label": "b"}\n')
    assert [r['text'] for _,r in read_table(tmp_path/'cut.jsonl', ['text'], skip_bad_rows=True)]==['\U0001f600']

def test_blank_lines_and_long_texts_of_a_csv(tmp_path):
    write(tmp_path/'long.csv', f'text,label\n\n{"a"*200_000},x\n\n')
    (_, row), = read_table(tmp_path/'long.csv', ['text'])
    assert len(row['text'])==200_000

def test_numbers_of_a_table_come_back_as_they_were():
    rows = [dict(p=3e-15, url='http://a/b', n=2, none=None, some=[1e-12]), dict(p=123456.1234567890123, url='é', n=3)]
    back = [json.loads(o) for o in PREDICTION_FORMS['.jsonl'](rows).splitlines()]
    assert back[0]==rows[0] and {k: back[1][k] for k in rows[1]}==rows[1] and back[1]['none'] is None

def test_a_model_is_evaluated_again_and_again(home, tmp_path):
    "Into the folder of the evaluation before, where there are no trials"
    if not (home/'own').is_dir(): typed(f'{TRAIN} --csv train.csv --text question --label about --out own', home)
    line = (f'electra_finetune --model own --csv train.csv --text question --label about --out {tmp_path} --eval-only '
            '--device cpu')
    for _ in range(2):
        said = typed(line, home)
        assert said.code==0 and (tmp_path/'train/evaluation.json').is_file(), said

def test_a_model_of_pairs_is_not_evaluated_on_single_texts(home):
    "Nor the other way round"
    line = f'{TRAIN} --csv my.data.tsv --text question --label size --dev other.tsv --task lengths --out'
    worked(f'{line} of-two --pair remark', home)
    worked(f'{line} of-one', home)
    bad(home, f'{line} of-two --eval-only', 'reads two texts, and its data have one', 'give --pair-column')
    bad(home, f'{line} of-one --pair remark --eval-only', 'reads one text', 'leave out --pair-column')

@pytest.fixture(scope='module')
def trained(home):
    "A classifier of `about`, and a regression of `size`"
    for name,label in (('about', 'about'), ('size', 'size')):
        worked(f'{TRAIN} --csv train.csv --text question --label {label} --task my{name} --out {name}', home)
    return home

JUDGE = 'electra_finetune --eval-only --device cpu'

def measured(line, home, task):
    "What an evaluation finds"
    worked(line, home)
    return json.loads((home/line.split()[-1]/task/'evaluation.json').read_text())['model'][task]

def test_a_model_is_evaluated_on_a_table_alone(trained):
    "It knows its classes, of which the table may have one, the scale of its numbers, and the column of its texts"
    table(trained/'row.csv', ROWS[5:6])
    worked(f'{JUDGE} --model size --dev row.csv --label size --out of-a-row', trained)
    table(trained/'pets.csv', [o for o in ROWS if o[2]=='pet'])
    for name,label in (('about', 'about'), ('size', 'size')):
        both = f'--csv pets.csv --dev pets.csv --text question --task my{name}'
        alone = measured(f'{JUDGE} --model {name} --dev pets.csv --label {label} --out alone', trained, f'my{name}')
        if name=='size':
            assert alone==measured(f'{JUDGE} --model size {both} --label size --out both', trained, 'mysize')
    worked('electra_predict --model about --input pets.csv --out pets.said.csv --device cpu', trained)
    found = json.loads((trained/'alone/myabout/evaluation.json').read_text())['model']['myabout']
    right = (pd.read_csv(trained/'pets.said.csv').prediction=='pet').mean()
    assert found['accuracy']==pytest.approx(100*right)

def test_the_classes_of_an_evaluation_are_those_of_the_model(trained):
    "Its table may lack some of them, or have one alone"
    table(trained/'pets.csv', [o for o in ROWS if o[2]=='pet'])
    table(trained/'others.csv', [o for o in ROWS if o[2]!='pet'])
    line = f'{JUDGE} --model about --text question --label about --task myabout'
    said = worked(f'{line} --csv pets.csv --out of-a-tenth', trained)
    assert 'has no dev set' in said.out
    for csv,dev in (('pets', 'pets'), ('pets', 'others')):
        said = worked(f'{line} --csv {csv}.csv --dev {dev}.csv --out {csv}-{dev}', trained)
        assert 'NOTE' not in said.out
        found = json.loads((trained/f'{csv}-{dev}/myabout/evaluation.json').read_text())['model']
        alone = measured(f'{JUDGE} --model about --dev {dev}.csv --label about --out of-{dev}', trained, 'myabout')
        assert found==dict(myabout=alone)

def test_what_a_table_alone_cannot_be(trained):
    table(trained/'pet.csv', [(*o[:2], 'cow', *o[3:]) for o in ROWS])
    line = f'{JUDGE} --model about --dev pet.csv --out never'
    bad(trained, f'{line} --label about', "pet.csv line 2: unknown label 'cow'; the training rows have animal, pet")
    bad(trained, f'{line} --label size', "unknown label '0.0'")
    bad(trained, line, 'give --label-column')
    bad(trained, f'{line.replace("pet", "train")} --label about --pair remark', 'reads one text', 'leave out --pair')
    bad(trained, f'{line} --label about --data-dir model', '--dev and --data-dir were both given')
    bad(trained, f'{line} --label about --task mysize', 'has learnt myabout', 'give --task')
    bad(trained, f'{JUDGE} --model tiny --dev pet.csv --label about --out never', 'holds no fine-tuned model')
    bad(trained, f'{JUDGE} --model about --csv pet.csv --text question --label about --out never',
        'fine-tuned on myabout, not on pet', '--dev, without --csv')

def test_an_error_of_a_regression_is_on_the_scale_of_its_labels(trained):
    "And so the one between the predictions of a file and its labels"
    learn = ft.load_finetuned(trained/'size', 'cpu')
    task, found = learn.tasks['mysize'], pd.DataFrame(ROWS, columns=NAMES)
    features = task.features([o._replace(label=y) for o,y in zip(task.unlabelled([*found.question]), found['size'])],
                             learn.tok, learn.hp)
    outs = learn.outputs('mysize', features)
    mse = ((pd.Series(task.decode(outs))-found['size'])**2).mean()
    assert task.scale!=1 and task.shift!=0 and task.metrics(features, outs)['mse']==pytest.approx(mse, rel=1e-4)

@pytest.mark.parametrize('name', ['about', 'size'])
def test_a_classifier_opens_in_transformers(trained, name, tmp_path):
    "Class names and outputs are the same, without this library"
    from transformers import AutoModelForSequenceClassification, AutoTokenizer
    learn, texts = ft.load_finetuned(trained/name, 'cpu'), [*(o[1] for o in ROWS[:5]), 'a [SEP] or a [MASK]']
    said = typed(f'electra_convert --src {name}/my{name} --out {tmp_path}/plain', trained)
    assert said.code==0 and f'my{name}/ is for plain transformers, model/ for this library' in said.out, said.err
    net, info = AutoModelForSequenceClassification.from_pretrained(tmp_path/f'plain/my{name}', output_loading_info=True)
    tok = AutoTokenizer.from_pretrained(tmp_path/f'plain/my{name}')
    out = net.eval()(**tok(texts, padding=True, return_tensors='pt')).logits
    if name=='about':
        assert net.config.id2label=={0: 'animal', 1: 'pet'}
        for row,o in zip(out.softmax(-1).tolist(), learn.predict(texts)):
            assert row==pytest.approx([*o.probs.values()], abs=1e-5)
    else: assert out[:,0].tolist()==pytest.approx([o.label for o in learn.predict(texts)], rel=1e-4)
    assert not info['missing_keys'] and not info['unexpected_keys']
    assert ft.load_finetuned(tmp_path/'plain', 'cpu').predict(texts)==learn.predict(texts)

def test_an_empty_text_is_not_predicted(trained, tmp_path):
    rows = [*ROWS[:3], ('q', ' ', 'pet', 1, '')]
    table(trained/'gap.csv', rows)
    said = typed('electra_predict --model about --src gap.csv --skip-bad-rows --device cpu --out said.csv', trained)
    assert said.code==0 and '3 predictions' in said.out, said.err
    learn = ft.load_finetuned(trained/'about', 'cpu')
    with pytest.raises(InputError, match='text 1 is empty'): learn.predict(['a', ' '])

@pytest.mark.parametrize('value,told', [('["a", "b"]', '["a", "b"]'), ('{"a": 1}', '{"a": 1}'), ('true', 'true'),
                                        ('NaN', 'NaN')])
def test_what_is_no_text_is_not_predicted(value, told, tmp_path):
    "Its form in Python would be"
    task = TextTask('mood', ('good', 'bad'))
    path = write(tmp_path/'a.jsonl', '{"text": "a cat"}\n{"text": %s}\n{"text": 7}\n' % value)
    with pytest.raises(InputError) as e: task.read(path)
    assert 'a.jsonl line 2: `text` is '+told in str(e.value)
    assert [o.text_a for o in task.read(path, skip_bad_rows=True)]==['a cat', '7']

@pytest.mark.parametrize('name', ['a.TXT', 'a.txt.gz'])
def test_lines_of_text_by_any_ending(name, tmp_path):
    "A first line that names the column is a header, packed or not; else each line is a text"
    task = TextTask('mood', ('good', 'bad'), columns=('phrase', None))
    untrained(task, electra_folder(tmp_path/'model'), tmp_path/'t')
    def predicted(text):
        path = tmp_path/name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith('.gz') else text.encode())
        return rq.PredictRequest(tmp_path/'t', path, device='cpu').settle().run()
    assert [*predicted('a cat\na dog\n').phrase]==['a cat', 'a dog']
    with pytest.raises(InputError, match='names the column `phrase`'): predicted('id,phrase\n1,a cat\n')

def test_columns_without_a_name_stay(tmp_path):
    path = write(tmp_path/'a.csv', ',text,\n1,good,A\n2,bad,B\n')
    rows = [r for _,r in read_table(path, ['text'])]
    assert [[*o.values()] for o in rows]==[['1', 'good', 'A'], ['2', 'bad', 'B']]

def test_what_is_cut_before_a_prediction_is_said(trained):
    table(trained/'long.csv', [*ROWS[:3], ('q', 'the cat sat '*200, 'pet', 1, '')])
    said = typed('electra_predict --model about --src long.csv --device cpu', trained)
    assert 'long.csv: 1 of 4 exceed' in said.out and 'tokens and were cut' in said.out, said.out

@pytest.mark.parametrize('values,numbers', [(['1.0', '3.0'], False), (['1.0', '3'], False), (['1', '2.5'], True)])
def test_numbers_that_are_all_whole_are_classes(values, numbers):
    "As a column of pandas becomes that has lost a row without a label"
    rows = [dict(text=f'a {i}', label=o) for i,o in enumerate(values*6)]
    assert (labelled_texts('own', rows, regression=None)[0] is None)==numbers

def test_classes_that_cannot_be_learnt_and_rows_that_are_known_are_said(capsys):
    rows = [dict(text=f'text {i}', label='ab'[i%2]) for i in range(60)]
    held = next(o for o in (f'rare {i}' for i in range(1000)) if is_held_out([o, ''], .1))
    text_task('own', [*rows, dict(text=held, label='rare')])
    assert 'NOTE: no training row is left for rare: those that have it are held out' in capsys.readouterr().out
    text_task('own', rows, dev=[*rows[:2], dict(text='new', label='a')])
    assert 'NOTE: 2 of 3 dev rows have the text of a training row' in capsys.readouterr().out
    text_task('own', rows, dev=[dict(text='new', label='a')])
    assert 'NOTE' not in capsys.readouterr().out

def test_a_task_is_shown_without_its_rows():
    assert len(repr(text_task('own', [dict(text=f'text {i}', label='ab'[i%2]) for i in range(60)])))<300

def test_changed_rows_are_called_so(trained):
    table(trained/'fewer.csv', ROWS[:50])
    bad(trained, f'{TRAIN} --csv fewer.csv --text question --label about --task myabout --out about',
        'holds trials of something else: the rows have changed; choose another --out')

def test_evaluation_of_a_part_says_how_to_evaluate_all(trained):
    line = f'{TRAIN} --csv train.csv --text question --label about --task myabout --out about'
    said = typed(f'{line} --eval-only', trained)
    assert 'NOTE: to evaluate all rows of myabout, give them as the dev set too' in said.out, said.err
