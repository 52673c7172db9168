"""What a page of the site must not have: seen in the notebooks that nbdev processes for it, without quarto.

`python tools/pages.py` processes the notebooks into _proc, as `make docs` does first, and prints what is wrong."""
import json, re, sys
from pathlib import Path

import yaml

LEAKS = re.compile(r'__main__\.|NoneType|<function|<class|\bat 0x')
LINK = re.compile(r'(!?)\[([^\]]*)\]\((?!https?:|mailto:|data:|attachment:)([^)\s]+)\)')
MENTION = re.compile(r'(?<!\[)`(\d\d_[a-z_]+)`')
SITE = re.compile(r'https://electra-nbdev\.github\.io/electra_nbdev/([^)#\s"]+\.html)(?:#([^)\s"]+))?')
FILE = re.compile(r'/electra-nbdev/electra_nbdev/(?:blob|tree)/main/([^)#\s"]+)')
ROOT = Path(__file__).resolve().parents[1]
LONGEST = 120 # Characters of a line of code

def markdown_of(cell):
    "Text of a cell, and of what `show_doc` says in its output"
    if cell['cell_type']=='markdown': yield ''.join(cell['source'])
    for o in cell.get('outputs', []):
        if 'text/markdown' in o.get('data', {}): yield ''.join(o['data']['text/markdown'])

def headings(text): return [o.strip() for o in re.findall(r'(?m)^#{2,4} +(.*)$', text)]
def anchor(heading):
    "The address of a heading, by pandoc's rules"
    heading = re.sub(r'[^\w.-]', '', re.sub(r'\{.*\}|`|\]\(.*?\)', '', heading).lower().strip().replace(' ', '-'))
    return re.sub(r'^[^a-z]+', '', heading)
def pictures(cell): return [o for o in cell.get('outputs', []) if 'image/png' in o.get('data', {})]

def read_as_yaml(source):
    "Whether quarto can read the directives of a cell"
    try: yaml.safe_load('\n'.join(o[2:].lstrip() for o in source.split('\n') if re.match(r'#\| *[\w-]+: ', o)))
    except yaml.YAMLError: return False
    return True

def faults_of_cell(cell, page, root, names, pages):
    "What is wrong with a cell of a page; `pages` has the headings of each"
    source = ''.join(cell['source'])
    if extra := set(cell.get('metadata', {})) - {'language'}: yield f'metadata {sorted(extra)}'
    if cell['cell_type']=='code':
        long = [o for o in source.split('\n') if len(o)>LONGEST and not o.startswith('#|')]
        if long: yield f'a line of {max(map(len, long))} characters: {long[0][:60]}'
        if not read_as_yaml(source): yield 'directives that are no YAML; put the text in quotes'
        if pictures(cell) and '#| fig-alt:' not in source: yield 'a picture without `#| fig-alt:`'
    for text in markdown_of(cell):
        if leak := LEAKS.search(text): yield f'{leak[0]!r} in {text[max(0, leak.start()-40):leak.end()+20]!r}'
        long = [o for o in re.findall(r'(?s)```python\n(.*?)```', text) for o in o.split('\n') if len(o)>LONGEST]
        if long: yield f'a signature with a line of {max(map(len, long))} characters: {long[0][:60]}'
        prose = re.sub(r'(?s)```.*?```', '', text)
        for name in MENTION.findall(prose):
            if name in names: yield f'`{name}` is no link'
        for picture,alt,target in LINK.findall(re.sub(r'`[^`\n]*`', 'code', prose)):
            path, _, place = target.partition('#')
            if picture and not alt: yield f'{target} has no alternative text'
            file = (page.parent/path).resolve() if path else page
            if not file.exists(): yield f'{target} does not exist'
            elif place and place not in pages[address(file.relative_to(root))]: yield f'{target} is no heading'
        for o,place in SITE.findall(prose):
            if o not in pages: yield f'{o} is no page'
            elif place and place not in pages[o]: yield f'{o}#{place} is no heading'
        for o in FILE.findall(prose):
            if not (ROOT/o).exists(): yield f'{o} is no file of the repository'

def address(page):
    "Of a page on the site: nbdev leaves out the number of a notebook"
    html = page.with_suffix('.html').as_posix()
    return re.sub(r'(^|/)\d+_', r'\1', html) if page.suffix=='.ipynb' else html

def cells_of(page):
    "Cells of a processed notebook; of a page of text its front matter and its text"
    text = page.read_text(encoding='utf-8')
    if page.suffix=='.ipynb': return json.loads(text)['cells']
    front, body = re.match(r'(?s)(---\n.*?\n---\n)(.*)', text).groups()
    return [dict(cell_type='raw', source=[front]), dict(cell_type='markdown', source=[body])]

def addresses(page):
    "Of the headings of a page"
    return {anchor(h) for cell in cells_of(page) for text in markdown_of(cell) for h in headings(text)}

def sources(root):
    "The processed notebooks, and the pages of text, of a folder"
    return sorted([*root.rglob('*.ipynb'), *root.rglob('*.qmd')])

def faults(root):
    "What is wrong with the pages of a folder"
    root = root.resolve()
    found = sources(root)
    names = {o.stem for o in found}
    pages = {address(o.relative_to(root)): addresses(o) for o in found}
    for page in found:
        cells, where = cells_of(page), page.relative_to(root)
        for i,cell in enumerate(cells):
            for fault in faults_of_cell(cell, page, root, names, pages): yield f'{where}, cell {i}: {fault}'
        shown = {anchor(h) for c in cells if c['cell_type']=='code' for t in markdown_of(c) for h in headings(t)}
        for h in (h for c in cells if c['cell_type']=='markdown' for h in headings(''.join(c['source']))):
            if anchor(h) in shown: yield f'{where}: the heading {h!r} takes the address of a function'
        colab = any('colab.research.google.com' in ''.join(c['source']) for c in cells)
        if page.suffix=='.ipynb' and page.stem!='index' and not colab:
            yield f'{where}: no link to Colab'
        title = re.search(r'(?m)^title: (.*)$', '\n'.join(''.join(c['source']) for c in cells if c['cell_type']=='raw'))
        number = re.match(r'\d*', page.name)[0]
        if not title or number not in title[1]: yield f'{where}: no title with its number'

def main():
    from nbdev.serve import proc_nbs
    found = list(faults(proc_nbs(force=True)))
    print('\n'.join(found))
    return bool(found)

if __name__=='__main__': sys.exit(main())
