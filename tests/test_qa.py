"Question answering as a user does it: commands right and wrong, files of every form, predictions counted again"
import json, subprocess, sys, warnings
from dataclasses import replace
from types import SimpleNamespace
from unicodedata import normalize

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

import electra_nbdev.finetuning.finetune as ft
import electra_nbdev.finetuning.request as rq
from conftest import GOLDEN
from electra_nbdev.finetuning import qa, questions
from electra_nbdev.finetuning.tasks import glue_task
from electra_nbdev.engine.files import InputError
from electra_nbdev.engine.models import shipped
from electra_nbdev.finetuning.recipe import FinetuneHParams, open_model, settle_recipe
from electra_nbdev.finetuning.tables import PREDICTION_FORMS, as_table
from electra_nbdev.data.tokenizer import load_tokenizer
from recompute_qa import recompute
from make import (WORDS, deberta_tokenizer, electra_folder, odd_data, paragraph, pieces, roberta_folder, squad,
                  task_files, wordpiece_model, write)
from terminal import bad, typed, worked

TOK = load_tokenizer(GOLDEN/'vocab.txt')

@pytest.fixture(scope='module')
def home(tmp_path_factory):
    d = tmp_path_factory.mktemp('reader')
    electra_folder(d/'model')
    task_files(d/'data')
    recipe = dict(max_seq_length=32, doc_stride=8, max_query_length=12, train_batch_size=8, num_train_epochs=1,
                  n_best_size=5)
    write(d/'recipe.json', json.dumps(recipe))
    return d

TRAIN = 'electra_finetune --model model --data-dir data --hparams recipe.json --device cpu'
TRAIN_ODD = TRAIN.replace('--data-dir data', '--data-dir odd')

# Results

def printed(out, task):
    "Numbers of a task in the table that a command prints"
    rows = [o.split() for o in out.splitlines()]
    return {o[1]: float(o[2]) for o in rows if o[:1]==[task] and o[1] in ('exact', 'exact_match', 'f1', 'matthews')}

def test_what_is_printed_can_be_counted_again(home):
    said = worked(f'{TRAIN} --task squadv1 squad newsqa --out counted', home)
    for task,data,names in (
        ('squadv1', 'data/SQuAD-v1.1/dev.json', ('exact_match', 'f1')),
        ('squad', 'data/squad/dev.json', ('exact', 'f1')),
        ('newsqa', 'data/NewsQA/dev.jsonl.gz', ('exact_match', 'f1')),
    ):
        folder = home/f'counted/{task}/trial-0/predictions'
        odds = [str(folder/'squad-dev-null_odds.json')] if task=='squad' else []
        found = recompute(str(home/data), str(folder/f'{task}-dev.json'), *odds)
        want = {names[0]: found['exact'], names[1]: found['f1']}
        assert printed(said.out, task)==pytest.approx(want, abs=.0051), said.out
        assert found['questions']==(16 if task=='squad' else 8)
        metrics = json.loads((home/f'counted/{task}/trial-0/result.json').read_text())['metrics'][task]
        assert [metrics[o] for o in names]==pytest.approx([found['exact'], found['f1']])
        if task!='squad': continue
        alone = recompute(str(home/data), str(folder/'squad-dev.json'), *odds, float('inf'))
        assert alone==found, "the file alone holds the empty answers"
        texts, said_dev = (json.loads((folder/f'squad-dev{o}.json').read_text()) for o in ('-best', ''))
        assert all(texts.values()) and '' in said_dev.values() and texts.keys()==said_dev.keys()
    assert metrics.keys()=={'exact_match', 'f1'}
    squad2 = json.loads((home/'counted/results.json').read_text())['squad']['tasks']['squad']
    assert {'exact', 'f1', 'HasAns_f1', 'NoAns_exact', 'best_f1', 'best_f1_thresh', 'pr_f1_ap'} <= squad2.keys()

def test_counted_alone_as_officially():
    metrics = json.loads((GOLDEN/'metrics/qa.json').read_text())
    from recompute_qa import f1, words
    for text,want,*_ in metrics['normalize']: assert ' '.join(words(text))==want
    for o in metrics['cases']:
        theirs = [a for a in map(words, o['golds']) if a] or [[]]
        assert max(f1(words(o['prediction']), a, True) for a in theirs)==pytest.approx(o['f1'])

def test_test_predictions_and_trials(home):
    worked(f'{TRAIN} --task squad --out sent --trials 2 --predict-test', home)
    folder = home/'sent/squad/predictions'
    found = {str(o.relative_to(folder)) for o in folder.rglob('*.json')}
    assert found=={f'{o}/squad-test.json' for o in ('trial-0', 'trial-1', 'ensemble')}
    answers = json.loads((home/'sent/squad/predictions/ensemble/squad-test.json').read_text())
    assert answers.keys()=={f'{o}{i}' for o in 'qn' for i in (80, 81, 82)}
    assert all(isinstance(o, str) for o in answers.values())
    again = typed(f'{TRAIN} --task squad --out sent --trials 2 --eval-only', home)
    want = json.loads((home/'sent/squad/trial-1/result.json').read_text())['metrics']
    assert again.code==0
    found = json.loads((home/'sent/squad/evaluation.json').read_text())
    assert found['trial-1']['squad']==pytest.approx(want['squad'])
    kept = typed(f'{TRAIN} --task squad --out sent --trials 2', home)
    assert kept.code==0 and 'trial 1: finished already' in kept.out

