"""Updates a second of two processes that share a run: as they are, and with two more agreements after every update.

Two agreements at every update, one on signals and one on checkpoints by the clock, is what this library did before.
Both kinds of runs train the preset tiny on the embedded sample, in turns; the steps are short, so what is lost for
waiting weighs most here. Speeds are those of a run without its first fifth."""
import os, socket, subprocess, sys, tempfile
from contextlib import closing
from statistics import median

from common import arguments, ratio, report, table

RUN = '''
import sys, time
from electra_nbdev.engine.ranks import largest, rank
from electra_nbdev.pretrain import preset, run_pretraining
from fastai.callback.core import Callback
more, steps, out, waits = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], []
class Agreements(Callback):
    run_valid = False
    def after_batch(self):
        start = time.perf_counter()
        for _ in range(more): largest(0)
        waits.append(time.perf_counter()-start)
        if self.n_updates==steps//5: self.start = time.perf_counter()
        if self.n_updates<steps or rank(): return
        print('updates/s', (steps-steps//5)/(time.perf_counter()-self.start), 1e3*sorted(waits)[steps//2])
hp = preset('tiny', num_train_steps=steps, num_warmup_steps=1, save_checkpoints_steps=steps, num_eval_steps=2)
run_pretraining(None, out, hp, device='cpu', cbs=[Agreements()])
'''

def free_port():
    with closing(socket.socket()) as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]

def speed(args, more):
    "Updates a second of a run, and milliseconds of the agreements that are added to each, the median"
    with tempfile.TemporaryDirectory(dir=args.work or None) as out:
        port, children = free_port(), []
        for i in range(args.processes):
            n, i = str(args.processes), str(i)
            env = os.environ | dict(MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port), WORLD_SIZE=n, LOCAL_WORLD_SIZE=n,
                                    RANK=i, LOCAL_RANK=i, OMP_NUM_THREADS='1')
            command = [sys.executable, '-W', 'ignore', '-c', RUN, str(more), str(args.steps), f'{out}/run']
            children.append(subprocess.Popen(command, env=env, text=True, stdout=subprocess.PIPE))
        said = [o.communicate()[0] for o in children]
    return next([float(x) for x in o.split()[1:]] for o in said[0].splitlines() if o.startswith('updates/s'))

def main():
    args = arguments(__doc__, rounds=(5, 'rounds'), steps=(400, 'steps of a run'), processes=(2, 'processes'),
                     work=('', 'folder for scratch files'))
    got = {'about once a second': [], 'twice an update': []}
    for i in range(args.rounds):
        for (name,found),more in zip(got.items(), (0, 2)):
            found.append(speed(args, more))
            print(f'round {i+1}  {name:20} {found[-1][0]:6.1f} updates/s, {found[-1][1]:.2f} ms', flush=True)
    waits = [round(o[1], 2) for o in got['twice an update']]
    got = {n: [o[0] for o in found] for n,found in got.items()}
    table(('agreements', 'updates/s'), [(n, round(median(o), 1)) for n,o in got.items()])
    now, before = got.values()
    report(dict(benchmark='agreements', **ratio(now, before),
        ms_of_two_agreements=waits, updates_per_s={n: [round(o, 1) for o in found] for n,found in got.items()},
        setting=f'tiny on the embedded sample, {args.processes} processes of one thread'))

if __name__=='__main__': main()
