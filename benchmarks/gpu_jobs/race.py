"""ELECTRA against a masked language model at equal FLOPs, then both fine-tuned on the tasks that came along.

Both have the same body, text, schedule of lengths and number of tokens in a batch, and each what helps it. ELECTRA
trains for its share of the minutes; MLM for as many FLOPs. The tasks follow, one by one, as far as there is time; the
same command goes on."""
import tarfile, tempfile
from pathlib import Path

from common import table
from .kit import PackedText, Work
from .models import networks, train, TRIAL

SIZES = {'4M': dict(hidden_size=192, num_hidden_layers=6, num_attention_heads=4, intermediate_size=768),
         '14M': dict(hidden_size=256, num_hidden_layers=12, num_attention_heads=4, intermediate_size=1024)}
ALL = dict(train_batch_size=256, eval_batch_size=256, num_eval_steps=24, learning_rate=1e-3, initializer_range=.05,
           copy_positions=True, embedding_size=128, length_schedule=[[16, .15], [32, .25], [128, .6]])
OBJECTIVES = {'ELECTRA': dict(bias_correction=True, max_grad_norm=None, generator_hidden_size=.25, unigram_noise=.5,
                              unigram_noise_until=.6),
              'MLM': dict(electra_objective=False, bias_correction=False, max_grad_norm=1.)}
SHARE = .35 # Of the minutes, for ELECTRA's training
LENGTH, TASKS = 128, dict(chunk='conll_f1', cola='matthews', mrpc='f1', rte='accuracy', sts='spearman', sst='accuracy')

def recipe(name, size, vocab, scale):
    from electra_nbdev.pretrain import preset
    body = dict(SIZES[size], max_position_embeddings=LENGTH)
    given = ALL | OBJECTIVES[name] | dict(vocab_size=vocab, max_seq_length=LENGTH)
    if scale<1: body, given = body | TRIAL, given | dict(train_batch_size=4, eval_batch_size=4, num_eval_steps=2)
    return preset('small', model_hparam_overrides=body, **given)

def pretrain(work, text, size, name, row):
    "Train an objective, as far as there is time"
    steps, (examples, held) = None, (text.examples(o, LENGTH) for o in ('train', 'held_out'))
    hp = recipe(name, size, len(text.vocab), work.scale)
    if name=='MLM':
        from electra_nbdev.pretraining.plan import run_cost
        per_step = run_cost(hp, bf16=True).flops/hp.num_train_steps
        steps = max(8, round(work.found['objectives']['ELECTRA']['flops']/per_step))
    train(work, hp, examples, held, f'{work.name}-{name.lower()}', row, steps=steps, seconds=SHARE*work.left())

def score(work, args, vocab, name, row, tasks, d):
    "Fine-tune on the tasks that are left"
    from electra_nbdev.finetuning.request import finetune_tasks
    where, few = Path(d)/name, dict(max_train_rows=64, max_eval_rows=64, num_train_epochs=1.) if work.scale<1 else {}
    if not where.is_dir(): networks(row, f'{work.name}-{name.lower()}', work.out, vocab, where)
    encoder = where/('discriminator' if name=='ELECTRA' else 'generator')
    for task in tasks:
        if task in row['scores'] or work.left()<0: continue
        trials = finetune_tasks(encoder, [task], tasks_in(d, args), Path(d)/f'{name}-tasks', device=work.device, **few)
        found = trials[0].summary()['tasks'][task]
        row['scores'][task] = found[TASKS[task]]['values']
        work.keep()

def tasks_in(d, args):
    "The folder of the tasks"
    out = Path(d)/'tasks'
    if not out.is_dir():
        safe = dict(filter='data') if hasattr(tarfile, 'data_filter') else {} # 3.11.2 of Debian has none
        with tarfile.open(args.data/'tasks.tar.xz') as tar: tar.extractall(out, **safe)
    return out

def run(args):
    "Both objectives at a size, then the tasks"
    work = Work(args, stages=True)
    text, size = PackedText(args.data/'small.xz'), args.job.removeprefix('race-')
    rows = work.found.setdefault('objectives', {})
    for name in OBJECTIVES:
        row = rows.setdefault(name, dict(scores={}))
        if row.get('finished') or work.left()<0: continue
        pretrain(work, text, size, name, row)
        if not row.get('finished'): break
    if all(o.get('finished') for o in rows.values()):
        with tempfile.TemporaryDirectory() as d:
            tasks = args.sides.split(',') if args.sides else [*TASKS]
            for task in tasks: # in turns, so that both have the same tasks when time is up
                for name,row in rows.items(): score(work, args, text.tokenizer, name, row, [task], d)
        work.keep(finished=all(o in r['scores'] for r in rows.values() for o in tasks))
    table((args.job, 'updates', 'FLOPs', *TASKS), [(k, o.get('updates', 0), f"{o.get('flops', 0):.3g}",
          *(o['scores'].get(t, [''])[0] for t in TASKS)) for k,o in rows.items()])
