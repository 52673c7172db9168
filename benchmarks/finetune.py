"""Examples a second of fine-tuning ELECTRA-Small: ours, and a plain loop that pads every row to 128 tokens.

Both train on the same examples, single sentences and pairs whose lengths are spread as GLUE's are (the table below), in
float32 with dropout 0.1 and batches of 32, once through all of them in every round. The plain loop is Hugging Face's
classifier with `torch.optim.AdamW`, sequences padded to 128 with a mask, as Google's code and many scripts do.
`longest` is the same loop padded to the longest sequence of each batch drawn at random.
`ratio` compares examples a second with the loop that pads to 128."""
import time
from statistics import median

from common import arguments, memory, ratio, report, rounds, serve, table

VOCAB, PAD, CLS, SEP = 30522, 0, 101, 102

# Median length in BERT's pieces, special tokens included, and spread of its logarithm: training examples of the five
# tasks that were at hand, at most 128 tokens
LENGTHS = dict(cola=(10, .33), sst=(10, .68), mrpc=(53, .26), sts=(23, .42), rte=(56, .48))

def rows(n, sl, seed=0):
    "Rows of token ids in equal parts from every task's lengths"
    import numpy as np
    rng = np.random.default_rng(seed)
    kinds = np.array(list(LENGTHS.values()))[rng.integers(0, len(LENGTHS), n)]
    lens = [int(np.clip(rng.lognormal(np.log(m), s), 5, sl)) for m,s in kinds]
    return [[CLS, *rng.integers(1000, VOCAB, k-2).tolist(), SEP] for k in lens], rng.integers(0, 2, n).tolist()

def ours(args):
    "A pass as `electra_nbdev` makes it: yields after every step"
    from types import SimpleNamespace
    from transformers import ElectraConfig, ElectraModel
    from electra_nbdev.engine.fast import with_packed_dropout
    from electra_nbdev.finetuning.finetune import TaskLoss, TaskNetwork, task_groups
    from electra_nbdev.finetuning.recipe import finetune_preset
    from electra_nbdev.method.optimizer import clip_by_global_norm, electra_optimizer
    from electra_nbdev.finetuning.finetune import FinetuneDL
    from electra_nbdev.finetuning.tasks import Feature, TextTask
    hp, tasks = finetune_preset('official', 'small', ['sst']), dict(sst=TextTask('sst', ('0', '1')))
    model = TaskNetwork(with_packed_dropout(ElectraModel(config(ElectraConfig))), tasks).train()
    opt, loss_func = electra_optimizer(task_groups(model, hp), hp.learning_rate, hp.weight_decay_rate), TaskLoss(tasks)
    ids, labels = rows(args.rows, args.sl)
    features = [Feature(o, len(o), y, None) for o,y in zip(ids, labels)]
    dl = FinetuneDL({'sst': features}, tasks, SimpleNamespace(pad_token_id=PAD), args.bs, True)
    while True:
        for batch,targets in dl:
            opt.zero_grad()
            loss_func(model(batch), targets).backward()
            clip_by_global_norm(model.parameters())
            opt.step()
            yield len(batch['input_ids']), batch['input_ids'].numel()

def config(cls):
    "ELECTRA-Small"
    return cls(vocab_size=VOCAB, embedding_size=128, hidden_size=256, num_hidden_layers=12, num_attention_heads=4,
               intermediate_size=1024)

def plain(args, longest=False):
    "The same from `transformers` and `torch` as they come"
    import random, torch
    from transformers import ElectraConfig, ElectraForSequenceClassification
    model = ElectraForSequenceClassification(config(ElectraConfig)).train()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=.01)
    ids, labels = rows(args.rows, args.sl)
    order, rng = list(range(len(ids))), random.Random(0)
    while True:
        rng.shuffle(order)
        for i in range(0, len(order), args.bs):
            at = order[i:i+args.bs]
            width = max(len(ids[j]) for j in at) if longest else args.sl
            xb = torch.tensor([ids[j]+[PAD]*(width-len(ids[j])) for j in at])
            opt.zero_grad()
            model(xb, attention_mask=(xb!=PAD).long(), labels=torch.tensor([labels[j] for j in at])).loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.)
            opt.step()
            yield len(xb), xb.numel()

SIDES = dict(plain=plain, longest=lambda args: plain(args, True), ours=ours)

def build(args):
    "A side that is ready to measure, after a pass that warms up"
    import torch
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    steps = SIDES[args.side](args)
    measure(args, steps)
    return steps

def measure(args, steps):
    "Speed of a pass over the rows: batches differ in width"
    start, seen, n = time.perf_counter(), [], 0
    while n < args.rows:
        seen.append(next(steps))
        n += seen[-1][0]
    secs = time.perf_counter()-start
    return dict(examples_per_s=n/secs, width=sum(k for _,k in seen)/n, peak_mb=memory()[1])

def main():
    args = arguments(__doc__, rounds=(5, 'rounds'), threads=(2, 'threads'), bs=(32, 'sequences of a batch'),
                     sl=(128, 'tokens of the longest sequence'), rows=(384, 'examples'))
    if args.side: return serve(lambda: build(args), lambda state: measure(args, state))
    def line(o): return f"{o['examples_per_s']:8,.1f} examples/s  {o['width']:6,.1f} tokens wide"
    got = rounds(list(SIDES), args, line)
    speed = {k: [o['examples_per_s'] for o in v] for k,v in got.items()}
    wide = {k: sum(o['width'] for o in v)/len(v) for k,v in got.items()}
    rows = [(k, median(speed[k]), wide[k], round(got[k][-1]['peak_mb'])) for k in got]
    table(('', 'examples/s', 'mean width', 'peak, MB'), rows)
    facts = dict(benchmark='finetune', **ratio(speed['ours'], speed['plain']),
                 against_longest=ratio(speed['ours'], speed['longest']),
                 examples_per_s={k: round(median(v), 1) for k,v in speed.items()},
                 width={k: round(v, 1) for k,v in wide.items()},
                 setting=f'ELECTRA-Small, batches of {args.bs}, up to {args.sl} tokens, fp32, {args.threads} threads')
    report(facts)

if __name__=='__main__': main()
