"A checker of texts: places, exit status, standard input, JSON, order, memory, the gate, ONNX files, refusals"
import gzip, json, os, random, shutil, subprocess, sys, time, tracemalloc, warnings

import numpy as np
import pytest

from electra_nbdev.checking import check
from electra_nbdev.checking.check import (Checked, CheckRequest, DevResults, PlainText, Sentence, check_text,
                                          dev_results, load_checker, sentence_spans, sentences_of)
from electra_nbdev.engine.files import InputError
from electra_nbdev.finetuning.ged import GEDTask, dev_counts, ged_task, read_ged
from electra_nbdev.finetuning.request import run_trials
from electra_nbdev.finetuning.tagging import TagTask, word_spans
from electra_nbdev.scoring.score import load_scorer, word_groups
from electra_nbdev.sharing.convert import write_onnx
from make import PIECES, bpe, electra_folder, pieces, run_folder, sentence, untrained, write
from terminal import SCRIPTS, bad, no_color, terminal, typed, worked

ODD = ('The cat sat.\r\n\r\n\tThe  mat — élan, naïve 🐈‍⬛ हिन्दी e\u0301t 我来了。他走了！\r\n'
       '\u200b\nA\u00a0mat? "The cat\'s on it." he said.\n\nNo end')

@pytest.fixture(scope='module')
def home(tmp_path_factory):
    "A run, models of `ged` with a threshold and without one, a tagger, and texts"
    d = tmp_path_factory.mktemp('home')
    run_folder(d/'run', pieces(PIECES))
    electra_folder(d/'encoder')
    kept = dict(flagged=[60, 40, 30, 20], right=[20, 20, 20, 19], limits=[.99, .9, .8, 0.], shares=[.2, .4, .6, 1.])
    untrained(GEDTask(threshold=.25, on_dev=kept), d/'encoder', d/'tuned')
    untrained(GEDTask(), d/'encoder', d/'early')
    untrained(TagTask('names', ('O', 'S-X')), d/'encoder', d/'names')
    write(d/'a.txt', 'The cat sat on the mat.\nThe mathematics, cat.\n')
    write(d/'odd.txt', '\ufeff'+ODD)
    return d

# Sentences and places

@pytest.mark.parametrize('text,n', [
    ('He sat. She ran! Why? …', 4), ('Mr. Smith met Dr. A. Weiß, e.g. in the U.S. on the 3. May.', 1),
    ('Am 3. Mai kam Prof. Weiß. Er ging.', 2), ('"Stop!" he said. (Really?) Yes.', 3), ('no end and no mark', 1),
    ('我来了。他走了！「好。」是吗？', 4), ('क्या हुआ? वह आया। वह गया।', 3), ('It was 3.5 or 10.000. So.', 2), (' \t ', 0),
    ('¿Qué? ¡No! Sí.', 3), ('www.a.b is a.b. c.', 1), ('Er sagt: „Ja.“ Dann ging er.', 2), ('»Ja.« Dann ging er.', 2),
    ('Il dit : « Oui. » Puis il part.', 2), ('Er ging. »Ja«, sagte er.', 2),
    ('ខ្ញុំទៅ។ គាត់មក។', 2), ('Ես գնացի։ Նա եկավ։', 2)])
def test_sentences(text, n):
    spans = sentence_spans(text)
    assert len(spans)==n
    rest = ''.join(text[a:b] for a,b in zip([0, *(b for _,b in spans)], [*(a for a,_ in spans), len(text)]))
    assert not rest.strip() and all(text[a:b]==text[a:b].strip() for a,b in spans) # nothing is skipped

@pytest.mark.parametrize('model', ['run', 'tuned'])
@pytest.mark.parametrize('wrapped', [False, True])
def test_places_in_the_file(home, model, wrapped):
    "Byte order mark, CRLF, tabs, several scripts, joined characters"
    whole = open(home/'odd.txt', encoding='utf-8', newline='').read()
    found = check_text(home/'odd.txt', home/model, wrapped=wrapped)
    assert all(whole[a:b]==o and o==o.strip() for a,b,o in zip(found.start, found.end, found.token))
    letters = {i for i,o in enumerate(whole) if o.isalnum()}
    assert letters<={i for a,b in zip(found.start, found.end) for i in range(a, b)}
    assert found.p.dropna().between(0, 1).all() and found.start.is_monotonic_increasing
    assert found.sentence.nunique()==6

