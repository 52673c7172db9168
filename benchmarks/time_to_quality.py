"""Minutes and operations to a quality: that of a masked language model which transformers' `run_mlm` trained.

The plain loop has `--flops` operations (1e14). Complete runs of this library, an ELECTRA and a masked language model of
the same body and text, have 1/80, 1/40, 1/20, 1/10 and 1/5 of them, each with its own schedule. Quality is F1 of
chunking after fine-tuning, and bits per byte of held-out text under the network that predicts words; of an ELECTRA that
is its generator, half as wide. Seconds are the processor's, and contain the preparation of the text: `electra_data`
here, tokenizing and joining in the way of `run_mlm` there, in batches of 1,000 lines. Both have the same vocabulary.
The plain loop's rate is the best of those that `objectives.py` tried for it. Finished runs stay, so a stopped command
goes on."""
import json, time
from pathlib import Path

import ladder
import objectives
import run_mlm
from common import ROOT, cpu, table, training_options, write_result
from objectives import LENGTHS, OFFICIAL, SMALL

PLAIN = SMALL | OFFICIAL | dict(learning_rate=1e-3, electra_objective=False, mask_prob=.15)
PARTS = 1/80, 1/40, 1/20, 1/10, 1/5
SIDES = {'ELECTRA': 'RTD', 'MLM': 'MLM', 'run_mlm': None}

def lines_of(text):
    "Lines of a file that are not blank"
    return [o for o in Path(text).read_text(encoding='utf-8').splitlines() if o.strip()]

def prepare_ours(args):
    "Seconds to build examples"
    from electra_nbdev.data.examples import build_examples
    start = time.process_time()
    build_examples(args.text, args.vocab, args.work/'build', max_length=128, held_out=.02)
    return time.process_time()-start

def prepare_plain(args):
    "Seconds to tokenize a text and join it to rows, as `run_mlm` does"
    from itertools import chain
    from datasets import Dataset
    from transformers import AutoTokenizer
    tok, lines = AutoTokenizer.from_pretrained(args.vocab), lines_of(args.text)
    start = time.process_time()
    def tokenize(rows): return tok(rows['text'], return_special_tokens_mask=True)
    def join(rows):
        whole = {k: list(chain(*v)) for k,v in rows.items()}
        n = len(whole['input_ids'])//128*128
        return {k: [v[i:i+128] for i in range(0, n, 128)] for k,v in whole.items()}
    how = dict(batched=True, load_from_cache_file=False)
    Dataset.from_dict(dict(text=lines)).map(tokenize, remove_columns='text', **how).map(join, **how)
    return time.process_time()-start

def train(side, part, seed, args, folder):
    "Facts of a run"
    from electra_nbdev.data.examples import load_examples
    from electra_nbdev.networks.recipe import preset
    from electra_nbdev.pretrain import match_examples
    if base := SIDES[side]: return ladder.pretrain(base, 'base', None, seed, args, folder, part)
    hp = match_examples(preset(args.preset, seed=seed, **LENGTHS | PLAIN), load_examples(args.data))
    return run_mlm.pretrain(hp, args.data, args.flops, (1.,), folder, args.device)[0]

def bits(folder, args):
    "Bits per byte of held-out text"
    from electra_nbdev.data.examples import load_examples
    from electra_nbdev.pretraining.continue_pretraining import bits_per_byte, held_out_texts
    from transformers import AutoModelForMaskedLM
    held = load_examples(args.data/'held_out')
    mlm = AutoModelForMaskedLM.from_pretrained(folder/'1.0'/'generator')
    return bits_per_byte(mlm, held.tokenizer, held_out_texts(held))['bits_per_byte']

def run(side, part, seed, args):
    "A row of the results"
    folder = args.work/f'{side}-{part:.4g}-{seed}'
    facts = folder/'facts.json'
    if not facts.is_file():
        found = train(side, part, seed, args, folder)
        facts.write_text(json.dumps(found))
    found = json.loads(facts.read_text())
    chunk = objectives.finetune(folder/'1.0', ['chunk'], args, seed, folder/'tasks', max_train_rows=args.task_rows)
    return dict(side=side, part=part, seed=seed, steps=found['steps'], flops=found['flops'], seconds=found['seconds'],
                chunk=round(chunk['chunk'], 2), bits=round(bits(folder, args), 4))

