"A corpus sampled once: the table of candidates, a process killed while it writes, and training without a generator"
import os, shutil, signal
from dataclasses import replace

import pytest
import torch
from fastai.callback.core import Callback

from electra_nbdev.data import replacements
from electra_nbdev.pretraining.learner import pretrain_dls
from electra_nbdev.cli import electra_data
from electra_nbdev.engine.files import InputError
from electra_nbdev.data.examples import build_examples, load_examples
from electra_nbdev.method.generator import hidden_states, masked_logits
from electra_nbdev.method.masking import make_inputs, mask_batch
from electra_nbdev.pretraining.plan import step_cost
from electra_nbdev.pretrain import electra_learner, open_examples
from electra_nbdev.networks.recipe import build_networks, preset, save_networks
from electra_nbdev.data.replacements import (SampledExamples, add_replacements, candidate_probs, candidates_of,
                                             examples_for, open_generator)
from electra_nbdev.pretraining.runs import evaluate_run, run_pretraining
from electra_nbdev.data.tokenizer import special_token_ids, train_vocab, write_tokenizer
from official import seen_ids
from survival import At, assert_same, fork, result, train
from make import tales

@pytest.fixture(scope='module')
def made(tmp_path_factory):
    "Examples with replacements, the run that they are from, and a recipe"
    d = tmp_path_factory.mktemp('replacements')
    (d/'tales.txt').write_text(tales())
    tok = train_vocab(d/'tales.txt', d/'vocab', 120)
    build_examples(d/'tales.txt', d/'vocab', d/'examples', max_length=16, held_out=.1)
    hp = preset('tiny', vocab_size=len(tok), max_seq_length=16, length_schedule=[[8, .5], [16, .5]], train_batch_size=8,
                eval_batch_size=8, num_train_steps=12, num_warmup_steps=2, save_checkpoints_steps=4,
                iterations_per_loop=2, num_eval_steps=2, unigram_noise=0.)
    alone = replace(hp, electra_objective=False)
    save_networks(build_networks(alone), alone, d/'run', tok)
    add_replacements(d/'examples', d/'run', 8, hp.mask_prob, device='cpu')
    return d, replace(hp, replacements_from_data=True, temperature=2., temperature_decay=.2)

def table(folder): return [o.as_py() for o in SampledExamples(folder).table.with_format(None).data.column('positions')]

def learner(made, **changed):
    d, hp = made
    hp = replace(hp, **changed)
    parts = d/'examples', d/'examples/held_out'
    return electra_learner(pretrain_dls(*(examples_for(o, hp, True) for o in parts), hp, 'cpu'), hp)

class Last(Callback):
    "The last training batch, as the discriminator sees it"
    run_valid, order = False, 95
    def after_pred(self):
        o = self.learn
        self.masked, self.generated = o.masked, o.output.prediction
        self.fake, self.labels = seen_ids(o), o.yb[0]

def steps(learn, n):
    "Weights after some steps, and the last batch"
    last = Last()
    with learn.no_bar(), learn.no_logging(): learn.fit_steps(n, cbs=last)
    return torch.cat([p.detach().flatten() for p in learn.model.parameters()]), last

# The table

def copy_of(made, tmp_path):
    shutil.copytree(made[0]/'examples', tmp_path/'examples', ignore=shutil.ignore_patterns('replacements'))
    return tmp_path/'examples'

def test_batches_and_shards_have_no_influence(made, tmp_path, monkeypatch):
    monkeypatch.setattr(replacements, '_SHARD', 7)
    monkeypatch.setattr(replacements, '_TOKENS', 40)
    folder = copy_of(made, tmp_path)
    add_replacements(folder, made[0]/'run', 8, made[1].mask_prob, device='cpu')
    for o in ('', 'held_out'):
        a, b = (SampledExamples(x/o)[:] for x in (folder, made[0]/'examples'))
        for x,y in zip(a, b): torch.testing.assert_close(x, y, rtol=2e-3, atol=2e-3)

def test_a_killed_process(made, tmp_path, monkeypatch):
    "What is finished is not made again, and the table is that of a process which was not killed"
    monkeypatch.setattr(replacements, '_SHARD', 7)
    folder, write, written = copy_of(made, tmp_path), replacements._write_shard, []
    def add(): add_replacements(folder, made[0]/'run', 8, made[1].mask_prob, device='cpu')
    def second_shard_kills(path, *args):
        if path.name=='000001': os.kill(os.getpid(), signal.SIGKILL)
        write(path, *args)
    def main():
        replacements._write_shard = second_shard_kills
        add()
    assert fork(main).wait().code==128+9
    assert (folder/'.replacements.building/000000').is_dir() and not (folder/'replacements').exists()
    with pytest.raises(InputError, match='has no replacements'): SampledExamples(folder)
    monkeypatch.setattr(replacements, '_write_shard', lambda path, *a: written.append(path.name) or write(path, *a))
    add()
    assert written[0]=='000001' and table(folder)==table(made[0]/'examples')
    assert not (folder/'.replacements.building').exists()

