"Text of any shape and any language: nothing is lost or unknown without a word"
import json, random, time, unicodedata, warnings
from collections import Counter
from types import SimpleNamespace

import pytest, torch
from transformers import AutoTokenizer, ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

from electra_nbdev.data import examples, text
from electra_nbdev.finetuning import finetune
from electra_nbdev.data.examples import ExampleBuilder, build_examples, examples_of, load_examples
from electra_nbdev.finetuning.recipe import finetune_preset
from electra_nbdev.finetuning.tables import read_table
from electra_nbdev.scoring.likelihood import Likelihood, pass_scores, pseudo_log_likelihood
from electra_nbdev.engine.files import InputError, file_name
from electra_nbdev.engine.rows import text_lines
from electra_nbdev.finetuning.ged import ged_text
from electra_nbdev.finetuning.tagging import conll_text
from electra_nbdev.scoring.ranking import _list_errors
from electra_nbdev.scoring.score import Scorer, score_tokens, whole_words, word_groups
from electra_nbdev.scoring.score_files import NBest, TextFile, line_contexts, read_nbest, read_pairs
from electra_nbdev.finetuning.finetune import read_split
from electra_nbdev.finetuning.tasks import TextTask
from electra_nbdev.data.tokenizer import SPECIALS, load_tokenizer, save_tokenizer, train_vocab, wordpiece
from make import bpe, pieces

WORDS = 'the dog saw a cat near old trees and went on'.split()

def nfd(text): return unicodedata.normalize('NFD', text)

def warned(f):
    "Warnings of a call"
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter('always')
        f()
    return [str(o.message) for o in said]

def write(path, text):
    path.write_text(text, encoding='utf-8')
    return path

# Long lines

def paragraphs(n, seed=0):
    "Lines of 1 to 300 words, some documents of one line"
    rng = random.Random(seed)
    lines = [' '.join(rng.choices(WORDS, k=rng.choice([1, 5, 20, 40, 300]))) for _ in range(n)]
    return ''.join(o+'\n'*rng.choice([1, 1, 2]) for o in lines)

@pytest.fixture(scope='module')
def tok(): return pieces([*SPECIALS, *WORDS])

@pytest.fixture
def vocab(tok, tmp_path): return save_tokenizer(tok, tmp_path/'vocab')

@pytest.mark.parametrize('length', [5, 32, 128])
def test_every_token_of_every_line_is_used(length, tok, vocab, tmp_path):
    file = write(tmp_path/'t.txt', paragraphs(200))
    ex = load_examples(build_examples(file, vocab, tmp_path/'x', length))
    used, lost = Counter(ex[:][0].flatten().tolist()), ex.counts['dropped_tokens']
    found = Counter(tok.convert_tokens_to_ids(file.read_text().split()))
    for o in range(5): del used[o]
    assert used<=found and found.total()-used.total()==lost<=2*ex.counts['documents']
    assert ex.lengths().max()==length

def always(draw): return SimpleNamespace(random=lambda: draw, randint=lambda a, b: b)

@pytest.mark.parametrize('draw,lengths', [(.05, [100, 10]), (.7, [100, 10]), (.3, [5, 10, 3, 9])])
def test_the_rest_of_a_line_begins_what_follows(draw, lengths):
    "In the order of the text, over both segments, across lines and up to the end of the document"
    b = ExampleBuilder(16, 'C', 'S', always(draw))
    tokens = iter(range(sum(lengths)))
    lines = [[next(tokens) for _ in range(n)] for n in lengths]
    got = [o for e,_ in examples_of(b, lines) for o in e if o not in ('C', 'S')]
    assert got==list(range(sum(lengths)))

@pytest.mark.parametrize('n,kept', [(15, 13), (13, 13), (16, 16)])
def test_a_rest_of_two_tokens_at_the_end_of_a_document_is_dropped(n, kept):
    "A longer one is an example, and so is a document of two tokens"
    b = ExampleBuilder(16, 'C', 'S', always(.7))
    got = [[o for o in e if o not in ('C', 'S')] for e,_ in examples_of(b, [list(range(n)), None, [98, 99], None])]
    assert sum(got[:-1], [])==list(range(kept)) and got[-1]==[98, 99] and b.n_dropped==n-kept

