"Commands as a user types them, what they say, and what happens to them meanwhile"
import atexit, builtins, io, json, os, subprocess, sys
from collections import Counter
from functools import cache
from pathlib import Path

import torch
from fastcore.script import _cli_func, set_ctx

import electra_nbdev.pretraining.runs # what a command imports, once for all of them
from electra_nbdev import cli
from lean import SCRIPTS, Said, forked

def typed(line, cwd, setup=None, curves=False):
    "Run a command in a fork of this process, which has done the slow imports; `setup` runs in the fork first"
    def before():
        # the thread pool is renewed at its first use after a fork; two threads at once would race for that
        torch.set_num_threads(1)
        if setup: setup()
        if not curves: electra_nbdev.pretraining.runs.plot_history = lambda *_: None # half a second each
    return forked(line, cwd, before)

def worked(line, cwd, setup=None, curves=False):
    "What a command says that has to work"
    said = typed(line, cwd, setup, curves)
    assert said.code==0, said
    return said

def at(step, signum):
    "For `typed`: a process that sends itself a signal after a step"
    def setup():
        from electra_nbdev.engine.training import CountUpdates
        was = CountUpdates.after_step
        def after_step(self):
            was(self)
            if self.learn.n_updates==step: os.kill(os.getpid(), signum)
        CountUpdates.after_step = after_step
    return setup

def files_of(folder):
    "{path: content} of all files in a folder"
    files = [o for o in sorted(Path(folder).rglob('*')) if o.is_file()]
    return {o.relative_to(folder).as_posix(): o.read_bytes() for o in files}

def files_read(folder, monkeypatch):
    "{path: how often it was opened for reading} of files in a folder, from now on"
    found = Counter()
    def note(path, mode='r', *_):
        writes = mode & (os.O_WRONLY|os.O_RDWR) if isinstance(mode, int) else set(mode) & set('wax+')
        if writes or not isinstance(path, str|os.PathLike): return
        path = Path(path).absolute()
        if path.is_relative_to(folder) and path.is_file(): found[path.relative_to(folder).as_posix()] += 1
    def watch(owner, name):
        def f(*args, was=getattr(owner, name), **kwargs):
            note(*args)
            return was(*args, **kwargs)
        monkeypatch.setattr(owner, name, f)
    for owner in (builtins, os, io): watch(owner, 'open') # that of `io` is of `Path`
    return found

def bad(home, line, *words, setup=None, run=None):
    "A command refuses: exit code 2 and one line, after notes; nothing is written, and nothing is changed but locks"
    def stamp(path):
        o = path.lstat()
        return (o.st_size, o.st_mtime_ns, o.st_ino) if path.is_file() and path.name!='.lock' else None
    def found(): return {o: stamp(o) for o in home.rglob('*')}
    before = found()
    said = run(line, home) if run else typed(line, home, setup)
    *notes, last = [o for o in said.err.splitlines() if o.strip()] or ['']
    assert said.code==2 and last.startswith(f'{line.split()[0]}: ') and 'Traceback' not in said.err, said
    assert all(o.startswith('Note: ') for o in notes), said
    for o in words: assert o in last, last
    assert found()==before

def terminal():
    "For `typed`: its output is a terminal"
    sys.stdout.isatty = lambda: True

def no_color():
    "The same where no colours are wanted"
    terminal()
    os.environ['NO_COLOR'] = '1'

def small_disk(): # as a full disk: no file may grow past 2,000 bytes
    import signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    import resource # unknown on Windows
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))

LEAN = Path(__file__).with_name('lean.py')

def alone(line, cwd):
    "A command in a process of its own, in which what takes long to import cannot be imported"
    name, _, rest = line.partition(' ')
    done = subprocess.run([sys.executable, LEAN, f'{SCRIPTS/name} {rest}'], cwd=cwd, capture_output=True, text=True)
    return Said(done.returncode, done.stdout, done.stderr)

@cache
def _lean():
    "The process of `lean.py`, started where it is needed first"
    found = subprocess.Popen([sys.executable, LEAN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(found.terminate)
    return found

def lean(line, cwd):
    "As `alone`, in a fork of one such process for all: a fifth of a second less"
    print(json.dumps([line, str(cwd)]), file=_lean().stdin, flush=True)
    return Said(**json.loads(_lean().stdout.readline()))

def processor_seconds(line, cwd):
    "Of a command, whatever runs beside it"
    before = os.times()
    alone(line, cwd)
    after = os.times()
    return after.children_user+after.children_system - before.children_user-before.children_system

def convert_cli(**kw):
    "`electra_convert` as its command calls it"
    with set_ctx(_cli_func, cli.electra_convert.__wrapped__): return cli.electra_convert(**kw)
