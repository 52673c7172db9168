"A line of any length: work and memory of scoring, display and likelihoods grow with the line, not its square"
import gzip, tracemalloc
from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import electra_nbdev.scoring.likelihood as likelihood
import electra_nbdev.scoring.score as score
from electra_nbdev.engine.files import InputError
from electra_nbdev.scoring.likelihood import Likelihood, load_likelihood, pseudo_log_likelihood, score_text
from electra_nbdev.scoring.score_files import TextFile
from make import ELECTRIC, PIECES, pieces, run_folder

LINE = "the cat sat on the mathematics , the mat's . "

class Elements(TorchDispatchMode):
    "Counts the elements of all tensors that are made, and of the largest"
    total = largest = 0
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **kwargs or {})
        n = found.numel() if isinstance(found, torch.Tensor) else 0
        self.total, self.largest = self.total+n, max(self.largest, n)
        return found

def needs(f, n):
    "Elements of tensors, of the largest, and the peak of Python's memory, for a line of `n` times twelve words"
    tracemalloc.start()
    with Elements() as o: f(LINE*n)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return o.total, o.largest, peak

@pytest.fixture(scope='module')
def ways(tmp_path_factory):
    "What reads a line: {name: function}"
    d, tok, found = tmp_path_factory.mktemp('runs'), pieces(PIECES), {}
    for name,kind in (('electra', {}), ('electric', ELECTRIC)):
        run_folder(d/name, tok, **kind)
        model = load_likelihood(d/name, device='cpu')
        found[name] = lambda line, model=model: pseudo_log_likelihood(model, [line])
    scorer = score.load_scorer(d/'electra', device='cpu')
    def show(line):
        v = score.score_tokens(scorer, line, threshold=1)
        return str(v), v.ansi(), v._repr_html_()
    return found | dict(show=show)

@pytest.mark.parametrize('way,n', [('show', 100), ('electric', 100), ('electra', 25)])
def test_four_times_the_line_takes_four_times_as_much(ways, way, n):
    ways[way](LINE)
    for few,many in zip(needs(ways[way], n), needs(ways[way], 4*n)): assert many<=5*few

class Slices(list):
    "Counts the elements that its slices copy"
    copied = 0
    def __getitem__(self, i):
        found = super().__getitem__(i)
        if isinstance(i, slice): self.copied += len(found)
        return found

def test_alternatives_of_a_word_read_its_window_alone(monkeypatch):
    "And the vocabulary is looked through once for all words"
    tok, looked = pieces(PIECES), []
    def words(tok, real=score.whole_words):
        looked.append(tok)
        return real(tok)
    monkeypatch.setattr(score, 'whole_words', words)
    def net(ids): return SimpleNamespace(logits=torch.zeros(*ids.shape, len(tok)))
    ids = Slices([5, 6, 7]*2000)
    scorer = SimpleNamespace(tokenizer=tok, max_length=16, device='cpu', generator=net)
    found = score.generator_choices(scorer, ids, [[i] for i in range(0, 6000, 10)])
    assert len(found)==600 and ids.copied<=600*2*16 and len(looked)==1

def test_pieces_of_a_text_are_read_once(monkeypatch):
    "Each access to an encoding copies a whole list"
    tok, reads = pieces(PIECES), []
    class Encoding:
        def __init__(self, enc): self.enc = enc
        def __getattr__(self, name):
            reads.append(name)
            return getattr(self.enc, name)
    def backend(tok, real=score.text_backend):
        return SimpleNamespace(encode=lambda *args, **kwargs: Encoding(real(tok).encode(*args, **kwargs)))
    monkeypatch.setattr(score, 'text_backend', backend)
    assert len(score.words_of(tok, LINE*50)[1])==600 and len(reads)<=4

def test_bytes_of_a_compressed_file_are_not_its_text(tmp_path):
    "Some have a carriage return and no line feed, as texts of old Macs have"
    packed = (gzip.compress(f'{LINE}{i}'.encode(), mtime=0) for i in range(1000))
    data = next(o for o in packed if b'\r' in o and b'\n' not in o)
    (tmp_path/'t.txt.gz').write_bytes(data)
    (_,text,_), = TextFile(tmp_path/'t.txt.gz')
    assert text.startswith(LINE.strip())
    (tmp_path/'e.txt.gz').write_bytes(gzip.compress(b' \n'))
    with pytest.raises(InputError, match='e.txt.gz is empty: it has no text'): TextFile(tmp_path/'e.txt.gz')

def test_long_lines_are_scored_a_few_at_a_time(ways, tmp_path, monkeypatch):
    "A file of books, one a line, is never in memory as a whole"
    (tmp_path/'t.txt').write_text('\n'.join(['a'*600_000]*5 + ['b']*5000))
    sizes = []
    def scored(model, lines):
        sizes.append([len(lines), sum(map(len, lines))])
        return []
    monkeypatch.setattr(likelihood, 'pseudo_log_likelihood', scored)
    model = Likelihood(None, None, 16, by='towers', frame=([], []), name='toy')
    score_text(model, TextFile(tmp_path/'t.txt'))
    assert sum(n for n,_ in sizes)==5005 and max(n for n,_ in sizes)==4096 and max(o for _,o in sizes)<1.3e6
