"""Wrong words found without marked sentences: which noise a small discriminator should learn from.

Networks of equal floating-point operations learn from raw text with ELECTRA's replacements, with shares of the noise of
`human_noise.py` beside the generator's samples, with that noise alone, or with random words alone. Each then says
P(replaced) of every word of people's sentences, of which it has seen none marked. A word has that of its first piece,
the highest of its pieces, or the probability that any of them was replaced, and the threshold is the one with the best
F0.5: both are chosen on the sentences with even numbers, the result is that of the odd ones. `rare words` is no
network: there a word counts as wrong as its pieces are rare. A call is for one language; finished runs stay, so a
stopped command goes on."""
import json, time
from functools import partial
from pathlib import Path
from statistics import mean

import numpy as np
import torch

import human_noise
import objectives
from common import cpu, training_options, write_result
from electra_nbdev.finetuning.ged import best_threshold, ged_scores, read_ged
from objectives import LARGE, slug

def with_share(share):
    "The objective with this share of the noise"
    return type(f'Human{round(100*share)}', (human_noise.HumanNoise,), dict(arguments=dict(human_noise=share)))

ALONE = dict(uniform_generator=True) # Without a generator
ARMS = { # Objective, None for ELECTRA's; hyper-parameters
    'ELECTRA': (None, {}),
    'human noise, 25 %': (with_share(.25), dict(unigram_noise=0.)),
    'human noise, 50 %': (with_share(.5), dict(unigram_noise=0.)),
    'human noise, 75 %': (with_share(.75), dict(unigram_noise=0.)),
    'human noise, 50 %, random words': (with_share(.5), ALONE | dict(unigram_noise=1.)),
    'human noise alone': (human_noise.HumanNoise, ALONE | dict(unigram_noise=0.)),
    'random words alone': (None, ALONE | dict(unigram_noise=1.))}
WAYS = dict(first=lambda p: p[0], highest=max, any=lambda p: 1-np.prod(1-np.array(p))) # From pieces to their word
RARE_WAYS = dict(first=WAYS['first'], highest=max, sum=sum) # The same of how rare they are, in nats
BEFORE = '.' # A sentence is read after the end of another, as in a text
PIECES = 125 # Of a sentence that the networks read at once

def pieces_of(tok, sentences):
    "Token ids of each word of each sentence"
    unk = tok.unk_token_id
    def word(o): return tok(o, add_special_tokens=False)['input_ids'] or [unk]
    return [[word(w) for w in o.words] for o in sentences]

def chunks(words):
    "A sentence in parts that fit: lists of words"
    part, n = [], 0
    for o in words:
        o = o[:PIECES]
        if n+len(o)>PIECES:
            yield part
            part, n = [], 0
        part.append(o)
        n += len(o)
    yield part

@torch.no_grad()
def probabilities(net, tok, sentences):
    "P(replaced) of the pieces of each word, all sentences after one another"
    net.eval()
    before = tok(BEFORE, add_special_tokens=False)['input_ids']
    parts = [o for words in pieces_of(tok, sentences) for o in chunks(words)]
    order, found = sorted(range(len(parts)), key=lambda i: sum(map(len, parts[i]))), [None]*len(parts)
    for first in range(0, len(order), 64):
        some = order[first:first+64]
        rows = [[tok.cls_token_id, *before, *sum(parts[i], []), tok.sep_token_id] for i in some]
        width = max(map(len, rows))
        ids = torch.tensor([o+[tok.pad_token_id]*(width-len(o)) for o in rows])
        probs = net(ids, attention_mask=ids!=tok.pad_token_id).logits.sigmoid()
        for i,row in zip(some, probs.tolist()):
            ends = np.cumsum([1+len(before), *map(len, parts[i])])
            found[i] = [row[a:b] for a,b in zip(ends, ends[1:])]
    return [o for part in found for o in part]

def rarity(tok, counts, sentences):
    "How rare each piece of each word is, likewise"
    nll = -np.log((np.asarray(counts)+1)/np.sum(counts))
    return [nll[o].tolist() for words in pieces_of(tok, sentences) for o in words]

