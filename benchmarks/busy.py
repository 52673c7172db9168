"""What threads that sleep sooner bring where another process needs a core, as the commands have it (98_command).

Batches of 64 sentences a second by the towers of `electric`, and steps a second of ELECTRA-Small, alone and beside
processes of another session, as another terminal has one, that use half of the cores; with torch's own setting and
with that of the commands. Each measurement is a process of its own and lasts `--seconds` after a first batch or step;
0 if that does not end."""
import json, os, subprocess, sys, time
from statistics import median

from common import arguments, cores, ratio, report, table
from electra_nbdev.engine.command import SPINS

def score():
    "What scores a batch of sentences"
    from electra_nbdev.scoring.likelihood import load_likelihood, pseudo_log_likelihood
    model = load_likelihood('electric', 'towers', device='cpu')
    return lambda: pseudo_log_likelihood(model, ['the cats of the neighbours sit on the warm wall']*64)

def step():
    "What makes a training step"
    from pretrain import ours
    steps = ours(16, 128)
    return lambda: steps(1)

WORK = dict(scoring=score, training=step)

def measure(name, seconds):
    "How often something is done in so many seconds, after the first time"
    import torch
    torch.set_num_threads(cores())
    do = WORK[name]()
    do()
    n, start = 0, time.perf_counter()
    while (took := time.perf_counter()-start)<seconds:
        do()
        n += 1
    print(round(n/took, 3))

def per_second(name, setting, seconds):
    "The same in a process of its own"
    env = {k: v for k,v in os.environ.items() if k not in ('GOMP_SPINCOUNT', 'OMP_WAIT_POLICY', 'OMP_NUM_THREADS')}
    call = [sys.executable, sys.argv[0], f'--side={name}', f'--seconds={seconds}']
    try: found = subprocess.run(call, env=env | setting, stdout=subprocess.PIPE, text=True, timeout=60+2*seconds)
    except subprocess.TimeoutExpired: return 0.
    return json.loads(found.stdout.splitlines()[-1])

def main():
    args = arguments(__doc__, rounds=(3, 'rounds'), seconds=(10, 'of a measurement'))
    if args.side: return measure(args.side, args.seconds)
    found, rows = {}, []
    for place,n in (('alone', 0), ('beside others', max(1, cores()//2))):
        busy = [sys.executable, '-c', 'while True: pass']
        others = [subprocess.Popen(busy, start_new_session=True) for _ in range(n)]
        def pair(work): return [per_second(work, o, args.seconds) for o in ({}, dict(GOMP_SPINCOUNT=str(SPINS)))]
        try: got = {o: [pair(o) for _ in range(args.rounds)] for o in WORK}
        finally:
            for o in others: o.kill()
        for o,pairs in got.items():
            own, ours = zip(*pairs)
            rows.append((f'{o}, {place}', median(own), median(ours)))
            found[f'{o}, {place}'] = dict(own=own, ours=ours) | (ratio(ours, own) if all(own) else {})
    table(('', "a second, torch's own", "commands'"), rows)
    report(dict(benchmark='busy', cores=cores(), **found))

if __name__=='__main__': main()