@pytest.fixture(scope='module')
def sent(home):
    "A model of SQuAD 2.0"
    worked(f'{TRAIN} --task squad --out asked', home)
    return home/'asked/squad'

def evaluated(home, flags):
    "Measures of an evaluation with these flags"
    worked(f'{TRAIN} --task squad --out asked --eval-only {flags}', home)
    found, = json.loads((home/'asked/squad/evaluation.json').read_text()).values()
    return found['squad']

def test_an_evaluation_takes_the_flags_that_change_it(home, sent):
    silent, bold = (evaluated(home, f'--qa-na-threshold {o}') for o in (-1e9, 1e9))
    assert silent['NoAns_exact']==100 and silent['HasAns_exact']==0 and bold['NoAns_exact']==0
    assert bold['total']==16 and evaluated(home, '--max-eval-rows 4')['total']==4
    short, long = (evaluated(home, f'--qa-na-threshold 1e9 --max-answer-length {o}') for o in (1, 30))
    assert short['HasAns_f1']!=long['HasAns_f1']
    narrow, wide = (evaluated(home, f'--qa-na-threshold 1e9 --beam-size {o}') for o in (1, 30))
    assert narrow['HasAns_f1']!=wide['HasAns_f1']

def test_answers_without_joint_prediction_are_as_many_as_are_kept(home):
    "The number of answers to keep is then the beam, in an evaluation too"
    line = f'{TRAIN} --task squad --out apart --joint-prediction false'
    worked(line, home)
    bad(home, f'{line} --eval-only --beam-size 6', '--beam-size is 6')
    found = []
    for n in 1, 30:
        worked(f'{line} --eval-only --qa-na-threshold 1e9 --n-best-size {n}', home)
        found += json.loads((home/'apart/squad/evaluation.json').read_text()).values()
    assert found[0]['squad']['HasAns_f1']!=found[1]['squad']['HasAns_f1']

@pytest.mark.parametrize('flags,words', [
    ('--epochs 3', ['--epochs is 3', 'trained with 1', '--eval-only']), ('--trials 2', ['`num_trials` is 2']),
    ('--recipe paper', ['--recipe is paper']), ('--n-best-size 6', ['--n-best-size is 6']),
    ('--precision fp32', ['--precision is about training']), ('--compile', ['--compile is about training'])])
def test_an_evaluation_refuses_what_it_does_not_use(home, sent, flags, words):
    "But what the model was trained with: the command of the training and --eval-only"
    bad(home, f'{TRAIN} --task squad --out asked --eval-only {flags}', *words)

def test_predictions_take_another_threshold(home, sent, tmp_path):
    said = {}
    for threshold in -1e9, 1e9:
        out, flags = tmp_path/'said.jsonl', f'--qa-na-threshold {threshold} --device cpu'
        worked(f'electra_predict --model asked/squad --src data/squad/dev.json --out {out} {flags}', home)
        said[threshold] = [json.loads(o)['answer'] for o in out.read_text().splitlines()]
    assert not any(said[-1e9]) and all(said[1e9])
    found = rq.predict_file(sent, home/'data/squad/dev.json', device='cpu', qa_na_threshold=-1e9)
    assert not any(found['answer'])

HEADS = [
    dict(joint_prediction=False),
    dict(answerable_classifier=False),
    dict(joint_prediction=False, answerable_classifier=False),
    dict(answerable_uses_start_logits=False, answerable_weight=1.),
]

@pytest.mark.parametrize('switch', HEADS, ids=[' '.join(o) for o in HEADS])
def test_every_head_goes_the_whole_way(home, tmp_path, switch):
    hparams = json.loads((home/'recipe.json').read_text()) | dict(max_train_rows=8, max_eval_rows=6) | switch
    trials = rq.run_trials(home/'model', [qa.qa_task('squad', home/'data')], tmp_path/'out', device='cpu', **hparams)
    learn = ft.load_finetuned(tmp_path/'out', 'cpu')
    task = qa.qa_task('squad', home/'data')
    rows = ft.read_rows({'squad': task}, learn.tok, learn.hp)['dev']
    assert learn.evaluate(dict(dev=rows))['squad']==pytest.approx(trials.records[0]['metrics']['squad'])
    assert learn.tasks['squad'].joint==switch.get('joint_prediction', True) and len(rows['squad'].examples)==6

def test_half_precision(home, tmp_path):
    hparams = json.loads((home/'recipe.json').read_text()) | dict(max_train_rows=8, max_eval_rows=6)
    trials = rq.run_trials(home/'model', [qa.qa_task('squad', home/'data')], tmp_path/'out', device='cpu',
                           precision='bf16', **hparams)
    odds = json.loads((tmp_path/'out/trial-0/predictions/squad-dev-null_odds.json').read_text())
    assert len(odds)==6 and np.isfinite(list(odds.values())).all() and 0<=trials.values('squad', 'f1')[0]<=100

