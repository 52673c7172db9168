"Examples equal those of the official builder, given its random decisions"
import json, random, struct
from types import SimpleNamespace
import numpy as np, pytest
from conftest import GOLDEN
from electra_nbdev.data.examples import ExampleBuilder, build_examples, encode_lines, examples_of, load_examples
from electra_nbdev.data.text import TextChunk
from electra_nbdev.data.tokenizer import load_tokenizer

BUILD = GOLDEN/'build'
INFO = json.loads((BUILD/'examples.json').read_text(encoding='utf-8'))

class Replay:
    "Plays back the official decisions in their order, and tells how many were used"
    def __init__(self, outcomes): self.outcomes,self.used = outcomes,0
    def _next(self):
        self.used += 1
        return self.outcomes[self.used-1]
    def random(self):
        o = self._next()
        assert isinstance(o, float), f"asked for random(), the official program called {o}"
        return o
    def randint(self, a, b):
        kind,low,high,value = self._next()
        assert (kind,low,high)==('randint', a, b)
        return value

@pytest.fixture(scope='module')
def tok(): return load_tokenizer(GOLDEN/'vocab.txt')

def lines_of(path): return [o.strip() for o in path.read_text(encoding='utf-8').split('\n')]

def padded(example, width):
    ids,_ = example
    return ids + [0]*(width-len(ids))

def test_golden_lines(tok):
    lines = lines_of(BUILD/'corpus.txt')[:-1]
    got = [o or [] for o in encode_lines(tok, lines)]
    assert got==INFO['lines_token_ids']

def official_calls():
    "Ids that the official program passed to `add_line`, None for a blank line; the last call flushes"
    lines = lines_of(BUILD/'corpus.txt')[:-1]
    return [ids if line else None for line,ids in zip(lines, INFO['lines_token_ids'], strict=True)] + [None]

@pytest.mark.parametrize('name', INFO['runs'])
def test_golden_run(name, tok):
    run,arrays = INFO['runs'][name],np.load(BUILD/'examples.npz')
    replay = Replay([o for example in run['random_outcomes'] for o in example])
    b = ExampleBuilder(run['max_length'], tok.cls_token_id, tok.sep_token_id, replay, 'official')
    calls,made,used = official_calls(),[],0
    for i,ids in enumerate(calls):
        if example := b.add_line(ids):
            k = len(made)
            used += len(run['random_outcomes'][k])
            assert replay.used==used, f"example {k} took other decisions"
            assert run['created_by_line'][k]==(-1 if i==len(calls)-1 else i)
            assert run['next_target_length'][k]==b.target
            made.append(example)
    assert replay.used==len(replay.outcomes) and len(made)==run['n_examples']
    np.testing.assert_array_equal([padded(o, run['max_length']) for o in made], arrays[f'{name}.input_ids'])
    np.testing.assert_array_equal([len(ids) for ids,_ in made], arrays[f'{name}.n_mask'])
    np.testing.assert_array_equal([len(ids)-a for ids,a in made], arrays[f'{name}.n_segment1'])

@pytest.mark.parametrize('name', INFO['runs'])
def test_golden_seed(name, tok):
    "The same with Python's generator, from text to rows"
    run = INFO['runs'][name]
    b = ExampleBuilder(run['max_length'], tok.cls_token_id, tok.sep_token_id, random.Random(run['seed']), 'official')
    made = list(examples_of(b, encode_lines(tok, TextChunk(str(BUILD/'corpus.txt'), 'plain', 0, None).lines())))
    want = np.load(BUILD/'examples.npz')[f'{name}.input_ids']
    np.testing.assert_array_equal([padded(o, run['max_length']) for o in made], want)

# TFRecord: length, checksum, message, checksum. A message is a tree of (number << 3 | type) keys; types 0 and 2 occur.
def records(path):
    raw,at = path.read_bytes(),0
    while at<len(raw):
        n, = struct.unpack_from('<Q', raw, at)
        yield raw[at+12:at+12+n]
        at += n+16

def varint(raw, at):
    value = shift = 0
    while True:
        value |= (raw[at]&127)<<shift
        shift,at = shift+7,at+1
        if raw[at-1]<128: return value,at

def fields(raw):
    at = 0
    while at<len(raw):
        key,at = varint(raw, at)
        value,at = varint(raw, at)
        if key&7==2: value,at = raw[at:at+value],at+value
        yield value

def numbers(raw):
    at,out = 0,[]
    while at<len(raw):
        value,at = varint(raw, at)
        out.append(value)
    return out

def features(record):
    "{name: list of ints} of a tf.train.Example"
    tree, = fields(record)
    for pair in fields(tree):
        name,feature = fields(pair)
        (int_list,), = [list(fields(o)) for o in fields(feature)]
        yield name.decode(), numbers(int_list)

def official_tfrecord_rows():
    files = sorted(BUILD.glob('pretrain_data.tfrecord-*'))
    shards = [[dict(features(r)) for r in records(o)] for o in files]
    return [shard[i] for i in range(max(map(len, shards))) for shard in shards if i<len(shard)]

def build_tfrecord_corpus(tok, blank_lines_separate_docs):
    chunk = TextChunk(str(BUILD/'tfrecord_corpus.txt'), 'plain', 0, None, blank_lines_separate_docs)
    b = ExampleBuilder(32, tok.cls_token_id, tok.sep_token_id, random.Random(0), 'official')
    return list(examples_of(b, encode_lines(tok, chunk.lines())))

def test_golden_tfrecord_order(tok):
    want,made = official_tfrecord_rows(),build_tfrecord_corpus(tok, True)
    assert [padded(o, 32) for o in made]==[o['input_ids'] for o in want]
    assert [[1]*len(ids) + [0]*(32-len(ids)) for ids,_ in made]==[o['input_mask'] for o in want]
    assert [[0]*a + [1]*(len(ids)-a) + [0]*(32-len(ids)) for ids,a in made]==[o['segment_ids'] for o in want]

def test_golden_no_blank_separation(tok):
    made = build_tfrecord_corpus(tok, False)
    np.testing.assert_array_equal([padded(o, 32) for o in made], np.load(BUILD/'no_blank_separation.npz')['input_ids'])

@pytest.mark.parametrize('length', sorted({o['max_length'] for o in INFO['runs'].values()}))
def test_golden_through_the_disk(length, tok, tmp_path, monkeypatch):
    "What is read back is what the official builder makes of the same seed"
    run = next(k for k,o in INFO['runs'].items() if o['max_length']==length)
    replay = Replay([o for example in INFO['runs'][run]['random_outcomes'] for o in example])
    monkeypatch.setattr('electra_nbdev.data.examples.random', SimpleNamespace(Random=lambda seed: replay))
    how = dict(max_length=length, long_lines='official')
    ids,a = load_examples(build_examples(BUILD/'corpus.txt', GOLDEN/'vocab.txt', tmp_path/'x', **how))[:]
    want = np.load(BUILD/'examples.npz')
    np.testing.assert_array_equal(ids, want[f'{run}.input_ids'])
    np.testing.assert_array_equal(a, want[f'{run}.n_mask']-want[f'{run}.n_segment1'])
