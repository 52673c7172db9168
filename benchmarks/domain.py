"""Pre-training continued from a real BERT on text of a domain, and a task before and after.

The BERT is that of `real_weights.py`. Its encoder becomes a discriminator's and the generator is new; `--hparams` may
choose one network for both (`untied_generator`), or a masked language model (`electra_objective`), with which to
compare. Text is a file of the domain. The task is one of GLUE, by default SST-2 with few rows, or `ged`, for which
every other sentence of a file of MultiGED is for training and those between them are for evaluation. The encoders are
fine-tuned with the same rows, recipe and seeds; of `ged` a discriminator keeps its head. What is finished stays, so a
stopped command goes on."""
import argparse, json
from pathlib import Path
from statistics import mean, stdev

from common import cpu, table, write_result
from real_weights import RECIPE, TASKS, bert

def continued(model, args):
    "The encoder of a run that began with the BERT, and facts of it"
    from electra_nbdev.cli import electra_pretrain
    from electra_nbdev.data.examples import build_examples
    examples, run = args.work/'examples', args.work/'run'
    build_examples(args.text, model, examples, args.length, held_out=.02)
    given = dict(train_batch_size=32, learning_rate=args.rate) | json.loads(args.hparams)
    length = dict(steps=args.steps) if args.steps else dict(minutes=args.minutes)
    learn = electra_pretrain(examples, run, init=model, device='cpu', **length, **given)
    if learn.stopped: raise SystemExit(learn.exit_code)
    held = {k: round(float(v), 4) for k,v in learn.held_out.items()}
    encoder = next(run/o for o in ('discriminator', 'generator') if (run/o).is_dir())
    return encoder, dict(steps=learn.n_updates, rate=learn.hp.learning_rate, held_out=held)

def opened(args):
    "The task"
    from electra_nbdev.finetuning.ged import ged_task, read_ged
    from electra_nbdev.finetuning.tasks import glue_task
    if args.task!='ged': return glue_task(args.task, args.data)
    rows = [dict(words=o.words, tags=o.tags) for o in read_ged(args.data)]
    return ged_task(rows[::2], rows[1::2])

def scores(model, name, n, args):
    "Of each seed, after so many rows"
    from electra_nbdev.finetuning.request import run_trials
    trials = run_trials(model, opened(args), args.work/f'{name}-{n}', device='cpu', num_trials=args.seeds,
                        keep_all_models=False, max_train_rows=n, **RECIPE)
    return [round(float(o), 2) for o in trials.values(args.task, (TASKS | dict(ged='f0.5'))[args.task])]

def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--text', type=Path, required=True, help='text of the domain')
    p.add_argument('--data', type=Path, required=True, help='folder of the tasks of GLUE, or a file of MultiGED')
    p.add_argument('--task', default='sst', choices=[*TASKS, 'ged'])
    p.add_argument('--rows', type=int, nargs='+', default=[1000], help='training rows of the task (1000)')
    p.add_argument('--minutes', type=float, default=45, help='of pre-training (45)')
    p.add_argument('--steps', type=int, help='of pre-training, in place of minutes')
    p.add_argument('--rate', type=float, default=1e-4, help='learning rate of pre-training (1e-4)')
    p.add_argument('--length', type=int, default=128, help='tokens of an example (128)')
    p.add_argument('--hparams', default='{}', help='JSON of hyper-parameters of pre-training')
    p.add_argument('--seeds', type=int, default=3)
    p.add_argument('--work', type=Path, default=Path('runs/domain'), help='folder for run and trials')
    p.add_argument('--out', type=Path, default=Path(__file__).parent/'results'/'domain.json', help='results')
    args = p.parse_args()
    model = bert(args.work/'bert')
    encoder, facts = continued(model, args)
    sides = dict(before=model, after=encoder)
    found = {n: {k: scores(o, k, n, args) for k,o in sides.items()} for n in args.rows}
    write_result(dict(text=args.text.name, task=args.task, length=args.length,
                      hparams=json.loads(args.hparams), recipe=RECIPE, cpu=cpu(), **facts, found=found), args.out)
    rows = [(n, k, mean(v), stdev(v), *v) for n,o in found.items() for k,v in o.items()]
    table(('rows', args.task, 'mean', 'sd', *(f'seed {i}' for i in range(args.seeds))), rows)

if __name__=='__main__': main()
