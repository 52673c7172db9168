"Training as a whole: NaN, loggers, mixed precision, the variants, initial weights"
import json, random, shutil, time
from contextlib import nullcontext
from dataclasses import asdict, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt
from fastai.callback.core import Callback
from fastai.torch_core import no_random, set_seed
from transformers import PreTrainedTokenizerFast

from electra_nbdev.pretraining import learner as pretrain, runs
from electra_nbdev.pretraining.continue_pretraining import open_origin
from electra_nbdev.pretraining.request import PretrainRequest, evaluate_run, run_pretraining
from electra_nbdev.engine.checkpoint import latest_checkpoint, load_checkpoint, only_writer
from electra_nbdev.pretraining.learner import match_examples, pretrain_dls, untried
from electra_nbdev.data.examples import build_examples, load_examples
from electra_nbdev.pretraining.monitor import TrainingMonitor, as_lines, diagnose, plot_history, read_history
from electra_nbdev.engine.files import InputError
from electra_nbdev.engine.models import shipped
from electra_nbdev.method.electra import ReplaceTokens
from electra_nbdev.method.objective import ObjectiveStep
from electra_nbdev.method.masking import MaskTokens
from electra_nbdev.networks.build import (build_networks, complete_state, load_networks, load_newest, load_weights,
                                          save_networks)
from electra_nbdev.networks.recipe import PretrainHParams, preset, save_hparams, with_steps
from electra_nbdev.pretrain import electra_learner
from electra_nbdev.pretraining.runs import SaveCheckpoints, loggers, restore, resume_conditions
from electra_nbdev.scoring.score import load_scorer, replaced_probs, words_of
from electra_nbdev.data.tokenizer import load_tokenizer, save_tokenizer, special_token_ids, wordpiece
from learners import Dtypes, remove
from make import ELECTRIC, NARROW, RUN_VARIANTS, made, no_curves
from terminal import files_of

@pytest.fixture(autouse=True)
def no_pictures(monkeypatch): no_curves(monkeypatch)

def run(made, out, how={}, **changes):
    "A run by the recipe with changes"
    d, hp = made
    return run_pretraining(d/'examples', out, replace(hp, **changes), device='cpu', **how)

def learner(made, out=None, cbs=(), **kw):
    d, hp = made
    hp = replace(hp, **kw)
    train, held = load_examples(d/'examples', hp), load_examples(d/'examples/held_out', hp)
    return electra_learner(pretrain_dls(train, held, hp, 'cpu'), hp, out=out, cbs=cbs)

class Own(ReplaceTokens): "An objective of the user's"
class OwnMask(MaskTokens): "A masking of the user's"

def test_an_objective_of_ones_own_takes_the_place_of_the_recipes(made, capsys):
    "So does a masking; of two objectives none is chosen"
    def kinds(learn): return [type(o) for o in learn.cbs if isinstance(o, (MaskTokens, ObjectiveStep))]
    mask = OwnMask(special_token_ids(load_tokenizer(made[0]/'vocab')))
    assert kinds(learner(made))==[MaskTokens, ReplaceTokens]
    assert 'in place of' not in capsys.readouterr().out
    learn = learner(made, cbs=[Own(), mask])
    assert kinds(learn)==[Own, OwnMask]
    said = capsys.readouterr().out
    assert "Own of cbs in place of the recipe's ReplaceTokens" in said and "the recipe's MaskTokens" in said
    learn.fit_steps(1)
    learn.add_cb(ReplaceTokens())
    with pytest.raises(InputError, match='one objective, not Own, ReplaceTokens'):
        learn.fit_steps(1)

def test_a_line_of_the_history_counts_what_is_called_replaced(made):
    "Recall and precision of the last step, from its logits and labels"
    learn = learner(made, iterations_per_loop=1)
    class Keep(Callback):
        order, run_valid = 100, False # after the step is known
        def after_pred(self): self.learn.kept_output = self.learn.output
    learn.fit_steps(1, cbs=Keep())
    out, row = learn.kept_output, [o for o in learn.history.rows if 'disc_loss' in o][-1]
    replaced, called = out.labels==1, (out.logits>0) & (out.labels>=0)
    hits = (called & replaced).sum().item()
    assert row['replaced']==pytest.approx(replaced.sum().item()/(out.labels>=0).sum().item(), rel=1e-5)
    assert row['disc_recall']==pytest.approx(hits/replaced.sum().item(), abs=1e-6)
    assert row['disc_precision']==pytest.approx(hits/max(called.sum().item(), 1), abs=1e-6)

class Poison(Callback):
    "Makes a gradient NaN at a step"
    def __init__(self, at): self.at = at
    def after_backward(self):
        if self.learn.n_updates==self.at: next(self.model.parameters()).grad[0, 0] = float('nan')

def test_a_difference_of_embeddings(made, tmp_path):
    "With gdes a run goes on to the same weights, and what fine-tuning takes of its checkpoint is the sum"
    gdes = dict(untied_generator=True, gdes=True)
    learn = learner(made, tmp_path, [SaveCheckpoints(tmp_path)], **gdes)
    save_hparams(learn.hp, tmp_path/'hparams.json')
    learn.fit_steps()
    own = learn.model.discriminator.get_input_embeddings()
    assert own.weight.abs().max()>0
    again = learner(made, **gdes)
    restore(again, tmp_path/'checkpoints/step-00000004')
    again.fit_steps()
    for a,b in zip(learn.model.parameters(), again.model.parameters(), strict=True): assert torch.equal(a, b)
    newest, step, _ = load_newest(tmp_path, learn.hp)
    state = complete_state(newest.discriminator)
    assert step==learn.n_updates and torch.equal(state['electra.embeddings.word_embeddings.weight'], own.total)

def test_nan_stops_with_the_last_good_state(made, tmp_path, capsys):
    learn = learner(made, tmp_path, [SaveCheckpoints(tmp_path), Poison(6)], max_skipped_updates=0)
    learn.fit_steps()
    assert learn.n_updates==7 and 'step 7' in learn.stopped and learn.stopped in capsys.readouterr().out
    assert all(p.isfinite().all() for p in learn.model.parameters())
    tensors, state = load_checkpoint(latest_checkpoint(tmp_path))
    assert state['step']==7
    for n,p in learn.model.named_parameters(): assert torch.equal(tensors[f'model/{n}'], p)
    again = learner(made)
    restore(again, latest_checkpoint(tmp_path))
    again.fit_steps()
    assert again.n_updates==12 and again.stopped is None

def test_weights_that_are_not_finite_are_not_saved(made, tmp_path):
    learn = learner(made, tmp_path, [SaveCheckpoints(tmp_path)])
    learn.fit_steps(4)
    with torch.no_grad(): next(learn.model.parameters())[0, 0] = float('inf')
    with pytest.warns(UserWarning, match='NOT SAVED at step 4: a weight is not finite'):
        learn.save_checkpoints.after_epoch()
    assert latest_checkpoint(tmp_path).name.endswith('4') and len(list((tmp_path/'checkpoints').iterdir()))==1

