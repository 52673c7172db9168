"""Whether bfloat16 costs learning: `tiny` from the same seeds, evaluated in fp32 on held-out text.

In fp32, in bf16 by autocast, and with weights in bf16 beside float32 masters, as on a GPU.
A difference counts where it is larger than what seeds make among runs of the same precision."""
import argparse
from dataclasses import replace
from statistics import mean, stdev

from common import write_result

METRICS = 'gen_loss', 'disc_loss', 'disc_auc', 'auc_unigram'

def train(precision, seed, steps):
    "Held-out metrics of a run"
    import torch
    from fastai.torch_core import set_seed
    from electra_nbdev.engine.training import precision_callbacks
    from electra_nbdev.data.examples import load_examples
    from electra_nbdev.pretrain import electra_learner, pretrain_dls, sample_examples
    from electra_nbdev.networks.recipe import preset
    from electra_nbdev.pretraining.runs import with_steps
    hp = replace(with_steps(preset('tiny', num_eval_steps=50, seed=seed), steps), save_checkpoints_steps=steps)
    set_seed(seed)
    examples = [load_examples(o, hp) for o in sample_examples(hp)]
    from electra_nbdev.engine.fast import WorkingWeights
    amp = [WorkingWeights()] if precision=='weights' else precision_callbacks(precision, torch.device('cpu'))
    learn = electra_learner(pretrain_dls(*examples, hp, 'cpu'), hp, cbs=amp)
    learn.remove_cb(learn.training_monitor)
    with learn.no_bar(), learn.no_logging():
        learn.fit_steps()
        learn.remove_cbs(amp)
        learn.validate()
    return {k: learn.held_out[k] for k in METRICS}

def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--steps', type=int, default=1500, help='steps of a run (default: 1500)')
    p.add_argument('--seeds', type=int, default=3, help='runs in each precision (default: 3)')
    p.add_argument('--out', default='bf16.json', help='JSON file (default: bf16.json)')
    args, found = p.parse_args(), dict(fp32=[], bf16=[], weights=[])
    for seed in range(args.seeds):
        for name,runs in found.items():
            runs.append(train(name, seed, args.steps))
            print(f'seed {seed}  {name}  ', '  '.join(f'{k} {v:.4f}' for k,v in runs[-1].items()), flush=True)
    def summed(runs): return {k: [round(f([o[k] for o in runs]), 4) for f in (mean, stdev)] for k in METRICS}
    setting = f'tiny, {args.steps} steps, {args.seeds} seeds; mean and standard deviation'
    result = dict(benchmark='bf16', setting=setting,
                  **{k: summed(v) for k,v in found.items()}, runs=found)
    write_result(result, args.out)
    for k in METRICS: print(f'{k:<12}', '  '.join('{} {:.4f} ± {:.4f}'.format(n, *result[n][k]) for n in found))

if __name__=='__main__': main()
