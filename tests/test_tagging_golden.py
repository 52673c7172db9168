"Tags, rows, head, loss and metrics of the official tagging"
import numpy as np
import pytest
import torch

from conftest import GOLDEN
from electra_nbdev.finetuning.finetune import TaskLoss, task_batch
from electra_nbdev.engine.files import InputError
from electra_nbdev.finetuning.recipe import FinetuneHParams
from electra_nbdev.finetuning.tagging import (LETTERS, TagExample, TagTask, as_bio, conll_spans, kinds_of,
                                              read_tagged, span_scores, spans_of, tag_labels, tag_task, tags_of)
from electra_nbdev.data.tokenizer import load_tokenizer
from official import info, load, task_network

TOK = load_tokenizer(GOLDEN/'vocab.txt')
FEATURIZE, METRICS = info('finetune/tagging_featurize'), info('metrics/classification_tagging')
LABELS = tuple(sorted(FEATURIZE['label_mapping'], key=FEATURIZE['label_mapping'].get))
DATA = GOLDEN/'finetune'/'data'/'chunk'
OFFICIAL = FinetuneHParams(max_seq_length=FEATURIZE['max_seq_length'], tag_rows='official')

# One phrase of the official files has no beginning, which the official code does not mind; `IOB1` does not either
def chunk(): return tag_task('chunk', DATA/'train.txt', DATA/'dev.txt', DATA/'test.txt', scheme='IOB1')

# Phrases and tags

@pytest.mark.parametrize('case', [o for o in METRICS['spans'] if 'error' not in o], ids=lambda o: ' '.join(o['tags']))
def test_golden_spans(case):
    tags = case['tags']
    assert [list(o) for o in spans_of(tags)]==case['spans']
    for scheme,want in case['retagged'].items(): assert tags_of(spans_of(tags), len(tags), scheme)==want

def test_golden_spans_that_stop_the_official_code(tmp_path):
    "No words have no phrases; a type may have a hyphen; what is no tag is refused with its line, whatever the scheme"
    errors = {' '.join(o['tags']): o['error'] for o in METRICS['spans'] if 'error' in o}
    assert errors=={'': 'IndexError', 'B-A-B E-A-B': 'ValueError', 'X': 'ValueError'}
    assert spans_of([])==conll_spans([])==as_bio([])==tags_of([], 0)==[]
    path = tmp_path/'x.txt'
    path.write_text('one B-A-B\ntwo E-A-B\n')
    (only,), _ = read_tagged(path, scheme='BIOES')
    assert spans_of(only.tags)==conll_spans(only.tags)==[(0, 1, 'A-B')] and kinds_of([only], 'BIOES')=={'A-B'}
    retagged = {o: tags_of([(0, 1, 'A-B')], 2, o) for o in LETTERS}
    assert retagged==dict(BIO=['B-A-B', 'I-A-B'], IOB1=['I-A-B', 'I-A-B'], BIOES=['B-A-B', 'E-A-B'])
    path.write_text('one O\ntwo X\n')
    for scheme in LETTERS:
        with pytest.raises(InputError, match=r"x\.txt line 2: the tag 'X' is neither O nor one of"):
            read_tagged(path, scheme=scheme)
    assert [o.tags for o in read_tagged(path, scheme=None)[0]]==[('O', 'X')]

# Files and rows

def test_golden_labels():
    "The official labels are those of all three files, ours not those of the test set"
    sentences = []
    for split in ('train', 'dev', 'test'): sentences += read_tagged(DATA/f'{split}.txt', scheme='IOB1')[0]
    assert tag_labels(tags_of(spans_of(o.tags), len(o.tags)) for o in sentences)==LABELS
    ours = chunk().labels
    assert set(ours)<=set(LABELS)
    assert [o for o in LABELS if o not in ours]==[o for o in LABELS if 'NEWTAG' in o]

def test_golden_phrase_without_beginning_is_refused():
    with pytest.raises(InputError, match='train.txt line 17: I-NP after O'): tag_task('chunk', DATA/'train.txt')

@pytest.mark.parametrize('split', ['train', 'dev'])
def test_golden_sentences(split):
    got, want = chunk().examples(split, OFFICIAL), FEATURIZE[split]
    assert [(o.eid, list(o.words), list(o.tags)) for o in got]==[(o['eid'], o['words'], o['bioes']) for o in want]

@pytest.mark.parametrize('split,i', [(s, i) for s in ('train', 'dev') for i in range(len(FEATURIZE[s]))])
def test_golden_rows(split, i):
    case = FEATURIZE[split][i]
    want, n = case['features'], sum(case['features']['input_mask'])
    task = TagTask('chunk', LABELS)
    f, = task.features([TagExample(case['eid'], tuple(case['words']), tuple(case['bioes']))], TOK, OFFICIAL)
    kept = int(sum(want['chunk_labels_mask']))
    assert f.input_ids==want['input_ids'][:n] and [int(k>=f.n_first) for k in range(n)]==want['segment_ids'][:n]
    assert f.target['positions']==want['chunk_labeled_positions'][:kept]
    assert f.target['labels']==want['chunk_labels'][:kept]
    assert f.cut==(kept<len(case['words']))

