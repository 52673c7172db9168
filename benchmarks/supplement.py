"""Five sets of two hundred minimal pairs, of the kinds that BabyLM's supplement of BLiMP has: hypernyms, inversion in
questions, answers that fit their question, the same with a distractor, and turns of a dialogue.

The supplement itself is not here. These sentences are made from lists of words by rules of our own, so scores on them
say in what a model is weak and are not to be held against published ones. But for the tricky answers, what is right in
one pair is wrong in others, so knowing how frequent words are is worth no more than a guess; `--examples`, a folder of
electra_data, adds a unigram and a 5-gram model of that text. `--out` keeps the accuracies of `--models`, names of
the package or folders; `--sets` is a folder for the pairs, as files that `electra_score --pairs` reads. The stages of
electric-baby are in benchmarks/results/baby of commits 0c9197d, 7cfa58b, 17871a8 and b52d7f1^; `electric-together` is
the last stage of `tools/baby.py` of commit 45b7642d, begun with electric-baby, whose weights are not kept."""
import json, random
from dataclasses import replace
from itertools import chain, permutations, product
from pathlib import Path

import ngram
from common import RESULTS, arguments, report, table

N = 200 # Pairs of a set
KINDS = {'bird': 'sparrow robin owl crow swan', 'fish': 'salmon trout herring cod eel',
         'tree': 'oak pine willow birch elm', 'flower': 'rose lily daisy violet tulip',
         'fruit': 'pear plum cherry peach lemon', 'tool': 'hammer saw chisel file axe',
         'instrument': 'flute violin drum harp piano', 'insect': 'bee wasp ant beetle moth'}
PEOPLE = 'teacher doctor farmer sailor painter baker soldier nurse lawyer driver'.split()
THINGS = 'letter hat book chair basket picture kettle candle blanket lamp'.split()
PLACES = 'garden kitchen station church market harbour forest school village library'.split()
NAMES = 'Mary John Anna Peter Helen George Alice Henry Clara Thomas'.split()
VERBS = {'find': 'found', 'carry': 'carried', 'see': 'saw', 'follow': 'followed', 'paint': 'painted', 'hide': 'hid',
         'lose': 'lost', 'clean': 'cleaned', 'draw': 'drew', 'remember': 'remembered'} # Of people and of things
ALONE = {'sleep': 'sleeping', 'sing': 'singing', 'wait': 'waiting', 'smile': 'smiling', 'leave': 'leaving',
         'run': 'running', 'work': 'working', 'laugh': 'laughing', 'cry': 'crying', 'read': 'reading'}
AUXILIARIES = 'should', 'could', 'would', 'will', 'must', 'can'
NOT = dict(should="shouldn't", could="couldn't", would="wouldn't", will="won't", must="mustn't", can="can't")

def a(noun): return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"

def hypernym():
    "What has a sparrow has a bird, and need not have a fish"
    forms = ('If {who} has {one}, then {who} has {all}.', '{who} has {one}, which means that {who} has {all}.',
             'Since {who} bought {one}, {who} bought {all}.')
    for form,who,(kind,other) in product(forms, NAMES, permutations(KINDS, 2)):
        for one in KINDS[kind].split():
            yield form.format(who=who, one=a(one), all=a(kind)), form.format(who=who, one=a(one), all=a(other))

def inversion():
    "The auxiliary of the main clause comes first, not that of the relative clause"
    for who,(verb,doing),(other,_) in product(PEOPLE, ALONE.items(), ALONE.items()):
        if verb==other: continue
        for aux in AUXILIARIES:
            yield f'Is the {who} who {aux} {other} {doing}?', f'{aux.capitalize()} the {who} who {other} is {doing}?'

