"Bodies compiled in place: no graph break, few versions, the same numbers, files that do not know of it"
import pytest
import torch
from fastai.callback.fp16 import AMPMode
from fastai.torch_core import no_random
from packaging.version import Version
from torch._dynamo.utils import counters
from transformers import AutoModel

from electra_nbdev.finetuning import trials
from electra_nbdev.pretraining import runs
from electra_nbdev.data.batches import LengthSchedule
from electra_nbdev.engine import fast
from electra_nbdev.engine.checkpoint import latest_checkpoint, load_checkpoint
from electra_nbdev.engine.files import InputError
from electra_nbdev.engine.training import (CompileBodies, DeviceMixedPrecision, compile_bodies, compile_callbacks,
                                           is_compiled)
from electra_nbdev.method.generator import hidden_states
from electra_nbdev.finetuning.tasks import glue_task
from electra_nbdev.pretrain import electra_learner
from electra_nbdev.networks.build import build_networks, load_networks
from electra_nbdev.pretraining.request import run_pretraining
from electra_nbdev.finetuning.request import run_trials
from learners import StopAt
from official import SPECIAL_IDS, loaders
from make import CONFIGS, SHORT, VARIANTS, electra_folder, glue_files, home, made, no_curves, small_recipe
from terminal import bad

STRICT = dict(backend='eager', fullgraph=True) # a graph break is an error
BODIES = {o: dict(body=CONFIGS[o].to_diff_dict(), untied_generator=True) for o in ('bert', 'deberta', 'modernbert')}

@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    counters.clear()

def without_packed_dropout(monkeypatch):
    "Random numbers as in a compiled body"
    packed = fast.use_packed_dropout
    monkeypatch.setattr(fast.PackedDropout, 'forward', torch.nn.Dropout.forward)
    monkeypatch.setattr(fast, 'use_packed_dropout', lambda x: packed(x) and x.ndim<4) # a loss, not an attention

def rows():
    "Six batches of four examples, of which every second one has padding"
    ids = torch.randint(7, 100, (24, 32), generator=torch.Generator().manual_seed(0))
    ids[4:8,20:] = ids[12:16,9:] = ids[20:,5:] = 0
    return ids, torch.full((24,), 10)

def trained(kw, precision='fp32', **how):
    "Losses of a training whose length grows, logits of an evaluation, weights"
    hp, amp = small_recipe(**kw), [] if precision=='fp32' else [DeviceMixedPrecision(AMPMode.BF16)]
    with no_random(0):
        cbs = [*amp, LengthSchedule(((16, .5), (32, .5)), 12), *([CompileBodies(**how)] if how else [])]
        learn = electra_learner(loaders(rows(), bs=4), hp, build_networks(hp), special_ids=SPECIAL_IDS, cbs=cbs)
        assert is_compiled(learn.model)==bool(how)
        with learn.no_logging(), learn.no_bar():
            learn.fit(2)
            losses = list(learn.recorder.losses)
            logits = learn.get_preds()[0]
    return losses, logits, *learn.model.parameters()

differs = pytest.mark.xfail(Version(torch.__version__).release<(2, 13), strict=False,
                            reason="under torch 2.8 and 2.10 losses of a compiled Electric differ in the third digit")

@pytest.mark.parametrize('variant,precision',
                         [('one network', 'bf16'), pytest.param('Electric', 'fp32', marks=differs)])
def test_training_is_the_same(monkeypatch, variant, precision):
    "With and without padding, for two lengths, in training and evaluation: no break, a version for each, same bits"
    found = trained(VARIANTS[variant], precision, **STRICT)
    assert not counters['graph_break'] and 4<=counters['stats']['unique_graphs']<=32
    without_packed_dropout(monkeypatch)
    (losses, *tensors), (same, *others) = found, trained(VARIANTS[variant], precision)
    assert len(losses)==12 and losses==same
    for a,b in zip(tensors, others, strict=True): assert torch.equal(a, b)

@pytest.mark.parametrize('body', BODIES)
def test_other_bodies_do_not_break(body):
    model, ids = build_networks(small_recipe(**BODIES[body])).eval(), rows()[0][4:8]
    def outputs(): return model.token_logits(ids, ids>0), hidden_states(model.generator, ids, ids>0)
    with torch.no_grad():
        plain, _ = outputs(), compile_bodies(model, **STRICT)
        for a,b in zip(plain, outputs(), strict=True): torch.testing.assert_close(a, b)
    assert counters['stats']['unique_graphs']==2

