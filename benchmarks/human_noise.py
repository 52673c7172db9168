"""Noise that looks like what people do wrong, made of nothing but a text and its vocabulary: an objective in one file.

In replaced-token detection the wrong tokens are what a small generator could imagine. Here a word may become another
one that is spelt nearly so, be misspelt, have another ending, be exchanged for another of the most frequent words, get
or lose its capital; words are left out, said twice, put in or moved. The discriminator says which tokens are wrong,
labelled as error detection labels them: where a word is left out the one after it is wrong, of a word said twice the
second one. No list of a language is used: endings, confusions of letters and which frequent words have the same place
are found in the vocabulary and in the examples. Needs a WordPiece vocabulary, and examples that share no rows:

    electra_pretrain --objective human_noise.py:HumanNoise --preset tiny --data examples --out run \\
        --hparams '{"uniform_generator": true}'

`human_noise` is the share of the examples with this noise; the others have the generator's samples. `HumanNoise` has it
alone and needs no generator, `HalfHumanNoise` has half of it; a class of one's own sets shares and rates in a line."""
import unicodedata
from collections import Counter, defaultdict
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from electra_nbdev.data.examples import load_examples
from electra_nbdev.data.tokenizer import special_token_ids, vocab_list
from electra_nbdev.engine.files import InputError
from electra_nbdev.engine.ranks import KeyedRandom
from electra_nbdev.method.discriminator import corrupt, disc_labels, disc_nll, is_replaced
from electra_nbdev.method.electra import ReplacedTokenDetection, ReplaceTokens
from electra_nbdev.method.objective import StepOutput

RATES = dict( # Shares of the tokens of the text that each kind befalls
    similar=.015, # Another word of the vocabulary that is spelt nearly so
    misspelt=.02, # A letter is left out, doubled, exchanged for its neighbour, another one or a key beside it
    inflected=.035, # Another ending on the same stem
    function=.02, # Another of the most frequent words and marks, with similar neighbours
    case=.01, # A capital that does not belong there, or that is missing
    dropped=.015, # Left out, above all the most frequent words and marks
    doubled=.002, # Said twice
    inserted=.012, # One of the most frequent words or marks comes after it
    moved=.008) # It comes one to three tokens later
SLOTS = dict(similar=6, misspelt=10, inflected=8, function=8, case=1, dropped=1, doubled=1, inserted=20, moved=3)
KINDS = [k for k,n in SLOTS.items() for _ in range(n)] # Of each slot of the table
PIECES = 5 # What a token may become at most
MOST = .3 # Probability of a kind for one occurrence of a token at most
FREQUENT = 150 # Words and marks that count as the most frequent
NEIGHBOURS = 400 # Tokens whose counts beside a word say where it stands
STEM, ENDING, ENDING_PAIRS = 4, 3, 60 # Letters of a stem at least, of an ending at most; pairs of endings that are used
SAMPLE = 20_000 # Examples that are counted
KEYS = 'qwertyuiop', 'asdfghjkl', 'zxcvbnm'

class Table(NamedTuple):
    "What may happen to each token, and how probable that is for an occurrence at the end of a word"
    pieces:Tensor # What it becomes, -1 after the last piece, (V, slots, PIECES); of a move the distance comes first
    upto:Tensor # Probability of a slot and of those before it, (V, slots)
    continues:Tensor # Whether a token continues a word, (V,)
    pad:Tensor # Id of padding, []

def empty_table(size):
    "A table of a vocabulary by which nothing happens"
    n = len(KINDS)
    return Table(torch.full((size, n, PIECES), -1, dtype=torch.int32), torch.zeros(size, n),
                 torch.zeros(size, dtype=torch.bool), torch.tensor(0))

