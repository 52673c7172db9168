"""What pre-training is worth for chunking: a model against random weights, and both against the most frequent tags.

The random weights are those of the same network, with the same recipe, rows and seeds; the baseline is the most
frequent tag of each word. F1 is counted as the official code does and as conlleval does, for the baseline too, whose
tags contradict each other so often that the two differ by far. The bar is 8 points above the baseline by both counts,
with every seed. Finished trials in `--out` are kept, so a stopped run goes on. The last line is JSON."""
import json
from pathlib import Path

from common import arguments, report, table

BAR = 8.
F1S = ('f1', 'conll_f1')
MEASURES = (*F1S, 'accuracy')

def show(side): return f"{side['median']:.1f} ± {side['sd'] or 0:.1f}"

def main():
    args = arguments(__doc__, data=('', 'folder that holds chunk/train.txt and chunk/dev.txt'),
                     model=('tiny', 'model to evaluate'), trials=(3, 'seeds'),
                     out=('runs/tagging', 'folder for the trials'), hparams=('{}', 'changes to the recipe'))
    if not args.data: raise SystemExit('give the folder of the task with --data')
    from electra_nbdev.finetuning.recipe import FinetuneHParams
    from electra_nbdev.finetuning.tagging import baseline_scores
    from electra_nbdev.finetuning.tasks import open_task
    from electra_nbdev.finetuning.request import finetune_tasks
    task, said = open_task('chunk', args.data), json.loads(args.hparams)
    base = baseline_scores(*(task.examples(o, FinetuneHParams()) for o in ('train', 'dev')))
    sides, above = {}, {}
    rows = [('most frequent tag', *(base[o] for o in F1S), '-', '-')]
    for name in ('pre-trained', 'random'):
        recipe = said | dict(from_scratch=name=='random')
        out = Path(args.out)/name
        trials, = finetune_tasks(args.model, ['chunk'], args.data, out, num_trials=args.trials, **recipe)
        found = trials.summary()['tasks']['chunk']
        sides[name] = {o: found[o] for o in MEASURES}
        above[name] = {o: round(min(found[o]['values'])-base[o], 2) for o in F1S}
        rows.append((name, *(show(found[o]) for o in MEASURES), f"{trials.table()['seconds'][0]:.0f}"))
    table(('', *MEASURES, 'seconds'), rows)
    passed = min(above['pre-trained'].values())>=BAR
    setting = f'{args.model}, {args.trials} seeds, {args.hparams}'
    report(dict(benchmark='tagging', baseline=base, **sides, worst_above_baseline=above, passed=passed,
                setting=setting))

if __name__=='__main__': main()
