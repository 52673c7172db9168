"""Sequences a second of pre-training on a GPU: ELECTRA-Small and Base at 128 tokens, Base at 512.

The learner trains in bfloat16 on full examples, its loaders included, and also with compiled bodies if the package
compiles them. `ratio` compares Base with what NVIDIA reports for one A100 (DeepLearningExamples, TensorFlow 2, mixed
precision): 955 and 171 sequences a second. Without a GPU there is nothing to measure."""
import json
from statistics import median

from common import arguments, gpu, ratio, rounds, serve, table
from pretrain import ours

A100 = {'base-128': 955, 'base-512': 171}
SIZES = {'small-128': 512, 'base-128': 256, 'base-512': 64} # Examples of a batch

def build(args):
    "A side that is ready to measure, after a few steps that warm up"
    size, sl, *compiled = args.side.split('-')
    steps = ours(SIZES[f'{size}-{sl}'], int(sl), size, 'bf16', 'cuda', bool(compiled))
    steps(5)
    return steps

def measure(args, steps):
    "Sequences a second, to the end of the last step"
    import torch
    secs, bs = steps(args.steps), SIZES[args.side.removesuffix('-compiled')]
    return dict(per_s=bs*len(secs)/sum(secs), peak_mb=round(torch.cuda.max_memory_allocated()/2**20))

def main():
    args = arguments(__doc__, rounds=(5, 'rounds'), steps=(50, 'steps of a side in a round'))
    if args.side: return serve(lambda: build(args), lambda steps: measure(args, steps))
    if not gpu(): return print(json.dumps(dict(benchmark='gpu', skipped='there is no GPU here')))
    from electra_nbdev.engine import training
    forms, got = ['', '-compiled'] if hasattr(training, 'compile_callbacks') else [''], {}
    def show(o): return f"{o['per_s']:8,.0f} sequences/s  {o['peak_mb']:7,} MB"
    for o in SIZES: got |= rounds([o+form for form in forms], args, show)
    speed, a100 = {k: [o['per_s'] for o in v] for k,v in got.items()}, {k+f: n for k,n in A100.items() for f in forms}
    rows = [(k, round(median(v)), got[k][-1]['peak_mb'], a100.get(k, '')) for k,v in speed.items()]
    table((gpu(), 'sequences/s', 'memory, MB', 'one A100'), rows)
    print(json.dumps(dict(benchmark='gpu', **{k: ratio(speed[k], [n]*args.rounds) for k,n in a100.items()},
        sequences_per_s={k: round(median(v)) for k,v in speed.items()},
        peak_mb={k: v[-1]['peak_mb'] for k,v in got.items()}, setting=f'{gpu()}, bf16, batches of {SIZES}')))

if __name__=='__main__': main()
