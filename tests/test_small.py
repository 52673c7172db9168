"What `tools/small.py` reads and trains: the newest novels first, each stage from the one before"
import small

def test_documents_are_cut_and_ordered(tmp_path):
    "The newest novels come first, none of 1929 or later; a document ends after so many sentences; words are counted"
    novels = 'text/novels/A_Old_1850.txt', 'text/eltec/ENG19000_B.txt', 'text/novels/C_Late_1929.txt'
    for o in (*small.BABYLM, *novels):
        (tmp_path/o).parent.mkdir(parents=True, exist_ok=True)
        name = (tmp_path/o).stem
        (tmp_path/o).write_text(f'One of {name}. Two of {name}. Three of {name}.\n', encoding='utf-8')
    found = [*small.documents(tmp_path, 36, 2)]
    order = 'simple_wiki', 'gutenberg', 'ENG19000_B', 'A_Old_1850'
    assert [o for o in found if o][::3]==[f'One of {o}.' for o in order]
    assert found[:5]==['One of simple_wiki.', 'Two of simple_wiki.', '', 'Three of simple_wiki.', '']
    assert sum(len(o.split()) for o in small.documents(tmp_path, 30, 2))==30

def test_stages_go_on_from_what_is_kept(tmp_path, monkeypatch):
    "The first stage begins with the preset, others with the one before, which they replace; steps are of passes"
    typed, shipped, work = [], [], tmp_path/'work'
    def ship(out, name, folder):
        shipped.append(name)
        (folder/name).mkdir(parents=True)
        out.mkdir(parents=True)
        (out/'history.jsonl').write_text(name)
    stages = [('first', 1/3, dict(learning_rate=1e-3, train_batch_size=16)),
              ('second', .5, dict(learning_rate=5e-4, train_batch_size=16))]
    monkeypatch.setattr(small, 'STAGES', stages)
    monkeypatch.setattr(small, 'PROGRESS', tmp_path/'results')
    monkeypatch.setattr(small, 'KEPT', tmp_path/'kept')
    monkeypatch.setattr(small, 'load_examples', lambda path: range(48_000))
    monkeypatch.setattr(small, 'run', lambda line, **hparams: typed.append((line, hparams)))
    monkeypatch.setattr(small, 'ship', ship)
    small.train(work)
    assert shipped==['first', 'second'] and [o['learning_rate'] for _,o in typed]==[1e-3, 5e-4]
    assert '--preset modern' in typed[0][0] and '--steps 1000 ' in typed[0][0]
    assert f'--init {tmp_path}/kept/first' in typed[1][0] and '--steps 1500 ' in typed[1][0]
    assert [o.name for o in (tmp_path/'kept').iterdir()]==['second']
    assert (tmp_path/'results/second.jsonl').read_text()=='second'
    small.train(work)
    assert len(typed)==2
