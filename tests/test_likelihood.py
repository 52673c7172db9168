"Likelihoods: the commands as a user types them, any texts, and what cannot be read"
import json, math, shutil, sys
from dataclasses import replace
from functools import partial
from statistics import fmean
from zlib import crc32

import numpy as np
import pytest
import torch
from fastcore.test import test_close as close
from hypothesis import given, settings, strategies as st

import electra_nbdev.scoring.likelihood as likelihood
import electra_nbdev.scoring.ranking as nbest
from electra_nbdev.engine.checkpoint import save_checkpoint
from electra_nbdev.engine.files import InputError
from electra_nbdev.scoring.likelihood import (Likelihood, energy_scores, load_likelihood, pass_scores,
                                              pseudo_log_likelihood, score_text, tower_scores)
from electra_nbdev.method.masking import Inputs
from electra_nbdev.scoring.ranking import (accuracies, apply_weights, choice_scores, load_chooser, rerank, score_nbest,
                                           score_pairs)
from electra_nbdev.scoring.score import load_scorer
from electra_nbdev.scoring.score_files import (SCORES, NBest, TextFile, read_choices, read_nbest, read_pairs,
                                               read_weights, weights_path)
from electra_nbdev.networks.build import build_networks
from electra_nbdev.networks.recipe import preset
from electra_nbdev.data.tokenizer import save_tokenizer
from terminal import typed
from make import LINES, TOY, WORD_ORDER, electric_runs, pieces, save_run

TOK = pieces(TOY)
@pytest.fixture(scope='module')
def home(tmp_path_factory): return electric_runs(tmp_path_factory.mktemp('user'))

@pytest.mark.parametrize('model', ['electric', 'electric --by towers', 'tt', 'electric/electric'])
def test_lines_of_a_file(home, model):
    "A row for each line, in order, tokens included; without --out the scores are printed"
    line = f'electra_score --text lines.txt --model {model}'
    said, plain = typed(f'{line} --out rows.jsonl', home), typed(line, home)
    assert said.code==plain.code==0 and said.err=='' and said.out=='rows in rows.jsonl\n', said
    rows = [json.loads(o) for o in (home/'rows.jsonl').read_text().splitlines()]
    assert [r['text'] for r in rows]==LINES
    assert [r['score'] is None for r in rows]==[False, True, False, False, True, False]
    for r in rows:
        assert len(r['tokens'])==len(r['scores'])
        if r['scores']: assert r['score']==pytest.approx(sum(r['scores']), abs=1e-4)
    assert [o.split('\t')[1] for o in plain.out.splitlines()]==LINES

@pytest.mark.parametrize('file', ['lists.json', 'scored.jsonl'])
def test_lists(home, file):
    said = typed(f'electra_score --nbest {file} --model electric --out lists.jsonl', home)
    assert said.code==0 and 'first' in said.out and 'oracle' in said.out, said
    rows = [json.loads(o) for o in (home/'lists.jsonl').read_text().splitlines()]
    assert [r['reference'] for r in rows]==[f'the cat sat {i}' for i in range(30)]
    assert all(r['chosen']==r['hypotheses'][r['index']]['text']!='' for r in rows)
    assert 'Re-ranking changes the word error rate by' in said.out
    assert ('has no scores of the ASR system' in said.out)==(file=='lists.json')

def test_references_in_another_form_are_named(tmp_path, capsys):
    "Capitals and punctuation that no hypothesis has count as errors"
    said = 'The cat sat.', 'the cat sat', 'a', 'the cafe\u0301'
    lists = [dict(reference=o, hypotheses=['the hat sat', 'the cat sat', 'the caf\u00e9']) for o in said]
    (tmp_path/'a.json').write_text(json.dumps(lists))
    read_nbest(tmp_path/'a.json')
    assert 'of 4 references 2 differ from a hypothesis in capitals, punctuation or forms' in capsys.readouterr().out

SCRAMBLED = 'dog', 'ship', 'captain', 'storm', 'house', 'river', 'road'

def scrambled(seed, scale, share, log_p):
    "What re-ranking makes of 200 lists, whose first hypothesis is right in a share of them, by likelihoods"
    rng, lists, rows = np.random.default_rng(seed), [], []
    for i in range(200):
        ref = f'the {rng.choice(SCRAMBLED)} and the {rng.choice(SCRAMBLED)} {i}'
        hyps = [ref, f'{ref} the', ref[4:]] if rng.random()<share else [f'{ref} the', ref, ref[4:]]
        lists.append(NBest(ref, hyps, None if scale is None else [scale*-o for o in (1., 1.2, 1.9)]))
        rows.append([dict(score=log_p(rng.normal(), h==ref), tokens=h.split()) for h in hyps])
    return lists, *rerank(lists, rows)

SCALES = pytest.mark.parametrize('scale', [None, 1e-3, 1e3]) # The size of the scores of the ASR system

