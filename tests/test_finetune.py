"Fine-tuning as a user does it: commands right and wrong, other encoders, trials that are kept, submissions"
import inspect, json, shutil, zipfile
from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest
import torch
from fastai.callback.core import Callback
from fastai.torch_core import no_random
from transformers import (AlbertConfig, AlbertModel, AutoModel, BertConfig, BertModel, DebertaV2Tokenizer,
                          DistilBertConfig, DistilBertModel, ElectraConfig, ElectraModel, MPNetConfig, MPNetModel)

import electra_nbdev.finetuning.finetune as ft
import electra_nbdev.finetuning.request as rq
import electra_nbdev.finetuning.tasks as tk
import electra_nbdev.finetuning.trials as tr
from electra_nbdev.finetuning.tasks import glue_task
from electra_nbdev.engine.files import InputError
from electra_nbdev.finetuning.recipe import (FinetuneHParams, finetune_preset, open_model, settle_recipe,
                                             trial_records)
from make import DIMS, SHORT, electra_folder, glue_files, odd_data, roberta_folder, sentence, wordpiece_model, write
from terminal import bad, small_disk, typed, worked

@pytest.fixture(scope='module')
def home(tmp_path_factory):
    d = tmp_path_factory.mktemp('user')
    glue_files(d/'data')
    electra_folder(d/'model')
    write(d/'recipe.json', json.dumps(dict(max_seq_length=32, train_batch_size=8, num_train_epochs=1)))
    return d

TRAIN = 'electra_finetune --model model --data-dir data --hparams recipe.json --device cpu'
TRAIN_ODD = TRAIN.replace('--data-dir data', '--data-dir odd')

# Results

def test_several_tasks_in_one_call(home):
    said = worked(f'{TRAIN} --task CoLA sst-2 sts-b --out several --trials 2', home)
    assert {o.name for o in (home/'several').iterdir()}=={'cola', 'sst', 'sts', 'results.json', 'results.png'}
    results = json.loads((home/'several/results.json').read_text())
    assert list(results)==['cola', 'sst', 'sts']
    table = [o.split()[:2] for o in said.out.splitlines()]
    assert all(o in table for o in (['cola', 'matthews'], ['sst', 'accuracy'], ['sts', 'spearman']))
    sts = results['sts']
    assert [o['seed'] for o in sts['trials'].values()]==[0, 1]
    assert set(sts['tasks']['sts'])=={'pearson', 'spearman', 'mse', 'loss'}
    values = sts['tasks']['sts']['pearson']
    assert values['mean']==pytest.approx(np.mean(values['values']))
    assert values['sd']==pytest.approx(np.std(values['values'], ddof=1))
    assert (home/'several/sts'/'model'/'heads.safetensors').is_file()

def test_finished_trials_are_kept(home):
    first = typed(f'{TRAIN} --task cola --out kept --trials 1', home)
    when = (home/'kept/cola/trial-0/result.json').stat().st_mtime_ns
    more = typed(f'{TRAIN} --task cola --out kept --trials 2', home)
    assert first.code==more.code==0 and 'trial 0: finished already' in more.out
    assert (home/'kept/cola/trial-0/result.json').stat().st_mtime_ns==when
    alone = typed(f'{TRAIN} --task cola --out alone --seed 1', home)
    a, b = (json.loads((home/o/'result.json').read_text()) for o in ('kept/cola/trial-1', 'alone/cola/trial-0'))
    assert alone.code==0
    assert a['seed']==b['seed']==1 and a['metrics']==b['metrics'], "a trial does not depend on those before it"
    bad(home, f'{TRAIN} --task cola --out kept --seed 3', 'seed is 0, asked for 3', '--out')

def stop_in_second_trial():
    def stop(learn, out, k, facts):
        if k==1: raise KeyboardInterrupt
        save(learn, out, k, facts)
    save, tr.save_trial = tr.save_trial, stop

def test_a_stopped_command_goes_on(home):
    said = typed(f'{TRAIN} --task cola --out stopped --trials 3', home, stop_in_second_trial)
    assert said.code==130 and 'stopped' in said.err
    assert sorted(o.name for o in (home/'stopped/cola').iterdir())==['.lock', 'model', 'results.json', 'trial-0']
    assert typed(f'{TRAIN} --task cola --out stopped --trials 3', home).code==0
    assert json.loads((home/'stopped/cola/results.json').read_text())['trials'].keys()=={'0', '1', '2'}

def test_a_task_is_tokenized_when_its_turn_comes(home, tmp_path, monkeypatch):
    "All files are read before anything is trained; tokens of one task at a time are in memory"
    seen = []
    def watch(cls, name, what):
        real = getattr(cls, name)
        monkeypatch.setattr(cls, name, lambda *args, **kwargs: (seen.append(what(*args)), real(*args, **kwargs))[1])
    watch(tk.TextTask, 'examples', lambda task, split, hp: f'read {task.name} {split}')
    watch(tk.TextTask, 'features', lambda task, *_: f'tokenize {task.name}')
    monkeypatch.setattr(tr, 'run_trial', lambda *args, real=tr.run_trial: (seen.append('train'), real(*args))[1])
    rq.finetune_tasks(home/'model', ['cola', 'sst'], home/'data', tmp_path, device='cpu', **SHORT)
    assert seen==['read cola train', 'read cola dev', 'read sst train', 'read sst dev',
                  'tokenize cola', 'tokenize cola', 'train', 'tokenize sst', 'tokenize sst', 'train']

