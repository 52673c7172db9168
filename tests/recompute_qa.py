"""Exact match and F1 of a predictions file, counted from the definitions alone: nothing of the package is imported.

recompute_qa.py DATA PREDICTIONS [NULL_ODDS [THRESHOLD]] prints both as JSON, in per cent. DATA is a file of SQuAD or
MRQA; with NULL_ODDS a question whose odds are above THRESHOLD (-2.75) is taken as left without an answer, as in SQuAD
2.0."""
import gzip, json, sys
from string import punctuation

def words(text):
    "What is left of an answer: lower-case words without punctuation and articles"
    bare = text.lower().translate(str.maketrans('', '', punctuation))
    out, word = [], ''
    for c in bare+' ':
        if c.isalnum(): word += c; continue # an article stands between characters that are no letters
        out += [' ' if word in ('a', 'an', 'the') else word, c]
        word = ''
    return ''.join(out).split()

def f1(said, gold, v2):
    if v2 and (not said or not gold): return float(said==gold)
    left, same = list(gold), 0
    for w in said:
        if w in left: left.remove(w); same += 1
    return 2*same/(len(said)+len(gold)) if same else 0.

def golds(path):
    "Right answers of every question"
    data = (gzip.open if path.endswith('.gz') else open)(path, 'rt', encoding='utf-8').read()
    if '.jsonl' in path:
        asked = [q for line in data.splitlines() for q in json.loads(line).get('qas', [])]
        return {q['qid']: q['answers'] for q in asked}
    asked = [q for o in json.loads(data)['data'] for p in o['paragraphs'] for q in p['qas']]
    return {q['id']: [a['text'] for a in q['answers']] for q in asked}

def recompute(data, said, odds=None, threshold=-2.75):
    said, v2 = json.load(open(said, encoding='utf-8')), odds is not None
    odds = json.load(open(odds, encoding='utf-8')) if v2 else {}
    exact = overlap = 0.
    right = {k: v for k,v in golds(data).items() if k in said}
    for k,answers in right.items():
        if v2 and odds[k]>threshold: exact += not answers; overlap += not answers; continue
        ours = words(said[k])
        theirs = [words(a) for a in answers]
        if v2: theirs = [a for a in theirs if a] or [[]]
        exact += max(float(a==ours) for a in theirs)
        overlap += max(f1(ours, a, v2) for a in theirs)
    return dict(exact=100*exact/len(right), f1=100*overlap/len(right), questions=len(right))

if __name__=='__main__':
    if not 3<=len(sys.argv)<=5: raise SystemExit(__doc__)
    print(json.dumps(recompute(*sys.argv[1:4], *map(float, sys.argv[4:]))))
