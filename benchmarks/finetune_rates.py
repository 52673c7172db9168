"""Which learning rates suit which encoder in fine-tuning: the same for all layers, or falling from layer to layer.

The official recipe multiplies the rate by 0.8 from each layer to the one below (`layerwise_lr_decay`). Texts are cut at
64 tokens. `--models` names encoders, with `bert` for the published BERT of `real_weights.py`, or folders. Finished
trials stay in `--out` and scores in `--results`, so a stopped command goes on; a table of those there are is printed at
the end."""
from pathlib import Path
from statistics import mean

from common import RESULTS, arguments, begun, cpu, table, write_result
from real_weights import bert

TASKS = dict(chunk='conll_f1', cola='matthews', mrpc='f1', sst='accuracy', sts='spearman') # Each with its measure
RATES = {'1e-4, falling': dict(learning_rate=1e-4, layerwise_lr_decay=.8), # the official ones of a small encoder
         '3e-4, falling': dict(learning_rate=3e-4, layerwise_lr_decay=.8),
         '1e-4, even': dict(learning_rate=1e-4, layerwise_lr_decay=0.),
         '3e-4, even': dict(learning_rate=3e-4, layerwise_lr_decay=0.)}

def score(model, task, rates, seed, args):
    "The measure of a task after one trial"
    from electra_nbdev.finetuning.request import finetune_tasks
    out = Path(args.out)/Path(model).name/f"{rates.replace(', ', '-')}-{seed}"
    where = bert(Path(args.out)/'bert') if model=='bert' else model
    trials, = finetune_tasks(where, [task], args.tasks, out, device='cpu', seed=seed, max_train_rows=args.rows,
                             max_seq_length=64, keep_all_models=False, **RATES[rates])
    return trials.values(task, TASKS[task])[0]

def main():
    args = arguments(__doc__, tasks=('', 'folder with a folder for each task'),
                     models=('electra-baby,bert', 'encoders'), names=(','.join(TASKS), 'some tasks'),
                     rates=(';'.join(RATES), 'some of them, with ; between'), seeds=('0,1,2', 'a trial for each'),
                     rows=(4000, 'rows of a task at most'),
                     out=('runs/rates', 'folder for the trials'),
                     results=(str(RESULTS/'finetune_rates.json'), 'results'))
    if not args.tasks: raise SystemExit('give the folder of the tasks with --tasks')
    results = Path(args.results)
    setting = f'at most {args.rows} rows'
    found = begun(results, setting, cpu=cpu(), scores={})
    wanted = [(m, t, r, s) for s in args.seeds.split(',') for m in args.models.split(',')
              for t in args.names.split(',') for r in args.rates.split(';')]
    for model,task,rates,seed in wanted:
        kept = found['scores'].setdefault(Path(model).name, {}).setdefault(task, {}).setdefault(rates, {})
        if seed in kept: continue
        kept[seed] = score(model, task, rates, int(seed), args)
        write_result(found, results)
    def shown(values): return f'{mean(values.values()):.1f} ({len(values)})' if values else ''
    table(('model', 'task', *RATES), [(m, t, *(shown(o.get(r)) for r in RATES))
                                      for m,tasks in found['scores'].items() for t,o in tasks.items()])

if __name__=='__main__': main()
