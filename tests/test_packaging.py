"What the package imports is what it declares, a fresh import stays small, and notebooks run with the wheel alone"
import ast, json, os, re, shutil, subprocess, sys
from configparser import ConfigParser
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
MODULES = [o for o in sorted((ROOT/'electra_nbdev').rglob('*.py')) if o.name!='_modidx.py']

def settings():
    ini = ConfigParser(delimiters=['='])
    ini.read(ROOT/'settings.ini', encoding='utf-8')
    return ini['DEFAULT']

def normal(name): return re.sub('[-_.]+', '-', name.lower())
def names_in(lines): return {normal(re.match(r'[\w.-]+', o)[0]) for o in lines}

EXTRA_LINES = [n for o in settings()['extras'].strip().splitlines() for n in o.split('=', 1)[1].split()]
REQUIRED = names_in(settings()['requirements'].split())
EXTRAS = names_in(EXTRA_LINES)
DISTRIBUTIONS = packages_distributions()

def third_party(nodes):
    "Distributions that these nodes import"
    for n in nodes:
        if isinstance(n, ast.Import): names = [o.name for o in n.names]
        elif isinstance(n, ast.ImportFrom) and not n.level: names = [n.module]
        else: continue
        for top in {o.split('.')[0] for o in names} - sys.stdlib_module_names - {'electra_nbdev'}:
            yield normal(DISTRIBUTIONS.get(top, [top])[0])

def tree(path): return ast.parse(path.read_text(encoding='utf-8'))
def imported(path): return set(third_party(ast.walk(tree(path))))

def test_what_is_imported_is_declared():
    assert not {f'{o.stem}: {d}' for o in MODULES for d in imported(o)-REQUIRED-EXTRAS}

def test_what_is_declared_is_imported():
    assert not REQUIRED-{d for o in MODULES for d in imported(o)}

def test_extras_are_imported_where_they_are_used():
    "A module imports without them"
    assert not {f'{o.stem}: {d}' for o in MODULES for d in set(third_party(tree(o).body)) & EXTRAS}

def lowest():
    "The oldest version of each distribution that the package or its development asks for; None where any will do"
    lines = settings()['requirements'].split() + settings()['dev_requirements'].split() + EXTRA_LINES
    for o in map(Requirement, lines): yield o.name, next((s.version for s in o.specifier if s.operator=='>='), None)

def test_every_requirement_has_a_lower_bound():
    "Without one, an installation of the lowest versions takes a release of ten years ago"
    assert [name for name,oldest in lowest() if oldest is None]==[]

@pytest.mark.skipif('ELECTRA_LOWEST' not in os.environ, reason="the environment is not of the lowest versions")
def test_the_lowest_versions_are_installed():
    "A bound that the resolver cannot reach is tested by nobody: it has to be raised"
    assert {k: v for k,v in lowest() if Version(Version(version(k)).public)!=Version(v)}=={}

WORKFLOW = (ROOT/'.github/workflows/test.yml').read_text(encoding='utf-8')

def test_python_versions_agree():
    "The oldest Python is that of the settings, of the Makefile, and of the workflow's matrix and lowest versions"
    oldest = settings()['min_python']
    assert f'Python {oldest} or later is needed' in (ROOT/'Makefile').read_text()
    assert f"python: ['{oldest}', " in WORKFLOW
    job = WORKFLOW[WORKFLOW.index('  lowest:'):]
    assert f"python-version: '{oldest}'" in job and '--resolution lowest-direct' in job

def test_a_folder_that_is_not_installed_knows_its_version(monkeypatch):
    import electra_nbdev
    from electra_nbdev.engine import files
    def missing(name):
        if name!='electra_nbdev': return version(name)
        raise PackageNotFoundError(name)
    monkeypatch.setattr(files, 'version', missing)
    assert files.versions()['electra_nbdev']==electra_nbdev.__version__

def test_one_version():
    "`__init__.py` has the version, the wheel reads it there; the citation and the newest release name the same"
    import electra_nbdev
    def found(name, pattern): return re.search(pattern, (ROOT/name).read_text(encoding='utf-8'), re.M)[1]
    assert found('pyproject.toml', '^version = (.*)$')=='{attr = "electra_nbdev.__version__"}'
    assert found('CITATION.cff', '^version: (.*)$')==electra_nbdev.__version__
    assert found('CHANGELOG.md', r'^## ([\d.]+)$')==electra_nbdev.__version__