def test_submission(home):
    said = typed(f'{TRAIN} --task mnli sts cola --out sent --trials 2 --predict-test', home)
    assert said.code==0 and 'lacks SST-2, MRPC, QQP' in said.out, said.err
    z = zipfile.ZipFile(home/'sent/submission/submission.zip')
    assert z.namelist()==['CoLA.tsv', 'STS-B.tsv', 'MNLI-m.tsv', 'MNLI-mm.tsv', 'AX.tsv']
    rows = {o: [r.split('\t') for r in z.read(o).decode().splitlines()] for o in z.namelist()}
    assert all(r[0]==['index', 'prediction'] for r in rows.values())
    assert all([o[0] for o in r[1:]]==list(map(str, range(len(r)-1))) for r in rows.values())
    assert [len(r)-1 for r in rows.values()]==[7, 7, 7, 7, 5]
    assert {o for n in ('MNLI-m.tsv', 'AX.tsv') for _,o in rows[n][1:]} <= {'contradiction', 'entailment', 'neutral'}
    assert {o for _,o in rows['CoLA.tsv'][1:]} <= {'0', '1'}
    assert all(0<=float(o)<=5 and len(o)==5 for _,o in rows['STS-B.tsv'][1:])
    assert {o.name for o in (home/'sent/mnli/predictions').iterdir()}=={'trial-0', 'trial-1', 'ensemble'}
    assert 'dev_mismatched_accuracy' in json.loads((home/'sent/results.json').read_text())['mnli']['tasks']['mnli']

def test_the_submission_has_what_was_predicted_last(home):
    "Where another network of the folder has predicted the task too"
    for task in ('cola+sts', 'cola', 'cola+sts'):
        said = worked(f'{TRAIN} --task {task} --out twice --predict-test --lr {3e-3 if task=="cola" else 1e-4}', home)
        with zipfile.ZipFile(home/'twice/submission/submission.zip') as z: sent = z.read('CoLA.tsv')
        assert sent==(home/f'twice/{task}/predictions/ensemble/CoLA.tsv').read_bytes()
    assert 'NOTE: the CoLA of the submission is that of twice/cola+sts, not of twice/cola\n' in said.out

def test_an_evaluation_by_its_hyper_parameter_is_one(home):
    "`do_train` false is --eval-only, and `write_test_outputs` is --predict-test"
    worked(f'{TRAIN} --task cola --out judged-so --predict-test', home)
    line = f'{TRAIN} --task cola --out judged-so --do-train false'
    assert 'Next: electra_predict' not in worked(line, home).out
    bad(home, f'{line} --predict-test', '--eval-only evaluates on dev sets')
    bad(home, f'{line} --write-test-outputs true', '--eval-only evaluates on dev sets')
    bad(home, f'{line} --compile', '--compile is about training')

def test_a_longer_training_of_each_task(home):
    "They have epochs of their own"
    line = 'electra_finetune --model model --data-dir data --device cpu --max-train-rows 8 --lr 1e-6'
    said = worked(f'{line} --task cola rte --out brief', home).out
    assert 'UNDERTRAINED: --task cola --epochs 6 --out brief-longer' in said
    assert 'UNDERTRAINED: --task rte --epochs 20 --out brief-longer' in said

def test_steps_are_a_mean_as_seconds_are():
    found = tr.Trials('nowhere')
    found.records = {k: dict(metrics=dict(cola=dict(matthews=1.)), steps=6+2*k, seconds=1.+k) for k in range(2)}
    assert found.table().iloc[0][['steps', 'seconds']].tolist()==[7, 1.5]

def test_a_file_of_glue_is_read_in_one_way(tmp_path):
    "Nothing in it is quoted"
    rows = ['index\tsentence1\tsentence2\tlabel', '0\t"Yes, ""he"" said."\tHe agreed.\tentailment',
            '1\t"He left.\tHe did not.\tentailment', '2\tHe left.\tHe did not."\tentailment']
    for name in ('RTE', 'CoLA'): (tmp_path/name).mkdir()
    for name,lines in (('RTE', rows), ('CoLA', ['gj04\t1\t\t"He left.', 'gj04\t0\t*\tHe "left".'])):
        path, task = tmp_path/name/'train.tsv', name.lower()
        write(path, '\n'.join(lines)+'\n')
        learnt = tk.read_glue(path, tk.LAYOUTS[task])
        assert [o.texts for o in glue_task(task, tmp_path).read(path)]==[o.texts for o in learnt]
    write(tmp_path/'RTE/dev.tsv', '\n'.join([*rows, '3\tHe left.'])+'\n')
    with pytest.raises(InputError, match='line 5: 2 columns instead of 4'):
        glue_task('rte', tmp_path).read(tmp_path/'RTE/dev.tsv')

def test_judged_again(home):
    trained = typed(f'{TRAIN} --task rte --out judged', home)
    want = json.loads((home/'judged/rte/trial-0/result.json').read_text())['metrics']
    again = typed(f'{TRAIN} --task rte --out judged --eval-only', home)
    judged = 'electra_finetune --model judged/rte --task rte --data-dir data --out elsewhere --eval-only --device cpu'
    other = typed(judged, home)
    assert trained.code==again.code==other.code==0, (again.err, other.err)
    assert json.loads((home/'judged/rte/evaluation.json').read_text())=={'trial-0': want}
    assert json.loads((home/'elsewhere/rte/evaluation.json').read_text())=={'model': want}

