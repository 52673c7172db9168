"""What single changes to the preset `tiny` are worth: held-out metrics after equally many tokens, three seeds each.

The first half changes the preset, one network with both heads; the second half has two networks. AUC on unigram
replacements can be compared between all of them; AUC on a generator's own samples only where the generator is the same.
A finished training is kept in `--out`, so a stopped command goes on."""
import argparse, json, time
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

from common import cpu, table
from tiny import sized

APART = dict(untied_generator=True, generator_hidden_size=.5)
DROPOUT = dict(model_hparam_overrides=dict(hidden_dropout_prob=.1, attention_probs_dropout_prob=.1,
                                           max_position_embeddings=128))
VARIANTS = {
    'tiny': {},
    'whole words': dict(whole_words=True),
    'discriminator weight 5': dict(disc_weight=5.),
    'discriminator weight 50': dict(disc_weight=50.),
    'two networks, generator of half the width': APART,
    'two networks, generator of a quarter': APART | dict(generator_hidden_size=.25),
    'two networks, generator of full width': APART | dict(generator_hidden_size=1.),
    'two networks, gdes': APART | dict(gdes=True),
    'two networks, clipped apart': APART,
    'two networks, dropout': APART | DROPOUT,
    'two networks, dropout in the discriminator': APART | DROPOUT}
MEASURES = 'below_unigram', 'disc_auc', 'auc_unigram'

def clip_apart():
    "Each network's gradients are clipped by their own norm, as separate optimizers do (Dong et al. 2023)"
    from electra_nbdev.schedule import ClipNorm, clip_by_global_norm
    class ClipApart(ClipNorm):
        def before_step(self):
            disc = {id(p) for p in self.model.discriminator.parameters()}
            parts = [p for p in self.model.parameters() if id(p) in disc], \
                    [p for p in self.model.parameters() if id(p) not in disc]
            self.learn.grad_norm = max(clip_by_global_norm(o, self.max_norm) for o in parts)
    return ClipApart()

def train(name, hp):
    "Held-out metrics at the end of training"
    import torch
    from electra_nbdev.batches import pretrain_dls
    from electra_nbdev.pretrain import electra_learner, open_examples
    torch.manual_seed(hp.seed)
    learn = electra_learner(pretrain_dls(*open_examples(None, hp), hp, 'cpu'), hp)
    learn.remove_cb(learn.training_monitor)
    if name.endswith('clipped apart'):
        learn.remove_cb(learn.clip_norm)
        learn.add_cb(clip_apart())
    if name.endswith('dropout in the discriminator'):
        for m in {*learn.model.generator.modules()} - {*learn.model.discriminator.modules()}:
            if isinstance(m, torch.nn.Dropout): m.p = 0.
    with learn.no_bar(), learn.no_logging(): learn.fit_steps(hp.num_train_steps)
    return {o: float(learn.held_out[o]) for o in MEASURES}

def summary(found):
    "A row for each variant: means and standard deviations"
    for name,runs in found.items():
        values = [[r[o] for r in runs.values()] for o in MEASURES]
        yield name, *(f'{mean(v):.3f} ± {stdev(v) if len(v)>1 else 0:.3f}' for v in values)

def main():
    from electra_nbdev.recipe import preset
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--tokens', type=int, default=2_000_000, help='tokens of each training (2000000)')
    p.add_argument('--seeds', type=int, default=3, help='trainings of each variant (3)')
    default = Path(__file__).parent/'results'/'ablations.json'
    p.add_argument('--out', type=Path, default=default, help='results')
    args = p.parse_args()
    found = json.loads(args.out.read_text())['found'] if args.out.is_file() else {}
    for seed in range(args.seeds):
        for name,change in VARIANTS.items():
            if str(seed) in found.setdefault(name, {}): continue
            start, hp = time.process_time(), preset('tiny', seed=seed, **change)
            hp = sized(hp, args.tokens//(hp.train_batch_size*hp.max_seq_length))
            found[name][str(seed)] = train(name, replace(hp, num_eval_steps=16))
            facts = dict(setting=f'{args.tokens:,} tokens of the embedded sample', cpu=cpu(), found=found)
            args.out.write_text(json.dumps(facts, indent=1)+'\n')
            print(f'{name}, seed {seed}: {found[name][str(seed)]}, {time.process_time()-start:.0f} s', flush=True)
    table(('', *MEASURES), summary(found))

if __name__=='__main__': main()
