"Hyper-parameters as flags and keyword arguments: the same as in JSON, over it, and refused by the name that was typed"
import json

import pytest

from electra_nbdev import cli
from electra_nbdev.engine.files import InputError
from electra_nbdev.networks.recipe import preset
from electra_nbdev.pretraining.request import PretrainRequest
from make import electra_folder, glue_files, home
from terminal import alone, bad, lean, worked

LINE = 'electra_pretrain --data examples --hparams recipe.json --steps 4 --out {out} --device cpu'
MORE = dict(mask_prob=.2, learning_rate=1e-3, bias_correction=False, max_grad_norm=None, train_batch_size=8,
            keep_checkpoints_at=[.5], model_hparam_overrides=dict(hidden_dropout_prob=.1), duplicates='official')
FLAGS = ("--mask-prob .2 --lr 1e-3 --bias-correction False --max-grad-norm null --batch-size=8 --duplicates official "
         """--keep-checkpoints-at '[0.5]' --model-hparam-overrides '{"hidden_dropout_prob": 0.1}'""")

def test_a_run_by_flags_is_the_run_by_json(home, monkeypatch):
    "Its recipe is the same, byte by byte; as keyword arguments too"
    recipe = json.loads((home/'recipe.json').read_text())
    (home/'more.json').write_text(json.dumps(recipe | MORE))
    worked(LINE.format(out='json').replace('recipe.json', 'more.json'), home)
    worked(f"{LINE.format(out='flags')} {FLAGS}", home)
    monkeypatch.chdir(home)
    cli.electra_pretrain('examples', 'words', hparams='recipe.json', steps=4, device='cpu', **MORE)
    as_json, *others = ((home/o/'hparams.json').read_bytes() for o in ('json', 'flags', 'words'))
    assert json.loads(as_json)['mask_prob']==.2 and others==[as_json]*2

def test_a_plan_by_flags_is_the_plan_by_json(home):
    recipe = dict(body=dict(model_type='bert', hidden_size=64, num_attention_heads=2, num_hidden_layers=2), seed=3,
                  max_seq_length=64, train_batch_size=16)
    as_json = worked(f"electra_plan --preset tiny --device t4 --hparams '{json.dumps(recipe)}'", home)
    flags = f"--body '{json.dumps(recipe['body'])}' --seed 3 --max-length 64 --train-batch-size 16"
    by_flags = worked(f'electra_plan --preset tiny --device t4 {flags}', home)
    assert as_json.out==by_flags.out!=''

def test_a_fine_tuning_by_flags_is_the_one_by_json(tmp_path):
    glue_files(tmp_path/'data')
    electra_folder(tmp_path/'model')
    line = 'electra_finetune --model model --data-dir data --task cola --device cpu'
    given = dict(max_seq_length=32, train_batch_size=8, num_train_epochs=1, layerwise_lr_decay=.5,
                 similar_lengths=False)
    worked(f"{line} --out json --hparams '{json.dumps(given)}'", tmp_path)
    flags = '--max-length 32 --batch-size 8 --epochs 1 --layerwise-lr-decay .5 --similar-lengths false'
    worked(f"{line.replace('--task', '--task-names')} --out flags {flags}", tmp_path)
    as_json, by_flags = ((tmp_path/o/'cola/model/tasks.json').read_bytes() for o in ('json', 'flags'))
    assert json.loads(as_json)['hparams']['layerwise_lr_decay']==.5 and as_json==by_flags

def test_preset_hparams_flags(home):
    "What comes later counts"
    found = PretrainRequest(home/'examples', home/'none', 'tiny', cli.with_flags(dict(mask_prob=.2, gen_weight=2.),
                                                                                 dict(mask_prob=.4))).settle().hp
    assert (found.mask_prob, found.gen_weight, found.disc_weight)==(.4, 2., preset('tiny').disc_weight)
    whole = cli.with_flags(preset('tiny', gen_weight=2.), dict(mask_prob=.4))
    assert whole==preset('tiny', gen_weight=2., mask_prob=.4)

