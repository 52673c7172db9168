"""Tokens a second and memory of ELECTRA-Small steps: ours, and a plain loop over Hugging Face's models.

Both train on full examples in float32 with dropout 0.1 and the same recipe. The plain loop is what one would write with
`transformers` and `torch` as they come: logits at all positions, `torch.multinomial`, `torch.optim.AdamW`.
`ratio` compares tokens a second; `memory` compares what the peak adds to a process that holds the networks."""
import json, time
from statistics import median

from common import arguments, memory, ratio, rounds, serve, table

VOCAB, PAD, CLS, SEP, MASK = 30522, 0, 101, 102, 103

def examples(bs, sl):
    "Full examples of two segments whose words are as unevenly frequent as words are"
    import torch
    p = 1/torch.arange(10., VOCAB-990)
    ids = torch.multinomial(p, bs*sl, replacement=True, generator=torch.Generator().manual_seed(0)).view(bs, sl) + 1000
    ids[:, 0], ids[:, sl//2], ids[:, -1] = CLS, SEP, SEP
    return ids, torch.full((bs,), sl//2+1)

def ours(bs, sl, **hparams):
    "Training as the learner of a recipe does it"
    from fastai.callback.core import Callback, CancelValidException
    from fastai.data.core import DataLoaders
    from fastai.data.load import DataLoader
    from electra_nbdev.masking import SpecialTokenIds
    from electra_nbdev.pretrain import electra_learner
    from electra_nbdev.recipe import preset
    class StepTimes(Callback):
        "Seconds of each training batch, and no validation"
        def before_train(self): self.secs, self.last = [], time.perf_counter()
        def before_validate(self): raise CancelValidException
        def after_batch(self):
            now = time.perf_counter()
            self.secs.append(now-self.last)
            self.last = now
    rows, times = list(zip(*examples(bs, sl))), StepTimes()
    def loader(n): return DataLoader(rows*n, bs=bs, device='cpu')
    hp = preset('small', max_seq_length=sl, train_batch_size=bs, **hparams)
    special_ids = SpecialTokenIds(PAD, CLS, SEP, MASK)
    learn = electra_learner(DataLoaders(loader(1), loader(1)), hp, special_ids=special_ids)
    def steps(n):
        learn.dls.loaders[0] = loader(n)
        with learn.no_bar(), learn.no_logging(): learn.fit(1, cbs=[times])
        return times.secs
    return steps

def timed(step):
    "Seconds of each of some steps"
    def steps(n):
        secs = []
        for _ in range(n):
            start = time.perf_counter()
            step()
            secs.append(time.perf_counter()-start)
        return secs
    return steps

def config(width):
    "Sizes of ELECTRA-Small, or of its generator"
    from transformers import ElectraConfig
    return ElectraConfig(vocab_size=VOCAB, embedding_size=128, hidden_size=width, num_attention_heads=width//64,
                         intermediate_size=4*width)

def adamw(model):
    "The optimizer of a plain loop, with the recipe's rate and decay"
    import torch
    def is_exempt(name): return 'bias' in name or 'LayerNorm' in name
    decayed = [p for n,p in model.named_parameters() if not is_exempt(n)]
    exempt = [p for n,p in model.named_parameters() if is_exempt(n)]
    groups = [dict(params=decayed, weight_decay=0.01), dict(params=exempt, weight_decay=0.)]
    return torch.optim.AdamW(groups, lr=5e-4, eps=1e-6)

def plain(bs, sl):
    "The same networks and recipe from `transformers` and `torch` as they come"
    import torch
    from transformers import ElectraForMaskedLM, ElectraForPreTraining
    gen, disc = ElectraForMaskedLM(config(64)), ElectraForPreTraining(config(256))
    disc.electra.embeddings = gen.electra.embeddings
    model = torch.nn.ModuleList([gen, disc]).train()
    opt = adamw(model)
    ids, split = examples(bs, sl)
    segments, real = (torch.arange(sl) >= split[:,None]).long(), torch.ones_like(ids)
    def step():
        chosen = (torch.rand(ids.shape) < 0.15) & (ids!=CLS) & (ids!=SEP)
        masked = ids.masked_fill(chosen & (torch.rand(ids.shape) < 0.85), MASK)
        targets = ids.masked_fill(~chosen, -100)
        g = gen(masked, attention_mask=real, token_type_ids=segments, labels=targets)
        with torch.no_grad():
            fake = ids.clone()
            fake[chosen] = torch.multinomial(g.logits[chosen].softmax(-1), 1)[:,0]
        d = disc(fake, attention_mask=real, token_type_ids=segments, labels=(fake!=ids).long())
        loss = g.loss + 50*d.loss
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.)
        opt.step()
        return loss.item()
    return timed(step)

def build(args, sides):
    "A side that is ready to measure, after two steps that warm up"
    import torch
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    steps = sides[args.side](args.bs, args.sl)
    built = memory()[0]
    steps(2)
    return steps, built

def measure(args, state):
    "Median speed of a few steps, and the memory that they took"
    steps, built = state
    return dict(tokens_per_s=args.bs*args.sl/median(steps(args.steps)), extra_mb=memory()[1]-built)

def compare(doc, name, what, **sides):
    "Measure both sides, the other one first; print a table and a JSON object"
    args = arguments(doc, rounds=(7, 'rounds'), steps=(5, 'steps of a side in a round'), threads=(2, 'threads'),
                     bs=(16, 'examples of a batch'), sl=(128, 'tokens of an example'))
    if args.side: return serve(lambda: build(args, sides), lambda state: measure(args, state))
    def show(o): return f"{o['tokens_per_s']:8,.0f} tokens/s  {o['extra_mb']:7,.0f} MB"
    got, other = rounds(list(sides), args, show), next(iter(sides))
    speed = {k: [o['tokens_per_s'] for o in v] for k,v in got.items()}
    extra = {k: v[-1]['extra_mb'] for k,v in got.items()}
    table(('', 'tokens/s', 'extra memory, MB'), [(k, round(median(speed[k])), round(extra[k])) for k in got])
    print(json.dumps(dict(benchmark=name, **ratio(speed['ours'], speed[other]),
        memory=round(extra['ours']/extra[other], 3),
        tokens_per_s={k: round(median(v)) for k,v in speed.items()}, extra_mb={k: round(v) for k,v in extra.items()},
        setting=f'{what}, {args.bs} x {args.sl}, float32, {args.threads} threads')))

if __name__=='__main__': compare(__doc__, 'pretrain', 'ELECTRA-Small', plain=plain, ours=ours)
