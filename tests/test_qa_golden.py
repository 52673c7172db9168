"Question answering as the official code does it: readers, windows, heads, losses, beams, answers and measures"
import numpy as np
import pytest
import torch

from conftest import GOLDEN
from electra_nbdev.finetuning import qa, questions
from electra_nbdev.finetuning.finetune import TaskLoss
from electra_nbdev.engine.files import InputError
from electra_nbdev.data.tokenizer import text_backend
from electra_nbdev.finetuning.recipe import FinetuneHParams
from electra_nbdev.data.tokenizer import load_tokenizer
from official import check_task_gradients, info, load, task_network

TOK = load_tokenizer(GOLDEN/'vocab.txt')
HP = FinetuneHParams(max_seq_length=64, max_query_length=12, doc_stride=16, n_best_size=5, max_answer_length=20,
                     beam_size=5, answer_text='official')
DATA = GOLDEN/'finetune'/'data'
FILES = dict(squad='json', squadv1='json', newsqa='jsonl')

def read(name, part, skip_bad_rows=True):
    return questions.read_questions(DATA/name/f'{part}.{FILES[name]}', part, name=='squad', skip_bad_rows,
                                    nearest=False)

# Readers

EXAMPLES = info('finetune/qa_examples')

def words(context): return [context[a:b] for a,b in questions.word_spans(context)]

@pytest.mark.parametrize('split', EXAMPLES)
def test_golden_readers(split):
    name, part = split.split('/')
    official_id = 'qid' if name=='newsqa' else 'qas_id'
    got, tokens = read(name, part), None
    assert len(got)==len(EXAMPLES[split]['examples'])
    for o,want in zip(got, EXAMPLES[split]['examples']):
        tokens = want.get('doc_tokens', tokens)
        assert (o.eid, o.id, o.question)==(want['eid'], want[official_id], want['question_text'])
        assert tokens in (None, words(o.context))
        if part!='train': continue
        assert (o.answer, o.impossible)==(want['orig_answer_text'], want['is_impossible'])
        at = questions.answer_words(questions.word_spans(o.context), o.start, len(o.answer)) if o.start>=0 else (-1, -1)
        assert at==(want['start_position'], want['end_position'])

@pytest.mark.parametrize('name', FILES)
def test_golden_bad_questions_are_refused(name):
    n = int(EXAMPLES[f'{name}/train']['log'][-1].split()[-2])
    with pytest.raises(InputError, match=f'{n} questions cannot be used: .*m?p5q3.*m?p5q4'):
        read(name, 'train', skip_bad_rows=False)

# Windows

FEATURES = ['train', 'dev', 'train_stride128_p3p8']

@pytest.mark.parametrize('name', FEATURES)
def test_golden_windows(name):
    want, part = load(f'finetune/qa_featurize_squad_{name}'), name.split('_')[0]
    hp = FinetuneHParams(max_seq_length=64, max_query_length=12, doc_stride=128 if 'stride128' in name else 16)
    found = read('squad', part)
    if 'p3p8' in name: found = [o for o in found if o.id[:2] in ('p3', 'p8')]
    wins = questions.build_windows(found, TOK, hp)
    assert len(wins)==len(want['eid'])
    for k,f in enumerate(wins):
        (e, at, size), n = wins.cuts[k].tolist(), want['n_mask'][k]
        start, end, impossible, first, _ = f.target
        here = k-wins.of(e)[0] # the window's number among those of its question
        assert f.example==found[e] and 1000*f.example.eid+here==want['eid'][k]
        ids = want['input_ids'][k]
        assert f.input_ids==ids[:n].tolist() and not ids[n:].any() and n-f.n_first==want['n_segment1'][k]
        spans, at_chars = questions.word_spans(f.example.context), wins.located(e)
        place = [questions.answer_words(spans, b-1, 1)[0] for _,b in at_chars]
        best = questions.best_windows(wins.spans(e), len(at_chars))
        for t in range(64):
            inside = first<=t<first+size
            assert want['token_to_orig_map'][k][t]==(place[t-first+at] if inside else -1)
            assert want['token_is_max_context'][k][t]==(best[t-first+at]==here if inside else -1)
        if part=='train':
            assert (start, end)==(want['start_positions'][k], want['end_positions'][k])
            assert impossible==bool(want['is_impossible'][k])

def test_golden_max_context():
    for spans,position,flags in info('finetune/qa_max_context'):
        n = max(a+b for a,b in spans)
        if any(flags): assert questions.best_windows(spans, n)[position]==flags.index(True)
        else: assert not any(a<=position<a+b for a,b in spans)

# Heads, losses, gradients

FACTS = info('finetune/heads')
RUNS = [o for o in FACTS if o.startswith('qa_')]

def recipe(run):
    changes = dict(FACTS[run]['config_different_from_small_defaults'])
    for o in ('model_name', 'use_tfrecords_if_existing'): changes.pop(o, None)
    return FinetuneHParams(**changes)

