"Runs that begin with trained weights: as a user types them, killed, with another vocabulary, and what is refused"
import json, os, shutil, signal
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForMaskedLM

from electra_nbdev.engine.checkpoint import latest_checkpoint, load_checkpoint, tensors_of
from electra_nbdev.continue_pretraining import (Origin, bits_per_byte, continue_pretraining, graft, of_vocabulary,
    old_rows, open_origin, restarted, vocabulary_report)
from electra_nbdev.monitor import read_history
from electra_nbdev.recipe import build_networks, preset
from electra_nbdev.tokenizer import SPECIALS, wordpiece
from test_commands import at, bad, home, tales, typed, write

def continued(data='examples', **changes):
    hparams = json.dumps(dict(save_checkpoints_steps=4, **changes))
    return f"electra_pretrain --init run --data {data} --steps 12 --device cpu --hparams '{hparams}'"

CONTINUE = continued()

def vocabulary(*pieces): return wordpiece({o: i for i,o in enumerate(pieces)})

def weights(run):
    tensors, _ = load_checkpoint(latest_checkpoint(run))
    return {k: v for k,v in tensors.items() if k.split('/')[0] in ('model', 'optimizer')}

@pytest.fixture(scope='module')
def began(home):
    "A run that began with another's weights"
    said = typed(f'{CONTINUE} --out began', home)
    assert said.code==0, said.err
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
    learn = continue_pretraining(origin, home/'examples', tmp_path/'run', hp, device='cpu')
    assert learn.n_updates==4
    moved, old = [], dict(open_origin(home/'run').model.named_parameters())
    for n,p in learn.model.named_parameters():
        torch.testing.assert_close(p, old[n], rtol=0, atol=1e-4, msg=n)
        moved.append(not torch.equal(p, old[n]))
    assert len(moved)==len(old) and sum(moved)>.8*len(moved)

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

def test_a_smaller_generator_is_new(home):
    said = typed(continued(untied_generator=True, generator_hidden_size=.5) + ' --out apart', home)
    assert said.code==0 and 'The generator is another' in said.out, said
    assert open_origin(home/'apart').hp.untied_generator
    bad(home, continued(untied_generator=True, generator_hidden_size=.5) + ' --out r9 --carry-optimizer',
        'the generator is another', 'leave --carry-optimizer out')

def test_weights_of_no_use_are_refused(home):
    "A masked language model has nothing of a run whose generator is smaller and whose discriminator is not asked for"
    smaller = continued(untied_generator=True, generator_hidden_size=.5)
    if not (home/'apart').is_dir(): typed(f'{smaller} --out apart', home)
    hparams = json.dumps(dict(electra_objective=False))
    bad(home, f"electra_pretrain --init apart --data examples --steps 4 --device cpu --hparams '{hparams}' --out r9",
        'no weights for this recipe')

def test_back_from_a_masked_language_model(home):
    "It takes the generator over, and has no discriminator to give"
    said = typed(continued(electra_objective=False) + ' --out mlm', home)
    assert said.code==0 and 'begins with new weights' not in said.out, said
    bad(home, continued(electra_objective=True).replace('--init run', '--init mlm') + ' --out r9', 'no discriminator')

def test_a_sum_of_embeddings_does_not_become_a_difference(home):
    "With gdes the old table would be added to the generator's"
    bad(home, continued(untied_generator=True, gdes=True) + ' --out r9', '`gdes` is False', 'leave it')

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
    bad(home, f'{itself} --out began', 'weights of moved', init['weights'], 'weights of began', '--out')
    fresh = 'electra_pretrain --data examples --hparams began/hparams.json --steps 12 --out began --device cpu'
    bad(home, fresh, 'weights of moved', 'new weights')
    bad(home, f'{CONTINUE} --out run', 'new weights', 'weights of run')
    bad(home, f'{CONTINUE} --carry-optimizer --out began', 'fresh', 'carried')

def test_carried_moments(home):
    "With a rate of 0 only moments move, and they go on from where the old run left them"
    said = typed(f'{continued(learning_rate=0., weight_decay_rate=0.)} --carry-optimizer --out carried', home)
    assert said.code==0, said.err
    old, new = weights(home/'run'), weights(home/'carried')
    for k in (o for o in old if o.startswith('model/')): assert torch.equal(old[k], new[k]), k
    for k in (o for o in old if o.endswith('exp_avg_sq')): assert (new[k]>=old[k]*.999**12*(1-1e-5)).all(), k

def test_recipe_is_inherited(home):
    origin = open_origin(home/'run')
    assert origin.recipe()==replace(origin.hp, length_schedule=(), learning_rate=origin.hp.learning_rate/4)
    assert origin.recipe('small').disc_weight==50 and origin.recipe('small').untied_generator is False

