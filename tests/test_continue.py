"Runs that begin with trained weights: as a user types them, killed, with another vocabulary, and what is refused"
import json, re, shutil, signal
from dataclasses import replace
from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from electra_nbdev.engine.checkpoint import latest_checkpoint, load_checkpoint, tensors_of
from electra_nbdev.pretraining.continue_pretraining import (HIDDEN, DomainBits, Origin, _word_rows, architecture,
                                                            begin_with, bits_per_byte, carried, domain_report, graft,
                                                            held_out_texts, new_parts, of_vocabulary, old_rows,
                                                            open_origin, questions, spell, unknown_tokens,
                                                            vocabulary_report)
from electra_nbdev.networks.recipe import MODERN, restarted
from electra_nbdev.pretraining.request import PretrainRequest, run_pretraining
from electra_nbdev.engine.files import InputError
from electra_nbdev.engine.models import shipped
from electra_nbdev.data.examples import build_examples, load_examples
from electra_nbdev.pretraining.monitor import read_history
from electra_nbdev.networks.build import body_config, build_networks
from electra_nbdev.networks.folder import ModelFolder
from electra_nbdev.networks.recipe import preset
from electra_nbdev.method.optimizer import warmup_decay
from electra_nbdev.data.tokenizer import SPECIALS, special_token_ids
from make import BERT, deberta_tokenizer, home, pieces, roberta_tokenizer, tales
from terminal import at, bad, typed, worked

def continued(data='examples', **changes):
    hparams = json.dumps(dict(save_checkpoints_steps=4, **changes))
    return f"electra_pretrain --init run --data {data} --steps 12 --device cpu --hparams '{hparams}'"

CONTINUE = continued()

def vocabulary(*names): return pieces(names)

def weights(run):
    tensors, _ = load_checkpoint(latest_checkpoint(run))
    return {k: v for k,v in tensors.items() if k.split('/')[0] in ('model', 'optimizer')}

def test_one_network_takes_the_encoder_of_a_discriminator(capsys):
    "Its generator is no new one, but for its head"
    origin = open_origin(shipped('tiny')/'discriminator')
    model, _ = begin_with(origin, replace(origin.hp, untied_generator=False), origin.tokenizer)
    kept = origin.model.discriminator.electra.state_dict()
    for side in (model.discriminator, model.generator):
        for k,v in side.electra.state_dict().items(): assert torch.equal(v, kept[k]), k
    said = capsys.readouterr().out
    assert "The generator has the discriminator's encoder and a new head" in said and 'is another than' not in said

@pytest.fixture(scope='module')
def began(home):
    "A run that began with another's weights"
    said = worked(f'{CONTINUE} --out began', home)
    return home, said.out

def test_a_run_from_a_run(began):
    home, said = began
    for o in ('Beginning with the weights of run', 'their vocabulary', 'Starting at step 0 of 12'): assert o in said
    saved, old = (json.loads((home/o/'hparams.json').read_text()) for o in ('began', 'run'))
    init = saved['run']['init']
    assert init['folder']=='run' and init['optimizer']=='fresh' and old['run']['init']=={}
    assert (saved['num_train_steps'], saved['num_warmup_steps'])==(12, 1)
    assert saved['learning_rate']==old['learning_rate']/4
    assert 'Finished already' in typed(f'{CONTINUE} --out began', home).out
    assert open_origin(home/'began').recipe().learning_rate==saved['learning_rate'] # no quarter of a quarter

def test_it_really_begins_there(home, tmp_path):
    "Four updates at a rate of a millionth: every weight is still near that of the folder, and most have moved"
    origin = open_origin(home/'run')
    hp = replace(restarted(origin.recipe(), 4), learning_rate=1e-6, weight_decay_rate=0.)
    learn = run_pretraining(home/'examples', tmp_path/'run', hp, init=origin, device='cpu')
    assert learn.n_updates==4
    moved, old = [], dict(open_origin(home/'run').model.named_parameters())
    for n,p in learn.model.named_parameters():
        torch.testing.assert_close(p, old[n], rtol=0, atol=1e-4, msg=n)
        moved.append(not torch.equal(p, old[n]))
    assert len(moved)==len(old) and sum(moved)>.8*len(moved)

def test_bits_are_measured_at_the_lengths_that_were_read(home):
    "A length that has no share of the run is none of them"
    bits = DomainBits()
    held = SimpleNamespace(dataset=SimpleNamespace(tokenizer=None))
    hp = preset('tiny', max_seq_length=64, length_schedule=[[32, 1.], [64, 0.]])
    bits.learn = SimpleNamespace(hp=hp, model=SimpleNamespace(generator=None), dls=SimpleNamespace(valid=held))
    assert bits.here()[2]==32

def test_a_generator_with_other_heads_is_no_secret(home):
    "The official rule gives a generator of its own one head for 64 of its width, whatever the discriminator has"
    line = continued(untied_generator=True, generator_hidden_size=1., generator_layers=1.) + ' --out other-heads'
    said = typed(line, home)
    assert re.search(r'Attention heads of the generator: 1\. Its weights were trained with [2-9]', said.out), said