def test_one_network_for_questions_and_texts(home):
    said = worked(f'{TRAIN} --task squad+cola --out both', home)
    assert printed(said.out, 'squad').keys()=={'exact', 'f1'} and printed(said.out, 'cola').keys()=={'matthews'}
    learn = ft.load_finetuned(home/'both/squad+cola', 'cpu')
    found = learn.predict('where is red ?', 'one red dog walks in town', task='squad')
    assert learn.predict('red dog', task='cola').label in '01'
    assert found.answer=='' or found.example.context[slice(*found.span)]==found.answer
    tasks = {'squad': qa.qa_task('squad', home/'data'), 'cola': glue_task('cola', home/'data')}
    rows = {n: ft.read_split(t, 'dev', learn.tok, learn.hp) for n,t in tasks.items()}
    dl = ft.FinetuneDL(rows, tasks, learn.tok, 8, True)
    assert any(len(b['rows'])==2 for b,_ in dl), "rows of both kinds meet in a batch"
    dl.show_batch(max_n=2)

def test_results_are_shown(home, monkeypatch):
    task = qa.qa_task('squadv1', home/'data')
    encoder, tok = open_model(home/'model')
    hp = settle_recipe(encoder, tok, ['squadv1'], **json.loads((home/'recipe.json').read_text()))
    rows = ft.read_rows({'squadv1': task}, tok, hp)
    dls = ft.finetune_dls({'squadv1': task.settled(hp)}, rows['train'], rows['dev'], tok, hp, device='cpu')
    learn = ft.finetune_learner(dls, encoder, hp)
    tables = []
    monkeypatch.setattr(ft, 'display_df', tables.append)
    learn.show_results(max_n=3)
    assert len(tables[0])==3 and {'text', 'pair', 'label', 'predicted'} <= set(tables[0].columns)
    task, wins = learn.tasks['squadv1'], rows['dev']['squadv1']
    shown = [task.comparison(*o) for o in task.predicted(wins, learn.outputs('squadv1', wins))]
    assert len(shown)==8 and {o['text'] for o in shown} <= {f'where is {o} ?' for o in WORDS}

def test_predict(home):
    assert typed(f'{TRAIN} --task squadv1 --out used', home).code==0
    asked = [dict(id='a', question='who walks ?'), dict(id='b', question='where ?')]
    paragraphs = [dict(context='one red dog walks in town', qas=asked)]
    write(home/'new.json', json.dumps(dict(data=[dict(paragraphs=paragraphs)])))
    said = typed('electra_predict --model used/squadv1 --input new.json --out said.jsonl --device cpu', home)
    rows = [json.loads(o) for o in (home/'said.jsonl').read_text().splitlines()]
    assert said.code==0 and [o['id'] for o in rows]==['a', 'b'], said.err
    assert all(o['answer'] and 'one red dog walks in town'[int(o['start']):int(o['end'])]==o['answer'] for o in rows)
    write(home/'new.csv', 'id,question,context,page\nx7,who walks ?,one red dog walks in town,12\n')
    shown = typed('electra_predict --model used/squadv1 --input new.csv --device cpu', home)
    head, found = (o.split('\t') for o in shown.out.splitlines())
    assert shown.code==0 and head[:4]==['id', 'question', 'page', 'answer']
    assert found[:4]==['x7', 'who walks ?', '12', rows[0]['answer']]
    write(home/'gap.csv', 'question,context\nwho ?,red\n ,dog\nwhere ?,\n')
    said = typed('electra_predict --model used/squadv1 --input gap.csv --skip-bad-rows --device cpu --out o.csv', home)
    assert said.code==0 and '1 prediction' in said.out, said.err
    learn = ft.load_finetuned(home/'used/squadv1', 'cpu')
    found = learn.predict('who walks ?', 'one red dog walks in town')
    assert (found.answer, list(found.span))==(rows[0]['answer'], [rows[0]['start'], rows[0]['end']])
    assert found.score==pytest.approx(rows[0]['score'], abs=1e-4)
    assert '<mark' in found._repr_html_() and len(found.best)<=5 and found.best[0][0]==found.answer
    with pytest.raises(InputError, match='a question and its passage'): learn.predict('who walks ?')
    asked = dict(question='who walks ?', context='one red dog walks in town')
    with pytest.raises(InputError, match='a question and its passage'): learn.predict(asked) # not its keys
    with pytest.raises(InputError, match='question or its passage is empty'): learn.predict('who walks ?', ' ')
    with pytest.raises(InputError, match='no passage has a character'): learn.predict('who walks ?', '\x00')

def test_a_kind_of_task_is_found_by_name(home):
    "In a process that imported only what opens a model"
    train = f'{TRAIN} --task squadv1 --out named'
    assert typed(train, home).code==0
    ask = ("from electra_nbdev.finetuning.finetune import load_finetuned; "
           "print(type(load_finetuned('named', 'cpu').tasks['squadv1']).__name__)")
    said = subprocess.run([sys.executable, '-c', ask], cwd=home, capture_output=True, text=True)
    assert said.stdout.strip()=='QATask', said.stderr

# Files with odd questions

def changed(**kw):
    d = squad(4, True)
    d['data'][0]['paragraphs'][1]['qas'][0] |= kw
    return d

def test_bad_questions_can_be_left_out(home):
    odd_data(home, 'squad/train.json', changed(answers=[dict(text='blue dog', answer_start=3)]))
    said = typed(f'{TRAIN_ODD} --task squad --out without --skip-bad-rows', home)
    why = 'train.json: 1 question left out: the answer is not in the passage (1: q1'
    assert said.code==0 and why in said.out, said.err