def test_lines_and_columns(home):
    job = CheckRequest(home/'odd.txt', model=home/'run').settle()
    lines = open(home/'odd.txt', encoding='utf-8', newline='').read().removeprefix('\ufeff').split('\n')
    for wrapped in (False, True):
        checker = load_checker(home/'run')
        for o in checker.check(sentences_of(job.source.lines(), wrapped)):
            for i,(a,b) in enumerate(o.spans):
                line, column = o.place(i)
                assert lines[line-1][column-1:].startswith(o.sentence.text[a:b])

def test_wrapped_lines():
    lines = PlainText(text='The cat\nsat. It\nwas.\n\nNew').lines()
    assert [o.text for o in sentences_of(lines, True)]==['The cat\nsat.', 'It\nwas.', 'New']
    many = PlainText(text='a b\n'*2500).lines()
    assert [o.text.count('a') for o in sentences_of(many, True)]==[1000, 1000, 500]

def test_a_compressed_file(home):
    write(home/'a.txt.gz', gzip.compress((home/'a.txt').read_bytes()))
    assert check_text(home/'a.txt.gz', home/'run').equals(check_text(home/'a.txt', home/'run'))
    os.remove(home/'a.txt.gz')

# Checkers

@pytest.mark.parametrize('model', ['run', 'tuned'])
def test_nothing_of_a_long_sentence_is_skipped(home, model):
    "It is cut into rows, and every word has its number"
    text = ' '.join(['the cat sat on the mat']*40)
    found = check_text(text, home/model)
    assert len(found)==240 and (found.p>0).all()

def test_as_the_scorer_says(home):
    "P(wrong) of a discriminator is what `electra_score --show` says, of short sentences and of long ones"
    from electra_nbdev.scoring.score import load_scorer, score_tokens
    scorer = load_scorer('tiny', device='cpu')
    for text in ('the cat sat on mathematics', 'the cat sat, on the mat '*30):
        want, found = score_tokens(scorer, text), check_text(text, 'tiny', device='cpu')
        assert [*found.token]==want.words and np.abs(found.p-want.probs).max()<1e-4

def test_a_word_of_several_pieces_is_wrong_if_any_is(home):
    "Unless right sentences were measured, whose limits are for the highest piece"
    checker = load_checker(home/'run', 'cpu')
    pieces = [o.probs for o in checker.check([Sentence('sat on', 0, 1, 1)])]
    one, = checker.check([Sentence('sat on', 0, 1, 1)], spans=[[(0, 6)]])
    assert one.probs==pytest.approx([1-np.prod([1-p for p in pieces[0]])])

def test_a_word_that_the_vocabulary_does_not_know_is_not_flagged(home):
    found = check_text('the cat … sat', home/'run', threshold=.01)
    assert [*found.flagged]==[True, True, False, True] and np.isnan(found.p[2])

def test_a_word_that_no_model_reads_has_no_number(home):
    "0 would say that it is surely right; whatever stands before and after it keeps its own"
    found = check_text('The cat sat on the пирог .', home/'run', device='cpu')
    assert found.p.isna().tolist()==[o=='пирог' for o in found.token] and not found.flagged[5]
    whole, = load_checker(home/'run', 'cpu').check([Sentence('The cat sat on the пирог .', 0, 1, 1)])
    assert 0<whole.p<1 and whole.unread=={5}
    assert 5 not in next(load_checker(home/'run', 'cpu').check([whole.sentence], threshold=0.)).flagged

def test_limits_of_right_sentences():
    "A model whose right sentences were measured flags as `electra_score --show`"
    from electra_nbdev.scoring.score import load_scorer, score_tokens
    text = 'He opened the because and walked into the room.'
    v, found = score_tokens(load_scorer('electra-baby'), text), check_text(text, 'electra-baby')
    assert [*found[found.flagged].token]==[v.words[i] for i in v.flagged]==['because']

def test_as_the_task_says(home):
    "P(wrong) and the flagged words of a model of `ged` are those of its task"
    from electra_nbdev.finetuning.finetune import load_finetuned
    learn = load_finetuned(home/'tuned', 'cpu')
    texts = [sentence(i) for i in range(6)]
    found = check_text('\n'.join(texts), home/'tuned', device='cpu')
    for i,text in enumerate(texts):
        own, pred = found[found.sentence==i], learn.predict(text)
        assert tuple(own.token)==pred.words and np.abs(np.subtract(own.p, [*pred.probs])).max()<1e-3
        assert [*own.flagged]==[t=='i' for t in pred.tags]

