"Examples: which lines join which segment, how often an example lacks one, and the parts of a build"
import random
from pydoc_data.topics import topics

import numpy as np, pytest
from datasets import Dataset, load_from_disk
from fastcore.test import test_close as close

from electra_nbdev.data.examples import (ExampleBuilder, Examples, _features, _write_arrow, build_examples, examples_of,
                                         load_examples)
from electra_nbdev.networks.recipe import preset
from electra_nbdev.data.text import part_lines
from electra_nbdev.data.tokenizer import train_vocab

# Segments of known draws

class Script:
    "Random numbers from a list, all of which are used"
    def __init__(self, *draws): self.draws = list(draws)
    def random(self): return self.draws.pop(0)
    def randint(self, a, b): return self.draws.pop(0)

LINES = [o.split() for o in ('the moon rose over the harbour', 'nobody saw it', 'the fishermen were asleep',
                             'their boats were not')]

def build(*draws, lines=LINES, max_length=20, long_lines='official'):
    "Segment A and B of the examples, as text"
    b = ExampleBuilder(max_length, '[CLS]', '[SEP]', Script(*draws), long_lines)
    found = [(' '.join(o[:n]), ' '.join(o[n:])) for o,n in examples_of(b, lines)]
    assert not b.rng.draws
    return found

FIRST = '[CLS] the moon rose over the harbour nobody saw it [SEP]'

def test_a_draw_below_a_half_joins_the_first_segment():
    assert build(.7, .3, .6)==[(FIRST, 'the fishermen were asleep their boats were not [SEP]')]

def test_a_draw_above_a_half_opens_the_second():
    (a,b), = build(.7, .8, .6)
    assert a=='[CLS] the moon rose over the harbour [SEP]'
    assert b=='nobody saw it the fishermen were asleep their boats were not [SEP]'

def test_one_in_ten_has_one_segment():
    (a,b), = build(.05, .6)
    assert (len(a.split()), b)==(19, '')

def test_a_short_line_joins_the_first_though_the_second_has_begun():
    (a,b), = build(.7, .8, .6, lines=[*LINES[:2], ['hush']])
    assert (a, b)==('[CLS] the moon rose over the harbour hush [SEP]', 'nobody saw it [SEP]')

def test_what_does_not_fit():
    "A short target keeps the line that reaches it; what is beyond `max_length` is dropped, or begins the next"
    draws, lines = (.7, .3, .04, 7, .05, .6, .05, .6), [*LINES, *LINES[1:]]
    first = FIRST, 'the fishermen were asleep their [SEP]'
    official = build(*draws, lines=lines, max_length=17)
    assert official==[first, ('[CLS] nobody saw it the fishermen were asleep [SEP]', ''),
                      ('[CLS] their boats were not [SEP]', '')]
    split = build(*draws, lines=lines, max_length=17, long_lines='split')
    assert split[:2]==[first, ('[CLS] boats were not nobody saw it the fishermen were asleep [SEP]', '')]

def test_the_first_example_waits_until_its_target_is_reached():
    "A line that is one token short of it is followed by another"
    nine = [*LINES[0], *LINES[1]]
    assert build(.05, .6, lines=[nine, ['hush']], max_length=10)==[(f"[CLS] {' '.join(nine[:8])} [SEP]", '')]

def test_frequencies_follow_from_the_rules():
    """10 % of the examples with a full target lack a second segment, 5 % of the targets are short: within 0.008, more
    than three standard deviations for 20,000 examples. The line that fills an example exceeds the target by
    E[n²]/2E[n] = 362/35 = 10.3 tokens on average and three places go to special tokens, so 13.3 tokens are dropped
    of each example with a full target."""
    rng,b,n,no_b,short = random.Random(0),ExampleBuilder(128, 1, 2, random.Random(1), 'official'),0,[],[]
    while n<20_000:
        was = b.target
        if e := b.add_line([9]*rng.randint(5, 30)):
            n += 1
            no_b.append(len(e[0])==e[1])
            short.append(was<128)
    close(np.mean(np.array(no_b)[~np.array(short)]), .1, eps=.008)
    close(np.mean(short), .05, eps=.008)
    close(b.n_dropped/n, 13.3*.95, eps=.5)

# Parts of a build

