"""The ladder: what one change of the recipe does for replaced-token detection and for a masked language model.

Each run has the same number of floating-point operations; its encoder is then fine-tuned on five tasks. Begins with the
recipes that were best in `objectives.py`. A change may bring learning rates of its own, of which the one is taken whose
chunking score is best after half as many operations with another seed; it may train in stages, each with a warmup and
a decay of its own, which share what networks they have in common. A batch that grows is counted at its mean size.
Finished runs stay, so a stopped command goes on. `--rows` picks what runs; results of all rows are in one file, those
that failed too: `python benchmarks/ladder.py --table` prints it and draws a figure."""
import json, math, time
from pathlib import Path
from statistics import mean, stdev

from changes import AverageWeights, FallingWeight, FixedGenerator, GeneratorAlone, GrowingBatch, MaskedAlone, muon
from common import begun, cpu, table, training_options, write_result
from objectives import (CHOOSING, CHOOSING_SHARE, FREE, LARGE, LENGTHS, MEASURES, OFFICIAL, SMALL, TASKS, clock,
                        finetune, learner, operations, sized, slug)

BASES = {'RTD': LARGE | dict(learning_rate=2e-3),
         'MLM': SMALL | OFFICIAL | dict(learning_rate=2e-3, electra_objective=False, mask_prob=.4)}
LONGER = BASES | {'MLM': LARGE | FREE | dict(learning_rate=1e-3, electra_objective=False, mask_prob=.4)} # From 1e14 on
_MODERN = dict(model_type='modernbert', hidden_size=96, num_hidden_layers=2, num_attention_heads=4,
               intermediate_size=256, global_attn_every_n_layers=1)
_DEBERTA = dict(model_type='deberta-v2', hidden_size=96, num_hidden_layers=2, num_attention_heads=4,
                intermediate_size=384, relative_attention=True, position_buckets=32, pos_att_type=['p2c', 'c2p'])
CHANGES = { # Hyper-parameters of a row, and under `learner` what its learner has beside them
    'base': {},
    'Muon': dict(learner=lambda hp: muon(bias_correction=hp.bias_correction)),
    'ModernBERT body': dict(body=_MODERN),
    'DeBERTa body': dict(body=_DEBERTA),
    'embeddings of 96': dict(embedding_size=96), # as wide as those of the ModernBERT body
    'GDES': dict(gdes=True),
    'corrective': dict(corrective_weight=1.),
    'ModernBERT body, corrective': dict(body=_MODERN, corrective_weight=1.),
    'ModernBERT body, Muon': dict(body=_MODERN, learner=lambda hp: muon(bias_correction=hp.bias_correction)),
    'ModernBERT body, corrective, Muon': dict(body=_MODERN, corrective_weight=1.,
        learner=lambda hp: muon(bias_correction=hp.bias_correction)),
    'ModernBERT body, rates': dict(body=_MODERN),
    'loss at masked positions': dict(learner=lambda hp: dict(objective=MaskedAlone)),
    'masking 15 %': dict(mask_prob=.15),
    'masking 40 %': dict(mask_prob=.4),
    'whole words': dict(whole_words=True),
    'weight falls': dict(learner=lambda hp: dict(cbs=[FallingWeight()])),
    'batch grows': dict(learner=lambda hp: dict(cbs=[GrowingBatch()])),
    'average': dict(learner=lambda hp: dict(cbs=[AverageWeights()])),
    'MLM first, 25 %': dict(stages=[(.25, 'MLM'), (.75, {})]),
    'MLM first, 40 %': dict(stages=[(.4, 'MLM'), (.6, {})]),
    'MLM first, 70 %': dict(stages=[(.7, 'MLM'), (.3, {})]),
    'ModernBERT body, MLM first, 40 %': dict(body=_MODERN, stages=[(.4, 'MLM'), (.6, {})]),
    'one network': dict(untied_generator=False),
    'one network, MLM first, 40 %': dict(stages=[(.4, 'MLM'), (.6, dict(untied_generator=False))]),
    'one network, MLM first, 70 %': dict(stages=[(.7, 'MLM'), (.3, dict(untied_generator=False))]),
    'fixed generator': dict(untied_generator_embeddings=True, stages=[
        (.25, dict(learner=lambda hp: dict(objective=GeneratorAlone))),
        (.75, dict(learner=lambda hp: dict(objective=FixedGenerator)))]),
    'fixed generator of all lengths': dict(untied_generator_embeddings=True, stages=[ # above its quarter is short
        (.25, LENGTHS | dict(learner=lambda hp: dict(objective=GeneratorAlone))),
        (.75, dict(learner=lambda hp: dict(objective=FixedGenerator)))])}
