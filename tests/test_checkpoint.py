"Checkpoints under a full disk, under kills at every point, and under every kind of damage"
import errno, json, os, shutil, signal, socket, time, warnings

import pytest
import torch

from electra_nbdev.engine import checkpoint, files
from electra_nbdev.engine.checkpoint import (_found, checkpoint_path, find_damage, latest_checkpoint, load_checkpoint,
                                             save_checkpoint, saved_networks, tensors_of, unfinished)
from electra_nbdev.engine.files import InputError

def value(v, n=1000): return {'model/w': torch.full((n,), float(v)), 'optimizer/w/step': torch.tensor(2.**24)}

def save(run, step, v=None, **kwargs):
    v = step if v is None else v
    return save_checkpoint(run, step, value(v), dict(value=v), **kwargs)

def read(run):
    "The value in the newest good checkpoint, the same in tensors and state"
    path = latest_checkpoint(run)
    if path is None: return None
    tensors, state = load_checkpoint(path)
    assert (tensors['model/w']==state['value']).all()
    return state['value']

def listing(run): return sorted(o.name for o in (run/'checkpoints').iterdir())

def in_child(f):
    "Run `f` in a forked process; its exit code"
    pid = os.fork()
    if pid==0:
        code = 70
        try: code = f() or 0
        finally: os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

# A full disk

@pytest.mark.parametrize('full', ['tensors', 'state'])
def test_full_disk_leaves_the_old_checkpoint(tmp_path, full):
    save(tmp_path, 1)
    def fill():
        import resource # unknown on Windows
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        try: save_checkpoint(tmp_path, 2, value(2, 100_000 if full=='tensors' else 10), dict(value=2, pad='x'*100_000))
        except OSError as e: return 3 if 'cannot write checkpoint' in str(e) else 4
    assert in_child(fill)==3
    assert listing(tmp_path)==['step-00000001']
    assert read(tmp_path)==1

def test_full_disk_is_named(tmp_path, monkeypatch):
    said = 'Error while serializing: I/O error: No space left on device (os error 28)'
    def refuse(*_): raise checkpoint.SafetensorError(said)
    monkeypatch.setattr(checkpoint, 'save_file', refuse)
    with pytest.raises(OSError, match='cannot write checkpoint .*step-00000001: .*No space left'): save(tmp_path, 1)
    assert listing(tmp_path)==[]

def test_a_save_that_fails_leaves_the_old_checkpoints(tmp_path):
    "After its tensors are written: JSON has no sets"
    for step in (1, 2, 3): save(tmp_path, step, keep=2, pinned=[1])
    with pytest.raises(TypeError, match='not JSON serializable'):
        save_checkpoint(tmp_path, 4, value(4), dict(value={4}), keep=2)
    assert listing(tmp_path)==['step-00000001', 'step-00000002', 'step-00000003'] and read(tmp_path)==3

def test_the_next_save_removes_what_killed_processes_left(tmp_path):
    "One was killed while it wrote step 4, another while it replaced step 3, which stays readable until then"
    for step in (1, 2, 3): save(tmp_path, step)
    folder = tmp_path/'checkpoints'
    (folder/'.step-00000004.a1b2.tmp').mkdir()
    os.replace(folder/'step-00000003', folder/'.step-00000003.77.old')
    assert [o.name for o in _found(folder)]==['.step-00000003.77.old', 'step-00000002', 'step-00000001']
    save(tmp_path, 5, keep=2)
    assert listing(tmp_path)==['step-00000003', 'step-00000005']

# Kills. Every call that changes the disk is a point to die at: before it, and for a deletion also in its middle.

def die_at(n):
    "Replace what changes the disk by versions that end the process at the n-th call, as a kill does: no `finally` runs"
    calls = [0]
    def mortal(f, half=lambda *a: None):
        def g(*args, **kwargs):
            calls[0] += 1
            if calls[0]==n:
                half(*args)
                os._exit(9)
            return f(*args, **kwargs)
        return g
    def half_gone(path, *_):
        for o in sorted(path.glob('*'))[:1]: os.unlink(o)
    os.replace, os.fsync = mortal(os.replace), mortal(os.fsync)
    shutil.rmtree = mortal(shutil.rmtree, half_gone)
    checkpoint.save_file = mortal(checkpoint.save_file, lambda tensors, path: path.write_bytes(b'half'))
    checkpoint.json.dumps = mortal(json.dumps)

