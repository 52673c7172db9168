"""Replaced-token detection continued from a real BERT on text of a domain, and a task of that domain before and after.

The BERT is that of `real_weights.py`; its encoder becomes a discriminator's, the generator is new. Text is a file of
the domain, the task one of GLUE, by default SST-2 with few rows. Both encoders are fine-tuned with the same rows,
recipe and seeds. What is finished stays, so a stopped command goes on."""
import argparse, json
from pathlib import Path
from statistics import mean, stdev

from common import cpu, table, write_result
from real_weights import RECIPE, TASKS, bert

def continued(model, args):
    "The folder of a run that began with the BERT, and facts of it"
    from electra_nbdev.cli import electra_pretrain
    from electra_nbdev.data.examples import build_examples
    examples, run = args.work/'examples', args.work/'run'
    build_examples(args.text, model, examples, 128, held_out=.02)
    learn = electra_pretrain(examples, run, init=model, minutes=args.minutes, device='cpu', train_batch_size=32,
                             learning_rate=args.rate)
    if learn.stopped: raise SystemExit(learn.exit_code)
    held = {k: round(float(v), 4) for k,v in learn.held_out.items()}
    return run/'discriminator', dict(steps=learn.n_updates, rate=learn.hp.learning_rate, held_out=held)

def scores(model, name, args):
    "Of each seed"
    from electra_nbdev.finetuning.request import run_trials
    from electra_nbdev.finetuning.tasks import glue_task
    trials = run_trials(model, glue_task(args.task, args.data), args.work/name, device='cpu', num_trials=args.seeds,
                        keep_all_models=False, max_train_rows=args.rows, **RECIPE)
    return [round(float(o), 2) for o in trials.values(args.task, TASKS[args.task])]

def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--text', type=Path, required=True, help='text of the domain')
    p.add_argument('--data', type=Path, required=True, help='folder of the tasks of GLUE')
    p.add_argument('--task', default='sst', choices=TASKS)
    p.add_argument('--rows', type=int, default=1000, help='training rows of the task (1000)')
    p.add_argument('--minutes', type=float, default=45, help='of pre-training (45)')
    p.add_argument('--rate', type=float, default=1e-4, help='learning rate of pre-training (1e-4)')
    p.add_argument('--seeds', type=int, default=3)
    p.add_argument('--work', type=Path, default=Path('runs/domain'), help='folder for run and trials')
    p.add_argument('--out', type=Path, default=Path(__file__).parent/'results'/'domain.json', help='results')
    args = p.parse_args()
    model = bert(args.work/'bert')
    found = dict(text=args.text.name, task=args.task, rows=args.rows, minutes=args.minutes, cpu=cpu())
    found |= dict(before=scores(model, 'before', args))
    encoder, facts = continued(model, args)
    found |= facts | dict(after=scores(encoder, 'after', args))
    write_result(found, args.out)
    rows = [(o, mean(found[o]), stdev(found[o]), *found[o]) for o in ('before', 'after')]
    table((args.task, 'mean', 'sd', *(f'seed {i}' for i in range(args.seeds))), rows)

if __name__=='__main__': main()
