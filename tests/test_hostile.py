"Folders of a stranger, spoiled at random: one line and exit code 2, or the right result; nothing outside of the target"
import pytest

from electra_nbdev.engine.files import InputError
from electra_nbdev.pretraining.request import run_folder

import hostile

@pytest.fixture(scope='module')
def made(tmp_path_factory): return hostile.prepare(), hostile.made_here(tmp_path_factory.mktemp('made'))

@pytest.mark.parametrize('seed', range(1000, 1012))
def test_spoiled_folders(seed, made):
    found = hostile.attempt(seed, *made)
    assert not found.wrong, found

@pytest.mark.parametrize('seed', range(4))
def test_names_that_lead_elsewhere(seed, made, monkeypatch):
    "A task's name is the folder of its network"
    monkeypatch.setattr(hostile, 'SPOILED', (hostile.name,))
    monkeypatch.setattr(hostile, 'NAMES', ('..', '../stolen', '{jail}/stolen', '../../stolen')[seed:seed+1])
    monkeypatch.setattr(hostile, 'COMMANDS', dict(task=('electra_convert --src in --dst out',)))
    found = hostile.attempt(seed, *made)
    assert not found.wrong and found.code==2 and 'becomes a file name' in found.said, found

@pytest.mark.parametrize('name', ['..', '../stolen', '/stolen', 'a/b', 'C:stolen', 'nul'])
def test_a_run_that_its_recipe_names_stays_in_runs(name):
    with pytest.raises(InputError, match='hparam `model_name`.*becomes a file name'):
        run_folder(None, name)

def test_code_of_a_folder_is_not_run(made, monkeypatch):
    monkeypatch.setattr(hostile, 'SPOILED', (hostile.code,))
    monkeypatch.setattr(hostile, 'NAMES', ('other-architecture',))
    found = [hostile.attempt(o, *made) for o in range(6)]
    assert not any(o.wrong for o in found), found
    assert any('which is never run here' in o.said for o in found), found
