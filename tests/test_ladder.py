"What `ladder.py` changes, the mistakes of `wrong_sentences.py` and the pairs of `supplement.py`, all of `benchmarks/`"
import re
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from fastai.callback.core import Callback

import changes
import ladder
import supplement
import time_to_quality
import wrong_sentences
from electra_nbdev.method.discriminator import disc_nll
from electra_nbdev.method.masking import MaskedBatch
from electra_nbdev.method.optimizer import electra_optimizer, param_groups
from electra_nbdev.networks.build import build_networks
from electra_nbdev.networks.recipe import differences, preset
from electra_nbdev.pretrain import electra_learner, open_examples, pretrain_dls
from electra_nbdev.scoring.score_files import read_pairs
from learners import moved, quiet, weights
from make import SMALL, made

@pytest.mark.parametrize('shape', [(3, 8, 8), (2, 24, 8), (2, 8, 24)])
def test_directions_have_equal_size(shape):
    found = torch.linalg.svdvals(changes.orthogonal(torch.randn(shape, generator=torch.Generator().manual_seed(0))))
    assert ((found>.6) & (found<1.3)).all()

@pytest.mark.parametrize('name', ['tiny', 'modern'])
def test_muon_moves_the_matrices_of_layers_and_adam_the_rest(name):
    def updated(opt_func):
        torch.manual_seed(0)
        model = build_networks(preset(name, **SMALL))
        before = {k: p.detach().clone() for k,p in model.named_parameters()}
        for p in model.parameters(): p.grad = torch.randn(p.shape)
        opt = opt_func(param_groups(model), 1e-2, 0.)
        opt.step()
        return {k: p.detach()-before[k] for k,p in model.named_parameters()}
    muon, adam = updated(changes.muon_optimizer), updated(electra_optimizer)
    layers = {k for k,p in muon.items() if re.search(r'\.layers?\.', k) and p.ndim==2}
    assert layers and all(torch.equal(muon[k], adam[k])==(k not in layers) for k in muon)
    for k in layers: # about the rate times 0.2 for each number, as Adam's updates are
        assert 1e-3<muon[k].square().mean().sqrt()<3e-3, k

TEXT = ['She has gone to the old house.', 'They were not at home last night.', 'He will go to the town again.',
        'We have seen the small boat at night.']

@pytest.mark.parametrize('kind,wrong', [('agreement', {'have', 'was', 'has'}), ('verb form', {'went', 'saw'})])
def test_a_verb_is_made_wrong_where_it_is_said(kind, wrong):
    for text,at in wrong_sentences.wrong_sentences(TEXT, kind, 9):
        assert text not in TEXT and text[at:].split()[0] in wrong

def test_one_word_gives_way_to_another_as_frequent():
    known = [f'The {a} saw the {b} again.' for a,b in zip(('dog', 'cat', 'cow'), ('man', 'boy', 'girl'))]*2
    made = list(wrong_sentences.wrong_sentences(known, 'exchanged word', 9))
    assert made and not {text for text,_ in made} & {*known}
    for text,at in made:
        changed = [sum(a!=b for a,b in zip(text.split(), o.split())) for o in known]
        assert 1 in changed and any(o[:at]==text[:at] for o,n in zip(known, changed) if n==1)

def test_two_words_change_places():
    def words(o): return re.findall(r'\w+', o)
    for text,at in wrong_sentences.wrong_sentences(TEXT, 'word order', 9):
        assert any(sorted(words(text))==sorted(words(o)) and text!=o and text[:at]==o[:at] for o in TEXT)

def test_pairs_of_a_supplement(tmp_path):
    "Two hundred different ones of each kind, which differ after what both share, as the command for pairs reads them"
    found = read_pairs(supplement.write(tmp_path))
    assert {o: sum(p['set']==o for p in found) for o in supplement.SETS}=={o: supplement.N for o in supplement.SETS}
    assert len({(p['good'], p['bad']) for p in found})==len(found)==1000
    for p in found:
        question = re.match('.*\\?(?= )', p['good'])
        if question: assert p['bad'].startswith(question[0]) and p['good']!=p['bad']

def test_the_supplement_is_not_told_by_the_frequency_of_words():
    "Where each kind of answer is right as often as wrong; the tricky answers are tricky by what follows a verb"
    for name,rule in supplement.SETS.items():
        if name=='qa_congruence_tricky': continue
        right, wrong = (Counter(w for texts in {*rule()} for w in texts[i].lower().split()) for i in (0, 1))
        assert right==wrong, (name, right-wrong)

def trained(made, steps=8, cbs=(), objective=None, **recipe):
    "A learner of the ladder on invented examples, trained; weights before, rows of each batch, weights after each"
    folder, hp = made
    hp = replace(hp, num_train_steps=steps, num_warmup_steps=1, save_checkpoints_steps=2, unigram_noise=0., **recipe)
    class Watch(Callback):
        order = 90
        def before_fit(self): self.rows, self.after = [], []
        def before_batch(self):
            if self.training: self.rows.append(len(self.learn.xb[0]))
        def after_batch(self):
            if self.training: self.after.append(weights(self.learn))
    dls = pretrain_dls(*open_examples(folder/'examples', hp), hp, 'cpu')
    learn = electra_learner(dls, hp, cbs=[*cbs, watch := Watch()], objective=objective)
    before = weights(learn)
    quiet(learn).fit_steps()
    return learn, before, watch

