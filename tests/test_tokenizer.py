"Tokenizers: what is refused, what is kept when they are saved, and the same vocabulary from the same text"
import json, shutil, warnings
from unicodedata import normalize

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerFast

from electra_nbdev.engine.files import InputError
from electra_nbdev.data.tokenizer import (SPECIALS, check_vocab, fingerprint, load_tokenizer, read_vocab,
                                          save_tokenizer, special_token_ids, text_backend, train_vocab, unknown_id,
                                          vocab_list, warn_unknown, word_starts, wordpiece)

def vocab(pieces): return {o: i for i,o in enumerate([*SPECIALS, *pieces.split()])}
def bert(pieces, **kw): return wordpiece(vocab(pieces), **kw)
def cut(pieces, text, **kw): return bert(pieces, **kw).tokenize(text)
def refused(match): return pytest.raises(InputError, match=match)

@pytest.fixture
def the_cat(tmp_path):
    "A bare `vocab.txt`"
    (tmp_path/'vocab.txt').write_text('\n'.join(SPECIALS) + '\n the \ncat\n\n', encoding='utf-8')
    return tmp_path/'vocab.txt'

def gpt(**special):
    "A byte-level tokenizer"
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer,bpe.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False),decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = BpeTrainer(vocab_size=270, special_tokens=[*special.values()], initial_alphabet=alphabet)
    bpe.train_from_iterator(['the cat sat on the mat'], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=bpe, **special)

@pytest.fixture
def byte_level():
    tok = gpt(bos_token='<s>', eos_token='</s>')
    tok.add_special_tokens(dict(mask_token='<mask>', pad_token='<pad>'))
    return tok

# Normalisation

CASES = [('a cafe café', 'A Café', {}, ['a', 'cafe']),
         ('a cafe café', 'A Café', dict(strip_accents=False), ['a', 'café']),
         ('a cafe café', 'A Café', dict(lower_case=False), ['[UNK]', '[UNK]']),
         ('한국 ##어', '한국어', {}, ['[UNK]']),
         ('한국 ##어', '한국어', dict(compose=True), ['한국', '##어']),
         ('한국 ##어', normalize('NFD', '한국어'), dict(compose=True), ['한국', '##어']),
         ('é', normalize('NFD', 'É'), dict(compose=True, strip_accents=False), ['é'])]

@pytest.mark.parametrize('pieces,text,how,expected', CASES)
def test_normalisation(pieces, text, how, expected): assert cut(pieces, text, **how)==expected

def test_what_differs_from_the_official_tokenizer():
    tok = bert('a ##a [ ]')
    assert tok.tokenize('a'*100)==['a', *['##a']*99]
    assert tok.tokenize('a'*101)==tok.tokenize('a\u0378a')==['[UNK]']
    assert tok.tokenize('a [CLS]')==['a', '[CLS]']
    assert tok.backend_tokenizer.normalizer.normalize_str('ΝΟΜΟΣ')=='νομοσ'
    assert tok.tokenize('a [CLS]', split_special_tokens=True)==['a', '[', '[UNK]', ']']

# Vocabularies and special tokens

@pytest.mark.parametrize('pieces,match', [([*SPECIALS, 'the', 'cat', 'the'], 'v.txt line 8 repeats `the` of line 6'),
                                          ([*SPECIALS[:4], 'the'], r'v.txt lacks \[MASK\]'),
                                          ([*SPECIALS, '', 'the'], 'v.txt line 6 is empty')])
def test_vocabularies(pieces, match):
    with refused(match): check_vocab(pieces, 'v.txt')

def test_a_vocabulary_file(the_cat):
    assert read_vocab(the_cat)==vocab('the cat')
    assert load_tokenizer(the_cat)('The cat')['input_ids']==[2, 5, 6, 3]
    assert load_tokenizer(the_cat.parent, lower_case=False).tokenize('The cat')==['[UNK]', 'cat']
    with refused('there is no vocabulary at'): load_tokenizer(the_cat.with_name('vocab'))
    the_cat.with_name('tokenizer_config.json').write_text('{}')
    with refused('is no vocab.txt; give its folder'): load_tokenizer(the_cat.with_name('tokenizer_config.json'))
    the_cat.write_bytes(b'\xff\xfe\x00')
    with refused('is not UTF-8'): read_vocab(the_cat)

@pytest.mark.parametrize('part', ['discriminator', 'electric', 'vocab'])
def test_the_vocabulary_of_a_run_or_of_examples(the_cat, part, tmp_path):
    save_tokenizer(load_tokenizer(the_cat), tmp_path/'run'/part)
    assert fingerprint(load_tokenizer(tmp_path/'run'))==fingerprint(load_tokenizer(the_cat))

