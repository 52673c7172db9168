"What a plan counts: the paper's numbers, real tensors' bytes, and flags that contradict each other"
import gc, json
from dataclasses import replace

import pytest
import torch
from torch import nn

from conftest import GOLDEN
from electra_nbdev import cli
from electra_nbdev.pretraining import count, plan
from electra_nbdev.engine.files import InputError
from electra_nbdev.engine.training import MemoryCounter, operations_counter
from electra_nbdev.networks.build import build_networks
from electra_nbdev.networks.recipe import preset
from electra_nbdev.pretraining.request import PretrainRequest
from terminal import alone, processor_seconds

@pytest.mark.parametrize('name,change,row', [
    ('small', {}, 'electra_small'), ('base', {}, 'electra_base'), ('large', {}, 'electra_400k'),
    ('large', dict(num_train_steps=1_750_000), 'electra_1.75M')])
def test_golden_operations_of_the_paper(name, change, row):
    table = json.loads((GOLDEN/'flops.json').read_text())['table']
    assert plan.paper_flops(preset(name, **change))==pytest.approx(table[row], rel=1e-9)

def test_operations_are_those_of_a_real_step():
    from fastai.callback.core import Callback
    from fastai.data.core import DataLoaders
    from fastai.data.load import DataLoader
    from electra_nbdev.method.masking import SpecialTokenIds
    from electra_nbdev.pretrain import electra_learner
    hp = preset('small', train_batch_size=4, max_seq_length=32, vocab_size=300, num_train_steps=1, num_warmup_steps=1)
    ids = torch.randint(5, 300, (4, 32))
    dl = DataLoader(list(zip(ids)), bs=4)
    learn = electra_learner(DataLoaders(dl, dl, device='cpu'), hp, special_ids=SpecialTokenIds(0, 2, 3, 4))
    counter = operations_counter()
    class Count(Callback):
        order = 100
        def before_train(self): counter.__enter__()
        def after_train(self): counter.__exit__(None, None, None)
    with learn.no_bar(), learn.no_logging(): learn.fit(1, cbs=Count())
    assert plan.step_cost(hp).flops==pytest.approx(counter.get_total_flops(), rel=1e-6)

@pytest.mark.parametrize('change', [dict(), dict(untied_generator=False), dict(uniform_generator=True),
    dict(electra_objective=False), dict(two_tower_generator=True), dict(unigram_noise=.5), dict(gdes=True),
    dict(corrective_weight=1.),
    dict(electra_objective=False, electric_objective=True)])
@pytest.mark.parametrize('gpu', [False, True])
def test_every_objective_has_a_cost(change, gpu):
    small = dict(train_batch_size=4, max_seq_length=32, vocab_size=300, eval_batch_size=4)
    hp = preset('small', model_hparam_overrides=dict(num_hidden_layers=2), **small, **change)
    cost, model = plan.step_cost(hp, gpu=gpu), build_networks(hp)
    weights = sum(p.numel() for p in model.parameters())*4
    assert 3*weights < cost.memory < 3*weights+100*2**20 and cost.flops>6*4*32*2*12*256**2/2

LAYERS = dict(num_hidden_layers=2) # enough to count
COUNTED = [('tiny', {}), ('tiny', dict(max_seq_length=128, train_batch_size=128)),
           ('small', dict(train_batch_size=8, eval_batch_size=8)),
           ('small', dict(train_batch_size=64, vocab_size=5000)),
           ('small', dict(max_seq_length=256, train_batch_size=8, eval_batch_size=4, generator_hidden_size=.5)),
           ('base', dict(train_batch_size=4, eval_batch_size=8)),
           ('large', dict(train_batch_size=2, eval_batch_size=2))]

@pytest.mark.parametrize('name,change', COUNTED)
@pytest.mark.parametrize('gpu', [False, True])
@pytest.mark.parametrize('bf16', [False, True])
def test_formulas_equal_what_is_counted(name, change, gpu, bf16):
    "Operations exactly; the most memory, which depends on the order of what is freed, nearly"
    hp = preset(name, **change)
    if name!='tiny': hp = replace(hp, model_hparam_overrides=LAYERS)
    how = hp.train_batch_size, hp.max_seq_length, gpu
    count, formula = plan._fake_cost(hp, *how, bf16), plan.StepCost(0., *plan.step_memory(hp, *how, bf16))
    assert plan.step_flops(hp, *how)==count.flops
    process, expected = (plan.process_memory(o, 0. if gpu else plan.LIBRARIES) for o in (formula, count))
    assert process==pytest.approx(expected, rel=.04)