def rows(checker, texts): return [o.probs for o in checker.check(Sentence(o, 0, 1, 1) for o in texts)]

@pytest.mark.parametrize('model', ['run', 'tuned'])
def test_order_and_batches_change_nothing(home, model, monkeypatch):
    checker = load_checker(home/model)
    texts = [' '.join(['the cat sat on the mat .'.split()[j%7] for j in range(1+i*i%23)]) for i in range(60)]
    want = rows(checker, texts)
    for window,tokens in ((7, 4096), (1000, 1), (1000, 64)):
        monkeypatch.setattr(check, 'WINDOW', window); monkeypatch.setattr(check, '_TOKENS', tokens)
        found = rows(checker, texts)
        assert [*map(len, found)]==[*map(len, want)] and all(np.allclose(a, b, atol=1e-5) for a,b in zip(found, want))

@pytest.mark.parametrize('model', ['run/discriminator', 'tuned'])
def test_onnx_files(home, model, tmp_path):
    "What onnxruntime computes is what torch computes; eight bits come near; limits of right sentences go with them"
    texts = ['the cat sat on the mat.', 'mathematics', 'the mat on the cat sat, cat, mat, the cat. '*5]
    if model!='tuned':
        shutil.copytree(home/model, tmp_path/'discriminator')
        quantiles = dict(common=[i/200 for i in range(201)], rare=[1.]*201)
        write(tmp_path/'discriminator/right_sentences.json', json.dumps(quantiles))
    source = home/model if model=='tuned' else tmp_path/'discriminator'
    checker = load_checker(source, 'cpu')
    want = [*checker.check(Sentence(o, 0, 1, 1) for o in texts)]
    for int8,near in ((False, 1e-4), (True, .1)):
        write_onnx(source, tmp_path/f'{int8}', int8)
        for a,b in zip(want, load_checker(tmp_path/f'{int8}').check(Sentence(o, 0, 1, 1) for o in texts)):
            assert np.abs(np.subtract(a.probs, b.probs)).mean()<near and a.limits==b.limits
    assert want[1].limits==[.25 if model=='tuned' else 1.]
    if model!='tuned': # no fastai, which takes longer to load than the check itself
        code = f"from electra_nbdev.checking.check import check_text; check_text('the cat', {str(tmp_path/'True')!r})"
        code += "; import sys; sys.exit('fastai' in sys.modules)"
        assert subprocess.run([sys.executable, '-c', code]).returncode==0
    bad(home, f'electra_check --src a.txt --model {tmp_path}/True --device cuda', '--device is')

def test_memory_stays_flat():
    "Ten thousand sentences need no more than two thousand"
    random.seed(0)
    words = 'the sea was calm and he had seen her house again before night'.split()
    def texts(n): return (Sentence(' '.join(random.choices(words, k=4)), 0, 1, 1) for _ in range(n))
    checker, peaks = load_checker('tiny', 'cpu'), []
    tracemalloc.start()
    try:
        for n in (2000, 10_000):
            tracemalloc.reset_peak()
            assert sum(1 for _ in checker.check(texts(n)))==n
            peaks.append(tracemalloc.get_traced_memory()[1])
    finally: tracemalloc.stop()
    assert peaks[1]<1.2*peaks[0]

# The command

def test_exit_status(home):
    "0: nothing flagged, 1: something, 2: an error; what is found is on standard output, its number on the other"
    none, some = (typed(f'electra_check --src a.txt --model run --threshold {t}', home) for t in (1, 0))
    assert (none.code, none.out, some.code)==(0, '', 1)
    assert none.err=='0 words of 12 flagged, in 0 of 2 sentences\n'
    first = some.out.splitlines()[0]
    assert first.startswith('a.txt:1:1: The  ') and first.endswith(' %  [The] cat sat on the mat.')
    assert len(some.out.splitlines())==12 and some.err=='12 words of 12 flagged, in 2 of 2 sentences\n'
    bad(home, 'electra_check --src nowhere.txt --model run', 'nowhere.txt')