def test_tensorboard_by_name(made, tmp_path):
    run(made, tmp_path/'run', dict(log=['tensorboard']))
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    events = EventAccumulator(str(tmp_path/'run/tensorboard')).Reload()
    assert {'train_loss', 'lr_0', 'disc_auc'} <= set(events.Tags()['scalars'])
    assert {o.step for o in events.Scalars('train_loss')}==set(range(1, 13))

def test_wandb_by_name(made, tmp_path, monkeypatch):
    "The run is opened with the recipe as its configuration (a stand-in for the package, which is not a requirement)"
    import sys, types
    from importlib.machinery import ModuleSpec
    seen = {}
    wandb = types.ModuleType('wandb')
    wandb.__spec__ = ModuleSpec('wandb', None)
    wandb.init = lambda **kw: seen.update(kw)
    callback = types.ModuleType('fastai.callback.wandb')
    callback.WandbCallback = lambda **kw: seen.update(kw) or 'callback'
    monkeypatch.setitem(sys.modules, 'wandb', wandb)
    monkeypatch.setitem(sys.modules, 'fastai.callback.wandb', callback)
    assert loggers(['wandb'], tmp_path/'run', made[1])==['callback']
    assert seen['config']['mask_prob']==made[1].mask_prob and seen['name']=='run'

def test_missing_logger_says_what_to_install(made, tmp_path, monkeypatch):
    import sys
    monkeypatch.setitem(sys.modules, 'wandb', None)
    with pytest.raises(InputError, match='pip install wandb'): loggers(['wandb'], tmp_path, made[1])

@pytest.mark.parametrize('precision,dtype', [('bf16', torch.bfloat16), ('fp32', torch.float32)])
def test_bf16_trains(made, tmp_path, precision, dtype):
    "Both networks multiply in bfloat16, their weights stay in float32, and the losses fall"
    learn = run(made, tmp_path/'run', dict(precision=precision, cbs=[Dtypes()]), untied_generator=True)
    assert learn.dtypes.seen=={('generator', dtype), ('discriminator', dtype)}
    assert all(p.dtype==torch.float32 for p in learn.model.parameters())
    rows = read_history(tmp_path/'run/history.jsonl')
    train, held = [o for o in rows if 'loss' in o], [o['held_out'] for o in rows if 'held_out' in o]
    assert learn.n_updates==train[-1]['step']==12
    for k in ('loss', 'gen_loss', 'disc_loss'): assert train[-1][k]<.9*train[0][k], k
    assert held[-1]['gen_loss']<.95*held[0]['gen_loss']

def predictions(learn):
    "Logits and targets of masked held-out batches"
    with learn.no_bar(), learn.no_logging(): logits, targets = learn.get_preds()
    return logits, *(targets if isinstance(targets, tuple) else [targets])

ALL = {k: v for k,v in RUN_VARIANTS.items() if k!='gdes'} # which adds its difference to the embeddings that are saved

@pytest.mark.parametrize('name', ALL)
def test_variants_train_save_and_load(made, tmp_path, name):
    "Saved networks give the same logits as those that were trained, through the learner's own forward pass"
    few = dict(model_hparam_overrides=NARROW, num_train_steps=3, save_checkpoints_steps=3, num_warmup_steps=1)
    learn = run(made, tmp_path/'run', **few | dict(untied_generator=True) | ALL[name])
    found, hp = learn.held_out, learn.hp
    assert learn.n_updates==3 and ('disc_auc' in found)==hp.has_discriminator
    back = load_networks(tmp_path/'run', hp)
    for (n,a),b in zip(learn.model.named_parameters(), back.parameters(), strict=True): assert torch.equal(a, b), n
    (logits, *targets), (again, *same) = predictions(learn), predictions(electra_learner(learn.dls, hp, back))
    assert logits.isfinite().all() and logits.std()>0 and torch.equal(logits, again)
    assert all(map(torch.equal, targets, same)) and (targets[0]>0).any()
    if name=='disallow_correct': assert found['sampled_masked_lm_accuracy']==0

def test_a_validation_is_no_part_of_a_run(made, tmp_path):
    "`validate` outside of a fit writes no checkpoint and no line, and the run goes on as if it had not been"
    def files(): return files_of(tmp_path)
    torch.manual_seed(0)
    plain = learner(made)
    plain.fit_steps(6); plain.fit_steps()
    torch.manual_seed(0)
    learn = learner(made, tmp_path, [SaveCheckpoints(tmp_path)])
    learn.validate()
    assert not files() and not learn.history.rows
    learn.fit_steps(6)
    before, rows, evaluated = files(), list(learn.history.rows), learn.evaluated
    assert any('step-00000006' in o for o in before)
    learn.validate(); learn.get_preds()
    assert files()==before and learn.history.rows==rows and learn.evaluated==evaluated==6 and learn.n_updates==6
    learn.fit_steps()
    pairs = zip(learn.model.named_parameters(), plain.model.parameters(), strict=True)
    for (n,a),b in pairs: assert torch.equal(a, b), n
    assert [o['step'] for o in learn.history.rows]==[o['step'] for o in plain.history.rows]

def test_curves_take_a_hundredth_of_the_time(made, tmp_path, monkeypatch):
    "They are drawn after the first of three intervals and after the last: a drawing of .2 s bars others for 20 s"
    drawn = []
    monkeypatch.setattr(runs, 'plot_history', lambda *_: drawn.append((time.sleep(.2), time.monotonic())[1]))
    learn = learner(made, tmp_path, [SaveCheckpoints(tmp_path)])
    learn.fit_steps()
    assert len(drawn)==2 and learn.save_checkpoints.redraw-drawn[-1]==pytest.approx(20, rel=.5)

def test_a_panel_of_several_curves_names_them():
    fig = plot_history([dict(step=1, gen_loss=1., disc_loss=2., lr=.1)])
    assert [o.get_title() for o in fig.axes if o.get_legend()]==['generator loss, nats']
    plt.close(fig)

def test_curves_mark_where_sequences_become_longer(made, tmp_path):
    "As the recipe says that is given, or that a learner or a folder has; nothing is marked without"
    hp = preset('tiny', num_train_steps=100, length_schedule=((8, .5), (16, .2), (32, .3)))
    rows = [dict(step=k, gen_loss=1., lr=.1) for k in (1, 100)]
    (tmp_path/'history.jsonl').write_text(as_lines(rows))
    save_hparams(hp, tmp_path/'hparams.json')
    for args,marks in (((rows, None, hp), ['16', '32']), ((tmp_path,), ['16', '32']), ((rows,), [])):
        fig = plot_history(*args)
        ax = fig.axes[0]
        assert [o.get_text() for o in ax.texts]==marks
        assert [o.get_xdata()[0] for o in ax.lines if o.get_linestyle()==':']==[50, 70][:len(marks)]
        plt.close(fig)

def test_curves_of_whatever_has_a_history(tmp_path, made):
    rows = [dict(step=1, gen_loss=1., disc_loss=2., lr=.1), dict(step=2, gen_loss=.5, disc_loss=1., lr=.1)]
    (tmp_path/'history.jsonl').write_text(as_lines(rows))
    learn = learner(made)
    learn.history.rows = rows
    assert read_history(tmp_path)==read_history(tmp_path/'history.jsonl')==rows
    assert repr(learn.history)=='History: 2 rows until step 2, in memory'
    for o in (rows, tmp_path, str(tmp_path/'history.jsonl'), learn, learn.history, learn.jsonl_logger):
        fig = plot_history(o)
        assert fig.axes[0].lines[0].get_ydata().tolist()==[1., .5]
        plt.close(fig)