def measured(wrong, scores, threshold):
    "What a threshold makes of some words, and how well they are ranked, in percent"
    from sklearn.metrics import average_precision_score, roc_auc_score
    ranked = dict(average_precision=average_precision_score, auc=roc_auc_score)
    found = ged_scores(wrong, scores>=threshold) | {k: 100*f(wrong, scores) for k,f in ranked.items()}
    return {k: round(float(v), 2) for k,v in found.items()}

def detection(pieces, sentences, ways=WAYS):
    "Way and threshold from sentences with even numbers; what they are worth there, and on the others"
    wrong = np.array([tag=='i' for o in sentences for tag in o.tags])
    even = np.array([i%2==0 for i,o in enumerate(sentences) for _ in o.tags])
    found = {}
    for way,f in ways.items():
        scores = np.array([f(o) for o in pieces])
        threshold = best_threshold(wrong[even], scores[even])
        found[way] = ged_scores(wrong[even], scores[even]>=threshold)['f0.5'], threshold, scores
    way = max(found, key=lambda o: found[o][0])
    _, threshold, scores = found[way]
    facts = {k: measured(wrong[o], scores[o], threshold) for k,o in dict(even=even, odd=~even).items()}
    return dict(way=way, threshold=round(threshold, 4), **facts)

def open_network(folder):
    "A discriminator and its tokenizer"
    from transformers import AutoTokenizer, ElectraForPreTraining
    return ElectraForPreTraining.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)

plain_learner = objectives.learner

def run(arm, seed, args, sentences):
    "Train, unless that is done, and score the sentences; facts of the run"
    objective, given = ARMS[arm]
    folder = args.work/f'{slug(arm)}-{seed}'
    facts = folder/'parts.json'
    objectives.SCREENED[arm] = LARGE | dict(learning_rate=2e-3) | given
    objectives.learner, objectives.PARTS = partial(plain_learner, objective=objective), (1.,)
    if not facts.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        found, = objectives.pretrain(arm, args, seed, folder, None)
        facts.write_text(json.dumps(found))
    net, tok = open_network(folder/'1.0'/'discriminator')
    found = {k: v for k,v in json.loads(facts.read_text()).items() if k!='part'}
    return dict(arm=arm, seed=seed, **found, **detection(probabilities(net, tok, sentences), sentences))

def main():
    p = training_options(__doc__, 'ged_noise')
    p.add_argument('--language', required=True, help='name in the results, such as de')
    p.add_argument('--data', type=Path, required=True, help='folder of examples')
    p.add_argument('--text', required=True, help='what the examples were made of, for the record')
    p.add_argument('--marked', type=Path, required=True, help='sentences of MultiGED-2023, `dev.tsv`')
    p.add_argument('--arms', nargs='+', choices=ARMS, default=[*ARMS], metavar='ARM', help='in this order (all)')
    args = p.parse_args()
    setting = f'{args.preset} {args.hparams}, {args.text}, {args.flops:.3g} operations, {args.marked.name}'
    sentences = read_ged(args.marked)
    def kept():
        "Results so far; read again each time, since another language may run beside this one"
        found = dict(benchmark='ged_noise', languages={})
        if args.out.is_file(): found = json.loads(args.out.read_text())
        own = found['languages'].setdefault(args.language, dict(setting=setting, cpu=cpu(), runs=[]))
        if own['setting']!=setting: p.error(f"{args.out} has another setting: {own['setting']}; give another --out")
        return found, own
    if 'rare words' not in kept()[1]:
        from electra_nbdev.data.examples import load_examples
        examples = load_examples(args.data)
        rare = rarity(examples.tokenizer, examples.token_counts(), sentences)
        found, own = kept()
        wrong = mean(tag=='i' for o in sentences for tag in o.tags)
        own |= {'wrong words, %': round(100*wrong, 2), 'rare words': detection(rare, sentences, RARE_WAYS)}
        write_result(found, args.out)
        print(json.dumps({'rare words': own['rare words']}), flush=True)
    for seed in args.seeds:
        for arm in args.arms:
            if any((o['arm'], o['seed'])==(arm, seed) for o in kept()[1]['runs']): continue
            start = time.time()
            row = run(arm, seed, args, sentences) | dict(minutes=round((time.time()-start)/60, 1))
            found, own = kept()
            own['runs'].append(row)
            write_result(found, args.out)
            print(json.dumps(row), flush=True)

if __name__=='__main__': main()