def test_the_site_is_built_with_a_quarto_that_can():
    "nbdev's sites need 1.10 (quarto-cli issue 14669)"
    needed = re.search(r'(?m)^QUARTO := (\d+)\.(\d+)$', (ROOT/'Makefile').read_text())
    workflow = (ROOT/'.github/workflows/docs.yml').read_text()
    built = re.search(r'quarto-actions/setup@v2\n\s+with:\n\s+version: (\d+)\.(\d+)', workflow)
    assert (1, 10)<=tuple(map(int, needed.groups()))<=tuple(map(int, built.groups()))

def loaded(folder, code, modules):
    "Which of some modules a script has imported at its end"
    (folder/'script.py').write_text(f'import sys\n{code}\nprint(*(o for o in {modules!r} if o in sys.modules))')
    r = subprocess.run([sys.executable, '-W', 'ignore', folder/'script.py'], capture_output=True, text=True, check=True)
    return r.stdout.split()

def test_a_recipe_needs_little(tmp_path):
    heavy = ['torch', 'transformers', 'sklearn', 'matplotlib', 'datasets', 'fastai', 'pandas']
    assert loaded(tmp_path, 'import electra_nbdev.networks.recipe', heavy)==[]

def test_a_learner_waits_for_the_models(tmp_path):
    "An objective is a `PreTrainedModel`, which transformers loads; its models come with the first network"
    models = ['transformers.models.electra.modeling_electra', 'transformers.trainer', 'datasets']
    assert loaded(tmp_path, 'from electra_nbdev.pretrain import *', models)==[]

def test_text_and_examples_need_no_training_stack(tmp_path):
    "A command that trains nothing starts in half of the time without fastai and what it loads"
    code = f"""from electra_nbdev.data.examples import build_examples
open({str(tmp_path/'a.txt')!r}, 'w', encoding='utf-8').write('the cat sat .')
build_examples({str(tmp_path/'a.txt')!r}, 'tiny', {str(tmp_path/'out')!r}, held_out=0)"""
    found = loaded(tmp_path, code, ['fastai', 'matplotlib', 'sklearn', 'accelerate', 'datasets'])
    assert found[-1]=='datasets' and not {'fastai', 'matplotlib', 'sklearn', 'accelerate'} & {*found}

@pytest.mark.parametrize('torch', ['2.8.0', '2.10.0', '2.13.0'])
def test_an_older_torch_stays(torch):
    "2.8 is the oldest that compiles the bodies of transformers; a Colab has a later one"
    needed, = (Requirement(o) for o in settings()['requirements'].splitlines() if o.startswith('torch'))
    assert needed.specifier.contains(torch)

def without_encoding(path):
    "Lines that open text without naming its encoding, which on Windows is another one"
    for n in ast.walk(tree(path)):
        if not isinstance(n, ast.Call) or any(o.arg=='encoding' for o in n.keywords): continue
        if getattr(n.func, 'attr', '') in ('read_text', 'write_text'): yield n.lineno
        elif getattr(n.func, 'id', '')=='open' and not any('b' in ast.unparse(o) for o in n.args[1:]): yield n.lineno

def test_text_has_an_encoding():
    assert not {f'{o.stem}: {line}' for o in MODULES for line in without_encoding(o)}

POSIX_ONLY = {'fcntl', 'resource', 'pwd', 'grp', 'termios'}
POSIX_CALLS = {'fork', 'symlink', 'symlink_to', 'hardlink_to', 'killpg', 'setsid', 'mkfifo', 'getuid', 'SIGKILL'}

def test_nothing_that_windows_lacks():
    found = {(o.stem, n.attr) for o in MODULES for n in ast.walk(tree(o)) if isinstance(n, ast.Attribute)}
    assert not {o for o in found if o[1] in POSIX_CALLS}
    imports = [(o.stem, n) for o in MODULES for n in ast.walk(tree(o)) if isinstance(n, ast.Import)]
    assert not {(o, a.name) for o,n in imports for a in n.names if a.name in POSIX_ONLY}

# Notebooks as Colab runs them: alone in an empty folder, with what their first cell installs. Nothing is downloaded:
# what the wheel requires is linked from the environment of the tests, which has more than that.

