"""Score against compute for several pre-training objectives: the paper's comparison in miniature.

ELECTRA with two networks and with one, masked language models at two masking rates, Electric, a masked language model
in the stock loop of `run_mlm.py`, and random weights. All have the same body, text, vocabulary and number of
floating-point operations, and the same lengths but for the stock loop, which reads whole examples; seconds of the
processor are kept too. Batch, clipping and learning rate are chosen for each objective from the same five settings, by
the chunking score of a run of half as many operations with a seed of its own; `--seeds` without a number does that
alone. Each run leaves its networks at 1/8, 1/4, 1/2 and the end of training; those are fine-tuned, the last ones on
more tasks. Everything that is finished stays, so a stopped command goes on. `--preset small` with a GPU is the same
comparison at the size of the paper's small model."""
import json, re, time
from dataclasses import replace
from pathlib import Path

import run_mlm
from common import begun, cpu, training_options, write_result

PARTS = 1/8, 1/4, 1/2, 1.
OBJECTIVES = {
    'ELECTRA, two networks': {},
    'ELECTRA, one network': dict(untied_generator=False),
    'MLM, 15 %': dict(electra_objective=False, mask_prob=.15),
    'MLM, 40 %': dict(electra_objective=False, mask_prob=.4),
    'Electric': dict(electra_objective=False, electric_objective=True),
    'MLM, run_mlm': dict(electra_objective=False, mask_prob=.15),
    'random weights': {}}
LENGTHS = dict(max_seq_length=128, num_eval_steps=24, length_schedule=[[8, .25], [16, .15], [32, .3], [128, .3]])
LARGE, SMALL = dict(train_batch_size=8), dict(train_batch_size=4) # 1,024 and 512 tokens
FREE, OFFICIAL = dict(max_grad_norm=None, bias_correction=False), dict(max_grad_norm=1., bias_correction=False)
SETTINGS = {'1,024 tokens, not clipped, 2e-3': LARGE | FREE | dict(learning_rate=2e-3),
            '1,024 tokens, not clipped, 1e-3': LARGE | FREE | dict(learning_rate=1e-3),
            '512 tokens, clipped at 1, 2e-3': SMALL | OFFICIAL | dict(learning_rate=2e-3),
            '512 tokens, clipped at 1, 1e-3': SMALL | OFFICIAL | dict(learning_rate=1e-3),
            '1,024 tokens, bias correction, 2e-3': LARGE | dict(learning_rate=2e-3)} # as `tiny` has it
CHOOSING, CHOOSING_SHARE = 9, 1/2 # Seed of the runs that choose a setting, their share of the operations
SCREENED = { # What ELECTRA's own settings do, each only if named
    'ELECTRA, 15 % masked': dict(mask_prob=.15),
    'ELECTRA, generator of a quarter': dict(generator_hidden_size=.25),
    'ELECTRA, 15 %, a quarter': dict(mask_prob=.15, generator_hidden_size=.25),
    'ELECTRA, weight 50': dict(disc_weight=50.),
    'ELECTRA, noise fades': dict(unigram_noise_until=.6),
    'ELECTRA, 1.4e-3': dict(learning_rate=1.4e-3)}
TASKS = dict(chunk='conll_f1', cola='matthews', sts='spearman', mrpc='f1', sst='accuracy') # Each with its measure
MEASURES = 'below_unigram', 'disc_auc', 'auc_unigram' # On held-out text, of those that an objective has
EARLY = 'chunk', 'sts' # On which networks of unfinished training are judged, with capped rows

def learner(hp, data, device, **kwargs):
    "A learner without advice"
    import torch
    from electra_nbdev.pretrain import electra_learner, open_examples, pretrain_dls
    torch.manual_seed(hp.seed)
    learn = electra_learner(pretrain_dls(*open_examples(data, hp), hp, device), hp, **kwargs)
    learn.remove_cb(learn.training_monitor)
    return learn

