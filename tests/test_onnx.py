"ONNX files compute what torch computes, for every network of a run and every task, with padding, any length and number"
import json, shutil

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import InferenceSession
from transformers import AutoConfig, AutoModel, AutoTokenizer

from electra_nbdev.checking.check import Sentence, load_checker
from electra_nbdev.engine.files import InputError
from electra_nbdev.finetuning.finetune import finetune_dls, finetune_learner, load_finetuned, save_model
from electra_nbdev.finetuning.ged import GEDTask
from electra_nbdev.finetuning.qa import QATask
from electra_nbdev.finetuning.recipe import open_model, settle_recipe
from electra_nbdev.finetuning.tagging import TagTask
from electra_nbdev.finetuning.tasks import MultiLabelTask, TextTask
from electra_nbdev.method.masking import SpecialTokenIds
from electra_nbdev.sharing.convert import OPSET, _quantize, convert_weights, write_onnx
from electra_nbdev.scoring.likelihood import load_likelihood, pseudo_log_likelihood
from electra_nbdev.scoring.score import load_scorer, replaced_probs, words_of
from make import electra_folder, pieces, roberta_folder, run_folder, sentence, untrained
from terminal import bad, worked

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
    assert facts==dict(opset=OPSET, int8=False, mask_prob=.15, max_length=128, english=True,
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

def test_residual_energies_are_taken_from_what_the_towers_say(tmp_path):
    facts = write_onnx('electric-baby', tmp_path/'out')
    model = load_likelihood('electric-baby', 'energies', device='cpu')
    row, = pseudo_log_likelihood(model, [SENTENCE])
    ids = np.array([model.tokenizer(SENTENCE).input_ids])
    found = (run(tmp_path/'out', 'towers', ids)-run(tmp_path/'out', 'electric', ids))[0,1:-1]
    assert np.abs(found-row['scores']).max()<1e-4
    assert facts['networks']['electric.onnx']=='added_to_towers'

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

def quantized_sums(weight, folder):
    "Sums of the columns of a weight by a graph of 8-bit integers"
    x, y = (helper.make_tensor_value_info(o, TensorProto.FLOAT, [1, n]) for o,n in zip('xy', weight.shape))
    kept = numpy_helper.from_array(weight.astype(np.float32), 'w')
    graph = helper.make_graph([helper.make_node('MatMul', ['x', 'w'], ['y'])], 'g', [x], [y], [kept])
    opset = helper.make_opsetid('', OPSET)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=8), folder/'sum.onnx')
    _quantize(folder/'sum.onnx')
    return session(folder, 'sum').run(None, dict(x=np.ones((1, len(weight)), np.float32)))[0]

def test_eight_bits_do_not_overflow(tmp_path):
    "Products of large weights and inputs are added in 16 bits on a CPU without VNNI"
    assert quantized_sums(np.ones((64, 4)), tmp_path)==pytest.approx(np.full((1, 4), 64.), rel=.02)

def test_a_small_column_keeps_its_values_beside_a_large_one(tmp_path):
    "With one scale for the whole matrix it would be zero"
    weight = np.ones((64, 2))*[1., .001]
    assert quantized_sums(weight, tmp_path)==pytest.approx(np.array([[64., .064]]), rel=.02)

def test_what_is_refused(tiny, tmp_path):
    with pytest.raises(InputError, match='exists already'): write_onnx('tiny', tiny)
    assert not [*tmp_path.iterdir()]

# Fine-tuned models

TASKS = dict(kinds=TextTask('kinds', ('pet', 'person', 'place')),
             pairs=TextTask('pairs', ('no', 'yes'), columns=('a', 'b')),
             size=TextTask('size', scale=7., shift=40., measures=('mse',)),
             remarks=MultiLabelTask('remarks', ('insult', 'toxic')),
             words=TagTask('words', ('O', 'S-NP', 'S-VP')), judge=GEDTask('judge', threshold=.3))

@pytest.fixture(scope='module')
def encoder(tmp_path_factory): return electra_folder(tmp_path_factory.mktemp('encoder')/'model')

def special(i): return sentence(i) + ' [MASK]'*(i%3==1) # which is text there

def batch(folder, n):
    "Texts, or pairs, of different lengths, as the tokenizer in a folder gives them"
    tok = AutoTokenizer.from_pretrained(folder)
    pairs = {2: [sentence(i+3) for i in range(n)]} if folder.name=='pairs' else {}
    return tok([special(i) for i in range(n)], *pairs.values(), padding=True, return_tensors='np')