ZH = '😀😀😀北京是中国的首都。上海是最大的城市。东京在日本。'
PLACES = {'utf-16': ('(1895-1943) 😀😀😀😀😀 He lived (1895-1943).', '1895', 33),
          'one too many': ("He met O'Neil there.", "O'Neil", 8),
          'no blanks': (ZH, '上海', ZH.index('上海')+3), 'one too few': (ZH, '东京', ZH.index('东京')-1)}

@pytest.mark.parametrize('name', PLACES)
@pytest.mark.parametrize('answer_text', ['own', 'official'])
def test_an_answer_whose_place_is_off_by_some_characters(name, answer_text, tmp_path, capsys):
    "It is never what stands at the wrong place; the official setting takes the same pieces in the same words"
    context, answer, start = PLACES[name]
    tok = pieces(['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', *sorted({*context.lower(), *'when'} - {' '}),
                  *(f'##{o}' for o in sorted({*context.lower(), *'when'} - {' '}))])
    path = write(tmp_path/'a.json', json.dumps(dict(data=[dict(paragraphs=[dict(context=context, qas=[
        dict(id='a', question='when', answers=[dict(text=answer, answer_start=start)])])])])))
    found = questions.read_questions(path, nearest=answer_text=='own')
    windows = questions.build_windows(found, tok, FinetuneHParams(max_seq_length=128, answer_text=answer_text))
    first, last, _, passage, _ = windows[0].target
    a, b = windows.place(0, first-passage, last-passage)
    assert context[a:b]==answer, context[a:b]
    assert ('1 answer not where the file says' in capsys.readouterr().out)==(answer_text=='own')

LOOK_ALIKES = {'inside a word': ('He is man/superman now', 'man', 15), 'no blanks': ('駅と海の駅', '駅', 4)}

@pytest.mark.parametrize('name', LOOK_ALIKES)
def test_an_answer_that_begins_within_a_word_is_not_another_mention(name):
    context, answer, start = LOOK_ALIKES[name]
    letters = sorted({*context.lower(), *'q'} - {' '})
    tok = pieces(['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'man', '##man', 'super', *letters,
                  *(f'##{o}' for o in letters)])
    asked = questions.QAExample(0, 'a', 'q', context, [answer], answer, start)
    windows = questions.build_windows([asked], tok, FinetuneHParams())
    assert windows.place(0, *windows.facts[0,3:])==(start, start+len(answer))

def test_an_answer_of_composed_letters_has_its_token():
    "A composed letter is a token's only in its first character, and a blank may belong to a token"
    fast = Tokenizer(models.Unigram([('<unk>', 0.), ('▁mèo', -1.), ('▁nhà', -1.), ('▁đẹp', -1.)], unk_id=0))
    fast.normalizer, fast.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.Metaspace()
    context, answer = (normalize('NFD', o) for o in ('mèo nhà đẹp', 'nhà'))
    enc, start = fast.encode(context), context.index(answer)
    asked = questions.QAExample(0, 'a', 'q', context, [answer], answer, start)
    assert enc.tokens==['▁mèo', '▁nhà', '▁đẹp']
    assert questions.answer_tokens(asked, enc, enc.ids, questions.word_spans(context), fast)==(1, 1)

@pytest.mark.parametrize('context, answer, start, at', [('😀แมวกินข้าว แมว นอน', 'แมว', 2, 1),
    ('😀東京は都。「東京」と書く。', '東京', 2, 1), ('A season by the sea', 'sea', 3, 16)])
def test_the_nearest_place_where_no_blanks_are_written(context, answer, start, at):
    assert questions.nearest_place(context, answer, start)==at

def test_the_text_of_a_token_is_its_own_characters():
    context = 'The Apple/APPLE logo'
    windows = questions.build_windows([questions.QAExample(0, 'a', 'q', context, ['x'])], load_tokenizer('tiny'),
                                      FinetuneHParams())
    for i in range(len(windows.located(0))): assert windows.text_of(0, i, i)==context[slice(*windows.place(0, i, i))]

def test_the_place_of_an_answer_is_without_the_blank_of_its_token():
    "A token of SentencePiece begins with one"
    context = 'The king is here.\nThe  captain ☃ was away.'
    windows = questions.build_windows([questions.QAExample(0, 'a', 'q', context, ['x'])],
                                      deberta_tokenizer([context.replace('☃', '')]*9), FinetuneHParams())
    n = len(windows.located(0))
    for i in range(n):
        for j in range(i, n):
            a, b = windows.place(0, i, j)
            assert a<=b and windows.text_of(0, i, j)==context[a:b]==context[a:b].strip()

def test_no_answer_is_not_better_than_no_answer(monkeypatch):
    "Where an accepted answer is an article alone, which the measure leaves out"
    golds = dict(a=['The'], b=['x'], c=[], d=['y'])
    answers = [SimpleNamespace(example=SimpleNamespace(id=k, answers=o), null=1., answer='z') for k,o in golds.items()]
    monkeypatch.setattr(qa, 'each_answer', lambda *_: answers)
    features = SimpleNamespace(hp=FinetuneHParams(qa_na_threshold=0.))
    found = qa.QATask('squad', v2=True).baseline(features, None, None)
    assert found.score==found.other==25

