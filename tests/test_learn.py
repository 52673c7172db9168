"""The page on which a tiny ELECTRA learns: in Node its gradients are those of torch, and it learns; in Chromium it
answers a visitor.

`python tests/test_learn.py` writes again what torch computes, for `fixtures/learn.json`."""
import json, math, re, shutil, subprocess
from pathlib import Path

import pytest
import torch
from browser import CHROMIUM, visited
from torch.nn import functional as F

NBS = Path(__file__).resolve().parents[1]/'nbs'
PAGE = (NBS/'learn.qmd').read_text(encoding='utf-8')
SCRIPT = (NBS/'try/learn.js').read_text(encoding='utf-8')
RECORDED = Path(__file__).with_name('fixtures')/'learn.json'
needs_node = pytest.mark.skipif(not shutil.which('node'), reason='NOT RUN: Node is needed for the page that learns')

# Networks of two rows of four letters, with weights by a formula, and both losses with the gradients of all weights
SIZES = dict(width=8, heads=2, generator=1, discriminator=2, length=4)
VOCABULARY, PLACES = 6, [1, 6]
IDS, READ = [1, 2, 3, 4, 5, 1, 2, 2], [1, 5, 3, 4, 5, 1, 2, 2] # The generator's guess in the second row was right
LOSSES = """
Object.assign(SIZE, SIZES)
const net = networks(VOCABULARY, () => 0), ids = Int32Array.from(IDS)
net.all.forEach((w, k) => w.v.forEach((_, i) => { w.v[i] = .3*Math.sin(1+i+7*k) }))
const g = generate(net, {ids, places: PLACES}), d = discriminate(net, Int32Array.from(READ), ids)
backward()
console.log(JSON.stringify({losses: [g.loss, d.loss], gradients: net.all.map(w => [...w.g])}))
"""

# What a thousand steps on the page's text bring
LEARNS = """
const o = training(text), before = auc(o), losses = []
while (o.done < 1000) losses.push(step(o))
const mean = i => losses.slice(-100).reduce((sum, o) => sum + o[i]/100, 0)
console.log(JSON.stringify({before, after: auc(o), generator: mean(0), discriminator: mean(1), replaced: mean(2)}))
"""

# What a visitor does, and what the page says and shows then
VISIT = """<script type="module">
const element = id => document.getElementById(`learn-${id}`), said = {}
const until = async found => { while (!found()) await new Promise(r => setTimeout(r, 20)) }
try {
  await until(() => element('said').textContent)
  element('start').click()
  await until(() => element('auc-curve').points.numberOfItems > 1)
  element('start').click()
  await until(() => element('start').textContent == 'Start')
  said.auc = element('auc').textContent
  said.points = ['generator', 'discriminator', 'auc'].map(o => element(`${o}-curve`).points.numberOfItems)
  for (const o of ['reads', 'guesses', 'doubts']) said[o] = element(o).textContent
  said.colours = new Set([...element('doubts').children].map(o => o.style.background)).size
  element('text').value = 'Too short'
  element('text').dispatchEvent(new Event('input'))
  said.short = element('start').disabled
  element('text').value = 'Ein Text, lang genug: größer als tausend Zeichen. '.repeat(30)
  element('reset').click()
  await until(() => element('said').textContent.startsWith('Step 0 '))
  said.other = [element('start').disabled, element('auc-curve').points.numberOfItems]
} catch (error) { said.error = String(error) }
await fetch('/said', {method: 'POST', body: JSON.stringify(said)})
</script>"""

def run(code, *args):
    "What Node prints after the page's script"
    done = subprocess.run(['node', '-', *args], input=SCRIPT+code, capture_output=True, encoding='utf-8', timeout=300)
    assert not done.returncode, done.stderr
    return json.loads(done.stdout)

def parameters():
    "Weights by the formula, in the order of the page's list, by the page's names"
    d, shapes = SIZES['width'], {}
    def dense(name, n, m): shapes.update({f'{name}.w': (m, n), f'{name}.b': (m,)})
    dense('letters', d, VOCABULARY)
    dense('answer', d, 1)
    for body in ('generator', 'discriminator'):
        for layer in range(SIZES[body]):
            name = f'{body}.{layer}'
            dense(f'{name}.qkv', d, 3*d)
            shapes[f'{name}.near'] = (SIZES['heads'], 2*SIZES['length']-1)
            for o,n,m in (('out', d, d), ('up', d, 4*d), ('down', 4*d, d)): dense(f'{name}.{o}', n, m)
    made = {}
    for k,(name,shape) in enumerate(shapes.items()):
        i = torch.arange(torch.Size(shape).numel(), dtype=torch.float64)
        made[name] = (.3*torch.sin(1+i+7*k)).reshape(shape).requires_grad_()
    return made

