"""Planned against measured time and memory of whole runs, for three recipes, each in a process of its own.

The plan measures the speed of small batches for half a minute (`electra_plan --measure`), the run is that of
`electra_learner`, with its evaluations; memory is the most that a process had."""
import argparse, json, os, resource, sys, time
from dataclasses import replace
from pathlib import Path
from subprocess import run

from common import cpu, table, write_result

RECIPES = dict(tiny=('tiny', 1500, {}), small=('small', 40, dict(train_batch_size=16, eval_batch_size=32)),
               electric=('small', 25, dict(electra_objective=False, electric_objective=True, generator_hidden_size=.5,
                                           train_batch_size=16, eval_batch_size=32)))

def recipe(name):
    "A recipe with two evaluations, and the vocabulary of the sample"
    from electra_nbdev.data.examples import load_examples
    from electra_nbdev.pretrain import match_examples, sample_examples
    from electra_nbdev.networks.recipe import preset
    size, steps, changes = RECIPES[name]
    warmup, every = dict(num_warmup_steps=max(1, steps//10)), dict(save_checkpoints_steps=steps//2, num_eval_steps=2)
    hp = preset(size, num_train_steps=steps, iterations_per_loop=10, **warmup, **every, **changes)
    return match_examples(hp, load_examples(sample_examples(hp)[0]))

def planned(name):
    "Seconds and megabytes by the plan"
    from electra_nbdev.pretraining.plan import measured_device, plan_run
    hp = recipe(name)
    found = plan_run(hp, measured_device(hp, device='cpu'))
    return dict(seconds=found.seconds, memory=found.memory/2**20)

def measured(name):
    "Seconds and megabytes of the run"
    from electra_nbdev.pretrain import electra_learner, open_examples, pretrain_dls
    hp = recipe(name)
    learn = electra_learner(pretrain_dls(*open_examples(None, hp), hp, 'cpu'), hp)
    start = time.perf_counter()
    with learn.no_bar(), learn.no_logging(): learn.fit_steps()
    unit = 2**20 if sys.platform=='darwin' else 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss/unit
    return dict(seconds=time.perf_counter()-start, memory=peak)

def apart(what, name):
    "A function in a process of its own"
    env = os.environ | (dict(OMP_NUM_THREADS='1') if name=='tiny' else {}) # as the commands do
    done = run([sys.executable, __file__, '--one', what, name], check=True, capture_output=True, text=True, env=env)
    return json.loads(done.stdout.splitlines()[-1])

def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--one', nargs=2, help='planned or measured, and a recipe; for the processes')
    p.add_argument('--out', type=Path, default=Path(__file__).parent/'results'/'plan.json', help='results')
    args = p.parse_args()
    if args.one: return print(json.dumps(globals()[args.one[0]](args.one[1])))
    rows = {o: {w: apart(w, o) for w in ('planned', 'measured')} for o in RECIPES}
    for o in rows.values():
        o['ratio'] = {k: round(o['planned'][k]/o['measured'][k], 3) for k in ('seconds', 'memory')}
    write_result(dict(cpu=cpu(), rows=rows), args.out)
    table(('', 'planned s', 'measured s', 'planned MiB', 'measured MiB'),
          [(n, *(round(o[w][k], 1) for k in ('seconds', 'memory') for w in ('planned', 'measured')))
           for n,o in rows.items()])

if __name__=='__main__': main()
