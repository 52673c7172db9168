"Files as others write them: read as they are meant, or refused in a line that can be followed"
import gzip, json, os, re, sys
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import ElectraForPreTraining

from electra_nbdev.data.tokenizer import load_tokenizer
from electra_nbdev.engine.files import InputError
from electra_nbdev.finetuning.questions import QAExample, build_windows
from electra_nbdev.finetuning.recipe import FinetuneHParams
from electra_nbdev.finetuning.tables import labelled_texts
from electra_nbdev.finetuning.tagging import read_tagged, tag_task
from electra_nbdev.finetuning.tasks import Feature
from electra_nbdev.networks.build import body_config
from electra_nbdev.networks.folder import open_pretrained
from electra_nbdev.networks.hparams import PretrainHParams
from electra_nbdev.scoring.ranking import rerank
from electra_nbdev.scoring.score_files import NBest, read_nbest, read_pairs
from electra_nbdev.sharing.convert import convert_weights
from terminal import typed

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
    'is not UTF-8', 'utf-16': 'is UTF-16', 'utf-16-le': 'has a zero byte'}.items())
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
    'twice': '北京人住在|北京|。', 'twice, unknown': '龘龘人住在|龘龘|。', 'twice in a word': 'on-off,|on|-off.',
    'thai marks': 'เขาอยู่ที่|เชียงใหม่|,ที่นี่', 'hindi': 'वह,|दिल्ली|,में रहता है',
    'hebrew points': 'הוא,|שָׁלוֹם|,גר',
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
    located = windows.located(0)
    assert located[first][0]<=len(before)<located[first][1], 'the answer at its own place'

# Pairs in tables, and standard input

RIGHT = ('The men run.', 'The men runs.'), ('The dog runs.', 'The dog run.')
(A, B), (C, D) = RIGHT
OWN = {'pairs.csv': f'good,bad\n{A},{B}\n{C},{D}\n', 'quoted.csv': f'kind,good,bad\n"a, long",{A},{B}\nb,{C},{D}\n',
       'pairs.tsv': f'sentence_bad\tkind\tsentence_good\n{B}\ta\t{A}\n{D}\tb\t{C}\n',
       'pairs.jsonl': ''.join(json.dumps(dict(good=a, bad=b))+'\n' for a,b in RIGHT),
       'named.csv': f'set,phenomenon,good,bad\nx,number,{A},{B}\ny,number,{C},{D}\n'}

@pytest.mark.parametrize('name', OWN)
def test_pairs_of_ones_own(name, tmp_path):
    (tmp_path/name).write_text(OWN[name])
    found = read_pairs(tmp_path/name)
    assert [(o['good'], o['bad']) for o in found]==[*RIGHT]
    if name=='quoted.csv': assert [o['kind'] for o in found]==['a, long', 'b']
    if name=='named.csv': assert [(o['set'], o['phenomenon']) for o in found]==[('x', 'number'), ('y', 'number')]
    else: assert {o['set'] for o in found}=={name.split('.')[0]}

def test_pairs_that_lack_a_text(tmp_path):
    (tmp_path/'a.csv').write_text('good,bad\nThe men run.,\n')
    with pytest.raises(InputError, match='line 2'): read_pairs(tmp_path/'a.csv')
    (tmp_path/'b.csv').write_text('good,worse\na,b\n')
    with pytest.raises(InputError, match='no `bad`'): read_pairs(tmp_path/'b.csv')

def said_of(line, given, folder):
    "What a command prints of standard input"
    (folder/'given').write_text(given, encoding='utf-8')
    def setup():
        os.dup2(os.open(folder/'given', os.O_RDONLY), 0)
        sys.stdin = os.fdopen(0, closefd=False)
    said = typed(line, folder, setup)
    return said.out + said.err

def test_standard_input_is_read_where_a_file_is(tmp_path):
    said = said_of('electra_score --text - --model electric --device cpu', 'the cat sat\nthe dog\n', tmp_path)
    assert [o.split('\t')[1] for o in said.splitlines() if '\t' in o]==['the cat sat', 'the dog'], said
    rows = '{"text": "the cat", "n": 1}\n'
    said = said_of('electra_score --surprisal - --model electric --device cpu', rows, tmp_path)
    assert '\tthe\t' in said and '\tcat\t' in said, said
    said = said_of('electra_score --pairs - --model electric --device cpu --per kind',
                   OWN['pairs.tsv'] + ''.join(f'{b}\tc\t{a}\n' for a,b in RIGHT*2), tmp_path)
    assert 'all pairs' in said and '\na ' in said, said
    said = said_of('electra_score --pairs - --model electric --device cpu', OWN['pairs.csv'], tmp_path)
    assert 'all pairs' in said, said
    said = said_of('electra_score --text - --model electric --device cpu', 'id,text\n7,the cat\n', tmp_path)
    assert said.count('\t')==1 and 'the cat' in said, said
    said = said_of('electra_score --text - --model electric --device cpu', 'Hello, world\nGoodbye, world\n', tmp_path)
    assert said.count('\t')==2, said
    said = said_of('electra_score --text - --model electric', '', tmp_path)
    assert 'standard input is empty' in said, said
    said = said_of('electra_score --nbest - --model electric', 'the cat\nthe dog\n', tmp_path)
    assert "the ending of standard input is '.txt'" in said, said