class Vocabulary:
    "Pieces as letters, and how often they end a word: a piece that only begins some is no word"
    def __init__(self, tok, rows):
        self.pieces = vocab_list(tok)
        self.ids = {o: i for i,o in enumerate(self.pieces)}
        special = {*tok.all_special_tokens}
        self.special = np.array([o in special for o in self.pieces])
        self.continues = np.array([o.startswith('##') for o in self.pieces]) & ~self.special
        a, b = rows[:,:-1].ravel(), rows[:,1:].ravel()
        self.pairs, self.tokens = (a, b), (~self.special[rows]).sum()
        self.counts = np.bincount(a[~self.continues[b] & ~self.special[a]], minlength=len(self.pieces))
        self.words = {o: i for o,i in self.ids.items() if o.isalpha() and not self.continues[i] and self.counts[i]>1}
        self.tails = {o[2:]: i for o,i in self.ids.items() if self.continues[i] and o[2:].isalpha()}
        by_count = sorted((i for i in range(len(self.pieces)) if not self.special[i]), key=lambda i: -self.counts[i])
        whole = [i for i in by_count if not self.continues[i] and not any(c.isdigit() for c in self.pieces[i])]
        self.frequent, self.neighbours = whole[:FREQUENT], by_count[:NEIGHBOURS]

    def weight(self, i): return (self.counts[i]+1)**.5

    def split(self, text, continues=False):
        "Longest pieces first, as WordPiece does; None if there are none, or too many"
        found, start = [], 0
        while start<len(text):
            prefix = '##' if start or continues else ''
            end = next((e for e in range(len(text), start, -1) if prefix+text[start:e] in self.ids), None)
            if end is None or len(found)==PIECES: return
            found.append(self.ids[prefix+text[start:end]])
            start = end
        return found

def near(a, b, most):
    "Whether two words are at most so many letters apart: left out, put in, exchanged, or two neighbours that swapped"
    rows = [list(range(len(b)+1))]
    for i,x in enumerate(a, 1):
        row = [i]
        for j,y in enumerate(b, 1):
            cost = min(rows[-1][j]+1, row[-1]+1, rows[-1][j-1]+(x!=y))
            if i>1 and j>1 and x==b[j-2] and y==a[i-2]: cost = min(cost, rows[-2][j-2]+1)
            row.append(cost)
        if min(row)>most: return False
        rows.append(row)
    return rows[-1][-1]<=most

def shortened(word, n):
    "A word with up to `n` of its letters left out"
    found = {word}
    for _ in range(n): found |= {o[:i]+o[i+1:] for o in found for i in range(len(o))}
    return found

def letters_apart(a, b):
    "How many letters apart two words may be: a second one if both are long"
    return 2 if min(len(a), len(b))>=8 else 1

def similar_words(words):
    "Pairs of words that are spelt nearly alike, capitals apart"
    meet, found = defaultdict(list), set()
    for w in sorted(words):
        if len(w)>1:
            for o in shortened(w, letters_apart(w, w)): meet[o].append(w)
    for together in meet.values():
        for i,a in enumerate(together):
            for b in together[i+1:]:
                pair = min(a, b), max(a, b)
                if pair in found or a.lower()==b.lower(): continue
                if near(*pair, letters_apart(a, b)): found.add(pair)
    return sorted(found)

def by_stem(words, least):
    "{stem: its endings}"
    found = defaultdict(list)
    for w in sorted(words):
        for n in range(max(least, len(w)-ENDING), len(w)+1): found[w[:n]].append(w[n:])
    return found

def ending_pairs(words):
    "{(ending, another): words that have both}, of the most frequent pairs, in both directions"
    found = Counter()
    for endings in by_stem(words, STEM).values():
        found.update((s, t) for s in endings for t in endings if s[:1]!=t[:1])
    pairs = sorted((o for o in found if o[0]<o[1]), key=lambda o: (-found[o], o))[:ENDING_PAIRS]
    pairs = [o for o in pairs if found[o]>1]
    return {o: found[o] for p in pairs for o in (p, p[::-1])}

def letter_confusions(pairs):
    "{letter: {another: share}}: letters by which similar words differ stand in the same places"
    found = defaultdict(Counter)
    for a,b in pairs:
        other = [(x, y) for x,y in zip(a[1:], b[1:]) if x!=y]
        if len(a)==len(b) and a[0]==b[0] and len(other)==1:
            (x, y), = other
            found[x][y] += 1
            found[y][x] += 1
    return {x: {y: n/sum(ys.values()) for y,n in ys.items()} for x,ys in found.items()}

