"""Tokens a second of the discriminator: a corpus sampled once against both networks trained together.

Both sides train on the same examples of the embedded sample, in turns, on the threads of OMP_NUM_THREADS or all cores:
`tiny`, one network that plays both parts, and `small` with its two networks. The replacements are those of an
untrained generator: what they are has no influence on the speed, only where they come from. Writing them once is not in
these numbers; `written_tokens_per_s` is how fast that goes."""
import shutil, tempfile, time
from dataclasses import replace
from pathlib import Path
from statistics import median

from common import arguments, ratio, report, rounds, serve, table

RECIPES = dict(tiny=dict(), small=dict(max_seq_length=128, train_batch_size=8, eval_batch_size=8, vocab_size=4000))
NAMES = [f'{r}, {s}' for r in RECIPES for s in ('both networks', 'sampled once')]

def prepared(recipe, work):
    "Recipe and folder of examples with replacements; tokens a second of writing them"
    from electra_nbdev.data.examples import load_examples
    from electra_nbdev.pretrain import match_examples, sample_examples
    from electra_nbdev.networks.build import build_networks, save_networks
    from electra_nbdev.networks.recipe import preset
    from electra_nbdev.data.replacements import add_replacements
    hp = preset(recipe, **RECIPES[recipe])
    train, held = sample_examples(hp)
    hp = match_examples(hp, load_examples(train))
    if not (work/'examples').is_dir():
        shutil.copytree(train, work/'examples')
        shutil.copytree(held, work/'examples/held_out')
        save_networks(build_networks(hp), hp, work/'run', load_examples(train).tokenizer)
        start = time.perf_counter()
        add_replacements(work/'examples', work/'run', mask_prob=hp.mask_prob, device='cpu')
        tokens = sum(load_examples(o).counts['tokens'] for o in (train, held))
        (work/'speed').write_text(str(tokens/(time.perf_counter()-start)))
    return hp, work/'examples', float((work/'speed').read_text())

def build(args):
    "What a side needs"
    recipe, side = args.side.split(', ')
    hp, folder, written = prepared(recipe, Path(args.work)/recipe)
    hp = replace(hp, replacements_from_data=side=='sampled once')
    from electra_nbdev.pretrain import open_examples, pretrain_dls
    return hp, pretrain_dls(*open_examples(folder, hp), hp, 'cpu'), written

def measure(args, state):
    "Tokens a second of some steps"
    from electra_nbdev.pretraining.learner import time_steps
    hp, dls, written = state
    n = args.tokens//(hp.train_batch_size*hp.max_seq_length)
    step, _ = time_steps(hp, dls, n=n)
    return dict(speed=hp.train_batch_size*hp.max_seq_length/step, written=written)

def main():
    args = arguments(__doc__, rounds=(5, 'rounds'), tokens=(20_000, 'tokens of a measurement'),
                     work=('', 'folder for scratch files'))
    if args.side: return serve(lambda: build(args), lambda state: measure(args, state))
    with tempfile.TemporaryDirectory() as work:
        args.work = args.work or work
        got = rounds(NAMES, args, lambda o: f"{o['speed']:10,.0f} tokens/s")
    speeds = {name: [o['speed'] for o in found] for name,found in got.items()}
    table(('', 'tokens/s'), [(name, round(median(o))) for name,o in speeds.items()])
    found = {r: ratio(speeds[f'{r}, sampled once'], speeds[f'{r}, both networks']) for r in RECIPES}
    written = {r: round(got[f'{r}, sampled once'][0]['written']) for r in RECIPES}
    report(dict(benchmark='sampled', **found, written_tokens_per_s=written,
                tokens_per_s={name: round(median(o)) for name,o in speeds.items()}))

if __name__=='__main__': main()