def operations(hp, data, device, **kwargs):
    "Floating-point operations of a training step, averaged over the schedule of lengths; `kwargs` are the learner's"
    from torch.nn.attention import SDPBackend, sdpa_kernel
    total = 0.
    for length,share in hp.length_schedule or ((hp.max_seq_length, 1.),):
        learn, count = learner(replace(hp, length_schedule=((length, 1.),)), data, device, **kwargs), counted()
        with learn.no_bar(), learn.no_logging(), sdpa_kernel(SDPBackend.MATH): learn.fit_steps(1, cbs=count)
        total += share*count.operations
    return total

def counted():
    "A callback that counts the operations of training batches, without evaluations"
    from fastai.callback.core import Callback, CancelValidException
    from torch.utils.flop_counter import FlopCounterMode
    class Counted(Callback):
        order = 100
        def before_train(self):
            self.mode = FlopCounterMode(display=False)
            self.mode.__enter__()
        def after_train(self):
            self.mode.__exit__(None, None, None)
            self.operations = self.mode.get_total_flops()
        def before_validate(self): raise CancelValidException
    return Counted()

def clock():
    "A callback that adds up the seconds of the processor that training takes, without evaluations"
    from fastai.callback.core import Callback
    class Clock(Callback):
        run_valid, seconds = False, 0.
        def before_train(self): self.start = time.process_time()
        def after_train(self): self.seconds += time.process_time()-self.start
    return Clock()

def recipe(name, args, seed, setting):
    "The recipe of an objective"
    from electra_nbdev.pretrain import match_examples
    from electra_nbdev.networks.recipe import preset
    from electra_nbdev.data.examples import load_examples
    own = (OBJECTIVES | SCREENED)[name]
    given = LENGTHS | SETTINGS.get(setting, {}) | own | json.loads(args.hparams)
    hp = preset(args.preset, seed=seed, **given)
    return match_examples(hp, load_examples(args.data))

