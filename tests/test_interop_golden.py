"Checkpoints that the official code wrote, opened without TensorFlow, give the official logits"
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import tensor
from transformers import ElectraForPreTraining, ElectraForTokenClassification, ElectraModel

from electra_nbdev.scoring.likelihood import original_scores
from electra_nbdev.scoring.ranking import masked_scores
from electra_nbdev.sharing.convert import convert_weights
from electra_nbdev.method.electric import nce_logits
from electra_nbdev.method.towers import log_q
from electra_nbdev.finetuning.finetune import load_finetuned
from electra_nbdev.engine.files import InputError
from electra_nbdev.engine.models import tensorflow_prefix
from electra_nbdev.networks.foreign import read_bundle
from electra_nbdev.method.generator import hidden_states, masked_logits
from electra_nbdev.networks.folder import open_pretrained
from electra_nbdev.method.masking import Inputs
from conftest import GOLDEN
from official import info, load, pretrain_vars

CKPTS = sorted(o.name[:-len('_ckpt')] for o in (GOLDEN/'pretrain').glob('*_ckpt'))

def close(got, want, rtol=0., atol=0.): np.testing.assert_allclose(got.detach().numpy(), want, rtol=rtol, atol=atol)

UNSEEN = ('num_attention_heads', 'hidden_dropout_prob', 'attention_probs_dropout_prob') # what shapes do not tell

def overrides(name):
    said = info(f'pretrain/{name}')['config']['model_hparam_overrides']
    return {k: said[k] for k in UNSEEN}

def opened(name):
    "With what the shapes do not tell, and the official treatment of a batch"
    config = info(f'pretrain/{name}')['config']
    recipe = dict(model_hparam_overrides=overrides(name), max_seq_length=config['max_seq_length'],
                  mask_prob=config['mask_prob'], duplicates='official', cloze_mode='official')
    return open_pretrained(GOLDEN/'pretrain'/f'{name}_ckpt', recipe)

def golden_inputs():
    d = load('pretrain/inputs')
    ids, mask, segments = (torch.from_numpy(d[o]).long() for o in ('input_ids', 'input_mask', 'segment_ids'))
    return ids, mask>0, segments

def test_folder_holds_checkpoints(): assert CKPTS, f"no checkpoint in {GOLDEN/'pretrain'}"

@pytest.mark.parametrize('name', CKPTS)
def test_golden_variables(name):
    "Bit-exact, and none is lost"
    found, others = read_bundle(tensorflow_prefix(GOLDEN/'pretrain'/f'{name}_ckpt'))
    want = pretrain_vars(name)
    assert not others and found.keys()=={*want, 'global_step'}
    for k,v in want.items(): assert np.array_equal(found[k].numpy(), v), k

@pytest.mark.parametrize('name', CKPTS)
def test_golden_logits(name):
    out, want = opened(name), load(f'pretrain/{name}.io')
    assert not out.made and not out.unused and len(out.taken)==len(list(out.model.parameters()))
    assert out.hp.two_tower_generator==out.hp.electric_objective==('cloze_logits' in want)
    model, (ids, mask, segments) = out.model, golden_inputs()
    fake = tensor(want['updated_input_ids']).long()
    logits = model.token_logits(fake, mask, segments)
    if 'cloze_logits' in want:
        head, x = model.generator.generator_lm_head, model.generator(Inputs(ids, mask, segments))
        close(head(x), want['cloze_logits'], atol=1e-3)
        nll = F.cross_entropy(head(x).flatten(0, 1), ids.flatten(), reduction='none').view_as(ids)
        logits = nce_logits(logits, log_q(head, x, ids, nll, fake), torch.full((len(ids), 1), out.hp.mask_prob))
    else:
        hidden = hidden_states(model.generator, tensor(want['masked_input_ids']).long(), mask, segments)
        positions = tensor(want['masked_lm_positions']).long()
        close(masked_logits(model.generator, hidden, positions), want['mlm_logits'], atol=1e-4)
    close(logits*mask, want['disc_logits']*mask.numpy(), atol=1e-3 if 'cloze_logits' in want else 1e-4)

