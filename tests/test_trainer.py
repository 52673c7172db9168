"transformers' `Trainer` with examples that have places: every pass, every process, workers, and a resumed run"
import os, signal
from itertools import chain

import pytest
import torch
from torch import nn
from torch.utils.data import ConcatDataset, Subset
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from electra_nbdev.engine.files import InputError
from electra_nbdev.engine.ranks import rank
from electra_nbdev.pretrain import (MaskCollator, NumberedExamples, ReplacedTokenDetection, SetEpoch, build_networks,
                                    preset)
from official import SPECIAL_IDS
from learners import same_weights
from make import DROPOUT, SMALL, batch
from survival import finished, launch

N, PASSES = 24, 3

class Rows:
    "What `NumberedExamples` reads of examples"
    def __len__(self): return N
    def __getitem__(self, i):
        ids = torch.randint(5, 60, (1, 16), generator=torch.Generator().manual_seed(i))
        ids[:,0], ids[:,-1] = SPECIAL_IDS.cls, SPECIAL_IDS.sep
        return ids, torch.tensor([16])

class Places(nn.Module):
    "A network that keeps the places of the examples that it gets"
    def __init__(self):
        super().__init__()
        self.weight, self.seen = nn.Parameter(torch.zeros(())), []
    def forward(self, place, return_loss=True):
        self.seen.append(place.tolist())
        return dict(loss=self.weight*place.sum())

def only_places(rows): return dict(place=torch.tensor([o['place'] for o in rows]))

def train(out, model, collate, resume=None, cbs=(), wrap=lambda o: o, **how):
    "Three passes of `Trainer`, or the rest of them"
    args = TrainingArguments(str(out), per_device_train_batch_size=4, num_train_epochs=PASSES, learning_rate=1e-3,
                             save_strategy='steps', save_steps=1, remove_unused_columns=False, use_cpu=True,
                             report_to='none', disable_tqdm=True, logging_strategy='no', **how)
    trainer = Trainer(model, args, train_dataset=wrap(NumberedExamples(Rows())), data_collator=collate,
                      callbacks=[SetEpoch(), *cbs])
    trainer.train(resume_from_checkpoint=resume and f'{out}/checkpoint-{resume}')
    return model

def places(out, name, *args, **how):
    "Places that each process has seen, in the order of its batches"
    torch.save(train(out, Places(), only_places, *args, **how).seen, out/f'{name}.{rank()}')

WORKERS = dict(dataloader_num_workers=1, dataloader_persistent_workers=True)

@pytest.mark.parametrize('n,how', [(1, {}), (2, {}), (1, WORKERS), (2, WORKERS)])
def test_every_pass_has_its_own_places(tmp_path, n, how):
    "And a run that is resumed in any pass sees the rest of what one sees that was never stopped"
    finished(launch(n, lambda: places(tmp_path, 'whole', **how)))
    whole = [torch.load(tmp_path/f'whole.{i}') for i in range(n)]
    each = N//4//n # batches of a pass
    for k in range(PASSES):
        seen = [o for part in whole for batch in part[k*each:(k+1)*each] for o in batch]
        assert sorted(seen)==[*range(k*N, (k+1)*N)], (k, sorted(seen))
    for at in (each, each+1, 2*each+1):
        finished(launch(n, lambda: places(tmp_path, 'rest', resume=at, **how)))
        for i in range(n): assert torch.load(tmp_path/f'rest.{i}')==whole[i][at:], (at, i)

@pytest.mark.parametrize('wrap', [lambda o: Subset(o, range(8)), lambda o: ConcatDataset([Subset(o, range(8))])])
def test_a_part_of_numbered_examples_has_places_of_its_own_too(wrap, tmp_path):
    "They would be masked alike in every pass"
    seen = [*chain(*train(tmp_path, Places(), only_places, wrap=wrap).seen)]
    assert sorted(seen)==[k*N+i for k in range(PASSES) for i in range(8)]

def test_a_pass_that_nothing_is_told_of_is_refused(tmp_path):
    with pytest.raises(InputError, match='finds no `NumberedExamples`'):
        train(tmp_path, Places(), only_places, wrap=lambda o: [o[i] for i in range(8)])

