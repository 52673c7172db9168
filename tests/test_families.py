"Families of encoders: each trains for a few steps, is saved, opens again in `transformers` as it was, and scores"
from copy import deepcopy
from dataclasses import replace

import pandas as pd
import pytest
import torch
from fastai.learner import load_learner
from onnxruntime import InferenceSession
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, AutoModelForTokenClassification

from electra_nbdev.checking.check import Sentence, load_checker
from electra_nbdev.cli import electra_pretrain
from electra_nbdev.data.tokenizer import load_tokenizer
from electra_nbdev.engine.files import InputError
from electra_nbdev.engine.models import reads_padding, with_own_lengths
from electra_nbdev.finetuning.finetune import TaskNetwork, TextTaskDataLoaders, electra_classifier, task_groups
from electra_nbdev.finetuning.recipe import FinetuneHParams
from electra_nbdev.method import towers
from electra_nbdev.method.masking import Inputs
from electra_nbdev.networks.build import build_networks
from electra_nbdev.networks.folder import open_pretrained
from electra_nbdev.networks.recipe import preset
from electra_nbdev.pretraining.request import run_pretraining
from electra_nbdev.scoring.likelihood import load_likelihood, pseudo_log_likelihood
from electra_nbdev.scoring.score import load_scorer
from electra_nbdev.sharing.convert import write_onnx
from make import PIECES, close, made, no_curves, pieces, run_folder

SIZE = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
            max_position_embeddings=40)
FAMILIES = {o: SIZE for o in 'bert roberta xlm-roberta camembert mpnet modernbert ernie megatron-bert'.split()} | {
    'fnet': {k: v for k,v in SIZE.items() if k!='num_attention_heads'},
    'roformer': SIZE | dict(embedding_size=16),
    'distilbert': dict(dim=16, n_layers=2, n_heads=2, hidden_dim=32, max_position_embeddings=40),
    'deberta': SIZE | dict(legacy=False), # whose head reads the embeddings
    'deberta-v2': SIZE | dict(relative_attention=True, position_buckets=16, pos_att_type=['p2c', 'c2p']),
    'albert': SIZE | dict(embedding_size=8),
    'convbert': SIZE | dict(embedding_size=16, head_ratio=1, conv_kernel_size=3),
    'xmod': SIZE | dict(languages=['en_XX'], default_language='en_XX'),
    'big_bird': SIZE | dict(attention_type='original_full'),
    'jina_embeddings_v3': SIZE,
    'rembert': SIZE | dict(input_embedding_size=8, output_embedding_size=24),
    'longformer': SIZE | dict(attention_window=4),
    'squeezebert': SIZE | dict(embedding_size=16, q_groups=2, k_groups=2, v_groups=2, intermediate_groups=2,
                               output_groups=2),
    'eurobert': SIZE | dict(num_key_value_heads=2), 'esmc': SIZE}

def recipe(made, kind, **values):
    "Three updates"
    usual = {o: getattr(made[1], o) for o in ('vocab_size', 'max_seq_length', 'length_schedule', 'train_batch_size',
                                              'eval_batch_size', 'num_eval_steps', 'iterations_per_loop')}
    body = dict(model_type=kind) | values
    return preset('tiny', **usual | dict(num_train_steps=3, num_warmup_steps=1, save_checkpoints_steps=3, body=body,
                                         untied_generator=True, model_hparam_overrides={}))

def opened(cls, folder):
    model, info = cls.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    return model.eval()

@pytest.mark.parametrize('kind', FAMILIES)
def test_a_family_trains_is_saved_and_scores(made, kind, tmp_path, monkeypatch):
    no_curves(monkeypatch)
    hp = recipe(made, kind, **FAMILIES[kind])
    begun = {n: p.clone() for n,p in build_networks(hp).named_parameters()}
    learn = run_pretraining(made[0]/'examples', tmp_path, hp, device='cpu')
    model, ids = learn.model.eval(), torch.randint(5, 60, (2, 16))
    for own,cls in ((model.discriminator, AutoModelForTokenClassification), (model.generator, AutoModelForMaskedLM)):
        name = 'generator' if own is model.generator else 'discriminator'
        with torch.no_grad():
            torch.testing.assert_close(opened(cls, tmp_path/name)(ids).logits, own(ids).logits, rtol=1e-4, atol=1e-5)
        assert any(not torch.equal(p, begun[n]) for n,p in model.named_parameters() if n.startswith(name)), name
    scores = load_scorer(tmp_path, device='cpu')('the king saw the sea')
    assert len(scores.probs)==5 and all(0<o<1 for o in scores.probs) and scores.alternatives

DECAYED = 'bert', 'roberta', 'modernbert', 'deberta-v2', 'eurobert', 'esmc', 'mpnet', 'megatron-bert'
LAST_NORM = 'modernbert', 'eurobert', 'esmc', 'megatron-bert' # Which have a norm after their last layer

