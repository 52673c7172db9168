"The hub: networks and their card go up, and come back as a model for every command; a stand-in for its API, no network"
import base64, hashlib, json, re, shutil
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import huggingface_hub.constants as constants
import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard, metadata_load
from safetensors.torch import load_file

from electra_nbdev.sharing.convert import convert_weights
from electra_nbdev.engine.files import InputError
from electra_nbdev.engine.models import shipped, weight_files
from electra_nbdev.finetuning.recipe import open_model
from electra_nbdev.networks.folder import open_pretrained
from electra_nbdev.scoring.score import load_scorer
from make import biased_run, plain_logits
from terminal import convert_cli

TOKEN, SHA = 'hf_right', 'a'*40

class Hub(BaseHTTPRequestHandler):
    "What the hub answers to those who make a repository, write and read one; `server.repos` is {name: {path: bytes}}"
    def log_message(self, *_): pass

    def say(self, found, code=200, **headers):
        body = found if isinstance(found, bytes) else json.dumps(found).encode()
        self.send_response(code)
        for k,v in {'Content-Length': len(body), 'X-Repo-Commit': SHA, **headers}.items():
            self.send_header(k.replace('_', '-'), str(v))
        self.end_headers()
        if self.command!='HEAD': self.wfile.write(body)

    def refused(self): return self.headers.get('Authorization')!=f'Bearer {TOKEN}'

    def do_POST(self):
        repos, body = self.server.repos, self.rfile.read(int(self.headers['Content-Length'] or 0))
        if self.path=='/api/validate-yaml': return self.say(dict(errors=[], warnings=[]))
        if self.refused(): return self.say(dict(error='Invalid username or password.'), 401)
        if self.path=='/api/repos/create':
            o = json.loads(body)
            name = '/'.join(filter(None, (o.get('organization'), o['name'])))
            there, url = name in repos, f'{constants.ENDPOINT}/{name}'
            if there: return self.say(dict(error='You already created this model repo', url=url), 409)
            repos[name] = {}
            if o.get('private') or o.get('visibility')=='private': self.server.private.add(name)
            return self.say(dict(url=url))
        name, act = re.fullmatch('/api/models/(.+)/(preupload|commit)/main', self.path).groups()
        if act=='preupload':
            if self.server.full: return self.say(dict(error='the disk is full'), 507)
            files = [dict(path=o['path'], uploadMode='regular', shouldIgnore=False) for o in json.loads(body)['files']]
            return self.say(dict(files=files))
        for line in map(json.loads, body.splitlines()):
            if line['key']!='file': continue
            repos[name][line['value']['path']] = base64.b64decode(line['value']['content'])
        self.say(dict(success=True, commitOid=SHA, commitUrl=f'{constants.ENDPOINT}/{name}/commit/{SHA}'))

    def do_GET(self):
        path = self.path.partition('?')[0]
        if found := re.fullmatch('/([^/]+/[^/]+)/resolve/[^/]+/(.+)', path):
            name, file = found.groups()
            if (data := self.server.repos.get(name, {}).get(file)) is None:
                return self.say(dict(error='Entry not found'), 404, X_Error_Code='EntryNotFound')
            return self.say(data, ETag=f'"{hashlib.sha1(data).hexdigest()}"')
        found = re.match('/api/models/([^/]+/[^/]+)', path)
        if not found or (name := found[1]) not in self.server.repos:
            return self.say(dict(error='Repository not found'), 404, X_Error_Code='RepoNotFound')
        files = self.server.repos[name]
        if '/tree/' in path:
            oids = {k: hashlib.sha1(v).hexdigest() for k,v in files.items()}
            return self.say([dict(type='file', path=k, size=len(v), oid=oids[k]) for k,v in files.items()])
        siblings, private = [dict(rfilename=o) for o in files], name in self.server.private
        self.say(dict(id=name, sha=SHA, siblings=siblings, private=private))
    do_HEAD = do_GET