def states(p, body, ids):
    "States of ids, (rows, length), by torch's own functions"
    d, heads, length = (SIZES[o] for o in ('width', 'heads', 'length'))
    def linear(x, name): return F.linear(x, p[f'{name}.w'], p[f'{name}.b'])
    def norm(x): return F.layer_norm(x, (d,), eps=1e-6)
    distance = torch.arange(length)[None]-torch.arange(length)[:,None] + length-1
    x = p['letters.w'][ids]
    for layer in range(SIZES[body]):
        name = f'{body}.{layer}'
        qkv = linear(norm(x), f'{name}.qkv').unflatten(-1, (3, heads, d//heads)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*qkv, attn_mask=p[f'{name}.near'][:,distance])
        x = x + linear(mixed.transpose(1, 2).flatten(2), f'{name}.out')
        x = x + linear(F.gelu(linear(norm(x), f'{name}.up'), approximate='tanh'), f'{name}.down')
    return norm(x)

def of_torch():
    "Both losses and all gradients, computed by torch"
    p, (ids, read) = parameters(), (torch.tensor(o).view(-1, SIZES['length']) for o in (IDS, READ))
    masked = ids.flatten().index_fill(0, torch.tensor(PLACES), 0).view_as(ids)
    logits = F.linear(states(p, 'generator', masked).flatten(0, 1)[PLACES], p['letters.w'], p['letters.b'])
    gen_loss = F.cross_entropy(logits, ids.flatten()[PLACES])
    answers = F.linear(states(p, 'discriminator', read), p['answer.w'], p['answer.b'])[...,0]
    disc_loss = F.binary_cross_entropy_with_logits(answers, (read!=ids).double())
    (gen_loss + 50*disc_loss).backward()
    return dict(losses=[gen_loss.item(), disc_loss.item()], gradients=[o.grad.flatten().tolist() for o in p.values()])

def assert_equal(found, wanted):
    "To 1e-4 of the largest number of each matrix"
    assert found['losses']==pytest.approx(wanted['losses'], rel=1e-4)
    assert len(found['gradients'])==len(wanted['gradients'])
    for name,f,w in zip(parameters(), found['gradients'], wanted['gradients']):
        assert f==pytest.approx(w, rel=1e-4, abs=1e-4*max(map(abs, w))), name

def test_recorded_values_are_those_of_torch():
    assert_equal(json.loads(RECORDED.read_text()), of_torch())

@needs_node
def test_gradients():
    code = re.sub('SIZES|VOCABULARY|PLACES|IDS|READ', lambda o: json.dumps(globals()[o[0]]), LOSSES)
    assert_equal(run(code), json.loads(RECORDED.read_text()))

def test_the_page_says_what_was_measured():
    found = json.loads((NBS.parent/'benchmarks/results/learn_page.json').read_text())
    ends = [run[-1]['auc'] for run in found['runs'].values()]
    assert f'ended at {min(ends):.2f} to {max(ends):.2f}' in PAGE

@needs_node
def test_it_learns():
    "On the page it goes on for 2,400 steps"
    text = (NBS/'try/learn.txt').read_text(encoding='utf-8')
    said = run(f'const text = {json.dumps(text)}\n{LEARNS}')
    share = said['replaced']
    base = -share*math.log(share) - (1-share)*math.log(1-share)
    assert abs(said['before']-.5)<.06 and said['after']>.57, said
    assert said['generator']<2.5 and said['discriminator']<base, said # Letters' frequencies alone: 2.94

@pytest.mark.skipif(not CHROMIUM, reason='NOT RUN: Chromium is needed for the page that learns')
def test_a_visitor(tmp_path):
    shutil.copytree(NBS/'try', tmp_path/'site/try', ignore=shutil.ignore_patterns('models'))
    html = '\n'.join(re.findall(r'(?s)```\{=html\}\n(.*?)```', PAGE))
    (tmp_path/'site/page.html').write_text(f'<!doctype html><meta charset="utf-8">{html}{VISIT}', encoding='utf-8')
    said = visited(tmp_path/'site', tmp_path/'chromium')
    assert 'error' not in said and re.fullmatch(r'0\.\d\d \(0\.50\)', said['auc']), said
    assert said['points']==[2, 2, 2] and [len(said[o]) for o in ('reads', 'guesses', 'doubts')]==[96]*3, said
    assert said['reads'].count('_')>5 and said['colours']>5, said
    assert said['short'] and said['other']==[False, 0], said

def test_250_lines_and_nothing_from_elsewhere():
    assert len(SCRIPT.splitlines())<=250
    assert re.findall('<script[^>]*>', PAGE)==['<script src="try/learn.js" defer>'] # No more of it on the page
    assert not re.search(r'https?:|\b(import|require)\b', SCRIPT)
    assert re.findall(r'fetch\((.*?)\)', SCRIPT)==["'try/learn.txt'"] and (NBS/'try/learn.txt').is_file()

if __name__=='__main__':
    recorded = of_torch()
    recorded['gradients'] = [[float(f'{x:.7g}') for x in o] for o in recorded['gradients']]
    RECORDED.write_text(json.dumps(recorded)+'\n')
