"Detection of wrong words: files, the published score, thresholds, weights of classes, and the head it begins with"
import gzip, json, math, random
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import expit, logit
from transformers import ElectraForPreTraining

import electra_nbdev.finetuning.finetune as ft
from electra_nbdev.engine.files import InputError
from electra_nbdev.finetuning.ged import (GEDTask, best_threshold, calibration_error, crossfit, ged_scores, ged_task,
                                          platt_scaling, read_ged)
from electra_nbdev.finetuning.recipe import FinetuneHParams, finetune_preset, open_model, settle_recipe
from electra_nbdev.finetuning.request import run_trials
from electra_nbdev.finetuning.tagging import TagExample, TagTask
from electra_nbdev.finetuning.trials import Trials
from electra_nbdev.sharing.convert import convert_weights
from make import SHORT, electra_folder, judged, roberta_folder, task_files, word_lists, write, wrong_words
from terminal import bad, worked

def as_m2(rows):
    "The same, with edits in which nothing but the place matters"
    def edit(k): return f'A {k} {k+1}|||R:X|||x|||REQUIRED|||-NONE-|||0\n'
    def edits(tags): return ''.join(edit(k) for k,t in enumerate(tags) if t=='i')
    return ''.join(f"S {' '.join(o['words'])}\n{edits(o['tags'])}\n" for o in rows)

@pytest.fixture(scope='module')
def home(tmp_path_factory):
    d = tmp_path_factory.mktemp('ged')
    electra_folder(d/'model')
    task_files(d/'data')
    write(d/'recipe.json', json.dumps(SHORT))
    return d

TRAIN = 'electra_finetune --model model --data-dir data --hparams recipe.json --device cpu'

# The published score

SCORED = {
    'rare': ((0, .1, .05, .4), (.4271, .3596, .4116)), 'frequent': ((1, .5, .3, .7), (.6824, .7389, .693)),
    'shy': ((2, .2, .01, .05), (.5238, .0564, .1971)), 'loud': ((3, .1, .6, .9), (.1518, .9417, .1824)),
    'no wrong word': ((4, 0, .1, .5), (0., 1., 0.)), 'no wrong word, no mark': ((5, 0, 0, 0), (1., 1., 1.)),
    'no mark': ((6, .2, 0, 0), (1., 0., 0.)), 'nothing missed': ((7, .2, .1, 1), (.7313, 1., .7728)),
    'all right': ((8, .3, 0, 1), (1., 1., 1.)), 'never right': ((9, .3, .2, 0), (0., 0., 0.))}

def drawn(seed, wrong, false, found):
    "Labels of 997 words, and what somebody says of them"
    rng = random.Random(seed)
    gold = [rng.random()<wrong for _ in range(997)]
    return np.array(gold), np.array([rng.random()<(found if o else false) for o in gold])

@pytest.mark.parametrize('name', SCORED)
def test_the_published_score(name):
    "Precision, recall and F0.5 that eval.py of MultiGED-2023 (18cdccb) printed for these words, written to files"
    args, want = SCORED[name]
    found = ged_scores(*drawn(*args))
    assert tuple(round(found[o]/100, 4) for o in ('precision', 'recall', 'f0.5'))==want

# Files

def test_m2_and_tsv_are_the_same(tmp_path):
    rows = wrong_words(12)
    a, b = (read_ged(write(tmp_path/name, text)) for name,text in (('a.m2', as_m2(rows)), ('a.tsv', judged(12))))
    assert [o[1:] for o in a]==[o[1:] for o in b]==[o[1:] for o in read_ged(rows)]