# Words with tags in columns

UD = ['# sent_id = 1', '1-2\tvámonos\t_\t_', '1\tvamos\t_\tVERB', '2\tnos\t_\tPRON', '3\tmar\t_\tNOUN',
      '3.1\tnada\t_\tVERB', '']

@pytest.mark.parametrize('name', ['a.conllu', 'a.conll', 'a.txt'])
def test_ids_of_several_words_and_of_none_are_left_out(name, tmp_path, capsys):
    (tmp_path/name).write_text('\n'.join(UD*3)+'\n', encoding='utf-8')
    task = tag_task('pos', tmp_path/name, word=1, tag=3, scheme=None, comment='#')
    assert task.labels==('NOUN', 'PRON', 'VERB')
    assert '6 rows with ids such as 1-2 or 5.1 left out' in capsys.readouterr().out
    found, _ = read_tagged(tmp_path/name, 1, None, comment='#') # to predict
    assert [o.words for o in found]==[('vamos', 'nos', 'mar')]*3

def test_words_that_look_like_such_ids_stay(tmp_path):
    (tmp_path/'a.txt').write_text('won O\n1-2 B-SCORE\nor O\n5.1 B-SCORE\n\n'*2)
    assert [o.words for o in read_tagged(tmp_path/'a.txt')[0]]==[('won', '1-2', 'or', '5.1')]*2
    (tmp_path/'b.txt').write_text('1-2\tscore\tO\n7\tgoals\tO\n5.1\tshare\tO\n\n') # numbers that are no ids
    assert len(read_tagged(tmp_path/'b.txt', 1)[0][0].words)==3

def test_comments_of_conllu_need_no_argument(tmp_path):
    (tmp_path/'a.conllu').write_text('\n'.join(UD)+'\n', encoding='utf-8')
    assert read_tagged(tmp_path/'a.conllu', 1, 3, scheme=None)[0][0].words==('vamos', 'nos', 'mar')

SAME = {'BILOU': 'U-PER O B-LOC I-LOC L-LOC', 'BIOES': 'S-PER O B-LOC I-LOC E-LOC',
        'BMEWO': 'W-PER O B-LOC M-LOC E-LOC', 'IOBES': 'S-PER O B-LOC I-LOC E-LOC'}

@pytest.mark.parametrize('scheme', SAME)
def test_other_names_of_bioes(scheme, tmp_path):
    words = 'Anna saw New York City'.split()
    lines = [f'{w}\t{t}' for w,t in zip(words, SAME[scheme].split())]
    (tmp_path/'a.txt').write_text('\n'.join([*lines, '', *lines, '']))
    for name in ('BIOES', scheme):
        task = tag_task('names', tmp_path/'a.txt', scheme=name)
        assert task.scheme=='BIOES' and task.labels==('B-LOC', 'E-LOC', 'I-LOC', 'O', 'S-PER')
    if scheme!='IOBES':
        with pytest.raises(InputError, match=r"tag_task\(\.\.\., scheme='BIOES'\) reads"): read_tagged(tmp_path/'a.txt')

def test_a_scheme_is_named_as_it_can_be_given(tmp_path):
    from electra_nbdev.cli import electra_finetune
    from electra_nbdev.engine.command import as_flags
    (tmp_path/'a.txt').write_text('the I-NP\n')
    with pytest.raises(InputError) as e: read_tagged(tmp_path/'a.txt')
    assert '--scheme' not in as_flags(electra_finetune, str(e.value)) and 'scheme=`' not in str(e.value)
    assert "in Python tag_task(..., scheme='IOB1') reads" in str(e.value)

@pytest.mark.parametrize('scheme,tags', {'BIOES': 'S-PER O B-LOC E-LOC', 'BILOU': 'U-PER O B-LOC L-LOC'}.items())
def test_predictions_of_bioes_are_in_its_notation(scheme, tags, tmp_path):
    "So that their accuracy is the one that is reported"
    words = 'Anna saw New York'.split()
    (tmp_path/'a.txt').write_text('\n'.join([*(f'{w} {t}' for w,t in zip(words, tags.split())), '']))
    task = tag_task('names', tmp_path/'a.txt', tmp_path/'a.txt', scheme=scheme)
    example, = task.examples('dev', FinetuneHParams())
    said = [task.labels.index(o) for o in ('S-PER', 'O', 'S-PER', 'E-LOC')]
    features = [Feature([], 0, dict(labels=[task.labels.index(o) for o in example.tags]), example)]
    outs = [10*torch.eye(len(task.labels))[said]]
    task.write(tmp_path, 'dev', features, outs)
    rows = [o.split() for o in (tmp_path/'names-dev.txt').read_text().splitlines() if o]
    assert task.metrics(features, outs)['accuracy']==100*sum(a==b for _,a,b in rows)/len(rows)==75
    assert rows[2]==['New', 'B-LOC', 'S-PER']

