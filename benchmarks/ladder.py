"""The ladder: what one change of the recipe does for replaced-token detection and for a masked language model.

Each run has the same number of floating-point operations; its encoder is then fine-tuned on five tasks. Begins with the
recipes that were best in `objectives.py`, and a change may bring learning rates of its own, of which the one is taken
whose chunking score is best after half as many operations with another seed. Finished runs stay, so a stopped command
goes on. `--rows` picks what runs; results of all rows are in one file."""
import argparse, json, time
from functools import partial
from pathlib import Path

import torch

import objectives
from common import cpu, write_result
from objectives import CHOOSING, CHOOSING_SHARE, FREE, LARGE, LENGTHS, OFFICIAL, SMALL, TASKS, slug

from electra_nbdev.method.optimizer import ElectraAdam, ElectraOptimizer, param_groups

BASES = {'RTD': LARGE | dict(learning_rate=2e-3),
         'MLM': SMALL | OFFICIAL | dict(learning_rate=2e-3, electra_objective=False, mask_prob=.4)}
CHANGES = {
    'base': {},
    'Muon': dict(muon=True),
    'ModernBERT body': dict(body=dict(model_type='modernbert', hidden_size=96, num_hidden_layers=2,
        num_attention_heads=4, intermediate_size=256, global_attn_every_n_layers=1)),
    'DeBERTa body': dict(body=dict(model_type='deberta-v2', hidden_size=96, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=384, relative_attention=True, position_buckets=32, pos_att_type=['p2c', 'c2p'])),
    'GDES': dict(gdes=True),
    'masking 15 %': dict(mask_prob=.15),
    'masking 40 %': dict(mask_prob=.4)}
RATES = {'Muon': (1e-3, 2e-3, 4e-3, 8e-3)} # Rates to choose from, of what changes the size of an update

def orthogonal(grads, steps=5):
    "Matrices (n, rows, columns) with their singular values near 1: Newton-Schulz as in Muon (Jordan et al. 2024)"
    tall = grads.shape[1]>grads.shape[2]
    x = grads.mT if tall else grads
    x = x/x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(steps):
        a = x@x.mT
        x = 3.4445*x + torch.baddbmm(a, a, a, beta=-4.775, alpha=2.0315)@x
    return x.mT if tall else x

class MuonAdam(ElectraAdam):
    "Muon for the matrices of the layers, Adam for everything else; updates have the size of Adam's"
    momentum = .95

    @torch.no_grad()
    def step(self, closure=None):
        shapes = {}
        for group in self.param_groups:
            for n,p in zip(group['param_names'], group['params']):
                if p.grad is None or p.ndim!=2 or not 0<group['depth']<self.top: continue
                shapes.setdefault((tuple(p.shape), group['lr'], group['weight_decay']), []).append(p)
        for (shape, lr, wd), params in shapes.items():
            momenta = [self.buffers.setdefault(p, torch.zeros_like(p)) for p in params]
            grads = [p.grad for p in params]
            torch._foreach_lerp_(momenta, grads, 1-self.momentum)
            torch._foreach_lerp_(grads, momenta, self.momentum) # Nesterov's look ahead
            updates = orthogonal(torch.stack(grads)).unbind()
            torch._foreach_mul_(params, 1-lr*wd)
            torch._foreach_add_(params, updates, alpha=-lr*.2*max(shape)**.5)
            for p in params: p.grad = None # Adam leaves them alone
        return super().step(closure)

def muon_optimizer(params, lr, wd=.01, bias_correction=False):
    "An `opt_func` like `electra_optimizer`"
    opt = ElectraOptimizer(params, lr, wd, bias_correction)
    opt.opt.__class__, opt.opt.buffers = MuonAdam, {}
    opt.opt.top = max(g['depth'] for g in opt.opt.param_groups) # the depth of heads
    return opt