def ours(folder, task, n):
    "What our library makes of them; of a tagger the logits of words, each of which is one piece or more"
    learn = load_finetuned(folder, 'cpu')
    texts = [(special(i), sentence(i+3)) if task.name=='pairs' else special(i) for i in range(n)]
    if isinstance(task, TagTask): texts = [o.split() for o in texts]
    features = task.features(task.unlabelled(texts), learn.tok, learn.hp)
    return learn.outputs(task.name, features), features

def tuned_run(folder, inputs, name='model'):
    graph = session(folder/'onnx', name)
    asked = {o.name for o in graph.get_inputs()}
    return graph.run(None, {k: v for k,v in inputs.items() if k in asked})[0], asked

def assert_computes(out, folder, task):
    "One text, and eight with padding, are what our library makes of them"
    scale, shift = getattr(task, 'scale', 1.), getattr(task, 'shift', 0.)
    for n in (1, 8):
        found, _ = tuned_run(out, batch(out, n))
        want, features = ours(folder, task, n)
        for f,o,w in zip(features, found, want):
            if isinstance(task, TagTask): o = o[f.target['positions']]
            assert np.abs(o-shift-scale*w.numpy()).max()<1e-4*scale

def test_a_body_that_reads_padding_has_its_logits_of_one_text(tmp_path):
    "In a batch the graph reads padding, as the network does"
    words = [o for i in range(9) for o in sentence(i).split()]
    tok = pieces([*'[PAD] [UNK] [CLS] [SEP] [MASK]'.split(), *dict.fromkeys(words)])
    net = AutoModel.from_config(AutoConfig.for_model('fnet', vocab_size=len(tok), pad_token_id=0, hidden_size=16,
                                                     num_hidden_layers=1, intermediate_size=32))
    for o in (net, tok): o.save_pretrained(tmp_path/'fnet')
    untrained(TASKS['kinds'], tmp_path/'fnet', tmp_path/'task')
    write_onnx(tmp_path/'task', tmp_path/'out')
    found, want = tuned_run(tmp_path/'out', batch(tmp_path/'out', 1))[0], ours(tmp_path/'task', TASKS['kinds'], 1)[0]
    assert found[0]==pytest.approx(want[0].numpy(), abs=1e-4)
    untrained(TASKS['judge'], tmp_path/'fnet', tmp_path/'judge')
    assert write_onnx(tmp_path/'judge', tmp_path/'checks')['own_lengths']
    checker, texts = load_checker(tmp_path/'checks'), [' '.join(words[:n]) for n in (18, 19)] # which share a batch
    def probs(*texts): return [o.probs for o in checker.check([Sentence(o, 0, 1, 1) for o in texts])]
    assert probs(*texts)[0]==pytest.approx(probs(texts[0])[0], abs=1e-6)

def test_a_discriminator_that_reads_padding_says_the_same_in_any_batch(tmp_path):
    words = [o for i in range(9) for o in sentence(i).split()]
    tok = pieces([*'[PAD] [UNK] [CLS] [SEP] [MASK]'.split(), *dict.fromkeys(words)])
    body = dict(model_type='fnet', hidden_size=16, num_hidden_layers=1, intermediate_size=32, initializer_range=.5)
    run_folder(tmp_path/'run', tok, body=body, model_hparam_overrides={}, untied_generator=True, max_seq_length=32)
    assert write_onnx(tmp_path/'run', tmp_path/'out')['own_lengths']
    checker, texts = load_checker(tmp_path/'out'), [' '.join(words[:n]) for n in (18, 19)] # in one batch
    def probs(*texts): return [o.probs for o in checker.check([Sentence(o, 0, 1, 1) for o in texts])]
    assert probs(*texts)[0]==pytest.approx(probs(texts[0])[0], abs=1e-6)

def test_a_generator_has_no_place_beside_a_fine_tuned_model(tmp_path):
    from electra_nbdev.engine.models import shipped
    untrained(TASKS['size'], shipped('tiny')/'discriminator', tmp_path/'task')
    with pytest.raises(InputError, match='has no generator; convert each by itself'):
        convert_weights([tmp_path/'task', shipped('tiny')/'generator'], tmp_path/'out')
    assert not (tmp_path/'out').exists()

