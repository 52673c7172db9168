"""Wrong sentences of four kinds, made from right ones that no model of the package read, and what `--show` says.

In a sentence one word is exchanged for another of about the same frequency; a verb no longer agrees with its subject; a
verb has another form; or two words have changed places. Right sentences beside them come from the same texts, and none
of them is made wrong. A sentence is flagged if a word reaches its limit, and ranked right if the highest word is the
wrong one. The limits were measured by `--measure` on right sentences of two other texts, which are read here for
nothing else: it writes `right_sentences.json` beside the discriminators of the package. The last line is JSON, which
`--out` keeps."""
import json, random, re
from collections import Counter
from dataclasses import asdict
from math import log2
from pathlib import Path

from common import RESULTS, arguments, report, table
from likelihoods import share

TEXTS = dict(wikitext='text/wikitext2.valid.detok.txt', subtitles='babylm/open_subtitles.dev') # Read by no model
END = re.compile(r'''(?<![A-Z])([.!?]["')]*)\s+(?=["'(]?[A-Z])''') # Of a sentence
WORD = re.compile(r"(?<= )[a-z]+(?=[ ,.;!?])") # Lower-case words, but the first
RIGHT = 'babylm/gutenberg.dev', 'babylm/simple_wiki.dev' # Where limits are measured; read by no model
MODELS = 'tiny', 'electra-baby'
N = 200 # Sentences of a kind, of a text; twice as many right ones
SENTENCE = re.compile(r"[A-Z][A-Za-z ,;'-]+[.!?]")
SUBJECTS = r'(?i:he|she|it|this|that)', r'(?i:they|we|you|these|those)'
OTHER = dict(zip("is was has does isn't wasn't hasn't doesn't".split(),
                 "are were have do aren't weren't haven't don't".split()))
OTHER |= {b: a for a,b in OTHER.items()}
PAST = dict(zip('gone come seen done taken given known written spoken broken eaten begun'.split(),
                'went came saw did took gave knew wrote spoke broke ate began'.split())) # {participle: past}
PLAIN = dict(go='went', come='came', see='saw', do='did', take='took', give='gave', know='knew', make='made', get='got',
             tell='told', find='found', leave='left', think='thought', say='said', keep='kept', hear='heard')
MODALS = r"(?:to|will|would|can|could|should|must|may|might|did|didn't|don't|won't|can't|couldn't|wouldn't)"

def right_sentences_of(path):
    "Sentences of 6 to 25 words in plain letters, in the order of the text"
    lines = END.sub(r'\1\n', Path(path).read_text()).splitlines()
    known = (o.strip() for o in lines)
    return list(dict.fromkeys(o for o in known if SENTENCE.fullmatch(o) and 6<=len(o.split())<=25))

def swapped(text, match, word):
    "The sentence with another word in the place of a match, and where that word begins"
    return text[:match.start()] + word + text[match.end():], match.start()

def exchanged(text, rng, alike):
    "A word gives way to another of about the same frequency"
    places = [m for m in WORD.finditer(text) if len(alike(m[0]))>1]
    if not places: return
    m = rng.choice(places)
    return swapped(text, m, rng.choice([o for o in alike(m[0]) if o!=m[0]]))

def disagreeing(text, rng, _):
    "A verb whose subject has the other number"
    places = [m for m in re.finditer(rf"(?:(?<=\b){'|'.join(SUBJECTS)}) (\S+)\b", text) if m[1] in OTHER]
    places += list(re.finditer(r"(?<=[a-z]s )(are|were|have)(?= )", text))
    if not places: return
    m = rng.choice(places)
    start = m.start(1)
    return text[:start] + OTHER[m[1]] + text[start+len(m[1]):], start

def misformed(text, rng, _):
    "A past for a participle after `have`, or for the plain form after `to` and modal verbs"
    known = [rf"\b(?:have|has|had|'ve) ({'|'.join(PAST)})\b", rf"\b{MODALS} ({'|'.join(PLAIN)})\b"]
    places = [m for o in known for m in re.finditer(o, text)]
    if not places: return
    m = rng.choice(places)
    word = (PAST | PLAIN)[m[1]]
    return text[:m.start(1)] + word + text[m.end(1):], m.start(1)

