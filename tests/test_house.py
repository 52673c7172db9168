"""Sizes and words of the house: short lines and cells, one definition in each, and the terms of the field.

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

def is_public(node):
    "Whether a statement defines what others may use; methods that are patched in count too"
    return isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith('_')

def is_exported(cell): return re.search(r'(?m)^#\|\s*exports?\b', cell)

def crowded_cells():
    "Export cells of a folder that define more than one public thing"
    found = {}
    for o in NOTEBOOKS:
        trees = [ast.parse(c) for c in cells(o) if is_exported(c)]
        folder = o.parent.relative_to(NBS).as_posix()
        found[folder] = found.get(folder, 0) + sum(sum(map(is_public, t.body))>1 for t in trees)
    return found

SUBJECTS = dict(masking='mask_batch', generator='mlm_step', discriminator='token_logits', towers='TwoTowers',
                objective='Objective', electra='ReplacedTokenDetection', electric='NoiseContrastiveEstimation',
                optimizer='adam_step', metrics='our_metrics')

def is_setup(cell):
    "Whether a cell says where a notebook goes, installs, or imports, and nothing else"
    if re.search(r'(?m)^#\|\s*(default_exp|hide)\b', cell): return True
    return all(isinstance(n, (ast.Import, ast.ImportFrom)) for n in ast.parse(cell).body)

def place_of(subject, notebook):
    "Number of the cell that defines it, from 1, without setup"
    found = json.loads(notebook.read_text(encoding='utf-8'))['cells']
    read = [(o['cell_type'], ''.join(o['source'])) for o in found]
    read = [s if kind=='code' else '' for kind,s in read if kind!='code' or not is_setup(s)]
    return next(i for i,s in enumerate(read, 1) if re.search(rf'(?m)^(def|class) {subject}\b', s))

def late_subjects():
    "Notebooks of the method whose subject is not defined within their first ten cells"
    places = {o.stem: place_of(SUBJECTS[o.stem[3:]], o) for o in sorted((NBS/'method').glob('*.ipynb'))}
    return {k: max(0, n-10) for k,n in places.items()}

RULES = dict(crowded_cells=crowded_cells, late_subjects=late_subjects, long_lines=long_lines, long_cells=long_cells,
             small_figures=small_figures, coined_words=coined_words, machine_paths=machine_paths)

def broken(rule): return {k: v for k,v in sorted(RULES[rule]().items()) if v}

@pytest.mark.parametrize('rule', RULES)
def test_house(rule):
    found, allowed = broken(rule), json.loads(ALLOWED.read_text())[rule]
    more = [f'{k}: {v}, allowed {allowed.get(k, 0)}' for k,v in found.items() if v>allowed.get(k, 0)]
    assert not more, '\n'.join([RULES[rule].__doc__, *more])
    idle = sorted(allowed.keys()-found.keys())
    assert not idle, f'no longer needed in house.json, `python tests/test_house.py` takes them out: {idle}'

def test_what_is_below_the_commands_speaks_python():
    "No flag and no command in a string of `engine`, but where commands are made"
    jobs, found = 'vocab|data|plan|pretrain|evaluate|score|finetune|predict|convert', []
    shell = re.compile(rf'(?<![\w-])--[a-z]|\belectra_({jobs})\b')
    for o in sorted((LIB/'engine').glob('*.py')):
        if o.name=='command.py': continue
        strings = (n.value for n in ast.walk(ast.parse(o.read_text())) if isinstance(n, ast.Constant))
        found += [f'{o.stem}: {s}' for s in strings if isinstance(s, str) and shell.search(s)]
    assert not found, '\n'.join(found)

def test_at_most_60_notebooks():
    "A new subject takes the place of another, or a section of a notebook that is there"
    assert len(NOTEBOOKS)<=60

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