def test_a_run_that_has_returned_is_closed(made, tmp_path, monkeypatch):
    "Its lock is given back, so nothing that is done with its learner changes the folder"
    monkeypatch.chdir(tmp_path) # fastai's finder writes to the working folder
    learn = run(made, tmp_path/'run')
    before = files_of(tmp_path/'run')
    with only_writer(tmp_path/'run'), learn.no_bar():
        learn.validate(); learn.get_preds()
        learn.lr_find(show_plot=False, num_it=8, stop_div=False)
        learn.fit_one_cycle(1)
    assert files_of(tmp_path/'run')==before
    assert learn.n_updates==16 and learn.history.rows[-1]['step']==16

@pytest.mark.parametrize('cbs', [[], [Poison(9)]], ids=['finite', 'nan'])
def test_a_search_for_a_rate_leaves_no_trace_in_a_run(made, tmp_path, monkeypatch, cbs):
    "No checkpoint of a network that a rate of 10 has ruined, no line of history, no skipped update that counts"
    monkeypatch.chdir(tmp_path)
    learn = learner(made, tmp_path/'run', [SaveCheckpoints(tmp_path/'run'), *cbs], max_skipped_updates=0)
    learn.fit_steps(6)
    before, rows = files_of(tmp_path/'run'), list(learn.history.rows)
    usual = learn.skip_bad_gradients.usual.clone()
    with learn.no_bar(): learn.lr_find(show_plot=False, num_it=8, stop_div=False)
    assert files_of(tmp_path/'run')==before and learn.history.rows==rows and learn.n_updates==6
    assert learn.stopped is None and learn.skip_bad_gradients.skipped==0
    assert torch.equal(learn.skip_bad_gradients.usual, usual)
    remove(learn, Poison)
    learn.fit_steps(2)
    assert [int(o.name[5:]) for o in sorted(tmp_path.glob('run/checkpoints/*'))]==[4, 6, 8]

def no_sample(monkeypatch):
    def built(hp): raise AssertionError("the sample is built, which takes minutes")
    monkeypatch.setattr(pretrain, 'sample_examples', built)

def test_a_run_of_other_examples_is_refused_before_the_sample_is_built(made, tmp_path, monkeypatch):
    d, hp = made
    no_sample(monkeypatch)
    out = tmp_path/'run'
    run(made, out, num_train_steps=4)
    before, longer = files_of(out), replace(hp, num_train_steps=8)
    for act in (lambda: run_pretraining(None, out, longer, extend=True, device='cpu'), lambda: evaluate_run(out),
                lambda: run_pretraining(None, out, longer, init='tiny')):
        with pytest.raises(InputError, match='was trained on tales.txt, not on the embedded sample'): act()
    facts = json.loads((out/'hparams.json').read_text())
    facts['run']['data']['seed'] = 7
    (out/'hparams.json').write_text(json.dumps(facts))
    with pytest.raises(InputError, match='other examples: seed is 7 there and 0 here'):
        run_pretraining(d/'examples', out, longer, extend=True, device='cpu')
    del facts['run']['data']['seed'] # as if an older version had written it
    (out/'hparams.json').write_text(json.dumps(facts))
    with pytest.raises(InputError, match='other examples: seed is None there and 0 here'):
        run_pretraining(d/'examples', out, longer, extend=True, device='cpu')
    facts['run']['data']['seed'] = 0
    facts['run']['data']['sources'][0]['name'] = 'train.txt' # as if it were a run of the sample
    (out/'hparams.json').write_text(json.dumps(facts))
    with pytest.raises(InputError, match='mask_prob is 0.3, asked for 0.2'):
        run_pretraining(None, out, replace(longer, mask_prob=.2), extend=True, device='cpu')
    with pytest.raises(InputError, match='needs a larger `steps`, not 3'):
        run_pretraining(None, out, replace(hp, num_train_steps=3), extend=True, device='cpu')
    with pytest.raises(AssertionError, match='sample is built'):
        run_pretraining(None, out, longer, extend=True, device='cpu')
    (out/'hparams.json').write_bytes(before['hparams.json'])
    assert files_of(out)==before

def test_the_parts_of_a_batch_are_a_condition_if_there_are_several(made):
    "A checkpoint from before there were parts does not say how many"
    assert 'parts' not in resume_conditions(learner(made))
    assert resume_conditions(learner(made, grad_accumulation=2))['parts']==2

def test_a_gpu_promises_less_unless_it_is_asked(made, tmp_path, monkeypatch, capsys):
    "Sums on a GPU have no fixed order, so a continued run says that it is not bit-exact"
    one = SimpleNamespace(device=torch.device('cuda', 0))
    net = SimpleNamespace(parameters=lambda: iter([one]), modules=list)
    monkeypatch.setattr(torch.cuda, 'get_device_name', lambda o: 'a GPU')
    learn = SimpleNamespace(model=net, hp=preset('tiny'))
    assert resume_conditions(learn)['deterministic'] is False
    torch.use_deterministic_algorithms(True)
    try: assert resume_conditions(learn)['deterministic'] is True
    finally: torch.use_deterministic_algorithms(False)
    was = resume_conditions
    for asked in (False, True):
        monkeypatch.setattr(runs, 'resume_conditions', lambda o: was(o) | dict(deterministic=asked))
        run(made, tmp_path/f'{asked}', num_train_steps=4)
        capsys.readouterr()
        run(made, tmp_path/f'{asked}', dict(extend=True))
        said = capsys.readouterr().out
        assert ('not bit-exact' in said and 'sums have no fixed order' in said)==(not asked), said

BASE_RATE = dict(disc_auc=.5, auc_unigram=.5, called_replaced=0., gen_entropy=3., masked_lm_accuracy=.2)

def test_advice_leaves_out_what_a_recipe_has():
    def advice(*args, **kw): return diagnose([BASE_RATE]*3, .6, untried(preset(*args, **kw)))[0]
    found = advice('small')
    easier = 'unigram_noise 0.5, max_grad_norm null'
    assert f'initializer_range above 0.02, a length_schedule, {easier}, more than 1000000 steps' in found
    assert 'initializer_range' not in advice('small', model_hparam_overrides=dict(initializer_range=.1))
    assert 'length_schedule' not in advice('small', length_schedule=((64, .5), (128, .5)))
    assert advice('tiny').endswith('try more than 3000 steps or another learning_rate than 0.002.')

@pytest.mark.parametrize('best,told', [(.55, True), (.57, False)])
def test_the_base_rate_is_reported_where_no_evaluation_has_left_it(best, told):
    "At the AUC of `all three as in the paper` in benchmarks/plateau.py, and not of a discriminator on its way"
    evals = [dict(disc_auc=.5, auc_unigram=o, called_replaced=0.) for o in (.5, best)]
    assert any('has not left the base rate' in o for o in diagnose(evals, .6, 'more steps'))==told