@pytest.mark.parametrize('sentence', ['the [MASK] sat', 'the <mask> sat', '[mask] sat', 'the [MASK]'])
def test_a_mask_is_no_word_to_show(sentence):
    from electra_nbdev.scoring.request import ScoreRequest
    with pytest.raises(InputError, match='`choices`, a text with a blank ___, and `candidates`'):
        ScoreRequest(show=sentence).settle()

# Labels

def labels_of(train, dev=None):
    "Classes, and the label of each example"
    def rows(o): return [dict(text=f'text {i}', label=y) for i,y in enumerate(o)]
    labels, found = labelled_texts('films', rows(train), dev and rows(dev))
    return labels, {k: [e.label for e in o] for k,o in found.items()}

def test_numbers_are_classes_by_value():
    for train in ([0, 0., 1, 1.], ['0', '0.0', '1', '1.0'], ['0', 0., 1, '1.00']):
        assert labels_of(train)==(('0', '1'), dict(train=['0', '0', '1', '1'])), train
    for train,dev in (([0., 1.], [1, 0]), ([0., 1.], ['1', '0'])): # as a missing cell makes of whole numbers in pandas
        assert labels_of(train, dev)==(('0.0', '1.0'), dict(train=['0.0', '1.0'], dev=['1.0', '0.0']))
    assert labels_of([0, 1], [1., 0.])[1]['dev']==['1', '0']
    assert labels_of([-1, -1., 1, 'none'])[0]==('-1', '1', 'none')
    assert labels_of(['v1', 'v1.0'])[0]==('v1', 'v1.0') # no numbers
    import pandas as pd
    train, dev = (pd.DataFrame(dict(text=['a', 'b'], label=o)) for o in ([1., 0.], [1, 0]))
    assert [o.label for o in labelled_texts('films', train, dev)[1]['dev']]==['1.0', '0.0']
    with pytest.raises(InputError, match="unknown label '2'"): labels_of([0., 1.], [2])

@pytest.mark.parametrize('train,told', {('pos', 'pos ', 'neg'): "'pos' and 'pos '",
    ('Pos', 'pos', 'neg'):
    "'Pos' and 'pos'", ('not  good', 'not good', 'bad'): "'not  good' and 'not good'",
    ('ÄRGER', 'Ärger', 'x'): "'ÄRGER' and 'Ärger'",
    ('pos', '\u00a0pos', 'POS'): "'POS' and 'pos' and", ('né', 'ne\u0301', 'x'): "'ne\u0301' and 'né'",
    ('1２', '12', '3'): "'12' and '1２'",
    ('po\u200bs', 'pos', 'x'): "'pos' and 'po\\u200bs'", ('pos', 'neg'): '', ('pos', 'post'): ''}.items())
def test_classes_that_differ_by_space_or_case_are_told(train, told, capsys):
    labels_of(train)
    said = capsys.readouterr().out
    assert told in said and ('differ by spaces, capitals or forms of a letter alone' in said)==bool(told)

# Archives of numpy

@pytest.mark.parametrize('heads,others', [(None, {}), (1, {}), (8, dict(hidden_act='relu')),
                                          (2, dict(layer_norm_eps=1e-6))])
def test_heads_travel_with_an_archive(heads, others, tmp_path):
    src = 'tiny'
    if heads:
        hp = PretrainHParams(model_size='small', vocab_size=64, embedding_size=32, max_seq_length=16,
                             model_hparam_overrides=dict(hidden_size=64, num_hidden_layers=1, intermediate_size=128,
                                                         num_attention_heads=heads, **others))
        src = tmp_path/'src'
        ElectraForPreTraining(body_config(hp)).save_pretrained(src)
    convert_weights(src, tmp_path/'a.npz')
    nets = convert_weights(tmp_path/'a.npz', tmp_path/'back')
    assert not any('attention heads' in o for o in nets.notes)
    before, after = (open_pretrained(o).model.discriminator for o in (src, tmp_path/'back'))
    for k in ('num_attention_heads', *others): assert getattr(before.config, k)==getattr(after.config, k)
    ids = torch.arange(5, 15)[None]
    assert torch.equal(before.eval()(ids).logits, after.eval()(ids).logits)

def test_an_archive_without_heads_says_what_is_assumed(tmp_path):
    convert_weights('tiny', tmp_path/'a.npz')
    arrays = {k: v for k,v in np.load(tmp_path/'a.npz').items() if not k.startswith('electra_nbdev')}
    np.savez(tmp_path/'b.npz', **arrays)
    told = '2 attention heads are assumed.* give `hparams`'
    assert any(re.search(told, o) for o in open_pretrained(tmp_path/'b.npz').notes)
    nets = open_pretrained(tmp_path/'b.npz', '{"model_hparam_overrides": {"num_attention_heads": 4}}')
    assert nets.model.discriminator.config.num_attention_heads==4 and not any('heads' in o for o in nets.notes)
    np.savez(tmp_path/'c.npz', **arrays, **{'electra_nbdev/settings': np.str_('{"discriminator": 7}')})
    with pytest.raises(InputError, match='c.npz'): open_pretrained(tmp_path/'c.npz')
