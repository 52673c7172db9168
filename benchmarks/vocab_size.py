"""The size that `electra_vocab` takes for a text, half of it and twice it: ELECTRA with equal FLOPs on each vocabulary.

A run is the ladder's ELECTRA without a change; its encoder is fine-tuned on chunking, and its generator's bits for a
byte of held-out text compare vocabularies, as an AUC does not. Finished runs stay, so a stopped command goes on;
`--table` prints what there is."""
import argparse, json
from pathlib import Path

from common import RESULTS, begun, cpu, table, write_result
from ladder import pretrain, spread
from objectives import finetune

SHARES = 1/2, 1., 2.

def examples_of(size, args):
    "Examples of the text with a vocabulary of so many pieces"
    from electra_nbdev.data.examples import build_examples
    from electra_nbdev.data.tokenizer import train_vocab
    vocab, out = args.work/f'vocab-{size}', args.work/f'examples-{size}'
    if not vocab.is_dir(): train_vocab(args.text, vocab, size)
    if not out.is_dir(): build_examples(args.text, vocab, out, 128, held_out=.02)
    return out

def bits(networks, data):
    "Bits of the generator for a byte of the held-out text"
    from transformers import AutoModelForMaskedLM
    from electra_nbdev.data.examples import load_examples
    from electra_nbdev.pretraining.continue_pretraining import bits_per_byte, held_out_texts
    held = load_examples(data/'held_out')
    mlm = AutoModelForMaskedLM.from_pretrained(networks/'generator')
    return bits_per_byte(mlm, held.tokenizer, held_out_texts(held))['bits_per_byte']

def run(size, seed, args):
    "Train on the examples of a vocabulary, and measure"
    args.data = examples_of(size, args)
    folder = args.work/f'{size}-{seed}'
    folder.mkdir(parents=True, exist_ok=True)
    facts = pretrain('RTD', 'base', None, seed, args, folder)
    chunk = finetune(folder/'1.0', ['chunk'], args, seed, folder/'tasks', max_train_rows=args.task_rows)['chunk']
    return dict(size=size, seed=seed, chunk=chunk, bits_per_byte=bits(folder/'1.0', args.data), **facts)

def report(found):
    "A line for each size: means of the seeds, and half of their 95 % intervals"
    rows = []
    for size in sorted({o['size'] for o in found['runs']}):
        own = [o for o in found['runs'] if o['size']==size]
        rows.append((size, len(own), spread([o['bits_per_byte'] for o in own], 3), spread([o['chunk'] for o in own]),
                     spread([o['held_out']['auc_unigram'] for o in own], 3), own[0]['steps']))
    table(('pieces', 'seeds', 'bits per byte', 'chunking, F1', 'auc_unigram', 'steps'), rows)

def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--table', action='store_true', help='print the results there are, and train nothing')
    p.add_argument('--text', type=Path, help='file of text')
    p.add_argument('--tasks', type=Path, help='folder with a folder for chunking')
    p.add_argument('--flops', type=float, default=1e13, help='operations of every run (1e13)')
    p.add_argument('--seeds', type=int, nargs='+', default=[0, 1, 2], help='a run of each size for each (0 1 2)')
    p.add_argument('--task-rows', type=int, default=4000, help='sentences of chunking at most (4000)')
    p.add_argument('--device', default='cpu', help='cpu, cuda ... (cpu)')
    p.add_argument('--work', type=Path, default=Path('runs/vocab_size'), help='folder for vocabularies and runs')
    p.add_argument('--out', type=Path, default=RESULTS/'vocab_size.json', help='results')
    args = p.parse_args()
    if args.table: return report(json.loads(args.out.read_text()))
    if not (args.text and args.tasks): p.error('--text and --tasks are needed')
    from electra_nbdev.data.tokenizer import vocab_size_for
    args.preset, args.hparams = 'tiny', '{}'
    chosen = vocab_size_for(len(args.text.read_text(encoding='utf-8')))
    setting = f'{args.text.name}, {args.flops:.3g} operations, {args.task_rows} sentences, {chosen} pieces chosen'
    found = begun(args.out, setting, cpu=cpu(), runs=[])
    done = {(o['size'], o['seed']) for o in found['runs']}
    for seed in args.seeds:
        for size in (round(o*chosen) for o in SHARES):
            if (size, seed) in done: continue
            found['runs'].append(run(size, seed, args))
            write_result(found, args.out)
    report(found)

if __name__=='__main__': main()
