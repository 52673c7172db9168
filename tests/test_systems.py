"Other systems: processes that start anew, drives without locks, flushes or renames, and what Windows lacks"
import errno, json, os, shutil
from pathlib import Path

import pytest

from electra_nbdev.data import examples, tokenizer
from electra_nbdev.engine import checkpoint, files
from electra_nbdev.engine.checkpoint import only_writer
from electra_nbdev.engine.files import InputError, atomic_folder, atomic_write, remove_leftovers
from electra_nbdev.data.examples import build_examples

WORDS = 'the cat saw a dog by the sea and went home again'.split()

@pytest.fixture
def corpus(tmp_path):
    "A vocabulary, and a text of two shards"
    atomic_write(tmp_path/'vocab.txt', '\n'.join(['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', *sorted(set(WORDS))]))
    for i in range(2): atomic_write(tmp_path/f'text/{i}.txt', '\n\n'.join([' '.join(WORDS)]*40))
    return tmp_path

def raises(code):
    "A function that a drive refuses"
    def refuse(*args, **kwargs): raise OSError(code, os.strerror(code))
    return refuse

def test_building_with_processes_that_start_anew(corpus, monkeypatch):
    "As on Windows and macOS, where nothing is inherited: the same examples"
    (corpus/'text/1.txt').unlink() # one shard, one worker
    monkeypatch.setattr(tokenizer, 'PROCESS_START', 'spawn')
    monkeypatch.setattr(os, 'fork', raises(errno.ENOSYS))
    alone = build_examples(corpus/'text', corpus/'vocab.txt', corpus/'alone', max_length=32)
    two = build_examples(corpus/'text', corpus/'vocab.txt', corpus/'two', max_length=32, num_proc=2)
    facts = [json.loads((o/'data.json').read_bytes()) for o in (alone, two)]
    assert facts[0]==facts[1] and facts[0]['counts']['examples']>10

@pytest.mark.parametrize('error', [OSError(errno.ENOLCK, 'No locks available'), NotImplementedError('no flock')],
                         ids=['ENOLCK', 'not implemented'])
def test_a_drive_without_locks(corpus, monkeypatch, error):
    "A run and a build go on, and say that nothing keeps a second process out"
    def refuse(self): raise error
    monkeypatch.setattr(files.FileLock, '_acquire', refuse)
    said = f'run cannot be locked here .*{error.args[-1]}.*nothing keeps a second process'
    with pytest.warns(UserWarning, match=said):
        with only_writer(corpus/'run'): atomic_write(corpus/'run/a', 'x')
    with pytest.warns(UserWarning, match='rows cannot be locked here'):
        build_examples(corpus/'text', corpus/'vocab.txt', corpus/'rows', max_length=32)
    assert (corpus/'run/a').is_file() and (corpus/'rows/data.json').is_file()

def test_a_held_lock_whose_note_cannot_be_read(tmp_path, monkeypatch):
    "As on Windows, where a lock covers the content"
    def refuse(self, *args, **kwargs): raise PermissionError(errno.EACCES, 'locked')
    for o in ('read_text', 'write_text'): monkeypatch.setattr(Path, o, refuse)
    with only_writer(tmp_path/'run'), pytest.raises(InputError, match='being written by another process; wait'):
        with only_writer(tmp_path/'run'): pass

def fill(folder, text):
    with atomic_folder(folder) as tmp: atomic_write(tmp/'a', text)

@pytest.mark.parametrize('code', [errno.EXDEV, errno.ENOTSUP])
def test_a_drive_that_renames_no_folders(tmp_path, monkeypatch, code):
    "They are copied, with a warning; checkpoints too, and old ones still go"
    replace = os.replace
    def no_folders(a, b): return raises(code)() if Path(a).is_dir() else replace(a, b)
    monkeypatch.setattr(os, 'replace', no_folders)
    with pytest.warns(UserWarning, match='cannot rename folders .* a kill meanwhile leaves an incomplete one'):
        for o in ('one', 'two'): fill(tmp_path/'vocab', o)
    assert (tmp_path/'vocab/a').read_bytes()==b'two' and os.listdir(tmp_path)==['vocab']
    with pytest.warns(UserWarning, match='cannot rename'):
        for i in range(3): checkpoint.save_checkpoint(tmp_path/'run', i, {}, dict(at=i), keep=1)
    assert os.listdir(tmp_path/'run/checkpoints')==['step-00000002']
    assert checkpoint.load_checkpoint(checkpoint.latest_checkpoint(tmp_path/'run'))[1]==dict(at=2)

def test_a_copy_that_fails_loses_nothing(tmp_path, monkeypatch):
    "The second copy meets a full disk: the folder that was there before is given back"
    fill(tmp_path/'vocab', 'one')
    copy, calls = shutil.copytree, []
    def full(a, b):
        copy(a, b)
        calls.append(b)
        if len(calls)==2: raises(errno.ENOSPC)()
    with monkeypatch.context() as m:
        m.setattr(os, 'replace', lambda a, b: raises(errno.EXDEV)() if Path(a).is_dir() else os.rename(a, b))
        m.setattr(shutil, 'copytree', full)
        with pytest.warns(UserWarning, match='cannot rename'), pytest.raises(OSError, match='No space'):
            fill(tmp_path/'vocab', 'two')
    assert not (tmp_path/'vocab').exists()
    remove_leftovers(tmp_path)
    assert (tmp_path/'vocab/a').read_bytes()==b'one' and os.listdir(tmp_path)==['vocab']

def test_a_rename_that_is_forbidden_is_an_error(tmp_path, monkeypatch):
    "A file that is open on Windows, for example: nothing is copied behind its back"
    fill(tmp_path/'vocab', 'one')
    with monkeypatch.context() as m:
        m.setattr(os, 'replace', lambda a, b: raises(errno.EACCES)() if Path(a).is_dir() else os.rename(a, b))
        with pytest.raises(PermissionError): fill(tmp_path/'vocab', 'two')
    assert (tmp_path/'vocab/a').read_bytes()==b'one'

def test_a_drive_that_cannot_flush(tmp_path, monkeypatch):
    "There is a warning; an error of the disk itself stays one"
    monkeypatch.setattr(os, 'fsync', raises(errno.EINVAL))
    with pytest.warns(UserWarning, match='cannot be flushed .* a power cut may damage'): fill(tmp_path/'vocab', 'one')
    assert (tmp_path/'vocab/a').read_bytes()==b'one'
    monkeypatch.setattr(os, 'fsync', raises(errno.EIO))
    with pytest.raises(OSError): fill(tmp_path/'vocab', 'two')
    assert (tmp_path/'vocab/a').read_bytes()==b'one'
