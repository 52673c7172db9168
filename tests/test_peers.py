"Any model of transformers, masked and causal: the numbers of minicons, and of a loop over single tokens"
import random, shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from fastcore.test import test_close as close
from tokenizers import ByteLevelBPETokenizer
from transformers import (BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast,
                          RobertaConfig, RobertaForMaskedLM)

import electra_nbdev.scoring.likelihood as likelihood
from electra_nbdev.data.text import sample_corpus
from electra_nbdev.data.tokenizer import load_tokenizer
from electra_nbdev.engine.files import InputError
from electra_nbdev.scoring.likelihood import load_likelihood, pass_scores, pseudo_log_likelihood, surprisal
from electra_nbdev.networks.folder import ModelFolder
from terminal import typed

SIZES = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
             max_position_embeddings=130, initializer_range=.3)

@pytest.fixture(scope='module')
def sentences():
    "200 lines of English that no model here was trained on, some with several pieces a word"
    lines = (sample_corpus()/'held_out.txt').read_text().splitlines()
    known = [o.strip() for o in lines if 5<=len(o.split())<=16]
    return random.Random(0).sample(known, 198) + ["It's 'incomprehensibility', isn't it?", 'Hé said: “naïveté”.']

def bpe(folder):
    "A byte-level tokenizer of novels, with the special tokens of RoBERTa"
    tok = ByteLevelBPETokenizer()
    tok.train(str(sample_corpus()/'held_out.txt'), 600, special_tokens=['<s>', '<pad>', '</s>', '<unk>', '<mask>'],
              show_progress=False)
    tok.save(str(folder/'tokenizer.json'))
    return folder/'tokenizer.json'

@pytest.fixture(scope='module')
def peers(tmp_path_factory):
    "Folders of networks with random weights: BERT with WordPiece, RoBERTa and GPT-2 with byte-level BPE"
    d = tmp_path_factory.mktemp('peers')
    torch.manual_seed(0)
    file, ends = bpe(d), dict(bos_token='<s>', eos_token='</s>', unk_token='<unk>', pad_token='<pad>')
    more = dict(cls_token='<s>', sep_token='</s>', mask_token='<mask>')
    roberta, gpt = (PreTrainedTokenizerFast(tokenizer_file=str(file), **ends, **o) for o in (more, {}))
    roberta.backend_tokenizer.post_processor = processor(roberta)
    wordpiece = load_tokenizer('tiny')
    nets = dict(bert=(BertForMaskedLM(BertConfig(vocab_size=len(wordpiece), **SIZES)), wordpiece),
                roberta=(RobertaForMaskedLM(RobertaConfig(vocab_size=len(roberta), pad_token_id=1, **SIZES)), roberta),
                gpt=(GPT2LMHeadModel(GPT2Config(vocab_size=len(gpt), n_positions=128, n_embd=32, n_layer=2, n_head=2,
                                                initializer_range=.3, bos_token_id=0, eos_token_id=2)), gpt))
    for name,(net,tok) in nets.items():
        net.eval().save_pretrained(d/name)
        tok.save_pretrained(d/name)
    return d

def processor(tok):
    from tokenizers.processors import TemplateProcessing
    ends = [('<s>', tok.cls_token_id), ('</s>', tok.sep_token_id)]
    return TemplateProcessing(single='<s> $A </s>', special_tokens=ends)

def scores(folder, by, sentences): return [o['score'] for o in
                                           pseudo_log_likelihood(load_likelihood(folder, by, device='cpu'), sentences)]

def total(o): return o.sum().item()

def test_nothing_after_a_word_changes_its_surprisal(peers, sentences):
    "By a causal model, however long the text; the first word has none where nothing stands before it"
    model = load_likelihood(peers/'gpt', device='cpu')
    short, long = ' '.join(sentences[:20]), ' '.join(sentences[:32])
    a, b = surprisal(model, short), surprisal(model, long)
    assert a.tokens.sum()>2*model.max_length and a.surprisal.notna().all()
    assert np.allclose(a.surprisal, b.surprisal[:len(a)], atol=1e-3)
    bare = replace(model, frame=([], []))
    assert surprisal(bare, short).surprisal.isna().tolist()==[True]+[False]*(len(a)-1)
    assert surprisal(bare, short, 'Once').surprisal.notna().all()
    whole, tokens = (surprisal(bare, short, per=o).surprisal for o in ('sentence', 'token'))
    assert tokens.isna().sum()==1 and abs(whole[0]-tokens.sum())<.01

