"Corpora as people have them: JSON lines, tables, Parquet, Arrow, packed or not; the rest is refused"
import bz2, gzip, io, json, lzma, random, tarfile
import pandas as pd, pyarrow as pa, pytest
from pyarrow import ipc

from conftest import GOLDEN
from electra_nbdev.cli import electra_data, electra_vocab
from electra_nbdev.engine.files import InputError
from electra_nbdev.data.examples import build_examples, load_examples
from electra_nbdev.data.batches import PretrainDataLoaders
from electra_nbdev.data.text import Corpus, chunks, source_facts
from electra_nbdev.data.tokenizer import train_vocab
from make import docs

VOCAB = GOLDEN/'vocab.txt'
DOCS = [f'The owl, number {i}, "hunts".\nIt sees\twell.\n\n  It flies.' for i in range(50)]
DOCS += ['Larks.', 'Ærø – ﬁve\r\nlines.']
WANTED = [[l.strip() for l in o.split('\n') if l.strip()] for o in DOCS]
PACKED = dict(plain=bytes, gz=gzip.compress, zst=lambda o: pa.compress(o, 'zstd', asbytes=True))

def jsonl(docs=DOCS, **more): return ''.join(json.dumps(dict(id=1, text=o, **more))+'\n' for o in docs).encode()
def table(docs=DOCS): return pd.DataFrame(dict(id=range(len(docs)), text=docs))
def arrow(docs=DOCS, new=ipc.new_stream):
    t, f = pa.table(dict(text=docs)), io.BytesIO()
    with new(f, t.schema) as w: w.write_table(t, 7)
    return f.getvalue()
def parquet(docs=DOCS):
    f = io.BytesIO()
    table(docs).to_parquet(f, row_group_size=7)
    return f.getvalue()
def tar(packing=''):
    f = io.BytesIO()
    with tarfile.open(fileobj=f, mode=f'w:{packing}') as a: a.addfile(tarfile.TarInfo('a'))
    return f.getvalue()

FILES = {'a.jsonl': jsonl, 'a.ndjson': jsonl, 'a.json': jsonl, 'a.csv': lambda: table().to_csv(index=False).encode(),
         'a.parquet': parquet, 'a.arrow': arrow, 'a.feather': lambda: arrow(new=ipc.new_file)}

WHOLE = 'a.parquet', 'a.arrow', 'a.feather' # which are compressed inside

@pytest.mark.parametrize('name,packing', [(a, b) for a in FILES for b in PACKED if b=='plain' or a not in WHOLE])
def test_the_same_documents(name, packing, tmp_path):
    "Whatever holds them, however it is packed, whatever it is cut into"
    path = tmp_path/(name if packing=='plain' else f'{name}.{packing}')
    path.write_bytes(PACKED[packing](FILES[name]()))
    for n in (50, 777, 2**24): assert docs(path, chunk_bytes=n)==WANTED
    assert docs(path, blank_lines_separate_docs=False)==WANTED

def test_a_line_of_a_byte_order_mark_divides_no_row(tmp_path):
    (tmp_path/'a.jsonl').write_text(json.dumps(dict(text='Owls.\n\ufeff\nLarks.')))
    assert docs(tmp_path/'a.jsonl')==[['Owls.', 'Larks.']]

def test_tabs_divide_columns(tmp_path):
    (tmp_path/'a.tsv').write_text('id\ttext\n1\tOwls "hunt".\r\n2\tLarks, too.\n')
    assert docs(tmp_path/'a.tsv')==[['Owls "hunt".'], ['Larks, too.']]

def test_examples_are_those_of_the_text(tmp_path):
    (tmp_path/'a.txt').write_text('\n\n'.join('\n'.join(o) for o in WANTED))
    for name in ('a.jsonl', 'a.parquet', 'a.csv'): (tmp_path/name).write_bytes(FILES[name]())
    def rows(name, **kw):
        found = load_examples(build_examples(tmp_path/name, VOCAB, tmp_path/f'of-{name}{kw}', 32, held_out=.2, **kw))
        return found.counts['documents'], found.counts['tokens']
    # the random generator of lengths is seeded with the name of a file, so ids are compared by their number
    assert len({rows(o)[0] for o in ('a.txt', 'a.jsonl', 'a.parquet', 'a.csv')})==1
    assert rows('a.jsonl')==rows('a.jsonl', num_proc=2)

