"""Train `electra-baby-en`, its Electric and a masked language model of the same body on ten million words of English.

`python tools/baby.py --text folder --work folder` runs every step, each a command of the package. A step that is
finished is not repeated, and a training that was stopped goes on. What a finished stage has learnt goes to
`benchmarks/results/baby`, with its history: weights in float16, from which another machine goes on; those of the
stages before may then be deleted (their histories stay as NAME.jsonl). Electric and the masked language model have the
same examples and FLOPs in the stages that they share. Then Electric goes on for one more, and the masked model goes on
as an ELECTRA that has one network in both parts. These two go into the package; `benchmarks/pairs.py` scores the masked
language model, whose weights git brings back (it says how).

The rules are those of BabyLM's strict-small track: at most ten million words, those of the vocabulary included, and at
most ten passes. The text may be redistributed: Simple Wikipedia (CC BY-SA) and Project Gutenberg as BabyLM has them,
the addresses of presidents of the United States (a work of the government), and English novels published before 1929,
the newest first, until there are ten million words."""
import argparse, html, json, re, shutil
from dataclasses import replace
from pathlib import Path

from electra_nbdev.data.examples import load_examples
from electra_nbdev.data.text import chunks, part_lines
from electra_nbdev.data.tokenizer import load_tokenizer
from electra_nbdev.engine.files import atomic_folder
from electra_nbdev.pretraining.plan import run_cost
from electra_nbdev.networks.build import build_networks, load_networks, save_networks
from electra_nbdev.networks.recipe import load_hparams, preset, save_hparams
from models import END, run
from ship import MODELS, ship

PROGRESS = Path(__file__).resolve().parents[1]/'benchmarks'/'results'/'baby'

WORDS = 10_000_000
OTHERS = 'babylm/simple_wiki.train', 'babylm/gutenberg.train', 'text/speeches.txt'
NOVELS, LAST = 'text/novels', 1928 # Names end with the year of publication
HEADING = re.compile('(= ){2,}[^=]{1,80}( =){2,}')
DOCUMENT = 40 # Sentences
VOCAB, HELD_OUT = 8192, .02

BODY = dict(hidden_size=192, num_hidden_layers=4, num_attention_heads=4, intermediate_size=768, hidden_dropout_prob=0.,
            attention_probs_dropout_prob=0., max_position_embeddings=64)
ALL = dict(model_hparam_overrides=BODY, embedding_size=128, vocab_size=VOCAB, max_seq_length=64, eval_batch_size=64,
           num_eval_steps=24, iterations_per_loop=100, initializer_range=.02)
NO_NOISE = dict(unigram_noise=0., unigram_noise_until=None)
OBJECTIVES = {'electric': dict(electra_objective=False, electric_objective=True, generator_hidden_size=1.),
              'masked': dict(electra_objective=False, residual_energies=False) | NO_NOISE,
              'electra': dict(residual_energies=False, untied_generator=False, disc_weight=50., unigram_noise=.25,
                              unigram_noise_until=None)}
GROWING = [[8, .25], [16, .15], [32, .3], [64, .3]]
ALONE = dict(train_batch_size=48, learning_rate=1e-3, mask_prob=.15, length_schedule=[], copy_positions=False,
             length_window=50) | NO_NOISE
ROWS = dict(train_batch_size=16, learning_rate=1.5e-3, mask_prob=.3, length_schedule=GROWING, unigram_noise=.5,
            unigram_noise_until=.6)
LAST_PASS = ALONE | dict(learning_rate=7e-4, residual_energies=True)
SHORT = [[8, .5], [16, .2], [32, .3]]
# Name, examples, how often Electric reads them, recipe
STAGES = [('rows', 'rows', .8, ROWS),
          ('discriminator', 'rows', .17, ROWS | dict(length_schedule=SHORT)),
          ('sentences', 'alone', .75, ALONE | dict(unigram_noise=.25, unigram_noise_until=.5)),
          ('sentences-again', 'alone', .9, LAST_PASS)]
MODEL_STAGES = {'electric': [*STAGES, ('sentences-more', 'alone', 1., LAST_PASS)],
                'masked': STAGES,
                'electra': [('shared', 'alone', .7814, LAST_PASS)]} # After those of `masked`; ten passes in all
FRESH, RANGE = 'discriminator', .07 # The stage that begins with a new discriminator, its weights' standard deviation
PASSES = 10 # At most, of any model

def sources(text):
    "Files of text, the newest novels first"
    def year(path): return int(path.stem[-4:])
    novels = [o for o in sorted((text/NOVELS).glob('*.txt')) if year(o)<=LAST]
    return [*(text/o for o in OTHERS), *sorted(novels, key=year, reverse=True)]

def sentences(path):
    "Sentences of a file, of three words or more; lines of BabyLM's files end after every full stop, titles' included"
    text = html.unescape(path.read_text(encoding='utf-8'))
    if path.suffix=='.train': text = HEADING.sub('\n', ' '.join(text.split()))
    return [o.strip() for o in END.sub(r'\1\n', text).splitlines() if len(o.split())>=3]

def within(lines, words):
    "The first lines, as many as have so many words"
    for o in lines:
        words -= len(o.split())
        if words<0: return
        yield o

def select(text, target):
    "Write a sentence a line, documents apart; words of each file"
    taken = {}
    for path in sources(text):
        found = sentences(path)
        kept = [*within(found, WORDS-sum(taken.values()))]
        taken[path.name] = sum(len(o.split()) for o in kept)
        documents = ['\n'.join(kept[i:i+DOCUMENT]) for i in range(0, len(kept), DOCUMENT)]
        (target/f'{path.stem}.txt').write_text('\n\n'.join(documents)+'\n', encoding='utf-8')
        if len(kept)<len(found): break
    return taken

