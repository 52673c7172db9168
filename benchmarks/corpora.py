"""Corpora at random: every format, packed or not, whole or damaged, read by `electra_data`, killed and read again.

A corpus that was left as it is has to give its documents, one that was damaged too or one line and exit code 2 with
nothing left behind. A build that is killed at a random moment and typed again gives the same bytes."""
import argparse, gzip, io, json, os, random, shutil, signal, tempfile, time
from collections import Counter
from itertools import groupby
from pathlib import Path

import pyarrow as pa
from pyarrow import ipc, parquet

import hostile

PACKED = {'': bytes, '.gz': gzip.compress, '.zst': lambda o: pa.compress(o, 'zstd', asbytes=True)}
WORDS = 'the king saw a castle of old "quoted, words" é ﬁ 漢字 \u200b \ufeff x\ty ###'.split(' ')

def documents(rng):
    "Texts of one to five lines"
    def line(): return ' '.join(rng.choices(WORDS, k=rng.randint(1, 12)))
    return ['\n'.join(line() for _ in range(rng.randint(1, 5))) for _ in range(rng.randint(1, 300))]

def as_text(docs, rng): return '\n\n'.join(docs).encode()
def as_jsonl(docs, rng):
    plain = rng.random()<.5
    return ''.join(json.dumps(dict(text=o), ensure_ascii=plain)+'\n' for o in docs).encode()
def as_csv(docs, rng):
    import pandas as pd
    return pd.DataFrame(dict(n=range(len(docs)), text=docs)).to_csv(index=False).encode()
def as_parquet(docs, rng):
    f = io.BytesIO()
    parquet.write_table(pa.table(dict(text=docs)), f, row_group_size=rng.randint(1, 99))
    return f.getvalue()
def as_arrow(docs, rng):
    f, table = io.BytesIO(), pa.table(dict(text=docs))
    with rng.choice([ipc.new_stream, ipc.new_file])(f, table.schema) as w: w.write_table(table, rng.randint(1, 99))
    return f.getvalue()

FORMS = {'.txt': as_text, '.jsonl': as_jsonl, '.csv': as_csv, '.parquet': as_parquet, '.arrow': as_arrow}

def damaged(rng, data, name):
    "Bytes and a name with something wrong"
    how = rng.choice(['cut', 'flipped', 'zeros', 'named otherwise', 'twice'])
    at = rng.randrange(len(data))
    if how=='cut': return how, data[:at], name
    if how=='flipped': return how, data[:at] + bytes([data[at]^(1<<rng.randrange(8))]) + data[at+1:], name
    if how=='zeros': return how, data[:at] + bytes(99) + data[at:], name
    if how=='twice': return how, data+data, name
    return how, data, 'a'+rng.choice([*FORMS])+rng.choice([*PACKED])

def truth(docs, form):
    "The documents as they should be read; in text a blank line divides them"
    lines = [[l.strip('\ufeff').strip() for l in o.split('\n')] for o in docs]
    if form!='.txt': return [[l for l in o if l] for o in lines if any(o)]
    flat = [l for o in lines for l in [*o, '']]
    return [list(g) for filled,g in groupby(flat, bool) if filled]

def files(folder): return {str(o.relative_to(folder)): o.read_bytes() for o in sorted(folder.rglob('*')) if o.is_file()}

def killed(command, cwd, scripts, seconds):
    "Type a command and kill it after a while"
    if not (pid := os.fork()):
        os.setpgrp()
        hostile.typed(command, cwd, scripts, cwd/'killed.said')
        os._exit(0)
    time.sleep(seconds)
    try: os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError: pass
    os.waitpid(pid, 0)

def attempt(seed, scripts, vocab):
    "(kind, what did not hold or '') of a corpus"
    rng, work = random.Random(seed), Path(tempfile.mkdtemp(prefix='corpora-'))
    try:
        docs, form, packing = documents(rng), rng.choice([*FORMS]), rng.choice([*PACKED])
        if form in ('.parquet', '.arrow'): packing = ''
        name, data, how = f'a{form}{packing}', PACKED[packing](FORMS[form](docs, rng)), 'whole'
        if rng.random()<.5: how, data, name = damaged(rng, data, name)
        (work/name).write_bytes(data)
        line = (f'electra_data --corpus {name} --vocab {vocab} --max-length 16 --held-out .2 '
                f'--num-proc {rng.choice([1, 2])} --out')
        start = time.monotonic()
        code, _ = hostile.typed(f'{line} rows', work, scripts, work/'said')
        took, said = time.monotonic()-start, (work/'said').read_text(errors='replace')
        kind = f'{how}, {"read" if code==0 else "refused"}'
        lines = [o for o in said.splitlines() if not o.startswith(('Note:', 'NOTE'))]
        if code not in (0, 2) or code==2 and len(lines)!=1: return kind, f'{name}: code {code}\n{said[-900:]}'
        left = {o.name for o in work.iterdir()}-{name, 'said'}
        if code==2: return kind, f'{name}: left {left}' if left else ''
        if how=='whole' and (why := wrong_documents(work/name, truth(docs, form))): return kind, f'{name}: {why}'
        killed(f'{line} again', work, scripts, rng.uniform(0, took))
        code, _ = hostile.typed(f'{line} again', work, scripts, work/'said')
        same = code==0 and files(work/'again')==files(work/'rows')
        return kind, '' if same else f'{name}: not the same after a kill\n{(work/"said").read_text()[-900:]}'
    finally: shutil.rmtree(work, ignore_errors=True)

def wrong_documents(path, wanted):
    "How the documents of a file differ from those it was made of"
    from electra_nbdev.data.text import chunks
    found = [d for c in chunks(path, chunk_bytes=999) for d in c.documents()]
    return '' if found==wanted else f'{len(found)} documents, not the {len(wanted)} it was made of'

def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--corpora', type=int, default=500, help='how many (500)')
    p.add_argument('--seed', type=int, default=0, help='of the first (0)')
    args, scripts, counts, bad = p.parse_args(), hostile.prepare(), Counter(), 0
    import electra_nbdev.data.examples
    vocab = hostile.GOOD/'run'/'discriminator'
    for seed in range(args.seed, args.seed+args.corpora):
        kind, wrong = attempt(seed, scripts, vocab)
        counts[kind] += 1
        bad += bool(wrong)
        if wrong: print(f'seed {seed}, {kind}: {wrong}', flush=True)
    print(f'{args.corpora} corpora, {bad} not held:', ', '.join(f'{n} {k}' for k,n in sorted(counts.items())))
    if bad: raise SystemExit(1)

if __name__=='__main__': main()