@SCALES
def test_chance_never_harms(scale):
    "A model whose likelihoods mean nothing: the first hypotheses are kept"
    _, chosen, how, found = scrambled(0, scale, .6, lambda noise, right: -10+8*noise)
    assert set(chosen)=={0} and how==(0., 0.) and found['change'][1]<=0<=found['change'][2]

@SCALES
def test_knowledge_helps(scale):
    "Likelihoods that lower the right one by less than noise"
    lists, chosen, how, found = scrambled(1, scale, .5, lambda noise, right: -30+6*right+noise)
    assert how[0]>0 and found['change'][2]<0 and sum(l.hypotheses[i]==l.reference for l,i in zip(lists, chosen))>150

def test_pairs(home, model):
    "Both scores, what they decide, and the accuracies: of a pair and the same pair reversed one is right"
    said = typed('electra_score --pairs pairs --model electric --out pairs.jsonl', home)
    rows = [json.loads(o) for o in (home/'pairs.jsonl').read_text().splitlines()]
    score = {o: likelihood.pseudo_log_likelihood(model, [o])[0]['score'] for o in WORD_ORDER['a']}
    assert said.code==0 and len(rows)==10 and abs(score[WORD_ORDER['a'][0]]-score[WORD_ORDER['a'][1]])>.01, said
    for r in rows:
        assert (r['good'], r['bad'])==WORD_ORDER[r['set']] and r['right']==(score[r['good']]>score[r['bad']])
        assert [r['good_score'], r['bad_score']]==pytest.approx([score[r['good']], score[r['bad']]], abs=1e-4)
    shown = dict(o.rsplit(None, 4)[::2][:2] for o in said.out.splitlines()[2:5])
    want = {f'order {k}': '100.0' if score[g]>score[b] else '0.0' for k,(g,b) in WORD_ORDER.items()}
    assert shown==want | {'all pairs': '50.0'}

def test_what_stands_beside_choices_stays(tmp_path):
    (tmp_path/'a.jsonl').write_text('{"text": "A ___ .", "choices": ["cat", "sat"], "id": 7}')
    assert read_choices(tmp_path/'a.jsonl')==[dict(text='A ___ .', choices=['cat', 'sat'], id=7, answer=None)]

def test_choices(home):
    "A text from the command line, and a file with answers; by towers here, by the discriminator of an ELECTRA-TT"
    said = typed("electra_score --choices 'the ___ sat.' --candidates cat 'mat the' --model electric", home)
    lines = [o.split('\t') for o in said.out.splitlines()]
    assert said.code==0 and {o for _,o in lines}=={'cat', 'mat the'} and float(lines[0][0])>=float(lines[1][0]), said
    rows = [dict(text='the ___ sat.', choices=['cat', 'mat'], answer=o) for o in ('cat', 'mat')]
    (home/'choices.jsonl').write_text('\n'.join(map(json.dumps, rows)))
    said = typed('electra_score --choices choices.jsonl --model tt --by discriminator --out chosen.jsonl', home)
    assert said.code==0 and '50.0 % right' in said.out and 'of 2 texts' in said.out, said
    assert [json.loads(o)['answer'] for o in (home/'chosen.jsonl').read_text().splitlines()]==['cat', 'mat']

def test_candidates_that_tie_count_as_a_guess(home):
    "Whatever comes first, of unknown words none is right: both are [UNK], which is said"
    rows = [dict(text='the ___ sat.', choices=['東京', '大阪'], answer=o) for o in ('東京', '大阪', 'cat')]
    rows[2]['choices'] = ['cat', '大阪', '東京']
    (home/'unknown.jsonl').write_text('\n'.join(map(json.dumps, rows[:2])))
    said = typed('electra_score --choices unknown.jsonl --model tt --by discriminator', home)
    assert said.code==0 and '50.0 % right' in said.out, said
    assert 'NOTE: in 2 of 2 texts the best candidates tie' in said.out, said.out
    model = load_chooser(home/'tt', 'p-replaced', device='cpu')
    with pytest.warns(UserWarning, match='of the tokens are .UNK.* in the candidates'):
        nbest.rank_choices(model, 'the ___ sat.', rows[0]['choices'])
    toy = [o | dict(scores=s) for o,s in zip(rows, ([-1., -1.], [-1., -1.00005], [-2., -1., -1.]))]
    assert nbest.choice_accuracy(toy)[0]==pytest.approx(100/3)

ODDITIES = ['the', 'Cat', ' ', 'mathematics', '[MASK]', 'é', '.', 'mat ']
ANY = st.one_of(st.text(max_size=20), st.lists(st.sampled_from(ODDITIES), max_size=40).map(''.join))
WORDS = st.lists(st.sampled_from(['the', 'Cat', ' ', 'mathematics', '.', 'mat ']), min_size=1, max_size=40).map(''.join)

