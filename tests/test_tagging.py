"Tagging as a user does it: commands right and wrong, long sentences, own tags, and conlleval's rules"
import json, math, random
from dataclasses import replace

import pytest
import torch
from datasets import ClassLabel, Dataset, DatasetDict, Features, Sequence, Value

import electra_nbdev.finetuning.finetune as ft
import electra_nbdev.finetuning.request as rq
import electra_nbdev.finetuning.tasks as tk
from electra_nbdev.engine.files import InputError
from electra_nbdev.engine.models import shipped
from electra_nbdev.engine.rows import BadRows
from electra_nbdev.finetuning.recipe import FinetuneHParams, open_model
from electra_nbdev.finetuning.tagging import (TagExample, TagTask, baseline_scores, chunk_task, conll_spans,
                                              read_columns, read_tagged, row_cuts, span_scores, tag_task, word_pieces)
from electra_nbdev.data.tokenizer import load_tokenizer
from electra_nbdev.sharing.convert import convert_weights
from make import (KINDS, WORDS, electra_folder, odd_data, roberta_folder, tagged, tags, task_files, untrained,
                  word_lists, write)
from terminal import bad, typed, worked

@pytest.fixture(scope='module')
def home(tmp_path_factory):
    d = tmp_path_factory.mktemp('user')
    task_files(d/'data')
    electra_folder(d/'model')
    write(d/'recipe.json', json.dumps(dict(max_seq_length=32, train_batch_size=8, num_train_epochs=1)))
    return d

TRAIN = 'electra_finetune --model model --data-dir data --hparams recipe.json --device cpu'
TRAIN_ODD = TRAIN.replace('--data-dir data', '--data-dir odd')

# From a command to predictions

def metrics_of(trial): return json.loads((trial/'result.json').read_text())['metrics']
def tags_in(path, **kwargs): return [o.tags for o in read_tagged(path, **kwargs)[0]]

def test_trials_and_predictions(home):
    worked(f'{TRAIN} --task chunk --out out --trials 2 --predict-test', home)
    results = json.loads((home/'out/results.json').read_text())['chunk']
    measures = ['f1', 'precision', 'recall', 'conll_f1', 'conll_precision', 'conll_recall', 'accuracy', 'loss']
    assert list(results['tasks']['chunk'])==measures and [o['seed'] for o in results['trials'].values()]==[0, 1]
    more = typed(f'{TRAIN} --task chunk --out out --trials 3', home)
    assert more.code==0 and more.out.count('finished already')==2
    again = typed(f'{TRAIN} --task chunk --out out --eval-only', home)
    found = json.loads((home/'out/chunk/evaluation.json').read_text())
    found = {k: v['chunk'] for k,v in found.items()}
    reported = {f'trial-{k}': metrics_of(home/f'out/chunk/trial-{k}')['chunk'] for k in range(3)}
    assert again.code==0 and found==reported

    # What each trial said of the dev set gives its F1 once more
    for trial,want in reported.items():
        written = home/f'out/chunk/{trial}/predictions/chunk-dev.txt'
        gold, pred = (tags_in(written, tag=o, scheme='IOB1') for o in (1, 2))
        assert span_scores(gold, pred, conll_spans)['f1']==pytest.approx(want['conll_f1'])

    # Predictions of the test set: true tags, then predicted ones, as conlleval takes them
    assert {o.name for o in (home/'out/chunk/predictions').iterdir()}=={'trial-0', 'trial-1', 'ensemble'}
    rows, _ = read_tagged(home/'out/chunk/predictions/ensemble/chunk-test.txt', scheme='BIO')
    want, _ = read_tagged(home/'data/chunk/test.txt')
    gold, _ = read_tagged(home/'out/chunk/predictions/ensemble/chunk-test.txt', tag=1)
    assert [o.words for o in rows]==[o.words for o in want] and [o.tags for o in gold]==[o.tags for o in want]

