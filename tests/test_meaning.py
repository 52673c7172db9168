"What fine-tuning says of its numbers: beside answers without a network, in a picture, and of the best epoch"
import json, math
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from fastai.callback.core import Callback
from sklearn.metrics import confusion_matrix, r2_score

import electra_nbdev.finetuning.finetune as ft
import electra_nbdev.finetuning.request as rq
import electra_nbdev.finetuning.trials as tr
from electra_nbdev.finetuning.recipe import FinetuneHParams, open_model, settle_recipe
from electra_nbdev.finetuning.tagging import chunk_task
from electra_nbdev.finetuning.tasks import MultiLabelTask, TextTask, glue_task
from make import electra_folder, glue_files, sentence, task_files, write
from terminal import bad, typed, worked

SIDES = [i%4==0 for i in range(160)] # three of four rows have the other class, whatever the text
ROWS = ''.join(f'{sentence(i)} {i},{"rare" if o else "usual"},{i%7}.5\n' for i,o in enumerate(SIDES))

@pytest.fixture(scope='module')
def home(tmp_path_factory):
    d = tmp_path_factory.mktemp('meaning')
    electra_folder(d/'model')
    glue_files(d/'data')
    task_files(d/'tasks')
    write(d/'rows.csv', 'text,kind,size\n'+ROWS)
    short = dict(max_seq_length=32, train_batch_size=16, num_train_epochs=1)
    write(d/'recipe.json', json.dumps(short))
    write(d/'questions.json', json.dumps(short | dict(doc_stride=8, max_query_length=12, beam_size=4, n_best_size=5)))
    return d

TRAIN = 'electra_finetune --model model --hparams recipe.json --device cpu'
TABLE = f'{TRAIN} --csv rows.csv --dev rows.csv --text-column text'

def record(folder): return json.loads((folder/'trial-0/result.json').read_text())

# Beside answers without a network

def test_classes_beside_the_most_frequent(home):
    said = worked(f'{TABLE} --label-column kind --out kinds', home)
    found = record(home/'kinds/rows')
    line = next(o for o in said.out.splitlines() if 'answering `usual` every time 75.0 %' in o and 'interval' in o)
    assert line.strip()==found['meaning'][0] and line.startswith('  dev set: accuracy')
    assert 'not better beyond chance' in line and '160 rows' in line
    assert found['baseline']['rows']['score']==pytest.approx(found['metrics']['rows']['accuracy'])
    assert found['baseline']['rows']['other']==75
    again = json.loads((home/'kinds/results.json').read_text())['rows']['trials']['0']
    assert again['baseline']==found['baseline'] and again['meaning']==found['meaning']

def test_a_trial_that_is_too_short_has_a_cure_one_can_type(home):
    said = worked(f'{TABLE} --label-column kind --out short', home)
    assert 'UNDERTRAINED: the training loss has hardly fallen' in said.out
    assert 'UNDERTRAINED: --epochs 2 --out short-longer' in said.out and '--lr' in said.out.splitlines()[-1]
    cure = f'{TABLE} --label-column kind --epochs 2 --out short-longer'
    assert record(home/'short/rows')['steps']*2==record_of(cure, home, 'short-longer/rows')['steps']

def record_of(line, home, folder):
    worked(line, home)
    return record(home/folder)

def test_numbers_beside_their_mean(home):
    worked(f'{TABLE} --label-column size --regression true --out sizes', home)
    found, learn = record(home/'sizes/rows'), ft.load_finetuned(home/'sizes', 'cpu')
    texts, labels = zip(*[(o.split(',')[0], float(o.split(',')[2])) for o in ROWS.splitlines()])
    said = [o.label for o in learn.predict(list(texts))]
    assert found['baseline']['rows']['score']==pytest.approx(100*r2_score(labels, said), abs=.01)
    assert found['baseline']['rows']['other']==pytest.approx(0, abs=1e-9) and found['confusion']=={}
    assert f'answering the mean, {np.mean(labels):.4g}, every time' in found['meaning'][0]

