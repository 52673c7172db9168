"""Tokens a second and memory of ELECTRA-Small steps: ours, and a plain loop over Hugging Face's models.

Both train on full examples in float32 with dropout 0.1 and the same recipe. The plain loop is what one would write with
`transformers` and `torch` as they come: scores at all positions, `torch.multinomial`, `torch.optim.AdamW`.
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
    "A step as `electra_nbdev` takes it"
    from electra_nbdev.electra import PretrainLoss
    from electra_nbdev.electric import pretraining_model
    from electra_nbdev.hparams import preset
    from electra_nbdev.masking import Specials, make_inputs, mask_batch
    from electra_nbdev.optimizer import clip_by_global_norm, electra_optimizer, param_groups
    hp, specials = preset('small', max_seq_length=sl, train_batch_size=bs, **hparams), Specials(PAD, CLS, SEP, MASK)
    model = pretraining_model(hp).train()
    opt, loss_func = electra_optimizer(param_groups(model), hp.learning_rate, hp), PretrainLoss(hp)
    ids, split = examples(bs, sl)
    def step():
        loss = loss_func(model(mask_batch(make_inputs(ids, split, PAD), hp, specials)))
        opt.zero_grad()
        loss.backward()
        clip_by_global_norm(model.parameters())
        opt.step()
        return loss.item()
    return step

def config(width):
    "Sizes of ELECTRA-Small, or of its generator"
    from transformers import ElectraConfig
    return ElectraConfig(vocab_size=VOCAB, embedding_size=128, hidden_size=width, num_attention_heads=width//64, intermediate_size=4*width)

def adamw(model):
    "The optimizer of a plain loop, with the recipe's rate and decay"
    import torch
    def group(exempt, wd): return dict(params=[p for n,p in model.named_parameters() if ('bias' in n or 'LayerNorm' in n)==exempt], weight_decay=wd)
    return torch.optim.AdamW([group(False, 0.01), group(True, 0.)], lr=5e-4, eps=1e-6)

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
        holes = chosen & (torch.rand(ids.shape) < 0.85)
        g = gen(ids.masked_fill(holes, MASK), attention_mask=real, token_type_ids=segments, labels=ids.masked_fill(~chosen, -100))
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
    return step

def build(args, sides):
    "A side that is ready to measure, after two steps that warm up"
    import torch
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    step = sides[args.side](args.bs, args.sl)
    built = memory()[0]
    for _ in range(2): step()
    return step, built

def measure(args, state):
    "Median speed of a few steps, and the memory that they took"
    (step, built), secs = state, []
    for _ in range(args.steps):
        start = time.perf_counter()
        step()
        secs.append(time.perf_counter()-start)
    return dict(tokens_per_s=args.bs*args.sl/median(secs), extra_mb=memory()[1]-built)

def compare(doc, name, what, **sides):
    "Measure both sides, the other one first; print a table and a JSON object"
    args = arguments(doc, rounds=(7, 'rounds'), steps=(5, 'steps of a side in a round'), threads=(2, 'threads'), bs=(16, 'examples of a batch'), sl=(128, 'tokens of an example'))
    if args.side: return serve(lambda: build(args, sides), lambda state: measure(args, state))
    got, other = rounds(list(sides), args, lambda o: f"{o['tokens_per_s']:8,.0f} tokens/s  {o['extra_mb']:7,.0f} MB"), next(iter(sides))
    speed = {k: [o['tokens_per_s'] for o in v] for k,v in got.items()}
    extra = {k: v[-1]['extra_mb'] for k,v in got.items()}
    table(('', 'tokens/s', 'extra memory, MB'), [(k, round(median(speed[k])), round(extra[k])) for k in got])
    print(json.dumps(dict(benchmark=name, **ratio(speed['ours'], speed[other]), memory=round(extra['ours']/extra[other], 3),
        tokens_per_s={k: round(median(v)) for k,v in speed.items()}, extra_mb={k: round(v) for k,v in extra.items()},
        setting=f'{what}, {args.bs} x {args.sl}, float32, {args.threads} threads')))

if __name__=='__main__': compare(__doc__, 'pretrain', 'ELECTRA-Small', plain=plain, ours=ours)