def test_one_network_for_two_tasks(home):
    worked(f'{TRAIN} --task cola+sts --out both', home)
    learn = ft.load_finetuned(home/'both/cola+sts', 'cpu')
    assert list(learn.tasks)==['cola', 'sts'] and learn.predict('red dog', task='cola').label in '01'
    assert isinstance(learn.predict(('red dog', 'dog'), task='sts').label, float)
    write(home/'pairs.csv', 'sentence1,sentence2\nred dog,the dog\n')
    predict = 'electra_predict --model both/cola+sts --task sts --input pairs.csv --out said.jsonl --device cpu'
    said = typed(predict, home)
    row, = map(json.loads, (home/'said.jsonl').read_text().splitlines())
    want = learn.predict(('red dog', 'the dog'), task='sts').label
    assert said.code==0 and row['sentence2']=='the dog' and row['prediction']==pytest.approx(want, abs=1e-4)

def test_only_the_best_model_stays(home):
    write(home/'lean.json', json.dumps(json.loads((home/'recipe.json').read_text()) | dict(keep_all_models=False)))
    said = typed(f'{TRAIN.replace("recipe", "lean")} --task cola --out lean --trials 2', home)
    assert said.code==0 and not list((home/'lean/cola').glob('trial-*/model'))
    assert (home/'lean/cola/model/model.safetensors').is_file()
    assert typed(f'{TRAIN.replace("recipe", "lean")} --task cola --out lean --trials 2', home).code==0

RECORD = json.dumps(dict(facts={}, metrics=dict(cola=dict(mcc=.5)), shown=dict(cola=['mcc']), steps=1, seconds=1.))

@pytest.fixture
def trials(tmp_path):
    "Three trials, and a copy of one that the user keeps beside them"
    for o in ('trial-0', 'trial-2', 'trial-10', 'trial-0 (copy)'):
        (tmp_path/o/'model').mkdir(parents=True)
        (tmp_path/o/'result.json').write_text(RECORD)
    return tmp_path

def test_copies_of_trials_are_left_alone(trials):
    assert [*trial_records(trials)]==[0, 2, 10]
    tr.settle_trials(tr.Trials(trials), keep_all=False)
    assert [o.parent.name for o in trials.glob('trial-*/model')]==['trial-0 (copy)'] and (trials/'model').is_dir()

@pytest.mark.parametrize('content', [RECORD[:40], '{}', '[]', ''])
def test_a_damaged_record_is_told(trials, content):
    (trials/'trial-2/result.json').write_text(content)
    with pytest.raises(InputError, match='trial-2/result.json .*; delete the folder .*trial-2: that trial is repeated'):
        trial_records(trials)

def test_predict(home):
    assert typed(f'{TRAIN} --task cola --out used', home).code==0
    write(home/'new.tsv', 'id\tsentence\n1\tthe "dog walks\n2\tred\n')
    shown = typed('electra_predict --model used/cola --input new.tsv --device cpu', home)
    lines = shown.out.splitlines()
    assert shown.code==0 and lines[0]=='id\tsentence\tprediction\tp_0\tp_1' and len(lines)==3
    assert [o.split('\t')[:2] for o in lines[1:]]==[['1', '"the ""dog walks"'], ['2', 'red']]
    assert all(len(p)<=6 for o in lines[1:] for p in o.split('\t')[3:]), 'four decimals'
    write(home/'new.txt', 'the dog walks\nred\n')
    said = typed('electra_predict --model used/cola --input new.txt --out new.csv --device cpu', home)
    table = pd.read_csv(home/'new.csv')
    assert said.code==0 and len(table)==2 and (table['p_0']+table['p_1']).between(.999, 1.001).all()
    one = typed("electra_predict --model used/cola --text 'the \"dog walks' --device cpu", home)
    assert one.out.splitlines()==[lines[0].removeprefix('id\t'), lines[1].removeprefix('1\t')]
    for flags in ('', '--text red --src new.txt'): # one of both
        said = typed(f'electra_predict --model used/cola {flags}', home)
        assert said.code==2 and 'a file to predict, or --text, a sentence' in said.err, said

def test_scores_of_peers_are_percentages():
    "Of ELECTRA-Small's size: none below CoLA's, whose correlation is the smallest number"
    assert all(50<v<=100 and (v>60 or k=='cola') for scores in tk.PEERS.values() for k,v in scores.items())

# Files with odd rows

def test_bad_rows_can_be_left_out(home):
    odd_data(home, 'CoLA/train.tsv', 'x\t1\n' + ''.join(f'x\t{i%2}\t\t{sentence(i)}\n' for i in range(9)))
    said = typed(f'{TRAIN_ODD} --task cola --out without --skip-bad-rows', home)
    assert said.code==0 and 'train.tsv: 1 unreadable row left out' in said.out and ': 9 sequences' in said.out

def test_no_dev_file(home):
    odd_data(home, 'CoLA/train.tsv', ''.join(f'x\t{i%2}\t\tsentence {i}\n' for i in range(80)))
    (home/'odd/CoLA/dev.tsv').unlink()
    said = typed(f'{TRAIN_ODD} --task cola --out split', home)
    assert said.code==0 and 'NOTE' in said.out and 'has no dev set. 10% of train.tsv' in said.out