def test_the_vocabulary_of_a_model_of_the_package(tmp_path, monkeypatch):
    found = load_tokenizer('electric')
    assert len(found)==4000 and fingerprint(found)==fingerprint(load_tokenizer('tiny'))
    monkeypatch.chdir(tmp_path)
    save_tokenizer(wordpiece(vocab('a')), 'tiny') # what is there wins over a name
    assert len(load_tokenizer('tiny'))==6

def test_special_tokens(byte_level):
    assert special_token_ids(bert('a'))==(0, 2, 3, 4)
    assert special_token_ids(byte_level)[1:3]==(0, 1)
    with refused('has no pad_token and no mask_token'): special_token_ids(gpt(bos_token='<s>', eos_token='</s>'))
    same = gpt(bos_token='<s>', eos_token='</s>', mask_token='<mask>')
    same.pad_token = same.eos_token
    with refused(r'one token for two of SpecialTokenIds\(pad=1, cls=0, sep=1, mask=2\)'): special_token_ids(same)

def test_beginnings_of_words(byte_level):
    pieces = [*vocab('un ##un ##play ##able a , .')]
    starts = word_starts(bert('un ##un ##play ##able a , .'))
    assert [o for o,begins in zip(pieces, starts) if not begins]==[o for o in pieces if o[:2]=='##']
    starts, ids = word_starts(byte_level), byte_level('the cat sat')['input_ids']
    assert [starts[i] for i in ids]==[o.startswith('Ġ') for o in byte_level.convert_ids_to_tokens(ids)]

def test_special_tokens_in_the_text_are_text(byte_level):
    def cut(tok, text): return text_backend(tok).encode(text, add_special_tokens=False).tokens
    tok = bert('the cat')
    assert tok.tokenize('the [SEP]')==['the', '[SEP]'] and cut(tok, 'the [SEP]')==['the', *['[UNK]']*3]
    assert byte_level.tokenize('the cat<s>')==['the', 'Ġcat', '<s>']
    assert cut(byte_level, 'the cat<s>')==['the', 'Ġcat', '<', 's', '>']

def test_one_unknown_token_in_a_hundred_is_no_warning(byte_level):
    tok, said = bert('the'), []
    thai = tok.encode('ภาษาไทย'*20, add_special_tokens=False)
    assert thai==[tok.unk_token_id] and unknown_id(byte_level) is None
    for n in (99, 90):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter('always')
            warn_unknown(tok, [[5]*n, thai], 'a text')
        said.append(len(found))
    assert said==[0, 1]

# Saved

def test_saved(the_cat, byte_level, tmp_path):
    tok = load_tokenizer(the_cat)
    again = load_tokenizer(save_tokenizer(tok, tmp_path/'saved'))
    assert fingerprint(again)==fingerprint(tok)!=fingerprint(wordpiece(tok.get_vocab(), lower_case=False))
    names = sorted(o.name for o in (tmp_path/'saved').iterdir())
    assert names==['tokenizer.json', 'tokenizer_config.json', 'vocab.txt']
    assert load_tokenizer(tmp_path/'saved'/'vocab.txt').get_vocab()==tok.get_vocab()
    assert fingerprint(load_tokenizer(save_tokenizer(byte_level, tmp_path/'gpt')))==fingerprint(byte_level)
    with refused('holds another vocabulary'): save_tokenizer(tok, tmp_path/'gpt')

def test_a_kind_that_is_not_supported(the_cat, tmp_path):
    tok = load_tokenizer(the_cat)
    file = save_tokenizer(tok, tmp_path/'other')/'tokenizer.json'
    model = {'type': 'WordLevel', 'vocab': tok.get_vocab(), 'unk_token': '[UNK]'}
    file.write_text(json.dumps(json.loads(file.read_text()) | dict(model=model)))
    file.with_name('tokenizer_config.json').write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    with refused('holds a WordLevel tokenizer'): load_tokenizer(file.parent)

# Trained

def test_the_same_text_gives_the_same_files(tmp_path):
    from pydoc_data.topics import topics
    (tmp_path/'t.txt').write_text('\n\n'.join(topics.values()))
    tok = train_vocab(tmp_path/'t.txt', tmp_path/'a', vocab_size=1000)
    assert len(tok)==1000 and vocab_list(tok)[:5]==SPECIALS
    assert tok.tokenize('the method of a class')==['the', 'method', 'of', 'a', 'class']
    train_vocab(tmp_path/'t.txt', tmp_path/'b', vocab_size=1000)
    for o in (tmp_path/'a').iterdir(): assert o.read_bytes()==(tmp_path/'b'/o.name).read_bytes()

def test_the_size_follows_from_the_text(tmp_path, capsys):
    (tmp_path/'t.txt').write_text('the cat sat on the mat')
    with warnings.catch_warnings():
        warnings.simplefilter('error') # nobody asked for more pieces than there are
        train_vocab(tmp_path/'t.txt', tmp_path/'v', min_frequency=1)
    assert 'a vocabulary of at most 2,000 pieces' in capsys.readouterr().out

