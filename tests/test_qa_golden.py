"Question answering as the official code does it: readers, windows, heads, losses, beams, answers and measures"
import json, math

import numpy as np
import pytest
import torch
from transformers import ElectraConfig, ElectraModel

from conftest import GOLDEN
from electra_nbdev import qa
from electra_nbdev.finetune import TaskLoss, TaskNetwork
from electra_nbdev.hparams import FinetuneHParams, InputError
from electra_nbdev.tokenizer import load_tokenizer
from official import info, load, our_name, pretrain_vars

TOK = load_tokenizer(GOLDEN/'vocab.txt')
HP = FinetuneHParams(max_seq_length=64, max_query_length=12, doc_stride=16, n_best_size=5, max_answer_length=20, beam_size=5)
DATA = GOLDEN/'finetune'/'data'
FILES = dict(squad='json', squadv1='json', newsqa='jsonl')

def questions(name, part, skip_bad=True):
    return qa.read_questions(DATA/name/f'{part}.{FILES[name]}', part, name=='squad', skip_bad)

# Readers

EXAMPLES = info('finetune/qa_examples')

def words(context): return [context[a:b] for a,b in zip(*qa.word_spans(context))]

@pytest.mark.parametrize('split', EXAMPLES)
def test_golden_readers(split):
    name, part = split.split('/')
    got, tokens = questions(name, part), None
    assert len(got)==len(EXAMPLES[split]['examples'])
    for o,want in zip(got, EXAMPLES[split]['examples']):
        tokens = want.get('doc_tokens', tokens)
        assert (o.eid, o.id, o.question)==(want['eid'], want['qid' if name=='newsqa' else 'qas_id'], want['question_text']) and tokens in (None, words(o.context))
        if part!='train': continue
        assert (o.answer, o.impossible)==(want['orig_answer_text'], want['is_impossible'])
        at = qa.answer_words(qa.word_spans(o.context), o.start, len(o.answer)) if o.start>=0 else (-1, -1)
        assert at==(want['start_position'], want['end_position'])

@pytest.mark.parametrize('name', FILES)
def test_golden_bad_questions_are_refused(name):
    n = int(EXAMPLES[f'{name}/train']['log'][-1].split()[-2])
    with pytest.raises(InputError, match=f'{n} questions cannot be used: m?p5q3.*m?p5q4'): questions(name, 'train', skip_bad=False)

# Windows

FEATURES = ['train', 'dev', 'train_stride128_p3p8']

@pytest.mark.parametrize('name', FEATURES)
def test_golden_windows(name):
    want, part = load(f'finetune/qa_featurize_squad_{name}'), name.split('_')[0]
    hp = FinetuneHParams(**dict(max_seq_length=64, max_query_length=12, doc_stride=128 if 'stride128' in name else 16))
    found = questions('squad', part)
    if 'p3p8' in name: found = [o for o in found if o.id[:2] in ('p3', 'p8')]
    wins = qa.build_windows(found, TOK, hp)
    assert len(wins)==len(want['eid'])
    for k,f in enumerate(wins):
        (e, at, size), n, (start, end, impossible, first, _) = wins.window(k), want['n_mask'][k], f.target
        assert f.example==found[e] and 1000*f.example.eid+k-wins.of(e)[0]==want['eid'][k]
        assert f.input_ids==want['input_ids'][k][:n].tolist() and not want['input_ids'][k][n:].any() and n-f.n_first==want['n_segment1'][k]
        place, best = wins.words(e), qa.best_windows(wins.spans(e), len(wins.located(e)))
        for t in range(64):
            inside = first<=t<first+size
            assert want['token_to_orig_map'][k][t]==(place[t-first+at] if inside else -1)
            assert want['token_is_max_context'][k][t]==(best[t-first+at]==k-wins.of(e)[0] if inside else -1)
        if part=='train': assert (start, end, impossible)==(want['start_positions'][k], want['end_positions'][k], bool(want['is_impossible'][k]))

def test_golden_max_context():
    for spans,position,flags in info('finetune/qa_max_context'):
        n = max(a+b for a,b in spans)
        if any(flags): assert qa.best_windows(spans, n)[position]==flags.index(True)
        else: assert not any(a<=position<a+b for a,b in spans)
