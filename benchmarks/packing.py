"""How much of the rows is padding, how many steps a pass takes, and how long a step, with examples alone and packed.

Reviews of 512 tokens, single lines of 128, long documents of 512: give a text of each kind. A step is one of
ELECTRA-Small on a CPU; both sides take turns in one process, and `documents_per_second` compares the medians."""
import json, tempfile, time
from pathlib import Path
from statistics import median
from subprocess import run

from common import RESULTS, arguments, cores, cpu, table

def single_lines(path, out):
    "A copy of a text with each of its lines as a document"
    lines = [o for o in Path(path).read_text(encoding='utf-8').split('\n') if o.strip()]
    out.write_text('\n\n'.join(lines), encoding='utf-8')
    return out

def learner(examples, bs):
    "A learner of ELECTRA-Small on some examples"
    import torch
    from electra_nbdev.pretrain import electra_learner, match_examples, preset
    from electra_nbdev.pretraining.learner import pretrain_dls
    torch.manual_seed(0)
    sizes = dict(train_batch_size=bs, eval_batch_size=1, num_eval_steps=1, num_train_steps=1000)
    hp = match_examples(preset('small', **sizes), examples)
    return electra_learner(pretrain_dls(examples, examples, hp, 'cpu'), hp)

def step_times(examples, tokens, rounds):
    "Median seconds of a step of each side, in turns"
    from fastai.callback.core import Callback
    class Clock(Callback):
        order, run_valid = -100, False
        def before_fit(self): self.times = []
        def before_batch(self): self.start = time.perf_counter()
        def after_step(self): self.times.append(time.perf_counter()-self.start)
    found = {}
    for name,o in examples.items():
        found[name] = learner(o, max(1, tokens//o.width))
        found[name].add_cb(Clock())
    times = {name: [] for name in found}
    for i in range(rounds+1): # the first one warms up
        for name,learn in found.items():
            with learn.no_bar(), learn.no_logging(): learn.fit_steps(1)
            if i: times[name] += learn.clock.times
    return {name: median(o) for name,o in times.items()}

def measure(text, vocab, work, length, rounds):
    "Numbers of one kind of text"
    from electra_nbdev.data.examples import build_examples, load_examples
    folders = {o: build_examples(text, vocab, work/f'{text.stem}-{o}', length, pack=o=='packed')
               for o in ('single', 'packed')}
    single, packed = (load_examples(o) for o in folders.values())
    step = step_times(dict(single=single, packed=packed), 2048, rounds)
    return dict(length=length, examples=len(single), tokens=single.counts['tokens'], rows=len(packed),
                padding=round(single.padding, 4), padding_packed=round(packed.padding, 4),
                steps=round(len(packed)/len(single), 3), documents_of_a_row=packed.n_documents,
                step_seconds={k: round(v, 3) for k,v in step.items()},
                documents_per_second=round(len(single)/len(packed)*step['single']/step['packed'], 3))

def main():
    args = arguments(__doc__, reviews=('', 'reviews, a blank line after each'), lines=('', 'text of short lines'),
        long=('', 'text of long documents'), vocab=('', 'vocabulary'), rounds=(7, 'timed steps of each side'))
    commit = run(['git', 'rev-parse', '--short', 'HEAD'], capture_output=True, text=True, cwd=Path(__file__).parent)
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        texts = dict(reviews=(Path(args.reviews), 512), lines=(single_lines(args.lines, work/'lines.txt'), 128),
                     long=(Path(args.long), 512))
        found = {k: measure(o, args.vocab, work, n, args.rounds) for k,(o,n) in texts.items()}
    facts = dict(cpu=cpu(), cores=cores(), commit=commit.stdout.strip(), texts={k: o.name for k,(o,_) in texts.items()})
    table(('text', *next(iter(found.values()))), [(k, *o.values()) for k,o in found.items()])
    (RESULTS/'packing.json').write_text(json.dumps(facts | found, indent=1)+'\n')

if __name__=='__main__': main()
