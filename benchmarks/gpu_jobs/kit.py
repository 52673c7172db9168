"""What the jobs of `one_gpu.py` share: minutes, a result that grows, weights in parts, text that came along."""
import hashlib, json, lzma, os, platform, shlex, subprocess, sys, time
from datetime import date
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Callable, NamedTuple

import numpy as np

from common import GPU_DATA, RESULTS, commit, cpu, gpu

FOUND = RESULTS/'gpu' # Results that are committed
MIB = 2**20
PART, RESERVE = 14*MIB, 25 # Bytes of a part of weights at most; seconds of a job that are kept for its end
LIBRARIES = 'torch', 'triton', 'transformers', 'fastai', 'datasets', 'numpy'

class Job(NamedTuple):
    "A line of the table"
    answers:str # The question
    run:Callable # Takes the arguments of the command
    data:tuple = () # Files below `gpu-data` that it reads

def installed(name):
    try: return version(name)
    except PackageNotFoundError: return None

def card(device):
    "Name of the GPU and its driver, or the processor"
    if not device.startswith('cuda'): return cpu()
    ask = ['nvidia-smi', '--query-gpu=driver_version', '--format=csv,noheader']
    try: driver = subprocess.run(ask, capture_output=True, text=True).stdout.split()[0]
    except (OSError, IndexError): driver = 'unknown'
    return f'{gpu()}, driver {driver}'

def write(path, text):
    "Write a file, complete or as it was before"
    tmp = path.with_suffix('.tmp')
    if isinstance(text, bytes): tmp.write_bytes(text)
    else: tmp.write_text(text)
    os.replace(tmp, path)

class Work:
    "A job at work: how long it has, and what it has found so far"
    def __init__(self, args, stages=False): # those go on where another version or card stopped
        name = args.job
        self.name, self.device, self.scale = name, args.device, args.scale
        self.out, self.data, self.begin = Path(args.out), Path(args.data), time.monotonic()-args.spent
        self.end = self.begin + 60*args.minutes - RESERVE*min(1, args.minutes/9)
        self.out.mkdir(parents=True, exist_ok=True)
        facts = dict(job=name, commit=commit(), card=card(args.device), scale=args.scale)
        here = dict(python=platform.python_version(), **{o: installed(o) for o in LIBRARIES})
        there = self.read(name)
        same = all(there.get(k)==facts[k] for k in (('job', 'scale') if stages else facts))
        self.found = (there if same else {}) | facts | dict(versions=here, date=str(date.today()),
            command=shlex.join(['python', 'benchmarks/one_gpu.py', *sys.argv[1:]]), finished=False)
        self.before = self.found.get('seconds', 0.)

    def left(self): return self.end-time.monotonic()

    def sized(self, n, least=1): return max(least, round(n*self.scale))

    def read(self, name):
        "An earlier result, of this folder or of those that came along"
        path = find(f'{name}.json', self.out)
        return json.loads(path.read_text()) if path else {}

    def keep(self, **more):
        "Add to the result, and write it"
        self.found |= more | dict(seconds=round(self.before+time.monotonic()-self.begin, 1))
        write(self.out/f'{self.name}.json', json.dumps(self.found, indent=1)+'\n')

def find(name, out):
    "A file of a result: in the folder of results, brought along, or committed"
    return next((o/name for o in (Path(out), GPU_DATA/'results', FOUND) if (o/name).is_file()), None)

def rate(out):
    "FLOP/s that a training has had on a GPU, and which: the last `speed` of a small model, else that of version 0.3"
    path = find('speed-small-128.json', out)
    for o in json.loads(path.read_text())['batches'].values() if path else ():
        if 'per_s' in (side := o['sides'].get('graph', {})):
            return side['per_s']*o['floor']['flops'], json.loads(path.read_text())['card']
    return 7204*8.98e9, 'NVIDIA H200, version 0.3.0' # results/nvidia-h200.json

# Weights

def write_parts(out, name, params):
    "Parameters in float16, in parts that are small enough for any host; the checksum of all of them"
    import torch
    from safetensors.torch import save
    data = save({k: p.detach().to('cpu', torch.float16).contiguous() for k,p in params})
    parts = [data[i:i+PART] for i in range(0, len(data), PART)]
    for i,o in enumerate(parts): write(Path(out)/f'{name}.{i}.fp16', o)
    return dict(parts=len(parts), sha256=hashlib.sha256(data).hexdigest())

