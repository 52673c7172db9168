"""What ONNX files and 8-bit weights cost: AUC of the discriminator on held-out text, by torch and by onnxruntime.

The first held-out chapters of the embedded sample, in rows of 64 tokens, 15 % of them masked. The same replacements for
all: samples of the generator in torch, and draws from the unigram distribution. Seconds are of one row at a time.
Beside it the share of masked positions at which the generator's most probable word is the one that it is in torch."""
import argparse, tempfile, time
from pathlib import Path

from common import RESULTS, cpu, write_result

MASK = 4 # Id of [MASK]

def replaced_rows(model, rows, seed):
    "Masked rows, and {kind: (rows with replacements, what was replaced)} at the same positions"
    import torch
    from electra_nbdev.data.tokenizer import special_token_ids
    from electra_nbdev.engine.ranks import KeyedRandom
    from electra_nbdev.method.discriminator import corrupt, is_replaced
    from electra_nbdev.method.generator import predict_masked, sample_inverse_cdf
    from electra_nbdev.method.masking import make_inputs, mask_batch
    special_ids = special_token_ids(model.tokenizer)
    inp = make_inputs(rows, torch.full((len(rows),), rows.shape[1]), special_ids.pad)
    mb = mask_batch(inp, special_ids, .15, rand=KeyedRandom(seed, 3))
    with torch.no_grad(): own = predict_masked(model.generator, mb, False).sampled
    counts = rows.flatten().bincount(minlength=len(model.tokenizer)).float()
    counts[list(special_ids)] = 0
    unigram = sample_inverse_cdf((counts/counts.sum()).expand(*mb.u.shape, -1), mb.u)
    fakes = {k: corrupt(mb, o) for k,o in dict(samples=own, unigram=unigram).items()}
    return mb.masked_ids, {k: (o, is_replaced(mb, o)) for k,o in fakes.items()}

def areas(logits, kinds):
    "AUC of each kind of replacement, and seconds of a row"
    from sklearn.metrics import roc_auc_score
    start, found = time.perf_counter(), {}
    for k,(rows,labels) in kinds.items():
        scores = [logits(o[None]).ravel() for o in rows.numpy()]
        inner = rows>MASK # not the special tokens
        scores = [s for a,b in zip(scores, inner) for s in a[b]]
        found[k] = round(float(roc_auc_score(labels[inner].numpy(), scores)), 4)
    return found | dict(seconds=round((time.perf_counter()-start)/sum(len(o) for o,_ in kinds.values()), 5))

def best_words(logits, masked):
    "The generator's most probable word at each [MASK]"
    rows = masked.numpy()
    return [i for row in rows for i in logits(row[None])[0].argmax(-1)[row==MASK]]

def agreement(words, those_of_torch):
    "Share of the words that are the same"
    return round(sum(bool(a==b) for a,b in zip(words, those_of_torch, strict=True))/len(words), 4)

def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--rows', type=int, default=600, help='rows of held-out text (600)')
    p.add_argument('--out', type=Path, default=RESULTS/'onnx.json', help='results')
    args = p.parse_args()
    import numpy as np, onnxruntime, torch
    from electra_nbdev.data.text import sample_corpus
    from electra_nbdev.sharing.convert import write_onnx
    from electra_nbdev.scoring.score import load_scorer
    torch.set_num_threads(1)
    model = load_scorer('tiny', device='cpu')
    text = (sample_corpus()/'held_out.txt').read_text(encoding='utf-8')
    ids = torch.tensor(model.tokenizer(text, add_special_tokens=False, verbose=False).input_ids)
    rows = ids[:62*args.rows].view(-1, 62)
    rows = torch.cat([torch.full((len(rows), 1), 2), rows, torch.full((len(rows), 1), 3)], 1)
    (masked, kinds), found = replaced_rows(model, rows, 0), {}
    with torch.no_grad():
        found['torch'] = areas(lambda o: model.discriminator(torch.from_numpy(o)).logits.numpy(), kinds)
        words = best_words(lambda o: model.generator(torch.from_numpy(o)).logits.numpy(), masked)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    with tempfile.TemporaryDirectory() as d:
        for name,int8 in (('onnxruntime', False), ('onnxruntime, 8 bits', True)):
            write_onnx('tiny', Path(d)/name, int8)
            def logits(network):
                session = onnxruntime.InferenceSession(Path(d)/name/f'{network}.onnx', options)
                return lambda o: session.run(None, dict(input_ids=o, attention_mask=np.ones_like(o)))[0]
            found[name] = areas(logits('discriminator'), kinds)
            found[name]['same_word'] = agreement(best_words(logits('generator'), masked), words)
    for k,o in found.items(): print(f'{k:22}', o)
    result = dict(setting=f'electra-tiny-en, {len(rows)} rows of 64 tokens', cpu=cpu(), found=found)
    write_result(result, args.out)

if __name__=='__main__': main()
