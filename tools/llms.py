"""The pages of the site in one list for language models (llmstxt.org): `python tools/llms.py` writes nbs/llms.txt.

nbdev writes such a file from an index notebook; ours is a page of text. The list is that of nbs/notebooks.qmd, with the
pages of text before it; addresses are those of the Markdown that quarto writes beside every page."""
import re
from pathlib import Path

import yaml

import pages

NBS = pages.ROOT/'nbs'
SITE = 'https://electra-nbdev.github.io/electra_nbdev/'
FIRST = 'index', 'assistants', 'paths', 'guide', 'budget', 'trials', 'evidence', 'gpu', 'compare', 'try', 'learn'
PAGE = r'\[(?:\d+ )?(?P<title>[^\]]+)\]\((?P<path>[^)]+)\) \| (?P<what>.*) \|$'
ROW = re.compile(rf'^\| (?:\*\*(?P<section>[^*]+)\*\* \||{PAGE})')

def line(title, path, what): return f'- [{title}]({SITE}{pages.address(Path(path))}.md): {plain(what)}'
def plain(text): return re.sub(r'\[([^\]]*)\]\([^)]*\)', r'\1', text)

def front(name):
    "Title and description of a page of text"
    found = yaml.safe_load((NBS/f'{name}.qmd').read_text(encoding='utf-8').split('---\n')[1])
    return found['title'], f'{name}.qmd', found['description']

def text():
    "The whole file"
    title, _, what = front('index')
    parts = [f'# {title}', '', f'> {what}', '', '## Pages', '', *(line(*front(o)) for o in FIRST)]
    for row in map(ROW.match, (NBS/'notebooks.qmd').read_text(encoding='utf-8').split('\n')):
        if row and row['section']: parts += ['', f"## {row['section']}", '']
        elif row: parts.append(line(row['title'], row['path'], row['what']))
    return '\n'.join(parts)+'\n'

if __name__=='__main__': (NBS/'llms.txt').write_text(text(), encoding='utf-8')
