"Checkpoints that the official code wrote, opened without TensorFlow, give the official logits"
import numpy as np
import pytest
import torch
from torch import tensor
from transformers import ElectraForPreTraining, ElectraForTokenClassification, ElectraModel

import electra_nbdev.qa # its kind of task
from electra_nbdev.cli import _glue_facts
from electra_nbdev.convert import convert
from electra_nbdev.finetune import load_finetuned
from electra_nbdev.hparams import InputError
from electra_nbdev.interop import open_pretrained, read_bundle, tensorflow_prefix
from conftest import GOLDEN
from official import info, load, pretrain_vars
from test_electra_golden import close, masked, run
from test_electric_golden import run as run_electric

CKPTS = sorted(o.name[:-len('_ckpt')] for o in (GOLDEN/'pretrain').glob('*_ckpt'))

def opened(name):
    "What the shapes cannot tell is said: heads, what was switched off, and how the official code treats its rows"
    config = info(f'pretrain/{name}')['config']
    said = {k: config['model_hparam_overrides'][k] for k in ('num_attention_heads', 'hidden_dropout_prob', 'attention_probs_dropout_prob')}
    recipe = dict(model_hparam_overrides=said, max_seq_length=config['max_seq_length'], mask_prob=config['mask_prob'], duplicates='official', cloze_mode='official')
    return open_pretrained(GOLDEN/'pretrain'/f'{name}_ckpt', recipe)

def test_folder_holds_checkpoints(): assert CKPTS, f"no checkpoint in {GOLDEN/'pretrain'}"

@pytest.mark.parametrize('name', CKPTS)
def test_golden_variables(name):
    "To the bit, and none is lost"
    found, others = read_bundle(tensorflow_prefix(GOLDEN/'pretrain'/f'{name}_ckpt'))
    want = pretrain_vars(name)
    assert not others and found.keys()=={*want, 'global_step'}
    for k,v in want.items(): assert np.array_equal(found[k].numpy(), v), k

@pytest.mark.parametrize('name', CKPTS)
def test_golden_logits(name):
    out, want = opened(name), load(f'pretrain/{name}.io')
    assert not out.made and not out.unused and len(out.taken)==len(list(out.model.parameters()))
    assert out.hp.two_tower_generator==out.hp.electric_objective==('cloze_logits' in want)
    mb, d = masked(out.hp)
    sampled = tensor(d['fed_sampled_ids']).long()
    if 'cloze_logits' in want:
        step, cloze, *_ = run_electric(out.model, mb, sampled)
        close(cloze, want['cloze_logits'], atol=1e-3)
    else:
        step, logits = run(out.model, mb, sampled)
        close(logits, want['mlm_logits'], atol=1e-4)
    close(step.disc_logits*mb.attention_mask, want['disc_logits']*d['input_mask'], atol=1e-3 if 'cloze_logits' in want else 1e-4)

@pytest.mark.parametrize('name', CKPTS)
def test_golden_needs_the_heads(name):
    "The official rule gives one head of 32 units, the checkpoint was made with two: other logits, so the logits above are a test of it"
    model = open_pretrained(GOLDEN/'pretrain'/f'{name}_ckpt').model
    assert model.discriminator.config.num_attention_heads==1 and opened(name).model.discriminator.config.num_attention_heads==2
    ids = tensor([[4, 20, 30, 5]])
    assert (model.eval().discriminator(ids).logits - opened(name).model.eval().discriminator(ids).logits).abs().max()>1e-4

@pytest.mark.parametrize('name', CKPTS)
def test_golden_wrong_recipe_is_refused(name):
    with pytest.raises(InputError, match=r'has shape \[64, 32\], the recipe asks for \[128, 32\]'):
        open_pretrained(GOLDEN/'pretrain'/f'{name}_ckpt', dict(model_hparam_overrides=dict(intermediate_size=128)))

@pytest.mark.parametrize('name', CKPTS)
def test_golden_detour(name, tmp_path):
    "TensorFlow, run, `transformers`, and back to official names: the same numbers to the bit, the official logits"
    said = {k: info(f'pretrain/{name}')['config']['model_hparam_overrides'][k] for k in ('num_attention_heads', 'hidden_dropout_prob', 'attention_probs_dropout_prob')}
    convert(GOLDEN/'pretrain'/f'{name}_ckpt', tmp_path/'run', dict(model_hparam_overrides=said))
    convert(tmp_path/'run', tmp_path/'names.npz')
    names, want = np.load(tmp_path/'names.npz'), pretrain_vars(name)
    assert {*names}=={*want}
    for k,v in want.items(): assert np.array_equal(names[k], v), k
    half = 'electric' if 'electric' in name else 'discriminator'
    io, (inputs, d) = load(f'pretrain/{name}.io'), masked(opened(name).hp)
    with torch.no_grad(): logits = ElectraForPreTraining.from_pretrained(tmp_path/'run'/half)(tensor(io['updated_input_ids']).long(), attention_mask=inputs.attention_mask.long(), token_type_ids=inputs.token_type_ids).logits
    if half=='discriminator': close(logits*inputs.attention_mask, io['disc_logits']*d['input_mask'], atol=1e-4)
    assert torch.equal(logits, opened(name).model.eval().discriminator(tensor(io['updated_input_ids']).long(), attention_mask=inputs.attention_mask.long(), token_type_ids=inputs.token_type_ids).logits)