@settings(max_examples=60, deadline=None)
@given(st.lists(ANY, max_size=6), st.integers(1, 4))
def test_any_texts(model, texts, bs):
    "Batches change nothing, and every token of every text has a score"
    rows = likelihood.pseudo_log_likelihood(model, texts, bs)
    assert [r['text'] for r in rows]==texts
    for r in rows:
        alone, = likelihood.pseudo_log_likelihood(model, [r['text']])
        assert r['tokens']==alone['tokens'] and len(r['scores'])==len(r['tokens'])
        assert torch.allclose(torch.tensor(r['scores']), torch.tensor(alone['scores']), atol=1e-4)

@settings(max_examples=60, deadline=None)
@given(WORDS, st.integers(4, 16))
def test_scores_stand_at_their_tokens(model, text, length):
    "A network whose score of a token is its number, so that a score at another token's place shows"
    known = likelihood.Likelihood(lambda ids, mask: ids.float(), model.tokenizer, length)
    row, = likelihood.pseudo_log_likelihood(known, [text])
    assert row['scores']==model.tokenizer.convert_tokens_to_ids(row['tokens'])

@pytest.fixture(scope='module')
def model(home): return likelihood.load_likelihood(home/'electric', device='cpu')

# Networks with random weights: every number from its definition, one sequence and one token after the other

IDS = torch.tensor([[2, 5, 6, 7, 8, 9, 3], [2, 5, 12, 3, 0, 0, 0]])
REAL = IDS>0
INNER = torch.tensor([[0, 1, 1, 1, 1, 1, 0], [0, 1, 1, 0, 0, 0, 0]])>0

@pytest.fixture(scope='module')
def nets():
    "{name: (recipe, network)}"
    towers = preset('tiny', vocab_size=len(TOK), max_seq_length=16, length_schedule=(), two_tower_generator=True)
    hps = {'Electric': replace(towers, electra_objective=False, electric_objective=True), 'ELECTRA-TT': towers}
    return {k: (o, build_networks(o).eval().requires_grad_(False)) for k,o in hps.items()}

@pytest.fixture(scope='module')
def mlm(): return build_networks(preset('tiny', vocab_size=len(TOK))).generator.eval().requires_grad_(False)

def test_passes_mask_one_token_at_a_time(mlm):
    def plainly(row, t):
        hidden = row.clone()
        hidden[t] = TOK.mask_token_id
        return mlm(hidden[None]).logits[0,t].log_softmax(-1)[row[t]]
    want = torch.stack([plainly(r[m], t) for r,m in zip(IDS, REAL) for t in range(1, m.sum()-1)])
    found = pass_scores(mlm, TOK.mask_token_id, IDS, REAL, bs=3)
    close(found[INNER], want, 1e-5)
    assert not found[~INNER].any()
    close(pass_scores(mlm, TOK.mask_token_id, IDS[:1], None)[0,1:-1], want[:5], 1e-5)

@pytest.mark.parametrize('name', ['Electric', 'ELECTRA-TT'])
def test_towers_and_energies(name, nets):
    m, q, logit = nets[name][1], [], []
    for r,n in zip(IDS, REAL.sum(1)): # each sequence without its padding
        row, segments = r[None,:n], torch.zeros(1, n, dtype=torch.long)
        x = m.generator.generator_predictions(m.generator.bidirectional_states(Inputs(row, None, segments)))
        q.append(m.generator.generator_lm_head(x).log_softmax(-1)[0].gather(1, r[:n,None])[1:-1,0])
        logit.append(m.discriminator(row).logits[0,1:-1])
    q, logit = torch.cat(q), torch.cat(logit)
    close(tower_scores(m, IDS, REAL)[INNER], q, 1e-5)
    rate, want = (None, -logit) if name=='Electric' else (.3, q+math.log(.3/.7)-logit)
    close(energy_scores(m, IDS, REAL, rate)[INNER], want, 1e-5)

def mat(net):
    "Scores of the tokens of `The mat.`"
    return -net.discriminator(torch.tensor([[2, 5, 9, 14, 3]])).logits[0,1:-1]

def test_texts_come_back_in_order(nets):
    net = nets['Electric'][1]
    model = Likelihood(partial(energy_scores, net), TOK, 8)
    three = 'The cat loves mathematics. The cat sat on the mat. The cat loves the mat.'
    texts = ['The cat sat on the mat.', '', three, 'The mat.', ' ']
    rows = pseudo_log_likelihood(model, texts, bs=2)
    alone = [pseudo_log_likelihood(model, [o])[0] for o in texts]
    assert [r['text'] for r in rows]==texts and rows[1]['score'] is rows[4]['score'] is None
    for a,b in zip(rows, alone): close(a['scores'], b['scores'], 1e-5)
    close(torch.tensor(rows[3]['scores']), mat(net), 1e-5)
    close(rows[3]['score'], mat(net).sum(), 1e-5)
    first, = pseudo_log_likelihood(model, ['The cat loves mathematics. The'])
    close(rows[2]['scores'][:3], first['scores'][:3], 1e-5)