def test_disk_full(home):
    said = typed(f'{TRAIN} --task cola --out full', home, small_disk)
    assert said.code==2 and 'Traceback' not in said.err
    assert not list((home/'full').rglob('*.json')) and not list((home/'full').rglob('*.tmp'))

# Encoders

ALBERT = AlbertConfig(vocab_size=200, embedding_size=16, num_hidden_layers=2,
                      **{k: v for k,v in DIMS.items() if k!='num_hidden_layers'})
DISTILBERT = DistilBertConfig(vocab_size=200, dim=32, n_layers=2, n_heads=2, hidden_dim=64, max_position_embeddings=64)
ENCODERS = dict(
    albert=wordpiece_model(AlbertModel, ALBERT),
    bert=wordpiece_model(BertModel, BertConfig(vocab_size=200, **DIMS)),
    roberta=roberta_folder,
    distilbert=wordpiece_model(DistilBertModel, DISTILBERT),
    mpnet=wordpiece_model(MPNetModel, MPNetConfig(vocab_size=200, **DIMS)),
)

@pytest.mark.parametrize('name', ENCODERS)
def test_other_encoders(home, tmp_path, name):
    ENCODERS[name](tmp_path/name)
    task = glue_task('rte', home/'data')
    hparams = SHORT | dict(layerwise_lr_decay=0. if name=='albert' else .8)
    trials = rq.run_trials(tmp_path/name, [task], tmp_path/'out', device='cpu', **hparams)
    learn, tok = ft.load_finetuned(tmp_path/'out', 'cpu'), open_model(tmp_path/name)[1]
    again = learn.evaluate(dict(dev=ft.read_rows({'rte': task}, tok, learn.hp)['dev']))
    assert again['rte']==pytest.approx(trials.records[0]['metrics']['rte'])
    if name=='albert': # its layers share weights
        hparams['layerwise_lr_decay'] = .8
        with pytest.raises(InputError, match='layerwise_lr_decay to 0'):
            rq.run_trials(tmp_path/name, [task], tmp_path/'other', device='cpu', **hparams)
    if name=='roberta':
        f, = task.features([tk.TextExample(0, 'red', 'dog', 'entailment')], tok, FinetuneHParams())
        assert f.n_first==len(f.input_ids)==6, "two separators between the texts, one segment"
        assert learn.hp.do_lower_case is False
        record, = (tmp_path/'out').glob('trial-*/result.json')
        record.write_text(record.read_text().replace('"do_lower_case": false', '"do_lower_case": true')) # as of before
        assert rq.run_trials(tmp_path/name, [task], tmp_path/'out', device='cpu', **hparams).records[0]

def test_half_precision(home, tmp_path):
    task = glue_task('sts', home/'data')
    trials = rq.run_trials(home/'model', [task], tmp_path/'out', device='cpu', precision='bf16', **SHORT)
    assert np.isfinite(trials.values('sts', 'loss')).all()
    assert len(rq.run_trials(home/'model', [task], tmp_path/'out', device='cpu', **SHORT).records)==1 # as it was
    with pytest.raises(InputError, match="precision.*'fp32'.*'bf16'|precision.*'bf16'.*'fp32'"):
        rq.run_trials(home/'model', [task], tmp_path/'out', device='cpu', precision='fp32', **SHORT)

def test_from_task_to_task(home, tmp_path):
    hparams = dict(device='cpu', **SHORT)
    rq.run_trials(home/'model', [glue_task('mnli', home/'data')], tmp_path/'mnli', **hparams)
    a, b = (ft.open_encoder(o).state_dict()['encoder.layer.0.output.dense.weight']
            for o in (tmp_path/'mnli', tmp_path/'mnli'/'model'))
    assert torch.equal(a, b)
    rq.run_trials(tmp_path/'mnli', [glue_task('rte', home/'data')], tmp_path/'rte', **hparams)

def test_a_run_of_ours(home, tmp_path):
    (tmp_path/'run').mkdir()
    electra_folder(tmp_path/'run'/'discriminator')
    a, b = (ft.open_encoder(o).state_dict() for o in (tmp_path/'run', home/'model'))
    assert all(torch.equal(a[k], b[k]) for k in a)
    (tmp_path/'young'/'checkpoints').mkdir(parents=True)
    (tmp_path/'young'/'hparams.json').write_text('{}')
    with pytest.raises(InputError, match='still in training'): ft.open_encoder(tmp_path/'young')

# Training is the same, however batches are cut

class Losses(Callback):
    run_valid = False
    def before_fit(self): self.seen = []
    def before_backward(self): self.seen.append(self.loss_grad.item())

def losses(home, monkeypatch, width=None, **hparams):
    "Losses of the first steps"
    real = ft.task_batch
    with monkeypatch.context() as m:
        if width: m.setattr(ft, 'task_batch', lambda items, tasks, pad: real(items, tasks, pad, width))
        still = dict(hidden_dropout_prob=0., attention_probs_dropout_prob=0.)
        encoder, tok = open_model(home/'model', model_hparam_overrides=still)
        tasks = {n: glue_task(n, home/'data') for n in ('rte', 'sts')}
        hparams = SHORT | dict(learning_rate=1e-3, warmup_proportion=.01) | hparams
        hp = settle_recipe(encoder, tok, list(tasks), **hparams)
        rows = ft.read_rows(tasks, tok, hp)
        with no_random(0):
            dls = ft.finetune_dls(tasks, rows['train'], rows['dev'], tok, hp, device='cpu')
            learn = ft.finetune_learner(dls, encoder, hp)
            for head in learn.model.heads.values(): head.dropout.p = 0.
            watch = Losses()
            with learn.no_bar(), learn.no_logging(), learn.added_cbs(watch): learn.fit_recipe()
    return np.array(watch.seen), learn

