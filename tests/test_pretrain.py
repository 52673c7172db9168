"Training as a whole: NaN, loggers, mixed precision, the variants, initial weights"
import shutil
from dataclasses import replace

import pytest
import torch
from fastai.callback.core import Callback

from electra_nbdev.checkpoint import latest_checkpoint, load_checkpoint
from electra_nbdev.data import build_examples, load_examples, pretrain_dls
from electra_nbdev.electra import ElectraPretraining
from electra_nbdev.evaluate import read_history
from electra_nbdev.hparams import InputError, preset
from electra_nbdev.pretrain import SaveRun, electra_learner, loggers, pretrain, restore
from electra_nbdev.tokenizer import train_vocab
from test_commands import tales

@pytest.fixture(scope='module')
def made(tmp_path_factory):
    "A folder with examples, and a recipe that fits them"
    d = tmp_path_factory.mktemp('pretrain')
    (d/'tales.txt').write_text(tales())
    tok = train_vocab(d/'tales.txt', d/'vocab', 120)
    build_examples(d/'tales.txt', d/'vocab', d/'examples', max_length=16, held_out=.1)
    hp = preset('tiny', vocab_size=len(tok), max_seq_length=16, length_schedule=(), train_batch_size=8, eval_batch_size=8, num_train_steps=12,
                num_warmup_steps=2, save_checkpoints_steps=4, iterations_per_loop=2, num_eval_steps=2)
    return d, hp

def learner(made, out=None, cbs=(), **kw):
    d, hp = made
    hp = replace(hp, **kw)
    train, held = load_examples(d/'examples', hp), load_examples(d/'examples/held_out', hp)
    return electra_learner(pretrain_dls(train, held, hp, 'cpu'), hp, out, cbs=cbs)

class Poison(Callback):
    "Makes a gradient NaN at a step"
    def __init__(self, at): self.at = at
    def after_backward(self):
        if self.learn.pretrain_step==self.at: next(self.model.parameters()).grad[0, 0] = float('nan')

def test_nan_stops_with_the_last_good_state(made, tmp_path, capsys):
    learn = learner(made, tmp_path, [SaveRun(tmp_path), Poison(6)], max_skipped_updates=0)
    learn.fit_steps()
    assert learn.pretrain_step==7 and 'step 7' in learn.stopped and learn.stopped in capsys.readouterr().out
    assert all(p.isfinite().all() for p in learn.model.parameters())
    tensors, state = load_checkpoint(latest_checkpoint(tmp_path))
    assert state['step']==7
    for n,p in learn.model.named_parameters(): assert torch.equal(tensors[f'model/{n}'], p)
    again = learner(made)
    restore(again, latest_checkpoint(tmp_path))
    again.fit_steps()
    assert again.pretrain_step==12 and again.stopped is None

def test_weights_that_are_not_finite_are_not_saved(made, tmp_path):
    learn = learner(made, tmp_path, [SaveRun(tmp_path)])
    learn.fit_steps(4)
    with torch.no_grad(): next(learn.model.parameters())[0, 0] = float('inf')
    with pytest.warns(UserWarning, match='NOT SAVED at step 4: a weight is not finite'): learn.save_run.after_epoch()
    assert latest_checkpoint(tmp_path).name.endswith('4') and len(list((tmp_path/'checkpoints').iterdir()))==1

def test_tensorboard_by_name(made, tmp_path):
    d, hp = made
    pretrain(d/'examples', tmp_path/'run', hp, device='cpu', log=['tensorboard'])
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    events = EventAccumulator(str(tmp_path/'run/tensorboard')).Reload()
    assert {'train_loss', 'lr_0', 'disc_auc'} <= set(events.Tags()['scalars'])
    assert {o.step for o in events.Scalars('train_loss')}==set(range(1, 13))

def test_wandb_by_name(made, tmp_path, monkeypatch):
    "The run is opened with the recipe as its configuration (a stand-in for the package, which is not a requirement)"
    import sys, types
    seen = {}
    wandb = types.ModuleType('wandb')
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