def test_words_that_cannot_be_read_are_counted(home):
    "Where the first sentences are readable, so that no note comes before"
    (home/'late.txt').write_text('The cat sat on the mat.\n'*60 + 'བོད་ཡིག བོད་ཡིག\n'*30, encoding='utf-8')
    said = typed('electra_check --src late.txt --model run --threshold 1', home)
    assert said.err.splitlines()[-1]=='0 words of 600 flagged, in 0 of 90 sentences; 180 words could not be read', said

@pytest.mark.parametrize('threshold,code,flag', [(0, 1, ''), (1, 0, '--src -')])
def test_standard_input(home, threshold, code, flag):
    "A pipe is read where there is no file, in a process of its own"
    command = [SCRIPTS/'electra_check', '--model', 'run', '--threshold', str(threshold), *flag.split()]
    said = subprocess.run(command, cwd=home, input='\ufeffThe cat\r\nsat.'.encode(), capture_output=True)
    places = [o.split(': ')[0] for o in said.stdout.decode().splitlines()]
    assert said.returncode==code, said
    assert places==(['stdin:1:1', 'stdin:1:5', 'stdin:2:1', 'stdin:2:4'] if code else [])

def piped(data):
    def setup():
        r, w = os.pipe()
        os.write(w, data); os.close(w); os.dup2(r, 0)
        sys.stdin = open(0, closefd=False)
    return setup

@pytest.mark.parametrize('data,words', [
    (b'', 'stdin is empty'), (b' \n\r\n', 'stdin is empty'), (b'%PDF-1.7', 'looks like PDF'),
    (b'caf\xe9', 'stdin line 1: is not UTF-8'), (b'a\0b', 'stdin line 1: has a zero byte'),
    (b'One.\rTwo.\r', 'carriage returns alone'), (b'PK\x03\x04a\rb\r', 'looks like a zip archive'),
    (b'\xef\xbb\xbf\n', 'stdin is empty'),
    ('\x1c\x1d\u00a0\u200b\n'.encode(), 'stdin is empty'), (gzip.compress(b'the cat', mtime=0), 'packed by gzip')])
def test_standard_input_that_is_no_text(home, data, words):
    bad(home, 'electra_check --model run', words, setup=piped(data))

def test_json_lines(home):
    "Every sentence, every word, with offsets into the file"
    whole = open(home/'odd.txt', encoding='utf-8', newline='').read()
    said = typed('electra_check --src odd.txt --model run --json --threshold .99', home)
    found = [json.loads(o) for o in said.out.splitlines()]
    assert (said.code, len(found))==(0, 7)
    for o in found:
        assert whole[o['start']:o['end']]==o['text']
        assert all(whole[t['start']:t['end']]==t['token'] and not t['flagged'] for t in o['tokens'])
        assert abs(1-np.prod([1-(t['p'] or 0) for t in o['tokens']])-o['p'])<2e-3
    table = check_text(home/'odd.txt', home/'run')
    assert [t['p'] for o in found for t in o['tokens']]==[None if np.isnan(p) else p for p in table.p]
    assert typed('electra_check --src odd.txt --model run --json --out o.jsonl --threshold 0', home).code==1
    assert [json.loads(o)['text'] for o in (home/'o.jsonl').open(encoding='utf-8')]==[o['text'] for o in found]
    os.remove(home/'o.jsonl')

def test_a_file_is_complete_or_as_it_was(home):
    "A line of standard input that is no text comes after others were checked"
    write(home/'out.txt', 'before')
    said = typed('electra_check --model run --threshold 0 --out out.txt', home, piped(b'The cat.\n'*10+b'caf\xe9\n'))
    assert said.code==2 and 'stdin line 11: is not UTF-8' in said.err and (home/'out.txt').read_text()=='before'
    os.remove(home/'out.txt')

def test_colours_are_for_terminals(home):
    line = 'electra_check --model run --threshold 0 --text The\\ cat.'
    plain, forced, seen, without = (typed(*o).out for o in ((line, home), (line+' --color', home),
                                                            (line, home, terminal), (line, home, no_color)))
    assert plain==without and '\x1b' not in plain and plain.startswith('text:1:1: The  ')
    assert forced==seen and forced.count('\x1b[1;31m')==2*3

def watching():
    sys.stderr.isatty = lambda: True
    check.WINDOW = 1

