"""What models have learnt, on held-out documents: both networks on rows of several lengths, and how often the odd word of a sentence is found.

A sentence has one word that gave way to another word of the same documents; it counts if the highest probability stands there. The other word is
drawn as often as the text has it, and fits now and then. `p` compares a model with the first one, sentence by sentence (McNemar's exact test). The last
line is JSON, with 95 % intervals for the sentences."""
import json, random, re
from dataclasses import replace
from pathlib import Path

from common import arguments, table

SENTENCE = re.compile(r"[a-z' ,;-]+[.!?]")
WORD = re.compile(r"(?<![\w'])[a-z]{3,}(?![\w'])")
MEASURES = ('below_unigram', 'disc_auc', 'auc_unigram')

def sentences(examples):
    "Whole sentences of 8 to 20 words, from the middle of every row"
    from electra_nbdev.domain import held_out_texts
    for text in held_out_texts(examples, len(examples)):
        whole = re.split(r'(?<=[.!?]) ', re.sub(r" ([.,;!?'])", r'\1', text))
        yield from (o for o in whole[1:-1] if SENTENCE.fullmatch(o) and 8<=o.count(' ')+1<=20)

def exchanged(examples, n, seed):
    "Sentences with a strange word, and where it stands"
    known, rng = sorted(set(sentences(examples))), random.Random(seed)
    words = [w for o in known for w in WORD.findall(o)]
    for s in rng.sample(known, min(n, len(known))):
        if not (places := list(WORD.finditer(s))): continue
        place, odd = rng.choice(places), rng.choice(words)
        if odd!=place[0]: yield s[:place.start()]+odd+s[place.end():], place.start()

def found(scorer, cases):
    "For every sentence whether the strange word is the suspect"
    from electra_nbdev.score import verdict
    def suspect(text):
        v = verdict(scorer, text)
        i = v.probs.index(max(v.probs))
        return len(''.join(v.gaps[:i+1])+''.join(v.words[:i]))
    return [suspect(text)==at for text,at in cases]

def held_out(run, examples):
    "Metrics on all held-out rows"
    from electra_nbdev.hparams import load_hparams
    from electra_nbdev.pretrain import ElectraPretraining, electra_learner, open_examples, pretrain_dls
    width = examples.width
    hp = replace(load_hparams(run/'hparams.json'), max_seq_length=width, length_schedule=(), keep_checkpoints_at=(), eval_batch_size=4096//width)
    learn = electra_learner(pretrain_dls(*open_examples(examples.path, hp), hp, 'cpu'), hp, model=ElectraPretraining.load(run, hp))
    with learn.no_bar(), learn.no_logging(): learn.validate()
    return {o: round(float(learn.held_out[o]), 4) for o in MEASURES}

def main():
    args = arguments(__doc__, text=('', 'folder of text'), models=('tiny', 'models or runs, with commas between'), lengths=('16,32,128', 'tokens of the rows'),
                     share=(.02, 'share of the documents that was held out'), sentences=(600, 'sentences'), seed=(0, 'of the exchange'), work=('runs/judge', 'folder for the examples'))
    if not args.text: raise SystemExit('give the folder that the models were trained on with --text')
    from scipy.stats import binomtest
    from electra_nbdev.data import build_examples, load_examples
    from electra_nbdev.score import load_scorer, shipped
    from electra_nbdev.tokenizer import fingerprint
    runs = {o: Path(o) if Path(o).is_dir() else shipped(o) for o in args.models.split(',')}
    scorers = {k: load_scorer(o) for k,o in runs.items()}
    if len({fingerprint(o.tokenizer) for o in scorers.values()})>1: raise SystemExit('these models have different vocabularies; judge them one by one')
    vocab = next(iter(runs.values()))/'discriminator'
    data = {n: load_examples(build_examples(args.text, vocab, Path(args.work)/str(n), max_length=n, held_out=args.share)) for n in map(int, args.lengths.split(','))}
    cases = list(exchanged(load_examples(data[max(data)].path/'held_out'), args.sentences, args.seed))
    hits = {k: found(o, cases) for k,o in scorers.items()}
    facts, first = {}, next(iter(hits.values()))
    for k,o in hits.items():
        ci = binomtest(sum(o), len(o)).proportion_ci(method='wilson')
        won, lost = sum(a>b for a,b in zip(o, first)), sum(a<b for a,b in zip(o, first))
        facts[k] = dict(rows={n: held_out(runs[k], d) for n,d in data.items()}, found=round(sum(o)/len(o), 4), interval=[round(ci.low, 4), round(ci.high, 4)],
                        p=binomtest(won, won+lost).pvalue if won+lost else 1.)
    table(('model', 'row', *MEASURES, 'odd words found', 'p'), [(k, n, *(f'{x:.3f}' for x in o.values()), f"{f['found']:.1%} [{f['interval'][0]:.1%}, {f['interval'][1]:.1%}]", f"{f['p']:.2g}")
                                                           for k,f in facts.items() for n,o in f['rows'].items()])
    print(json.dumps(dict(benchmark='judge', models=facts, sentences=len(cases), seed=args.seed)))

if __name__=='__main__': main()