def test_bf16_trains(made, tmp_path):
    d, hp = made
    learn = pretrain(d/'examples', tmp_path/'run', hp, device='cpu', precision='bf16')
    assert learn.pretrain_step==12 and read_history(tmp_path/'run/history.jsonl')[-1]['held_out']['gen_loss']<20
    assert all(p.dtype==torch.float32 for p in learn.model.parameters())

ELECTRIC = dict(electra_objective=False, electric_objective=True, two_tower_generator=True)
VARIANTS = {'default': {}, 'untied embeddings': dict(untied_generator_embeddings=True), 'one network': dict(untied_generator=False), 'uniform': dict(uniform_generator=True),
            'BERT': dict(electra_objective=False), 'official duplicates': dict(duplicates='official'), 'no correct samples': dict(disallow_correct=True),
            'Electric': ELECTRIC, 'official Electric': ELECTRIC | dict(duplicates='official', cloze_mode='official'), 'Electric untied': ELECTRIC | dict(untied_generator_embeddings=True),
            'ELECTRA-TT': dict(two_tower_generator=True),
            'length schedule': dict(length_schedule=((8, .5), (16, .5))), 'official AUC': dict(count_padding=True)}

@pytest.mark.parametrize('name', VARIANTS)
def test_variants_train_save_and_load(made, tmp_path, name):
    d, hp = made
    hp = replace(hp, **dict(untied_generator=True) | VARIANTS[name])
    learn = pretrain(d/'examples', tmp_path/'run', hp, device='cpu')
    found = learn.held_out
    assert learn.pretrain_step==12 and ('disc_auc' in found)==hp.has_discriminator
    back = type(learn.model).load(tmp_path/'run', hp)
    for (n,a),b in zip(learn.model.named_parameters(), back.parameters(), strict=True): assert torch.equal(a, b), n
    if name=='no correct samples': assert found['sampled_masked_lm_accuracy']==0

def test_judged_alike_at_any_temperature(made):
    "The recipe's temperature is for training; training goes on with it"
    torch.manual_seed(0)
    learn = learner(made)
    hot = learner(made, temperature=3.)
    hot.model.load_state_dict(learn.model.state_dict())
    for o in (learn, hot):
        with o.no_bar(), o.no_logging(): o.validate()
    assert hot.held_out==learn.held_out and hot.model.hp.temperature==3

def test_initial_weights():
    "Every weight of both networks comes from the official family (n is at least 4,096, so 4 % is over three standard errors)"
    model = ElectraPretraining(preset('small'))
    for name,p in model.named_parameters():
        if name.endswith('LayerNorm.weight'): assert (p==1).all(), name
        elif name.endswith('bias'): assert (p==0).all(), name
        elif 'embeddings_project' in name or 'dense_prediction' in name:
            limit = (6/sum(p.shape))**.5
            assert p.abs().max()<=limit and (p.numel()<4096 or abs(p.std()/(limit/3**.5)-1)<.04), name
        else: assert p.abs().max()<=.04 and abs(p.std()/.0176-1)<.04, name

def test_same_seed_same_weights():
    a, b, c = (ElectraPretraining(preset('tiny', seed=o)) for o in (1, 1, 2))
    assert all(torch.equal(x, y) for x,y in zip(a.parameters(), b.parameters()))
    assert not torch.equal(next(a.parameters()), next(c.parameters()))

def test_networks_without_a_checkpoint_are_not_written_over(made, tmp_path):
    d, hp = made
    pretrain(d/'examples', tmp_path/'run', hp, device='cpu')
    shutil.rmtree(tmp_path/'run/checkpoints')
    was = {str(o): o.read_bytes() for o in (tmp_path/'run').rglob('*') if o.is_file() and o.name!='.lock'}
    with pytest.raises(InputError, match='no checkpoint to continue from; begin a new run with --init'): pretrain(d/'examples', tmp_path/'run', hp, device='cpu')
    assert {str(o): o.read_bytes() for o in (tmp_path/'run').rglob('*') if o.is_file() and o.name!='.lock'}==was
