"""Tokens a second and memory of Electric steps: ours, and a naive step over Hugging Face's models.

Both train a small Electric on full examples in float32 with dropout 0.1 and the same recipe. The naive step does what
the official code does, with `transformers` and `torch` as they come: masks for the causal towers, logits,
log-probabilities and one-hot targets over the vocabulary at every position, `torch.multinomial`, `torch.optim.AdamW`.
`ratio` compares tokens a second; `above_imports` compares the most memory of a process, less what it had when the
libraries were imported."""
import math
from functools import partial

from pretrain import CLS, SEP, VOCAB, adamw, compare, config, examples, ours, timed

def naive(bs, sl):
    "The same networks and recipe from `transformers` and `torch` as they come"
    import torch
    import torch.nn.functional as F
    from torch import nn
    from transformers import ElectraForPreTraining, ElectraModel
    disc, (ltr, rtl) = ElectraForPreTraining(config(128, 256)), [ElectraModel(config(128, 64)) for _ in range(2)]
    ltr.embeddings = rtl.embeddings = disc.electra.embeddings
    head, out = nn.Sequential(nn.Linear(128, 128), nn.GELU(), nn.LayerNorm(128)), nn.Linear(128, VOCAB)
    out.weight = disc.electra.embeddings.word_embeddings.weight
    model = nn.ModuleList([disc, ltr, rtl, head, out]).train()
    opt = adamw(model)
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
    return timed(step)

if __name__=='__main__':
    electric = partial(ours, electra_objective=False, electric_objective=True)
    compare(__doc__, 'electric', 'Electric of size small', naive=naive, ours=electric)