def test_conlleval_of_a_written_file_is_ours(home, tmp_path):
    "What a half-right network says of the dev set, written, read again and counted, gives the F1 that was reported"
    task, noise = chunk_task('chunk', home/'data'), torch.Generator().manual_seed(0)
    rows = ft.read_split(task, 'dev', open_model(home/'model')[1], FinetuneHParams(max_seq_length=12))
    outs = []
    for f in rows:
        right = torch.nn.functional.one_hot(torch.tensor(f.target['labels']), len(task.labels))
        outs.append(2.5*right + torch.randn(right.shape, generator=noise))
    task.write(tmp_path, 'dev', rows, outs)
    gold, pred = (tags_in(tmp_path/'chunk-dev.txt', tag=o) for o in (1, 2))
    want = task.metrics(rows, outs)
    assert span_scores(gold, pred, conll_spans)['f1']==pytest.approx(want['conll_f1']) and 20<want['conll_f1']<90

@pytest.mark.parametrize('blank', '\u00a0\u3000\u2028\x85')
def test_a_blank_character_can_be_a_word(tmp_path, blank):
    "In a file of one column too; only spaces and tabs are nothing"
    write(tmp_path/'w.txt', f'oui\n{blank}\nnon\n \t\nmerci\n')
    sentences, _ = read_columns(tmp_path/'w.txt', BadRows(tmp_path/'w.txt', None))
    assert [[cells for _,cells in o] for o in sentences]==[[['oui'], [blank], ['non']], [['merci']]]

def test_predict(home):
    assert typed(f'{TRAIN} --task chunk --out used', home).code==0
    write(home/'new.txt', 'the\ndog\nwalks\n\nred\n')
    shown = typed('electra_predict --model used/chunk --input new.txt --device cpu', home)
    assert shown.code==0 and [o.split('\t')[0] for o in shown.out.splitlines()]==['words', 'the dog walks', 'red']
    said = typed('electra_predict --model used/chunk --input new.txt --out said.conll --device cpu', home)
    lists = typed('electra_predict --model used/chunk --input new.txt --out said.jsonl --device cpu', home)
    read = [(list(o.words), list(o.tags)) for o in read_tagged(home/'said.conll')[0]]
    listed = [json.loads(o) for o in (home/'said.jsonl').read_text().splitlines()]
    assert said.code==lists.code==0 and read==[(o['words'], o['tags']) for o in listed]
    assert [o for o,_ in read]==[['the', 'dog', 'walks'], ['red']]
    learn = ft.load_finetuned(home/'used/chunk', 'cpu')
    one = learn.predict('the dog walks')
    assert list(one.tags)==read[0][1] and learn.predict(['the', 'dog', 'walks'])==one
    assert [o.tags for o in learn.predict([['the', 'dog', 'walks'], ['red']])]==[one.tags, learn.predict('red').tags]
    with pytest.raises(InputError, match='may be words or texts'): learn.predict(['the dog', 'red'])

def test_one_network_for_words_and_texts(home):
    worked(f'{TRAIN} --task chunk+cola --out both', home)
    learn = ft.load_finetuned(home/'both/chunk+cola', 'cpu')
    assert list(learn.tasks)==['chunk', 'cola']
    assert len(learn.predict('red dog').tags)==2 and learn.predict('red dog', task='cola').label in '01'
    tasks = {n: tk.open_task(n, home/'data') for n in learn.tasks}
    rows = {n: ft.read_split(t, 'dev', learn.tok, learn.hp) for n,t in tasks.items()}
    want = metrics_of(home/'both/chunk+cola/trial-0')
    want = {n: pytest.approx(o) for n,o in want.items()} # batches of one task round differently
    assert learn.evaluate(dict(dev=rows))==want
    learn.dls = ft.finetune_dls(tasks, rows, rows, learn.tok, learn.hp, device='cpu')
    learn.dls.show_batch(max_n=2)
    learn.show_results(max_n=40)
    with pytest.raises(InputError, match='show_results'): learn.plot_confusion_matrix('chunk')
    write(home/'new.csv', 'sentence\nred\n')
    assert typed('electra_predict --model both/chunk+cola --task cola --input new.csv --device cpu', home).code==0