def finetuned(run, folder):
    "A fine-tuned official checkpoint: an encoder, heads, a vocabulary beside them"
    base, facts, arrays = pretrain_vars('electra_base'), info('finetune/heads'), load(f'finetune/{run}')
    names = facts['_shared']['encoder_variables_in_creation_order']
    np.savez(folder/'ckpt.npz', **{o: base[o] for o in names}, **{o: arrays[f'var/{o}'] for o in facts[run]['head_variables']})
    (folder/'vocab.txt').write_bytes((GOLDEN/'vocab.txt').read_bytes())
    convert(folder/'ckpt.npz', folder/'task', dict(model_hparam_overrides=dict(num_attention_heads=2)), known=_glue_facts)
    return arrays, {k: torch.from_numpy(arrays[f'feat/{k}']).long() for k in ('input_ids', 'segment_ids', 'input_mask', 'task_id')}

@pytest.mark.parametrize('run', ['classification', 'regression', 'multitask'])
def test_golden_text_heads(run, tmp_path):
    arrays, f = finetuned(run, tmp_path)
    model = load_finetuned(tmp_path/'task', 'cpu').model.eval()
    with torch.no_grad(): hidden = model.encoder(f['input_ids'], attention_mask=f['input_mask'], token_type_ids=f['segment_ids'])[0]
    for i,(name,head) in enumerate(model.heads.items()):
        at = f['task_id']==i
        want = arrays[f'out/{name}/logits'] if f'out/{name}/logits' in arrays else arrays[f'out/{name}/predictions'][:,None]
        close(head(hidden)[at], want[at.numpy()], atol=1e-4)

@pytest.mark.parametrize('run', ['classification', 'multitask'])
def test_golden_heads_come_back(run, tmp_path):
    "Official names, a task of ours, official names: to the bit"
    finetuned(run, tmp_path)
    convert(tmp_path/'task', tmp_path/'back.npz')
    want, back = np.load(tmp_path/'ckpt.npz'), np.load(tmp_path/'back.npz')
    assert {*want}=={*back}
    for k in want: assert np.array_equal(want[k], back[k]), k

def test_golden_heads_that_nothing_holds(tmp_path):
    finetuned('classification', tmp_path)
    odd = {f'task_specific/squad/{k}': np.zeros(n, np.float32) for k,n in (('qa_hidden/kernel', (64, 512)), ('qa_hidden/bias', 512), ('other/kernel', (32, 1)), ('other/bias', 1))}
    np.savez(tmp_path/'qa.npz', **{k: v for k,v in np.load(tmp_path/'ckpt.npz').items() if 'mnli' not in k}, **odd)
    out = convert(tmp_path/'qa.npz', tmp_path/'qa', dict(model_hparam_overrides=dict(num_attention_heads=2)))
    assert 'squad (4)' in out.report() and 'the head of squad' in out.report()
    assert np.array_equal(ElectraModel.from_pretrained(tmp_path/'qa'/'discriminator').embeddings.word_embeddings.weight.detach(), np.load(tmp_path/'ckpt.npz')['electra/embeddings/word_embeddings'])

def test_golden_question_head(tmp_path):
    "The official joint head with its classifier: the official scores, and the official names again, to the bit"
    arrays, f = finetuned('qa_joint_train', tmp_path)
    learn = load_finetuned(tmp_path/'task', 'cpu')
    model, task = learn.model.train(), learn.tasks['squad']
    assert (task.joint, task.classifier, task.from_start, task.v2, learn.hp.joint_prediction)==(True, True, True, True, True)
    with torch.no_grad():
        hidden = model.encoder.eval()(f['input_ids'], attention_mask=f['input_mask'], token_type_ids=f['segment_ids'])[0]
        at = torch.arange(f['input_ids'].shape[1])
        allowed = (f['input_mask']*f['segment_ids']>0) | (at==0)
        out = model.heads['squad'](hidden, dict(allowed=allowed, start=torch.from_numpy(arrays['feat/squad_start_positions']).long()))
    ours = f['task_id']==0
    for k,official in (('start', 'start_logits'), ('end', 'end_logits'), ('null', 'answerable_logit')): close(out[k][ours], arrays[f'out/squad/{official}'][ours.numpy()], rtol=1e-6, atol=1e-4)
    convert(tmp_path/'task', tmp_path/'back.npz')
    want, back = np.load(tmp_path/'ckpt.npz'), np.load(tmp_path/'back.npz')
    assert {*want}=={*back} and all(np.array_equal(want[k], back[k]) for k in want)

def test_golden_tagging_head(tmp_path):
    arrays, f = finetuned('tagging', tmp_path)
    with torch.no_grad(): logits = ElectraForTokenClassification.from_pretrained(tmp_path/'task'/'chunk')(f['input_ids'], attention_mask=f['input_mask'], token_type_ids=f['segment_ids']).logits
    at, mask = torch.from_numpy(arrays['feat/chunk_labeled_positions']).long(), arrays['feat/chunk_labels_mask'][...,None]>0
    close(logits.gather(1, at[...,None].expand(-1, -1, logits.shape[-1]))*mask, arrays['out/chunk/logits']*mask, atol=1e-4)
