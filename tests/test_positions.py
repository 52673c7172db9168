"A saved tokenizer promises what its network takes; other encoders are opened, or refused for what they are"
import pytest
import torch
from transformers import AutoModel, AutoTokenizer, DistilBertConfig, DistilBertModel, MPNetConfig, MPNetForMaskedLM
from transformers import RobertaConfig, RobertaModel, T5Config, T5EncoderModel, XLNetConfig, XLNetModel

import electra_nbdev.finetuning.finetune as finetune
from electra_nbdev.data.batches import extend_positions
from electra_nbdev.sharing.convert import convert_weights
from electra_nbdev.engine.files import InputError
from electra_nbdev.engine.models import max_input, shipped
from electra_nbdev.finetuning.recipe import open_encoder
from electra_nbdev.finetuning.finetune import TextTaskDataLoaders
from make import PIECES, bpe, pieces, run_folder, table

BODY = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)

def assert_truncation_fits(folder, n):
    "A long text, cut as the tokenizer likes, goes through the network"
    tok, net = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    enc = tok('the cat sat on the mat '*400, truncation=True, return_tensors='pt')
    with torch.no_grad(): found = net(**enc)[0]
    assert tok.model_max_length==n==enc['input_ids'].shape[1]==found.shape[1] and found.isfinite().all()

@pytest.mark.parametrize('name', ['tiny/discriminator', 'tiny/generator', 'electric/electric'])
def test_models_of_the_package(name):
    model, _, part = name.partition('/')
    assert_truncation_fits(shipped(model)/part, 128)

def test_positions_behind_that_of_padding_begin_as_copies():
    "RoBERTa counts from there: the first that have learnt are copied, whatever their number"
    e = torch.nn.Embedding(12, 1, padding_idx=1)
    e.weight.data = torch.arange(12.)[:,None]
    extend_positions(e, 3, 8, {})
    assert e.weight.flatten().tolist()==[0, 1, 2, 3, 4, 2, 3, 4, 2, 3, 10, 11]

@pytest.fixture(scope='module')
def run(tmp_path_factory):
    "Networks with 48 positions, a tokenizer that promises 512"
    d, tok = tmp_path_factory.mktemp('run'), pieces(PIECES)
    run_folder(d, tok, max_seq_length=32, model_hparam_overrides=dict(max_position_embeddings=48))
    assert tok.model_max_length==512 # the user's own stays as it was
    return d

def test_a_run_and_what_it_becomes(run, tmp_path):
    convert_weights(run, tmp_path/'out')
    for o in (run, tmp_path/'out'):
        for part in ('discriminator', 'generator'): assert_truncation_fits(o/part, 48)

def test_a_task(run, table, tmp_path):
    learn = finetune.electra_classifier(TextTaskDataLoaders.from_df(table, 'question', 'about', run, device='cpu'))
    finetune.save_model(learn, tmp_path/'model')
    assert_truncation_fits(tmp_path/'model', 48)
    convert_weights(tmp_path/'model', tmp_path/'out')
    assert_truncation_fits(tmp_path/'out/model', 48)

# Encoders of other kinds

def roberta(n): return RobertaModel(RobertaConfig(vocab_size=n, max_position_embeddings=42, pad_token_id=0, **BODY))
def mpnet(n): return MPNetForMaskedLM(MPNetConfig(vocab_size=n, max_position_embeddings=42, pad_token_id=0, **BODY))
def xlnet(n): return XLNetModel(XLNetConfig(vocab_size=n, d_model=16, n_layer=1, n_head=2, d_inner=16, pad_token_id=0))
def distilbert(n):
    return DistilBertModel(DistilBertConfig(vocab_size=n, max_position_embeddings=40, dim=16, n_layers=1, n_heads=2,
                                            hidden_dim=16))

@pytest.mark.parametrize('make,n', [(roberta, 41), (mpnet, 40), (distilbert, 40), (xlnet, None)])
def test_any_encoder_learns_a_task(make, n, table, tmp_path, monkeypatch):
    "It is opened, trained for an update at its longest input, saved and asked: texts get probabilities of their own"
    torch.manual_seed(0)
    tok = bpe([' '.join(table.question)]*9)
    net = make(len(tok))
    net.save_pretrained(tmp_path/'net')
    tok.save_pretrained(tmp_path/'net')
    assert max_input(net)==n
    table.question = [o*20 for o in table.question]
    dls = TextTaskDataLoaders.from_df(table, 'question', 'about', tmp_path/'net', bs=8, device='cpu')
    learn = finetune.electra_classifier(dls)
    assert learn.hp.max_seq_length==(n or 128)
    learn.fit_steps(1)
    finetune.save_model(learn, tmp_path/'task')
    answers = finetune.load_finetuned(tmp_path/'task', 'cpu').predict(['dog cat', 'river town'])
    assert answers[0].probs!=answers[1].probs

def test_the_encoder_of_t5_has_no_decoder_to_lack(tmp_path):
    config = T5Config(vocab_size=30, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    T5EncoderModel(config).save_pretrained(tmp_path)
    with pytest.raises(InputError, match='holds a t5, an encoder with a decoder; give an encoder'):
        open_encoder(tmp_path)
