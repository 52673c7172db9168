"""The page on which a visitor types a sentence, in a real Chromium, with files from a server of this test.

It needs Chromium, and ELECTRA_NODE_MODULES: a folder in which `npm install onnxruntime-web @huggingface/tokenizers`
has put both packages, since the page takes them from elsewhere."""
import json, os, re, shutil
from pathlib import Path

import numpy as np
import pytest
from browser import CHROMIUM, visited
from onnxruntime import InferenceSession

from electra_nbdev.checking.check import check_text
from electra_nbdev.data.tokenizer import load_tokenizer
from electra_nbdev.sharing.convert import write_onnx

NBS = Path(__file__).resolve().parents[1]/'nbs'
PAGE = (NBS/'try.qmd').read_text(encoding='utf-8')
MODULES = os.environ.get('ELECTRA_NODE_MODULES')
in_a_browser = pytest.mark.skipif(not (CHROMIUM and MODULES), reason='NOT RUN: Chromium and ELECTRA_NODE_MODULES are '
                                  'needed for the page on which a visitor types a sentence')
SENTENCES = ["He opened the because and walked into the room.", "Élodie's café – isn't it well-known?", 'x', '" ... "',
             'The   captain\tof 1,234 ships (and "Mr. Smith") left at 5 o\'clock…', 'ein Straßenfest in 東京']

# What the visitor does, and what the page has said then
VISIT = '''<script type="module">
const said = {}
try {
  const {scored, likelihood} = await import('./try/try.js')
  for (const [form, output] of [['try-one', 'try-scored'], ['try-two', 'try-likelier']]) {
    const begin = performance.now(), o = document.getElementById(output)
    document.getElementById(form).requestSubmit()
    while (!o.dataset.done) await new Promise(r => setTimeout(r, 20))
    said[form] = {text: o.innerText, seconds: (performance.now()-begin)/1000}
  }
  said.scores = []
  for (const text of SENTENCES) {
    const words = await scored(text)
    said.scores.push({ids: words.flatMap(o => o.ids), most: Math.max(...words.map(o => o.probability)),
                      likelihood: await likelihood(text)})
  }
} catch (error) { said.error = String(error) }
await fetch('/said', {method: 'POST', body: JSON.stringify(said)})
</script>'''

@pytest.fixture(scope='module')
def site(tmp_path_factory):
    "The page with its networks and both packages"
    folder = tmp_path_factory.mktemp('site')
    shutil.copytree(NBS/'try', folder/'try', ignore=shutil.ignore_patterns('models'))
    for source,name in (('electra-check', 'check'), ('tiny', 'electra'), ('electric', 'electric')):
        write_onnx(source, folder/'try/models'/name, int8=True)
    (folder/'packages').symlink_to(MODULES)
    html = '\n'.join(re.findall(r'(?s)```\{=html\}\n(.*?)```', PAGE))
    html = re.sub(r'https://cdn\.jsdelivr\.net/npm/(\S+?)@[\d.]+/', r'/packages/\1/', html)
    visit = VISIT.replace('SENTENCES', json.dumps(SENTENCES))
    (folder/'page.html').write_text(f'<!doctype html><meta charset="utf-8">{html}{visit}', encoding='utf-8')
    return folder

def test_the_packages_of_the_page_have_a_version():
    found = re.findall(r'https://cdn\.jsdelivr\.net/npm/\S+?@(\d+\.\d+\.\d+)/', PAGE)
    assert len(found)==PAGE.count('cdn.')==2

def output(network, ids):
    "What an ONNX file says of the tokens between the special ones"
    feed = dict(input_ids=np.array([ids]), attention_mask=np.ones((1, len(ids)), np.int64))
    return InferenceSession(network).run(None, feed)[0][0,1:-1]

@in_a_browser
def test_a_visitor(site, tmp_path):
    said = visited(site, tmp_path)
    assert 'error' not in said, said
    first = said['try-one']
    assert re.search(r'describe \d+ %; a generator would write', first['text']) and first['seconds']<5, first
    assert re.search(r'The (first|second) is likelier: -\d+\.\d and -\d+\.\d nats', said['try-two']['text'])
    tok, other = (load_tokenizer(site/'try/models'/o) for o in ('check', 'electric'))
    for text,o in zip(SENTENCES, said['scores']):
        ids = tok(text).input_ids
        assert o['ids']==ids[1:-1], text
        energies = output(site/'try/models/electric/electric.onnx', other(text).input_ids)
        assert o['most']==pytest.approx(check_text(text, site/'try/models/check').p.max(), abs=.02), text
        assert o['likelihood']==pytest.approx(-energies.sum(), abs=.05*len(ids)), text

@in_a_browser
def test_a_browser_without_webassembly(site, tmp_path):
    page = (site/'page.html').read_text(encoding='utf-8')
    off = page.replace('<meta', '<script>delete globalThis.WebAssembly</script><meta')
    (site/'off.html').write_text(off, encoding='utf-8')
    said = visited(site, tmp_path, 'off')
    assert 'needs WebAssembly' in said['try-one']['text'], said
