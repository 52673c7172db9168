"Weights of classes: their values, the loss, a rare class that is learnt, and what is refused"
import json

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight

import electra_nbdev.finetuning.finetune as ft
from electra_nbdev.engine.files import InputError
from electra_nbdev.finetuning.finetune import class_weights
from electra_nbdev.finetuning.recipe import finetune_preset
from electra_nbdev.finetuning.tasks import text_task
from learners import quiet
from make import SHORT, electra_folder, sentence, task_files, write
from terminal import bad, worked

@pytest.fixture(scope='module')
def home(tmp_path_factory):
    d = tmp_path_factory.mktemp('weights')
    electra_folder(d/'model')
    task_files(d/'data')
    write(d/'rows.csv', 'text,kind,size\n' + ''.join(f"{sentence(i)},{'rare' if i%10==0 else 'often'},{i/4}\n"
                                                      for i in range(40)))
    write(d/'recipe.json', json.dumps(SHORT))
    return d

def test_weights_are_those_of_scikit_learn():
    "By hand: of eight texts six, one and one"
    y = [0, 0, 0, 0, 0, 0, 1, 2]
    assert class_weights(y, 3).tolist()==pytest.approx([8/18, 8/3, 8/3])
    want = compute_class_weight('balanced', classes=np.arange(3), y=np.array(y))
    assert class_weights(y, 3).numpy()==pytest.approx(want)
    assert torch.isfinite(class_weights(y, 4)).all() # a class whose texts are all held out

@pytest.mark.parametrize('reduction', ['sum', 'mean'])
def test_the_loss_of_a_training_batch(home, reduction):
    "That of torch, with the weights of the training rows"
    rows = [dict(text=sentence(i), label='rare' if i%4==0 else 'often') for i in range(16)]
    dls = ft.TextTaskDataLoaders.from_df(rows, model=home/'model', valid=rows[:4], bs=16, device='cpu',
                                         class_weights='balanced', loss_reduction=reduction)
    learn = quiet(ft.electra_classifier(dls))
    batch, targets = dls.train.one_batch()
    logits = learn.model.eval()(batch)
    loss = torch.nn.CrossEntropyLoss(torch.tensor([16/24, 16/8]), reduction=reduction) # often, rare
    want = loss(logits['task'], targets['task']).item()
    assert learn.loss_func(logits, targets).item()==pytest.approx(want, rel=1e-5)
    learn.fit(1)
    assert learn.scores['task']['loss']==pytest.approx(
        torch.nn.CrossEntropyLoss()(torch.stack(learn.outputs('task', dls.valid.dataset.items)),
                                    torch.tensor([o.target for o in dls.valid.dataset.items])).item(), rel=1e-4)

def test_a_rare_class_is_said(home, tmp_path):
    "Nothing in the texts tells the classes apart: without weights the rare one is never said, with them it is"
    line = 'electra_finetune --csv rows.csv --text text --label kind --dev rows.csv --model model --hparams recipe.json'
    means = {}
    for name,flags in dict(plain='', even='--class-weights balanced').items():
        worked(f'{line} --device cpu --out {name} --epochs 6 --lr 1e-2 {flags}', home)
        learn = ft.load_finetuned(home/name, 'cpu')
        probs = [o.probs['rare'] for o in learn.predict([sentence(i) for i in range(40)])]
        means[name] = np.mean(probs)
    assert means['plain']<.25 and .35<means['even']<.65, means
    recipe = json.loads((home/'even/rows/model/tasks.json').read_text())['hparams']
    assert recipe['class_weights']=='balanced'
    bad(home, f'{line} --device cpu --out even --epochs 6 --lr 1e-2', "class_weights is 'balanced', asked for None")

@pytest.mark.parametrize('flags,words', [
    ('--csv rows.csv --text text --label size --class-weights balanced', ['--class-weights', 'not for rows']),
    ('--data-dir data --task sts --class-weights balanced', ['--class-weights', 'not for sts']),
    ('--data-dir data --task chunk --class-weights balanced', ['--class-weights', 'not for chunk']),
    ('--data-dir data --task squad --class-weights balanced', ['--class-weights', 'not for squad']),
    ('--data-dir data --task cola+sts --class-weights balanced', ['--class-weights', 'not for sts']),
    ('--csv rows.csv --text text --label kind --class-weights even', ["--class-weights is 'even'; allowed: balanced"])])
def test_tasks_without_one_class_are_refused(home, flags, words):
    bad(home, f'electra_finetune --model model --hparams recipe.json --device cpu --out fresh {flags}', *words)

def test_several_labels_are_refused(home):
    rows = [dict(text=sentence(i), a=i%2, b=i//2%2) for i in range(16)]
    task = text_task('labels', rows, rows, label=['a', 'b'])
    with pytest.raises(InputError, match='not for labels'):
        dls = ft.TaskDataLoaders.from_task(task, home/'model', device='cpu', class_weights='balanced')
        ft.electra_classifier(dls)

def test_it_is_off_by_default():
    assert finetune_preset().class_weights is None
    with pytest.raises(InputError, match="is 2; it has to be of type str or null"): finetune_preset(class_weights=2)