@pytest.mark.parametrize('kind', DECAYED)
def test_rates_fall_by_layers_in_a_family(kind):
    "As the default recipe of fine-tuning has it; a norm after the last layer learns as the head does"
    config = AutoConfig.for_model(kind, **FAMILIES[kind], vocab_size=60, pad_token_id=0)
    model = TaskNetwork(AutoModel.from_config(config), {})
    rates = {n: g['lr_mult'] for g in task_groups(model, FinetuneHParams(layerwise_lr_decay=.5)) for n,_ in g['params']}
    words = [n for n,p in model.named_parameters() if p is model.encoder.get_input_embeddings().weight][0]
    layers = [max(r for n,r in rates.items() if f'.{i}.' in n) for i in (0, 1)]
    assert rates[words]<layers[0]<layers[1]<1
    ends = 'final_norm.weight', 'encoder.norm.weight', 'encoder.ln.weight'
    assert [r for n,r in rates.items() if n.endswith(ends)]==[1.]*(kind in LAST_NORM)

TOWERS = 'bert', 'roberta', 'distilbert', 'albert', 'modernbert', 'eurobert'

@pytest.mark.parametrize('kind', TOWERS)
def test_an_electric_of_a_family_scores_goes_on_and_converts(made, kind, tmp_path, monkeypatch):
    "Its folder, a run that begins with it, and ONNX files give what its networks give"
    no_curves(monkeypatch)
    layers = dict(global_attn_every_n_layers=1) if kind=='modernbert' else {}
    hp = replace(recipe(made, kind, **FAMILIES[kind] | layers), electra_objective=False, electric_objective=True,
                 two_tower_generator=True)
    learn = run_pretraining(made[0]/'examples', tmp_path/'run', hp, device='cpu')
    model, text = learn.model.eval(), 'the king saw the sea'
    ids = torch.tensor([load_tokenizer(tmp_path/'run').encode(text)])
    with torch.no_grad():
        want = dict(towers=-model.generator.text_nll(Inputs(ids, None, ids*0)),
                    energies=-model.text_logits(ids, None, ids*0))
    scores = {o: load_likelihood(tmp_path/'run', o, device='cpu') for o in want}
    for by,model in scores.items():
        assert pseudo_log_likelihood(model, text)[0]['scores']==pytest.approx(want[by][0,1:-1].tolist(), abs=1e-4)
    back = open_pretrained(tmp_path/'run')
    assert not back.made and not back.unused
    named = dict(learn.model.named_parameters())
    assert all(torch.equal(p, named[n]) for n,p in back.model.named_parameters())
    run_pretraining(made[0]/'examples', tmp_path/'more', hp, init=tmp_path/'run', device='cpu')
    write_onnx(tmp_path/'run', tmp_path/'onnx')
    for name,by in dict(electric='energies', towers='towers').items():
        session = InferenceSession(tmp_path/'onnx'/f'{name}.onnx')
        found = session.run(None, dict(input_ids=ids.numpy(), attention_mask=torch.ones_like(ids).numpy()))[0]
        close(torch.tensor(found).squeeze(-1)*(-1 if name=='electric' else 1), want[by], 1e-4)

@pytest.mark.parametrize('kind,why', [('modernbert', 'sees a window'), ('deberta-v2', 'eager attention')])
def test_a_family_without_towers_is_refused(made, kind, why):
    "A second layer of ModernBERT has a window unless `global_attn_every_n_layers` is 1"
    hp = recipe(made, kind, **FAMILIES[kind])
    with pytest.raises(InputError, match=why):
        build_networks(replace(hp, electra_objective=False, electric_objective=True, two_tower_generator=True,
                               generator_layers=1.))

def test_towers_that_see_their_own_token_are_refused(made, monkeypatch):
    "Whatever the reason; here the flag that lets attention look back alone is not set"
    monkeypatch.setattr(towers, 'causal', lambda body: body)
    hp = recipe(made, 'bert', **SIZE)
    with pytest.raises(InputError, match='its attention does not look back alone'):
        build_networks(replace(hp, electra_objective=False, electric_objective=True, two_tower_generator=True))

FUNNEL = dict(d_model=16, n_head=2, d_head=8, d_inner=32, block_sizes=[1, 1], num_decoder_layers=1)
REFUSED = dict(mra=(SIZE, 'kernels that are fetched from the hub'), funnel=(FUNNEL, 'row of the padding token'),
               ibert=(SIZE, 'embeddings of integers'), reformer=({}, 'no token classifier'))

@pytest.mark.parametrize('kind', REFUSED)
def test_a_family_that_cannot_be_trained_is_refused_before_anything_runs(made, kind, tmp_path):
    values, why = REFUSED[kind]
    AutoConfig.for_model(kind, **values).save_pretrained(tmp_path/'body')
    with pytest.raises(InputError, match=why):
        electra_pretrain(data=str(made[0]/'examples'), out=str(tmp_path/'run'), body=str(tmp_path/'body'), steps=3)
    assert not (tmp_path/'run').exists()

