"""What models have learnt, on held-out documents: metrics on examples of several lengths, and odd words found.

In each sentence one word is replaced by another word of the same documents, drawn as often as the text has it; now and
then it fits. The sentence counts if the highest P(replaced) is there. `p` compares a model with the first one, sentence
by sentence (McNemar's exact test). The last line is JSON, with 95 % intervals for the sentences."""
import random, re
from dataclasses import replace
from pathlib import Path

from common import arguments, report, table

SENTENCE = re.compile(r"[a-z' ,;-]+[.!?]")
WORD = re.compile(r"(?<![\w'])[a-z]{3,}(?![\w'])")
MEASURES = ('below_unigram', 'disc_auc', 'auc_unigram')

def sentences(examples):
    "Whole sentences of 8 to 20 words, from the middle of every example"
    for i in range(len(examples)):
        text = ' '.join(o for o in examples.decode(i) if o)
        whole = re.split(r'(?<=[.!?]) ', re.sub(r" ([.,;!?'])", r'\1', text))
        yield from (o for o in whole[1:-1] if SENTENCE.fullmatch(o) and 8<=o.count(' ')+1<=20)

def exchanged(examples, n, seed):
    "Sentences with an odd word, and where it begins"
    known, rng = sorted(set(sentences(examples))), random.Random(seed)
    words = [w for o in known for w in WORD.findall(o)]
    for s in rng.sample(known, min(n, len(known))):
        if not (places := list(WORD.finditer(s))): continue
        place, odd = rng.choice(places), rng.choice(words)
        if odd!=place[0]: yield s[:place.start()]+odd+s[place.end():], place.start()

def found(scorer, cases):
    "For every sentence whether the odd word has the highest probability"
    from electra_nbdev.scoring.score import score_tokens
    def highest(text):
        v = score_tokens(scorer, text)
        i = v.probs.index(max(v.probs))
        return len(''.join(v.gaps[:i+1])+''.join(v.words[:i]))
    return [highest(text)==at for text,at in cases]

def held_out(run, examples):
    "Metrics on all held-out examples"
    from electra_nbdev.data.examples import load_examples
    from electra_nbdev.pretrain import electra_learner, pretrain_dls
    from electra_nbdev.networks.build import load_networks
    from electra_nbdev.networks.recipe import load_hparams
    width = examples.width
    hp = replace(load_hparams(run/'hparams.json'), max_seq_length=width, length_schedule=(), keep_checkpoints_at=(),
                 eval_batch_size=4096//width)
    dls = pretrain_dls(load_examples(examples.path, hp), load_examples(examples.path/'held_out', hp), hp, 'cpu')
    learn = electra_learner(dls, hp, load_networks(run, hp))
    with learn.no_bar(), learn.no_logging(): learn.validate()
    return {o: round(float(learn.held_out[o]), 4) for o in MEASURES}

def lines(model, facts):
    "A line of the table for each length"
    low, high = facts['interval']
    for n,found in facts['rows'].items():
        metrics = [f'{o:.3f}' for o in found.values()]
        yield model, n, *metrics, f"{facts['found']:.1%} [{low:.1%}, {high:.1%}]", f"{facts['p']:.2g}"

def main():
    args = arguments(__doc__, text=('', 'folder of text'), models=('tiny', 'models or runs, with commas between'),
                     lengths=('16,32,128', 'tokens of the examples'), sentences=(600, 'sentences'),
                     share=(.02, 'share of the documents that was held out'), seed=(0, 'of the exchange'),
                     work=('runs/judge', 'folder for the examples'))
    if not args.text: raise SystemExit('give the folder that the models were trained on with --text')
    from scipy.stats import binomtest
    from electra_nbdev.engine.models import shipped
    from electra_nbdev.data.examples import build_examples, load_examples
    from electra_nbdev.scoring.score import load_scorer
    from electra_nbdev.data.tokenizer import fingerprint
    runs = {o: Path(o) if Path(o).is_dir() else shipped(o) for o in args.models.split(',')}
    scorers = {k: load_scorer(o) for k,o in runs.items()}
    if len({fingerprint(o.tokenizer) for o in scorers.values()})>1:
        raise SystemExit('these models have different vocabularies; evaluate them one by one')
    vocab = next(iter(runs.values()))/'discriminator'
    def built(n):
        how = dict(held_out=args.share, long_lines='official') # the rule of the models before
        return build_examples(args.text, vocab, Path(args.work)/str(n), max_length=n, **how)
    data = {n: load_examples(built(n)) for n in map(int, args.lengths.split(','))}
    cases = list(exchanged(load_examples(data[max(data)].path/'held_out'), args.sentences, args.seed))
    hits = {k: found(o, cases) for k,o in scorers.items()}
    facts, first = {}, next(iter(hits.values()))
    for k,o in hits.items():
        ci = binomtest(sum(o), len(o)).proportion_ci(method='wilson')
        won, lost = sum(a>b for a,b in zip(o, first)), sum(a<b for a,b in zip(o, first))
        facts[k] = dict(rows={n: held_out(runs[k], d) for n,d in data.items()},
                        found=round(sum(o)/len(o), 4), interval=[round(ci.low, 4), round(ci.high, 4)],
                        p=binomtest(won, won+lost).pvalue if won+lost else 1.)
    table(('model', 'tokens', *MEASURES, 'odd words found', 'p'), [o for k,f in facts.items() for o in lines(k, f)])
    report(dict(benchmark='judge', models=facts, sentences=len(cases), seed=args.seed))

if __name__=='__main__': main()