def test_long_lines_have_two_segments():
    b = ExampleBuilder(128, 1, 2, random.Random(0))
    a = [(a, len(e)) for e,a in examples_of(b, [[9]*100_000])]
    both = [(n, end) for n,end in a if n<end]
    assert .8<len(both)/len(a)<.95 and all(end<=128 for _,end in a)

def test_a_line_of_a_million_tokens_takes_a_second():
    start = time.process_time()
    n = sum(len(e) for e,_ in examples_of(ExampleBuilder(128, 1, 2, random.Random(0)), [[9]*1_000_000]))
    assert n>1_000_000 and time.process_time()-start<5

def test_long_lines_do_not_depend_on_processes(vocab, tmp_path, monkeypatch):
    file = write(tmp_path/'t.txt', paragraphs(300))
    monkeypatch.setattr(examples, 'chunks', lambda c, blank: text.chunks(c, blank, chunk_bytes=10_000))
    assert len(examples.chunks(file, True))>4
    one, two = (load_examples(build_examples(file, vocab, tmp_path/str(n), 32, num_proc=n))[:] for n in (1, 2))
    assert all(map(torch.equal, one, two))

def test_what_is_dropped_is_reported(vocab, tmp_path):
    file = write(tmp_path/'t.txt', paragraphs(100))
    said, = warned(lambda: build_examples(file, vocab, tmp_path/'a', 32, long_lines='official'))
    assert '% of the tokens were dropped (did not fit' in said and '`long_lines` split keeps them' in said
    assert not warned(lambda: build_examples(file, vocab, tmp_path/'b', 32))

def test_a_corpus_of_one_document(vocab, tmp_path):
    "Nothing can be held out of it; what is said is the reason, whatever share is asked for"
    file = write(tmp_path/'t.txt', 'the dog\n'*50)
    said, = warned(lambda: build_examples(file, vocab, tmp_path/'a', held_out=.001))
    assert 'a document is held out as a whole' in said and 'here are 1' in said
    with pytest.raises(examples.InputError, match=r'all its documents \(1\) are held out; a document is .* as a whole'):
        build_examples(file, vocab, tmp_path/'b', held_out=.999)

# Languages

KOREAN = '나는 오늘 아침에 학교에 갔다. 우리 학교는 아주 크다.\n동생은 학교에 가지 않고 집에서 책을 읽었다.\n'
SPANISH = 'El niño soñó con la montaña y la canción de mañana.\nMás allá está el camino de España.\n'

def test_korean_vocabularies_hold_syllables(tmp_path):
    file = write(tmp_path/'t.txt', KOREAN*20)
    assert not [o for o in warned(lambda: train_vocab(file, tmp_path/'v', 400)) if 'accents' in o]
    tok, again = load_tokenizer(tmp_path/'v'), AutoTokenizer.from_pretrained(tmp_path/'v')
    assert tok.tokenize('학교에')==['학교에'] and not any('\u1100'<=c<='\u11ff' for o in tok.get_vocab() for c in o)
    for line in KOREAN.splitlines():
        ids = tok(line)['input_ids']
        assert tok.unk_token_id not in ids and ids==tok(nfd(line))['input_ids']==again(line)['input_ids']
    assert tok('학교 집').keys()==pieces(SPECIALS)('a').keys()
    ex = load_examples(build_examples(write(tmp_path/'nfd.txt', nfd(KOREAN)), tmp_path/'v', tmp_path/'x'))
    assert ex.unknown()==0 and '학교에 갔다' in ex.decode(0)[0]

def test_released_korean_pieces_are_letters():
    "A bare vocab.txt is read as BERT reads it"
    assert pieces([*SPECIALS, *nfd('한'), *('##'+c for c in nfd('한'))]).tokenize('한')

def test_both_forms_of_kept_accents_are_one_word(tmp_path):
    file = write(tmp_path/'t.txt', SPANISH*20)
    assert not [o for o in warned(lambda: train_vocab(file, tmp_path/'v', 300, strip_accents=False)) if 'accents' in o]
    tok = load_tokenizer(tmp_path/'v')
    assert tok.tokenize('niño')==tok.tokenize(nfd('niño'))==['niño']

def test_english_vocabularies_are_those_of_bert(tmp_path):
    file = write(tmp_path/'t.txt', 'the café has a dog and a cat\n'*20)
    train_vocab(file, tmp_path/'v', 110, strip_accents=True)
    plain = wordpiece(load_tokenizer(tmp_path/'v').get_vocab())
    assert load_tokenizer(tmp_path/'v').backend_tokenizer.to_str()==plain.backend_tokenizer.to_str()