def test_candidates_have_the_generators_distribution(made):
    "On average over the draws at temperature 1; at another one the most probable half keeps its ratios"
    (net, tok), examples = open_generator(made[0]/'run'), load_examples(made[0]/'examples')
    special_ids, n, k = special_token_ids(tok), 3000, 6
    ids, a = (o.repeat_interleave(n, 0) for o in examples[:1])
    mb = mask_batch(make_inputs(ids[:1], a[:1], special_ids.pad), special_ids, .3)
    several = mask_batch(make_inputs(ids, a, special_ids.pad), special_ids, .3)
    several = several._replace(**{o: getattr(mb, o).repeat(n, 1) for o in ('masked_ids', 'positions', 'targets')})
    with torch.no_grad():
        hidden = hidden_states(net, mb.masked_ids, mb.attention_mask, mb.token_type_ids)
        probs = masked_logits(net, hidden, mb.positions)[0].softmax(-1)
    found = candidates_of(net, several, k, torch.rand(n, mb.positions.shape[1]*3))
    for j,p in enumerate(probs):
        mean = torch.zeros_like(p).index_add(0, found.ids[:,j].flatten(), candidate_probs(found)[:,j].flatten()/n)
        assert ((mean-p).abs() < 5*(p/n).sqrt()+1e-4).all()
    hot = candidate_probs(found, 2.)[0,0,:3]
    torch.testing.assert_close(hot/hot.sum(), (best := probs[0].topk(3).values**.5)/best.sum(), rtol=1e-3, atol=0)

# Training

def test_a_run_without_a_generator(made, tmp_path):
    "Stopped and continued it is bit-exact; only a discriminator is saved, and it can be evaluated"
    d, hp = made
    assert fork(lambda: train(tmp_path/'whole', d/'examples', hp)).wait().code==0
    stop = At(6, lambda _: os.kill(os.getpid(), signal.SIGTERM))
    assert fork(lambda: train(tmp_path/'stopped', d/'examples', hp, [stop])).wait().code==128+15
    assert fork(lambda: train(tmp_path/'stopped', d/'examples', hp)).wait().code==0
    assert_same(result(tmp_path/'stopped'), result(tmp_path/'whole'))
    assert (tmp_path/'whole/discriminator').is_dir() and not (tmp_path/'whole/generator').exists()
    found = evaluate_run(tmp_path/'whole', d/'examples/held_out', 'cpu')
    held = SampledExamples(d/'examples/held_out')[:2*hp.eval_batch_size]
    masked = (held[2]>=0).sum(1)[:,None]>torch.arange(held[5].shape[1])
    torch.testing.assert_close(found['gen_loss'], -held[5][masked & ~held[6]].mean().item(), rtol=1e-3, atol=1e-3)
    assert 0<found['disc_auc']<1 and 0<found['auc_unigram']<1

def test_parts_of_a_batch(made):
    how = dict(length_schedule=(), max_grad_norm=1.)
    whole, parts = (steps(learner(made, grad_accumulation=o, **how), 3)[0] for o in (1, 2))
    torch.testing.assert_close(whole, parts, rtol=1e-4, atol=1e-6)

def test_widths(made, tmp_path):
    "Short examples that share a narrow batch keep their candidates"
    d, hp = made
    words = [o for o in tales().split() if o.isalpha()]
    lines = [' '.join(words[i:i+n]) for i,n in enumerate([3, 4, 12]*40)]
    (tmp_path/'short.txt').write_text('\n\n'.join(lines))
    build_examples(tmp_path/'short.txt', d/'vocab', tmp_path/'examples', max_length=16, held_out=.2)
    add_replacements(tmp_path/'examples', d/'run', 8, hp.mask_prob, device='cpu')
    learn = learner((tmp_path, hp), length_schedule=(), length_window=20)
    widths = set()
    for _ in range(6):
        mb = steps(learn, 1)[1].masked
        widths.add(mb.input_ids.shape[1])
        used = mb.weights>0
        seen = mb.masked_ids.gather(1, mb.positions)
        assert ((seen==learn.tokenizer.mask_token_id) | (seen==mb.targets))[used].all()
        assert (mb.positions[used]>0).all() and (used.sum(1)>0).all()
        same = (mb.proposed.ids==mb.targets[...,None]).float()*mb.proposed.log_probs.exp()
        assert ((same.sum(-1)-mb.proposed.original.exp()).abs()<2e-3)[used & (same.sum(-1)>0)].all()
    assert widths>={8, 16}