ELECTRIC = dict(electra_objective=False, electric_objective=True, generator_hidden_size=.5)

def test_an_electric_begins_with_a_discriminator(home):
    "The energies have the run's weights, the towers new ones; repeated, the command finds the run finished"
    line = continued(**ELECTRIC, learning_rate=0., weight_decay_rate=0.) + ' --out energies'
    said = typed(line, home)
    assert said.code==0 and 'The generator is another than that of run and begins with new weights' in said.out, said
    old, new = (load_file(home/o/'model.safetensors') for o in ('run/discriminator', 'energies/electric'))
    assert old.keys()==new.keys() and all(torch.equal(v, new[k]) for k,v in old.items())
    assert (home/'energies/electric/towers/model.safetensors').is_file()
    assert 'Finished already' in typed(line, home).out
    assert typed('electra_score --text tales.txt --model energies --device cpu', home).code==0

@pytest.mark.parametrize('network,change', [
    ('discriminator', dict(electra_objective=True, untied_generator=False)), ('electric', ELECTRIC),
    ('discriminator', dict(electra_objective=True, untied_generator=True, generator_hidden_size=.5))])
def test_a_masked_language_model_becomes_a_discriminator(home, tmp_path, network, change):
    "Its encoder has the weights, its head new ones; a generator of the same encoder keeps its own head too"
    mlm = json.loads((home/'recipe.json').read_text()) | dict(electra_objective=False)
    how = json.dumps(dict(learning_rate=0., weight_decay_rate=0., save_checkpoints_steps=4) | change)
    pretrain = f'electra_pretrain --data {home}/examples --steps 4 --device cpu'
    worked(f"{pretrain} --hparams '{json.dumps(mlm)}' --out mlm", tmp_path)
    line = f"{pretrain} --init mlm --hparams '{how}' --out next"
    said = typed(f'{line} --carry-optimizer', tmp_path)
    assert said.code and 'so its optimizer does not fit' in said.err, said
    assert not (tmp_path/'next').exists()
    said = worked(line, tmp_path)
    assert 'The discriminator has the encoder of mlm and a new head' in said.out
    old, new = (load_file(tmp_path/o/'model.safetensors') for o in ('mlm/generator', f'next/{network}'))
    head = {k for k in new if k not in old}
    assert head=={k for k in new if k.startswith('discriminator_predictions')} and len(head)==4
    assert all(torch.equal(v, old[k]) for k,v in new.items() if k not in head)
    if change.get('untied_generator') is False:
        after = open_origin(tmp_path/'next').model.generator.state_dict()
        assert all(torch.equal(after[k], v) for k,v in old.items())
    assert 'Finished already' in typed(line, tmp_path).out

def test_a_smaller_generator_is_new(home):
    said = typed(continued(untied_generator=True, generator_hidden_size=.5) + ' --out apart', home)
    assert said.code==0 and 'The generator is another' in said.out, said
    assert open_origin(home/'apart').hp.untied_generator
    bad(home, continued(untied_generator=True, generator_hidden_size=.5) + ' --out r9 --carry-optimizer',
        'the generator is another', 'leave --carry-optimizer out')

def test_the_encoder_of_a_discriminator_becomes_a_masked_language_model(home):
    "Where the generator is smaller: all of its encoder, under a new head"
    smaller = continued(untied_generator=True, generator_hidden_size=.5)
    if not (home/'apart').is_dir(): typed(f'{smaller} --out apart', home)
    hparams = json.dumps(dict(electra_objective=False, learning_rate=0., weight_decay_rate=0.))
    line = f"electra_pretrain --init apart --data examples --steps 4 --device cpu --hparams '{hparams}'"
    bad(home, f'{line} --out r9 --carry-optimizer', 'the generator is another', 'leave --carry-optimizer out')
    said = worked(f'{line} --out words', home)
    assert 'The generator has the encoder of apart and a new head' in said.out and 'another than' not in said.out
    old, new = (load_file(home/o/'model.safetensors') for o in ('apart/discriminator', 'words/generator'))
    body = {k for k in new if k.startswith('electra.')}
    assert body=={k for k in old if k.startswith('electra.')} and all(torch.equal(old[k], new[k]) for k in body)
    assert 'Finished already' in typed(f'{line} --out words', home).out
    bad(home, f"{line.replace('--init apart', '--init apart/generator')} --out r9", 'no weights for this recipe')

def test_back_from_a_masked_language_model(home):
    "It takes the generator over"
    said = typed(continued(electra_objective=False) + ' --out mlm', home)
    assert said.code==0 and 'begins with new weights' not in said.out, said

def test_killed_equals_never_stopped(began):
    home, _ = began
    assert typed(f'{CONTINUE} --out killed', home, at(2, signal.SIGKILL)).code==-9 # before the first checkpoint
    assert typed(f'{CONTINUE} --out killed', home, at(6, signal.SIGKILL)).code==-9
    said = typed(f'{CONTINUE} --out killed', home)
    assert said.code==0 and 'Continuing at step 4 of 12' in said.out
    a, b = weights(home/'began'), weights(home/'killed')
    assert a.keys()==b.keys() and all(torch.equal(a[k], b[k]) for k in a)

