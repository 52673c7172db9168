"""Folders of a stranger: models, tasks and runs, spoiled at random, given to every command that reads one.

Each attempt takes a good folder, spoils one thing (a name that leads elsewhere, a value of another type or size, a
file that is cut, a header that claims gigabytes, a link, a pipe) and types one command. What counts as held: the
command succeeds, or it says one line and exits with 2 leaving nothing behind; no file appears outside of the target,
memory stays below 2 GB, and it ends within a minute."""
import argparse, json, os, random, resource, runpy, shutil, struct, sys, tempfile, time, traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

GOOD = Path(__file__).resolve().parents[1]/'tests'/'fixtures'/'v0_1' # folders that version 0.1 wrote
SECONDS, MEMORY = 60, 2e9
NAMES = ('..', '../stolen', '../../stolen', '{jail}/stolen', 'C:\\stolen', '..\\stolen', 'nul', 'a/b',
         '.hidden', '', 'x'*300, 'a\nb')
VALUES = (None, True, -1, 0, 2**62, 1e308, 'x'*9999, '', [], {}, [[]], {'a': {}}, '../stolen', '{jail}/stolen',
          float('nan'))

# What is spoiled: each takes a random generator, the folder, and the jail that nothing may leave

def some_file(rng, folder, *endings):
    return rng.choice(sorted(o for o in folder.rglob('*') if o.name.endswith(endings)))

def leaves(found, path=()):
    "Paths to all values of a JSON object"
    for k,v in found.items() if isinstance(found, dict) else enumerate(found):
        yield (*path, k)
        if isinstance(v, (dict, list)): yield from leaves(v, (*path, k))

def put(value, jail): return value.format(jail=jail) if isinstance(value, str) else value

def value(rng, folder, jail):
    "A value of another type or size"
    path = some_file(rng, folder, '.json')
    found = json.loads(path.read_text())
    *way, last = rng.choice([*leaves(found)])
    at = found
    for o in way: at = at[o]
    at[last] = put(rng.choice(VALUES), jail)
    path.write_text(json.dumps(found))
    return f'{path.name}: {"/".join(map(str, [*way, last]))} is {str(at[last])[:40]!r}'

def name(rng, folder, jail):
    "A name that leads elsewhere, where the folder has tasks or a recipe"
    from safetensors.torch import load_file, save_file
    from electra_nbdev.networks.foreign import head_name
    evil = put(rng.choice(NAMES), jail)
    for path in sorted(folder.rglob('tasks.json')):
        found = json.loads(path.read_text())
        first = next(iter(found['tasks']))
        found['tasks'][evil] = found['tasks'].pop(first) | {}
        found['tasks'][evil]['settings']['name'] = evil
        found['tasks'][evil]['kind'] = 'TagTask' # whose networks are written to a folder with the name of the task
        path.write_text(json.dumps(found))
        heads = path.with_name('heads.safetensors')
        own, other = f'{head_name(first)}.', f'{head_name(evil)}.'
        save_file({k.replace(own, other): o for k,o in load_file(heads).items()}, heads)
    for path in sorted(folder.glob('*.npz')):
        import numpy as np
        np.savez(path, **{k.replace('specific/about', f'specific/{evil}'): o for k,o in np.load(path).items()})
    for path in sorted(folder.rglob('hparams.json')):
        path.write_text(json.dumps(json.loads(path.read_text()) | dict(model_name=evil)))
    return f'the name {evil[:40]!r}'

def code(rng, folder, jail):
    "Python code that a configuration asks for"
    evil = put(rng.choice(NAMES), jail)
    for path in sorted(folder.rglob('config.json')):
        extra = dict(auto_map={'AutoConfig': f'{evil}--x.Y', 'AutoModel': 'x.Y'},
                     model_type=rng.choice(['electra', evil]))
        path.write_text(json.dumps(json.loads(path.read_text()) | extra))
        (path.parent/'x.py').write_text(f'open({str(jail/"stolen")!r}, "w")')
    return f'code, and the name {evil[:40]!r}'

def size(rng, folder, jail):
    "A network that would be far too large"
    path = some_file(rng, folder, 'config.json')
    found = json.loads(path.read_text())
    key = rng.choice([k for k,v in found.items() if type(v) is int])
    found[key] = rng.choice([10**5, 10**6, 10**9, 2**62])
    path.write_text(json.dumps(found))
    return f'{path.parent.name}/config.json: {key} is {found[key]}'

