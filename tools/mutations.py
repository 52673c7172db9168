"""Draw single changes to the code, one at a time, and see which of them a notebook or pytest notices.

`mutations.py --n 60 --seed 1 --out FILE` draws places over all modules, changes the cell of the notebook, exports it
to a copy of the repository, and runs there the notebook itself, pytest (files that name the module first), and the
notebooks that import the module. The first failure ends a change. FILE keeps a line of JSON for each change, so that
a stopped session goes on where it was."""
import argparse, ast, json, os, random, re, shutil, subprocess, sys, tempfile, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
SWAPS = {ast.Lt: '<=', ast.LtE: '<', ast.Gt: '>=', ast.GtE: '>', ast.Eq: '!=', ast.NotEq: '==', ast.In: 'not in',
         ast.NotIn: 'in', ast.Is: 'is not', ast.IsNot: 'is', ast.Add: '-', ast.Sub: '+', ast.Mult: '/', ast.Div: '*',
         ast.FloorDiv: '*', ast.Mod: '//', ast.BitAnd: '|', ast.BitOr: '&', ast.And: 'or', ast.Or: 'and'}

def changed(node):
    "Source of the node after one change, or None where it has none"
    def text(o): return f'({ast.unparse(o)})'
    match node:
        case ast.Compare(ops=[op]) if type(op) in SWAPS:
            return f'{text(node.left)} {SWAPS[type(op)]} {text(node.comparators[0])}'
        case ast.BinOp() if type(node.op) in SWAPS and not isinstance(node.left, ast.Constant | ast.JoinedStr):
            return f'{text(node.left)} {SWAPS[type(node.op)]} {text(node.right)}'
        case ast.BoolOp():
            return f' {SWAPS[type(node.op)]} '.join(map(text, node.values))
        case ast.UnaryOp(op=ast.Not()): return text(node.operand)
        case ast.Constant(value=bool()): return str(not node.value)
        case ast.Constant(value=int()): return str(node.value+1)
        case ast.Constant(value=float()): return str(node.value*2+.5)
        case ast.Expr(value=ast.Call()): return 'None'

PLOTS = {'ax', 'axs', 'plt', 'fig'}
PATHS = {'out', 'folder', 'path', 'tmp', 'run', 'where', 'Path'}

def root(node):
    "Name at the left end of a chain of attributes, calls and divisions"
    while not isinstance(node, ast.Name | ast.Constant | ast.JoinedStr):
        inner = [getattr(node, o) for o in ('value', 'func', 'left') if hasattr(node, o)]
        if not inner: return ''
        node = inner[0]
    return getattr(node, 'id', '')

def is_path(n):
    "Whether a division joins a path"
    def text(o): return isinstance(o, ast.JoinedStr) or isinstance(getattr(o, 'value', None), str)
    return any(text(o) or root(o) in PATHS for o in (n.left, n.right))

def skipped(tree):
    "Nodes whose change means nothing or cannot go unseen: types of arguments, messages, drawing, joined paths"
    for n in ast.walk(tree):
        found = []
        if isinstance(n, ast.Call) and root(n.func) in PLOTS: found = [n]
        if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div) and is_path(n): yield n
        if isinstance(n, ast.arg): found = [n.annotation]
        if isinstance(n, ast.FunctionDef): found = [n.returns]
        if isinstance(n, ast.AnnAssign): found = [n.annotation]
        if isinstance(n, ast.JoinedStr | ast.Raise): found = [n]
        for o in found:
            if o is not None: yield from ast.walk(o)

def sites():
    "(notebook, cell, first and last offset, new source) of all possible changes of exported cells"
    for path in sorted((ROOT/'nbs').rglob('[0-9]*.ipynb')):
        for i,cell in enumerate(json.loads(path.read_text(encoding='utf-8'))['cells']):
            source = ''.join(cell['source'])
            if cell['cell_type']!='code' or not re.search(r'(?m)^#\|\s*export', source): continue
            tree, lines = ast.parse(source), source.encode().splitlines(keepends=True)
            no = set(skipped(tree))
            def offset(line, col): return len(b''.join(lines[:line-1])) + col
            for n in ast.walk(tree):
                new = None if n in no else changed(n)
                if new is None: continue
                a, b = offset(n.lineno, n.col_offset), offset(n.end_lineno, n.end_col_offset)
                yield path.relative_to(ROOT).as_posix(), i, a, b, f'({new})' if not isinstance(n, ast.Expr) else new

def copy_of_repo(folder):
    "The files that git knows, in a folder"
    names = subprocess.run(['git', 'ls-files', '-z'], cwd=ROOT, text=True, stdout=subprocess.PIPE).stdout
    for o in names.strip('\0').split('\0'):
        (folder/o).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT/o, folder/o)
    return folder