def test_other_weights_are_refused(began):
    home, _ = began
    shutil.copytree(home/'run', home/'moved', dirs_exist_ok=True)
    said = typed(CONTINUE.replace('run', 'moved', 1) + ' --out began', home) # the same weights elsewhere
    assert said.code==0 and 'Finished already' in said.out
    init = json.loads((home/'began/hparams.json').read_text())['run']['init']
    itself = CONTINUE.replace('--init run', '--init began')
    bad(home, f'{itself} --out began', 'weights of moved', init['weights'], 'weights of began', 'leave --init out')
    bad(home, f'{CONTINUE} --out run', 'new weights', 'weights of run', 'leave --init out')
    bad(home, f'{CONTINUE} --carry-optimizer --out began', 'fresh', 'carried')

def test_a_run_goes_on_without_what_it_began_from(began):
    "Its checkpoints hold all that it needs, and `hparams.json` what it began from"
    home, _ = began
    shutil.copytree(home/'run', home/'first')
    line = CONTINUE.replace('run', 'first', 1) + ' --out orphan'
    alone = line.replace('--init first ', '')
    assert typed(line, home, at(2, signal.SIGKILL)).code==-9 # before the first checkpoint
    bad(home, alone, 'weights of first', 'asked for new weights', 'give what it began from')
    assert typed(line, home, at(6, signal.SIGKILL)).code==-9
    shutil.rmtree(home/'first')
    bad(home, f'{alone} --preset small', "model_size is 'tiny', asked for 'small'")
    said = worked(f'{alone} --preset tiny', home)
    assert 'Continuing at step 4 of 12' in said.out and re.search(r'bits per byte: .* before, .* after', said.out), said
    a, b = weights(home/'began'), weights(home/'orphan')
    assert all(torch.equal(a[k], b[k]) for k in a)
    init = json.loads((home/'orphan/hparams.json').read_text())['run']['init']
    assert init['folder']=='first' and init['weights']==open_origin(home/'run').facts()['weights']

def test_a_run_is_lengthened_without_what_it_began_from(began):
    home, _ = began
    asked = PretrainRequest(home/'examples', home/'began', steps=40, extend=True)
    with_it, alone = replace(asked, init=home/'run').settle(), asked.settle()
    assert alone.hp==with_it.hp and alone.init | dict(folder='')==with_it.init | dict(folder='')

def test_carried_moments(home):
    "With a rate of 0 only moments move, and they go on from where the old run left them"
    worked(f'{continued(learning_rate=0., weight_decay_rate=0.)} --carry-optimizer --out carried', home)
    old, new = weights(home/'run'), weights(home/'carried')
    for k in (o for o in old if o.startswith('model/')): assert torch.equal(old[k], new[k]), k
    for k in (o for o in old if o.endswith('exp_avg_sq')): assert (new[k]>=old[k]*.999**12*(1-1e-5)).all(), k

def test_what_an_objective_adds_goes_on_too(home):
    "The bias of a corrective ELECTRA, with its moments; a run without one gets a new one, and says so"
    line = f"electra_pretrain --data examples --steps 4 --device cpu --hparams '{{}}'"
    def asked(**changes): return line.replace('{}', json.dumps(dict(save_checkpoints_steps=4, **changes)))
    own = json.loads((home/'recipe.json').read_text())
    worked(f"{asked(**own | dict(corrective_weight=1.))} --out named", home)
    kept = open_origin(home/'named').model.corrective_bias
    assert kept.abs().max()>0
    again = dict(learning_rate=0., weight_decay_rate=0.)
    said = worked(f'{asked(**again)} --init named --carry-optimizer --out more', home)
    assert 'made ' not in said.out and 'begins' not in said.out.replace('Beginning', ''), said
    assert torch.equal(open_origin(home/'more').model.corrective_bias, kept)
    said = worked(f'{asked(corrective_weight=1., **again)} --init run --out first', home)
    assert 'corrective_bias is not in run and begins anew' in said.out
    said = worked(f'{asked(electra_objective=False, **again)} --init named --out unnamed', home)
    assert 'corrective' not in said.out

def test_recipe_is_inherited(home):
    origin = open_origin(home/'run')
    assert origin.recipe()==replace(origin.hp, length_schedule=(), learning_rate=origin.hp.learning_rate/4)
    assert origin.recipe('small').disc_weight==50 and origin.recipe('small').untied_generator is False

UNTIED = dict(untied_generator=True, untied_generator_embeddings=True)
ELECTRIC = dict(electra_objective=False, electric_objective=True, two_tower_generator=True, untied_generator=True)
VARIANTS = {'tied': dict(untied_generator=False), 'corrective': dict(corrective_weight=1.),
            'untied embeddings': UNTIED,
            'tied embeddings': dict(untied_generator=True),
            'uniform': dict(uniform_generator=True),
            'BERT': dict(electra_objective=False, unigram_noise=0.),
            'Electric': ELECTRIC,
            'ELECTRA-TT untied': dict(two_tower_generator=True, **UNTIED)}

