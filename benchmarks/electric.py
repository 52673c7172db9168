"""Tokens a second and memory of Electric steps: ours, and a naive step over Hugging Face's models.

Both train a small Electric on full examples in float32 with dropout 0.1 and the same recipe. The naive step does what the
official code does, with `transformers` and `torch` as they come: masks for the causal towers, scores, log-probabilities and
one-hot targets over the vocabulary at every position, `torch.multinomial`, `torch.optim.AdamW`.
`ratio` compares tokens a second; `memory` compares what the peak adds to a process that holds the networks."""
import json, math
from statistics import median

from common import arguments, memory, ratio, rounds, serve, table
from pretrain import CLS, MASK, PAD, SEP, VOCAB, examples, measure

def ours(bs, sl):
    "A step as `electra_nbdev` takes it"
    from electra_nbdev.electra import PretrainLoss
    from electra_nbdev.electric import pretraining_model
    from electra_nbdev.hparams import preset
    from electra_nbdev.masking import Specials, make_inputs, mask_batch
    from electra_nbdev.optimizer import clip_by_global_norm, electra_optimizer, param_groups
    hp, specials = preset('small', electra_objective=False, electric_objective=True, max_seq_length=sl, train_batch_size=bs), Specials(PAD, CLS, SEP, MASK)
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

def naive(bs, sl):
    "The same networks and recipe from `transformers` and `torch` as they come"
    import torch
    import torch.nn.functional as F
    from torch import nn
    from transformers import ElectraConfig, ElectraForPreTraining, ElectraModel
    def config(h): return ElectraConfig(vocab_size=VOCAB, embedding_size=128, hidden_size=h, num_attention_heads=h//64, intermediate_size=4*h)
    disc, ltr, rtl = ElectraForPreTraining(config(256)), ElectraModel(config(64)), ElectraModel(config(64))
    ltr.embeddings = rtl.embeddings = disc.electra.embeddings
    head, out = nn.Sequential(nn.Linear(128, 128), nn.GELU(), nn.LayerNorm(128)), nn.Linear(128, VOCAB)
    out.weight = disc.electra.embeddings.word_embeddings.weight
    model = nn.ModuleList([disc, ltr, rtl, head, out]).train()
    def group(exempt, wd): return dict(params=[p for n,p in model.named_parameters() if ('bias' in n or 'LayerNorm' in n)==exempt], weight_decay=wd)
    opt = torch.optim.AdamW([group(False, 0.01), group(True, 0.)], lr=5e-4, eps=1e-6)
    ids, split = examples(bs, sl)
    segments, real, cand = (torch.arange(sl) >= split[:,None]).long(), torch.ones_like(ids), (ids!=CLS) & (ids!=SEP)
    square = torch.ones(bs, 1, sl, sl)
    before, after = -1e4*(1-square.tril()), -1e4*(1-square.triu())
    def step():
        drawn = (torch.rand(ids.shape) < 0.15) & cand
        left, right = (t(ids, attention_mask=m, token_type_ids=segments)[0] for t,m in ((ltr, before), (rtl, after)))
        logp = out(head(torch.cat([left.roll(1, 1), right.roll(-1, 1)], -1))).log_softmax(-1)
        gen = -((logp*F.one_hot(ids, VOCAB).float()).sum(-1)*cand).sum()/cand.sum()
        with torch.no_grad():
            fake = ids.clone()
            fake[drawn] = torch.multinomial(logp[drawn].exp(), 1)[:,0]
            log_q = logp.gather(-1, fake[...,None])[...,0]
        logits = disc(fake, attention_mask=real, token_type_ids=segments).logits + log_q + math.log(.15/.85)
        loss = gen + 50*F.binary_cross_entropy_with_logits(logits, drawn.float())
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.)
        opt.step()
        return loss.item()
    return step

def build(args):
    "A side that is ready to measure, after two steps that warm up"
    import torch
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    step = dict(ours=ours, naive=naive)[args.side](args.bs, args.sl)
    built = memory()[0]
    for _ in range(2): step()
    return step, built

def main():
    args = arguments(__doc__, rounds=(7, 'rounds'), steps=(5, 'steps of a side in a round'), threads=(2, 'threads'), bs=(16, 'examples of a batch'), sl=(128, 'tokens of an example'))
    if args.side: return serve(lambda: build(args), lambda state: measure(args, state))
    got = rounds(['naive', 'ours'], args, lambda o: f"{o['tokens_per_s']:8,.0f} tokens/s  {o['extra_mb']:7,.0f} MB")
    speed = {k: [o['tokens_per_s'] for o in v] for k,v in got.items()}
    extra = {k: v[-1]['extra_mb'] for k,v in got.items()}
    table(('', 'tokens/s', 'extra memory, MB'), [(k, round(median(speed[k])), round(extra[k])) for k in got])
    print(json.dumps(dict(benchmark='electric', **ratio(speed['ours'], speed['naive']), memory=round(extra['ours']/extra['naive'], 3),
        tokens_per_s={k: round(median(v)) for k,v in speed.items()}, extra_mb={k: round(v) for k,v in extra.items()},
        setting=f'Electric of size small, {args.bs} x {args.sl}, float32, {args.threads} threads')))

if __name__=='__main__': main()