def run(cmd, cwd, limit):
    "The last lines of a command that failed or took too long, or None"
    env = os.environ | dict(PYTHONPATH=str(cwd), OMP_NUM_THREADS='1', HF_HUB_OFFLINE='1', HF_DATASETS_OFFLINE='1')
    env.pop('IN_TEST', None)
    with tempfile.TemporaryFile('w+') as f:
        p = subprocess.Popen([str(o) for o in cmd], cwd=cwd, env=env, stdout=f, stderr=f, start_new_session=True)
        try: code = p.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, 9)
            p.wait()
            return [f'longer than {limit} s']
        f.seek(0)
        return f.read().splitlines()[-60:] if code else None

def module_of(path):
    "Name of the module that a notebook exports"
    text = (ROOT/path).read_text(encoding='utf-8')
    return re.search(r'#\|\s*default_exp\s+([\w.]+)', text).group(1)

def test_files(folder, module):
    "Test files, those that name the module first and slow ones last"
    def rank(o):
        text = o.read_text(encoding='utf-8')
        named = re.search(rf'electra_nbdev.*\b{module.split(".")[-1]}\b', text)
        return o.stem=='test_survival', not named, o.stem
    form = 'test_house', 'test_import_order' # these look at the form of the code
    return sorted((o for o in (folder/'tests').glob('test_*.py') if o.stem not in form), key=rank)

def caught_by(folder, site):
    "What notices a change: a line, or None"
    path, cell, a, b, new = site
    notebook, module = folder/path, module_of(path)
    clean, where = notebook.read_text(encoding='utf-8'), folder/'electra_nbdev'/(module.replace('.', '/')+'.py')
    nb, code = json.loads(clean), where.read_text(encoding='utf-8')
    source = ''.join(nb['cells'][cell]['source']).encode()
    nb['cells'][cell]['source'] = (source[:a] + new.encode() + source[b:]).decode()
    notebook.write_text(json.dumps(nb), encoding='utf-8')
    try:
        export = 'from nbdev.export import nb_export; import sys; nb_export(sys.argv[1])'
        if said := run([sys.executable, '-c', export, path], folder, 60): return f'export: {said[-1]}'
        if run([BIN/'nbdev-test', path], folder, 300): return f'notebook {notebook.stem}'
        command = sys.executable, '-m', 'pytest', '-q', '-x', '-p', 'no:cacheprovider'
        if said := run([*command, *test_files(folder, module)], folder, 1500):
            failed = [o for o in said if o.startswith(('FAILED', 'ERROR', 'longer'))]
            return 'pytest ' + (failed[0] if failed else said[-1])[:200]
        for o in sorted((folder/'nbs').rglob('[0-9]*.ipynb')):
            if o==notebook or f'{module} import' not in o.read_text(encoding='utf-8'): continue
            if run([BIN/'nbdev-test', o.relative_to(folder)], folder, 300): return f'notebook {o.stem}'
    finally:
        notebook.write_text(clean, encoding='utf-8')
        where.write_text(code, encoding='utf-8')

def line_of(site):
    "The change in words"
    path, cell, a, b, new = site
    source = ''.join(json.loads((ROOT/path).read_text(encoding='utf-8'))['cells'][cell]['source']).encode()
    line = source[:a].count(b'\n')
    text = source.decode().splitlines()[line].strip()
    return dict(notebook=path, cell=cell, line=text, old=source[a:b].decode(), new=new)

if __name__=='__main__':
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--n', type=int, default=60)
    p.add_argument('--seed', type=int, default=1)
    p.add_argument('--jobs', type=int, default=2)
    p.add_argument('--modules', nargs='+', help='such as method.masking; all if none is given')
    p.add_argument('--out', required=True, help='a .jsonl file')
    args = p.parse_args()
    places = [o for o in sites() if not args.modules or module_of(o[0]) in args.modules]
    drawn, out = random.Random(args.seed).sample(places, args.n), Path(args.out)
    done = {json.loads(o)['number'] for o in out.read_text().splitlines()} if out.exists() else set()
    with tempfile.TemporaryDirectory(prefix='mutations-') as tmp:
        free = Queue()
        for i in range(args.jobs): free.put(copy_of_repo(Path(tmp)/str(i)/'main'))
        def work(k):
            folder, start = free.get(), time.time()
            try: caught = caught_by(folder, drawn[k])
            finally: free.put(folder)
            found = dict(number=k, caught=caught, seconds=round(time.time()-start)) | line_of(drawn[k])
            with open(out, 'a') as f: f.write(json.dumps(found)+'\n')
            print(k, caught or 'SURVIVED', found['notebook'], found['line'], '->', found['new'], flush=True)
        with ThreadPoolExecutor(args.jobs) as pool: list(pool.map(work, [k for k in range(args.n) if k not in done]))
    rows = [json.loads(o) for o in out.read_text().splitlines()]
    print(f"{sum(o['caught'] is not None for o in rows)} of {len(rows)} caught")