# Nothing is lost

def long_task():
    rng = random.Random(0)
    words = [tuple(rng.choices(WORDS, k=n)) for n in (90, 3, 41, 60)]
    rows = [dict(words=o, tags=tags(o)) for o in words]
    return tag_task('long', rows, rows)

@pytest.mark.parametrize('rows', ['whole', 'official'])
def test_every_word_is_judged_once(home, tmp_path, rows):
    task = long_task()
    recipe = dict(max_seq_length=24, train_batch_size=4, num_train_epochs=1, tag_rows=rows)
    rq.run_trials(home/'model', [task], tmp_path/'out', device='cpu', **recipe)
    learn = ft.load_finetuned(tmp_path/'out', 'cpu')
    examples = task.examples('dev', learn.hp)
    features = task.features(examples, learn.tok, learn.hp)
    judged = sum(len(f.target['labels']) for f in features)
    assert (judged==90+3+41+60)==(rows=='whole') and (len(features)>len(examples))==(rows=='whole')
    said = [o for _,o in task.predicted(features, learn.outputs('long', features))]
    assert [o.words for o in said]==[o.words for o in examples] and all(len(o.tags)==len(o.words) for o in said)
    assert learn.predict(list(examples[0].words)).tags==said[0].tags

def test_rows_say_that_they_were_cut(home, capsys):
    encoder, tok = open_model(home/'model')
    for how,n in (('whole', 0), ('official', 3)):
        ft.read_split(long_task(), 'dev', tok, FinetuneHParams(max_seq_length=24, tag_rows=how))
        assert ('were cut' in capsys.readouterr().out)==bool(n)

# Other data

def test_bad_sentences_can_be_left_out(home):
    odd_data(home, 'chunk/train.txt', tagged(9) + 'the X B-NP\ndog\n\nred X I-NP\n\n')
    (home/'odd/chunk/dev.txt').write_text(tagged(4) + 'dog X B-WHAT\n')
    said = typed(f'{TRAIN_ODD} --task chunk --out without --skip-bad-rows', home)
    assert said.code==0 and ': 9 sequences' in said.out
    for o in ('train.txt: 2 unreadable rows left out', 'dev.txt: 1 unreadable row left out'): assert o in said.out

def test_labels_of_other_data(home):
    "A model judged on other data: labels that it has not learnt are named"
    assert typed(f'{TRAIN} --task chunk --out judged', home).code==0
    odd_data(home, 'chunk/dev.txt', 'the X B-NP\n')
    judge = 'electra_finetune --model judged/chunk --task chunk --data-dir odd --eval-only --device cpu'
    fewer = typed(f'{judge} --out fewer', home)
    (home/'odd/chunk/train.txt').write_text('the X B-NP\n\n')
    (home/'odd/chunk/dev.txt').write_text('the X B-NP\n\nthe X O\n')
    bad(home, f'{judge} --out nowhere', 'has not learnt: O')
    assert fewer.code==0, fewer.err

# conlleval's rules, worked by hand: a phrase begins with B, with a new kind, or after O; it ends before that

RULES = {'B-A I-A O': [(0, 1, 'A')],
         'B-A B-A': [(0, 0, 'A'), (1, 1, 'A')],
         'I-A I-A O I-A': [(0, 1, 'A'), (3, 3, 'A')],
         'B-A I-B I-B': [(0, 0, 'A'), (1, 2, 'B')],
         'I-A B-A I-A': [(0, 0, 'A'), (1, 2, 'A')],
         'O O': [],
         '': [],
         'B-A I-B I-A': [(0, 0, 'A'), (1, 1, 'B'), (2, 2, 'A')],
         'S-A S-A B-A E-A': [(0, 0, 'A'), (1, 1, 'A'), (2, 3, 'A')]}

@pytest.mark.parametrize('line', RULES)
def test_conlleval_phrases(line): assert conll_spans(line.split())==RULES[line]