def test_edits(tmp_path):
    "Insertions mark the next word, but none at the end; other annotators, noop and UNK mark nothing; spans mark all"
    end = '|||REQUIRED|||-NONE-|||'
    text = (f'S a b c d\nA 1 1|||M:X|||x{end}0\nA 4 4|||M:X|||x{end}0\n\n'
            f'S e f g\nA 0 2|||U:X|||{end}0\nA 2 3|||R:X|||x{end}1\n\n'
            f'S h i\nA -1 -1|||noop|||-NONE-{end}0\n\nS j k\nA 0 1|||UNK|||j{end}0\n\n'
            f'S \nA -1 -1|||noop|||-NONE-{end}0\n\nS l')
    found = [''.join(o.tags) for o in read_ged(write(tmp_path/'a.m2', text))]
    assert found==['cicc', 'iic', 'cc', 'cc', 'c']

@pytest.mark.parametrize('name,text,words', [
    ('a.tsv', 'He\tc\ngo\tX\n', ["a.tsv line 2: the label 'X' of 'go' is neither c (correct) nor i (incorrect)"]),
    ('a.tsv', 'token\tlabel\nHe\tc\n', ["a.tsv line 1: the label 'label' of 'token'"]),
    ('a.tsv', 'He\tc\ngo\n', ['a.tsv line 2: 1 column, the first line has 2']),
    ('a.tsv', 'He\tc\n\tc\n', ['a.tsv line 2: the word is empty']),
    ('a.tsv', 'He\tc\ngo\t\n', ["a.tsv line 2: the tag of 'go' is empty"]),
    ('a.tsv', 'He\ngo\n', ['a.tsv has 1 columns', 'none with the number 1']),
    ('a.tsv', '\n\n', ['a.tsv is empty']),
    ('a.tsv', b'caf\xe9\tc\n', ['a.tsv line 1', 'UTF-8']),
    ('a.m2', 'S He go\nA 1 3|||R|||x|||REQUIRED|||-NONE-|||0\n',
     ['a.m2 line 2: an edit of the words from 1 to 3, but the sentence has 2']),
    ('a.m2', 'S He go\nA 1 2|||R\n', ['a.m2 line 2: no edit, which has the form A START END|||KIND']),
    ('a.m2', 'S He go\nA one 2|||R|||x|||REQUIRED|||-NONE-|||0\n', ['a.m2 line 2: no edit']),
    ('a.m2', 'A 1 2|||R|||x|||REQUIRED|||-NONE-|||0\nS He go\n', ['a.m2 line 1: begins neither with S']),
    ('a.m2', 'He\tc\n', ['a.m2 line 1: begins neither with S']),
    ('a.m2', '\n', ['a.m2 is empty'])])
def test_refused_files(tmp_path, name, text, words):
    with pytest.raises(InputError) as e: ged_task(write(tmp_path/name, text))
    for o in words: assert o in str(e.value)

def test_bad_sentences_can_be_left_out(tmp_path, capsys):
    tsv = write(tmp_path/'a.tsv', 'He\tc\ngo\tx\n\nI\tc\n\nyou\n\nWe\ti\n')
    edit = '|||R|||x|||REQUIRED|||-NONE-|||0\n\n'
    m2 = write(tmp_path/'a.m2', f'S He go\nA 1 9{edit}S I\n\nS We\nA 0 1{edit}')
    for path in (tsv, m2):
        assert [o[1:] for o in read_ged(path, skip_bad_rows=True)]==[(('I',), ('c',)), (('We',), ('i',))]
    said = capsys.readouterr().out
    assert said.count('a.tsv: 1 unreadable row left out')==2 and 'a.m2: 1 unreadable row left out' in said

EDIT = 'A {} {}|||R|||x|||REQUIRED|||-NONE-|||0\n'
BROKEN = dict(sentence=b'S He caf\xe9\n', tab=b'S\tHe go\n', edit=b'A 0 1|||R|||caf\xe9|||REQUIRED|||-NONE-|||0\n')

@pytest.mark.parametrize('line', BROKEN)
@pytest.mark.parametrize('last', [False, True])
def test_edits_of_a_line_that_cannot_be_read_mark_nothing(tmp_path, line, last):
    "An edit belongs to the sentence before it, which may be the one that was left out"
    inside = b'S You go\n' if line=='edit' else b''
    broken = inside + BROKEN[line] + EDIT.format(1, 2).encode()*(not last)
    whole = b'S The cat\n\n' + broken + (b'' if last else b'\nS We\n'+EDIT.format(0, 1).encode())
    found = read_ged(write(tmp_path/'a.m2', whole), skip_bad_rows=True)
    assert [''.join(o.tags) for o in found]==['cc', *['i']*(not last)]

