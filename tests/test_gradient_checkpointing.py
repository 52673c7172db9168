"Layers that are computed again in the backward pass: same losses, gradients and runs, with less memory"
import os, signal
from dataclasses import replace

import pytest
import torch
from torch import nn

from electra_nbdev.engine.files import InputError
from electra_nbdev.pretrain import build_networks, preset
from electra_nbdev.pretraining.learner import with_checkpointed_layers, with_fast_steps
from electra_nbdev.pretraining.plan import step_cost
from make import ALL_VARIANTS, DROPOUT, SMALL, batch
from survival import At, assert_same, fork, made, result, train as pretrain

def recipe(variant, **how):
    return preset('tiny', **SMALL | ALL_VARIANTS[variant] | dict(model_hparam_overrides=DROPOUT) | how)

@pytest.mark.parametrize('variant', ALL_VARIANTS)
@pytest.mark.parametrize('fast', [True, False])
def test_equal_loss_and_gradients(variant, fast):
    "With dropout, for every kind of networks, with and without the fast paths of a CPU"
    found = []
    for again in (False, True):
        hp = recipe(variant, gradient_checkpointing=again)
        torch.manual_seed(0)
        model = build_networks(hp).train()
        if hp.unigram_noise: model.set_token_counts(torch.arange(60.))
        model = with_checkpointed_layers(with_fast_steps(model, hp) if fast else model, hp)
        calls = []
        for o in model.modules():
            if isinstance(o, nn.LayerNorm): o.register_forward_hook(lambda *_: calls.append(0))
        model(**batch()).loss.backward()
        found.append((model, len(calls), torch.rand(3)))
    (one, n, after), (two, more, same) = found
    assert more>n and torch.equal(after, same) # layers ran twice, and random numbers go on where they were
    for (k,p),q in zip(one.named_parameters(), two.parameters(), strict=True):
        assert (p.grad is None and q.grad is None) or torch.equal(p.grad, q.grad), k

def test_a_run_goes_on_with_and_without(made, tmp_path):
    "Half of a run with it and half without is the run that always had it, and the one that never had"
    d, hp = made
    hp = replace(hp, model_hparam_overrides=hp.model_hparam_overrides | DROPOUT, num_train_steps=20,
                 save_checkpoints_steps=10)
    def run(out, hp, steps=None):
        stop = [At(steps, lambda _: os.kill(os.getpid(), signal.SIGTERM))] if steps else []
        child = fork(lambda: pretrain(tmp_path/out, d/'examples', hp, stop))
        assert child.wait(60).code==(128+signal.SIGTERM if steps else 0), child.text
    with_it = replace(hp, gradient_checkpointing=True)
    run('never', hp)
    run('always', with_it)
    run('both', with_it, 13)
    run('both', hp)
    assert_same(result(tmp_path/'never'), result(tmp_path/'always'))
    assert_same(result(tmp_path/'never'), result(tmp_path/'both'))

def test_it_takes_less_memory_and_one_forward_pass_more():
    "Counted on tensors without values"
    for name,n,bs in (('small', 128, 128), ('base', 512, 8)):
        hp = preset(name, train_batch_size=bs, eval_batch_size=8, max_seq_length=n)
        less = replace(hp, gradient_checkpointing=True)
        a, b = step_cost(hp, gpu=True), step_cost(less, gpu=True)
        assert b.memory<.75*a.memory, (a.memory, b.memory)
        assert 1.2<b.flops/a.flops<4/3, b.flops/a.flops

def test_a_body_without_such_layers_is_refused():
    model = build_networks(recipe('tied'))
    model.generator = nn.Linear(2, 2)
    with pytest.raises(InputError, match='gradient_checkpointing.*Linear'):
        with_checkpointed_layers(model, recipe('tied', gradient_checkpointing=True))
