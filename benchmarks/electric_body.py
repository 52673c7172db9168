"""Electric with the body of ELECTRA and with that of ModernBERT: the presets `tiny` and `modern`, at equal FLOPs.

`--examples` is a folder of electra_data, `--data` one with blimp/ and zorro/, as for `minimal_pairs.py`. Towers and
energies score all their pairs. Finished runs stay, so a stopped command goes on; `--table` prints what there is."""
import argparse, json
from pathlib import Path

from common import RESULTS, begun, table, write_result
from ladder import spread
from minimal_pairs import JUDGES, judge, train

WAYS = 'towers', 'energies'
MEASURES = 'below_unigram', 'auc_unigram' # nats of the towers; of the energies

def run(named, seed, args):
    "Train an Electric, and score the pairs by both ways"
    from electra_nbdev.scoring.likelihood import load_likelihood
    out = train('Electric', seed, argparse.Namespace(**vars(args) | dict(work=args.work/named)), named)
    history = [json.loads(o) for o in (out/'history.jsonl').read_text().splitlines()]
    last = [o['held_out'] for o in history if 'held_out' in o][-1]
    scores = {way: judge(load_likelihood(out, way, device='cpu'), args) for way in WAYS}
    pairs = {way: {o: scores[way][o]['mean over sets']['accuracy'] for o in JUDGES} for way in WAYS}
    return dict(preset=named, seed=seed, held_out={o: last[o] for o in MEASURES}, pairs=pairs)

def report(found):
    "A line for each preset: mean of the seeds, and half of its 95 % interval"
    rows = []
    for named in dict.fromkeys(o['preset'] for o in found['runs']):
        own = [o for o in found['runs'] if o['preset']==named]
        rows.append((named, len(own), *(spread([o['held_out'][m] for o in own], 3) for m in MEASURES),
                     *(spread([o['pairs'][way][j] for o in own]) for way in WAYS for j in JUDGES)))
    table(('preset', 'seeds', *MEASURES, *(f'{j}, {way}' for way in WAYS for j in JUDGES.values())), rows)

def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--table', action='store_true', help='print the results there are, and train nothing')
    p.add_argument('--examples', type=Path, help='folder of examples of 64 tokens')
    p.add_argument('--data', type=Path, help='folder with blimp/ and zorro/')
    p.add_argument('--presets', nargs='+', default=['modern', 'tiny'], help='(modern tiny)')
    p.add_argument('--seeds', type=int, nargs='+', default=[0, 1, 2])
    p.add_argument('--flops', type=float, default=2e13, help='of every run (2e13)')
    p.add_argument('--work', type=Path, default=Path('runs/electric_body'), help='folder for the runs')
    p.add_argument('--out', type=Path, default=RESULTS/'electric_body.json', help='results')
    args = p.parse_args()
    if args.table: return report(json.loads(args.out.read_text()))
    if not (args.examples and args.data): p.error('--examples and --data are needed')
    setting = f'{args.examples.name}, {args.flops:.3g} FLOPs'
    found = begun(args.out, setting, runs=[])
    done = {(o['preset'], o['seed']) for o in found['runs']}
    for seed in args.seeds:
        for named in args.presets:
            if (named, seed) in done: continue
            found['runs'].append(run(named, seed, args))
            write_result(found, args.out)
    report(found)

if __name__=='__main__': main()
