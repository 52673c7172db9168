"The script of notebook 00, without its training: its size, and its masks, losses and rates beside the library's"
import ast, json, sys
from pathlib import Path

import pytest
import torch

from electra_nbdev.method.discriminator import corrupt, disc_labels, disc_nll, is_replaced
from electra_nbdev.method.electra import ReplacedTokenDetection
from electra_nbdev.method.objective import ObjectiveConfig
from electra_nbdev.method.generator import mlm_nll, sample_inverse_cdf
from electra_nbdev.method.masking import Inputs, SpecialTokenIds, apply_mask, mask_batch
from electra_nbdev.method.metrics import auc
from electra_nbdev.method.optimizer import warmup_decay

NOTEBOOK = Path(__file__).resolve().parents[1]/'nbs/00_one_sitting.ipynb'
FOUND = json.loads(NOTEBOOK.read_text(encoding='utf-8'))['cells']
END = '## The same with the library' # The heading after which the library is used
SOURCES = [(c['cell_type'], ''.join(c['source'])) for c in FOUND]
OWN = SOURCES[:next(i for i,(_,o) in enumerate(SOURCES) if o.startswith(END))]
CELLS = [o for kind,o in OWN if kind=='code' and not o.startswith(('#| hide', '#| echo: false'))]
SCRIPT = ast.parse('\n'.join(CELLS))
N_WORDS, N, LENGTH = 40, 6, 16

def test_at_most_165_lines_and_nothing_of_ours():
    assert len('\n'.join(CELLS).split('\n'))<=165 and max(o.count('\n') for o in CELLS)<20
    found = {o.name for n in ast.walk(SCRIPT) if isinstance(n, ast.Import) for o in n.names}
    found |= {n.module for n in ast.walk(SCRIPT) if isinstance(n, ast.ImportFrom)}
    assert {o.split('.')[0] for o in found}-sys.stdlib_module_names=={'torch', 'matplotlib'}

@pytest.fixture
def script():
    "Names that the script defines: imports, functions, classes and constants, on random ids instead of its text"
    def kept(n):
        if isinstance(n, ast.Assign): return ast.unparse(n.targets[0]).isupper()
        return isinstance(n, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef))
    torch.manual_seed(0)
    names = dict(train_ids=torch.randint(2, N_WORDS, (500,)))
    exec(compile(ast.Module([n for n in SCRIPT.body if kept(n)], []), NOTEBOOK.name, 'exec'), names)
    return names

@pytest.fixture
def ids(script): return script['sequences'](script['train_ids'], N, LENGTH)

def inputs(ids): return Inputs(ids, None, torch.zeros_like(ids))
def special_ids(script): return SpecialTokenIds(*[N_WORDS]*3, script['MASK'])

def as_masked(script, ids, positions):
    "The library's batch with these positions, all of which show [MASK]"
    n, never_kept = torch.full((len(ids),), positions.shape[1]), torch.zeros(positions.shape)
    return apply_mask(inputs(ids), positions, n, never_kept, script['MASK'])

def networks(script):
    embeddings = torch.nn.Embedding(N_WORDS, 8)
    script |= dict(generator=script['Generator'](embeddings, 16), discriminator=script['Discriminator'](embeddings, 32))
    return script['generator'], script['discriminator']

def library_loss(mb, gen_logits, sampled, disc_logits):
    labels = disc_labels(is_replaced(mb, corrupt(mb, sampled)), mb.attention_mask)
    sums = dict(gen=mlm_nll(gen_logits, mb.targets).sum(), disc=disc_nll(disc_logits, labels).sum())
    arguments = ReplacedTokenDetection.arguments | dict(disc_weight=50.)
    objective = ReplacedTokenDetection(ObjectiveConfig(arguments=arguments))
    return objective.total_loss(sums, dict(gen=mb.weights.sum(), disc=torch.tensor(labels.numel())))