@pytest.mark.parametrize('form', [str, nfd])
def test_stripped_accents_are_reported(form, tmp_path):
    file = write(tmp_path/'t.txt', form(SPANISH)*20)
    said, = [o for o in warned(lambda: train_vocab(file, tmp_path/'v', 300, strip_accents=True)) if 'accents' in o]
    n = sum(c in 'ñóáúé' for c in SPANISH)*20
    assert said.startswith(f'{n:,} of ') and '`niño` -> `nino` and `soñó` -> `sono`' in said
    assert '`strip_accents` false' in said

@pytest.mark.parametrize('words,many', [(249, False), (248, True)])
def test_accents_stay_if_more_than_one_letter_in_a_thousand_has_one(words, many, tmp_path, capsys):
    file = write(tmp_path/'t.txt', 'abcd '*words + 'café\n')
    assert not warned(lambda: train_vocab(file, tmp_path/'v'))
    said = 'Accents stay, since 0.1% of the characters would lose one, as in `café` -> `cafe`'
    assert (said in capsys.readouterr().out)==many==('é' in load_tokenizer(tmp_path/'v').get_vocab())
    assert any('accents' in o for o in warned(lambda: train_vocab(file, tmp_path/'w', strip_accents=True)))==many

# Lines of our own, without a mark that BERT's normalisation removes by design
LANGUAGES = dict(
    chinese='今天早上我去学校。我们的学校很大，学生也很多。弟弟在家里看书。',
    japanese='わたしは毎朝パンを食べて、学校へ行きます。弟はバスで行きました。がっこうはとても大きいです。',
    korean=KOREAN.replace('\n', ' '),
    thai='วันนี้ฉันไปโรงเรียนแต่เช้า' + 'โรงเรียนของเราใหญ่มากและมีนักเรียนหลายคนน้องชายอ่านหนังสืออยู่ที่บ้าน'*2,
    hindi='आज सुबह मैं स्कूल गया। हमारा स्कूल बहुत बड़ा है। मेरा छोटा भाई घर में किताब पढ़ता है।',
    yoruba='Mo lọ sí ilé-ìwé ní àárọ̀ yìí. Ilé-ìwé wa tóbi púpọ̀. Àbúrò mi ń ka ìwé nílé.',
    vietnamese='Sáng nay tôi đến trường. Trường của chúng tôi rất lớn. Em trai tôi đọc sách ở nhà.',
    greek='Σήμερα το πρωί πήγα στο σχολείο. Το σχολείο μας είναι πολύ μεγάλο.',
    arabic='ذَهَبْتُ إِلَى المَدْرَسَةِ صَباحَ اليَوْمِ. مَدْرَسَتُنا كَبيرَةٌ جِدًّا.',
    amharic='ዛሬ ጠዋት ወደ ትምህርት ቤት ሄድኩ። ትምህርት ቤታችን በጣም ትልቅ ነው።')

@pytest.mark.parametrize('language', LANGUAGES)
def test_no_language_loses_a_letter(language, tmp_path):
    "With the defaults: all characters come back from the ids, and none is `[UNK]`"
    line = LANGUAGES[language]
    file = write(tmp_path/'t.txt', f'{line}\n'*40)
    assert not warned(lambda: train_vocab(file, tmp_path/'v'))
    tok = load_tokenizer(tmp_path/'v')
    ids = tok(line, add_special_tokens=False)['input_ids']
    shown = ''.join(tok.convert_ids_to_tokens(ids)).replace('##', '')
    assert shown==unicodedata.normalize('NFC', line.lower()).replace(' ', '')
    assert load_examples(build_examples(file, tmp_path/'v', tmp_path/'x')).unknown()==0

@pytest.mark.parametrize('sign,n', [('字', 0x4e00), ('글', 0xac00), ('ꀀ', 0xa000)], ids=['chinese', 'korean', 'yi'])
@pytest.mark.parametrize('size', [None, 8000])
def test_a_large_alphabet_has_room(sign, n, size, tmp_path):
    "Thousands of characters by Zipf's law: the size of the vocabulary follows, and hardly a token is unknown"
    rng, signs = random.Random(0), [chr(n+i) for i in range(1100)]
    words = rng.choices(signs, [1/(i+10) for i in range(len(signs))], k=60_000)
    file = write(tmp_path/'t.txt', '\n'.join(' '.join(words[i:i+60]) for i in range(0, len(words), 60)))
    train_vocab(file, tmp_path/'v', size)
    ex = load_examples(build_examples(file, tmp_path/'v', tmp_path/'x'))
    assert ex.unknown()<.001 and len(load_tokenizer(tmp_path/'v'))>1000