def test_several_labels_beside_the_most_frequent(home):
    "A text counts if exactly its labels are said; without a network all get the same ones"
    several = [['rare'] if o else [] for o in SIDES] # three of four have no label
    rows = [dict(text=f'{sentence(i)} {i}', labels=o) for i,o in enumerate(several)]
    write(home/'several.jsonl', ''.join(json.dumps(o)+'\n' for o in rows[:-1] + [rows[-1] | dict(labels=['odd'])]))
    worked(f'{TRAIN} --csv several.jsonl --dev several.jsonl --text-column text --label-column labels --out several',
           home)
    found = record(home/'several/several')
    assert found['baseline']['several']['other']==100*119/160 and found['confusion']=={}
    assert 'answering no label every time' in found['meaning'][0]
    task = MultiLabelTask('several', ('a', 'b'))
    half = [SimpleNamespace(target=[1., 0.]), SimpleNamespace(target=[0., 0.])]
    assert task.blind_loss(half)==pytest.approx(math.log(2)/2, abs=1e-5) # a coin for one label, the other never

def test_classes_that_count_alike_are_as_probable_without_a_network(home):
    said = worked(f'{TABLE} --label-column kind --class-weights balanced --out weighted', home)
    assert f'and {math.log(2):.3g} for an answer without a look' in said.out, said.out

def test_words_beside_their_most_frequent_tag(home):
    worked(f'{TRAIN} --data-dir tasks --task chunk --out tags', home)
    found = record(home/'tags/chunk')
    task = chunk_task('chunk', home/'tasks')
    def pairs(part): return [p for o in task.examples(part, FinetuneHParams()) for p in zip(o.words, o.tags)]
    train, dev = pairs('train'), pairs('dev')
    def usual(word):
        tags = [t for w,t in train if w==word] or [t for _,t in train]
        return max(tags, key=tags.count)
    base = found['baseline']['chunk']
    assert base['score']==pytest.approx(found['metrics']['chunk']['accuracy'])
    assert base['other']==pytest.approx(100*np.mean([usual(w)==t for w,t in dev]))
    assert 'giving each word its most frequent tag' in found['meaning'][0]

def test_questions_beside_no_answer_and_in_words(home):
    line = TRAIN.replace('recipe.json', 'questions.json')
    both = worked(f'{line} --data-dir tasks --task squad squadv1 --out asked', home)
    two, one = record(home/'asked/squad'), record(home/'asked/squadv1')
    share = 100*two['metrics']['squad']['NoAns_total']/two['metrics']['squad']['total']
    assert two['baseline']['squad']['other']==pytest.approx(share) and 'giving no answer every time' in both.out
    assert two['baseline']['squad']['score']==pytest.approx(two['metrics']['squad']['exact'])
    assert one['baseline']=={} and 'so many answers are an accepted one' in one['meaning'][0]

def test_tasks_of_one_network_are_named(home):
    worked(f'{TRAIN} --data-dir data --task cola+sts --out both', home)
    found = record(home/'both/cola+sts')
    assert [o.split(':')[0] for o in found['meaning'][:2]]==['cola, dev set', 'sts, dev set']
    assert found['baseline'].keys()=={'cola', 'sts'}

def test_what_is_learnt_by_heart_needs_rows():
    "A loss that is gone and a score that is no better: it is not the length of the training"
    task = TextTask('t', ('a', 'b'))
    rows = [ft.Feature([], 0, i%2, SimpleNamespace(label='ab'[i%2])) for i in range(8)]
    guess = [torch.tensor([1., 0.])]*8
    learn = SimpleNamespace(tasks=dict(t=task), hp=FinetuneHParams(), dev_outputs=dict(t=guess),
                            scores=dict(t=dict(accuracy=50.)))
    found = tr.meaning_of(learn, dict(train=dict(t=rows), dev=dict(t=rows)), np.linspace(.7, .01, 40))
    assert 'more rows help rather than more epochs' in found['meaning'][-1]
    assert found['confusion']['t']['counts']==[[4, 0], [4, 0]]
    found = tr.meaning_of(learn, dict(train=dict(t=rows), dev=dict(t=rows)), np.linspace(.7, .65, 40))
    assert 'UNDERTRAINED' in found['meaning'][-1]
    both = SimpleNamespace(tasks=dict(t=task, u=TextTask('u', ('a', 'b'))), hp=FinetuneHParams(),
                           dev_outputs=dict(t=guess, u=guess), scores=dict(t=dict(accuracy=50.), u=dict(accuracy=50.)))
    found = tr.meaning_of(both, dict(train=dict(t=rows, u=rows), dev=dict(t=rows, u=rows)), np.linspace(.7, .01, 40))
    assert 'more rows help' not in ' '.join(found['meaning']) # their one loss does not tell which of them is learnt