@pytest.mark.parametrize('length', [8, 16])
def test_what_is_replaced(made, length):
    "Only masked tokens, by their own candidates; the original never if that is asked for"
    learn = learner(made, length_schedule=((length, 1.),), disallow_correct=True)
    last = steps(learn, 1)[1]
    mb, found, c = last.masked, last.generated, last.masked.proposed
    assert mb.input_ids.shape[1]==length
    real = mb.weights>0
    rows = SampledExamples(made[0]/'examples')[learn.dls.train.numbers(0)]
    assert real.sum()==(rows[2]>=0).sum()
    assert (c.ids==found.sampled[...,None]).any(-1)[real].all() and (found.sampled!=mb.targets)[real].all()
    fake, label = last.fake, last.labels
    chosen = torch.zeros_like(fake).scatter_add(1, mb.positions, real.long())>0
    assert ((fake!=mb.input_ids)==chosen).all() and ((label==1)==chosen)[label>=0].all()

def test_temperature_falls(made):
    learn = learner(made)
    steps(learn, 4)
    total, model = learn.hp.num_train_steps, learn.model.train()
    assert model.run_fraction.item()==pytest.approx(3/total) # before the last of four steps
    for step,wanted in ((0, 2.), (3, 1.287), (12, 1.007)):
        model.run_fraction.fill_(step/total)
        assert model.sampling()['temperature'].item()==pytest.approx(wanted, abs=1e-3)

def test_a_low_temperature_takes_the_best(made):
    "In training; held-out text is sampled at temperature 1"
    learn = learner(made, temperature=.01, temperature_decay=None)
    last = steps(learn, 1)[1]
    best, real = last.masked.proposed.ids[...,0], last.masked.weights>0
    assert (last.generated.sampled==best)[real].float().mean()>.85
    held = learn.masked # of the evaluation after it
    assert (learn.output.prediction.sampled==held.proposed.ids[...,0])[held.weights>0].float().mean()<.7

def test_noise_beside_the_table(made):
    "With nothing but unigram noise candidates are not seen, and special tokens never"
    learn = learner(made, unigram_noise=1.)
    last = steps(learn, 2)[1]
    changed = last.fake!=last.masked.input_ids
    assert changed.any() and not torch.isin(last.fake[changed], torch.tensor(learn.mask_tokens.special_ids)).any()

def test_costs_what_a_uniform_generator_costs(made):
    hp = made[1]
    uniform = replace(hp, replacements_from_data=False, temperature_decay=None, uniform_generator=True)
    assert step_cost(hp)==step_cost(uniform)
    shared = replace(uniform, uniform_generator=False, untied_generator=False)
    assert step_cost(hp).flops<.7*step_cost(shared).flops

# What is refused, and the command

def test_refused(made, tmp_path):
    d, hp = made
    other = replace(hp, mask_prob=.15)
    with pytest.raises(InputError, match='have mask_prob 0.3, the recipe asks for 0.15; set the hparam'):
        examples_for(d/'examples', other, True)
    with pytest.raises(InputError, match='has no replacements; add them with electra_data --replace-with'):
        examples_for(copy_of(made, tmp_path), hp, True)
    with pytest.raises(InputError, match='these DataLoaders give no replacements'):
        electra_learner(pretrain_dls(*[load_examples(d/'examples', hp)]*2, hp, 'cpu'), hp).fit_steps(1)
    with pytest.raises(InputError, match='has no generator; give a finished run'): open_generator(d/'vocab')
    with pytest.raises(InputError, match='has another vocabulary than the examples'):
        add_replacements(d/'examples', 'tiny')
    with pytest.raises(InputError, match='--top is 1; .* at least 2'): add_replacements(d/'examples', d/'run', 1)
    with pytest.raises(InputError, match='--mask-prob is 2'): add_replacements(d/'examples', d/'run', mask_prob=2)
    with pytest.raises(InputError, match='needs --data'): open_examples(None, hp)

def test_nothing_is_written_before_a_refusal(made, tmp_path):
    "Another table in the held-out part, found before that of the training part is written"
    folder = copy_of(made, tmp_path)
    add_replacements(folder, made[0]/'run', 8, made[1].mask_prob, device='cpu')
    shutil.rmtree(folder/'replacements')
    with pytest.raises(InputError, match='top 8 there, 4 here'):
        add_replacements(folder, made[0]/'run', 4, made[1].mask_prob, device='cpu')
    assert not (folder/'replacements').exists()

