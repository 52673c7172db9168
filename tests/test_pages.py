"What `tools/pages.py` finds in the processed notebooks of the site, one fault at a time"
import json, re
from pathlib import Path

import llms
import pages
import pytest

COLAB = '[Open in Colab](https://colab.research.google.com/github/x)'
DOC = '### noisy\n\n```python\ndef noisy(\n    x=None, # A\n)\n```'

def front(number): return dict(cell_type='raw', source=[f'---\ntitle: {number} Noise\n---'], metadata={})
def text(source): return dict(cell_type='markdown', source=[source], metadata={})
def code(source, metadata=(), **data):
    return dict(cell_type='code', source=[source], metadata=dict(metadata), outputs=[dict(data=data)])

def found(tmp_path, *cells):
    "Faults of a page with these cells, beside a second page"
    for name,own in (('01_noise', cells), ('02_other', [code('', **{'text/markdown': [DOC]})])):
        (tmp_path/f'{name}.ipynb').write_text(json.dumps(dict(cells=[front(name[:2]), text(COLAB), *own])))
    return list(pages.faults(tmp_path))

def test_a_page_without_faults(tmp_path):
    good = [text('## Noise\n\nSee [02_other](02_other.ipynb#noisy), [above](#noise), `f(x)[0](y)` and https://x.org.'),
            text('[README](https://github.com/electra-nbdev/electra_nbdev/blob/main/README.md)'),
            text('[other](https://electra-nbdev.github.io/electra_nbdev/other.html#noisy) ![A curve](02_other.ipynb)'),
            code('show_doc(noisy)', **{'text/markdown': [DOC]}),
            code('#| fig-alt: A curve\nplot()', dict(language='python'), **{'image/png': 'x'})]
    assert not found(tmp_path, *good)

@pytest.mark.parametrize('cell,fault', [
    (text('see `02_other`'), 'is no link'),
    (text('[gone](03_gone.ipynb)'), '03_gone.ipynb does not exist'),
    (text('[gone](https://electra-nbdev.github.io/electra_nbdev/gone.html)'), 'gone.html is no page'),
    (text('[gone](#gone)'), '#gone is no heading'),
    (text('[gone](02_other.ipynb#gone)'), '02_other.ipynb#gone is no heading'),
    (text('[gone](https://electra-nbdev.github.io/electra_nbdev/other.html#gone)'), 'other.html#gone is no heading'),
    (text('[gone](https://github.com/electra-nbdev/electra_nbdev/blob/main/gone.md)'), 'gone.md is no file'),
    (text('![](02_other.ipynb)'), 'no alternative text'),
    (code('plot()', **{'image/png': 'x'}), 'without `#| fig-alt:`'),
    (code('#| fig-alt: Two curves: both fall\nplot()', **{'image/png': 'x'}), 'no YAML'),
    (code('f()', dict(execution={})), "metadata ['execution']"),
    (code('x'*121), 'a line of 121 characters'),
    *((code('show_doc(f)', **{'text/markdown': [DOC.replace('None', o)]}), f'{o.split()[0]}')
      for o in ('__main__.X', 'NoneType', '<function f at 0x7f>', '<class X>')),
    (code('show_doc(f)', **{'text/markdown': [DOC.replace('None', 'y'*121)]}), 'a signature with a line')])
def test_a_fault(tmp_path, cell, fault):
    said = found(tmp_path, cell)
    assert len(said)==1 and fault in said[0] and '01_noise.ipynb, cell 2: ' in said[0]

def test_faults_of_a_whole_page(tmp_path):
    said = found(tmp_path, text('## Noisy'), code('show_doc(noisy)', **{'text/markdown': [DOC]}))
    assert len(said)==1 and "'Noisy' takes the address of a function" in said[0]
    (tmp_path/'01_noise.ipynb').write_text(json.dumps(dict(cells=[front('02')])))
    assert list(pages.faults(tmp_path))==[f'01_noise.ipynb: no {o}' for o in ('link to Colab', 'title with its number')]

def test_addresses_of_headings():
    "As pandoc makes them"
    wanted = {'`Class.method`': 'class.method', '15 % of [tokens](x.html#y), masked': 'of-tokens-masked', '_own': 'own'}
    assert {o: pages.anchor(o) for o in wanted}==wanted

def test_a_page_of_text(tmp_path):
    "It needs no link to Colab, and its links are looked at too"
    (tmp_path/'03_told.qmd').write_text('---\ntitle: "03 Told"\n---\n\n[other](02_other.ipynb) [gone](04_gone.qmd)\n')
    assert found(tmp_path, text('[told](03_told.qmd)'))==['03_told.qmd, cell 1: 04_gone.qmd does not exist']

def test_tests_that_the_pages_name_exist():
    root, named = Path(__file__).parent, 0
    for page in (root.parent/'nbs').rglob('[0-9]*.*'):
        for file,test in re.findall(r'(test_\w+\.py)::(test_\w+)', page.read_text(encoding='utf-8')):
            assert f'def {test}(' in (root/file).read_text(encoding='utf-8'), f'{page.name}: {file}::{test}'
            named += 1
    assert named>15

def test_files_that_the_site_names_exist():
    "Fonts, themes, the picture for links and the icon; nothing is fetched from elsewhere"
    nbs = Path(__file__).resolve().parents[1]/'nbs'
    style, config = (nbs/'styles.css').read_text(encoding='utf-8'), (nbs/'_quarto.yml').read_text(encoding='utf-8')
    fonts = re.findall(r'url\((.*?)\)', style)
    named = fonts + re.findall(r'[\w/]+\.(?:scss|css|png|svg)', config)
    assert len(fonts)==2 and len(set(named))==6 and all((nbs/o).is_file() for o in named), named
    assert '$web-font-path: false;' in (nbs/'fonts/site.scss').read_text(encoding='utf-8')

NOTEBOOKS = Path(__file__).resolve().parents[1]/'nbs'
COURSE = ['00_one_sitting', *(f'method/{o}' for o in
          ('01_masking', '02_generator', '03_discriminator', '06_electra', '07_electric'))]

def told(name):
    "Words of each cell of text, and lines of each cell of code that a page shows unfolded"
    cells = json.loads((NOTEBOOKS/f'{name}.ipynb').read_text(encoding='utf-8'))['cells']
    found = [(c['cell_type'], ''.join(c['source'])) for c in cells]
    words = [len(o.split()) for kind,o in found if kind=='markdown']
    unseen = re.compile(r'#\| (?:hide|export|echo: false|default_exp.*)$|(?:#\|.*\n)*#\| code-fold: true$', re.M)
    code = [o for kind,o in found if kind=='code' and not unseen.match(o)]
    return words, [sum(not line.startswith('#|') for line in o.split('\n')) for o in code]

@pytest.mark.parametrize('name', COURSE)
def test_cells_of_the_course_are_short(name):
    words, lines = told(name)
    assert max(words)<=250 and max(lines)<=20

def test_the_course_takes_two_hours():
    "At 200 words and twelve lines of code a minute"
    assert sum(sum(words)/200+sum(lines)/12 for words,lines in map(told, COURSE))<=120

def test_the_list_for_language_models_is_that_of_the_pages():
    "`python tools/llms.py` writes it"
    assert (NOTEBOOKS/'llms.txt').read_text(encoding='utf-8')==llms.text()
