"""What one pass costs: minimal pairs by every way to score, from networks of one preset, text and number of FLOPs.

`--examples` is a folder of electra_data. On it an Electric, an ELECTRA and a masked language model of the preset `tiny`
are trained, for every seed, and beside them stand n-gram models of the same tokens and towers before any training.
`--data` is a folder with blimp/ and zorro/; every way scores all their pairs. What is finished stays, so a stopped
command goes on. Seconds, for 1,000 sentences of 20 words, are measured when all rows are there, the least of two rounds
in which the ways of the first seed take turns; so the same command again measures them again. `--out` keeps the rows of
every text, by the folder's name. At the end it draws the figures of the page *What one pass costs*; with `--draw` it
does nothing else."""
import argparse, json, subprocess, sys, time
from pathlib import Path

from matplotlib import style
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from common import RESULTS, table, write_result
from ngram import ORDERS, likelihood
from pairs import sentences

OBJECTIVES = {'Electric': dict(electra_objective=False, electric_objective=True), 'ELECTRA': {},
              'masked': dict(electra_objective=False, mask_prob=.15)}
WAYS = {'Electric': ('energies', 'towers'), 'ELECTRA': ('p-replaced', 'pll'), 'masked': ('pll', 'word-l2r')}
LENGTHS = dict(max_seq_length=64, train_batch_size=16, eval_batch_size=64, num_eval_steps=24,
               length_schedule=[[8, .25], [16, .15], [32, .3], [64, .3]])
FIGURES = Path(__file__).resolve().parents[1]/'nbs'/'tutorials'
JUDGES = dict(blimp='BLiMP', zorro='Zorro') # Folders of --data, and their names

def train(name, seed, args, named='tiny'):
    "The run of an objective, with a preset"
    from electra_nbdev.pretraining.plan import run_cost
    from electra_nbdev.networks.recipe import preset
    hparams = LENGTHS | OBJECTIVES[name] | dict(seed=seed)
    hp = preset(named, **hparams)
    steps, out = round(args.flops*hp.num_train_steps/run_cost(hp).flops), args.work/args.examples.name/f'{name}-{seed}'
    line = [Path(sys.executable).parent/'electra_pretrain', '--preset', named, '--data', args.examples, '--out', out,
            '--steps', steps, '--device', 'cpu', '--hparams', json.dumps(hparams)]
    subprocess.run([*map(str, line)], check=True)
    return out

def judge(model, args):
    "{judge: accuracies by phenomenon} of one way to score"
    from electra_nbdev.scoring.ranking import accuracies, score_pairs
    from electra_nbdev.scoring.score_files import read_pairs
    return {o: accuracies(score_pairs(model, read_pairs(args.data/o))).to_dict('index') for o in JUDGES}

def ways(seeds):
    "(model, seed, way) of everything that is judged"
    for by in ORDERS: yield 'n-gram', None, by
    for seed in seeds:
        yield 'untrained', seed, 'towers'
        for name,own in WAYS.items():
            for by in own: yield name, seed, by

def untrained(seed, args):
    "The towers of Electric with the weights that training begins with, which know nothing"
    from functools import partial
    from electra_nbdev.data.tokenizer import load_tokenizer
    from electra_nbdev.networks.build import build_networks
    from electra_nbdev.networks.recipe import load_hparams
    from electra_nbdev.scoring.likelihood import Likelihood, tower_scores
    run = train('Electric', seed, args)
    hp = load_hparams(run/'hparams.json')
    scores = partial(tower_scores, build_networks(hp).eval())
    return Likelihood(scores, load_tokenizer(run), hp.max_seq_length, by='towers')

def opened(name, seed, by, args):
    "What scores texts in a way; networks are trained first, unless they are there"
    from electra_nbdev.data.examples import load_examples
    from electra_nbdev.scoring.likelihood import load_likelihood
    if name=='n-gram': return likelihood(load_examples(args.examples), ORDERS[by], by)
    if name=='untrained': return untrained(seed, args)
    return load_likelihood(train(name, seed, args), by, device='cpu')

def kept(args):
    "What `--out` has so far"
    setting = f'{args.flops:.3g} FLOPs'
    if not args.out.is_file(): return dict(setting=setting, seconds={}, rows=[])
    found = json.loads(args.out.read_text())
    if found['setting']!=setting: raise SystemExit(f'{args.out} has {found["setting"]}; give another --out')
    return found

def keep(found, args): write_result(found, args.out)

def measure(args):
    "Add the rows that are not there yet"
    for name,seed,by in ways(args.seeds):
        what = dict(text=args.examples.name, model=name, seed=seed, way=by)
        if any(what.items()<=o.items() for o in kept(args)['rows']): continue
        row = what | judge(opened(name, seed, by, args), args)
        found = kept(args) # another command may have added to it
        keep(found | dict(rows=[*found['rows'], row]), args)
        print(*what.values(), *(row[o]['mean over sets']['accuracy'] for o in JUDGES), flush=True)

def clock(args):
    "Seconds of every way of the first seed"
    from electra_nbdev.scoring.likelihood import pseudo_log_likelihood
    models = {f'{name}, {by}': opened(name, seed, by, args) for name,seed,by in ways(args.seeds[:1])}
    texts, taken = sentences(), {k: [] for k in models}
    for _ in range(2):
        for k,model in models.items():
            start = time.perf_counter()
            pseudo_log_likelihood(model, texts)
            taken[k].append(time.perf_counter()-start)
    found = kept(args)
    found['seconds'][args.examples.name] = {k: round(min(o), 2) for k,o in taken.items()}
    keep(found, args)

