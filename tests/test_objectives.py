"Objectives: saved and read back with what their networks share, one forward that compiles, and one of a user's own"
import json, shutil, subprocess, sys
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from torch._dynamo.utils import counters
from transformers import AutoModel

from electra_nbdev.cli import electra_evaluate, electra_finetune, electra_pretrain
from electra_nbdev.engine.files import InputError
from electra_nbdev.pretrain import (MaskedLanguageModel, NoiseContrastiveEstimation, NumberedExamples,
                                    ReplacedTokenDetection, build_networks, load_examples, load_networks, preset,
                                    run_pretraining, sample_examples)
from electra_nbdev.method.discriminator import corrupt, disc_labels, disc_nll, is_replaced
from electra_nbdev.method.electra import CorrectiveLM, split_uniform
from electra_nbdev.method.metrics import MEANINGS
from electra_nbdev.method.objective import Objective, StepOutput
from electra_nbdev.pretraining.learner import electra_learner, give_counts, open_examples, pretrain_dls
from electra_nbdev.pretraining.runs import load_objective
from electra_nbdev.scoring.likelihood import load_likelihood
from electra_nbdev.scoring.score import load_scorer
from official import SPECIAL_IDS
from learners import StopAt, same_weights
from make import ALL_VARIANTS, NO_DROPOUT, SMALL, VARIANTS, batch, made

KIND = {o: NoiseContrastiveEstimation for o in VARIANTS if 'Electric' in o}
KIND |= dict(BERT=MaskedLanguageModel, corrective=CorrectiveLM)

def objective(variant):
    "In training, without dropout"
    hp = preset('tiny', **SMALL | ALL_VARIANTS[variant])
    hp = replace(hp, model_hparam_overrides=hp.model_hparam_overrides | NO_DROPOUT)
    model = build_networks(hp).train()
    if hp.unigram_noise: model.set_token_counts(torch.arange(60.))
    return model

def shared(model):
    "Names of each parameter, where it has several"
    names = {}
    for n,p in model.named_parameters(remove_duplicate=False): names.setdefault(id(p), []).append(n)
    return sorted(o for o in names.values() if len(o)>1)

@pytest.mark.parametrize('variant', ALL_VARIANTS)
def test_saved_and_read_back(tmp_path, variant):
    model = objective(variant)
    assert type(model) is KIND.get(variant, ReplacedTokenDetection)
    model.save_pretrained(tmp_path)
    back = type(model).from_pretrained(tmp_path).train()
    assert shared(back)==shared(model) and back.config.arguments==model.config.arguments
    same_weights(model, back)
    a, b = model(**batch()), back(**batch())
    assert a.loss.item()==b.loss.item() and torch.equal(a.labels, b.labels)

def test_towers_are_read_back_by_who_never_imported_electric(tmp_path):
    model = objective('ELECTRA-TT').eval()
    model.save_pretrained(tmp_path)
    torch.save(dict(batch=batch(), loss=model(**batch()).loss), tmp_path/'want.pt')
    code = f"""
import sys, torch
from electra_nbdev.method.electra import ReplacedTokenDetection
model = ReplacedTokenDetection.from_pretrained({str(tmp_path)!r}).eval()
assert 'electra_nbdev.method.electric' not in sys.modules
want = torch.load({str(tmp_path/'want.pt')!r})
assert torch.equal(model(**want['batch']).loss, want['loss'])"""
    subprocess.run([sys.executable, '-c', code], check=True)

def test_attention_is_chosen_as_for_any_model_of_transformers():
    model = objective('tied')
    for o in ('eager', 'sdpa'):
        model.set_attn_implementation(o)
        assert {n.config._attn_implementation for n in (model, model.generator, model.discriminator)}=={o}

def test_arguments_are_checked():
    nets = build_networks(preset('tiny', **SMALL))
    with pytest.raises(InputError, match='has no argument `disc_wight`.*Did you mean `disc_weight`'):
        ReplacedTokenDetection.of(nets.generator, nets.discriminator, disc_wight=1.)
    noisy = ReplacedTokenDetection.of(nets.generator, nets.discriminator, unigram_noise=.5)
    with pytest.raises(InputError, match='needs token counts'): noisy.train()(**batch())