def by_edges(tags):
    "Phrases by conlleval's two tables, which say of two neighbours whether a phrase ends and whether one begins"
    found, start, last, kind = [], None, 'O', ''
    for i,tag in enumerate([*tags, 'O']):
        letter, what = (tag[0], tag[2:])
        ends = last!='O' and ((last, letter) in (('B', 'B'), ('B', 'O'), ('I', 'B'), ('I', 'O')) or kind!=what)
        begins = letter!='O' and ((last, letter) in (('B', 'B'), ('I', 'B'), ('O', 'B'), ('O', 'I')) or kind!=what)
        if ends: found.append((start, i-1, kind))
        if begins: start = i
        last, kind = letter, what
    return found

def test_conlleval_phrases_of_anything():
    rng, seen = random.Random(0), ['O', 'B-X', 'I-X', 'B-Y', 'I-Y']
    for n in range(400):
        line = rng.choices(seen, k=n%9)
        assert conll_spans(line)==by_edges(line), line

def test_conlleval_counts():
    "Three true phrases: one found, one of another kind, one cut short; a fourth predicted where nothing is"
    gold, pred = 'B-A I-A O B-B O B-C I-C'.split(), 'B-A I-A B-D B-A O B-C O'.split()
    got = span_scores([gold, ['O']], [pred, ['O']], conll_spans)
    assert got==dict(f1=pytest.approx(200/7), precision=25., recall=pytest.approx(100/3))
    assert span_scores([gold], [gold], conll_spans)['f1']==100
    assert span_scores([gold], [['O']*7], conll_spans)==dict(f1=0., precision=0., recall=0.)

# The baseline, and data of one's own

def test_baseline():
    "the: B-NP, saw: B-VP, a new word: B-VP; of two true and three predicted phrases one is right"
    train = [TagExample(0, ('the', 'saw', 'cut'), ('B-NP', 'E-NP', 'S-VP')),
             TagExample(1, ('saw', 'saw'), ('S-VP', 'S-VP'))]
    got = baseline_scores(train, [TagExample(0, ('the', 'saw', 'new'), ('B-NP', 'E-NP', 'S-VP'))])
    assert got['f1']==pytest.approx(200*1/(2+3)) and got['conll_f1']==got['f1']
    assert set(got)=={o+k for o in ('', 'conll_') for k in ('f1', 'precision', 'recall')}

def test_hub(monkeypatch):
    import datasets
    def fake(name, config=None, split=None):
        if name=='none': raise FileNotFoundError('no such dataset')
        names = ClassLabel(names=['O', 'B-NP', 'I-NP'])
        features = Features(tokens=Sequence(Value('string')), chunk_tags=Sequence(names))
        rows = Dataset.from_dict(dict(tokens=[['the', 'dog'], ['so']], chunk_tags=[[1, 2], [0]]), features=features)
        return DatasetDict(train=rows, validation=rows, test=rows)
    monkeypatch.setattr(datasets, 'load_dataset', fake)
    task = tk.open_task('CoNLL-2000', 'hf:conll2000')
    assert task.name=='chunk' and task.labels==('B-NP', 'E-NP', 'O')
    assert [o.tags for o in task.examples('dev', FinetuneHParams())]==[('B-NP', 'E-NP'), ('O',)]
    with pytest.raises(InputError, match='hf:none cannot be loaded'): chunk_task('chunk', 'hf:none')

def test_parts_of_speech(home, tmp_path):
    rows = [dict(words=o, tags=[KINDS[w] for w in o]) for o in word_lists(20)]
    task = tag_task('speech', rows, rows, scheme=None)
    recipe = dict(max_seq_length=32, train_batch_size=8, num_train_epochs=1)
    trials = rq.run_trials(home/'model', [task], tmp_path/'out', device='cpu', **recipe)
    assert set(trials.records[0]['metrics']['speech'])=={'accuracy', 'loss'}
    learn = ft.load_finetuned(tmp_path/'out', 'cpu')
    assert set(learn.predict('red dog').tags)<={'NP', 'VP', 'ADJP'}

