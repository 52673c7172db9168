"""Jobs for a machine with a GPU that has torch and no network, each of nine minutes at most.

`one_gpu.py` lists them: what each answers, whether what it reads is there, whether there is a result. `one_gpu.py
--prepare JOB --text FOLDER` makes what it reads, in a folder that git ignores, and says whether it can travel with the
checkout. `one_gpu.py JOB --out FOLDER` runs it; the same command goes on where it was stopped. A result is one JSON
file; weights are beside it, in float16 and in parts, which `one_gpu.py --join NAME --to FOLDER` joins to networks."""
import argparse, json, sys, time
from pathlib import Path

START = time.monotonic()
sys.path.insert(0, str(Path(__file__).resolve().parents[1])) # where the package is not installed

from common import GPU_DATA
from gpu_jobs import exact, models, race, speed
from gpu_jobs.bring import prepare
from gpu_jobs.kit import FOUND, Job, find, rate

JOBS = {f'speed-{o}': Job(f'How many sequences of {o} a second, and how much of the card is that?', speed.run)
        for o in speed.BATCHES} | {
    'exact': Job('Does a run that was killed end as one that was not, and as on a CPU?', exact.run),
    **{f'race-{o}': Job(f'ELECTRA or MLM at equal FLOPs, {o} parameters: which learns more?', race.run,
                        ('small.xz', 'tasks.tar.xz')) for o in race.SIZES},
    **{o: Job(models.ANSWERS[o], models.run, models.DATA[o]) for o in models.STAGES}}
MINUTES = 9.
SIDES = {'speed': speed.serve, 'exact': exact.serve} # Processes that jobs start

def last_result(name, out):
    "The last result of a job"
    path = find(f'{name}.json', out)
    return json.loads(path.read_text()) if path else None

def listed(args):
    "The table of jobs, and which is next"
    next_one = None
    for name,job in JOBS.items():
        found, missing = last_result(name, args.out), [o for o in job.data if not (args.data/o).is_file()]
        state = f"missing: {', '.join(missing)} (--prepare {name})" if missing else 'ready'
        if not next_one and not missing and not (found and found['finished']): next_one = name
        if found:
            how = 'finished' if found['finished'] else 'begun'
            state = f"{how} at {found['commit']}, {found['seconds']/60:.1f} min on {found['card']}"
        print(f'{name:<15} {job.answers}\n{"":<15} {state}')
    print(f'\nNext: {next_one or "nothing is ready"}')

def announce(name, job, args):
    "What a job will take, by the last numbers"
    found = last_result(name, args.out)
    took = f"the last run took {found['seconds']/60:.1f} min on {found['card']}" if found else 'it has not been run'
    speed, where = rate(args.out)
    took += f'; trained without pause, {speed*60*args.minutes:.2g} FLOPs at the rate of {where}'
    later = list(JOBS)[list(JOBS).index(name)+1:]
    print(f'{name}: {job.answers}\nat most {args.minutes:g} min from now; {took}. '
          f'Then: {later[0] if later else "nothing"}', flush=True)

def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('job', nargs='?', choices=JOBS, metavar='JOB', help=', '.join(JOBS))
    p.add_argument('--minutes', type=float, default=MINUTES, help=f'that it may take, with compilation ({MINUTES:g})')
    p.add_argument('--out', type=Path, default=FOUND, help='folder of results (benchmarks/results/gpu)')
    p.add_argument('--data', type=Path, default=GPU_DATA, help=f'folder that --prepare fills ({GPU_DATA.name})')
    p.add_argument('--device', default='cuda', help='cuda, or cpu to try a job (cuda)')
    p.add_argument('--scale', type=float, default=1., help='share of the sizes, to try a job (1)')
    p.add_argument('--sides', help='some sides of speed or exact, or tasks of race')
    p.add_argument('--prepare', action='store_true', help='make what JOB reads')
    p.add_argument('--text', type=Path, help='with --prepare: folder that has text/, babylm/, glue/ and tagging/')
    p.add_argument('--tasks', type=Path, help='with --prepare: another folder with glue/ and tagging/')
    p.add_argument('--mib', type=float, default=13., help='with --prepare: of the text of small, race and base (13)')
    p.add_argument('--words', type=int, default=0, help='with --prepare: so few words, to try a job')
    p.add_argument('--wheels', metavar='PYTHON', help='with --prepare: bring the packages too, for Python 3.12, say')
    p.add_argument('--join', metavar='NAME', help='write the networks of a result to the folder --to')
    p.add_argument('--to', type=Path, help='with --join: folder of the networks')
    p.add_argument('--side', help=argparse.SUPPRESS)
    args = p.parse_args()
    args.spent = time.monotonic()-START
    if args.side: return SIDES['exact' if args.side.startswith('exact') else 'speed'](args)
    if args.join and not args.to: p.error('--join needs the folder --to')
    if args.join: return models.join(args.join, args.out, args.data, args.to)
    if not args.job: return listed(args)
    job = JOBS[args.job]
    if args.prepare: return prepare(job, args)
    if missing := [o for o in job.data if not (args.data/o).is_file()]:
        p.error(f"{args.data} has no {', '.join(missing)}: one_gpu.py {args.job} --prepare --text FOLDER makes it")
    announce(args.job, job, args)
    job.run(args)

if __name__=='__main__': main()