def join_parts(out, name, told):
    "The parameters of `write_parts`, in float16, bit for bit"
    from safetensors.torch import load
    paths = [find(f'{name}.{i}.fp16', out) for i in range(told['parts'])]
    if None in paths: raise SystemExit(f'part {paths.index(None)} of {name} is missing')
    data = b''.join(o.read_bytes() for o in paths)
    if hashlib.sha256(data).hexdigest()!=told['sha256']: raise SystemExit(f'the parts of {name} do not fit together')
    return load(data)

# Text: ids of lines, 0 for the end of a document, by frequency, which compresses best

def pack(path, vocab, parts):
    "Write lines of ids, {part: list of lists, None at the end of a document}; bytes"
    from safetensors.numpy import save
    lengths = {k: np.array([len(o) if o else 0 for o in v], np.uint16) for k,v in parts.items()}
    flat = {k: np.fromiter((i for o in v if o for i in o), np.uint16) for k,v in parts.items()}
    order = np.argsort(-np.bincount(np.concatenate([*flat.values()]), minlength=len(vocab)), kind='stable')
    rank = np.argsort(order).astype(np.uint16)
    arrays = dict(vocab=np.frombuffer('\n'.join(vocab).encode(), np.uint8), order=order.astype(np.uint16))
    arrays |= {f'ids_{k}': rank[v] for k,v in flat.items()} | {f'lines_{k}': v for k,v in lengths.items()}
    how = dict(id=lzma.FILTER_LZMA2, preset=9|lzma.PRESET_EXTREME, dict_size=2**26, lc=3, lp=1, pb=1)
    data = lzma.compress(save(arrays), filters=[how])
    write(path, data)
    return len(data)

class PackedText:
    "Text that came along: a vocabulary, and lines of ids for training and for evaluation"
    def __init__(self, path):
        from safetensors.numpy import load
        if not path.is_file(): raise SystemExit(f'{path} is missing; one_gpu.py --prepare makes it')
        found = load(lzma.decompress(path.read_bytes()))
        self.vocab = found['vocab'].tobytes().decode().split('\n')
        self.lengths = {o: found[f'lines_{o}'] for o in ('train', 'held_out')}
        self.ids = {o: found['order'][found[f'ids_{o}']] for o in self.lengths}

    @property
    def tokenizer(self):
        from electra_nbdev.data.tokenizer import wordpiece
        return wordpiece({o: i for i,o in enumerate(self.vocab)})

    @lru_cache(4)
    def examples(self, part, length, alone=False):
        "Examples of so many tokens; each line is one of its own if `alone`"
        import random
        from electra_nbdev.data.examples import ExampleBuilder, examples_of
        from electra_nbdev.data.tokenizer import special_token_ids
        tok = self.tokenizer
        special, lines = special_token_ids(tok), self.lines(part)
        if alone: lines = (o for line in lines if line for o in (line, None))
        builder = ExampleBuilder(length, special.cls, special.sep, random.Random(part))
        return MemoryExamples(list(examples_of(builder, lines)), length, tok)

    def lines(self, part):
        "Ids of lines, None at the end of a document"
        ids, at = self.ids[part], 0
        for n in self.lengths[part].tolist():
            yield ids[at:at+n].tolist() if n else None
            at += n

class MemoryExamples:
    "Examples as loaders read them, in memory"
    path = Path('memory')
    def __init__(self, found, width, tok):
        from electra_nbdev.data.tokenizer import fingerprint, special_token_ids
        self.width, self.tokenizer = width, tok
        self.recipe = dict(tokenizer=fingerprint(tok), vocab_size=len(tok), max_length=width)
        self.ids = np.full((len(found), width), special_token_ids(tok).pad, np.uint16)
        self.n, self.firsts = np.array([len(o) for o,_ in found]), np.array([a for _,a in found])
        self.ids[np.arange(width)<self.n[:,None]] = np.concatenate([np.array(o, np.uint16) for o,_ in found])
        self.counts = dict(tokens=int(self.n.sum()), examples=len(found))

    def __len__(self): return len(self.ids)
    def __getitem__(self, i):
        import torch
        i = np.atleast_1d(np.asarray(i))
        return torch.from_numpy(self.ids[i].astype(np.int64)), torch.from_numpy(self.firsts[i].astype(np.int64))
    def check(self, hp): pass
    def lengths(self): return self.n
    def token_counts(self):
        real = np.arange(self.width)<self.n[:,None]
        return np.bincount(self.ids[real], minlength=len(self.tokenizer))
