"""A masked language model as transformers' run_mlm trains it, which `objectives.py` has beside its objectives: stock
Trainer and collator, float32, whole examples in batches, logits at every position, torch's AdamW, linear decay. Body,
initial weights, text and operations are those of the other objectives."""
import time
from copy import deepcopy

def operations(model, batch):
    "Floating-point operations of a training step"
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode
    with FlopCounterMode(display=False) as mode, sdpa_kernel(SDPBackend.MATH): model(**batch).loss.backward()
    model.zero_grad()
    return mode.get_total_flops()

def held_out(model, hp, data, device='cpu'):
    "What the evaluation of the other objectives says of a network: nats below the unigram baseline"
    import torch
    from electra_nbdev.pretrain import MaskedLanguageModel, electra_learner, open_examples, pretrain_dls
    with torch.random.fork_rng(): # the training draws the same numbers as without this
        objective = MaskedLanguageModel.of(deepcopy(model)) # a learner makes it faster in place
        learn = electra_learner(pretrain_dls(*open_examples(data, hp), hp, device), hp, objective)
        with learn.no_bar(), learn.no_logging(): learn.validate()
    return dict(below_unigram=round(learn.held_out['below_unigram'], 4))

def kept(parts, folder, tok, per_step, judge):
    "A callback that leaves the network of every part, what `judge` says of it, and the processor's seconds up to it"
    from transformers import TrainerCallback
    class Kept(TrainerCallback):
        rows, saving = [], 0.
        def on_train_begin(self, args, state, control, **kw): self.start = time.process_time()
        def on_step_end(self, args, state, control, model=None, **kw):
            for part in parts:
                if round(part*state.max_steps)!=state.global_step: continue
                now = time.process_time()
                self.rows = [*self.rows, dict(part=part, steps=state.global_step, flops=per_step*state.global_step,
                                              seconds=round(now-self.start-self.saving, 1), held_out=judge(model))]
                for o in (model, tok): o.save_pretrained(folder/str(part)/'generator')
                self.saving += time.process_time()-now
    return Kept()

def pretrain(hp, data, flops, parts, folder, device='cpu'):
    "Train with so many operations; a row for every part"
    import torch
    from datasets import load_from_disk
    from transformers import DataCollatorForLanguageModeling, Trainer, TrainingArguments
    from electra_nbdev.data.examples import load_examples
    from electra_nbdev.networks.build import build_networks
    tok = load_examples(data).tokenizer
    rows, collate = load_from_disk(str(data)).select_columns('input_ids'), DataCollatorForLanguageModeling(tok)
    torch.manual_seed(hp.seed)
    model = build_networks(hp).generator
    per_step = operations(model, collate([rows[i] for i in range(hp.train_batch_size)]))
    def judge(model): return held_out(model, hp, data, device)
    steps, watch = 8*max(1, round(flops/per_step/8)), kept(parts, folder, tok, per_step, judge)
    args = TrainingArguments(
        folder/'trainer', max_steps=steps, per_device_train_batch_size=hp.train_batch_size, seed=hp.seed,
        learning_rate=hp.learning_rate, weight_decay=hp.weight_decay_rate, max_grad_norm=hp.max_grad_norm or 0.,
        warmup_steps=steps//10, save_strategy='no', logging_strategy='no', report_to='none', disable_tqdm=True,
        use_cpu=device=='cpu')
    Trainer(model, args, train_dataset=rows, data_collator=collate, callbacks=[watch]).train()
    return watch.rows
