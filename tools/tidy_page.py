"What nbdev's pages need so that code stands on them once, and can be read: the last step of `nbdev-docs`"
import ast, re
from base64 import b64decode
from io import BytesIO
from pathlib import Path

from fastcore.basics import patch
from PIL import Image

LONGEST = 60 # Characters of a default that a signature shows

def readable(
    signature:str, # As `show_doc` prints it
)->str:
    "A signature without module names, `NoneType`, addresses and long defaults"
    signature = re.sub(r"<function (\w+?)(_arg)? at 0x\w+>|<class '([\w.]+)'>", lambda m: m[1] or m[3], signature)
    signature = re.sub(r'\b(?:[A-Za-z_]\w*\.)+(?=[A-Z])', '', signature)
    signature = re.sub(r':NoneType=', '=', signature)
    return re.sub(r'(?m)(=)((?:(?!, #).){%d,}?)(, #|,?$)' % LONGEST, r'\1…\3', signature)

def defined_names(
    source:str, # Of a cell
)->list: # Names in their order, of a patched method `Class.method`
    "What a cell defines, as `show_doc` is asked for it"
    names = []
    for o in ast.parse(source).body:
        if not isinstance(o, (ast.FunctionDef, ast.ClassDef)): continue
        patched = any(ast.unparse(d).startswith('patch') for d in o.decorator_list)
        owner = [ast.unparse(a.annotation) for a in o.args.args[:1] if a.annotation] if patched else []
        names.append('.'.join([*owner, o.name]))
    return names

def numbered(
    front:str, # Front matter of a page: YAML between lines of dashes
    path, # Of its notebook
)->str:
    "The front matter with the notebook's number before the title"
    number = re.match(r'\d+', Path(path).name)
    return re.sub(r"""(?m)^(title: ['"]?)""", rf'\g<1>{number[0]} ', front) if number else front

def css_size(
    png:str, # As an output holds it, base64
)->dict: # `width` and `height`, CSS pixels: 96 an inch
    "The size in which a picture was drawn"
    image = Image.open(BytesIO(b64decode(png)))
    resolution = image.info.get('dpi', (96, 96))
    return {k: round(96*n/dpi) for k,n,dpi in zip(('width', 'height'), image.size, resolution)}

def scrolled(
    text:str, # Markdown
)->str:
    "The text with each table and each formula in a box that scrolls by itself, by keys too"
    def boxed(m): return f'\n::: {{.scrolled tabindex=0}}\n{m[0].rstrip()}\n:::\n' if m[0][0] in '|$' else m[0]
    return re.sub(r'(?ms)^```.*?^```|(?:^\|[^\n]*\n?)+|^\$\$[^$]+\$\$$', boxed, text)

class TidyPage:
    "One of nbdev's processors: numbers in titles, code once, pictures in their size, tables that scroll"
    def __init__(self,
        nb, # Notebook of a page
    ): self.nb = nb

    def begin(self):
        "Names whose source is on the page"
        self.shown = []
        for cell in self.nb.cells:
            if cell.cell_type=='code' and 'exports' in cell.directives_: self.shown += defined_names(cell.source)

    def __call__(self,
        cell, # Cell of a page
    ):
        "One cell"
        if cell.cell_type=='raw': cell.source = numbered(cell.source, getattr(self.nb, 'path_', ''))
        if cell.cell_type=='markdown': cell.source = scrolled(cell.source)
        if cell.cell_type!='code': return
        cell.metadata.pop('execution', None) # with it Quarto wraps the heading, and no table of contents has it
        cell.source = re.sub(r'(?m)^#\| (code-fold: show|code-summary:.*)\n', '', cell.source) # of nbdev
        for o in cell.outputs:
            data = o.get('data', {})
            if png := data.get('image/png'): o.setdefault('metadata', {})['image/png'] = css_size(png)
            html = ''.join(data.get('text/html', ''))
            if '<table' in html: data['text/html'] = f'<div class="scrolled" tabindex="0">\n{html}\n</div>'
        asked = re.search(r'(?m)^show_doc\(([\w.]+)', cell.source)
        if asked: cell.outputs = [self.tidied(o, asked[1]) for o in cell.outputs if 'data' in o]

@patch
def end(self:TidyPage):
    "All headings of a cell stand before its source, in the order of its definitions"
    for source in [o for o in self.nb.cells if o.cell_type=='code' and 'exports' in o.directives_]:
        names = defined_names(source.source)
        own = {n: o for o in self.nb.cells for n in names if o.source.split('\n')[-1]==f'show_doc({n})'}
        rest = [o for o in self.nb.cells if not any(o is h for h in own.values())]
        at = next(i for i,o in enumerate(rest) if o is source)
        self.nb.cells = rest[:at] + [own[n] for n in names if n in own] + rest[at:]

@patch
def tidied(self:TidyPage,
    output, # Of `show_doc`
    name:str, # What was shown
):
    "The heading, and the signature where the source is not on the page"
    text = ''.join(output['data']['text/markdown'])
    heading, signature, rest = re.match(r'(?s)(.*?)(```python.*?```|$)(.*)', text).groups()
    if name in self.shown: signature = rest = ''
    output['data'] = {'text/markdown': heading + readable(signature) + rest}
    return output