def test_padding_changes_nothing(home, monkeypatch):
    tight, learn = losses(home, monkeypatch)
    wide, _ = losses(home, monkeypatch, width=32)
    np.testing.assert_allclose(tight, wide, rtol=1e-4)
    assert len(tight)==9==learn.steps, "24 rows of RTE, 24 of STS in both orders, eight at a time"

def test_a_tenth_of_the_state_is_dropped_before_the_head():
    "Of official heads, classification_tasks.py: keep_prob 0.9 in training"
    head = tk.TextHead(20_000, 2)
    kept = head.dropout(torch.ones(1, 20_000))
    assert abs((kept==0).float().mean()-.1)<.01 and torch.equal(head.eval().dropout(kept), kept)

def test_rates_by_layer(home, monkeypatch):
    for exponents,top in (('official', .64), ('paper', .8)):
        _, learn = losses(home, monkeypatch, layer_exponents=exponents, layerwise_lr_decay=.8)
        groups = learn.opt.opt.param_groups
        rate = {n: g['lr_mult'] for g in groups for n in g['param_names']}
        assert rate['heads.rte.dense.weight']==1
        assert rate['encoder.encoder.layer.1.output.dense.weight']==pytest.approx(top)
        assert rate['encoder.embeddings.word_embeddings.weight']==pytest.approx(top*.64)
        assert {g['wd_mult'] for g in groups}=={0., 1.}

@pytest.mark.parametrize('name', 'model_size layer_exponents loss_reduction tag_rows answer_text class_weights'.split())
def test_a_name_that_there_is_not_is_refused(name):
    with pytest.raises(InputError, match=f'`{name}`'): FinetuneHParams(**{name: 'neither'})

def test_a_recipe_of_questions_serves_for_other_tasks(home):
    "A whole one does; a setting by itself has to have an effect"
    whole = json.loads(json.dumps(asdict(finetune_preset(tasks=['squad'], doc_stride=8)))) | dict(model_size='tiny')
    def asked(hparams): return rq.FinetuneRequest('cola', home/'data', home/'model', home/'asked', hparams=hparams)
    assert asked(whole).settle().hparams['doc_stride']==8
    assert asked(dict(doc_stride=128)).settle() # as it is anyway
    with pytest.raises(InputError, match="hparam `doc_stride` is 8, but no task here answers questions; leave it out"):
        asked(dict(doc_stride=8)).settle()
    with pytest.raises(InputError, match='`doc_stride` is 8, but no task'):
        ft.TextTaskDataLoaders.from_df(pd.DataFrame(dict(text=['a', 'b']*9, label=[0, 1]*9)), doc_stride=8)

def test_mean_and_sum(home, monkeypatch):
    a, b = (losses(home, monkeypatch, loss_reduction=o)[0] for o in ('sum', 'mean'))
    assert a[0]==pytest.approx(8*b[0], rel=1e-5)

# A network of two tasks: a class for two rows, a number for a third

@pytest.fixture
def two_tasks():
    "Network, tasks, rows and padding"
    _, tok = open_model('tiny')
    same, sts = tk.TextTask('same', ('0', '1')), tk.TextTask('sts', scale=5.)
    texts = [tk.TextExample(0, 'a cat', 'it sat', '1'), tk.TextExample(1, 'a dog', None, '0')]
    odd, = sts.features([tk.TextExample(0, 'a cat sat', 'there it sat', '4')], tok, FinetuneHParams())
    tasks, rows = dict(same=same, sts=sts), same.features(texts, tok, FinetuneHParams())
    torch.manual_seed(0)
    net = ft.TaskNetwork(ElectraModel(ElectraConfig(vocab_size=len(tok), embedding_size=16, **DIMS)), tasks).eval()
    return net, tasks, [(0, 'same', rows[0]), (1, 'same', rows[1]), (2, 'sts', odd)], tok.pad_token_id

def test_loss_of_a_mixed_batch(two_tasks):
    "Each row has the loss that it has alone; `sum` and `mean` are over all"
    net, tasks, items, pad = two_tasks
    def outs_and_targets(rows):
        batch, targets = ft.task_batch(rows, tasks, pad)
        return net(batch), targets
    outs, targets = outs_and_targets(items)
    assert {n: tuple(o.shape) for n,o in outs.items()}==dict(same=(2, 2), sts=(1, 1))
    each = [ft.TaskLoss(tasks)(*outs_and_targets([o])).item() for o in items]
    assert ft.TaskLoss(tasks)(outs, targets).item()==pytest.approx(sum(each), abs=1e-5)
    assert ft.TaskLoss(tasks, 'mean')(outs, targets).item()==pytest.approx(sum(each)/3, abs=1e-5)
    assert ft.TaskLoss(tasks, 'none')(outs, targets).tolist()==pytest.approx(each, abs=1e-5)

def test_gradients_of_padded_rows(two_tasks):
    net, tasks, items, pad = two_tasks
    def grads_at(width):
        net.zero_grad()
        batch, targets = ft.task_batch(items, tasks, pad, width)
        ft.TaskLoss(tasks)(net(batch), targets).backward()
        return torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])
    tight, wide = grads_at(None), grads_at(64)
    assert (tight-wide).norm()/wide.norm()<1e-5

