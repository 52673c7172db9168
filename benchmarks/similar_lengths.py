"""Fine-tuning on batches of similar lengths, and on batches drawn without regard to length: scores and seconds.

Batches of similar lengths have less padding. Sentences of one length are also alike in other ways, so their gradients
may be further from that of the task. Both sides have the same encoder, rows, recipe and seeds. Finished trials in
`--out` stay, so a stopped command goes on. The last line is JSON; `--results` keeps it."""
from pathlib import Path
from statistics import mean, stdev

from common import RESULTS, arguments, report, table
from objectives import TASKS

SIDES = {'similar lengths': True, 'any lengths': False}

def trials(task, side, args):
    "Values of the measure, and seconds of the processor of a trial"
    import time
    from electra_nbdev.finetuning.request import finetune_tasks
    start, out = time.process_time(), Path(args.out)/args.model/side.replace(' ', '-')
    found, = finetune_tasks(args.model, [task], args.tasks, out, device='cpu', num_trials=args.trials,
                            max_train_rows=args.rows, similar_lengths=SIDES[side])
    values = found.summary()['tasks'][task][TASKS[task]]['values']
    return dict(values=values, seconds=(time.process_time()-start)/args.trials)

def main():
    args = arguments(__doc__, tasks=('', 'folder with a folder for each task'), trials=(5, 'seeds'),
                     model=('electra-baby', 'encoder'), rows=(4000, 'rows of a task at most'),
                     out=('runs/similar_lengths', 'folder for the trials'),
                     results=(str(RESULTS/'similar_lengths.json'), 'results'))
    if not args.tasks: raise SystemExit('give the folder of the tasks with --tasks')
    found = {t: {o: trials(t, o, args) for o in SIDES} for t in TASKS}
    lines = []
    for t,sides in found.items():
        a, b = (o['values'] for o in sides.values())
        by_seed = [y-x for x,y in zip(a, b)]
        lines.append((t, TASKS[t], *(f"{mean(o['values']):.1f} ± {stdev(o['values']):.1f}" for o in sides.values()),
                      f'{mean(by_seed):.1f} ± {stdev(by_seed):.1f}', *(round(o['seconds']) for o in sides.values())))
    table(('task', 'measure', *SIDES, 'difference by seed', *(f'seconds, {o}' for o in SIDES)), lines)
    setting = f'{args.model}, {args.trials} seeds, at most {args.rows} rows'
    report(dict(benchmark='similar_lengths', setting=setting, found=found), args.results)

if __name__=='__main__': main()
