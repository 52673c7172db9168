"Several real processes that share a run: they see what one process sees, and one that is lost ends the others"
import os, random, re, signal
from dataclasses import replace
from types import SimpleNamespace

import accelerate # imported once for all the children
import numpy as np
import pytest
import torch
from fastai.callback.core import Callback
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy, normalize
from transformers import BertTokenizerFast, ElectraConfig, ElectraModel

from electra_nbdev.finetuning import tasks
from electra_nbdev.data.batches import PretrainDL
from electra_nbdev.engine.files import InputError
from electra_nbdev.engine import ranks
from electra_nbdev.engine.ranks import rank
from electra_nbdev.finetuning.tasks import text_task
from electra_nbdev.method.discriminator import IGNORE, disc_labels, disc_nll
from electra_nbdev.method.electra import MaskedLanguageModel, ReplacedTokenDetection
from electra_nbdev.method.objective import StepOutput
from electra_nbdev.finetuning.request import run_trials
from make import VARIANTS
from survival import (At, Seen, assert_alike, assert_same, checkpoints, distance, finished, killed, launch, made,
                      result, run, train, weights)

KILLS = int(os.environ.get('ELECTRA_TEST_KILLS', 3))
KINDS = {k: VARIANTS[k] for k in ('one network', 'tied', 'corrective', 'BERT', 'Electric', 'uniform',
                                    'official')}
KINDS |= dict(grouped=dict(length_schedule=(), length_window=3))

@pytest.mark.parametrize('name', KINDS)
def test_two_processes_learn_what_one_learns(made, tmp_path, name):
    "The same masks and samples, row by row, and the same weights after fifty updates"
    d, hp = made
    hp = replace(hp, **KINDS[name])
    run(d, tmp_path/'begin', replace(hp, num_train_steps=1, learning_rate=0.), 1)
    for n in (1, 2): run(d, tmp_path/str(n), hp, n, lambda: [Seen(tmp_path/f'seen{n}')])
    assert_alike(tmp_path/'1', tmp_path/'2', weights(tmp_path/'begin'))
    one, parts = torch.load(tmp_path/'seen1.0'), [torch.load(tmp_path/f'seen2.{i}') for i in range(2)]
    for i,row in enumerate(one[0]):
        for j,x in enumerate(row): assert torch.equal(x, torch.cat([o[0][i][j] for o in parts])), (i, j)
    assert parts[0][1]==parts[1][1]==pytest.approx(one[1], rel=1e-3)

class Shown(Callback):
    "The held-out loss that is printed"
    order, run_valid = 900, False
    def __init__(self, path): self.path = path
    def after_fit(self): torch.save(self.recorder.values[-1][1], f'{self.path}.{rank()}')

def test_the_printed_loss_does_not_depend_on_processes(made, tmp_path):
    "Nor on the size of held-out batches, whose parts have unequal numbers of tokens: the loss is that of all tokens"
    d, hp = made
    hp = replace(hp, num_train_steps=1, learning_rate=0., train_batch_size=12, eval_batch_size=12)
    for n in (1, 2, 3): run(d, tmp_path/str(n), hp, n, lambda: [Shown(tmp_path/f'shown{n}')])
    run(d, tmp_path/'other', replace(hp, eval_batch_size=24), 1, lambda: [Shown(tmp_path/'shown4')])
    shown = {n: float(torch.load(tmp_path/f'shown{n}.0', weights_only=False)) for n in (1, 2, 3, 4)}
    assert all(o==pytest.approx(shown[1], rel=1e-6) for o in shown.values()), shown

def test_any_number_of_processes_and_parts(made, tmp_path):
    "Four processes, parts of a batch, both, and another number after a stop"
    d, hp = made
    run(d, tmp_path/'begin', replace(hp, num_train_steps=1, learning_rate=0.), 1)
    run(d, tmp_path/'one', hp, 1)
    begin = weights(tmp_path/'begin')
    for name,n,parts in (('four', 4, 1), ('parts', 1, 4), ('both', 2, 2)):
        run(d, tmp_path/name, replace(hp, grad_accumulation=parts), n)
        assert_alike(tmp_path/'one', tmp_path/name, begin)
    stop = At(20, lambda _: os.kill(os.getpid(), signal.SIGTERM))
    children = launch(4, lambda: train(tmp_path/'changed', d/'examples', hp, [stop]))
    assert [o.wait(60).code for o in children]==[128+signal.SIGTERM]*4, children[0].text
    run(d, tmp_path/'changed', replace(hp, grad_accumulation=2), 2)
    assert_alike(tmp_path/'one', tmp_path/'changed', begin)