@pytest.mark.parametrize('name', VARIANTS)
def test_vocabulary_of_every_variant(name):
    "Every table and every output bias gets its rows; all else is copied"
    old = vocabulary(*SPECIALS, 'sea', '##s', 'ship')
    new = vocabulary('ship', '[MASK]', 'seas', *SPECIALS[:4], '7')
    hp = replace(preset('tiny'), vocab_size=8, **VARIANTS[name])
    origin = Origin('x', build_networks(hp), hp, old)
    with torch.no_grad():
        for p in origin.model.parameters(): p.uniform_(1, 2)
    model, had = graft(origin, replace(hp, seed=1), rows := old_rows(old, new)), dict(origin.model.named_parameters())
    assert rows==[[7], [4], [5, 6], [0], [1], [2], [3], []]
    tables = of_vocabulary(origin.model) & {*had}
    n_tables = {'uniform': 1, 'untied embeddings': 3, 'ELECTRA-TT untied': 4, 'corrective': 3}
    assert len(tables)==n_tables.get(name, 2)
    for n,p in model.named_parameters():
        want = torch.stack([had[n][o].mean(0) for o in rows[:-1]]) if n in tables else had[n]
        assert torch.equal(p[:-1] if n in tables else p, want), n
        if n in tables: assert p[-1].abs().max()<1, n

SIZE = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48)
BODIES = dict(bert=BERT, modernbert=MODERN | SIZE, esm=dict(model_type='esm', pad_token_id=0, mask_token_id=4, **SIZE),
              deberta=dict(model_type='deberta-v2', legacy=False, **SIZE)) # whose heads have the bias in other places

@pytest.mark.parametrize('kind', BODIES)
def test_a_run_of_another_body_is_a_beginning(kind):
    "With another vocabulary; and the encoder of a masked language model becomes the discriminator's"
    old, new = vocabulary(*SPECIALS, 'sea', '##s', 'ship'), vocabulary(*SPECIALS, 'ship', 'sea')
    def hp_of(tok, **how):
        return preset('tiny', vocab_size=len(tok), body=BODIES[kind], model_hparam_overrides={}, **how)
    for mlm in (False, True):
        hp = hp_of(old, electra_objective=not mlm)
        origin = Origin('x', build_networks(hp), hp, old)
        recipe = origin.recipe('tiny', dict(vocab_size=len(new), electra_objective=True, seed=1))
        assert recipe.body==hp.body and recipe.electra_objective
        model = graft(origin, recipe, rows := old_rows(old, new))
        had = origin.weights(model)
        other = mlm and kind=='esm' # one of its weights depends on the number of layers
        assert new_parts(origin, model)==['generator']*other, "a generator of fewer layers takes the first ones"
        tables = of_vocabulary(model)
        for n,p in model.discriminator.base_model.named_parameters():
            n = f'discriminator.{model.discriminator.base_model_prefix}.{n}'
            want = torch.stack([had[n][o].mean(0) for o in rows]) if n in tables else had[n]
            assert torch.equal(p, want), n
        (n, bias), = [(n, p) for n,p in model.generator.named_parameters() if p.ndim==1 and len(p)==len(new)]
        assert other or torch.equal(bias, torch.stack([had[f'generator.{n}'][o].mean(0) for o in rows])), n
    with pytest.raises(InputError, match='model_type is .*, asked for .electra.'):
        origin.recipe('tiny', dict(vocab_size=len(new), body={}))
    if kind!='modernbert':
        with pytest.raises(InputError, match="`preset` modern has the body 'modernbert', and the networks of x have"):
            origin.recipe('modern')

def test_energies_of_another_kind_begin_with_a_new_last_layer():
    "What was trained as an energy is not to be added to the towers'; the recipe keeps the kind that the weights have"
    tok = vocabulary(*SPECIALS, 'sea', '##s', 'ship')
    hp = replace(preset('tiny'), vocab_size=8, **ELECTRIC)
    origin = Origin('x', build_networks(hp), hp, tok)
    other = origin.recipe(hparams=dict(residual_energies=True))
    model = graft(origin, other, old_rows(tok, tok))
    had = dict(origin.model.named_parameters())
    for n,p in model.named_parameters():
        if 'dense_prediction' in n: assert not p.any()
        else: assert torch.equal(p, had[n]), n
    again = Origin('y', model, other, tok)
    assert again.recipe('tiny').residual_energies and not again.recipe(hparams=dict(
        electric_objective=False, electra_objective=True)).residual_energies

def test_half_a_model(home):
    "A discriminator alone, as a hub would give it: the generator's head is made, and the user is told"
    shutil.copytree(home/'run/discriminator', home/'alone', dirs_exist_ok=True)
    line = 'electra_pretrain --init alone --data examples --preset tiny --steps 2 --device cpu --out whole'
    said = worked(line, home)
    assert 'made    generator' in said.out and 'Beginning with the weights of alone' in said.out
    assert (home/'whole/generator/model.safetensors').is_file()
    assert 'its bits per byte before the first step say nothing' in said.out and ' before,' not in said.out, said
    assert [*domain(home/'whole')]==['after'] and said.out.count('under the generator, bits per byte')==1

# Another vocabulary, embeddings first, bits per byte

SPANISH = 'el capitán vio la tormenta y se fue.\nera la carta del viejo molinero.\nnadie preguntó al rey ni a la reina.'