def test_a_mark_in_a_text_is_text():
    "In a Unigram vocabulary too, whose model finds [SEP] in any text"
    special = [(o, 0.) for o in ('[PAD]', '[CLS]', '[SEP]', '[UNK]', '[MASK]')]
    tok = DebertaV2Tokenizer(vocab=[*special, ('▁the', -1.), *((o, -3.) for o in '▁catSEP[]')])
    same = tk.TextTask('same', ('0', '1'))
    f, = same.features([tk.TextExample(0, 'the [SEP] cat', 'the cat', '0')], tok, FinetuneHParams())
    assert f.input_ids.count(tok.sep_token_id)==2 and f.input_ids[f.n_first-1]==tok.sep_token_id

def test_names_of_heads(): assert [ft.head_name(o) for o in ('cola', 'train', 'my.data')]==['cola', 'train_', 'my_data']

def test_a_saved_model(home, tmp_path):
    "Predicts the same, and its encoder is one of `transformers`"
    rows = dict(question=[sentence(i) for i in range(16)], about=['ab'[i%2] for i in range(16)])
    frame = pd.DataFrame(rows)
    dls = ft.TextTaskDataLoaders.from_df(frame, 'question', 'about', home/'model', valid=frame, bs=8, device='cpu')
    learn = ft.electra_classifier(dls)
    ft.save_model(learn, tmp_path/'saved')
    back, names = ft.load_finetuned(tmp_path/'saved', 'cpu'), {o.name for o in (tmp_path/'saved').iterdir()}
    assert {'config.json', 'model.safetensors', 'heads.safetensors', 'tasks.json', 'tokenizer.json'} <= names
    assert learn.predict([])==[] and learn.predict(['red dog'])[0]==learn.predict('red dog')==back.predict('red dog')
    assert back.tasks['task']==replace(learn.tasks['task'], source=None)
    weights = learn.model.encoder.state_dict()['embeddings.word_embeddings.weight']
    saved = AutoModel.from_pretrained(tmp_path/'saved').state_dict()
    assert saved['embeddings.word_embeddings.weight'].equal(weights)
    with pytest.raises(InputError, match='holds no model'): ft.load_finetuned(home/'data')

def test_the_diagnostic_file_with_labels_is_another(tmp_path):
    "Its texts are in other columns"
    glue_files(tmp_path)
    folder, hp = tmp_path/'diagnostic', FinetuneHParams(double_unordered=False)
    want = glue_task('mnli', tmp_path).examples('ax', hp)
    names = 'Lexical Semantics', 'Predicate-Argument Structure', 'Logic', 'Knowledge', 'Domain', 'Premise', 'Hypothesis'
    (folder/'diagnostic-full.tsv').write_text('\t'.join([*names, 'Label'])+'\n'+'\t'.join('abcdefg')+'\tneutral\n')
    assert glue_task('mnli', tmp_path).examples('ax', hp)==want
    (folder/'diagnostic.tsv').unlink()
    assert 'ax' not in glue_task('mnli', tmp_path).test

# The hub, without one

def test_hub(monkeypatch):
    import datasets
    asked = []
    def fake(name, config, split):
        asked.append((name, config, split))
        names = ['entailment', 'neutral', 'contradiction'] if config in ('mnli', 'ax') else None
        label = datasets.ClassLabel(names=names) if names else datasets.Value('float32')
        rows = dict(premise=['red'], hypothesis=['dog'], sentence1=['red'], sentence2=['dog'])
        features = datasets.Features(dict.fromkeys(rows, datasets.Value('string')) | dict(label=label))
        rows['label'] = [-1 if 'test' in split else 2]
        return datasets.Dataset.from_dict(rows, features=features)
    monkeypatch.setattr(datasets, 'load_dataset', fake)
    mnli, sts = glue_task('mnli', 'hf:nyu-mll/glue'), glue_task('sts-b', 'hf:glue')
    hp = FinetuneHParams(double_unordered=False)
    assert mnli.examples('dev_mismatched', hp)==[tk.TextExample(0, 'red', 'dog', 'contradiction')]
    assert mnli.test==('test_matched', 'test_mismatched', 'ax')
    assert mnli.examples('ax', hp)[0].label=='contradiction' and float(sts.examples('train', hp)[0].label)==2.
    assert asked==[
        ('nyu-mll/glue', 'mnli', 'validation_mismatched'),
        ('nyu-mll/glue', 'ax', 'test'),
        ('glue', 'stsb', 'train'),
    ]
    monkeypatch.undo()
    with pytest.raises(InputError, match='hf:no/such'): glue_task('rte', 'hf:no/such').examples('train', hp)

# Kinds of tasks plug in