def test_unknown_words_give_a_warning(nets):
    model = Likelihood(partial(energy_scores, nets['Electric'][1]), TOK, 8)
    with pytest.warns(UserWarning, match='of the tokens are .UNK.*Leave such words out'):
        pseudo_log_likelihood(model, ['ein Hund, eine Katze'])

@pytest.fixture(scope='module')
def folders(nets, mlm, tmp_path_factory):
    "Finished runs, the same in training, a masked language model and an empty folder"
    d = tmp_path_factory.mktemp('opened')
    for k,(hp,o) in nets.items():
        save_run(d/k, o, hp, TOK)
        (d/'busy'/k).mkdir(parents=True)
        shutil.copy(d/k/'hparams.json', d/'busy'/k)
        save_checkpoint(d/'busy'/k, 30, {f'model/{n}': p for n,p in o.named_parameters()}, dict(step=30))
    save_tokenizer(TOK, d/'vocab')
    mlm.save_pretrained(d/'mlm')
    TOK.save_pretrained(d/'mlm')
    (d/'empty').mkdir()
    return d

@pytest.mark.parametrize('by', ['energies', 'towers'])
@pytest.mark.parametrize('name', ['Electric', 'ELECTRA-TT', 'busy/Electric'])
def test_what_a_folder_gives(name, by, folders, nets):
    opened = load_likelihood(folders/name, by, folders/'vocab', 'cpu')
    m, rate = nets[name.removeprefix('busy/')][1], .3 if name=='ELECTRA-TT' else None
    want = tower_scores(m, IDS, REAL) if by=='towers' else energy_scores(m, IDS, REAL, rate)
    close(opened.scores(IDS, REAL), want, 1e-5)
    assert opened.max_length==16

@pytest.mark.parametrize('name,by', [('Electric', 'towers'), ('ELECTRA-TT', 'towers'), ('mlm', 'pll')])
def test_the_better_way_is_the_default(name, by, folders):
    "Towers, which `benchmarks/results/electric.json` has ahead of energies in every kind of use"
    opened = load_likelihood(folders/name, device='cpu')
    close(opened.scores(IDS, REAL), load_likelihood(folders/name, by, device='cpu').scores(IDS, REAL), 1e-6)
    assert opened.by==by

def test_a_masked_language_model(folders, mlm):
    opened = load_likelihood(folders/'mlm', device='cpu')
    close(opened.scores(IDS, REAL), pass_scores(mlm, TOK.mask_token_id, IDS, REAL), 1e-5)
    assert opened.max_length==mlm.config.max_position_embeddings

@pytest.mark.parametrize('by', [None, 'pll', 'generator'])
def test_a_masked_language_model_ranks_candidates(by, folders, mlm):
    "By a pass for each token, or by one pass with all of them masked"
    chooser = load_chooser(folders/'mlm', by, device='cpu')
    masked = torch.tensor([[2, 5, 4, 14, 3], [2, 5, 4, 12, 3], [2, 5, 11, 4, 3], [2, 5, 4, 4, 3]]) # [MASK] is 4
    log_p = mlm(masked).logits.log_softmax(-1)
    of_two = (log_p[1,2,11]+log_p[2,3,12])/2 if chooser.by=='pll' else (log_p[3,2,11]+log_p[3,3,12])/2
    found = choice_scores(chooser, [('The ___.', 'mat'), ('The ___', 'mathematics')])
    close(found, [log_p[0,2,9].item(), of_two.item()], 1e-5)
    assert chooser.by==(by or 'generator') and choice_scores(chooser, [])==[]

@pytest.mark.parametrize('name,by,match', [('Electric', 'generator', 'allowed: towers, energies'),
                                           ('mlm', 'towers', 'allowed: generator, pll'),
                                           ('causal', None, 'from left to right')])
def test_ways_to_rank_that_a_model_does_not_have(name, by, match, folders):
    (folders/'causal').mkdir(exist_ok=True)
    (folders/'causal/config.json').write_text('{"architectures": ["GPT2LMHeadModel"]}')
    with pytest.raises(InputError, match=match): load_chooser(folders/name, by, device='cpu')

def test_a_model_of_likelihoods_alone(folders, nets):
    want = tower_scores(nets['Electric'][1], torch.tensor([[2, 5, 9, 14, 3]]), None)[0,1:-1].sum()
    found, = pseudo_log_likelihood(load_likelihood(folders/'Electric', device='cpu'), ['The mat.'])
    close(found['score'], want, 1e-5)
    with pytest.raises(InputError, match='for likelihoods'): load_scorer(folders/'Electric', device='cpu')

@pytest.mark.parametrize('name,by,match', [('Electric', 'pll', 'allowed: towers, energies'),
                                           ('mlm', 'energies', 'allowed: pll, word-l2r'),
                                           ('empty', None, 'holds no model')])