def test_an_answer_elsewhere_is_taken_at_the_nearest_place(home, tmp_path, capsys):
    page = 'Seas. The sea is near the house; no SEA is near the sea, the season or the south sea.'
    answers = dict(a=('sea', 40), b=('Near the house', 60), c=('near the house', 99), d=('eason', 0), e=('Seas', 0))
    qas = [dict(id=k, question='?', answers=[dict(text=t, answer_start=at)]) for k,(t,at) in answers.items()]
    (tmp_path/'train.json').write_text(json.dumps(dict(data=[dict(paragraphs=[dict(context=page, qas=qas)])])))
    want = dict(a=page.index('sea,'), b=page.index('near the house'), c=page.index('near the house'),
                d=page.index('eason'), e=0)
    for part in ('train', 'dev'):
        found = questions.read_questions(tmp_path/'train.json', part)
        assert {o.id: o.start for o in found}==want and [o.answer for o in found]==[t for t,_ in answers.values()]
        said = '4 answers not where the file says, taken at the nearest place instead: a, b, c, d\n'
        assert said in capsys.readouterr().out
    wins = questions.build_windows(found, TOK, FinetuneHParams(max_seq_length=64))
    assert all(f.target[0] for f in wins)

def test_reasons_are_counted_by_kind(home):
    d = squad(9, True)
    for i,p in enumerate(d['data'][0]['paragraphs'][:7]): p['qas'][0]['answers'][0]['text'] = f'blue{i} dog'
    del d['data'][0]['paragraphs'][8]['qas'][1]['is_impossible']
    odd_data(home, 'squad/train.json', d)
    kinds = "the answer is not in the passage (7: q0 'blue0 dog', q1 'blue1 dog', "
    words = '8 questions cannot', kinds, 'and 2 more', 'no `is_impossible`'
    bad(home, f'{TRAIN_ODD} --task squad --out fresh', *words)
    said = typed(f'{TRAIN_ODD} --task squad --out counted_odd --skip-bad-rows', home)
    assert said.code==0 and '8 questions left out: '+kinds in said.out and '(1: n8)' in said.out, said.err

def test_rows_are_questions_not_windows(home):
    task, hp = qa.qa_task('squad', home/'data'), FinetuneHParams(max_seq_length=32, doc_stride=8, max_query_length=12)
    kept = ft.read_examples(dict(squad=task), ft.replace(hp, max_train_rows=5, max_eval_rows=3))
    assert [len(kept[o]['squad']) for o in ('train', 'dev')]==[5, 3]
    assert len(ft.read_split(task, 'train', TOK, hp, kept['train']['squad']))>15

def test_wrong_places_do_no_harm_where_answers_are_compared(home):
    d = squad(4, True, 40)
    d['data'][0]['paragraphs'][1]['qas'][0]['answers'][0]['answer_start'] = -1
    odd_data(home, 'squad/dev.json', d)
    assert len(qa.qa_task('squad', home/'odd').examples('dev', None))==8

# Rows

def test_rows_are_made_when_asked_for(home):
    found = questions.read_questions(home/'data/squad/train.json', 'train', True)
    wins = questions.build_windows(found, TOK, FinetuneHParams(max_seq_length=32, doc_stride=8, max_query_length=12))
    assert len(wins)>3*len(found)==96
    assert len({wins.facts[e,2] for e in range(len(found))})==16, "a passage is stored once"
    assert wins.cuts.nbytes+wins.facts.nbytes<=12*len(wins)+48*len(found), "bytes in memory"
    assert isinstance(wins.tokens, np.memmap) and found.rows.cache_files, "the rest is on disk"

def test_questions_leave_no_files(home, tmp_path, monkeypatch):
    monkeypatch.setattr('tempfile.tempdir', str(tmp_path))
    found = questions.read_questions(home/'data/squad/train.json', 'train', True)
    wins = questions.build_windows(found, TOK, FinetuneHParams(max_seq_length=32, doc_stride=8, max_query_length=12))
    assert not list(tmp_path.iterdir()) and found[31].id=='n15' and len(wins[len(wins)-1].input_ids)==wins.lens[-1]

def test_unanswerable_questions_need_no_answers(home, tmp_path):
    "The official code does not read `answers` of a question with `is_impossible` in training"
    d = squad(3, True)
    for p in d['data'][0]['paragraphs']: del p['qas'][1]['answers']
    (tmp_path/'train.json').write_text(json.dumps(d))
    for part in ('train', 'dev'):
        found = questions.read_questions(tmp_path/'train.json', part, True)
        assert [(o.id, o.impossible, o.answers) for o in found if o.id[0]=='n']==[(f'n{i}', True, []) for i in range(3)]
    d['data'][0]['paragraphs'][0]['qas'][1]['is_impossible'] = False
    (tmp_path/'train.json').write_text(json.dumps(d))
    with pytest.raises(InputError, match=r'1 question cannot be used: `answers` is missing \(1: n0\)'):
        questions.read_questions(tmp_path/'train.json', 'train', True)

def test_other_ways_to_cut(home):
    found = questions.read_questions(home/'data/squad/train.json', 'train', True)
    for length,stride in ((24, 3), (24, 64), (64, 16)):
        hp = FinetuneHParams(max_seq_length=length, doc_stride=stride, max_query_length=6)
        wins = questions.build_windows(found, TOK, hp)
        assert max(wins.lens)<=length
        for e in range(len(found)):
            n = len(wins.located(e))
            assert {i for at,size in wins.spans(e) for i in range(at, at+size)}==set(range(n))
            if not found[e].impossible: assert any(wins[k].target[0] for k in wins.of(e)) or length-stride<12