class Lengths(tk.Task):
    "Does a row have more than six tokens? Its head looks at all states"
    name, dev, test = 'lengths', ('dev',), ()
    def settings(self): return {}
    def examples(self, split, hp): return [sentence(i) for i in range(16)]
    def features(self, examples, tok, hp):
        ids = [tok(t)['input_ids'] for t in examples]
        return [tk.Feature(o, len(o), dict(long=len(o)>6), t) for o,t in zip(ids, examples, strict=True)]
    def collate(self, targets, width): return dict(long=torch.tensor([o['long'] for o in targets]).float())
    def head(self, width):
        class Head(torch.nn.Module):
            def __init__(self): super().__init__(); self.dense = torch.nn.Linear(width, 1)
            def forward(self, hidden, target):
                assert len(target['long'])==len(hidden)
                return dict(score=self.dense(hidden).mean(1)[:,0])
        return Head()
    def losses(self, out, target):
        bce = torch.nn.functional.binary_cross_entropy_with_logits
        return bce(out['score'], target['long'], reduction='none')
    def rows(self, out): return out['score'].tolist()
    def metrics(self, features, outs):
        right = [(o>0)==f.target['long'] for f,o in zip(features, outs)]
        return dict(right=100*float(np.mean(right)))

def test_another_kind_of_task_beside_a_text_task(home, tmp_path):
    tasks = [Lengths(), glue_task('cola', home/'data')]
    trials = rq.run_trials(home/'model', tasks, tmp_path/'out', device='cpu', **SHORT)
    assert trials.tasks==['lengths', 'cola'] and 0<=trials.values('lengths', 'right')[0]<=100
    assert type(ft.load_finetuned(tmp_path/'out', 'cpu').tasks['lengths']) is Lengths

def test_own_task_of_a_datasets_object(home, tmp_path):
    from datasets import Dataset
    texts = [sentence(i) for i in range(30)]
    rows = Dataset.from_dict(dict(words=texts, size=[float(len(o)) for o in texts]))
    task = tk.text_task('size', rows, rows, text='words', label='size', regression=True)
    trials = rq.run_trials(home/'model', [task], tmp_path/'out', device='cpu', **SHORT)
    assert set(trials.records[0]['metrics']['size'])=={'pearson', 'spearman', 'mse', 'loss'}
    assert task.scale==pytest.approx(np.std(rows['size'])) and task.shift==pytest.approx(np.mean(rows['size']))

@pytest.mark.parametrize('unit', [dict(shift=1000), dict(factor=.01), dict(factor=30, shift=-5)])
def test_a_regression_learns_in_any_unit(home, tmp_path, unit):
    "With every label plus 1000 it explained nothing"
    def learnt(name, factor=1, shift=0):
        rows = [dict(text=sentence(i), label=factor*(i%5)+shift) for i in range(30)]
        task = tk.text_task('size', rows, rows, regression=True)
        found = rq.run_trials(home/'model', [task], tmp_path/name, device='cpu', **SHORT)
        predict = ft.load_finetuned(tmp_path/name, 'cpu').predict([o['text'] for o in rows])
        return found.records[0]['metrics']['size'], np.array([o.label for o in predict])
    (plain, numbers), (other, in_unit) = learnt('plain'), learnt('other', **unit)
    factor, shift = unit.get('factor', 1), unit.get('shift', 0)
    assert in_unit==pytest.approx(factor*numbers+shift, rel=1e-4)
    assert other['loss']==pytest.approx(plain['loss'], rel=1e-3)
    assert other['mse']==pytest.approx(factor**2*plain['mse'], rel=1e-3)

def test_an_evaluation_has_the_batches_that_were_asked_for(home, tmp_path, monkeypatch):
    rows = [dict(text=sentence(i), label='ab'[i%2]) for i in range(24)]
    task, sizes, outputs = tk.text_task('t', rows, dev=rows), [], ft.FinetuneLearner.outputs
    rq.run_trials(home/'model', [task], tmp_path, device='cpu', **SHORT)
    def watched(self, name, features, bs): return sizes.append(bs) or outputs(self, name, features, bs)
    monkeypatch.setattr(ft.FinetuneLearner, 'outputs', watched)
    tr.evaluate_trials(None, [task], tmp_path, 'cpu', eval_batch_size=5)
    assert sizes==[5]

def test_test_sets_are_predicted_with_as_many_trials_as_officially():
    "configure_finetuning.py, n_writes_test; `predict_test` alone takes as many as a recipe"
    assert FinetuneHParams().n_writes_test==5
    assert inspect.signature(tr.predict_test).parameters['most'].default==5

def test_a_box_names_the_network_that_shares_tasks():
    import matplotlib.pyplot as plt
    from electra_nbdev.finetuning.trials import Trials, plot_trials
    def trials(*tasks):
        found = Trials('nowhere')
        found.records = {k: dict(metrics={t: dict(accuracy=1.+k) for t in tasks}) for k in range(2)}
        return found
    fig = plot_trials([trials('cola'), trials('cola', 'rte')])
    plt.close(fig)
    assert [o.get_text() for o in fig.axes[0].get_xticklabels()]==['cola', 'cola in\ncola+rte', 'rte in\ncola+rte']

def test_an_ensemble_has_the_classes_of_its_models(home, tmp_path):
    "The test texts may come with other training rows, whose classes are others"
    def rows(labels): return [dict(text=sentence(i), label=labels[i%3]) for i in range(24)]
    def task(labels): return tk.text_task('t', rows(labels), dev=rows(labels), test=rows(labels)[:6])
    rq.run_trials(home/'model', [task('abc')], tmp_path/'out', device='cpu', **SHORT)
    tr.predict_test(tmp_path/'out', [task('bcd')], device='cpu')
    one, ensemble = ([p.read_text() for p in (tmp_path/'out/predictions'/o).iterdir()] for o in ('trial-0', 'ensemble'))
    assert one==ensemble!=[]

