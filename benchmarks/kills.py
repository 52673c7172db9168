"""Kills at random moments: examples, training, fine-tuning and conversion end as if nobody had stopped them.

Each run types a command, kills its whole process group after a random time (SIGKILL), and types it again, until it
ends by itself. Its files are then compared with those of the same command left alone. Equal means bit for bit: all
files of the folder, and none beside it; only durations, and pictures, may differ. Examples may have another number of
processes at each start. Training has the same number to be equal; where the number changes at each start (without
dropout, which every process draws for itself), it has to finish with held-out losses within 1 % of those of the run
left alone.

The commands are real and run in forks of this process, which has done the slow imports, so a kill costs a second."""
import argparse, json, os, random, shutil, signal, socket, tempfile, threading, time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tqdm import tqdm

import hostile
from common import COMMIT, table

TOLERANCE, MOST = .01, 8 # of held-out losses; kills of one run before it is left alone
RECIPE = dict(max_seq_length=16, length_schedule=[[8, .3], [16, .7]], train_batch_size=8, eval_batch_size=8,
              num_train_steps=24, num_warmup_steps=2, save_checkpoints_steps=8, iterations_per_loop=3,
              num_eval_steps=2, save_checkpoints_secs=None, keep_checkpoints_at=[*range(2, 24, 3)],
              model_hparam_overrides=dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                                          embedding_size=8, max_position_embeddings=16))
FINETUNE = dict(num_train_epochs=2, train_batch_size=8, max_seq_length=16)
DATA = 'electra_data --corpus text --vocab vocab --out out --max-length 16 --held-out .1 --num-proc {n}'
NO_DROPOUT = dict(hidden_dropout_prob=0., attention_probs_dropout_prob=0.)
PRETRAIN = 'electra_pretrain --data examples --hparams recipe.json --out out --device cpu'
TUNE = ('electra_finetune --model run --csv rows.csv --text text --label label --out out --trials 3 --device cpu '
        '--hparams finetune.json')

@dataclass
class Kind:
    "A command, how many processes it may have, and what it leaves when it is left alone"
    command:str
    processes:tuple=(1,) # one is drawn at each start
    launched:bool=False # by a launcher, as training is; others start theirs by themselves
    exact:bool=True # whether the result has to be equal bit for bit
    seconds:float=float('inf')
    wanted:dict=field(default_factory=dict)

def kinds():
    return {'data': Kind(DATA, (1, 2, 3)), 'data in tasks': Kind(f'{DATA} --tasks 5', (1, 2)),
            'pretrain': Kind(PRETRAIN), 'pretrain, 2 processes': Kind(PRETRAIN, (2,), True),
            'pretrain, 1 or 2': Kind(PRETRAIN.replace('recipe', 'plain'), (1, 2), True, False),
            'finetune': Kind(TUNE), 'finetune, 2 processes': Kind(TUNE, (2,), True),
            'convert a run': Kind('electra_convert --src run --dst out'),
            'convert a task': Kind('electra_convert --src task --dst out'),
            'convert to official names': Kind('electra_convert --src run --dst out.npz')}

# Starting, killing

class Started:
    "A command that runs in a process group of its own"
    def __init__(self, kind, n, cwd, scripts):
        reader, self.writer = os.pipe()
        launched = dict(MASTER_ADDR='127.0.0.1', MASTER_PORT=str(free_port()), WORLD_SIZE=str(n),
                        LOCAL_WORLD_SIZE=str(n)) if kind.launched and n>1 else {}
        if not (pid := os.fork()):
            os.close(reader)
            os.setpgrp()
            lead(kind.command.format(n=n), cwd, scripts, launched, n if launched else 1)
        os.close(self.writer)
        self.pid, self.pipe, self.code = pid, reader, None

    def wait(self, seconds):
        "Whether it has ended by itself"
        end = time.monotonic()+seconds
        while self.code is None and time.monotonic()<end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid: self.code = os.waitstatus_to_exitcode(status)
            else: time.sleep(.001)
        return self.code is not None

    def kill(self):
        "End the group, and wait until the last process of it is gone: each holds the pipe"
        with suppress(ProcessLookupError): os.killpg(self.pid, signal.SIGKILL)
        if self.code is None: os.waitpid(self.pid, 0)
        while os.read(self.pipe, 1): pass
        os.close(self.pipe)

def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]

def lead(command, cwd, scripts, env, n):
    "The first process of a group: the command, or what a launcher does"
    if n==1: hostile.become(command, cwd, scripts, cwd.with_suffix('.said'))
    children = []
    for i in range(n):
        if not (pid := os.fork()):
            os.environ.update(env, RANK=str(i), LOCAL_RANK=str(i))
            hostile.become(command, cwd, scripts, cwd.with_suffix('.said') if i==0 else os.devnull)
        children.append(pid)
    os._exit(max(abs(os.waitstatus_to_exitcode(os.waitpid(o, 0)[1])) for o in children))

# What two runs have in common

def timeless(found):
    "JSON without durations"
    if isinstance(found, list): return [timeless(o) for o in found]
    if not isinstance(found, dict): return found
    return {k: timeless(v) for k,v in found.items() if k not in ('seconds', 'tokens_per_s')}

def content(path):
    "What a file has to have in common with that of another run"
    if path.suffix=='.png' or path.name=='.lock': return None
    if path.suffix=='.jsonl': return [timeless(json.loads(o)) for o in path.read_text().splitlines()]
    if path.suffix!='.json': return path.read_bytes()
    found = timeless(json.loads(path.read_text()))
    if path.name=='checksums.json': del found['state.json'] # which holds seconds
    return found

