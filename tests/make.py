"What the tests read and train: texts, task files, small recipes, models and runs, all of them quickly made"
import gzip, json, shutil

import pandas as pd
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from tokenizers.implementations import ByteLevelBPETokenizer
from transformers import (BertConfig, DebertaV2Config, DebertaV2Tokenizer, ElectraConfig, ElectraForMaskedLM,
                          ElectraForPreTraining, ModernBertConfig, PreTrainedTokenizerFast, RobertaConfig,
                          RobertaModel, RobertaTokenizer)

from conftest import GOLDEN
from electra_nbdev.data.examples import build_examples
from electra_nbdev.data.text import chunks
from electra_nbdev.data.tokenizer import fingerprint, load_tokenizer, train_vocab, wordpiece
from electra_nbdev.finetuning.finetune import finetune_dls, finetune_learner, save_model
from electra_nbdev.finetuning.recipe import open_model, settle_recipe
from electra_nbdev.method.masking import MaskCollator
from electra_nbdev.networks.build import build_networks, save_networks
from electra_nbdev.networks.recipe import preset, save_hparams
from electra_nbdev.pretraining import runs
from official import SPECIAL_IDS
from terminal import worked

def write(path, data):
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path

def close(a, b, tol=1e-5): torch.testing.assert_close(a, b, rtol=tol, atol=tol)

def docs(corpus, **kw): return [d for c in chunks(corpus, **kw) for d in c.documents()]

# Pre-training

def tales():
    people, things = 'captain sailor miller widow king'.split(), 'storm ship castle sea letter garden'.split()
    tale = 'the {a} saw the {b} and went away.\nit was the {b} of the old {a}.\nno one had asked {a} or {c}.'
    return '\n\n'.join(tale.format(a=a, b=b, c=c) for a in people for b in things for c in people)

SMALL = dict(vocab_size=60, max_seq_length=16, length_schedule=(), unigram_noise=0.) # Recipe of networks alone
NARROW = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, embedding_size=8, max_position_embeddings=16)
NO_DROPOUT = dict(hidden_dropout_prob=0., attention_probs_dropout_prob=0.)
DROPOUT = dict(hidden_dropout_prob=.1, attention_probs_dropout_prob=.1)
TT = dict(two_tower_generator=True, untied_generator=True)
ELECTRIC = dict(electra_objective=False, electric_objective=True) | TT
VARIANTS = {'separate': dict(untied_generator=True, untied_generator_embeddings=True),
            'tied': dict(untied_generator=True), 'one network': dict(untied_generator=False),
            'uniform': dict(uniform_generator=True), 'ELECTRA-TT': TT, 'Electric': ELECTRIC,
            'BERT': dict(electra_objective=False, unigram_noise=0.),
            'official': dict(duplicates='official', cloze_mode='official'),
            'official Electric': ELECTRIC | dict(duplicates='official', cloze_mode='official', unigram_noise=0.),
            'disallow_correct': dict(disallow_correct=True), 'temperature': dict(temperature=2.),
            'gdes': dict(untied_generator=True, gdes=True), 'corrective': dict(corrective_weight=1.),
            'unigram noise': dict(unigram_noise=.5), 'Electric, unigram noise': ELECTRIC | dict(unigram_noise=.5)}
RUN_VARIANTS = VARIANTS | {'Electric untied': ELECTRIC | dict(untied_generator_embeddings=True),
                           'length schedule': dict(length_schedule=((8, .5), (16, .5))),
                           'official AUC': dict(count_padding=True)} # What the runs of `made` can be
BERT = dict(model_type='bert', hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
            max_position_embeddings=64) # A body that is no ELECTRA
ALL_VARIANTS = VARIANTS | {'another body': dict(untied_generator=True, body=BERT, model_hparam_overrides={})}

