"The n-gram models of `benchmarks/ngram.py`: values worked by hand, a second implementation, whole distributions"
from collections import Counter

import numpy as np
import pytest

import ngram

SIZE = 200 # Of the vocabulary of random rows

def model_of(rows, size, order):
    "A model of rows of token ids, the first of which begins a row"
    place = np.concatenate([np.arange(len(o)) for o in rows])
    return [*ngram.levels(np.concatenate(rows), place, size, order)]

def probability(model, size, context, token):
    return np.exp(ngram.log_probs(model, np.array([[*context, token]]), size)[0,-1])

@pytest.mark.parametrize('context,token,expected', [
    ([0], 2, .6), # 'a' begins both: (2-1)/2 + 1/2 * .2
    ([0, 2], 3, .35), # 'b' after 'a': (1-.5)/2 + .5 * .2
    ([0, 2, 3], 1, .65), # the end after 'b': (1-.5)/1 + .5 * .3, since it follows two different tokens
    ([0, 3], 2, .1), # 'a' after 'b', never seen: .5 * .2
    ([0, 1], 3, .2), # the end has no context of its own: 'b' follows one token of five, (1-.5)/5 + .5/5
])
def test_bigrams_by_hand(context, token, expected):
    "'a b' and 'a c', with 0 and 1 as beginning and end"
    model = model_of([[0, 2, 3, 1], [0, 2, 4, 1]], 5, 2)
    assert probability(model, 5, context, token)==pytest.approx(expected)

def test_unigrams_by_hand():
    "Six tokens, 'b' and 'c' once (less .5), 'a' and the end twice (less 1); all five share what is left"
    model = model_of([[0, 2, 3, 1], [0, 2, 4, 1]], 5, 1)
    left = (2*.5 + 2*1)/6/5
    found = [probability(model, 5, [0], o) for o in range(5)]
    np.testing.assert_allclose(found, [left, 1/6+left, 1/6+left, .5/6+left, .5/6+left])

def test_first_token_has_no_context():
    model = model_of([[0, 2, 3, 1], [0, 2, 4, 1]], 5, 2)
    first, whole = (ngram.log_probs(model, np.array([o]), 5)[0,0] for o in ([0], [0, 2, 3, 1]))
    assert first==whole

def random_rows(n=300):
    "Rows of a first token and others, common and rare"
    rng = np.random.default_rng(0)
    return [[0, *1+rng.zipf(1.5, rng.integers(1, 9))%(SIZE-1)] for _ in range(n)]

class Plain:
    "Modified Kneser-Ney as Chen and Goodman write it, with a dictionary for each order"
    def __init__(self, rows, size, order):
        self.size, self.counts = size, {}
        found = [Counter(tuple(r[i:i+n]) for r in rows for i in range(len(r)-n+1)) for n in range(1, order+2)]
        for n in range(1, order+1):
            before = Counter(o[1:] for o in found[n]) if n<order else {}
            self.counts[n] = {o: before.get(o) or c for o,c in found[n-1].items() if o!=(0,)}

    def lowered(self, n, c):
        k = Counter(self.counts[n].values())
        y, c = k[1]/(k[1]+2*k[2]), min(c, 3)
        return c - (c+1)*y*k[c+1]/k[c]

    def __call__(self, context, token):
        n, lower = len(context)+1, self(context[1:], token) if context else 1/self.size
        after = {o: c for o,c in self.counts[n].items() if o[:-1]==context}
        if not after: return lower
        total, c = sum(after.values()), after.get((*context, token), 0)
        own = c-self.lowered(n, c) if c else 0
        return (own + sum(self.lowered(n, o) for o in after.values())*lower)/total

def test_same_as_a_plain_implementation():
    rows = random_rows()
    model, plain = model_of(rows, SIZE, 3), Plain(rows, SIZE, 3)
    for o in plain.counts.values(): assert ngram.discounts(np.array([*o.values()]))[1]!=.5 # estimated
    for context in ((0,), (0, 2), (2, 3), (3, 8), (9, 150)):
        for token in range(0, SIZE, 3):
            expected = plain(context, token)
            assert probability(model, SIZE, context, token)==pytest.approx(expected), (context, token)

def test_probabilities_add_up_to_one():
    model = model_of(random_rows(), SIZE, 5)
    for context in ([0], [0, 2], [0, 2, 3, 4, 5, 2], [0, 11, 11, 11, 11], [0, 150]):
        total = sum(probability(model, SIZE, context, o) for o in range(SIZE))
        assert total==pytest.approx(1), context