def test_a_ragged_batch_counts_as_a_whole(made, tmp_path):
    "The loss of parts with different numbers of tokens is the ratio of sums of the whole batch"
    d, hp = made
    hp = replace(hp, num_train_steps=3, train_batch_size=16, length_schedule=())
    run(d, tmp_path/'one', hp, 1, lambda: [Seen(tmp_path/'a')])
    run(d, tmp_path/'parts', replace(hp, grad_accumulation=8), 1, lambda: [Seen(tmp_path/'b')])
    run(d, tmp_path/'ranks', hp, 4, lambda: [Seen(tmp_path/'c')])
    rows, norms = torch.load(tmp_path/'a.0')
    real = torch.cat([(o[0]!=0).sum(1) for o in rows])
    assert len(real.unique())>3, 'all examples are full: the test sees nothing'
    for o in 'bc': assert torch.load(tmp_path/f'{o}.0')[1]==pytest.approx(norms, rel=1e-5)

def test_a_lost_process_ends_the_other(made, tmp_path):
    "One of two with dropout is killed, again and again: the run is the one that nobody stopped"
    d, hp = made
    body = hp.model_hparam_overrides | dict(hidden_dropout_prob=.1, attention_probs_dropout_prob=.1)
    hp = replace(hp, model_hparam_overrides=body, save_checkpoints_steps=10,
                 keep_checkpoints_at=tuple(range(2, hp.num_train_steps, 3)))
    run(d, tmp_path/'whole', hp, 2)
    kills, rng = 0, random.Random(0)
    for i in range(KILLS):
        out, ended = tmp_path/f'killed{i}', False
        while not ended and kills<KILLS:
            victim, children = rng.randrange(2), launch(2, lambda: train(out, d/'examples', hp))
            ended, lost = killed(children, victim, out, len(checkpoints(out))+rng.randrange(1, 5), rng.uniform(0, .05))
            kills += not ended
            if not ended: assert lost.code==1 and 'gloo' in lost.text.lower(), lost.text
        if not ended: run(d, out, hp, 2)
        assert_same(result(out), result(tmp_path/'whole'))
        if kills==KILLS: break
    assert kills==KILLS

def test_dropout_differs_between_processes_and_updates(monkeypatch):
    "And not between two tries of the same update"
    def drawn(process, update):
        monkeypatch.setattr(ranks, 'rank', lambda: process)
        own = ranks.OwnDropout(seed=1)
        own.learn = SimpleNamespace(n_updates=update, n_accumulated=0)
        own.before_batch()
        return tuple(torch.rand(4).tolist())
    assert len({drawn(i, k) for i in range(2) for k in range(3)})==6
    assert drawn(1, 2)==drawn(1, 2)

def test_both_stop_at_a_signal_of_one(made, tmp_path):
    "Within ten updates"
    d, hp = made
    def tell(): return [At(7, lambda _: os.kill(os.getpid(), signal.SIGTERM))] if os.environ['RANK']=='1' else []
    children = launch(2, lambda: train(tmp_path/'run', d/'examples', hp, tell()))
    assert [o.wait(60).code for o in children]==[128+signal.SIGTERM]*2, children[0].text
    (last,) = checkpoints(tmp_path/'run')
    assert 8<=int(last[-8:])<=18

def test_processes_ask_each_other_rarely_and_together(monkeypatch):
    "Every tenth update of a fast run, every update of a slow one, whatever the own clock says"
    monkeypatch.setattr(ranks, 'n_processes', lambda: 2)
    asked = []
    def largest(*x):
        asked.append(n)
        return [15, 1, secs]
    monkeypatch.setattr(ranks, 'largest', largest)
    for secs,at in ((.001, [1, 11, 21]), (.3, [1, 4, 7, 10, 13, 16, 19, 22, 25]), (5., [*range(1, 26)])):
        agree, asked[:] = ranks.Agreement(), []
        found = []
        for n in range(1, 26): found.append(agree(0, False))
        assert asked==at and [i+1 for i,o in enumerate(found) if o!=[0, 0]]==at
        assert found[0]==[15, 1]

