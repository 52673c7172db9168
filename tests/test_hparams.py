"What is written whole or not at all, while somebody looks"
import ctypes, os
from threading import Thread

from electra_nbdev.hparams import atomic_folder

def test_a_reader_finds_a_folder_while_it_is_replaced(tmp_path):
    path, missing, looks = tmp_path/'vocab', 0, 0
    def replace_often():
        for i in range(50):
            with atomic_folder(path) as tmp: (tmp/'vocab.txt').write_text(str(i))
    with atomic_folder(path) as tmp: (tmp/'vocab.txt').write_text('first')
    writer = Thread(target=replace_often)
    writer.start()
    while writer.is_alive(): missing, looks = missing + (not path.exists()), looks+1
    assert (path/'vocab.txt').read_text()=='49' and looks
    assert os.listdir(tmp_path)==['vocab'], "no old version and no half of a new one is left"
    if hasattr(ctypes.CDLL(None), 'renameat2'): assert missing==0