def test_golden_choices():
    "What candidates are ranked by, from the official logits of an example of one segment"
    out, want, row = opened('electra_base'), load('pretrain/electra_base.io'), slice(2, 3)
    (ids, mask, _), model, prob = (o[row] for o in golden_inputs()), out.model.eval(), out.hp.mask_prob
    masked, fake = (tensor(want[o])[row].long() for o in ('masked_input_ids', 'updated_input_ids'))
    wanted = masked!=ids # drawn, and shown as [MASK]; what was drawn and kept is text for the generator
    assert wanted.any() and (masked[wanted]==6).all()
    logits = want['disc_logits'][row] + np.log(.15/.85) - np.log(prob/(1-prob))
    found = original_scores(model.discriminator, prob, fake, mask)
    close(found*mask, -np.log1p(np.exp(logits))*mask.numpy(), atol=1e-4)
    nll = dict(zip(want['masked_lm_positions'][2], want['mlm_per_example_loss'][2]))
    found = masked_scores(model.generator, 6, ids, mask, wanted.long()-1)
    for t in wanted[0].nonzero()[:,0].tolist(): close(found[0, t], -nll[t], atol=1e-4)

@pytest.mark.parametrize('name', CKPTS)
def test_golden_needs_the_heads(name):
    "By the official rule one head of 32 units, in the checkpoint two: other logits, so the logits above depend on it"
    one, two = (o.model.discriminator.eval() for o in (open_pretrained(GOLDEN/'pretrain'/f'{name}_ckpt'), opened(name)))
    assert (one.config.num_attention_heads, two.config.num_attention_heads)==(1, 2)
    ids = tensor([[4, 20, 30, 5]])
    assert (one(ids).logits-two(ids).logits).abs().max()>1e-4

@pytest.mark.parametrize('name', CKPTS)
def test_golden_wrong_recipe_is_refused(name):
    with pytest.raises(InputError, match=r'has shape \[64, 32\], the recipe asks for \[128, 32\]'):
        open_pretrained(GOLDEN/'pretrain'/f'{name}_ckpt', dict(model_hparam_overrides=dict(intermediate_size=128)))

def official_arrays(path):
    "Arrays of a file but for the numbers of its configuration, which the official code has elsewhere"
    found = dict(np.load(path))
    assert found.pop('electra_nbdev/settings').dtype.kind=='U'
    return found

@pytest.mark.parametrize('name', CKPTS)
def test_golden_detour(name, tmp_path):
    "TensorFlow, run, `transformers`, and back to official names: bit-exact numbers, the official logits"
    convert_weights(GOLDEN/'pretrain'/f'{name}_ckpt', tmp_path/'run', dict(model_hparam_overrides=overrides(name)))
    convert_weights(tmp_path/'run', tmp_path/'names.npz')
    names, want = official_arrays(tmp_path/'names.npz'), pretrain_vars(name)
    assert {*names}=={*want}
    for k,v in want.items(): assert np.array_equal(names[k], v), k
    half = 'electric' if 'electric' in name else 'discriminator'
    io, (_, mask, segments) = load(f'pretrain/{name}.io'), golden_inputs()
    fake = tensor(io['updated_input_ids']).long()
    plain = ElectraForPreTraining.from_pretrained(tmp_path/'run'/half).eval()
    with torch.no_grad(): logits = plain(fake, attention_mask=mask.long(), token_type_ids=segments).logits
    if half=='discriminator': close(logits*mask, io['disc_logits']*mask.numpy(), atol=1e-4)
    same = opened(name).model.eval().discriminator(fake, attention_mask=mask.long(), token_type_ids=segments).logits
    assert torch.equal(logits, same)

TWO_HEADS = dict(model_hparam_overrides=dict(num_attention_heads=2))

def finetuned(run, folder):
    "A fine-tuned official checkpoint: an encoder, heads, a vocabulary beside them"
    base, facts, arrays = pretrain_vars('electra_base'), info('finetune/heads'), load(f'finetune/{run}')
    names = facts['_shared']['encoder_variables_in_creation_order']
    heads = {o: arrays[f'var/{o}'] for o in facts[run]['head_variables']}
    np.savez(folder/'ckpt.npz', **{o: base[o] for o in names}, **heads)
    (folder/'vocab.txt').write_bytes((GOLDEN/'vocab.txt').read_bytes())
    convert_weights(folder/'ckpt.npz', folder/'task', TWO_HEADS)
    features = ('input_ids', 'segment_ids', 'input_mask', 'task_id')
    return arrays, {k: torch.from_numpy(arrays[f'feat/{k}']).long() for k in features}

