"""Train the models that come with the package, step by step: `make models TEXT_DIR=folder`.

The folder holds English text, one paragraph a line: 90 novels (computationalstylistics/100_english_novels), the
speeches of the NLTK corpora and the training part of WikiText-2. Every step is a command of the package. A step that is
finished is not repeated, and a training that was stopped goes on."""
import argparse, json, re, shlex, subprocess, sys
from pathlib import Path

from ship import MODELS, ship

END = re.compile(r'''(?<!\bMr)(?<!\bMrs)(?<!\bDr)(?<!\bSt)(?<!\b[A-Z])([.!?]["'”’)]*)\s+(?=["'“‘(]?[A-Z])''')

def split_sentences(source, target):
    "Write text with a line for each sentence instead of each paragraph"
    for path in sorted(source.rglob('*.txt')):
        out = target/path.relative_to(source)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(END.sub(r'\1\n', path.read_text(encoding='utf-8')), encoding='utf-8')

def run(command, **hparams):
    "A command of the package"
    line = [*shlex.split(command), *(['--hparams', json.dumps(hparams)] if hparams else [])]
    print('$', shlex.join(line), flush=True)
    subprocess.run([Path(sys.executable).parent/line[0], *line[1:]], check=True)

ELECTRIC = dict(electra_objective=False, electric_objective=True, generator_hidden_size=1., disc_weight=20.,
                mask_prob=.3, train_batch_size=16, eval_batch_size=64, max_seq_length=64, learning_rate=1e-3,
                num_warmup_steps=1800, save_checkpoints_steps=1000, num_eval_steps=24)

def electric(text, work):
    "Electric from ELECTRA: the energies begin with its discriminator, on sentences"
    if not (work/'sentences').is_dir(): split_sentences(text, work/'sentences')
    tiny, examples = MODELS/'electra-tiny-en', work/'sentences-64'
    run(f'electra_data --corpus {work}/sentences --vocab {tiny}/discriminator --out {examples} --max-length 64 '
        '--held-out 0.02')
    run(f'electra_pretrain --init {tiny} --data {examples} --out {work}/electric-tiny-en --steps 18000 --device cpu '
        '--precision bf16', **ELECTRIC)

def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--text', type=Path, required=True, help='folder of text')
    p.add_argument('--work', type=Path, default=Path('runs/models'), help='folder for examples and runs')
    args = p.parse_args()
    if not any(args.text.glob('*.txt')): p.error(f'there is no text in {args.text}; make models TEXT_DIR=folder')
    electric(args.text, args.work)
    ship(args.work/'electric-tiny-en', 'electric-tiny-en')

if __name__=='__main__': main()
