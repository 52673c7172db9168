"""What one pass costs: minimal pairs by every way to score, from networks of one size, text and number of FLOPs.

`--examples` is a folder of electra_data. On it an Electric, an ELECTRA and a masked language model of the preset `tiny`
are trained, for every seed, and beside them stand n-gram models of the same tokens. `--data` is a folder with blimp/
and zorro/; ways of several passes score the first `--pairs` of each set. Seconds are for 1,000 sentences of 20 words,
the least of two. What is finished stays, so a stopped command goes on; `--out` keeps the rows of every text, by the
folder's name, and `--draw` draws them and does nothing else."""
import argparse, json, subprocess, sys, time
from pathlib import Path

from common import RESULTS, table
from ngram import ORDERS, likelihood
from pairs import first_of_each, sentences

OBJECTIVES = {'Electric': dict(electra_objective=False, electric_objective=True), 'ELECTRA': {},
              'masked': dict(electra_objective=False, mask_prob=.15)}
WAYS = {'Electric': ('energies', 'towers'), 'ELECTRA': ('p-replaced', 'pll'), 'masked': ('pll', 'word-l2r')}
MANY_PASSES = 'pll', 'word-l2r'
LENGTHS = dict(max_seq_length=64, train_batch_size=16, eval_batch_size=64, num_eval_steps=24,
               length_schedule=[[8, .25], [16, .15], [32, .3], [64, .3]])
JUDGES = 'blimp', 'zorro'

def train(name, seed, args):
    "The run of an objective"
    from electra_nbdev.pretraining.plan import run_cost
    from electra_nbdev.pretraining.recipe import preset
    hparams = LENGTHS | OBJECTIVES[name] | dict(seed=seed)
    hp = preset('tiny', **hparams)
    steps, out = round(args.flops*hp.num_train_steps/run_cost(hp).flops), args.work/args.examples.name/f'{name}-{seed}'
    line = [Path(sys.executable).parent/'electra_pretrain', '--preset', 'tiny', '--data', args.examples, '--out', out,
            '--steps', steps, '--device', 'cpu', '--hparams', json.dumps(hparams)]
    subprocess.run([*map(str, line)], check=True)
    return out

def judge(model, args):
    "{judge: accuracies by phenomenon} and the seconds, of one way to score"
    from electra_nbdev.using.likelihood import accuracies, pseudo_log_likelihood, score_pairs
    from electra_nbdev.using.score_files import read_pairs
    found, texts, seconds = {}, sentences(), []
    for o in JUDGES:
        pairs = read_pairs(args.data/o)
        if model.by in MANY_PASSES: pairs = list(first_of_each(pairs, args.pairs))
        found[o] = accuracies(score_pairs(model, pairs)).to_dict('index')
    for _ in range(2):
        start = time.perf_counter()
        pseudo_log_likelihood(model, texts)
        seconds.append(time.perf_counter()-start)
    return found | dict(seconds=round(min(seconds), 2))

def ways(seeds):
    "(model, seed, way) of everything that is judged"
    for by in ORDERS: yield 'n-gram', None, by
    for seed in seeds:
        for name,own in WAYS.items():
            for by in own: yield name, seed, by

def opened(name, seed, by, args):
    "What scores texts in a way; networks are trained first, unless they are there"
    from electra_nbdev.data.examples import load_examples
    from electra_nbdev.using.likelihood import load_likelihood
    if name=='n-gram': return likelihood(load_examples(args.examples), ORDERS[by], by)
    return load_likelihood(train(name, seed, args), by, device='cpu')