def test_a_passage_without_tokens(home):
    page = dict(context='\u200b', qas=[dict(id='a', question='?', answers=[dict(text='x', answer_start=0)])])
    (home/'blank.json').write_text(json.dumps(dict(data=[dict(paragraphs=[page, paragraph(0, False)])])))
    found = questions.read_questions(home/'blank.json', 'dev')
    wins = questions.build_windows(found, TOK, FinetuneHParams())
    nothing = qa.Spans(*(np.zeros(0, int),)*2, np.zeros(0), 0.)
    task = qa.QATask('squadv1')
    assert len(wins)==1 and task.metrics(wins, [nothing])=={'exact_match': 0., 'f1': 0.}
    assert [(o.answer, o.span) for _,o in task.predicted(wins, [nothing])]==[('', None)]*2

def test_questions_that_are_cut_are_counted(home, sent, tmp_path, capsys):
    page, hp = 'the cat sat in the red town', FinetuneHParams(max_query_length=6)
    asked = [questions.QAExample(i, str(i), q, page) for i,q in enumerate(['who sat there ?', 'who '*7, 'who '*6])]
    qa.QATask('squad', v2=True).features(asked, TOK, hp)
    told = 'NOTE: squad: of 1 of 3 questions only the first 6 tokens are read (max_query_length)\n'
    assert capsys.readouterr().out==told
    qa.QATask('squad', v2=True).features(asked[::2], TOK, hp)
    assert not capsys.readouterr().out
    write(tmp_path/'long.csv', f'question,context\n{"who "*20},{page}\n{"who "*13},{page}\n')
    rq.predict_file(sent, tmp_path/'long.csv', device='cpu')
    assert 'NOTE: squad: of 2 of 2 questions only the first 12 tokens' in capsys.readouterr().out

def test_the_place_of_an_answer_has_the_mark_at_its_end():
    "A tokenizer that strips accents gives no token to the mark"
    page = 'the cafe\u0301 was red'
    wins = questions.build_windows([questions.QAExample(0, 'a', 'what ?', page)], TOK, FinetuneHParams())
    k = next(k for k,(a,b) in enumerate(wins.located(0)) if page[:b].endswith('cafe'))
    said = qa.answer_of(wins, 0, [spans_of((wins.head(0)+1, wins.head(0)+k, 1.))])
    assert page[slice(*said.span)]==said.answer=='cafe\u0301'

@pytest.mark.parametrize('name', ['roberta', 'distilbert'])
def test_other_encoders(home, tmp_path, name):
    from transformers import DistilBertConfig, DistilBertModel
    cfg = DistilBertConfig(vocab_size=200, dim=32, n_layers=2, n_heads=2, hidden_dim=64, max_position_embeddings=64)
    make = roberta_folder if name=='roberta' else wordpiece_model(DistilBertModel, cfg)
    make(tmp_path/name)
    hparams = dict(max_seq_length=48, train_batch_size=8, num_train_epochs=1, layerwise_lr_decay=0.)
    rq.run_trials(tmp_path/name, [qa.qa_task('squadv1', home/'data')], tmp_path/'out', device='cpu', **hparams)
    learn = ft.load_finetuned(tmp_path/'out', 'cpu')
    found = learn.predict('who walks ?', 'one red dog walks in town')
    assert found.answer in 'one red dog walks in town'
    row = learn.tasks['squadv1'].features([found.example], learn.tok, learn.hp)[0]
    assert learn.tok.decode(row.input_ids).count('walks')==2

# The hub, without one

def test_hub(monkeypatch):
    import datasets
    asked = []
    def fake(name, split):
        asked.append((name, split))
        if name=='mrqa':
            d = dict(text=['red'], char_spans=[dict(start=[4], end=[6])], token_spans=[dict(start=[1], end=[1])])
            row = dict(context='one red dog', qid='', question='which ?', answers=['red'], detected_answers=d)
            return datasets.Dataset.from_list([row | dict(subset=s, qid=s) for s in ('NewsQA', 'SearchQA')])
        row = dict(context='one red dog', question='which ?')
        answers = [dict(text=t, answer_start=[4]*len(t)) for t in (['red'], [])]
        return datasets.Dataset.from_list([row | dict(id=str(i), answers=a) for i,a in enumerate(answers)])
    monkeypatch.setattr(datasets, 'load_dataset', fake)
    found = qa.qa_task('squad', 'hf:rajpurkar/squad_v2').examples('train', None)
    assert [(o.id, o.answer, o.impossible) for o in found]==[('0', 'red', False), ('1', '', True)]
    assert {o.context for o in found}=={'one red dog'}
    assert [(o.id, o.start) for o in qa.qa_task('newsqa', 'hf:mrqa').examples('dev', None)]==[('NewsQA', 4)]
    with pytest.raises(InputError, match='belong to the task squad'):
        qa.qa_task('squadv1', 'hf:rajpurkar/squad_v2').examples('train', None)
    assert asked[:2]==[('rajpurkar/squad_v2', 'train'), ('mrqa', 'validation')]
    monkeypatch.undo()
    with pytest.raises(InputError, match='hf:no/such'): qa.qa_task('squad', 'hf:no/such').examples('train', None)

