"""Train `electra-small-en` on 24 million words of English, in stages that fit into an afternoon of two cores.

`python tools/small.py --text folder --work folder` runs every step, each a command of the package. A step that is
finished is not repeated, and a training that was stopped goes on. A finished stage goes to `benchmarks/stages`, weights
in float16, 17 MB, from which another machine goes on; that of the last one is in the history of the repository, `git
checkout 1a5bca51 -- benchmarks/stages` brings it. The histories of all stages are in `benchmarks/results/small`. The
body is that of the preset `modern`, wider and deeper. Half precision and a compiled step are for a CPU that computes in
bfloat16 (AMX or AVX512-BF16).

The text may be redistributed: Simple Wikipedia (CC BY-SA) and Project Gutenberg as BabyLM has them, and 167 English
novels published before 1929.

`electra-small-en-1` was trained in two parts, since the first was planned too long: 4,000 updates of a run of 22,167,
then 12,300 that began with its weights and optimizer (`--init`, `--carry-optimizer`), which is one pass together. The
history of the first part is `electra-small-en-1-begun.jsonl`."""
import argparse, re, shutil
from pathlib import Path

from electra_nbdev.data.examples import load_examples
from electra_nbdev.engine.files import atomic_folder
from baby import LAST, sentences
from models import run
from ship import ship

BENCHMARKS = Path(__file__).resolve().parents[1]/'benchmarks'
PROGRESS, KEPT = BENCHMARKS/'results'/'small', BENCHMARKS/'stages'
BABYLM = 'babylm/simple_wiki.train', 'babylm/gutenberg.train'
NOVELS = 'text/novels', 'text/eltec'
WORDS, DOCUMENT = 1e8, 400 # More than there are; sentences of a document
VOCAB, LENGTH, HELD_OUT = 8192, 512, .02

BODY = dict(model_type='modernbert', hidden_size=256, num_hidden_layers=6, num_attention_heads=4, intermediate_size=640,
            global_attn_every_n_layers=1, max_position_embeddings=512)
ALL = dict(body=BODY, generator_layers=1/3, eval_batch_size=8, num_eval_steps=24, save_checkpoints_steps=1000,
           iterations_per_loop=100, num_warmup_steps=500)
GROWING = [[8, .14], [16, .14], [32, .2], [128, .37], [512, .15]]
# Name, passes over the examples, recipe beside that of the preset `modern`; updates of 2,048 tokens
STAGES = [('electra-small-en-1', 1, dict(learning_rate=1e-3, train_batch_size=4, length_schedule=GROWING)),
          ('electra-small-en-2', .55, dict(learning_rate=8e-4, train_batch_size=4, seed=2,
                                           length_schedule=[[128, .7], [512, .3]]))]

def documents(text, words, size=DOCUMENT):
    "Sentences of Simple Wikipedia, Gutenberg and novels, the newest first, up to so many words; '' between documents"
    def year(path): return int([0, *re.findall(r'1[789]\d\d', path.stem)][-1])
    novels = sorted(o for n in NOVELS for o in (text/n).glob('*.txt') if year(o)<=LAST)
    for path in (*(text/o for o in BABYLM), *sorted(novels, key=year, reverse=True)):
        for i,o in enumerate(sentences(path)):
            words -= len(o.split())
            if words<0: return
            if i and i%size==0: yield ''
            yield o
        yield ''

def prepare(text, work):
    "Text, vocabulary and examples"
    corpus, vocab = work/'text', work/'vocab'
    if not corpus.is_dir():
        with atomic_folder(corpus) as tmp:
            lines = (f'{o}\n' for o in documents(text, WORDS))
            with open(tmp/'english.txt', 'w', encoding='utf-8') as f: f.writelines(lines)
    if not vocab.is_dir(): run(f'electra_vocab --corpus {corpus} --out {vocab} --vocab-size {VOCAB}')
    run(f'electra_data --corpus {corpus} --vocab {vocab} --out {work}/rows-{LENGTH} --max-length {LENGTH} '
        f'--held-out {HELD_OUT}')

def train(work):
    "The stages after the one that is kept, which each new one replaces"
    names = [name for name,*_ in STAGES]
    done = next((i+1 for i,o in enumerate(names) if (KEPT/o).is_dir()), 0)
    data = work/f'rows-{LENGTH}'
    for i,(name,passes,hparams) in [*enumerate(STAGES)][done:]:
        init = f'--init {KEPT/names[i-1]}' if i else '--preset modern'
        hp = ALL | hparams
        steps = round(passes*len(load_examples(data))/hp['train_batch_size'])
        run(f'electra_pretrain {init} --data {data} --out {work/name} --steps {steps} --device cpu '
            '--precision bf16 --compile', **hp)
        ship(work/name, name, KEPT)
        if i: shutil.rmtree(KEPT/names[i-1])
        PROGRESS.mkdir(exist_ok=True)
        shutil.copy(work/name/'history.jsonl', PROGRESS/f'{name}.jsonl')

def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--text', type=Path, required=True, help='folder with babylm/ and text/')
    p.add_argument('--work', type=Path, default=Path('runs/small'), help='folder for text, examples and runs')
    args = p.parse_args()
    for o in (*BABYLM, *NOVELS):
        if not (args.text/o).exists(): p.error(f'there is no {args.text/o}')
    args.work.mkdir(parents=True, exist_ok=True)
    prepare(args.text, args.work)
    train(args.work)

if __name__=='__main__': main()