def report(found):
    "A row for each run; then the least that reached the plain loop's quality, for every seed"
    prepared = found['prepared']
    def whole(r): return r['seconds']+prepared['run_mlm' if r['side']=='run_mlm' else 'ours']
    rows = sorted(found['runs'], key=lambda r: (r['seed'], r['side'], r['flops']))
    table(('run', 'seed', 'FLOPs', 'minutes', 'chunking, F1', 'bits per byte'),
          [(r['side'], r['seed'], f"{r['flops']:.2g}", whole(r)/60, r['chunk'], r['bits']) for r in rows])
    better = {'F1': lambda r, plain: r['chunk']>=plain['chunk'], 'bits': lambda r, plain: r['bits']<=plain['bits']}
    for plain in (r for r in rows if r['side']=='run_mlm'):
        for side in ('ELECTRA', 'MLM'):
            for what,reached in better.items():
                own = [r for r in rows if (r['side'], r['seed'])==(side, plain['seed']) and reached(r, plain)]
                said = f"seed {plain['seed']}, {side}, {what} of the plain loop: "
                if not own: print(said+'not reached')
                else: print(f"{said}{whole(own[0])/whole(plain):.3f} of its minutes, "
                            f"{own[0]['flops']/plain['flops']:.3f} of its operations")

def draw(found, path):
    "F1 against minutes"
    import matplotlib.pyplot as plt
    plt.style.use('electra_nbdev.electra')
    fig, axes = plt.subplots(1, 2, figsize=(6.4, 3))
    colors = {'ELECTRA': 'C0', 'MLM': 'C2', 'run_mlm': 'C1'}
    prepared = found['prepared']
    for ax,what,label in zip(axes, ('chunk', 'bits'), ('F1 of chunking', 'bits per byte')):
        for side,color in colors.items():
            own = [r for r in found['runs'] if r['side']==side]
            x = [(r['seconds']+prepared['run_mlm' if side=='run_mlm' else 'ours'])/60 for r in own]
            ax.scatter(x, [r[what] for r in own], color=color, label=side, s=18, marker='s' if side=='run_mlm' else 'o')
        ax.set(xscale='log', xlabel='minutes of one core', ylabel=label)
        ax.set_xticks((.5, 1, 2, 5, 10, 20, 40), ('½', '1', '2', '5', '10', '20', '40'))
        ax.minorticks_off()
    axes[0].legend()
    fig.savefig(path)

def main():
    p = training_options(__doc__, 'time_to_quality', 1e14)
    p.add_argument('--draw', action='store_true', help='print and draw the results there are')
    p.add_argument('--text', type=Path, help='the text, whose preparation is timed')
    p.add_argument('--vocab', type=Path, help='its vocabulary')
    p.add_argument('--data', type=Path, help='examples of it, as electra_data builds them')
    p.add_argument('--tasks', type=Path, help='folder with a folder for each task')
    p.add_argument('--task-rows', type=int, default=4000, help='rows of the task at most (4000)')
    p.add_argument('--figure', type=Path, default=ROOT/'nbs/time_to_quality.png', help='the figure')
    args = p.parse_args()
    found = json.loads(args.out.read_text()) if args.out.is_file() else dict(cpu=cpu(), flops=args.flops, runs=[])
    if not args.draw:
        args.work.mkdir(parents=True, exist_ok=True)
        if 'prepared' not in found:
            found['prepared'] = dict(ours=round(prepare_ours(args), 1), run_mlm=round(prepare_plain(args), 1))
        for seed in args.seeds:
            for side,part in [*((s, o) for o in PARTS for s in ('ELECTRA', 'MLM')), ('run_mlm', 1.)]:
                if any((r['side'], r['part'], r['seed'])==(side, part, seed) for r in found['runs']): continue
                found['runs'].append(row := run(side, part, seed, args))
                write_result(found, args.out)
                print(json.dumps(row), flush=True)
    report(found)
    draw(found, args.figure)

if __name__=='__main__': main()
