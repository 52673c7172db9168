"Texts with several labels: lists and columns of 0 and 1, by command, with fastai and in plain `transformers`"
import json

import pandas as pd
import pytest
import torch
from fastai.interpret import ClassificationInterpretation, Interpretation
from fastai.learner import load_learner
from fastai.torch_core import no_random
from transformers import AutoTokenizer, ElectraForSequenceClassification

import electra_nbdev.finetuning.finetune as ft
import electra_nbdev.finetuning.request as rq
import electra_nbdev.finetuning.tasks as tk
from electra_nbdev.engine.files import InputError
from electra_nbdev.finetuning.tables import labelled_texts
from electra_nbdev.finetuning.tasks import MultiLabelTask, text_task
from electra_nbdev.sharing.convert import convert_weights
from learners import quiet
from make import SHORT, electra_folder, sentence, untrained, write
from terminal import bad, typed, worked

NAMES = ('insult', 'severe threat', 'toxic')
HAS = [tuple(o for j,o in enumerate(NAMES) if i>>j&1) for i in range(8)] # All sets of labels, none first
LISTS = [dict(id=i, text=sentence(i), labels=list(HAS[i%8])) for i in range(40)]
COLUMNS = [dict(id=o['id'], text=o['text']) | {k: int(k in o['labels']) for k in NAMES} for o in LISTS]

def lines(rows): return ''.join(json.dumps(o)+'\n' for o in rows)
def table(rows, sep=','): return pd.DataFrame(rows).to_csv(index=False, sep=sep)

@pytest.fixture(scope='module')
def home(tmp_path_factory):
    d = tmp_path_factory.mktemp('labels')
    electra_folder(d/'model')
    write(d/'lists.jsonl', lines(LISTS))
    write(d/'columns.csv', table(COLUMNS))
    write(d/'columns.tsv', table(COLUMNS, '\t'))
    write(d/'recipe.json', json.dumps(SHORT | dict(learning_rate=.01)))
    return d

TRAIN = 'electra_finetune --model model --hparams recipe.json --device cpu --text text --task remarks'
THREE = "--label insult 'severe threat' toxic"

def test_both_forms_are_one_task(home):
    "Trained, measured again and used, by command"
    said = worked(f'{TRAIN} --csv lists.jsonl --label labels --out lists', home)
    assert 'remarks: 3 labels, any number of them for a text: insult, severe threat, toxic' in said.out
    assert 'remarks micro_f1' in ' '.join(said.out.split()) and 'has no dev set' in said.out
    worked(f'{TRAIN} --csv columns.csv {THREE} --out columns', home)
    worked(f'{TRAIN} --csv columns.tsv --label-column {THREE[8:]} --out tsv', home)
    first, *others = ({k: o['values'] for k,o in json.loads((home/d/'results.json').read_text())['remarks']['tasks']
                       ['remarks'].items()} for d in ('lists', 'columns', 'tsv'))
    assert [*first]==['micro_f1', 'macro_f1', 'loss'] and others==[first]*2
    worked(f'{TRAIN} --csv lists.jsonl --label labels --out lists --eval-only', home)
    again = json.loads((home/'lists/remarks/evaluation.json').read_text())['trial-0']['remarks']
    assert again['loss']==pytest.approx(first['loss'][0], abs=1e-6)

