"Heads, losses, gradients, rows, readers, recipes and metrics of the official fine-tuning"
import numpy as np
import pytest
import torch

from conftest import GOLDEN
from electra_nbdev.finetuning.finetune import FinetuneDL, TaskLoss, n_steps
from electra_nbdev.finetuning.tasks import MEASURES, TextExample, TextTask, shares
from electra_nbdev.finetuning.tasks import LAYOUTS, glue_task
from electra_nbdev.engine.files import InputError
from electra_nbdev.finetuning.recipe import FinetuneHParams, finetune_preset
from electra_nbdev.data.tokenizer import load_tokenizer
from official import check_task_gradients, info, load, task_network

TOK = load_tokenizer(GOLDEN/'vocab.txt')

# Heads and losses

def task(name):
    "A task of GLUE without data"
    o = LAYOUTS[name]
    return TextTask(name, o.labels, o.measures, o.columns, 1. if o.labels else 5.)

def network(run):
    "The official network of a run, with dropout off"
    facts, arrays = info('finetune/heads')[run], load(f'finetune/{run}')
    tasks = {o: task(o) for o in facts['task_names']}
    heads = {o: arrays[f'var/{o}'] for o in facts['head_variables']}
    return task_network(tasks, heads).eval(), tasks, arrays, facts

def official_batch(arrays, tasks):
    "The run's batch as ours; rows of no task are padding, which the official code adds and we do not"
    def tensor(v): return torch.from_numpy(v).long() if v.dtype.kind=='i' else torch.from_numpy(v)
    f = {k[5:]: tensor(v) for k,v in arrays.items() if k.startswith('feat/')}
    keep = f['task_id']<len(tasks)
    rows = {n: torch.nonzero(f['task_id'][keep]==i)[:,0] for i,n in enumerate(tasks)}
    targets = {n: f[f"{n}_{'label_ids' if t.labels else 'targets'}"][keep][rows[n]] for n,t in tasks.items()}
    inputs = dict(input_ids=f['input_ids'], token_type_ids=f['segment_ids'], attention_mask=f['input_mask'])
    batch = {k: v[keep] for k,v in inputs.items()} | dict(rows=rows, targets=targets)
    return batch, targets, torch.nonzero(keep)[:,0]

RUNS = ['classification', 'regression', 'multitask']

@pytest.mark.parametrize('run', RUNS)
def test_golden_heads_and_losses(run):
    model, tasks, arrays, facts = network(run)
    batch, targets, place = official_batch(arrays, tasks)
    with torch.no_grad(): outs = model(batch)
    for n,t in tasks.items():
        at = place[batch['rows'][n]].numpy()
        want = arrays[f'out/{n}/logits'] if t.labels else arrays[f'out/{n}/predictions'][:,None]
        np.testing.assert_allclose(outs[n].numpy(), want[at], rtol=0, atol=1e-4)
        losses = t.losses(outs[n], targets[n]).numpy()
        np.testing.assert_allclose(losses, arrays[f'out/{n}/loss'][at], rtol=1e-5, atol=1e-6)
        if t.labels: assert outs[n].argmax(-1).tolist()==arrays[f'out/{n}/predictions'][at].tolist()
    total = TaskLoss(tasks)(outs, targets)
    np.testing.assert_allclose(total.item(), arrays['loss'], rtol=1e-5)
    np.testing.assert_allclose(total.item(), facts['loss'], rtol=1e-5)
    np.testing.assert_allclose(TaskLoss(tasks, 'mean')(outs, targets).item(), facts['loss']/len(place), rtol=1e-5)

@pytest.mark.parametrize('run', [o for o in RUNS if any(k.startswith('grad/') for k in load(f'finetune/{o}'))])
def test_golden_gradients(run):
    model, tasks, arrays, facts = network(run)
    batch, targets, _ = official_batch(arrays, tasks)
    TaskLoss(tasks)(model(batch), targets).backward()
    check_task_gradients(model, arrays, facts['global_norm_dense'])

def test_there_are_golden_gradients(golden): assert any(k.startswith('grad/') for k in load('finetune/classification'))

# From text to rows

FEATURIZE = info('finetune/classification_featurize')

@pytest.mark.parametrize('i', range(len(FEATURIZE['cases'])))
def test_golden_rows(i):
    case = FEATURIZE['cases'][i]
    mnli, hp = task('mnli'), FinetuneHParams(max_seq_length=FEATURIZE['max_seq_length'])
    f, = mnli.features([TextExample(0, case['text_a'], case['text_b'], mnli.labels[case['mnli_label_ids']])], TOK, hp)
    n = sum(case['input_mask'])
    assert f.input_ids==case['input_ids'][:n]
    assert [0]*f.n_first+[1]*(n-f.n_first)==case['segment_ids'][:n]
    assert f.target==case['mnli_label_ids']

