"The commands as a user types them, right and wrong"
import ctypes, errno, json, os, re, shutil, signal, subprocess, sys, warnings
from pathlib import Path

import pytest
import torch

import electra_nbdev.pretraining.runs # what a command imports, once for all of them
from electra_nbdev.pretraining.request import evaluate_run
from electra_nbdev import cli
from electra_nbdev.data.examples import load_examples
from electra_nbdev.engine import command
from electra_nbdev.engine.checkpoint import latest_checkpoint, load_checkpoint, tensors_of
from electra_nbdev.pretraining.monitor import read_history
from make import home, tales, write
from terminal import SCRIPTS, alone, at, bad, files_of, processor_seconds, small_disk, typed, worked

def test_a_run_says_what_it_has_learnt(home):
    "And before it what its losses add up; one that is undertrained says how to go on"
    said = worked('electra_pretrain --data examples --steps 8 --hparams recipe.json --out says --device cpu', home)
    *_, learnt, _, curves, then = said.out.splitlines()
    assert then=='Next: electra_score --model says --show "A sentence of this text.", or electra_finetune'
    assert learnt.startswith('UNDERTRAINED: the discriminator is still on its plateau'), said.out
    assert 'Losses are gen_loss + 20 x disc_loss, in nats, with 30% of the tokens' in said.out, said.out
    assert 'train longer: --extend --steps 16 doubles the run' in said.out, said
    worked('electra_pretrain --run says --data examples --extend --steps 16 --device cpu', home)

def test_a_masked_language_model_is_not_sent_to_a_task(home):
    hparams = json.dumps(json.loads((home/'recipe.json').read_text()) | dict(electra_objective=False, unigram_noise=0.))
    (home/'mlm.json').write_text(hparams)
    said = typed('electra_pretrain --data examples --steps 4 --hparams mlm.json --out mlm --device cpu', home)
    assert said.out.endswith('Next: electra_score --model mlm --text FILE\n'), said
    assert typed('electra_score --model mlm --text tales.txt --vocab vocab --out mlm.jsonl --device cpu', home).code==0

def test_what_is_built_is_told(home):
    "The case of a vocabulary, what is held out, and the next command"
    said = typed('electra_vocab --corpus tales.txt --out vocab2 --vocab-size 120', home)
    assert re.search(r'^\d+ lower-cased pieces in vocab2$', said.out, re.M), said
    assert said.out.endswith('Next: electra_data --corpus tales.txt --vocab vocab2 --out examples\n')
    (home/'rows.jsonl').write_text('\n'.join(json.dumps(dict(body=o)) for o in tales().splitlines() if o))
    said = typed('electra_vocab --corpus rows.jsonl --field body --out vocab3 --vocab-size 120', home)
    assert 'Next: electra_data --corpus rows.jsonl --field body --vocab vocab3 --out examples\n' in said.out, said
    said = typed('electra_data --corpus tales.txt --vocab vocab --out examples --max-length 16 --held-out 0.1', home)
    kept = load_examples(home/'examples/held_out').counts
    told = f"held out: {kept['documents']} documents, {kept['examples']} examples in examples/held_out"
    few, then = said.out.splitlines()[-2:]
    assert few==f'{told}, which are few to measure on; --held-out takes a larger share' and kept['documents'], said
    assert then=='Next: electra_pretrain --data examples --preset modern --minutes 10 --out runs/mine'

def test_printed_likelihoods_name_their_way(home):
    "Apart from the lines, which other programs read"
    (home/'one.txt').write_text('the king saw the sea .\n')
    said = typed('electra_score --text one.txt --model electric --by energies', home)
    assert said.err=='pseudo-log-likelihoods in nats, by energies of electric:\n', said
    assert len(said.out.splitlines())==1

def test_a_reader_that_ends_early_is_no_error(home):
    done = subprocess.run(f'{SCRIPTS}/electra_pretrain --hparams help | true', shell=True, cwd=home,
                          capture_output=True, text=True)
    assert not done.stderr, done

def test_a_run_is_complete(home):
    found = {o.name for o in (home/'run').iterdir()}
    assert found=={'.lock', 'checkpoints', 'curves.png', 'discriminator', 'generator', 'history.jsonl', 'hparams.json'}
    said = (home/'.said').read_text()
    assert 'Starting at step 0 of 20' in said and 'run/curves.png' in said and 'the unigram baseline' in said
    rows = read_history(home/'run/history.jsonl')
    assert [o['step'] for o in rows if not o.keys() & {'held_out', 'domain'}]==[5, 10, 15, 20]
    assert rows[-2]['held_out']['disc_auc']>0 and rows[-1]['domain']['after']['bits_per_byte']>0
    after = rows[-1]['domain']['after']
    bits = f"bits per byte: {after['bits_per_byte']:.3f} at the end, unigram baseline {after['unigram']:.3f}"
    assert bits in said and 0<after['unigram']<4
    saved = json.loads((home/'run/hparams.json').read_text())
    assert saved['num_train_steps']==20
    assert saved['run']['data']['max_length']==16 and 'torch' in saved['run']['versions']

