"""One change after another, from the paper's recipe in miniature, which stays on a plateau, to the recipe that the
models of the package began with, and to Electric.

Every trial reads the same number of tokens of the embedded sample and is evaluated on the same held-out documents; one
run and one seed each. Electric's AUC on its own samples says little: it is 0.5 where the towers are as good as the
text. `--out` gets what the tutorial on the shipped model draws."""
import argparse, json, time
from dataclasses import replace
from pathlib import Path

from common import write_result

FIRST = dict(untied_generator=False, generator_hidden_size=.25, unigram_noise=0., max_grad_norm=1.,
             bias_correction=False, train_batch_size=16, length_schedule=((8, .3), (16, .2), (32, .5)),
             copy_positions=False) # The preset `tiny` of version 0.2

def trials(tokens):
    "Recipes by name; to `short pieces first` each has one change more, the second also `tiny`'s rate and weight"
    from electra_nbdev.networks.recipe import preset
    tiny = preset('tiny', num_eval_steps=8, **FIRST)
    whole = replace(tiny, length_schedule=(), initializer_range=.02)
    recipes = {'the paper in miniature': replace(whole, untied_generator=True, mask_prob=.15, disc_weight=50.),
               'one network for both': whole,
               'initial deviation 0.1': replace(whole, initializer_range=.1),
               'short pieces first': tiny,
               'batches twice as large': replace(tiny, train_batch_size=2*tiny.train_batch_size)}
    towers = dict(electra_objective=False, electric_objective=True, untied_generator=True, generator_hidden_size=1.)
    electric = preset('tiny', num_eval_steps=8, **FIRST | towers)
    recipes |= {'Electric': electric, 'Electric, initial deviation 0.02': replace(electric, initializer_range=.02),
                'Electric, whole rows': replace(electric, length_schedule=())}
    return {k: sized(o, tokens//(o.train_batch_size*o.max_seq_length)) for k,o in recipes.items()}

def sized(hp, steps):
    "A recipe of so many steps with a tenth of them as warmup and between evaluations"
    return replace(hp, num_train_steps=steps, num_warmup_steps=steps//10, save_checkpoints_steps=steps//10,
                   iterations_per_loop=steps//10)

def train(hp):
    "Curve of a trial: tokens read and what was reached on held-out documents"
    import torch
    from electra_nbdev.data.examples import load_examples
    from electra_nbdev.pretrain import electra_learner, pretrain_dls, sample_examples
    torch.manual_seed(hp.seed)
    learn = electra_learner(pretrain_dls(*(load_examples(o, hp) for o in sample_examples(hp)), hp, 'cpu'), hp)
    learn.remove_cb(learn.training_monitor)
    with learn.no_bar(), learn.no_logging(): learn.fit_steps()
    per_step = hp.train_batch_size*hp.max_seq_length
    held = [(o['step'], o['held_out']) for o in learn.history.rows if 'held_out' in o]
    names = 'below_unigram', 'disc_auc', 'auc_unigram'
    return [dict(tokens=step*per_step, **{k: o[k] for k in names}) for step,o in held]

def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--tokens', type=int, default=3_000_000, help='tokens of each trial (default: 3000000)')
    p.add_argument('--out', default='trials.json', help='JSON file, whose trials are not run again (trials.json)')
    args = p.parse_args()
    out = Path(args.out)
    found = json.loads(out.read_text()) if out.exists() else {}
    for name,hp in trials(args.tokens).items():
        if name in found: continue
        start, found[name] = time.perf_counter(), train(hp)
        last = found[name][-1]
        reached = f"{last['below_unigram']:6.2f} nats  AUC {last['disc_auc']:.3f} {last['auc_unigram']:.3f}"
        print(f'{name:<34} {reached}  {time.perf_counter()-start:.0f} s', flush=True)
        write_result(found, out)

if __name__=='__main__': main()