def examples_of_tales(d, vocab_size=120, **recipe):
    "A folder with examples and their vocabulary, and a recipe that fits them"
    (d/'tales.txt').write_text(tales())
    tok = train_vocab(d/'tales.txt', d/'vocab', vocab_size)
    build_examples(d/'tales.txt', d/'vocab', d/'examples', max_length=16, held_out=.1)
    usual = dict(max_seq_length=16, length_schedule=(), train_batch_size=8, eval_batch_size=8, num_train_steps=12,
                 num_warmup_steps=2, save_checkpoints_steps=4, iterations_per_loop=2, num_eval_steps=2)
    return d, preset('tiny', vocab_size=len(tok), **usual | recipe)

@pytest.fixture(scope='module')
def made(tmp_path_factory): return examples_of_tales(tmp_path_factory.mktemp('made'))

def no_curves(monkeypatch): monkeypatch.setattr(runs, 'plot_history', lambda *_: None) # half a second each

def batch(bs=4, n=16, place=0):
    "A masked batch"
    ids = torch.randint(5, 60, (bs, n), generator=torch.Generator().manual_seed(0))
    ids[:,0], ids[:,-1], ids[0,9:] = SPECIAL_IDS.cls, SPECIAL_IDS.sep, SPECIAL_IDS.pad
    rows = [dict(input_ids=o, segment_a_length=n, place=place+i) for i,o in enumerate(ids)]
    return MaskCollator(SPECIAL_IDS, mask_prob=.3)(rows)

ONE_LAYER = dict(embedding_size=16, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
                 max_position_embeddings=32)

def small_recipe(**kw):
    "One layer and 100 tokens"
    usual = dict(vocab_size=100, max_seq_length=32, length_schedule=(), unigram_noise=0.,
                 model_hparam_overrides={} if 'body' in kw else ONE_LAYER)
    return preset('tiny', **usual | kw)

SIZE = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=2,
            max_position_embeddings=64)
CONFIGS = dict(bert=BertConfig(**SIZE),
               deberta=DebertaV2Config(**SIZE, relative_attention=True, position_buckets=16,
                                       pos_att_type=['p2c', 'c2p']),
               modernbert=ModernBertConfig(**SIZE), electra=ElectraConfig(**SIZE, embedding_size=16))

ONE = dict(untied_generator=False, unigram_noise=0., max_grad_norm=1., bias_correction=False,
           copy_positions=False) # One network, official Adam
RECIPE = dict(vocab_size=120, max_seq_length=16, length_schedule=[], train_batch_size=8, eval_batch_size=8,
              iterations_per_loop=5, num_eval_steps=4, **ONE)

@pytest.fixture(scope='module')
def home(tmp_path_factory):
    "A folder with a corpus, a vocabulary, examples and a run, all made by commands"
    d = tmp_path_factory.mktemp('user')
    (d/'tales.txt').write_text(tales())
    for line in ('electra_vocab --corpus tales.txt --out vocab --vocab-size 120',
                 'electra_data --corpus tales.txt --vocab vocab --out examples --max-length 16 --held-out 0.1'):
        worked(line, d)
    recipe = RECIPE | dict(vocab_size=len((d/'vocab/vocab.txt').read_text().splitlines()))
    (d/'recipe.json').write_text(json.dumps(recipe))
    line = 'electra_pretrain --data examples --hparams recipe.json --steps 20 --out run --device cpu'
    (d/'.said').write_text(worked(line, d, curves=True).out)
    return d

# Vocabularies and runs that nobody trained

PIECES = '[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat on mat mathema ##tics . , \' s [ ] é'.split()
TOY = '[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat on mat floor mathema ##tics loves . [ ] mask'.split()

def pieces(names):
    "A tokenizer with these pieces"
    return wordpiece({o: i for i,o in enumerate(names)})

def byte_level(texts, special, size=300):
    "Byte-level BPE with these special tokens, of the library `tokenizers`"
    tok = Tokenizer(models.BPE(unk_token='<unk>' if '<unk>' in special else None))
    tok.pre_tokenizer, tok.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tok.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False,
                                                       initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tok

def bpe(texts):
    "A byte-level BPE tokenizer with the special tokens of RoBERTa's family"
    special = ['<pad>', '<unk>', '<s>', '</s>', '<mask>']
    names = dict(zip(('pad_token', 'unk_token', 'cls_token', 'sep_token', 'mask_token'), special))
    return PreTrainedTokenizerFast(tokenizer_object=byte_level(texts, special), **names)