def test_a_model_of_lists_is_evaluated_on_a_table_alone(home):
    "Where one label is there, as lists or as columns, or none"
    if not (home/'lists').is_dir(): worked(f'{TRAIN} --csv lists.jsonl --label labels --out lists', home)
    some = [o for o in LISTS if {*o['labels']}<={'toxic'}]
    write(home/'some.jsonl', lines(some))
    write(home/'some.csv', table([o for i,o in enumerate(COLUMNS) if LISTS[i] in some]))
    write(home/'none.csv', table([o for o in COLUMNS if not any(o[k] for k in NAMES)]))
    judge = 'electra_finetune --eval-only --device cpu --model lists --dev'
    worked(f'{judge} some.jsonl --label labels --out of-lists', home)
    for o in ('some', 'none'): worked(f'{judge} {o}.csv {THREE} --out of-{o.replace("some", "columns")}', home)
    found, of_columns = (json.loads((home/o/'remarks/evaluation.json').read_text())['model']['remarks']
                         for o in ('of-lists', 'of-columns'))
    learn = ft.load_finetuned(home/'lists', 'cpu')
    said = [{*o.label} for o in learn.predict([o['text'] for o in some])]
    both = sum(len(a & {*o['labels']}) for a,o in zip(said, some))
    assert found==of_columns
    assert found['micro_f1']==pytest.approx(200*both/max(1, sum(map(len, said))+sum(len(o['labels']) for o in some)))

@pytest.fixture(scope='module')
def tuned(home):
    "A model that was trained until it says some labels, and not all"
    worked(f'{TRAIN} --csv columns.csv {THREE} --out tuned --epochs 12', home)
    return home/'tuned/remarks'

def test_predictions_have_lists_and_probabilities(home, tuned):
    learn = ft.load_finetuned(tuned, 'cpu')
    want = learn.predict([o['text'] for o in LISTS])
    worked('electra_predict --model tuned/remarks --src lists.jsonl --out said.jsonl --device cpu', home)
    rows = [json.loads(o) for o in (home/'said.jsonl').read_text().splitlines()]
    assert [*rows[0]]==['id', 'text', 'labels', 'prediction', *(f'p_{o}' for o in NAMES)]
    assert [o['labels'] for o in rows]==[o['labels'] for o in LISTS]
    for row,pred in zip(rows, want):
        assert row['prediction']==list(pred.label)==[o for o in NAMES if pred.probs[o]>.5]
        assert [row[f'p_{o}'] for o in NAMES]==pytest.approx([*pred.probs.values()], abs=1e-4)
    assert {p>.5 for o in want for p in o.probs.values()}=={True, False} # else nothing was seen
    for form in ('csv', 'tsv'): # where a name with a space stays one
        worked(f'electra_predict --model tuned/remarks --src columns.{form} --out said.{form} --device cpu', home)
        read = pd.read_csv(home/f'said.{form}', sep='\t' if form=='tsv' else ',')
        assert [json.loads(o) for o in read['prediction']]==[list(o.label) for o in want]
    said = worked('electra_predict --model tuned/remarks --text "red dog" --device cpu', home)
    assert said.out.splitlines()[0]=='text\tprediction\tp_insult\tp_severe threat\tp_toxic'
    write(home/'taken.csv', 'text,p_toxic\nred,1\n')
    bad(home, 'electra_predict --model tuned/remarks --src taken.csv --device cpu', 'taken.csv has a column `p_toxic`')

def test_plain_transformers_computes_the_same(home, tuned, tmp_path):
    "Logits, and the loss of its problem type"
    convert_weights(tuned, tmp_path/'out')
    plain = ElectraForSequenceClassification.from_pretrained(tmp_path/'out/remarks').eval()
    assert plain.config.problem_type=='multi_label_classification'
    assert plain.config.id2label==dict(enumerate(NAMES))
    learn = ft.load_finetuned(tuned, 'cpu')
    task, tok = learn.tasks['remarks'], learn.tok
    assert AutoTokenizer.from_pretrained(tmp_path/'out/remarks').model_max_length==learn.hp.max_seq_length<128
    texts = [tk.TextExample(i, o['text'], None, tuple(o['labels'])) for i,o in enumerate(LISTS[:6])]
    outs = torch.stack(learn.outputs('remarks', features := task.features(texts, tok, learn.hp)))
    target = task.collate([o.target for o in features], 0)
    found = plain(**tok([o.text_a for o in texts], padding=True, return_tensors='pt'), labels=target)
    assert torch.allclose(found.logits, outs, atol=1e-4)
    assert found.loss.item()==pytest.approx(task.losses(outs, target).mean().item(), abs=1e-5)
    back = ft.load_finetuned(tmp_path/'out', 'cpu')
    assert isinstance(back.tasks['remarks'], MultiLabelTask)
    assert back.predict('red dog').probs==pytest.approx(learn.predict('red dog').probs, abs=1e-6)