@pytest.mark.parametrize('word,typed', [
    ('बड़ा', 'ब\u095cा'), # Hindi: a letter with its point, which NFC takes apart
    ('\u05de\u05dc\u05b8\u05bcה', '\u05de\u05dc\u05bc\u05b8ה'), # Hebrew: a point and a vowel in two orders
    ('\u0645\u064e\u0651', '\u0645\u0651\u064e'), # Arabic: a vowel and a doubling in two orders
])
def test_two_ways_to_type_a_word_are_one_word(tmp_path, word, typed):
    "Also where no character of the composed text has two forms"
    assert normalize('NFC', typed)==normalize('NFC', word) and typed!=normalize('NFC', word)
    for name,text in (('a', normalize('NFC', word)), ('b', typed)):
        (tmp_path/f'{name}.txt').write_text('\n\n'.join([f'{text} यह घर בית {text}']*50), encoding='utf-8')
        tok = train_vocab(tmp_path/f'{name}.txt', tmp_path/name, vocab_size=100)
        assert tok.tokenize(typed)==tok.tokenize(normalize('NFC', word)) and tok.unk_token not in tok.tokenize(typed)

def test_a_short_corpus(tmp_path):
    (tmp_path/'t.txt').write_text('the cat sat on the mat')
    with pytest.warns(UserWarning, match='pieces instead of 30522'):
        train_vocab(tmp_path/'t.txt', tmp_path/'v', 30522, min_frequency=1)
    with refused('at least 100'): train_vocab(tmp_path/'t.txt', tmp_path/'v2', vocab_size=10)

def test_weights_without_a_tokenizer(tmp_path):
    "There transformers opens one of special tokens alone, under which every word would be unknown"
    from electra_nbdev.engine.models import shipped
    from electra_nbdev.finetuning.recipe import open_model
    from electra_nbdev.scoring.score import load_scorer
    source = shipped('tiny')/'discriminator'
    shutil.copytree(source, tmp_path, ignore=shutil.ignore_patterns('tokenizer*'), dirs_exist_ok=True)
    for act in (load_tokenizer, load_scorer):
        with refused('has no vocabulary; put the tokenizer.json'): act(tmp_path)
    (tmp_path/'tokenizer_config.json').write_text('{}')
    with refused('has no vocabulary'): open_model(tmp_path)

def test_accents_of_a_bare_vocabulary(tmp_path, capsys):
    "A vocabulary whose pieces have accents was made of a text that kept them; a stray one in thousands says nothing"
    file = tmp_path/'vocab.txt'
    def vocabulary(*pieces):
        file.write_text('\n'.join([*SPECIALS, *pieces]))
        return file
    kept = vocabulary('el', 'café', 'cafe', 'n', '##o', 'ñ')
    assert load_tokenizer(kept).tokenize('El CAFÉ ño')==['el', 'café', 'ñ', '##o']
    assert 'has pieces with accents, so text keeps them' in capsys.readouterr().out
    assert load_tokenizer(kept, strip_accents=True).tokenize('El café')==['el', 'cafe']
    assert load_tokenizer(vocabulary('el', 'cafe')).tokenize('El CAFÉ')==['el', 'cafe']
    stray = vocabulary('cafe', 'é', *(f'w{i}' for i in range(2000)))
    assert load_tokenizer(stray).tokenize('Café')==['cafe'] and not capsys.readouterr().out

def test_capitals_in_a_vocabulary_decide(tmp_path, capsys):
    "A cased vocabulary keeps the case of the text, and says so"
    (tmp_path/'vocab.txt').write_text('\n'.join([*SPECIALS, '[unused1]', 'Dezembro', 'é', 'dezembro']))
    assert load_tokenizer(tmp_path/'vocab.txt').tokenize('Dezembro é')==['Dezembro', 'é']
    assert 'has pieces with capitals' in capsys.readouterr().out
    assert load_tokenizer(tmp_path/'vocab.txt', lower_case=True).tokenize('Dezembro')==['dezembro']
    small = [f'w{i}' for i in range(90)]
    (tmp_path/'vocab.txt').write_text('\n'.join([*SPECIALS, *small, 'Dezembro', *'ABCD']))
    assert load_tokenizer(tmp_path/'vocab.txt').tokenize('Dezembro')==['Dezembro'] and capsys.readouterr().out
    (tmp_path/'vocab.txt').write_text('\n'.join([*SPECIALS, '[unused1]', *small, 'dezembro']))
    assert load_tokenizer(tmp_path/'vocab.txt').tokenize('Dezembro')==['dezembro'] and not capsys.readouterr().out

def test_accents_are_removed_only_where_text_is_lower_cased(tmp_path):
    (tmp_path/'t.txt').write_text('Äpfel und Birnen')
    with pytest.raises(InputError, match='`strip_accents` is done only where text is lower-cased'):
        train_vocab(tmp_path/'t.txt', tmp_path/'v', 100, lower_case=False, strip_accents=True)
