"""Every page of the site in Chromium, without quarto: how wide it is, and what axe finds, in both themes.

    ELECTRA_NODE_MODULES=FOLDER python tools/measure_site.py [--shots FOLDER] [PAGE ...]

makes the pages, looks for what `tools/pages.py` looks for, renders them by pandoc with the site's style sheet and the
colours of its themes, and prints a line for each page. It needs Chromium, `pip install playwright pypandoc-binary`, and
axe: `npm install axe-core` in a folder, whose `node_modules` is named by ELECTRA_NODE_MODULES. Not checked, since only
quarto makes them: navigation, search, numbers of sections, the colours of code, formulas by MathJax."""
import argparse, os, re, shutil, subprocess, sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pages

WIDTHS = 360, 400, 800, 1400 # Pixels of a window
THEMES = dict(light=('#fff', '#373a3c', '#1d6ec7'), dark=('#222', '#fff', '#00bc8c')) # cosmo, darkly: paper, ink, links
HIGHEST = 3000 # Pixels that the first page may have in the widest window
TEMPLATE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>$title$</title>
<meta name="viewport" content="width=device-width"><style>* { box-sizing: border-box }
body { font: 1rem/1.5 "Source Sans 3"; margin: 0 } main { max-width: 924px; margin: auto; padding: 12px }
pre, code { font-size: .875rem } table { border-collapse: collapse }
td, th { padding: .5rem; text-align: left; vertical-align: top; border-bottom: 1px solid #8888 }
.grid { display: grid; gap: 0 1.5rem; grid-template-columns: repeat(auto-fit, minmax(16rem, 1fr)) }</style>
<style id="theme"></style><link rel="stylesheet" href="$root$styles.css">
<body><main><h1>$title$</h1><p>$description$</p>$body$</main></body></html>"""

# Pages, as quarto reads them: a notebook as Markdown

def fenced(text, kind=''):
    "A block of code, or of HTML"
    fence = '`'*max([3, *(len(o)+1 for o in re.findall('`+', text))])
    return f'{fence}{kind}\n{text}\n{fence}'

def output_text(output, alt):
    "Markdown of one output"
    data = {k: ''.join(o) for k,o in output.get('data', {}).items()}
    if 'text/html' in data: return fenced(data['text/html'], '{=html}')
    if 'image/png' in data:
        size = output['metadata']['image/png']
        return f"![{alt}](data:image/png;base64,{data['image/png'].strip()}){{width={size['width']}}}\\"
    return data.get('text/markdown') or fenced(data.get('text/plain') or ''.join(output.get('text', '')))

def cell_text(cell):
    "Markdown of one cell"
    source = ''.join(cell['source'])
    if cell['cell_type']!='code': return source
    alt = re.search(r'(?m)^#\| fig-alt: "?(.*?)"?$', source)
    outputs = [f'::: {{.cell-output}}\n{output_text(o, alt[1] if alt else "")}\n:::' for o in cell['outputs']]
    code = [] if '#| echo: false' in source else [fenced(re.sub(r'(?m)^#\|.*\n?', '', source), '{.python}')]
    if '#| code-fold: true' in source: code = ['<details><summary>Code</summary>\n', *code, '\n</details>']
    return '\n\n'.join(code + outputs)

def render(page, root, pandoc, template):
    "A page as HTML, in the place that it has on the site"
    html = root/pages.address(page.relative_to(root))
    up = '../'*(len(html.relative_to(root).parts)-1)
    subprocess.run([pandoc, '-t', 'html', '--mathml', '--syntax-highlighting=none', f'--template={template}',
                    '-V', f'root={up}', '-o', html], check=True, encoding='utf-8',
                   input='\n\n'.join(map(cell_text, pages.cells_of(page))))
    return html

# The browser

WIDEST = """[...document.querySelectorAll('main *')].filter(o => !o.closest('.scrolled'))
  .filter(o => o.getBoundingClientRect().right > innerWidth).map(o => o.outerHTML.slice(0, 80)).pop()"""
PICTURES = "[...document.images].filter(o => !o.naturalWidth || !o.alt).map(o => o.src.slice(0, 80))"
DRESS = """document.body.className = 'quarto-%s'; document.getElementById('theme').textContent =
  ':root { color-scheme: %s; background: %s; color: %s } a { color: %s }'"""
AXE = """axe.run({resultTypes: ['violations']}).then(all => all.violations
  .filter(o => ['serious', 'critical'].includes(o.impact)).map(o => `${o.id}: ${o.nodes[0].html.slice(0, 80)}`))"""

def measured(tab, html, axe, shots):
    "What is wrong with a page"
    tab.goto(html.as_uri())
    tab.evaluate(axe)
    if '::: {' in tab.inner_text('body'): yield 'a fence that is no fence'
    for o in tab.evaluate(PICTURES): yield f'a picture that is not there, or has no alternative text: {o}'
    for width in WIDTHS:
        tab.set_viewport_size(dict(width=width, height=900))
        found = tab.evaluate('document.documentElement.scrollWidth')
        if found>width: yield f'{found} pixels wide in a window of {width}: {tab.evaluate(WIDEST)}'
        for theme,colours in THEMES.items():
            tab.evaluate(DRESS % (theme, theme, *colours))
            for o in tab.evaluate(AXE): yield f'{theme}, {width}: {o}'
            if shots: tab.screenshot(full_page=True, path=shots/f'{html.stem}-{width}-{theme}.png')

def programs():
    "Chromium, pandoc and axe, or one line that says what is missing"
    chromium = next(filter(None, map(shutil.which, ('chromium', 'chromium-browser', 'google-chrome'))), None)
    try: pandoc = shutil.which('pandoc') or __import__('pypandoc').get_pandoc_path()
    except ImportError: pandoc = None
    axe = Path(os.environ.get('ELECTRA_NODE_MODULES', 'node_modules'))/'axe-core/axe.min.js'
    there = {'Chromium': chromium, 'pandoc': pandoc, 'playwright': find_spec('playwright'), str(axe): axe.exists()}
    missing = [name for name,o in there.items() if not o]
    if missing: sys.exit(f"not there: {', '.join(missing)}; the beginning of {__file__} tells what is needed")
    return chromium, pandoc, axe.read_text(encoding='utf-8')

def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('pages', nargs='*', help='such as method/01_masking.ipynb; all, where none is named')
    parser.add_argument('--shots', type=Path, help='folder for a picture of each page, window and theme')
    args = parser.parse_args()
    chromium, pandoc, axe = programs()
    from nbdev.serve import proc_nbs
    from playwright.sync_api import sync_playwright
    root = proc_nbs(force=not args.pages)
    failed = list(pages.faults(root))
    if failed: print(*failed, sep='\n')
    with TemporaryDirectory() as tmp, sync_playwright() as play:
        (template := Path(tmp)/'page.html').write_text(TEMPLATE, encoding='utf-8')
        browser = play.chromium.launch(executable_path=chromium, args=['--no-sandbox'])
        tab = browser.new_page()
        for page in [root/o for o in args.pages] or pages.sources(root):
            html = render(page, root, pandoc, template)
            found = list(measured(tab, html, axe, args.shots))
            high = tab.evaluate('document.documentElement.scrollHeight')
            if page.stem=='index' and high>HIGHEST: found.append(f'{high} pixels high')
            print(f"{'FAILED' if found else 'ok':<6} {page.relative_to(root)}", *found, sep='\n       ', flush=True)
            failed += found
        browser.close()
    return bool(failed)

if __name__=='__main__': sys.exit(main())