@pytest.fixture(scope='module')
def spanish(home):
    "Examples of another language with a vocabulary of their own"
    (home/'spanish.txt').write_text('\n\n'.join(SPANISH.replace('viejo', f'viejo {o}') for o in tales().split()[:120]))
    for line in ('electra_vocab --corpus spanish.txt --out palabras --vocab-size 150',
                 'electra_data --corpus spanish.txt --vocab palabras --out ejemplos --max-length 16 --held-out 0.1'):
        assert typed(line, home).code==0
    return home

OTHER = continued('ejemplos', embeddings_only_steps=6)

def domain(run):
    found = {}
    for o in read_history(run/'history.jsonl'): found |= o.get('domain', {})
    return found

@pytest.fixture(scope='module')
def otro(spanish):
    "What a run on that vocabulary says, in the folder of that name"
    return worked(f'{OTHER} --out otro', spanish)

def test_another_vocabulary(spanish, otro):
    bits = 'Held-out text under the generator, bits per byte: '
    for o in ('pieces keep their rows', 'composed', bits): assert o in otro.out
    found = domain(spanish/'otro')
    measured = [(o['step'], *o['domain']) for o in read_history(spanish/'otro/history.jsonl') if 'domain' in o]
    assert measured==[(0, 'before', 'start'), (12, 'after')]
    assert list(found)==['before', 'start', 'after'] and found['before']['bytes']==found['after']['bytes']>1000
    saved = json.loads((spanish/'otro/hparams.json').read_text())
    assert saved['vocab_size']==len((spanish/'palabras/vocab.txt').read_text().splitlines())
    again = typed(f'{OTHER} --out otro', spanish)
    assert 'Finished already' in again.out and f"{found['after']['bits_per_byte']:.3f} after" in again.out
    assert domain(spanish/'otro')==found
    bad(spanish, f'{OTHER} --carry-optimizer --out r9', 'vocabulary', '--vocab run')

def test_a_run_that_was_stopped_lends_its_weights(spanish):
    "To a shorter one on the same examples, which have its vocabulary"
    assert typed(f'{CONTINUE} --out halted', spanish, at(5, signal.SIGTERM)).code==143
    halted = weights(spanish/'halted')
    shorter = 'electra_pretrain --init halted --carry-optimizer --steps 2 --device cpu --out shorter --data'
    bad(spanish, f'{shorter} ejemplos', 'no vocabulary beside the weights of halted')
    worked(f'{shorter} examples --learning-rate 0', spanish)
    began = weights(spanish/'shorter')
    assert all(torch.equal(v, began[k]) for k,v in halted.items() if k.startswith('model/'))
    assert open_origin(spanish/'shorter').tokenizer.get_vocab()==open_origin(spanish/'run').tokenizer.get_vocab()

def test_one_checkpoint_is_opened_in_a_folder_of_its_own(spanish):
    "As the refusal of its folder says"
    one = sorted((spanish/'run/checkpoints').iterdir())[0]
    with pytest.raises(InputError, match='is one checkpoint of a run') as e: ModelFolder(one)
    assert str(spanish/'run/hparams.json') in str(e.value)
    shutil.copytree(one, spanish/f'earlier/checkpoints/{one.name}')
    shutil.copy(spanish/'run/hparams.json', spanish/'earlier')
    found, last = ModelFolder(spanish/'earlier').open('discriminator'), load_checkpoint(one)[0]
    for k,v in found.state_dict().items():
        if f'model/discriminator.{k}' in last: assert torch.equal(v, last[f'model/discriminator.{k}']), k

def test_killed_while_only_embeddings_learn(spanish, otro):
    assert typed(f'{OTHER} --out roto', spanish, at(3, signal.SIGTERM)).code==143
    frozen = load_checkpoint(latest_checkpoint(spanish/'roto'))[0]
    moments = {k.split('/')[1] for k in frozen if k.startswith('optimizer/')}
    assert moments=={'discriminator.electra.embeddings.word_embeddings.weight', 'generator.generator_lm_head.bias'}
    assert typed(f'{OTHER} --out roto', spanish, at(8, signal.SIGTERM)).code==143
    assert typed(f'{OTHER} --out roto', spanish).code==0
    a, b = weights(spanish/'otro'), weights(spanish/'roto')
    assert a.keys()==b.keys() and all(torch.equal(a[k], b[k]) for k in a)
    assert domain(spanish/'otro')==domain(spanish/'roto')

def test_embeddings_learn_first_then_everything(spanish):
    "Saved after the last update of the embeddings alone, and at the end"
    hparams = json.dumps(dict(save_checkpoints_steps=6, embeddings_only_steps=6))
    worked("electra_pretrain --init run --data ejemplos --steps 8 --device cpu --out primero "
                 f"--hparams '{hparams}'", spanish)
    origin, tok = open_origin(spanish/'run'), open_origin(spanish/'primero').tokenizer
    hp = origin.recipe(hparams=dict(vocab_size=len(tok)))
    model = graft(origin, hp, old_rows(origin.tokenizer, tok))
    was = dict(model.named_parameters())
    def moved(step):
        now = tensors_of(load_checkpoint(spanish/f'primero/checkpoints/step-{step:08d}')[0], 'model')
        return {n for n,p in was.items() if not torch.equal(p, now[n])}
    assert moved(6)==of_vocabulary(model) & {*was} and moved(8)==was.keys()