def test_a_resumed_objective_is_the_one_that_was_not_stopped(tmp_path):
    "Masks and samples of the second and the third pass are drawn by their places"
    hp = preset('tiny', **SMALL)
    def new():
        torch.manual_seed(0)
        return build_networks(hp)
    collate = MaskCollator(SPECIAL_IDS, mask_prob=.3)
    whole = train(tmp_path, new(), collate)
    for at in (8, 14):
        rest = train(tmp_path, new(), collate, resume=at)
        for (k,p),q in zip(whole.named_parameters(), rest.parameters()): assert torch.equal(p, q), (at, k)

class Kill(TrainerCallback):
    "End all processes after an update, as a machine does that goes down"
    def __init__(self, step): self.step = step
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step==self.step: os.kill(os.getpid(), signal.SIGKILL)

@pytest.mark.parametrize('n,how', [(1, {}), (2, WORKERS)])
def test_killed_in_its_third_pass_it_ends_with_the_same_weights(tmp_path, n, how):
    "In random order, with dropout: the weights are those of a run that was not killed, to the last bit"
    each = N//4//n # updates of a pass
    def run(out, *cbs, resume=None):
        torch.manual_seed(0)
        model = build_networks(preset('tiny', **SMALL, model_hparam_overrides=DROPOUT))
        train(out, model, MaskCollator(SPECIAL_IDS, mask_prob=.3), resume, cbs, **how)
        if not rank(): torch.save(model.state_dict(), out/'weights')
    finished(launch(n, lambda: run(tmp_path/'whole')))
    children = launch(n, lambda: run(tmp_path/'killed', Kill(2*each+2)))
    assert 128+signal.SIGKILL in [o.wait(60).code for o in children], children[0].text
    last = int(get_last_checkpoint(tmp_path/'killed').rpartition('-')[2])
    assert 2*each<last<3*each
    finished(launch(n, lambda: run(tmp_path/'killed', resume=last)))
    whole, found = (torch.load(tmp_path/o/'weights') for o in ('whole', 'killed'))
    for k,v in whole.items(): assert torch.equal(v, found[k]), k

@pytest.mark.filterwarnings('ignore:`gradient_checkpointing:FutureWarning') # it has a new name from 5.24 on
def test_layers_are_computed_again(tmp_path):
    "With dropout, and the same weights after three passes"
    def new():
        torch.manual_seed(0)
        return build_networks(preset('tiny', **SMALL, model_hparam_overrides=DROPOUT))
    collate = MaskCollator(SPECIAL_IDS, mask_prob=.3)
    same_weights(train(tmp_path/'a', new(), collate), train(tmp_path/'b', new(), collate, gradient_checkpointing=True))

@pytest.mark.filterwarnings('ignore:`is_gradient_checkpointing:FutureWarning') # peft asks for it
def test_low_rank_adapters_train_go_on_and_merge(tmp_path):
    "LoRA by `peft`: only the adapters learn, a run that is continued ends as the whole one, merged it is an objective"
    peft = pytest.importorskip('peft')
    def new():
        torch.manual_seed(0)
        model = build_networks(preset('tiny', **SMALL))
        return peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=['query', 'value']))
    was, collate = dict(new().named_parameters()), MaskCollator(SPECIAL_IDS, mask_prob=.3)
    whole = train(tmp_path, new(), collate)
    same_weights(whole, train(tmp_path, new(), collate, resume=14))
    moved = {n for n,p in whole.named_parameters() if not torch.equal(p, was[n])}
    assert moved=={n for n in was if 'lora_' in n} and {n.split('.')[2] for n in moved}=={'discriminator', 'generator'}
    mb, whole = batch(), whole.eval()
    loss = whole(**mb).loss
    merged = whole.merge_and_unload()
    assert type(merged) is ReplacedTokenDetection
    torch.testing.assert_close(merged(**mb).loss, loss)
    merged.save_pretrained(tmp_path/'merged')
    torch.testing.assert_close(ReplacedTokenDetection.from_pretrained(tmp_path/'merged').eval()(**mb).loss, loss)

def test_a_slice_of_examples_is_a_list_of_them():
    rows = NumberedExamples(Rows())
    rows.set_epoch(1)
    assert [o['place'] for o in rows[:4]]==[N, N+1, N+2, N+3] and [o['place'] for o in rows[-2:]]==[2*N-2, 2*N-1]
    assert MaskCollator(SPECIAL_IDS)(rows[4:6])['input_ids'].shape==(2, 16)