@pytest.mark.parametrize('name', plan.SIZES)
def test_parameters_are_those_of_the_networks(name):
    for change in (dict(), dict(generator_layers=.5), dict(generator_hidden_size=.5), dict(vocab_size=100)):
        hp = preset(name, **change)
        assert plan.has_formula(hp) and plan.parameters(hp)==count.counted_parameters(hp)

@pytest.mark.parametrize('change', [dict(electra_objective=False), dict(gdes=True), dict(uniform_generator=True),
    dict(two_tower_generator=True), dict(untied_generator=False), dict(temperature=2.), dict(generator_hidden_size=.7),
    dict(model_hparam_overrides=dict(hidden_size=250)), dict(model_hparam_overrides=dict(hiden_size=256)),
    dict(max_seq_length=600), dict(corrective_weight=1.)])
def test_what_no_formula_covers_is_counted(change):
    assert not plan.has_formula(preset('small', **change))

def test_sizes_that_are_repeated_for_speed():
    from electra_nbdev.method import generator
    from electra_nbdev.engine import fast
    assert (plan.LOGITS, plan.GPU_LOGITS)==(generator.LOGITS, generator.GPU_LOGITS)
    assert plan.CHUNK==fast.LOGITS_CHUNK

@pytest.mark.parametrize('flags', ['--device cpu', '--device a100', '--device h100 --price 2'])
def test_the_plans_of_all_presets_need_no_torch(flags, tmp_path):
    "In a process each, in which torch, transformers, fastai and datasets cannot be imported"
    for name in plan.SIZES:
        said = alone(f'electra_plan --preset {name} {flags}', tmp_path)
        assert said.code==0 and 'parameters' in said.out, said.err
    assert alone('electra_plan --budget 24h --device a100', tmp_path).code==0

@pytest.mark.timing
def test_the_plans_of_all_presets_take_less_than_three_seconds(tmp_path):
    "Of the processor, together"
    def seconds(): return sum(processor_seconds(f'electra_plan --preset {o}', tmp_path) for o in plan.SIZES)
    assert any(seconds()<3 for _ in range(3))

def test_moments_live_while_activations_do():
    from torch._subclasses.fake_tensor import FakeTensorMode
    from electra_nbdev.pretraining.learner import with_fast_steps
    hp = preset('tiny', length_schedule=(), max_seq_length=128, train_batch_size=16, eval_batch_size=1,
                unigram_noise=0.)
    with FakeTensorMode(allow_non_fake_inputs=True), MemoryCounter() as first:
        model = with_fast_steps(count.fake_networks(hp), hp)
        count._fake_step(model, count._fake_batch(hp, 16, 128), False)
    moments = 2*4*sum(p.numel() for p in model.parameters())
    assert plan.step_cost(hp).memory==pytest.approx(first.peak+moments, rel=.02)

def test_a_large_batch_is_extrapolated():
    hp = preset('small', train_batch_size=192, vocab_size=1000, max_seq_length=32, gdes=True,
                model_hparam_overrides=dict(num_hidden_layers=1))
    found, exact = plan.step_cost(hp), plan._fake_cost(hp, 192, 32, False, False)
    assert found.flops==pytest.approx(exact.flops, rel=1e-6) and found.memory==pytest.approx(exact.memory, rel=.02)
    parts = plan.step_cost(replace(hp, grad_accumulation=3))
    assert parts.flops==pytest.approx(exact.flops, rel=1e-6) and parts.memory<.5*exact.memory

def a_choice(): return torch.tensor([1, 2])[torch.tensor([True, False])]

def test_memory_of_real_tensors():
    with MemoryCounter() as memory, torch.no_grad():
        a = torch.zeros(1000)
        b = (a+1)[:10] # a view keeps all of its storage
        assert memory.now==8000
        del a
        gc.collect()
        assert memory.now==4000 and len(b)==10
        assert a_choice().tolist()==[1] # real numbers stay what they are
    with MemoryCounter(4000) as memory: kept = torch.zeros(999), torch.zeros(1000)
    assert memory.peak==4000 and len(kept)==2

