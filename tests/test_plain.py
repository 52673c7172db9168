"The plain ELECTRA of notebook 56: short, without the library, and with the library's losses at equal masks"
import json, re
from pathlib import Path

import pytest
import torch

from electra_nbdev.method.discriminator import corrupt, disc_labels, disc_nll, is_replaced
from electra_nbdev.method.generator import mlm_nll
from electra_nbdev.method.masking import MaskedBatch

NOTEBOOK = Path(__file__).parents[1]/'nbs'/'tutorials'/'56_plain_electra.ipynb'

def cells():
    "Sources of the code cells that the reader sees"
    found = [''.join(o['source']) for o in json.loads(NOTEBOOK.read_text())['cells'] if o['cell_type']=='code']
    return [o for o in found if not o.startswith('#| hide')]

def test_it_is_short_and_plain():
    lines = [o for c in cells() for o in c.split('\n') if o.strip() and not o.startswith('#|')]
    assert len(lines)<=150
    assert not any(re.match(r'(from|import) +(electra_nbdev|transformers|fastai)', o) for o in lines)

@pytest.fixture(scope='module')
def plain():
    "What its cells define, up to the training"
    space = {}
    for c in cells():
        if 'history = train' in c: return space
        exec(re.sub(r'(?m)^%.*$', '', c), space)

def batch(plain):
    "Masked examples of the page as the library has them"
    torch.manual_seed(0)
    ids = plain['sequences'](plain['train_ids'], 4, 32)
    positions, masked = plain['mask'](ids)
    return MaskedBatch(ids, None, ids*0, masked, positions, ids.gather(1, positions), torch.ones(positions.shape))

def test_the_losses_are_those_of_the_library(plain):
    mb = batch(plain)
    logits, sampled = plain['generator'](mb.masked_ids, mb.positions), plain['unigram'](mb.positions.shape)
    fake, replaced = plain['corrupt'](mb.input_ids, mb.positions, sampled)
    assert torch.equal(fake, corrupt(mb, sampled)) and torch.equal(replaced, is_replaced(mb, fake))
    scores = plain['discriminator'](fake)
    torch.testing.assert_close(plain['generator_loss'](logits, mb.targets), mlm_nll(logits, mb.targets).mean())
    ours = disc_nll(scores, disc_labels(is_replaced(mb, fake), None)).mean()
    torch.testing.assert_close(plain['discriminator_loss'](scores, replaced), ours)

def test_masks_hide_what_they_say(plain):
    mb = batch(plain)
    hidden = mb.masked_ids==plain['MASK']
    assert (hidden.sum(1)==8).all() and torch.equal(hidden, torch.zeros_like(hidden).scatter(1, mb.positions, True))
    assert torch.equal(mb.masked_ids[~hidden], mb.input_ids[~hidden])
