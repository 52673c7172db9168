"Bodies are arguments: any masked language model as generator, any token classifier as discriminator"
import json
from dataclasses import replace

import pandas as pd
import pytest
import torch
from fastai.data.core import DataLoaders
from fastai.data.load import DataLoader
from fastai.learner import Learner
from fastai.torch_core import no_random
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import (AutoConfig, AutoModelForMaskedLM, AutoModelForTokenClassification, BertConfig,
                          ElectraForPreTraining, RobertaConfig)

from electra_nbdev.cli import electra_pretrain
from electra_nbdev.pretraining.continue_pretraining import Origin
from electra_nbdev.pretraining.request import run_pretraining
from electra_nbdev.pretraining.learner import electra_learner, match_examples, open_examples, pretrain_dls
from electra_nbdev.engine.checkpoint import latest_checkpoint, load_checkpoint, save_checkpoint
from electra_nbdev.engine.files import InputError
from electra_nbdev.finetuning.finetune import TextTaskDataLoaders, electra_classifier, open_encoder
from electra_nbdev.method.discriminator import corrupt
from electra_nbdev.method.generator import generator_config, hidden_states, masked_logits, segments_for
from electra_nbdev.method.masking import MaskedBatch
from electra_nbdev.pretrain import (ClipNorm, LinearWarmupDecay, MaskTokens, ReplacedTokenDetection, ReplaceTokens,
                                    build_examples, build_networks, electra_optimizer, load_examples, load_networks,
                                    param_groups, preset, save_networks, step_loss, train_vocab)
from electra_nbdev.networks.build import body_config
from electra_nbdev.engine.models import body_of
from electra_nbdev.scoring.score import load_scorer
from electra_nbdev.data.tokenizer import special_token_ids
from learners import StopAt
from make import CONFIGS, SIZE, batch, close, deberta_tokenizer, home, roberta_tokenizer, small_recipe
from terminal import typed, worked

SEGMENTS = dict(bert=True, deberta=False, modernbert=False, electra=True)

def lines():
    animals, places = 'dog cat bird fish horse'.split(), 'house river wood town hill field'.split()
    return [f'the {a} of the {p} saw a {b} in the {q}'
            for a in animals for p in places for b in animals for q in places]

@pytest.fixture(scope='module')
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp('bodies')/'text.txt'
    path.write_text('\n\n'.join('\n'.join(lines()[i:i+3]) for i in range(0, 300, 3)))
    return path

@pytest.fixture(scope='module')
def data(text):
    "Examples of 16 tokens"
    train_vocab(text, text.parent/'vocab', 120)
    return build_examples(text, text.parent/'vocab', text.parent/'examples', max_length=16, held_out=.2)

def recipe(data, body, **kw):
    "Eight updates with a body"
    return preset('tiny',
                  **dict(vocab_size=len(load_examples(data).tokenizer), max_seq_length=16, length_schedule=(),
                         train_batch_size=8, eval_batch_size=8,
                         num_train_steps=8, num_warmup_steps=2, save_checkpoints_steps=4, iterations_per_loop=2,
                         num_eval_steps=2, untied_generator=True, model_hparam_overrides={},
                         body=CONFIGS[body].to_diff_dict()) | kw)

def folder_of(body, folder):
    "A folder that holds only a config.json"
    CONFIGS[body].save_pretrained(folder)
    return folder

def networks(data, body, **kw): return build_networks(recipe(data, body, **kw))

bodies = pytest.mark.parametrize('body', CONFIGS)

# The two networks

@bodies
def test_logits_at_the_masked_positions_only(data, body):
    gen = networks(data, body).generator.eval()
    ids, positions = torch.randint(5, 60, (4, 16)), torch.randint(0, 16, (4, 3))
    seen = torch.ones_like(ids).index_fill(1, torch.tensor([15]), 0)
    with torch.no_grad():
        full = gen(ids, attention_mask=seen).logits
        found = masked_logits(gen, hidden_states(gen, ids, seen), positions)
    torch.testing.assert_close(found, full.gather(1, positions[...,None].expand(-1, -1, full.shape[-1])), atol=1e-5,
                               rtol=1e-4)