def test_the_annotator_with_the_lowest_number_counts(tmp_path):
    text = 'S He go\nA 1 2|||R|||goes|||REQUIRED|||-NONE-|||{}\nA 0 1|||R|||I|||REQUIRED|||-NONE-|||{}\n'
    for a,b,want in ((1, 1, 'ii'), (1, 2, 'ci'), (3, 2, 'ic')):
        found, = read_ged(write(tmp_path/'a.m2', text.format(a, b)))
        assert ''.join(found.tags)==want

@pytest.mark.parametrize('train,dev,words', [
    ('c', 'ci', ["'train.tsv has no word with the label i (incorrect), so nothing can be learnt"]),
    ('i', 'ci', ['has no word with the label c (correct)']), ('ci', 'c', ['dev.tsv has no word', 'no score tells'])])
def test_labels_that_are_not_there(tmp_path, train, dev, words):
    "All of them would be found: 100 %"
    paths = [write(tmp_path/f'{name}.tsv', ''.join(f'go\t{o}\n' for o in labels))
             for name,labels in (('train', train), ('dev', dev))]
    with pytest.raises(InputError) as e: ged_task(*paths)
    for o in words: assert o.strip("'") in str(e.value)

@pytest.mark.parametrize('name', ['two.txt', 'two.tsv'])
def test_a_text_is_no_file_to_predict(tmp_path, name):
    "All but the first word of each line would be lost"
    path = write(tmp_path/name, 'She go home now .\nHe are at home .\n')
    with pytest.raises(InputError, match='line 1 has 5 words and no tab.*electra_check'): GEDTask().read(path)
    for text in ('She\ngo\n', 'She c\ngo i\n', 'She\t\ngo\t\n'):
        found, = GEDTask().read(write(tmp_path/'good.tsv', text))
        assert found.words==('She', 'go')

def test_packed_rows_are_rows(tmp_path):
    rows = wrong_words(3)
    with gzip.open(tmp_path/'a.jsonl.gz', 'wt') as f: f.writelines(json.dumps(o)+'\n' for o in rows)
    assert [o[1:] for o in read_ged(tmp_path/'a.jsonl.gz')]==[o[1:] for o in read_ged(rows)]
    assert [list(o.words) for o in GEDTask().read(tmp_path/'a.jsonl.gz')]==[o['words'] for o in rows]

# From a command to predictions

def test_trials_and_predictions(home):
    worked(f'{TRAIN} --task ged --out out --trials 2 --predict-test', home)
    table = json.loads((home/'out/results.json').read_text())['ged']['tasks']['ged']
    assert [*table]==['f0.5', 'precision', 'recall', 'f0.5_at_0.5', 'precision_at_0.5', 'recall_at_0.5', 'best_f0.5',
                      'best_f0.5_thresh', 'ece', 'unscaled_ece', 'accuracy', 'loss']
    # The threshold of each trial is kept; what is written of the dev set has the best score that there is
    for k in range(2):
        trial = home/f'out/ged/trial-{k}'
        want = json.loads((trial/'result.json').read_text())['metrics']['ged']
        settings = json.loads((trial/'model/tasks.json').read_text())['tasks']['ged']['settings']
        assert settings['threshold']==want['best_f0.5_thresh'] and settings['head_init']=='discriminator'
        said = read_ged(trial/'predictions/ged-dev.tsv')
        gold = read_ged(home/'data/ged/dev.tsv')
        wrong, marked = (np.array([t=='i' for s in o for t in s.tags]) for o in (gold, said))
        assert ged_scores(wrong, marked)['f0.5']==pytest.approx(want['best_f0.5'])
    # Evaluated again, the first three are those at the threshold that was kept
    worked(f'{TRAIN} --task ged --out out --eval-only', home)
    again = json.loads((home/'out/ged/evaluation.json').read_text())['trial-1']['ged']
    assert again['f0.5']==again['best_f0.5']==pytest.approx(want['best_f0.5'])
    assert again['best_f0.5_thresh']==pytest.approx(want['best_f0.5_thresh'], rel=1e-4)
    written = [read_ged(home/f'out/ged/predictions/{o}/ged-test.tsv') for o in ('trial-0', 'trial-1', 'ensemble')]
    assert all([s.words for s in o]==[tuple(s['words']) for s in wrong_words(5)] for o in written)

