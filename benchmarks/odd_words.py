"""Odd words found and blanks filled, on text that no model of the package read: what `--show` and `--choices` do.

A word of each sentence gives way to another one of the same text, drawn as often as the text has it; it is found if no
word has a higher P(replaced). For a blank there are five words, one of them the author's. Sentences are those of
`likelihoods.py`. The last line is JSON, which `--out` keeps."""
from pathlib import Path
from statistics import mean

from common import RESULTS, arguments, report, table
from judge import found
from likelihoods import ONE_WORD, share, with_a_blank

SHOW = 'tiny', 'electra-baby'
CHOOSE = [('tiny', 'p-replaced'), ('tiny', 'generator'), ('electra-baby', 'p-replaced'), ('electra-baby', 'generator'),
          ('electra-baby', 'pll'), ('electric', 'towers'), ('electric-baby', 'towers')]

def odd(model, blanks):
    "How often the odd word has the highest P(replaced)"
    from electra_nbdev.scoring.score import load_scorer
    cases = [(text.replace('___', others[0]), text.index('___')) for text,_,others in blanks]
    return share(found(load_scorer(model, device='cpu'), cases))

def chance(blanks):
    "Share of sentences in which a guess finds the odd word"
    return round(100*mean(1/len(text.split()) for text,*_ in blanks), 1)

def chosen(model, by, blanks):
    "How often the author's word is chosen"
    from electra_nbdev.scoring.ranking import choose, load_chooser
    asked = [dict(text=text, choices=[word, *others], answer=word) for text,word,others in blanks]
    return share([o['chosen']==o['answer'] for o in choose(load_chooser(model, by, device='cpu'), asked)])

def main():
    args = arguments(__doc__, data=('', 'folder with babylm/ and text/'),
                     out=(str(RESULTS/'odd_words.json'), 'results'))
    if not args.data: raise SystemExit('give the folder of the texts with --data')
    texts = {k: list(with_a_blank(Path(args.data)/o)) for k,o in ONE_WORD.items()}
    got = dict(odd={m: {k: odd(m, o) for k,o in texts.items()} for m in SHOW},
               blanks={f'{m}, {by}': {k: chosen(m, by, o) for k,o in texts.items()} for m,by in CHOOSE})
    for what,rows in got.items():
        table((what, *texts), [(k, *(f"{o['accuracy']} [{o['low']}, {o['high']}]" for o in r.values()))
                               for k,r in rows.items()])
    facts = dict(benchmark='odd_words', sentences={k: len(o) for k,o in texts.items()},
                 chance={k: chance(o) for k,o in texts.items()}, found=got)
    report(facts, args.out)

if __name__=='__main__': main()
