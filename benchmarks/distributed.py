"""Tokens a second of pre-training by command: two processes of one thread each, and one process of two threads.

Both train ELECTRA-Small in float32 on the same examples, with batches of the same size in all, in turns, each time
a run of its own. Speeds are those in a run's `history.jsonl`, without its first line, in which a run warms up.
`ratio` compares them: with as many cores as processes, 1 is as good as it gets."""
import json, os, subprocess, sys, tempfile
from pathlib import Path
from statistics import median

from common import arguments, ratio, report, table, text_folder

BIN = Path(sys.executable).parent

def prepare(args, work):
    "A vocabulary and examples of the text"
    from electra_nbdev.data.examples import build_examples
    from electra_nbdev.data.tokenizer import train_vocab
    train_vocab(text_folder(args), work/'vocab')
    return build_examples(text_folder(args), work/'vocab', work/'examples', max_length=args.sl)

def speed(args, data, out, processes):
    "Tokens a second of a run"
    from electra_nbdev.pretraining.monitor import read_history
    every = max(args.steps//6, 1)
    hp = dict(train_batch_size=args.bs, eval_batch_size=args.bs, iterations_per_loop=every, num_eval_steps=2,
              save_checkpoints_steps=args.steps, num_warmup_steps=1)
    command = [BIN/'electra_pretrain', '--preset', 'small', '--data', data, '--out', out, '--device', 'cpu',
               '--precision', 'fp32', '--steps', args.steps, '--hparams', json.dumps(hp)]
    several = [BIN/'torchrun', '--standalone', '--nproc_per_node', processes, '--no-python'] if processes>1 else []
    env = os.environ | dict(OMP_NUM_THREADS=str(args.threads//processes))
    p = subprocess.run([str(o) for o in several+command], env=env, text=True, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT)
    if p.returncode: raise SystemExit(f'{processes} processes ended with status {p.returncode}:\n{p.stdout[-3000:]}')
    rows = [o for o in read_history(out/'history.jsonl') if 'tokens_per_s' in o]
    return median(o['tokens_per_s'] for o in rows[1:])

def main():
    text = os.environ.get('ELECTRA_TEXT', '')
    args = arguments(__doc__, rounds=(3, 'rounds'), steps=(24, 'steps of a run'), processes=(2, 'processes'),
        threads=(2, 'threads of all processes'), bs=(16, 'examples of a batch'), sl=(128, 'tokens of an example'),
        text=(text, 'folder of .txt files; the embedded sample if none'), work=('', 'folder for scratch files'))
    got = {1: [], args.processes: []}
    with tempfile.TemporaryDirectory(dir=args.work or None) as work:
        data = prepare(args, Path(work))
        for i in range(args.rounds):
            for n,found in got.items():
                with tempfile.TemporaryDirectory(dir=work) as out: found.append(speed(args, data, Path(out)/'run', n))
                print(f'round {i+1}  {n} process{"es" if n>1 else ""}  {found[-1]:8,.0f} tokens/s', flush=True)
    table(('processes', 'tokens/s'), [(str(n), round(median(o))) for n,o in got.items()])
    report(dict(benchmark='distributed', **ratio(got[args.processes], got[1]),
                tokens_per_s={n: round(median(o)) for n,o in got.items()},
                setting=f'ELECTRA-Small, {args.bs} x {args.sl}, float32, {args.threads} threads in all'))

if __name__=='__main__': main()