# The picture of one trial

def test_one_trial_has_its_own_picture(home, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(tr, 'plot_trial', lambda *a, f=tr.plot_trial: (drawn.append('trial'), f(*a))[1])
    monkeypatch.setattr(tr, 'plot_trials', lambda *a, f=tr.plot_trials: (drawn.append('box'), f(*a))[1])
    rq.finetune_tasks(home/'model', ['mnli'], home/'data', tmp_path, device='cpu', num_train_epochs=1)
    rq.finetune_tasks(home/'model', ['mnli'], home/'data', tmp_path, device='cpu', num_train_epochs=1, num_trials=2)
    assert drawn==['trial', 'box']
    one = tr.Trials(tmp_path/'mnli')
    del one.records[1]
    fig = tr.plot_results([one])
    curve, matrix, scores = fig.axes
    texts = [int(o.get_text()) for o in matrix.texts]
    assert sum(texts)==24 and texts==[n for row in one.first['confusion']['mnli']['counts'] for n in row]
    assert [o.get_text() for o in matrix.get_xticklabels()]==['contradiction', 'entailment', 'neutral']
    shown = matrix.images[0].get_array()
    assert np.allclose(shown.sum(1), 1), "the colour is the share of a row"
    assert list(scores.lines[0].get_xdata())==[1] and len(curve.lines[0].get_xdata())==len(one.first['curve']['train'])
    for o in ('curve', 'confusion', 'baseline', 'meaning'): del one.records[0][o] # as older versions wrote it
    plt.close(tr.plot_results([one]))
    assert drawn==['trial', 'box', 'trial', 'box']
    plt.close(fig)

def test_a_matrix_counts_labels_against_predictions(home):
    task = TextTask('t', ('a', 'b', 'c'))
    true, said = [0, 0, 1, 2, 2, 2], [0, 1, 1, 2, 2, 0]
    rows = [ft.Feature([], 0, i, SimpleNamespace(label='abc'[i])) for i in true]
    found = task.confusion(rows, [torch.eye(3)[i] for i in said])
    assert found==confusion_matrix(true, said).tolist() and found[2]==[1, 0, 2]

# Early stopping

class Worse(Callback):
    "Scores of the epochs as given, so that it is known which is the best"
    order = tr.TrialCurve.order-1
    def __init__(self, values): self.values = values
    def after_epoch(self):
        if not self.in_fit: return
        self.learn.scores = {n: dict.fromkeys(o, self.values[self.epoch]) for n,o in self.scores.items()}

def learner(home, values, **hparams):
    encoder, tok = open_model(home/'model')
    task = glue_task('cola', home/'data')
    hp = settle_recipe(encoder, tok, ['cola'], max_seq_length=32, train_batch_size=8, **hparams)
    rows = ft.read_rows(dict(cola=task), tok, hp)
    dls = ft.finetune_dls(dict(cola=task), rows['train'], rows['dev'], tok, hp, 'cpu')
    learn = ft.finetune_learner(dls, encoder, hp, [Worse(values), Weights()])
    with learn.no_bar(), learn.no_logging(): learn.fit_recipe()
    return learn

class Weights(Callback):
    "The weights after each epoch"
    def after_create(self): self.learn.each = []
    def after_epoch(self):
        if self.in_fit: self.each.append({k: o.clone() for k,o in self.model.state_dict().items()})

def is_of(learn, epoch): return all(torch.equal(o, learn.each[epoch][k]) for k,o in learn.model.state_dict().items())

def test_the_best_weights_stay_and_the_fit_ends(home, capsys):
    values = [10., 30., 20., 30., 25., 90.]
    learn = learner(home, values, early_stopping=2, num_train_epochs=6.)
    assert len(learn.each)==4 and is_of(learn, 1) and not is_of(learn, 3), "an equal score is not better"
    assert learn.scores['cola']['matthews']==30 and learn.n_updates==12
    assert capsys.readouterr().out.endswith('epoch 2 of 4 has the best dev score; its weights stay\n')
    with learn.no_bar(): learn.validate()
    assert is_of(learn, 1) and not capsys.readouterr().out, "a validation is no epoch of a fit"
    patient = learner(home, values, early_stopping=4, num_train_epochs=6.)
    assert len(patient.each)==6 and is_of(patient, 5)
    off = learner(home, values, num_train_epochs=6.)
    assert len(off.each)==6 and is_of(off, 5) and off.scores['cola']['matthews']==90

def test_a_search_for_a_rate_is_not_ended(home):
    learn = learner(home, [10., 20.]*5, early_stopping=1, num_train_epochs=2.)
    before = {k: o.clone() for k,o in learn.model.state_dict().items()}
    with learn.no_bar(), learn.no_logging(): learn.lr_find(num_it=9, show_plot=False, suggest_funcs=())
    assert all(torch.equal(o, before[k]) for k,o in learn.model.state_dict().items())

STOPPED = f'{TRAIN} --data-dir data --early-stopping 1 --epochs 8 --lr 0.003'

def test_by_command_with_several_trials(home):
    said = worked(f'{STOPPED} --task cola --out stopped --trials 2', home)
    trials = tr.Trials(home/'stopped/cola')
    ends = [o['curve']['dev'] for o in trials.records.values()]
    assert any(len(o)<8 for o in ends), "a score of 24 rows does not rise eight times"
    for k,(record,dev) in enumerate(zip(trials.records.values(), ends)):
        assert record['metrics']['cola']['matthews']==max(o['cola'] for _,o in dev)
        assert record['steps']==len(dev)*2 # 24 rows in batches of 16
    again = worked(f'{STOPPED} --task cola --out stopped --trials 2 --eval-only', home)
    found = json.loads((home/'stopped/cola/evaluation.json').read_text())
    assert found=={f'trial-{k}': o['metrics'] for k,o in trials.records.items()}, "of the weights that were kept"
    assert 'has the best dev score; its weights stay' in said.out and again.code==0
    bad(home, f'{STOPPED} --task cola --out stopped --early-stopping 2', 'early_stopping is 1, asked for 2')
    bad(home, f'{TRAIN} --data-dir data --task cola --early-stopping -1 --out x', '--early-stopping', 'at least 0')

def test_tasks_of_one_network_stop_by_their_mean(home):
    worked(f'{STOPPED} --task cola+sst --out mean', home)
    found = record(home/'mean/cola+sst')
    means = [(o['cola']+o['sst'])/2 for _,o in found['curve']['dev']]
    best = means.index(max(means))
    assert found['metrics']['cola']['matthews']==found['curve']['dev'][best][1]['cola']
    assert found['metrics']['sst']['accuracy']==found['curve']['dev'][best][1]['sst']

def killed_in_the_second_epoch():
    was = ft.KeepBest.after_epoch
    def after_epoch(self):
        was(self)
        if self.epoch==1: raise KeyboardInterrupt
    ft.KeepBest.after_epoch = after_epoch

def test_a_trial_that_was_killed_begins_anew(home):
    line = f'{STOPPED} --task sst --epochs 4 --early-stopping 9'
    assert typed(f'{line} --out killed', home, killed_in_the_second_epoch).code==130
    assert not list((home/'killed/sst').glob('trial-*'))
    worked(f'{line} --out killed', home)
    worked(f'{line} --out whole', home)
    a, b = (record(home/o/'sst') for o in ('killed', 'whole'))
    assert a['metrics']==b['metrics'] and a['curve']==b['curve']
