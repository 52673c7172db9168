"What `electra_plan --gpus N` says of memory, against a step that is counted with torch's own DDP and FSDP2"
import subprocess, sys
from dataclasses import replace

import pytest

from electra_nbdev.engine.files import InputError
from electra_nbdev.pretraining.plan import make_plan, named_device, plan_run, step_cost
from electra_nbdev.networks.recipe import preset
from survival import free_port

COUNT = '''
import sys, torch, torch.distributed as dist, torch.distributed.device_mesh as meshes
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore
from electra_nbdev.engine import ranks
from electra_nbdev.engine.training import MemoryCounter
from electra_nbdev.method import objective
from electra_nbdev.method.optimizer import ElectraAdam
from electra_nbdev.pretraining.learner import with_checkpointed_layers
from electra_nbdev.pretraining.count import _fake_batch, _fake_step, fake_networks
from electra_nbdev.networks.recipe import preset
size, layers, n, bs, sl, again = sys.argv[1], *map(int, sys.argv[2:])
hp = preset(size, train_batch_size=bs, max_seq_length=sl, gradient_checkpointing=bool(again), unigram_noise=0.,
            model_hparam_overrides=dict(attention_probs_dropout_prob=0., num_hidden_layers=layers))
dist.init_process_group('fake', rank=0, world_size=n, store=FakeStore())
mesh = meshes.init_device_mesh('cpu', (n,))
ranks.init_device_mesh = lambda *_: mesh # its numbers are real ones
objective.n_processes = lambda: 1 # counts are not what takes memory
resize = torch.UntypedStorage.resize_
def counted(self, size):
    "FSDP frees and fills the storages of gathered weights"
    out, key = resize(self, size), self._cdata
    if key in memory.sizes:
        memory.now += size-memory.sizes[key]
        memory.sizes[key], memory.peak = size, max(memory.peak, memory.now)
    return out
torch.UntypedStorage.resize_ = counted
with FakeTensorMode(allow_non_fake_inputs=True), MemoryCounter() as memory:
    model = with_checkpointed_layers(fake_networks(hp), hp)
    ranks.shard_weights(model, torch.device('cpu'))
    opt = ElectraAdam(model.parameters())
    for i in range(2):
        _fake_step(model, _fake_batch(hp, bs//n, sl), False)
        opt.step()
        opt.zero_grad()
print(memory.peak)
'''

def counted(*args):
    "Bytes of the peak, in a process of its own, which joins a group of pretended ones"
    p = subprocess.run([sys.executable, '-W', 'ignore', '-c', COUNT, *map(str, args)], capture_output=True, text=True)
    assert p.returncode==0, p.stderr[-2000:]
    return int(p.stdout.split()[-1])

CASES = [('small', 2, 2, 32, 128, 0), ('small', 2, 4, 64, 128, 1), ('base', 12, 8, 16, 128, 0),
         ('base', 4, 4, 16, 128, 1)]

@pytest.mark.parametrize('size,layers,n,bs,sl,again', CASES)
def test_shards_take_what_is_counted(size, layers, n, bs, sl, again):
    hp = preset(size, train_batch_size=bs, eval_batch_size=8, max_seq_length=sl, gradient_checkpointing=bool(again),
                model_hparam_overrides=dict(num_hidden_layers=layers))
    planned = step_cost(hp, gpu=True, gpus=n, shard=True).memory
    assert planned==pytest.approx(counted(size, layers, n, bs, sl, again), rel=.1)

@pytest.mark.parametrize('size', ['small', 'base'])
def test_copies_take_a_step_on_their_part_and_buckets(size):
    "For 1, 2, 4 and 8 GPUs; FLOPs are those of the whole batch"
    hp = preset(size, train_batch_size=32, eval_batch_size=8, max_seq_length=128)
    one = step_cost(hp, gpu=True)
    for n in (2, 4, 8):
        part, all_of_them = step_cost(replace(hp, train_batch_size=32//n), gpu=True), step_cost(hp, gpu=True, gpus=n)
        weights = 4*plan_run(hp, named_device('a100', hp), gpus=n).parameters['both']
        assert all_of_them.memory==part.memory+weights and all_of_them.flops==pytest.approx(one.flops)

def test_buckets_are_as_large_as_the_gradients():
    "Counted on real tensors, in a group of one"
    import torch, torch.distributed as dist
    from survival import fork
    def member():
        from electra_nbdev.engine.training import MemoryCounter
        dist.init_process_group('gloo', init_method=f'tcp://127.0.0.1:{port}', rank=0, world_size=1)
        peaks, x = [], torch.randn(4, 512)
        for wrap in (lambda o: o, torch.nn.parallel.DistributedDataParallel):
            with MemoryCounter() as memory:
                net = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)])
                net = wrap(net)
                for _ in range(2): net(x).sum().backward()
            peaks.append(memory.now)
            n = 4*sum(p.numel() for p in net.parameters())
        assert abs(peaks[1]-peaks[0]-n)<.05*n, (peaks, n)
    port = free_port()
    assert (child := fork(member)).wait(60).code==0, child.text

def test_what_a_plan_for_several_gpus_says():
    plan = make_plan('small', device='a100', gpus=4, price=2.)
    one = make_plan('small', device='a100', price=2.)
    assert plan.step==max(one.step/4, one.device.least) and 'on each of 4 GPUs' in plan.report()
    cost = plan.report().split('cost')[1].split()[0].replace(',', '')
    assert plan.price*plan.gpus*plan.hours==pytest.approx(float(cost), abs=.01)
    for how,why in ((dict(gpus=0), '`gpus` is 0'), (dict(shard=True), '`gpus`'), (dict(gpus=3), 'cannot be split')):
        with pytest.raises(InputError, match=why): make_plan('small', device='a100', **how)
    with pytest.raises(InputError, match='about GPUs'): make_plan('small', device='cpu', gpus=2)