@pytest.mark.parametrize('positions,length', [(700, 700), (5000, 2048)])
def test_a_causal_model_reads_as_far_as_it_can(peers, sentences, tmp_path, positions, length):
    shutil.copytree(peers/'gpt', tmp_path/'gpt')
    cfg = GPT2Config(vocab_size=600, n_positions=positions, n_embd=8, n_layer=1, n_head=1, initializer_range=1.)
    net = GPT2LMHeadModel(cfg).eval()
    net.save_pretrained(tmp_path/'gpt')
    model = load_likelihood(tmp_path/'gpt', device='cpu')
    ids = model.tokenizer(' '.join(sentences[:40]))['input_ids'][:690]
    text = model.tokenizer.decode(ids)
    ids = torch.tensor([[0, *model.tokenizer(text)['input_ids']]])
    assert model.max_length==length and 600<ids.shape[1]<=700
    expected = net(ids).logits[0,:-1].log_softmax(-1).gather(1, ids[0,1:,None])[:,0]
    assert np.allclose(pseudo_log_likelihood(model, [text])[0]['scores'], expected.detach(), atol=1e-4)

def test_a_causal_model_without_a_limit_reads_2048_tokens(peers, monkeypatch):
    monkeypatch.setattr(likelihood, 'max_input', lambda net: None)
    assert load_likelihood(peers/'gpt', device='cpu').max_length==2048

def test_blanks_after_a_context_are_no_words(peers):
    model = load_likelihood(peers/'gpt', device='cpu')
    found = surprisal(model, ['the cat', '   ', '', ' the cat'], 'Hello', per='sentence')
    assert found.tokens.tolist()==[found.tokens[0], 0, 0, found.tokens[0]] and found.tokens[0]>0
    assert found.surprisal.isna().tolist()==[False, True, True, False]
    close(found.surprisal[0], found.surprisal[3], 1e-4)

def test_blanks_at_the_end_are_no_words(peers):
    "Of which byte-level BPE makes tokens"
    model = load_likelihood(peers/'gpt', device='cpu')
    one, *others = (surprisal(model, f'the cat sat.{o}').surprisal.tolist() for o in ('', ' ', '\t', '  '))
    assert all(one==o for o in others)

def test_an_encoder_with_a_decoder_is_refused(tmp_path):
    (tmp_path/'config.json').write_text('{"architectures": ["BartModel"], "is_encoder_decoder": true}')
    with pytest.raises(InputError, match='give a masked or a causal language model'): load_likelihood(tmp_path)

@pytest.mark.parametrize('name,by', [('bert', 'pll'), ('bert', 'word-l2r'), ('roberta', 'pll'), ('roberta', 'word-l2r'),
                                     ('gpt', 'log-likelihood')])
@pytest.mark.filterwarnings('ignore')
def test_the_numbers_of_minicons(name, by, peers, sentences):
    scorer = pytest.importorskip('minicons.scorer')
    if name=='gpt': theirs, how = scorer.IncrementalLMScorer(str(peers/name), 'cpu'), dict(bos_token=True)
    else:
        theirs = scorer.MaskedLMScorer(str(peers/name), 'cpu')
        how = dict(PLL_metric='original' if by=='pll' else 'within_word_l2r')
    theirs.tokenizer.batch_encode_plus = theirs.tokenizer.__call__ # which transformers 5 no longer has
    want = [s for i in range(0, 200, 20) for s in theirs.sequence_score(sentences[i:i+20], reduction=total, **how)]
    close(scores(peers/name, by, sentences), want, 1e-4)

@pytest.mark.parametrize('name', ['bert', 'roberta', 'gpt'])
@pytest.mark.filterwarnings('ignore')
def test_ends_given_their_beginnings(name, peers, sentences):
    "As minicons scores them"
    scorer = pytest.importorskip('minicons.scorer')
    theirs = (scorer.IncrementalLMScorer if name=='gpt' else scorer.MaskedLMScorer)(str(peers/name), 'cpu')
    theirs.tokenizer.batch_encode_plus = theirs.tokenizer.__call__
    how = dict(bos_token=True) if name=='gpt' else dict(PLL_metric='original')
    cut = [o.split() for o in sentences[:20]]
    beginnings, ends = [' '.join(o[:3]) for o in cut], [' '.join(o[3:]) for o in cut]
    want = theirs.conditional_score(beginnings, ends, reduction=total, **how)
    model = load_likelihood(peers/name, device='cpu')
    found = pseudo_log_likelihood(model, map(' '.join, cut), given=[len(o) for o in beginnings])
    close([o['score'] for o in found], want, 1e-4)
    close(surprisal(model, ends, beginnings, per='sentence').surprisal.tolist(), [-o for o in want], 1e-4)

def opened(folder, by):
    model = load_likelihood(folder, by, device='cpu')
    return model, model.network, model.tokenizer