class Secs(Callback):
    "A clock that is ahead in one process"
    def before_batch(self):
        if os.environ['RANK']=='1' and self.training and self.n_updates==7: self.learn.save_at = 0

def test_both_save_when_one_wants_to(made, tmp_path):
    d, hp = made
    run(d, tmp_path/'run', replace(hp, num_train_steps=20, save_checkpoints_steps=20), 2, lambda: [Secs()])
    assert [int(o[-8:]) for o in checkpoints(tmp_path/'run')][0] in range(8, 19)

class NoGenerator(ReplacedTokenDetection):
    "A step that leaves out the generator"
    def step(self, mb):
        labels = disc_labels(mb.masked_ids!=mb.input_ids, mb.attention_mask)
        logits = self.token_logits(mb.masked_ids, mb.attention_mask, mb.token_type_ids)
        return StepOutput(logits=logits, labels=labels, sums=dict(disc=disc_nll(logits, labels).sum()))
    @property
    def weights(self): return dict(disc=1.)
    def counts(self, mb): return dict(disc=(disc_labels(mb.input_ids<0, mb.attention_mask)!=IGNORE).sum())

class Pairs(MaskedLanguageModel):
    "Two masks of an example are more alike than those of two examples (SimCSE)"
    weights = dict(gen=1., pairs=1.)
    def step(self, mb):
        out, x = super().step(mb), self.generator.get_input_embeddings()
        a, b = (normalize(x(o).mean(1), dim=-1) for o in (mb.masked_ids, mb.input_ids))
        others, first = self.gather(b)
        logits = a@others.T/.05
        out.sums['pairs'] = cross_entropy(logits, torch.arange(first, first+len(a)), reduction='sum')
        return out
    def counts(self, mb): return super().counts(mb) | dict(pairs=mb.weights.new_tensor(len(mb.weights)))

def test_a_loss_that_compares_examples_sees_those_of_all_processes(made, tmp_path):
    "With gradients to whoever made them"
    d, hp = made
    hp = replace(hp, electra_objective=False, unigram_noise=0.)
    run(d, tmp_path/'begin', replace(hp, num_train_steps=1, learning_rate=0.), 1, objective=Pairs)
    for n in (1, 2): run(d, tmp_path/str(n), hp, n, lambda: [Norms(tmp_path/f'seen{n}')], objective=Pairs)
    assert torch.load(tmp_path/'seen2.0')[1]==pytest.approx(torch.load(tmp_path/'seen1.0')[1], rel=1e-3)
    one, two, begin = (weights(tmp_path/o) for o in ('1', '2', 'begin'))
    assert distance(one, two)<1e-3*distance(one, begin)

class Norms(Seen):
    "Those of the gradients alone"
    def after_pred(self): pass

@pytest.mark.parametrize('shard', [False, True])
def test_a_step_may_leave_out_the_generator(made, tmp_path, shard):
    "Whose weights stay what they were"
    d, hp = made
    hp = replace(hp, num_train_steps=8, unigram_noise=0., length_schedule=())
    for n in (1, 2):
        how = dict(shard=True) if shard and n==2 else {}
        run(d, tmp_path/str(n), hp, n, lambda: [Norms(tmp_path/f'seen{n}')], objective=NoGenerator, **how)
    assert torch.load(tmp_path/'seen2.0')[1]==pytest.approx(torch.load(tmp_path/'seen1.0')[1], rel=1e-4) # the first too
    one, two = (weights(tmp_path/str(n)) for n in (1, 2))
    for k,t in one.items(): assert torch.allclose(t, two[k], atol=1e-4), k