@pytest.mark.parametrize('run', ['classification', 'regression', 'multitask'])
def test_golden_text_heads(run, tmp_path):
    arrays, f = finetuned(run, tmp_path)
    model = load_finetuned(tmp_path/'task', 'cpu').model.eval()
    with torch.no_grad():
        hidden = model.encoder(f['input_ids'], attention_mask=f['input_mask'], token_type_ids=f['segment_ids'])[0]
    for i,(name,head) in enumerate(model.heads.items()):
        at = f['task_id']==i
        logits = f'out/{name}/logits'
        want = arrays[logits] if logits in arrays else arrays[f'out/{name}/predictions'][:,None]
        close(head(hidden)[at], want[at.numpy()], atol=1e-4)

@pytest.mark.parametrize('run', ['classification', 'multitask'])
def test_golden_heads_come_back(run, tmp_path):
    "Official names, a task of ours, official names: bit-exact"
    finetuned(run, tmp_path)
    convert_weights(tmp_path/'task', tmp_path/'back.npz')
    want, back = np.load(tmp_path/'ckpt.npz'), official_arrays(tmp_path/'back.npz')
    assert {*want}=={*back}
    for k in want: assert np.array_equal(want[k], back[k]), k

def test_golden_heads_that_nothing_holds(tmp_path):
    finetuned('classification', tmp_path)
    shapes = {'qa_hidden/kernel': (64, 512), 'qa_hidden/bias': 512, 'other/kernel': (32, 1), 'other/bias': 1}
    odd = {f'task_specific/squad/{k}': np.zeros(n, np.float32) for k,n in shapes.items()}
    np.savez(tmp_path/'qa.npz', **{k: v for k,v in np.load(tmp_path/'ckpt.npz').items() if 'mnli' not in k}, **odd)
    out = convert_weights(tmp_path/'qa.npz', tmp_path/'qa', TWO_HEADS)
    assert 'squad (4)' in out.report() and 'the head of squad' in out.report()
    kept = ElectraModel.from_pretrained(tmp_path/'qa'/'discriminator').embeddings.word_embeddings.weight.detach()
    assert np.array_equal(kept, np.load(tmp_path/'ckpt.npz')['electra/embeddings/word_embeddings'])

def test_golden_question_head(tmp_path):
    "The official joint head with its classifier: the official scores, and the official names again, bit-exact"
    arrays, f = finetuned('qa_joint_train', tmp_path)
    learn = load_finetuned(tmp_path/'task', 'cpu')
    model, task = learn.model.train(), learn.tasks['squad']
    assert all((task.joint, task.classifier, task.from_start, task.v2, learn.hp.joint_prediction))
    with torch.no_grad():
        inputs = dict(attention_mask=f['input_mask'], token_type_ids=f['segment_ids'])
        hidden = model.encoder.eval()(f['input_ids'], **inputs)[0]
        at = torch.arange(f['input_ids'].shape[1])
        allowed = (f['input_mask']*f['segment_ids']>0) | (at==0)
        start = torch.from_numpy(arrays['feat/squad_start_positions']).long()
        out = model.heads['squad'](hidden, dict(allowed=allowed, start=start))
    ours = f['task_id']==0
    for k,official in (('start', 'start_logits'), ('end', 'end_logits'), ('null', 'answerable_logit')):
        close(out[k][ours], arrays[f'out/squad/{official}'][ours.numpy()], rtol=1e-6, atol=1e-4)
    convert_weights(tmp_path/'task', tmp_path/'back.npz')
    want, back = np.load(tmp_path/'ckpt.npz'), official_arrays(tmp_path/'back.npz')
    assert {*want}=={*back} and all(np.array_equal(want[k], back[k]) for k in want)

def test_golden_tagging_head(tmp_path):
    arrays, f = finetuned('tagging', tmp_path)
    model = ElectraForTokenClassification.from_pretrained(tmp_path/'task'/'chunk')
    inputs = dict(attention_mask=f['input_mask'], token_type_ids=f['segment_ids'])
    with torch.no_grad(): logits = model(f['input_ids'], **inputs).logits
    mask = torch.from_numpy(arrays['feat/chunk_labels_mask'])[...,None]
    at = torch.from_numpy(arrays['feat/chunk_labeled_positions']).long()
    found = logits.gather(1, at[...,None].expand(-1, -1, logits.shape[-1]))
    close(found*(mask>0), arrays['out/chunk/logits']*(mask>0).numpy(), atol=1e-4)