def test_tasks_of_glue_stay_what_they_are(home, tmp_path):
    "A model of one becomes a classifier of `transformers` too"
    untrained(tk.GlueTask('cola', ('0', '1'), columns=('sentence', None)), home/'model', tmp_path/'cola')
    convert_weights(tmp_path/'cola', tmp_path/'out')
    plain = ElectraForSequenceClassification.from_pretrained(tmp_path/'out/cola')
    assert plain.config.problem_type=='single_label_classification'
    assert ft.load_finetuned(tmp_path/'out', 'cpu').predict('red dog').label in '01'

def test_it_learns_what_words_say(home):
    "Each label hangs on a word of its own; one that a text in eight has is learnt too"
    words = dict(river=('wet', 2), king=('old', 3), dog=('loud', 8)) # {word: (label, it is in every so many texts)}
    def row(i):
        said = [w for w,(_,n) in words.items() if i%n==0]
        others = [o for o in sentence(i).split() if o not in words]
        return dict(text=' '.join([*said, *others, 'one', 'two']), labels=[words[o][0] for o in said])
    rows = [row(i) for i in range(200)]
    task = text_task('words', rows[:160], rows[160:], label='labels')
    hparams = dict(max_seq_length=32, num_train_epochs=10, learning_rate=3e-3, layerwise_lr_decay=0.)
    with no_random(0):
        learn = quiet(ft.electra_classifier(ft.TaskDataLoaders.from_task(task, home/'model', 8, 'cpu', **hparams)))
        learn.fit_recipe()
    assert learn.scores['words']['micro_f1']>75 and learn.scores['words']['macro_f1']>70, learn.scores # said always: 49

# With fastai

@pytest.fixture
def learn(home):
    dls = ft.TextTaskDataLoaders.from_df(LISTS[:32], label='labels', model=home/'model', valid=LISTS[32:], bs=8,
                                         device='cpu')
    return quiet(ft.electra_classifier(dls))

def test_fastai_sees_probabilities_and_several_targets(learn, monkeypatch):
    learn.fit(1)
    assert learn.recorder.metric_names[3:5]==['micro_f1', 'macro_f1']
    probs, targets, decoded = learn.get_preds(with_decoded=True)
    assert probs.shape==targets.shape==(8, 3) and probs.min()>0 and probs.max()<1
    assert torch.equal(decoded, probs>.5)
    assert sorted(targets.tolist())==sorted([float(k in o['labels']) for k in NAMES] for o in LISTS[32:])
    shown = []
    monkeypatch.setattr(ft, 'display_df', shown.append)
    learn.show_results(max_n=8)
    assert sorted(shown[0]['label'])==sorted(', '.join(o['labels']) for o in LISTS[32:])
    Interpretation.from_learner(learn).show_results([0, 1])
    assert set(shown[1]['label'])<={', '.join(o) for o in HAS}
    for act in (learn.plot_confusion_matrix, lambda: ClassificationInterpretation.from_learner(learn)):
        with pytest.raises(InputError, match='has .*no classes'): act()

def test_an_exported_learner_predicts(learn, tmp_path):
    want = learn.predict('red dog')
    learn.export(tmp_path/'a.pkl')
    assert load_learner(tmp_path/'a.pkl').predict('red dog')==want

