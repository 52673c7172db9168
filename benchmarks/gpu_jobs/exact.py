"""Runs that are killed on the GPU and end as if nobody had stopped them, and the first losses beside those of a CPU.

Each side is a command in a process of its own, under torch's deterministic algorithms: it is killed (SIGKILL) at random
moments of its training, typed again until it ends, and its last checkpoint is compared with that of a run that was left
alone: weights, moments, random numbers and place, bit for bit. Text is the sample of the package."""
import argparse, os, random, shutil, signal, sys, tempfile, threading, time
from contextlib import redirect_stdout
from pathlib import Path

from common import Side, table
from .kit import Work

SIDES = 'eager-fp32', 'eager-bf16', 'graph-fp32', 'graph-bf16'
STEPS, EVERY, KILLS, TOLERANCE = 1000, 50, 2, 1e-3 # of a run, of a checkpoint; of a run at most; relative, of a loss
COMPARED = 10 # Updates on GPU and CPU

def recipe(scale, **more):
    "A tiny ELECTRA with dropout and three lengths"
    from electra_nbdev.pretrain import preset
    n = max(24, round(STEPS*scale))
    given = dict(num_train_steps=n, num_warmup_steps=n//10, save_checkpoints_steps=max(4, round(EVERY*scale)),
                 iterations_per_loop=2, num_eval_steps=2, keep_checkpoint_max=2, save_checkpoints_secs=None,
                 model_hparam_overrides=dict(hidden_dropout_prob=.1, attention_probs_dropout_prob=.1,
                                             max_position_embeddings=128))
    return preset('tiny', **given | more)

def serve(args):
    "Train, or continue"
    import torch
    from electra_nbdev.pretraining.request import run_pretraining
    _, side, folder = args.side.split(':')
    form, precision = side.split('-')
    os.environ.setdefault('CUBLAS_WORKSPACE_CONFIG', ':4096:8')
    torch.use_deterministic_algorithms(True)
    print('{}', flush=True)
    with redirect_stdout(sys.stderr if os.environ.get('ELECTRA_VERBOSE') else open(os.devnull, 'w')):
        run_pretraining(None, folder, recipe(args.scale), device=args.device, precision=precision,
                        compile=form=='graph')
    print('{}', flush=True)

class Runs:
    "The runs of a side"
    def __init__(self, side, args, folder, work):
        self.side, self.folder, self.work, self.running = side, folder, work, None
        self.args = argparse.Namespace(device=args.device, scale=args.scale)
        self.row = dict(runs=0, kills=0, equal=0, differ=[])

    def start(self, out):
        if self.work.left()<1: raise SystemExit('time is up')
        self.running = Side(f'exact:{self.side}:{out}', self.args, wait=False)
        self.running.answer() # libraries are loaded
        return self.running

    def to_end(self, out):
        run = self.start(out)
        run.answer()
        run.end()

    def killed(self, out, seconds):
        "Whether a run was killed before it ended"
        begun, run = lines(out), self.start(out)
        while run.process.poll() is None and lines(out)==begun: time.sleep(.05) # it loads, or compiles
        time.sleep(random.uniform(0, seconds))
        run.process.send_signal(signal.SIGKILL)
        return run.process.wait()!=0

    def loop(self):
        "Runs until time is up; what one of them is cut off in counts for nothing"
        try: self.all_runs()
        except (SystemExit, OSError) as e:
            if self.work.left()>1: self.row['failed'] = str(e)

    def all_runs(self):
        whole = self.folder/'whole'
        begin = time.monotonic()
        self.to_end(whole)
        stamps = [o.stat().st_mtime for o in (whole/'hparams.json', whole/'history.jsonl')]
        seconds, once = stamps[1]-stamps[0], time.monotonic()-begin
        self.row.update(seconds=round(once, 1))
        while self.work.left()>1.5*once or not self.row['runs']:
            out, kills = self.folder/f"run{self.row['runs']}", 0
            while kills<(KILLS if self.work.scale==1 else 1) and self.killed(out, seconds): kills += 1
            self.to_end(out)
            wrong = difference(whole, out)
            self.row['runs'], self.row['kills'] = self.row['runs']+1, self.row['kills']+kills
            self.row['equal'] += not wrong
            if wrong: self.row['differ'].append(wrong)
            shutil.rmtree(out)
            if self.work.scale<1: return