def numbers(path, factor=1, names=('low', 'high'), column='text'):
    "A table of 24 rows with a number and a class"
    rows = [dict(size=factor*(i%3), kind=names[i%2]) | {column: sentence(i)} for i in range(24)]
    pd.DataFrame(rows).to_csv(path, index=False)

@pytest.mark.parametrize('label,change,what', [
    ('size', dict(factor=20), r'scale of t is 0\.8\d+, asked for 16\.3'),
    ('kind', dict(names=('few', 'many')), r"labels of t is \['high', 'low'\], asked for \['few', 'many'\]"),
    ('kind', dict(column='review'), "columns of t is"),
])
def test_finished_trials_are_of_these_classes_and_scales(home, tmp_path, label, change, what):
    "The targets, which are numbers, may be the same"
    def train(**how):
        numbers(tmp_path/'t.csv', **how)
        asked = dict(text_column=how.get('column', 'text'), label_column=label, regression=label=='size', task='t')
        return rq.FinetuneRequest(model=home/'model', csv=tmp_path/'t.csv', out=tmp_path/'out', device='cpu',
                                  hparams=SHORT, **asked).settle().run()
    train()
    with pytest.raises(InputError, match=what): train(**change)

def test_the_best_model_is_in_the_ensemble_where_it_alone_was_kept(home, tmp_path, capsys):
    rows = [dict(text=sentence(i), label='ab'[i%2]) for i in range(24)]
    task = tk.text_task('t', rows, dev=rows, test=rows[:6])
    def train(n, **how): return rq.run_trials(home/'model', [task], tmp_path, device='cpu', num_trials=n, **SHORT | how)
    train(2, keep_all_models=False, write_test_outputs=True)
    names = {o.name for o in (tmp_path/'predictions').iterdir()}
    assert names=={'trial-0', 'trial-1', 'ensemble'}, "all have predicted before they go"
    train(2, keep_all_models=False, write_test_outputs=True)
    assert names=={o.name for o in (tmp_path/'predictions').iterdir()}, "and their files stay"
    found, record = train(3), tmp_path/'trial-2/result.json'
    worse = json.loads(record.read_text())
    worse['metrics']['t']['accuracy'] = -1.
    record.write_text(json.dumps(worse))
    found = tr.Trials(tmp_path)
    assert found.models=={f'trial-{found.best}': tmp_path/'model', 'trial-2': tmp_path/'trial-2/model'}
    capsys.readouterr()
    tr.predict_test(tmp_path, [task], 'cpu')
    assert 'NOTE: of 1 trial no model was kept' in capsys.readouterr().out
    assert {o.name for o in (tmp_path/'predictions').iterdir()}=={f'trial-{found.best}', 'trial-2', 'ensemble'}

def test_all_networks_of_a_folder_are_in_its_results(home, tmp_path):
    rows = [dict(text=sentence(i), label='ab'[i%2]) for i in range(24)]
    for name in 'st': tr.train_networks(home/'model', {tmp_path/name: [tk.text_task(name, rows, dev=rows)]}, tmp_path,
                                        device='cpu', **SHORT)
    assert [*json.loads((tmp_path/'results.json').read_text())]==['s', 't']
    shutil.copytree(tmp_path/'s', tmp_path/'s-old')
    (tmp_path/'t/trial-0/result.json').write_text('{')
    tr.train_networks(home/'model', {tmp_path/'u': [tk.text_task('u', rows, dev=rows)]}, tmp_path,
                      device='cpu', **SHORT)
    assert [*json.loads((tmp_path/'results.json').read_text())]==['s', 'u'], "a copy and a damaged one are none of them"

def test_one_of_two_things_is_evaluated(home, tmp_path, capsys):
    "Trials of a folder, and not a fine-tuned model that is named beside them; it is said"
    rows = [dict(text=sentence(i), label='ab'[i%2]) for i in range(24)]
    task = tk.text_task('t', rows, dev=rows)
    for o in 'ab': rq.run_trials(home/'model', [task], tmp_path/o, device='cpu', **SHORT)
    capsys.readouterr()
    for model,told in {tmp_path/'b': True, tmp_path/'b/model': True, tmp_path/'a': False, 'gone': False}.items():
        assert [*tr.evaluate_trials(model, [task], tmp_path/'a', 'cpu')]==['trial-0']
        assert ('the finished trials of' in capsys.readouterr().out)==told, model
    assert json.loads((tmp_path/'a/trial-0/result.json').read_text())['facts']['precision']=='fp32'

def test_a_constant_is_no_regression(tmp_path):
    with pytest.raises(InputError, match='have the number 2.5; give at least two'):
        tk.text_task('t', [dict(text=sentence(i), label=2.5) for i in range(9)], regression=True)

def test_a_cell_keeps_the_ends_of_its_lines(home, tmp_path):
    "As a spreadsheet of Windows writes them"
    rows = [dict(text=sentence(i), label='ab'[i%2]) for i in range(24)]
    rq.run_trials(home/'model', [tk.text_task('t', rows, dev=rows)], tmp_path/'out', device='cpu', **SHORT)
    (tmp_path/'rows.csv').write_bytes(b'text\r\n"one\r\ntwo"\r\nthree\r\n')
    rq.predict_file(tmp_path/'out', tmp_path/'rows.csv', tmp_path/'said.csv', device='cpu')
    assert b'"one\r\ntwo"' in (tmp_path/'said.csv').read_bytes()