def test_held_out_texts(spanish):
    held = load_examples(spanish/'ejemplos')
    texts = held_out_texts(held, len(held))
    assert len(texts)==len(held) and not any('[' in o for o in texts) and len(held_out_texts(held, 4))<=4

def test_unknown_tokens_are_told(spanish, tmp_path):
    "Bits per byte leave them out, since examples do not hold what they were"
    text = tmp_path/'text.txt'
    text.write_text('\n\n'.join(' '.join([*o, '漢字']) for o in permutations(('el', 'mar', 'viejo', 'y'))))
    build_examples(text, spanish/'palabras', tmp_path/'e', 16, held_out=.5)
    held = load_examples(tmp_path/'e'/'held_out')
    found, whole = unknown_tokens(held), [' '.join(held.decode(i)) for i in range(len(held))]
    n = len(held.tokenizer(' '.join(whole), add_special_tokens=False).input_ids)
    assert found['unknown_tokens']==pytest.approx(2*len(held)/(n+2*len(held)))
    assert unknown_tokens(load_examples(spanish/'ejemplos'))=={}
    after = dict(bits_per_byte=2., words=9, bytes=40)
    said = domain_report([dict(domain=dict(after=after | found))])
    assert f"{100*found['unknown_tokens']:.1f} % of its tokens are unknown and left out" in said
    assert 'unknown' not in domain_report([dict(domain=dict(after=after))])

def test_nothing_in_common_is_a_warning(home):
    old, new = vocabulary(*SPECIALS, 'a', '##b'), vocabulary(*SPECIALS, 'ж', '##щ')
    rows = old_rows(old, new)
    with pytest.warns(UserWarning, match='nothing in common'):
        assert '2 are made new' in vocabulary_report(rows, new)

def test_vocabularies_compare(home):
    "A network that knows nothing pays in proportion to the pieces of a word; what [UNK] hides is paid byte by byte"
    model = build_networks(preset('tiny', vocab_size=8)).generator
    with torch.no_grad():
        model.generator_lm_head.bias.zero_()
        model.generator_predictions.LayerNorm.weight.zero_()
    lines = ['seas seas', 'seas é']
    whole = bits_per_byte(model, vocabulary(*SPECIALS, 'seas', 'x', 'y'), lines, 8)
    cut = bits_per_byte(model, vocabulary(*SPECIALS, 'sea', '##s', 'y'), lines, 8)
    assert whole['bits']==pytest.approx(4*3+16, abs=1e-3) and cut['bits']==pytest.approx(7*3+16, abs=1e-3)
    assert whole['bytes']==cut['bytes']==16 and cut['unknown_bytes']==2

def test_an_optimizer_of_other_weights_is_not_carried(home, tmp_path):
    "Networks and checkpoint of one run may be of different steps: extended, and stopped half-way"
    shutil.copytree(home/'run', tmp_path/'run')
    assert open_origin(tmp_path/'run').moments
    path = tmp_path/'run/discriminator/model.safetensors'
    save_file({k: v+1 for k,v in load_file(path).items()}, path, metadata=dict(format='pt'))
    assert not open_origin(tmp_path/'run').moments

# The model of the package

@pytest.fixture
def tiny(): return open_origin('tiny')

def test_the_model_of_the_package(tiny):
    assert (tiny.hp.num_train_steps, len(tiny.tokenizer), tiny.report, tiny.continued)==(30_000, 4000, '', True)
    assert tiny.model.discriminator.config.num_hidden_layers==3
    there, asked = architecture(tiny.hp), architecture(preset('tiny'))
    assert {k for k in there if asked[k]!=there[k]}=={'hidden_size', 'num_hidden_layers', 'intermediate_size'}
    with pytest.raises(InputError, match='no checkpoint'): carried(tiny, tiny.tokenizer)
    with pytest.raises(InputError, match='own vocabulary'):
        carried(replace(tiny, moments=dict(x=torch.zeros(1))), vocabulary(*SPECIALS))

def test_fingerprint_of_weights(tiny):
    first, elsewhere = tiny.facts(), open_origin(shipped('tiny'))
    assert elsewhere.folder!=first['folder'] and elsewhere.facts()==first | dict(folder=elsewhere.folder)
    with torch.no_grad(): tiny.model.discriminator.electra.encoder.layer[1].output.dense.bias[5] += 1e-6
    assert tiny.facts()['weights']!=first['weights']