def test_a_shard(tmp_path):
    rows = [([2, 9, 3], 3), ([2, 8, 3, 7, 7, 3], 3)]
    assert _write_arrow(tmp_path/'0.arrow', _features(30522), rows, 'some')==2
    ds = Dataset.from_file(str(tmp_path/'0.arrow'), in_memory=True)
    assert ds[1]==dict(input_ids=[2, 8, 3, 7, 7, 3], segment_a_length=3) and ds._fingerprint=='some'
    assert _features(250_000)['input_ids'].feature.dtype=='int32'

def test_every_document_is_in_one_part():
    docs = ['one', 'two', '', 'three', '', 'four', 'five', '']
    counts = dict(lines=0, documents=0)
    held = list(part_lines(docs, 'held_out', .5, counts))
    assert counts==dict(lines=len(held)-held.count(''), documents=held.count('')) and 0<len(held)<len(docs)
    assert sorted(held + list(part_lines(docs, 'train', .5, counts)))==sorted(docs)
    assert counts==dict(lines=5, documents=3)
    assert list(part_lines(docs, 'train', 0, counts))==docs

# A corpus

@pytest.fixture(scope='module')
def reference(tmp_path_factory):
    "Folder with the language reference of Python, its vocabulary and its examples"
    d = tmp_path_factory.mktemp('reference')
    text = '\n\n'.join(o.replace('\n\n', ' ').replace('\n', ' ').replace('. ', '.\n') for o in topics.values())
    (d/'reference.txt').write_text(text)
    train_vocab(d/'reference.txt', d/'vocab', vocab_size=2000)
    again(d)
    return d

def again(d, **kw):
    return build_examples(d/'reference.txt', d/'vocab', d/'examples', **dict(max_length=64, held_out=.1) | kw)

def test_files_of_a_build(reference):
    assert sorted(o.name for o in (reference/'examples').iterdir())==['data-00000-of-00001.arrow', 'data.json',
        'dataset_info.json', 'held_out', 'state.json', 'token_counts.safetensors', 'vocab']
    assert not list(reference.glob('.*'))
    ex, ds = Examples(reference/'examples'), load_from_disk(reference/'examples')
    assert (len(ds), sum(map(len, ds['input_ids'])))==(ex.counts['examples'], ex.counts['tokens'])
    assert ex.counts['dropped_tokens']<10 # one or two at the end of a document; another Python has other pages

def test_the_official_rule_drops_two_fifths(reference):
    with pytest.warns(UserWarning, match='of the tokens were dropped'):
        path = build_examples(reference/'reference.txt', reference/'vocab', reference/'official', max_length=64,
                              long_lines='official')
    counts = load_examples(path).counts
    assert .3<counts['dropped_tokens']/(counts['dropped_tokens']+counts['tokens'])<.5

def test_the_same_call_changes_nothing(reference):
    def changed(): return (reference/'examples/data.json').stat().st_mtime_ns
    was = changed()
    again(reference)
    assert changed()==was

def test_a_batch_is_what_the_dataset_holds(reference):
    ex, ds = Examples(reference/'examples'), load_from_disk(reference/'examples')
    idxs = [5, 0, len(ex)-1, 5]
    ids,a = ex[idxs]
    assert ids.shape==(4, 64)
    for i,row,n in zip(idxs, ids, a):
        assert row[row!=0].tolist()==ds[i]['input_ids'] and n==ds[i]['segment_a_length']
    every_id = np.concatenate(ds['input_ids'])
    assert (ex.token_counts()==np.bincount(every_id, minlength=2000)).all()
    close(ex.unknown(), np.mean(every_id==ex.tokenizer.unk_token_id), 1e-9)
    assert ex.lengths().sum()==ex.counts['tokens']

def test_padding_depends_on_the_length_of_documents(reference):
    lines = (reference/'reference.txt').read_text().replace('\n\n', '\n').split('\n')
    (reference/'mails.txt').write_text('\n'.join(o + '\n'*(i%3==2) for i,o in enumerate(lines)))
    mails = build_examples(reference/'mails.txt', reference/'vocab', reference/'mails', max_length=64)
    long, short = (1 - o.lengths().mean()/o.width for o in map(Examples, (reference/'examples', mails)))
    assert long<.05<.1<short

def test_a_recipe_that_fits(reference):
    hp = preset('tiny', vocab_size=2000, max_seq_length=64)
    train, valid = (load_examples(reference/'examples'/o, hp) for o in ('', 'held_out'))
    assert 0<len(valid)<len(train)/5