def test_a_batch_that_cannot_be_shared(made, monkeypatch):
    from electra_nbdev.data import batches
    from electra_nbdev.data.examples import load_examples
    train = load_examples(made[0]/'examples')
    monkeypatch.setattr(batches, 'n_processes', lambda: 3)
    with pytest.raises(InputError, match='multiple of 3: 6'): PretrainDL(train, bs=8, shuffle=True)
    with pytest.raises(InputError, match='multiple of 6: 6'): PretrainDL(train, bs=8, shuffle=True, parts=2)

def test_all_processes_trim_a_batch_alike(made, monkeypatch):
    "Masks depend on the width, so the longest example of another process counts"
    from electra_nbdev.data import batches
    from electra_nbdev.data.examples import load_examples
    dl = PretrainDL(load_examples(made[0]/'examples'), bs=8, shuffle=True, device='cpu', window=10**6)
    dl.lens = np.arange(len(dl.lens))%16 + 1 # of all lengths
    monkeypatch.setattr(batches, 'n_processes', lambda: 8)
    widths = []
    for i in range(8):
        monkeypatch.setattr(batches, 'rank', lambda: i)
        widths.append([dl.trimmed(k)[0].shape[1] for k in range(dl.per_epoch)])
    assert set(widths[0])=={8, 16} and all(o==widths[0] for o in widths)

# Fine-tuning

@pytest.fixture(scope='module')
def encoder(tmp_path_factory):
    "A narrow encoder without dropout, and its tokenizer"
    d = tmp_path_factory.mktemp('encoder')
    words = '[PAD] [UNK] [CLS] [SEP] [MASK] red blue dog cat runs sleeps and the a'.split()
    (d/'vocab.txt').write_text('\n'.join(words)+'\n')
    BertTokenizerFast(str(d/'vocab.txt')).save_pretrained(d)
    torch.manual_seed(0)
    cfg = ElectraConfig(vocab_size=len(words), hidden_size=16, embedding_size=8, num_hidden_layers=1,
                        num_attention_heads=2, intermediate_size=32, max_position_embeddings=16, hidden_dropout_prob=0.,
                        attention_probs_dropout_prob=0.)
    ElectraModel(cfg).save_pretrained(d)
    rng = random.Random(0)
    rows = [(' '.join(rng.choices(words[5:], k=rng.randrange(1, 9))), rng.choice('xyz')) for _ in range(37)]
    (d/'table.tsv').write_text('words\tkind\n' + ''.join(f'{a}\t{b}\n' for a,b in rows))
    return d

def finetuned(d, out, names=('kind',), **hparams):
    "Tasks from a table, learned together, in a child; no dropout in their heads"
    tasks.PackedDropout = lambda p: torch.nn.Identity()
    described = [text_task(o, d/'table.tsv', d/'table.tsv', None, 'words', None, 'kind', None) for o in names]
    run_trials(str(d), described, out, device='cpu', max_seq_length=16, **hparams)

@pytest.mark.parametrize('reduction,weights', [('sum', None), ('mean', None), ('mean', 'balanced')])
def test_processes_fine_tune_what_one_does(encoder, tmp_path, reduction, weights):
    "Two tasks under one network; last batches of a single sequence; two and three processes"
    how = dict(names=('kind', 'again'), num_trials=1, num_train_epochs=3., train_batch_size=4, learning_rate=1e-3,
               loss_reduction=reduction, class_weights=weights, layerwise_lr_decay=0.)
    found, losses = {}, {}
    for n in (1, 2, 3):
        finished(children := launch(n, lambda: finetuned(encoder, tmp_path/str(n), **how)))
        losses[n] = [float(o) for o in re.findall(r'valid_loss ([\d.]+)', children[0].text)]
        weights = {}
        for o in ('model', 'heads'): weights |= load_file(tmp_path/str(n)/'trial-0'/'model'/f'{o}.safetensors')
        found[n] = weights
    begin = load_file(encoder/'model.safetensors')
    moved = distance(begin, found[1])
    assert moved>.05, moved
    for n in (2, 3):
        assert distance(found[1], found[n])<1e-3*moved, n
        assert losses[n]==pytest.approx(losses[1], abs=2e-3) and len(losses[n])==3
    assert sorted(o.name for o in (tmp_path/'2').iterdir())==sorted(o.name for o in (tmp_path/'1').iterdir())
