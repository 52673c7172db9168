"What was asked is settled once: each file is read once, and the recipe is checked once."
import builtins, io, os, subprocess, sys
from collections import Counter
from dataclasses import fields
from pathlib import Path

import pytest

from electra_nbdev.data.examples import build_examples
from electra_nbdev.data.tokenizer import train_vocab
from electra_nbdev.engine import command
from electra_nbdev.networks.hparams import PretrainHParams
from electra_nbdev.pretraining import runs
from electra_nbdev.pretraining.request import PretrainRequest
from make import tales

NARROW = dict(train_batch_size=8, num_eval_steps=2, num_warmup_steps=1,
              length_schedule=(), model_hparam_overrides=dict(hidden_size=16, num_hidden_layers=1,
                                                              num_attention_heads=2, embedding_size=16))

@pytest.fixture(scope='module')
def made(tmp_path_factory):
    d = tmp_path_factory.mktemp('request')
    (d/'tales.txt').write_text(tales())
    train_vocab(d/'tales.txt', d/'vocab', 120)
    build_examples(d/'tales.txt', d/'vocab', d/'examples', 16, held_out=.1)
    PretrainRequest(d/'examples', d/'run', 'tiny', NARROW, steps=4, device='cpu').settle().run()
    return d

class Counted:
    "What is opened for reading below a folder, and how often something is checked, until a training begins"
    def __init__(self, folder, monkeypatch):
        self.read, self.calls, self.on = Counter(), Counter(), True
        def opened(path, flags='r', *args, **kwargs):
            if self.on and isinstance(path, str|Path) and str(path).startswith(str(folder)): self.note(path, flags)
        def watch(owner, name):
            was = getattr(owner, name)
            def f(*args, **kwargs):
                opened(*args, **kwargs)
                return was(*args, **kwargs)
            monkeypatch.setattr(owner, name, f)
        for owner,name in ((builtins, 'open'), (os, 'open')): watch(owner, name)
        watch(io, 'open') # of `Path.read_text` and `Path.open`
        self.count(PretrainHParams, '__post_init__', monkeypatch)
        self.count(command, 'check_field', monkeypatch)
        begin = runs._run
        def run(*args):
            self.on = False
            return begin(*args)
        monkeypatch.setattr(runs, '_run', run)

    def note(self, path, flags):
        writes = flags & (os.O_WRONLY|os.O_RDWR) if isinstance(flags, int) else set(flags) & set('wax+')
        if not writes and Path(path).is_file(): self.read[str(path)] += 1

    def count(self, owner, name, monkeypatch):
        was = getattr(owner, name)
        def f(*args):
            if self.on: self.calls[name] += 1
            return was(*args)
        monkeypatch.setattr(owner, name, f)

def test_a_run_that_goes_on_is_settled_once(made, monkeypatch):
    from electra_nbdev.cli import electra_pretrain
    found = Counted(made, monkeypatch)
    electra_pretrain(made/'examples', made/'run', device='cpu')
    again = [k for k,n in found.read.items() if n>1 and Path(k).parent.name!='vocab'] # transformers reads those again
    assert not found.on and not again
    assert {'run/hparams.json', 'examples/data.json', 'examples/held_out/data.json'}<={k.removeprefix(f'{made}/')
                                                                                       for k in found.read}
    assert found.calls['__post_init__']==1 and found.calls['check_field']<=2*len(fields(PretrainHParams))

@pytest.mark.parametrize('out', ['examples', 'fresh'])
def test_examples_are_settled_once(made, monkeypatch, out):
    "Those that are there and those that are built; a text is read for its digest, its beginning and its examples"
    from electra_nbdev.cli import electra_data
    found = Counted(made, monkeypatch)
    electra_data(made/'tales.txt', made/'vocab', made/out, 16, held_out=.1)
    read = {k.removeprefix(f'{made}/'): n for k,n in found.read.items()}
    assert (read[f'{out}/data.json'], read[f'{out}/held_out/data.json'])==(1, 1), read

def test_commands_load_what_a_refusal_needs():
    "Arrays, tables, bars and networks are loaded where they are needed"
    code = "import electra_nbdev.cli, sys; print({'numpy', 'pyarrow', 'fasthtml', 'torch'} & sys.modules.keys())"
    assert subprocess.check_output([sys.executable, '-c', code], text=True)=='set()\n'