def test_the_field_is_part_of_the_recipe(tmp_path):
    (tmp_path/'a.jsonl').write_bytes(jsonl(title='A title.'))
    assert electra_data(tmp_path/'a.jsonl', VOCAB, tmp_path/'rows', 16).recipe['sources'][0]['field']=='text'
    with pytest.raises(InputError, match=r'is a.jsonl \(field text\) there and a.jsonl \(field title\) here'):
        electra_data(tmp_path/'a.jsonl', VOCAB, tmp_path/'rows', 16, field='title')
    titles = electra_data(tmp_path/'a.jsonl', VOCAB, tmp_path/'titles', 16, field='title', held_out=0)
    assert titles.counts['documents']==len(DOCS)
    assert 'field' not in source_facts(VOCAB)[0]

def test_a_column_of_a_dataset(tmp_path):
    (tmp_path/'rows').mkdir()
    table().rename(columns=dict(text='body')).to_parquet(tmp_path/'rows/train.parquet')
    assert docs(Corpus(f'hf:{tmp_path}/rows', 'body'))==docs(f'hf:{tmp_path}/rows:::body')

# Refused in one line

LOOKS = {'JSON lines': jsonl(), 'JSON': b'[\n {"text": "Owls."}\n]', 'HTML': b'<!DOCTYPE html>\n<p>Owls.',
         'Parquet': parquet(), 'XML': b'<?xml version="1.0"?>\n<text>Owls.</text>',
         'CSV': b'id,text\n'+b'1,Owls hunt\n'*9,
         'TSV': b'id\ttext\n'+b'1\tOwls\n'*9, 'a zip archive': b'PK\3\4'+b'x'*99,
         'Arrow': arrow(new=ipc.new_file), 'PDF': b'%PDF-1.4\n'}

@pytest.mark.parametrize('packing', ['plain', 'zst'])
@pytest.mark.parametrize('what', LOOKS)
def test_what_is_no_prose(what, packing, tmp_path):
    (tmp_path/'a.txt').write_bytes(PACKED[packing](LOOKS[what]))
    with pytest.raises(InputError, match=f'a.txt looks like {what}: .*; if it is prose all the same'):
        electra_vocab(tmp_path/'a.txt', tmp_path/'vocab')
    assert not (tmp_path/'vocab').exists()

UNREAD = {'a.tar': (tar(), 'tar xf'), 'a.tar.gz': (tar('gz'), 'tar xf'), 'a.tar.xz': (tar('xz'), 'unxz'),
          'a.jsonl.bz2': (bz2.compress(jsonl()), 'bunzip2'), 'a.csv.xz': (lzma.compress(jsonl()), 'unxz')}

@pytest.mark.parametrize('name', UNREAD)
def test_what_is_to_be_unpacked_first(name, tmp_path):
    data, cure = UNREAD[name]
    (tmp_path/name).write_bytes(data)
    with pytest.raises(InputError, match=f'{name} looks like .*: unpack it .`{cure}` does it'): chunks(tmp_path/name)

def test_prose_all_the_same(tmp_path):
    (tmp_path/'a.txt').write_bytes(jsonl())
    assert docs(Corpus(tmp_path/'a.txt', format='text'))[0][0].startswith('{"id"')
    with pytest.raises(InputError, match="`format` is 'prose'; allowed: text, jsonl"): Corpus('a.txt', format='prose')

BAD = {'a.jsonl': [(b'{"text": "Owls."}\n{"text"\n', 'a.jsonl, line 2 is no row: not JSON'),
                   (b'{"text": "Owls."}\n["Owls"]\n', 'line 2 is no row: a row has to be an object'),
                   (b'{"body": "Owls."}\n', 'line 1 has no `text`, it has body; name the field'),
                   (b'{"text": 7}\n', 'line 1 has int in `text`, not text'),
                   (b'{"text": "a\\ud800"}\n', 'line 1 is no row: not JSON'),
                   (b'{"text": "\xff"}\n', 'line 1 is not UTF-8')],
       'a.csv': [(b'id,body\n1,Owls\n', 'a.csv has no `text`, it has id, body'),
                 (b'id,text\n1\n', 'line 2 is no row: 1 column'),
                 (b'id,text\n1,"Owls', 'line 2 is no row: .*quotation mark')],
       'a.parquet': [(parquet()[:-9], 'is no parquet file'), (b'Owls.', 'is no parquet file'),
                     (b'', 'is no parquet file|is empty')],
       'a.arrow': [(arrow()[:300], 'is no arrow file'), (b'Owls.', 'is no arrow file')]}

