"""With which head error detection begins, where few sentences are marked: the discriminator's own or a new one.

Every other sentence of a file of MultiGED is for training, the sentences between them are for evaluation: REALEC, which
has a dev set alone, is measured so (`--data en_realec_dev.tsv`). The head has the two layers of the discriminator, with
their weights or with new ones; the former also with balanced classes. Same network, recipe, rows and seeds. F0.5 and
the calibration error are cross-fitted: each half of the sentences is judged by what was chosen on the other. Finished
trials in `--out` are kept, so a stopped run goes on. The last line is JSON."""
from pathlib import Path

from common import RESULTS, arguments, report, table

SIZES = 100, 500, 2000 # Sentences to train on
MEASURES = 'f0.5', 'precision', 'recall', 'f0.5_at_0.5', 'best_f0.5', 'ece', 'unscaled_ece'
SIDES = {'discriminator': dict(head_init='discriminator'), 'new': dict(head_init='new'),
         'discriminator, balanced': dict(head_init='discriminator', class_weights='balanced')}

def show(side): return f"{side['mean']:.1f} ± {side['sd'] or 0:.1f}"

def main():
    args = arguments(__doc__, data=('', 'a file of MultiGED'), model=('tiny', 'model to fine-tune'),
                     trials=(3, 'seeds'), out=('runs/ged', 'folder for the trials'),
                     results=(str(RESULTS/'ged_head.json'), 'results'))
    if not args.data: raise SystemExit('give a file of MultiGED with --data')
    from electra_nbdev.finetuning.ged import ged_task, read_ged
    from electra_nbdev.finetuning.request import run_trials
    rows = [dict(words=o.words, tags=o.tags) for o in read_ged(args.data)]
    task, found, lines = ged_task(rows[::2], rows[1::2]), {}, []
    for n in SIZES:
        for name,recipe in SIDES.items():
            out = Path(args.out)/str(n)/name.replace(', ', '-')
            trials = run_trials(args.model, task, out, device='cpu', num_trials=args.trials, max_train_rows=n, **recipe)
            scores = trials.summary()['tasks']['ged']
            found.setdefault(str(n), {})[name] = {o: scores[o] for o in MEASURES}
            lines.append((n, name, *(show(scores[o]) for o in MEASURES)))
    table(('sentences', 'head', *MEASURES), lines)
    parts = f'{len(rows[::2])} and {len(rows[1::2])} sentences'
    setting = f'{args.model}, {args.trials} seeds, {Path(args.data).name}: {parts}'
    report(dict(benchmark='ged_head', setting=setting, found=found), args.results)

if __name__=='__main__': main()
