"""SST-2 without fine-tuning: each review with a blank, and two words of which one fits a good review.

The template and the words are the usual ones (Gao et al. 2021); nothing was chosen on the data. Half of the reviews
are good, so a guess is right for half of them. The last line is JSON."""
import csv
from pathlib import Path

from common import arguments, report, table

TEMPLATE = '{} it was ___ .'
WORDS = {'0': 'terrible', '1': 'great'}
WAYS = [('tiny', 'p-replaced'), ('tiny', 'generator'), ('electric', 'energies'), ('electric', 'towers'),
        ('electra-baby', 'p-replaced'), ('electra-baby', 'generator'), ('electric-baby', 'towers')]

def reviews(path):
    "Texts with a blank, and the word that fits the label"
    with open(path, encoding='utf-8', newline='') as f:
        for o in csv.DictReader(f, delimiter='\t', quoting=csv.QUOTE_NONE):
            answer = WORDS[o['label']]
            yield dict(text=TEMPLATE.format(o['sentence'].strip()), choices=[*WORDS.values()], answer=answer)

def main():
    args = arguments(__doc__, data=('', 'dev.tsv of SST-2'))
    if not args.data: raise SystemExit('give dev.tsv of SST-2 with --data')
    from electra_nbdev.scoring.ranking import choice_accuracy, choose, load_chooser
    rows, found = list(reviews(Path(args.data))), {}
    for model,by in WAYS:
        chosen = choose(load_chooser(model, by, device='cpu'), rows)
        accuracy, low, high, n = choice_accuracy(chosen)
        great = 100*sum(o['chosen']==WORDS['1'] for o in chosen)/n
        numbers = dict(accuracy=accuracy, low=low, high=high, great=great)
        found[f'{model}, {by}'] = {k: round(v, 1) for k,v in numbers.items()}
    table(('', 'accuracy', 'low', 'high', 'said to be great'), [(k, *v.values()) for k,v in found.items()])
    report(dict(benchmark='zero_shot', reviews=len(rows), ways=found))

if __name__=='__main__': main()