def test_folders_without_the_likelihood(name, by, match, folders):
    with pytest.raises(InputError, match=match): load_likelihood(folders/name, by)

# A toy that knows some pairs of neighbours

@pytest.fixture(scope='module')
def toy():
    known = torch.zeros(len(TOK), len(TOK), dtype=torch.bool)
    for line in ('[CLS] the cat sat on the mat . the cat sat on the floor .', '[CLS] the cat loves mathema ##tics .'):
        ids = TOK.convert_tokens_to_ids(line.split())
        known[ids[:-1], ids[1:]] = True
    return Likelihood(lambda ids, mask: torch.where(known[ids.roll(1, 1), ids], -1., -3.), TOK, 16)

def test_accuracies_of_known_pairs(toy, tmp_path):
    lines = [dict(sentence_good='The cat sat.', sentence_bad='The sat cat.', linguistics_term='order'),
             dict(sentence_good='The mat.', sentence_bad='The mat.', linguistics_term='none')]
    (tmp_path/'a.jsonl').write_text('\n'.join(map(json.dumps, lines)))
    rows = score_pairs(toy, read_pairs(tmp_path))
    assert [(r['good_score'], r['bad_score'], r['right']) for r in rows]==[(-6., -10., True), (-3., -3., False)]
    found = accuracies(rows)
    assert found.accuracy.tolist()==[50, 100, 75, 75] and found.pairs['all pairs']==2 # a tie is half right
    close(found.low.tolist()[:3], [5.5, 20.7, 19.8], .1) # Wilson: (k + z²/2 ∓ z√(k(n-k)/n + z²/4))/(n+z²)

REF, NEAR, FAR = 'the cat sat on the mat', 'the cat mat on the mat', 'the cat sat'

def toy_lists(scores): return [NBest(f'{REF} {i}', [f'{o} {i}' for o in (NEAR, REF, FAR)], scores) for i in range(20)]

@pytest.fixture(scope='module')
def likelihoods(toy):
    "Rows of the hypotheses of `toy_lists`"
    return [pseudo_log_likelihood(toy, [h.rsplit(' ', 1)[0] for h in o.hypotheses]) for o in toy_lists(None)]

def test_the_right_hypothesis_wins(likelihoods):
    "Whatever the size of the scores"
    chosen, _, found = rerank(toy_lists([-1., -1.2, -9.]), likelihoods)
    assert set(chosen)=={1} and found['oracle']==found['reranked']==[0., 0., 0.]
    close([found['first'], found['change']], [[100/7]*3, [-100/7]*3])
    for scores in (None, [-.001, -.0012, -.009], [-100., -120., -900.]):
        assert set(rerank(toy_lists(scores), likelihoods)[0])=={1}

def test_a_model_that_prefers_the_wrong_hypothesis_changes_nothing():
    right = [replace(o, hypotheses=o.hypotheses[1::-1]) for o in toy_lists(None)] # already in the best order
    odd = [[dict(score=-9., tokens=[0]), dict(score=-1., tokens=[0])]]*20
    chosen, kept, tried = rerank(right, odd)
    assert (set(chosen), kept, tried['change'])==({0}, (0., 0.), [0., 0., 0.])

def test_what_re_ranking_needs(likelihoods, monkeypatch):
    lists = toy_lists(None)
    with pytest.raises(InputError, match='too few'): rerank(lists[:1], likelihoods[:1])
    monkeypatch.setitem(sys.modules, 'jiwer', None)
    with pytest.raises(InputError, match=r"pip install 'electra_nbdev\[asr\]'"): rerank(lists, likelihoods)

# Files of lists

def written(path, content):
    path.write_text(content if isinstance(content, str) else json.dumps(content, ensure_ascii=False), encoding='utf-8')
    return path

def test_forms_of_lists(tmp_path):
    line = [dict(input=['a b', 'a'], output='a b')]
    assert read_nbest(written(tmp_path/'a.json', line))==[NBest('a b', ['a b', 'a'])]
    line = dict(hypotheses=['a\u2028b', 'a'], reference='a b', score=[1, 2])
    assert read_nbest(written(tmp_path/'a.jsonl', line))==[NBest('a b', ['a\u2028b', 'a'], [1., 2.])]
    table = 'id\treference\thypothesis\tscore\n7\ta b\ta b\t1\n7\ta b\ta\t2\n8\tc\tc\t1\n'
    found = read_nbest(written(tmp_path/'a.tsv', table))
    assert found==[NBest('a b', ['a b', 'a'], [1., 2.], '7'), NBest('c', ['c'], [1.], '8')]

