"A finished command that is typed again leaves every file as it was, byte for byte"
import json

import pytest
import torch

from electra_nbdev.engine.checkpoint import latest_checkpoint, load_checkpoint, tensors_of
from electra_nbdev.networks.build import load_networks
from electra_nbdev.networks.recipe import load_hparams
from make import glue_files, home
from terminal import typed

SCHEDULE = dict(length_schedule=[[8, .5], [16, .5]], copy_positions=True, max_seq_length=16)
MADE = 'electra_pretrain --data examples --steps 8 --hparams {0}.json --out again-{0} --device cpu'
TUNE = 'electra_finetune --model run --task cola --data-dir tasks --out {} --device cpu --hparams tune.json'
LINES = {
    'vocab': 'electra_vocab --corpus tales.txt --out v --vocab-size 120',
    'data': 'electra_data --corpus tales.txt --vocab vocab --out x --max-length 16 --held-out 0.1',
    'pretrain': MADE.format('recipe'),
    'a schedule of lengths': MADE.format('lengths'),
    'a schedule that ends early': MADE.format('short'),
    'an encoder of positions no sequence had': MADE.format('longer'),
    'init': 'electra_pretrain --data examples --init run --steps 4 --out on --device cpu',
    'finetune': TUNE.format('tuned'),
    'two trials': f'{TUNE.format("trials")} --trials 2',
    'test sets': f'{TUNE.format("tests")} --predict-test',
    'evaluate': 'electra_evaluate --run run --data examples/held_out --device cpu',
    'predict': 'electra_predict --model tuned2/cola --src lines.txt --out found.jsonl --device cpu',
    'score': 'electra_score --text lines.txt --model run --by pll --out scores.jsonl --device cpu',
    'check': 'electra_check --src lines.txt --model run --threshold 1 --json --out checked.jsonl --device cpu',
    'convert': 'electra_convert --src run --out converted',
    'onnx': 'electra_convert --src run --out onnx --onnx'}

@pytest.fixture(scope='module')
def ready(home):
    recipe = json.loads((home/'recipe.json').read_text())
    def put(name, **kw): (home/name).write_text(json.dumps(recipe | kw))
    put('lengths.json', **SCHEDULE)
    put('short.json', **SCHEDULE | dict(length_schedule=[[8, 1.]]))
    put('longer.json', **SCHEDULE, model_hparam_overrides=dict(max_position_embeddings=64))
    (home/'tune.json').write_text(json.dumps(dict(num_train_epochs=1, train_batch_size=8, max_seq_length=16)))
    (home/'lines.txt').write_text('the king saw the sea .\nit was the storm .\n')
    glue_files(home/'tasks')
    assert typed(TUNE.format('tuned2'), home).code==0
    return home

def files(d): return {o.relative_to(d): o.read_bytes() for o in d.rglob('*') if o.is_file()}

@pytest.mark.parametrize('name', LINES)
def test_a_finished_command_typed_twice_changes_nothing(name, ready):
    first = typed(LINES[name], ready, curves=True)
    was = files(ready)
    again = typed(LINES[name], ready, curves=True)
    assert first.code==0 and again.code in (0, 2), (first, again)
    now = files(ready)
    assert now.keys()==was.keys() and not [o for o in was if was[o]!=now[o]], again

@pytest.mark.parametrize('name', ['lengths.json', 'short.json', 'longer.json'])
def test_the_last_checkpoint_is_what_the_folder_holds(name, ready):
    "Evaluating, beginning another run and a kill before the end see the same network"
    out = f'whole-{name}'
    line = f'electra_pretrain --data examples --steps 8 --hparams {name} --out {out} --device cpu'
    assert typed(line, ready).code==0
    tensors, _ = load_checkpoint(latest_checkpoint(ready/out))
    saved = dict(load_networks(ready/out, load_hparams(ready/out/'hparams.json')).named_parameters())
    kept = tensors_of(tensors, 'model')
    assert kept.keys()==saved.keys() and all(torch.equal(kept[o], saved[o]) for o in saved)

def test_what_was_measured_of_a_network_stays_with_it(ready):
    "Until the network is another one"
    line = 'electra_pretrain --data examples --steps 8 --hparams recipe.json --out measured --device cpu'
    assert typed(line, ready).code==0
    kept = ready/'measured/discriminator/right_sentences.json'
    kept.write_text('{}')
    assert typed(line, ready).code==0 and kept.is_file()
    assert typed(line.replace('--steps 8', '--extend --steps 12'), ready).code==0 and not kept.exists()