def test_networks_that_fail_are_refused_before_anything_runs(made, tmp_path, monkeypatch):
    "A body that is built and then fails, or whose logits are of another shape"
    from transformers import BertForMaskedLM, BertForTokenClassification
    def run(): run_pretraining(made[0]/'examples', tmp_path/'run', recipe(made, 'bert', **SIZE), device='cpu')
    for cls in (BertForMaskedLM, BertForTokenClassification):
        with monkeypatch.context() as m, pytest.raises(InputError, match='which cannot be trained here .ZeroDivision'):
            m.setattr(cls, 'forward', lambda self, *args, **kwargs: 1/0 if args else None)
            run()
    def wrong(self, ids, **kwargs): return type('Output', (), dict(logits=torch.zeros(3, 4)))
    with monkeypatch.context() as m, pytest.raises(InputError, match=r'logits of shape \[3, 4\], \[2, 8\] are due'):
        m.setattr(BertForTokenClassification, 'forward', wrong)
        run()
    assert not (tmp_path/'run').exists()

@pytest.mark.parametrize('kind', ['deberta', 'deberta-v2'])
def test_a_head_that_reads_the_embeddings_of_its_body(kind, tmp_path):
    "DeBERTa's own, with `legacy` false in its config.json"
    tok = pieces(PIECES)
    config = AutoConfig.for_model(kind, **SIZE, vocab_size=len(tok), pad_token_id=0, legacy=False, initializer_range=.5)
    net = AutoModelForMaskedLM.from_config(config).eval()
    for o in (net, tok): o.save_pretrained(tmp_path)
    text, found = 'the cat sat', load_likelihood(tmp_path, 'pll', device='cpu')
    ids = torch.tensor([tok.encode(text)])
    with torch.no_grad():
        masked = [ids.where(torch.arange(ids.shape[1])!=i, tok.mask_token_id) for i in range(ids.shape[1])]
        want = [net(o).logits[0,i].log_softmax(-1)[ids[0,i]].item() for i,o in enumerate(masked)][1:-1]
    assert pseudo_log_likelihood(found, text)[0]['scores']==pytest.approx(want, abs=1e-4)

# Padding

MIXING = {o: FAMILIES[o] for o in ('fnet', 'convbert')} | dict(nystromformer=SIZE | dict(conv_kernel_size=3))
MIXING = {k: v | dict(initializer_range=.5) for k,v in MIXING.items()} # with usual weights they read little of it
TEXTS = ['the cat', 'the mat', 'the cat sat on the mathematics . the cat sat on the mat . the cat sat .',
         'on the mat the cat sat .']

@pytest.mark.parametrize('kind', MIXING)
def test_scores_do_not_depend_on_the_other_texts_of_a_batch(kind, tmp_path):
    "These networks read padding, though it is masked"
    body = dict(model_type=kind, **MIXING[kind])
    run_folder(tmp_path/'run', pieces(PIECES), body=body, model_hparam_overrides={}, untied_generator=True,
               max_seq_length=32)
    for by in ('pll', 'word-l2r', 'p-replaced'):
        model = load_likelihood(tmp_path/'run', by, device='cpu')
        together = [o['score'] for o in pseudo_log_likelihood(model, TEXTS)]
        assert together==pytest.approx([pseudo_log_likelihood(model, o)[0]['score'] for o in TEXTS], abs=1e-3), by
    checker = load_checker(tmp_path/'run', 'cpu')
    def check(texts): return [o.probs for o in checker.check(Sentence(o, 0, 1, 1) for o in texts)]
    texts = [' '.join('the cat sat on the mat .'.split()[i%7] for i in range(n)) for n in range(12, 18)]
    for one,text in zip(check(texts), texts): assert one==pytest.approx(check([text])[0], abs=1e-4)

@pytest.mark.parametrize('kind', MIXING)
def test_predictions_do_not_depend_on_the_other_texts_of_a_batch(kind, tmp_path):
    "Nor do those of a copy, and of a learner that was exported"
    body = dict(model_type=kind, **MIXING[kind])
    run_folder(tmp_path, pieces(PIECES), body=body, model_hparam_overrides={}, untied_generator=True,
               max_seq_length=32)
    table = pd.DataFrame(dict(text=TEXTS*2, label=['a', 'b']*4))
    dls = TextTaskDataLoaders.from_df(table, model=tmp_path, max_seq_length=32, device='cpu')
    learn = electra_classifier(dls)
    learn.export(tmp_path/'learner.pkl')
    alone = [learn.predict(o).probs['a'] for o in TEXTS]
    def predicted(learn): return [o.probs['a'] for o in learn.predict(TEXTS)]
    assert predicted(learn)==pytest.approx(alone, abs=1e-4)
    assert predicted(load_learner(tmp_path/'learner.pkl'))==pytest.approx(alone, abs=1e-4)
    learn.model = deepcopy(learn.model)
    assert predicted(learn)==pytest.approx(alone, abs=1e-4)

def test_which_families_read_padding():
    "The others keep their batches as they are"
    torch.manual_seed(0)
    configs = {k: AutoConfig.for_model(k, vocab_size=60, pad_token_id=0, **v) for k,v in (FAMILIES | MIXING).items()}
    nets = {k: AutoModel.from_config(o).eval() for k,o in configs.items()}
    assert {k for k,o in nets.items() if reads_padding(o)}=={*MIXING}
    assert all('forward' not in vars(with_own_lengths(o)) for k,o in nets.items() if k not in MIXING)
