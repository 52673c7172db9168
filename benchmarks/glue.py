"""What pre-training is worth: a model against the same network with random weights, fine-tuned alike on tasks of GLUE.

Both sides have the same recipe, examples and seeds. A task counts as won where the means differ by more than twice the
larger of both standard deviations over the trials. Finished trials in `--out` are kept, so a stopped run continues. The
last line is JSON."""
import json
from pathlib import Path

from common import arguments, report, table

def compare(a, b):
    "Mean and standard deviation of both sides, and their difference in standard deviations"
    sd = max(a['sd'] or 0, b['sd'] or 0)
    return a['mean']-b['mean'], sd, (a['mean']-b['mean'])/sd if sd else float('inf')

def show(side): return f"{side['mean']:.1f} ± {side['sd'] or 0:.1f}"

def main():
    args = arguments(__doc__, data=('', 'folder of the tasks'), model=('tiny', 'model to evaluate'),
                     tasks=('cola rte mrpc sts sst', 'tasks'), trials=(3, 'seeds'),
                     out=('runs/glue', 'folder for the trials'),
                     hparams=('{"max_train_rows": 4000}', 'changes to the recipe'))
    if not args.data: raise SystemExit('give the folder of the tasks with --data')
    from electra_nbdev.finetuning.request import finetune_tasks
    sides, names = {}, args.tasks.split()
    for o in ('pre-trained', 'random'):
        hparams = json.loads(args.hparams) | dict(num_trials=args.trials, from_scratch=o=='random')
        sides[o] = finetune_tasks(args.model, names, args.data, Path(args.out)/o, **hparams)
    rows, facts = [], {}
    for a,b in zip(*sides.values()):
        for t in a.tasks:
            x, y = (o.summary()['tasks'][t][a.main(t)] for o in (a, b))
            gap, sd, times = compare(x, y)
            rows.append((t, a.main(t), show(x), show(y), gap, times, 'yes' if times>2 else 'no'))
            sds = round(times, 2) if sd else None
            facts[t] = dict(measure=a.main(t), pretrained=x, random=y, gap=round(gap, 2), sds=sds)
    table(('task', 'measure', 'pre-trained', 'random', 'difference', 'in sds', 'won'), rows)
    setting = f'{args.model}, {args.trials} seeds, {args.hparams}'
    report(dict(benchmark='glue', won=[r[0] for r in rows if r[-1]=='yes'], tasks=facts, setting=setting))

if __name__=='__main__': main()