def test_a_vocabulary_tells_what_it_does_not_know(tmp_path, capsys):
    "One that is too small for its alphabet says the share that no model will read"
    line = ''.join(chr(0x4e00+i) for i in range(400))
    said = warned(lambda: train_vocab(write(tmp_path/'t.txt', line), tmp_path/'v', 110))
    share = 1 - sum('\u4e00'<=o[-1] for o in load_tokenizer(tmp_path/'v').get_vocab())/400
    assert f'{share:.2%} of the tokens of the text are [UNK]' in capsys.readouterr().out and share>.7
    assert any('train a larger vocabulary' in o for o in said)

# Text without spaces

def chinese(n): return ''.join(random.Random(n).choices([chr(0x4e00+i) for i in range(60)], k=n))

def test_chinese_characters_are_words(tmp_path):
    file = write(tmp_path/'t.txt', chinese(3000))
    train_vocab(file, tmp_path/'v', 800)
    pieces = load_tokenizer(tmp_path/'v').get_vocab()
    assert chinese(1) in pieces and not [o for o in pieces if o.startswith('##')]
    ex = load_examples(build_examples(file, tmp_path/'v', tmp_path/'x'))
    assert ex.unknown()==0 and ex.counts['tokens']>3000

def test_a_paragraph_without_spaces_takes_seconds(tmp_path):
    "10,000 characters are built, scored and shown; work that grows with their square would take minutes"
    line, start = chinese(10_000), time.process_time()
    tok = pieces([*SPECIALS, *sorted(set(line))])
    ex = load_examples(build_examples(write(tmp_path/'t.txt', line), save_tokenizer(tok, tmp_path/'v'), tmp_path/'x'))
    assert ex.counts['tokens']>10_000 and ex.unknown()==0
    d = ElectraForPreTraining(ElectraConfig(**TINY | dict(vocab_size=len(tok))))
    shown = score_tokens(Scorer(d, None, tok, 32), line, threshold=1)
    assert ''.join(shown.words)==line and shown.ansi().count('\x1b[0m')==10_000
    assert shown._repr_html_().count('<span')==10_000 and time.process_time()-start<15

def test_a_line_separator_is_no_line_end(tmp_path):
    "U+2028 stands in JSON strings and in texts; only a line feed ends a line"
    odd = 'the dog\u2028saw\x85a cat'
    def jsonl(**row): return json.dumps(row, ensure_ascii=False) + '\n'
    rows = write(tmp_path/'r.jsonl', jsonl(text=odd)*2), write(tmp_path/'r.txt', f'{odd}\n'*2)
    for o in rows: assert [r['text'] for _,r in read_table(o, ['text'])]==[odd]*2
    nbest = write(tmp_path/'n.jsonl', jsonl(reference=odd, hypotheses=[odd])*2)
    pairs = write(tmp_path/'p.jsonl', jsonl(sentence_good=odd, sentence_bad=odd)*2)
    assert [o.reference for o in read_nbest(nbest)]==[o['good'] for o in read_pairs(pairs)]==[odd]*2
    assert [o for c in text.chunks(rows[1]) for o in c.lines()]==[odd, odd, '']

# [UNK]

TINY = dict(embedding_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8,
            max_position_embeddings=32)

@pytest.fixture(scope='module')
def networks(tok):
    torch.manual_seed(0)
    config = ElectraConfig(vocab_size=len(tok), **TINY)
    return ElectraForPreTraining(config), ElectraForMaskedLM(config)