NOTEBOOKS = sorted((ROOT/'nbs').rglob('*.ipynb'))
QUICK = ['method/09_metrics', 'data/11_text', 'networks/15_hparams', 'finetuning/30_recipe',
         'scoring/41_score_files', 'tutorials/57_any_loop_any_objective'] # One of each folder that readers come to

RUN = '''
import json, sys
from pathlib import Path
from IPython.core.interactiveshell import InteractiveShell
for cell in json.loads(Path(sys.argv[1]).read_text(encoding='utf-8'))['cells']:
    if cell['cell_type']=='code': InteractiveShell.instance().run_cell(''.join(cell['source'])).raise_error()
'''

def code_of(notebook):
    "Sources of its code cells; the first, and the others without what only IPython can read"
    cells = json.loads(notebook.read_text(encoding='utf-8'))['cells']
    code = [''.join(o['source']) for o in cells if o['cell_type']=='code']
    first, *rest = (o for o in code if '#| default_exp' not in o)
    return first, [re.sub(r'(?m)^[!%].*', '', o) for o in rest]

@pytest.mark.parametrize('notebook', NOTEBOOKS, ids=lambda o: o.stem)
def test_the_first_cell_installs_what_is_used(notebook):
    "Extras whose packages are imported, and the repository where a file of it is read"
    lines = (o.split('=', 1) for o in settings()['extras'].strip().splitlines())
    extras = {extra.strip(): names_in(o.split()) for extra,o in lines}
    first, rest = code_of(notebook)
    imported = {name for o in rest for name in third_party(ast.walk(ast.parse(o)))}
    used = {extra for extra,names in extras.items() if names & imported}
    assert 'electra-nbdev/electra_nbdev' in first
    assert used=={o for o in re.findall(r'electra_nbdev\[(\w+)\]', first)}
    assert ('/repo' in first)==any(re.search(r"'\.\./[\w.]|'spanish\.txt", o) for o in rest)

def needed(names):
    "Distributions with these names, and all that they require"
    found, todo = {}, list(names)
    while todo:
        if (name := normal(todo.pop())) in found: continue
        found[name] = dist = distribution(name)
        wanted = map(Requirement, dist.requires or [])
        todo += [o.name for o in wanted if not o.marker or o.marker.evaluate(dict(extra=''))]
    return found.values()

@pytest.fixture(scope='session')
def lib(tmp_path_factory):
    "A folder with the installed wheel, IPython, and what both require"
    tmp = tmp_path_factory.mktemp('bare')
    lib = tmp/'site-packages' # by which dill knows modules that it need not pickle
    shutil.copytree(ROOT/'electra_nbdev', tmp/'src/electra_nbdev', ignore=shutil.ignore_patterns('__pycache__'))
    for o in ('pyproject.toml', 'settings.ini', 'setup.py', 'MANIFEST.in', 'README.md', 'LICENSE'):
        shutil.copy(ROOT/o, tmp/'src')
    pip = [sys.executable, '-m', 'pip', '-q', '--disable-pip-version-check']
    subprocess.run([*pip, 'wheel', '--no-deps', '--no-build-isolation', '-w', tmp, tmp/'src'], check=True)
    wheel, = tmp.glob('*.whl')
    subprocess.run([*pip, 'install', '--no-deps', '--no-index', '--target', lib, wheel], check=True)
    for dist in needed([*REQUIRED, 'ipython']):
        for part in {o.parts[0] for o in dist.files} - {'..', '__pycache__'}:
            if not (lib/part).exists(): (lib/part).symlink_to(dist.locate_file(part))
    return lib

def test_the_style_of_pictures_is_in_the_wheel(lib): assert (lib/'electra_nbdev/electra.mplstyle').is_file()

@pytest.mark.parametrize('notebook', QUICK)
def test_a_notebook_with_the_wheel_alone(lib, tmp_path, notebook):
    shutil.copy(ROOT/f'nbs/{notebook}.ipynb', tmp_path/'notebook.ipynb')
    env = os.environ | dict(PYTHONPATH=str(lib), MPLBACKEND='agg', IPYTHONDIR=str(lib/'ipython'))
    # without `site` nothing is there but the folder and the standard library
    r = subprocess.run([sys.executable, '-S', '-c', RUN, 'notebook.ipynb'], cwd=tmp_path, env=env,
                       capture_output=True, encoding='utf-8')
    assert r.returncode==0, r.stdout[-2000:]+r.stderr[-2000:]