def test_golden_rows_without_loss():
    "By default nothing is lost: where the official rows have all words, and each word has pieces, both are the same"
    task, same, lost = TagTask('chunk', LABELS), 0, 0
    for case in FEATURIZE['train'] + FEATURIZE['dev']:
        e = TagExample(case['eid'], tuple(case['words']), tuple(case['bioes']))
        rows = task.features([e], TOK, FinetuneHParams(max_seq_length=OFFICIAL.max_seq_length, tag_rows='whole'))
        official = task.features([e], TOK, OFFICIAL)
        assert sum((f.target['labels'] for f in rows), [])==case['labels']
        for f in rows:
            positions = f.target['positions']
            assert not f.cut and len(f.input_ids)<=OFFICIAL.max_seq_length and len(set(positions))==len(positions)
        same += rows[0].input_ids==official[0].input_ids
        lost += len(e.words) - len(official[0].target['labels'])
    n_kept = sum(int(sum(o['features']['chunk_labels_mask'])) for s in ('train', 'dev') for o in FEATURIZE[s])
    assert same and lost==sum(len(o['words']) for s in ('train', 'dev') for o in FEATURIZE[s])-n_kept

def test_golden_last_sentence():
    "The official reader loses a last sentence without a blank line after it"
    lines = (DATA/'dev.txt').read_text(encoding='utf-8')
    n = [len(chunk().examples('dev', FinetuneHParams(tag_rows=o))) for o in ('whole', 'official')]
    assert n[1]==len(FEATURIZE['dev']) and n[0]-n[1]==int(not lines.endswith('\n\n'))

# Head and loss

def test_golden_head_and_loss():
    facts, arrays, task = info('finetune/heads'), load('finetune/tagging'), TagTask('chunk', LABELS)
    heads = {k[4:]: v for k,v in arrays.items() if k.startswith('var/task_specific/')}
    model = task_network(dict(chunk=task), heads).eval()
    real = arrays['feat/task_id']==0 # the others fill the batch, which ours does not need
    want_logits, want_loss = (arrays[f'out/chunk/{o}'][real] for o in ('logits', 'loss'))
    f = {k: torch.from_numpy(v[real]).long() for k,v in arrays.items() if k.startswith('feat/')}
    f = {k.removeprefix('feat/').removeprefix('chunk_'): v for k,v in f.items()}
    target = dict(positions=f['labeled_positions'], labels=f['labels'], mask=f['labels_mask'])
    batch = dict(input_ids=f['input_ids'], token_type_ids=f['segment_ids'], attention_mask=f['input_mask'],
                 rows=dict(chunk=torch.arange(len(f['eid']))), targets=dict(chunk=target))
    with torch.no_grad(): out = model(batch)['chunk']
    np.testing.assert_allclose(out['logits'].numpy(), want_logits, rtol=0, atol=1e-4)
    assert (out['logits'].argmax(-1).numpy()==arrays['out/chunk/predictions'][real]).all()
    np.testing.assert_allclose(task.losses(out, target).numpy(), want_loss, rtol=1e-5, atol=1e-6)
    total = TaskLoss(dict(chunk=task))(dict(chunk=out), dict(chunk=target)).item()
    np.testing.assert_allclose(total, arrays['loss'], rtol=1e-5)
    np.testing.assert_allclose(total, facts['tagging']['loss'], rtol=1e-5)

    # The same from the sentences, in batches that are as wide as they have to be
    cases = {tuple(o['features']['input_ids']): o for s in ('train', 'dev') for o in FEATURIZE[s]}
    examples = []
    for i,row in enumerate(f['input_ids'].tolist()):
        case = cases[tuple(row)]
        examples.append(TagExample(i, tuple(case['words']), tuple(case['bioes'])))
    rows = task.features(examples, TOK, OFFICIAL)
    batch, targets = task_batch([(i, 'chunk', o) for i,o in enumerate(rows)], dict(chunk=task), TOK.pad_token_id)
    with torch.no_grad(): out = model(batch)['chunk']
    np.testing.assert_allclose(task.losses(out, targets['chunk']).numpy(), want_loss, rtol=1e-5, atol=1e-6)
    for got,want,o in zip(task.rows(out), want_logits, rows):
        np.testing.assert_allclose(got.numpy(), want[:len(o.target['labels'])], rtol=0, atol=1e-4)

# Metrics

@pytest.mark.parametrize('i', range(len(METRICS['tagging'])))
def test_golden_span_scores(i):
    case = METRICS['tagging'][i]
    gold, pred, loss = zip(*case['gold_pred_loss'])
    want = dict(case['entity_f1'])
    got = span_scores(gold, pred)
    for k in ('precision', 'recall', 'f1'): np.testing.assert_allclose(got[k], want[k], rtol=1e-12, err_msg=k)
    per_word = 2*sum(loss)/sum(map(len, gold)) # the official code adds each loss twice
    np.testing.assert_allclose(per_word, want['loss'], rtol=1e-9)

    # From what a network says to the same numbers
    labels = tuple(sorted({t for o in (*gold, *pred) for t in o}))
    task = TagTask('t', labels)
    examples = [TagExample(k, ('x',)*len(o), tuple(o)) for k,o in enumerate(gold)]
    rows = task.features(examples, TOK, FinetuneHParams())
    outs = []
    for o in pred:
        ids = torch.tensor([labels.index(t) for t in o])
        outs.append(torch.nn.functional.one_hot(ids, len(labels)).float())
    found = task.metrics(rows, outs)
    for k in ('precision', 'recall', 'f1'): np.testing.assert_allclose(found[k], want[k], rtol=1e-12, err_msg=k)
    np.testing.assert_allclose(found['accuracy'], dict(case['token_accuracy'])['accuracy'], rtol=1e-12)

def test_golden_readings_agree_on_what_an_annotator_writes():
    for case in METRICS['spans']:
        if 'error' in case: continue
        good = case['retagged']['BIO']
        assert [list(o) for o in spans_of(as_bio(good))]==case['spans'] and as_bio(good)==good
