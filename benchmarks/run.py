"""Run every benchmark and add what came out to benchmarks/results: a JSON file for each machine, and its figure."""
import json, platform, subprocess, sys
from importlib.metadata import version
from pathlib import Path

from common import RESULTS, cores, cpu, machine

HERE = Path(__file__).parent
BARS = dict(pretrain=('tokens/s against\nplain Hugging Face', 1.5), electric=('tokens/s against\na naive step', 1.3),
            finetune=('examples/s against\npadding to 128', 2.5), data=('text/s against\nthe tokenizer alone', 0.9),
            windows=('text/s against\nthe tokenizer alone', 0.8), loader=('thousand examples/s', 20.))
LIBRARIES = 'electra_nbdev', 'torch', 'transformers', 'tokenizers', 'datasets'

def result(name):
    "Run a benchmark, show what it prints, and read its last line"
    print(f'== {name}', flush=True)
    lines = []
    with subprocess.Popen([sys.executable, str(HERE/f'{name}.py')], stdout=subprocess.PIPE, text=True) as p:
        for line in p.stdout:
            print(line, end='', flush=True)
            lines.append(line)
    if p.returncode: raise SystemExit(f'{name} ended with status {p.returncode}')
    return json.loads(lines[-1])

def spread(name, found):
    "Lowest, median and highest of what a benchmark is judged by"
    if name=='loader': return [n/1000 for n in found['examples_per_s']['ours']]
    return found['spread'][0], found['ratio'], found['spread'][1]

def draw(runs, path):
    "Every run with its spread, and the bar that it has to clear"
    import matplotlib
    matplotlib.use('Agg')
    import matplotlib.pyplot as plt
    fig, axs = plt.subplots(1, len(BARS), figsize=(3*len(BARS), 2.6), dpi=90)
    for ax,(name,(what,bar)) in zip(axs, BARS.items()):
        for i,r in enumerate(runs):
            if name not in r: continue
            lo, mid, hi = spread(name, r[name])
            ax.errorbar(i+1, mid, [[mid-lo], [hi-mid]], fmt='o', color='#31688e', capsize=4)
        ax.axhline(bar, color='#e07a5f', ls='--', lw=1)
        n = len(runs)
        ax.set(title=name, xlabel='run', ylabel=what, xticks=range(1, n+1), ylim=(0, None), xlim=(.5, n+.5))
        ax.yaxis.label.set_size(8)
    fig.tight_layout()
    fig.savefig(path)

def main():
    path = RESULTS/f'{machine()}.json'
    versions = {o: version(o) for o in LIBRARIES}
    facts = dict(cpu=cpu(), cores=cores(), python=platform.python_version(), **versions)
    run = {o: result(o) for o in BARS}
    there = json.loads(path.read_text()) if path.exists() else {}
    runs = [*(there['runs'] if there.get('machine')==facts else []), run]
    RESULTS.mkdir(exist_ok=True)
    path.write_text(json.dumps(dict(machine=facts, runs=runs), indent=1)+'\n')
    draw(runs, path.with_suffix('.png'))
    print(f'{len(runs)} runs on this machine are in benchmarks/results/{path.name}')

if __name__=='__main__': main()
