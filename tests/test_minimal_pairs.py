"The study of `benchmarks/minimal_pairs.py`: nothing is measured twice, settings are not mixed, means and ends of seeds"
import json, shutil
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest

from electra_nbdev.data.tokenizer import load_tokenizer
from electra_nbdev.engine.models import shipped
from electra_nbdev.pretraining.plan import run_cost
from electra_nbdev.networks.build import build_networks
from electra_nbdev.networks.recipe import load_hparams, preset, save_hparams
from electra_nbdev.scoring.likelihood import Likelihood, load_likelihood, pseudo_log_likelihood

import minimal_pairs

@pytest.fixture
def args(tmp_path):
    "A study of two sets, of four pairs and of one"
    for name in minimal_pairs.JUDGES:
        (tmp_path/name).mkdir()
        for o,n in (('one', 4), ('two', 1)):
            rows = [dict(sentence_good='the cat sleeps', sentence_bad='the cats sleeps', field='syntax', UID=o)]*n
            (tmp_path/name/f'{o}.jsonl').write_text('\n'.join(map(json.dumps, rows)))
    return Namespace(examples=Path('novels'), data=tmp_path, flops=1e9, seeds=[0, 1], out=tmp_path/'out.json')

def test_a_stopped_study_goes_on(args, monkeypatch):
    "By one way the smaller token ids are better, by the other the larger"
    asked, tok = [], load_tokenizer('tiny')
    def opened(name, seed, by, args):
        asked.append((name, seed, by))
        sign = 1 if by=='pll' else -1
        return Likelihood(lambda ids, mask: sign*ids.float(), tok, 32, by=by)
    monkeypatch.setattr(minimal_pairs, 'opened', opened)
    one = Namespace(**vars(args) | dict(seeds=[0]))
    minimal_pairs.measure(one)
    minimal_pairs.measure(args)
    assert asked==[*minimal_pairs.ways([0, 1])] and len(asked)==16
    rows = json.loads(args.out.read_text())['rows']
    assert [(o['model'], o['seed'], o['way']) for o in rows]==asked and {o['text'] for o in rows}=={'novels'}
    assert {o['blimp']['all pairs']['pairs'] for o in rows}=={5}
    accuracy = {o['way']: o['blimp']['all pairs']['accuracy'] for o in rows}
    assert {accuracy['towers'], accuracy['pll']}=={0., 100.}
    other = Namespace(**vars(args) | dict(flops=2e9))
    with pytest.raises(SystemExit, match='1e.09 FLOPs'): minimal_pairs.measure(other)

def test_rows_of_another_command_stay(args, monkeypatch):
    "One that has ended while this one was training"
    tok = load_tokenizer('tiny')
    def opened(name, seed, by, args):
        found = minimal_pairs.kept(args)
        if not found['rows']: minimal_pairs.keep(found | dict(rows=[dict(text='babylm')]), args)
        return Likelihood(lambda ids, mask: ids.float(), tok, 32, by=by)
    monkeypatch.setattr(minimal_pairs, 'opened', opened)
    monkeypatch.setattr(minimal_pairs, 'ways', lambda seeds: [('n-gram', None, '5-gram')])
    minimal_pairs.measure(args)
    assert [o['text'] for o in json.loads(args.out.read_text())['rows']]==['babylm', 'novels']

def test_the_seconds_of_all_ways_are_measured_in_turns(args, monkeypatch):
    now, tok = [0.], load_tokenizer('tiny')
    monkeypatch.setattr(minimal_pairs.time, 'perf_counter', lambda: now[0])
    def opened(name, seed, by, args):
        def scores(ids, mask):
            now[0] += 1+len(by)
            return ids.float()
        return Likelihood(scores, tok, 32, by=by)
    monkeypatch.setattr(minimal_pairs, 'opened', opened)
    monkeypatch.setattr(minimal_pairs, 'sentences', lambda: ['the cat sleeps'])
    args.out.write_text(json.dumps(minimal_pairs.kept(args) | dict(seconds=dict(babylm=1))))
    minimal_pairs.clock(args)
    seconds = json.loads(args.out.read_text())['seconds']
    assert seconds['babylm']==1
    assert seconds['novels']=={f'{name}, {by}': 1+len(by) for name,_,by in minimal_pairs.ways([0])}