ROWS = [*(f'RTD {o}' for o in CHANGES), *(f'MLM {o}' for o in
        ('base', 'Muon', 'ModernBERT body', 'ModernBERT body, Muon', 'ModernBERT body, rates', 'DeBERTa body',
         'masking 15 %', 'whole words', 'batch grows', 'average'))]
LEAST = 78, 45 # Left ends of the figure's panels
RATES = {'Muon': (1e-3, 2e-3, 4e-3, 8e-3), 'ModernBERT body, Muon': (1e-3, 2e-3, 4e-3),
         'ModernBERT body, corrective, Muon': (1e-3, 2e-3, 4e-3),
         'ModernBERT body, rates': (1e-3, 2e-3, 4e-3)} # To choose from

def lengths_of(start, share):
    "The part of the schedule of lengths that a stage has, from `start` and `share` of the run"
    found, at = [], 0.
    for length,part in LENGTHS['length_schedule']:
        inside = min(at+part, start+share)-max(at, start)
        if inside>1e-6: found.append([length, round(inside/share, 9)])
        at += part
    return LENGTHS | dict(length_schedule=found)

def stages_of(base, change, rate, bases=BASES):
    """What a row trains one after another: share of the run, hyper-parameters, what its learner has beside them

    A stage that is a name is trained as that base is."""
    values = CHANGES[change] | (dict(learning_rate=rate) if rate else {})
    start = 0.
    for share,own in values.get('stages', [(1., {})]):
        given = bases[base] | values | (bases[own] if isinstance(own, str) else own)
        hparams = {k: v for k,v in given.items() if k not in ('stages', 'learner')}
        yield share, lengths_of(start, share) | hparams, given.get('learner', lambda hp: {})
        start += share

def take(model, before):
    "The networks of the stage before, where this one has the same"
    if before is None: return
    kept = before.state_dict()
    if not before.discriminator: # the encoder of a masked language model becomes the discriminator's
        kept |= {k.replace('generator.', 'discriminator.', 1): v for k,v in kept.items()}
    own = model.state_dict()
    model.load_state_dict({k: v for k,v in kept.items() if k in own and own[k].shape==v.shape}, strict=False)

def operations_of(hp, args, extra):
    "Floating-point operations of an update; without callbacks, since a batch that grows begins small"
    return operations(hp, args.data, args.device, **{k: v for k,v in extra.items() if k!='cbs'})

def pretrain(base, change, rate, seed, args, folder, share=1.):
    "Train, and leave the networks; steps, operations and seconds"
    from electra_nbdev.data.examples import load_examples
    from electra_nbdev.networks.build import save_networks
    from electra_nbdev.networks.recipe import preset
    from electra_nbdev.pretrain import match_examples
    facts, before, data = dict(steps=0, flops=0., seconds=0.), None, load_examples(args.data)
    for part,given,extra in stages_of(base, change, rate, LONGER if args.flops>=1e14 else BASES):
        hp = match_examples(preset(args.preset, seed=seed, **given | json.loads(args.hparams)), data)
        per_step = operations_of(hp, args, extra(hp))
        hp = sized(hp, 8*max(1, round(share*part*args.flops/per_step/8)))
        learn, watch = learner(hp, args.data, args.device, **extra(hp)), clock()
        take(learn.model, before)
        with learn.no_bar(), learn.no_logging(): learn.fit_steps(cbs=watch)
        before = learn.model
        facts = dict(steps=facts['steps']+learn.n_updates, flops=facts['flops']+per_step*learn.n_updates,
                     seconds=round(facts['seconds']+watch.seconds, 1))
    save_networks(learn.model, hp, folder/'1.0', learn.tokenizer)
    return facts | dict(held_out={o: round(learn.held_out[o], 4) for o in MEASURES if o in learn.held_out})

def run(base, change, rate, seed, args, share=1.):
    "Train, and fine-tune on tasks; facts of the run"
    folder = args.work/f'{slug(base)}-{slug(change)}-{rate or "own"}-{seed}'
    facts = folder/'parts.json'
    if not facts.is_file():
        facts.parent.mkdir(parents=True, exist_ok=True)
        facts.write_text(json.dumps([pretrain(base, change, rate, seed, args, folder, share)]))
    tasks = list(TASKS) if share==1. else ['chunk']
    scores = finetune(folder/'1.0', tasks, args, seed, folder/'tasks', max_train_rows=args.task_rows)
    return dict(base=base, change=change, rate=rate, seed=seed, share=share, scores=scores,
                mean=mean(scores.values()), **json.loads(facts.read_text())[0])

