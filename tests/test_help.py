"""What Python and Jupyter tell about the package: `help(f)`, `f?`, names after a dot, and a quiet import"""
import contextlib, importlib, inspect, io, json, re, subprocess, sys
from pathlib import Path

import IPython, pytest
from fastcore.docments import docments
from IPython.core.oinspect import Inspector

import electra_nbdev
from electra_nbdev.engine.command import tell_parameters
from electra_nbdev.data.examples import DataRequest
from electra_nbdev.networks.folder import ModelFolder

def public(face):
    "Functions, classes and methods of ours that a face exports"
    module = importlib.import_module(f'electra_nbdev.{face}')
    for o in (getattr(module, name) for name in module.__all__):
        if not o.__module__.startswith('electra_nbdev.'): continue
        yield o
        if inspect.isclass(o):
            members = inspect.getmembers(o, lambda m: inspect.isfunction(m) or inspect.ismethod(m))
            yield from (m for name,m in members if name[0]!='_' and m.__module__.startswith('electra_nbdev.'))

def comments(o):
    "{parameter: its comment}; a dataclass has fields of its bases too"
    parts = [c for c in o.__mro__ if c.__module__.startswith('electra_nbdev.')] if inspect.isclass(o) else [o]
    return {k: v for part in parts for k,v in docments(part, args_kwargs=True).items() if v}

@pytest.mark.parametrize('face', electra_nbdev.FACES)
def test_help_tells_every_parameter_with_its_comment(face):
    n = 0
    for o in public(face):
        told = ' '.join((inspect.getdoc(o) or '').split())
        for name in inspect.signature(o).parameters:
            if comment := comments(o).get(name):
                assert f"{name} {' '.join(comment.split())}" in told, (o, name)
                n += 1
    assert n>100
    named = [o for o in public(face) if inspect.isfunction(o) and '.' not in o.__qualname__]
    assert not [(o.__name__, k) for o in named for k in inspect.signature(o).parameters if k not in comments(o)]

@pytest.mark.parametrize('face', electra_nbdev.FACES)
def test_a_face_exports_names_of_this_package_alone(face):
    module = importlib.import_module(f'electra_nbdev.{face}')
    ours = {name: getattr(module, name).__module__.split('.')[0] for name in module.__all__}
    assert {*ours.values()}=={'electra_nbdev'}, ours

def test_help_of_a_terminal_and_of_jupyter():
    scheme = dict(theme_name='nocolor') if IPython.version_info[0]>8 else {}
    line = 'hp  '
    f = electra_nbdev.pretrain_dls
    with contextlib.redirect_stdout(io.StringIO()) as said: help(f)
    text = Inspector(**scheme)._get_info(f)['text/plain']
    for told in said.getvalue(), text: assert f.__doc__.split('\n')[0] in told and line in told, told

def test_the_first_line_stays_and_nothing_is_told_twice():
    f = electra_nbdev.electra_learner
    once = f.__doc__
    assert '\n' not in once.split('\n\nParameters:')[0]
    tell_parameters(dict(f=f, nothing=1))
    assert f.__doc__==once

def test_no_page_with_definitions_loads_a_face():
    "`show_doc` shows comments in the signature, so a docstring that tells them would tell them twice"
    loads = re.compile(r'(?m)^ *from electra_nbdev(\.(pretrain|finetune|score))? import')
    for o in (Path(__file__).parents[1]/'nbs').glob('*/[0-9]*.ipynb'):
        cells = json.loads(o.read_text(encoding='utf-8'))['cells']
        code = [''.join(c['source']) for c in cells if c['cell_type']=='code']
        assert o.parent.name=='tutorials' or not [c for c in code if loads.search(c)], o

@pytest.mark.parametrize('face', electra_nbdev.FACES)
def test_an_import_is_quiet(face):
    said = subprocess.run([sys.executable, '-c', f'from electra_nbdev.{face} import *'], capture_output=True, text=True)
    assert (said.returncode, said.stdout, said.stderr)==(0, '', '')

def test_names_after_the_dot():
    names = {o for o in dir(electra_nbdev) if o[0]!='_'}
    assert names=={*electra_nbdev.FACES}.union(*electra_nbdev.FACES.values())
    assert electra_nbdev.score is importlib.import_module('electra_nbdev.score')

def test_recipes_and_requests_print_what_was_changed():
    hp = electra_nbdev.preset('tiny', body={})
    assert repr(electra_nbdev.PretrainHParams())=='PretrainHParams()'
    assert eval(repr(hp), dict(PretrainHParams=type(hp)))==hp and 'num_eval_steps=8' in repr(hp)
    assert repr(electra_nbdev.ScoreRequest(show='a cat'))=="ScoreRequest(show='a cat')"
    corpus = ['a long text']*100
    assert repr(DataRequest(corpus, 'vocab', 'out', pack=True)).endswith("...], vocab='vocab', out='out', pack=True)")

def test_models_print_what_they_are():
    def told(o): return repr(o).replace(str(Path(electra_nbdev.__file__).parent), '')
    assert told(ModelFolder('electra-baby'))=="ModelFolder('electra-baby'): run with discriminator, generator"
    assert told(electra_nbdev.load_scorer('electra-baby', device='cpu')).startswith('Scorer: Electra')
    assert told(electra_nbdev.load_likelihood(device='cpu')).endswith(' tokens, on cpu')

def test_examples_and_jobs_print_what_they_are(tmp_path):
    text = tmp_path/'a.txt'
    text.write_text('the cat sat on the mat\n\n'*40)
    vocab = ModelFolder('electra-baby').run/'discriminator'
    asked = DataRequest(text, vocab, tmp_path/'out', 16)
    assert repr(asked.settle())==f'DataJob: examples in {tmp_path}/out, to be built; chunks of text: 1'
    examples = electra_nbdev.load_examples(asked.settle().run())
    assert repr(examples).startswith(f'Examples: {len(examples)} examples, 16 tokens, ')
    assert repr(asked.settle())==f'DataJob: examples in {tmp_path}/out, complete'
    job = electra_nbdev.ScoreRequest(text=str(text)).settle()
    assert repr(job)==f'TextJob: {text} by electric-baby'
    asked = electra_nbdev.PretrainRequest(tmp_path/'out', tmp_path/'run', steps=2000)
    assert repr(asked)==f"PretrainRequest(data={tmp_path/'out'!r}, out={tmp_path/'run'!r}, steps=2000)"
    assert repr(asked.settle())==f'PretrainJob: a new run in {tmp_path}/run, on {tmp_path}/out'
    table = tmp_path/'a.csv'
    table.write_text('text,label\nthe cat,x\nthe dog,y\na cat,x\na dog,y\n')
    asked = electra_nbdev.FinetuneRequest(csv=table, out=tmp_path/'tuned', text_column='text', label_column='label')
    assert repr(asked).startswith('FinetuneRequest(out=') and 'trials' not in repr(asked)
    assert repr(asked.settle())==f'FinetuneJob: tiny, in {tmp_path}/tuned/a'
