"""Cells that print something else today than what their notebook stores: `python tools/stale.py NOTEBOOK ...`

Seconds and addresses are left out of the comparison, pictures and messages on stderr too. Where a reader would be
misled, run the notebook in Jupyter and save it."""
import os, re, sys
from pathlib import Path

from execnb.shell import CaptureShell
from fastcore.nbio import read_nb

VARYING = re.compile(r'0x[0-9a-f]+|/tmp/\w+|\d+\.\d+ s\b|time \d\d:\d\d')

def said(outputs):
    "Text of the outputs of a cell"
    def text(o):
        if o['output_type']=='stream': return ''.join(o['text'])*(o['name']=='stdout')
        return ''.join(o.get('data', {}).get('text/plain', ''))
    return VARYING.sub('', ''.join(map(text, outputs or []))).strip()

def stale(path):
    "Index, stored text and fresh text of every cell where they differ"
    nb, here = read_nb(path), Path.cwd()
    os.chdir(path.parent)
    try:
        shell = CaptureShell(path.parent)
        for i,cell in enumerate(nb.cells):
            if cell.cell_type!='code' or cell.source.startswith('#| hide\n!') or 'eval: false' in cell.source: continue
            stored, fresh = said(cell.get('outputs')), said(shell.run(cell.source))
            if stored and stored!=fresh: yield i, stored, fresh
    finally: os.chdir(here)

def main():
    os.environ['IN_TEST'] = '1'
    for name in sys.argv[1:]:
        for i,stored,fresh in stale(Path(name).resolve()):
            print(f'{name} [{i}]\n{stored}\n--- today\n{fresh}\n', flush=True)

if __name__=='__main__': main()
