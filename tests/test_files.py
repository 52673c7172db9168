"What is written whole or not at all, while somebody looks"
import os, stat
from threading import Thread

import pytest, torch
from safetensors.torch import save_file

from electra_nbdev.engine import files
from electra_nbdev.engine.files import atomic_folder, atomic_write, file_facts, known_facts, remove_leftovers

def test_a_reader_finds_all_of_a_folder_or_nothing_while_it_is_replaced(tmp_path):
    path, seen = tmp_path/'vocab', set()
    def replace_often():
        for i in range(50):
            with atomic_folder(path) as tmp: (tmp/'vocab.txt').write_text(str(i))
    def read():
        "What stands there; between two renames, for an instant, nothing"
        try: return (path/'vocab.txt').read_text()
        except FileNotFoundError: return None
    with atomic_folder(path) as tmp: (tmp/'vocab.txt').write_text('first')
    writer = Thread(target=replace_often)
    writer.start()
    while writer.is_alive(): seen.add(read())
    assert read()=='49'
    assert seen <= {None, 'first', *map(str, range(50))} and len(seen)>1
    assert os.listdir(tmp_path)==['vocab'], "neither an old version nor a part of a new one is left"

def test_leftovers_are_those_of_one_name(tmp_path):
    "`rows.small` is another folder than `rows`, and somebody may be writing it"
    with atomic_folder(tmp_path/'rows.small') as tmp:
        (tmp_path/'.rows.a1b2_c3.tmp').mkdir()
        (tmp_path/'.rows.0123456789ab.old').mkdir()
        remove_leftovers(tmp_path, 'rows')
        assert {o.name for o in tmp_path.iterdir()}=={tmp.name, 'rows'}
    assert {o.name for o in tmp_path.iterdir()}=={'rows.small', 'rows'}

@pytest.mark.skipif(os.name=='nt', reason='Windows has other permissions')
def test_files_of_a_folder_are_for_everybody_whom_the_umask_allows(tmp_path):
    "safetensors writes for the owner alone; colleagues read the examples and runs of a shared drive too"
    for mask, file, folder in ((0o022, 0o644, 0o755), (0o077, 0o600, 0o700)):
        before = os.umask(mask)
        try:
            with atomic_folder(tmp_path/'run') as tmp:
                (tmp/'discriminator').mkdir()
                save_file({'x': torch.zeros(1)}, tmp/'discriminator/model.safetensors')
        finally: os.umask(before)
        found = [stat.S_IMODE((tmp_path/o).stat().st_mode) for o in ('run/discriminator/model.safetensors', 'run')]
        assert found==[file, folder]

def test_a_large_file_is_hashed_once(tmp_path, monkeypatch):
    "Until its size or its time of change differ; small files always, and where nothing can be remembered"
    hashed = []
    monkeypatch.setenv('ELECTRA_NBDEV_HOME', str(tmp_path/'home'))
    monkeypatch.setattr(files, 'file_facts', lambda o: hashed.append(o.name) or file_facts(o))
    small, large = tmp_path/'small', tmp_path/'large'
    small.write_text('few words')
    with open(large, 'wb') as f: f.truncate(2**26) # a hole: no byte of it is on the disk
    for _ in range(2): assert [known_facts(o) for o in (small, large)]==[file_facts(o) for o in (small, large)]
    assert hashed==['small', 'large', 'small']
    with open(large, 'r+b') as f: f.write(b'x')
    os.utime(large, ns=(1, 1))
    assert known_facts(large)==file_facts(large) and hashed.count('large')==2
    for o in (tmp_path/'home/checksums').iterdir(): o.write_text('damaged')
    assert known_facts(large)==file_facts(large) and hashed.count('large')==3
    monkeypatch.setattr(files, 'atomic_write', lambda *_: (_ for _ in ()).throw(PermissionError()))
    os.utime(large, ns=(2, 2))
    assert known_facts(large)==file_facts(large)

def test_a_link_leads_to_its_file(tmp_path):
    (tmp_path/'link').symlink_to(tmp_path/'file')
    atomic_write(tmp_path/'link', 'a')
    assert (tmp_path/'link').is_symlink() and (tmp_path/'file').read_text()=='a'
