"""How soon the page on which a tiny ELECTRA learns has learnt: AUC and seconds along its run.

The script of the page, on the text of the page, runs in Node, whose engine is that of Chromium, once for each seed. A
browser also draws, so it takes longer."""
import argparse, json, subprocess
from pathlib import Path

from common import RESULTS, ROOT, cpu, table, write_result

PAGE = ROOT/'nbs/try'
RUN = """
const o = training(TEXT, SEED), start = performance.now(), found = []
while (o.done < RECIPE.steps) {
  step(o)
  if (o.done % 200 == 0) found.push({step: o.done, seconds: (performance.now()-start)/1000, auc: auc(o)})
}
console.log(JSON.stringify(found))
"""

def run(seed):
    "Points of a run: steps, seconds, AUC on held-out text"
    text = (PAGE/'learn.txt').read_text(encoding='utf-8')
    code = RUN.replace('TEXT', json.dumps(text)).replace('SEED', str(seed))
    script = (PAGE/'learn.js').read_text(encoding='utf-8')+code
    done = subprocess.run(['node', '-'], input=script, capture_output=True, encoding='utf-8', check=True)
    return json.loads(done.stdout)

def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--seeds', type=int, nargs='+', default=[1, 2, 3], help='runs; the page has 1 (1 2 3)')
    p.add_argument('--out', type=Path, default=RESULTS/'learn_page.json', help='results')
    args = p.parse_args()
    found = dict(cpu=cpu(), runs={o: run(o) for o in args.seeds})
    write_result(found, args.out)
    table(('seed', *(f'{o["step"]:,}' for o in found['runs'][args.seeds[0]]), 'seconds'),
          [(seed, *(f'{o["auc"]:.2f}' for o in points), f'{points[-1]["seconds"]:.0f}')
           for seed,points in found['runs'].items()])

if __name__=='__main__': main()