@lru_cache(None)
def keys_beside(letter):
    row = next((o for o in KEYS if letter in o), '')
    i = row.find(letter)
    return [o for o in (row[i-1:i], row[i+1:i+2]) if o] if row else []

def misspellings(word, confusions):
    "{what may come of a word: how probable that is, up to a factor}; first letters stay"
    found = Counter()
    for i in range(1, len(word)):
        before, c, after = word[:i], word[i], word[i+1:]
        found[before+after] += 2. if c in (word[i-1], after[:1]) else .6
        found[before+c+c+after] += .6
        if after and c!=after[0]: found[before+after[0]+c+after[1:]] += .8
        for y in keys_beside(c): found[before+y+after] += .15
        for y,share in confusions.get(c, {}).items(): found[before+y+after] += 1.5*share
        plain = unicodedata.normalize('NFD', c)[0]
        if plain!=c: found[before+plain+after] += 2.
    found.pop(word, None)
    return found

def some(weights, n, rng):
    "Some of the keys, drawn by their weights"
    keys = sorted(weights)
    p = np.array([weights[o] for o in keys])
    return [keys[i] for i in rng.choice(len(keys), min(n, len(keys)), replace=False, p=p/p.sum())] if keys else []

def other_spellings(v):
    "Candidates of the kinds `similar` and `misspelt`: {kind: {id: {pieces: weight}}}"
    similar, misspelt, rng = defaultdict(dict), defaultdict(dict), np.random.default_rng(0)
    pairs = similar_words(v.words)
    confusions = letter_confusions(pairs)
    for a,b in pairs:
        for x,y in ((a, b), (b, a)):
            same = .2 if x[0].lower()!=y[0].lower() else 1.
            similar[v.words[x]][(v.words[y],)] = same*v.weight(v.words[y])
    for known,tail in ((v.words, False), (v.tails, True)):
        for w,i in known.items():
            if len(w)<(3 if tail else 4): continue
            ways = {o: n for o,n in misspellings(w, confusions).items() if o not in known}
            for o in some(ways, SLOTS['misspelt'], rng):
                pieces = v.split(o, tail)
                if pieces: misspelt[i][tuple(pieces)] = ways[o]**.5
    return dict(similar=similar, misspelt=misspelt)

def other_endings(v):
    "Candidates of the kind `inflected`: words, and forms that are none; a last piece that is an ending may vanish"
    pairs, found = ending_pairs(v.words), defaultdict(dict)
    others, frequent = defaultdict(dict), {*v.frequent}
    for (s, t),n in pairs.items(): others[s][t] = n
    for known,tail in ((v.words, False), (v.tails, True)):
        for w,i in known.items():
            least = 0 if tail else STEM if i in frequent else STEM-1
            for n in range(max(least, len(w)-ENDING), len(w)+1):
                for t,count in others.get(w[n:], {}).items():
                    other = w[:n]+t
                    if not other and tail: found[i][()] = count*v.weight(i)
                    elif other in known: found[i][(known[other],)] = count*v.weight(known[other])
                    elif n>=STEM and i not in frequent and (pieces := v.split(other, tail)):
                        found[i][tuple(pieces)] = count
    return dict(inflected=found)

def same_places(v):
    "Candidates of the kind `function`: of the most frequent words and marks those with similar neighbours"
    found, ids, (left, right) = {}, v.frequent, beside(v)
    def shares(counts): return (counts/np.maximum(counts.sum(1, keepdims=True), 1))**.5
    places = np.concatenate([shares(left), shares(right)], 1)/2**.5
    alike = places@places.T
    for i,x in enumerate(ids):
        found[x] = {(y,): alike[i,j]**6*v.weight(y) for j,y in enumerate(ids)
                    if alike[i,j]>0 and v.pieces[x].lower()!=v.pieces[y].lower()}
    return dict(function=found)