@pytest.mark.parametrize('name', SCORES)
def test_names_of_scores(name, tmp_path):
    table = written(tmp_path/'b.tsv', f'reference\thypothesis\t{name}\na b\ta b\t1\na b\ta\t2\n')
    rows = written(tmp_path/'b.json', [dict(input=['a b', 'a'], output='a b') | {name: [1, 2]}])
    for o in (table, rows): assert read_nbest(o)==[NBest('a b', ['a b', 'a'], [1., 2.])]

def test_lists_of_other_systems(tmp_path):
    "What each of them writes: the same hypotheses, scores and reference"
    texts = [dict(text='a b'), dict(text='a')]
    espnet = [dict(name=f't[{n}]', text='a b', token='x', rec_text=t, score=n)
              for n,t in ((1, '▁a▁b<eos>'), (2, '▁a<eos>'))]
    forms = dict(
        vosk=dict(reference='a b', alternatives=[o | dict(confidence=s) for o,s in zip(texts, (1, 2))]),
        espnet=dict(id='7', output=espnet),
        nemo=dict(audio_filepath='7', duration=1., text='a b', pred_text='a b', beams=[['a b', 1], ['a', 2.]]))
    for name,o in forms.items():
        found, = read_nbest(written(tmp_path/f'{name}.jsonl', o))
        assert replace(found, beside={})==NBest('a b', ['a b', 'a'], [1., 2.], None if name=='vosk' else '7'), name
        assert found.beside==(dict(duration=1., pred_text='a b') if name=='nemo' else {}), name
    utts = dict(utts={k: dict(utt2spk='s', output=espnet) for k in 'xy'})
    found = read_nbest(written(tmp_path/'data.json', utts))
    assert [(o.id, o.beside) for o in found]==[('x', dict(utt2spk='s')), ('y', dict(utt2spk='s'))]
    lines = '\n'.join([json.dumps(forms['nemo'])]*2)
    assert len(read_nbest(written(tmp_path/'manifest.json', lines)))==2
    only = read_nbest(written(tmp_path/'one.json', {k: v for k,v in forms['nemo'].items() if k!='text'}))
    assert only==[NBest(None, ['a b', 'a'], [1., 2.], '7', dict(duration=1., pred_text='a b'))]

def test_a_text_beside_hypotheses_is_no_reference(tmp_path):
    "Some systems write the best hypothesis there, which would be without errors"
    found, = read_nbest(written(tmp_path/'a.jsonl', dict(text='a b', hypotheses=['a b', 'a'])))
    assert found.reference is None

def test_lines_of_a_table_belong_together_by_id_or_reference(tmp_path):
    found = read_nbest(written(tmp_path/'c.tsv', 'id\ttext\tscore\n1\ta\t1\n1\tb\t2\n2\ta\t1\n'))
    assert found==[NBest(None, ['a', 'b'], [1., 2.], '1'), NBest(None, ['a'], [1.], '2')]

# Weights that are tuned once and applied to lists without references

def right_is_likelier(model, texts):
    "Rows in which what was said is a little more probable, by noise that differs from text to text"
    def score(o): return -3*len(o.split()) + 2*('captain' in o) + crc32(o.encode())%97/97
    return [dict(text=o, score=score(o), tokens=o.split(), scores=[]) for o in texts]

def knowing(): nbest.pseudo_log_likelihood = right_is_likelier

@pytest.fixture(scope='module')
def tuned(home):
    "Lists with and without references, and what a command makes of the first"
    def one(i):
        hyps = [f'the captain saw ship {i}', f'the cap tin saw ship {i}', f'the saw ship {i}']
        return dict(id=f'{i}.wav', hypotheses=hyps[:2][::1-2*(i%2)]+hyps[2:], scores=[-1, -1.2, -1.1])
    new = [one(i) for i in range(60)]
    known = [o | dict(reference=f'the captain saw ship {i}') for i,o in enumerate(new)]
    for name,rows in (('new', new), ('known', known), ('plain', [{**o, 'scores': None} for o in new])):
        (home/f'{name}.jsonl').write_text(''.join(json.dumps(o)+'\n' for o in rows))
    said = typed('electra_score --nbest known.jsonl --model electric --out tuned.jsonl', home, knowing)
    assert said.code==0 and 'weights in tuned.weights.json: give them with --weights' in said.out, said
    return json.loads((home/'tuned.weights.json').read_text())

def chosen(home, line):
    "Indices chosen by a command"
    said = typed(f'{line} --weights tuned.weights.json --model electric --out chosen.jsonl', home, knowing)
    assert said.code==0 and said.err=='', said
    return said.out, [json.loads(o) for o in (home/'chosen.jsonl').read_text().splitlines()]