def told(monitor, capsys, step, held_out):
    "What is printed after an evaluation"
    monitor.learn = SimpleNamespace(n_updates=step, held_out=held_out, in_fit=True)
    monitor.after_validate()
    return capsys.readouterr().out

@pytest.mark.parametrize('monitor,steps', [((6000, 'more steps'), {2999: 0, 3000: 1, 3600: 0}),
                                           ((1000, 'more steps', .8), {700: 0, 800: 1})], ids=['half', 'short'])
def test_advice_is_printed_once_and_not_early(capsys, monitor, steps):
    "Not in the first half of a run, nor while its sequences are short"
    monitor = TrainingMonitor(*monitor)
    for step,n in steps.items(): assert told(monitor, capsys, step, BASE_RATE).count('has not left the base rate')==n

@pytest.mark.parametrize('cased', [False, True])
@pytest.mark.parametrize('given', [False, True]) # a tokenizer of electra_vocab, one that came with weights
def test_a_case_that_the_vocabulary_does_not_have_is_refused(made, tmp_path, cased, given):
    "And what it has is written down, whatever is the usual"
    d, hp = made
    tok = wordpiece(load_tokenizer(d/'vocab').get_vocab(), lower_case=not cased)
    if given: tok = PreTrainedTokenizerFast(tokenizer_object=tok.backend_tokenizer, **tok.special_tokens_map)
    save_tokenizer(tok, tmp_path/'vocab')
    examples = load_examples(build_examples(d/'tales.txt', tmp_path/'vocab', tmp_path/'examples', max_length=16))
    wrong, right, kind = (True, False, 'cased') if cased else (False, True, 'lower-cased')
    with pytest.raises(InputError, match=f'`do_lower_case` is {str(wrong).lower()}, but .* is {kind}; give '):
        match_examples(replace(hp, do_lower_case=wrong), examples, ['do_lower_case'])
    assert match_examples(replace(hp, do_lower_case=right), examples, ['do_lower_case']).do_lower_case==right
    assert match_examples(replace(hp, do_lower_case=wrong), examples).do_lower_case==right

def test_a_run_of_a_cased_vocabulary_says_so(made, tmp_path, monkeypatch):
    "One of a version that did not goes on"
    d, hp = made
    no_curves(monkeypatch)
    save_tokenizer(wordpiece(load_tokenizer(d/'vocab').get_vocab(), lower_case=False), tmp_path/'vocab')
    folder = build_examples(d/'tales.txt', tmp_path/'vocab', tmp_path/'examples', max_length=16)
    def run(): return run_pretraining(folder, tmp_path/'run', with_steps(hp, 2), device='cpu')
    run()
    file = tmp_path/'run/hparams.json'
    assert (said := json.loads(file.read_text()))['do_lower_case'] is False
    file.write_text(json.dumps(said | dict(do_lower_case=True)))
    assert run().hp.do_lower_case is False
    def settled(out): # with its own file as the recipe, which names every value
        return PretrainRequest(folder, out, hparams=tmp_path/'copy.json', device='cpu').settle()
    file.write_text(json.dumps(said | dict(do_lower_case=True)))
    (tmp_path/'copy.json').write_text(file.read_text())
    for out in (tmp_path/'run', tmp_path/'new'): assert 'do_lower_case' not in settled(out).given
    values = asdict(preset('modern', vocab_size=hp.vocab_size, max_seq_length=16, length_schedule=()))
    (tmp_path/'copy.json').write_text(json.dumps(values | dict(run={})))
    assert settled(tmp_path/'modern').hp.body['model_type']=='modernbert'

def test_fractions_of_lengths_are_from_0_to_1():
    for wrong in ([[16, -.5], [32, 1.5]], [[16, float('nan')], [32, .5]]):
        with pytest.raises(InputError, match='has to be from 0 to 1'): preset('tiny', length_schedule=wrong)

def test_advice_with_another_number_is_the_same_advice(capsys):
    monitor, now = TrainingMonitor(6000, 'more steps'), BASE_RATE | dict(disc_auc=.7, auc_unigram=.8)
    said = [told(monitor, capsys, 3000, now | dict(called_replaced=o)) for o in (.95, .96, .97)]
    assert ''.join(said).count('of the tokens replaced')==1

def test_an_evaluation_without_a_number_does_not_silence_the_advice():
    "An area is NaN where held-out text has one class, or a score is not finite"
    evals = [dict(disc_auc=.5, auc_unigram=o, called_replaced=0.) for o in (float('nan'), .8, .51)]
    assert 'has collapsed' in diagnose(evals, .6, '')[0]
    assert diagnose(evals[:1], .6, '')==[]

def test_timing_a_long_run_leaves_its_random_numbers_alone(made, tmp_path, monkeypatch):
    "How many steps are timed depends on the machine"
    body = made[1].model_hparam_overrides | dict(hidden_dropout_prob=.1)
    monkeypatch.setattr(runs, 'LONG', 4)
    def trained(n):
        def timed(*args, **kw):
            torch.rand(n)
            return .1, .1
        monkeypatch.setattr(runs, 'time_steps', timed)
        return run(made, tmp_path/str(n), num_train_steps=4, model_hparam_overrides=body).model
    for p,q in zip(trained(5).parameters(), trained(6).parameters()): assert torch.equal(p, q)

def test_a_long_run_is_timed_in_its_precision(made, tmp_path, monkeypatch):
    "Not compiled, which takes a minute; a line says so"
    timed = []
    monkeypatch.setattr(runs, 'LONG', 4)
    monkeypatch.setattr(runs, 'time_steps', lambda hp, dls, cbs, objective: timed.append(len(cbs)) or (9000., 0.))
    for o in (None, 'bf16'): learn = run(made, tmp_path/f'{o}', dict(precision=o), num_train_steps=4)
    assert timed==[0, 1] and 'on this CPU: 4 steps take about 10.0 hours' in runs._duration(learn)
    learn.compile_step = True
    assert 'on this CPU before it is compiled: 4 steps take about 10.0 hours' in runs._duration(learn)

def test_a_generator_that_knows_word_frequencies_only_is_said():
    now = dict(gen_entropy=3., masked_lm_accuracy=.2)
    for below,done,said in ((-.1, .6, 1), (-.1, .4, 0), (.1, .6, 0)):
        assert len(diagnose([now | dict(below_unigram=below)]*3, done, ''))==said
    bad = dict(disc_auc=.5, auc_unigram=.5, called_replaced=0.)
    for done,said in ((.7, 0), (.8, 2)): # not while sequences are shorter than held-out ones
        assert len(diagnose([now | bad | dict(below_unigram=-.1)]*3, done, '', pretrain.late(preset('tiny'))))==said

def test_no_advice_on_networks_that_are_only_timed(made, monkeypatch, capsys):
    from electra_nbdev.pretraining import monitor
    monkeypatch.setattr(monitor, 'YOUNG', 0)
    monkeypatch.setattr(monitor, 'diagnose', lambda *args: ['Some advice'])
    d, hp = made
    train = load_examples(d/'examples', hp)
    for advice,run in ((False, lambda: pretrain.time_steps(hp, pretrain_dls(train, train, hp, 'cpu'), n=4)),
                       (True, lambda: learner(made).fit_steps(2))):
        run()
        assert ('Some advice' in capsys.readouterr().out)==advice