def test_a_generator_learns_alone_and_stays_afterwards(made):
    def which(objective):
        learn, before, _ = trained(made, objective=objective, untied_generator_embeddings=True)
        return {k.split('.')[0] for k in moved(learn, before)}
    assert which(changes.GeneratorAlone)=={'generator'}
    assert which(changes.FixedGenerator)=={'discriminator'}

def test_a_loss_at_masked_positions_leaves_the_other_tokens_alone():
    "Padding among the predictions stands at place 0, with a weight of 0"
    nets = [build_networks(preset('tiny', **SMALL), o).eval() for o in (None, changes.MaskedAlone)]
    ids = torch.randint(5, 60, (2, 8), generator=torch.Generator().manual_seed(0))
    positions, weights_ = torch.tensor([[2, 5], [3, 0]]), torch.tensor([[1., 1], [1, 0]])
    u = torch.tensor([[.3, .9], [.2, .7]])
    mb = MaskedBatch(ids, None, ids*0, ids.scatter(1, positions[:,:1], 4), positions, ids.gather(1, positions),
                     weights_, u=u)
    plain, masked = (o.step(mb) for o in nets)
    each = disc_nll(plain.logits, plain.labels)
    assert masked.sums['disc'].item()==pytest.approx((each[0,2]+each[0,5]+each[1,3]).item(), rel=1e-5)
    assert [o.counts(mb)['disc'].item() for o in nets]==[16, 3]

def test_a_batch_grows_and_has_its_mean_size(made):
    _, _, watch = trained(made, cbs=[changes.GrowingBatch()])
    assert watch.rows==[4]*4+[12]*4

def test_a_batch_that_grows_is_counted_at_its_mean_size(made):
    folder, hp = made
    args = SimpleNamespace(data=folder/'examples', device='cpu')
    plain, grows = (ladder.operations_of(hp, args, o) for o in ({}, dict(cbs=[changes.GrowingBatch()])))
    assert grows==plain>0

def test_the_last_weights_are_averaged(made):
    learn, _, watch = trained(made, 10, cbs=[changes.AverageWeights(.3)])
    for k,p in learn.model.named_parameters():
        torch.testing.assert_close(p.detach(), sum(o[k] for o in watch.after[-3:])/3)

def test_stages_share_the_schedule_of_lengths():
    stages = list(ladder.stages_of('RTD', 'MLM first, 40 %', None))
    parts = [[n, share*part] for share,hp,_ in stages for n,part in hp['length_schedule']]
    assert [n for n,_ in parts]==[n for n,_ in ladder.LENGTHS['length_schedule']]
    assert [p for _,p in parts]==pytest.approx([p for _,p in ladder.LENGTHS['length_schedule']])
    assert [hp.get('electra_objective', True) for _,hp,_ in stages]==[False, True]

def test_the_preset_modern_is_the_row_that_was_measured():
    (_, row, _), = ladder.stages_of('RTD', 'ModernBERT body, corrective', None)
    measured, own = preset('tiny', **row), preset('modern', **{k: v for k,v in row.items() if k!='body'})
    differing = {*differences(measured, own)} # of positions and dropout, which this body has not
    assert differing=={'body', 'model_hparam_overrides', 'copy_positions'}
    a, b = (build_networks(o) for o in (measured, own))
    ids = torch.arange(5, 25)[None]
    assert torch.equal(a.text_logits(ids, None, ids*0), b.text_logits(ids, None, ids*0))

def test_a_generator_sees_all_lengths_before_it_is_fixed():
    (share, first, _), (_, then, _) = ladder.stages_of('RTD', 'fixed generator of all lengths', None)
    assert share==.25 and first['length_schedule']==ladder.LENGTHS['length_schedule']
    assert then['length_schedule'][0][0]==16 # the rest of the run's own

def test_a_longer_run_begins_with_what_is_best_then():
    first, second = ladder.stages_of('RTD', 'MLM first, 40 %', None, ladder.LONGER)
    assert first[1].items()>=ladder.LONGER['MLM'].items() and first[1]['max_grad_norm'] is None
    assert second[1].items()>=ladder.BASES['RTD'].items() and 'max_grad_norm' not in second[1]

def test_the_encoder_of_a_masked_language_model_becomes_the_discriminators():
    before = build_networks(preset('tiny', **SMALL, electra_objective=False, seed=1))
    model = build_networks(preset('tiny', **SMALL))
    ladder.take(model, before)
    for k,p in before.generator.electra.named_parameters():
        assert torch.equal(model.discriminator.electra.get_parameter(k), p), k
    shared = build_networks(preset('tiny', **SMALL, untied_generator=False))
    ladder.take(shared, before)
    for k,p in before.generator.named_parameters(): assert torch.equal(shared.generator.get_parameter(k), p), k

def test_the_least_run_that_reaches_the_plain_loop(capsys):
    def row(side, flops, seconds, chunk, bits):
        return dict(side=side, part=1., seed=0, steps=1, flops=flops, seconds=seconds, chunk=chunk, bits=bits)
    rows = [row('run_mlm', 1e14, 90, 70., 2.), row('ELECTRA', 4e12, 12, 69., 2.5), row('ELECTRA', 8e12, 20, 71., 2.4),
            row('ELECTRA', 2e13, 40, 80., 2.3), row('MLM', 2e13, 40, 69., 1.9)]
    time_to_quality.report(dict(prepared=dict(ours=5, run_mlm=10), runs=rows))
    assert [o.split('loop: ')[1] for o in capsys.readouterr().out.splitlines() if 'loop: ' in o]==[
        '0.250 of its minutes, 0.080 of its operations', 'not reached',
        'not reached', '0.450 of its minutes, 0.200 of its operations']
