"What `tools/baby.py` selects: whole sentences, ten million words, ten passes at most"
import json

import pytest, torch
from safetensors.torch import load_file

from electra_nbdev.data.tokenizer import load_tokenizer
from electra_nbdev.networks.build import build_networks, load_networks
from electra_nbdev.networks.recipe import load_hparams, preset
from make import save_run

import baby

def test_sentences_of_both_kinds_of_files(tmp_path):
    (tmp_path/'novel.txt').write_text('He saw Mr. Dale &amp; me. "Who is there?" he cried. No.\n', encoding='utf-8')
    wiki = '= = A Title = =\nMr.\nDale lived in Spain.\nHe was old then.\n'
    (tmp_path/'wiki.train').write_text(wiki, encoding='utf-8')
    assert baby.sentences(tmp_path/'novel.txt')==['He saw Mr. Dale & me.', '"Who is there?" he cried.']
    assert baby.sentences(tmp_path/'wiki.train')==['Mr. Dale lived in Spain.', 'He was old then.']

def test_no_more_words_than_allowed(tmp_path, monkeypatch):
    "The newest novels come first, none of 1929 or later, and the last file is cut at a sentence"
    text, out = tmp_path/'text', tmp_path/'out'
    for o in (*baby.OTHERS, 'text/novels/A_Old_1850.txt', 'text/novels/B_New_1928.txt', 'text/novels/C_Late_1929.txt'):
        (text/o).parent.mkdir(parents=True, exist_ok=True)
        (text/o).write_text('One two three four. Five six seven eight.\n', encoding='utf-8')
    out.mkdir()
    monkeypatch.setattr(baby, 'WORDS', 37)
    taken = baby.select(text, out)
    assert [*taken.values()]==[8, 8, 8, 8, 4] and [*taken][3:]==['B_New_1928.txt', 'A_Old_1850.txt']
    assert (out/'A_Old_1850.txt').read_text(encoding='utf-8')=='One two three four.\n'

@pytest.mark.parametrize('name', baby.OBJECTIVES)
def test_no_model_reads_its_text_more_than_ten_times(name):
    assert 1<=sum(baby.all_passes(name))<=baby.PASSES

def test_stages_go_on_from_what_is_kept(tmp_path, monkeypatch):
    "With the first stage among the results, on another machine, the others are left, each from the one before"
    typed, shipped = [], []
    def ship(out, name, folder):
        shipped.append(name)
        (folder/name).mkdir()
    monkeypatch.setattr(baby, 'PROGRESS', tmp_path)
    monkeypatch.setattr(baby, 'MODELS', tmp_path/'models')
    (tmp_path/'models').mkdir()
    monkeypatch.setattr(baby, 'load_examples', lambda path: range(48_000))
    monkeypatch.setattr(baby, 'run', lambda line, **hparams: typed.append((line.split(), hparams)))
    monkeypatch.setattr(baby, 'ship', ship)
    monkeypatch.setattr(baby, 'fresh_discriminator', lambda run, out: f'{run.name}-fresh')
    (tmp_path/'electric-rows').mkdir()
    baby.train('electric', tmp_path/'work')
    left = ['electric-discriminator', 'electric-sentences', 'electric-sentences-again']
    assert shipped==[*left, 'electric-baby-en']
    begun = [line[line.index('--init')+1] for line,_ in typed]
    assert begun==['electric-rows-fresh', *(str(tmp_path/o) for o in left)]
    steps = [line[line.index('--steps')+1] for line,_ in typed]
    assert steps==['510', '750', '900', '1000'] # Passes in batches of 16 and 48
    assert [o['learning_rate'] for _,o in typed]==[1.5e-3, 1e-3, 7e-4, 7e-4]
    for o in baby.STAGES: (tmp_path/f'electric-{o[0]}').rmdir() # those before the last one may be deleted
    baby.train('electric', tmp_path/'work')
    assert len(typed)==4

def test_electra_goes_on_from_the_masked_language_model(tmp_path, monkeypatch):
    "With its weights in both parts, which are one network"
    monkeypatch.setattr(baby, 'PROGRESS', tmp_path)
    masked, hp = baby.place('masked', 'sentences-again'), preset('tiny', **baby.recipe('masked', baby.LAST_PASS))
    before = build_networks(hp)
    save_run(masked, before, hp, load_tokenizer('tiny'))
    typed = []
    monkeypatch.setattr(baby, 'load_examples', lambda path: range(48_000))
    monkeypatch.setattr(baby, 'run', lambda line, **hparams: typed.append((line.split(), hparams)))
    monkeypatch.setattr(baby, 'ship', lambda out, name, folder: typed.append((folder/name).name))
    monkeypatch.setattr(baby, 'MODELS', tmp_path/'models')
    baby.train('electra', tmp_path)
    (line, hparams), shipped = typed
    assert shipped=='electra-baby-en' and hparams['disc_weight']==50 and not hparams['untied_generator']
    begun = tmp_path/'electra-begin'
    left = baby.PASSES-sum(baby.passes('masked'))
    assert line[line.index('--init')+1]==str(begun) and .95*left<=int(line[line.index('--steps')+1])/1000<=left
    model = load_networks(begun, load_hparams(begun/'hparams.json'))
    assert model.generator.electra.encoder is model.discriminator.electra.encoder
    learnt, now = before.generator.state_dict(), model.generator.state_dict()
    assert learnt.keys()==now.keys() and all(torch.equal(learnt[k], now[k]) for k in now)

def test_a_shipped_model_names_no_place_of_a_machine(tmp_path):
    "And its weights are in half precision"
    hp, run = preset('tiny'), tmp_path/'run'
    save_run(run, build_networks(hp), hp, load_tokenizer('tiny'), init=dict(folder=str(tmp_path/'before')))
    (run/'history.jsonl').write_text('')
    baby.ship(run, 'a-model', tmp_path)
    found = tmp_path/'a-model/hparams.json'
    assert json.loads(found.read_text())['run']['init']['folder']=='before'
    assert load_hparams(found).model_size=='tiny'
    weights = [v for o in (tmp_path/'a-model').rglob('*.safetensors') for v in load_file(o).values()]
    assert {o.dtype for o in weights}=={torch.float16}

@pytest.mark.parametrize('name', ['electric', 'masked'])
def test_a_new_discriminator_leaves_the_generator_as_it_is(name, tmp_path, capfd):
    hp = preset('tiny', **baby.OBJECTIVES[name], initializer_range=.02)
    run = tmp_path/'run'
    save_run(run, build_networks(hp), hp, load_tokenizer('tiny'))
    fresh = baby.fresh_discriminator(run, tmp_path/'fresh')
    old, new = (load_networks(o, load_hparams(o/'hparams.json')) for o in (run, fresh))
    assert all(torch.equal(p, q) for p,q in zip(old.generator.parameters(), new.generator.parameters()))
    if name=='masked': assert fresh==run
    else: assert matrix(old).std()<.02 and .05<matrix(new).std()<.07

def matrix(model): return model.discriminator.electra.encoder.layer[0].intermediate.dense.weight