def test_recipe_of_the_user(tiny):
    "The user's values, an inherited architecture, a quarter of the rate, and towers that are implied"
    mine = tiny.recipe(hparams={'mask_prob': .2, 'model_hparam_overrides': {'hidden_dropout_prob': .1}}, seed=3)
    assert (mine.mask_prob, mine.seed, mine.length_schedule, mine.learning_rate)==(.2, 3, (), tiny.hp.learning_rate)
    assert (body_config(mine).hidden_size, body_config(mine).hidden_dropout_prob)==(128, .1)
    assert replace(tiny, continued=False).recipe().learning_rate==tiny.hp.learning_rate/4
    assert tiny.recipe('small').learning_rate==preset('small').learning_rate/4
    assert tiny.recipe('small', {'learning_rate': 3e-4}).learning_rate==3e-4
    assert architecture(tiny.recipe('base'))==architecture(tiny.hp)
    with pytest.raises(InputError, match='Did you mean `mask_prob`'): tiny.recipe(hparams={'mask_probs': .2})

def test_new_parts(tiny):
    "Energies begin with the discriminator; a generator as wide begins with its encoder, a narrower one is new"
    towers = tiny.recipe(hparams={'electra_objective': False, 'electric_objective': True, 'generator_hidden_size': .5})
    assert towers.two_tower_generator and towers.untied_generator and not towers.unigram_noise
    stages = tiny.recipe(hparams={'length_schedule': [[64, .5], [128, .5]]})
    assert tiny.hp.unigram_noise==stages.unigram_noise==.5 and tiny.hp.length_window and not stages.length_window
    rows = [[i] for i in range(tiny.hp.vocab_size)]
    electric = graft(tiny, towers, rows)
    assert new_parts(tiny, electric)==['generator']
    for a,b in zip(electric.discriminator.parameters(), tiny.model.discriminator.parameters(), strict=True):
        assert torch.equal(a, b)
    apart = [tiny.recipe(hparams={'untied_generator': True, 'generator_hidden_size': o}) for o in (1., .25)]
    assert [new_parts(tiny, graft(tiny, o, rows)) for o in apart]==[[], ['generator']]

def test_schedule_of_a_lengthened_run():
    "The official rate with its corrected peak is that of a run which counts from zero; ours warms up first"
    s, n, r, k = 4_000_000, 10_000, 2e-4, np.arange(10_000)
    eta = r*(s+n)/n
    official = warmup_decay(s+k, lr=eta, total=s+n, warmup_steps=10_000)
    assert eta==pytest.approx(.0802) and np.allclose(official, warmup_decay(k, lr=r, total=n), rtol=0, atol=1e-12)
    hp = restarted(preset('small', learning_rate=r), n)
    assert (hp.num_train_steps, hp.num_warmup_steps, hp.save_checkpoints_steps)==(10_000, 1_000, 1_000)
    ours = warmup_decay(k, hp.learning_rate, hp.num_train_steps, hp.num_warmup_steps, power=hp.lr_decay_power)
    assert np.allclose(ours[1000:], official[1000:], rtol=0, atol=1e-12)
    assert ours[0]==0 and (ours[:1000]<official[:1000]).all()

# Pieces, passes and bits

def test_spell(tiny):
    "As the tokenizer does at the beginning of a word, and in the middle of one; empty where a character is unknown"
    names = [*SPECIALS, 'can', 'cant', '##o', '##a', '##ando', '##n']
    words = {o: i for i,o in enumerate(names)}
    def spelled(*args): return [names[i] for i in spell(*args)]
    assert spelled('cantando', words)==['cant', '##ando'] and spelled('cano', words)==['can', '##o']
    assert spelled('ando', words, False)==['##ando']
    assert [spelled('ando', words), spelled('cantaré', words)]==[[], []]
    backend, ids = tiny.tokenizer.backend_tokenizer.model, tiny.tokenizer.get_vocab()
    for o in ('caballeros', 'templars', 'misericordia', 'x'):
        assert [ids[p.value] for p in backend.tokenize(o)]==spell(o, ids)

KINDS = {'WordPiece': lambda texts: pieces([*SPECIALS, *sorted({*' '.join(texts).replace('.', ' .').split()})]),
         'byte-level BPE': roberta_tokenizer, 'Unigram': deberta_tokenizer}

@pytest.mark.parametrize('a,b', [*permutations(KINDS, 2)])
def test_rows_between_kinds_of_vocabularies(a, b):
    "A word that both have as one piece keeps its row, a special token by what it is for, a mark by what it is"
    texts = tales().splitlines()
    old, new = KINDS[a](texts), KINDS[b](texts)
    def ids(tok, text): return tok(text, add_special_tokens=False).input_ids
    def last(tok, word): return ids(tok, f'it {word}')[len(ids(tok, 'it')):]
    rows, both = old_rows(old, new), [(last(new, o), last(old, o)) for o in {*' '.join(texts).replace('.', '').split()}]
    whole = [(n, o) for n,o in both if len(n)==len(o)==1]
    assert len(whole)>4 and all(rows[n]==o for (n,),o in whole)
    assert [rows[i] for i in special_token_ids(new)]==[[i] for i in special_token_ids(old)]
    assert rows[ids(new, 'it.')[-1]]==[ids(old, 'it.')[-1]]

def test_rows_of_a_vocabulary_without_a_piece_for_the_unknown(tiny):
    "The special token that the other lacks is made new"
    bpe = roberta_tokenizer(tales().splitlines())
    bpe.unk_token = None
    rows = old_rows(bpe, tiny.tokenizer)
    assert rows[tiny.tokenizer.unk_token_id]==[] and rows[tiny.tokenizer.mask_token_id]==[bpe.mask_token_id]