def sized(hp, steps):
    "A recipe of so many steps, evaluated eight times"
    return replace(hp, num_train_steps=steps, num_warmup_steps=steps//10, save_checkpoints_steps=max(1, steps//8),
                   iterations_per_loop=max(1, steps//8))

def pretrain(name, args, seed, folder, setting, share=1.):
    "Train, and leave the networks of every part; steps, operations and seconds of each"
    from electra_nbdev.networks.build import save_networks
    hp, data = recipe(name, args, seed, setting), args.data
    if name=='MLM, run_mlm': return run_mlm.pretrain(hp, data, share*args.flops, PARTS, folder, args.device)
    if name=='random weights':
        learn = learner(hp, data, args.device)
        save_networks(learn.model, hp, folder/'1.0', learn.tokenizer)
        return [dict(part=1., steps=0, flops=0, seconds=0)]
    per_step = operations(hp, data, args.device)
    hp = sized(hp, 8*max(1, round(share*args.flops/per_step/8)))
    learn, watch, found = learner(hp, data, args.device), clock(), []
    with learn.no_bar(), learn.no_logging():
        for part in PARTS:
            learn.fit_steps(round(part*hp.num_train_steps)-learn.n_updates, cbs=watch)
            save_networks(learn.model, hp, folder/str(part), learn.tokenizer)
            held_out = {o: round(learn.held_out[o], 4) for o in MEASURES if o in learn.held_out}
            found.append(dict(part=part, steps=learn.n_updates, flops=per_step*learn.n_updates,
                              seconds=round(watch.seconds, 1), held_out=held_out))
    return found

def finetune(networks, tasks, args, seed, out, **hparams):
    "Scores of fine-tuned networks, {task: score}"
    from electra_nbdev.finetuning.request import finetune_tasks
    encoder = next(networks/o for o in ('discriminator', 'electric', 'generator') if (networks/o).is_dir())
    results = finetune_tasks(encoder, tasks, args.tasks, out, seed=seed, device=args.device, **hparams)
    return {t: r.summary()['tasks'][t][TASKS[t]]['mean'] for r,t in zip(results, tasks)}

def slug(name): return re.sub('[^a-z0-9]+', '-', name.lower()).strip('-')

def trial(name, args, seed, setting):
    "A row of the results: an objective with a seed"
    folder = args.work/f'{slug(name)}-{slug(setting or "")}-{seed}'
    facts = folder/'parts.json'
    if not facts.is_file():
        found = pretrain(name, args, seed, folder, setting)
        facts.write_text(json.dumps(found))
    row = dict(objective=name, setting=setting, seed=seed, parts=json.loads(facts.read_text()))
    for o in row['parts']:
        networks, out, capped = folder/str(o['part']), folder/f"tasks-{o['part']}", dict(max_train_rows=args.early_rows)
        o['early'] = finetune(networks, list(EARLY), args, seed, folder/f"early-{o['part']}", **capped)
        if o['part']==1: o['scores'] = finetune(networks, list(TASKS), args, seed, out, max_train_rows=args.rows)
    return row

def choice(name, args, setting):
    "Chunking score of an objective with a setting, of one run"
    folder = args.work/f'{slug(name)}-{slug(setting)}-{CHOOSING}'
    facts = folder/'parts.json'
    if not facts.is_file():
        facts.write_text(json.dumps(pretrain(name, args, CHOOSING, folder, setting, CHOOSING_SHARE)))
    return finetune(folder/'1.0', ['chunk'], args, CHOOSING, folder/'tasks-1.0', max_train_rows=args.rows)['chunk']

def main():
    p = training_options(__doc__, 'objectives', results='equal_compute')
    p.add_argument('--tasks', type=Path, required=True, help='folder with a folder for each task')
    p.add_argument('--data', type=Path, required=True, help='folder of examples')
    p.add_argument('--objectives', nargs='+', choices=OBJECTIVES | SCREENED,
                   default=[*OBJECTIVES], metavar='NAME', help='some of the objectives, in this order')
    p.add_argument('--settings', nargs='+', choices=SETTINGS, default=[*SETTINGS], metavar='SETTING',
                   help='some of the settings to choose from')
    p.add_argument('--rows', type=int, default=4000, help='rows of a task at most (4000)')
    p.add_argument('--early-rows', type=int, default=1000, help='rows for networks of unfinished training (1000)')
    p.add_argument('--choices', type=Path, help='results whose settings are taken, instead of choosing them here')
    args = p.parse_args()
    setting = f'{args.preset} {args.hparams}, {args.flops:.3g} operations, {args.rows} and {args.early_rows} rows'
    def finished():
        "Results so far; read again each time, since another process may run other seeds"
        return begun(args.out, setting, cpu=cpu(), choices={}, rows=[])
    def keep(found): write_result(found, args.out)
    chosen = json.loads(args.choices.read_text())['choices'] if args.choices else {}
    for name in args.objectives:
        if name in chosen or name=='random weights': continue
        for how in args.settings:
            if how in finished()['choices'].get(name, {}): continue
            score, found = choice(name, args, how), finished()
            found['choices'].setdefault(name, {})[how] = score
            keep(found)
            print(f'{name}, {how}: {score:.1f}', flush=True)
    chosen = finished()['choices'] | chosen
    for seed in args.seeds:
        for name in args.objectives:
            if any(o['objective']==name and o['seed']==seed for o in finished()['rows']): continue
            best = max(chosen[name], key=chosen[name].get) if name in chosen else None
            start, row = time.process_time(), trial(name, args, seed, best)
            found = finished()
            keep(found | dict(rows=[*found['rows'], row]))
            print(f'{name}, seed {seed}: {row["parts"][-1]}, {time.process_time()-start:.0f} s', flush=True)

if __name__=='__main__': main()