def test_predict(home):
    worked(f'{TRAIN} --task ged --out used', home)
    write(home/'new.tsv', 'the\ndog\nwalks\n\nred\n')
    write(home/'new.m2', 'S the dog walks\n\nS red\n')
    for src in ('new.tsv', 'new.m2'):
        worked(f'electra_predict --model used/ged --src {src} --out said.tsv --device cpu', home)
        lines = [o.split('\t') for o in (home/'said.tsv').read_text().split('\n')]
        assert [o[0] for o in lines]==['the', 'dog', 'walks', '', 'red', '', '']
    learn = ft.load_finetuned(home/'used/ged', 'cpu')
    task = learn.tasks['ged']
    found = learn.predict_rows(task.unlabelled([('the', 'dog', 'walks'), ['red']]), task, 'here')
    told = [[o[1:] for o in lines[:3]], [lines[4][1:]]]
    assert told==[[[t, str(p)] for t,p in zip(o['tags'], o['probs'])] for o in found]
    pred = learn.predict('the dog walks')
    assert pred.words==('the', 'dog', 'walks') and pred.tags==tuple(found[0]['tags'])
    worked('electra_predict --model used/ged --src new.tsv --out said.jsonl --device cpu', home)
    assert [json.loads(o) for o in (home/'said.jsonl').read_text().splitlines()]==found
    assert 'probs' in worked('electra_predict --model used/ged --text "the dog" --device cpu', home).out
    examples = ged_task(wrong_words(3), wrong_words(3)).source('dev', learn.hp)
    rows = dict(ged=task.features(examples, learn.tok, learn.hp))
    learn.dls = ft.finetune_dls(learn.tasks, rows, rows, learn.tok, learn.hp, device='cpu')
    learn.show_results(max_n=3)

def test_it_is_a_discriminator_for_transformers(home, tmp_path):
    "Converted, it tells P(wrong) of a word at its first piece, where others tell P(replaced)"
    worked(f'{TRAIN} --task ged --out shared', home)
    convert_weights(home/'shared/ged', tmp_path/'plain')
    plain = ElectraForPreTraining.from_pretrained(tmp_path/'plain/ged').eval()
    learn = ft.load_finetuned(home/'shared/ged', 'cpu')
    assert plain.config.threshold==learn.tasks['ged'].threshold
    f, = learn.tasks['ged'].features(learn.tasks['ged'].unlabelled(['the dog walks']), learn.tok, learn.hp)
    with torch.no_grad(): probs = plain(torch.tensor([f.input_ids])).logits[0,f.target['positions']].sigmoid()
    assert probs.tolist()==pytest.approx(learn.predict('the dog walks').probs, abs=1e-5)

@pytest.mark.parametrize('most', [.0, .3, 1.1])
def test_the_threshold_is_used(home, most):
    task = GEDTask(threshold=most)
    rows = task.features(task.unlabelled([('the', 'dog', 'walks')]), open_model(home/'model')[1], FinetuneHParams())
    (_, pred), = task.predicted(rows, [torch.tensor([[.7, .3], [.8, .2], [.1, .9]]).log()])
    assert pred.tags==tuple('i' if p>=most else 'c' for p in (.3, .2, .9)) and pred.probs==pytest.approx((.3, .2, .9))