KILLED = [('next', 1), ('next', 2), ('next', None), ('same', 1), ('same', 2), ('first', 5)]

@pytest.mark.parametrize('what,keep', KILLED)
def test_killed_at_any_moment_there_is_the_old_or_the_new(tmp_path, what, keep):
    seen, n = set(), 0
    while True:
        n += 1
        run = tmp_path/str(n)
        if what!='first':
            for step in (1, 2): save(run, step, keep=keep)
        def work():
            die_at(n)
            save(run, 2 if what=='same' else 3, v=30, keep=keep)
        code = in_child(work)
        assert code in (0, 9)
        with warnings.catch_warnings():
            warnings.simplefilter('error') # a kill leaves nothing that looks damaged
            found = read(run)
        seen.add(found)
        assert found in ((None, 30) if what=='first' else (2, 30))
        save(run, 4, v=40, keep=keep) # the next save clears up
        assert all(o.startswith('step-') for o in listing(run)) and read(run)==40
        if keep: assert len(listing(run))<=keep
        if code==0: break
    assert n>5 and seen=={None if what=='first' else 2, 30}

# Damage

def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)

DAMAGES = dict(
    flipped=lambda p: flip(p, len(p.read_bytes())//2),
    first=lambda p: flip(p, 0),
    cut=lambda p: p.write_bytes(p.read_bytes()[:-1]),
    empty=lambda p: p.write_bytes(b''),
    longer=lambda p: p.write_bytes(p.read_bytes()+b'x'),
    gone=lambda p: p.unlink(),
    a_folder=lambda p: (p.unlink(), p.mkdir()))

@pytest.mark.parametrize('file', ['tensors.safetensors', 'state.json', 'checksums.json'])
@pytest.mark.parametrize('how', DAMAGES)
def test_damage_is_noticed_named_and_set_aside(tmp_path, file, how):
    for step in (1, 2): save(tmp_path, step)
    DAMAGES[how](checkpoint_path(tmp_path, 2)/file)
    with pytest.warns(UserWarning, match='step-00000002 is damaged'): assert read(tmp_path)==1
    assert listing(tmp_path)==['step-00000001', 'step-00000002.damaged']
    save(tmp_path, 2, v=22)
    assert read(tmp_path)==22

def test_all_damaged_one_after_another(tmp_path):
    for again in range(3):
        save(tmp_path, 1)
        (checkpoint_path(tmp_path, 1)/'state.json').unlink()
        with pytest.warns(UserWarning, match='damaged'), pytest.raises(InputError, match='every checkpoint in'):
            latest_checkpoint(tmp_path)
        with pytest.raises(InputError, match='every checkpoint in'): latest_checkpoint(tmp_path)
    assert listing(tmp_path)==['step-00000001.2.damaged', 'step-00000001.3.damaged', 'step-00000001.damaged']

def test_an_empty_folder_or_none(tmp_path):
    assert latest_checkpoint(tmp_path) is None
    checkpoint_path(tmp_path, 1).mkdir(parents=True)
    with pytest.warns(UserWarning, match='there is no file'), pytest.raises(InputError, match='every checkpoint'):
        latest_checkpoint(tmp_path)
    with pytest.raises(InputError, match='step-00000005 cannot be used: there is no file'):
        load_checkpoint(checkpoint_path(tmp_path, 5))

def test_a_flipped_bit_keeps_the_size(tmp_path):
    path = save(tmp_path, 1)
    flip(path/'tensors.safetensors', -1)
    assert find_damage(path, content=False)==''
    assert find_damage(path)=='tensors.safetensors does not match its checksum'

def test_loading_checks_sizes(tmp_path):
    path = save(tmp_path, 1)
    DAMAGES['cut'](path/'tensors.safetensors')
    with pytest.raises(InputError, match='tensors.safetensors has .* bytes instead of'): load_checkpoint(path)

# How many stay

KEPT = [(None, [1, 2, 3, 4]), (0, [1, 2, 3, 4]), (1, [4]), (3, [2, 3, 4]), (9, [1, 2, 3, 4])]

@pytest.mark.parametrize('keep,left', KEPT)
def test_keep(tmp_path, keep, left):
    for step in (1, 2, 3, 4): save(tmp_path, step, keep=keep)
    assert listing(tmp_path)==[f'step-{o:08d}' for o in left]

def test_pinned_steps_stay_and_do_not_count(tmp_path):
    for step in (1, 2, 3, 4, 5): save(tmp_path, step, keep=2, pinned=[1, 3])
    assert listing(tmp_path)==[f'step-{o:08d}' for o in (1, 3, 4, 5)]

def test_what_was_just_written_stays(tmp_path):
    for step in (10, 20, 5): save(tmp_path, step, keep=1)
    assert listing(tmp_path)==['step-00000005']

def test_names_are_in_the_order_of_steps():
    assert sorted([checkpoint_path('r', 10_000), checkpoint_path('r', 9_000)])[-1].name=='step-00010000'

def test_more_than_eight_digits(tmp_path):
    for step in (99_999_999, 100_000_000): save(tmp_path, step)
    assert read(tmp_path)==100_000_000

# What goes in comes out

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool]