def test_a_loss_of_zero_is_said():
    now = dict(gen_entropy=3., masked_lm_accuracy=.2, below_unigram=1., gen_loss=2.)
    for disc,said in ((0., ['disc_loss is exactly 0']), (.3, [])):
        found = diagnose([now | dict(disc_loss=disc)], .1, '')
        assert len(found)==len(said) and all(a in b for a,b in zip(said, found))

def test_a_loader_that_starves_a_run_is_said(made, monkeypatch, capsys):
    from electra_nbdev.pretraining import monitor
    monkeypatch.setattr(monitor, 'YOUNG', 1)
    learn = learner(made)
    one = type(learn.dls.train).__iter__
    def slow(self):
        for o in one(self):
            time.sleep(.5)
            yield o
    monkeypatch.setattr(type(learn.dls.train), '__iter__', slow)
    learn.fit_steps(2)
    assert learn.training_monitor.waited>.5
    assert 'Training waits for batches' in capsys.readouterr().out

@pytest.mark.parametrize('steps,said', [(2, False), (3, True)])
def test_a_warm_up_of_more_than_half_is_said(made, tmp_path, capsys, steps, said):
    run(made, tmp_path, num_train_steps=4, num_warmup_steps=steps)
    assert ('steps is more than half of the 4 steps: the rate' in capsys.readouterr().out)==said

def test_padding_is_not_among_the_tokens_of_highest_probability(made, monkeypatch):
    shown, learn = [], learner(made)
    monkeypatch.setattr(pretrain, 'display_df', shown.append)
    learn.show_results(max_n=8)
    assert (learn.masked.input_ids==learn.tokenizer.pad_token_id).any() and len(shown[0])==8
    assert not shown[0]['highest P(replaced)'].str.contains('PAD').any()

def test_precision_is_said(made, tmp_path, capsys):
    "Unless it is the usual one"
    for precision,said in ((None, 'parameters on cpu\n'), ('bf16', 'parameters on cpu in bf16\n')):
        run(made, tmp_path/f'{precision}', dict(precision=precision), num_train_steps=4)
        assert said in capsys.readouterr().out

def test_a_step_without_padding_takes_its_own_time(made, tmp_path):
    "Batches of `length_window` are as wide as their longest example; a step is timed, not computed from a full width"
    d, hp = made
    build_examples(d/'tales.txt', d/'vocab', tmp_path/'wide', max_length=128)
    hp = replace(hp, max_seq_length=128, length_window=8, num_eval_steps=1)
    train = load_examples(tmp_path/'wide', hp)
    dls = pretrain_dls(train, train, hp, 'cpu')
    start = time.perf_counter()
    _, (step, _) = pretrain._timed_fit(6, hp, dls, ())
    assert 0<6*step<time.perf_counter()-start

class Slow(Callback):
    "Waits so long at every batch that nothing else counts"
    def before_batch(self): time.sleep(.1)

@pytest.mark.timing
def test_updates_and_held_out_batches_are_timed_apart(made):
    "However many batches an evaluation has"
    d, hp = made
    train = load_examples(d/'examples', hp)
    for n in (1, 100):
        few = replace(hp, num_eval_steps=n, eval_batch_size=1)
        step, evaluated = pretrain.time_steps(few, pretrain_dls(train, train, few, 'cpu'), [Slow()], n=6)
        assert .1<step<.25 and .1<evaluated<.25

class Compiles(Callback):
    "Takes two seconds for networks and a length that it has not met, as compiling does"
    order, masked_step, known = 50, None, () # once sequences have been split
    def before_batch(self):
        met = self.model, self.training, self.xb[0].shape[1]
        if met not in self.known: time.sleep(2)
        self.known = *self.known, met

@pytest.mark.parametrize('n', [6, None])
def test_what_compiling_takes_is_not_a_part_of_each_step(made, n):
    "Nor of a length that a few steps do not reach; as many steps are timed as fit without it"
    d, hp = made
    hp = replace(hp, length_schedule=((8, .8), (16, .2)), num_eval_steps=1)
    train, compiles = load_examples(d/'examples', hp), Compiles()
    step, evaluated = pretrain.time_steps(hp, pretrain_dls(train, train, hp, 'cpu'), [compiles], n)
    assert step<.2 and evaluated<.2 and (n or len(compiles.known)>20)

@pytest.mark.timing
@pytest.mark.parametrize('n', [1, 30])
def test_as_many_steps_as_fit(made, n, monkeypatch):
    "The time that they and their evaluations then take is the time that was given, within 15 %; one of three tries"
    d, hp = made
    train = load_examples(d/'examples', hp)
    hp = replace(hp, num_eval_steps=n, eval_batch_size=1)
    dls = pretrain_dls(train, train, hp, 'cpu')
    def seconds():
        steps = pretrain.steps_within(.2, hp, dls, [Slow()])
        learn = electra_learner(dls, with_steps(hp, steps), cbs=[Slow()])
        start = time.perf_counter()
        with learn.no_bar(), learn.no_logging(): learn.fit_steps()
        return time.perf_counter()-start
    assert any(.85*12<seconds()<1.15*12 for _ in range(3))

def test_a_minute_has_sixty_seconds(made, monkeypatch):
    monkeypatch.setattr(pretrain, 'time_steps', lambda *args, **kwargs: (1., 0.))
    learn = learner(made)
    assert pretrain.steps_within(2, learn.hp, learn.dls)==120

def saved(out): return json.loads((out/'hparams.json').read_text())['run'].get('precision')

@pytest.mark.parametrize('secs,chosen', [(.5, 'bf16'), (.94, 'bf16'), (.97, 'fp32'), (1.5, 'fp32')])
def test_auto_takes_the_faster_precision(made, tmp_path, monkeypatch, capsys, secs, chosen):
    "bf16 if it is 5 % faster; the choice is said, times `--minutes`, and stays with the run, whatever is faster later"
    names, timed = {0: 'fp32', 1: 'bf16'}, []
    monkeypatch.setattr(pretrain, '_timed_fit', lambda n, hp, dls, cbs, objective: (None, ((secs if cbs else 1.), 9.)))
    def within(minutes, hp, dls, cbs, objective, of_length): return timed.append(names[len(cbs)]) or 4
    monkeypatch.setattr(runs, 'steps_within', within)
    learn = run(made, tmp_path/'run', dict(minutes=1, precision='auto'))
    line = f"A step takes 1,000 ms in fp32 and {1000*secs:,.0f} ms in bf16: training in {chosen}\n"
    assert line in capsys.readouterr().out and timed==[chosen]
    assert saved(tmp_path/'run')==resume_conditions(learn)['precision']==chosen
    def again(*args): raise AssertionError("timed again")
    monkeypatch.setattr(pretrain, 'faster_precision', again)
    longer = made[0], replace(learn.hp, num_train_steps=8)
    learn = run(longer, tmp_path/'run', dict(extend=True, precision='auto'))
    assert learn.n_updates==8 and saved(tmp_path/'run')==resume_conditions(learn)['precision']==chosen
    assert 'not bit-exact' not in capsys.readouterr().out