def unigram(texts, special, unk, size):
    "Pieces of a Unigram model of the library `tokenizers`, with their scores"
    tok = Tokenizer(models.Unigram())
    tok.pre_tokenizer, tok.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    tok.train_from_iterator(texts, trainers.UnigramTrainer(vocab_size=size, special_tokens=special, unk_token=unk,
                                                           show_progress=False))
    return [tuple(o) for o in json.loads(tok.to_str())['model']['vocab']]

def roberta_tokenizer(texts):
    made = json.loads(byte_level(texts, ['<s>', '<pad>', '</s>', '<unk>', '<mask>'], 400).to_str())['model']
    return RobertaTokenizer(vocab=made['vocab'], merges=[tuple(o) for o in made['merges']])

def deberta_tokenizer(texts, size=300):
    return DebertaV2Tokenizer(vocab=unigram(texts, ['[PAD]', '[CLS]', '[SEP]', '[UNK]', '[MASK]'], '[UNK]', size))

def save_run(d, model, hp, tok=None, **facts):
    "Networks and recipe as training leaves them"
    save_networks(model, hp, d, tok)
    save_hparams(hp, d/'hparams.json', data=dict(tokenizer=fingerprint(tok)) if tok else {}, **facts)

def run_folder(d, tok, **recipe):
    "A run with random weights; gives the networks and the recipe"
    hp = preset('tiny', **dict(vocab_size=len(tok), max_seq_length=16, length_schedule=()) | recipe)
    model = build_networks(hp).eval()
    save_run(d, model, hp, tok)
    return model, hp

def biased_run(d, **recipe):
    "A run without a tokenizer, its biases not zero"
    hp = preset('tiny', vocab_size=40, seed=3, **recipe)
    model = build_networks(hp)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel())), alpha=.02)
    save_run(d, model, hp)
    return model.eval(), hp

def plain_logits(d):
    "What `transformers` alone makes of a folder"
    ids = torch.tensor([[2, 7, 9, 30, 3], [2, 5, 3, 0, 0]])
    classes = dict(discriminator=ElectraForPreTraining, electric=ElectraForPreTraining, generator=ElectraForMaskedLM)
    nets = {k: c.from_pretrained(d/k).eval() for k,c in classes.items() if (d/k).is_dir()}
    with torch.no_grad(): return {k: o(ids, attention_mask=(ids>0).long()).logits for k,o in nets.items()}

WORD_ORDER = dict(a=('the cat sat.', 'the sat cat on.'), b=('the sat cat on.', 'the cat sat.'))

LINES = ['The cat sat on the mat.', '', "  the cat's mat ", 'mat', '\u200b', 'the cat sat on the mat . '*9]

def electric_runs(d):
    "A run of Electric, a run of ELECTRA-TT, and files to score: lines, pairs, n-best lists, and some that are no such"
    for name,kind in (('electric', ELECTRIC), ('tt', TT)): run_folder(d/name, pieces(PIECES), **kind)
    (d/'pairs').mkdir()
    for uid,(good,bad) in WORD_ORDER.items():
        pair = dict(sentence_good=good, sentence_bad=bad, UID=uid, linguistics_term=f'order {uid}')
        (d/f'pairs/{uid}.jsonl').write_text((json.dumps(pair)+'\n')*5)
    (d/'lines.txt').write_text('\n'.join(LINES)+'\n')
    lists = [dict(input=['the cat sat on', 'the mat', ''], output=f'the cat sat {i}') for i in range(30)]
    (d/'lists.json').write_text(json.dumps(lists))
    (d/'scored.jsonl').write_text(''.join(json.dumps(o | dict(scores=[-1, -2, -3.5]))+'\n' for o in lists))
    (d/'bad.jsonl').write_text('{"sentence_good": "a", "sentence_bad": "b"}\n{"sentence_good": "a"}\n')
    (d/'bad.json').write_text(json.dumps([lists[0], dict(input=['a'], output='')]))
    return d