def test_a_tagger_of_bytes(tmp_path):
    "A word has the pieces that it has inside a text"
    roberta_folder(tmp_path/'roberta')
    encoder, tok = open_model(tmp_path/'roberta')
    task = TagTask('t', ('O', 'S-X'))
    example = TagExample(0, ('dog', 'walks', '\u00ad'), ('O', 'S-X', 'O'))
    f, = task.features([example], tok, FinetuneHParams(max_seq_length=32))
    assert tok.decode(f.input_ids[1:-1])==' dog walks \u00ad' and f.input_ids==tok(' dog walks \u00ad')['input_ids']
    assert f.target['positions'][0]==1 and len(f.target['positions'])==3

def test_a_header_that_names_the_tags_is_no_word(tmp_path):
    write(tmp_path/'x.txt', 'word pos ner\nParis NNP B-LOC\nsleeps VBZ O\n\n')
    (only,), _ = read_tagged(tmp_path/'x.txt', tag='ner')
    assert only.words==('Paris', 'sleeps') and only.tags==('B-LOC', 'O')

# A task by itself

TOY = TagTask('toy', ('B-NP', 'E-NP', 'O', 'S-NP', 'S-VP'))

@pytest.fixture(scope='module')
def tok(): return load_tokenizer(shipped()/'discriminator')

def one_hot(task, tags): return torch.eye(len(task.labels))[[task.labels.index(o) for o in tags]]

@pytest.mark.parametrize('lens,room,want', [([1]*10, 16, [(0, 10)]), ([1]*10, 6, [(0, 5), (5, 10)]),
                                            ([3, 1, 3, 3], 5, [(0, 2), (2, 3), (3, 4)]), ([9], 5, [(0, 1)])])
def test_row_cuts(lens, room, want): assert row_cuts(lens, room)==want

def test_a_text_is_no_file_to_predict(tmp_path):
    "All but the first word of each line would be lost"
    task = TagTask('names', ('O', 'S-X'))
    for text in ('She go to school .', 'She go home now .\n\nHe is at home .\n',
                 'She go to school .\nWe are at home .\n'):
        with pytest.raises(InputError, match='line 1 has 5 words; each word has a line of its own.*jsonl'):
            task.read(write(tmp_path/'a.txt', text))
    task.read(write(tmp_path/'a.conllu', '# text = She goes home\n1\tShe\tPRP\n'))
    for text in ('She PRP\n\nHe PRP\n', 'She\tPRP\tB\tX\n', 'She PRP B X\ngo VBZ B X\n'):
        assert task.read(write(tmp_path/'a.txt', text))[0].words[0]=='She'

def test_row_cuts_of_anything():
    "Every word has one row, and the words of a row fit"
    for seed in range(1, 60):
        lens, room = random.Random(seed).choices(range(1, 6), k=seed), 5+seed%7
        found = row_cuts(lens, room)
        assert all(sum(lens[a:b])<=room for a,b in found)
        assert [i for a,b in found for i in range(a, b)]==[*range(seed)]

def test_first_pieces(tok):
    "A soft hyphen is one unknown token; officially it has the place of what follows"
    example = TagExample(0, ('unkindly', 'dog', '\u00ad', 'ran', '.'), ('B-NP', 'E-NP', 'O', 'S-VP', 'O'))
    def rows(**kwargs):
        f, = TOY.features([example], tok, FinetuneHParams(**kwargs))
        return f, tok.convert_ids_to_tokens([f.input_ids[i] for i in f.target['positions']])
    (f, first), (_, official) = rows(), rows(tag_rows='official')
    assert (f.target['labels'], f.n_first, f.cut)==([0, 1, 2, 4, 2], 0, False)
    assert 'unkindly'.startswith(first[0]) and first[0]!='unkindly' and first[1:]==['dog', '[UNK]', 'ran', '.']
    assert official[1:]==['dog', 'ran', 'ran', '.']
    assert [len(word_pieces(tok, ['中国'], o)['中国']) for o in (False, True)]==[2, 1]

