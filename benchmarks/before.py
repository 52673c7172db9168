"""Speed of this tree against an earlier one: the learner's own step, building examples, fine-tuning.

`before.py --old TREE` takes another checkout of the repository. Three sides take turns: the earlier tree, the same
tree once more (their ratio is the noise), and this one. A figure is the median of the ratios, with their spread."""
import argparse, json, os, re, subprocess, sys, tempfile, time
from importlib import import_module
from inspect import signature
from pathlib import Path
from statistics import median
from types import SimpleNamespace

from common import commit, ratio, serve, table, write_result
from pretrain import CLS, PAD, SEP, VOCAB, FullExamples, step_times

HERE = Path(__file__).resolve().parents[1]

BEFORE = {'engine.fast': 'engine.fast_cpu'}

def module(name):
    "A module of the tree that is measured, by its name of today or one of before; never of another tree"
    import electra_nbdev
    here = Path(electra_nbdev.__file__).parent
    names = name, BEFORE.get(name, name), name.split('.')[-1] # there were no folders once
    found = next(o for o in names if (here/f"{o.replace('.', '/')}.py").is_file())
    return import_module(f'electra_nbdev.{found}')

def learner(name, bs, sl, n, precision='fp32', **hparams):
    "Seconds of a training step of `electra_learner`"
    import torch
    from electra_nbdev.pretrain import electra_learner, pretrain_dls, preset
    hp = preset(name, max_seq_length=sl, train_batch_size=bs, eval_batch_size=bs, num_eval_steps=2,
                save_checkpoints_steps=10**6, num_train_steps=10**6, length_schedule=(), **hparams)
    examples = FullExamples(64*bs, sl, hp.vocab_size)
    amp = module('engine.training').precision_callbacks(precision, torch.device('cpu'))
    learn, times = electra_learner(pretrain_dls(examples, examples, hp, 'cpu'), hp, cbs=amp), step_times()
    def measure():
        with learn.no_bar(), learn.no_logging(): learn.fit_steps(n, cbs=[times])
        return median(times.secs[2:])
    measure()
    return measure

def building(text):
    "Seconds to build examples under the official rule"
    build_examples, train_vocab = module('data.examples').build_examples, module('data.tokenizer').train_vocab
    official = dict(long_lines='official') if 'long_lines' in signature(build_examples).parameters else {}
    tmp = tempfile.TemporaryDirectory()
    train_vocab(text, f'{tmp.name}/vocab', 4000)
    runs = iter(range(10**6))
    def measure():
        start = time.perf_counter()
        build_examples(text, f'{tmp.name}/vocab', f'{tmp.name}/{next(runs)}', 128, **official)
        return time.perf_counter()-start
    measure()
    return measure

def finetuning():
    "Seconds of a training step of a fine-tuning learner"
    import numpy as np
    from transformers import ElectraConfig, ElectraModel
    ft, tasks = (module(o) for o in ('finetuning.finetune', 'finetuning.tasks'))
    Feature, TextTask = tasks.Feature, tasks.TextTask
    rng = np.random.default_rng(0)
    lens = np.clip(rng.lognormal(np.log(25), .6, 160), 5, 128).astype(int)
    rows = [Feature([CLS, *rng.integers(1000, VOCAB, k-2).tolist(), SEP], k, int(rng.integers(2)), None) for k in lens]
    tasks, hp = dict(sst=TextTask('sst', ('0', '1'))), ft.finetune_preset('official', 'small', ['sst'])
    tok = SimpleNamespace(pad_token_id=PAD)
    dls = ft.finetune_dls(tasks, dict(sst=rows), dict(sst=rows[:32]), tok, hp, device='cpu')
    cfg = ElectraConfig(vocab_size=VOCAB, embedding_size=128, hidden_size=256, num_attention_heads=4,
                        intermediate_size=1024)
    with_packed_dropout = module('engine.fast').with_packed_dropout
    times = step_times()
    learn = ft.finetune_learner(dls, with_packed_dropout(ElectraModel(cfg)), hp, cbs=[times])
    learn.remove_cb(learn.task_metrics)
    learn.metrics = []
    def measure():
        with learn.no_bar(), learn.no_logging(): learn.fit(1)
        return sum(times.secs)
    measure()
    return measure

KINDS = {'small': lambda a: learner('small', 16, 128, 6), 'small bf16': lambda a: learner('small', 16, 128, 6, 'bf16'),
         'tiny': lambda a: learner('tiny', 16, 32, 60),
         'building': lambda a: building(a.text), 'finetuning': lambda a: finetuning()}

def side(tree, args, kind):
    "A process that measures one tree"
    env = os.environ | dict(PYTHONPATH=f'{tree}{os.pathsep}{HERE/"benchmarks"}')
    command = [sys.executable, __file__, '--side', kind, '--text', args.text, '--old', args.old]
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    p = subprocess.Popen(command, text=True, env=env, cwd=tree, **pipes)
    answer(p)
    return p

def answer(p):
    for line in p.stdout:
        if re.fullmatch(r'\{\}|[\d.e+-]+', line.strip()): return json.loads(line)
    raise SystemExit(f'a side ended with status {p.wait()}')

def compare(kind, args):
    "Ratios of speed: noise, and this tree over the earlier one"
    sides = {k: side(t, args, kind) for k,t in dict(old=args.old, again=args.old, new=str(HERE)).items()}
    got = {k: [] for k in sides}
    for _ in range(args.rounds):
        for k,p in sides.items():
            print(file=p.stdin, flush=True)
            got[k].append(answer(p))
    for p in sides.values():
        p.stdin.close()
        p.wait()
    return dict(noise=ratio(got['old'], got['again']), speed=ratio(got['old'], got['new']), seconds=median(got['new']))

if __name__=='__main__':
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--old', required=True, help='another checkout')
    p.add_argument('--text', default='', help='text for building')
    p.add_argument('--kinds', nargs='+', default=list(KINDS))
    p.add_argument('--rounds', type=int, default=7)
    p.add_argument('--out', default='')
    p.add_argument('--side', help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.side: serve(lambda: KINDS[args.side](args), lambda f: f())
    else:
        found = {k: compare(k, args) for k in args.kinds}
        table(['', 'noise', 'spread', 'speed', 'spread', 's'],
              [[k, *v['noise'].values(), *v['speed'].values(), v['seconds']] for k,v in found.items()])
        if args.out: write_result(found | dict(old=commit(Path(args.old).resolve())), args.out)