@pytest.mark.parametrize('setup,out,seen', [(watching, '', True), (None, '', False), (watching, ' --out o.txt', True),
                                            (lambda: (watching(), terminal()), '', False)])
def test_progress_is_for_a_terminal_that_shows_nothing_else(home, setup, out, seen):
    said = typed(f'electra_check --src a.txt --model run --threshold 1{out}', home, setup)
    assert ('\n1 sentences\n2 sentences\n\x1b[K' in said.err)==seen # each `\r` is read as a line end
    assert said.err.endswith('of 2 sentences\n')

def test_of_the_umbrella(home):
    assert typed('electra check --src a.txt --model run --threshold 1', home).code==0
    assert 'Find wrong words in a text' in worked('electra --help', home).out

def test_help_says_the_exit_status(home):
    said = worked('electra_check --help', home).out
    for o in ('exit status 0', '--gate', '--precision', '--json'): assert o in said

# What a dev set tells

def as_rows(data): return [dict(words=words, tags=['ci'[o] for o in wrong]) for words,wrong in data]

class Told:
    "A checker that gives each word the number that it is"
    def check(self, sentences, spans):
        for o,own in zip(sentences, spans): yield Checked(o, own, [float(w) for w in o.text.split()], [.5]*len(own))

def marked(n=400, seed=0):
    "Sentences whose words are P(wrong), and are wrong that often"
    rng = random.Random(seed)
    found = []
    for _ in range(n):
        ps = [round(rng.random()**4, 4) for _ in range(rng.randint(1, 9))]
        found.append(([str(p) for p in ps], [rng.random()<p for p in ps]))
    return found

@pytest.mark.parametrize('share', [.5, .8, .95, 1])
def test_the_gate_finds_the_share_it_was_asked_for(share):
    data = marked()
    limit, told = dev_results(Told(), as_rows(data)).gate_for(share)
    scores = np.array([1-np.prod([1-float(o) for o in words]) for words,_ in data])
    wrong = np.array([any(o) for _,o in data])
    kept = scores>=limit-1e-12
    recall = kept[wrong].mean()
    assert share<=recall<share+.006 and told==kept.mean() and (share==1 or kept.mean()<.9)

@pytest.mark.parametrize('precision', [.3, .6, .8])
def test_the_lowest_threshold_with_a_precision(precision):
    data = marked(2000)
    found = dev_results(Told(), as_rows(data)).threshold_for(precision)
    p, wrong = (np.array([o for own in column for o in own]) for column in
                ([[float(w) for w in words] for words,_ in data], [own for _,own in data]))
    def reached(t): return wrong[p>=t].mean()
    assert reached(found)>=precision>reached(found-.005) and abs(found-precision)<.35

def test_a_wrong_sentence_that_is_surely_right_for_the_model():
    "No limit is lower than that"
    counts = dev_counts([np.array([o]) for o in (0., .8, .3)], [np.array([o]) for o in (True, True, False)])
    assert counts['limits'][-1]==0 and counts['shares'][-1]==1

def test_a_precision_that_none_has():
    even = [(['0.5'], [i%2==0]) for i in range(100)]
    with pytest.raises(InputError, match='which no threshold has on the dev set; the highest is 0.500, from 0.005 on'):
        dev_results(Told(), as_rows(even)).threshold_for(.8)
    with pytest.raises(InputError, match='fewer than 20 words'):
        dev_results(Told(), as_rows(even[:9])).threshold_for(.1)
    with pytest.raises(InputError, match='and the dev set has none'):
        dev_results(Told(), as_rows([(['0.5'], [False])])).gate_for(.5)

@pytest.fixture
def dev(home):
    rng = random.Random(1)
    words = [rng.choices('the cat sat on mat'.split(), k=rng.randint(2, 7)) for _ in range(40)]
    rows = [[(w, 'ci'[rng.random()<.3]) for w in o] for o in words]
    return write(home/'dev.tsv', '\n'.join(''.join(f'{w}\t{t}\n' for w,t in o) for o in rows))