def left(cwd):
    "All that the commands left in a folder"
    return {str(o.relative_to(cwd)): content(o) for top in cwd.iterdir() if not top.is_symlink()
            for o in [top, *top.rglob('*')] if o.is_file()}

def differs(kind, found):
    "What two results do not have in common; empty if they are equal"
    names = sorted(found.keys()^kind.wanted.keys())
    if names: return f"{names[0]} is in one of them only"
    if kind.exact: return next((f'{k} differs' for k,v in kind.wanted.items() if found[k]!=v), '')
    here, there = (held_out(o['out/history.jsonl']) for o in (found, kind.wanted))
    return next((f'{k} is {here[k]:.4f}, not {v:.4f}' for k,v in there.items() if abs(here[k]-v)>TOLERANCE*v), '')

def held_out(rows):
    "The last held-out losses of a history"
    last = [o['held_out'] for o in rows if 'held_out' in o][-1]
    return {k: v for k,v in last.items() if k.endswith('loss')}

# Runs

def folder(made, where):
    "A place for a run, with all that commands read"
    where.mkdir()
    for o in made.iterdir(): (where/o.name).symlink_to(o)
    return where

def leave_alone(kind, made, where, scripts):
    "The result of a kind that nobody stops, and how long it takes: the shorter of two times"
    for i in range(2):
        cwd, start = folder(made, where.with_name(f'{where.name}_{i}')), time.monotonic()
        run = Started(kind, kind.processes[0], cwd, scripts)
        ended = run.wait(2*hostile.SECONDS)
        kind.seconds, kind.wanted = min(kind.seconds, time.monotonic()-start), left(cwd)
        run.kill()
        if not ended or run.code: raise SystemExit(f'{kind.command}: {cwd.with_suffix(".said").read_text()}')

def attempt(kind, rng, cwd, scripts):
    "(kills, what is wrong or '') of a run that is killed again and again"
    kills = 0
    while True:
        run = Started(kind, rng.choice(kind.processes), cwd, scripts)
        ended = run.wait(rng.uniform(0, kind.seconds) if kills<MOST else 2*hostile.SECONDS)
        run.kill()
        if ended: break
        if kills==MOST: return kills, 'it does not end'
        kills += 1
    said = cwd.with_suffix('.said').read_text()
    whole = run.code==2 and 'exists already' in said and kind.command.startswith('electra_convert')
    if run.code and not whole: return kills, f'exit code {run.code}: {said[-900:]}'
    return kills, differs(kind, left(cwd))

def prepare(d):
    "Text, vocabulary, examples, recipes and models for the commands, by the commands"
    from electra_nbdev.data.examples import build_examples
    from electra_nbdev.data.tokenizer import load_tokenizer
    good, lines = hostile.GOOD, (hostile.GOOD/'text.txt').read_text().split('\n\n')
    (d/'text').mkdir()
    for i in range(6): (d/'text'/f'{i}.txt').write_text('\n\n'.join(lines[i::6]*40))
    for o in ('run', 'task'): shutil.copytree(good/o, d/o)
    shutil.copytree(good/'run'/'discriminator', d/'vocab')
    build_examples(d/'text'/'0.txt', d/'vocab', d/'examples', max_length=16, held_out=.1)
    recipe = RECIPE | dict(vocab_size=len(load_tokenizer(d/'vocab')))
    plain = recipe | dict(model_hparam_overrides=RECIPE['model_hparam_overrides'] | NO_DROPOUT)
    (d/'recipe.json').write_text(json.dumps(recipe))
    (d/'plain.json').write_text(json.dumps(plain))
    (d/'finetune.json').write_text(json.dumps(FINETUNE))
    rows = [f'the night was {o},{o%2}' for o in range(60)]
    (d/'rows.csv').write_text('\n'.join(['text,label', *rows, '']))

def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--kills', type=int, default=200, help='how many, at least (200)')
    p.add_argument('--seed', type=int, default=0, help='of the moments (0)')
    args, scripts = p.parse_args(), hostile.prepare()
    import electra_nbdev.data.examples, datatrove.executor # what the commands import
    tqdm.set_lock(threading.RLock()) # forks share the other one: one killed while it draws would stop the others
    with tempfile.TemporaryDirectory() as d: kill(args, Path(d), scripts)

def kill(args, d, scripts):
    "All runs, and what came of them"
    tempfile.tempdir, made, found = str(d), d/'made', kinds() # locks of killed processes stay in the folder too
    made.mkdir()
    prepare(made)
    for name,kind in found.items():
        leave_alone(kind, made, d/name.replace(' ', '_'), scripts)
        print(f'{name}: {kind.seconds:.1f} s when left alone', flush=True)
    runs, kills, equal, n = Counter(), Counter(), Counter(), 0
    while sum(kills.values())<args.kills:
        name = [*found][n%len(found)]
        cwd = folder(made, d/f'run{n}')
        more, wrong = attempt(found[name], random.Random(f'{args.seed} {n}'), cwd, scripts)
        if wrong: print(f'run {n}, {name}, {more} kills: {wrong}', flush=True)
        shutil.rmtree(cwd)
        runs[name], kills[name], n = runs[name]+1, kills[name]+more, n+1
        equal[name] += 0 if wrong else more
    table(('', 'runs', 'kills', 'equal'), [(o, runs[o], kills[o], equal[o]) for o in found])
    print(f'{sum(equal.values())} of {sum(kills.values())} kills: the run ended like the one that was left alone')
    print(f'commit {COMMIT}')
    if equal!=kills: raise SystemExit(1)

if __name__=='__main__': main()