@pytest.mark.parametrize('name', ['bert', 'roberta'])
def test_the_rest_of_a_word_is_masked(name, peers, sentences):
    "One text and one token at a time"
    model, net, tok = opened(peers/name, 'word-l2r')
    for text in sentences[-4:]:
        enc = tok(text)
        ids, words = torch.tensor(enc['input_ids']), enc.word_ids()
        want = []
        for t,w in enumerate(words):
            if w is None: continue
            hidden = ids.clone()
            for u in range(t, len(words)):
                if words[u]==w: hidden[u] = tok.mask_token_id
            with torch.no_grad(): want.append(net(hidden[None]).logits[0,t].log_softmax(-1)[ids[t]].item())
        close(pseudo_log_likelihood(model, [text])[0]['scores'], want, 1e-4)
    assert max(words.count(w) for w in words if w is not None)>1

def test_each_token_after_those_before_it(peers, sentences):
    model, net, tok = opened(peers/'gpt', None)
    for text in sentences[-4:]:
        ids = torch.tensor([[tok.bos_token_id, *tok(text, add_special_tokens=False)['input_ids']]])
        with torch.no_grad(): logs = net(ids).logits[0].log_softmax(-1)
        want = [logs[t-1,ids[0,t]].item() for t in range(1, ids.shape[1])]
        close(pseudo_log_likelihood(model, [text])[0]['scores'], want, 1e-4)
    assert model.by=='log-likelihood'
    with pytest.raises(InputError, match='allowed: log-likelihood'): load_likelihood(peers/'gpt', 'pll')

def test_folders_tell_what_they_hold(peers):
    assert ModelFolder(peers/'bert').ways==ModelFolder(peers/'roberta').ways==('pll', 'word-l2r')
    assert ModelFolder(peers/'gpt').ways==('log-likelihood',)

def test_the_command_takes_their_folders(peers):
    (peers/'pairs.txt').write_text('the man are old .\nthe man is old .\n'*3)
    said = typed('electra_score --pairs pairs.txt --model bert --by pll word-l2r', peers)
    assert said.code==0 and said.out.splitlines()[1].split()==['pll', 'word-l2r'], said
    said = typed('electra_score --pairs pairs.txt --model gpt', peers)
    assert said.code==0 and '3 pairs by log-likelihood' in said.out, said
    said = typed('electra_score --pairs pairs.txt --model gpt --by towers', peers)
    assert said.code==2 and said.err.endswith("--by for gpt is 'towers'; allowed: log-likelihood.\n"), said

def test_passes_of_long_texts_are_few_at_a_time(peers, monkeypatch):
    "Memory: no more tokens at a time than `PASS_TOKENS`; the numbers stay"
    model, net, tok = opened(peers/'bert', 'pll')
    ids, seen = torch.randint(5, 1000, (3, 100)), []
    with torch.no_grad(): want = pass_scores(net, tok.mask_token_id, ids, None)
    monkeypatch.setattr(likelihood, 'PASS_TOKENS', 700)
    net.base_model.register_forward_pre_hook(lambda _,o: seen.append(o[0].numel()))
    with torch.no_grad(): close(pass_scores(net, tok.mask_token_id, ids, None), want, 1e-4)
    assert sum(seen)==3*98*100 and max(seen)==700

@pytest.mark.parametrize('name', ['bert', 'roberta', 'gpt'])
def test_words_and_sentences_add_up(name, peers, sentences):
    "Words are what stands between spaces; a context changes scores and no offsets"
    model = load_likelihood(peers/name, device='cpu')
    texts = sentences[:5] + ['', '  two  spaces\u2009here ', sentences[-2]]
    words, tokens, whole = (surprisal(model, texts, per=o) for o in ('word', 'token', 'sentence'))
    assert [[o for o in words.string[words.text==i]] for i in range(len(texts))]==[o.split() for o in texts]
    for o in (words, tokens):
        assert all(texts[i][a:b]==s for i,a,b,s in zip(o.text, o.start, o.end, o.string))
        close([*o.groupby('text').surprisal.sum()], [*whole.dropna().surprisal], 1e-3)
    assert whole.surprisal.isna().tolist()==[o=='' for o in texts]
    assert whole.tokens.sum()==len(tokens)==words.tokens.sum()
    close([-o['score'] for o in pseudo_log_likelihood(model, map(str.rstrip, texts)) if o['score'] is not None],
          [*whole.dropna().surprisal], 1e-3)
    assert not len(surprisal(model, [' ', '']))
    under = surprisal(model, texts, 'It was a dark night.', unit='bits')
    assert under.start.equals(words.start) and under.end.equals(words.end)
    alone = surprisal(model, [f'It was a dark night. {o}' for o in texts], unit='bits')
    close([*under.surprisal[under.text==0]], [*alone[alone.text==0].surprisal][5:], 1e-3)