@pytest.mark.parametrize('name', ['pairs', 'size', 'remarks'])
def test_a_task_of_texts(encoder, tmp_path, name):
    "The configuration has the labels, and what kind they are of"
    task = TASKS[name]
    untrained(task, encoder, tmp_path/'task')
    facts = write_onnx(tmp_path/'task', out := tmp_path/name)
    assert facts==json.loads((out/'onnx.json').read_text())
    assert facts['networks']=={'onnx/model.onnx': 'logits'} and facts['max_length']==32
    assert_computes(out, tmp_path/'task', task)
    assert tuned_run(out, batch(out, 1))[1]=={'input_ids', 'attention_mask', 'token_type_ids'}
    config = AutoConfig.from_pretrained(out)
    kinds = dict(size='regression', remarks='multi_label_classification', pairs='single_label_classification')
    assert config.problem_type==kinds[name] and config.architectures==['ElectraForSequenceClassification']
    assert tuple(config.id2label.values())==(task.labels or (name,))
    assert {'config.json', 'tokenizer.json', 'vocab.txt', 'onnx', 'onnx.json'} <= {o.name for o in out.iterdir()}

def test_a_task_of_an_encoder_without_segments(tmp_path):
    "Its file asks for none"
    roberta_folder(tmp_path/'roberta')
    untrained(TASKS['kinds'], tmp_path/'roberta', tmp_path/'task')
    write_onnx(tmp_path/'task', out := tmp_path/'out')
    assert_computes(out, tmp_path/'task', TASKS['kinds'])
    assert tuned_run(out, batch(out, 1))[1]=={'input_ids', 'attention_mask'}
    assert AutoConfig.from_pretrained(out).architectures==['RobertaForSequenceClassification']

def test_tasks_of_one_network_are_folders(encoder, tmp_path):
    "A class of a text, a tag of each token, and whether it is wrong; their segments are in the graph"
    tasks = {o: TASKS[o] for o in ('kinds', 'words', 'judge')}
    body, tok = open_model(encoder)
    hp, none = settle_recipe(body, tok, [*tasks], max_seq_length=32), {o: [] for o in tasks}
    save_model(finetune_learner(finetune_dls(tasks, none, none, tok, hp, 'cpu'), body, hp), tmp_path/'task')
    facts = write_onnx(tmp_path/'task', out := tmp_path/'out')
    assert facts['networks']=={f'{o}/onnx/model.onnx': 'logits' for o in tasks}
    for name,task in tasks.items(): assert_computes(out/name, tmp_path/'task', task)
    for name in ('words', 'judge'):
        assert tuned_run(out/name, batch(out/name, 1))[1]=={'input_ids', 'attention_mask'}
        config = AutoConfig.from_pretrained(out/name)
        assert config.architectures==['ElectraForTokenClassification'] and config.problem_type is None
        assert tuple(config.id2label.values())==TASKS[name].labels
    assert config.threshold==.3

def test_a_tuned_model_by_command_and_in_eight_bits(encoder, tmp_path):
    untrained(TASKS['kinds'], encoder, tmp_path/'task'/'model')
    said = worked('electra_convert --src task --onnx --out whole', tmp_path)
    assert said.out.strip()=='onnx/model.onnx in whole'
    worked('electra_convert --src task --onnx --int8 --out small', tmp_path)
    whole, small = (tuned_run(tmp_path/o, batch(tmp_path/o, 6), name)[0]
                    for o,name in (('whole', 'model'), ('small', 'model_quantized')))
    assert 0<np.abs(whole-small).max()<.2*np.abs(whole).max()
    assert [o.name for o in (tmp_path/'small/onnx').iterdir()]==['model_quantized.onnx']

@pytest.mark.parametrize('flags,words', [
    ('--src reader', ['reader is a QATask, for which there is no ONNX form']),
    ('--src task run', ['give one --src']),
    ("--src task --hparams '{\"seed\": 1}'", ['leave --hparams out'])])
def test_tuned_models_without_a_form_are_refused(encoder, tmp_path, flags, words):
    for name,task in dict(task=TASKS['kinds'], reader=QATask('reader')).items():
        untrained(task, encoder, tmp_path/name)
    shutil.copytree(encoder, tmp_path/'run')
    bad(tmp_path, f'electra_convert {flags} --onnx --out out', *words)