@pytest.mark.parametrize('model', ['run', 'tuned'])
def test_the_gate_of_a_text(home, dev, model):
    "Sentences at or above the limit are printed, or marked in JSON, and their share is told"
    write(home/'many.txt', '\n'.join(' '.join(o.words) for o in read_ged(dev)))
    line = f'electra_check --src many.txt --model {model} --gate .8 --dev dev.tsv'
    plain, rows = typed(line, home), typed(f'{line} --json', home)
    found = [json.loads(o) for o in rows.out.splitlines()]
    kept = [o for o in found if o['second_look']]
    assert (plain.code, rows.code, len(found))==(1, 1, 40) and 0<len(kept)<40
    assert [o.split('  ')[1] for o in plain.out.splitlines()]==[o['text'] for o in kept]
    assert f'{len(kept)} of 40 sentences ({100*len(kept)/40:.1f} %) need a second look' in plain.err==rows.err
    assert 'on the dev set ' in plain.err
    table = check_text(home/'many.txt', home/model, gate=.8, dev=dev)
    assert table.groupby('sentence').second_look.first().sum()==len(kept)

def test_what_a_model_keeps_of_its_dev_set(home, tmp_path):
    "It needs no other, and its ONNX form has it too; one that was not trained keeps nothing"
    write_onnx(home/'tuned', tmp_path/'out')
    for model in (home/'tuned', tmp_path/'out'):
        assert CheckRequest(home/'a.txt', model=model, precision=.6).settle().dev.threshold_for(.6)==.75
        assert CheckRequest(home/'a.txt', model=model, gate=.5).settle().dev.gate_for(.5)==(.9, .4)
        assert check_text(home/'a.txt', model, gate=1).second_look.all()
    bad(home, 'electra_check --src a.txt --model early --gate .9', '--gate needs a dev set, of which early keeps')

def test_a_converted_model_has_its_threshold(home, tmp_path):
    worked(f'electra_convert --src tuned --out {tmp_path}/plain', home)
    folder, = (o.parent for o in (tmp_path/'plain').glob('*/config.json'))
    text = 'the man saw a dog'
    a, b = (check_text(text, o, device='cpu') for o in (home/'tuned', folder))
    write_onnx(folder, tmp_path/'onnx')
    for o in (b, check_text(text, tmp_path/'onnx')):
        assert np.allclose(a.p, o.p, atol=1e-4) and [*a.flagged]==[*o.flagged]
    checkers = [load_checker(o, 'cpu') for o in (home/'tuned', folder, tmp_path/'onnx')]
    assert len({o.max_length for o in checkers})==1, 'long sentences are read in the same windows'
    assert load_checker(folder, 'cpu').threshold==load_checker(tmp_path/'onnx').threshold==.25

def test_a_network_that_gives_no_numbers(home):
    "No word at all would be flagged"
    checker = load_checker(home/'run', 'cpu')
    checker.network = lambda ids, mask: np.full(ids.shape, np.nan)
    with pytest.raises(InputError, match=r'gives no numbers \(NaN\)'): check_text('the cat', checker)

def test_an_onnx_file_of_an_english_model_knows_english(tmp_path):
    facts = write_onnx('tiny', tmp_path/'out')
    assert facts['english'] and load_checker(tmp_path/'out').english
    assert worked('electra_convert --src tiny --onnx --out typed', tmp_path)
    assert json.loads((tmp_path/'typed'/'onnx.json').read_text())['english']

def test_a_folder_that_has_the_name_of_a_shipped_model_may_be_of_any_language(home, tmp_path, monkeypatch):
    shutil.copytree(home/'run', tmp_path/'tiny')
    monkeypatch.chdir(tmp_path)
    assert not load_scorer('tiny', device='cpu').english

def test_a_checker_that_is_open_has_what_its_model_keeps(home):
    checker = load_checker(home/'tuned', 'cpu')
    found = check_text('the cat', checker, gate=1., threshold=1.)
    assert [*found.second_look]==[True, True] and not found.flagged.any()

def test_training_keeps_what_the_dev_set_tells(home, tmp_path):
    "What is kept is what the checker finds on the same set"
    rows = [dict(words=o.split(), tags=['ci'[(i+j)%4==0] for j in range(len(o.split()))])
            for i,o in enumerate(map(sentence, range(30)))]
    task = ged_task(rows[:20], rows[20:])
    run_trials(home/'encoder', task, tmp_path/'out', device='cpu', num_train_epochs=1, max_seq_length=32)
    job = CheckRequest(text='a', model=tmp_path/'out', gate=.5).settle()
    found = dev_results(load_checker(tmp_path/'out', 'cpu'), rows[20:])
    assert job.dev.flagged==found.flagged and job.dev.right==found.right and job.dev.shares==found.shares
    assert np.allclose(job.dev.limits, found.limits, atol=1e-5)