@pytest.mark.parametrize('dtype', DTYPES)
def test_types_and_shapes_survive(tmp_path, dtype):
    x = (torch.arange(24)%2).to(dtype).view(2, 3, 4)
    given = dict(a=x, tied=x, view=x[:, 1], turned=x.transpose(0, 2), one=x[0, 0, 0], none=x[:0],
                 param=x.float().requires_grad_())
    back, state = load_checkpoint(save_checkpoint(tmp_path, 0, given, {'ä': [1, None, 0.1, 'ß']}))
    assert state=={'ä': [1, None, 0.1, 'ß']} and set(back)==set(given)
    for k,t in given.items(): assert back[k].dtype==t.dtype and torch.equal(back[k], t)

def test_tensors_of_one_owner(tmp_path):
    tensors, _ = load_checkpoint(save_checkpoint(tmp_path, 3, {'model/bias': torch.full((2,), 3.)}, {}))
    assert tensors_of(tensors, 'model')['bias'].tolist()==[3, 3] and tensors_of(tensors, 'optimizer')=={}

def test_a_run_without_a_recipe_is_not_unfinished(tmp_path):
    save(tmp_path, 1)
    assert (unfinished(tmp_path), unfinished(tmp_path/'discriminator'), saved_networks(tmp_path))==(False, False, [])

# One writer

def test_a_second_writer_is_told_who_is_the_first(tmp_path):
    "Another process, named with its host; nothing is in the way of the next one when it has been killed"
    ready, go = os.pipe()
    if (child := os.fork())==0:
        with checkpoint.only_writer(tmp_path/'run'):
            os.write(go, b'x')
            time.sleep(60)
    os.read(ready, 1)
    assert os.listdir(tmp_path/'run')==['.lock']
    with pytest.raises(InputError, match=f'being written by process {child} on {socket.gethostname()}; wait'):
        with checkpoint.only_writer(tmp_path/'run'): pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with checkpoint.only_writer(tmp_path/'run'):
        assert (tmp_path/'run/.lock').read_text()==f'process {os.getpid()} on {socket.gethostname()}'

def test_a_folder_that_cannot_be_locked_is_written_with_a_warning(tmp_path, monkeypatch):
    def refuse(self): raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
    monkeypatch.setattr(files.FileLock, '_acquire', refuse)
    with pytest.warns(UserWarning, match='cannot be locked here .*No locks available'):
        with checkpoint.only_writer(tmp_path/'run'): save(tmp_path/'run', 1)
    assert read(tmp_path/'run')==1

def test_weights_without_a_checkpoint_are_no_run_in_training(tmp_path):
    "Nothing is waited for"
    (tmp_path/'model.safetensors').write_bytes(b'')
    with pytest.raises(files.InputError, match='if it is a part of a run'): checkpoint.newest_state(tmp_path)
