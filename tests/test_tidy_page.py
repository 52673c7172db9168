"What `tools/tidy_page.py` makes of signatures, titles, pictures and the order of a page"
from base64 import b64encode
from io import BytesIO

from fastcore.nbio import dict2nb, mk_cell
from nbdev.process import NBProcessor
from PIL import Image

import tidy_page as tidy

UGLY = """def train(
    data:pathlib.Path, # Folder
    net:torch.nn.modules.module.Module | None=None, # Network
    device:NoneType=None, # Where
    lower:<function bool_arg at 0x7f9bd4bd72e0>=True, # Lower-case
    ids:__main__.SpecialTokenIds=SpecialTokenIds(pad=0, cls=2, sep=3, mask=4, more=5, than=6, fits=7), # Ids
)->electra_nbdev.method.masking.Inputs: # A batch"""
WANT = ['data:Path, # Folder', 'net:Module | None=None, # Network', 'device=None, # Where',
        'lower:bool=True, # Lower-case', 'ids:SpecialTokenIds=…, # Ids']

def test_signatures_are_readable():
    assert [o.strip() for o in tidy.readable(UGLY).split('\n')[1:-1]]==WANT
    short = f'    preset:str=None, # {"a long comment "*6}'
    assert tidy.readable(short)==short

def test_what_a_cell_defines():
    source = 'X = 1\n@patch\ndef f(self:A, x): pass\ndef g(): pass\nclass B: pass'
    assert tidy.defined_names(source)==['A.f', 'g', 'B']

def test_numbers_stand_in_titles():
    front = "---\ndescription: 'title: none'\ntitle: 'Masking: where'\n---"
    assert tidy.numbered(front, 'nbs/method/01_masking.ipynb')==front.replace('Masking', '01 Masking')
    assert tidy.numbered(front, 'nbs/index.ipynb')==front

def page(*cells):
    nb = dict2nb(dict(cells=cells, metadata={}, nbformat=4, nbformat_minor=5))
    NBProcessor(nb=nb, procs=[tidy.TidyPage]).process()
    return nb.cells

def shown(name):
    cell = mk_cell(f'show_doc({name})')
    cell.metadata['execution'] = {}
    text = f'### {name}\n\n```python\ndef {name}(\n    x:NoneType=None, # A\n)\n```\n\n*Does {name}*'
    cell.outputs = [dict(output_type='display_data', data={'text/markdown': text}, metadata={})]
    return cell

def test_code_stands_once():
    "The source of `f` and `e` is on the page, that of `g` is not; all headings of a cell stand before its source"
    both = mk_cell('#| exports\n#| code-fold: show\ndef e(): pass\ndef f(x=None): pass')
    cells = page(shown('f'), both, shown('e'), shown('g'))
    found = [o.outputs[0]['data']['text/markdown'] if o.get('outputs') else o.source for o in cells]
    assert [o.metadata for o in cells]==[{}]*4
    assert found[:3]==['### e\n\n', '### f\n\n', 'def e(): pass\ndef f(x=None): pass']
    assert found[3]=='### g\n\n```python\ndef g(\n    x=None, # A\n)\n```\n\n*Does g*'

def test_pictures_have_the_size_in_which_they_were_drawn():
    "Three inches by two, with 200 pixels an inch"
    file = BytesIO()
    Image.new('L', (600, 400)).save(file, format='png', dpi=(200, 200))
    drawn = mk_cell('plot()')
    png = b64encode(file.getvalue()).decode()
    drawn.outputs = [dict(output_type='display_data', data={'image/png': png}, metadata={})]
    cell, = page(drawn)
    assert cell.outputs[0]['metadata']=={'image/png': dict(width=288, height=192)}

def test_what_is_wide_scrolls_by_itself():
    "Tables of Markdown and of outputs, and formulas; a block of code stays"
    box = '\n::: {.scrolled tabindex=0}\n'
    code, table, formula = '```\n| a |\n```', '| a | b |\n|---|---|\n| 1 | 2 |', '$$p(x)\n= 1$$'
    assert tidy.scrolled(f'{code}\n\n{table}\n\nAs $x$:\n{formula}\n')==(
        f'{code}\n\n{box}{table}\n:::\n\nAs $x$:\n{box}{formula}\n:::\n\n')
    frame = mk_cell('frame')
    frame.outputs = [dict(output_type='display_data', data={'text/html': ['<table>\n', '</table>']}, metadata={})]
    told, shown = page(mk_cell(table, 'markdown'), frame)
    assert told.source.startswith(box)
    assert shown.outputs[0]['data']['text/html']=='<div class="scrolled" tabindex="0">\n<table>\n</table>\n</div>'

def test_a_cell_that_a_notebook_folds_stays_folded():
    "nbdev adds a fold of its own to each exported cell, which is open"
    cell = mk_cell('#| exports\n#| code-fold: show\n#| code-summary: "Exported source"\n#| code-fold: true\nX = 1')
    nb = dict2nb(dict(cells=[cell], metadata={}, nbformat=4, nbformat_minor=5))
    NBProcessor(nb=nb, procs=[tidy.TidyPage], rm_directives=False).process()
    assert nb.cells[0].source=='#| exports\n#| code-fold: true\nX = 1'