def test_three_kinds_in_one_network(home):
    worked(f'{TRAIN} --task squad+cola+chunk --out three', home)
    metrics = json.loads((home/'three/squad+cola+chunk/trial-0/result.json').read_text())['metrics']
    assert list(metrics)==['squad', 'cola', 'chunk']
    written = {o.name for o in (home/'three/squad+cola+chunk/trial-0/predictions').iterdir()}
    assert {'squad-dev.json', 'chunk-dev.txt'} <= written

def test_whole_numbers_stay_whole_beside_none():
    rows = [dict(answer='a b', start=14), dict(answer='', start=None)]
    assert as_table(rows)=='answer\tstart\na b\t14\n\t\n'
    assert PREDICTION_FORMS['.jsonl'](rows).splitlines()[0]=='{"answer":"a b","start":14}'

def test_votes():
    "Of probabilities where scores are logarithms, of scores where they are not; the nearly impossible warns of nothing"
    def said(pairs, scores):
        i, j = np.array(pairs).T
        return qa.Spans(i.astype(np.int16), j.astype(np.int16), np.array(scores, np.float32), 0.)
    both = [said([(1, 2), (3, 3)], np.log([.5, .25])), said([(1, 2), (4, 5)], [np.log(.25), -1000.])]
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        found = qa.mean_spans(both, True)
        raw = qa.mean_spans([said([(1, 2)], [3.]), said([(1, 2), (2, 2)], [5., -1.])], False)
    assert found.score[:2]==pytest.approx(np.log([.375, .125]), abs=1e-6) and found.score[2]<-900
    assert raw.score==pytest.approx([4., -1.])

def test_blanks_that_do_not_split_words(tmp_path):
    context = 'Here sat John\xa0Smith.'
    spans = questions.word_spans(context)
    assert questions.is_at(context, spans, 'John\xa0Smith', 9)
    assert not questions.is_at(context, spans, 'John\xa0Smith', 0)

# Head and loss from their definitions

def test_the_end_is_that_of_pairs():
    "The official code concatenates the states of a start and each end; padding is never chosen"
    torch.manual_seed(0)
    head, hidden = qa.QAHead(8, beam=2).eval(), torch.randn(1, 5, 8)
    allowed = torch.tensor([[1, 0, 1, 1, 0]])
    target = dict(allowed=allowed, start=torch.tensor([2]))
    out = head(hidden, target)
    pairs = torch.cat([hidden[:,2:3].expand(-1, 5, -1), hidden], -1)
    assert torch.allclose(out['end'], head.end(pairs)[...,0]+1000*(allowed-1), atol=1e-4)
    assert out['ends'].shape==(1, 2, 2)
    assert {*out['starts'].flatten().tolist(), *out['ends'].flatten().tolist()} <= {0, 2, 3}
    expected = out['start'].softmax(-1)@hidden[0]
    want = head.answerable(torch.cat([hidden[:,0], expected], -1))[...,0]
    assert torch.allclose(out['null'], want, atol=1e-5)
    assert 'starts' not in head.train()(hidden, target)

def test_of_equal_scores_the_first(): assert qa.top(torch.tensor([.1, .5, .5, 2]), 3)[1].tolist()==[3, 1, 2]

@pytest.fixture(scope='module')
def asked():
    "Windows of a passage with two questions, of which the last word answers the first, and the window that has it"
    tok = load_tokenizer(shipped()/'discriminator')
    long = ' '.join(f'word {i} and the' for i in range(20)) + ' river .'
    found = [questions.QAExample(0, 'a', 'what comes last ?', long, ['river'], 'river', long.index('river')),
             questions.QAExample(1, 'b', 'is it so ?', long, impossible=True)]
    hp = FinetuneHParams(max_seq_length=32, doc_stride=16, max_answer_length=8)
    wins = questions.build_windows(found, tok, hp)
    hit = next(f for f in wins if f.target[0])
    assert tok.decode(hit.input_ids[hit.target[0]:hit.target[1]+1])=='river'
    return wins, hit

def test_a_head_that_knows_nothing(asked):
    "Start and end are uniform over the allowed positions, and the classifier costs ln 2, or nothing where it is sure"
    wins, task = asked[0], qa.QATask('squad', v2=True)
    feats = [wins[0], wins[len(wins)-1]]
    target = task.collate([f.target for f in feats], 40)
    n = target['allowed'].sum(1)
    assert n.tolist()==[len(f.input_ids)-f.n_first+1 for f in feats]
    torch.manual_seed(0)
    out = task.head(8).train()(torch.zeros(2, 40, 8), target)
    assert torch.allclose(task.losses(out, target), n.log()+.5*np.log(2), atol=1e-5)
    sure = out | dict(null=torch.tensor([-9., 9.]))
    assert torch.allclose(task.losses(sure, target), n.log(), atol=1e-3)

def test_settings_of_a_task():
    task = qa.QATask('squad', v2=True)
    assert qa.QATask(**task.settings())==task
    assert task.settled(FinetuneHParams(joint_prediction=False, n_best_size=7)).head(8).beam==7

# From spans to answers

def spans_of(*found, null=0.):
    start, end, score = np.array(found).reshape(-1, 3).T
    return qa.Spans(start.astype(int), end.astype(int), score, null)

@pytest.fixture
def outs(asked):
    "Sure of `river` in the last window; the highest score belongs to a span that is too long"
    wins, hit = asked
    found = [spans_of() for _ in wins]
    found[wins.of(0)[-1]] = spans_of((*hit.target[:2], 2.), null=-3.)
    found[0] = spans_of((wins.head(0)+2, wins.head(0)+3, 1.), (wins.head(0), wins.head(0)+8, 9.))
    return found