@pytest.mark.parametrize('length', [8, 16, 32])
def test_as_many_positions_are_masked_as_the_library_masks(script, length):
    ids = script['sequences'](script['train_ids'], 2000, length)
    positions, masked = script['mask'](ids)
    n = length//4
    assert positions.shape==(2000, n) and torch.equal((masked!=ids).sum(1), torch.full((2000,), n))
    assert (masked==script['MASK']).sum()==2000*n
    assert torch.equal(mask_batch(inputs(ids), special_ids(script), .25).weights.sum(1), torch.full((2000,), float(n)))
    torch.testing.assert_close((masked!=ids).float().mean(0), torch.full((length,), .25), atol=.05, rtol=0)

@pytest.mark.parametrize('length, prob, n', [(12, .15, 2), (3, .15, 1), (32, .15, 5), (16, .5, 8)])
def test_a_masking_rate(script, length, prob, n):
    assert script['mask'](torch.full((5, length), 2), prob)[0].shape==(5, n)

def test_the_losses_are_the_librarys(script, ids):
    positions, masked = script['mask'](ids)
    sampled = script['unigram'](positions.shape)
    sampled[0] = ids[0].gather(0, positions[0]) # right guesses
    gen_logits, disc_logits = torch.randn(*positions.shape, N_WORDS), torch.randn(N, LENGTH)
    mb = as_masked(script, ids, positions)
    assert torch.equal(masked, mb.masked_ids)
    fake, replaced = script['corrupt'](ids, positions, sampled)
    assert torch.equal(fake, corrupt(mb, sampled)) and torch.equal(replaced, is_replaced(mb, fake))
    assert not replaced[0].any() and replaced[1:].any()
    gen_loss = script['generator_loss'](gen_logits, ids.gather(1, positions))
    disc_loss = script['discriminator_loss'](disc_logits, replaced)
    torch.testing.assert_close(gen_loss, mlm_nll(gen_logits, mb.targets).mean())
    torch.testing.assert_close(disc_loss, disc_nll(disc_logits, disc_labels(replaced, None)).mean())
    torch.testing.assert_close(gen_loss + 50*disc_loss, library_loss(mb, gen_logits, sampled, disc_logits))

@pytest.mark.parametrize('share', [0., .5, 1.])
def test_the_loss_of_a_step_is_the_librarys(script, ids, share):
    seen, (generator, discriminator) = {}, networks(script)
    def watched(name, network):
        def call(*args): return seen.setdefault(name, (*args, network(*args)))[-1]
        return call
    script |= {k: watched(k, script[k]) for k in ('generator', 'discriminator', 'sample', 'unigram')}
    loss = script['joint_loss'](ids, share)
    masked, positions, gen_logits = seen['generator']
    fake, disc_logits = seen['discriminator']
    mb, sampled = as_masked(script, ids, positions), fake.gather(1, positions)
    assert torch.equal(masked, mb.masked_ids)
    torch.testing.assert_close(loss, library_loss(mb, gen_logits, sampled, disc_logits))
    from_unigram, from_generator = sampled==seen['unigram'][-1], sampled==seen['sample'][-1]
    assert (from_unigram | from_generator).all()
    assert from_generator.all()==(share==0) and from_unigram.all()==(share==1)

def test_the_generator_learns_from_its_own_loss_only(script, ids):
    generator, discriminator = networks(script)
    def gradient(weight):
        torch.manual_seed(1)
        return torch.autograd.grad(script['joint_loss'](ids, disc_weight=weight), generator.head.weight)[0]
    assert torch.equal(gradient(0.), gradient(50.)) and gradient(0.).any()
    assert generator.body.words is discriminator.body.words

def test_samples_scores_and_rates_are_the_librarys(script):
    logits, scores, replaced = torch.randn(3, 5, N_WORDS), torch.randn(900), torch.rand(900)<.2
    torch.manual_seed(1)
    sampled = script['sample'](logits)
    torch.manual_seed(1)
    assert torch.equal(sampled, sample_inverse_cdf(logits.softmax(-1), torch.rand(3, 5)))
    assert script['auc'](scores+replaced, replaced)==pytest.approx(auc(replaced, scores+replaced))
    for step in (0, 3, 10, 55, 99):
        assert script['learning_rate'](step/100)==pytest.approx(warmup_decay(step, 3e-3, 100, warmup_proportion=.1))