def test_a_dev_set_alone_is_evaluated(home):
    worked(f'{TRAIN} --task ged --out trained', home)
    (home/'alone/ged').mkdir(parents=True)
    write(home/'alone/ged/xx_corpus_dev.m2', as_m2(wrong_words(7)))
    line = TRAIN.replace('--data-dir data', '--data-dir alone')
    worked(f'{line.replace("--model model", "--model trained/ged")} --task ged --out judged --eval-only', home)
    assert 'f0.5' in json.loads((home/'judged/ged/evaluation.json').read_text())['model']['ged']
    bad(home, f'{line} --task ged --out fresh', 'ged has no train set')

def test_files_of_a_folder_are_refused(home):
    cases = ('none', ['notes.txt'], 'no file to train on'), ('many', ['a_train.tsv', 'b-train.m2'],
                                                             'several files for train: a_train.tsv, b-train.m2')
    for name,files,words in cases:
        (home/name/'ged').mkdir(parents=True)
        for o in files: write(home/name/'ged'/o, judged(3))
        bad(home, f"{TRAIN.replace('--data-dir data', f'--data-dir {name}')} --task ged --out fresh", words)
    bad(home, f"{TRAIN.replace('--data-dir data', '--data-dir hf:some/set')} --task ged --out fresh", 'ged reads files')

# What is chosen, and what is counted

def logits_of(wrong, seed=0):
    "Outputs that tell wrong words somewhat"
    noise = torch.randn(len(wrong), generator=torch.Generator().manual_seed(seed))
    z = 2*torch.tensor(wrong).float()-2+noise
    return torch.stack([torch.zeros_like(z), z], -1)

@pytest.mark.parametrize('rows', ['whole', 'official'])
def test_every_word_is_counted(home, rows):
    "Of long sentences too; what official rows cut away counts as not marked"
    words = tuple(random.Random(0).choices('the dog red walks'.split(), k=90))
    given = [dict(words=words, tags=['ci'[k%5==0] for k in range(90)]), dict(words=('the',), tags=['i'])]
    task, hp = ged_task(given, given), FinetuneHParams(max_seq_length=24, tag_rows=rows)
    features = task.features(task.examples('dev', hp), open_model(home/'model')[1], hp)
    assert (len(features)>2)==(rows=='whole')
    outs = [logits_of([k=='i' for k in [task.labels[i] for i in f.target['labels']]]) for f in features]
    each = task.judged(features, outs)
    assert [len(o) for _,o in each]==[90, 1]
    marked = np.concatenate([o>=0 for _,o in each])
    wrong = np.array([t=='i' for o in given for t in o['tags']])
    found = replace(task, threshold=.5).metrics(features, outs)
    assert found['f0.5']==found['f0.5_at_0.5']==ged_scores(wrong, marked)['f0.5']
    if rows=='official': assert (each[0][1][len(features[0].target['labels']):]==-30).all()

def test_a_threshold_judges_words_that_it_has_not_seen():
    "Against a loop over all thresholds, and by hand for the two parts"
    wrong, _ = drawn(1, .2, 0, 0)
    logits = logits_of(wrong)[:,1].double().numpy()
    def f(t, o=slice(None)): return ged_scores(wrong[o], logits[o]>=t)['f0.5']
    at = logit(best_threshold(wrong, expit(logits)))
    assert f(at)==max(f(t) for t in logits) and np.abs(logits-at).min()>1e-9
    first = np.arange(len(wrong))<500
    a, b = (logit(best_threshold(wrong[o], expit(logits[o]))) for o in (first, ~first))
    probs, marked = crossfit(wrong, logits, first)
    assert a!=b and (marked[first]==(logits[first]>=b)).all() and (marked[~first]==(logits[~first]>=a)).all()
    assert ged_scores(wrong, marked)['f0.5']<f(at)
    slope, intercept = platt_scaling(wrong[first], logits[first])
    assert probs[~first]==pytest.approx(expit(slope*logits[~first]+intercept))

