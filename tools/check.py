"""What `make test` runs: stage by stage, a line each, stopping at the first that fails.

Stages work on a copy of the files that git knows or would add, so nothing in the working tree changes
and nothing passes only because of a file that a fresh clone would lack. `check.py STAGE …` runs some of them."""
import json, os, re, shutil, subprocess, sys, time
from configparser import ConfigParser
from filecmp import cmp
from pathlib import Path
from sysconfig import get_path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

ROOT, LIB = Path(__file__).resolve().parents[1], 'electra_nbdev'
BIN = Path(sys.executable).parent
# With IN_TEST nbdev-export would do nothing, silently; a PYTHONPATH may hold another copy of the package
ENV = {k:v for k,v in os.environ.items() if k not in ('IN_TEST', 'PYTHONPATH') and not k.startswith('GIT_')}
ENV.update(OMP_NUM_THREADS='1', HF_HUB_OFFLINE='1', HF_DATASETS_OFFLINE='1', PYTHONUNBUFFERED='1')

class Failed(Exception):
    "A stage's finding: what is wrong, and how to fix it"
    def __init__(self, *lines, failed=1, passed=0):
        super().__init__('\n'.join(lines))
        self.failed,self.passed = failed,passed

def as_text(cwd): return dict(cwd=cwd, env=ENV, encoding='utf-8', stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

def program(name, folder=BIN):
    "A program in a folder of programs, which on Windows has an ending"
    return shutil.which(name, path=str(folder)) or folder/name

def sh(*cmd, cwd):
    "Run quietly; what the command said matters only if it fails"
    r = subprocess.run([str(o) for o in cmd], **as_text(cwd))
    if r.returncode:
        name = ' '.join(Path(o).name for o in map(str, cmd[:3]))
        raise Failed(f"`{name}` exits with {r.returncode}", r.stdout[-4000:].rstrip())
    return r.stdout

def follow(*cmd, cwd, show=lambda o: o):
    "Run, passing on each line as it comes in the form that `show` gives it; exit code and lines"
    lines = []
    with subprocess.Popen([str(o) for o in cmd], **as_text(cwd)) as p:
        for o in p.stdout:
            lines.append(o.rstrip('\n').replace(f'{cwd}{os.sep}', ''))
            if (s := show(lines[-1])) is not None: print(s, flush=True)
    return p.returncode, lines

# The working tree, and copies of it

def listing(root):
    "Files that git knows or would add; without git, those that are not plainly built or private"
    r = subprocess.run(['git', 'ls-files', '-coz', '--exclude-standard'], **as_text(root))
    if r.returncode==0 and r.stdout: return sorted({o for o in r.stdout.split('\0') if o and (root/o).is_file()})
    skip = re.compile(r'^(_proc|_docs|build|dist|runs|\.git|\.venv|[^/]*\.egg-info)/|'
                      r'(^|/)(__pycache__|\.ipynb_checkpoints|\.pytest_cache|\.hypothesis)/')
    return sorted(o for p in root.rglob('*') if p.is_file() and not skip.search(o := p.relative_to(root).as_posix()))

def copy_tree(dst):
    "A copy of the working tree at `dst`, and the names in it"
    names = listing(ROOT)
    for o in names:
        (dst/o).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT/o, dst/o, follow_symlinks=False)
    return names

def differing(names, a, b): return [o for o in names if not ((b/o).is_file() and cmp(a/o, b/o, shallow=False))]
def notebooks(names): return [o for o in names if o.startswith('nbs/') and o.endswith('.ipynb')]

def is_json(p):
    try: return bool(json.loads(p.read_text(encoding='utf-8')))
    except ValueError: return False

# Stages: each takes an empty folder and returns how many things passed, and what they were

def export(tmp):
    "Notebooks are clean, and every module is what its notebook exports: no more, no less"
    names = copy_tree(tmp)
    torn = [o for o in notebooks(names) if not is_json(ROOT/o)]
    if torn: raise Failed(*[f"{o} is not JSON: a merge conflict?" for o in torn], "`nbdev-fix` repairs those")
    for p in (tmp/LIB).rglob('*.py'):
        if p.name!='__init__.py': p.unlink()
    sh(program('nbdev-clean'), cwd=tmp)
    dirty = differing(notebooks(names), ROOT, tmp)
    if dirty: raise Failed(*[f"{o} is not clean" for o in dirty], "`make export` cleans them")
    sh(program('nbdev-export'), cwd=tmp)
    mods = [o for o in names if o.startswith(f'{LIB}/') and o.endswith('.py')]
    there, gone = [o for o in names if (tmp/o).is_file()], [o for o in mods if not (tmp/o).is_file()]
    bad  = [f"{o}: no notebook exports it; remove it, or name it in a `#| default_exp`" for o in gone]
    bad += [f"{o}: not what the notebooks export" for o in differing(there, ROOT, tmp)]
    bad += [f"{o}: missing" for o in sorted(set(listing(tmp)) - set(names))]
    if bad: raise Failed(*bad, "`make export` writes modules afresh")
    return 2, f"{len(notebooks(names))} notebooks clean, {len(mods)} modules as exported"

