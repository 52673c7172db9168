"""Minimal pairs by each way to score, and what a way costs: the models of the package, and minicons beside them.

`--data` is a folder with blimp/ and zorro/. Beside the models of the package stand two of the same body, text and FLOPs
(`tools/baby.py`): a masked language model, and what `electric-baby` was before its last stage; `electra-baby` is that
masked language model after one more stage. The weights of that earlier Electric were in the repository at commit
5dc23a0; `git checkout 5dc23a0 -- benchmarks/results/baby/electric-sentences-again` brings them back, and without them
its two ways are left out. Differences are those from the masked language model, pair by pair. Seconds are for 1,000
sentences of 20 words of the embedded novels by the larger models, the least of `--rounds` in turns; minicons scores
with the masked language model too where it is installed. The last line is JSON, which `--out` keeps."""
import time
from pathlib import Path

from common import RESULTS, ROOT, arguments, masked_baby, report, table

BEST, ELECTRA = 'electric-baby', 'electra-baby'
BEFORE, MASKED = (RESULTS/'baby'/o for o in ('electric-sentences-again', 'masked-baby-en')) # Of equal FLOPs
TIMED = [(BEST, 'energies'), (BEST, 'towers'), (MASKED, 'pll'), (MASKED, 'word-l2r'), (ELECTRA, 'p-replaced')]
LARGE = [*TIMED, (ELECTRA, 'pll'), (BEFORE, 'energies'), (BEFORE, 'towers')]
SMALL = [('electric', 'energies'), ('electric', 'towers'), ('tiny', 'p-replaced'), ('tiny', 'pll'),
         ('tiny', 'word-l2r')]

def present(ways):
    "Those whose model is here; without the weights of `BEFORE` a line tells how to get them"
    if BEFORE.is_dir(): return ways
    print(f'{BEFORE.name} is left out; `git checkout 5dc23a0 -- {BEFORE.relative_to(ROOT)}` brings its weights')
    return [o for o in ways if o[0]!=BEFORE]

def named(model, by): return f'{Path(model).name}, {by}'

def judged(pairs, model, by):
    "Each pair, scored in one way"
    from electra_nbdev.scoring.likelihood import load_likelihood
    from electra_nbdev.scoring.ranking import score_pairs
    return score_pairs(load_likelihood(model, by, device='cpu'), pairs)

def accuracy(rows):
    "Accuracies by phenomenon, and how many pairs were ties"
    from electra_nbdev.scoring.ranking import accuracies
    return accuracies(rows).to_dict('index') | dict(ties=sum(r['ties']>0 for r in rows))

def from_masked(rows, masked):
    "How far a way is from `pll` of the masked language model, in points"
    from electra_nbdev.scoring.ranking import difference
    return dict(zip(('points', 'low', 'high'), (round(o, 2) for o in difference(rows, masked))))

def sentences(n=1000, words=20):
    "Stretches of the embedded novels that were kept for evaluation"
    from electra_nbdev.data.text import sample_corpus
    found = (sample_corpus()/'held_out.txt').read_text().split()
    return [' '.join(found[i:i+words]) for i in range(0, n*words, words)]

def scorers():
    "{name: what scores a list of texts}"
    from electra_nbdev.scoring.likelihood import load_likelihood, pseudo_log_likelihood
    def ours(model, by):
        model = load_likelihood(model, by, device='cpu')
        return lambda texts: [o['score'] for o in pseudo_log_likelihood(model, texts)]
    found = {by: ours(model, by) for model,by in TIMED}
    try: from minicons.scorer import MaskedLMScorer
    except ImportError: return found
    theirs = MaskedLMScorer(str(masked_baby()), 'cpu')
    theirs.tokenizer.batch_encode_plus = theirs.tokenizer.__call__ # which transformers 5 no longer has
    def batches(texts):
        return [s for i in range(0, len(texts), 8) for s in
                theirs.sequence_score(texts[i:i+8], reduction=lambda o: o.sum().item(), PLL_metric='original')]
    return found | {'pll by minicons': batches}

def seconds(rounds):
    "{name: least seconds for 1,000 sentences}"
    texts, ways = sentences(), scorers()
    got = {k: [] for k in ways}
    for _ in range(rounds):
        for k,score in ways.items():
            start = time.perf_counter()
            score(texts)
            got[k].append(time.perf_counter()-start)
    return {k: round(min(o), 2) for k,o in got.items()}

def main():
    args = arguments(__doc__, data=('', 'folder with blimp/ and zorro/'), rounds=(2, 'of the seconds'),
                     out=(str(RESULTS/'pairs.json'), 'results'))
    from electra_nbdev.scoring.score_files import read_pairs
    masked_baby()
    large = present(LARGE) if args.data else []
    cost, found, differences = seconds(args.rounds), {}, {}
    table(('', 'seconds for 1,000 sentences', 'times energies'), [(k, o, o/cost['energies']) for k,o in cost.items()])
    for name in ('blimp', 'zorro') if args.data else ():
        pairs = read_pairs(Path(args.data)/name)
        rows = {named(*o): judged(pairs, *o) for o in large+SMALL}
        found[name] = {k: accuracy(o) for k,o in rows.items()}
        masked = named(MASKED, 'pll')
        others = [k for k in (named(*o) for o in large) if k!=masked]
        differences[name] = {k: from_masked(rows[k], rows[masked]) for k in others}
        head = ['', *found[name]]
        means = [[k, *(o[k]['accuracy'] for o in found[name].values())] for k in ('all pairs', 'mean over sets')]
        table((f'minus {masked}', 'points', 'low', 'high'), [(k, *o.values()) for k,o in differences[name].items()])
        table(head, [*means, ['ties', *(o['ties'] for o in found[name].values())]])
    facts = dict(benchmark='pairs', seconds=cost, found=found, differences=differences)
    report(facts, args.out if args.data else None)

if __name__=='__main__': main()