# Fine-tuning

WORDS = 'dog walks king town river red one two three people cat house'.split()
DIMS = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
            max_position_embeddings=64)
SHORT = dict(max_seq_length=32, train_batch_size=8, num_train_epochs=1)

def electra_folder(d):
    "A small ELECTRA with random weights, as Hugging Face writes it"
    return wordpiece_model(ElectraForPreTraining, ElectraConfig(vocab_size=200, embedding_size=16, **DIMS))(d)

def wordpiece_model(cls, config):
    "A function that saves such a model with random weights and a tokenizer"
    def make(d):
        torch.manual_seed(0)
        cls(config).save_pretrained(d)
        load_tokenizer(GOLDEN/'vocab.txt').save_pretrained(d)
        return d
    return make

def roberta_folder(d):
    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator([sentence(i) for i in range(40)], vocab_size=400, show_progress=False,
                            special_tokens=['<s>', '<pad>', '</s>', '<unk>', '<mask>'])
    d.mkdir()
    bpe.save_model(str(d))
    tok = RobertaTokenizer.from_pretrained(str(d))
    tok.save_pretrained(d)
    cfg = RobertaConfig(vocab_size=len(tok), type_vocab_size=1, **DIMS | dict(max_position_embeddings=70))
    RobertaModel(cfg).save_pretrained(d)

def words(i, n): return [WORDS[(i*k+k)%len(WORDS)] for k in range(1, n)]
def sentence(i): return ' '.join(words(i, 3+i%7))
def tsv(head, rows): return '\n'.join('\t'.join(map(str, r)) for r in ([head] if head else []) + rows) + '\n'

def glue_files(d):
    "A few rows of some tasks, in folders as people call them"
    def put(path, head, rows): (d/path).parent.mkdir(parents=True, exist_ok=True); (d/path).write_text(tsv(head, rows))
    pair, n = (lambda i: (sentence(i), sentence(i+3))), 24
    for s in ('train', 'dev'):
        put(f'CoLA/{s}.tsv', None, [('x', i%2, '', sentence(i)) for i in range(n)])
        put(f'sst2/{s}.tsv', ('sentence', 'label'), [(sentence(i), i%2) for i in range(n)])
        put(f'STS-B/{s}.tsv', [f'c{i}' for i in range(10)], [(*range(7), *pair(i), i%6) for i in range(n)])
        put(f'RTE/{s}.tsv', ('index', 'sentence1', 'sentence2', 'label'),
            [(i, *pair(i), ('entailment', 'not_entailment')[i%2]) for i in range(n)])
    for s in ('train', 'dev_matched', 'dev_mismatched'):
        labels = ('contradiction', 'entailment', 'neutral')
        put(f'mnli/{s}.tsv', [f'c{i}' for i in range(12)], [(*range(8), *pair(i), 'x', labels[i%3]) for i in range(n)])
    put('CoLA/test.tsv', ('index', 'sentence'), [(i, sentence(i)) for i in range(7)])
    put('STS-B/test.tsv', [f'c{i}' for i in range(9)], [(*range(7), *pair(i)) for i in range(7)])
    for s in ('matched', 'mismatched'):
        put(f'mnli/test_{s}.tsv', [f'c{i}' for i in range(10)], [(*range(8), *pair(i)) for i in range(7)])
    put('diagnostic/diagnostic.tsv', ('index', 'sentence1', 'sentence2'), [(i, *pair(i)) for i in range(5)])

KINDS = dict(zip(WORDS, 'NP VP NP NP NP ADJP NP NP NP NP NP NP'.split()))

def tags(words):
    "Neighbours of one kind are one phrase; every other adjective is in none"
    kinds = [KINDS[w] for w in words]
    return [f"{'I' if i and kinds[i-1]==k else 'B'}-{k}" for i,k in enumerate(kinds)]

def block(words): return '\n'.join(f'{w} X {t}' for w,t in zip(words, tags(words)))

def word_lists(n): return [words(i, 4+i%9) for i in range(n)]

def tagged(n):
    "A file of sentences with a tag for each word"
    return ''.join(block(o)+'\n\n' for o in word_lists(n))