def test_long_rows(tok):
    example = TagExample(1, ('the', 'dog')*20, ('B-NP', 'E-NP')*20)
    def rows(how): return TOY.features([example], tok, FinetuneHParams(max_seq_length=26, tag_rows=how))
    whole, official = rows('whole'), rows('official')
    assert [len(f.input_ids) for f in whole]==[22, 22] and not any(f.cut for f in whole)
    assert sum([f.target['labels'] for f in whole], [])==[0, 1]*20
    assert [(len(f.input_ids), f.target['labels'], f.cut) for f in official]==[(1, [], True)]

def test_the_longest_sentence_without_a_loss(tok):
    def kept(n, length, how):
        hp, dogs = FinetuneHParams(max_seq_length=length, tag_rows=how), TagExample(2, ('dog',)*n, ('O',)*n)
        return [len(f.target['labels']) for f in TOY.features([dogs], tok, hp)]
    assert kept(40, 64, 'official')==[21] and kept(40, 84, 'official')==[40]
    def longest(length, how): return max(n for n in range(1, length) if kept(n, length, how)==[n])
    assert [longest(o, 'whole') for o in (64, 128)]==[62, 126]
    assert [longest(o, 'official') for o in (64, 128)]==[30, 62]

def test_head_and_loss(tok):
    "Words are padded and masked; each has the logits of its own first piece, and equal logits a loss of ln 5"
    examples = [TagExample(0, ('the', 'dog', 'ran'), ('B-NP', 'E-NP', 'S-VP')), TagExample(1, ('the',)*20, ('O',)*20)]
    rows = TOY.features(examples, tok, FinetuneHParams())
    batch, targets = ft.task_batch([(i, 'toy', f) for i,f in enumerate(rows)], dict(toy=TOY), tok.pad_token_id)
    assert targets['toy']['mask'].sum(1).tolist()==[3, 20]
    flat = dict(logits=torch.zeros(2, 20, 5), n=torch.tensor([3, 20]))
    assert TOY.losses(flat, targets['toy']).tolist()==pytest.approx([3*math.log(5), 20*math.log(5)], abs=1e-4)
    assert [tuple(o.shape) for o in TOY.rows(flat)]==[(3, 5), (20, 5)]
    hidden = torch.randn(2, batch['input_ids'].shape[1], 8, generator=torch.Generator().manual_seed(0))
    head = TOY.head(8)
    out, want = head(hidden, targets['toy'])['logits'][0,2], head.dense(hidden[0,rows[0].target['positions'][2]])
    assert out.tolist()==pytest.approx(want.tolist(), abs=1e-6)

def test_a_phrase_across_a_cut_is_one(tok):
    task, hp = TagTask('wide', ('B-NP', 'E-NP', 'I-NP')), FinetuneHParams(max_seq_length=26)
    rows = task.features([TagExample(3, ('the', 'dog')*20, ('B-NP', *['I-NP']*38, 'E-NP'))], tok, hp)
    assert len(rows)==2 and sum([o.target['labels'] for o in rows], [])==[0, *[2]*38, 1]
    right = [torch.eye(3)[o.target['labels']] for o in rows]
    got = task.metrics(rows, right)
    assert got['f1']==got['conll_f1']==got['accuracy']==100
    assert got['loss']==pytest.approx(20*(math.log(math.e+2)-1), abs=1e-4)
    wrong = task.metrics(rows, [right[0], right[1].roll(1, -1)])
    assert (wrong['f1'], wrong['accuracy'])==(0, 50)

def test_the_two_counts_differ(tok):
    "A phrase that continues where none has begun"
    gold, split = 'B-NP E-NP S-VP B-NP E-NP'.split(), 'B-NP E-NP S-VP E-NP E-NP'.split()
    rows = TOY.features([TagExample(0, ('a',)*5, tuple(gold))], tok, FinetuneHParams())
    got = TOY.metrics(rows, [one_hot(TOY, split)])
    assert [got[o] for o in ('f1', 'conll_f1', 'accuracy')]==pytest.approx([40, 100, 80])

TRAIN_FILE = 'He B-NP\nleft B-VP\n\n'*30 + 'A B-NP\nb I-NP\n'