def layers(run):
    "Our names of the layers of a head"
    hp = recipe(run)
    return {'dense': 'start', 'qa_hidden': 'end.0', 'dense_1': 'end.2' if hp.joint_prediction else 'end',
            'dense_2': 'answerable.0' if hp.answerable_uses_start_logits else 'answerable', 'dense_3': 'answerable.2'}

def network(run):
    "The official network of a run, without dropout, and its batch as ours"
    facts, arrays, joint = FACTS[run], load(f'finetune/{run}'), load('finetune/qa_joint_train')
    tasks = {'squad': qa.QATask('squad', v2=True).settled(recipe(run))}
    heads = {}
    for o,shape in facts['head_variables'].items():
        found = [d[f'var/{o}'] for d in (arrays, joint) if f'var/{o}' in d]
        heads[o] = next(v for v in found if list(v.shape)==shape)
    model = task_network(tasks, heads, layers(run))
    real = joint['feat/task_id']==0 # the others are padding, which the official code adds and we do not
    arrays = {k: v[real] if k.startswith('out/') else v for k,v in arrays.items()}
    f = {k[5:]: torch.from_numpy(v[real]).long() for k,v in joint.items() if k.startswith('feat/')}
    first, n = f['segment_ids'].argmax(1), f['input_mask'].sum(1)
    columns = [f['squad_start_positions'], f['squad_end_positions'], f['squad_is_impossible'], first, n]
    rows = torch.stack(columns, 1).tolist()
    targets = dict(squad=tasks['squad'].collate(rows, 64))
    allowed = f['input_mask']*f['segment_ids'] + torch.eye(64, dtype=torch.long)[0] # the passage, and [CLS]
    assert torch.equal(targets['squad']['allowed'].long(), allowed), 'what may be an answer'
    batch = dict(input_ids=f['input_ids'], token_type_ids=f['segment_ids'], attention_mask=f['input_mask'],
                 rows={'squad': torch.arange(len(rows))}, targets=targets)
    return model, tasks, arrays, facts, batch

@pytest.mark.parametrize('run', [o for o in RUNS if o!='qa_joint_predict'])
def test_golden_heads_and_losses(run):
    model, tasks, arrays, facts, batch = network(run)
    with torch.no_grad(): outs = model.train()(batch)
    out = outs['squad']
    for name,key in (('start', 'start_logits'), ('end', 'end_logits'), ('null', 'answerable_logit')):
        if f'out/squad/{key}' not in arrays: continue
        np.testing.assert_allclose(out[name].numpy(), arrays[f'out/squad/{key}'], rtol=0, atol=2e-4, err_msg=name)
    losses = tasks['squad'].losses(out, batch['targets']['squad'])
    np.testing.assert_allclose(losses.numpy(), arrays['out/squad/loss'], rtol=2e-5)
    np.testing.assert_allclose(TaskLoss(tasks)(outs, batch['targets']).item(), facts['loss'], rtol=1e-5)

def test_golden_beams():
    model, tasks, arrays, facts, batch = network('qa_joint_predict')
    target = batch['targets']['squad']
    target['start'] = torch.zeros_like(target['start']) # beams do not look at what is right
    with torch.no_grad(): out = model.eval()(batch)['squad']
    scores = dict(start_scores='start_top_log_probs', end_scores='end_top_log_probs', null='answerable_logit',
                  start='start_logits')
    for name,key in scores.items():
        np.testing.assert_allclose(out[name].numpy(), arrays[f'out/squad/{key}'], rtol=0, atol=2e-4, err_msg=name)
    for name,key in dict(starts='start_top_index', ends='end_top_index').items():
        assert np.array_equal(out[name].numpy(), arrays[f'out/squad/{key}'])

GRADS = [o for o in RUNS if any(k.startswith('grad/') for k in load(f'finetune/{o}'))]
def test_there_are_golden_gradients(): assert len(GRADS)==2

@pytest.mark.parametrize('run', GRADS)
def test_golden_gradients(run):
    model, tasks, arrays, facts, batch = network(run)
    TaskLoss(tasks)(model.train()(batch), batch['targets']).backward()
    # a bias below a softmax has no gradient but rounding
    check_task_gradients(model, arrays, facts['global_norm_dense'], layers(run), least=1e-3)

# From scores to answers

SCORER = info('finetune/qa_scorer')

def test_golden_final_text():
    fast = text_backend(TOK)
    for pieces,words,want in SCORER['get_final_text']:
        assert questions.final_text(pieces, words, fast)==want, (pieces, words)

def test_golden_top():
    for scores,k,want in SCORER['get_best_indexes']: assert qa.top(torch.tensor(scores), k)[1].tolist()==want

