"""Sizes and words of the house: short lines and cells, and the terms of the field.

What is larger today is in house.json with its number. Numbers only go down, and an entry that is no longer needed
fails the test too; `python tests/test_house.py` writes the numbers of today where they are lower."""
import ast, json, re, sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT/'tools'))
from check import listing

LIB, NBS = ROOT/'electra_nbdev', ROOT/'nbs'
ALLOWED = Path(__file__).with_name('house.json')
NOTEBOOKS = sorted(NBS.rglob('[0-9i]*.ipynb'))

def cells(notebook, kind='code'):
    "Sources of the cells of a kind"
    found = json.loads(notebook.read_text(encoding='utf-8'))['cells']
    return [''.join(o['source']) for o in found if o['cell_type']==kind]

def lines_of(path): return path.read_text(encoding='utf-8').splitlines()
def longer(lines, most): return sum(len(o)>most for o in lines)

def long_lines():
    "Lines of code of more than 120 characters, of more than 100 in the method"
    found = {}
    for o in NOTEBOOKS:
        most = 100 if o.parent.name=='method' else 120
        found[o.stem] = sum(longer(c.split('\n'), most) for c in cells(o))
    for folder in ('tests', 'tools', 'benchmarks'):
        for o in (ROOT/folder).rglob('*.py'): found[o.relative_to(ROOT).as_posix()] = longer(lines_of(o), 120)
    return found

def long_cells():
    "Export cells of more than 30 lines, directives not counted"
    found = {}
    for o in NOTEBOOKS:
        exported = [c.split('\n') for c in cells(o) if re.search(r'(?m)^#\|\s*export', c)]
        found[o.stem] = sum(sum(not l.startswith('#|') for l in lines)>30 for lines in exported)
    return found

WORDS = re.compile(r'\b(holes?|by heart|to the bit|recogni[sz]er|halves|running means?|the way back|'
                   r'table of embeddings|'
                   r'word table|inner layer|mended|verdicts?|suspects?|broken off)\b', re.I)

def texts(code):
    "Strings and comments of a cell"
    code = re.sub(r'(?m)^\s*[%!].*$', '', code)
    strings = [n.value for n in ast.walk(ast.parse(code)) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    return '\n'.join([*strings, *re.findall(r'(?m)(?:^|\s)#(.*)$', code)])

def coined_words():
    "Words that the field does not use, in Markdown, strings and comments"
    found = {o.stem: [*cells(o, 'markdown'), *map(texts, cells(o))] for o in NOTEBOOKS}
    for o in ('README.md', 'CHANGELOG.md'): # which tells in code how things were called
        found[o] = [re.sub('`[^`]*`', '', (ROOT/o).read_text(encoding='utf-8'))]
    return {k: sum(len(WORDS.findall(t)) for t in v) for k,v in found.items()}

def small_figures():
    "Figures of fewer than 100 dots an inch, and letters of fewer than 8 points"
    small = re.compile(r'dpi[=(]\d\d\b|fontsize=[1-7]\b')
    return {o.stem: sum(len(small.findall(c)) for c in cells(o)) for o in NOTEBOOKS}

def machine_paths():
    "Outputs of notebooks with a path of the machine that ran them"
    path = re.compile(r'site-packages/|/(home|root|work|Users)/\w')
    def outputs(o): return [c.get('outputs', []) for c in json.loads(o.read_text(encoding='utf-8'))['cells']]
    return {o.stem: len(path.findall(json.dumps(outputs(o)))) for o in NOTEBOOKS}

METHOD = sorted((NBS/'method').glob('*.ipynb'))

def words(markdown):
    "Words of prose; a formula is one, an address none"
    text = re.sub(r'\(\S*\)', '', re.sub(r'\$+[^$]+\$+', ' x ', markdown))
    return len(re.findall(r"[^\W_][\w'`.-]*", text))

def long_notebooks():
    "Notebooks of the method of more than 60 cells or 1,500 words"
    sizes = {o.stem: (len(cells(o))+len(cells(o, 'markdown')), words('\n'.join(cells(o, 'markdown')))) for o in METHOD}
    return {k: max(n-60, 0)+max(w-1500, 0) for k,(n,w) in sizes.items()}

RULES = dict(long_notebooks=long_notebooks, long_lines=long_lines, long_cells=long_cells, small_figures=small_figures,
             coined_words=coined_words, machine_paths=machine_paths)

def broken(rule): return {k: v for k,v in sorted(RULES[rule]().items()) if v}

@pytest.mark.parametrize('rule', RULES)
def test_house(rule):
    found, allowed = broken(rule), json.loads(ALLOWED.read_text())[rule]
    more = [f'{k}: {v}, allowed {allowed.get(k, 0)}' for k,v in found.items() if v>allowed.get(k, 0)]
    assert not more, '\n'.join([RULES[rule].__doc__, *more])
    idle = sorted(allowed.keys()-found.keys())
    assert not idle, f'no longer needed in house.json, `python tests/test_house.py` takes them out: {idle}'

def test_at_most_53_notebooks():
    "A new subject takes the place of another, or a section of a notebook that is there"
    assert len(NOTEBOOKS)<=53

MIB = 2**20
BUDGET = dict(everything=55, models=36, results=4) # MiB: it is sent to machines that are there for minutes

def mebibytes(files):
    "MiB of all files, of models (folders with weights of a megabyte), and of results of benchmarks without models"
    homes = {Path(k).parent for k,n in files.items() if k.endswith('.safetensors') and n>1e6}
    models = {k for k in files if k.startswith('electra_nbdev/models/') or homes & {*Path(k).parents}}
    results = {k for k in files if k.startswith('benchmarks/results/')}-models
    parts = dict(everything=files, models=models, results=results)
    return {k: sum(files[o] for o in names)/MIB for k,names in parts.items()}

def test_light_enough_to_travel():
    found = mebibytes({o: (ROOT/o).stat().st_size for o in listing(ROOT)})
    assert not [f'{k} has {n:.1f} MiB, allowed {BUDGET[k]}' for k,n in found.items() if n>BUDGET[k]]

def test_a_model_is_counted_with_its_folder_wherever_it_is():
    files = {'electra_nbdev/models/a/card.md': MIB, 'benchmarks/results/b.json': 2*MIB, 'README.md': 8*MIB,
             'benchmarks/results/m/model.safetensors': 4*MIB, 'benchmarks/results/m/more/vocab.txt': MIB}
    assert mebibytes(files)==dict(everything=16, models=6, results=2)

def test_words_are_found_wherever_they_stand():
    code = "def f(x): # Share of holes\n    'Mended halves'\n    raise ValueError(f'the verdict is {x}')"
    assert sorted(o.lower() for o in WORDS.findall(texts(code)))==['halves', 'holes', 'mended', 'verdict']

def shrink():
    "Lower the numbers to those of today"
    allowed = json.loads(ALLOWED.read_text())
    for rule in RULES:
        found = broken(rule)
        allowed[rule] = {k: min(v, found[k]) for k,v in allowed[rule].items() if k in found}
    ALLOWED.write_text(json.dumps(allowed, indent=1)+'\n')

if __name__=='__main__': shrink()
