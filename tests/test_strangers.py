"Files as others write them: read as they are meant, or refused in a line that can be followed"
import gzip, json
import pytest

from electra_nbdev.data.tokenizer import load_tokenizer
from electra_nbdev.engine.files import InputError
from electra_nbdev.finetuning.questions import QAExample, build_windows
from electra_nbdev.finetuning.recipe import FinetuneHParams
from electra_nbdev.scoring.ranking import rerank
from electra_nbdev.scoring.score_files import NBest, read_nbest

# N-best lists

HEAD = 'id\treference\thypothesis\tscore\n'
LISTS = {f'u{i}': (f'the cat sat {i}', [(f'the cat sat {i}', -1.), (f'a cat sat {i}', -2.), (f'a hat sat {i}', -3.)])
         for i in range(30)}
ROWS = [(k, ref, h, s) for k,(ref,hyps) in LISTS.items() for h,s in hyps]

def table(path, rows, head=HEAD):
    path.write_text(head + ''.join('\t'.join(map(str, o))+'\n' for o in rows), encoding='utf-8')
    return path

def rates(path):
    "Word error rates of lists to which a model adds nothing"
    lists = read_nbest(path)
    rows = [[dict(score=-1., tokens=h.split()) for h in o.hypotheses] for o in lists]
    picks, _, found = rerank(lists, rows)
    chosen = {o.id: o.hypotheses[i] for o,i in zip(lists, picks)}
    return chosen, {k: o[0] for k,o in found.items()}

ORDERS = dict(by_score=lambda o: -o[3], worst_first=lambda o: (o[0], o[3]), by_text=lambda o: o[2],
              by_id_backwards=lambda o: (o[0], o[2])) # as `sort` leaves them

@pytest.mark.parametrize('order', ORDERS)
def test_rows_of_one_id_belong_together_wherever_they_are(order, tmp_path, capsys):
    plain = rates(table(tmp_path/'plain.tsv', ROWS))
    said = capsys.readouterr().out
    assert 'by score' not in said and plain[1]['first']==0
    assert rates(table(tmp_path/'a.tsv', sorted(ROWS, key=ORDERS[order])))==plain
    moved = order in ('worst_first', 'by_text', 'by_id_backwards')
    assert ('in 30 of 30 lists the first hypothesis is not the best by score' in capsys.readouterr().out)==moved

def test_rows_of_one_id_have_one_reference(tmp_path):
    rows = [('u1', 'a cat', 'a cat', -1), ('u2', 'x', 'x', -1), ('u1', 'a hat', 'a cat', -2)]
    with pytest.raises(InputError, match="line 4: the id u1 has another reference than on line 2"):
        read_nbest(table(tmp_path/'a.tsv', rows))

def test_references_that_come_again_are_told(tmp_path, capsys):
    "Two recordings may say the same, so that only neighbours belong together"
    rows = [('yes', 'yes', -1), ('no', 'no', -1), ('yes', 'yet', -2)]
    lists = read_nbest(table(tmp_path/'a.tsv', rows, 'reference\thypothesis\tscore\n'))
    assert [o.hypotheses for o in lists]==[['yes'], ['no'], ['yet']]
    assert '1 reference comes again further down' in capsys.readouterr().out

def test_the_best_by_score_is_what_re_ranking_is_held_against(tmp_path, capsys):
    "In every form of a file; without scores it is the first"
    for name,o in dict(nemo=dict(text='a cat', beams=[['a hat', -2.], ['a cat', -1.]]),
                       plain=dict(reference='a cat', hypotheses=['a hat', 'a cat'], scores=[-2, -1]),
                       vosk=dict(reference='a cat', alternatives=[dict(text='a hat', confidence=.1),
                                                                  dict(text='a cat', confidence=.9)])).items():
        path = tmp_path/f'{name}.jsonl'
        path.write_text('\n'.join(json.dumps(o | dict(id=i)).replace('cat', f'cat {i}') for i in range(20)))
        chosen, found = rates(path)
        assert found['first']==0 and chosen[3]=='a cat 3', name
        assert 'in 20 of 20 lists' in capsys.readouterr().out, name
    lists = [NBest(f'a cat {i}', [f'a hat {i}', f'a cat {i}']) for i in range(20)]
    rows = [[dict(score=-1., tokens=h.split()) for h in o.hypotheses] for o in lists]
    assert round(rerank(lists, rows)[2]['first'][0])==33