LAYERS = '{"model_hparam_overrides": {"num_hidden_layers": 5}}'
BAD = {'--init nowhere': ('nowhere',),
       '--init vocab': ('no model', 'vocab'),
       '--init tales.txt': ('tales.txt',),
       '--init damaged': ('damaged',),
       '--init mute': ('mute', 'vocabulary'),
       '--init other': ('other', 'bert', 'electra'),
       f"--init run --hparams '{LAYERS}'": ('num_hidden_layers', '2', '5'),
       '--carry-optimizer': ('--init',),
       '--init tiny --carry-optimizer': ('no checkpoint',),
       '--init run --preset tinny': ('Did you mean `tiny`',)}

@pytest.mark.parametrize('flags', BAD)
def test_bad_beginnings(home, flags):
    for name in ('damaged', 'mute'): shutil.copytree(home/'run', home/name, dirs_exist_ok=True)
    (home/'damaged/discriminator/model.safetensors').write_bytes(b'nonsense')
    for name in ('tokenizer*', 'vocab.txt'):
        for o in (home/'mute').glob(f'*/{name}'): o.unlink()
    config = BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=1, intermediate_size=16,
                        vocab_size=120)
    BertForMaskedLM(config).save_pretrained(home/'other')
    bad(home, f'electra_pretrain {flags} --data examples --steps 4 --device cpu --out r9', *BAD[flags])

def test_rows_longer_than_the_weights_know(home):
    assert typed('electra_data --corpus tales.txt --vocab vocab --out long --max-length 160', home).code==0
    bad(home, 'electra_pretrain --init run --data long --steps 4 --device cpu --out r9', '160', '128', '--max-length')

def test_out_folder_that_is_something_else(home):
    bad(home, f'{CONTINUE} --out vocab', 'something else')

UNTIED = dict(untied_generator=True, untied_generator_embeddings=True)
ELECTRIC = dict(electra_objective=False, electric_objective=True, two_tower_generator=True, untied_generator=True)
VARIANTS = {'tied': {},
            'untied embeddings': UNTIED,
            'tied embeddings': dict(untied_generator=True),
            'uniform': dict(uniform_generator=True),
            'BERT': dict(electra_objective=False),
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
    tables = [n for n in had if of_vocabulary(n)]
    n_tables = {'uniform': 1, 'untied embeddings': 3, 'ELECTRA-TT untied': 4}
    assert len(tables)==n_tables.get(name, 2)
    for n,p in model.named_parameters():
        want = torch.stack([had[n][o].mean(0) for o in rows[:-1]]) if n in tables else had[n]
        assert torch.equal(p[:-1] if n in tables else p, want), n
        if n in tables: assert p[-1].abs().max()<1, n

def test_half_a_model(home):
    "A discriminator alone, as a hub would give it: the generator's head is made, and the user is told"
    shutil.copytree(home/'run/discriminator', home/'alone', dirs_exist_ok=True)
    said = typed('electra_pretrain --init alone --data examples --preset tiny --steps 2 --device cpu --out whole', home)
    assert said.code==0, said.err
    assert 'made    generator' in said.out and 'Beginning with the weights of alone' in said.out
    assert (home/'whole/generator/model.safetensors').is_file()

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

def test_another_vocabulary(spanish):
    said = typed(f'{OTHER} --out otro', spanish)
    assert said.code==0, said.err
    for o in ('pieces keep their rows', 'composed', 'Held-out text, bits per byte: '): assert o in said.out
    found = domain(spanish/'otro')
    assert list(found)==['before', 'start', 'after'] and found['before']['bytes']==found['after']['bytes']>1000
    saved = json.loads((spanish/'otro/hparams.json').read_text())
    assert saved['vocab_size']==len((spanish/'palabras/vocab.txt').read_text().splitlines())
    again = typed(f'{OTHER} --out otro', spanish)
    assert 'Finished already' in again.out and f"{found['after']['bits_per_byte']:.3f} after" in again.out
    assert domain(spanish/'otro')==found
    bad(spanish, f'{OTHER} --carry-optimizer --out r9', 'vocabulary', 'run/discriminator')

def test_killed_while_only_embeddings_learn(spanish):
    assert typed(f'{OTHER} --out roto', spanish, at(3, signal.SIGTERM)).code==143
    frozen = load_checkpoint(latest_checkpoint(spanish/'roto'))[0]
    moments = {k.split('/')[1] for k in frozen if k.startswith('optimizer/')}
    tables = {k.split('/')[1] for k in frozen if k.startswith('model/') and of_vocabulary(k)}
    assert moments==tables
    assert typed(f'{OTHER} --out roto', spanish, at(8, signal.SIGTERM)).code==143
    assert typed(f'{OTHER} --out roto', spanish).code==0
    a, b = weights(spanish/'otro'), weights(spanish/'roto')
    assert a.keys()==b.keys() and all(torch.equal(a[k], b[k]) for k in a)
    assert domain(spanish/'otro')==domain(spanish/'roto')

def test_nothing_in_common_is_a_warning(home):
    old, new = vocabulary(*SPECIALS, 'a', '##b'), vocabulary(*SPECIALS, 'ж', '##щ')
    rows = old_rows(old, new)
    with pytest.warns(UserWarning, match='nothing in common'):
        assert '2 are made new' in vocabulary_report(rows, old, new)

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
