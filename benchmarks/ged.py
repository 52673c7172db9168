"""With which head error detection begins, where few sentences are marked: the discriminator's own or a new one.

Every other sentence of a file of MultiGED is for training, the sentences between them are for evaluation: REALEC, which
has a dev set alone, is measured so (`--data en_realec_dev.tsv`). The heads: the two layers of the discriminator with
their weights, the same layers with new ones, and one new layer as in tagging; the first one also with balanced classes.
Same network, recipe, rows and seeds. F0.5 is cross-fitted: each half is judged by the best threshold of the other.
Finished trials in `--out` are kept, so a stopped run goes on. The last line is JSON."""
from pathlib import Path

from common import RESULTS, arguments, report, table

SIZES = 500, 2000 # Sentences to train on
MEASURES = 'f0.5', 'precision', 'recall', 'f0.5_at_0.5', 'best_f0.5', 'ece'
SIDES = {'discriminator': dict(head_init='discriminator'), 'new': dict(head_init='new'),
         'one new layer': dict(head_init='new'),
         'discriminator, balanced': dict(head_init='discriminator', class_weights='balanced')}

def show(side): return f"{side['mean']:.1f} ± {side['sd'] or 0:.1f}"

def main():
    args = arguments(__doc__, data=('', 'a file of MultiGED'), model=('tiny', 'model to fine-tune'),
                     trials=(3, 'seeds'), out=('runs/ged', 'folder for the trials'),
                     results=(str(RESULTS/'ged_head.json'), 'results'))
    if not args.data: raise SystemExit('give a file of MultiGED with --data')
    from dataclasses import fields

    from electra_nbdev.finetuning.ged import GEDTask, ged_task, read_ged
    from electra_nbdev.finetuning.request import run_trials
    from electra_nbdev.finetuning.tagging import TagHead
    class OneLayer(GEDTask):
        "The head of tagging"
        def head(self, width): return TagHead(width, 2)
    rows = [dict(words=o.words, tags=o.tags) for o in read_ged(args.data)]
    task, found, lines = ged_task(rows[::2], rows[1::2]), {}, []
    for n in SIZES:
        for name,recipe in SIDES.items():
            kind = OneLayer if name=='one new layer' else GEDTask
            one = kind(**{o.name: getattr(task, o.name) for o in fields(task)})
            out = Path(args.out)/str(n)/name.replace(', ', '-').replace(' ', '-')
            trials = run_trials(args.model, one, out, device='cpu', num_trials=args.trials, max_train_rows=n, **recipe)
            scores = trials.summary()['tasks']['ged']
            found.setdefault(str(n), {})[name] = {o: scores[o] for o in MEASURES}
            lines.append((n, name, *(show(scores[o]) for o in MEASURES)))
    table(('sentences', 'head', *MEASURES), lines)
    parts = f'{len(rows[::2])} and {len(rows[1::2])} sentences'
    setting = f'{args.model}, {args.trials} seeds, {Path(args.data).name}: {parts}'
    report(dict(benchmark='ged_head', setting=setting, found=found), args.results)

if __name__=='__main__': main()