LATIN = [dict(reference='il a mangé', hypotheses=['il a mangé', 'il a mange'])]

@pytest.mark.parametrize('encoding,why', {'latin-1': 'is not UTF-8', 'cp1251': 'is not UTF-8', 'shift_jis':
    'is not UTF-8', 'utf-16': 'has a zero byte', 'utf-16-le': 'has a zero byte'}.items())
@pytest.mark.parametrize('ending', ['.json', '.jsonl', '.tsv', '.json.gz', '.tsv.gz'])
def test_bytes_that_are_no_utf_8_are_refused(encoding, why, ending, tmp_path):
    word = {'cp1251': 'съел', 'shift_jis': '食べた'}.get(encoding, 'mangé')
    text = dict(json=json.dumps([dict(o, id=1) for o in LATIN], ensure_ascii=False, indent=1),
                jsonl=json.dumps(LATIN[0], ensure_ascii=False), tsv='reference\thypothesis\nil a mangé\til a mangé\n')
    data = text[ending.split('.')[1]].replace('mangé', word).encode(encoding)
    path = tmp_path/f'a{ending}'
    path.write_bytes(gzip.compress(data) if ending.endswith('gz') else data)
    with pytest.raises(InputError, match=f'line [1-4]: .*{why}'): read_nbest(path)

def test_a_compressed_list_is_read(tmp_path):
    path = tmp_path/'a.json.gz'
    path.write_bytes(gzip.compress(json.dumps(LATIN, ensure_ascii=False).encode()))
    assert read_nbest(path)[0].reference=='il a mangé'

# Answers in passages whose characters the tokenizer drops

PASSAGES = { # passage, with the answer between bars
    'zero-width space': '王先生住在|北京|,\u200b他喜欢读书。李小姐住在上海。', 'in the answer': '王先生住在|北\u200b京|,他喜欢读书。',
    'variation selector': '王先生住在|北京|,❤\ufe0f他喜欢读书。', 'after the answer': '他喜欢|❤\ufe0f|,她也是。',
    'soft hyphen': 'the pro\u00adfessor lives in the city,|paris|.', 'word joiner': 'he lives in\u2060,|paris|.',
    'byte order mark': '\ufeffhe lives in(|paris|).', 'right to left': 'he lives in \u200fparis,|london|.',
    'unknown word': 'he lives in(|paris ☃|).', 'unknown sign': '王先生住在|北龘京|,他喜欢读书。',
    'thai marks': 'เขาอยู่ที่|เชียงใหม่|,ที่นี่', 'hindi': 'वह,|दिल्ली|,में रहता है', 'hebrew points': 'הוא,|שָׁלוֹם|,גר',
    'arabic marks': 'هو,|مُحَمَّد|,هنا',

    'decomposed': 'he likes the cafe\u0301,|the re\u0301sume\u0301|, and tea',
    'japanese': 'かれは、|がくせい|、です。', 'decomposed kana': 'かれは、|か\u3099くせい|、です。', 'zero-width joiner': 'a,|क्\u200dष|,b'}

@pytest.fixture(scope='module')
def any_script(tmp_path_factory):
    "A vocabulary with every character of the passages but two, without accents"
    from tokenizers.normalizers import BertNormalizer
    text = BertNormalizer(strip_accents=True, lowercase=True).normalize_str(''.join(PASSAGES.values()))
    signs = sorted({*text} - {*' ☃龘'})
    path = tmp_path_factory.mktemp('vocab')/'vocab.txt'
    words = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', *signs, *('##'+o for o in signs)]
    path.write_text('\n'.join(words)+'\n', encoding='utf-8')
    return load_tokenizer(path)

@pytest.mark.parametrize('kind', PASSAGES)
def test_an_answer_is_its_own_characters(kind, any_script):
    before, answer, after = PASSAGES[kind].split('|')
    example = QAExample(0, 'q', 'where?', before+answer+after, [answer], answer, len(before))
    windows = build_windows([example], any_script, FinetuneHParams(max_seq_length=128))
    first, last = windows.facts[0,3:].tolist()
    assert windows.text_of(0, first, last)==answer
