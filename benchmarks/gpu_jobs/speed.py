"""Sequences a second of ELECTRA's step on a GPU, beside what the card can do.

Four sides train in bfloat16 with dropout 0.1 on full examples, as `pretrain.py` has them: the plain loop over Hugging
Face's models, this loop under `torch.compile`, the learner with its loaders, and the learner as `--compile` runs it.
Each has a process of its own. They get ready at the same time and take turns, so that a card that slows down slows
all of them. The first batch is the one that earlier results have; larger ones follow as long as there is time."""
import argparse, json, sys, threading
from functools import partial
from statistics import median

from common import Side, table
from pretrain import ours, plain
from .kit import Work

PEAK = {'H100': 989e12, 'H200': 989e12, 'A100': 312e12, 'L40S': 362e12} # FLOP/s in dense bfloat16, by data sheet
BATCHES = {'base-128': (128, 256, 512, 1024), 'base-512': (32, 64, 128, 256), 'small-128': (512, 1024, 2048, 4096)}
SIDES = dict(plain=plain, plain_compiled=partial(plain, compiled=True), eager=ours, graph=partial(ours, compiled=True))
ROUNDS, SECONDS, MOST = 5, 2., 50 # Rounds; seconds and steps of a round at most
WARM, PROFILED = 4, 3 # Steps
LAUNCHES = 'cudaLaunchKernel', 'cuLaunchKernel', 'cudaGraphLaunch' # and what begins like these

# A side, in a process of its own

def build(args):
    "A side that is ready, and how many steps a round has"
    import torch
    name, form, bs = args.side.split(':')
    size, sl = name.split('-')
    small = dict(layers=1) if args.scale<1 else {}
    if small and form in ('eager', 'graph'): small = dict(model_hparam_overrides=dict(num_hidden_layers=1))
    steps = SIDES[form](int(bs), int(sl), size, 'bf16', args.device, **small)
    if small: return steps, 2, int(bs)
    steps(WARM)
    return steps, max(2, min(MOST, round(SECONDS*WARM/sum(steps(WARM))))), int(bs)

def measure(state, device):
    "Sequences a second of a round"
    steps, n, bs = state
    secs = steps(n)
    return dict(per_s=bs*len(secs)/sum(secs), steps=n, peak_mib=memory(device))

def memory(device):
    import torch
    return round(torch.cuda.max_memory_allocated()/2**20) if device.startswith('cuda') else 0

def profiled(steps):
    "Of a step: milliseconds in kernels, how many there were, and calls that started them"
    from torch.profiler import ProfilerActivity, profile
    import torch
    kinds = [ProfilerActivity.CPU, *[ProfilerActivity.CUDA]*torch.cuda.is_available()]
    with profile(activities=kinds) as p: steps(PROFILED)
    events = p.events()
    kernels = [o for o in events if o.device_type==torch.autograd.DeviceType.CUDA
               and not (o.name.startswith('Mem') or o.is_user_annotation)]
    launches = sum(o.name.startswith(LAUNCHES) for o in events)
    return dict(kernels_ms=round(sum(o.time_range.elapsed_us() for o in kernels)/1e3/PROFILED, 2),
                kernels=round(len(kernels)/PROFILED), launches=round(launches/PROFILED))

def serve(args):
    "Get ready, then measure for each line, or look into a step"
    import torch
    try: state = build(args)
    except torch.OutOfMemoryError: return print(json.dumps(dict(failed='out of memory beside the others')))
    print(json.dumps(dict(ready_mib=memory(args.device))), flush=True)
    for line in sys.stdin:
        print(json.dumps(profiled(state[0]) if line.strip()=='profile' else measure(state, args.device)), flush=True)

# The job

def ceiling(device, n=8192):
    "FLOP/s of a large product of random bfloat16 matrices, bytes a second of a copy: the best of a few"
    import time, torch
    def fastest(f):
        times = []
        for _ in range(8):
            start = time.perf_counter()
            for _ in range(4): f()
            if device.startswith('cuda'): torch.cuda.synchronize()
            times.append((time.perf_counter()-start)/4)
        return min(times[2:])
    a, b = (torch.randn(n, n, device=device, dtype=torch.bfloat16) for _ in range(2))
    x = torch.randn(n*n*8, device=device, dtype=torch.bfloat16)
    y = torch.empty_like(x)
    found = dict(matmul_flops=2*n**3/fastest(lambda: a@b), copy_bytes=2*x.nbytes/fastest(lambda: y.copy_(x)))
    del a, b, x, y
    if device.startswith('cuda'): torch.cuda.empty_cache()
    return found