@pytest.fixture
def hub(tmp_path, monkeypatch):
    "A server here, and a client that is logged in and keeps its files here"
    server = ThreadingHTTPServer(('127.0.0.1', 0), Hub)
    server.repos, server.private, server.full = {}, set(), False
    Thread(target=server.serve_forever, args=(.02,), daemon=True).start()
    where = f'http://127.0.0.1:{server.server_port}'
    monkeypatch.setattr(constants, 'ENDPOINT', where)
    monkeypatch.setattr(constants, 'HUGGINGFACE_CO_URL_TEMPLATE', where+'/{repo_id}/resolve/{revision}/{filename}')
    monkeypatch.setattr(constants, 'HF_HUB_OFFLINE', False)
    monkeypatch.setattr(constants, 'HF_HUB_CACHE', str(tmp_path/'cache'))
    monkeypatch.setattr(constants, 'HF_HUB_DISABLE_XET', True)
    monkeypatch.setenv('HF_TOKEN', TOKEN)
    monkeypatch.chdir(tmp_path)
    yield server
    server.shutdown()
    server.server_close()

def test_up_and_down(hub, tmp_path, capsys):
    "Both networks, recipe and card; scores and alternatives come out equal, and so does a conversion of what came back"
    convert_cli(src=['tiny'], dst='out', push='me/mine', private=True)
    assert 'on the hub as hf:me/mine' in capsys.readouterr().out
    files = {str(o.relative_to(tmp_path/'out')) for o in (tmp_path/'out').rglob('*') if o.is_file()}
    assert hub.repos['me/mine'].keys()-{'.gitattributes'}==files and hub.private=={'me/mine'}
    assert {'README.md', 'discriminator/model.safetensors', 'generator/tokenizer.json', 'curves.png'} <= files
    assert hub.repos['me/mine']['README.md']==(tmp_path/'out/README.md').read_bytes()
    text = 'The captain sat on the mathematics.'
    assert str(load_scorer('hf:me/mine', device='cpu')(text))==str(load_scorer('tiny', device='cpu')(text))
    encoder, tok = open_model('hf:me/mine')
    assert len(tok)==encoder.config.vocab_size
    convert_weights('hf:me/mine', tmp_path/'back')
    for k,v in plain_logits(tmp_path/'out').items(): assert torch.equal(v, plain_logits(tmp_path/'back')[k])
    assert ModelCard.load(tmp_path/'back/README.md').content==ModelCard.load(tmp_path/'out/README.md').content

def said_of(capsys, **kw):
    "What the command says when it refuses"
    with pytest.raises(SystemExit, match='2'): convert_cli(**kw)
    err = capsys.readouterr().err
    assert err.startswith('electra_convert: ') and err.count('\n')==1, err
    return err

@pytest.fixture
def run(tmp_path):
    "A run of a network without a vocabulary, small; with a checkpoint"
    biased_run(tmp_path/'run')
    return 'run'

def test_licence_and_language(hub, run, tmp_path):
    "Flags, else the card of the source, else what the hub calls unknown"
    convert_cli(src=[run], dst='plain')
    convert_cli(src=[run], dst='said', license='mit', language='es', push='me/said')
    convert_cli(src=['said'], dst='kept')
    shutil.copytree('kept', 'again')
    (tmp_path/'again/README.md').write_text('---\n{: [\n---\nno header')
    convert_cli(src=['again'], dst='broken')
    want = dict(plain=('unknown', 'und'), said=('mit', 'es'), kept=('mit', 'es'), broken=('unknown', 'und'))
    found = {o: metadata_load(tmp_path/o/'README.md') for o in want}
    assert {k: (o['license'], o['language']) for k,o in found.items()}==want
    assert b'license: mit' in hub.repos['me/said']['README.md']

