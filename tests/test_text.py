"Text sources on awkward input: compressed, damaged, undecodable, huge; and a sample corpus that is the same everywhere"
import gzip, hashlib, json, os, random, tracemalloc
from pathlib import Path

import datasets, pyarrow as pa, pytest
from datasets.data_files import DataFilesList
from hypothesis import assume, given, settings, strategies as st

from electra_nbdev.data import text as text_module
from electra_nbdev.engine.files import InputError, digest_of
from electra_nbdev.data.text import chunks, sample_corpus, sample_text, source_facts
from make import docs

TEXT = b'One line.\nAnother.\n\nThe second document.\n'
DOCS = [['One line.', 'Another.'], ['The second document.']]
def zstd(data): return pa.compress(data, 'zstd', asbytes=True)
def lines(corpus, **kw): return [l for c in chunks(corpus, **kw) for l in c.lines() if l]

# Compressed sources

@pytest.mark.parametrize('data', [gzip.compress(TEXT), gzip.compress(TEXT[:7])+gzip.compress(TEXT[7:]),
    zstd(TEXT), zstd(TEXT[:7])+zstd(TEXT[7:])], ids=['gz', 'gz in two', 'zst', 'zst in two']) # gzip holds the time
def test_compressed(tmp_path, data):
    (tmp_path/'a').write_bytes(data)
    assert docs(tmp_path/'a')==DOCS
    assert docs(tmp_path/'a', chunk_bytes=1)==DOCS

