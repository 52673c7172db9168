"""Models that are trained until time is up: `small` (electra-small), `baby` (Electric by BabyLM's rules) and `base`.

A model is trained in stages. What a stage has learnt is kept in float16 every two minutes and at its end; the state of
the optimizer is not, so whoever goes on warms up again. The same command goes on, on another machine too if the files
of the result are in `gpu-data/results` there. A stage without passes takes its share of the minutes: the first updates
are timed, and the schedule of the others is made to fit. What a table at the top says is all that was chosen."""
import json, time
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

from .kit import PackedText, Work, find, join_parts, rate, write_parts

ANSWERS = dict(small='How good does a model of 14 M parameters become, that reads 512 tokens?',
               baby='How good does an Electric of 12 M parameters become on ten million words?',
               base="What does the paper's base model learn for each FLOP?")
DATA = dict(small=('small.xz',), baby=('baby.xz',), base=('small.xz',))
KEEP_SECONDS, LINES, PROBE, AGAIN = 120, 50, 60, 200 # Lines of history; updates that are timed, of a new warmup
PASSES, MOST = 10, 12.2e6 # Of `baby`: passes in all its stages, parameters

class Stage(NamedTuple):
    "A part of a training"
    preset:str
    hparams:dict # beside those of the preset
    length:int # Tokens of an example
    alone:bool = False # Sentences are examples of their own
    passes:float|None = None # Over the examples; None: until time is up
    share:float = 1. # Of the minutes, if it has no passes
    fresh:float|None = None # It begins with a new discriminator, whose weights have this standard deviation

FREE = dict(bias_correction=True, max_grad_norm=None) # What lets a discriminator leave its plateau
SMALL = FREE | dict(train_batch_size=64, eval_batch_size=64, num_eval_steps=24, initializer_range=.05,
                    copy_positions=True, learning_rate=1e-3)
BABY = dict(electra_objective=False, electric_objective=True, generator_hidden_size=1., embedding_size=128,
            vocab_size=8192, num_eval_steps=24, eval_batch_size=256, initializer_range=.02, bias_correction=True,
            max_grad_norm=None, model_hparam_overrides=dict(hidden_size=192, num_hidden_layers=8, num_attention_heads=4,
            hidden_dropout_prob=0., attention_probs_dropout_prob=0., max_position_embeddings=64))
GROWING, SHORT = [[8, .25], [16, .15], [32, .3], [64, .3]], [[8, .5], [16, .2], [32, .3]]
ROWS = BABY | dict(train_batch_size=64, learning_rate=2e-3, mask_prob=.3, unigram_noise=.5, unigram_noise_until=.6)
ALONE = BABY | dict(train_batch_size=192, learning_rate=1.5e-3, mask_prob=.15, length_window=50, length_schedule=[],
                    unigram_noise=0., unigram_noise_until=None)
STAGES = {
    'small': {'to-128': Stage('small', SMALL | dict(length_schedule=[[32, .15], [64, .15], [128, .7]],
                                                    unigram_noise=.5, unigram_noise_until=.6), 512, share=.7),
              'to-512': Stage('small', SMALL | dict(learning_rate=5e-4, unigram_noise=0.), 512)},
    'baby': {'rows': Stage('tiny', ROWS | dict(length_schedule=GROWING), 64, passes=4.),
             'discriminator': Stage('tiny', ROWS | dict(length_schedule=SHORT), 64, passes=.5, fresh=.07),
             'sentences': Stage('tiny', ALONE | dict(unigram_noise=.25, unigram_noise_until=.5), 64, True, 2.5),
             'sentences-again': Stage('tiny', ALONE | dict(residual_energies=True, learning_rate=1e-3), 64, True, 3.)},
    'base': {'until-time-is-up': Stage('base', dict(max_seq_length=128, train_batch_size=256), 128)}}
TRIAL = dict(num_hidden_layers=1, hidden_size=32, num_attention_heads=2, intermediate_size=64) # Of a job on a scale

# Training

def recipe(stage, text, scale):
    "Hyper-parameters of a stage for the vocabulary that came along"
    from electra_nbdev.pretrain import preset
    given = stage.hparams | dict(vocab_size=len(text.vocab), max_seq_length=stage.length, save_checkpoints_secs=None)
    if scale<1:
        body = given.get('model_hparam_overrides', {}) | TRIAL
        given |= dict(model_hparam_overrides=body, train_batch_size=4, eval_batch_size=4, num_eval_steps=2)
    return preset(stage.preset, **dict(length_schedule=[]) | given)