def test_beside_another_task_and_in_trials(home, tmp_path):
    "One network for both, and an ensemble of two trials for texts without labels"
    test = [dict(text=o['text']) for o in LISTS[:5]]
    remarks = text_task('remarks', LISTS, LISTS[:8], test, label='labels')
    sizes = text_task('sizes', [dict(text=o['text'], label=len(o['text'])/7) for o in LISTS], LISTS[:0] or None,
                      test, regression=True)
    rq.run_trials(home/'model', [remarks, sizes], tmp_path/'both', device='cpu', num_trials=2, write_test_outputs=True,
                  **SHORT)
    rows = (tmp_path/'both/predictions/ensemble/remarks-test.tsv').read_text().splitlines()[1:]
    said = {k: ft.load_finetuned(tmp_path/f'both/trial-{k}', 'cpu').predict([o['text'] for o in test], task='remarks')
            for k in range(2)}
    for i,row in enumerate(rows):
        mean = {o: (said[0][i].probs[o]+said[1][i].probs[o])/2 for o in NAMES}
        assert json.loads(row.split('\t')[1])==[o for o in NAMES if mean[o]>.5]

def test_names_of_a_datasets_object():
    "As the sets of the hub have them: numbers in lists, with names"
    from datasets import ClassLabel, Dataset, Features, Sequence, Value
    features = Features(dict(text=Value('string'), labels=Sequence(ClassLabel(names=['joy', 'anger', 'fear']))))
    rows = [dict(text='a', labels=[0, 2]), dict(text='b', labels=[]), dict(text='c', labels=[1])]
    labels, examples = labelled_texts('moods', Dataset.from_list(rows, features), label='labels')
    assert labels==('anger', 'fear', 'joy') and [o.label for o in examples['train']]==[('fear', 'joy'), (), ('anger',)]

def test_arrays_bools_and_numbers_are_read():
    frame = pd.DataFrame(dict(text=['a', 'b'], labels=[['x', 3], ['3.0']]))
    frame['labels'] = [pd.Series(o).to_numpy() for o in frame['labels']]
    labels, examples = labelled_texts('odd', frame, label='labels')
    assert labels==('3', 'x') and [o.label for o in examples['train']]==[('3', 'x'), ('3',)]
    flags = pd.DataFrame(dict(text=['a', 'b'], x=[True, False], y=[0., 1.]))
    assert [o.label for o in labelled_texts('odd', flags, label=['x', 'y'])[1]['train']]==[('x',), ('y',)]

# What is refused

def test_a_label_that_only_held_out_rows_have_is_told(capsys):
    rows = [dict(text=o['text'], a=1, b=0) for o in COLUMNS]
    text_task('rare', rows, rows[:3], label=['a', 'b'])
    assert 'NOTE: no training row is left for b' in capsys.readouterr().out

WRONG = {
    'mixed.jsonl': lines([*LISTS[:3], dict(id=3, text='red', labels='toxic'), *LISTS[4:]]),
    'none.jsonl': lines([*LISTS[:3], dict(id=3, text='red', labels=None)]),
    'one.jsonl': lines([dict(text='red', labels=['a']), dict(text='dog', labels=[])]),
    'empty.jsonl': lines([dict(text='red', labels=[])]*3),
    'new.jsonl': lines([*LISTS[:2], dict(text='red', labels=['toxic', 'obscene'])]),
    'nested.jsonl': lines([*LISTS[:9], dict(text='red', labels=[['toxic']])]),
    'minus.csv': table([*COLUMNS[:5], COLUMNS[5] | dict(toxic=-1)]),
    'gap.csv': 'id,text,insult,severe threat,toxic\n0,red,1,,0\n',
    'dry.csv': table([o | dict(toxic=0) for o in COLUMNS]),
    'nothing.csv': table([o | dict.fromkeys(NAMES, 0) for o in COLUMNS]),
    'single.csv': 'text,kind\nred,a\ndog,b\n',
}

