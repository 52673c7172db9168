"""Encoders of the package fine-tuned alike, on chunking and tasks of GLUE.

Beside them stand the masked language model from which `electra-baby` began, of the same body and text, and random
weights of that body. Texts are cut at 64 tokens. Finished trials in `--out` stay, so a stopped command goes on, and
`--sides` names some of them. The last line is JSON; `--results` keeps it when all are there."""
from pathlib import Path

from common import RESULTS, arguments, masked_baby, report, table

TASKS = dict(chunk='conll_f1', cola='matthews', mrpc='f1', sst='accuracy') # Each with its measure
SIDES = {'electra-baby': 'electra-baby', 'masked-baby-en': str(RESULTS/'baby/masked-baby-en/generator'),
         'tiny': 'tiny', 'random weights': 'electra-baby'}

def scores(side, args):
    "Mean, standard deviation and values of the measure of each task"
    from electra_nbdev.finetuning.request import finetune_tasks
    found = finetune_tasks(SIDES[side], [*TASKS], args.tasks, Path(args.out)/side.replace(' ', '-'), device='cpu',
                           num_trials=args.trials, max_train_rows=args.rows, max_seq_length=64,
                           from_scratch=side=='random weights')
    found = {t: o.summary()['tasks'][t][m] for o,(t,m) in zip(found, TASKS.items())}
    return {t: {k: o[k] for k in ('mean', 'sd', 'values')} for t,o in found.items()}

def main():
    args = arguments(__doc__, tasks=('', 'folder with a folder for each task'), trials=(3, 'seeds'),
                     rows=(4000, 'rows of a task at most'), sides=(','.join(SIDES), 'some of them'),
                     out=('runs/encoders', 'folder for the trials'), results=(str(RESULTS/'encoders.json'), 'results'))
    if not args.tasks: raise SystemExit('give the folder of the tasks with --tasks')
    if 'masked-baby-en' in args.sides: masked_baby()
    found = {o: scores(o, args) for o in args.sides.split(',')}
    shown = [(t, m, *(f"{o[t]['mean']:.1f} ± {o[t]['sd'] or 0:.1f}" for o in found.values())) for t,m in TASKS.items()]
    table(('task', 'measure', *found), shown)
    facts = dict(benchmark='encoders', setting=f'{args.trials} seeds, at most {args.rows} rows', found=found)
    report(facts, args.results if [*found]==[*SIDES] else None)

if __name__=='__main__': main()
