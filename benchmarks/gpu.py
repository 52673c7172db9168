"""Sequences a second of pre-training on a GPU: ELECTRA-Small and Base at 128 tokens, Base at 512.

All sides train in bfloat16 on full examples with dropout 0.1: the learner, its loaders included, as it is and with
compiled bodies, and the plain loop over Hugging Face's models of `pretrain`. The ratios are those of the learner to
that loop, and under `...-a100` of Base to what NVIDIA reports for one A100 (DeepLearningExamples, TensorFlow 2, mixed
precision): 955 and 171 sequences a second. The sides of a size take turns and stay on the GPU: less than 60 GB are
not enough."""
from functools import partial
from statistics import median

from common import arguments, gpu, ratio, report, rounds, serve, table
from pretrain import ours, plain

A100 = {'base-128': 955, 'base-512': 171}
SIZES = {'small-128': 512, 'base-128': 128, 'base-512': 32} # Examples of a batch
FORMS = dict(plain=plain, ours=ours, compiled=partial(ours, compiled=True))

def fits():
    "Whether there is a GPU with memory for the three sides of a size"
    import torch
    return bool(gpu()) and torch.cuda.get_device_properties(0).total_memory>=60e9

def build(args):
    "A side that is ready to measure, after a few steps that warm up"
    size, sl, form = args.side.split('-')
    steps = FORMS[form](SIZES[f'{size}-{sl}'], int(sl), size, 'bf16', 'cuda')
    steps(5)
    return steps

def measure(args, steps):
    "Sequences a second, to the end of the last step"
    import torch
    secs, bs = steps(args.steps), SIZES[args.side.rpartition('-')[0]]
    return dict(per_s=bs*len(secs)/sum(secs), peak_mib=round(torch.cuda.max_memory_allocated()/2**20))

def main():
    args = arguments(__doc__, rounds=(5, 'rounds'), steps=(50, 'steps of a side in a round'))
    if args.side: return serve(lambda: build(args), lambda steps: measure(args, steps))
    if not fits(): return report(dict(benchmark='gpu', skipped='there is no GPU of 60 GB here'))
    def show(o): return f"{o['per_s']:8,.0f} sequences/s  {o['peak_mib']:7,} MiB"
    rows, found = [], {}
    for size in SIZES: # those of one size take turns; all of them at once may not fit
        got = {k.rpartition('-')[2]: v for k,v in rounds([f'{size}-{o}' for o in FORMS], args, show).items()}
        speed = {k: [o['per_s'] for o in v] for k,v in got.items()}
        rows += [(f'{size}-{k}', round(median(v)), got[k][-1]['peak_mib']) for k,v in speed.items()]
        for k in ('ours', 'compiled'):
            found[f'{size}-{k}'] = ratio(speed[k], speed['plain'])
            if size in A100: found[f'{size}-{k}-a100'] = ratio(speed[k], [A100[size]]*args.rounds)
    table((gpu(), 'sequences/s', 'memory, MiB'), rows)
    report(dict(benchmark='gpu', **found, sequences_per_s={o[0]: o[1] for o in rows},
                peak_mib={o[0]: o[2] for o in rows}, setting=f'{gpu()}, bf16, batches of {SIZES}'))

if __name__=='__main__': main()