@bodies
def test_the_right_tokens_are_named_from_the_output_of_the_body(body):
    "Logits and losses are those of ELECTRA; the further one is that of a naive output layer"
    hp, mb = small_recipe(body=CONFIGS[body].to_diff_dict(), untied_generator=True), batch()
    plain, model = build_networks(hp).eval(), build_networks(replace(hp, corrective_weight=1.)).eval()
    with torch.no_grad():
        out, had = model(**mb), plain(**mb)
        close(out.logits, had.logits)
        for k in ('gen', 'disc'): close(out.sums[k], had.sums[k])
        ids, net = MaskedBatch.named(**mb), model.discriminator
        x = net.base_model(corrupt(ids, out.prediction.sampled), attention_mask=ids.attention_mask)[0]
        if body=='electra': x = x @ net.electra.embeddings_project.weight
        scores = (x @ net.get_input_embeddings().weight.T).log_softmax(-1)
    rows = torch.arange(len(x))[:,None]
    close(out.sums['corrective'], -(scores[rows, ids.positions, ids.targets]*ids.weights).sum())
    close(out.counts['corrective'], ids.weights.sum())

def test_embeddings_of_another_width_name_no_tokens():
    narrow = dict(model_type='albert', hidden_size=32, embedding_size=16, num_hidden_layers=2, num_attention_heads=2,
                  intermediate_size=64)
    with pytest.raises(InputError, match='needs embeddings as wide as the layers, those of this albert are 16 wide'):
        build_networks(small_recipe(body=narrow, untied_generator=True, corrective_weight=1.))

@bodies
def test_a_stock_learner_trains(data, body):
    "Networks made from nothing but a configuration of `transformers`"
    examples = load_examples(data)
    with no_random(0):
        special = dict(pad_token_id=0, cls_token_id=2, sep_token_id=3, bos_token_id=2, eos_token_id=3)
        facts = CONFIGS[body].to_dict() | dict(vocab_size=len(examples.tokenizer), num_labels=1) | special
        cfg = type(CONFIGS[body]).from_dict(facts)
        model = ReplacedTokenDetection.of(AutoModelForMaskedLM.from_config(generator_config(cfg, depth=1/3)),
                                          AutoModelForTokenClassification.from_config(cfg))
    assert model.generator.get_input_embeddings().weight is model.discriminator.get_input_embeddings().weight
    rows = [*zip(*examples[range(48)])]
    dl = DataLoader(rows, bs=16)
    learn = Learner(DataLoaders(dl, dl, device='cpu'), model, loss_func=step_loss, opt_func=electra_optimizer,
                    splitter=param_groups, lr=2e-3,
                    cbs=[MaskTokens(special_token_ids(examples.tokenizer)), ReplaceTokens(), ClipNorm(),
                         LinearWarmupDecay()])
    before = {n: p.detach().clone() for n,p in model.named_parameters()}
    with learn.no_bar(), learn.no_logging():
        first = learn.validate()[0]
        learn.fit(4)
        last = learn.validate()[0]
    still = {n for n,p in model.named_parameters() if torch.equal(p, before[n])}
    assert learn.n_updates==12 and last<first and not still, still

@bodies
def test_segments_only_where_they_are_taken(data, body):
    model, taken = networks(data, body), SEGMENTS[body]
    seen = []
    for net in (model.generator, model.discriminator):
        assert bool(segments_for(net, torch.zeros(1, 4)))==taken
        net.base_model.register_forward_pre_hook(lambda m,a,kw: seen.append(kw.get('token_type_ids') is not None),
                                                 with_kwargs=True)
    ids = torch.randint(5, 60, (2, 8))
    hidden_states(model.generator, ids, None, torch.ones_like(ids))
    model.token_logits(ids, None, torch.ones_like(ids))
    assert seen==[taken, taken]

@bodies
def test_a_generator_of_another_body(data, body):
    "Where embeddings have no width of their own, the generator keeps the width and has a third of the layers"
    model = networks(data, body, generator_hidden_size=.25)
    gen, disc = model.generator.config, model.discriminator.config
    if body=='electra':
        assert gen.hidden_size==8 and gen.num_hidden_layers==3 and gen.embedding_size==disc.embedding_size==16
    else: assert gen.hidden_size==disc.hidden_size==32 and (gen.num_hidden_layers, disc.num_hidden_layers)==(1, 3)
    assert model.generator.get_input_embeddings().weight is model.discriminator.get_input_embeddings().weight

