"""What an Electric's likelihoods are worth: word order, one word, minimal pairs, n-best lists; the numbers of its card.

Word order is measured on the embedded novels always, which the model of the package was trained on; with `--data` (a
folder with blimp/, nbest/, babylm/ and text/) also on English of another kind, and with it words, pairs and lists. The
last line is JSON, which `--out` keeps."""
import random, re
from pathlib import Path
from zlib import crc32

from scipy.stats import binomtest

from common import RESULTS, arguments, report, table

WAYS = dict(energy='energies', towers='towers') # {name in the results: way}
ONE_WORD = dict(wikitext='text/wikitext2.valid.detok.txt', subtitles='babylm/open_subtitles.dev')
NBEST = 'test_cv', 'wsj_scored_dev' # Lists of hypotheses, without and with scores
SHUFFLED = 300 # Sentences of each text
END = re.compile(r'''(?<![A-Z])([.!?]["')]*)\s+(?=["'(]?[A-Z])''') # Of a sentence

def shuffled(sentence, rng):
    "The words of a sentence in another order"
    words = sentence.split()
    while (other := rng.sample(words, len(words)))==words: pass
    return ' '.join(other)

def word_order(model, text, n=SHUFFLED):
    "Share of the sentences of a text that are more probable than their words in random order"
    from electra_nbdev.scoring.likelihood import pseudo_log_likelihood
    rng = random.Random(0)
    known = [o for o in END.sub(r'\1\n', text).splitlines() if 8<=len(o.split())<=20]
    known = [o for o in known if len(set(o.split()))>1]
    right = rng.sample(known, n)
    scores = [o['score'] for o in pseudo_log_likelihood(model, right + [shuffled(o, rng) for o in right])]
    return sum(a>b for a,b in zip(scores[:n], scores[n:]))/n

def with_a_blank(path, n=2000):
    "Sentences with a blank for one of their words, that word, and four others of the text"
    rng, lines = random.Random(0), END.sub(r'\1\n', path.read_text()).splitlines()
    known = sorted({o.strip() for o in lines if 8<=len(o.split())<=30 and '<unk>' not in o and '__' not in o})
    words = [w for o in known for w in re.findall(r'\b[a-z]{2,}\b', o)]
    for o in rng.sample(known, min(n, len(known))):
        found = list(re.finditer(r'(?<= )[a-z]{2,}(?= )', o))
        if not found: continue
        m = rng.choice(found)
        others = sorted({rng.choice(words) for _ in range(20)}-{m[0]})
        yield f'{o[:m.start()]}___{o[m.end():]}', m[0], rng.sample(others, 4)

def share(right):
    "Accuracy in per cent with its interval"
    test = binomtest(sum(right), len(right))
    interval = test.proportion_ci(method='wilson')
    return {k: round(100*v, 1) for k,v in dict(accuracy=test.statistic, low=interval.low, high=interval.high).items()}

def one_word(model, path):
    "How often a sentence is more probable than with another word, and its word than four others for the blank"
    from electra_nbdev.scoring.ranking import choose
    from electra_nbdev.scoring.likelihood import pseudo_log_likelihood
    blanks = list(with_a_blank(path))
    filled = [text.replace('___', o) for text,word,others in blanks for o in (word, others[0])]
    scores = [o['score'] for o in pseudo_log_likelihood(model, filled)]
    asked = [dict(text=text, choices=[word, *others], answer=word) for text,word,others in blanks]
    rows = choose(model, asked)
    chosen = share([o['chosen']==o['answer'] for o in rows])
    return dict(n=len(blanks), replaced=share([a>b for a,b in zip(scores[::2], scores[1::2])]), chosen=chosen)

def pairs(model, folder):
    "Accuracy on minimal pairs, by phenomenon and on all"
    from electra_nbdev.scoring.ranking import accuracies, score_pairs
    from electra_nbdev.scoring.score_files import read_pairs
    return accuracies(score_pairs(model, read_pairs(folder))).to_dict('index')

def lists(model, path):
    "Word error rates before and after re-ranking, and the change, with intervals"
    from electra_nbdev.scoring.ranking import score_nbest
    from electra_nbdev.scoring.score_files import read_nbest
    (weight, bonus), found = score_nbest(model, read_nbest(path))
    return found.to_dict('index') | dict(weight=weight, bonus=bonus)

def halves(model, path):
    "The same for each half of the lists, with the weights that were tuned on the other"
    from electra_nbdev.scoring.ranking import apply_weights, model_digest, score_nbest
    from electra_nbdev.scoring.score_files import TunedWeights, read_nbest
    lists, found = read_nbest(path), []
    def half(k): return [o for o in lists if crc32(o.reference.encode())%2==k]
    for k in (0, 1):
        how, _ = score_nbest(model, half(1-k))
        tuned = TunedWeights(*how, model.by, model_digest(model), lists[0].scores is not None)
        rates = apply_weights(model, half(k), tuned)[1]
        found.append(rates.to_dict('index') | dict(weight=how[0], bonus=how[1], lists=len(half(k))))
    return found

def measure(model, data):
    "Everything that can be measured with one way of scoring"
    from electra_nbdev.data.text import sample_corpus
    found = dict(order_sample=word_order(model, (sample_corpus()/'held_out.txt').read_text()))
    if not data: return found
    found['order_wikitext'] = word_order(model, (data/'text/wikitext2.valid.detok.txt').read_text())
    for k,o in ONE_WORD.items(): found[f'one_word_{k}'] = one_word(model, data/o)
    found['blimp'] = pairs(model, data/'blimp')
    for o in NBEST:
        path = data/f'nbest/{o}.json'
        found |= {o: lists(model, path), f'{o}, halves': halves(model, path)}
    return found

def rows(found):
    "Lines of the table"
    for by,o in found.items():
        yield by, 'sentences against shuffled words, embedded text', f"{o['order_sample']:.3f}", ''
        if 'blimp' not in o: continue
        yield by, 'sentences against shuffled words, WikiText-2', f"{o['order_wikitext']:.3f}", ''
        for text in ONE_WORD:
            for k,what in (('replaced', 'against one word replaced'), ('chosen', 'a word of five for a blank')):
                r = o[f'one_word_{text}'][k]
                yield by, f'{what}, {text}', f"{r['accuracy']}", f"{r['low']} to {r['high']}"
        total = o['blimp']['all pairs']
        yield by, f"BLiMP, {total['pairs']:,} pairs", f"{total['accuracy']}", f"{total['low']} to {total['high']}"
        for name in NBEST:
            parts = {name: o[name]} | {f'{name}, half {i+1}': r for i,r in enumerate(o[f'{name}, halves'])}
            for part,r in parts.items():
                for k in ('first', 'reranked', 'change'):
                    yield by, f'{part}, {k}', f"{r[k]['WER']}", f"{r[k]['low']} to {r[k]['high']}"

def main():
    args = arguments(__doc__, model=('electric', 'model'), data=('', 'folder with blimp/, nbest/, babylm/ and text/'),
                     out=(str(RESULTS/'electric.json'), 'results'))
    from electra_nbdev.scoring.likelihood import load_likelihood
    data = Path(args.data) if args.data else None
    found = {by: measure(load_likelihood(args.model, way, device='cpu'), data) for by,way in WAYS.items()}
    table(('by', 'what', 'number', '95 %'), rows(found))
    facts = dict(benchmark='likelihoods', model=args.model, found=found)
    report(facts, args.out if data else None)

if __name__=='__main__': main()