def lines(out):
    path = Path(out)/'history.jsonl'
    return path.stat().st_mtime if path.exists() else None

def difference(a, b):
    "What two runs do not have in common at their end; empty if they are equal"
    import torch
    from electra_nbdev.engine.checkpoint import latest_checkpoint, load_checkpoint
    (a, state), (b, same) = (load_checkpoint(latest_checkpoint(o)) for o in (a, b))
    if a.keys()!=b.keys() or state['position']!=same['position']: return 'position or names'
    return next((k for k,t in a.items() if not torch.equal(t, b[k])), '')

def losses(device, compiled, scale):
    "Losses of the first updates in float32, without dropout"
    import torch
    from electra_nbdev.engine.training import compile_callbacks
    from electra_nbdev.pretraining.graph import CompileStep
    from electra_nbdev.pretrain import electra_learner, open_examples, pretrain_dls
    none = dict(hidden_dropout_prob=0., attention_probs_dropout_prob=0., max_position_embeddings=128)
    hp = recipe(scale, iterations_per_loop=1, model_hparam_overrides=none)
    torch.manual_seed(0)
    cbs = compile_callbacks(compiled, torch.device(device), CompileStep, dynamic=False)
    learn = electra_learner(pretrain_dls(*open_examples(None, hp), hp, device), hp, cbs=cbs)
    learn.remove_cb(learn.training_monitor)
    with learn.no_bar(), learn.no_logging(): learn.fit_steps(COMPARED)
    return [{k: o[k] for k in ('gen_loss', 'disc_loss')} for o in learn.history.rows if 'gen_loss' in o]

def compared(device, scale):
    "Largest relative difference of a loss to the CPU's, eager and as a graph"
    wanted, found = losses('cpu', False, scale), {}
    for name in ('eager', 'graph'):
        got = losses(device, name=='graph', scale)
        found[name] = max(abs(a[k]-b[k])/abs(b[k]) for a,b in zip(got, wanted) for k in b)
    return dict(updates=len(wanted), tolerance=TOLERANCE, **found)

def run(args):
    "GPU against CPU, then kills until time is up"
    work = Work(args)
    from electra_nbdev.pretrain import sample_examples
    sample_examples(recipe(args.scale)) # built once, before the others ask for it
    if 'cpu' not in work.found: work.keep(cpu=compared(args.device, args.scale))
    print(f"the first losses differ from the CPU's by at most {work.found['cpu']}", flush=True)
    with tempfile.TemporaryDirectory() as d:
        sides = [Runs(o, args, Path(d)/o, work) for o in (args.sides or ','.join(SIDES)).split(',')]
        for o in sides: o.folder.mkdir()
        threads = [threading.Thread(target=o.loop) for o in sides]
        for o in threads: o.start()
        for o in threads: o.join(max(1, work.left()))
        for o in sides:
            if o.running and o.running.process.poll() is None: o.running.process.kill()
        for o in threads: o.join()
    rows = {o.side: o.row for o in sides}
    runs, equal = (sum(o[k] for o in rows.values()) for k in ('runs', 'equal'))
    near = all(work.found['cpu'][o]<=TOLERANCE for o in ('eager', 'graph'))
    work.keep(sides=rows, runs=runs, equal=equal, finished=all(o['runs'] for o in rows.values()) and near)
    table(('', 'runs', 'kills', 'equal'), [(k, o['runs'], o['kills'], o['equal']) for k,o in rows.items()])
    print(f'{equal} of {runs} runs ended like the one that was left alone; losses like on a CPU: {near}')
    if equal<runs or not near: raise SystemExit(1)
