"ONNX files compute what torch computes, for every network of a run, with padding and texts of any length"
import json, shutil

import numpy as np
import onnxruntime
import pytest
import torch
from onnxruntime import InferenceSession

from electra_nbdev.engine.files import InputError
from electra_nbdev.method.masking import SpecialTokenIds
from electra_nbdev.sharing.convert import OPSET, write_onnx
from electra_nbdev.scoring.likelihood import load_likelihood, pseudo_log_likelihood
from electra_nbdev.scoring.score import load_scorer, replaced_probs, words_of
from make import pieces, run_folder

SENTENCE = 'He opened the because and walked into the room.'

def session(folder, name):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return InferenceSession(folder/f'{name}.onnx', options)

def run(folder, name, ids, mask=None):
    mask = np.ones_like(ids) if mask is None else mask
    return session(folder, name).run(None, dict(input_ids=ids, attention_mask=mask))[0]

@pytest.fixture(scope='module')
def tiny(tmp_path_factory):
    folder = tmp_path_factory.mktemp('onnx')/'tiny'
    write_onnx('tiny', folder)
    return folder

def padded(vocab):
    "Two texts of other lengths than those of the export, one with padding"
    ids, mask = torch.randint(5, vocab, (2, 21)), torch.ones(2, 21, dtype=torch.int64)
    ids[1,13:], mask[1,13:] = 0, 0
    return ids, mask

def test_both_networks_of_electra(tiny):
    scorer = load_scorer('tiny', device='cpu')
    ids, mask = padded(4000)
    for name,net in dict(discriminator=scorer.discriminator, generator=scorer.generator).items():
        want = net(input_ids=ids, attention_mask=mask).logits.detach().numpy()
        found = run(tiny, name, ids.numpy(), mask.numpy())
        assert np.abs(found-want)[mask.bool().numpy()].max()<1e-4
    facts = json.loads((tiny/'onnx.json').read_text())
    assert facts==dict(opset=OPSET, int8=False, mask_prob=.15, max_length=128,
                       networks={'discriminator.onnx': 'logits', 'generator.onnx': 'logits'})
    assert {o.name for o in tiny.iterdir()}>={'tokenizer.json', 'vocab.txt', *facts['networks']}

def test_both_networks_of_electric(tmp_path):
    write_onnx('electric', tmp_path/'out')
    for name,by in dict(electric='energies', towers='towers').items():
        model = load_likelihood('electric', by, device='cpu')
        row, = pseudo_log_likelihood(model, [SENTENCE])
        ids = np.array([model.tokenizer(SENTENCE).input_ids])
        found = run(tmp_path/'out', name, ids)[0,1:-1]*(-1 if name=='electric' else 1)
        assert np.abs(found-row['scores']).max()<1e-4

def test_a_body_of_bert(tmp_path):
    "And one with another number of words than positions"
    body = dict(model_type='bert', hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
                max_position_embeddings=32)
    tok = pieces('[PAD] [UNK] [CLS] [SEP] [MASK]'.split()+[f'w{i}' for i in range(95)])
    model, _ = run_folder(tmp_path/'run', tok, body=body, model_hparam_overrides={}, max_seq_length=32,
                          untied_generator=True)
    write_onnx(tmp_path/'run', tmp_path/'out')
    ids, mask = padded(100)
    for name,net in dict(discriminator=model.discriminator, generator=model.generator).items():
        want = net(input_ids=ids, attention_mask=mask).logits.detach().numpy()
        found = run(tmp_path/'out', name, ids.numpy(), mask.numpy())
        assert np.abs(found.reshape(want.shape)-want)[mask.bool().numpy()].max()<1e-4

def test_a_network_that_is_missing_is_left_out(tiny, tmp_path):
    "A random generator would be made to train with; nobody wants it here"
    from electra_nbdev.engine.models import shipped
    facts = write_onnx(shipped('tiny')/'discriminator', tmp_path/'out')
    assert [*facts['networks']]==['discriminator.onnx'] and not (tmp_path/'out/generator.onnx').exists()

def test_a_body_without_heads_is_refused(tmp_path):
    "Its networks would be random in part"
    from transformers import AutoModel
    from electra_nbdev.engine.models import shipped
    AutoModel.from_pretrained(shipped('tiny')/'discriminator').save_pretrained(tmp_path/'body')
    shutil.copy(shipped('tiny')/'discriminator/tokenizer.json', tmp_path/'body')
    with pytest.raises(InputError, match='no complete network'): write_onnx(tmp_path/'body', tmp_path/'out')
    assert not (tmp_path/'out').exists()

def test_eight_bits_find_the_odd_word(tiny, tmp_path):
    write_onnx('tiny', tmp_path/'out', int8=True)
    scorer = load_scorer('tiny', device='cpu')
    ids, groups, _ = words_of(scorer.tokenizer, SENTENCE)
    special = SpecialTokenIds(0, 2, 3, 4)
    found = run(tmp_path/'out', 'discriminator', np.array([[special.cls, *ids, special.sep]]))[0,1:-1]
    probs = 1/(1+np.exp(-found))
    assert probs.argmax()==groups[3][0] and np.abs(probs-replaced_probs(scorer, ids).numpy()).max()<.05
    sizes = [(o/'discriminator.onnx').stat().st_size for o in (tmp_path/'out', tiny)]
    assert sizes[0]<.4*sizes[1]

def test_what_is_refused(tiny, tmp_path):
    with pytest.raises(InputError, match='exists already'): write_onnx('tiny', tiny)
    assert not [*tmp_path.iterdir()]
