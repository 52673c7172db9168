"Losses, logits and every gradient of the official Electric in a learner's own step, with its leaks and nominal noise"
import numpy as np
import pytest
from torch import tensor

from electra_nbdev.method.towers import TwoTowers
from electra_nbdev.method.generator import top_and_entropy
from conftest import GOLDEN
from official import FAST, TRAINING, check_discriminator, check_mask, check_training, close, fed, load, variants

VARIANTS = variants(towers=True)

@pytest.fixture
def towers(monkeypatch):
    "What the towers made in every step: `Prediction`, input of the output matrix, losses of all tokens"
    made, predict = [], TwoTowers.predict
    def watched(*args, **kwargs):
        made.append(predict(*args, **kwargs))
        return made[-1]
    monkeypatch.setattr(TwoTowers, 'predict', watched)
    return made

def test_folder_holds_electric(): assert VARIANTS, f"no towers in {GOLDEN/'pretrain'}"

def losses(seen):
    "Cloze loss and the loss of the drawn positions"
    weights = seen.masked.weights
    return seen.gen_sum/(seen.gen_count+1e-6), (seen.generated.nll*weights).sum()/weights.sum()

@FAST
@TRAINING
@pytest.mark.parametrize('variant', VARIANTS)
def test_golden_step(monkeypatch, towers, variant, training, fast):
    want = load(f'pretrain/{variant}.io')
    learn, seen = fed(monkeypatch, variant, fast, training)
    mb, (found, x, nll), r = seen.masked, towers[0], learn.mask_tokens.mask_prob
    check_mask(mb, want)
    close(mb.candidates, want['cloze_weights'])
    if not training: close(learn.model.generator.generator_lm_head(x), want['cloze_logits'], atol=1e-3)
    close(nll, want['cloze_per_token_loss'], atol=1e-3)
    if 'log_q' in want: close(seen.offset-np.log(r/(1-r)), want['log_q'], atol=1e-3)
    cloze, mlm = losses(seen)
    close(cloze, want['cloze_loss'], rtol=1e-5)
    close(mlm, want['mlm_loss'], rtol=1e-5)
    check_discriminator(seen, want, 1e-3)
    close(seen.loss, want['total_loss'], rtol=1e-5)
    if training: check_training(seen, variant, want)
    else:
        close(found.top, want['mlm_preds'])
        close(found.entropy, top_and_entropy(tensor(want['mlm_logits']))[1], atol=1e-3)

@FAST
@TRAINING
@pytest.mark.parametrize('variant', VARIANTS)
def test_golden_step_in_bf16(monkeypatch, variant, training, fast):
    want = load(f'pretrain/{variant}.io')
    learn, seen = fed(monkeypatch, variant, fast, training, bf16=True)
    check_mask(seen.masked, want)
    for ours,name in zip((*losses(seen), seen.loss), ('cloze_loss', 'mlm_loss', 'total_loss'), strict=True):
        close(ours, want[name], rtol=3e-3)
    close(seen.fake, want['updated_input_ids'])
    close(seen.pred*seen.masked.attention_mask, want['disc_logits']*seen.masked.attention_mask.numpy(), atol=.2)
    if training: check_training(seen, variant, want, .1, 3e-4)