def measure(args):
    "Add the rows that are not there yet"
    setting = f'{args.flops:.3g} FLOPs, {args.pairs} pairs of a set where passes are many'
    for name,seed,by in ways(args.seeds):
        found = json.loads(args.out.read_text()) if args.out.is_file() else dict(setting=setting, rows=[])
        if found['setting']!=setting: raise SystemExit(f'{args.out} has {found["setting"]}; give another --out')
        what = dict(text=args.examples.name, model=name, seed=seed, way=by)
        if any(what.items()<=o.items() for o in found['rows']): continue
        row = what | judge(opened(name, seed, by, args), args)
        args.out.write_text(json.dumps(found | dict(rows=[*found['rows'], row]), indent=1)+'\n')
        print(*what.values(), *(row[o]['mean over sets']['accuracy'] for o in JUDGES), row['seconds'], flush=True)

def by_way(rows):
    "{(text, model, way): rows of its seeds}"
    found = {}
    for o in rows: found.setdefault((o['text'], o['model'], o['way']), []).append(o)
    return found

def mean_and_ends(values): return sum(values)/len(values), min(values), max(values)

def draw(rows, path):
    "Accuracy against seconds, a column for each text, a row for each judge: mean, least and most of the seeds"
    from matplotlib.figure import Figure
    texts = list(dict.fromkeys(o['text'] for o in rows))
    fig = Figure(figsize=(4.2*len(texts), 6.4), dpi=110, layout='constrained')
    axes = fig.subplots(len(JUDGES), len(texts), sharex=True, sharey='row', squeeze=False)
    colours = {(m, w): f'C{i}' for i,(m,w) in enumerate(dict.fromkeys((o['model'], o['way']) for o in rows))}
    for (text,model,way),found in by_way(rows).items():
        seconds = sum(o['seconds'] for o in found)/len(found)
        for ax,judge in zip(axes[:,texts.index(text)], JUDGES):
            mean, low, high = mean_and_ends([o[judge]['mean over sets']['accuracy'] for o in found])
            ax.errorbar(seconds, mean, [[mean-low], [high-mean]], fmt='s' if model=='n-gram' else 'o', capsize=3,
                        color=colours[model,way], label=f'{model}, {way}')
    for ax,text in zip(axes[0], texts): ax.set_title(f'text: {text}')
    for ax,judge in zip(axes[:,0], ('BLiMP', 'Zorro')): ax.set_ylabel(f'{judge}, mean over sets, per cent')
    for ax in axes.flat: ax.axhline(50, color='grey', lw=.5)
    for ax in axes[-1]:
        ax.set(xscale='log', xlabel='seconds for 1,000 sentences of 20 words, one core')
        ax.xaxis.set_major_formatter('{x:g}')
        ax.xaxis.set_minor_formatter('')
    handles, labels = axes[0,0].get_legend_handles_labels()
    fig.legend(handles, labels, loc='outside lower center', ncols=2*len(texts), fontsize=9)
    fig.savefig(path)

def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--examples', type=Path, help='folder of electra_data')
    p.add_argument('--data', type=Path, help='folder with blimp/ and zorro/')
    p.add_argument('--flops', type=float, default=2e13, help='of every run (2e13)')
    p.add_argument('--seeds', type=int, nargs='+', default=[0, 1, 2], help='runs of every model (0 1 2)')
    p.add_argument('--pairs', type=int, default=200, help='of each set, where passes are many (200)')
    p.add_argument('--work', type=Path, default=Path('runs/minimal_pairs'), help='folder of the runs')
    p.add_argument('--out', type=Path, default=RESULTS/'minimal_pairs.json', help='results')
    p.add_argument('--draw', action='store_true', help='draw what is in --out')
    args = p.parse_args()
    if not args.draw and not (args.examples and args.data): p.error('give --examples and --data, or --draw')
    if not args.draw: measure(args)
    rows = json.loads(args.out.read_text())['rows']
    def shown(found, judge): return f'{mean_and_ends([o[judge]["mean over sets"]["accuracy"] for o in found])[0]:.1f}'
    table(('text, model, way', *JUDGES, 'runs', 'seconds'), [
        (', '.join(k), *(shown(o, j) for j in JUDGES), len(o), min(r['seconds'] for r in o))
        for k,o in by_way(rows).items()])
    draw(rows, args.out.with_suffix('.png'))

if __name__=='__main__': main()