# Runs

def opened(cls, folder):
    "A network that `transformers` opens, without a weight missing or left over"
    model, info = cls.from_pretrained(folder, output_loading_info=True)
    assert not info['missing_keys'] and not info['unexpected_keys'] and not info['mismatched_keys']
    return model.eval()

@bodies
def test_a_run_of_a_body(data, body, tmp_path):
    out, hp = tmp_path/'run', recipe(data, body)
    with pytest.raises(KeyboardInterrupt): run_pretraining(data, out, hp, device='cpu', cbs=[StopAt(6, at_once=True)])
    assert latest_checkpoint(out).name=='step-00000004'
    learn = run_pretraining(data, out, hp, device='cpu')
    assert learn.n_updates==8
    whole = run_pretraining(data, tmp_path/'whole', hp, device='cpu')
    for (n,a),b in zip(learn.model.named_parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(a, b), n
    learn.model.eval()
    cfg = json.loads((out/'discriminator/config.json').read_text())
    assert cfg['model_type']==CONFIGS[body].model_type
    ids = torch.randint(5, 60, (2, 16))
    with torch.no_grad():
        logits = opened(ElectraForPreTraining if body=='electra' else AutoModelForTokenClassification,
                        out/'discriminator')(ids).logits
        torch.testing.assert_close(logits.reshape(2, 16), learn.model.token_logits(ids, None, torch.zeros_like(ids)),
                                   atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(opened(AutoModelForMaskedLM, out/'generator')(ids).logits,
                                   learn.model.generator(ids).logits, atol=1e-5, rtol=1e-4)
    back = load_networks(out, learn.hp)
    for (n,a),b in zip(learn.model.named_parameters(), back.parameters(), strict=True): assert torch.equal(a, b), n
    scorer = load_scorer(out, device='cpu')
    assert scorer('the dog of the house') is not None
    table = pd.DataFrame(dict(text=lines()[:24], label=['a', 'b']*12))
    assert open_encoder(out).config.model_type==CONFIGS[body].model_type
    dls = TextTaskDataLoaders.from_df(table[:16], 'text', 'label', out, valid=table[16:], bs=8, device='cpu')
    task = electra_classifier(dls)
    before = {n: p.detach().clone() for n,p in task.model.named_parameters()}
    with task.no_bar(), task.no_logging(): task.fit(1, 1e-3)
    deep = [n for n,p in task.model.named_parameters() if 'layers.1' in n or 'layer.1' in n]
    assert task.n_updates==2 and deep
    assert any(not torch.equal(before[n], p) for n,p in task.model.named_parameters() if n in deep)

def test_a_body_that_says_its_head_is_its_own(tmp_path):
    "EuroBERT's configuration unties the head, an objective ties it: nothing is lost, or random, on disk"
    config = AutoConfig.for_model('eurobert', **SIZE, num_key_value_heads=2, tie_word_embeddings=False).to_diff_dict()
    hp = preset('tiny', vocab_size=60, body=config, max_seq_length=16, length_schedule=(), model_hparam_overrides={})
    model = build_networks(hp).eval()
    for p in model.parameters(): p.data += .01 # other weights than the seed's
    save_networks(model, hp, tmp_path)
    ids = torch.randint(5, 60, (2, 16))
    alone = opened(AutoModelForMaskedLM, tmp_path/'generator')
    torch.testing.assert_close(alone(ids).logits, model.generator(ids).logits)
    config = tmp_path/'generator/config.json' # in version 0.3 it said that the head, which is not there, is its own
    config.write_text(json.dumps(json.loads(config.read_text()) | dict(tie_word_embeddings=False)))
    back = load_networks(tmp_path, hp)
    for (n,a),b in zip(model.named_parameters(), back.parameters(), strict=True): assert torch.equal(a, b), n
    with safe_open(tmp_path/'generator/model.safetensors', 'pt') as f: kept = {k: f.get_tensor(k) for k in f.keys()}
    kept.pop(next(k for k in kept if 'layers.0' in k))
    save_file(kept, tmp_path/'generator/model.safetensors', dict(format='pt'))
    with pytest.raises(InputError, match='lacks .*layers.0.*; was it saved completely'): load_networks(tmp_path, hp)

@bodies
def test_an_extended_run_gives_its_newest_weights(data, body, tmp_path):
    "Its saved networks are those of the first end"
    run_pretraining(data, tmp_path, recipe(data, body), device='cpu')
    tensors, state = load_checkpoint(latest_checkpoint(tmp_path))
    name = next(o for o in tensors if o.startswith('model/discriminator') and 'layer' in o and o.endswith('weight'))
    tensors[name] += 1
    save_checkpoint(tmp_path, 12, tensors, state)
    facts = json.loads((tmp_path/'hparams.json').read_text())
    (tmp_path/'hparams.json').write_text(json.dumps(facts | dict(num_train_steps=16)))
    own = open_encoder(tmp_path).state_dict()
    assert any(torch.equal(o, tensors[name]) for n,o in own.items() if name.endswith(n)), name

@bodies
def test_norms_and_biases_do_not_decay(data, body):
    "Whatever a body calls them; every matrix does"
    for group in param_groups(networks(data, body)):
        for n,p in group['params']: assert group['wd_mult']==(p.ndim>1), n

@bodies
def test_word_embeddings_and_output_learn_first(data, body):
    "Whatever a body calls them"
    hp = recipe(data, body, embeddings_only_steps=2)
    learn = electra_learner(pretrain_dls(*open_examples(data, hp), hp, 'cpu'), hp)
    model, was = learn.model, {n: p.detach().clone() for n,p in learn.model.named_parameters()}
    first = {id(p) for net in (model.generator, model.discriminator) for o in (net.get_input_embeddings(),
             net.get_output_embeddings()) if o is not None for p in o.parameters()}
    with learn.no_bar(), learn.no_logging(): learn.fit_steps(2)
    moved = {n for n,p in model.named_parameters() if not torch.equal(p, was[n])}
    assert moved=={n for n,p in model.named_parameters() if id(p) in first} and len(moved)==2, moved
    with learn.no_bar(), learn.no_logging(): learn.fit_steps(1)
    assert all(not torch.equal(p, was[n]) for n,p in model.named_parameters())

OWN_BODY = """
from transformers import (AutoConfig, AutoModel, AutoModelForMaskedLM, AutoModelForTokenClassification, BertConfig,
                          BertForMaskedLM, BertForTokenClassification, BertModel)
from electra_nbdev.pretrain import ReplacedTokenDetection

class MineConfig(BertConfig): model_type = 'mine'
AutoConfig.register('mine', MineConfig)
for auto,base in ((AutoModel, BertModel), (AutoModelForMaskedLM, BertForMaskedLM),
                  (AutoModelForTokenClassification, BertForTokenClassification)):
    auto.register(MineConfig, type(f'Mine{base.__name__}', (base,), dict(config_class=MineConfig, __module__=__name__)))

class Mine(ReplacedTokenDetection): "As it is"
"""

def test_a_body_of_ones_own_by_command(home, tmp_path):
    "The file of `--objective` registers it; without that file one line says so"
    (tmp_path/'mine.py').write_text(OWN_BODY)
    config = dict(model_type='mine', **SIZE)
    (tmp_path/'body').mkdir()
    (tmp_path/'body/config.json').write_text(json.dumps(config))
    line = (f'electra_pretrain --data {home}/examples --steps 4 --device cpu --max-length 16 --length-schedule [] '
            f'--num-eval-steps 1 --out run')
    said = typed(f'{line} --body body', tmp_path)
    assert said.code==2 and 'register it' in said.err and '--objective' in said.err, said
    assert said.err.count('\n')==1 and not (tmp_path/'run').exists()
    whole = f'{line} --objective mine.py:Mine'
    worked(f'{whole} --body body', tmp_path)
    assert json.loads((tmp_path/'run/discriminator/config.json').read_text())['model_type']=='mine'
    assert 'Finished already' in worked(whole, tmp_path).out
    held = f'{home}/examples/held_out'
    worked(f'electra_evaluate --run run --data {held} --objective mine.py:Mine --device cpu', tmp_path)
    said = typed('electra_score --model run --show "the king" --device cpu', tmp_path)
    assert said.code==2 and 'register it' in said.err and said.err.count('\n')==1, said

def test_the_command_takes_a_folder(data, tmp_path, capsys):
    body = folder_of('modernbert', tmp_path/'body')
    hparams = {k: v for k,v in vars(recipe(data, 'modernbert')).items()
               if k in ('max_seq_length', 'length_schedule', 'train_batch_size', 'eval_batch_size', 'num_eval_steps')}
    how = dict(data=str(data), hparams=hparams, device='cpu')
    with pytest.raises(KeyboardInterrupt):
        import electra_nbdev.pretraining.runs as runs
        real = runs.electra_learner
        try:
            runs.electra_learner = lambda *a, cbs=(), **kw: real(*a, cbs=[*cbs, StopAt(6, at_once=True)], **kw)
            electra_pretrain(**how, out=str(tmp_path/'run'), body=str(body), steps=8)
        finally: runs.electra_learner = real
    learn = electra_pretrain(**how, out=str(tmp_path/'run'), body=str(body), steps=8)
    assert learn.n_updates==8 and learn.model.discriminator.config.model_type=='modernbert'
    assert learn.model.generator.config.num_hidden_layers==1
    assert 'under the generator, bits per byte: ' in capsys.readouterr().out
    with pytest.raises(InputError, match='another recipe: body'):
        electra_pretrain(**how, out=str(tmp_path/'run'), body=str(folder_of('bert', tmp_path/'other')), steps=8)

# What is refused

def test_errors(data, tmp_path):
    with pytest.raises(InputError, match="model_type 'nobody', which transformers does not know"):
        body_of_type(data, 'nobody')
    with pytest.raises(InputError, match='no config.json; give a folder'): body_of(tmp_path)
    (tmp_path/'config.json').write_text('{"model_type": "nobody"}')
    with pytest.raises(InputError, match='`model_type` that transformers does not know'): body_of(tmp_path)
    for kw in (dict(two_tower_generator=True), dict(electric_objective=True, electra_objective=False)):
        with pytest.raises(InputError, match="official towers are ELECTRA's"):
            recipe(data, 'bert', cloze_mode='official', duplicates='official', unigram_noise=0., **kw)
    with pytest.raises(InputError, match='exceeds max_position_embeddings 8'):
        build_networks(recipe(data, 'bert', model_hparam_overrides=dict(max_position_embeddings=8)))
    with pytest.raises(InputError, match='gpt2, for which transformers has no masked language model'):
        body_of_type(data, 'gpt2')
    with pytest.raises(InputError, match='`body` .* has no config.json'):
        electra_pretrain(data=str(data), out=str(tmp_path/'run'), body=str(data))

def test_a_width_that_a_body_cannot_have_is_refused(tmp_path):
    BertConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2).save_pretrained(tmp_path/'bert')
    narrow = dict(hparams='{"generator_hidden_size": 0.5}', out=tmp_path/'run', device='cpu')
    with pytest.raises(InputError, match="no effect with the body 'bert'.*`generator_layers` makes it smaller"):
        electra_pretrain(body=str(tmp_path/'bert'), **narrow)
    assert not (tmp_path/'run').exists()

def test_names_that_a_body_does_not_have_are_refused(data):
    "Older names are known, and no dropout is what presets ask of every body"
    for known in (dict(global_attn_every_n_layers=2), dict(hidden_dropout_prob=0.)):
        build_networks(recipe(data, 'modernbert', model_hparam_overrides=known))
    meant = 'Did you mean `num_hidden_layers`'
    wrong = [(dict(num_hiden_layers=4), meant), (dict(hidden_dropout_prob=.1), '')]
    for other,said in [*wrong, *(({o: 4}, '') for o in ('foo', 'heads', 'dropout'))]: # words of docstrings
        with pytest.raises(InputError, match=f"which the body 'modernbert' does not have; leave it out.*{said}"):
            build_networks(recipe(data, 'modernbert', model_hparam_overrides=other))

def test_a_body_from_python_has_no_other_names():
    for body in (dict(model_type='modernbert', hidden_sise=64), dict(model_type='bert', rope_theta=3)):
        name = [*body][-1]
        with pytest.raises(InputError, match=f'hparam `body` has `{name}`'): body_config(preset('tiny', body=body))

@pytest.mark.parametrize('command', ['electra_plan', 'electra_pretrain --data examples --out run'])
def test_a_typed_body_has_no_other_names(command, data, tmp_path):
    (tmp_path/'examples').symlink_to(data)
    said = typed(f"""{command} --hparams '{{"body": {{"model_type": "bert", "num_hiden_layers": 2}}}}'""", tmp_path).err
    assert "hparam `body` has `num_hiden_layers`" in said and 'Did you mean `num_hidden_layers`?' in said
    assert not (tmp_path/'run').exists()

def test_a_preset_does_not_change_what_a_body_says_and_no_dropout_has_many_names():
    small = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2)
    own = body_config(preset('tiny', body=dict(model_type='bert', max_position_embeddings=512, hidden_dropout_prob=.1,
                                               **small)))
    assert (own.max_position_embeddings, own.hidden_dropout_prob, own.attention_probs_dropout_prob)==(512, .1, 0)
    typed = preset('tiny', body=dict(model_type='bert', **small), model_hparam_overrides=dict(hidden_dropout_prob=.2))
    assert body_config(typed).hidden_dropout_prob==.2
    other = dict(model_type='distilbert', dim=16, n_heads=2, n_layers=2)
    found = body_config(preset('tiny', body=other | dict(attention_dropout=.3)))
    assert (found.dropout, found.attention_dropout)==(0, .3)
    assert body_config(preset('small', body=other)).dropout==.1 # nothing was asked for