def report(found):
    "A line for each row: mean of the tasks, its difference to the base with an interval, and each measure"
    whole = [r for r in found['runs'] if r['share']==1.]
    lines = []
    for row in ROWS:
        base, _, change = row.partition(' ')
        def of(name): return {r['seed']: r for r in whole if (r['base'], r['change'])==(base, name)}
        own, plain = of(change), of('base')
        if not own: continue
        paired = [own[s]['mean']-plain[s]['mean'] for s in own if s in plain]
        lines.append((row, len(own), spread([r['mean'] for r in own.values()]), spread(paired),
                      *(spread([r['scores'][t] for r in own.values()]) for t in TASKS),
                      *(spread([r['held_out'][m] for r in own.values() if m in r['held_out']], 3) for m in MEASURES)))
    table(('row', 'seeds', 'mean', 'minus base', *TASKS, *MEASURES), lines)

def draw(found, path):
    "A dot for each run, a line of dots for each row; dotted, the means of the recipes without a change"
    import matplotlib.pyplot as plt
    plt.style.use('electra_nbdev.electra')
    panels = {'chunking, F1': lambda r: r['scores']['chunk'], 'mean of five tasks': lambda r: r['mean']}
    runs = {row: [r for r in found['runs'] if r['share']==1. and row==f"{r['base']} {r['change']}"] for row in ROWS}
    runs = {k: v for k,v in runs.items() if v}
    fig, axes = plt.subplots(1, 2, figsize=(6.4, 1+.2*len(runs)), sharey=True)
    for ax,((label, value), least) in zip(axes, zip(panels.items(), LEAST)):
        for i,(row,own) in enumerate(runs.items()):
            color = f'C{[*BASES].index(row.split()[0])}'
            ax.plot([*map(value, own)], [i]*len(own), 'o', ms=4, color=color, alpha=.7)
            if row.endswith(' base'): ax.axvline(mean(map(value, own)), ls=':', lw=1, color=color)
        ax.set(xlabel=label, yticks=range(len(runs)), yticklabels=runs, xlim=(least, None))
    axes[0].invert_yaxis()
    fig.savefig(path)

def spread(values, digits=1):
    "Mean, and half of its 95 % interval by Student's distribution"
    from scipy.stats import t
    if not values: return ''
    if len(values)==1: return f'{values[0]:.{digits}f}'
    half = t.ppf(.975, len(values)-1)*stdev(values)/math.sqrt(len(values))
    return f'{mean(values):.{digits}f} ± {half:.{digits}f}'

def main():
    p = training_options(__doc__, 'ladder')
    p.add_argument('--table', action='store_true', help='print the results there are, draw them, and train nothing')
    p.add_argument('--tasks', type=Path, help='folder with a folder for each task')
    p.add_argument('--data', type=Path, help='folder of examples')
    p.add_argument('--text', help='what the examples were made of, for the record')
    p.add_argument('--rows', nargs='+', default=ROWS, choices=ROWS, metavar='ROW',
                   help='such as "RTD Muon", in this order (all)')
    p.add_argument('--task-rows', type=int, default=4000, help='rows of a task at most (4000)')
    p.add_argument('--figure', type=Path, default=Path(__file__).parents[1]/'nbs'/'ladder.png', help='the figure')
    args = p.parse_args()
    if args.table:
        report(found := json.loads(args.out.read_text()))
        return draw(found, args.figure)
    if not (args.tasks and args.data and args.text): p.error('--tasks, --data and --text are needed')
    setting = f'{args.preset} {args.hparams}, {args.text}, {args.flops:.3g} operations, {args.task_rows} rows'
    found = begun(args.out, setting, cpu=cpu(), runs=[])
    def done(*key):
        names = 'base', 'change', 'rate', 'seed', 'share'
        return next((o for o in found['runs'] if tuple(o[k] for k in names)==key), None)
    def once(base, change, rate, seed, share=1.):
        row = done(base, change, rate, seed, share)
        if row: return row
        start = time.time()
        row = run(base, change, rate, seed, args, share) | dict(minutes=round((time.time()-start)/60, 1))
        found['runs'].append(row)
        write_result(found, args.out)
        print(json.dumps({k: v for k,v in row.items() if k!='part'}), flush=True)
        return row
    for seed in args.seeds:
        for name in args.rows:
            base, _, change = name.partition(' ')
            rates = RATES.get(change, ())
            tried = {r: once(base, change, r, CHOOSING, CHOOSING_SHARE)['scores']['chunk'] for r in rates}
            once(base, change, max(tried, key=tried.get) if tried else None, seed)
    report(found)

if __name__=='__main__': main()