@pytest.mark.parametrize('file', ['facts.json', 'data-00000-of-00001.arrow'])
def test_a_damaged_table(made, tmp_path, file):
    folder = copy_of(made, tmp_path)
    add_replacements(folder, made[0]/'run', 8, made[1].mask_prob, device='cpu')
    path = folder/'replacements'/file
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(InputError, match=r'replacements.* damaged.*delete [^\n]*$'): SampledExamples(folder)

@pytest.mark.parametrize('written', ['[]', '{}', '"top": 4'])
def test_damaged_facts(made, tmp_path, written):
    "Nobody takes such a table for a finished one"
    folder = copy_of(made, tmp_path)
    args = folder, made[0]/'run', 8, made[1].mask_prob
    add_replacements(*args, device='cpu')
    path = folder/'replacements'/'facts.json'
    path.write_text(path.read_text().replace('"top": 8', written) if 'top' in written else written)
    with pytest.raises(InputError, match='damaged.*--replace-with again'): SampledExamples(folder)
    with pytest.raises(InputError, match='damaged.*--replace-with again'): add_replacements(*args, device='cpu')

def test_a_damaged_table_is_not_a_finished_one(made, tmp_path):
    folder = copy_of(made, tmp_path)
    args = folder, made[0]/'run', 8, made[1].mask_prob
    add_replacements(*args, device='cpu')
    path, = (folder/'replacements').glob('data*.arrow')
    path.unlink()
    with pytest.raises(InputError, match='damaged'): add_replacements(*args, device='cpu')

def test_a_run_without_a_generator(made, tmp_path):
    (tmp_path/'run/discriminator').mkdir(parents=True)
    with pytest.raises(InputError, match='it was trained from replacements'): open_generator(tmp_path/'run')

def test_other_dtypes_and_rows(made, tmp_path):
    "A generator in bfloat16, with more rows than there are tokens: these are never proposed"
    net, tok = open_generator(made[0]/'run')
    net.resize_token_embeddings(128, mean_resizing=False)
    net.bfloat16().save_pretrained(tmp_path/'run')
    write_tokenizer(tok, tmp_path/'run')
    folder = copy_of(made, tmp_path)
    add_replacements(folder, tmp_path/'run', 60, device='cpu')
    assert SampledExamples(folder)[:][3].max()<len(tok)<128

@pytest.mark.parametrize('change', [dict(electra_objective=False), dict(uniform_generator=True), dict(whole_words=True),
                                    dict(two_tower_generator=True), dict(duplicates='official')])
def test_contradictions(change):
    with pytest.raises(InputError, match='replacements_from_data'):
        preset('small', replacements_from_data=True, **change)

def test_a_decay_of_nothing():
    with pytest.raises(InputError, match='`temperature_decay` is about a `temperature` other than 1'):
        preset('small', temperature_decay=.1)
    preset('small', temperature=2., temperature_decay=.1)

def test_other_replacements_are_another_run(made, tmp_path):
    "A run is not continued with the replacements of another generator"
    d, hp = made
    folder = copy_of(made, tmp_path)
    add_replacements(folder, d/'run', 8, hp.mask_prob, device='cpu')
    stop = At(6, lambda _: os.kill(os.getpid(), signal.SIGTERM))
    assert fork(lambda: train(tmp_path/'run', folder, hp, [stop])).wait().code==128+15
    for o in (folder, folder/'held_out'): shutil.rmtree(o/'replacements')
    add_replacements(folder, d/'run', 9, hp.mask_prob, device='cpu')
    with pytest.raises(InputError, match='replacements/data-00000-of-00001.arrow'):
        run_pretraining(folder, tmp_path/'run', hp, device='cpu')

def test_the_command(made, tmp_path, capsys):
    d = made[0]
    how = dict(vocab=str(d/'vocab'), out=str(tmp_path/'examples'), max_length=16, held_out=.1)
    electra_data(str(d/'tales.txt'), **how, replace_with=str(d/'run'), top=8, mask_prob=.3, device='cpu')
    assert 'positions of the training examples with 8 candidates each; the best 4' in capsys.readouterr().out
    assert table(tmp_path/'examples')==table(d/'examples')
    with pytest.raises(InputError, match='name one with --replace-with'): electra_data(str(d/'tales.txt'), **how, top=0)
    how['out'] = str(tmp_path/'other')
    with pytest.raises(InputError, match='--mask-prob is 0'):
        electra_data(str(d/'tales.txt'), **how, replace_with=str(d/'run'), mask_prob=0)
    assert not (tmp_path/'other').exists()