def test_timing_both_precisions_leaves_no_trace(made, tmp_path, monkeypatch):
    "Weights, moments, random generators, place in the data and history are those of a run that was told its precision"
    body, timed = dict(hidden_dropout_prob=.1, max_position_embeddings=16), []
    was = pretrain.faster_precision
    monkeypatch.setattr(pretrain, 'faster_precision', lambda *args: timed.append(was(*args)) or 'bf16')
    found = []
    for name in ('auto', 'bf16'):
        run(made, tmp_path/name, dict(precision=name), model_hparam_overrides=body)
        tensors, state = load_checkpoint(latest_checkpoint(tmp_path/name))
        rows = [{k: v for k,v in o.items() if k!='tokens_per_s'} for o in read_history(tmp_path/name/'history.jsonl')]
        state['callbacks']['JSONLLogger'].pop('seconds')
        found.append((tensors, state, rows))
    (a, *rest), (b, *others) = found
    assert len(timed)==1 and timed[0] in ('fp32', 'bf16')
    assert rest==others and a.keys()==b.keys() and all(torch.equal(a[k], b[k]) for k in a)
    assert saved(tmp_path/'bf16') is None

def test_judged_alike_at_any_temperature(made):
    "The recipe's temperature is for training; training goes on with it"
    torch.manual_seed(0)
    learn = learner(made)
    hot = learner(made, temperature=3.)
    hot.model.load_state_dict(learn.model.state_dict())
    for o in (learn, hot):
        with o.no_bar(), o.no_logging(): o.validate()
    assert hot.held_out==learn.held_out and hot.model.config.arguments['temperature']==3

def test_initial_weights():
    """Every weight of both networks comes from the official family

    n is at least 4,096, so 4 % is over three standard errors."""
    model = build_networks(preset('small'))
    for name,p in model.named_parameters():
        if name.endswith('LayerNorm.weight'): assert (p==1).all(), name
        elif name.endswith('bias'): assert (p==0).all(), name
        elif 'embeddings_project' in name or 'dense_prediction' in name:
            limit = (6/sum(p.shape))**.5
            assert p.abs().max()<=limit and (p.numel()<4096 or abs(p.std()/(limit/3**.5)-1)<.04), name
        else: assert p.abs().max()<=.04 and abs(p.std()/.0176-1)<.04, name

def test_same_seed_same_weights():
    a, b, c = (build_networks(preset('tiny', seed=o)) for o in (1, 1, 2))
    assert all(torch.equal(x, y) for x,y in zip(a.parameters(), b.parameters()))
    assert not torch.equal(next(a.parameters()), next(c.parameters()))

def test_three_of_the_weights_that_do_not_fit_are_named():
    with pytest.raises(InputError) as e: load_weights({o: torch.zeros(2) for o in 'abcd'}, {}, 'this file')
    named = '; '.join(f'{o} absent, the recipe has [2]' for o in 'abc')
    assert str(e.value)==f'this file does not fit the recipe: {named}'

def test_networks_without_a_checkpoint_are_not_written_over(made, tmp_path):
    run(made, tmp_path/'run')
    shutil.rmtree(tmp_path/'run/checkpoints')
    def files(): return files_of(tmp_path/'run') | {'.lock': b''}
    was = files()
    with pytest.raises(InputError, match='no checkpoint to continue from; begin a new run with `init`'):
        run(made, tmp_path/'run')
    assert files()==was

def test_an_evaluation_needs_no_batch_of_training(made, tmp_path):
    "Two documents in a hundred are held out, fewer than a batch of training has examples"
    held_out = made[0]/'examples/held_out'
    assert len(load_examples(held_out))<64
    run(made, tmp_path/'run', num_train_steps=2, train_batch_size=64)
    assert evaluate_run(tmp_path/'run', held_out, 'cpu')['below_unigram']!=0

def test_the_baseline_gives_no_probability_to_what_is_never_predicted(made):
    "Where rows are short, [CLS] and [SEP] are a large part of the counts"
    learn = learner(made)
    probs = learn.held_out_metrics.unigram.neg().exp()
    special = [*learn.held_out_metrics.special_ids]
    assert probs[special].sum()<1e-6 and abs(float(probs.sum())-1)<1e-4

def test_a_part_of_the_held_out_batches_is_told(made, tmp_path, capsys):
    run(made, tmp_path/'run', num_train_steps=2, num_eval_steps=1, eval_batch_size=1)
    capsys.readouterr()
    evaluate_run(tmp_path/'run', made[0]/'examples/held_out', 'cpu')
    n = len(load_examples(made[0]/'examples/held_out'))
    assert f'Metrics are of the first 1 of {n} held-out batches' in capsys.readouterr().out

def test_the_last_evaluation_takes_all_that_is_asked_for(made):
    learn, read = learner(made, num_train_steps=9, save_checkpoints_steps=8, num_eval_steps=3, eval_batch_size=1), []
    class Count(Callback):
        def after_validate(self): read.append(self.dls.valid.n_batches)
    with learn.no_bar(), learn.no_logging(): learn.fit_steps(cbs=Count())
    assert learn.n_updates==9 and read==[2, 3]

def test_a_run_that_is_watched_has_one_progress_bar(made, monkeypatch):
    "That of the first process"
    shown = []
    monkeypatch.setattr(pretrain, 'watched', lambda: True)
    monkeypatch.setattr(pretrain, 'progress_bars', lambda _, on: (shown.append(bool(on)), nullcontext())[1])
    for n in (0, 1):
        monkeypatch.setattr(pretrain, 'rank', lambda n=n: n)
        learner(made).fit_steps(1)
    assert shown==[True, False]

def test_positions_of_longer_sequences_begin_as_copies(made):
    "In `tiny`: before the first batch of 16 tokens, and at the end those that no sequence has reached"
    learn, starts = learner(made, num_train_steps=4, length_schedule=((8, .5), (16, .5))), []
    positions = learn.model.discriminator.electra.embeddings.position_embeddings.weight
    def copied(n): return torch.equal(positions[n:2*n], positions[:n])
    class Look(Callback):
        run_valid = False
        def after_loss(self): starts.append(copied(8))
    learn.fit_steps(cbs=Look())
    assert starts==[False, False, True, False] and copied(16)
    learn = learner(made, num_train_steps=4, length_schedule=((8, .5), (16, .5)), copy_positions=False)
    learn.fit_steps()
    positions = learn.model.discriminator.electra.embeddings.position_embeddings.weight
    assert not copied(16)

def test_only_the_smallest_networks_get_one_thread(monkeypatch):
    "And not where the user has said how many"
    n = [2]
    monkeypatch.setattr(torch, 'get_num_threads', lambda: n[-1])
    monkeypatch.setattr(torch, 'set_num_threads', n.append)
    monkeypatch.delenv('OMP_NUM_THREADS', raising=False)
    def threads(hp):
        with pretrain.spare_threads(hp): return torch.get_num_threads()
    wide = preset('tiny').model_hparam_overrides | dict(hidden_size=256)
    found = [threads(o) for o in (preset('small'), preset('tiny', model_hparam_overrides=wide), preset('modern'))]
    monkeypatch.setenv('OMP_NUM_THREADS', '2')
    assert (*found, threads(preset('tiny')))==(2, 2, 1, 2) and torch.get_num_threads()==2

