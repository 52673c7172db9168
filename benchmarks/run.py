"""Run the benchmarks, add what came out to benchmarks/results, and print it as a table for the README.

Each kind of machine has a JSON file there and its figure; a run carries the commit and the versions that it
measured, and earlier runs stay. `--only` takes names of benchmarks. What needs a GPU has a command of its own,
`one_gpu.py`."""
import argparse, json, platform, subprocess, sys
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from common import COMMIT, RESULTS, cores, cpu, gpu, has_amx, machine

HERE = Path(__file__).parent
LIBRARIES = 'electra_nbdev', 'torch', 'transformers', 'tokenizers', 'datasets', 'fastai'

class Row(NamedTuple):
    "What a benchmark is judged by"
    benchmark:str # Its script
    what:str # Ours over whose
    bar:float|None=None # The median has to reach it, or stay below it if it is about memory
    low:float=0. # The lowest round has to reach it
    part:str='' # Where the numbers are, if not at the top
    amx:bool=False # Only a processor with AMX has to clear the bar

ROWS = [Row('pretrain', 'ELECTRA-Small step, fp32: plain Hugging Face', 1.8, 1.7),
        Row('pretrain', 'ELECTRA-Small step, bf16: plain Hugging Face in fp32', 2.8, part='bf16', amx=True),
        Row('pretrain', 'ELECTRA-Small step, bf16, compiled: plain Hugging Face in fp32', part='compiled'),
        Row('electric', 'Electric step: a naive step', 1.5),
        Row('electric', 'memory of an Electric step: a naive step', .5, part='above_imports'),
        Row('distributed', 'two processes of one thread: one of two threads', .9),
        Row('finetune', 'fine-tuning: padding to 128', 2.5), Row('data', 'building examples: the tokenizer alone', .9),
        Row('windows', 'windows: the tokenizer alone', .8)]
NAMES = list(dict.fromkeys(o.benchmark for o in ROWS))

def result(name):
    "Run a benchmark, show what it prints, and read its last line"
    print(f'== {name}', flush=True)
    lines = []
    with subprocess.Popen([sys.executable, str(HERE/f'{name}.py')], stdout=subprocess.PIPE, text=True) as p:
        for line in p.stdout:
            print(line, end='', flush=True)
            lines.append(line)
    if p.returncode: raise SystemExit(f'{name} ended with status {p.returncode}')
    return {k: v for k,v in json.loads(lines[-1]).items() if k!='commit'} # that of the run

def spread(row, run):
    "Lowest, median and highest of what a row is about; None if the run has not measured it"
    found = run.get(row.benchmark, {})
    if row.part=='above_imports' and row.part in found: return [found[row.part]]*3
    if row.part: found = found.get(row.part, {})
    if 'ratio' in found: return found['spread'][0], found['ratio'], found['spread'][1]

def bar_of(row, run):
    "The bar that a run has to clear, if any"
    return row.bar if not row.amx or run[row.benchmark].get('amx') else None

def met(row, run):
    "Whether a run clears the bar of a row"
    low, mid, _ = spread(row, run)
    return mid<=row.bar if row.part=='above_imports' else mid>=row.bar and low>=row.low

def markdown(run):
    "A table of a run"
    yield '| ours : whose | median [least–most] | bar | met |\n|---|---|---|---|'
    for row in ROWS:
        if not (found := spread(row, run)): continue
        low, mid, high = found
        shown = f'{mid:.2f}' if low==high else f'{mid:.2f} [{low:.2f}–{high:.2f}]'
        judged = 'no AMX here |' if row.bar else ' |'
        if bar := bar_of(row, run):
            judged = f"{'≤' if row.part=='above_imports' else '≥'} {bar} | {'yes' if met(row, run) else 'no'}"
        yield f'| {row.what} | {shown} | {judged} |'

def draw(runs, path):
    "Every run with its spread, and the bar that it has to clear"
    import matplotlib
    matplotlib.use('Agg')
    import matplotlib.pyplot as plt
    rows = [o for o in ROWS if any(spread(o, r) for r in runs)]
    plt.style.use('electra_nbdev.electra')
    height = -(-len(rows)//2)
    fig, axs = plt.subplots(height, 2, figsize=(6.4, 2.2*height), squeeze=False)
    for ax in axs.flat[len(rows):]: ax.remove()
    for ax,row in zip(axs.flat, rows):
        for i,r in enumerate(runs, 1):
            if not (found := spread(row, r)): continue
            lo, mid, hi = found
            ax.errorbar(i, mid, [[mid-lo], [hi-mid]], fmt='o', color='C0', capsize=4)
        if row.bar: ax.axhline(row.bar, color='C1', ls='--')
        ax.set_title(row.what.replace(': ', ':\n'))
        ax.set(xlabel='run', ylim=(0, None), xlim=(.5, len(runs)+.5), xticks=range(1, len(runs)+1))
    fig.savefig(path)
    plt.close(fig)

def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--only', nargs='+', choices=NAMES, default=NAMES, metavar='NAME', help=', '.join(NAMES))
    p.add_argument('--out', type=Path, default=RESULTS, help='folder for the results')
    args = p.parse_args()
    path = args.out/f'{machine()}.json'
    run = dict(commit=COMMIT, versions=dict(python=platform.python_version(), **{o: version(o) for o in LIBRARIES}))
    run |= {o: result(o) for o in args.only}
    runs = [*(json.loads(path.read_text())['runs'] if path.exists() else []), run]
    args.out.mkdir(exist_ok=True)
    facts = dict(cpu=cpu(), cores=cores(), amx=has_amx(), gpu=gpu())
    path.write_text(json.dumps(dict(machine=facts, runs=runs), indent=1)+'\n')
    draw(runs, path.with_suffix('.png'))
    print('\n' + '\n'.join(markdown(run)))
    print(f'\n{len(runs)} runs on this machine are in {path}')

if __name__=='__main__': main()