def until(work, kept):
    "A callback that ends a fit when time is up, keeps the weights now and then, and warms up again after a stop"
    from fastai.callback.core import Callback
    from electra_nbdev.engine.training import end_fit
    class Until(Callback):
        order, run_valid, again, last = 90, False, None, time.monotonic()
        def before_step(self): # after the schedule has set the rate
            if self.again is None or self.n_updates-self.again>=AGAIN: return
            self.opt.set_hypers(lr=self.opt.hypers[-1]['lr']*(self.n_updates-self.again+1)/AGAIN)
        def after_batch(self):
            if self.n_updates%10==0 and time.monotonic()-self.last>KEEP_SECONDS:
                self.last = time.monotonic()
                kept(self.learn)
            if work.left()<0: end_fit(self.learn, 'Time is up')
    return Until()

def plan(learn, total, line):
    "Give a learner another number of updates, and lines of history so often"
    from electra_nbdev.data.batches import LengthSchedule
    from electra_nbdev.method.objective import ObjectiveStep
    from electra_nbdev.method.optimizer import LinearWarmupDecay
    from electra_nbdev.pretraining.monitor import JSONLLogger
    every = -(-total//8) # updates between two evaluations
    learn.hp = replace(learn.hp, num_train_steps=total, save_checkpoints_steps=every)
    for o in learn.cbs:
        if isinstance(o, (LengthSchedule, ObjectiveStep, LinearWarmupDecay)): o.n_updates = total
        if isinstance(o, LinearWarmupDecay): o.warmup = max(1, total//16)
        if isinstance(o, JSONLLogger): o.every = max(1, line)
    learn.evaluation_interval.total, learn.evaluation_interval.every = total, every

def learner(work, hp, examples, held, kept):
    import torch
    from electra_nbdev.engine.training import compile_callbacks, precision_callbacks
    from electra_nbdev.pretraining.graph import CompileStep
    from electra_nbdev.pretrain import electra_learner, pretrain_dls
    device = torch.device(work.device)
    fast = compile_callbacks(True, device, CompileStep, dynamic=False) if device.type=='cuda' else []
    torch.manual_seed(hp.seed)
    cbs = [*precision_callbacks(None, device), *fast, until(work, kept)]
    learn = electra_learner(pretrain_dls(examples, held, hp, device), hp, cbs=cbs)
    learn.remove_cb(learn.training_monitor)
    return learn

def begin_with(model, params, fresh, hp):
    "Weights of the stage before; of a fresh discriminator only those that it shares"
    import torch
    from electra_nbdev.networks.build import build_networks, load_weights
    named = dict(model.named_parameters())
    load_weights(named, {k: v.float() for k,v in params.items()}, 'the stage before')
    if not fresh: return
    drawn = dict(build_networks(replace(hp, initializer_range=fresh)).named_parameters())
    with torch.no_grad():
        for k,p in named.items():
            if k.startswith('discriminator.'): p.copy_(drawn[k])

def train(work, hp, examples, held, name, row, params=None, fresh=None, passes=None, steps=None, seconds=None):
    "Train, or go on; the learner. `row` is what is known of the stage, and grows"
    from electra_nbdev.pretraining.plan import run_cost
    def kept(learn):
        told = write_parts(work.out, name, learn.model.named_parameters()) if hp.model_size!='base' else None
        row.update(updates=learn.n_updates, steps=learn.hp.num_train_steps, weights=told, hparams=asdict(learn.hp))
        row.update(history=before+learn.history.rows, flops=learn.n_updates*per_step)
        work.keep()
    begin, before = time.monotonic(), row.get('history', []) if row.get('weights') else []
    learn = learner(work, hp, examples, held, kept)
    per_step = run_cost(replace(hp, num_train_steps=1000), bf16=True).flops/1000
    row.update(parameters=sum(p.numel() for p in learn.model.parameters()), flops_a_step=per_step)
    if passes: steps = max(8, work.sized(passes*len(examples)/hp.train_batch_size))
    if row.get('weights'):
        params, fresh, steps = join_parts(work.out, name, row['weights']), None, row['steps']
        learn.n_updates = learn.until.again = learn.dls.train.position = learn.evaluated = row['updates']
    if params: begin_with(learn.model, params, fresh, hp)
    with learn.no_bar(), learn.no_logging():
        if not steps: steps = fitting(work, learn, seconds or work.left(), begin)
        if learn.stopped: return learn # before its schedule was known: nothing is kept
        left, (speed, where) = (steps-learn.n_updates)*per_step, rate(work.out)
        print(f"{name}: {row['parameters']/1e6:.1f} M parameters, {steps:,} updates, {learn.n_updates:,} of them done; "
              f'{left:.3g} FLOPs are left, {left/speed/60:.1f} min at {speed/1e12:.0f} TFLOP/s ({where})', flush=True)
        plan(learn, steps, max(1, steps//LINES))
        if learn.n_updates<steps: learn.fit_steps(steps-learn.n_updates)
        if learn.stopped: learn.validate()
    row.update(finished=learn.n_updates>=steps, held_out={k: round(v, 4) for k,v in learn.held_out.items()})
    row['seconds'] = round(row.get('seconds', 0)+time.monotonic()-begin, 1)
    kept(learn)
    return learn

def fitting(work, learn, seconds, begin):
    "Train some updates, and say how many fit into so many seconds from the beginning"
    import torch
    from fastai.callback.core import Callback, CancelValidException
    class NoEvaluation(Callback):
        order = 100
        def before_validate(self): raise CancelValidException
    def wait():
        if learn.dls.device.type=='cuda': torch.cuda.synchronize()
        return time.monotonic()
    n, times = work.sized(PROBE, 4), [wait()]
    plan(learn, 10**6, 10**6)
    for o in (1, n//2, n-1-n//2):
        learn.fit_steps(o, cbs=NoEvaluation())
        times.append(wait())
    first, step = times[1]-times[0], (times[3]-times[2])/(n-1-n//2)
    lengths = len({o for o,_ in learn.hp.length_schedule} or {0})
    left = seconds - (times[3]-begin) - (lengths-1)*first # each length is compiled
    return n+max(8, int(.93*left/step) if work.scale==1 else 8)

# The job

def run(args):
    "The stages that are left, as far as there is time"
    work = Work(args, stages=True)
    text, rows, params = PackedText(args.data/DATA[work.name][0]), work.found.setdefault('stages', {}), None
    if sum(o.passes or 0 for o in STAGES[work.name].values())>PASSES: raise SystemExit('too many passes')
    for key,stage in STAGES[work.name].items():
        name, row = f'{work.name}-{key}', rows.setdefault(key, {})
        if row.get('finished'):
            if row['weights']: params = join_parts(work.out, name, row['weights'])
            continue
        if work.left()<60*min(1, args.minutes/9): break
        row['ran'] = [*row.get('ran', []), {k: work.found[k] for k in ('commit', 'card', 'versions')}]
        hp = recipe(stage, text, work.scale)
        examples, held = (text.examples(o, stage.length, stage.alone) for o in ('train', 'held_out'))
        learn = train(work, hp, examples, held, name, row, params, stage.fresh, stage.passes,
                      seconds=stage.share*work.left())
        if row.get('weights'): forget(work, rows, key)
        if not row.get('finished'): break
        params = {k: p.detach().cpu().half() for k,p in learn.model.named_parameters()}
    work.keep(finished=all(o.get('finished') for o in rows.values()) and len(rows)==len(STAGES[work.name]))
    for key,row in rows.items(): print(f"{key}: {row.get('updates', 0):,} of {row.get('steps', 0):,} updates, "
                                       f"{row.get('flops', 0):.3g} FLOPs, {row.get('held_out')}", flush=True)

def forget(work, rows, key):
    "Delete the weights of stages before, which are not needed to go on"
    for other,row in rows.items():
        if other==key or not row.get('weights'): continue
        for o in work.out.glob(f'{work.name}-{other}.*.fp16'): o.unlink()
        row['weights'] = None

def networks(row, name, out, vocab, to):
    "Write the networks of a stage as folders that `transformers` opens"
    from electra_nbdev.pretrain import preset
    from electra_nbdev.networks.build import build_networks, load_weights, save_networks
    from electra_nbdev.networks.recipe import save_hparams
    hp, params = preset('small', **row['hparams']), join_parts(out, name, row['weights'])
    model = build_networks(hp)
    load_weights(dict(model.named_parameters()), {k: v.float() for k,v in params.items()}, name)
    save_networks(model, hp, to, vocab)
    save_hparams(hp, Path(to)/'hparams.json')

def join(name, out, data, to):
    "The networks of a result: of its last stage, or of each objective"
    path = find(f'{name}.json', out)
    if not path: raise SystemExit(f'there is no result {name} in {out}')
    found, vocab = json.loads(path.read_text()), PackedText(data/DATA.get(name, DATA['small'])[0]).tokenizer
    stages = {k: o for k,o in found.get('stages', {}).items() if o.get('weights')}
    for key,row in [*stages.items()][-1:]: networks(row, f'{name}-{key}', out, vocab, to)
    for key,row in found.get('objectives', {}).items():
        networks(row, f'{name}-{key.lower()}', out, vocab, to/key.lower())
    print(f'{to} has the networks of {path}')