def test_both_networks_open_without_us(home):
    "Where this package cannot be imported: no missing or unexpected weights, and the logits of the trained networks"
    code = f'''
import sys; sys.modules['electra_nbdev'] = None
import torch
from transformers import AutoModelForMaskedLM, AutoModelForPreTraining, AutoTokenizer
tok = AutoTokenizer.from_pretrained(r"{home/'run/discriminator'}")
xb = tok(["the captain saw the old ship."], return_tensors="pt")
found = []
for cls,name in ((AutoModelForPreTraining, "discriminator"), (AutoModelForMaskedLM, "generator")):
    m, info = cls.from_pretrained(rf"{home/'run'}/{{name}}", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    with torch.no_grad(): found.append(m.eval()(**xb).logits)
torch.save((xb["input_ids"], *found), r"{home/'logits.pt'}")
'''
    subprocess.run([sys.executable, '-W', 'ignore', '-c', code], check=True)
    import torch
    from electra_nbdev.networks.build import load_networks
    from electra_nbdev.networks.recipe import load_hparams
    ids, disc, gen = torch.load(home/'logits.pt', weights_only=True)
    model = load_networks(home/'run', load_hparams(home/'run/hparams.json')).eval()
    with torch.no_grad():
        torch.testing.assert_close(model.token_logits(ids, None, torch.zeros_like(ids)), disc, rtol=0, atol=1e-6)
        torch.testing.assert_close(model.generator(ids).logits, gen, rtol=0, atol=1e-6)

def test_again_continues_and_extends(home):
    shutil.copytree(home/'run', home/'longer', dirs_exist_ok=True)
    again = typed('electra_pretrain --data examples --hparams recipe.json --steps 20 --out longer --device cpu', home)
    assert again.code==0 and 'Finished already at step 20' in again.out
    line = 'electra_pretrain --data examples --hparams recipe.json --steps 30 --extend --out longer --device cpu'
    more = typed(line, home)
    assert more.code==0 and 'Continuing at step 20 of 30' in more.out and 'schedule' in more.out
    assert read_history(home/'longer/history.jsonl')[-1]['step']==30

def test_a_run_keeps_its_own_recipe(home):
    "Whoever continues or extends it need not type its hyper-parameters again; what is typed has to agree"
    shutil.copytree(home/'run', home/'own', dirs_exist_ok=True)
    was = json.loads((home/'own/hparams.json').read_text())
    assert 'Finished already at step 20' in typed('electra_pretrain --data examples --out own --device cpu', home).out
    more = typed('electra_pretrain --data examples --steps 30 --extend --out own --device cpu', home)
    assert more.code==0 and 'Continuing at step 20 of 30' in more.out, more
    found = json.loads((home/'own/hparams.json').read_text())
    odd = {k for k in was if k!='run' and was[k]!=found[k]}
    assert odd<={'num_train_steps', 'num_warmup_steps', 'save_checkpoints_steps'}, odd
    line = 'electra_pretrain --data examples --out own --device cpu --hparams {"mask_prob":0.4}'
    bad(home, line.replace('{', "'{").replace('}', "}'"), 'another recipe: mask_prob', '0.4')

def test_the_same_steps_change_nothing_of_a_run(home):
    "Typed again they do not bring the preset's warmup for so many steps"
    shutil.copytree(home/'run', home/'warm', dirs_exist_ok=True)
    was = json.loads((home/'warm/hparams.json').read_text())
    (home/'warm/hparams.json').write_text(json.dumps(was | dict(num_warmup_steps=7)))
    again = typed('electra_pretrain --data examples --steps 20 --out warm --device cpu', home)
    assert again.code==0 and 'Finished already at step 20' in again.out, again

def test_minutes_fix_the_steps(home):
    line = 'electra_pretrain --data examples --hparams recipe.json --minutes 0.05 --out timed --device cpu'
    first = typed(line, home)
    steps = json.loads((home/'timed/hparams.json').read_text())['num_train_steps']
    assert first.code==0 and steps>=20 and f'of {steps}' in first.out
    again = typed(line, home).out
    assert f'Finished already at step {steps}' in again and '--minutes has no effect' in again
    assert f'--extend --steps {2*steps}' in again

def test_killed_and_told_to_stop(home):
    "What a user sees: exit code 143 and a line after a SIGTERM, and from where each start continues"
    line = 'electra_pretrain --data examples --hparams recipe.json --steps 60 --out stopped --device cpu'
    assert typed(line, home, at(20, signal.SIGKILL)).code==-9
    said = typed(line, home, at(33, signal.SIGTERM))
    assert said.code==143 and not said.err
    assert 'Continuing at step 18 of 60' in said.out
    assert 'Stopped by SIGTERM at step 33; the same command continues there' in said.out
    said = typed(line, home)
    assert said.code==0 and 'Continuing at step 33 of 60' in said.out and 'Held-out' in said.out

