"""Commands in a process in which what takes long to import cannot be imported

With a command as its argument it runs that one. Without, it runs those that come in, a line of JSON each, in forks
that need no imports of their own."""
import json, os, runpy, shlex, sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

SCRIPTS = Path(sys.executable).parent

@dataclass
class Said:
    code:int
    out:str
    err:str

def forked(line, cwd, before):
    "Run a command in a fork of this process; `before` runs in the fork first"
    argv, out, err = shlex.split(line), Path(cwd)/'.stdout', Path(cwd)/'.stderr'
    if not (pid := os.fork()):
        code = 1
        try:
            for fd,path in ((1, out), (2, err)): os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), fd)
            sys.stdout, sys.stderr = os.fdopen(1, 'w', closefd=False), os.fdopen(2, 'w', closefd=False)
            os.chdir(cwd)
            before()
            sys.argv = [str(SCRIPTS/argv[0]), *argv[1:]]
            try: runpy.run_path(sys.argv[0], run_name='__main__')
            except SystemExit as e: code = e.code if isinstance(e.code, int) else int(e.code is not None)
            sys.stdout.flush(); sys.stderr.flush()
        except BaseException:
            import traceback
            with suppress(OSError): # where no file may grow, this one may not either
                traceback.print_exc()
                sys.stderr.flush()
        finally: os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    said = Said(code, out.read_text(), err.read_text())
    out.unlink(); err.unlink()
    return said

class Refused:
    "Imports that a refusal does not need"
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in ('torch', 'transformers', 'fastai', 'datasets', 'pandas'): raise RuntimeError(name)

def no_input():
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdin = os.fdopen(0, closefd=False)

if __name__=='__main__':
    sys.meta_path.insert(0, Refused())
    if sys.argv[1:]:
        sys.argv = shlex.split(sys.argv[1])
        runpy.run_path(sys.argv[0], run_name='__main__')
        sys.exit()
    import electra_nbdev.cli
    for asked in sys.stdin: print(json.dumps(asdict(forked(*json.loads(asked), no_input))), flush=True)