def readers(tok, networks, tmp_path, mp):
    "What reads text: {name: function of a text}"
    d, g = networks
    def likelihood(o): pseudo_log_likelihood(Likelihood(lambda *a: pass_scores(g, tok.mask_token_id, *a), tok, 32), [o])
    task, hp = TextTask('about', ('0', '1')), finetune_preset('official', 'small', ['about'], max_seq_length=512)
    def outputs(name, features): return torch.zeros(len(features), 2)
    learn = SimpleNamespace(tok=tok, hp=hp, outputs=outputs, tasks=dict(about=task))
    def file(o):
        path = write(tmp_path/'rows.txt', o)
        finetune.FinetuneLearner.predict_rows(learn, task.read(path), task, path)
    def building(o):
        build_examples(write(tmp_path/'t.txt', o), save_tokenizer(tok, tmp_path/'v'), tmp_path/f'x{len(o)}', 32)
    return dict(building=building, scoring=lambda o: score_tokens(Scorer(d, None, tok, 32), o), likelihood=likelihood,
                rows=lambda o: read_split(task, 'dev', tok, hp, task.unlabelled([o])), file=file,
                prediction=lambda o: finetune.FinetuneLearner.predict(learn, o))

@pytest.mark.parametrize('name', ['building', 'scoring', 'likelihood', 'rows', 'prediction', 'file'])
def test_unknown_tokens_are_reported(name, tok, networks, tmp_path, monkeypatch):
    read = readers(tok, networks, tmp_path, monkeypatch)[name]
    said, = warned(lambda: read('the dog '*9 + 'собака'))
    assert 'of the tokens are [UNK]' in said and 'longer than 100 characters' in said
    assert not warned(lambda: read('the dog '*99 + 'собака'))
    assert 'are [UNK]' in warned(lambda: read('ทุกคนมีสิทธิ'*20))[0]

# Words, files and tables of many scripts

@pytest.mark.parametrize('text', ['हिन्दी किताब', 'ที่ นี่', 'كِتَابٌ جَدِيدٌ', nfd('Tiếng Việt'), 'می\u200cخواهم تو'])
def test_vowel_signs_and_accents_are_no_words(text):
    "The split of byte-level BPE, that of GPT-2, cuts words there"
    enc = bpe(['a']).backend_tokenizer.encode(text, add_special_tokens=False)
    ids, groups, spans = word_groups(enc, text)
    assert [text[a:b] for a,b in spans]==text.split() and [i for g in groups for i in g]==[*range(len(ids))]

def test_no_blank_is_proposed():
    tok = bpe(['the cat sat'])
    assert tok.convert_tokens_to_ids('Ġ') not in whole_words(tok)

@pytest.mark.parametrize('code, cure', [('utf-16', 'iconv -f utf-16'), ('iso2022_jp', 'iconv -f iso-2022-jp'),
                                        ('shift_jis', 'from its encoding'), ('gb18030', 'from its encoding')])
def test_files_in_other_encodings_name_theirs(code, cure, tmp_path):
    (tmp_path/'a.txt').write_bytes('東京は日本の都市です\n'.encode(code))
    with pytest.raises(InputError, match=cure): [*text_lines(tmp_path/'a.txt')]

def test_a_column_in_another_form_of_unicode(tmp_path):
    write(tmp_path/'a.csv', nfd('text,çé\na,b\n'))
    with pytest.raises(InputError, match='in another form of Unicode'): read_table(tmp_path/'a.csv', ['text', 'çé'])

def test_a_name_with_a_joiner_is_a_file_name():
    assert file_name('می\u200cخواهم', 'the name')

def test_words_that_columns_cannot_hold():
    cure = dict(match='write a .jsonl file')
    for o in ('a\nb', 'x\ty'):
        with pytest.raises(InputError, **cure): conll_text([dict(words=['one', o], tags=['A', 'B'])])
        with pytest.raises(InputError, **cure): ged_text([dict(words=[o], tags=['c'], probs=[.1])])

def test_pairs_without_blanks_are_compared_by_characters(tmp_path):
    write(tmp_path/'pairs-zorro.txt', '駅をかなまで食べる。\n駅がかなまで食べる。\n')
    pair, = read_pairs(tmp_path/'pairs-zorro.txt')
    assert (pair['good'], pair['bad'])==('駅がかなまで食べる。', '駅をかなまで食べる。')

def test_error_rates_of_sentences_are_told():
    pytest.importorskip('jiwer')
    assert any('rates of sentences' in o for o in warned(lambda: _list_errors([NBest('駅で会う', ['駅で会う', '駅が会う'])])))
    assert not warned(lambda: _list_errors([NBest('at the sea', ['at a sea'])]))

def test_a_context_that_is_no_utf_8(tmp_path):
    file = TextFile(write(tmp_path/'a.txt', 'a\n'))
    with pytest.raises(InputError, match='the context is not UTF-8'): line_contexts(file, 'caf\udce9')
