"""What a job reads, made where there is text: ids of lines, a vocabulary, tasks, wheels for another machine."""
import subprocess, sys, tarfile, tempfile
from pathlib import Path

from common import ROOT, commit
from .kit import MIB, pack, write

sys.path.append(str(ROOT/'tools'))
LIMIT, HELD_OUT = 64*MIB, .02 # Bytes that a checkout and this folder have at most; share of a text
VOCAB = 30522 # Pieces, of the text for `small`, `race` and `base`
TASKS = {'CoLA': 'glue/CoLA', 'MRPC': 'glue/MRPC', 'RTE': 'glue/RTE', 'STS-B': 'glue/STS-B', 'SST-2': 'glue/SST-2',
         'chunk': 'tagging/chunk'}
ROWS = {'SST-2': 8000} # of the training set, the first ones: its order is random
WHEELS = ('fastai fastcore fastprogress fasttransform plum-dispatch beartype python-fasthtml itsdangerous starlette '
          'python-multipart fastdownload httpx2 httpcore2 truststore datasets dill multiprocess').split()

def packed(path, documents, vocab, held=HELD_OUT):
    "Write a vocabulary of some size and lines of ids, those of held-out documents apart; bytes"
    from electra_nbdev.data.text import part_lines
    from electra_nbdev.data.tokenizer import encode_lines, train_vocab
    lines = [*documents, '']
    with tempfile.TemporaryDirectory() as d:
        (Path(d)/'text').mkdir()
        (Path(d)/'text'/'all.txt').write_text('\n'.join(lines), encoding='utf-8')
        tok = train_vocab(Path(d)/'text', Path(d)/'vocab', vocab)
    def ids(part): return list(encode_lines(tok, part_lines(lines, part, held, dict(lines=0, documents=0))))
    known = sorted(tok.get_vocab(), key=tok.get_vocab().get)
    words = sum(len(o.split()) for o in lines)
    n = pack(path, known, {o: ids(o) for o in ('train', 'held_out')})
    print(f'{path.name}: {words:,} words, {len(known):,} pieces, {n/MIB:.1f} MiB', flush=True)
    return n/words

def english(args, folder):
    "Text for `small`, `race` and `base`: as many words as fit"
    from small import documents
    if args.words: return packed(folder/'small.xz', documents(args.text, args.words, 20), 2000, .2)
    a_word = packed(folder/'small.xz', documents(args.text, 2_000_000), VOCAB) # a longer text has fewer bytes a word
    packed(folder/'small.xz', documents(args.text, args.mib*MIB/a_word), VOCAB)

def ten_million(args, folder):
    "The ten million words of `tools/baby.py`"
    import baby
    from small import documents
    if args.words: return packed(folder/'baby.xz', documents(args.text, args.words, 20), 2000, .2)
    with tempfile.TemporaryDirectory() as d:
        baby.select(args.text, Path(d))
        lines = [o for path in sorted(Path(d).glob('*.txt')) for o in [*path.read_text('utf-8').splitlines(), '']]
    packed(folder/'baby.xz', lines, baby.VOCAB)

def tasks(args, folder):
    "Tasks that are small, as one archive"
    place = args.tasks or args.text
    with tarfile.open(folder/'tasks.tar.xz', 'w:xz', preset=9) as tar, tempfile.TemporaryDirectory() as d:
        for name,where in TASKS.items():
            for path in sorted((place/where).glob('*')):
                if not path.stem in ('train', 'dev'): continue
                few, most = Path(d)/path.name, args.words and 100 or ROWS.get(name)
                text = path.read_text('utf-8')
                if most and name!='chunk' and path.stem=='train': text = '\n'.join(text.split('\n')[:most+1])
                few.write_text(text, 'utf-8')
                tar.add(few, f'{name}/{path.name}')
    print(f"tasks.tar.xz: {', '.join(TASKS)}, {(folder/'tasks.tar.xz').stat().st_size/MIB:.1f} MiB", flush=True)

def wheels(python, folder):
    "Wheels that a machine with torch, transformers, pandas, scikit-learn and pyarrow lacks, without what they need"
    from importlib.metadata import version
    how = ['--no-deps', '--only-binary=:all:', '--python-version', python, '--implementation', 'cp']
    how += [o for n in (28, 27, 17) for o in ('--platform', f'manylinux_2_{n}_x86_64')]
    names = [f'{o}=={version(o)}' for o in WHEELS]
    command = [sys.executable, '-m', 'pip', 'download', '-q', *how, '--platform', 'manylinux2014_x86_64']
    subprocess.run([*command, '-d', folder/'wheels', *names], check=True)
    print(f'wheels: {size(folder/"wheels")/MIB:.1f} MiB', flush=True)

def size(*places):
    "Bytes of files and folders"
    files = [o for p in places for o in (p.rglob('*') if p.is_dir() else [p]) if o.is_file()]
    return sum(o.stat().st_size for o in files)

def prepare(job, args):
    "Make what a job reads, and say whether it can travel"
    folder = args.data
    folder.mkdir(parents=True, exist_ok=True)
    for name in job.data:
        if (folder/name).is_file(): print(f'{name} is there', flush=True)
        elif not args.text: raise SystemExit(f'{name} needs text: give its folder with --text')
        else: MAKES[name](args, folder)
    if args.wheels: wheels(args.wheels, folder)
    write(folder/'COMMIT', commit()+'\n')
    tracked = subprocess.run(['git', '-C', ROOT, 'ls-files', '-z'], capture_output=True, text=True).stdout
    here = size(*(ROOT/o for o in tracked.split('\0') if o)) if tracked else size(ROOT)
    own = size(*(folder/o for o in (*job.data, 'wheels', 'results', 'COMMIT') if (folder/o).exists()))
    said = 'fits' if here+own<=LIMIT else f'is {(here+own-LIMIT)/MIB:.1f} MiB too large'
    print(f'checkout {here/MIB:.1f} MiB and {folder.name} {own/MIB:.1f} MiB for this job: '
          f'{(here+own)/MIB:.1f} MiB, which {said} (at most {LIMIT//MIB})', flush=True)

MAKES = {'small.xz': english, 'baby.xz': ten_million, 'tasks.tar.xz': tasks}