def pages(tmp):
    "The pages of the site have what `tools/pages.py` looks for: links with targets, texts for pictures, readable code"
    names = copy_tree(tmp)
    sh(sys.executable, 'tools/pages.py', cwd=tmp)
    return 1, f"{len(notebooks(names))} pages of the site"

# Megabytes that each model may have
MODELS = {'electra-tiny-en': 3, 'electric-tiny-en': 5, 'electra-baby-en': 8, 'electric-baby-en': 15,
          'electra-check-en': 8}

PROBE = '''
import importlib, json, pkgutil, sys
from importlib.metadata import distribution
from pathlib import Path
import electra_nbdev as lib
d, here = distribution('electra_nbdev'), Path(lib.__file__).parent
mods = [o.name for o in pkgutil.walk_packages(lib.__path__, 'electra_nbdev.')]
for o in mods: importlib.import_module(o)
scripts = [o.name for o in d.entry_points if o.group=='console_scripts' and callable(o.load())]
from electra_nbdev.cli import electra_score
words = electra_score(show='The cat sat on the mathematics.', model='tiny').words
Path('text').write_text('He opened the door.', encoding='utf-8')
electra_score(text='text', model='electric', out='rows')
tokens = json.loads(Path('rows').read_bytes())['tokens']
files = [p.relative_to(here.parent).as_posix() for p in here.rglob('*') if p.is_file() and p.suffix!='.pyc']
found = dict(here=str(here), version=lib.__version__, dist=d.version, mods=mods, scripts=scripts, requires=d.requires,
             extras=d.metadata.get_all('Provides-Extra'), words=words, tokens=tokens, files=files)
Path(sys.argv[1]).write_text(json.dumps(found), encoding='utf-8')
'''

def wrong_models():
    "What is there besides the models, and models that are too large"
    for o in sorted((ROOT/LIB/'models').iterdir()):
        mb = sum(p.stat().st_size for p in o.rglob('*') if p.is_file())/1e6
        if o.name not in MODELS: yield f"models/{o.name} is no model of check.py; results go to benchmarks/results"
        elif mb>MODELS[o.name]: yield f"models/{o.name} has {mb:.1f} MB of at most {MODELS[o.name]}"

def package(tmp):
    "The wheel, built from the sdist and installed away from the working tree, holds and imports what the tree has"
    src, dist, venv = tmp/'src', tmp/'dist', tmp/'venv'
    names = copy_tree(src)
    sh(sys.executable, '-m', 'build', '--no-isolation', '--outdir', dist, src, cwd=tmp)
    whl, = dist.glob('*.whl')
    sh(sys.executable, '-m', 'venv', '--without-pip', venv, cwd=tmp)
    there = venv/('Scripts' if os.name=='nt' else 'bin')
    python = program('python', there)
    sh(sys.executable, '-m', 'pip', '--python', python, 'install', '--no-deps', '--no-index', whl, cwd=tmp)
    site = Path(get_path('purelib', vars=dict(base=str(venv), platbase=str(venv))))
    # the .pth files in that folder, an editable install's among them, are not read
    (site/'dependencies.pth').write_text(get_path('purelib')+'\n', encoding='utf-8')
    sh(python, '-I', '-c', PROBE, tmp/'got.json', cwd=tmp)
    got = json.loads((tmp/'got.json').read_bytes())
    ini = ConfigParser(delimiters=['=']); ini.read(ROOT/'settings.ini', encoding='utf-8')
    def lines(key): return ini['DEFAULT'][key].strip().splitlines()
    want = [o for o in names if o.startswith(f'{LIB}/')]
    scripts, extras = ([o.split('=')[0].strip() for o in lines(key)] for key in ('console_scripts', 'extras'))
    bad  = [f"{o} is not in the wheel" for o in sorted(set(want) - set(got['files']))]
    bad += [f"{o} is in the wheel only" for o in sorted(set(got['files']) - set(want))]
    absent = [o for o in scripts if o not in got['scripts'] or not shutil.which(o, path=str(there))]
    bad += [f"command {o} is not installed" for o in absent]
    if not Path(got['here']).is_relative_to(venv): bad.append(f"imported from {got['here']}, not from the wheel")
    if 'mathematics' not in got['words']: bad.append(f"the model of the package scores {got['words']}")
    if 'door' not in got['tokens']: bad.append(f"the Electric of the package scores {got['tokens']}")
    bad += wrong_models()
    versions = dict(imported=got['version'], metadata=got['dist'], wheel=whl.name.split('-')[1])
    if len(set(versions.values()))>1: bad.append(f"versions differ: {versions}")
    required = [o for o in got['requires'] if 'extra ==' not in o]
    if len(required) != len(lines('requirements')): bad.append(f"the wheel requires {required}")
    if set(got['extras']) != {'dev', *extras}: bad.append(f"the wheel has the extras {got['extras']}")
    if bad: raise Failed(*bad)
    return 1, f"{whl.name}: {len(got['mods'])} modules import, {len(scripts)} commands"

