"""Why a small discriminator stays at the base rate, and what moves it: two networks, seven variants, three seeds each.

The first variant is the preset `tiny`; the others differ from it in what their names say. Beside them are the `tiny` of
version 0.2, with one network, and Electric with the settings of `tiny`. All read 3 million tokens of the embedded
sample. Kept are held-out metrics at six points of a run: the discriminator's AUC on unigram replacements and on samples
of its generator, and the generator's loss. A finished training stays in `--out`, so a stopped command goes on."""
import argparse, json, time
from dataclasses import replace
from pathlib import Path
from statistics import mean

from common import cpu, table, write_result

FIRST = dict(untied_generator=False, generator_hidden_size=.25, unigram_noise=0., max_grad_norm=1.,
             bias_correction=False, train_batch_size=16, length_schedule=((8, .3), (16, .2), (32, .5)),
             copy_positions=False) # The preset `tiny` of version 0.2
OFFICIAL = dict(bias_correction=False, max_grad_norm=1.) # The Adam of the official code
VARIANTS = {
    'tiny': {},
    'clipped at 1': dict(max_grad_norm=1.),
    'no bias correction': dict(bias_correction=False),
    'clipped, no bias correction': OFFICIAL,
    'no unigram noise': dict(unigram_noise=0.),
    'whole rows from the beginning': dict(length_schedule=()),
    'all three as in the paper': OFFICIAL | dict(unigram_noise=0., length_schedule=()),
    'version 0.2, one network': FIRST,
    'Electric': dict(electra_objective=False, electric_objective=True)}
MEASURES = 'below_unigram', 'disc_auc', 'auc_unigram'

def sized(hp, steps):
    "A recipe of so many steps with a tenth of them as warmup and between evaluations"
    return replace(hp, num_train_steps=steps, num_warmup_steps=steps//10, save_checkpoints_steps=steps//10,
                   iterations_per_loop=steps//10)

def curve(hp):
    "Held-out metrics at six points of a training"
    import torch
    from electra_nbdev.pretrain import electra_learner, open_examples, pretrain_dls
    torch.manual_seed(hp.seed)
    learn = electra_learner(pretrain_dls(*open_examples(None, hp), hp, 'cpu'), hp)
    learn.remove_cb(learn.training_monitor)
    with learn.no_bar(), learn.no_logging(): learn.fit_steps()
    held = [o['held_out'] for o in learn.history.rows if 'held_out' in o]
    return [{k: round(o[k], 4) for k in MEASURES} for o in held]

def summary(found):
    "A row for each variant: the mean curve, and the other measures at the end"
    for name,runs in found.items():
        points = zip(*([o['auc_unigram'] for o in run] for run in runs.values()))
        ends = [mean(run[-1][k] for run in runs.values()) for k in ('disc_auc', 'below_unigram')]
        yield name, ' '.join(f'{mean(o):.3f}' for o in points), f'{ends[0]:.3f}', f'{ends[1]:.2f}', len(runs)

def main():
    from electra_nbdev.networks.recipe import preset
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--tokens', type=int, default=3_000_000, help='tokens of each training (3000000)')
    p.add_argument('--seeds', type=int, default=3, help='trainings of each variant (3)')
    default = Path(__file__).parent/'results'/'plateau.json'
    p.add_argument('--out', type=Path, default=default, help='results')
    args = p.parse_args()
    before = json.loads(args.out.read_text()) if args.out.is_file() else dict(found={}, cpus=[])
    found, cpus = {o: before['found'].get(o, {}) for o in VARIANTS}, sorted({*before['cpus'], cpu()})
    for seed in range(args.seeds):
        for name,change in VARIANTS.items():
            if str(seed) in found[name]: continue
            start, hp = time.process_time(), preset('tiny', seed=seed, num_eval_steps=24, **change)
            steps = args.tokens//(hp.train_batch_size*hp.max_seq_length)
            hp = replace(sized(hp, steps), save_checkpoints_steps=-(-steps//6))
            found[name][str(seed)] = curve(hp)
            before |= dict(setting=f'{args.tokens:,} tokens of the embedded sample', cpus=cpus, found=found)
            write_result(before, args.out)
            print(f'{name}, seed {seed}: {found[name][str(seed)][-1]}, {time.process_time()-start:.0f} s', flush=True)
    table(('', 'AUC on unigram replacements', 'own samples', 'nats', 'seeds'), summary(found))

if __name__=='__main__': main()
