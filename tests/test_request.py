"What was asked is settled once: each file is read once, and the recipe is checked once."
import subprocess, sys
from collections import Counter
from dataclasses import MISSING, fields
from inspect import signature
from pathlib import Path

import pytest

from electra_nbdev import cli
from electra_nbdev.data.examples import DataRequest
from electra_nbdev.engine import command
from electra_nbdev.engine.files import InputError
from electra_nbdev.finetuning.request import FinetuneRequest, PredictRequest
from electra_nbdev.networks.hparams import PretrainHParams
from electra_nbdev.networks.recipe import preset
from electra_nbdev.pretraining import runs
from electra_nbdev.pretraining.request import PretrainRequest
from electra_nbdev.scoring.request import ScoreRequest
from make import NARROW, examples_of_tales
from terminal import bad, files_read, typed

@pytest.fixture(scope='module')
def made(tmp_path_factory):
    d, hp = examples_of_tales(tmp_path_factory.mktemp('request'), num_train_steps=4, model_hparam_overrides=NARROW)
    PretrainRequest(d/'examples', d/'run', hparams=hp, device='cpu').settle().run()
    return d

def test_a_run_that_goes_on_is_settled_once(made, monkeypatch):
    from electra_nbdev.cli import electra_pretrain
    read, calls, begun = files_read(made, monkeypatch), Counter(), []
    def note(owner, name, act):
        def f(*args, was=getattr(owner, name)):
            act()
            return was(*args)
        monkeypatch.setattr(owner, name, f)
    for owner,name in ((PretrainHParams, '__post_init__'), (command, 'check_field')):
        note(owner, name, lambda name=name: calls.update([name]))
    note(runs, '_run', lambda: begun.append((dict(read), dict(calls))))
    electra_pretrain(made/'examples', made/'run', device='cpu')
    (read, calls), = begun
    again = [k for k,n in read.items() if n>1 and Path(k).parent.name!='vocab'] # transformers reads those again
    assert not again and {'run/hparams.json', 'examples/data.json', 'examples/held_out/data.json'}<=read.keys()
    assert calls['__post_init__']==1 and calls['check_field']<=2*len(fields(PretrainHParams))

@pytest.mark.parametrize('out', ['examples', 'fresh'])
def test_examples_are_settled_once(made, monkeypatch, out):
    "Those that are there and those that are built; a text is read for its digest, its beginning and its examples"
    from electra_nbdev.cli import electra_data
    read = files_read(made, monkeypatch)
    electra_data(made/'tales.txt', made/'vocab', made/out, 16, held_out=.1)
    assert (read[f'{out}/data.json'], read[f'{out}/held_out/data.json'])==(1, 1), read

REQUESTS = {cli.electra_data: DataRequest, cli.electra_pretrain: PretrainRequest, cli.electra_score: ScoreRequest,
            cli.electra_finetune: FinetuneRequest, cli.electra_predict: PredictRequest}

@pytest.mark.parametrize('command', REQUESTS)
def test_a_request_has_the_defaults_of_its_command(command):
    typed = {k: o.default for k,o in signature(command).parameters.items() if o.default is not o.empty}
    asked = {o.name: o.default for o in fields(REQUESTS[command]) if o.default is not MISSING}
    shared = typed.keys() & asked.keys() - {'held_out'} # nothing is held out where a function is not asked to
    assert len(shared)>3 and {k: asked[k] for k in shared}=={k: typed[k] for k in shared}

def test_commands_load_what_a_refusal_needs():
    "Arrays, tables, bars and networks are loaded where they are needed"
    code = "import electra_nbdev.cli, sys; print({'numpy', 'pyarrow', 'fasthtml', 'torch'} & sys.modules.keys())"
    assert subprocess.check_output([sys.executable, '-c', code], text=True)=='set()\n'

@pytest.mark.parametrize('flags', ['--steps 12', '--minutes 0.02', '--passes 1'])
def test_steps_that_are_given_twice_are_refused(made, flags):
    for other in ('--num-train-steps 500', "--hparams '{\"num_train_steps\": 500}'"):
        line = f'electra_pretrain --data examples --out twice --device cpu {flags} {other}'
        bad(made, line, f'{flags.split()[0]} and', 'were both given')
    assert not (made/'twice').exists()

def test_a_whole_recipe_says_its_steps_itself(made):
    whole = preset('tiny', num_train_steps=30)
    for given in (dict(steps=10), dict(seed=5), dict(preset='modern'), dict(body='some')):
        with pytest.raises(InputError, match='was given beside a whole recipe'):
            PretrainRequest(made/'examples', made/'whole', hparams=whole, **given).settle()

def test_examples_of_another_kind_are_refused_with_a_cure(made):
    for line in ('electra_vocab --corpus tales.txt --out other --vocab-size 110',
                 'electra_data --corpus tales.txt --vocab other --out others --max-length 32',
                 'electra_data --corpus tales.txt --vocab vocab --out short --max-length 32'):
        assert typed(line, made).code==0, line
    bad(made, 'electra_evaluate --run run --data others', 'another vocabulary', 'electra_data --vocab run')
    bad(made, 'electra_evaluate --run run --data short', 'have up to 32 tokens', '--vocab run --max-length')