def test_the_loss_is_a_ratio_of_sums():
    "Parts that divide by the counts of the group add up to the loss of the whole"
    model = objective('tied').eval()
    whole, parts = model(**batch(4)), [{k: v[i:i+1] for k,v in batch(4).items()} for i in range(4)]
    outs = [model(**o, counts=whole.counts) for o in parts]
    assert sum(o.loss for o in outs).item()==pytest.approx(whole.loss.item(), rel=1e-5)
    means = sum(model(**o).loss for o in parts).item()/4
    assert abs(means-whole.loss.item())>1e-3, 'the mean of means is another number'

def test_a_masked_language_model_has_the_mean_loss_of_its_predictions():
    generator = build_networks(preset('tiny', **SMALL)).generator
    out, n = MaskedLanguageModel.of(generator).eval()(**batch()), int(batch()['weights'].sum())
    assert out.loss.item()==pytest.approx(out.prediction.total.item()/n, rel=1e-5)

@pytest.mark.parametrize('variant', ['tied', 'Electric', 'BERT'])
def test_one_forward_compiles(variant):
    "As one graph, with the same loss"
    model, mb = objective(variant), batch()
    plain = model(**mb).loss
    counters.clear()
    compiled = torch.compile(model, backend='aot_eager', fullgraph=True)
    torch.testing.assert_close(compiled(**mb).loss, plain, rtol=1e-5, atol=1e-5)
    assert counters['stats']['unique_graphs']==1

def test_one_number_decides_and_draws():
    "Whether a replacement is noise, and which: what is left of the number is uniform and tells nothing of the decision"
    noise, left = split_uniform(torch.rand(10**6, generator=torch.Generator().manual_seed(0)), .25)
    numbers = noise.float().mean(), left[noise].mean(), left[~noise].mean(), left[noise].std(), left[~noise].std()
    assert [o.item() for o in numbers]==pytest.approx([.25, .5, .5, 12**-.5, 12**-.5], abs=.002)
    assert split_uniform(torch.tensor([1-2**-24]), .22)[1]<1 # the largest number: the division rounds to 1
    assert left.min()>=0 and left.max()<1 and not split_uniform(left, 0.)[0].any() and split_uniform(left, 1.)[0].all()

# An objective of the user's

MINE = '''
import torch
from electra_nbdev.pretrain import ReplacedTokenDetection
class Counted(ReplacedTokenDetection):
    "The discriminator also says how many tokens were replaced"
    columns = *ReplacedTokenDetection.columns, 'number_loss'
    def build(self): self.number = torch.nn.Parameter(torch.zeros(()))
    @property
    def weights(self): return super().weights | dict(number=.1)
    def counts(self, mb): return super().counts(mb) | dict(number=mb.weights.new_tensor(len(mb.weights)))
    def step(self, mb):
        out = super().step(mb)
        out.sums['number'] = ((out.labels>0).sum(1) - self.number).square().sum()
        return out
class Other: pass
'''
CUT = StopAt(5, at_once=True) # In the middle of an interval
FEW = dict(save_checkpoints_steps=4, num_warmup_steps=1, num_eval_steps=1, iterations_per_loop=2)

@pytest.fixture(scope='module')
def mine(tmp_path_factory):
    path = tmp_path_factory.mktemp('mine')/'mine.py'
    path.write_text(MINE)
    return path

def run(out, mine, cbs=(), **kw):
    hp = preset('tiny', num_train_steps=8, **FEW | kw)
    return run_pretraining(None, out, hp, device='cpu', cbs=cbs, objective=load_objective(f'{mine}:Counted'))

def test_a_run_of_ones_own_objective(tmp_path, mine):
    "Interrupted it goes on to the same weights; its loss learns, is in the history, and is evaluated"
    whole = run(tmp_path/'whole', mine)
    with pytest.raises(KeyboardInterrupt): run(tmp_path/'run', mine, [CUT])
    learn = run(tmp_path/'run', mine)
    same_weights(whole.model, learn.model)
    assert learn.model.number.item()!=0
    rows = [json.loads(o) for o in (tmp_path/'run/history.jsonl').read_text().splitlines()]
    assert all('number_loss' in o for o in rows if 'loss' in o) and 'number_loss' in learn.recorder.metric_names
    again = electra_evaluate(run=tmp_path/'run', objective=f'{mine}:Counted', device='cpu')
    assert again['number_loss']==pytest.approx(learn.held_out['number_loss'], rel=1e-4)
    back = load_networks(tmp_path/'run', learn.hp, type(learn.model))
    same_weights(learn.model, back)
    assert AutoModel.from_pretrained(tmp_path/'run/discriminator').config.model_type=='electra'