@pytest.fixture(scope='module')
def windows():
    "Windows of the dev sets, and the official ids of them"
    found = {}
    for name in FILES:
        wins = questions.build_windows(read(name, 'dev'), TOK, HP)
        found[name] = wins, [1000*e+k for e in range(len(wins.examples)) for k in range(len(wins.of(e)))]
    return found

def head_said(arrays, hp):
    "Raw scores of an official run, as our head gives them"
    a = {k: torch.from_numpy(v) for k,v in arrays.items()}
    null = a['answerable_logit'] if hp.answerable_classifier else a['start_logits'][:,0]+a['end_logits'][:,0]
    if hp.joint_prediction:
        return dict(starts=a['start_top_index'], ends=a['end_top_index'], start_scores=a['start_top_log_probs'],
                    end_scores=a['end_top_log_probs'], null=null)
    s, starts = qa.top(a['start_logits'], hp.n_best_size)
    e, ends = qa.top(a['end_logits'], hp.n_best_size)
    n, k = s.shape
    ends, e = (o[:,None].expand(n, k, k) for o in (ends, e))
    return dict(starts=starts, ends=ends, start_scores=s, end_scores=e, null=null)

@pytest.mark.parametrize('case', SCORER['end_to_end'])
def test_golden_scorer(case, windows):
    from dataclasses import replace
    want, arrays = SCORER['end_to_end'][case], load(f'finetune/qa_scorer_{case}')
    (wins, eids), hp = windows[want['task']], replace(HP, **want['overrides'])
    wins.hp, task = hp, qa.QATask(want['task'], want['task']=='squad').settled(hp)
    at = {int(o): i for i,o in enumerate(arrays['eid'])}
    rows = task.rows(head_said(arrays, hp))
    outs = [rows[at[o]] for o in eids]
    said = list(qa.each_answer(wins, outs, task.v2))
    assert {o.example.id: o.answer for o in said}==want['predictions']
    if task.v2: assert {o.example.id: o.null for o in said}==pytest.approx(want['null_odds'], abs=1e-6)
    found = task.metrics(wins, outs)
    assert {k: found[k] for k,_ in want['results']}==pytest.approx(dict(want['results']))
    assert list(found)[0] in ('exact', 'exact_match')

# Measures

METRICS = info('metrics/qa')
CASES = {o['id']: o for o in METRICS['cases']}
GOLDS, SAID, NULLS = ({k: o[f] for k,o in CASES.items()} for f in ('golds', 'prediction', 'na_prob'))

def test_golden_plain():
    for text,*want in METRICS['normalize']: assert {qa.plain(text)}==set(want)

def test_golden_scores_of_each():
    exact, f1 = qa.best_scores(GOLDS, SAID, True)
    for k,o in CASES.items(): assert (exact[k], f1[k])==(o['exact'], pytest.approx(o['f1'])), o
    for k,want in METRICS['v1_per_case'].items():
        found = [o[k] for o in qa.best_scores({k: GOLDS[k]}, SAID)]
        assert found==pytest.approx(want)

def tensors_of(d, first, last): return {k: v for k,v in d.items() if first<=int(k[1:])<=last}

SQUAD2 = [('squad_v2_main', float(o), (0, 99)) for o in METRICS['squad_v2_main']]
SQUAD2.append(('squad_v2_main_only_answerable_q0_q11', -2.75, (0, 11)))
SQUAD2.append(('squad_v2_main_only_unanswerable_q12_q19', -2.75, (12, 19)))

@pytest.mark.parametrize('name,threshold,ids', SQUAD2)
def test_golden_squad2(name, threshold, ids):
    want = METRICS[name]
    want = next(v for k,v in want.items() if float(k)==threshold) if name=='squad_v2_main' else want
    found = qa.squad2_scores(*(tensors_of(o, *ids) for o in (GOLDS, SAID, NULLS)), threshold)
    assert {k: v for k,v in found.items() if not k.startswith('pr_')}==pytest.approx(want)

def test_golden_precision_and_recall():
    found = qa.squad2_scores(GOLDS, SAID, NULLS, -2.75)
    for k,want in METRICS['precision_recall_ap'].items(): assert found[f'pr_{k}_ap']==pytest.approx(want['ap'])

def test_golden_squad1_and_mrqa():
    golds = {k: o for k,o in GOLDS.items() if o}
    for name in ('squad_v1', 'mrqa'): assert qa.squad1_scores(golds, SAID)==pytest.approx(METRICS[name])
    lacking = {k: v for k,v in SAID.items() if k not in ('q0', 'q1', 'q9')}
    for want in (METRICS['squad_v1_missing_q0_q1_q9'], METRICS['mrqa_missing_q0_q1_q9']['skip_no_answer_False']):
        assert qa.squad1_scores(golds, lacking)==pytest.approx(want)
    with pytest.raises(KeyError): qa.squad2_scores(GOLDS, lacking, NULLS, 0.)