def test_positions_that_are_kept_for_padding_hold_no_token(data, tmp_path):
    "Of RoBERTa's 18 positions a text has 16"
    hp = replace(recipe(data, 'bert'), body=RobertaConfig(**SIZE | dict(max_position_embeddings=18)).to_diff_dict())
    origin, longer = Origin('x', build_networks(hp), hp, load_examples(data).tokenizer), replace(hp, max_seq_length=17)
    with pytest.raises(InputError, match='`max_seq_length` 17 exceeds the 16 tokens that the body'):
        build_networks(longer)
    wide = build_examples(data.parent/'text.txt', data.parent/'vocab', tmp_path/'wide', max_length=17, held_out=.2)
    with pytest.raises(InputError, match='the weights of x know 16 positions'):
        run_pretraining(wide, tmp_path/'run', longer, init=origin)

def body_of_type(data, kind): return build_networks(replace(recipe(data, 'bert'), body=dict(model_type=kind)))

# Other tokenizers

def bpe(): return roberta_tokenizer(lines())
def unigram(): return deberta_tokenizer(lines(), 120)

@pytest.mark.parametrize('make', [bpe, unigram], ids=lambda o: o.__name__)
def test_a_body_with_its_own_tokenizer(text, make, tmp_path):
    "Padding is not 0 in every vocabulary: the networks get the special tokens of the examples"
    make().save_pretrained(tmp_path/'tok')
    folder = build_examples(text, tmp_path/'tok', tmp_path/'examples', max_length=16, held_out=.2)
    examples = load_examples(folder)
    ids = special_token_ids(examples.tokenizer)
    learn = run_pretraining(folder, tmp_path/'run', recipe(folder, 'modernbert'), device='cpu')
    for net in (learn.model.generator, learn.model.discriminator):
        assert (net.config.pad_token_id, net.config.cls_token_id, net.config.sep_token_id)==(ids.pad, ids.cls, ids.sep)
        assert net.get_input_embeddings().padding_idx==ids.pad
    assert learn.n_updates==8 and learn.held_out['gen_loss']>0
    assert [o[0] for o in learn.predict('the dog')]==examples.tokenizer.tokenize('the dog')
    assert load_scorer(tmp_path/'run', device='cpu')('the dog of the house') is not None

def test_weights_with_a_byte_level_vocabulary_begin_another_run(text, tmp_path):
    bpe().save_pretrained(tmp_path/'tok')
    folder = build_examples(text, tmp_path/'tok', tmp_path/'examples', max_length=16, held_out=.2)
    few = dict(num_train_steps=2, num_warmup_steps=1, train_batch_size=4, num_eval_steps=1)
    hp = match_examples(preset('tiny', **few), load_examples(folder), few)
    run_pretraining(folder, tmp_path/'run', hp, device='cpu')
    learn = run_pretraining(folder, tmp_path/'again', hp, init=tmp_path/'run')
    assert learn.n_updates==2