def test_parts_of_a_batch_count_for_ones_own_loss(tmp_path, mine):
    a, b = (run(tmp_path/str(n), mine, grad_accumulation=n) for n in (1, 4))
    for (n,p),q in zip(a.model.named_parameters(), b.model.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-3, atol=1e-4, msg=n)

IDLE = """
from electra_nbdev.method.discriminator import corrupt, disc_labels, disc_nll, is_replaced
from electra_nbdev.pretrain import ReplacedTokenDetection, StepOutput
class Idle(ReplacedTokenDetection):
    "Words of other examples take the place of the generator's"
    weights = dict(disc=1.)
    def step(self, mb):
        fake = corrupt(mb, mb.targets.roll(1, 0))
        labels = disc_labels(is_replaced(mb, fake), mb.attention_mask)
        logits = self.token_logits(fake, mb.attention_mask, mb.token_type_ids)
        return StepOutput(logits=logits, labels=labels, sums=dict(disc=disc_nll(logits, labels).sum()))
    def counts(self, mb): return dict(disc=super().counts(mb)['disc'])
"""

def test_a_generator_that_a_step_ignores_is_neither_saved_nor_quoted(tmp_path, capsys):
    "Nor while the run goes on; the run opens as it was"
    (tmp_path/'idle.py').write_text(IDLE)
    def run(*cbs):
        return run_pretraining(None, tmp_path/'run', preset('tiny', num_train_steps=8, **FEW), device='cpu', cbs=cbs,
                               objective=load_objective(f'{tmp_path}/idle.py:Idle'))
    with pytest.raises(KeyboardInterrupt): run(CUT)
    assert load_scorer(tmp_path/'run', device='cpu').generator is None
    learn = run()
    assert 'The generator was not trained, so it is not saved' in capsys.readouterr().out
    assert not (tmp_path/'run/generator').exists()
    scorer = load_scorer(tmp_path/'run', device='cpu')
    assert scorer.generator is None and 'generator would write' not in str(scorer('a captain steered the ship'))
    with pytest.raises(InputError, match='no generator that was trained'): load_likelihood(tmp_path/'run', device='cpu')
    same_weights(learn.model, load_networks(tmp_path/'run', learn.hp, type(learn.model)))
    was = {o: o.read_bytes() for o in (tmp_path/'run').rglob('*') if o.is_file()}
    run()
    assert was=={o: o.read_bytes() for o in (tmp_path/'run').rglob('*') if o.is_file()}
    assert load_objective(f'{tmp_path}/idle.py:Idle') and learn.held_out['disc_auc']>0

def test_a_generator_that_is_lost_is_missed(tmp_path, mine):
    learn = run(tmp_path/'run', mine)
    shutil.rmtree(tmp_path/'run/generator')
    with pytest.raises(InputError, match='no folder `generator`'):
        load_networks(tmp_path/'run', learn.hp, type(learn.model))

def test_a_run_is_opened_with_its_objective_alone(tmp_path, mine):
    run(tmp_path/'run', mine)
    how = dict(preset='tiny', steps=8, hparams=json.dumps(FEW), device='cpu')
    with pytest.raises(InputError, match='`objective` FILE:Counted'): electra_pretrain(out=tmp_path/'run', **how)
    with pytest.raises(InputError, match='`objective` FILE:Counted'): electra_evaluate(run=tmp_path/'run', device='cpu')
    electra_pretrain(out=tmp_path/'plain', **how)
    with pytest.raises(InputError, match='the objective of its recipe, not with Counted'):
        electra_pretrain(out=tmp_path/'plain', objective=f'{mine}:Counted', **how)

class Pairs(MaskedLanguageModel):
    "A loss that compares the examples of a batch"
    weights = dict(gen=1., pairs=1.)
    def step(self, mb):
        out, x = super().step(mb), self.generator.get_input_embeddings()(mb.input_ids).mean(1)
        others, first = self.gather(x)
        out.sums['pairs'] = (x@others.T).logsumexp(1).sum()
        return out
    def counts(self, mb): return super().counts(mb) | dict(pairs=mb.weights.new_tensor(len(mb.weights)))

