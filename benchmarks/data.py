"""Megabytes of text a second: building examples, and the tokenizer alone over the same lines.

The tokenizer alone is one call of `encode_batch` after another with the ids read out, from lines in memory;
building reads the file, makes examples and writes them, in one process. In all of them the tokenizer may use
`--threads` cores. `ratio` compares their speed;
`fast` compares with `encode_batch_fast`, which keeps no offsets into the text and which building calls.
`memory` compares the most memory of a process that builds from the largest and from the smallest text of `--sizes`."""
import os, re, tempfile, time
from pathlib import Path
from statistics import median
from threading import Event, Thread

from common import arguments, cores, memory_of, ratio, report, rounds, serve, table, text_folder

def write_text(source, path, mb):
    "The text files of a folder, repeated until they make a file of so many megabytes"
    files = [source] if source.is_file() else sorted(source.rglob('*.txt'))
    if not files: raise SystemExit(f'{source} holds no .txt file')
    size, wanted = 0, int(mb*1e6)
    with open(path, 'wb') as f:
        while size<wanted:
            for o in files:
                text = o.read_bytes()[:max(0, wanted-size)].decode(errors='ignore')
                size += f.write(text.encode()) + f.write(b'\n\n')
    return path

def groups(path, characters=2_000_000):
    "The lines of a file without the empty ones, in lists as long as those that building hands to the tokenizer"
    found, n = [[]], 0
    for line in Path(path).read_text().splitlines():
        if not line.strip(): continue
        if n>=characters: found, n = [*found, []], 0
        found[-1].append(line.strip())
        n += len(line)
    return found

def anonymous():
    "Megabytes of this process that are not files on disk"
    return int(re.search(r'RssAnon:\s+(\d+)', Path('/proc/self/status').read_text())[1])/2**10

def peak_during(f):
    "Memory before, and the most of it, looked at a hundred times a second"
    before, done, seen = anonymous(), Event(), [0.]
    def watch():
        while not done.wait(.01): seen.append(anonymous())
    thread = Thread(target=watch)
    thread.start()
    try: f()
    finally:
        done.set()
        thread.join()
    return dict(before=before, peak=max(seen))

def build(args):
    "What a side needs"
    os.environ['RAYON_NUM_THREADS'] = str(args.threads)
    from electra_nbdev.data.tokenizer import load_tokenizer
    path = Path(args.work)/(args.side if args.side.startswith('size') else 'text')
    return path, load_tokenizer(args.vocab), groups(path) if 'tokenizer' in args.side else None

def measure(args, state):
    "Speed of a pass over the text, or the memory of one"
    from electra_nbdev.data.examples import build_examples
    path, tok, lines = state
    start = time.perf_counter()
    if lines:
        encode = getattr(tok.backend_tokenizer, 'encode_batch' if args.side=='tokenizer' else 'encode_batch_fast')
        for g in lines: [e.ids for e in encode(g, add_special_tokens=False)]
    else:
        with tempfile.TemporaryDirectory(dir=args.work) as d:
            make = lambda: build_examples(path, args.vocab, f'{d}/examples')
            if args.side!='ours': return peak_during(make)
            make()
    return dict(mb_per_s=path.stat().st_size/1e6/(time.perf_counter()-start))

def sizes(args): return [float(o) for o in args.sizes.split(',')]

def prepare(args):
    "Texts and a vocabulary in the work folder"
    from electra_nbdev.data.tokenizer import train_vocab
    source, work = text_folder(args), Path(args.work)
    for name,mb in (('text', args.mb), *((f'size{o}', o) for o in sizes(args))): write_text(source, work/name, mb)
    if args.vocab: return
    args.vocab = str(work/'vocab')
    train_vocab(write_text(source, work/'words', min(8., args.mb)), args.vocab)

def main():
    text = os.environ.get('ELECTRA_TEXT', '')
    args = arguments(__doc__, rounds=(5, 'rounds'), mb=(32., 'megabytes of text'), threads=(cores(), 'cores'),
        sizes=('1,16,256', 'megabytes of the texts whose memory is measured'),
        text=(text, 'folder of .txt files; the embedded sample if none'),
        vocab=('', 'vocab.txt; trained on the text if none'), work=('', 'folder for scratch files'))
    if args.side: return serve(lambda: build(args), lambda state: measure(args, state))
    with tempfile.TemporaryDirectory(dir=args.work or None) as args.work:
        prepare(args)
        got = rounds(['tokenizer', 'tokenizer_fast', 'ours'], args, lambda o: f"{o['mb_per_s']:6.2f} MB/s")
        used = {o: memory_of(f'size{o}', args) for o in sizes(args)}
    speed = {k: [o['mb_per_s'] for o in v] for k,v in got.items()}
    peak = {k: o['peak'] for k,o in used.items()}
    table(('', 'MB/s'), [(k, median(v)) for k,v in speed.items()])
    rows = [(f'{k:.0f}', round(o['before']), round(o['peak'])) for k,o in used.items()]
    table(('text, MB', 'memory before, MB', 'peak, MB'), rows)
    found = dict(benchmark='data', **ratio(speed['ours'], speed['tokenizer']))
    found |= dict(fast=ratio(speed['ours'], speed['tokenizer_fast']), memory=round(peak[max(peak)]/peak[min(peak)], 3),
        peak_mb={f'{k:.0f}': round(o) for k,o in peak.items()},
        mb_per_s={k: round(median(v), 2) for k,v in speed.items()},
        setting=f"{args.mb:.0f} MB of {'text' if args.text else 'the sample'}, {args.threads} cores")
    report(found)

if __name__=='__main__': main()