def test_weights_choose_without_references_what_they_choose_with_them(home, tuned):
    "And that is what score, likelihood and length give with the saved numbers"
    blind, rows = chosen(home, 'electra_score --nbest new.jsonl')
    seen, again = chosen(home, 'electra_score --nbest known.jsonl')
    lists = [json.loads(o) for o in (home/'known.jsonl').read_text().splitlines()]
    assert tuned['weight']>0 and tuned['bonus']>0 and tuned['by']=='towers' and tuned['lists']==60
    for o,r,s in zip(lists, rows, again):
        likely = [h['score'] for h in right_is_likelier(None, o['hypotheses'])]
        totals = [a + tuned['weight']*(p + tuned['bonus']*len(h.split()))
                  for a,p,h in zip(o['scores'], likely, o['hypotheses'])]
        i = totals.index(max(totals))
        assert r['index']==s['index']==i and r['chosen']==o['hypotheses'][i] and r['id']==o['id']
        assert [r['asr_score'], r['log_likelihood'], r['total']]==pytest.approx([o['scores'][i], likely[i], totals[i]])
        assert 'reference' not in r and s['reference']==o['reference']
    assert sum(r['index'] for r in rows)>20
    assert 'Word error rates' not in blind and 'with the weights in tuned.weights.json' in seen

def test_without_a_file_the_chosen_hypotheses_are_shown(home, tuned):
    said = typed('electra_score --nbest new.jsonl --weights tuned.weights.json --model electric', home, knowing)
    lines = [o.split('\t') for o in said.out.splitlines()]
    assert said.code==0 and [o for o,_ in lines]==[f'{i}.wav' for i in range(60)], said
    assert sum('captain' in o for _,o in lines)>50

def test_weights_of_nothing_gained_keep_the_order(home, tuned):
    (home/'none.weights.json').write_text(json.dumps(tuned | dict(weight=0., bonus=0.)))
    said = typed('electra_score --nbest new.jsonl --weights none.weights.json --model electric', home, knowing)
    firsts = [json.loads(o)['hypotheses'][0] for o in (home/'new.jsonl').read_text().splitlines()]
    assert said.code==0 and 'the weights keep the choice of the ASR system' in said.out, said
    assert [o.split('\t')[1] for o in said.out.splitlines()[1:]]==firsts

def test_weights_follow_the_network_not_its_folder(home, tuned):
    "A moved run is the same model; one with a changed weight is another"
    shutil.copytree(home/'electric', home/'moved')
    line = 'electra_score --nbest new.jsonl --weights tuned.weights.json --model'
    assert typed(f'{line} moved', home, knowing).code==0
    weights = home/'moved/electric/model.safetensors'
    raw = bytearray(weights.read_bytes())
    raw[-1] ^= 1
    weights.write_bytes(raw)
    said = typed(f'{line} moved', home, knowing)
    assert said.code==2 and 'another model' in said.err, said

def test_references_are_needed_for_nothing_else(toy, tmp_path, monkeypatch):
    "Without them no word error rates, so no jiwer"
    _, found = score_nbest(toy, toy_lists([-1., -1.2, -9.]), tmp_path/'tuned.jsonl')
    monkeypatch.setitem(sys.modules, 'jiwer', None)
    tuned = read_weights(weights_path(tmp_path/'tuned.jsonl'))
    picks, rates = apply_weights(toy, [NBest(None, [NEAR, REF, FAR], [-1., -1.2, -9.])], tuned)
    assert (picks, rates)==([1], None)

def test_rows_are_written_in_order_or_not_at_all(toy, tmp_path, capsys):
    (tmp_path/'in.txt').write_bytes('The mat.\n\nThe cat sat.\r\n'.encode())
    texts = TextFile(tmp_path/'in.txt')
    score_text(toy, texts, tmp_path/'out.jsonl')
    score_text(toy, texts)
    rows = [json.loads(o) for o in (tmp_path/'out.jsonl').read_text().splitlines()]
    assert [(r['text'], r['score']) for r in rows]==[('The mat.', -3.), ('', None), ('The cat sat.', -6.)]
    assert capsys.readouterr().out.splitlines()==['-3.000\tThe mat.', '\t', '-6.000\tThe cat sat.']
    score_text(toy, texts, per='token')
    means = [fmean(r['scores']) if r['scores'] else None for r in rows]
    assert capsys.readouterr().out.splitlines()==[f'{means[0]:.3f}\tThe mat.', '\t', f'{means[2]:.3f}\tThe cat sat.']
    assert means[0]!=rows[0]['score']
    (tmp_path/'bad.txt').write_bytes(b'good\n\xff\n')
    texts.path = tmp_path/'bad.txt' # which changed after it was looked through
    with pytest.raises(InputError, match='line 2'): score_text(toy, texts, tmp_path/'bad.jsonl')
    assert sorted(o.name for o in tmp_path.iterdir())==['bad.txt', 'in.txt', 'out.jsonl']

def test_a_file_of_lists_gives_a_row_for_each(toy, tmp_path):
    bare = [dict(reference=o.reference, hypotheses=o.hypotheses) for o in toy_lists(None)]
    _, table = score_nbest(toy, read_nbest(written(tmp_path/'lists.json', bare)), tmp_path/'lists.jsonl')
    assert len((tmp_path/'lists.jsonl').read_text().splitlines())==20
    assert table.loc['reranked'].tolist()==[0., 0., 0.]