def test_platt_scaling():
    "Its mean is the share of wrong words; a line that falls, or words that are all alike, change nothing"
    wrong, _ = drawn(1, .2, 0, 0)
    logits = 3*logits_of(wrong)[:,1].double().numpy()+2
    a, b = platt_scaling(wrong, logits)
    assert a>0 and expit(a*logits+b).mean()==pytest.approx(wrong.mean(), abs=1e-3)
    assert calibration_error(wrong, expit(a*logits+b))<calibration_error(wrong, expit(logits))/3
    for o in ((wrong, -logits), (wrong&~wrong, logits), (wrong|~wrong, logits)): assert platt_scaling(*o)==(1, 0)

def test_the_line_is_in_the_head(home):
    "Outputs of the scaled head are the scaled outputs, and what is written is calibrated"
    rows = wrong_words(24)
    dls = ft.TaskDataLoaders.from_task(ged_task(rows, rows), home/'model', device='cpu')
    learn = ft.finetune_learner(dls, dls.encoder, dls.train.hp)
    features = dls.valid.dataset.features['ged']
    before = learn.outputs('ged', features)
    task, after = learn.tasks['ged'].tuned(learn.model.heads['ged'], features, before)
    for o,now in zip(after, learn.outputs('ged', features)): torch.testing.assert_close(o, now, atol=1e-5, rtol=1e-5)
    found = task.metrics(features, after)
    assert found['f0.5']==found['best_f0.5']==pytest.approx(learn.tasks['ged'].metrics(features, before)['best_f0.5'])
    assert found['ece']==found['unscaled_ece']

def test_all_correct(home, tmp_path):
    "A dev set of which no wrong word is looked at, as with `max_eval_rows`, and one of a single sentence"
    right = [TagExample(i, tuple(o['words']), ('c',)*len(o['words'])) for i,o in enumerate(wrong_words(6))]
    for name in ('right', 'one'):
        task = ged_task(wrong_words(16), wrong_words(1))
        if name=='right':
            task = replace(task, source=lambda split,hp,own=task.source: right if split=='dev' else own(split, hp))
        trials = run_trials(home/'model', task, tmp_path/name, device='cpu', **SHORT)
        found, = trials.records.values()
        assert all(math.isfinite(v) for v in found['metrics']['ged'].values())
        if name=='right': assert found['metrics']['ged']['best_f0.5_thresh']==.5

def test_calibration_error():
    "Against a loop over bins"
    wrong, _ = drawn(1, .2, 0, 0)
    probs = np.random.default_rng(0).random(len(wrong))
    each = [(probs>=i/15) & (probs<(i+1)/15) for i in range(15)]
    want = sum(o.sum()*abs(probs[o].mean()-wrong[o].mean()) for o in each if o.any())/len(wrong)
    assert calibration_error(wrong, probs)==pytest.approx(100*want)
    assert calibration_error(np.array([True]), np.array([1.]))==0

# Weights of classes

@pytest.mark.parametrize('reduction', ['sum', 'mean'])
def test_the_loss_with_weights(home, reduction):
    "That of torch with the weights of the training words, summed over words; the mean is that over rows"
    rows = wrong_words(16)
    dls = ft.TaskDataLoaders.from_task(ged_task(rows, rows[:4]), home/'model', bs=16, device='cpu',
                                       class_weights='balanced', loss_reduction=reduction)
    learn = ft.finetune_learner(dls, dls.encoder, dls.train.hp)
    batch, targets = dls.train.one_batch()
    out = learn.model.eval()(batch)
    y = [t=='i' for o in rows for t in o['tags']]
    weights = torch.tensor([len(y)/(2*(len(y)-sum(y))), len(y)/(2*sum(y))])
    real = targets['ged']['mask']>0
    loss = torch.nn.CrossEntropyLoss(weights, reduction='sum')
    want = loss(out['ged']['logits'][real], targets['ged']['labels'][real])
    if reduction=='mean': want = want/16
    assert learn.loss_func(out, targets).item()==pytest.approx(want.item(), rel=1e-5)