def other_case(v):
    "Candidates of the kind `case`, if the vocabulary has capitals"
    found, capitals = {}, any(o!=o.lower() for o in v.words)
    for w,i in v.words.items():
        other = w[0].swapcase()+w[1:]
        if not capitals or other==w or len(w)<3: continue
        if pieces := v.split(other): found[i] = {tuple(pieces): 1.}
    return dict(case=found)

def other_words(v):
    "Candidates of the kinds by which words vanish, come and move"
    usual = {y: v.counts[y]+1 for y in v.frequent}
    whole = {i for i in range(len(v.pieces)) if not (v.special[i] or v.continues[i])}
    return dict(dropped={i: {(): 1.} for i in whole},
                doubled={i: {(i, i): 1.} for i in v.words.values()},
                inserted={i: {(i, y): n for y,n in usual.items() if y!=i} for i in whole},
                moved={i: {(d,): share for d,share in ((1, .6), (2, .25), (3, .15))} for i in v.words.values()})

def propensity(v, kind, i, ways):
    "How often a kind befalls a token, compared with others"
    if kind=='inflected': return 1. if any(len(o)<2 for o in ways) else .25
    if kind=='misspelt': return len(v.pieces[i].removeprefix('##'))-2
    if kind=='dropped': return 1. if i in v.frequent else .15
    return 1.

def build_table(
    tok, # WordPiece tokenizer
    rows, # Token ids of examples, (n, sl)
    rates=RATES, # {kind: share of the tokens}
)->Table:
    "What may happen to the tokens of a text"
    v = Vocabulary(tok, np.asarray(rows))
    if not v.tails: raise InputError("human noise needs a WordPiece vocabulary, with pieces that begin with ##")
    size = len(v.pieces)
    kinds = other_spellings(v) | other_endings(v) | same_places(v) | other_case(v) | other_words(v)
    pieces, probs = np.full((size, len(KINDS), PIECES), -1), np.zeros((size, len(KINDS)))
    for kind,found in kinds.items():
        found = {i: o for i,o in found.items() if o}
        want = {i: propensity(v, kind, i, o) for i,o in found.items()}
        mass, first = sum(v.counts[i]*n for i,n in want.items()), KINDS.index(kind)
        for i,ways in found.items():
            best = sorted(ways, key=lambda o: (-ways[o], o))[:SLOTS[kind]]
            chance = min(MOST, rates[kind]*v.tokens*want[i]/max(mass, 1))
            for slot,o in enumerate(best, first):
                pieces[i,slot,:len(o)] = o
                probs[i,slot] = chance*ways[o]/sum(ways[k] for k in best)
    return Table(torch.tensor(pieces, dtype=torch.int32), torch.tensor(probs.cumsum(1), dtype=torch.float32),
                 torch.tensor(v.continues), torch.tensor(special_token_ids(tok).pad))

def beside(v):
    "How often each of the most frequent words has each neighbour before and after it, (FREQUENT, NEIGHBOURS) each"
    row, column = np.full(len(v.pieces), -1), np.full(len(v.pieces), -1)
    row[v.frequent], column[v.neighbours] = range(len(v.frequent)), range(len(v.neighbours))
    found, (a, b) = [], v.pairs
    for x,y in ((row[b], column[a]), (row[a], column[b])):
        used, shape = (x>=0) & (y>=0), (len(v.frequent), len(v.neighbours))
        found.append(np.bincount(x[used]*shape[1]+y[used], minlength=shape[0]*shape[1]).reshape(shape).astype(float))
    return found

class Noisy(NamedTuple):
    "Rows with mistakes"
    input_ids:Tensor # Token ids, (bs, sl)
    wrong:Tensor # True where a token is wrong, (bs, sl)
    real:Tensor # True where it is no padding, (bs, sl)
    segments:Tensor # (bs, sl)

def ahead(x, n, fill):
    "What stands `n` places later, or earlier if `n` is negative"
    out = torch.full_like(x, fill)
    if n>=0: out[:,:x.shape[1]-n] = x[:,n:]
    else: out[:,-n:] = x[:,:n]
    return out