def test_a_line_says_where_accumulation_changes_a_loss(made):
    d, hp = made
    for parts in (1, 2):
        hp = replace(hp, electra_objective=False, unigram_noise=0., grad_accumulation=parts)
        dls = pretrain_dls(*open_examples(d/'examples', hp), hp, 'cpu')
        learn = electra_learner(dls, hp, objective=Pairs)
        told = pytest.warns(UserWarning, match='an update has 2 batches') if parts==2 else nullcontext()
        with told, learn.no_bar(), learn.no_logging(): learn.fit_steps(1)

def test_arguments_stand_beside_those_of_the_base_and_the_recipe_counts(tmp_path, capsys):
    own = MINE.replace('    columns =', '    arguments = dict(disc_weight=1., order=3)\n    columns =')
    (tmp_path/'mine.py').write_text(own)
    learn = run(tmp_path/'run', tmp_path/'mine.py')
    others = dict(disc_weight=20., unigram_noise=.5, order=3)
    assert learn.model.config.arguments==ReplacedTokenDetection.arguments | others
    said = [o for o in capsys.readouterr().out.splitlines() if o.startswith('NOTE: disc_weight')]
    assert said==["NOTE: disc_weight is 20.0, as the recipe says, and not 1.0 as in Counted; "
                  "the hparam disc_weight sets it"]

def test_a_class_that_has_changed_since_a_run_began_is_said(tmp_path, mine, capsys):
    with pytest.raises(KeyboardInterrupt): run(tmp_path/'run', mine, [CUT])
    (tmp_path/'mine.py').write_text(MINE.replace('number=.1', 'number=.2'))
    run(tmp_path/'run', tmp_path/'mine.py')
    assert 'the class Counted has changed since the run began' in capsys.readouterr().out

def test_an_objective_without_a_generator_has_the_metrics_of_its_discriminator():
    "And what a class lacks is one line"
    class Other(Objective):
        weights = dict(disc=1.)
        def step(self, mb):
            fake = corrupt(mb, mb.targets.roll(1, 0))
            labels = disc_labels(is_replaced(mb, fake), mb.attention_mask)
            logits = self.token_logits(fake, mb.attention_mask, mb.token_type_ids)
            return StepOutput(logits=logits, labels=labels, sums=dict(disc=disc_nll(logits, labels).sum()))
    hp = preset('tiny', uniform_generator=True, num_train_steps=1, num_eval_steps=1)
    dls = pretrain_dls(*open_examples(None, hp), hp, 'cpu')
    model = build_networks(hp, Other)
    with pytest.raises(InputError, match=r'Other has no `counts\(mb\)`'): model(**batch())
    Other.counts = lambda self, mb: dict(disc=mb.input_ids.ne(SPECIAL_IDS.pad).sum())
    learn = electra_learner(dls, hp, model)
    with learn.no_bar(), learn.no_logging(): learn.validate()
    assert .3<learn.held_out['disc_auc']<.7 and .3<learn.held_out['auc_unigram']<.7 and learn.held_out['disc_loss']>0
    assert 'gen_loss' not in learn.held_out
    with pytest.raises(InputError, match='Other returns no `prediction`'): learn.show_results()

def test_an_objective_that_was_read_back_keeps_its_counts(tmp_path):
    objective('unigram noise').save_pretrained(tmp_path)
    back = ReplacedTokenDetection.from_pretrained(tmp_path)
    assert torch.equal(give_counts(back, None, SPECIAL_IDS).unigram_probs, objective('unigram noise').unigram_probs)

@pytest.mark.parametrize('where,words', [('mine.py', 'a file and a class'), ('none.py:A', 'there is no file'),
    ('mine.py:Countd', 'Did you mean `Counted`'), ('mine.py:Other', 'has no objective Other')])
def test_a_wrong_objective_is_refused(mine, where, words):
    with pytest.raises(InputError, match=words): load_objective(str(mine.parent/where))

