"""Seconds and memory of one ELECTRA-Small step: ours, and what one would write with `transformers` alone.

Each measurement has a process to itself, and the variants take turns, so that a machine that slows down slows both.
What was measured goes to benchmarks/results/pretrain_step.json, with the machine."""
import argparse, json, os, platform, resource, subprocess, sys, time
from pathlib import Path
from statistics import median

RESULT = Path(__file__).parent/'results'/'pretrain_step.json'
VOCAB, PAD, CLS, SEP, MASK = 30522, 0, 101, 102, 103

def examples(bs, sl, device):
    "Full examples of two segments whose words are as unevenly frequent as words are"
    import torch
    rng = torch.Generator().manual_seed(0)
    p = 1/torch.arange(10., VOCAB-990)
    ids = torch.multinomial(p, bs*sl, replacement=True, generator=rng).view(bs, sl) + 1000
    ids[:, 0], ids[:, sl//2], ids[:, -1] = CLS, SEP, SEP
    return ids.to(device), torch.full((bs,), sl//2+1, device=device)

def ours(bs, sl, device):
    "A step as `electra_nbdev` takes it"
    from electra_nbdev.electra import ElectraPretraining, PretrainLoss
    from electra_nbdev.hparams import preset
    from electra_nbdev.masking import Specials, make_inputs, mask_batch
    from electra_nbdev.optimizer import clip_by_global_norm, electra_optimizer, param_groups
    hp, specials = preset('small', max_seq_length=sl, train_batch_size=bs), Specials(PAD, CLS, SEP, MASK)
    model = ElectraPretraining(hp).to(device).train()
    opt, loss_func = electra_optimizer(param_groups(model), hp.learning_rate, hp), PretrainLoss(hp)
    ids, split = examples(bs, sl, device)
    def step():
        loss = loss_func(model(mask_batch(make_inputs(ids, split, PAD), hp, specials)))
        loss.backward()
        clip_by_global_norm(model.parameters())
        opt.step()
        opt.zero_grad()
        return loss.detach()
    return step

def plain(bs, sl, device):
    "The same networks and recipe from `transformers` and `torch` as they come"
    import torch
    from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining
    def config(h): return ElectraConfig(vocab_size=VOCAB, embedding_size=128, hidden_size=h, num_attention_heads=h//64, intermediate_size=4*h)
    gen, disc = ElectraForMaskedLM(config(64)), ElectraForPreTraining(config(256))
    gen.electra.embeddings = disc.electra.embeddings
    gen.generator_lm_head.weight = disc.electra.embeddings.word_embeddings.weight
    model = torch.nn.ModuleList([gen, disc]).to(device).train()
    opt = torch.optim.AdamW(model.parameters(), lr=5e-4, eps=1e-6, weight_decay=0.01)
    ids, split = examples(bs, sl, device)
    segments, real = (torch.arange(sl, device=device) >= split[:,None]).long(), torch.ones_like(ids)
    def step():
        chosen = (torch.rand(ids.shape, device=device) < 0.15) & (ids!=CLS) & (ids!=SEP)
        holes = chosen & (torch.rand(ids.shape, device=device) < 0.85)
        g = gen(ids.masked_fill(holes, MASK), attention_mask=real, token_type_ids=segments, labels=ids.masked_fill(~chosen, -100))
        fake = ids.clone()
        fake[chosen] = torch.multinomial(g.logits[chosen].detach().softmax(-1), 1)[:,0]
        d = disc(fake, attention_mask=real, token_type_ids=segments, labels=(fake!=ids).long())
        loss = g.loss + 50*d.loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.)
        opt.step()
        opt.zero_grad()
        return loss.detach()
    return step

VARIANTS = dict(ours=ours, plain=plain)

def measure(variant, bs, sl, steps):
    "Median seconds of a step and peak memory of this process, after two steps to warm up"
    import torch
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    torch.manual_seed(0)
    step, secs = VARIANTS[variant](bs, sl, device), []
    for i in range(steps+2):
        start = time.perf_counter()
        step().item()
        if i>1: secs.append(time.perf_counter()-start)
    peak = torch.cuda.max_memory_allocated()/2**20 if device=='cuda' else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss/(2**10 if sys.platform=='linux' else 2**20)
    return dict(seconds=median(secs), peak_mb=round(peak))

def cpu_name():
    info = Path('/proc/cpuinfo')
    names = [o.split(':')[1].strip() for o in info.read_text().splitlines() if o.startswith('model name')] if info.exists() else []
    return names[0] if names else platform.processor() or platform.machine()

def machine():
    import torch, transformers
    return dict(cpu=cpu_name(), cores=os.cpu_count(), threads=torch.get_num_threads(), gpu=torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        python=platform.python_version(), torch=torch.__version__, transformers=transformers.__version__)

def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--rounds', type=int, default=3)
    p.add_argument('--steps', type=int, default=5)
    p.add_argument('--bs', type=int, default=16)
    p.add_argument('--sl', type=int, default=128)
    p.add_argument('--variant', choices=VARIANTS, help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.variant: return print(json.dumps(measure(a.variant, a.bs, a.sl, a.steps)))
    got = {v: [] for v in VARIANTS}
    for i in range(a.rounds):
        for v in VARIANTS:
            cmd = [sys.executable, __file__, '--variant', v, '--steps', str(a.steps), '--bs', str(a.bs), '--sl', str(a.sl)]
            got[v].append(json.loads(subprocess.run(cmd, check=True, capture_output=True, text=True).stdout.splitlines()[-1]))
            print(f"round {i+1}  {v:<6} {got[v][-1]['seconds']:7.3f} s a step  {got[v][-1]['peak_mb']:6,} MB", flush=True)
    ratios = [b['seconds']/o['seconds'] for o,b in zip(got['ours'], got['plain'])]
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(dict(what=f"ELECTRA-Small step, {a.bs} x {a.sl}, fp32", machine=machine(), rounds=got, plain_over_ours=ratios), indent=1)+'\n')
    print(f"plain takes {median(ratios):.2f} times as long [{min(ratios):.2f} to {max(ratios):.2f}]; written to {os.path.relpath(RESULT)}")

if __name__=='__main__': main()
