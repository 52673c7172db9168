"What is asked of scoring is settled, and a conversion refused, without torch; a file is opened once"
import json, subprocess, sys

import pytest

from electra_nbdev.cli import electra_convert
from electra_nbdev.engine.files import InputError
from electra_nbdev.scoring.request import JOBS, OPTIONS, ScoreRequest
from electra_nbdev.scoring.score_files import TextFile
from make import electric_runs
from terminal import files_read

CHOICES = [dict(text='the ___ sat.', choices=['cat', 'mat'], answer='cat')]
WEIGHTS = dict(weight=1., bonus=0., by='towers', model='0', scored=False)

@pytest.fixture(scope='module')
def home(tmp_path_factory):
    d = electric_runs(tmp_path_factory.mktemp('user'))
    (d/'choices.jsonl').write_text('\n'.join(map(json.dumps, CHOICES)))
    (d/'w.json').write_text(json.dumps(WEIGHTS))
    (d/'contexts.txt').write_text('the cat .\n'*len((d/'lines.txt').read_text().splitlines()))
    return d

ASKED = dict(show=dict(show='the cat'), text=dict(text='lines.txt'), pairs=dict(pairs='pairs'),
             tuned=dict(nbest='lists.json', weights='w.json'), nbest=dict(nbest='lists.json'),
             choices=dict(choices='choices.jsonl'), blank=dict(choices='the ___', candidates=['cat', 'mat']),
             surprisal=dict(surprisal='lines.txt', context='contexts.txt', unit='bits', per='token'))

def test_settling_needs_no_torch(home):
    code = f"""import sys
from electra_nbdev.scoring.request import ScoreRequest
from electra_nbdev.cli import electra_convert
for o in {list(ASKED.values())}: ScoreRequest(**o, model='electric').settle()
try: electra_convert(['electric']*3, 'converted')
except ValueError as e: assert '3 names' in str(e)
assert 'torch' not in sys.modules"""
    assert not subprocess.run([sys.executable, '-c', code], cwd=home).returncode

@pytest.mark.parametrize('name', ASKED)
def test_a_file_is_opened_once(name, home, monkeypatch):
    "Texts twice, for what they look like and for every row, since a large file is not held in memory"
    read = files_read(home, monkeypatch)
    monkeypatch.chdir(home)
    ScoreRequest(**ASKED[name], model='electric').settle()
    texts = {'lines.txt'} if name in ('text', 'surprisal') else set()
    assert read=={k: 1+(k in texts) for k in read} and read.keys()>=texts
    given = {o for o in ASKED[name].values() if isinstance(o, str) and (home/o).is_file()}
    assert given<=read.keys()

@pytest.mark.parametrize('option', OPTIONS)
def test_an_option_without_effect_is_refused(option, home, monkeypatch):
    "Each of them with each job that it does not go with"
    monkeypatch.chdir(home)
    for job in set(JOBS)-set(OPTIONS[option]):
        with pytest.raises(InputError, match=f'`{job}` takes no `{option}`'):
            ScoreRequest(**ASKED[job] | {option: 'w.json'}, model='electric').settle()

CONVERT = dict(private=(dict(private=True), '`push`'), int8=(dict(int8=True), 'add `onnx`'),
               npz=(dict(onnx=True, out='c.npz'), 'writes a folder'),
               push=(dict(push='me/mine', out='c.npz'), 'uploads a folder'),
               card=(dict(onnx=True, license='mit'), 'leave these out'), three=(dict(src=['electric']*3), '3 names'))

@pytest.mark.parametrize('name', CONVERT)
def test_a_conversion_is_refused(name, home, monkeypatch):
    asked, why = CONVERT[name]
    monkeypatch.chdir(home)
    with pytest.raises(InputError, match=why): electra_convert(**dict(src='electric', out='c') | asked)
    assert not list(home.glob('c*.npz')) and not (home/'c').exists()

def test_an_open_blank_needs_a_generator():
    job = ScoreRequest(choices='the ___ sat.').settle()
    assert job.ways==[('generator',)] and job.rows is None and not job.candidates
    with pytest.raises(InputError, match='electric has no generator to fill a blank by; give `candidates`'):
        ScoreRequest(choices='the ___ sat.', model='electric').settle()
    with pytest.raises(InputError, match='`by` for electra-baby'):
        ScoreRequest(choices='the ___ sat.', by='p-replaced').settle()
    with pytest.raises(InputError, match='for a file of texts'):
        ScoreRequest(choices='the ___ sat.', out='rows.jsonl').settle()

def test_a_field_inside_of_an_object(tmp_path):
    "As in a corpus; what stands beside it stays"
    path = tmp_path/'nested.jsonl'
    path.write_text('{"meta": {"text": "a man ran"}, "n": 1}\n')
    assert [*TextFile(path, field='meta.text')]==[(1, 'a man ran', dict(meta=dict(text='a man ran'), n=1))]
    with pytest.raises(InputError, match='no column `meta.body`; its columns are meta, n'):
        TextFile(path, field='meta.body')