def test_rows_of_lists_keep_what_stands_beside_the_hypotheses(toy, tmp_path):
    "As those of texts and of pairs do"
    lists = [dict(id=i, speaker='anna', audio_filepath='a.wav', reference=o.reference, hypotheses=o.hypotheses,
                  scores=o.scores, confidence=.5) for i,o in enumerate(toy_lists([-1., -1.2, -9.]))]
    score_nbest(toy, read_nbest(written(tmp_path/'lists.json', lists)), tmp_path/'tuned.jsonl')
    tuned = read_weights(weights_path(tmp_path/'tuned.jsonl'))
    new = [{k: v for k,v in o.items() if k!='reference'} for o in lists]
    apply_weights(toy, read_nbest(written(tmp_path/'new.json', new)), tuned, tmp_path/'chosen.jsonl')
    for name in 'tuned', 'chosen':
        rows = [json.loads(o) for o in (tmp_path/f'{name}.jsonl').read_text().splitlines()]
        kept = [{k: o[k] for k in ('id', 'speaker', 'audio_filepath', 'confidence')} for o in rows]
        assert kept==[dict(id=i, speaker='anna', audio_filepath='a.wav', confidence=.5) for i in range(20)]
    table = 'id\tspeaker\thypothesis\tbeam\n7\tanna\ta b\t1\n7\tanna\ta\t2\n8\tbert\tc\t1\n'
    found = read_nbest(written(tmp_path/'a.tsv', table))
    assert [o.beside for o in found]==[dict(speaker='anna', beam=['1', '2']), dict(speaker='bert', beam=['1'])]
    with pytest.raises(InputError, match='item 1, has a field `chosen`, as the results have; rename it'):
        read_nbest(written(tmp_path/'taken.json', [lists[0] | dict(chosen='a')]))

def test_odd_files(tmp_path):
    "A byte order mark in an n-best list, and fields that are long"
    lists = [dict(reference='a cat', hypotheses=['a cat', 'a hat'])]
    (tmp_path/'mark.json').write_text(json.dumps(lists), encoding='utf-8-sig')
    assert read_nbest(tmp_path/'mark.json')[0].hypotheses==['a cat', 'a hat']
    (tmp_path/'long.tsv').write_text(f'reference\thypothesis\na cat\t{"a "*100_000}\n')
    assert len(read_nbest(tmp_path/'long.tsv')[0].hypotheses[0])>=199_999

def test_long_work_has_a_progress_bar_where_somebody_watches(monkeypatch):
    "Of the batches, and with the same scores"
    model, shown = load_likelihood('electric', 'towers', device='cpu'), []
    texts = ['The cat sat.', 'The cats sat.', 'A dog.']
    plain = pseudo_log_likelihood(model, texts, bs=1)
    monkeypatch.setattr(likelihood, 'MANY', 2)
    monkeypatch.setattr(likelihood, 'progress_bar', lambda o, **kw: shown.append(len(o)) or o)
    assert pseudo_log_likelihood(model, texts, bs=1)==plain and not shown
    monkeypatch.setattr(likelihood, 'watched', lambda: True)
    assert pseudo_log_likelihood(model, texts, bs=1)==plain and shown==[3]
    assert pseudo_log_likelihood(model, texts, bs=2) and shown==[3]

def test_a_string_is_one_text(toy):
    one, listed = (likelihood.pseudo_log_likelihood(toy, o) for o in ('The cat sat.', ['The cat sat.']))
    assert one==listed and one[0]['text']=='The cat sat.'
    assert nbest.rank_choices(toy, 'the ___ sat.', 'cat')==nbest.rank_choices(toy, 'the ___ sat.', ['cat'])
    assert len(nbest.rank_choices(toy, 'the ___ sat.', iter(['cat', 'mat'])))==2

def test_a_network_that_gives_no_numbers_chooses_nothing(toy):
    "NaN is neither more nor less than another score, so whatever came first would win"
    mat = TOK.convert_tokens_to_ids('mat')
    def scores(ids, mask): return toy.scores(ids, mask).masked_fill((ids==mat).any(1, keepdim=True), float('nan'))
    broken, text, words = replace(toy, scores=scores, name='broken'), 'the ___ sat .', ['mat', 'cat']
    assert nbest.rank_choices(broken, text, ['cat', 'loves'])
    for f in (lambda: nbest.rank_choices(broken, text, words),
              lambda: nbest.choose(broken, [dict(text=text, choices=words, answer=None)]),
              lambda: likelihood.pseudo_log_likelihood(broken, ['the cat', 'the mat sat .'])):
        with pytest.raises(InputError, match='broken gives no numbers .NaN. for some tokens; its weights are damaged'):
            f()