def apply_noise(
    table:Table, # From `build_table`, on the device of the rows
    ids:Tensor, # Token ids, padded on the right, (bs, sl)
    free:Tensor, # True where a token may be changed: no special tokens, no padding, (bs, sl)
    real:Tensor, # True where there is no padding, (bs, sl)
    segments:Tensor, # (bs, sl)
    u:Tensor, # Uniform numbers, (bs, sl)
)->Noisy:
    "Make mistakes; a row that gets longer loses its last tokens, but not the special one at its end"
    (bs, sl), place, own = ids.shape, torch.arange(ids.shape[1], device=ids.device), first_piece(ids)
    pieces, marked, far = events(table, ids, free, u)
    wrong = (pieces>=0) & ~(own & (pieces==ids[...,None])) | own & marked[...,None]
    order = (place + torch.where(far>0, far+.5, 0.)).sort(1).indices # a token comes after those it goes past
    pieces, wrong = (o.gather(1, order[...,None].expand_as(o)) for o in (pieces, wrong))
    n = (pieces>=0).sum(-1)*real # what moves is not padding
    length, kept = n.sum(1, keepdim=True), (pieces>=0) & real[...,None]
    at = (n.cumsum(1)-n)[...,None] + torch.arange(PIECES, device=ids.device)
    at = torch.where(kept, at, sl).clamp(max=sl).flatten(1) # the column after the last takes what is too much
    def written(x): return x.new_zeros(bs, sl+1).scatter(1, at, x.flatten(1))[:,:sl]
    segments = segments.gather(1, order)[...,None].expand_as(pieces)
    out = torch.where(place<length, written(pieces), table.pad)
    return closed(Noisy(out, written(wrong), place<length, written(segments)), ids, free, real, length)

def first_piece(ids): return torch.arange(PIECES, device=ids.device)==0

def events(table, ids, free, u):
    "What each token becomes, (bs, sl, PIECES); which is marked for its neighbour's sake, and how far it goes, (bs, sl)"
    inside = table.continues[ids]
    ends = free & ~ahead(inside, 1, True) # of a word; nobody knows what follows the row
    slot = torch.searchsorted(table.upto[ids], u[...,None], right=True).squeeze(-1)
    hit, slot = ends & (slot<len(KINDS)), slot.clamp(max=len(KINDS)-1)
    pieces, is_move = table.pieces[ids, slot].long(), slot>=KINDS.index('moved') # the last kind
    far = moves(ids, hit & is_move, pieces[...,0], free, inside)
    covered = far>0
    for d in (1, 2, 3): covered = covered | (ahead(far, -d, 0)>=d)
    hit = hit & ~covered & ~is_move
    lost = hit & (pieces<0).all(-1)
    markable = ahead(free & ~lost & ~covered, 1, False) # by the word before it, if that is left out
    hit = hit & ~(lost & ~inside & ~markable)
    pieces = torch.where(hit[...,None], pieces, torch.where(first_piece(ids), ids[...,None], -1))
    lost = lost & hit
    left_out, vanished = ahead(lost & ~inside, -1, False), ahead(lost & inside, 1, False)
    return pieces, left_out | vanished | (far>0) | (ahead(far, -1, 0)>0), far

def moves(ids, chosen, far, free, inside):
    "How far each token goes, 0 if it stays: over whole words, past no special token, and one at a time, (bs, sl)"
    way, ok = torch.ones_like(chosen), torch.zeros_like(chosen)
    for d in (1, 2, 3):
        way = way & ahead(free, d, False)
        ok = ok | (far==d) & way & ~ahead(inside, d+1, True)
    ok = ok & chosen & (ids!=ahead(ids, 1, -1))
    for d in (1, 2, 3): ok = ok & ~ahead(ok, -d, False)
    return torch.where(ok, far, 0)

def closed(noisy, ids, free, real, length):
    "Rows that became too long end with their special token again"
    sl = ids.shape[1]
    last = real.sum(1, keepdim=True)-1
    special = ~free.gather(1, last.clamp(min=0)) & (length>sl)
    at_end = special & (torch.arange(sl, device=ids.device)==sl-1)
    return noisy._replace(input_ids=torch.where(at_end, ids.gather(1, last.clamp(min=0)), noisy.input_ids),
                          wrong=noisy.wrong & ~at_end)

