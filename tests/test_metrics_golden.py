"The official evaluation metrics after a learner's own validation, for each variant whose golden numbers hold them"
import numpy as np
import pytest
import torch
from torch import tensor

from conftest import GOLDEN
from electra_nbdev.method.discriminator import disc_labels
from electra_nbdev.method.metrics import auc_200, joined, token_facts
from official import fed, info, inputs, load, variants

ELECTRIC = variants(towers=True)

NAMES = variants(towers=False)+ELECTRIC
WITH_METRICS = [o for o in NAMES if any(k.startswith('metric.') for k in load(f'pretrain/{o}.io'))]

def even(variant): return np.ones(info(f'pretrain/{variant}')['config']['vocab_size']) # counts for the unigram baseline

def test_some_variant_has_metrics(): assert WITH_METRICS, GOLDEN

@pytest.mark.parametrize('variant', WITH_METRICS)
def test_golden_metrics(monkeypatch, variant):
    learn, _ = fed(monkeypatch, variant, True, False, counts=even(variant), changes=dict(count_padding=True))
    numbers = load(f'pretrain/{variant}.io')
    want = {k.removeprefix('metric.'): float(v) for k,v in numbers.items() if k.startswith('metric.')}
    assert set(want)<=set(learn.held_out)
    for k,v in want.items(): assert learn.held_out[k]==pytest.approx(v, rel=1e-5, abs=1e-6), k

# Electric's probabilities all fall below the first of 200 thresholds
@pytest.mark.parametrize('variant', [o for o in WITH_METRICS if o not in ELECTRIC])
def test_golden_padding_flatters_the_area(monkeypatch, variant):
    "Padding counts as surely original; without it, the area is the fraction of pairs of tokens in the right order"
    want, real = load(f'pretrain/{variant}.io'), load('pretrain/inputs')['input_mask']>0
    logits, labels = tensor(want['disc_logits']), disc_labels(tensor(want['is_fake'])>0, inputs().attention_mask)
    def area(count_padding):
        d = joined([token_facts(logits, labels)], None if count_padding else 'real')
        return auc_200(d['label'], d['logit'].sigmoid()*d['real'])
    assert area(True)==pytest.approx(float(want['metric.disc_auc']), abs=1e-6)
    pos, neg = (want['disc_logits'][real & (want['is_fake']==o)] for o in (1, 0))
    by_pairs = (pos[:,None]>neg).mean() + (pos[:,None]==neg).mean()/2
    learn, _ = fed(monkeypatch, variant, True, False, counts=even(variant))
    assert learn.held_out['disc_auc']==pytest.approx(by_pairs, abs=1e-6)
    assert area(True) > area(False) and area(False)==pytest.approx(by_pairs, abs=.02)

def test_unigram_replacements_have_labels_of_their_own(monkeypatch):
    "Positives are where an unigram replacement differs, not where the generator's sample did"
    variant = WITH_METRICS[0]
    counts = even(variant)
    counts[100] = 1e9 # the unigram draws one token
    learn, seen = fed(monkeypatch, variant, True, False, counts=counts)
    mb = seen.masked
    logits, labels = learn.held_out_metrics.with_unigram(mb, seen.labels)
    drawn = torch.zeros_like(mb.input_ids).scatter_add(1, mb.positions, mb.weights.long())>0
    real = mb.attention_mask
    assert torch.equal(labels[real]>0, (drawn & (mb.input_ids!=100))[real]) and (labels[~real]==-100).all()
    assert not torch.equal(labels, seen.labels)
    fake = mb.input_ids.where(~drawn, 100)
    with torch.no_grad(): expected = learn.model.eval().token_logits(fake, mb.attention_mask, mb.token_type_ids)
    torch.testing.assert_close(logits, expected)
