"""How often the discriminator finds the odd word: sentences of held-out documents in which one word gave way to another word of the same documents.

A sentence counts if its highest probability stands at the exchanged word; the other word is drawn as often as the text has it, and fits now and then.
The last line is JSON, with 95 % intervals."""
import json, random, re
from pathlib import Path

from common import arguments, table

SENTENCE = re.compile(r"[a-z' ,;-]+[.!?]")
WORD = re.compile(r"(?<![\w'])[a-z]{3,}(?![\w'])")

def sentences(examples):
    "Whole sentences of 8 to 20 words, from the middle of every row"
    from electra_nbdev.domain import held_out_texts
    for text in held_out_texts(examples, len(examples)):
        rows = re.split(r'(?<=[.!?]) ', re.sub(r" ([.,;!?'])", r'\1', text))
        yield from (o for o in rows[1:-1] if SENTENCE.fullmatch(o) and 8<=o.count(' ')+1<=20)

def exchanged(examples, n, seed):
    "Sentences with a strange word, and where it stands"
    found, rng = sorted(set(sentences(examples))), random.Random(seed)
    words = [w for o in found for w in WORD.findall(o)]
    for s in rng.sample(found, min(n, len(found))):
        if not (places := list(WORD.finditer(s))): continue
        place, odd = rng.choice(places), rng.choice(words)
        if odd!=place[0]: yield s[:place.start()]+odd+s[place.end():], place.start()

def judge(name, cases):
    "Which of the odd words are found"
    from electra_nbdev.score import load_scorer, verdict
    scorer = load_scorer(name)
    def suspect(text):
        v = verdict(scorer, text, n=0)
        i = v.probs.index(max(v.probs))
        return len(''.join(v.gaps[:i+1])+''.join(v.words[:i]))
    return [suspect(text)==at for text,at in cases]

def main():
    args = arguments(__doc__, data=('', 'folder of examples with held-out documents'), models=('tiny', 'models or runs, with commas between'),
                     sentences=(600, 'sentences'), seed=(0, 'of the exchange'))
    if not args.data: raise SystemExit('give a folder that electra_data wrote with --held-out, with --data')
    from scipy.stats import binomtest
    from electra_nbdev.data import load_examples
    cases = list(exchanged(load_examples(Path(args.data)/'held_out'), args.sentences, args.seed))
    found = {}
    for o in args.models.split(','):
        right = judge(o, cases)
        ci = binomtest(sum(right), len(right)).proportion_ci(method='wilson')
        found[Path(o).name] = dict(found=round(sum(right)/len(right), 4), interval=[round(ci.low, 4), round(ci.high, 4)])
    table(('model', 'found', '95 %'), [(k, f"{o['found']:.1%}", '{:.1%}-{:.1%}'.format(*o['interval'])) for k,o in found.items()])
    print(json.dumps(dict(benchmark='odd_words', **found, sentences=len(cases), seed=args.seed)))

if __name__=='__main__': main()
