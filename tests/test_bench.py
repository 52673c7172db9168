"Every result of a benchmark names the commit that was measured"
import ast, json, re, subprocess, sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
import common, run

RESULTS = ROOT/'benchmarks/results'
BEFORE = json.loads((RESULTS/'committed_in.json').read_text()) # Results that do not name it: which commit wrote them

def git(folder, *words):
    known = '-c', 'user.name=me', '-c', 'user.email=me@x', '-c', 'commit.gpgsign=false'
    done = subprocess.run(['git', *known, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()

@pytest.fixture
def checkout(tmp_path):
    "A repository with a file and a result"
    (tmp_path/'benchmarks/results').mkdir(parents=True)
    for o in ('code.py', 'benchmarks/results/a.json'): (tmp_path/o).write_text('1')
    git(tmp_path, 'init', '-q')
    git(tmp_path, 'add', '-A')
    git(tmp_path, 'commit', '-qm', 'one')
    return tmp_path

def test_a_result_is_no_change_and_code_is(checkout):
    head = git(checkout, 'rev-parse', '--short', 'HEAD')
    (checkout/'benchmarks/results/a.json').write_text('2')
    (checkout/'benchmarks/results/b.json').write_text('2')
    assert common.commit(checkout)==head
    (checkout/'new.py').write_text('2')
    assert common.commit(checkout)==f'{head}+changes'
    (checkout/'new.py').unlink()
    (checkout/'code.py').write_text('2')
    assert common.commit(checkout)==f'{head}+changes'

def test_without_git_it_is_unknown(checkout, monkeypatch):
    "A copy inside of another repository, and a machine that has no git"
    (checkout/'copy').mkdir()
    assert common.commit(checkout/'copy')=='unknown'
    monkeypatch.setenv('PATH', '')
    assert common.commit(checkout)=='unknown'

def test_results_name_the_commit(tmp_path, capsys, monkeypatch):
    "What goes on at another commit names both"
    for o in ('aaa', 'bbb', 'bbb'):
        monkeypatch.setattr(common, 'COMMIT', o)
        path = tmp_path/'a.json'
        common.report((json.loads(path.read_text()) if path.exists() else {}) | dict(n=1), path)
    printed = capsys.readouterr().out.splitlines()[-1]
    assert json.loads(path.read_text())==json.loads(printed)==dict(n=1, commit='aaa, bbb')

def test_a_run_names_the_commit(tmp_path, monkeypatch, capsys):
    "`make bench`: once a run, though each benchmark prints it"
    script = "print('{\"ratio\": 1.0, \"spread\": [1, 1], \"commit\": \"x\"}')"
    (tmp_path/'data.py').write_text(script)
    monkeypatch.setattr(run, 'HERE', tmp_path)
    monkeypatch.setattr(run, 'COMMIT', 'abc')
    monkeypatch.setattr(run, 'draw', lambda runs, path: None)
    monkeypatch.setattr(run, 'markdown', lambda run: [])
    monkeypatch.setattr(sys, 'argv', ['run.py', '--only', 'data', '--out', str(tmp_path/'out')])
    run.main()
    file, = (tmp_path/'out').glob('*.json')
    found, = json.loads(file.read_text())['runs']
    assert found['commit']=='abc' and found['data']==dict(ratio=1., spread=[1, 1])

def written_apart(path):
    "Lines that write or print a result, and not by `write_result` or `report`"
    for n in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
        if not isinstance(n, ast.Call) or 'json.dumps' not in (code := ast.unparse(n)): continue
        if re.match(r"(Path\()?(args\.(out|results)|out)\)?\.write_text|print\(json\.dumps\((dict|facts|found)", code):
            yield f'{path.name}: {n.lineno}'

def test_no_benchmark_writes_a_result_without_it():
    assert not [o for p in (ROOT/'benchmarks').glob('*.py') if p.name!='run.py' for o in written_apart(p)]

def unnamed(path):
    "Whether a result does not say which commit was measured"
    found = json.loads(path.read_text(encoding='utf-8')) if path.suffix=='.json' else {}
    if 'runs' in found and 'machine' in found and isinstance(found['runs'], list):
        return sum('commit' not in o for o in found['runs'])>len(BEFORE.get(name_of(path), []))
    told = 'commit' in found or path.suffix=='.txt' and re.search(r'(?m)^commit \S', path.read_text(encoding='utf-8'))
    return not told and name_of(path) not in BEFORE

def name_of(path): return path.relative_to(RESULTS).as_posix()

def test_every_committed_result_names_its_commit():
    found = [o for o in RESULTS.rglob('*') if o.suffix in ('.json', '.jsonl', '.txt') and o.name!='committed_in.json'
             and not (o.parent/'config.json').is_file()]
    assert not [name_of(o) for o in found if unnamed(o)]
    assert not BEFORE.keys()-{name_of(o) for o in found}
    hashes = [h for o in BEFORE.values() for h in ([o] if isinstance(o, str) else o)]
    assert all(re.fullmatch('[0-9a-f]{7,}', o) for o in hashes)