def test_checkpoints_stay_here(hub, run, tmp_path):
    convert_weights(run, tmp_path/'all.npz')
    arrays = dict(np.load(tmp_path/'all.npz'))
    moments = {f'{k}/adam_{o}': v*0 for k,v in arrays.items() if v.dtype.kind=='f' for o in 'mv'}
    np.savez(tmp_path/'all.npz', **arrays, **moments, global_step=np.int64(3))
    convert_weights(tmp_path/'all.npz', tmp_path/'out', run+'/hparams.json', push='me/mine')
    assert (tmp_path/'out/checkpoints').is_dir() and not any('checkpoints' in o for o in hub.repos['me/mine'])

@pytest.mark.parametrize('name,words', [('no token', '401'), ('no network', 'ConnectError'), ('offline', 'Offline'),
                                        ('a bad name', 'cannot be written')])
def test_what_fails_fails_before_the_work(hub, run, tmp_path, capsys, monkeypatch, name, words):
    "One line, and no folder"
    if name=='no token':
        monkeypatch.delenv('HF_TOKEN')
        monkeypatch.setattr(constants, 'HF_TOKEN_PATH', str(tmp_path/'none'))
    if name=='no network': monkeypatch.setattr(constants, 'ENDPOINT', 'http://127.0.0.1:9')
    if name=='offline': monkeypatch.setattr(constants, 'HF_HUB_OFFLINE', True)
    err = said_of(capsys, src=[run], dst='out', push='me//mine' if name=='a bad name' else 'me/mine')
    assert words in err and 'hf auth login' in err and not (tmp_path/'out').exists() and not hub.repos

def test_a_public_repository_is_not_taken_for_a_private_one(hub, run, tmp_path, capsys):
    hub.repos['me/mine'] = {}
    assert 'everybody sees it' in said_of(capsys, src=[run], dst='out', push='me/mine', private=True)
    assert not (tmp_path/'out').exists() and not hub.repos['me/mine']
    convert_cli(src=[run], dst='out', push='me/mine')
    assert 'README.md' in hub.repos['me/mine']

def test_no_repository_is_made_for_what_does_not_open(hub, tmp_path, capsys):
    (tmp_path/'bad.npz').write_bytes(b'no archive')
    assert 'damaged' in said_of(capsys, src=['bad.npz'], dst='out', push='me/mine')
    assert not hub.repos

def test_an_upload_that_fails_loses_nothing(hub, run, tmp_path, capsys):
    hub.full = True
    err = said_of(capsys, src=[run], dst='out', push='me/mine')
    assert 'out is written, but not uploaded' in err and "`hf upload me/mine out --exclude 'checkpoints/*'`" in err
    assert (tmp_path/'out/README.md').is_file() and not hub.repos['me/mine']

def test_no_such_model(hub, capsys):
    "For every command that opens one"
    for f in (load_scorer, open_model, open_pretrained):
        with pytest.raises(InputError, match='^hf:me/none does not open: [^\n]*$'): f('hf:me/none')

def test_a_repository_of_one_network(hub, tmp_path):
    "As others publish it: at the top, here in the older format of torch, beside weights of other frameworks"
    source = shipped()/'discriminator'
    files = {o.name: o.read_bytes() for o in source.iterdir() if o.suffix=='.json' and 'index' not in o.name}
    torch.save({k: v for o in weight_files(source) for k,v in load_file(o).items()}, tmp_path/'weights')
    files |= {'pytorch_model.bin': (tmp_path/'weights').read_bytes(), 'tf_model.h5': b'x', 'onnx/model.onnx': b'x'}
    hub.repos['they/theirs'] = files
    scorer = load_scorer('hf:they/theirs', device='cpu')
    want = load_scorer(source, device='cpu').discriminator.state_dict()
    for k,v in scorer.discriminator.state_dict().items(): assert torch.equal(v, want[k])
    assert not [*(tmp_path/'cache').rglob('tf_model.h5')] and not [*(tmp_path/'cache').rglob('model.onnx')]
