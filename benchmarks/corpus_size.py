"""CPU seconds for a million tokens and memory of building examples, from 1 MB to 1 GB of text, on both paths.

`one` is `build_examples` in one process, `tasks` is `electra_data --tasks` with datatrove's local executor and one
worker; each build has a process of its own. The files of `--text` are repeated under other names until the size is
reached. CPU seconds are those of the process and its children, so other programs on the machine hardly change them.
`plan`, `shards` and `folder` are the parts of the tasks' path: chunks and digests, one pass over the text for each
part, and joining the shards. Memory is the most of the process that is not a file on disk. `--forms MB` builds the same
documents, a row each, from one file of every other form."""
import argparse, json, os, resource, sys, tempfile, time
from pathlib import Path
from subprocess import run

from common import cpu, table, text_folder, write_result
from data import peak_during

VOCAB = Path(__file__).parents[1]/'electra_nbdev/models/electra-tiny-en/discriminator'
HELD_OUT = .02
PATHS, FORMS = ('one', 'tasks'), ('text', 'jsonl', 'jsonl.gz', 'csv', 'parquet')

def write_texts(source, folder, mb):
    "The text files of a folder, under new names, until they have so many megabytes"
    folder.mkdir()
    files, left, n = sorted(source.rglob('*.txt')), int(mb*1e6), 0
    while left:
        text = files[n%len(files)].read_bytes()[:left].decode(errors='ignore').encode()
        (folder/f'{n:05}.txt').write_bytes(text)
        left, n = max(0, left-max(1, len(text))), n+1

def write_rows(text, form, folder):
    "The documents of text files as rows of one file"
    import gzip
    import pyarrow as pa
    from pyarrow import csv, parquet
    docs = [doc for o in sorted(text.glob('*.txt')) for doc in o.read_text().split('\n\n') if doc.strip()]
    folder.mkdir()
    path, lines = folder/f'rows.{form}', ''.join(json.dumps(dict(text=o))+'\n' for o in docs).encode()
    if form=='csv': csv.write_csv(pa.table(dict(text=docs)), path)
    elif form=='parquet': parquet.write_table(pa.table(dict(text=docs)), path)
    else: path.write_bytes(gzip.compress(lines) if form.endswith('.gz') else lines)

def cpu_seconds():
    "Of this process and of those that it has waited for"
    found = [resource.getrusage(o) for o in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(o.ru_utime+o.ru_stime for o in found)

def timed(cls, name, seconds):
    "Note how long a method takes"
    f = getattr(cls, name)
    def g(*args, **kwargs):
        start = time.process_time()
        try: return f(*args, **kwargs)
        finally: seconds[name] = round(time.process_time()-start, 2)
    setattr(cls, name, g)

def build(path, text, out):
    "One build: seconds, tokens, megabytes"
    from electra_nbdev.data.examples import DataJob, build_examples, load_examples
    from electra_nbdev.data.tokenizer import load_tokenizer
    load_tokenizer(VOCAB)
    seconds = {}
    for name in ('prepare', 'make_folder'): timed(DataJob, name, seconds)
    def make(): build_examples(text, VOCAB, out, held_out=HELD_OUT, tasks=4 if path=='tasks' else None)
    start = cpu_seconds()
    memory = peak_during(make)
    spent = cpu_seconds()-start
    tokens = sum(load_examples(out/o).counts['tokens'] for o in ('', 'held_out'))
    size = sum(o.stat().st_size for o in out.rglob('*') if o.is_file())
    parts = {k: seconds[o] for k,o in dict(plan='prepare', folder='make_folder').items() if o in seconds}
    if parts: parts['shards'] = round(spent-sum(parts.values()), 2)
    return dict(cpu_s=round(spent, 2), tokens=tokens, s_per_million=round(spent/tokens*1e6, 3), parts=parts,
                peak_mb=round(memory['peak']), more_mb=round(memory['peak']-memory['before']),
                examples_mb=round(size/1e6, 2))

def apart(*args):
    "A build in a process of its own"
    done = run([sys.executable, __file__, '--one', *map(str, args)], check=True, stdout=-1, text=True)
    return json.loads(done.stdout.splitlines()[-1])

def forms(folder, mb):
    "A build of the text files, and one of their documents in every other form"
    for o in FORMS[1:]: write_rows(folder/'text', o, folder/o)
    return [dict(mb=mb, path=o, **apart(o, folder/o, folder/f'{o}-examples')) for o in FORMS]

def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--one', nargs=3, help='path, text and out of one build; for the processes')
    p.add_argument('--text', default=os.environ.get('ELECTRA_TEXT', ''), help='folder of .txt files')
    p.add_argument('--sizes', default='1,10,100,1000', help='megabytes of text')
    p.add_argument('--forms', type=int, metavar='MB', help='build so much text in every form, and nothing else')
    p.add_argument('--work', help='folder for scratch files, of four times the largest size')
    p.add_argument('--out', type=Path, default=Path(__file__).parent/'results'/'corpus_size.json', help='results')
    args = p.parse_args()
    if args.one: return print(json.dumps(build(args.one[0], *map(Path, args.one[1:]))))
    size = sum(o.stat().st_size for o in text_folder(args).rglob('*.txt'))
    setting = f'{size/1e6:.0f} MB of English, repeated under other file names; held out {HELD_OUT}; length 128'
    sizes, rows = [args.forms] if args.forms else map(int, args.sizes.split(',')), []
    for mb in sizes:
        with tempfile.TemporaryDirectory(dir=args.work) as d:
            d = Path(d)
            write_texts(text_folder(args), d/'text', mb)
            rows += forms(d, mb) if args.forms else [dict(mb=mb, path=o, **apart(o, d/'text', d/o)) for o in PATHS]
        keep(args, dict(cpu=cpu(), setting=setting, rows=rows))
    table(('MB', 'path', 'CPU s', 'million tokens', 'CPU s/million', 'peak MB', 'peak, added'),
          [(o['mb'], o['path'], o['cpu_s'], o['tokens']/1e6, o['s_per_million'], o['peak_mb'], o['more_mb'])
           for o in rows])

def keep(args, found):
    "Write results; those of forms stand beside those of sizes"
    there = json.loads(args.out.read_text()) if args.out.is_file() else {}
    kept = {k: there[k] for k in ('forms', 'commit') if k in there}
    found = there | dict(forms=found) if args.forms else found | kept
    write_result(found, args.out)

if __name__=='__main__': main()