def wrong_words(n):
    "Sentences of which some words count as wrong"
    return [dict(words=o, tags=['ci'[(i+k)%5==0] for k in range(len(o))]) for i,o in enumerate(word_lists(n))]

def judged(n):
    "The same as a file of MultiGED"
    return ''.join(''.join(f'{w}\t{t}\n' for w,t in zip(o['words'], o['tags']))+'\n' for o in wrong_words(n))

def paragraph(i, v2, n=30):
    "A passage, a question about a pair of its words, and in SQuAD 2.0 one that it does not answer"
    words = [WORDS[(i*k+k*k)%len(WORDS)] for k in range(1, n)]
    page, answer = ' '.join(words), ' '.join(words[3:5])
    right = dict(text=answer, answer_start=page.index(answer))
    answers = [right] + [dict(text='the '+answer, answer_start=0)]*(i%2)
    found = [dict(id=f'q{i}', question=f'where is {words[2]} ?', answers=answers)]
    if v2:
        none = dict(id=f'n{i}', question='who sings ?', answers=[], is_impossible=True, plausible_answers=[])
        found = [o | dict(is_impossible=False) for o in found] + [none]
    return dict(context=page, qas=found)

def squad(n, v2=False, first=0):
    paragraphs = [paragraph(i, v2) for i in range(first, first+n)]
    return dict(version='x', data=[dict(title='t', paragraphs=paragraphs)])

def mrqa(n, first=0):
    "Lines of MRQA with those questions"
    lines = [dict(header=dict(dataset='x'))]
    for p in (paragraph(i, False) for i in range(first, first+n)):
        p['qas'] = [dict(qid=q['id'], question=q['question'], answers=[a['text'] for a in q['answers']],
                         detected_answers=[detected(a) for a in q['answers'][:1]]) for q in p['qas']]
        lines.append(p)
    return '\n'.join(map(json.dumps, lines))

def detected(a): return dict(text=a['text'], char_spans=[[a['answer_start'], a['answer_start']+len(a['text'])-1]])

def task_files(d):
    "Files of GLUE, of chunking, and of questions in three forms"
    glue_files(d)
    for o in ('chunk', 'ged', 'squad', 'SQuAD-v1.1', 'NewsQA'): (d/o).mkdir()
    for split,n in (('train', 32), ('dev', 9), ('test', 5)): write(d/f'chunk/{split}.txt', tagged(n))
    for split,n in (('train', 24), ('dev', 9), ('test', 5)): write(d/f'ged/{split}.tsv', judged(n))
    for split,n,first in (('train', 16, 0), ('dev', 8, 40), ('test', 3, 80)):
        write(d/f'squad/{split}.json', json.dumps(squad(n, True, first)))
        write(d/f'SQuAD-v1.1/{split}.json', json.dumps(squad(n, False, first)))
        write(d/f'NewsQA/{split}.jsonl.gz', gzip.compress(mrqa(n, first).encode()))

def odd_data(d, file, data):
    "The folder `odd`: a copy of `data` in which one file, whatever its ending was, is another"
    path = d/'odd'/file
    shutil.rmtree(d/'odd', ignore_errors=True)
    shutil.copytree(d/'data', d/'odd')
    for o in path.parent.glob(f"{path.name.split('.')[0]}.*"): o.unlink()
    write(path, data if isinstance(data, str|bytes) else json.dumps(data))

def untrained(task, model, folder):
    "A model of a task that was not trained, on disk"
    encoder, tok = open_model(model)
    hp, none = settle_recipe(encoder, tok, [task.name], max_seq_length=32), {task.name: []}
    dls = finetune_dls({task.name: task}, none, none, tok, hp, 'cpu')
    save_model(finetune_learner(dls, encoder, hp), folder)
    return folder

@pytest.fixture
def table():
    "Questions, which end in what they are about"
    rows = [(f"{sentence(i)} {('cat', 'dog')[i%2]}", ('pet', 'animal')[i%2]) for i in range(40)]
    return pd.DataFrame(rows, columns=['question', 'about'])
