"Muon of `ladder.py`, the mistakes of `wrong_sentences.py` and the pairs of `supplement.py`, all of `benchmarks/`"
import re

import pytest
import torch

import ladder
import supplement
import wrong_sentences
from electra_nbdev.method.optimizer import electra_optimizer, param_groups
from electra_nbdev.networks.build import build_networks
from electra_nbdev.networks.recipe import preset
from electra_nbdev.scoring.score_files import read_pairs
from make import SMALL

@pytest.mark.parametrize('shape', [(3, 8, 8), (2, 24, 8), (2, 8, 24)])
def test_directions_have_equal_size(shape):
    found = torch.linalg.svdvals(ladder.orthogonal(torch.randn(shape, generator=torch.Generator().manual_seed(0))))
    assert ((found>.6) & (found<1.3)).all()

def test_muon_moves_the_matrices_of_layers_and_adam_the_rest():
    def updated(opt_func):
        torch.manual_seed(0)
        model = build_networks(preset('tiny', **SMALL))
        before = {k: p.detach().clone() for k,p in model.named_parameters()}
        for p in model.parameters(): p.grad = torch.randn(p.shape)
        opt = opt_func(param_groups(model), 1e-2, 0.)
        opt.step()
        return {k: p.detach()-before[k] for k,p in model.named_parameters()}
    muon, adam = updated(ladder.muon_optimizer), updated(electra_optimizer)
    layers = {k for k,p in muon.items() if '.layer.' in k and p.ndim==2}
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