def setting(base, change, rate=None):
    "Hyper-parameters of a row, and what its learner has beside them"
    values = BASES[base] | CHANGES[change] | (dict(learning_rate=rate) if rate else {})
    given, muon = {k: v for k,v in values.items() if k!='muon'}, values.get('muon')
    adam = dict(bias_correction=given.get('bias_correction', True))
    return given, dict(opt_func=partial(muon_optimizer, **adam), splitter=param_groups) if muon else {}

def run(base, change, rate, seed, args, share=1.):
    "Train, and fine-tune on tasks; facts of the run"
    given, extra = setting(base, change, rate)
    name, folder = f'{base} {change}', args.work/f'{slug(base)}-{slug(change)}-{rate or "own"}-{seed}'
    facts = folder/'parts.json'
    objectives.SCREENED[name] = given
    objectives.learner = partial(plain_learner, **extra)
    objectives.PARTS = 1.,
    if not facts.is_file():
        facts.parent.mkdir(parents=True, exist_ok=True)
        facts.write_text(json.dumps(objectives.pretrain(name, args, seed, folder, None, share)))
    tasks = list(TASKS) if share==1. else ['chunk']
    scores = objectives.finetune(folder/'1.0', tasks, args, seed, folder/'tasks', max_train_rows=args.task_rows)
    return dict(base=base, change=change, rate=rate, seed=seed, share=share, scores=scores,
                mean=sum(scores.values())/len(scores), **json.loads(facts.read_text())[0])

plain_learner = objectives.learner

def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--tasks', type=Path, required=True, help='folder with a folder for each task')
    p.add_argument('--data', type=Path, required=True, help='folder of examples')
    p.add_argument('--text', required=True, help='what the examples were made of, for the record')
    p.add_argument('--preset', default='tiny', help='recipe of all rows (tiny)')
    p.add_argument('--hparams', default='{}', help='JSON of hyper-parameters that all rows have')
    p.add_argument('--flops', type=float, default=2e13, help='operations of every run (2e13)')
    p.add_argument('--seeds', type=int, nargs='+', default=[0, 1, 2], help='a run of each row for each (0 1 2)')
    p.add_argument('--rows', nargs='+', default=[f'{b} {c}' for c in CHANGES for b in BASES], metavar='ROW',
                   help='such as "RTD Muon", in this order (all)')
    p.add_argument('--task-rows', type=int, default=4000, help='rows of a task at most (4000)')
    p.add_argument('--device', default='cpu', help='cpu, cuda ... (cpu)')
    p.add_argument('--work', type=Path, default=Path('runs/ladder'), help='folder for networks and trials')
    p.add_argument('--out', type=Path, default=Path(__file__).parent/'results'/'ladder.json', help='results')
    args = p.parse_args()
    setting = f'{args.preset} {args.hparams}, {args.text}, {args.flops:.3g} operations, {args.task_rows} rows'
    found = json.loads(args.out.read_text()) if args.out.is_file() else dict(setting=setting, cpu=cpu(), runs=[])
    if found['setting']!=setting: p.error(f"{args.out} has another setting: {found['setting']}; give another --out")
    def done(*key):
        names = 'base', 'change', 'rate', 'seed', 'share'
        return next((o for o in found['runs'] if tuple(o[k] for k in names)==key), None)
    def once(base, change, rate, seed, share=1.):
        row = done(base, change, rate, seed, share)
        if row: return row
        start = time.time()
        row = run(base, change, rate, seed, args, share) | dict(minutes=round((time.time()-start)/60, 1))
        found['runs'].append(row)
        write_result(found, args.out)
        print(json.dumps({k: v for k,v in row.items() if k!='part'}), flush=True)
        return row
    for seed in args.seeds:
        for name in args.rows:
            base, _, change = name.partition(' ')
            rates = RATES.get(change, ())
            tried = {r: once(base, change, r, CHOOSING, CHOOSING_SHARE)['scores']['chunk'] for r in rates}
            once(base, change, max(tried, key=tried.get) if tried else None, seed)

if __name__=='__main__': main()