def test_words_of_a_dev_set_are_its_own(home):
    "A discriminator's tokenizer divides otherwise; each piece counts for the word that it is in"
    data = [(["cat's", 'mathematics,', 'the'], [True, False, False])]
    checker = load_checker(home/'run', 'cpu')
    texts, spans = zip(*(check._plain(o) for o,_ in data))
    one, = checker.check([Sentence(texts[0], 0, 1, 1)], spans=spans)
    own, = checker.check([Sentence(texts[0], 0, 1, 1)])
    assert [texts[0][a:b] for a,b in one.spans]==data[0][0]
    def wrong(probs): return 1-np.prod([1-p for p in probs])
    assert one.probs==pytest.approx([wrong(own.probs[:3]), wrong(own.probs[3:5]), own.probs[5]])

@pytest.mark.parametrize('content,words', [
    ('the\tc\ncat\n', 'line 2'), ('the\tx\n', 'line 1'), ('\tc\n', 'line 1'), ('\n \n', 'is empty')])
def test_a_dev_set_that_is_none(home, content, words):
    write(home/'none.tsv', content)
    bad(home, 'electra_check --src a.txt --model run --gate .9 --dev none.tsv', words)

def test_a_dev_set_of_a_corrector(home, dev):
    "M2 is read as training reads it, and tells the same"
    def m2(o):
        edits = [f'A {i} {i+1}|||R|||x|||REQUIRED|||-NONE-|||0' for i,t in enumerate(o.tags) if t=='i']
        return '\n'.join([f"S {' '.join(o.words)}", *edits])
    write(home/'dev.m2', '\n\n'.join(map(m2, read_ged(dev)))+'\n')
    checker = load_checker(home/'run', 'cpu')
    assert dev_results(checker, home/'dev.m2')==dev_results(checker, dev)

# Long lines

def test_time_grows_with_a_line():
    "Not with its square: a megabyte without an end of a line, and a row of dots, take no more than seconds"
    start = time.process_time()
    found = [*sentences_of([(7, 100, 'The cat sat there. '*50_000)])]
    assert (len(found), found[-1].start, found[-1].line, found[-1].column)==(50_000, 100+19*49_999, 7, 19*49_999+1)
    assert sentence_spans('.'*100_000+'x')==[(0, 100_001)]
    assert time.process_time()-start<5

def test_lines_and_columns_of_wrapped_sentences():
    lines = [(3, 10, 'One two.  Three'), (4, 26, 'four. Five six. Seven'), (5, 48, ''), (6, 49, 'Eight.')]
    found = [(o.text, o.start, o.line, o.column) for o in sentences_of(lines, wrapped=True)]
    assert found==[('One two.', 10, 3, 1), ('Three\nfour.', 20, 3, 11), ('Five six.', 32, 4, 7), ('Seven', 42, 4, 17),
                   ('Eight.', 49, 6, 1)]

# Accents

def test_an_accent_of_its_own_belongs_to_its_word():
    text = 'The cafe\u0301-bar was na\u0131\u0308ve, हिन्दी शब्द.'
    want = ['The', 'cafe\u0301-bar', 'was', 'na\u0131\u0308ve', ',', 'हिन्दी', 'शब्द', '.']
    assert [text[a:b] for a,b in word_spans(text)]==want
    assert 'cafe\u0301' in [*check_text('The cafe\u0301 was open.', 'tiny', device='cpu').token]
    with warnings.catch_warnings(action='ignore'): # it has learnt English
        assert [*check_text('गुरु हैं', 'tiny', device='cpu').token]==['गुरु', 'हैं']

def test_what_is_not_seen_is_no_word():
    "Zero-width spaces, marks of direction, a byte order mark in the middle of a file"
    want = {'ca\u200bptain \u200b met': ['ca\u200bptain', 'met'], '\u200f': [], '\ufeffHe said': ['\ufeffHe', 'said'],
            '\u2764\ufe0f!': ['\u2764\ufe0f', '!'], 'x \u200e(y)': ['x', '(', 'y', ')']}
    assert {t: [t[a:b] for a,b in word_spans(t)] for t in want}==want