def test_a_run_with_a_masking_of_ones_own_goes_on(made, tmp_path):
    "Its recipe is the one that was given"
    masks = OwnMask(special_token_ids(load_tokenizer(made[0]/'vocab')), .25)
    for n in (2, 2): assert run(made, tmp_path, dict(cbs=[masks]), num_train_steps=n).n_updates==2

def test_a_run_leaves_threads_and_random_numbers_as_they_were(made, tmp_path, monkeypatch):
    monkeypatch.delenv('OMP_NUM_THREADS', raising=False)
    n = torch.get_num_threads()
    def drawn(): return torch.rand(()).item(), np.random.rand(), random.random()
    try:
        torch.set_num_threads(2)
        set_seed(6)
        want = drawn()
        set_seed(6)
        run(made, tmp_path, num_train_steps=2)
        assert drawn()==want and torch.get_num_threads()==2
    finally: torch.set_num_threads(n)

def test_a_run_from_python_has_what_one_by_command_has(made, tmp_path, monkeypatch):
    "One thread for the smallest networks, and bits per byte of held-out text"
    taken = []
    monkeypatch.setattr(torch, 'set_num_threads', taken.append)
    monkeypatch.delenv('OMP_NUM_THREADS', raising=False)
    run(made, tmp_path, num_train_steps=2)
    found = [o['domain'] for o in read_history(tmp_path/'history.jsonl') if 'domain' in o]
    assert taken[0]==1 and found[-1]['after']['bits_per_byte']>0

def test_an_evaluation_reads_a_tenth_of_its_own_interval(made):
    "And not of all updates before it"
    learn = learner(made, num_train_steps=90, save_checkpoints_steps=30, num_eval_steps=20, eval_batch_size=1)
    learn.evaluation_interval.before_fit()
    for done in (0, 30):
        learn.n_updates = learn.evaluated = done
        learn.evaluation_interval.before_train()
        assert learn.dls.valid.n_batches==3

def test_what_is_kept_stays_when_a_run_gets_longer(made, tmp_path, capsys):
    "And the same command continues, if that was interrupted"
    keep = dict(save_checkpoints_steps=2, keep_checkpoints_at=(.5,), keep_checkpoint_max=1)
    for n in (8, 12, 16, 16):
        run(made, tmp_path/'run', dict(extend=n>8), num_train_steps=n, **keep)
        assert sorted(int(o.name[5:]) for o in (tmp_path/'run/checkpoints').iterdir())==[4, n]
    assert 'Finished already at step 16' in capsys.readouterr().out

@pytest.mark.parametrize('width', [.4, .3])
def test_a_generator_whose_heads_do_not_divide_it(width):
    with pytest.raises(InputError, match='gives each of its heads') as why:
        build_networks(preset('base', generator_hidden_size=width))
    fits = float(str(why.value).split('; ')[1].split()[0])
    from electra_nbdev.method.generator import generator_config
    from electra_nbdev.networks.build import body_config
    assert generator_config(body_config(preset('base')), fits).hidden_size%64==0

def test_begin_with_a_run_that_has_no_masked_language_model(made, tmp_path):
    run(made, tmp_path/'uniform', num_train_steps=2, untied_generator=True, uniform_generator=True)
    origin = open_origin(tmp_path/'uniform')
    longer = replace(origin.recipe(hparams=dict(uniform_generator=False)), num_train_steps=2, num_warmup_steps=1)
    learn = run_pretraining(made[0]/'examples', tmp_path/'next', longer, init=origin, device='cpu')
    assert learn.n_updates==2 and (tmp_path/'next/generator').is_dir()

def test_only_to_evaluate_is_another_command():
    with pytest.raises(InputError, match='electra_evaluate'): preset('tiny', do_train=False, do_eval=True)

def test_a_preset_is_for_the_examples_that_it_meets(made, tmp_path):
    "What its user named stays, and is refused where examples have another; a recipe made otherwise is as it is"
    d, _ = made
    train, held = (load_examples(d/o) for o in ('examples', 'examples/held_out'))
    size, length = train.recipe['vocab_size'], train.recipe['max_length']
    hp = preset('tiny', num_train_steps=4, num_eval_steps=1, model_hparam_overrides=dict(hidden_size=32))
    assert (hp.vocab_size, hp.num_warmup_steps)==(4000, 1)!=(size, 300) # warmup belongs to the steps
    learn = electra_learner(pretrain_dls(train, held, hp, 'cpu'), hp)
    assert (learn.hp.vocab_size, learn.hp.max_seq_length, learn.hp.num_train_steps)==(size, length, 4)
    run = run_pretraining(d/'examples', tmp_path/'run', hp, device='cpu')
    assert (run.hp.vocab_size, run.hp.max_seq_length, run.n_updates)==(size, length, 4)
    assert run_pretraining(d/'examples', tmp_path/'run', hp, device='cpu').n_updates==4 # it goes on, finished
    for wrong in (preset('tiny', vocab_size=4000), replace(hp, seed=1), PretrainHParams()):
        with pytest.raises(InputError, match='have vocab_size'): pretrain_dls(train, held, wrong, 'cpu')
        with pytest.raises(InputError, match='have vocab_size'): run_pretraining(d/'examples', tmp_path/'no', wrong)
    assert not (tmp_path/'no').exists()

def test_what_cannot_make_a_learner_is_refused_by_name(made, tmp_path):
    d, hp = made
    train, held = (load_examples(d/o) for o in ('examples', 'examples/held_out'))
    dls = pretrain_dls(train, held, hp, 'cpu')
    (tmp_path/'file').write_text('')
    wrong = {'`dls` is of type Examples': (train, 'tiny'), '`recipe` is of type dict': (dls, dict(num_train_steps=3))}
    for words,given in wrong.items():
        with pytest.raises(InputError, match=words): electra_learner(*given)
    with pytest.raises(InputError, match=r"give it in the recipe: preset\('tiny', num_train_steps=...\)"):
        electra_learner(dls, 'tiny', num_train_steps=3)
    with pytest.raises(InputError, match='a file; give a folder'): electra_learner(dls, hp, out=tmp_path/'file')
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match='device'): pretrain_dls(train, held, hp, 'cuda')

def test_a_preset_has_the_batches_of_its_loaders_and_its_folder_is_made(made, tmp_path, capsys):
    d, hp = made
    train, held = (load_examples(d/o) for o in ('examples', 'examples/held_out'))
    learn = electra_learner(pretrain.PretrainDataLoaders.from_examples(train, held, 6, 4, device='cpu'),
                            preset('tiny', num_train_steps=2, num_eval_steps=1, iterations_per_loop=1),
                            out=tmp_path/'a/b')
    assert (learn.hp.train_batch_size, learn.hp.eval_batch_size)==(6, 4)
    other = electra_learner(learn.dls, preset('tiny', train_batch_size=64, num_eval_steps=1))
    assert other.hp.train_batch_size==6
    assert 'train_batch_size 6, as the loaders have it, in place of 64' in capsys.readouterr().out
    with learn.no_bar(): learn.fit_steps()
    assert read_history(tmp_path/'a/b/history.jsonl')
    assert learn.hp.length_schedule and 'Total params' in str(learn.summary())
    one, two = learn.predict('the cat'), learn.predict(['the cat', 'a dog'])
    assert two[0]==one and len(two)==2

