"What a fastai user expects of a fine-tuning learner: weights move, updates are counted, nothing is silently ignored"
import re, time
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from fastai.callback.core import Callback
from fastai.callback.fp16 import MixedPrecision
from fastai.callback.progress import CSVLogger
from fastai.callback.schedule import ParamScheduler, SchedLin
from fastai.callback.tracker import EarlyStoppingCallback, SaveModelCallback
from fastai.callback.training import GradientAccumulation
from fastai.interpret import ClassificationInterpretation, Interpretation
from fastai.learner import load_learner
from fastai.losses import CrossEntropyLossFlat
from fastai.metrics import accuracy, mae, rmse
from fastai.optimizer import Adam
from fastai.torch_core import no_random
from transformers import ElectraConfig, ElectraModel, GPT2Config, GPT2Model, T5Config, T5EncoderModel, T5Model

from electra_nbdev.engine.files import InputError
from electra_nbdev.engine.training import DeviceMixedPrecision
from electra_nbdev.finetuning.finetune import (FinetuneLearner, TaskDataLoaders, TextTaskDataLoaders,
                                               electra_classifier, finetune_dls, finetune_learner, load_finetuned,
                                               open_encoder, open_model, save_model, text_task)
from electra_nbdev.method.optimizer import ClipNorm, LinearWarmupDecay
from electra_nbdev.finetuning.finetune import read_rows
from electra_nbdev.finetuning.request import FinetuneJob, run_trials
from electra_nbdev.finetuning.tasks import TextTask
from learners import Interrupt, Norms, Watch, assert_swept, moved, quiet, remove, weights
from make import DIMS, NO_DROPOUT, table, wordpiece_model

BODY, TOP = (f'encoder.encoder.layer.{i}.output.dense.weight' for i in (0, 1))
HEAD = 'heads.task.dense.weight'

@pytest.fixture(scope='module')
def model(tmp_path_factory):
    config = ElectraConfig(vocab_size=200, embedding_size=16, **DIMS | NO_DROPOUT)
    return wordpiece_model(ElectraModel, config)(tmp_path_factory.mktemp('model'))

@pytest.fixture
def dls(model, table, tmp_path, monkeypatch):
    "32 questions in batches of eight, 8 to validate on"
    monkeypatch.chdir(tmp_path)
    return TextTaskDataLoaders.from_df(table[:32], 'question', 'about', model, valid=table[32:], bs=8, device='cpu')

@pytest.fixture
def learn(dls):
    with no_random(0): return quiet(electra_classifier(dls))

def test_a_classifier_has_the_network_of_its_batches(dls, model):
    "Another network of as many pieces may have another vocabulary"
    with pytest.raises(TypeError): electra_classifier(dls, model)
    del dls.encoder
    with pytest.raises(InputError, match='use `finetune_learner`'): electra_classifier(dls)

# A table

