"""Count Python tokens of the package, a module a line, without comments, docstrings, layout and `_modidx`.

`tokens.py [FOLDER]` counts below another folder."""
import ast, sys, tokenize
from pathlib import Path

LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
          tokenize.ENDMARKER}
DOCUMENTED = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef

def docstrings(text):
    "(line, column) at which each docstring begins"
    for n in ast.walk(ast.parse(text)):
        if isinstance(n, DOCUMENTED) and ast.get_docstring(n, clean=False) is not None:
            yield n.body[0].lineno, n.body[0].col_offset

def count(path):
    "Tokens of a file"
    docs = set(docstrings(path.read_text(encoding='utf-8')))
    with open(path, 'rb') as f:
        return sum(o.type not in LAYOUT and o.start not in docs for o in tokenize.tokenize(f.readline))

def main(folder=Path(__file__).resolve().parents[1]/'electra_nbdev'):
    files = [o for o in sorted(Path(folder).rglob('*.py')) if o.name!='_modidx.py']
    found = {o.relative_to(folder).as_posix(): count(o) for o in files}
    for k,v in found.items(): print(f'{v:7,}  {k}')
    print(f'{sum(found.values()):7,}  in all')

if __name__=='__main__': main(*sys.argv[1:])