ELECTRIC = dict(electric_objective=True, electra_objective=False, untied_generator=True)

@pytest.mark.parametrize('kind', [{}, ELECTRIC], ids=['electra', 'electric'])
def test_extended_and_stopped_half_way(home, kind):
    "All commands take the newest checkpoint; the networks of the first end are there for whoever names their folder"
    from electra_nbdev.finetuning.finetune import open_encoder
    from electra_nbdev.networks.folder import open_pretrained
    from electra_nbdev.scoring.likelihood import load_likelihood
    from electra_nbdev.scoring.score import load_scorer
    name = 'half_'+'_'.join(kind)
    recipe = json.loads((home/'recipe.json').read_text()) | kind
    line = f"electra_pretrain --data examples --device cpu --out {name} --hparams '{json.dumps(recipe)}'"
    assert typed(f'{line} --steps 10', home).code==0
    assert typed(f'{line} --steps 40 --extend', home, at(15, signal.SIGTERM)).code==143
    run, half = home/name, home/name/('electric' if kind else 'discriminator')
    newest = tensors_of(load_checkpoint(latest_checkpoint(run))[0], 'model')
    where = 'discriminator.electra.encoder.layer.0.output.dense.weight'
    def is_newest(net, name=where): return torch.equal(net.state_dict()[name], newest[name])
    assert is_newest(open_pretrained(run).model) and not is_newest(open_pretrained(half).model)
    encoder, inner = where.removeprefix('discriminator.electra.'), where.removeprefix('discriminator.')
    assert [torch.equal(open_encoder(o).state_dict()[encoder], newest[where]) for o in (run, half)]==[True, False]
    if kind: assert [is_newest(load_likelihood(o).scores.args[0]) for o in (run, half)]==[True, False]
    else:
        scorers = [load_scorer(o).discriminator.state_dict() for o in (run, half)]
        assert [torch.equal(o[inner], newest[where]) for o in scorers]==[True, False]
    assert typed(f'electra_convert --src {name} --dst converted_{name}', home).code==0
    assert is_newest(open_pretrained(home/f'converted_{name}').model)
    asked = '--text tales.txt' if kind else '--show "the captain saw the storm"'
    worked(f'electra_score --model {name} {asked}', home)
    line = f'electra_pretrain --init {name} --data examples --steps 5 --carry-optimizer --out from_{name} --device cpu'
    worked(line, home)

def test_evaluate(home, capsys):
    "The held-out examples of the run have fixed masks, so the command repeats the evaluation of the last step"
    said = typed('electra_evaluate --run run --data examples/held_out --device cpu', home)
    rows, *told = read_history(home/'run/history.jsonl'), *said.out.splitlines()
    last = [o['held_out'] for o in rows if 'held_out' in o][-1]
    after = [o['domain'] for o in rows if 'domain' in o][-1]['after']
    last |= dict(bits_per_byte=after['bits_per_byte'], unigram_bits=after['unigram'])
    numbers = {k: float(v) for k,v,*_ in map(str.split, told[:len(last)])}
    wanted = {'disc_auc', 'auc_unigram', 'below_unigram', 'masked_lm_accuracy', 'disc_recall'}
    assert said.code==0 and wanted<=numbers.keys()
    assert numbers==pytest.approx(last, abs=1e-4)
    assert all(len(o.split())>4 and 'of the objective' not in o for o in told[:len(last)]), "each says what it is"
    learnt, *_, then = told[len(last):]
    assert then=='Next: electra_score --model run --show "A sentence of this text.", or electra_finetune'
    assert learnt.startswith('UNDERTRAINED') and '--out run --data examples --extend' in learnt
    whole = typed('electra_evaluate --run run --data examples --device cpu', home)
    assert whole.out=='Evaluating on examples/held_out\n' + said.out # and not on what it was trained on
    assert 'trained on' not in said.out
    evaluate_run(home/'run', home/'examples', 'cpu')
    assert 'examples is what the run was trained on, which flatters it' in capsys.readouterr().out

def test_what_evaluate_prints_to_lengthen_a_run_works_as_typed(home):
    shutil.copytree(home/'run', home/'short run')
    def longer(data):
        said = worked(f"electra_evaluate --run 'short run' --data {data} --device cpu", home).out
        return next(o for o in said.splitlines() if o.startswith('UNDERTRAINED')).split('train longer: ')[1]
    line = "electra_pretrain --out 'short run' --data examples --extend --steps 40"
    assert longer('examples')==longer('examples/held_out')==line
    assert 'of 40' in worked(f'{line} --device cpu', home).out
    worked('electra_data --corpus menu.txt --vocab vocab --out menu --max-length 16 --held-out 0', home,
           lambda: write(home/'menu.txt', 'it was the storm.\n\n'*40))
    assert '--data EXAMPLES --extend' in longer('menu') # a text that it was not trained on

