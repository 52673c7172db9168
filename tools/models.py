"""Train the models that come with the package, step by step: `make models TEXT_DIR=folder`.

The folder holds English text, one paragraph a line: 90 novels (computationalstylistics/100_english_novels), the
speeches of the NLTK corpora and the training part of WikiText-2. Every step is a command of the package. A step that is
finished is not repeated, and a training that was stopped goes on. About eight and a half hours of one core."""
import argparse, json, re, shlex, shutil, subprocess, sys
from pathlib import Path

from safetensors.torch import load_file, save_file

from electra_nbdev.data.text import chunks, part_lines
from ship import MODELS, ship

END = re.compile(r'''(?<!\bMr)(?<!\bMrs)(?<!\bDr)(?<!\bSt)(?<!\b[A-Z])([.!?]["'”’)]*)\s+(?=["'“‘(]?[A-Z])''')

def split_sentences(source, target, end='\n'):
    "Write text with a line for each sentence instead of each paragraph; with two line ends each is a document"
    for path in sorted(source.rglob('*.txt')):
        out = target/path.relative_to(source)
        out.parent.mkdir(parents=True, exist_ok=True)
        text = END.sub(r'\1\n', path.read_text(encoding='utf-8'))
        out.write_text(text.replace('\n', end), encoding='utf-8')

def training_text(source, target, share=.02):
    "Write the documents that are not held out twice: as they are, and with each sentence as a document"
    target.mkdir(parents=True)
    for path in sorted(source.glob('*.txt')):
        lines = [o for c in chunks(path) for o in part_lines(c.lines(), 'train', share, dict(lines=0, documents=0))]
        text = '\n'.join(lines)+'\n'
        (target/f'rows_{path.name}').write_text(text, encoding='utf-8')
        (target/f'alone_{path.name}').write_text(END.sub(r'\1\n', text).replace('\n', '\n\n'), encoding='utf-8')

def run(command, **hparams):
    "A command of the package"
    line = [*shlex.split(command), *(['--hparams', json.dumps(hparams)] if hparams else [])]
    print('$', shlex.join(line), flush=True)
    subprocess.run([Path(sys.executable).parent/line[0], *line[1:]], check=True)

BODY = dict(hidden_size=128, num_hidden_layers=3, num_attention_heads=4, intermediate_size=512, hidden_dropout_prob=0.,
            attention_probs_dropout_prob=0., max_position_embeddings=128)
ROWS = dict(model_hparam_overrides=BODY, max_seq_length=128, train_batch_size=8, eval_batch_size=32, num_eval_steps=24,
            untied_generator=False, unigram_noise=0., max_grad_norm=1., copy_positions=False)
GROWING = [[8, .12], [16, .1], [32, .28], [64, .25], [128, .25]]
WHOLE, IN_TURN = [[128, 1.]], [*[[n, .0225] for n in (16, 32, 64, 128)]*10, [128, .1]]
# Name, weights to begin with, steps, warm-up, learning rate, fraction masked, weight of the discriminator, lengths
ELECTRA = [('first', None, 30_000, 1000, 1.5e-3, .3, 20., GROWING),
           ('second', 'first', 8_000, 0, 3.2e-4, .3, 20., WHOLE),
           ('third', 'second', 24_000, 500, 1e-3, .3, 30., WHOLE),
           ('fourth', 'third', 26_000, 500, 1e-3, .5, 50., IN_TURN),
           ('fifth', 'mean', 3_600, 100, 3e-4, .5, 50., [[32, .05], [64, .05], [128, .1]]*5)]

# On sentences alone and rows
SIXTH = dict(mask_prob=.15, unigram_noise=.5, disc_weight=50., train_batch_size=24, eval_batch_size=32,
             num_eval_steps=24, learning_rate=1e-3, num_warmup_steps=500, length_window=50, length_schedule=[],
             save_checkpoints_steps=3000)

def mean(a, b, out):
    "Networks whose weights are one part of the first run and three parts of the second"
    for part in ('discriminator', 'generator'):
        shutil.copytree(b/part, out/part, dirs_exist_ok=True)
        one, three = (load_file(o/part/'model.safetensors') for o in (a, b))
        weights = {k: one[k]/4 + 3*three[k]/4 for k in one}
        save_file(weights, out/part/'model.safetensors', metadata=dict(format='pt'))

def electra(text, work):
    "ELECTRA: one network, five runs after one another on a paragraph a line, and one on single sentences too"
    vocab, examples = work/'vocab', work/'examples-128'
    run(f'electra_vocab --corpus {text} --out {vocab} --vocab-size 4000')
    run(f'electra_data --corpus {text} --vocab {vocab} --out {examples} --max-length 128 --held-out 0.02 '
        '--long-lines official')
    for name,init,steps,warmup,rate,masked,weight,lengths in ELECTRA:
        if init=='mean': mean(work/'third', work/'fourth', work/'mean')
        begin = f'--init {work/init}' if init else '--preset tiny'
        run(f'electra_pretrain {begin} --data {examples} --out {work/name} --steps {steps} --device cpu', **ROWS,
            num_warmup_steps=warmup, save_checkpoints_steps=steps//3, learning_rate=rate, mask_prob=masked,
            disc_weight=weight, length_schedule=lengths)
    if not (work/'mixed').is_dir(): training_text(text, work/'mixed')
    run(f'electra_data --corpus {work}/mixed --vocab {vocab} --out {work}/mixed-128 --max-length 128 --held-out 0.02')
    run(f'electra_pretrain --init {work}/fifth --data {work}/mixed-128 --out {work}/sixth --steps 30000 --device cpu '
        '--precision bf16', **SIXTH)
    ship(work/'sixth', 'electra-tiny-en')

ELECTRIC = dict(electra_objective=False, electric_objective=True, generator_hidden_size=1., disc_weight=20.,
                eval_batch_size=64, max_seq_length=64, save_checkpoints_steps=1000, num_eval_steps=24)
ROWS_64 = dict(train_batch_size=16)
ALONE = dict(train_batch_size=40, length_window=50)
# Name, weights to begin with, examples, steps, warm-up, learning rate, fraction masked
RUNS = [('electric-first', 'fifth', 'sentences', 18_000, 1800, 1e-3, .3, ROWS_64),
        ('electric-tiny-en', 'electric-first', 'alone', 15_000, 300, 8e-4, .2, ALONE)]

def electric(text, work):
    "Electric from ELECTRA: rows of sentences, then each sentence alone, as it is scored"
    tiny = MODELS/'electra-tiny-en'
    for name,end in (('sentences', '\n'), ('alone', '\n\n')):
        if not (work/name).is_dir(): split_sentences(text, work/name, end)
        run(f'electra_data --corpus {work/name} --vocab {tiny} --out {work}/{name}-64 --max-length 64 --held-out 0.02')
    for name,init,examples,steps,warmup,rate,masked,batches in RUNS:
        run(f'electra_pretrain --init {work/init} --data {work}/{examples}-64 --out {work/name} '
            f'--steps {steps} --device cpu --precision bf16', **ELECTRIC, **batches, num_warmup_steps=warmup,
            learning_rate=rate, mask_prob=masked)
    ship(work/'electric-tiny-en', 'electric-tiny-en')

def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--text', type=Path, required=True, help='folder of text')
    p.add_argument('--work', type=Path, default=Path('runs/models'), help='folder for examples and runs')
    args = p.parse_args()
    if not any(args.text.glob('*.txt')): p.error(f'there is no text in {args.text}; make models TEXT_DIR=folder')
    electra(args.text, args.work)
    electric(args.text, args.work)

if __name__=='__main__': main()
