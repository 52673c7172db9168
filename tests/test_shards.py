"Processes that share weights, gradients and moments learn what one learns, and continue the runs of others"
import os, signal
from dataclasses import replace

import pytest
import torch
import torch.distributed.fsdp, torch.distributed.tensor # imported once for all the children
from fastai.callback.core import Callback

from electra_nbdev.engine.files import InputError
from electra_nbdev.engine.ranks import Agreement
from electra_nbdev.pretraining.request import run_pretraining
from make import DROPOUT, VARIANTS
from survival import At, Seen, assert_alike, assert_same, killed, launch, made, result, run, train, weights

SHARDED = {k: VARIANTS[k] for k in ('one network', 'tied', 'corrective', 'Electric', 'BERT')} | dict(
    gdes=dict(gdes=True), again=dict(gradient_checkpointing=True),
    body=dict(body=dict(model_type='bert', hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                        intermediate_size=32, max_position_embeddings=16)))

@pytest.mark.parametrize('name', SHARDED)
def test_two_processes_with_shards_learn_what_one_learns(made, tmp_path, name):
    "The same samples, and weights that differ by rounding, in every kind of networks"
    d, hp = made
    hp = replace(hp, num_train_steps=15, **SHARDED[name])
    if hp.body: hp = replace(hp, model_hparam_overrides=dict(hidden_dropout_prob=0., attention_probs_dropout_prob=0.))
    run(d, tmp_path/'begin', replace(hp, num_train_steps=1, learning_rate=0.), 1)
    run(d, tmp_path/'one', hp, 1, lambda: [Seen(tmp_path/'seen1')])
    run(d, tmp_path/'two', hp, 2, lambda: [Seen(tmp_path/'seen2')], shard=True)
    assert_alike(tmp_path/'one', tmp_path/'two', weights(tmp_path/'begin'))
    norms = [torch.load(tmp_path/o)[1] for o in ('seen1.0', 'seen2.0', 'seen2.1')]
    assert norms[1]==norms[2]==pytest.approx(norms[0], rel=1e-3)

def test_processes_continue_the_runs_of_others(made, tmp_path, monkeypatch):
    "One, four and two processes, with shards and without, each a part of a run; checkpoints are of one kind"
    d, hp = made
    hp = replace(hp, num_train_steps=24, save_checkpoints_steps=12)
    run(d, tmp_path/'begin', replace(hp, num_train_steps=1, learning_rate=0.), 1)
    run(d, tmp_path/'one', hp, 1)
    monkeypatch.setattr(Agreement, 'longest', 1) # a signal counts at once
    turns = [(1, {}, 5), (4, dict(shard=True), 10), (2, {}, 14), (2, dict(shard=True), 19), (1, {}, None)]
    for n,how,until in turns:
        stop = [At(until, lambda _: os.kill(os.getpid(), signal.SIGTERM))] if until else []
        children = launch(n, lambda: train(tmp_path/'turns', d/'examples', hp, stop, **how))
        assert {o.wait(60).code for o in children}=={128+signal.SIGTERM if until else 0}, children[0].text
    assert_alike(tmp_path/'one', tmp_path/'turns', weights(tmp_path/'begin'))
    shapes = [{k: (t.shape, t.dtype) for k,t in result(tmp_path/o)[0].items()} for o in ('one', 'turns')]
    assert shapes[0]==shapes[1]

def test_parts_and_half_precision(made, tmp_path):
    "With `grad_accumulation`, and in bfloat16, shards give what copies give"
    d, hp = made
    hp = replace(hp, num_train_steps=12, length_schedule=())
    run(d, tmp_path/'begin', replace(hp, num_train_steps=1, learning_rate=0.), 1)
    for name,own,how in (('parts', dict(grad_accumulation=2), {}), ('bf16', {}, dict(precision='bf16'))):
        for kind,more in (('copies', {}), ('shards', dict(shard=True))):
            run(d, tmp_path/f'{name}-{kind}', replace(hp, **own), 2, **how, **more)
        assert_alike(tmp_path/f'{name}-copies', tmp_path/f'{name}-shards', weights(tmp_path/'begin'))

def test_a_killed_run_goes_on_bit_exact(made, tmp_path):
    "With dropout, and a gradient that is skipped"
    d, hp = made
    hp = replace(hp, model_hparam_overrides=hp.model_hparam_overrides | DROPOUT, save_checkpoints_steps=10,
                 num_train_steps=30, keep_checkpoints_at=tuple(range(2, 30, 3)))
    class Poison(Callback):
        "A gradient that is not finite"
        order = 6
        def before_step(self):
            if self.learn.n_updates==8: next(self.model.parameters()).grad.mul_(torch.nan)
    run(d, tmp_path/'whole', hp, 2, lambda: [Poison()], shard=True)
    assert any('skipped' in o for o in result(tmp_path/'whole')[2])
    children = launch(2, lambda: train(tmp_path/'killed', d/'examples', hp, [Poison()], shard=True))
    ended, lost = killed(children, 1, tmp_path/'killed', 4, .01)
    assert not ended and lost.code==1, lost.text
    run(d, tmp_path/'killed', hp, 2, lambda: [Poison()], shard=True)
    assert_same(result(tmp_path/'killed'), result(tmp_path/'whole'))

def test_what_does_not_go_together_is_refused(made, tmp_path):
    d, hp = made
    with pytest.raises(InputError, match='`shard`.*torchrun'):
        run_pretraining(d/'examples', tmp_path/'run', hp, device='cpu', shard=True)
    children = launch(2, lambda: train(tmp_path/'run', d/'examples', hp, shard=True, compile=True))
    assert [o.wait(60).code for o in children]==[1, 1] and '`shard` and `compile`' in children[0].text
    assert not (tmp_path/'run').exists()