def test_cases_and_accents_are_kept_separately(home):
    write(home/'menu.txt', 'Le Café du Château.\n'*20)
    kept = {'--strip-accents true': 'c', '--strip-accents false': 'câé', '--lower-case false': 'Câé'}
    for i,(flags,letters) in enumerate(kept.items()):
        assert typed(f'electra_vocab --corpus menu.txt --out menu{i} --vocab-size 120 {flags}', home).code==0
        pieces = (home/f'menu{i}/vocab.txt').read_text().splitlines()
        found = ''.join(pieces[5:]) # after the special tokens
        assert {o for o in 'Ccâé' if o in found}==set(letters), flags

def test_steps_leave_what_the_recipe_gives(home):
    recipe = json.loads((home/'recipe.json').read_text())
    given = dict(num_warmup_steps=3, save_checkpoints_steps=7, iterations_per_loop=2)
    write(home/'given.json', json.dumps(recipe | given))
    worked('electra_pretrain --data examples --hparams given.json --steps 14 --out given --device cpu', home)
    saved = json.loads((home/'given/hparams.json').read_text())
    assert {k: saved[k] for k in given}==given and saved['num_train_steps']==14
    assert [o['step'] for o in read_history(home/'given/history.jsonl') if 'held_out' in o]==[7, 14]

def test_a_part_of_the_documents_is_held_out_by_default(home):
    write(home/'days.txt', '\n\n'.join(f'on day {i} the captain saw the sea.' for i in range(600)))
    assert typed('electra_data --corpus days.txt --vocab vocab --out usual --max-length 16', home).code==0
    facts = json.loads((home/'usual/data.json').read_text())
    counts = json.loads((home/'usual/held_out/data.json').read_text())['counts']
    assert facts['recipe']['held_out']==.02
    assert counts['documents']+facts['counts']['documents']==600 and 3<=counts['documents']<=25

