"""What the benchmarks share: sides that measure in processes of their own and take turns, the text, the machine."""
import argparse, json, os, platform, re, resource, subprocess, sys
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT/'benchmarks'/'results'
GPU_DATA = ROOT/'gpu-data' # What `one_gpu.py --prepare` leaves beside the checkout; git ignores it

def commit(root=ROOT):
    """Short hash of a checkout, with `+changes` if it differs in more than results

    Without git it is what `one_gpu.py --prepare` has left in a file, else `unknown`."""
    told = root/'gpu-data'/'COMMIT'
    env = {k: v for k,v in os.environ.items() if not k.startswith('GIT_')}
    env['GIT_CEILING_DIRECTORIES'] = str(root.parent) # not of a repository around it
    def git(*words): return subprocess.run(['git', *words], cwd=root, env=env, capture_output=True, text=True)
    try: head = git('rev-parse', '--short', 'HEAD')
    except FileNotFoundError: head = None
    if head is None or head.returncode: return told.read_text().strip() if told.is_file() else 'unknown'
    return head.stdout.strip() + '+changes'*bool(git('status', '--porcelain', '--', '.', ':!benchmarks/results').stdout)

# What is measured, as it is before; a copy without .git is told by the variable
COMMIT = os.environ.get('ELECTRA_COMMIT') or commit()

def with_commit(facts):
    "A result with the commit that was measured, after those of what was in its file before"
    before = facts['commit'].split(', ') if 'commit' in facts else []
    return facts | dict(commit=', '.join(dict.fromkeys([*before, COMMIT])))

def write_result(facts, path):
    "Write a result, which names the commit"
    Path(path).write_text(json.dumps(with_commit(facts), indent=1)+'\n')

def report(facts, path=None):
    "Print a result, which names the commit, as the last line; keep it if there is a path"
    if path: write_result(facts, path)
    print(json.dumps(with_commit(facts)))

def arguments(doc, **options):
    "Command line of a benchmark; with `--side` the process measures"
    p = argparse.ArgumentParser(description=doc.strip().splitlines()[0])
    for name,(default,what) in options.items():
        p.add_argument(f'--{name}', type=type(default), default=default, help=f'{what} (default: {default!r})')
    p.add_argument('--side', help=argparse.SUPPRESS)
    return p.parse_args()

def training_options(doc, name, flops=2e13, results=None):
    "A parser of what comparisons of trainings ask for"
    p = argparse.ArgumentParser(description=doc.splitlines()[0])
    p.add_argument('--preset', default='tiny', help='recipe of all runs (tiny)')
    p.add_argument('--hparams', default='{}', help='JSON of hyper-parameters that all runs have')
    p.add_argument('--flops', type=float, default=flops, help=f'operations of every run ({flops:g})')
    p.add_argument('--seeds', type=int, nargs='*', default=[0, 1, 2], help='a run of each kind for each (0 1 2)')
    p.add_argument('--device', default='cpu', help='cpu, cuda ... (cpu)')
    p.add_argument('--work', type=Path, default=Path('runs')/name, help='folder for networks and trials')
    p.add_argument('--out', type=Path, default=RESULTS/f'{results or name}.json', help='results')
    return p

def begun(path, setting, **empty):
    "Results so far, which have to be of the same setting"
    found = json.loads(path.read_text()) if path.is_file() else dict(setting=setting) | empty
    if found['setting']==setting: return found
    raise SystemExit(f"{path} has another setting: {found['setting']}; give another --out")

class Side:
    "A process that measures one side, once for every line that it is sent"
    def __init__(self, name, args, wait=True): # several that do not wait get ready at the same time
        given = [f'--{k}={v}' for k,v in vars(args).items() if k!='side']
        self.name, command = name, [sys.executable, sys.argv[0], *given, f'--side={name}']
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if wait: self.answer()

    def answer(self):
        for line in self.process.stdout:
            if line.startswith('{'): return json.loads(line)
        raise SystemExit(f'{self.name} ended with status {self.process.wait()}')

    def measure(self):
        print(file=self.process.stdin, flush=True)
        return self.answer()

    def end(self):
        self.process.stdin.close()
        self.process.wait()

def memory_of(name, args):
    "Memory of one measurement, in a process of its own"
    side = Side(name, args)
    try: return side.measure()
    finally: side.end()

def serve(build, measure):
    "The other end of a `Side`: get ready, then answer"
    state = build()
    print('{}', flush=True)
    for _ in sys.stdin: print(json.dumps(measure(state)), flush=True)

def rounds(names, args, show):
    "Measurements of every side, in turns, so that a machine that slows down slows all of them"
    sides, got = [Side(o, args) for o in names], {o: [] for o in names}
    for i in range(args.rounds):
        for o in sides:
            got[o.name].append(o.measure())
            print(f'round {i+1}  {o.name:<18} {show(got[o.name][-1])}', flush=True)
    for o in sides: o.end()
    return got

def masked_baby():
    "Where the masked language model of `electra-baby`'s body is; its weights are in the history of the repository"
    folder = RESULTS/'baby/masked-baby-en/generator'
    if folder.is_dir(): return folder
    raise SystemExit(f'git checkout 5dc23a0 -- {folder.relative_to(ROOT)} brings the weights of the masked language '
                     'model; then repeat this command')

def ratio(above, below):
    "Median and spread of the ratios of each round"
    r = [a/b for a,b in zip(above, below)]
    return dict(ratio=round(median(r), 3), spread=[round(min(r), 3), round(max(r), 3)])

def table(head, rows):
    "Rows under a head, in columns"
    def shown(o): return f'{o:,.2f}' if isinstance(o, float) else f'{o:,}' if isinstance(o, int) else str(o)
    cells = [[shown(o) for o in r] for r in (head, *rows)]
    width = [max(map(len, c)) for c in zip(*cells)]
    print()
    for r in cells: print('  '.join(c.rjust(w) if i else c.ljust(w) for i,(c,w) in enumerate(zip(r, width))))
    print(flush=True)

def memory():
    "Megabytes in memory now, and at most so far"
    unit = 2**10 if sys.platform=='linux' else 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss/unit
    status = Path('/proc/self/status')
    if not status.exists(): return peak, peak
    return int(re.search(r'VmRSS:\s+(\d+)', status.read_text())[1])/2**10, peak

def text_folder(args):
    "Text to read: `--text`, else the variable ELECTRA_TEXT, else the embedded sample"
    if args.text: return Path(args.text)
    from electra_nbdev.data.text import sample_corpus
    return sample_corpus()

def cpu():
    "Model of the processor"
    info = Path('/proc/cpuinfo')
    lines = info.read_text().splitlines() if info.exists() else []
    names = [o.split(':')[1].strip() for o in lines if o.startswith('model name')]
    return names[0] if names else platform.processor() or platform.machine()

def cores(): return len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()

def has_amx(): return 'amx_tile' in (Path('/proc/cpuinfo').read_text() if Path('/proc/cpuinfo').exists() else '')

def gpu():
    "Name of the GPU, empty if there is none"
    import torch
    return torch.cuda.get_device_name() if torch.cuda.is_available() else ''

def machine():
    "Short name of processor, cores and GPU, fit for a file"
    name = re.sub(r'\((r|tm)\)|processor|\bcpu\b|@.*|\d+-core', ' ', cpu().lower())
    return re.sub(r'[^a-z0-9]+', '-', f"{name} {'amx' if has_amx() else ''} {cores()} cores {gpu().lower()}").strip('-')