def test_wrong_words_are_expected_as_often_as_right_ones(home, tmp_path):
    "Nothing tells them apart: with weights P(wrong) is about a half where it was their share, a fifth"
    found = {}
    for name,weights in dict(plain=None, even='balanced').items():
        recipe = SHORT | dict(learning_rate=1e-2, num_train_epochs=6, class_weights=weights)
        task = ged_task(wrong_words(32), wrong_words(9))
        trials = run_trials(home/'model', task, tmp_path/name, device='cpu', **recipe)
        found[name] = trials.first['metrics']['ged']['unscaled_ece']
    assert found['plain']<10 and 20<found['even']<40

# The head

def test_it_begins_as_the_discriminator(home):
    "Before any step P(wrong) of a word is P(replaced) of its first piece"
    rows = wrong_words(6)
    dls = ft.TaskDataLoaders.from_task(ged_task(rows, rows), home/'model', bs=6, device='cpu')
    assert dls.train.hp.head_init=='discriminator'
    learn = ft.finetune_learner(dls, dls.encoder, dls.train.hp)
    features = dls.valid.dataset.features['ged']
    outs, plain = learn.outputs('ged', features), ElectraForPreTraining.from_pretrained(home/'model').eval()
    for f,o in zip(features, outs):
        with torch.no_grad(): logits = plain(torch.tensor([f.input_ids])).logits[0]
        want = logits[f.target['positions']].sigmoid()
        torch.testing.assert_close(o.softmax(-1)[:,1], want, atol=1e-6, rtol=1e-5)

def test_a_new_head_is_another(home):
    rows = wrong_words(6)
    def head(**hparams):
        dls = ft.TaskDataLoaders.from_task(ged_task(rows, rows), home/'model', device='cpu', **hparams)
        learn = ft.finetune_learner(dls, dls.encoder, dls.train.hp)
        return learn.model.heads['ged'].predictions.dense.weight
    known = ElectraForPreTraining.from_pretrained(home/'model').discriminator_predictions.dense.weight
    assert torch.equal(head(), known) and not torch.equal(head(head_init='new'), known)
    assert not torch.equal(head(from_scratch=True), known)

def test_a_model_without_that_head(home, capsys):
    "By default its head is new, and says so; asked for it is refused"
    roberta_folder(home/'roberta')
    rows = wrong_words(6)
    encoder, tok = open_model(home/'roberta', head_init='discriminator')
    assert settle_recipe(encoder, tok, ['ged']).head_init=='new'
    assert "no discriminator's head" in capsys.readouterr().out
    with pytest.raises(InputError, match="`head_init` is 'discriminator', but the model has no head"):
        run_trials(home/'roberta', ged_task(rows, rows), home/'never', device='cpu', head_init='discriminator', **SHORT)
    run_trials(home/'roberta', ged_task(rows, rows), home/'other', device='cpu', **SHORT)
    assert Trials(home/'other').first['facts']['recipe']['head_init']=='new'
    run_trials(home/'roberta', ged_task(rows, rows), home/'other', device='cpu', **SHORT) # the same recipe

@pytest.mark.parametrize('task', ['chunk', 'cola', 'ged+chunk'])
def test_other_tasks_have_no_such_head(home, task):
    line = f'{TRAIN} --task {task} --out fresh --head-init discriminator'
    bad(home, line, '--head-init', f"not for {task.split('+')[-1]}")

def test_with_other_tasks(home):
    worked(f'{TRAIN} --task ged+chunk --out both', home)
    learn = ft.load_finetuned(home/'both/ged+chunk', 'cpu')
    assert learn.tasks['ged'].threshold and learn.tasks['ged'].head_init=='new'
    assert isinstance(learn.tasks['chunk'], TagTask) and len(learn.predict('red dog', task='ged').probs)==2

def test_the_defaults_of_the_recipe():
    assert finetune_preset().head_init=='new' and finetune_preset(tasks=['ged']).head_init=='discriminator'
    with pytest.raises(InputError, match="`head_init` is 'old'; allowed: discriminator, new"):
        finetune_preset(head_init='old')
