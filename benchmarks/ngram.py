"""Minimal pairs by a unigram and a 5-gram model of the text that a network was trained on.

`--examples` is a folder of electra_data: the models count the tokens of its training examples, in its vocabulary, and
no context crosses the beginning of an example. Modified Kneser-Ney smoothing, interpolated (Chen and Goodman 1998);
n-grams that begin an example keep their counts in every order, and an order in which none occurs once, twice, three or
four times is discounted by 0.5, 1 and 1.5. `--data` is a folder with blimp/ and zorro/. The last line is JSON, which
`--out` keeps."""
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from common import RESULTS, arguments, memory, report, table

ORDERS = {'unigram': 1, '5-gram': 5}

def training_tokens(examples):
    "Token ids of all examples one after another, and the place of each in its example"
    ids = examples.dataset.data.column('input_ids').combine_chunks().flatten().to_numpy().astype(np.int64)
    lengths = examples.lengths()
    return ids, np.arange(len(ids)) - np.repeat(np.cumsum(lengths)-lengths, lengths)

def ngrams(ids, place, size, order):
    "For each order the sorted n-grams, as context times size plus token, and which of them ends at each token"
    at = np.zeros(len(ids), np.int64)
    for n in range(order):
        inside, key = place>=n, np.roll(at, 1)*size + ids
        keys, found = np.unique(key[inside], return_inverse=True)
        at = np.full(len(ids), -1)
        at[inside] = found
        yield keys, at

def discounts(counts):
    "What counts of 0, 1, 2 and more are lowered by"
    n = np.bincount(np.minimum(counts, 5), minlength=6)[1:5]
    if n.all():
        found = np.array([0, *(k - (k+1)*n[0]/(n[0]+2*n[1])*n[k]/n[k-1] for k in (1, 2, 3))])
        if (found>=0).all(): return found
    return np.array([0, .5, 1, 1.5])

class Level(NamedTuple):
    "What an order adds to the one below"
    keys:np.ndarray # Its n-grams, sorted
    own:np.ndarray # Share of its context that each keeps
    rest:np.ndarray # Share of each context that the order below distributes

def levels(ids, place, size, order):
    "All orders of a model"
    found = [*ngrams(ids, place, size, order)]
    for n,(keys,at) in enumerate(found):
        counts = np.bincount(at[place>=max(n, 1)], minlength=len(keys)) # the first token is given
        if n+1<order: # in how many n-grams of the next order it is the end
            (longer,ends), inside = found[n+1], place>n
            end = np.empty(len(longer), np.int64)
            end[ends[inside]] = at[inside]
            before = np.bincount(end, minlength=len(keys))
            counts = np.where(before, before, counts)
        lower, context = discounts(counts)[np.minimum(counts, 3)], keys//size
        known = len(found[n-1][0]) if n else 1
        total = np.bincount(context, counts, known)
        rest = np.where(total, np.bincount(context, lower, known)/np.maximum(total, 1), 1.)
        yield Level(keys, (counts-lower)/np.maximum(total, 1)[context], rest)

def log_probs(model, ids, size):
    "Log-probability of each token, given those before it in its row"
    p, at = np.full(ids.shape, 1/size), np.zeros(ids.shape, np.int64)
    for n,level in enumerate(model):
        context = np.roll(at, 1, axis=1)
        if n: context[:,0] = -1
        key = context*size + ids
        i = np.minimum(np.searchsorted(level.keys, key), len(level.keys)-1)
        seen = (context>=0) & (level.keys[i]==key)
        p = np.where(context>=0, seen*level.own[i] + level.rest[context]*p, p)
        at = np.where(seen, i, -1)
    return np.log(p)

def likelihood(examples, order, by):
    "A model of examples as what scores pairs"
    import torch
    from electra_nbdev.scoring.likelihood import Likelihood
    size = examples.recipe['vocab_size']
    model = [*levels(*training_tokens(examples), size, order)]
    def scores(ids, mask): return torch.from_numpy(log_probs(model, ids.numpy(), size))
    return Likelihood(scores, examples.tokenizer, examples.width, by=by)

def main():
    args = arguments(__doc__, examples=('', 'folder of electra_data'), data=('', 'folder with blimp/ and zorro/'),
                     out=(str(RESULTS/'ngram.json'), 'results'))
    if not (args.examples and args.data): raise SystemExit('give --examples and --data')
    from electra_nbdev.data.examples import load_examples
    from electra_nbdev.scoring.ranking import accuracies, compared, score_pairs, told_ties
    from electra_nbdev.scoring.score_files import read_pairs
    examples, models, seconds, found = load_examples(args.examples), {}, {}, {}
    for by,order in ORDERS.items():
        start = time.perf_counter()
        models[by] = likelihood(examples, order, by)
        seconds[by] = round(time.perf_counter()-start, 1)
    for name in ('blimp', 'zorro'):
        rows = {by: score_pairs(o, read_pairs(Path(args.data)/name)) for by,o in models.items()}
        found_by = {by: accuracies(o) for by,o in rows.items()}
        print(compared(found_by).to_string(), *map(told_ties, rows.values()), sep='\n', flush=True)
        found[name] = {by: o.to_dict('index') | dict(ties=sum(r['ties']>0 for r in rows[by]))
                       for by,o in found_by.items()}
    peak = round(memory()[1])
    table(('', 'seconds to count', 'MiB at most'), [(by, o, peak) for by,o in seconds.items()])
    facts = dict(benchmark='ngram', examples=examples.counts, seconds=seconds, peak=peak, found=found)
    report(facts, args.out)

if __name__=='__main__': main()
