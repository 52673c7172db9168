"""Megabytes of text a second: windows over passages, and the tokenizer alone over the same passages and questions.

The tokenizer alone is one call of `encode_batch` after another with the ids read out, from texts that are in memory
already, each passage once; building takes questions that have been read and checked, and are on disk, and finds the
tokens of their answers too. In all sides the tokenizer may use `--threads` cores. `ratio` compares their speed; `fast`
compares with `encode_batch_fast`, which keeps no offsets into the text. `rows` is how long it takes to make a training
row of a window, in microseconds. `memory` compares the most memory of a process that reads and builds the largest and
the smallest number of passages of `--sizes`."""
import json, os, random, re, tempfile, time
from itertools import groupby
from pathlib import Path
from statistics import median

from common import arguments, cores, memory_of, ratio, report, rounds, serve, table, text_folder
from data import peak_during

def write_questions(source, path, n, seed=0):
    "A file of n passages of about 130 words of text, as MRQA writes them, with five questions each"
    files, rng = [source] if source.is_file() else sorted(source.rglob('*.txt')), random.Random(seed)
    words = ' '.join(o.read_text(errors='ignore') for o in files[:200]).split()
    if len(words)<1000: raise SystemExit(f'{source} holds no .txt file with enough text')
    with open(path, 'w') as f:
        for i in range(n):
            a = rng.randrange(len(words)-200)
            page, asked = words[a:a+rng.randint(60, 200)], []
            for k in range(5):
                at, size = rng.randrange(len(page)-5), rng.randint(1, 4)
                answer = ' '.join(page[at:at+size]).strip('.,;:!?') or page[at]
                start = len(' '.join(page[:at])) + (at>0)
                place = dict(text=answer, char_spans=[[start, start]])
                b = rng.randrange(len(words)-12)
                question = ' '.join(words[b:b+11])
                asked.append(dict(qid=f'{i}-{k}', question=question, answers=[answer], detected_answers=[place]))
            f.write(json.dumps(dict(context=' '.join(page), qas=asked))+'\n')
    return path

def build(args):
    "What a side needs"
    os.environ['RAYON_NUM_THREADS'] = str(args.threads)
    from electra_nbdev.data.tokenizer import text_backend
    from electra_nbdev.finetuning.questions import PASSAGES, read_questions
    from electra_nbdev.data.tokenizer import load_tokenizer
    from fastcore.basics import chunked
    tok, path = load_tokenizer(args.vocab), Path(args.work)/(args.side if args.side.startswith('size') else 'text')
    if args.side.startswith('size'): return tok, path.with_suffix('.jsonl'), None, None
    found = read_questions(path.with_suffix('.jsonl'), skip_bad_rows=True)
    texts = []
    for g in chunked(groupby(found, key=lambda o: o.context), PASSAGES):
        texts += [[context for context,_ in g], [o.question for _,asked in g for o in asked]]
    size = sum(len(o.encode()) for g in texts for o in g)/1e6
    return tok, found, size, (text_backend(tok), texts)

def measure(args, state):
    "Speed of a pass over the questions, or the memory of one"
    from electra_nbdev.finetuning.recipe import FinetuneHParams
    from electra_nbdev.finetuning.questions import build_windows, read_questions
    tok, found, size, alone = state
    hp = FinetuneHParams(max_seq_length=384)
    if size is None: return peak_during(lambda: build_windows(read_questions(found, skip_bad_rows=True), tok, hp))
    start, rows = time.perf_counter(), 0.
    if args.side=='ours':
        windows = build_windows(found, tok, hp)
        took = time.perf_counter()-start
        start = time.perf_counter()
        some = [windows[i] for i in range(0, len(windows), max(len(windows)//2000, 1))]
        rows = (time.perf_counter()-start)/len(some)*1e6
    else:
        fast, texts = alone
        encode = getattr(fast, 'encode_batch' if args.side=='tokenizer' else 'encode_batch_fast')
        for g in texts: [e.ids for e in encode(g, add_special_tokens=False)]
        took = time.perf_counter()-start
    return dict(mb_per_s=size/took, rows=rows)

def sizes(args): return [int(o) for o in args.sizes.split(',')]

def main():
    text = os.environ.get('ELECTRA_TEXT', '')
    args = arguments(__doc__, rounds=(5, 'rounds'), passages=(4000, 'passages'),
                     sizes=('500,4000,32000', 'passages of the files whose memory is measured'),
                     threads=(cores(), 'cores'), text=(text, 'folder of .txt files; the embedded sample if none'),
                     vocab=('', 'vocab.txt; that of the shipped model if none'), work=('', 'folder for scratch files'))
    if args.side: return serve(lambda: build(args), lambda state: measure(args, state))
    from electra_nbdev.engine.models import shipped
    args.vocab = args.vocab or str(shipped()/'discriminator')
    with tempfile.TemporaryDirectory(dir=args.work or None) as args.work:
        source, work = text_folder(args), Path(args.work)
        write_questions(source, work/'text.jsonl', args.passages)
        for o in sizes(args): write_questions(source, work/f'size{o}.jsonl', o)
        got = rounds(['tokenizer', 'tokenizer_fast', 'ours'], args, lambda o: f"{o['mb_per_s']:6.2f} MB/s")
        used = {o: memory_of(f'size{o}', args) for o in sizes(args)}
    speed = {k: [o['mb_per_s'] for o in v] for k,v in got.items()}
    table(('', 'MB/s'), [(k, median(v)) for k,v in speed.items()])
    peaks = {k: round(o['peak']) for k,o in used.items()}
    table(('passages', 'memory before, MB', 'peak, MB'), [(k, round(used[k]['before']), o) for k,o in peaks.items()])
    fast = ratio(speed['ours'], speed['tokenizer_fast'])
    memory = round(used[max(used)]['peak']/used[min(used)]['peak'], 3)
    rows = round(median(o['rows'] for o in got['ours']), 1)
    medians = {k: round(median(v), 2) for k,v in speed.items()}
    kind = 'text' if args.text else 'the sample'
    setting = f'{args.passages} passages of {kind}, five questions each, {args.threads} cores'
    report(dict(benchmark='windows', **ratio(speed['ours'], speed['tokenizer']), fast=fast, memory=memory,
                peak_mb=peaks, rows=rows, mb_per_s=medians, setting=setting))

if __name__=='__main__': main()
