"""German from text to a checker: what pre-training is worth when few or many sentences are marked.

An ELECTRA, two with noise as people make it, a masked language model and random weights have the same body, and learn
from the same novels with equal floating-point operations, about ten minutes of one core. Each encoder is then
fine-tuned on MultiGED's German sentences: 500, 2,000, 8,000 and all of them. A seed is one of pre-training and of
fine-tuning. F0.5 of wrong words is cross-fitted: each half of the dev set has the best threshold of the other. The
settings of the masked language model are those of `ladder.py`. Finished runs stay, so a stopped command goes on;
`--work` may be the folder of `ged_noise.py`, whose networks are taken then."""
import json
from functools import partial
from pathlib import Path
from statistics import mean

import objectives
from common import begun, cpu, table, training_options, write_result
from ged_noise import ARMS as NOISES
from ladder import BASES, spread
from objectives import LARGE, slug

ARMS = {'random weights': (None, {}), 'MLM': (None, BASES['MLM'])} | {
    o: NOISES[o] for o in ('ELECTRA', 'human noise, 50 %', 'human noise alone')} # Objective, hyper-parameters
SIZES = 500, 2000, 8000, None # Marked sentences; all of them
MEASURES = 'f0.5', 'precision', 'recall', 'f0.5_at_0.5', 'ece'

plain_learner = objectives.learner

def pretrain(arm, seed, args, folder):
    "Facts of a run, which leaves its networks"
    facts, (objective, given) = folder/'parts.json', ARMS[arm]
    if not facts.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        objectives.SCREENED[arm] = LARGE | dict(learning_rate=2e-3) | given
        objectives.learner, objectives.PARTS = partial(plain_learner, objective=objective), (1.,)
        found, = objectives.pretrain(arm, args, seed, folder, None)
        facts.write_text(json.dumps(found))
    return json.loads(facts.read_text())

def finetune(folder, size, seed, args):
    "Scores of an encoder that was fine-tuned on so many sentences"
    from electra_nbdev.finetuning.ged import ged_task
    from electra_nbdev.finetuning.request import run_trials
    encoder = next(folder/'1.0'/o for o in ('discriminator', 'generator') if (folder/'1.0'/o).is_dir())
    trials = run_trials(encoder, ged_task(args.train, args.dev), folder/f'ged-{size or "all"}', device=args.device,
                        seed=seed, max_train_rows=size)
    scores = trials.summary()['tasks']['ged']
    return {o: round(scores[o]['mean'], 2) for o in MEASURES}

def report(found):
    "F0.5 of each objective and number of sentences; differences to ELECTRA with its own noise, seed by seed"
    def of(arm, size):
        return {r['seed']: r['scores']['f0.5'] for r in found['runs'] if (r['arm'], r['size'])==(arm, size)}
    table(('F0.5', *(f'{o:,}' if o else 'all' for o in SIZES)),
          [(arm, *(spread([*of(arm, o).values()]) for o in SIZES)) for arm in ARMS])
    best = of('ELECTRA', None)
    for arm in ARMS:
        gains = [best[s]-v for s,v in of(arm, None).items() if s in best]
        if gains: print(f'ELECTRA above {arm}, all sentences: {spread(gains)} (mean {mean(gains):.1f})')

def main():
    p = training_options(__doc__, 'ged_german')
    p.add_argument('--data', type=Path, required=True, help='folder of examples')
    p.add_argument('--text', required=True, help='what the examples were made of, for the record')
    p.add_argument('--train', type=Path, required=True, help='marked sentences to learn from')
    p.add_argument('--dev', type=Path, required=True, help='marked sentences to measure on')
    p.add_argument('--arms', nargs='+', default=list(ARMS), choices=ARMS, metavar='ARM')
    args = p.parse_args()
    setting = f'{args.preset} {args.hparams}, {args.text}, {args.flops:.3g} operations'
    found = begun(args.out, setting, cpu=cpu(), runs=[])
    for seed in args.seeds:
        for arm in args.arms:
            folder = args.work/f'{slug(arm)}-{seed}'
            for size in SIZES:
                if any((r['arm'], r['seed'], r['size'])==(arm, seed, size) for r in found['runs']): continue
                facts = pretrain(arm, seed, args, folder)
                found['runs'].append(row := dict(arm=arm, seed=seed, size=size, pretraining=facts,
                                                 scores=finetune(folder, size, seed, args)))
                write_result(found, args.out)
                print(json.dumps(row), flush=True)
    report(found)

if __name__=='__main__': main()