def text(rng, folder, jail):
    "JSON that is none"
    path = some_file(rng, folder, '.json', '.jsonl')
    whole = path.read_bytes()
    spoiled = [whole[:rng.randrange(len(whole))], b'', b'['*100_000, b'[]', b'"x"', b'\xff\xfe\0',
               whole.replace(b'"', b'\0"', 1)]
    path.write_bytes(rng.choice(spoiled))
    return f'{path.name} is {path.read_bytes()[:20]!r} ...'

def tensors(rng, folder, jail):
    "A file of tensors that is cut, or whose header claims what is not there"
    path = some_file(rng, folder, '.safetensors', '.npz')
    whole = path.read_bytes()
    if path.suffix=='.npz':
        path.write_bytes(whole[:rng.randrange(len(whole))])
        return f'{path.name} is cut'
    def claim(header): return struct.pack('<Q', len(o := json.dumps(header).encode())) + o
    header = json.loads(whole[8:8+struct.unpack('<Q', whole[:8])[0]])
    first = next(k for k in header if k!='__metadata__')
    huge = claim({first: dict(dtype='F32', shape=[10**6, 10**6], data_offsets=[0, 4*10**12])})
    odd = claim({first: dict(dtype='F32', shape=[2], data_offsets=[0, 8])}) + bytes(8)
    kinds = dict(cut=whole[:rng.randrange(len(whole))], length=struct.pack('<Q', 2**62)+whole[8:],
                 huge=huge, odd=odd, empty=b'', noise=whole[:len(whole)//2] + rng.randbytes(len(whole)-len(whole)//2))
    kind = rng.choice([*kinds])
    path.write_bytes(kinds[kind])
    return f'{path.parent.name}/{path.name}: {kind}'

def place(rng, folder, jail):
    "Something else where a file was"
    path = some_file(rng, folder, '.json', '.safetensors', '.txt', '.jsonl', '.npz')
    path.unlink()
    kinds = dict(absent=lambda: None, folder=path.mkdir, pipe=lambda: os.mkfifo(path),
                 loop=lambda: path.symlink_to(path), zeros=lambda: path.symlink_to('/dev/zero'),
                 outside=lambda: path.symlink_to('/etc/passwd'),
                 deep=lambda: path.joinpath(*['d']*200).mkdir(parents=True))
    kind = rng.choice([*kinds])
    kinds[kind]()
    return f'{path.parent.name}/{path.name}: {kind}'

SPOILED = value, name, code, size, text, tensors, place
COMMANDS = {
    'run': ('electra_convert --src in --dst out', 'electra_convert --src in --dst out.npz',
            'electra_score --model in --text lines.txt --out out', 'electra_score --model in --show night',
            'electra_finetune --model in --csv rows.csv --text text --label label --out out --hparams {"debug":true}',
            'electra_pretrain --init in --data examples --out out --steps 2',
            'electra_evaluate --run in --data examples'),
    'task': ('electra_convert --src in --dst out',
             'electra_predict --model in --task about --input lines.txt --out out.tsv',
             'electra_finetune --model in --csv rows.csv --text text --label label --out out --hparams {"debug":true}'),
    'electric_run': ('electra_convert --src in --dst out', 'electra_score --model in --text lines.txt --out out',
                     'electra_pretrain --init in --data examples --out out --steps 2'),
    'interrupted': ('electra_convert --src in --dst out', 'electra_evaluate --run in --data examples',
                    'electra_score --model in --vocab examples/vocab --text lines.txt --out out'),
    'official': ('electra_convert --src in/weights.npz --dst out',)}

@dataclass
class Attempt:
    "What a command did with a spoiled folder"
    folder:str
    spoiled:str
    command:str
    code:int
    said:str
    seconds:float
    memory:float # bytes
    outside:list # files that appeared beside the target

    @property
    def wrong(self):
        "What did not hold; empty if all did"
        lines = [o for o in self.said.splitlines() if not o.startswith(('Note:', 'NOTE'))]
        if self.outside: return f'wrote {self.outside[:3]}'
        if self.code not in (0, 2): return f'exit code {self.code}'
        if self.code==2 and len(lines)!=1: return f'{len(lines)} lines'
        if self.memory>MEMORY: return f'{self.memory/1e9:.1f} GB'
        return ''

def files_of(jail): return {str(o.relative_to(jail)) for o in jail.rglob('*')}

def attempt(seed, scripts, made):
    "One spoiled folder, one command, in a fork of this process, which has done the slow imports"
    rng = random.Random(seed)
    jail = Path(tempfile.mkdtemp(prefix='hostile-')).resolve()
    try:
        work, good = jail/'a'/'b', rng.choice([*COMMANDS])
        work.mkdir(parents=True)
        shutil.copytree(made/good if good=='official' else GOOD/good, work/'in')
        (work/'lines.txt').write_text('the night was dark\nof the ring\n')
        (work/'rows.csv').write_text('text,label\n' + ''.join(f'the night was {o},{o%2}\n' for o in range(40)))
        shutil.copytree(made/'examples', work/'examples')
        while True:
            try: what = rng.choice(SPOILED)(rng, work/'in', jail)
            except (IndexError, StopIteration): continue # nothing of that kind is there
            break
        command = rng.choice(COMMANDS[good])
        before, start = files_of(jail), time.monotonic()
        code, memory = typed(command, work, scripts, jail.with_suffix('.said'))
        said = jail.with_suffix('.said').read_text(errors='replace')
        new = [o for o in files_of(jail)-before if not o.startswith(('a/b/out', 'a/b/in'))]
        if code==2: new += [o for o in files_of(jail)-before if o.startswith('a/b/out')]
        return Attempt(good, what, command, code, said, time.monotonic()-start, memory, sorted(new))
    finally:
        shutil.rmtree(jail, ignore_errors=True)
        jail.with_suffix('.said').unlink(missing_ok=True)

def become(command, cwd, scripts, said):
    "The rest of a fork: what the command does, its lines in a file, and an end with its exit code"
    argv, code = command.split(), 1
    try:
        fd = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0); os.dup2(os.open(os.devnull, os.O_WRONLY), 1); os.dup2(fd, 2)
        sys.stdout, sys.stderr = os.fdopen(1, 'w', closefd=False), os.fdopen(2, 'w', closefd=False)
        import torch
        torch.set_num_threads(1)
        os.chdir(cwd)
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        sys.argv = [str(scripts/argv[0]), *argv[1:]]
        try: runpy.run_path(sys.argv[0], run_name='__main__')
        except SystemExit as e: code = e.code if isinstance(e.code, int) else int(e.code is not None)
        else: code = 0
    except BaseException: traceback.print_exc()
    sys.stdout.flush(); sys.stderr.flush()
    os._exit(code)

def typed(command, cwd, scripts, said):
    "Exit code, and bytes of memory, of a command; one that does not end is killed"
    if not (pid := os.fork()): become(command, cwd, scripts, said)
    end = time.monotonic()+2*SECONDS
    while not (done := os.wait4(pid, os.WNOHANG))[0] and time.monotonic()<end: time.sleep(.01)
    if not done[0]:
        os.kill(pid, 9)
        done = os.wait4(pid, 0)
    return os.waitstatus_to_exitcode(done[1]), 1024*done[2].ru_maxrss

def prepare():
    "The slow imports, and a home for what commands cache"
    os.environ.update(HF_HUB_OFFLINE='1', HF_DATASETS_OFFLINE='1', MPLBACKEND='Agg', OMP_NUM_THREADS='1')
    import electra_nbdev.cli, electra_nbdev.sharing.convert, electra_nbdev.scoring.likelihood
    import electra_nbdev.finetuning.qa, electra_nbdev.finetuning.tagging
    import electra_nbdev.finetuning.trials, electra_nbdev.pretraining.continue_pretraining
    return Path(sys.executable).parent

def made_here(folder):
    "Good things that no version has left: a fine-tuned model under official names, and examples for the runs"
    from electra_nbdev.sharing.convert import convert_weights
    from electra_nbdev.data.examples import build_examples
    convert_weights(GOOD/'task', folder/'official'/'weights.npz')
    shutil.copy(GOOD/'task'/'model'/'vocab.txt', folder/'official')
    build_examples(GOOD/'text.txt', GOOD/'run'/'discriminator', folder/'examples', max_length=16, held_out=.1)
    return folder

def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--folders', type=int, default=100, help='how many (100)')
    p.add_argument('--seed', type=int, default=0, help='of the first (0)')
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as d: attempts(args, prepare(), made_here(Path(d)))

def attempts(args, scripts, made):
    "All attempts, and what came of them"
    found, counts = [], Counter()
    for seed in range(args.seed, args.seed+args.folders):
        found.append(o := attempt(seed, scripts, made))
        counts[o.code] += 1
        if o.wrong: print(f'seed {seed}: {o.wrong}: {o.folder}, {o.spoiled}; {o.command}\n{o.said[-1500:]}', flush=True)
    print(f'{len(found)} folders: {counts[2]} refused in one line, {counts[0]} used, '
          f'{sum(bool(o.wrong) for o in found)} not held; at most {max(o.seconds for o in found):.0f} s '
          f'and {max(o.memory for o in found)/1e9:.2f} GB')
    if any(o.wrong for o in found): raise SystemExit(1)

if __name__=='__main__': main()