def test_the_best_answer_that_can_be(asked, outs):
    wins = asked[0]
    said = qa.answer_of(wins, 0, outs, v2=True, n=5)
    assert (said.answer, said.example.context[slice(*said.span)], said.null)==('river', 'river', -3.)
    assert [o for o,_ in said.best]==['river', 'and the']
    assert said.score==pytest.approx(1/(1+np.exp(-1)), abs=1e-6)
    assert qa.answer_of(wins, 1, outs).answer==''

def test_no_answer_above_the_threshold(asked, outs):
    "The null scores are -3 and 0, the threshold is -2.75"
    said = [o for _,o in qa.QATask('squad', v2=True).predicted(asked[0], outs)]
    assert [(o.answer, o.span is None) for o in said]==[('river', False), ('', True)]

def test_a_model_that_answers_nothing_is_reported(asked, outs):
    "With its reason, where some questions have answers"
    def said(outs, f):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter('always')
            f(asked[0], outs)
        return [str(o.message) for o in told if 'gets an answer' in str(o.message)]
    task, silent = qa.QATask('squad', v2=True), [replace(o, null=5.) for o in outs]
    for f in (task.metrics, task.predicted):
        assert not said(outs, f)
        told, = said(silent, f)
        assert told.startswith('squad: none of 2 questions gets an answer') and '-2.75' in told

def test_a_pair_that_one_network_considers_keeps_half():
    task = qa.QATask('squad', v2=True)
    one, two = spans_of((5, 6, np.log(.8)), (7, 7, np.log(.1)), null=-1.), spans_of((7, 7, np.log(.9)), null=0.)
    both, = task.merge([[one], [two]])
    assert (both.start.tolist(), both.null)==([5, 7], -.5)
    assert np.exp(both.score)==pytest.approx([.4, .5], abs=1e-5)
    assert len(task.merge([[spans_of()], [spans_of()]])[0].start)==0

# Tasks, files and display

def test_a_task_by_name(tmp_path):
    page = 'A dog walks in the town.'
    answers = [dict(text='dog', answer_start=2)]
    paragraphs = [dict(context=page, qas=[dict(id='a', question='Who walks?', answers=answers, is_impossible=False)])]
    (tmp_path/'SQuAD-v1.1').mkdir()
    write(tmp_path/'SQuAD-v1.1/dev.json', json.dumps(dict(data=[dict(title='t', paragraphs=paragraphs)])))
    v1 = qa.qa_task('squadv1', tmp_path)
    assert (v1.name, v1.v2, [o.answers for o in v1.examples('dev', None)])==('squadv1', False, [['dog']])
    with pytest.raises(InputError, match='has no folder for squad; it should be called squad'):
        qa.qa_task('squad', tmp_path)
    write(tmp_path/'new.csv', 'id,question,context,source\nx7,Who?,A dog walks.,news\n')
    new, = v1.read(tmp_path/'new.csv')
    assert list(v1.answer(new, qa.Answer('dog', .8, (2, 5), None, new)))[:4]==['id', 'question', 'source', 'answer']
    assert (new.id, new.row['source'])==('x7', 'news')
    with pytest.raises(InputError, match='a question and its passage are needed'): v1.unlabelled(['Who?'])

def test_the_mark_of_an_answer():
    shown = qa.Answer('<b> & c', .8, (2, 9), None, questions.QAExample(0, 'a', 'Which?', 'a <b> & c d'))
    page = shown._repr_html_()
    assert page.count('<mark')==1 and '>&lt;b&gt; &amp; c</mark> d' in page
    assert '80 %' in page and 'color:#000' in page
    assert '<mark' not in replace(shown, answer='', span=None)._repr_html_()

COLUMNS = ['id', 'question', 'answer', 'score', 'start', 'end']

@pytest.mark.parametrize('name,columns', [('squad', [*COLUMNS, 'null']), ('squadv1', COLUMNS)])
def test_columns_of_an_answer(name, columns):
    task = qa.QATask(name, v2=name=='squad')
    new, = task.unlabelled([('Who?', 'A dog walks.')])
    assert list(task.answer(new, qa.Answer('dog', .8, (2, 5), -1., new)))==columns

def test_a_task_is_known_by_the_name_of_its_folder(home):
    for name in ('SQuAD', 'squad2.0'):
        task = qa.qa_task(name, home/'data')
        assert (task.name, task.v2)==('squad', True)

def test_finished_trials_had_these_answers(home, tmp_path):
    "A question has one to train on, and others that count"
    data = squad(24, True)
    def train():
        (tmp_path/'squad').mkdir(exist_ok=True)
        for o in ('train', 'dev'): write(tmp_path/f'squad/{o}.json', json.dumps(data))
        return rq.run_trials(home/'model', [qa.qa_task('squad', tmp_path)], tmp_path/'out', device='cpu',
                             max_seq_length=32, train_batch_size=8, num_train_epochs=1)
    train()
    answers = next(q for p in data['data'][0]['paragraphs'] for q in p['qas'] if q['answers'])['answers']
    answers.append(answers[0] | dict(text=answers[0]['text'].split()[0]))
    with pytest.raises(InputError, match='the rows have changed'): train()
