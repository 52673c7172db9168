"The official evaluation metrics, for each variant whose golden numbers hold them"
from types import SimpleNamespace

import pytest
import torch
from torch import tensor

from conftest import GOLDEN
from electra_nbdev.evaluate import official_metrics, prediction_facts, token_facts
from official import load
from test_electra_golden import SPECIALS, VARIANTS, build, masked
from test_electric_golden import VARIANTS as ELECTRIC

WITH_METRICS = [o for o in VARIANTS+ELECTRIC if any(k.startswith('metric.') for k in load(f'pretrain/{o}.io'))]

def test_some_variant_has_metrics(): assert WITH_METRICS, GOLDEN

@pytest.mark.parametrize('variant', WITH_METRICS)
def test_golden_metrics(variant):
    want = load(f'pretrain/{variant}.io')
    model, _ = build(variant)
    mb, _ = masked(model.hp)
    t = {k: torch.from_numpy(want[k]) for k in want if want[k].ndim}
    out = SimpleNamespace(gen_nll=t['mlm_per_example_loss'], gen_entropy=t['mlm_per_example_loss'], gen_top=t['mlm_preds'].long(), sampled=t['sampled_ids'].long(),
                          labels=t['is_fake'], disc_logits=t['disc_logits'], scored=mb.attention_mask)
    g = prediction_facts(mb, out, torch.zeros(model.hp.vocab_size), SPECIALS.mask)
    found = official_metrics(g, token_facts(mb, out, count_padding=True), t['disc_per_example_loss'], count_padding=True)
    metrics = {k.removeprefix('metric.'): float(v) for k,v in want.items() if k.startswith('metric.')}
    assert set(metrics)<=set(found)
    for k,v in metrics.items(): assert found[k]==pytest.approx(v, rel=1e-5, abs=1e-6), k

def test_padding_flatters_the_area(): # what count_padding=False avoids
    want = load(f'pretrain/{WITH_METRICS[0]}.io')
    mb, _ = masked(build(WITH_METRICS[0])[0].hp)
    out = SimpleNamespace(labels=tensor(want['is_fake']), disc_logits=tensor(want['disc_logits']), scored=mb.attention_mask)
    both = [token_facts(mb, out, o) for o in (True, False)]
    assert len(both[0]['label'])==mb.input_ids.numel() and len(both[1]['label'])==int(mb.attention_mask.sum())