def test_spaces_are_no_words():
    "In byte-level BPE a word begins with a space, and more of them are a piece of their own"
    tok = bpe(['he is at home']*9)
    text = 'he  is \t at\u00a0home'
    enc = tok.backend_tokenizer.encode(text, add_special_tokens=False)
    ids, groups, spans = word_groups(enc, text)
    assert ''.join(text[a:b] for a,b in spans)=='heisathome' and all(a<b for a,b in spans)
    assert len(groups)==len(spans)<len({*enc.word_ids})

def test_a_word_that_is_longer_than_the_model_reads_is_told(home):
    checker = load_checker(home/'tuned')
    checker.max_length = 16
    with pytest.warns(UserWarning, match='more than the 14 pieces'): rows(checker, ['the mathematics '+'é'*40])

# Terminals

def run_as(command, cwd, **env):
    return subprocess.run(command, cwd=cwd, shell=True, capture_output=True, env=os.environ | env)

def test_a_terminal_that_does_not_know_a_character(home):
    check = f'{SCRIPTS}/electra_check --model tiny --threshold 0'
    got = run_as(f"{check} --text 'He go → home.'", home, PYTHONIOENCODING='cp1252')
    assert got.returncode==1 and b'[\\u2192]' in got.stdout, got.stderr
    got = run_as(f"{check} --json --text 'He go → home 🐈.'", home, PYTHONIOENCODING='cp1252')
    assert json.loads(got.stdout.decode())['text']=='He go → home 🐈.'

def test_closed_streams(home):
    check = f'{SCRIPTS}/electra_check --model tiny'
    assert b'give --src' in run_as(f'{check} <&-', home).stderr
    assert b'standard input is closed' in run_as(f'{check} --src - <&-', home).stderr
    got = run_as(f'{check} --src a.txt >&-', home)
    assert got.returncode in (0, 1) and b'Traceback' not in got.stderr and b'flagged, in' in got.stderr, got.stderr

# Refusals

@pytest.mark.parametrize('flags,words', [
    ('--src a.txt --model names', ['names is fine-tuned for names (a TagTask)', 'tells no wrong words']),
    ('--src a.txt --model electric', ['electric has no discriminator', 'towers']),
    ('--src a.txt --model encoder/nothing', ['where there is nothing']),
    ('--src a.txt --text The', ['and not both']),
    ('--src a.txt --model run --precision .8', ['--precision needs a dev set', 'give --dev']),
    ('--src a.txt --model run --gate .95', ['--gate needs a dev set']),
    ('--src a.txt --model run --dev dev.tsv', ['--dev is for --precision and --gate']),
    ('--src a.txt --model run --threshold 2', ['--threshold is 2']),
    ('--src a.txt --threshold .5 --precision .8', ['give one of them']),
    ('--src a.txt --model run --out a.txt', ['which --src reads']),
    ('--src a.txt --model run --color --json', ['leave it out']),
    ('--src dev.tsv --model run', ['a table by its ending .tsv', '--dev']),
    ('--text essay.txt --model run', ['there is no file essay.txt']),
    ('--src a.txt --model run --gate .9 --dev dev.tsv --threshold .5', ['--gate whole sentences', '--json']),
    ('--src a.txt --model run --json --out a.jsonl.gz', ['without that ending'])])
def test_what_is_refused(home, dev, flags, words): bad(home, f'electra_check {flags}', *words)

def test_a_call_is_refused(home):
    with pytest.raises(InputError, match='`src` is a.xt, which is no file; give'): CheckRequest('a.xt').settle()
    with pytest.raises(InputError, match='`text` is of type list'): check_text(['a'])
    with pytest.raises(InputError, match='is empty'): check_text(' ')
    with pytest.raises(InputError, match='there is no file no.tsv'):
        CheckRequest(text='a', gate=.5, dev='no.tsv').settle()
    with pytest.raises(InputError, match='there is no file a/essay.txt'): check_text('a/essay.txt')
    with pytest.raises(InputError, match='`dev` is of type list'): check_text('a cat', gate=.5, dev=[])
    few = DevResults([3]*4, [3]*4, [], [])
    with pytest.raises(InputError, match='fewer than 20 words.*larger `dev`'): few.threshold_for(.9)

def test_of_what_a_model_knows_nothing_it_warns(home):
    with pytest.warns(UserWarning, match='English alone'): check_text('Это очень хорошая погода.')