def test_csv_in_three_lines(table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table.to_csv('q.csv', index=False)
    dls = TextTaskDataLoaders.from_csv('q.csv', text='question', label='about', model='tiny')
    learn = electra_classifier(dls)
    learn.fit_one_cycle(3, 1e-4)
    assert learn.n_updates==3*len(dls.train) and len(learn.recorder.values)==3
    found = learn.predict('red dog')
    assert found.label in ('animal', 'pet') and set(found.probs)=={'animal', 'pet'}
    save_model(learn, 'saved/model of q')
    again = load_finetuned('saved/model of q', learn.dls.device).predict('red dog')
    assert again.probs==pytest.approx(found.probs, abs=1e-5)

def test_pairs_numbers_and_validation_rows(model, table, tmp_path, capsys):
    table['other'], table['size'] = table['question'][::-1].tolist(), [len(o)/2 for o in table['question']]
    table[:30].to_csv(tmp_path/'a.csv', index=False)
    table[30:].to_json(tmp_path/'b.jsonl', orient='records', lines=True)
    columns = dict(text=('question', 'other'), label='size', valid=tmp_path/'b.jsonl')
    dls = TextTaskDataLoaders.from_csv(tmp_path/'a.csv', **columns, model=model, device='cpu')
    assert 'NOTE: `size` holds decimals: a regression' in capsys.readouterr().out
    assert (len(dls.train_ds), len(dls.valid_ds))==(30, 10) and dls.valid_ds[0][2].example.text_b==table['other'][30]
    learn = electra_classifier(dls)
    learn.fit(1)
    assert learn.recorder.metric_names[3:6]==['pearson', 'spearman', 'mse']
    want = [learn.predict('red', 'dog').label, learn.predict(('dog', 'red')).label]
    assert [o.label for o in learn.predict([('red', 'dog'), ('dog', 'red')])]==pytest.approx(want, abs=1e-5)
    assert isinstance(want[0], float)
    assert learn.get_preds()[0].shape==(10,)

def test_a_pair_by_the_name_of_its_column(model, table):
    args = dict(label='about', model=model, device='cpu', valid=table[32:])
    both = table.assign(context=table['question'].str.upper())
    named = TextTaskDataLoaders.from_df(both[:32], 'question', pair='context', **args | dict(valid=both[32:]))
    listed = TextTaskDataLoaders.from_df(both[:32], ['question', 'context'], **args | dict(valid=both[32:]))
    assert [o[-1].example for o in named.valid_ds]==[o[-1].example for o in listed.valid_ds]
    assert named.valid_ds[0][-1].example.text_b

def test_a_part_is_held_out_and_said(model, table, capsys):
    args = dict(text='question', label='about', model=model, device='cpu')
    dls = TextTaskDataLoaders.from_df(table, **args, valid_pct=.3)
    assert 'NOTE: task has no dev set. 30% of the training rows, chosen by hash' in capsys.readouterr().out
    texts = [{o.example.text_a for *_,o in d} for d in (dls.train_ds, dls.valid_ds)]
    assert not texts[0]&texts[1] and len(texts[1])>1
    again = TextTaskDataLoaders.from_df(table[::-1], **args, valid_pct=.3)
    assert {o.example.text_a for *_,o in again.valid_ds}==texts[1], "the same texts, whatever their order"
    whole = table.assign(about=[float(o=='pet') for o in table['about']])
    assert TextTaskDataLoaders.from_df(whole, **args, regression=False).valid.task.labels==('0.0', '1.0')
    wrong = {'`valid_pct` is 1.5': dict(valid_pct=1.5), 'Did you mean `about`': dict(label='abot'),
             'max_seq_length': dict(max_seq_len=3)}
    for words,change in wrong.items():
        with pytest.raises(InputError, match=words): TextTaskDataLoaders.from_df(table, **args | change)

# Fits

def test_fit_trains_as_many_passes_as_asked(learn):
    assert learn.hp.num_train_epochs==3
    for epochs in (5, 1):
        before, n = weights(learn), learn.n_updates
        learn.fit(epochs, 1e-3)
        assert learn.n_updates-n==epochs*len(learn.dls.train) and {BODY, HEAD} <= moved(learn, before)
        losses = [o[1] for o in learn.recorder.values]
        assert len(losses)==len(set(losses))==epochs
        lrs = learn.recorder.lrs
        assert lrs[0]==0 and max(lrs)>.7e-3 and lrs[-1]<max(lrs)/2

def test_recipe_counts_its_own_updates(model, table):
    settings = dict(bs=8, device='cpu', num_train_epochs=2.5)
    dls = TextTaskDataLoaders.from_df(table[:32], 'question', 'about', model, valid=table[32:], **settings)
    learn = electra_classifier(dls)
    for k in (1, 2):
        learn.fit_recipe()
        assert learn.n_updates==10*k and len(learn.recorder.values)==3
        assert learn.recorder.lrs[0]==0 and learn.recorder.lrs[-1]==pytest.approx(.1*learn.hp.learning_rate)
    learn.fit(2)
    assert learn.n_updates==28, "a fit after the recipe trains whole passes"

def test_fit_steps(learn):
    learn.fit_steps(6, lr=1e-3)
    assert learn.n_updates==6 and len(learn.recorder.values)==2
    with pytest.raises(KeyboardInterrupt): learn.fit_steps(6, cbs=Interrupt())
    remove(learn, Interrupt)
    n = learn.n_updates
    learn.fit(2)
    assert learn.n_updates==n+2*len(learn.dls.train), "an interrupted fit_steps limits nothing afterwards"
    with pytest.raises(InputError, match='at least 1'): learn.fit_steps(0)

def test_a_schedule_of_the_fit_wins(learn, capsys):
    learn.fit_one_cycle(3, 1e-2)
    lrs = learn.recorder.lrs
    assert learn.n_updates==12 and max(lrs)==pytest.approx(1e-2, rel=.05) and lrs[0]==pytest.approx(1e-2/25)
    assert capsys.readouterr().out.count('LinearWarmupDecay steps aside')==1
    learn.fit(1, cbs=ParamScheduler(dict(lr=SchedLin(1e-3, 2e-3))))
    assert learn.recorder.lrs==pytest.approx([1e-3, 1.25e-3, 1.5e-3, 1.75e-3])
    assert 'steps aside' in capsys.readouterr().out
    learn.fit(1, 1e-3)
    assert learn.recorder.lrs==pytest.approx([0, .75e-3, .5e-3, .25e-3]) and not capsys.readouterr().out

def test_lr_find_suggests_from_its_own_sweep(learn):
    before = weights(learn)
    assert_swept(learn, learn.lr_find(show_plot=False, num_it=60), 60)
    assert len(learn.recorder.lrs)>30
    assert not moved(learn, before) and learn.n_updates==0

def test_fine_tune_freezes_the_body_first(learn):
    watch = Watch()
    learn.add_cb(watch)
    learn.fine_tune(2, 1e-3)
    assert len(watch.seen)==3 and learn.n_updates==12
    assert watch.seen[0]=={HEAD, HEAD.replace('weight', 'bias')} and {BODY, TOP, HEAD} <= watch.seen[1]

def test_freeze_goes_by_depth(learn):
    for first,still,move in ((-1, {BODY, TOP}, {HEAD}), (-2, {BODY}, {TOP, HEAD}), (0, set(), {BODY, TOP, HEAD})):
        learn.freeze_to(first)
        before = weights(learn)
        learn.validate()
        learn.fit(1, 1e-3)
        assert not moved(learn, before)&still and move <= moved(learn, before)
    learn.fit_one_cycle(1, slice(1e-5, 1e-3))
    assert learn.opt.hypers[0]['lr']<learn.opt.hypers[-1]['lr']/50

# Gradients

def in_order(dls, bs):
    train = dls.train.new(bs=bs, shuffle=False, similar=False)
    return TaskDataLoaders(train, dls.valid, device='cpu')

@pytest.mark.parametrize('reduction', ['sum', 'mean'])
def test_gradient_accumulation_is_a_larger_batch(dls, reduction):
    found, hp = {}, dls.train.hp.__class__(**vars(dls.train.hp) | dict(loss_reduction=reduction))
    for name,bs,cbs in (('large', 16, []), ('small', 8, [GradientAccumulation(16)])):
        with no_random(0): learn = finetune_learner(in_order(dls, bs), deepcopy(dls.encoder), hp, cbs=cbs)
        learn.model.heads['task'].dropout.p, before = 0., weights(learn)
        norms = Norms()
        with learn.no_logging(): learn.fit(2, 1e-3, cbs=norms)
        assert learn.n_updates==4 and BODY in moved(learn, before)
        found[name] = norms.seen, learn.recorder.values[-1][1], learn.recorder.lrs[-1]
    small, large = found['small'], found['large']
    assert small[0]==pytest.approx(large[0], rel=2e-3) and small[1]==pytest.approx(large[1], rel=1e-3)
    learn.fit_steps(3)
    assert learn.n_updates==7

@pytest.mark.parametrize('corrected,size', [(False, .1/.001**.5), (True, 1.)])
def test_bias_correction(dls, corrected, size):
    "The first update of Adam is as large as the rate only with it"
    plain = dict(bias_correction=corrected, warmup_proportion=0., weight_decay_rate=0., layerwise_lr_decay=0.)
    hp = dls.train.hp.__class__(**vars(dls.train.hp) | plain)
    learn = quiet(finetune_learner(dls, deepcopy(dls.encoder), hp))
    before = weights(learn)[HEAD]
    learn.fit_steps(1, lr=1e-4)
    assert (weights(learn)[HEAD]-before).abs().max().item()==pytest.approx(1e-4*size, rel=.01)

class Dtypes(Callback):
    def before_batch(self):
        dense, self.seen = self.model.encoder.encoder.layer[0].output.dense, set()
        self.hook = dense.register_forward_hook(lambda m,i,o: self.seen.add(o.dtype))
    def after_pred(self): self.hook.remove()

@pytest.mark.parametrize('cb', [None, MixedPrecision, DeviceMixedPrecision])
def test_autocast_is_really_on(learn, cb):
    watch, before = Dtypes(), weights(learn)
    learn.add_cb(watch)
    if cb: learn.add_cb(cb('bf16'))
    else: learn.to_bf16()
    learn.fit(1, 1e-3)
    assert watch.seen=={torch.bfloat16} and BODY in moved(learn, before) and learn.n_updates==4
    assert {v.dtype for v in learn.model.state_dict().values() if v.is_floating_point()}=={torch.float32}
    found = learn.predict('red dog').probs
    learn.to_fp32()
    assert learn.predict('red dog').probs==pytest.approx(found, abs=.02) and watch.seen=={torch.float32}

def test_float16_is_refused_on_a_cpu(learn, dls):
    def given(): electra_classifier(dls, cbs=MixedPrecision)
    for act in (learn.to_fp16, lambda: learn.add_cb(MixedPrecision()), given):
        with pytest.raises(InputError, match='float16 needs a GPU'): act()
    learn.fit(1)

# Callbacks

def test_trackers_and_loggers(learn, tmp_path):
    stop = EarlyStoppingCallback(monitor='accuracy', min_delta=200., patience=1)
    learn.fit(6, 1e-3, cbs=[stop, SaveModelCallback(fname='best'), CSVLogger()])
    assert learn.n_updates==8, "two epochs: the second is no better by 200 %"
    assert (tmp_path/'models/best.pth').is_file()
    rows = pd.read_csv(tmp_path/'history.csv')
    assert list(rows)[:5]==['epoch', 'train_loss', 'valid_loss', 'accuracy', 'macro_f1'] and len(rows)==2

def test_predictions_leave_trackers_alone(learn, tmp_path):
    learn.add_cbs([CSVLogger(), SaveModelCallback(monitor='valid_loss')])
    learn.fit(2, 1e-3)
    before, scores = (tmp_path/'history.csv').read_text(), learn.scores
    for act in (lambda: learn.predict('red dog'), learn.get_preds, lambda: learn.show_results(max_n=1)): act()
    assert (tmp_path/'history.csv').read_text()==before and learn.scores is scores

def test_tensorboard(learn, tmp_path):
    from fastai.callback.tensorboard import TensorBoardCallback
    for args in ({}, dict(trace_model=False)):
        with pytest.raises(InputError, match='trace_model=False, log_preds=False'):
            learn.fit(1, cbs=TensorBoardCallback(tmp_path/'tb', **args))
    assert not learn.cbs.filter(lambda o: isinstance(o, TensorBoardCallback))
    learn.fit(1, cbs=TensorBoardCallback(tmp_path/'tb', trace_model=False, log_preds=False))
    assert list((tmp_path/'tb').iterdir())

def test_callbacks_can_be_removed(learn):
    learn.remove_cb(LinearWarmupDecay)
    learn.remove_cb(ClipNorm)
    learn.fit(1, 1e-3)
    assert learn.recorder.lrs==pytest.approx([1e-3]*4) and not hasattr(learn, 'grad_norm')

def test_arguments_of_learner(dls):
    learn = electra_classifier(dls, opt_func=Adam, metrics=accuracy, lr=1e-3)
    before = weights(learn)
    learn.fit(1)
    assert BODY in moved(learn, before) and learn.recorder.metric_names[3:6]==['accuracy', 'macro_f1', 'accuracy']
    assert learn.recorder.values[-1][2]==pytest.approx(100*learn.recorder.values[-1][4])

# Predictions

def probs_of(prediction): return pytest.approx(list(prediction.probs.values()), abs=1e-5)

def test_get_preds(learn):
    learn.fit(1, 1e-3)
    probs, targets, decoded, losses = learn.get_preds(with_decoded=True, with_loss=True)
    rows = learn.dls.valid_ds.items
    assert targets.tolist()==[o.target for o in rows] and torch.equal(decoded, probs.argmax(1))
    torch.testing.assert_close(losses, -probs[range(8), targets].log())
    for f,p in zip(rows, probs): assert p.tolist()==probs_of(learn.predict(f.example.text_a))
    right = 100*(decoded==targets).float().mean().item()
    assert list(learn.validate()[:2])==pytest.approx([losses.mean().item(), right], abs=1e-4)
    assert learn.get_preds(ds_idx=0)[0].shape==(32, 2)
    ids, probs, targets = learn.get_preds(dl=learn.dls.test_dl(['red dog', 'the red dog walks']), with_input=True)
    assert ids.shape[0]==2 and not len(targets or ())
    assert probs[1].tolist()==probs_of(learn.predict('the red dog walks'))

def test_predict_refuses_what_is_no_unicode(learn):
    with pytest.raises(InputError, match=r'text 1 is not UTF-8 \(character 5\)'):
        learn.predict(['A cat.', 'bad \ud800'])

def test_a_recipe_is_trained_at_the_rate_of_the_learner(dls):
    learn = quiet(electra_classifier(dls, lr=.02))
    learn.fit_recipe()
    assert max(learn.recorder.lrs)==pytest.approx(.02, rel=.5) # it falls from the first update on

def test_several_threads_may_predict(learn, monkeypatch):
    "A learner is a state machine, so one of them runs the network at a time"
    texts, running, most, was = ['red', 'a blue dog']*4, [], [], learn.validate
    want = [learn.predict(o).label for o in texts]
    def validate(**kwargs):
        running.append(1)
        most.append(len(running))
        time.sleep(.01)
        try: return was(**kwargs)
        finally: running.pop()
    monkeypatch.setattr(learn, 'validate', validate)
    with ThreadPoolExecutor(4) as pool: assert [o.label for o in pool.map(learn.predict, texts)]==want
    assert max(most)==1

def test_what_is_no_text_is_told_in_a_line(learn, table):
    with pytest.raises(InputError) as e: learn.predict(table)
    assert len(str(e.value))<200

def test_predict_takes_a_list_for_a_batch(learn):
    pairs = TextTask('pairs', ('no', 'yes'), columns=('a', 'b'))
    found = learn.predict(['red', 'dog'])
    assert [o.probs for o in found]==[pytest.approx(learn.predict(o).probs, abs=1e-5) for o in ('red', 'dog')]
    with pytest.raises(InputError, match='reads one text, and two came'): learn.predict(('red', 'dog'))
    with pytest.raises(InputError, match='reads two texts, a and b, and one came'): pairs.unlabelled(['red'])
    assert pairs.unlabelled([('red', '')])[0].text_b=='', "a second text may be empty"
    with pytest.raises(InputError, match='give a text, a tuple of two'): learn.predict(5)
    with pytest.raises(InputError, match='list of texts'): learn.dls.test_dl('red')
    with pytest.raises(InputError, match="no task 'tags'"): learn.predict('red', task='tags')

@pytest.mark.filterwarnings('ignore:Precision is ill-defined') # scikit-learn's, of a label that is not predicted
def test_interpretation(learn, shown):
    learn.fit(1, 1e-3)
    scores = learn.scores
    interp = ClassificationInterpretation.from_learner(learn)
    probs, targets = learn.get_preds()
    want = np.zeros((2, 2), int)
    for y,p in zip(targets, probs.argmax(1)): want[y, p] += 1
    assert (interp.confusion_matrix()==want).all() and interp.most_confused(0)
    losses, at = interp.top_losses(3)
    assert losses[0]==pytest.approx(-probs[at[0], targets[at[0]]].log().item(), abs=1e-5)
    picked = [0, 3, 6, 1]
    torch.testing.assert_close(interp[picked][1], probs[picked], rtol=0, atol=1e-5)
    interp.plot_top_losses(3)
    text = learn.dls.valid_ds.items[at[0]].example.text_a
    assert text in shown[-1]
    interp.plot_confusion_matrix()
    interp.print_classification_report()
    interp.show_results([0, 1])
    assert 'animal' in shown[-1] and learn.scores==scores
    assert len(Interpretation.from_learner(learn, ds_idx=0).losses)==32

def test_shown(learn, shown):
    learn.dls.show_batch(max_n=2)
    learn.show_results(max_n=2)
    learn.show_results(dl=learn.dls.train, wrong=True)
    assert '[CLS]' in shown[0] and 'predicted' in shown[1] and len(shown)==3
    text = str(learn.summary())
    assert re.search(r'Total params: [\d,]+', text) and 'Input shape' in text and 'electra_optimizer' in text
    learn.freeze()
    assert 'Total non-trainable params: 0' not in str(learn.summary())

def test_export_holds_no_data(learn, table, tmp_path):
    learn.fit(1, 1e-3)
    found = learn.predict(['red dog', 'cat'])
    learn.export('out.pkl')
    written, texts = (tmp_path/'out.pkl').read_bytes(), [o.encode() for o in table.question]
    assert not any(o in written for o in texts if len(o)>20)
    back = load_learner(tmp_path/'out.pkl')
    assert isinstance(back, FinetuneLearner) and back.predict(['red dog', 'cat'])==found
    learn.fit(1)
    assert learn.n_updates==8, "the learner goes on after its export"

def test_what_is_made_for_images_is_refused(learn):
    from fastai.callback.mixup import MixUp
    with pytest.raises(InputError, match='MixUp mixes images'): learn.add_cb(MixUp())
    with pytest.raises(InputError, match='no augmentations .* use get_preds'): learn.tta()

def test_several_processes_are_refused(learn):
    import fastai.distributed
    for name in ('distrib_ctx', 'to_distributed', 'to_parallel'):
        with pytest.raises(InputError, match='25_distributed'): getattr(learn, name)()

# Several tasks

def test_several_tasks(model, table, dls):
    about = text_task('about', table[:32], table[32:], text='question', label='about')
    table['size'] = [len(o)/3 for o in table['question']]
    size = text_task('size', table[:32], table[32:], text='question', label='size', regression=True)
    tasks, hp, tok = dict(about=about, size=size), dls.train.hp, dls.train.tok
    rows = read_rows(tasks, tok, hp)
    dls = finetune_dls(tasks, rows['train'], rows['dev'], tok, hp, 'cpu')
    learn = finetune_learner(dls, open_encoder(model), hp, cbs=GradientAccumulation(16))
    before = weights(learn)
    learn.fit(1, 1e-3)
    assert learn.n_updates==4, "64 sequences of both tasks, 16 for an update"
    assert {BODY, 'heads.about.dense.weight', 'heads.size.dense.weight'} <= moved(learn, before)
    assert learn.recorder.metric_names[3:5]==['about', 'size'] and set(learn.scores)=={'about', 'size'}
    assert learn.predict('red', task='about').label in ('pet', 'animal')
    assert isinstance(learn.predict(['red'], task='size')[0].label, float)
    for act in (learn.get_preds, learn.summary, lambda: ClassificationInterpretation.from_learner(learn)):
        with pytest.raises(InputError, match='single task of texts'): act()
    with pytest.raises(InputError, match='size has no classes of texts to draw'): learn.plot_confusion_matrix('size')
    learn.show_results(max_n=2)

def test_a_loader_of_any_task(model, table):
    task = text_task('any', table[:32], table[32:], text='question', label='about')
    learn = electra_classifier(TaskDataLoaders.from_task(task, model, device='cpu', max_seq_length=32))
    learn.fit(1)
    assert learn.n_updates==1 and learn.hp.max_seq_length==32 and learn.scores['any']['accuracy']>=0

# Encoders that cannot be

GPT2 = GPT2Config(vocab_size=200, n_embd=32, n_layer=2, n_head=2)
T5 = T5Config(vocab_size=200, d_model=32, d_kv=8, num_layers=1, num_heads=2, d_ff=32)

@pytest.mark.parametrize('cls,config,words', [
    (GPT2Model, GPT2, 'left to right'), (T5Model, T5, 'with a decoder'), (T5EncoderModel, T5, 'with a decoder')])
def test_no_encoder(tmp_path, cls, config, words):
    cls(config).save_pretrained(tmp_path)
    with pytest.raises(InputError, match=words): open_encoder(tmp_path)

def test_names_that_the_configuration_does_not_have(model):
    "A typo would look like a change without effect"
    config = open_model(model, model_hparam_overrides=dict(attention_probs_dropout_prob=.2))[0].config
    assert config.attention_probs_dropout_prob==.2
    why = "`atention_probs_dropout_prob`, which the body 'electra' does not have.*Did you"
    with pytest.raises(InputError, match=why):
        open_model(model, model_hparam_overrides=dict(atention_probs_dropout_prob=.9))

# What the version before wrote

OLD = Path(__file__).parent/'fixtures'/'v0_1'/'task'

def test_a_task_of_the_version_before_predicts_the_same():
    import json
    want = json.loads((OLD/'expected.json').read_text())
    learn = load_finetuned(OLD, 'cpu')
    for (text, label, probs),found in zip(want['about'], learn.predict([o[0] for o in want['about']])):
        assert found.label==label and found.probs==pytest.approx(probs, abs=1e-5)
    found = learn.predict([tuple(o[0]) for o in want['longer']], task='longer')
    assert [o.label for o in found]==pytest.approx([o[1] for o in want['longer']], abs=1e-4)

def test_a_trial_of_the_version_before_is_of_the_same_recipe():
    from electra_nbdev.finetuning.recipe import check_facts
    from electra_nbdev.finetuning.trials import Trials
    trials = Trials(OLD)
    facts = deepcopy(trials.records[0]['facts'])
    assert 'use_tpu' in facts['recipe'] and trials.best==0 and set(trials.tasks)=={'about', 'longer'}
    facts['recipe'] = {k: v for k,v in facts['recipe'].items() if k!='use_tpu'}
    check_facts(OLD, trials.records, facts)
    facts['recipe']['learning_rate'] = .1
    with pytest.raises(InputError, match='learning_rate is 0.003'): check_facts(OLD, trials.records, facts)

def test_targets_have_the_scale_of_predictions(model, table):
    table['size'] = [len(o)/3 for o in table['question']]
    task = text_task('size', table[:32], table[32:], text='question', label='size', regression=True)
    learn = electra_classifier(TaskDataLoaders.from_task(task, model, device='cpu', max_seq_length=32))
    _, targets = learn.get_preds()
    assert sorted(targets.tolist())==pytest.approx(sorted(table['size'][32:]), rel=1e-5)
    with pytest.raises(InputError, match='a table came'): learn.dls.test_dl(table)

def sizes(model, table, factor=1., shift=0.):
    "Loaders of a number for each question"
    table = table.assign(size=[factor*len(o)/3+shift for o in table['question']])
    task = text_task('size', table[:32], table[32:], text='question', label='size', regression=True)
    return TaskDataLoaders.from_task(task, model, device='cpu', max_seq_length=32)

def test_metrics_of_fastai_are_in_the_unit_of_the_labels(model, table):
    learn = quiet(electra_classifier(sizes(model, table, 30., 7.), metrics=[mae, rmse]))
    learn.fit(1)
    shown = dict(zip(learn.recorder.metric_names[1:], learn.recorder.values[-1]))
    preds, targets = learn.get_preds()
    assert shown['mae']==pytest.approx((preds-targets).abs().mean().item(), rel=1e-4)
    assert shown['_rmse']**2==pytest.approx(learn.scores['size']['mse'], rel=1e-4)

def test_loaders_of_another_task_are_refused(model, table, learn):
    "Numbers of another scale, or classes of other names, would be measured by the learner's"
    numbers = quiet(electra_classifier(sizes(model, table)))
    numbers.dls = sizes(model, table, shift=100.)
    named, several = dict(text='question', label='about'), table.assign(about=table['about']+'s')
    other = text_task('task', several[:32], several[32:], **named)
    learn.dls = TaskDataLoaders.from_task(other, model, device='cpu')
    for o in (numbers, learn):
        for act in (o.validate, o.get_preds, lambda: o.fit(1)):
            with pytest.raises(InputError, match='make a new learner from them'): act()
    numbers.dls = sizes(model, table)
    numbers.fit(1)

def test_a_loss_of_one_tensor_is_refused(dls):
    with pytest.raises(InputError, match='`loss_func` has to be a `TaskLoss`'):
        electra_classifier(dls, loss_func=CrossEntropyLossFlat())

def test_numbers_that_float32_does_not_tell_apart(model, table, capsys):
    sizes(model, table, shift=1.7e9)
    assert 'float32 hardly tells apart: subtract a number' in capsys.readouterr().out
    sizes(model, table, shift=1e4)
    assert 'float32' not in capsys.readouterr().out

def test_the_best_trial_has_the_least_error(tmp_path):
    import json
    from electra_nbdev.finetuning.trials import Trials
    for k,mse in enumerate((.9, .1, .5)):
        (tmp_path/f'trial-{k}').mkdir()
        record = dict(facts={}, metrics=dict(size=dict(mse=mse)), shown=dict(size=['mse']), steps=1, seconds=1.)
        (tmp_path/f'trial-{k}/result.json').write_text(json.dumps(record))
    trials = Trials(tmp_path)
    assert trials.best==1 and trials.table()['best'][0]==.1==trials.summary()['tasks']['size']['mse']['best']

def test_conversion_keeps_heads_and_recipe(model, table, tmp_path):
    "Of tasks whose names no module can have, too"
    from electra_nbdev.sharing.convert import convert_weights
    for name in ('train', 'my.data'):
        task = text_task(name, table[:32], table[32:], text='question', label='about')
        learn = electra_classifier(TaskDataLoaders.from_task(task, model, device='cpu', max_seq_length=24))
        save_model(learn, tmp_path/name/'model')
        convert_weights(tmp_path/name, tmp_path/f'{name} again')
        back = load_finetuned(tmp_path/f'{name} again', 'cpu')
        assert back.hp.max_seq_length==24 and back.hp.learning_rate==learn.hp.learning_rate
        assert back.predict('red dog').probs==pytest.approx(learn.predict('red dog').probs, abs=1e-6)

def test_another_table_is_measured_on_the_scale_of_the_model(table):
    from electra_nbdev.finetuning.trials import _checked
    table['size'] = [len(o)/3 for o in table['question']]
    def task(rows): return text_task('size', rows, rows, text='question', label='size', regression=True)
    trained, other = task(table), task(table.assign(size=9*table['size']))
    found = _checked(other, SimpleNamespace(tasks=dict(size=trained)))
    assert found.scale==trained.scale!=other.scale and found.shift==trained.shift!=other.shift

# Slightly wrong calls

@pytest.fixture
def reopened(learn, tmp_path):
    save_model(learn, tmp_path/'model')
    return quiet(load_finetuned(tmp_path/'model', 'cpu'))

NO_ROWS = dict(validate=lambda o: o.validate(), get_preds=lambda o: o.get_preds(), show=lambda o: o.show_results(),
               confusion=lambda o: o.plot_confusion_matrix(), fit=lambda o: o.fit(1), steps=lambda o: o.fit_steps(2),
               recipe=lambda o: o.fit_recipe(), interpretation=Interpretation.from_learner,
               find=lambda o: o.lr_find(), batch=lambda o: o.dls.show_batch(), summary=lambda o: o.summary())

@pytest.mark.parametrize('call', NO_ROWS)
def test_a_model_that_was_opened_again_has_no_rows(reopened, call):
    "Its metrics were not a number"
    with pytest.raises(InputError, match='there are no rows here: .*evaluate_trials'): NO_ROWS[call](reopened)

def test_what_is_about_trials_has_no_effect_on_loaders(model, table):
    def made(**kw): return TextTaskDataLoaders.from_df(table, 'question', 'about', model, device='cpu', **kw)
    for o in (dict(num_trials=3), dict(seed=1), dict(log_examples=True)):
        with pytest.raises(InputError, match=f"hparam `{[*o][0]}` has no effect here"): made(**o)
    assert made(num_trials=1).train.hp.num_trials==1

def test_one_line_tells_what_a_thing_is(dls, learn):
    assert repr(dls)=='TextTaskDataLoaders: 32 training and 8 validation rows of task, batches of 8, on cpu'
    assert repr(dls.valid)=='FinetuneDL: 8 rows of task, batches of 32'
    assert re.fullmatch(r'FinetuneLearner: TaskNetwork of [0-9,]+ parameters, 0 updates, on cpu', repr(learn))

def test_labels_that_are_joined_are_told(capsys):
    def said(*labels):
        text_task('moods', [dict(text=f'text {i}', label=o) for i,o in enumerate(labels*3)])
        return capsys.readouterr().out
    assert "has the class 'a, b' beside 'a' and 'b'; if a text may have several" in said('a', 'b', 'a, b')
    assert 'beside' not in said('a', 'b', 'c, d')

def test_one_task_need_not_be_a_list(table, tmp_path, monkeypatch):
    monkeypatch.setattr(FinetuneJob, 'run', lambda self: [self.networks])
    task = text_task('about', table, text='question', label='about')
    assert run_trials('tiny', task, tmp_path)==run_trials('tiny', [task], tmp_path)=={tmp_path: [task]}

def test_inputs_stand_beside_their_predictions(learn, table):
    "In the order of the texts, and in that of the loader, which is by length"
    def probs(ids): return [*learn.predict(learn.tok.decode(ids, skip_special_tokens=True)).probs.values()]
    dl = learn.dls.test_dl([*table.question])
    for reorder in (True, False):
        ids, preds, _ = learn.get_preds(dl=dl, with_input=True, reorder=reorder)
        assert torch.tensor([*map(probs, ids)]).allclose(preds, atol=1e-5), reorder
    ids, preds, _ = learn.get_preds(ds_idx=0, with_input=True, reorder=False)
    assert torch.tensor([*map(probs, ids)]).allclose(preds, atol=1e-5), "training batches, which are shuffled"

def test_batches_of_a_task_that_is_not_there(dls):
    with pytest.raises(InputError, match="no task 'zz'"): dls.test_dl(['a'], task='zz')
    with pytest.raises(InputError, match='`bs` is 0'): dls.test_dl(['a'], bs=0)