def test_a_learner_predicts_what_electra_score_says_of_its_weights(made, tmp_path):
    "P(replaced) is corrected for the masking rate; a text that is longer than what is read is refused, not cut"
    d, hp = made
    train, held = (load_examples(d/o) for o in ('examples', 'examples/held_out'))
    learn = electra_learner(pretrain_dls(train, held, hp, 'cpu'), hp)
    learn.save_pretrained(tmp_path)
    scorer, text = load_scorer(tmp_path/'discriminator', device='cpu'), 'the king saw the sea .'
    assert hp.mask_prob==scorer.mask_prob==.3
    want = replaced_probs(scorer, words_of(scorer.tokenizer, text)[0]).tolist()
    assert [p for _,p in learn.predict(text)]==pytest.approx(want, abs=1e-6)
    assert len(learn.predict(' '.join(['the']*14)))==14 # of 16, two are special
    with pytest.raises(InputError, match='`text` has 15 tokens.*at most 14.*electra_score'):
        learn.predict([text, ' '.join(['the']*15)])
    energies = electra_learner(learn.dls, replace(hp, **ELECTRIC))
    ids = torch.tensor([energies.tokenizer.encode(text)])
    with torch.no_grad(): want = energies.model.eval().text_logits(ids, None, ids*0)[0,1:-1].tolist()
    assert [p for _,p in energies.predict(text)]==pytest.approx(want, abs=1e-6)
@pytest.mark.parametrize('change', [dict(seed=7), dict(length_window=3), dict(seed=7, length_window=3)])
def test_loaders_draw_the_batches_of_the_recipe(made, change):
    "As those of the command do, whether a preset or a whole recipe is given"
    d, hp = made
    train, held = (load_examples(d/o) for o in ('examples', 'examples/held_out'))
    def batches(dls, recipe):
        electra_learner(dls, recipe)
        return [dls.train.batch(i)[0] for i in range(4)]
    def loaders(**how): return pretrain.PretrainDataLoaders.from_examples(train, held, 8, device='cpu', **how)
    for recipe in (replace(hp, **change), preset('tiny', length_schedule=(), train_batch_size=8, **change)):
        of_command = batches(pretrain_dls(train, held, recipe, 'cpu'), recipe)
        for a,b in zip(batches(loaders(), recipe), of_command, strict=True): assert torch.equal(a, b)

def test_what_the_loaders_were_given_stays(made, capsys):
    d, _ = made
    examples = [load_examples(d/o) for o in ('examples', 'examples/held_out')]
    def loaders(**how): return pretrain.PretrainDataLoaders.from_examples(*examples, 8, device='cpu', **how)
    dls = loaders(seed=5)
    learn = electra_learner(dls, preset('tiny', length_schedule=(), seed=7, length_window=3))
    assert (dls.train.seed, dls.train.window, learn.hp.seed)==(5, 3, 5)
    assert 'seed 5, as the loaders have it, in place of 7' in capsys.readouterr().out
    with pytest.raises(InputError, match='length_window'): electra_learner(loaders(window=3), 'tiny')
    with pytest.raises(InputError, match='grad_accumulation'):
        electra_learner(loaders(), preset('tiny', grad_accumulation=3))

def test_a_whole_recipe_says_what_its_loaders_draw(made, capsys):
    "What is saved beside the networks is what they were trained with; the difference is told"
    d, hp = made[0], replace(made[1])
    examples = [load_examples(d/o) for o in ('examples', 'examples/held_out')]
    assert hp.given is None and (hp.train_batch_size, hp.eval_batch_size, hp.seed)==(8, 8, 0)
    def made_of(*sizes, **how):
        dls = pretrain.PretrainDataLoaders.from_examples(*examples, *sizes, device='cpu', **how)
        return electra_learner(dls, hp)
    learn = made_of(4, 8, seed=5)
    said = capsys.readouterr().out
    assert 'train_batch_size 4, as the loaders have it, in place of 8' in said
    assert 'seed 5, as the loaders have it, in place of 0' in said and 'eval_batch_size' not in said
    assert learn.hp==replace(hp, train_batch_size=4, seed=5) and learn.hp.given is None
    assert made_of(8, 8).hp==hp and 'loaders' not in capsys.readouterr().out

def test_networks_are_saved_with_their_own_tokenizer_only(made, tmp_path):
    d, hp = made
    model = build_networks(hp)
    for tok,words in ((load_tokenizer(shipped('tiny')/'discriminator'), 'the networks know'), ('vocab', 'is a str')):
        with pytest.raises(InputError, match=words): save_networks(model, hp, tmp_path/'run', tok)
    assert not (tmp_path/'run').exists()
    with pytest.raises(InputError, match='there is no folder'): load_networks(tmp_path/'run', hp)

def test_networks_of_another_recipe_are_refused(tmp_path):
    "More layers of the generator, and what no shape tells: these opened, with random weights or other logits"
    hp = preset('tiny', vocab_size=60, max_seq_length=16, length_schedule=())
    save_networks(build_networks(hp), hp, tmp_path/'run')
    dims = hp.model_hparam_overrides
    for other,words in ((dict(generator_layers=2.), 'lacks .*layer.2.* with this recipe'),
                        (dict(model_hparam_overrides=dims | dict(num_attention_heads=2)), 'num_attention_heads 4'),
                        (dict(model_hparam_overrides=dims | dict(hidden_act='relu')), "hidden_act 'gelu'")):
        with pytest.raises(InputError, match=words): load_networks(tmp_path/'run', replace(hp, **other))

def test_minutes_leave_what_the_user_gave(made, tmp_path, monkeypatch):
    "As `steps` do: a warmup and an interval of one's own, where the steps are measured"
    monkeypatch.setattr(runs, 'steps_within', lambda *args: 20)
    given = dict(model_hparam_overrides=NARROW, num_warmup_steps=7)
    asked = PretrainRequest(made[0]/'examples', tmp_path/'run', 'tiny', given, minutes=1, device='cpu')
    learn = asked.settle().run()
    assert learn.n_updates==20 and learn.hp.num_warmup_steps==7 and learn.hp.save_checkpoints_steps==2

def test_two_learners_read_the_same_batches(made):
    "Whatever the first has read of the batches that they share: the pair is a comparison"
    d, hp = made
    dls = pretrain_dls(*(load_examples(d/o, hp) for o in ('examples', 'examples/held_out')), hp, 'cpu')
    def weights():
        with no_random(0): learn = electra_learner(dls, hp)
        with learn.no_bar(), learn.no_logging(), no_random(1): learn.fit_steps(4)
        return torch.cat([o.detach().flatten() for o in learn.model.parameters()])
    assert torch.equal(weights(), weights())