# Runs

def strict(monkeypatch, module):
    "Compile without kernels, which take minutes, and without graph breaks"
    def callbacks(wanted, device, kind=CompileBodies, **how): return [kind(**how | STRICT)] if wanted else []
    monkeypatch.setattr(module, 'compile_callbacks', callbacks)

def test_a_compiled_run_is_a_run(monkeypatch, made, tmp_path, capsys):
    "Continued it is bit-exact; without compiling, or with it from then on, it says so; files have their names"
    strict(monkeypatch, runs)
    no_curves(monkeypatch)
    d, hp = made
    def run(out, compile, *cbs):
        capsys.readouterr()
        learn = run_pretraining(d/'examples', tmp_path/out, hp, device='cpu', compile=compile, cbs=cbs)
        return learn, capsys.readouterr().out
    def tensors(out): return load_checkpoint(latest_checkpoint(tmp_path/out))[0]
    assert hasattr(run('whole', True)[0], 'compile_step')
    for before,after in ((True, True), (True, False), (False, True)):
        out = f'{before}-{after}'
        assert run(out, before, StopAt(4))[0].stopped
        learn, said = run(out, after)
        assert learn.n_updates==hp.num_train_steps and hasattr(learn, 'compile_step')==after
        a, b = tensors('whole'), tensors(out)
        assert list(a)==list(b), 'the names'
        if before==after: assert all(torch.equal(a[k], b[k]) for k in a if k.startswith(('model', 'optimizer')))
        else: assert 'torch was ' in said and 'compiled' in said
    saved = load_networks(tmp_path/'whole', hp)
    assert not is_compiled(saved)
    for k,p in saved.named_parameters(): assert torch.equal(p, tensors('whole')[f'model/{k}']), k
    assert AutoModel.from_pretrained(tmp_path/'whole/discriminator').config.model_type=='electra'

def test_a_compiled_trial_is_a_trial(monkeypatch, tmp_path):
    "Every trial compiles its copy of the encoder; without dropout in the encoder its scores are the same"
    strict(monkeypatch, trials)
    glue_files(tmp_path)
    task, model = glue_task('cola', tmp_path), electra_folder(tmp_path/'model')
    still = dict(hidden_dropout_prob=0., attention_probs_dropout_prob=0.)
    def run(compile):
        how = dict(SHORT, num_trials=2, model_hparam_overrides=still)
        return run_trials(model, [task], tmp_path/str(compile), device='cpu', compile=compile, **how)
    found = run(True)
    assert not counters['graph_break'] and 0<counters['stats']['unique_graphs']<=12
    assert found.values('cola', 'loss')==pytest.approx(run(False).values('cola', 'loss'), rel=1e-5)
    assert AutoModel.from_pretrained(tmp_path/'True/model').config.model_type=='electra'

# Where torch compiles nothing

def refuse(*args, **kwargs): raise RuntimeError('torch.compile is not supported on Python 3.15+\nand more lines')

@pytest.mark.parametrize('line', ['electra_pretrain --data examples --hparams recipe.json --out fast',
                                  'electra_finetune --csv table.csv --text text --label about --out fast'])
def test_compile_is_refused_before_work(home, line):
    (home/'table.csv').write_text('text,about\n' + 'the cat sat,animal\nthe house stood,place\n'*20)
    def setup(): torch.compile = refuse
    bad(home, f'{line} --compile --device cpu', 'electra_', '--compile does not work here on cpu; leave it out',
        '(RuntimeError: torch.compile is not supported on Python 3.15+)', setup=setup)

def test_a_missing_compiler_is_named(monkeypatch):
    "torch wraps the reason"
    error = RuntimeError("backend='inductor' raised:")
    error.inner_exception = RuntimeError('No working C++ compiler found')
    def broken(f):
        def run(x): raise error
        return run
    monkeypatch.setattr(torch, 'compile', broken)
    with pytest.raises(InputError, match='RuntimeError: No working C.. compiler found'):
        compile_callbacks(True, torch.device('cpu'))
