"One thread and no network for every test and for the commands it types; where the golden numbers are"
import os, random, sys, warnings
from pathlib import Path
import numpy as np
import pytest, torch

if not hasattr(os, 'fork'): # Windows: what a command does in a fork of this process is tested elsewhere
    def no_fork(): pytest.skip("needs os.fork, which this system lacks")
    os.fork = no_fork

# The commands of a user run in forks: warnings, which pytest makes errors, are messages there
if hasattr(os, 'register_at_fork'): os.register_at_fork(after_in_child=warnings.resetwarnings)

os.environ.update(OMP_NUM_THREADS='1', HF_HUB_OFFLINE='1', HF_DATASETS_OFFLINE='1', MPLBACKEND='Agg')

# Tests of the scripts import these by their names
sys.path += [str(Path(__file__).parents[1]/o) for o in ('tools', 'benchmarks')]

# Autograd's threads are chosen at its first use: once torch has compiled or counted operations, a fork could not train
torch.ones(1, requires_grad=True).sum().backward()

# Tests that run once for each golden file need the folder before any fixture exists: `from conftest import GOLDEN`
GOLDEN = Path(os.environ.get('ELECTRA_GOLDEN') or Path(__file__).with_name('golden')).resolve()

@pytest.fixture(autouse=True)
def seeded():
    "The same random numbers whichever tests ran before"
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)

@pytest.fixture(scope='session')
def golden():
    "Folder of the official implementation's numbers"
    assert GOLDEN.is_dir(), f"no golden numbers at {GOLDEN}: ELECTRA_GOLDEN names the folder that holds them"
    return GOLDEN

@pytest.fixture
def shown(monkeypatch):
    "Tables as they are displayed"
    seen = []
    monkeypatch.setattr('IPython.display.display', lambda o: seen.append(o.data))
    return seen