@pytest.mark.parametrize('name,data,why', [(k, *o) for k,v in BAD.items() for o in v])
def test_bad_files(name, data, why, tmp_path):
    (tmp_path/name).write_bytes(data)
    with pytest.raises(InputError, match=why): docs(tmp_path/name)

def test_fields_within_objects(tmp_path):
    "A name with a dot leads into an object, unless a field has that very name"
    rows = [{'meta': {'text': 'Owls.'}}, {'meta.text': 'Larks.'}, {'meta': {'text': None}}]
    (tmp_path/'a.jsonl').write_text(''.join(json.dumps(o)+'\n' for o in rows))
    assert docs(Corpus(tmp_path/'a.jsonl', 'meta.text'))==[['Owls.'], ['Larks.']]
    for lacking in ('meta.body', 'other.text', 'meta.text.more'):
        with pytest.raises(InputError, match=f'line 1 has no `{lacking}`, it has meta'):
            docs(Corpus(tmp_path/'a.jsonl', lacking))

def test_an_array_and_a_table_of_pandas(tmp_path):
    (tmp_path/'a.json').write_text(json.dumps([dict(text='Owls.')]))
    with pytest.raises(InputError, match=r"jq -c '.\[\]' a.json > a.jsonl"): docs(tmp_path/'a.json')
    (tmp_path/'a.tsv').write_text('id\ttext\n1\t"Owls ""hunt""."\n')
    assert docs(tmp_path/'a.tsv')==[['Owls "hunt".']]

def test_the_line_of_a_later_chunk(tmp_path):
    (tmp_path/'a.jsonl').write_bytes(jsonl()+b'{"text"\n')
    with pytest.raises(InputError, match=f'line {len(DOCS)+1} is no row'): docs(tmp_path/'a.jsonl', chunk_bytes=99)

def test_bad_rows_are_left_out_if_asked_for(tmp_path):
    (tmp_path/'a.jsonl').write_bytes(jsonl()+b'{"text"\n{"body": "Owls."}\n\n')
    with pytest.warns(UserWarning, match='2 unreadable lines left out'):
        build_examples(tmp_path/'a.jsonl', VOCAB, tmp_path/'rows', 32, skip_bad_rows=True)

def test_a_call_may_name_the_field(tmp_path, monkeypatch, capsys):
    "As the commands do; a `Corpus` says it itself"
    (tmp_path/'a.data').write_text(''.join(json.dumps(dict(body=' '.join(DOCS)))+'\n' for _ in range(9)))
    of, how = Corpus(tmp_path/'a.data', 'body', 'jsonl'), dict(field='body', format='jsonl')
    with pytest.raises(InputError, match='no `text`'): train_vocab(tmp_path/'a.data', tmp_path/'v', format='jsonl')
    vocabs = [train_vocab(of, tmp_path/'a', 100), train_vocab(tmp_path/'a.data', tmp_path/'b', 100, **how)]
    assert vocabs[0].get_vocab()==vocabs[1].get_vocab()
    folders = [build_examples(o, VOCAB, tmp_path/n, 16, **kw) for o,n,kw in ((of, 'c', {}), (of.files, 'd', how))]
    dls = PretrainDataLoaders.from_text(tmp_path/'a.data', 100, 16, 0., tmp_path/'e', bs=2, device='cpu', **how)
    sources = [o.recipe['sources'] for o in (*map(load_examples, folders), dls.train.dataset)]
    PretrainDataLoaders.from_text(tmp_path/'a.data', 200, 16, 0., tmp_path/'e', bs=2, device='cpu', **how)
    assert 'has 100 pieces, and stays; another size needs another `out`' in capsys.readouterr().out
    assert sources[0]==sources[1]==sources[2] and sources[0][0]['field']=='body'

def test_the_line_where_damage_begins(tmp_path):
    numbers = ''.join(f'{random.Random(i).random()}\n' for i in range(999))
    (tmp_path/'a.txt.gz').write_bytes(gzip.compress(numbers.encode())[:-99])
    with pytest.raises(InputError, match=r'damaged after line 9\d\d'): docs(tmp_path/'a.txt.gz')

def test_texts_of_a_damaged_arrow_file(tmp_path):
    "The file opens, and one of its texts is no UTF-8"
    (tmp_path/'a.arrow').write_bytes(arrow().replace('Ærø'.encode(), b'\xc3\xc3r\xc3\xc3'))
    with pytest.raises(InputError, match='a.arrow is no arrow file, or a damaged one: .*UTF8'): docs(tmp_path/'a.arrow')