def test_chunks_of_a_file_draw_their_own_numbers(home, monkeypatch):
    "40 times the same document in two chunks of 20: lengths and segments differ"
    from datasets import load_from_disk
    from electra_nbdev.data import examples, text
    write(home/'same.txt', ('the captain saw the old storm and went away.\n'*5 + '\n')*40)
    half = (home/'same.txt').stat().st_size//2 - 100 # a chunk ends with the document that it is in
    monkeypatch.setattr(examples, 'chunks', lambda corpus, blank: text.chunks(corpus, blank, chunk_bytes=half))
    examples.build_examples(home/'same.txt', home/'vocab', home/'same', max_length=32, long_lines='official')
    rows = list(load_from_disk(home/'same'))
    assert len(rows)%2==0 and rows[:len(rows)//2]!=rows[len(rows)//2:]

# What is odd in a corpus, and disks that are full

def test_undecodable_rows_can_be_skipped(home):
    write(home/'rows.txt', tales().encode() + b'\n\ncaf\xe9 au lait\n')
    said = typed('electra_data --corpus rows.txt --vocab vocab --out skipped --max-length 16 --skip-bad-rows', home)
    assert said.code==0 and '1 skipped' in said.out

def shown(): # as without pytest
    def show(*args): print(warnings.formatwarning(*args), end='', file=sys.stderr)
    warnings.showwarning = show

def test_a_field_of_short_words_is_said(home):
    write(home/'languages.jsonl', '{"lang": "en", "body": "the captain saw the sea"}\n'*200)
    line = 'electra_data --corpus languages.jsonl --vocab vocab --max-length 16'
    said = typed(f'{line} --out languages --field lang', home, shown)
    assert said.code==0 and 'a document has ' in said.err and 'name it with --field' in said.err, said
    assert 'a document has' not in typed(f'{line} --out bodies --field body', home, shown).err

@pytest.mark.parametrize('documents,cure', [(1, 'blank lines'), (30, 'larger --held-out')])
def test_nothing_held_out_is_said_with_a_cure(home, documents, cure):
    write(home/'few.txt', '\n\n'.join(['the captain saw the old storm and went away.']*documents))
    line = f'electra_data --corpus few.txt --vocab vocab --max-length 16 --out few{documents} --held-out 1e-9'
    said = typed(line, home, shown)
    assert said.code==0 and 'nothing is held out' in said.err and cure in said.err, said
    again = typed(line, home, shown)
    assert f'few{documents} is complete already' in again.out

def test_a_vocabulary_that_does_not_fit_is_said(home):
    write(home/'greek.txt', 'αβγ δεζ '.encode()*20)
    said = typed('electra_data --corpus greek.txt --vocab vocab --out greek --max-length 16', home, shown)
    assert said.code==0 and '% of the tokens are [UNK]' in said.err, said

def test_long_lines_are_split_unless_asked_otherwise(home):
    write(home/'long.txt', 'the captain saw the old storm and went away. '*40)
    line = 'electra_data --corpus long.txt --vocab vocab --max-length 16 --held-out 0'
    said = {o: typed(f'{line} --out long_{o} {flag}', home)
            for o,flag in dict(split='', official='--long-lines official').items()}
    assert 'did not fit into an example' in said['official'].out and 'did not fit' not in said['split'].out
    for o in said: assert json.loads((home/f'long_{o}/data.json').read_text())['recipe']['long_lines']==o

def test_recipe_follows_the_examples(home):
    said = typed('electra_pretrain --data examples --steps 3 --out adopted --device cpu', home)
    saved = json.loads((home/'adopted/hparams.json').read_text())
    assert said.code==0 and 'From the examples' in said.out
    assert 'length_schedule' not in said.out.split('From the examples')[1].splitlines()[0] # the clock may shorten it
    assert saved['max_seq_length']==16 and saved['length_schedule'][-1][0]==16

def test_disk_full_while_building(home):
    bad(home, 'electra_data --corpus tales.txt --vocab vocab --out e2 --max-length 16', 'e2', setup=small_disk)
    bad(home, 'electra_vocab --corpus tales.txt --out v2 --vocab-size 120', 'v2', setup=small_disk)

@pytest.mark.parametrize('line,left', [
    ('electra_vocab --corpus tales.txt --out v3 --vocab-size 120', '.v3.a1b2c3d4.tmp'),
    ('electra_score --text tales.txt --device cpu --out s3.jsonl', '.s3.jsonl.a1b2c3d4.tmp')])
def test_what_a_killed_command_was_writing_is_cleared(home, line, left):
    write(home/left, 'half of it')
    assert typed(line, home).code==0 and not (home/left).exists()

@pytest.mark.parametrize('name', ['out', 'out.npz'])
def test_disk_full_while_converting(home, tmp_path, name):
    "One line, nothing is left of it, and the same command converts when there is space"
    (tmp_path/'run').symlink_to(home/'run')
    line = f'electra_convert --src run --dst {name}'
    bad(tmp_path, line, 'File too large', setup=small_disk)
    assert os.listdir(tmp_path)==['run']
    assert typed(line, tmp_path).code==0

def test_what_torch_says_to_developers_is_left_out(monkeypatch):
    monkeypatch.setattr(warnings, 'formatwarning', warnings.formatwarning)
    monkeypatch.setenv('TRANSFORMERS_VERBOSITY', 'error')
    with warnings.catch_warnings(record=True) as told:
        warnings.resetwarnings()
        command._quieten(cli.electra_score)
        for o in ('`torch.jit.script` is deprecated', 'yours'): warnings.warn(o, FutureWarning)
    assert [str(o.message) for o in told]==['yours']

@pytest.fixture
def beside(home, tmp_path):
    "A folder with what a run reads, and a command"
    for o in ('examples', 'recipe.json'): (tmp_path/o).symlink_to(home/o)
    return tmp_path, 'electra_pretrain --data examples --hparams recipe.json --steps 10 --out run --device cpu'

def one_line(said):
    "The line that a command said of what it could not do, after what it noted"
    *notes, last = said.err.strip().splitlines()
    assert said.code==2 and last.startswith('electra_pretrain: ') and 'File too large' in last, said
    assert all(o.startswith('Note: ') for o in notes), said
    return last

def test_disk_full_at_the_end_of_a_run(beside):
    "The checkpoint is there, the networks are not: the same command writes them"
    d, line = beside
    def setup():
        save = electra_nbdev.pretraining.runs.save_networks
        def full(*args):
            small_disk()
            return save(*args)
        electra_nbdev.pretraining.runs.save_networks = full
    one_line(typed(line, d, setup))
    assert {o.name for o in (d/'run').iterdir()}=={'.lock', 'checkpoints', 'history.jsonl', 'hparams.json'}
    again = typed(line, d)
    assert again.code==0 and 'Finished already at step 10' in again.out
    assert (d/'run/discriminator/model.safetensors').is_file()

def test_disk_full_while_training(beside):
    "The same command trains when there is space"
    d, line = beside
    one_line(typed(line, d, small_disk))
    assert not [o for o in d.rglob('*') if o.suffix=='.tmp' or 'step-' in o.name]
    assert typed(line, d).code==0 and (d/'run/discriminator/model.safetensors').is_file()

def disk_gone_after(n):
    "A setup in which every flush after so many fails, as where a cable was pulled"
    flush, left = os.fsync, iter(range(n))
    def fails(fd):
        if next(left, None) is None: raise OSError(errno.EIO, os.strerror(errno.EIO))
        return flush(fd)
    def setup(): os.fsync = fails
    return setup

@pytest.mark.parametrize('line,step', [
    ('electra_data --corpus tales.txt --vocab vocab --out o/made --max-length 16', 2),
    ('electra_convert --src run --out o/made', 16), ('electra_convert --src run --out o/made.npz', 1)])
def test_a_disk_that_goes_away(home, tmp_path, line, step):
    "At whatever flush: one line, what has the name is whole, and the same command gives the same bytes"
    for o in ('tales.txt', 'vocab', 'run'): (tmp_path/o).symlink_to(home/o)
    assert typed(line, tmp_path).code==0
    whole = files_of(tmp_path/'o')
    for n in range(0, 100, step):
        shutil.rmtree(tmp_path/'o')
        (tmp_path/'o').mkdir()
        said = typed(line, tmp_path, disk_gone_after(n))
        if said.code==0: break
        assert said.code==2 and 'Input/output error' in said.err.splitlines()[-1], said
        again = typed(line, tmp_path)
        assert again.code==0 or 'exists already' in again.err, again
        assert files_of(tmp_path/'o')==whole
    assert n>=step

@pytest.mark.parametrize('n', [0, 3, 8])
def test_a_disk_that_goes_away_while_training(beside, tmp_path, n):
    "The same command goes on from the last checkpoint, to the same weights"
    d, line = beside
    line = line.replace('--steps 10', '--steps 20')
    assert typed(line.replace('--out run', '--out whole'), d).code==0
    said = typed(line, d, disk_gone_after(n))
    assert said.code==2 and 'Input/output error' in said.err.splitlines()[-1], said
    assert typed(line, d).code==0
    for o in ('discriminator', 'generator'):
        assert (d/'run'/o/'model.safetensors').read_bytes()==(d/'whole'/o/'model.safetensors').read_bytes()

def test_cards_say_which_network_fills_masks(home, tmp_path):
    "In the folder that a pipeline opens, of a run and of what is converted"
    assert typed(f'electra_convert --src {home}/run --dst out', tmp_path).code==0
    for run in (home/'run', tmp_path/'out'):
        card = (run/'discriminator/README.md').read_text()
        assert 'It fills no masks' in card and 'the folder `../generator`' in card
        assert "for `pipeline('fill-mask')`" in (run/'generator/README.md').read_text()


def test_files_are_no_hint_for_a_model(home):
    write(home/'runs.txt', 'a good day\n')
    said = typed('electra_score --model runs.tex --show day', home)
    assert 'where there is nothing' in said.err and 'runs.txt' not in said.err, said.err

KEPT = dict(electra_pretrain='to continue from what is saved', electra_data='to continue from what is saved',
            electra_finetune='finished trials are kept, and the same command begins the unfinished one anew',
            electra_score='nothing is kept, the same command begins anew')

@pytest.mark.parametrize('name', KEPT)
def test_a_stopped_command_promises_what_it_keeps(tmp_path, name):
    def stop():
        import electra_nbdev.engine.command as command
        def raises(*args): raise KeyboardInterrupt
        command._check_places = raises
    needed = '--corpus a --vocab b --out c' if name=='electra_data' else ''
    said = typed(f'{name} {needed}', tmp_path, stop)
    err = said.err.strip()
    assert said.code==130 and err.startswith(f'{name}: stopped; ') and err.endswith(KEPT[name])

def test_threads_that_wait_sleep_soon(tmp_path):
    "Which torch's OpenMP reads when torch is imported"
    (tmp_path/'show.py').write_text('''import os, sys
from electra_nbdev.engine.command import command
@command
def show(): print(os.environ['GOMP_SPINCOUNT'], 'torch' in sys.modules)
show()''')
    env = {k: v for k,v in os.environ.items() if k not in ('GOMP_SPINCOUNT', 'OMP_WAIT_POLICY')}
    assert subprocess.check_output([sys.executable, 'show.py'], cwd=tmp_path, env=env, text=True)=='10000 False\n'

def test_a_gpu_without_a_driver_is_refused_before_torch(home):
    try: ctypes.CDLL('libcuda.so.1')
    except OSError: pass
    else: pytest.skip('there is a driver')
    if sys.platform!='linux' or Path('/dev/kfd').exists(): pytest.skip('only where CUDA is the only GPU')
    for line in ('electra_pretrain --out r2', 'electra_plan'):
        said = alone(f'{line} --device cuda:1', home)
        assert said.code==2 and "'cuda:1', which this machine does not have" in said.err, said.err

def test_a_dataset_is_opened_before_torch(home):
    line = [SCRIPTS/'electra_data', *f'--corpus hf:{home}/none --vocab vocab --out e2'.split()]
    said = subprocess.run([sys.executable, '-X', 'importtime', *line], cwd=home, capture_output=True, text=True)
    assert said.returncode==2 and 'cannot be loaded' in said.stderr and 'give hf:name' in said.stderr.splitlines()[-1]
    assert not [o for o in said.stderr.splitlines() if o.split()[-1] in ('torch', 'transformers', 'fastai')]

def test_a_tilde_is_the_folder_of_the_user(tmp_path):
    "A shell leaves it as it is after `=`"
    (user := tmp_path/'user').mkdir()
    write(user/'lines.txt', 'a good day\n')
    line = 'electra_score --text=~/lines.txt --out=~/rows.jsonl'
    said = typed(line, tmp_path, lambda: os.environ.update(HOME=str(user)))
    assert said.code==0 and (user/'rows.jsonl').is_file() and not (tmp_path/'~').exists(), said

def test_an_empty_file_before_others_is_no_empty_corpus(home):
    (home/'parts').mkdir()
    write(home/'parts/a.txt', '')
    write(home/'parts/b.txt', tales())
    said = typed('electra_data --corpus parts --vocab vocab --out whole --max-length 16 --held-out 0.1', home)
    assert said.code==0 and '145 documents' in said.out, said

COMMANDS = 'vocab data plan pretrain evaluate score check finetune predict convert'.split()

@pytest.mark.parametrize('name', COMMANDS)
def test_help_and_version_need_no_torch(home, name):
    from electra_nbdev import __version__
    assert alone(f'electra_{name} --version', home).out=='electra_nbdev ' + __version__ + '\n'
    short, long = (alone(f'electra_{name} {o}', home).out for o in ('--help', '--help-all'))
    def flags(text): return {o.split()[0] for o in text.splitlines() if o.startswith('  --')}
    assert short.startswith('usage') and flags(short)<=flags(long)
    if name=='pretrain': assert len(flags(short))==12 and '--carry-optimizer' in flags(long)-flags(short)

JOBS = dict(show='color', text='field per by out', pairs='per by out', nbest='weights by out',
            choices='candidates by out', surprisal='context unit field per by out')

@pytest.mark.parametrize('job', JOBS)
def test_each_job_of_scoring_has_a_help_of_its_flags(home, job):
    said = alone(f'electra_score --{job} --help', home)
    shown = {o.split()[0] for o in said.out.splitlines() if o.startswith('  --')}
    always = {f'--{o}' for o in (job, *'model vocab device version help-all'.split())}
    assert said.code==0 and shown==always | {f'--{o}' for o in JOBS[job].split()}, said.out

def test_the_help_of_scoring_lists_its_jobs(home):
    said = alone('electra_score --help', home).out
    shown = {o.split()[0] for o in said.splitlines() if o.startswith('  --')}
    assert shown=={f'--{o}' for o in (*JOBS, 'model', 'version', 'help-all')}
    assert 'the flags of one job: electra_score --show --help' in said

@pytest.mark.parametrize('name,word', [('pretrain', 'mask_prob '), ('plan', 'mask_prob '), ('convert', 'mask_prob '),
                                       ('finetune', 'layerwise_lr_decay ')])
def test_hyper_parameters_are_listed(home, name, word):
    said = alone(f'electra_{name} --hparams help' + ' --src run --out b'*(name=='convert'), home)
    assert said.code==0 and word in said.out, said.err

def test_hyper_parameters_are_listed_as_they_are_used(home):
    "With the flags and the examples that stand beside"
    def listed(line): return dict(o.split()[:2] for o in alone(f'electra_{line} --hparams help', home).out.splitlines())
    found = listed('pretrain --data examples --lr .1 --steps 77 --seed 3')
    assert found['vocab_size']==str(json.loads((home/'examples/data.json').read_text())['recipe']['vocab_size'])
    assert [found[o] for o in ('learning_rate', 'num_train_steps', 'seed', 'max_seq_length')]==['0.1', '77', '3', '16']
    assert listed('plan --max-length 64')['max_seq_length']=='64'
    found = listed('finetune --task squad --trials 3 --epochs 9')
    assert [found[o] for o in ('num_trials', 'num_train_epochs', 'max_seq_length')]==['3', '9', '512']

def test_one_of_something_is_told_so(home):
    write(home/'pair.csv', 'text,kind\n'+'a good day,x\na bad day,y\n'*4)
    worked('electra_finetune --csv pair.csv --dev pair.csv --text-column text --label-column kind --out pair '
           '--epochs 1 --max-length 16 --device cpu', home)
    write(home/'one.csv', 'text\na good day\n')
    said = worked('electra_predict --model pair --src one.csv --out one.jsonl', home)
    assert said.out=='1 prediction in one.jsonl\n'

def test_a_column_of_a_table_is_scored(home):
    write(home/'named.csv', 'sentence,n\nthe king saw the sea .,1\n')
    said = worked('electra_score --text named.csv --field sentence --out named.jsonl', home)
    row = json.loads((home/'named.jsonl').read_text())
    assert (row['text'], row['n'])==('the king saw the sea .', '1') and row['score']<0, said
    write(home/'both.csv', 'sentence,text\na sea,b\n')
    bad(home, 'electra_score --text both.csv --field sentence', 'has a column `text`, as the results have')

def test_flags_of_before_are_known(home):
    "By their names of 0.2; a function takes them too"
    from electra_nbdev import cli
    write(home/'rows.csv', 'text,kind\na good day,x\na bad day,y\n')
    said = alone('electra_finetune --csv rows.csv --out found --text texts --label=kind --preset paper', home)
    assert said.code==2 and 'Did you mean `text`?' in said.err, said.err
    said = alone('electra_predict --model nowhere --input rows.csv', home)
    assert said.code==2 and '--model is nowhere' in said.err, said.err
    said = alone('electra_pretrain --run run --extend --steps 5', home) # a run to continue, by the name that a run has
    assert said.code==2 and 'run has 20 steps already' in said.err, said.err
    with pytest.raises(ValueError, match='exists already'): cli.electra_convert('tiny', dst=home)
    with pytest.raises(ValueError, match='no column `texts`'):
        cli.electra_finetune(csv=home/'rows.csv', text='texts', label='kind')

def test_a_name_of_the_hub_is_known_by_its_form(home):
    for name in 'bert-base-uncased', 'google/electra-small-discriminator':
        said = alone(f'electra_finetune --model {name} --csv rows.csv', home)
        assert said.code==2 and f'If it is on the Hugging Face hub, write hf:{name}.' in said.err, said.err
    assert 'write hf:' not in alone('electra_finetune --model runs/mine --csv rows.csv', home).err

@pytest.mark.timing
@pytest.mark.parametrize('line', ['electra_pretrain --preset tiniest', 'electra_evaluate --run precious',
                                  'electra_finetune --csv rows.csv --text-column texts --label-column kind'])
def test_no_is_said_within_half_a_second(home, line):
    (home/'precious').mkdir(exist_ok=True)
    write(home/'rows.csv', 'text,kind\na good day,x\na bad day,y\n')
    assert any(processor_seconds(line, home)<.5 for _ in range(3))

@pytest.mark.timing
def test_pretrain_adds_little_to_its_libraries():
    """A star import, after torch, transformers, fastai; 0.2 s put parameters into `help`; the least of three

    transformers' `Trainer` imports peft where that is installed, as here, which takes half a second."""
    code = ('import time, torch; from transformers import PreTrainedModel, TrainerCallback\n'
            'from fastai.basics import *\n'
            'start = time.process_time()\n'
            'from electra_nbdev.pretrain import *; print(time.process_time()-start)')
    def seconds(): return float(subprocess.check_output([sys.executable, '-W', 'ignore', '-c', code]))
    assert any(seconds()<1 for _ in range(3))

def test_one_command_for_all(tmp_path):
    "Its words are the commands, in the order in which one needs them; a mistake is one line"
    listed = typed('electra', tmp_path)
    words = re.findall(r'^  (\w+) ', listed.out, re.M)
    assert listed.code==0 and words==COMMANDS, listed
    show = '--show "The cat sat." --model tiny'
    whole, one = typed(f'electra score {show}', tmp_path), typed(f'electra_score {show}', tmp_path)
    assert whole.code==0 and whole.out==one.out
    assert 'usage: electra data [-h]' in typed('electra data --help', tmp_path).out
    said = typed('electra pretain', tmp_path)
    told = "electra: there is no command 'pretain'. Did you mean `pretrain`? electra --help lists them\n"
    assert (said.code, said.err)==(2, told)
    assert typed('electra convert --src nothing --out x', tmp_path).err.startswith('electra_convert: --src is nothing')

def test_a_table_that_comes_in_as_lines_is_refused(home, tmp_path):
    "Its first line names the column that the model reads: a header is no text"
    write(tmp_path/'rows.csv', 'phrase,kind\n' + 'a good day,x\na bad day,y\n'*8)
    worked('electra_finetune --csv rows.csv --dev rows.csv --text-column phrase --label-column kind --out tuned '
           '--epochs 1 --max-length 16 --device cpu', tmp_path)
    for text in 'phrase\na good day\n', 'phrase;kind\na good day;x\n':
        write(tmp_path/'lines.txt', text)
        said = typed('electra_predict --model tuned --src lines.txt --device cpu', tmp_path)
        assert said.code==2 and 'names the column `phrase`, so this is a table' in said.err, said.err
    write(tmp_path/'lines.txt', 'a good phrase\na bad phrase\n')
    assert worked('electra_predict --model tuned --src lines.txt --device cpu', tmp_path).out.count('a ')>=2

def test_a_folder_called_like_a_flag_is_suggested_as_it_is(home, tmp_path):
    write(tmp_path/'text.txt', 'the cat sat\n')
    (tmp_path/'vocab').mkdir()
    said = alone('electra_data --corpus text.txt --vocab vocb --out x', tmp_path)
    assert said.code==2 and 'Did you mean `vocab`?' in said.err, said.err