def answers():
    "`who` asks for a person, `what` for a thing, `where` for a place"
    for name,verb,person,thing in product(NAMES, VERBS, PEOPLE, THINGS):
        yield f'A: Who did {name} {verb}? B: The {person}.', f'A: Who did {name} {verb}? B: The {thing}.'
        yield f'A: What did {name} {verb}? B: The {thing}.', f'A: What did {name} {verb}? B: The {person}.'
    for name,doing,place,person in product(NAMES, ALONE.values(), PLACES, PEOPLE):
        yield f'A: Where is {name} {doing}? B: In the {place}.', f'A: Where is {name} {doing}? B: The {person}.'
        yield f'A: Who is {doing} with {name}? B: The {person}.', f'A: Who is {doing} with {name}? B: In the {place}.'

def tricky_answers():
    "A verb that may have an object and need not: who acts is a person, though an object is what often follows"
    verbs = dict(read='book', cook='dinner', drive='bus', sing='song', eat='apple', write='letter', drink='tea',
                 draw='picture', teach='lesson', clean='kitchen')
    past = dict(read='read', cook='cooked', drive='drove', sing='sang', eat='ate', write='wrote', drink='drank',
                draw='drew', teach='taught', clean='cleaned')
    for verb,person,name in product(verbs, PEOPLE, NAMES):
        for who in (f'The {person}', name):
            yield f'A: Who {past[verb]}? B: {who}.', f'A: Who {past[verb]}? B: The {verbs[verb]}.'

def turns():
    "Who is asked about himself answers with `I`, about the asker with `you`; about others with `they`"
    for aux,verb,(x,y) in product(AUXILIARIES, ALONE, zip(NAMES, NAMES[1:])):
        for one,other in (('you', 'I'), ('I', 'you'), ('they', 'they'), ('we', 'we')):
            asked, wrong = f'{x}: {aux.capitalize()} {one} {verb}? {y}: ', dict(I='you', you='I', they='we', we='they')
            yield f'{asked}No, {other} {NOT[aux]}.', f'{asked}No, {wrong[other]} {NOT[aux]}.'

SETS = dict(hypernym=hypernym, subject_aux_inversion=inversion, qa_congruence_easy=answers,
            qa_congruence_tricky=tricky_answers, turn_taking=turns)

def pairs_of(name):
    "Two hundred pairs of a set, drawn from all that its rule makes"
    return random.Random(name).sample(sorted(set(SETS[name]())), N)

def write(folder):
    "A file of each set"
    folder.mkdir(parents=True, exist_ok=True)
    for name in SETS:
        lines = [json.dumps(dict(sentence_good=good, sentence_bad=bad)) for good,bad in pairs_of(name)]
        (folder/f'{name}.jsonl').write_text('\n'.join(lines)+'\n', encoding='utf-8')
    return folder

def counted(examples):
    "n-gram models of a text"
    if not examples: return
    from electra_nbdev.data.examples import load_examples
    for by,order in ngram.ORDERS.items():
        yield replace(ngram.likelihood(load_examples(examples), order, by), name='n-gram')

def main():
    args = arguments(__doc__, sets=('runs/supplement', 'folder for the pairs'),
                     models=('electric electra-baby electric-baby', 'models to score them with'),
                     examples=('', 'folder of examples for n-gram models'),
                     out=(str(RESULTS/'supplement.json'), 'results'))
    from electra_nbdev.scoring.likelihood import load_likelihood
    from electra_nbdev.scoring.ranking import accuracies, score_pairs
    from electra_nbdev.scoring.score_files import read_pairs
    pairs, rows = read_pairs(write(Path(args.sets))), {}
    models = (load_likelihood(o, device='cpu') for o in args.models.split())
    for model in chain(counted(args.examples), models):
        found = accuracies(score_pairs(model, pairs), by='set')
        rows[f'{Path(model.name).name}, {model.by}'] = {k: {c: round(v, 1) for c,v in row.items()}
                                                  for k,row in found.to_dict('index').items()}
    sets = next(iter(rows.values()))
    table(('set', *rows), [(k, *(o[k]['accuracy'] for o in rows.values())) for k in sets])
    report(dict(benchmark='supplement', pairs=N, models=rows), args.out)

if __name__=='__main__': main()
