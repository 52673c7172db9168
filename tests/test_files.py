"What is written whole or not at all, while somebody looks"
import os
from threading import Thread

from electra_nbdev.engine.files import atomic_folder

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
