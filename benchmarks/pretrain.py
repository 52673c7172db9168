"""Tokens a second and memory of ELECTRA-Small steps: our learner's, and a plain loop over Hugging Face's models.

All train on full examples with dropout 0.1 and the same recipe; `electra_learner` in float32, in bfloat16, and in
bfloat16 with a compiled step, the plain loop in float32. The plain loop is what one would write with `transformers`
and `torch` as they come: logits at all positions, `torch.multinomial`, `torch.optim.AdamW`. `ratio` compares tokens a
second; `above_imports` compares the most memory of a process, less what it had when the libraries were imported."""
import time
from functools import partial
from pathlib import Path
from statistics import median
from types import SimpleNamespace

from common import arguments, has_amx, memory, ratio, report, rounds, serve, table

VOCAB, PAD, CLS, SEP, MASK = 30522, 0, 101, 102, 103

def examples(bs, sl, vocab=VOCAB):
    "Full examples of two segments whose words are as unevenly frequent as words are"
    import torch
    p = 1/torch.arange(10., vocab-990)
    ids = torch.multinomial(p, bs*sl, replacement=True, generator=torch.Generator().manual_seed(0)).view(bs, sl) + 1000
    ids[:, 0], ids[:, sl//2], ids[:, -1] = CLS, SEP, SEP
    return ids, torch.full((bs,), sl//2+1)

class FullExamples:
    "The same kind of examples, as loaders read them"
    path, counts = Path('full'), dict(tokens=1)
    def __init__(self, n, sl, vocab=VOCAB):
        self.ids, self.firsts = examples(n, sl, vocab)
        self.width, self.recipe = sl, dict(tokenizer='none', vocab_size=vocab, max_length=sl)
        self.tokenizer = SimpleNamespace(pad_token_id=PAD, cls_token_id=CLS, sep_token_id=SEP, mask_token_id=MASK,
                                         backend_tokenizer=SimpleNamespace(normalizer=None))
    def __len__(self): return len(self.ids)
    def __getitem__(self, i): return self.ids[i].clone(), self.firsts[i]
    def check(self, hp): pass
    def lengths(self): return (self.ids!=PAD).sum(1).numpy()
    def token_counts(self): return self.ids.flatten().bincount(minlength=self.recipe['vocab_size']).numpy()

def step_times():
    "A callback that keeps the seconds of each training step, and leaves evaluations out"
    import torch
    from fastai.callback.core import Callback, CancelValidException
    class StepTimes(Callback):
        order = 100
        def before_train(self): self.secs, self.last = [], time.perf_counter()
        def after_batch(self):
            now = time.perf_counter()
            self.secs.append(now-self.last)
            self.last = now
        def after_train(self): # a GPU may be behind
            if torch.cuda.is_available(): torch.cuda.synchronize()
            self.secs[-1] += time.perf_counter()-self.last
        def before_validate(self): raise CancelValidException
    return StepTimes()

def ours(bs, sl, size='small', precision='fp32', device='cpu', compiled=False, **hparams):
    "Training as `electra_learner` does it, its loaders and fastai's loop included"
    import torch
    from electra_nbdev.engine import training
    from electra_nbdev.pretrain import electra_learner, pretrain_dls, preset
    from electra_nbdev.pretraining.graph import CompileStep
    long = dict(num_train_steps=10**6, save_checkpoints_steps=10**6, length_schedule=())
    hp = preset(size, max_seq_length=sl, train_batch_size=bs, eval_batch_size=bs, **long | hparams)
    some, times = FullExamples(64*bs, sl), step_times()
    cbs = training.precision_callbacks(precision, torch.device(device))
    if compiled: cbs += training.compile_callbacks(True, torch.device(device), CompileStep, dynamic=False)
    learn = electra_learner(pretrain_dls(some, some, hp, device), hp, cbs=cbs)
    begin = 4*compiled # a fit captures its steps at the third
    def steps(n):
        with learn.no_bar(), learn.no_logging(): learn.fit_steps(begin+n, cbs=times)
        return times.secs[begin:]
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

WIDTHS = dict(small=(128, 64, 256), base=(768, 256, 768)) # Of the embeddings, the generator and the discriminator

def config(embedding, width, layers=12):
    "Sizes of a generator or a discriminator of the paper"
    from transformers import ElectraConfig
    return ElectraConfig(vocab_size=VOCAB, embedding_size=embedding, hidden_size=width, num_attention_heads=width//64,
                         intermediate_size=4*width, num_hidden_layers=layers)

def adamw(model):
    "The optimizer of a plain loop, with the recipe's rate and decay"
    import torch
    def is_exempt(name): return 'bias' in name or 'LayerNorm' in name
    decayed = [p for n,p in model.named_parameters() if not is_exempt(n)]
    exempt = [p for n,p in model.named_parameters() if is_exempt(n)]
    groups = [dict(params=decayed, weight_decay=0.01), dict(params=exempt, weight_decay=0.)]
    return torch.optim.AdamW(groups, lr=5e-4, eps=1e-6)

def plain(bs, sl, size='small', precision='fp32', device='cpu', compiled=False, layers=12):
    "The same networks and recipe from `transformers` and `torch` as they come"
    import torch
    from transformers import ElectraForMaskedLM, ElectraForPreTraining
    embedding, *widths = WIDTHS[size]
    kinds = ElectraForMaskedLM, ElectraForPreTraining
    gen, disc = (cls(config(embedding, o, layers)) for cls,o in zip(kinds, widths))
    disc.electra.embeddings = gen.electra.embeddings
    model = torch.nn.ModuleList([gen, disc]).to(device).train()
    if compiled:
        for o in (gen, disc): o.compile(dynamic=False)
    opt = adamw(model)
    ids, split = (o.to(device) for o in examples(bs, sl))
    segments, real = (torch.arange(sl, device=device) >= split[:,None]).long(), torch.ones_like(ids)
    def networks():
        chosen = (torch.rand(ids.shape, device=device) < 0.15) & (ids!=CLS) & (ids!=SEP)
        masked = ids.masked_fill(chosen & (torch.rand(ids.shape, device=device) < 0.85), MASK)
        targets = ids.masked_fill(~chosen, -100)
        g = gen(masked, attention_mask=real, token_type_ids=segments, labels=targets)
        with torch.no_grad():
            fake = ids.clone()
            fake[chosen] = torch.multinomial(g.logits[chosen].float().softmax(-1), 1)[:,0]
        d = disc(fake, attention_mask=real, token_type_ids=segments, labels=(fake!=ids).long())
        return g.loss + 50*d.loss
    def step():
        with torch.autocast(device, torch.bfloat16, enabled=precision=='bf16'): loss = networks()
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.)
        opt.step()
        return loss.item()
    return timed(step)

def build(args, sides):
    "A side that is ready to measure, after two steps that warm up"
    import torch
    import electra_nbdev.pretraining.learner
    from transformers import ElectraForMaskedLM, ElectraForPreTraining
    imported = memory()[0]
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    steps = sides[args.side](args.bs, args.sl)
    steps(2)
    return steps, imported

def measure(args, state):
    "Median speed of a few steps, and the memory that all of this took"
    steps, imported = state
    return dict(tokens_per_s=args.bs*args.sl/median(steps(args.steps)), above_imports_mb=memory()[1]-imported)

def compare(doc, name, what, **sides):
    "Measure all sides, the other one first; print a table and a JSON object"
    args = arguments(doc, rounds=(7, 'rounds'), steps=(5, 'steps of a side in a round'), threads=(2, 'threads'),
                     bs=(16, 'examples of a batch'), sl=(128, 'tokens of an example'))
    if args.side: return serve(lambda: build(args, sides), lambda state: measure(args, state))
    def show(o): return f"{o['tokens_per_s']:8,.0f} tokens/s  {o['above_imports_mb']:7,.0f} MB"
    got, other = rounds(list(sides), args, show), next(iter(sides))
    speed = {k: [o['tokens_per_s'] for o in v] for k,v in got.items()}
    mb = {k: round(v[-1]['above_imports_mb']) for k,v in got.items()}
    table(('', 'tokens/s', 'memory above imports, MB'), [(k, round(median(speed[k])), mb[k]) for k in got])
    def against(k): return ratio(speed[k], speed[other]) | dict(above_imports=round(mb[k]/mb[other], 3))
    more = {k: against(k) for k in sides if k not in (other, 'ours')}
    report(dict(benchmark=name, **against('ours'), **more, amx=has_amx(),
                tokens_per_s={k: round(median(v)) for k,v in speed.items()}, above_imports_mb=mb,
                setting=f'{what}, {args.bs} x {args.sl}, {args.threads} threads'))

if __name__=='__main__': compare(__doc__, 'pretrain', 'ELECTRA-Small', plain=plain, ours=ours,
                                 bf16=partial(ours, precision='bf16'),
                                 compiled=partial(ours, precision='bf16', compiled=True))