def nbtest(tmp):
    "Every notebook runs from top to bottom, and leaves no file behind"
    from nbdev.config import get_config
    from nbdev.test import nb_test_cells
    names = copy_tree(tmp)
    nbs, flags = notebooks(names), get_config(tmp).tst_flags
    cells = {o: len(nb_test_cells(tmp/o, flags)) for o in nbs}
    if not sum(cells.values()): raise Failed("no notebook has a cell to run")
    idle = [o for o in nbs if not cells[o] and '"cell_type": "code"' in (tmp/o).read_text(encoding='utf-8')]
    if idle: raise Failed(*[f"{o}: all its cells are switched off" for o in idle], failed=len(idle))
    begin, done = 'Starting ', '- Completed '
    def show(o): return f"  {o[len(done):]}" if o.startswith(done) else None if o.startswith(begin) else o
    rc, out = follow(program('nbdev-test'), '--do-print', '--timing', cwd=tmp, show=show)
    begun, ran = ({o[len(k):] for o in out if o.startswith(k)} for k in (begin, done))
    if missed := sorted(set(nbs) - ran, key=lambda o: (o not in begun, o)):
        said = {True: 'was running when a process was killed', False: 'did not run'}
        raise Failed(*[f"{o} {said[o in begun]}" for o in missed], failed=len(missed))
    bad = {o.strip() for o in out[out.index('='*50):]} & {Path(o).name for o in nbs} if '='*50 in out else set()
    if rc: raise Failed("a notebook fails: see above", failed=len(bad) or 1, passed=len(nbs)-len(bad))
    left = sorted(set(listing(tmp)) - set(names))
    if left: raise Failed(*[f"{o} was left behind by a notebook" for o in left], "lessons write to temporary folders")
    return len(nbs), f"{len(nbs)} notebooks, {sum(cells.values())} cells run"

def tests(tmp):
    "pytest: on all processors, then what measures time alone"
    rc, cases = 0, []
    for how in (['-m', 'not timing', '-n', str(min(os.cpu_count(), 4))], ['-m', 'timing']):
        xml = tmp/'tests.xml'
        rc = follow(sys.executable, '-m', 'pytest', '-q', '-rs', *how, f'--junitxml={xml}', cwd=ROOT)[0] or rc
        if xml.exists(): cases += ElementTree.parse(xml).iter('testcase')
        xml.unlink(missing_ok=True)
    def name(o): return f"{o.get('classname')}.{o.get('name')}"
    def tagged(*tags): return [o for o in cases if any(o.find(t) is not None for t in tags)]
    bad = [name(o) for o in tagged('failure', 'error')]
    skipped = [name(o) for o in tagged('skipped')]
    n = len(cases) - len(bad) - len(skipped)
    if rc: raise Failed(f"pytest exits with {rc}: see above", failed=len(bad) or 1, passed=n)
    idle = [o for o in skipped if 'golden' in o]
    lines = [f"{o} was skipped" for o in idle]
    if idle: raise Failed(*lines, "golden tests compare or fail", failed=len(idle), passed=n)
    return n, f"{n} tests run, {len(skipped)} skipped"

STAGES = dict(export=export, pages=pages, package=package, notebooks=nbtest, tests=tests) # in this order

def main(*picked):
    if unknown := set(picked) - set(STAGES): sys.exit(f"no stage {sorted(unknown)}: there are {', '.join(STAGES)}")
    passed = failed = 0
    for name in picked or STAGES:
        start,said = time.time(),"the stages after it were not run"
        with TemporaryDirectory(prefix='electra-check-') as tmp:
            try: n,said = STAGES[name](Path(tmp).resolve())
            except Failed as e:
                n,failed = e.passed,e.failed
                print(e)
        passed += n
        print(f"{name:<10} {'FAILED' if failed else 'ok':<6} {time.time()-start:6.1f} s  {said}", flush=True)
        if failed: break
    print(f"{passed} passed, {failed} failed", flush=True)
    return bool(failed)

if __name__=='__main__':
    try: sys.exit(main(*sys.argv[1:]))
    except KeyboardInterrupt: sys.exit(130)