def alone(source, target):
    "Write the documents that are not held out again, each sentence as a document"
    for path in sorted(source.glob('*.txt')):
        lines = (o for c in chunks(path) for o in part_lines(c.lines(), 'train', HELD_OUT, dict(lines=0, documents=0)))
        (target/path.name).write_text('\n\n'.join(filter(None, lines))+'\n', encoding='utf-8')

def prepare(text, work):
    "Text, vocabulary and examples: documents in rows, and their sentences alone"
    PROGRESS.mkdir(exist_ok=True)
    if not (work/'rows').is_dir():
        with atomic_folder(work/'rows') as tmp:
            taken = select(text, tmp)
            (PROGRESS/'words.json').write_text(json.dumps(taken, indent=1)+'\n')
    how = f'--vocab {work}/vocab --max-length 64 --held-out {HELD_OUT}'
    if not (work/'vocab').is_dir(): run(f'electra_vocab --corpus {work}/rows --out {work}/vocab --vocab-size {VOCAB}')
    run(f'electra_data --corpus {work}/rows --out {work}/rows-64 {how}')
    if not (work/'alone').is_dir():
        with atomic_folder(work/'alone') as tmp: alone(work/'rows', tmp)
    run(f'electra_data --corpus {work}/alone --out {work}/alone-64 {how}')

def recipe(name, stage):
    "Hyper-parameters of a training, beside those of the preset `tiny`"
    return ALL | stage | OBJECTIVES[name]

def operations(hparams):
    "Floating-point operations for an example of full length"
    hp = preset('tiny', **hparams)
    return run_cost(hp, bf16=True).flops/hp.num_train_steps/hp.train_batch_size

def passes(name):
    "How often a model reads the examples of each stage, from as many FLOPs as Electric takes"
    return [n*operations(recipe('electric', stage))/operations(recipe(name, stage))
            for _,_,n,stage in MODEL_STAGES[name]]

def all_passes(name):
    "Those of the masked language model, from which ELECTRA goes on, among them"
    return passes('masked')+passes(name) if name=='electra' else passes(name)

def fresh_discriminator(run, out):
    """Copy a model with new weights for its discriminator, but for those that it shares with the generator or towers

    From weights of 0.02 the generator learns best at this width, and the discriminator does not leave its plateau."""
    hp = load_hparams(run/'hparams.json')
    model = load_networks(run, hp)
    if not model.discriminator: return run
    new = build_networks(replace(hp, initializer_range=RANGE))
    shared = {id(p) for p in model.generator.parameters()}
    for p,drawn in zip(model.discriminator.parameters(), new.discriminator.parameters()):
        if id(p) not in shared: p.data.copy_(drawn)
    save_networks(model, hp, out, load_tokenizer(run))
    shutil.copy(run/'hparams.json', out)
    return out

def shared_network(run, out):
    "An ELECTRA of one network with the weights of a masked language model; only the discriminator's head is new"
    hp = preset('tiny', **recipe('electra', LAST_PASS))
    model = build_networks(hp)
    model.generator.load_state_dict(load_networks(run, load_hparams(run/'hparams.json')).generator.state_dict())
    save_networks(model, hp, out, load_tokenizer(run/'generator'))
    save_hparams(hp, out/'hparams.json')
    return out

def place(name, stage):
    "Folder of what a stage has learnt; the last stage's is the model"
    if stage!=MODEL_STAGES[name][-1][0]: return PROGRESS/f'{name}-{stage}'
    return (PROGRESS if name=='masked' else MODELS)/f'{name}-baby-en'

def train(name, work):
    "The stages of a model after the last one that is kept"
    kept = [place(name, stage) for stage,*_ in MODEL_STAGES[name]]
    done = max((i+1 for i,o in enumerate(kept) if o.is_dir()), default=0)
    for i,(stage,examples,_,hparams) in [*enumerate(MODEL_STAGES[name])][done:]:
        data, out, init = work/f'{examples}-64', work/f'{name}-{stage}', '--preset tiny'
        if i: init = f'--init {kept[i-1]}'
        if stage==FRESH: init = f"--init {fresh_discriminator(kept[i-1], work/f'{name}-fresh')}"
        if name=='electra': init = f"--init {shared_network(place('masked', 'sentences-again'), work/f'{name}-begin')}"
        steps = round(passes(name)[i]*len(load_examples(data))/hparams['train_batch_size'])
        run(f'electra_pretrain {init} --data {data} --out {out} --steps {steps} --device cpu --precision auto',
            **recipe(name, hparams))
        ship(out, kept[i].name, kept[i].parent)

def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--text', type=Path, required=True, help='folder with babylm/ and text/')
    p.add_argument('--work', type=Path, default=Path('runs/baby'), help='folder for text, examples and runs')
    p.add_argument('--models', nargs='+', choices=OBJECTIVES, default=[*OBJECTIVES], metavar='MODEL',
                   help=f'some of {", ".join(OBJECTIVES)}, in this order')
    args = p.parse_args()
    for o in (NOVELS, *OTHERS):
        if not (args.text/o).exists(): p.error(f'there is no {args.text/o}')
    args.work.mkdir(parents=True, exist_ok=True)
    prepare(args.text, args.work)
    for o in args.models:
        read = all_passes(o)
        if sum(read)>PASSES: raise SystemExit(f'{o} would read its examples {sum(read):.1f} times')
        print(f'{o}: {" and ".join(f"{n:.1f}" for n in read)} passes', flush=True)
        train(o, args.work)

if __name__=='__main__': main()