def examples(task, split, **kwargs): return task.examples(split, FinetuneHParams(**kwargs))

def test_splits_of_a_folder(tmp_path, capsys):
    "A dev set taken from training, last sentences that no blank line ends, a test set without tags"
    folder = tmp_path/'CoNLL-2000'
    folder.mkdir()
    write(folder/'train.txt', TRAIN_FILE)
    part = [examples(chunk_task('chunk', tmp_path), o) for o in ('train', 'dev')]
    assert 'has no dev set. 10% of the training sentences' in capsys.readouterr().out
    assert sum(map(len, part))==31
    write(folder/'dev.txt', 'They B-NP\n\nthree B-VP\nleft I-VP')
    write(folder/'test.txt', 'Who\nleft\n\n')
    task = chunk_task('chunk', tmp_path)
    assert 'the test set is read without tags' in capsys.readouterr().out
    assert task.labels==('B-NP', 'B-VP', 'E-NP', 'E-VP', 'S-NP', 'S-VP')
    assert [len(examples(task, o)) for o in ('train', 'dev')]==[31, 2]
    assert [len(examples(task, o, tag_rows='official')) for o in ('train', 'dev')]==[30, 1]
    assert examples(task, 'test')==[TagExample(0, ('Who', 'left'))]
    assert examples(task, 'dev')[1]==TagExample(1, ('three', 'left'), ('B-VP', 'E-VP'))
    assert TagTask(**task.settings())==replace(task, source=None)
    with pytest.raises(InputError, match='give its parent'): chunk_task('chunk', folder)
    with pytest.raises(InputError, match='no folder'): chunk_task('chunk', tmp_path/'nowhere')

def test_tags_that_training_lacks(tmp_path):
    "They may be in a test set, not in a dev set"
    for name,text in (('train', TRAIN_FILE), ('new', 'of B-PP\n')): write(tmp_path/name, text)
    task = tag_task('x', tmp_path/'train', test=tmp_path/'new')
    assert task.labels==('B-NP', 'E-NP', 'S-NP', 'S-VP') and examples(task, 'test')[0].tags==('S-PP',)
    with pytest.raises(InputError, match="line 1: the tag B-PP of 'of' never occurs"):
        tag_task('x', tmp_path/'train', tmp_path/'new')

def test_words_of_a_text(tok):
    rows = TOY.features(TOY.unlabelled(["He's well-known"]), tok, FinetuneHParams())
    assert rows[0].example.words==("He's", 'well-known') and len(rows[0].target['labels'])==2
    text, words = TOY.unlabelled(['Mr. Lee left (again).', ['Mr.', 'Lee']])
    assert text.words==('Mr', '.', 'Lee', 'left', '(', 'again', ')', '.') and words.words==('Mr.', 'Lee')

def test_predictions_of_a_task(tok, tmp_path):
    "Tags, probabilities and phrases; in columns, and beside the true phrases"
    rows = TOY.features([TagExample(0, ('the', 'dog', '!'), ('B-NP', 'E-NP', 'O'))], tok, FinetuneHParams())
    outs = [4*one_hot(TOY, ['E-NP', 'S-NP', 'O'])]
    (example, got), = TOY.predicted(rows, outs)
    assert (got.tags, got.phrases)==(('B-NP', 'B-NP', 'O'), (('NP', 'the'), ('NP', 'dog')))
    assert got.probs==pytest.approx([math.exp(4)/(math.exp(4)+4)]*3)
    TOY.write(tmp_path, 'test', rows, outs)
    assert (tmp_path/'toy-test.txt').read_text().splitlines()==['the B-NP B-NP', 'dog I-NP B-NP', '! O O']
    assert TOY.comparison(example, got)==dict(label='[NP the dog] !', predicted='[NP the] [NP dog] !')

def test_trials_vote_by_probability():
    sure, unsure = torch.tensor([[.1, .9]]).log(), torch.tensor([[.6, .4]]).log()
    assert TOY.merge([[sure], [unsure]])[0].exp().tolist()[0]==pytest.approx([.35, .65])