def test_golden_truncation():
    for a,b,most,*want in FEATURIZE['truncate_seq_pair_na_nb_max_outa_outb']: assert list(shares(a, b, most))==want

# Readers

EXAMPLES = info('finetune/glue_examples')
SPLITS = [o for o in EXAMPLES if not o.endswith('#log')]

@pytest.mark.parametrize('split', SPLITS)
def test_golden_readers(split):
    name, part = split.split('/')
    t = glue_task(name, GOLDEN/'finetune'/'data', skip_bad_rows=True)
    part = {'diagnostic': 'ax'}.get(part, 'dev_matched' if split=='mnli/dev' else part)
    got = t.examples(part, FinetuneHParams())
    def label(o): return o if t.labels else float(o)
    assert [[*o[:3], label(o.label)] for o in got]==[[*o[:3], label(o[3])] for o in EXAMPLES[split]]

@pytest.mark.parametrize('log', [o for o in EXAMPLES if o.endswith('#log')])
def test_golden_bad_rows_are_refused(log):
    name, part = log[:-4].split('/')
    line = int(EXAMPLES[log][0].split('from line ')[1].split()[0])+1 # theirs count from 0
    task = glue_task(name, GOLDEN/'finetune'/'data')
    with pytest.raises(InputError, match=f'{part}.tsv line {line}: '): task.examples(part, FinetuneHParams())

def test_golden_pairs_in_one_order():
    for name in ('mrpc', 'sts'):
        got = glue_task(name, GOLDEN/'finetune'/'data').examples('train', FinetuneHParams(double_unordered=False))
        want = EXAMPLES[f'{name}/train']
        assert [list(o[:3]) for o in got]==[o[:3] for o in want[:len(got)]] and 2*len(got)==len(want)

# Steps

def test_golden_steps():
    mnli = glue_task('mnli', GOLDEN/'finetune'/'data')
    for name,want in info('finetune/preprocessor')['runs'].items():
        recipe, split = name.split('/')
        epochs, bs = recipe.removeprefix('epochs').split('_batch')
        hp = FinetuneHParams(max_seq_length=16, num_train_epochs=float(epochs), train_batch_size=int(bs))
        split = 'dev_matched' if split=='dev' else split
        features = mnli.features(mnli.examples(split, hp), TOK, hp)
        records = [o for o in want['records_taskid_eid_label_ids'] if o[0]==0]
        ours = {f.example.eid: (f.target, f.input_ids) for f in features}
        lens = {eid: len(ids) for eid,(_,ids) in ours.items()}
        assert ours=={eid: (label, ids[:lens[eid]]) for _,eid,label,ids in records}
        assert not any(any(ids[lens[eid]:]) for _,eid,_,ids in records)
        if split=='train': assert n_steps(len(features), hp)==want['steps']
        else: assert len(FinetuneDL({'mnli': features}, {'mnli': mnli}, TOK, int(bs)))==want['steps']

# Recipes

DEFAULTS = info('finetune/config_defaults')

@pytest.mark.parametrize('name', DEFAULTS)
def test_golden_defaults(name):
    size, t = name.split('/')
    hp = finetune_preset('official', size, [t])
    assert {k: getattr(hp, k) for k in DEFAULTS[name]}==DEFAULTS[name]

# Metrics

METRICS = info('metrics/classification_tagging')

@pytest.mark.filterwarnings('ignore:A single label was found') # scikit-learn's: no correlation, which is compared
@pytest.mark.parametrize('i', range(len(METRICS['classification'])))
def test_golden_classification_metrics(i):
    case = METRICS['classification'][i]
    y, p = case['label_ids'], case['predictions']
    np.testing.assert_allclose(MEASURES['accuracy'](y, p), dict(case['accuracy'])['accuracy'], rtol=1e-12)
    np.testing.assert_allclose(MEASURES['matthews'](y, p), dict(case['mcc'])['mcc'], rtol=1e-6, atol=1e-6)
    f1 = dict(case['f1'])
    why = "official: gold positives are counted from the predictions, so this is precision alone"
    assert f1['recall']==f1['precision']==f1['f1'], why
    if set(y)|set(p) <= {0, 1}:
        hits = sum(a==b==1 for a,b in zip(y, p))
        np.testing.assert_allclose(f1['precision'], 100*hits/max(sum(p), 1))
        np.testing.assert_allclose(MEASURES['f1'](y, p), 200*hits/max(sum(p)+sum(y), 1))

@pytest.mark.parametrize('i', range(len(METRICS['regression'])))
def test_golden_regression_metrics(i):
    case = METRICS['regression'][i]
    for name,want in case['results']:
        if name=='loss': continue
        want = 0. if want=='nan' else want # undefined where one side is constant; here no correlation
        np.testing.assert_allclose(MEASURES[name](case['targets'], case['predictions']), want, rtol=1e-6, atol=1e-9)