def floors(size, sl, bs):
    "FLOPs of a sequence, and bytes that a step has to move: state of the optimizer, activations out and in again"
    from electra_nbdev.pretrain import preset
    from electra_nbdev.pretraining.count import counted_parameters
    from electra_nbdev.pretraining.plan import step_cost
    hp = preset(size, max_seq_length=sl, train_batch_size=bs)
    cost, n = step_cost(hp, bf16=True), counted_parameters(hp)['both']
    return dict(flops=cost.flops/bs, bytes=(32*n + 2*(cost.memory-16*n))/bs)

def peak(card): return next((v for k,v in PEAK.items() if k in card), None)

def run(args):
    "All batches of a size"
    work = Work(args)
    name = work.name.removeprefix('speed-')
    size, sl = name.split('-')[0], int(name.split('-')[1])
    if 'ceiling' not in work.found: work.keep(ceiling=ceiling(work.device, work.sized(8192, 64)), batches={})
    roof, told = work.found['ceiling'], peak(work.found['card'])
    sizes = [work.sized(o, 2) for o in BATCHES[name]][:None if work.scale==1 else 1]
    for bs in sizes:
        if str(bs) in work.found['batches']: continue
        floor = floors(size, sl, bs)
        most = (f'{o:,.0f}' for o in (roof['matmul_flops']/floor['flops'], roof['copy_bytes']/floor['bytes']))
        print(f"{name}, batches of {bs}: {floor['flops']/1e9:.1f} GFLOP and {floor['bytes']/1e6:.0f} MB a sequence; "
              f"at most {' and '.join(most)} sequences/s on this card", flush=True)
        before, sides = work.left(), compare(work, args, bs)
        for o in sides.values():
            if 'per_s' not in o: continue
            used = o['per_s']*floor['flops']
            o |= dict(of_measured=round(used/roof['matmul_flops'], 4), of_data_sheet=told and round(used/told, 4))
        if any(o.get('failed')=='no time' for o in sides.values()): return print('Time is up')
        work.keep(batches=work.found['batches'] | {str(bs): dict(floor=floor, sides=sides)})
        show(work, bs)
        if 1.3*(before-work.left())>work.left(): break
    work.keep(finished=all(str(o) in work.found['batches'] for o in sizes))

def compare(work, args, bs):
    "What each side did in a few rounds"
    name = work.name.removeprefix('speed-')
    what = argparse.Namespace(device=args.device, scale=args.scale)
    sides = {o: Side(f'{name}:{o}:{bs}', what, wait=False) for o in (args.sides or ','.join(SIDES)).split(',')}
    timer = threading.Timer(max(1, work.left()), lambda: [o.process.kill() for o in sides.values()])
    timer.start()
    found, rows = {}, {o: [] for o in sides}
    def ask(o, what='measure'):
        if o in found: return
        try:
            if what: print(what, file=sides[o].process.stdin, flush=True)
            got = sides[o].answer()
        except (SystemExit, OSError): got = dict(failed='no time' if work.left()<1 else 'ended')
        if 'failed' in got: found[o] = got
        return got
    try:
        for o in sides: ask(o, '')
        for _ in range(ROUNDS if work.scale==1 else 2):
            for o in sides:
                if (got := ask(o)) and 'per_s' in got: rows[o].append(got)
        looked = {o: ask(o, 'profile') or {} for o in sides}
    finally:
        timer.cancel()
        for o in sides.values(): o.process.kill()
    for o in sides:
        if not rows[o]: continue
        speeds = [r['per_s'] for r in rows[o]]
        found[o] = dict(per_s=round(median(speeds), 1), spread=[round(min(speeds), 1), round(max(speeds), 1)],
                        rounds=len(speeds), steps=rows[o][0]['steps'], peak_mib=rows[o][-1]['peak_mib'],
                        step_ms=round(1e3*bs/median(speeds), 2)) | ({} if 'failed' in looked[o] else looked[o])
    return {o: found[o] for o in sides}

def show(work, bs):
    "The table of a batch"
    rows = [(k, o.get('per_s', o.get('failed')), '–'.join(f'{v:,.0f}' for v in o.get('spread', ())),
             *(f"{o[w]:.1%}" if o.get(w) else '' for w in ('of_measured', 'of_data_sheet')),
             *(o.get(w, '') for w in ('step_ms', 'kernels_ms', 'kernels', 'launches', 'peak_mib')))
            for k,o in work.found['batches'][str(bs)]['sides'].items()]
    table((f'batches of {bs}', 'sequences/s', 'rounds', 'of matmul', 'of data sheet', 'ms a step', 'in kernels',
           'kernels', 'launches', 'MiB'), rows)
