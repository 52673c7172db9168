"What the package imports is what it declares, and a fresh import stays small"
import ast, re, subprocess, sys
from configparser import ConfigParser
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MODULES = [o for o in sorted((ROOT/'electra_nbdev').rglob('*.py')) if o.name!='_modidx.py']

def settings():
    ini = ConfigParser(delimiters=['='])
    ini.read(ROOT/'settings.ini', encoding='utf-8')
    return ini['DEFAULT']

def normal(name): return re.sub('[-_.]+', '-', name.lower())
def names_in(lines): return {normal(re.match(r'[\w.-]+', o)[0]) for o in lines}

REQUIRED = names_in(settings()['requirements'].split())
EXTRAS = names_in(o.split('=', 1)[1].strip() for o in settings()['extras'].strip().splitlines())
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

def test_python_versions_agree():
    "The oldest Python is that of the settings, of the Makefile and of one of the tested versions"
    oldest = settings()['min_python']
    assert f'Python {oldest} or later is needed' in (ROOT/'Makefile').read_text()
    assert f"python: ['{oldest}', " in (ROOT/'.github/workflows/test.yml').read_text()

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
    found = loaded(tmp_path, 'import electra_nbdev.recipe', ['sklearn', 'matplotlib', 'datasets', 'fastai', 'pandas'])
    assert found==[]

USAGE = '''
from electra_nbdev import cli
sys.argv = ['electra_score', *{args!r}]
try: cli.electra_score()
except SystemExit as e: assert e.code==2'''

@pytest.mark.parametrize('args', [['--colour'], []], ids=['unknown flag', 'no input'])
def test_a_usage_error_needs_no_torch(tmp_path, args):
    assert loaded(tmp_path, USAGE.format(args=args), ['torch', 'transformers', 'fastai', 'datasets'])==[]
