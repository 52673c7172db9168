"""What a checker finds in people's sentences, and which of them a gate keeps back from a second look.

The threshold with the best F0.5 and the limit of the gate, which has 95 % of the wrong sentences, are chosen on the
sentences of a file of MultiGED that have even numbers; they are told of the odd ones, and beside them F0.5 at the
limits that the model has of its own. `--right` adds how many right sentences of a text, of 6 to 25 words, have a word
that is flagged at these. P(wrong) is what `electra_check --json` writes. Finished models stay in the
results; a model that was fine-tuned on such sentences has chosen its calibration on its dev set."""
import argparse, json
from pathlib import Path

import numpy as np

from common import RESULTS, cpu, table, write_result
from wrong_sentences import right_sentences_of

GATE = .95

def halves(path):
    "Sentences with even numbers, and with odd ones"
    from electra_nbdev.finetuning.ged import read_ged
    rows = [dict(words=[*o.words], tags=[*o.tags]) for o in read_ged(path)]
    return rows[::2], rows[1::2]

def checked(checker, rows):
    "What the checker says of sentences: `Checked` of each"
    from electra_nbdev.checking.check import Sentence
    texts = [' '.join(o['words']) for o in rows]
    ends = [np.cumsum([len(w)+1 for w in o['words']])-1 for o in rows]
    spans = [[(int(b)-len(w), int(b)) for w,b in zip(o['words'], e)] for o,e in zip(rows, ends)]
    return [*checker.check((Sentence(o, 0, 1, 1) for o in texts), spans=spans)]

def judged(checker, path):
    "Scores on the odd sentences"
    from sklearn.metrics import average_precision_score
    from electra_nbdev.checking.check import dev_results
    from electra_nbdev.finetuning.ged import best_threshold, ged_scores
    even, odd = halves(path)
    def flat(rows, found):
        wrong = np.array([t=='i' for o in rows for t in o['tags']])
        return wrong, *(np.concatenate([getattr(o, k) for o in found]) for k in ('probs', 'limits'))
    wrong, probs, _ = flat(even, checked(checker, even))
    threshold = best_threshold(wrong, probs)
    limit, share = dev_results(checker, even).gate_for(GATE)
    found = checked(checker, odd)
    wrong, probs, limits = flat(odd, found)
    bad, second = np.array(['i' in o['tags'] for o in odd]), np.array([o.p>=limit for o in found])
    def rounded(o): return {k: round(float(v), 2) for k,v in o.items()}
    return dict(sentences=len(odd), wrong_sentences=round(100*float(bad.mean()), 1), threshold=round(threshold, 4),
                chosen=rounded(ged_scores(wrong, probs>=threshold)), own=rounded(ged_scores(wrong, probs>=limits)),
                average_precision=round(100*average_precision_score(wrong, probs), 2),
                gate=rounded(dict(found=100*second[bad].mean(), kept_back=100*(1-second.mean()),
                                  kept_back_on_even=100*(1-share))))

def alarms(checker, path):
    "Share of 1,000 right sentences that are flagged, per cent"
    from electra_nbdev.checking.check import Sentence
    texts = right_sentences_of(path)
    texts = texts[::max(1, len(texts)//1000)][:1000]
    return round(100*float(np.mean([bool(o.flagged) for o in checker.check(Sentence(o, 0, 1, 1) for o in texts)])), 1)

def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--marked', type=Path, required=True, help='file of MultiGED')
    p.add_argument('--models', nargs='+', required=True, help='models of the package, or name=folder')
    p.add_argument('--right', type=Path, nargs='*', default=[], help='texts without errors')
    p.add_argument('--out', type=Path, default=RESULTS/'gate.json', help='results')
    args = p.parse_args()
    from electra_nbdev.checking.check import load_checker
    found = json.loads(args.out.read_text()) if args.out.is_file() else dict(benchmark='gate', cpu=cpu(), files={})
    rows = found['files'].setdefault(args.marked.name, {})
    for o in args.models:
        name, _, model = o.partition('=')
        checker = load_checker(model or name, 'cpu')
        rows[name] = judged(checker, args.marked) | dict(alarms={t.stem: alarms(checker, t) for t in args.right})
        write_result(found, args.out)
    table(('model', 'F0.5', 'own limits', 'average precision', 'found', 'kept back'),
          [(k, o['chosen']['f0.5'], o['own']['f0.5'], o['average_precision'], *[*o['gate'].values()][:2])
           for k,o in rows.items()])

if __name__=='__main__': main()