@pytest.mark.parametrize('compress', [gzip.compress, zstd])
@pytest.mark.parametrize('damage', [lambda b: b[:-2], lambda b: b[:len(b)//2], lambda b: b[:40]+b'\xff'*20+b[60:],
                                    lambda b: b+b'rubbish'])
def test_damaged(tmp_path, compress, damage):
    text = '\n'.join(f'{random.Random(i).random()} is a number.' for i in range(999)).encode()
    (tmp_path/'a.txt').write_bytes(damage(compress(text)))
    with pytest.raises(InputError, match=r'a\.txt is damaged after line \d+'): lines(tmp_path/'a.txt')

# Chunks do not change the text

pieces = st.sampled_from([b'', b'a', b' ', b'\t', b'\r', b'\n', b'\n\n', b'\r\n', b' \n', 'é'.encode(), '…'.encode(),
                          b'long line of words', b'\xef\xbb\xbf'])
texts = st.lists(pieces, max_size=40).map(b''.join)

def by_hand(text):
    found = [[]]
    for line in text.decode().split('\n'):
        line = line.strip('\ufeff').strip()
        if line: found[-1].append(line)
        elif found[-1]: found.append([])
    return [d for d in found if d]

@settings(deadline=None, max_examples=300)
@given(text=texts, chunk_bytes=st.integers(1, 60))
def test_documents_do_not_depend_on_chunks(tmp_path_factory, text, chunk_bytes):
    assume(b'\n' in text or text.count(b'\r')<2) # lines that end in carriage returns alone are refused
    path = tmp_path_factory.getbasetemp()/'drawn.txt'
    path.write_bytes(text or b'\n')
    assert docs(path, chunk_bytes=chunk_bytes)==by_hand(text)
    flat = [l for d in by_hand(text) for l in d]
    assert lines(path, chunk_bytes=chunk_bytes, blank_lines_separate_docs=False)==flat
    ends = [(c.start, c.end) for c in chunks(path, chunk_bytes=chunk_bytes)]
    assert ends[0][0]==0 and ends[-1][1]==path.stat().st_size and all(a[1]==b[0] for a,b in zip(ends, ends[1:]))

def test_a_line_longer_than_a_block_is_not_a_boundary(tmp_path):
    text = b'x'*2**20 + b'\n' + b'y '*2**20 + b'\n\nend\n'
    (tmp_path/'a').write_bytes(text)
    assert docs(tmp_path/'a', chunk_bytes=2**19)==by_hand(text)

# Errors name file, line and cure

NO_TEXT = [(b'', 'is empty'),
           (b'fine\n\x89PNG\0\n', 'line 2 has a zero byte'),
           ('text'.encode('utf-16'), 'line 1 is UTF-16'),
           (b'fine\n'*9+b'na\xefve\n', r'line 10 is not UTF-8 \(byte 0xef at column 3\); convert the file'),
           (b'fine\n'+b'x'*(2**24+1), 'line 2 is longer than 16 MB')]

@pytest.mark.parametrize('data,message', NO_TEXT)
def test_what_is_no_text(tmp_path, data, message):
    (tmp_path/'corpus.txt').write_bytes(data)
    with pytest.raises(InputError, match=f'corpus.txt.*{message}'): lines(tmp_path/'corpus.txt')

def test_line_number_in_a_later_chunk(tmp_path):
    (tmp_path/'a').write_bytes(b'fine\n\n'*50 + b'\xff\n')
    with pytest.raises(InputError, match='line 101 '): docs(tmp_path/'a', chunk_bytes=20)

def test_nothing_there(tmp_path):
    (tmp_path/'empty').mkdir()
    (tmp_path/'empty/.hidden').write_text('not read')
    with pytest.raises(InputError, match='holds no files'): chunks(tmp_path/'empty')
    with pytest.raises(InputError, match='is no file'): chunks(tmp_path/'missing/deep.txt')

def test_dataset_that_cannot_be_loaded(tmp_path):
    with pytest.raises(InputError, match='cannot be loaded'): chunks(f'hf:{tmp_path}/none')

def test_dataset_in_zstd(tmp_path, monkeypatch):
    "Large corpora on the hub are often `.jsonl.zst`, which `datasets` reads if the package zstandard is there"
    monkeypatch.setattr(datasets.config, 'HF_DATASETS_CACHE', str(tmp_path/'cache'))
    (tmp_path/'rows').mkdir()
    rows = b'{"text": "Owls hunt."}\n{"text": "Crows plan.\\nThey play."}\n'
    (tmp_path/'rows/train.jsonl.zst').write_bytes(zstd(rows))
    assert docs(f'hf:{tmp_path}/rows')==[['Owls hunt.'], ['Crows plan.', 'They play.']]

# Datasets stream

@pytest.fixture
def rows(tmp_path, monkeypatch):
    "A dataset of three files: rows of one line, a document in a row, and rows without text"
    monkeypatch.setattr(datasets.config, 'HF_DATASETS_CACHE', str(tmp_path/'cache'))
    (tmp_path/'rows').mkdir()
    for i,texts in enumerate([['Owls hunt.', 'Crows plan.'], ['Larks rise.\nThey sing.', 'Gulls wait.'], [None, '']]):
        lines = [json.dumps(dict(id=j, text=o))+'\n' for j,o in enumerate(texts)]
        (tmp_path/f'rows/train-{i}.jsonl').write_text(''.join(lines))
    return tmp_path/'rows'

ROWS = [['Owls hunt.', 'Crows plan.'], ['Larks rise.', 'They sing.'], ['Gulls wait.']]

def test_each_file_of_a_dataset_is_a_chunk(rows):
    found = chunks(f'hf:{rows}')
    assert [(c.kind, c.start, c.end) for c in found]==[('hf', i, i+1) for i in range(3)]
    assert [list(c.documents()) for c in found]==[ROWS[:1], ROWS[1:], []]
    assert docs(f'hf:{rows}')==ROWS
    assert not list((rows.parent/'cache').rglob('*.arrow'))

def test_kinds_of_files_of_a_dataset(rows):
    import pandas as pd
    for i,kind in enumerate(('to_parquet', 'to_csv')):
        (rows.parent/kind).mkdir()
        for o in sorted(rows.iterdir()):
            file = rows.parent/kind/o.with_suffix('.'+kind[3:]).name
            getattr(pd.read_json(o, lines=True), kind)(file, index=False)
        assert docs(f'hf:{rows.parent}/{kind}')==ROWS

def test_facts_of_a_dataset_follow_its_content(rows):
    (before,) = source_facts(f'hf:{rows}')
    assert before['files']==3
    for o in rows.iterdir(): os.utime(o, (0, 0))
    text_module._dataset.cache_clear()
    assert source_facts(f'hf:{rows}')==[before]
    (rows/'train-2.jsonl').write_text('{"id": 0, "text": "Rooks meet."}\n')
    assert source_facts(f'hf:{rows}')[0]['digest']!=before['digest']

def test_facts_of_a_hub_dataset_are_its_revision(monkeypatch):
    "No file is opened; the addresses are not even ones that could be"
    def facts(revision):
        class Builder:
            class config:
                address = f'hf://datasets/birds/songs@{revision}/train.parquet'
                data_files = dict(train=DataFilesList([address], [('birds/songs', revision)]))
        class Stream: split = 'train'
        monkeypatch.setattr(text_module, '_dataset', lambda spec: (Builder, Stream, 'text'))
        return source_facts('hf:birds/songs')
    assert facts('a'*40)==facts('a'*40)!=facts('b'*40)

def test_a_damaged_file_of_a_dataset(rows):
    (rows/'train-1.jsonl').write_text('{"id": 0, "text": "Larks rise."}\n{"id": 1, "te\n')
    first, second, third = chunks(f'hf:{rows}')
    assert list(first.documents())==ROWS[:1] and not list(third.documents())
    with pytest.raises(InputError, match='rows` cannot be read, file 2 of 3 after row 0: ArrowInvalid'):
        list(second.lines())

NOT_THERE = {'::test': "cannot be loaded: ValueError: Bad split: test. Available splits: \\['train'\\]",
             ':::id': 'no column of text named `id`; its columns are id, text',
             ':::body': 'no column of text named `body`'}

@pytest.mark.parametrize('rest', NOT_THERE)
def test_splits_and_columns_that_are_not_there(rows, rest):
    with pytest.raises(InputError, match=NOT_THERE[rest]): chunks(f'hf:{rows}{rest}')

def test_memory_of_a_stream_is_flat(tmp_path):
    "JSON lines, of which `datasets` reads 10 MB at a time; Parquet is read ahead, up to a gigabyte"
    (tmp_path/'rows').mkdir()
    row = json.dumps(dict(text='The number of this row is not known. '*270))+'\n'
    (tmp_path/'rows/train.jsonl').write_text(row*10_000)
    (chunk,) = chunks(f'hf:{tmp_path}/rows')
    before, most = pa.total_allocated_bytes(), 0
    for i,_ in enumerate(chunk.lines()): most = max(most, pa.total_allocated_bytes()) if i%10==0 else most
    assert i==10_000 and (tmp_path/'rows/train.jsonl').stat().st_size>99e6
    assert most-before<30e6, most

# What was read

def test_facts_follow_the_content(tmp_path):
    (tmp_path/'a').write_bytes(TEXT)
    before = source_facts(tmp_path)
    os.utime(tmp_path/'a', (0, 0))
    assert source_facts(tmp_path)==before
    (tmp_path/'a').write_bytes(TEXT[::-1])
    assert source_facts(tmp_path)!=before

# Memory

@pytest.mark.parametrize('kind', ['plain', 'zstd', 'gzip'])
def test_memory_is_flat(tmp_path, kind):
    "One document of 16 MB without a blank line, read in less than 12 MB"
    block = b''.join(b'%d is the number of this line of text.\n' % i for i in range(50_000))
    with open(tmp_path/'a', 'wb') if kind=='plain' else pa.output_stream(str(tmp_path/'a'), compression=kind) as f:
        for _ in range(8): f.write(block)
    found = chunks(tmp_path/'a')
    tracemalloc.start()
    n = sum(1 for c in found for l in c.lines() if l)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert n==8*50_000
    assert peak<12e6

# The sample corpus

def test_the_sample_is_the_same_everywhere(tmp_path, monkeypatch):
    "Its files do not depend on the machine; the digests are those of the package's text"
    monkeypatch.setenv('ELECTRA_NBDEV_HOME', str(tmp_path))
    folder = sample_corpus()
    assert folder.parent==tmp_path and folder.name=='sample-%s' % digest_of([sample_text().encode()])[:12]
    found = {f.name: hashlib.sha256(f.read_bytes()).hexdigest()[:16] for f in folder.iterdir()}
    assert found=={'train.txt': 'e3df56fb9c81c60b', 'held_out.txt': '634b9e042a428a03'}

def test_no_chapter_is_in_both_parts():
    train, held_out = (docs(sample_corpus()/f'{n}.txt') for n in ('train', 'held_out'))
    assert (len(train), len(held_out))==(245, 12)
    assert not {'\n'.join(o) for o in train} & {'\n'.join(o) for o in held_out}

def test_the_sample_is_small():
    path = Path(text_module.__file__).parents[1]/'sample'/'novels.txt.xz'
    assert path.stat().st_size<1.5e6

def test_linked_folders_are_read_and_each_place_once(tmp_path):
    (tmp_path/'big').mkdir()
    (tmp_path/'big'/'a.txt').write_text('Far away.')
    (tmp_path/'here').mkdir()
    (tmp_path/'here'/'b.txt').write_text('Near.')
    (tmp_path/'here'/'link').symlink_to(tmp_path/'big')
    (tmp_path/'here'/'round').symlink_to(tmp_path/'here')
    (tmp_path/'here'/'.hidden').write_text('no')
    assert lines(tmp_path/'here')==['Near.', 'Far away.']
    (tmp_path/'here'/'lost.txt').symlink_to(tmp_path/'nowhere')
    with pytest.raises(InputError, match='lost.txt is a link to nothing'): lines(tmp_path/'here')