def test_bytes_of_no_whole_character_are_spelled_by_bytes():
    "Such a piece cannot be read as text"
    old, new = roberta_tokenizer(['a']), roberta_tokenizer(['ほんの ほんと ほか'])
    had, rows = old.get_vocab(), old_rows(old, new)
    cut = {o: i for o,i in new.get_vocab().items() if '\ufffd' in new.convert_tokens_to_string([o]) and len(o)==2}
    assert cut and all(rows[i]==[had[c] for c in o] for o,i in cut.items())

def test_rows_of_trained_networks(tiny):
    "Kept rows are copies, a composed one is a mean, a new one is neither zero nor a copy; all else is unchanged"
    piece, ids = vocabulary('[MASK]', *SPECIALS[:4], 'sea', '##shore', '¿'), tiny.tokenizer.get_vocab()
    rows = old_rows(tiny.tokenizer, piece)
    assert [len(o) for o in rows]==[1, 1, 1, 1, 1, 1, 2, 0]
    cut = graft(tiny, tiny.recipe(hparams={'vocab_size': 8}), rows)
    now, was = (o.generator.electra.embeddings.word_embeddings.weight for o in (cut, tiny.model))
    assert torch.equal(now[5], was[ids['sea']])
    torch.testing.assert_close(now[6], was[[ids[o] for o in ('##sh', '##ore')]].mean(0), rtol=0, atol=1e-7)
    bias, old = (o.generator.generator_lm_head.bias for o in (cut, tiny.model))
    torch.testing.assert_close(bias[0], old[ids['[MASK]']])
    assert now[7].abs().max()>0 and not (was==now[7]).all(1).any()
    of_pieces = of_vocabulary(cut)
    for (n,a),b in zip(cut.named_parameters(), tiny.model.parameters()): assert n in of_pieces or torch.equal(a, b), n
    report = vocabulary_report(rows, piece)
    for o in ('of 8: 6 pieces keep', '1 are composed', '1 are made new', 'cannot spell them (¿)'): assert o in report

def test_untied_embeddings_get_their_own_rows(tiny):
    "The output matrix stays tied to the generator's"
    hp = preset('tiny', untied_generator=True, untied_generator_embeddings=True)
    two, rows = Origin('x', build_networks(hp), hp, tiny.tokenizer), [[i] for i in range(8)]
    cut = graft(two, replace(hp, vocab_size=8), rows)
    def matrix(m): return m.electra.embeddings.word_embeddings.weight
    for a,b in ((cut.generator, two.model.generator), (cut.discriminator, two.model.discriminator)):
        assert torch.equal(matrix(a), matrix(b)[:8])
    assert cut.generator.generator_lm_head.weight is matrix(cut.generator)
    assert matrix(cut.generator).shape!=matrix(cut.discriminator).shape

def test_questions():
    "Each piece once, no word twice in a pass, a seventh of the words in each on average"
    rng, ends = torch.Generator().manual_seed(0), np.cumsum([1, *np.tile([1, 2, 1, 3, 1], 6)]).tolist()
    passes = questions([list(range(a, b)) for a,b in zip(ends, ends[1:])], rng)
    assert sorted(w[j] for o in passes for w,j in o)==list(range(1, 49))
    for o in passes: assert len({w[0] for w,_ in o})==len(o)
    assert np.mean([len(o) for o in passes])==pytest.approx(30/HIDDEN, abs=.3)
    assert sum(map(len, questions([[1, 2], [3]], rng)))==3

def test_texts_are_cut_between_words(tiny):
    rows, lost = _word_rows(tiny.tokenizer, ['the ship came', '', 'el año ¿'], 3)
    found = [tiny.tokenizer.convert_ids_to_tokens(ids[1:]) for ids,_ in rows]
    assert found==[['the', 'ship', 'came'], ['el', 'an', '##o'], ['[UNK]']]
    assert [words for _,words in rows]==[[[1], [2], [3]], [[1], [2, 3]], [[1]]] and lost==2

def test_bits_of_a_network_that_knows_its_bias(tiny):
    "3,999 pieces of weight 1 and one of weight 4,000, whatever the context, the cut and the order of words"
    blind, tok = tiny.model.generator, tiny.tokenizer
    with torch.no_grad():
        for p in blind.generator_predictions.LayerNorm.parameters(): p.zero_()
        blind.generator_lm_head.bias.zero_()
        blind.generator_lm_head.bias[tok.get_vocab()['sea']] = np.log(4000)
    text = ['the sea, the sea', 'a seafarer']
    pieces = [o for t in text for o in tok.tokenize(t)]
    want = pytest.approx(sum(np.log2(7999) - (o=='sea')*np.log2(4000) for o in pieces), abs=1e-3)
    got = bits_per_byte(blind, tok, text)
    assert (got['bits'], got['bytes'], got['pieces'])==(want, 26, len(pieces))
    assert bits_per_byte(blind, tok, text, max_length=5, seed=1)['bits']==want
    assert bits_per_byte(blind, tok, ['¿'])['bits']==pytest.approx(np.log2(7999)+16, abs=1e-3)