def test_passes(home, tmp_path):
    n = json.loads((home/'examples/data.json').read_text())['counts']['examples']
    asked = PretrainRequest(home/'examples', tmp_path/'run', 'tiny', dict(train_batch_size=4), passes=2.5)
    hp = asked.settle().hp
    assert hp.num_train_steps==round(2.5*(n//4))
    assert hp.num_warmup_steps==hp.num_train_steps//10 # as with `steps`
    line = 'electra_pretrain --data examples --hparams recipe.json --passes 1 --out passes --device cpu --batch-size 32'
    worked(line, home)
    assert json.loads((home/'passes/hparams.json').read_text())['num_train_steps']==n//32
    assert f'Finished already at step {n//32}' in worked(line, home).out

@pytest.mark.parametrize('line,words', [
    ('electra_pretrain --mask-prob 2.0', ['--mask-prob is 2.0; allowed: at least 0.01, at most 0.9']),
    ('electra_pretrain --lr fast', ["--lr is 'fast'; it has to be of type float"]),
    ('electra_pretrain --train-batch-size 0', ['--train-batch-size is 0; allowed: at least 1']),
    ('electra_pretrain --whole-words 1', ['--whole-words is 1; it has to be of type bool']),
    ('electra_pretrain --unigram-noise 0 --unigram-noise-until .5',
     ['--unigram-noise-until says', 'set --unigram-noise']),
    ("""electra_pretrain --hparams '{"mask_prob": 2}' --lr 1e-3""", ['hparam `mask_prob` is 2;']),
    ('electra_pretrain --model-size tinny', ["--model-size is 'tinny'"]),
    ('electra_pretrain --mask-probs .2', ['there is no flag --mask-probs. Did you mean `--mask-prob`?']),
    ('electra_pretrain --data examples --vocab-size 4000 --out r2', ['--vocab-size', '4000']),
    ('electra_pretrain --data examples --passes 1 --steps 3', ['--steps and --passes were both given']),
    ('electra_pretrain --data examples --passes 1 --minutes 3', ['--minutes and --passes were both given']),
    ('electra_pretrain --data examples --passes 0', ['--passes is 0', 'at least 0.001']),
    ('electra_pretrain --passes 1', ['name their folder with --data']),
    ('electra_plan --batch-size 0', ['--batch-size is 0; allowed: at least 1']),
    ('electra_plan --device a100 --budget "3 h" --lr 1e-3', ['leave --preset']),
    ('electra_finetune --csv rows.csv --text text --label kind --epochs 0', ['--epochs is 0; allowed: at least 0.001']),
    ('electra_finetune --csv rows.csv --text text --label kind --loss-reduction max', ["--loss-reduction is 'max'"]),
    ('electra_finetune --epoch-number 3', ['there is no flag --epoch-number']),
    ('electra_convert --src run --out c2 --mask-prob .2', ['no flag --mask-prob', '--hparams']),
])
def test_a_flag_is_refused_by_its_name(home, line, words):
    (home/'rows.csv').write_text('text,kind\na good day,x\na bad day,y\n')
    bad(home, line, *words, run=lean)

def test_a_keyword_is_refused_by_its_name():
    with pytest.raises(InputError, match='no argument `mask_probs`. Did you mean `mask_prob`'):
        cli.electra_pretrain(mask_probs=.2)
    with pytest.raises(InputError, match='`mask_prob` is 2; allowed'): cli.electra_plan('tiny', mask_prob=2)
    with pytest.raises(InputError, match='`num_train_epochs` is 0'):
        cli.electra_finetune('cola', model='tiny', data_dir='hf:glue', epochs=0)

@pytest.mark.parametrize('name,some', [('pretrain', ['--mask-prob', '--lr']), ('plan', ['--body', '--seed']),
                                       ('finetune', ['--epochs', '--doc-stride'])])
def test_only_all_help_lists_them(home, name, some):
    short, long = (alone(f'electra_{name} {o}', home).out for o in ('--help', '--help-all'))
    assert all(o in long and o+' ' not in short for o in some), short

@pytest.mark.parametrize('line,words', [
    ('electra_finetune --task cola --task rte', ['--task is given twice', 'its values follow one flag']),
    ('electra_data --corpus a --corpus b --vocab v --out o', ['--corpus is given twice', 'by a pattern in quotes']),
    ('electra_score --text a.txt --text b.txt', ['--text is given twice', 'leave one out']),
    ('electra_finetune --task cola --epochs 2 --num-train-epochs 1', ['--num-train-epochs and --epochs are the same']),
    ('electra_finetune --task cola --trials 2 --num-trials 1', ['--trials and --num-trials are the same']),
])
def test_a_flag_given_twice_is_refused(home, line, words):
    "Where both may be meant: the last one counted, without a word on the others"
    bad(home, line, *words)