class WithTable(ReplaceTokens):
    "Build the table of the examples that a learner has"
    def after_create(self):
        if hasattr(self.dls.train.dataset, 'recipe'): self.model.set_examples(self.dls.train.dataset)

@lru_cache(2)
def table_of(path, recipe, rates):
    "The table of a folder of examples, once for all learners"
    examples = load_examples(path)
    rows = examples[np.linspace(0, len(examples)-1, min(SAMPLE, len(examples)), dtype=int)][0]
    return build_table(examples.tokenizer, rows, dict(rates))

def keys_of(u):
    "A number for each row of a batch, from those that its samples are drawn with, (bs,)"
    odd = 2*torch.arange(u.shape[1], device=u.device)+1
    return ((u*2**24).long()*odd*1_000_003).sum(1)

class HumanNoise(ReplacedTokenDetection):
    "The discriminator says of each token whether it is wrong, as people or as the generator get it wrong"
    arguments = dict(
        human_noise=1., # Share of the examples with mistakes as people make them
        spread=1., # Their rates differ by this share up and down from example to example
        rates={}) # {kind: share of the tokens}, where other than in `RATES`
    callback, has_table = WithTable, False

    def build(self):
        "Room for the table, which checkpoints do not keep: it comes from the examples"
        empty = empty_table(self.vocab_size)
        for name,o in zip(Table._fields, empty): self.register_buffer(f'noise_{name}', o, persistent=False)

    @property
    def table(self): return Table(*(getattr(self, f'noise_{o}') for o in Table._fields))

    def set_examples(self, examples):
        "Learn what may go wrong from the vocabulary and the words of examples"
        rates = RATES | self.config.arguments['rates']
        if unknown := rates.keys()-RATES.keys():
            raise InputError(f"`rates` has {', '.join(sorted(unknown))}; the kinds are {', '.join(RATES)}")
        path = examples.path.parent if examples.path.name=='held_out' else examples.path # of the text itself
        self.set_table(table_of(path, str(examples.recipe), tuple(rates.items())))

    def set_table(self, table):
        "Take a table from `build_table`"
        for mine,o in zip(self.table, table): mine.copy_(o)
        self.has_table = True

    def noisy(self, mb):
        "Which rows have mistakes of people, (bs, 1); and all rows with such, drawn as the samples of the batch are"
        if not self.has_table: raise InputError("human noise needs its table; call `set_examples` or `set_table`")
        (bs, sl), own, real = mb.input_ids.shape, self.config.arguments, mb.attention_mask
        rand = KeyedRandom(0, 57, first=keys_of(mb.u), device=mb.u.device)
        of_row, u = rand(bs, 2), rand(bs, sl)
        rate = 1 + own['spread']*(2*of_row[:,1:]-1)
        real = torch.ones_like(mb.candidates) if real is None else real
        rows = apply_noise(self.table, mb.input_ids, mb.candidates, real, mb.token_type_ids, u/rate.clamp(min=1e-6))
        return of_row[:,:1]<own['human_noise'], rows

    def step(self, mb):
        prediction = self.predict(mb)
        fake, (mine, rows) = corrupt(mb, prediction.sampled), self.noisy(mb)
        real = rows.real | ~mine if mb.attention_mask is None else torch.where(mine, rows.real, mb.attention_mask)
        ids, segments = torch.where(mine, rows.input_ids, fake), torch.where(mine, rows.segments, mb.token_type_ids)
        labels = disc_labels(torch.where(mine, rows.wrong, is_replaced(mb, fake)), real)
        logits = self.token_logits(ids, real, segments)
        sums = dict(gen=prediction.total, disc=disc_nll(logits, labels).sum())
        return StepOutput(logits=logits, labels=labels, sums=sums, prediction=prediction)

class HalfHumanNoise(HumanNoise):
    "Half of the examples have the generator's samples"
    arguments = dict(human_noise=.5)