def moved(text, rng, _):
    "Two neighbouring words have changed places; the first of them counts as the wrong one"
    places = [m for m in re.finditer(r"(?<= )([a-z]+) ([a-z]+)(?=[ ,.;!?])", text) if m[1]!=m[2]]
    if not places: return
    m = rng.choice(places)
    return swapped(text, m, f'{m[2]} {m[1]}')

KINDS = {'exchanged word': exchanged, 'agreement': disagreeing, 'verb form': misformed, 'word order': moved}

def frequency_classes(sentences):
    "A function that gives the words of the text whose frequency has the same power of two"
    counts = Counter(w for o in sentences for w in WORD.findall(o))
    classes = {}
    for w,n in counts.items():
        if n>1: classes.setdefault(int(log2(n)), []).append(w)
    return lambda word: classes.get(int(log2(counts[word])), []) if counts[word]>1 else []

def wrong_sentences(sentences, kind, n, seed=0):
    "Wrong sentences of a kind, each with the place at which its wrong word begins"
    rng, alike = random.Random(f'{kind} {seed}'), frequency_classes(sentences)
    made = (KINDS[kind](o, rng, alike) for o in rng.sample(sentences, len(sentences)))
    return [o for o in made if o][:n]

def measure(data):
    "Write how high right sentences get beside the discriminators of the package"
    from electra_nbdev.engine.models import shipped
    from electra_nbdev.scoring.score import load_scorer, right_sentences
    rng = random.Random(0)
    texts = [o for name in RIGHT for o in rng.sample(right_sentences_of(data/name), 1000)]
    for model in MODELS:
        found = right_sentences(load_scorer(model, device='cpu'), texts)
        (shipped(model)/'discriminator'/'right_sentences.json').write_text(json.dumps(asdict(found)))

def judged(scorer, right, wrong):
    "Shares of right and wrong sentences that are flagged, and of wrong ones whose highest word is the wrong one"
    from electra_nbdev.scoring.score import score_tokens
    def scored(text):
        v = score_tokens(scorer, text)
        starts = [len(''.join(v.gaps[:i+1])+''.join(v.words[:i])) for i in range(len(v.words))]
        return any(p>=limit for p,limit in zip(v.probs, v.limits)), starts[v.highest]
    found = dict(right=dict(n=len(right), flagged=share([scored(o)[0] for o in right])))
    for kind,cases in wrong.items():
        rows = [(*scored(text), at) for text,at in cases]
        found[kind] = dict(n=len(rows), flagged=share([o for o,_,_ in rows]), first=share([a==b for _,a,b in rows]))
    return found

def main():
    args = arguments(__doc__, data=('', 'folder with babylm/ and text/'),
                     measure=(0, '1: measure right sentences first, and write them beside the models'),
                     out=(str(RESULTS/'wrong_sentences.json'), 'results'))
    if not args.data: raise SystemExit('give the folder of the texts with --data')
    if args.measure: measure(Path(args.data))
    from dataclasses import replace
    from electra_nbdev.scoring.score import load_scorer
    cases = {}
    for name,path in TEXTS.items():
        known = right_sentences_of(Path(args.data)/path)
        random.Random(1).shuffle(known)
        right, rest = known[:2*N], known[2*N:]
        cases[name] = right, {kind: wrong_sentences(rest, kind, N) for kind in KINDS}
    found = {}
    for model in MODELS:
        scorer = replace(load_scorer(model, device='cpu'), generator=None)
        found[model] = {name: judged(scorer, *o) for name,o in cases.items()}
    def shown(o): return f"{o['accuracy']} [{o['low']}, {o['high']}]"
    table(('model', 'text', 'kind', 'n', 'flagged, %', 'ranked first, %'),
          [(m, t, k, o['n'], shown(o['flagged']), shown(o['first']) if 'first' in o else '')
           for m,texts in found.items() for t,kinds in texts.items() for k,o in kinds.items()])
    report(dict(benchmark='wrong_sentences', found=found), args.out)

if __name__=='__main__': main()
