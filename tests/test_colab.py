"""Notebooks as Colab runs them: alone in an empty folder, with what their first cell installs, and nothing else.

Nothing is downloaded: what the wheel requires is linked from the environment of the tests, which has more than that."""
import ast, json, os, re, shutil, subprocess, sys
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from test_packaging import REQUIRED, names_in, normal, settings, third_party

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT/'nbs').rglob('*.ipynb'))
QUICK = ['method/07_schedule', 'data/10_text', 'networks/14_hparams', 'finetuning/30_finetune_recipe',
         'scoring/40_score_files', 'tutorials/57_any_loop_any_objective'] # One of each folder that readers come to

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

@pytest.mark.parametrize('notebook', QUICK)
def test_a_notebook_with_the_wheel_alone(lib, tmp_path, notebook):
    shutil.copy(ROOT/f'nbs/{notebook}.ipynb', tmp_path/'notebook.ipynb')
    env = os.environ | dict(PYTHONPATH=str(lib), MPLBACKEND='agg', IPYTHONDIR=str(lib/'ipython'))
    # without `site` nothing is there but the folder and the standard library
    r = subprocess.run([sys.executable, '-S', '-c', RUN, 'notebook.ipynb'], cwd=tmp_path, env=env,
                       capture_output=True, encoding='utf-8')
    assert r.returncode==0, r.stdout[-2000:]+r.stderr[-2000:]