@pytest.mark.parametrize('flags,words', [
    ('mixed.jsonl --label labels', ["mixed.jsonl line 4: `labels` is 'toxic', in other rows it is a list"]),
    ('none.jsonl --label labels', ['none.jsonl line 4: the column `labels` is missing or empty']),
    ('one.jsonl --label labels', ["name 'a'; give at least two labels"]),
    ('empty.jsonl --label labels', ['name nothing; give at least two labels']),
    ('nested.jsonl --label labels', ["nested.jsonl line 10: `labels` holds ['toxic']; give names"]),
    ('lists.jsonl --label labels --dev new.jsonl', ["new.jsonl line 3: unknown label 'obscene'"]),
    ('lists.jsonl --label labels --dev mixed.jsonl', ['mixed.jsonl line 4: `labels` is']),
    ('lists.jsonl --label labels --regression true', ['--regression is about one number', 'several labels']),
    (f'minus.csv {THREE}', ["minus.csv line 7: `toxic` is '-1'; where several columns are labels, each holds 0 or 1"]),
    (f'gap.csv {THREE}', ['gap.csv line 2: the column `severe threat` is missing or empty']),
    (f'dry.csv {THREE} --dev columns.csv', ['columns.csv line 6: `toxic` is 1, and 0 in all training rows']),
    (f'nothing.csv {THREE}', ['no training row of nothing has a label', 'are 0 in all']),
    (f'columns.csv {THREE} --regression true', ['--regression is about one number']),
    ('columns.csv --label insult toxics', ['no column `toxics`', 'Did you mean `toxic`']),
    ('columns.csv --label insult insult', ['the column `insult` is given twice']),
    ('columns.csv --label insult text', ['`text` is the column of the label and of a text']),
    ('single.csv --label kind --dev lists.jsonl', ['no column `kind`']),
])
def test_wrong_rows_are_refused_in_a_line(home, flags, words):
    for name,data in WRONG.items(): write(home/name, data)
    line = 'electra_finetune --model model --hparams recipe.json --device cpu --text text --out fresh --csv'
    bad(home, f'{line} {flags}', *words)

def test_a_model_and_data_of_different_kinds(home, tuned):
    write(home/'kinds.csv', table([dict(text=o['text'], kind=NAMES[o['id']%3]) for o in LISTS]))
    line = 'electra_finetune --model tuned/remarks --csv kinds.csv --text text --label kind --task remarks --device cpu'
    said = typed(f'{line} --out other --eval-only', home)
    assert said.code==2 and 'gives lists of labels for each text' in said.err and 'Traceback' not in said.err, said

def test_measures_are_those_of_the_kind():
    assert text_task('a', COLUMNS, label=[*NAMES], measures=('macro_f1',)).measures==('macro_f1',)
    with pytest.raises(InputError, match='a measure of several labels'):
        text_task('a', COLUMNS, label=[*NAMES], measures=('accuracy',))
    with pytest.raises(InputError, match='a measure of 2 classes'):
        text_task('a', [dict(text=f'a {i}', label='xy'[i%2]) for i in range(9)], measures=('micro_f1',))

def test_codes_are_no_numbers():
    "1 and 1.0 are one class; 007 and 7 are two, so are versions, and numbers that a float cannot tell apart"
    def classes(*labels):
        return text_task('z', [dict(text=f'text {i}', label=o) for i,o in enumerate(labels*9)]).labels
    assert classes('1', '1.0', 2)==('1', '2')
    assert classes('007', '7', '1e1', '10')==('007', '10', '1e1', '7')
    assert len(classes(12345678901234567, 12345678901234568, 3))==3
    versions = [dict(text=f'text {i}', label=o) for i,o in enumerate(['1.1', '1.10', '1.2']*9)]
    assert text_task('z', versions, regression=False).labels==('1.1', '1.10', '1.2')
    with pytest.raises(InputError, match="label '1_5' is not a number"):
        text_task('z', versions + [dict(text='a', label='1_5')], regression=True)
