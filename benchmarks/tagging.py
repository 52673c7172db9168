"""What pre-training is worth for chunking: a model against the same network with random weights, and both against the most frequent tag of each word.

Both sides have the same recipe, rows and seeds. F1 is counted as the official code does and as conlleval does, for the baseline too, whose tags
contradict each other so often that the two differ by far. The bar is 8 points above the baseline by both counts, with every seed. Finished trials in
`--out` are kept, so a stopped run goes on. The last line is JSON."""
import json
from pathlib import Path

from common import arguments, table

BAR = 8.

def show(side): return f"{side['median']:.1f} ± {side['sd'] or 0:.1f}"

def main():
    args = arguments(__doc__, data=('', 'folder that holds chunk/train.txt and chunk/dev.txt'), model=('tiny', 'model to evaluate'), trials=(3, 'seeds'),
                     out=('runs/tagging', 'folder for the trials'), hparams=('{}', 'changes to the recipe'))
    if not args.data: raise SystemExit('give the folder of the task with --data')
    from electra_nbdev.finetune_recipe import FinetuneHParams
    import electra_nbdev.tagging # registers the task
    from electra_nbdev.phrases import baseline_scores
    from electra_nbdev.tasks import open_task
    from electra_nbdev.trials import finetune_tasks
    task, said = open_task('chunk', args.data), json.loads(args.hparams)
    base = baseline_scores(*(task.examples(o, FinetuneHParams()) for o in ('train', 'dev')))
    sides = {o: finetune_tasks(args.model, ['chunk'], args.data, Path(args.out)/o, num_trials=args.trials, **said | dict(from_scratch=o=='random'))[0] for o in ('pre-trained', 'random')}
    found = {k: o.summary()['tasks']['chunk'] for k,o in sides.items()}
    measures = ('f1', 'conll_f1')
    table(('', *measures, 'accuracy', 'seconds'), [('most frequent tag', *(base[o] for o in measures), '-', '-'),
          *((k, *(show(o[m]) for m in (*measures, 'accuracy')), f"{sides[k].table()['seconds'][0]:.0f}") for k,o in found.items())])
    above = {k: {m: round(min(o[m]['values'])-base[m], 2) for m in measures} for k,o in found.items()}
    print(json.dumps(dict(benchmark='tagging', baseline=base, **{k: {m: o[m] for m in (*measures, 'accuracy')} for k,o in found.items()}, worst_above_baseline=above,
                          passed=min(above['pre-trained'].values())>=BAR, setting=f'{args.model}, {args.trials} seeds, {args.hparams}')))

if __name__=='__main__': main()