def by_way(rows):
    "{(text, model, way): rows of its seeds}"
    found = {}
    for o in rows: found.setdefault((o['text'], o['model'], o['way']), []).append(o)
    return found

def mean_and_ends(values): return sum(values)/len(values), min(values), max(values)

def accuracy(rows, judge, name='mean over sets'):
    "Mean, least and most of the seeds"
    return mean_and_ends([o[judge][name]['accuracy'] for o in rows])

def draw(found, path):
    "Accuracy against seconds, a column for each text, a row for each judge: mean, least and most of the seeds"
    ways = by_way(found['rows'])
    texts, models = (list(dict.fromkeys(o[i] for o in ways)) for i in (0, 1))
    of_model = {m: list(dict.fromkeys(way for _,model,way in ways if model==m)) for m in models}
    fig = Figure(figsize=(6.4, 6.8), layout='constrained')
    axes = fig.subplots(len(JUDGES), len(texts), sharex=True, sharey='row', squeeze=False)
    for (text,model,way),rows in ways.items():
        look = dict(color=f'C{models.index(model)}', fmt='os^D'[of_model[model].index(way)], ms=6, capsize=3)
        for ax,judge in zip(axes[:,texts.index(text)], JUDGES):
            mean, low, high = accuracy(rows, judge)
            seconds = found['seconds'][text][f'{model}, {way}']
            ax.errorbar(seconds, mean, [[mean-low], [high-mean]], label=f'{model}, {way}', **look)
    for ax,text in zip(axes[0], texts): ax.set_title(f'text: {text}')
    for ax,judge in zip(axes[:,0], JUDGES.values()): ax.set_ylabel(f'{judge}, mean over sets, per cent')
    for ax in axes.flat: ax.axhline(50, color='grey', lw=.5)
    for ax in axes[-1]:
        ax.set(xscale='log', xlabel='seconds for 1,000 sentences')
        ax.xaxis.set_major_formatter('{x:g}')
        ax.xaxis.set_minor_formatter('')
    handles, labels = axes[0,0].get_legend_handles_labels()
    fig.legend(handles, labels, loc='outside lower center', ncols=3)
    fig.savefig(path)

def draw_phenomena(found, path):
    "Mean accuracy of the seeds for each phenomenon, a column for each way; a panel for each text"
    ways = by_way(found['rows'])
    texts = list(dict.fromkeys(text for text,*_ in ways))
    both_sides = LinearSegmentedColormap.from_list('around chance', ['C1', 'white', 'C0'])
    fig = Figure(figsize=(6.4, 7.2*len(texts)), layout='constrained')
    for ax,text in zip(fig.subplots(len(texts), 1, squeeze=False)[:,0], texts):
        own = {f'{model}, {way}': rows for (t,model,way),rows in ways.items() if t==text}
        lines = [(judge, o) for judge in JUDGES for o in next(iter(own.values()))[0][judge] if o!='all pairs']
        values = [[accuracy(rows, *o)[0] for rows in own.values()] for o in lines]
        ax.imshow(values, cmap=both_sides, vmin=0, vmax=100, aspect='auto')
        for i,row in enumerate(values):
            for j,v in enumerate(row):
                ax.text(j, i, f'{v:.0f}', ha='center', va='center', color='white' if v>80 else 'black')
        ax.set_title(f'text: {text}')
        ax.set_xticks(range(len(own)), own, rotation=90)
        named = [f"{JUDGES[judge]}, {o.replace('_', ' ').replace('-', ' ')}" for judge,o in lines]
        ax.set_yticks(range(len(lines)), named)
        ax.axhline(next(i for i,(k,_) in enumerate(lines) if k=='zorro')-.5, color='black', lw=1)
    fig.savefig(path)

def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--examples', type=Path, help='folder of electra_data')
    p.add_argument('--data', type=Path, help='folder with blimp/ and zorro/')
    p.add_argument('--flops', type=float, default=2e13, help='of every run (2e13)')
    p.add_argument('--seeds', type=int, nargs='+', default=[0, 1, 2], help='runs of every model (0 1 2)')
    p.add_argument('--work', type=Path, default=Path('runs/minimal_pairs'), help='folder of the runs')
    p.add_argument('--out', type=Path, default=RESULTS/'minimal_pairs.json', help='results')
    p.add_argument('--draw', action='store_true', help='only draw what is in --out')
    p.add_argument('--figures', type=Path, default=FIGURES, help='folder of the figures')
    args = p.parse_args()
    if not args.draw and not (args.examples and args.data): p.error('give --examples and --data, or --draw')
    if not args.draw:
        measure(args)
        clock(args)
    found, rows = json.loads(args.out.read_text()), []
    for (text,model,by),runs in by_way(found['rows']).items():
        way, scores = f'{model}, {by}', [f'{accuracy(runs, o)[0]:.1f}' for o in JUDGES]
        rows.append((text, way, *scores, len(runs), found['seconds'][text][way]))
    table(('text', 'way', *JUDGES, 'runs', 'seconds'), rows)
    with style.context('electra_nbdev.electra'):
        draw(found, args.figures/'minimal_pairs.png')
        draw_phenomena(found, args.figures/'minimal_pairs_phenomena.png')

if __name__=='__main__': main()