def test_the_kept_network_is_fine_tuned(tmp_path, mine):
    run(tmp_path/'run', mine)
    rows = ''.join(f'{"the captain" if i%2 else "a storm"}\t{i%2}\n' for i in range(32))
    for o in ('train', 'dev'): (tmp_path/f'{o}.tsv').write_text('text\tlabel\n'+rows)
    electra_finetune(model=str(tmp_path/'run'), csv=str(tmp_path/'train.tsv'), dev=str(tmp_path/'dev.tsv'), trials=1,
                     text_column='text', label_column='label', out=str(tmp_path/'task'), device='cpu')
    assert (tmp_path/'task/results.json').is_file()

@pytest.mark.parametrize('source,message', [
    ('def (', 'cannot be run (SyntaxError'), ('import nothing_here', 'cannot be run (ModuleNotFoundError'),
    ('class Mine: pass', 'has no objective Mine; it has none')])
def test_a_file_that_cannot_be_used_is_one_line(source, message, tmp_path):
    (tmp_path/'mine.py').write_text(source)
    with pytest.raises(InputError) as e: load_objective(f'{tmp_path}/mine.py:Mine')
    assert message in str(e.value) and '\n' not in str(e.value)

def test_a_file_imports_its_neighbours_and_dataclasses(tmp_path):
    (tmp_path/'neighbour_of_mine.py').write_text('WEIGHT = 3.')
    (tmp_path/'mine.py').write_text('from __future__ import annotations\nfrom dataclasses import dataclass\n'
                                    'from electra_nbdev.pretrain import MaskedLanguageModel\n'
                                    'from neighbour_of_mine import WEIGHT\n'
                                    '@dataclass\nclass Facts: n: int = 1\n'
                                    'class Mine(MaskedLanguageModel): arguments = dict(gen_weight=WEIGHT)\n')
    assert load_objective(f'{tmp_path}/mine.py:Mine').arguments==dict(gen_weight=3.)

def test_losses_have_the_same_names_everywhere():
    class Forgetful(ReplacedTokenDetection):
        def step(self, mb):
            out = super().step(mb)
            out.sums['more'] = out.sums['disc']
            return out
    model = build_networks(preset('tiny', **SMALL), Forgetful).train()
    told = r"losses differ: weights \['gen', 'disc'\], step \['gen', 'disc', 'more'\], counts"
    with pytest.raises(InputError, match=told): model(**batch())

def test_some_examples_keep_their_places_over_passes():
    "A DataLoader that knows the pass goes on where the last one ended"
    examples = load_examples(sample_examples(preset('tiny'))[1])
    rows = NumberedExamples(examples, 6)
    with pytest.raises(InputError, match='there are'): NumberedExamples(examples, len(examples)+1)
    assert len(rows)==6 and [o['place'] for o in rows]==[*range(6)]
    assert rows[-1]['place']==5 and torch.equal(rows[-1]['input_ids'], rows[5]['input_ids'])
    with pytest.raises(IndexError): rows[6]
    rows.set_epoch(2)
    assert [o['place'] for o in rows]==[*range(12, 18)]

def test_word_embeddings_of_an_objective():
    "Those of the discriminator; they are resized before an objective ties them"
    for variant in ('tied', 'BERT', 'Electric'):
        model = objective(variant)
        assert model.get_input_embeddings() is (model.discriminator or model.generator).get_input_embeddings()
        with pytest.raises(InputError, match='of each network before'): model.resize_token_embeddings(70)

def test_a_recipe_asks_for_corrections(capsys):
    "Its third loss is trained and told; no name of the class is one that fastai's callbacks use"
    hp = preset('tiny', num_train_steps=2, num_warmup_steps=1, save_checkpoints_steps=2, corrective_weight=1.)
    learn = electra_learner(pretrain_dls(*open_examples(None, hp), hp, 'cpu'), hp)
    with learn.no_bar(): learn.fit_steps()
    said = capsys.readouterr().out
    assert type(learn.model) is CorrectiveLM and learn.model.corrective_bias.abs().max()>0
    assert 'corrective_loss' in said and 'shadowing' not in said
    assert learn.held_out.keys()<=MEANINGS.keys() # `electra_evaluate` says what each is
    assert not preset('modern', electra_objective=False).corrective_weight and preset('modern').corrective_weight==1
    with pytest.raises(InputError, match='`corrective_weight` is about a discriminator of replaced tokens'):
        preset('tiny', electra_objective=False, corrective_weight=1.)