def test_fake_networks_share_what_real_ones_share():
    from torch._subclasses.fake_tensor import FakeTensorMode
    for change in (dict(), dict(untied_generator=False), dict(two_tower_generator=True)):
        hp = preset('small', vocab_size=1000, model_hparam_overrides=dict(num_hidden_layers=2), **change)
        with FakeTensorMode(): fake = count.fake_networks(hp)
        real = build_networks(hp)
        assert {n: p.shape for n,p in fake.named_parameters()}=={n: p.shape for n,p in real.named_parameters()}
        assert all(isinstance(p, nn.Parameter) for p in fake.parameters())

def test_a_plan_has_the_precision_of_a_training(monkeypatch):
    "Half precision is the default on NVIDIA GPUs alone"
    hp = preset('tiny')
    def memory(name, precision=None):
        monkeypatch.setattr(plan, 'device_of', lambda _: torch.device(name))
        return plan.plan_run(hp, plan.this_device(name), precision).memory
    assert memory('mps')==memory('mps', 'fp32')!=memory('mps', 'fp16')
    assert plan.plan_run(hp, plan.named_device('a100', hp)).memory==memory('mps', 'bf16')

def test_a_gpu_that_is_too_small():
    hp = preset('small', train_batch_size=64, eval_batch_size=8)
    device = plan.Device('t4', 1.7e9, 1e13)
    found = plan.plan_run(hp, device)
    assert found.parts>1 and hp.train_batch_size%found.parts==0 and f'grad_accumulation {found.parts}' in found.report()
    assert plan.plan_run(hp, device._replace(memory=6e8)).parts==0
    thirds = replace(hp, train_batch_size=48) # its divisors are not all powers of two
    room = plan.plan_run(replace(thirds, grad_accumulation=3), device).memory/.9
    assert plan.plan_run(thirds, device._replace(memory=1.01*room)).parts==3
    assert 'lower train_batch_size' in plan.plan_run(hp, device._replace(memory=6e8)).report()

def test_this_machine_without_a_measurement(capsys):
    found = cli.electra_plan('tiny', device='cpu')
    assert found.seconds!=found.seconds and found.memory>found.cost.memory
    assert '; --measure times it' in capsys.readouterr().out

@pytest.mark.timing
def test_measured(capsys):
    hp = '{"num_train_steps": 200, "save_checkpoints_steps": 100, "num_warmup_steps": 10}'
    found = cli.electra_plan('tiny', hp, device='cpu', measure=True)
    said = capsys.readouterr().out
    assert found.device.measured and 0<found.seconds<600 and 'measured' in said
    assert said.startswith('Timing steps of tiny'), 'who waits knows for what'

def test_a_plan_refuses_what_a_run_refuses(tmp_path):
    "A body of its own has a generator of its width"
    given = dict(body=dict(model_type='bert', hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                           intermediate_size=64, vocab_size=99), generator_hidden_size=.5)
    with pytest.raises(InputError) as run: PretrainRequest(preset='tiny', hparams=given).new_recipe()
    with pytest.raises(InputError) as planned: plan.make_plan('tiny', given)
    assert str(run.value)==str(planned.value)

@pytest.fixture
def tiny_alone(monkeypatch): monkeypatch.setattr(plan, 'SIZES', {'tiny': plan.SIZES['tiny']})

@pytest.mark.parametrize('seconds', [90., 300.])
def test_a_budget_has_room_for_evaluations(tiny_alone, seconds):
    "However slow they are: they do not shrink with the steps"
    slow = plan.Device('here', 24e9, 2e10, evaluated=.2, gpu=False)
    found = plan.recipe_within(seconds, lambda hp: slow)
    assert .9*seconds<found.seconds<=seconds and found.hp.model_size=='tiny'

@pytest.mark.parametrize('hours,size', [(.2, 'tiny'), (3, 'tiny'), (8, 'small'), (24, 'small'), (90, 'small')])
def test_a_budget_is_used(hours, size):
    "Below the preset whose steps fit, too"
    found = plan.recipe_within(3600*hours, lambda hp: plan.named_device('t4', hp))
    assert found.hp.model_size==size and .95*hours<=found.hours<=1.02*hours

def test_a_budget_ends_in_a_command_for_examples_of_ones_own(tiny_alone, capsys):
    "A GPU is known by its name in capitals too"
    found = cli.electra_plan(device='H100', budget='10 min')
    assert found.device.name=='h100' and '--data examples --out run' in capsys.readouterr().out

def test_a_budget_that_is_too_short(tiny_alone):
    with pytest.raises(InputError, match='too short for 20 steps'):
        plan.recipe_within(1., lambda hp: plan.Device('here', 24e9, 2e10, evaluated=.2, gpu=False))