READ = {'new.conll': ('He PRP\nleft VBD\n\nYes UH', [TagExample(0, ('He', 'left')), TagExample(1, ('Yes',))]),
        'new.jsonl': ('{"words": "He left."}\n{"words": ["Yes"]}',
                      [TagExample(0, ('He', 'left', '.')), TagExample(1, ('Yes',))]),
        'more.jsonl': ('{"words": ["Yes"], "id": 7, "tags": ["I"]}',
                       [TagExample(0, ('Yes',), row=dict(id=7, gold=['I']))])}

@pytest.mark.parametrize('name', READ)
def test_read(tmp_path, name):
    text, want = READ[name]
    write(tmp_path/name, text)
    assert TOY.read(tmp_path/name)==want

def test_bad_rows_that_are_read_can_be_left_out(tmp_path):
    write(tmp_path/'odd.jsonl', '{"words": "He left."}\n{"words": 3}')
    assert len(TOY.read(tmp_path/'odd.jsonl', True))==1

def test_tags_of_own(tok, tmp_path):
    "Rows with lists under any names, and columns whose tags belong to their words alone"
    rows = [dict(tokens='I flew from New York'.split(), ner=['O', 'O', 'O', 'B-city', 'I-city']),
            dict(tokens=['Delhi', 'it', 'is'], ner=['B-city', 'O', 'O'])]
    cities = tag_task('cities', rows, rows, word='tokens', tag='ner')
    assert cities.labels==('B-city', 'E-city', 'O', 'S-city')
    assert examples(cities, 'dev')[0].tags==('O', 'O', 'O', 'B-city', 'E-city')
    write(tmp_path/'pos.txt', '1\tdogs\tNOUN\n2\trun\tVERB\n')
    speech = tag_task('speech', tmp_path/'pos.txt', tmp_path/'pos.txt', word=1, scheme=None)
    assert speech.labels==('NOUN', 'VERB')
    pair = speech.features(examples(speech, 'dev'), tok, FinetuneHParams())
    assert speech.metrics(pair, [torch.tensor([[2., 0.], [2., 0.]])])['accuracy']==50
    (_, got), = speech.predicted(pair, [torch.tensor([[2., 0.], [0., 2.]])])
    assert (got.tags, got.phrases)==(('NOUN', 'VERB'), None)

def test_plain_transformers_tags_without_segments(home, tmp_path):
    "As its pipelines call a model; ours reads all words in the second segment"
    from transformers import ElectraForTokenClassification
    task = TagTask('words', ('B-NP', 'E-NP', 'O', 'S-NP', 'S-VP'))
    untrained(task, home/'model', tmp_path/'task')
    convert_weights(tmp_path/'task', tmp_path/'out')
    plain = ElectraForTokenClassification.from_pretrained(tmp_path/'out/words').eval()
    assert [*plain.config.id2label.values()]==['B-NP', 'I-NP', 'O', 'B-NP', 'B-VP'] # letters that pipelines know
    learn = ft.load_finetuned(tmp_path/'task', 'cpu')
    f, = task.features(task.unlabelled(['the dog walks']), learn.tok, learn.hp)
    found = plain(torch.tensor([f.input_ids])).logits[0][f.target['positions']]
    assert torch.allclose(found, learn.outputs('words', [f])[0], atol=1e-5)

def test_words_with_spaces_are_words(tok):
    "As French numbers are; a list of lists says that they are no texts"
    task = TagTask('n', ('B-NP', 'O'))
    assert task.is_batch([['10 000', 'francs']]) and not task.is_batch(['red', 'dogs']) and not task.is_batch('a dog')
    assert task.unlabelled([['10 000', 'francs']])[0].words==('10 000', 'francs')

def test_an_iterator_without_tags_is_read_whole():
    rows = [dict(words=['a', 'dog'], tags=['O', 'B-NP'])]*9
    task = tag_task('n', rows, rows, iter([dict(words=['dogs', str(i)]) for i in range(3)]))
    assert [o.words[1] for o in task.source('test', FinetuneHParams())]==['0', '1', '2']
