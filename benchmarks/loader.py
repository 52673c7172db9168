"""Examples of 128 tokens a second that the loader alone gives, and a plain `torch` loader over a `datasets` folder.

Both read the same examples from disk in shuffled batches, padded, on one core. `ratio` compares their speed."""
import os, tempfile, time
from pathlib import Path
from statistics import median

from common import arguments, ratio, report, rounds, serve, table, text_folder

def ours(args):
    "Batches of `PretrainDL`"
    from electra_nbdev.data.batches import PretrainDL
    from electra_nbdev.data.examples import load_examples
    dl = PretrainDL(load_examples(Path(args.work)/'examples'), bs=args.bs, shuffle=True)
    def batches():
        while True: yield from dl
    return batches()

def plain(args):
    "Batches of `torch.utils.data.DataLoader`, with rows that `datasets` reads"
    import torch
    from datasets import load_from_disk
    from torch.nn.utils.rnn import pad_sequence
    rows = load_from_disk(Path(args.work)/'examples').with_format('torch')
    def collate(o):
        ids = pad_sequence([r['input_ids'] for r in o], batch_first=True)
        return ids, torch.stack([r['segment_a_length'] for r in o])
    dl = torch.utils.data.DataLoader(rows, args.bs, shuffle=True, drop_last=True, collate_fn=collate)
    def batches():
        while True: yield from dl
    return batches()

def build(args):
    "A side that has given its first batch"
    import torch
    torch.set_num_threads(1)
    found = dict(ours=ours, plain=plain)[args.side](args)
    next(found)
    return found

def measure(args, batches):
    "Speed over at least a second"
    start, n = time.perf_counter(), 0
    while (secs := time.perf_counter()-start)<1: n += len(next(batches)[0])
    return dict(examples_per_s=n/secs)

def prepare(args):
    "Examples of the text"
    from electra_nbdev.data.examples import build_examples
    from electra_nbdev.data.tokenizer import train_vocab
    work, text = Path(args.work), text_folder(args)
    train_vocab(text, work/'vocab')
    build_examples(text, work/'vocab', work/'examples')

def main():
    text = os.environ.get('ELECTRA_TEXT', '')
    args = arguments(__doc__, rounds=(7, 'rounds'), bs=(128, 'examples of a batch'),
        text=(text, 'folder of .txt files; the embedded sample if none'), work=('', 'folder for scratch files'))
    if args.side: return serve(lambda: build(args), lambda batches: measure(args, batches))
    with tempfile.TemporaryDirectory(dir=args.work or None) as args.work:
        prepare(args)
        got = rounds(['plain', 'ours'], args, lambda o: f"{o['examples_per_s']:9,.0f} examples/s")
    speed = {k: [o['examples_per_s'] for o in v] for k,v in got.items()}
    table(('', 'examples/s', 'least'), [(k, round(median(v)), round(min(v))) for k,v in speed.items()])
    spread = {k: [round(min(v)), round(median(v)), round(max(v))] for k,v in speed.items()}
    report(dict(benchmark='loader', **ratio(speed['ours'], speed['plain']), examples_per_s=spread,
                setting=f'batches of {args.bs} examples of up to 128 tokens, 1 core'))

if __name__=='__main__': main()