def test_seeds_are_averaged_and_drawn(tmp_path):
    def row(seed, accuracy, way='towers', text='novels'):
        found = {o: {k: dict(accuracy=accuracy) for k in ('binding', 'mean over sets')} for o in minimal_pairs.JUDGES}
        return dict(text=text, model='Electric', seed=seed, way=way) | found
    rows = [row(0, 60.), row(1, 63.), row(0, 50., 'energies'), row(0, 55., text='babylm')]
    ways = minimal_pairs.by_way(rows)
    assert [*map(len, ways.values())]==[2, 1, 1]
    assert minimal_pairs.accuracy(ways['novels', 'Electric', 'towers'], 'zorro')==(61.5, 60., 63.)
    seconds = dict.fromkeys(('novels', 'babylm'), {'Electric, towers': 2., 'Electric, energies': 1.})
    for draw in (minimal_pairs.draw, minimal_pairs.draw_phenomena):
        draw(dict(rows=rows, seconds=seconds), tmp_path/'drawn.png')
        assert (tmp_path/'drawn.png').read_bytes()[1:4]==b'PNG'

def test_untrained_towers_depend_on_the_seed_alone(args, monkeypatch, tmp_path):
    "They have the recipe of the run, and none of its weights"
    def train(name, seed, args):
        run, source = tmp_path/f'{name}-{seed}', shipped('electric')
        shutil.copytree(source, run, dirs_exist_ok=True)
        save_hparams(replace(load_hparams(source/'hparams.json'), seed=seed), run/'hparams.json')
        return run
    monkeypatch.setattr(minimal_pairs, 'train', train)
    opened = [*(minimal_pairs.untrained(o, args) for o in (0, 0, 1)), load_likelihood('electric', 'towers')]
    a, again, b, trained = (pseudo_log_likelihood(o, ['the cat sleeps'])[0]['score'] for o in opened)
    assert a==again and len({a, b, trained})==3 and opened[0].by=='towers'

ROOT = Path(__file__).resolve().parents[1]

def test_the_page_has_the_parameters_and_updates_of_each_recipe():
    page = (ROOT/'nbs/tutorials/58_minimal_pairs.qmd').read_text(encoding='utf-8')
    def millions(net): return f'{sum(p.numel() for p in {*net.parameters()})/1e6:.2f}'
    for name,told in (('Electric', 'Electric'), ('ELECTRA', 'ELECTRA'), ('masked', 'masked language model')):
        hp = preset('tiny', **minimal_pairs.LENGTHS | minimal_pairs.OBJECTIVES[name])
        net, steps = build_networks(hp), round(2e13*hp.num_train_steps/run_cost(hp).flops)
        line = next(o for o in page.splitlines() if o.startswith(f'| {told} | '))
        scoring = [o for o in (net.discriminator, net.generator) if o]
        assert f'| {millions(net)} million |' in line and all(millions(o) in line for o in scoring), line
        assert f'| {steps:,} | {hp.mask_prob:.0%}'.replace('%', ' %') in line, line

def test_the_page_has_the_rows_and_the_figures():
    found = json.loads((ROOT/'benchmarks/results/minimal_pairs.json').read_text())
    page = ROOT/'nbs/tutorials/58_minimal_pairs.qmd'
    told = {o.split(' | ')[0][2:]: o for o in page.read_text(encoding='utf-8').splitlines() if o.startswith('| ')}
    for (text,model,way),rows in minimal_pairs.by_way(found['rows']).items():
        line = told[f'{model}, {way}']
        assert all(f'{minimal_pairs.accuracy(rows, o)[0]:.1f}' in line for o in minimal_pairs.JUDGES), line
        assert f" {found['seconds']['novels'][f'{model}, {way}']} " in line
    for o in ('minimal_pairs', 'minimal_pairs_phenomena'): assert (page.parent/f'{o}.png').is_file()
