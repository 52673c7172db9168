"""What is refused, in one table for each place: commands as they are typed, and calls from Python.

A row is what is asked, and what its answer has to name for its user to go on: the argument, what came, the file and its
line, the cure. Of every command `bad` checks the rest: exit code 2, one line, nothing written, nothing lost."""
import gzip, json, math, shutil
from functools import partial
from importlib.metadata import entry_points
from types import SimpleNamespace

import pandas as pd
import pytest
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForMaskedLM

from conftest import GOLDEN
from electra_nbdev.data.examples import build_examples, load_examples
from electra_nbdev.data.text import Corpus
from electra_nbdev.data.tokenizer import load_tokenizer, train_vocab
from electra_nbdev.engine.files import InputError
from electra_nbdev.engine.models import shipped
from electra_nbdev.finetuning.finetune import TextTaskDataLoaders, load_finetuned
from electra_nbdev.finetuning.ged import GEDTask
from electra_nbdev.finetuning.qa import QATask, qa_task
from electra_nbdev.finetuning.tables import labelled_texts, read_table
from electra_nbdev.finetuning.tagging import TagTask, tag_task
from electra_nbdev.finetuning.request import FinetuneRequest, predict_file, run_trials
from electra_nbdev.finetuning.tasks import TextTask, text_task
from electra_nbdev.finetuning.trials import Trials, plot_results, results_table
from electra_nbdev.networks.build import load_networks, save_networks
from electra_nbdev.networks.recipe import preset, save_hparams
from electra_nbdev.pretraining.monitor import plot_history, read_history
from electra_nbdev.pretraining.request import PretrainRequest, run_pretraining
from electra_nbdev.scoring.likelihood import load_likelihood, pseudo_log_likelihood, score_surprisal, score_text
from electra_nbdev.scoring.ranking import (accuracies, choose, compare_on_pairs, likely_words, load_chooser,
                                           rank_choices, score_nbest, score_pairs)
from electra_nbdev.scoring.score import load_scorer, score_tokens
from electra_nbdev.scoring.score_files import TextFile, read_nbest, read_pairs
from make import (PIECES, electra_folder, electric_runs, home, mrqa, odd_data, pieces, run_folder, squad, tales,
                  task_files, untrained, write)
from terminal import alone, bad, files_of, lean

def rows(text):
    "(command, needles) of each line `flags => needle & needle`; a line in brackets begins the commands below it"
    found, start = [], ''
    for line in text.strip().splitlines():
        flags, _, needles = line.partition('=>')
        if needles: found.append((f'{start} {flags}'.strip(), needles.strip().split(' & ')))
        else: start = line.strip('[]')
    return found

def table(found): return pytest.mark.parametrize('line,needles', found, ids=[o for o,_ in found])

# Pre-training, and what needs no torch to be refused

@pytest.fixture(scope='module')
def place(home):
    "The folder of a run, and beside it what is no corpus, no vocabulary, no model, or not what somebody takes it for"
    (home/'precious').mkdir()
    write(home/'precious/thesis.txt', tales())
    write(home/'rows.csv', 'text,kind\na good day,x\na bad day,y\n')
    many = ''.join(f'day {i} of a long year at sea,{"xy"[i%2]}\n' for i in range(40))
    write(home/'many.csv', f'text,kind\n{many}')
    write(home/'rows.jsonl', '{"text": "a good day"}\n')
    write(home/'rows.txt', 'a good day\n')
    write(home/'blank.txt', ' \n'*70_000)
    write(home/'one.csv', 'text,kind\na good day,x\n')
    write(home/'own.py', '')
    write(home/'lists.jsonl', '{"hypotheses": ["a cat", "a hat"]}\n')
    write(home/'asr.jsonl', '{"hypotheses": ["a cat", "a hat"], "scores": [-1, -2]}\n')
    write(home/'list.json', '[]')
    (home/'rows.parquet').touch()
    weights = dict(weight=1., bonus=0., by='towers', model='0', scored=True)
    spoilt = dict(w={}, text=dict(weight='1'), minus=dict(weight=-1.), odd=dict(bonus=math.nan), flag=dict(scored=1))
    for name,o in spoilt.items(): write(home/f'{name}.json', json.dumps(weights | o))
    write(home/'torn.json', json.dumps(weights)[:40])
    for name,o in dict(empty=b'', bin=b'\x7fELF\x00\x01\x02'*50, latin=b'a good line\ncaf\xe9 au lait\n',
                       nothing=b'\n\n   \n').items(): write(home/f'{name}.txt', o)
    names = (home/'vocab/vocab.txt').read_text().splitlines()
    write(home/'no_mask.txt', '\n'.join(o for o in names if o!='[MASK]'))
    write(home/'twice.txt', '\n'.join([*names[:10], names[7], *names[10:]]))
    facts = json.loads((home/'examples/data.json').read_text())['recipe']
    for name,change in dict(other=dict(vocab_size=99), news=dict(sources=[]), slang=dict(tokenizer='0')).items():
        put(home/name/'data.json', dict(recipe=facts | change))
    put(home/'damaged/data.json', {})
    tasks = dict(moods=('TextTask', ['mood', None]), cola=('GlueTask', ['sentence', None]), squad=('QATask', None),
                 chunk=('TagTask', None))
    tasks = {k: dict(kind=kind, settings=dict(name=k, columns=columns)) for k,(kind,columns) in tasks.items()}
    put(home/'tuned/tasks.json', dict(tasks=tasks, hparams={}))
    put(home/'tried/rows/trial-0/result.json', dict(facts=dict(recipe=dict(num_train_epochs=5.)), metrics={}))
    for o in ('torn_run', 'mute'): shutil.copytree(home/'run', home/o)
    (home/'torn_run/discriminator/model.safetensors').write_bytes(b'nonsense')
    for name in ('tokenizer*', 'vocab.txt'):
        for o in (home/'mute').glob(f'*/{name}'): o.unlink()
    recipe = json.loads((home/'mute/hparams.json').read_text())
    del recipe['run']['data'] # which names the vocabulary of the examples
    write(home/'mute/hparams.json', json.dumps(recipe))
    sizes = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=1, intermediate_size=16)
    BertForMaskedLM(BertConfig(vocab_size=120, **sizes)).save_pretrained(home/'bert')
    build_examples(home/'tales.txt', home/'vocab', home/'long', max_length=160)
    build_examples(home/'tales.txt', home/'vocab', home/'packed', max_length=16, pack=True)
    return home

def put(path, facts):
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, json.dumps(facts))

SOON = rows("""
[electra_vocab --corpus tales.txt]
=> give --out; electra_vocab --help lists the flags
--out v2 latin.txt => named by their folder, or by a pattern in quotes, such as --corpus '*.txt'
--out v2 --corpus latin.txt => --corpus is given twice; several files are named by their folder
--out v2 --lower-case perhaps => --lower-case is 'perhaps'; it has to be of type bool
--vocab-size 3 --out v2 => at least 100
--format some --out v2 => allowed: text, jsonl
--out precious => something else
--out tales.txt => is a file
[electra_vocab]
--corpus precious --out precious => something else
--corpus rows.csv --field nothing --out v2 => nothing
--corpus hf: --out v2 => `hf:` names no dataset; give hf:name
[electra_data --corpus tales.txt --vocab vocab --out e2]
--max-length 3 => at least 5
--held-out 2 => below 1
--long-lines some => official
--num-proc 0 => at least 1
[electra_data --corpus tales.txt]
--vocab precious --out e2 => there is no vocabulary & electra_vocab
--vocab nowhere --out e2 => nowhere
--vocab tinny --out e2 => Did you mean `tiny`?
--vocab vocab --out precious => something else than examples
--vocab vocab --out tales.txt => is a file
--vocab vocab --out examples --max-length 32 => 16 there and 32 here
--vocab vocab --out packed --max-length 16 => pack is True there and False here
--vocab tiny --out examples --max-length 16 --held-out 0.1 => another vocabulary than tiny
[electra_data --vocab vocab]
--corpus rows.csv --field nothing --out e2 => nothing
--corpus hf:a:b:c:d:e --out e2 => names no dataset; give hf:name
--corpus rows.jsonl --out examples --max-length 16 --held-out 0.1 => the text is
[electra_plan]
--preset tiniest => Did you mean `tiny`?
--preset small --hparams run/hparams.json => complete recipe of a run of size tiny & leave --preset out
--device a1000 => is one of t4, v100
--hparams '{"mask_probs": 0.2}' => Did you mean `mask_prob`? --hparams help lists all
--budget 3 => --budget
--budget '24 h' => add --measure, or name a GPU
--budget '24 h' --device a100 --preset tiny => leave --preset
--budget '24 h' --device a100 --data precious => leave --preset
--budget '0 h' --device a100 => above 0
--budget '' --device a100 => --budget
--budget '1.2.3 h' --device a100 => --budget
--budget 'a day' --device a100 => as in '24 h'
--device a100 --measure => leave one out
--device a100 --precision fp32 => half precision
--device v100 --precision bf16 => leave --precision out, and it trains in fp16
--price -1 --device a100 => --price
--price nan --device a100 => --price
--price 2 => --price needs a speed; add --measure, or name a GPU with --device
--precision fp8 => bf16
--data precious --measure => holds no examples
--device cpu:3 => which this machine does not have
[electra_pretrain --out r2]
--data => --data needs a value; electra_pretrain --help lists the flags
--lr => --learning-rate/--lr needs a value
--steps few => --steps is 'few'; it has to be of type int
--extend=5 => --extend takes no value, '5' came
--log tensorboard,wandb => Several have spaces between them: --log tensorboard wandb
--hparams '{"lr": 1}' => Did you mean `learning_rate`? --hparams help lists all
--hparams '{"batch_size": 8}' => Did you mean `train_batch_size`?
--preset tiniest => Did you mean `tiny`?
--preset small --hparams run/hparams.json => complete recipe of a run of size tiny & leave --preset out
--prest tiny => there is no flag --prest. Did you mean `--preset`? A hyper-parameter
--learning-rates=1e-3 => there is no flag --learning-rates. Did you mean `--learning-rate`? A hyper-parameter is a flag
--hparams '{"mask_probs": 0.2}' => Did you mean `mask_prob`? --hparams help lists all
--hparams '{"mask_prob": 15}' => at most 0.9
--hparams nowhere.json => where there is nothing
--steps 5 --minutes 1 => one of them
--steps 0 => --steps is 0; allowed: a whole number of at least 1
--precision fp8 => bf16
--log tensorbord => tensorboard
--device quantum => quantum
--device cpu:7 => --device cpu is always there
--data precious => holds no examples & electra_data
--data damaged => are damaged
--body precious => no config.json
--init precious => holds no model
--init tales.txt => a file that holds no weights
--data examples --hparams '{"max_seq_length": 64}' => have max_seq_length 16
--data examples --hparams '{"vocab_size": 4000}' => examples & vocab_size & 4000
--objective mine.py:Mine => there is no file mine.py
--objective mine.py => give a file and a class
[electra_pretrain --data examples --out run]
--seed 7 => another recipe: seed is 0, asked for 7 & --out
--hparams '{"mask_prob": 0.4}' => mask_prob is 0.3, asked for 0.4
--preset small => model_size is 'tiny', asked for 'small'
--steps 40 => num_train_steps is 20, asked for 40 & --extend
--steps 10 => num_train_steps is 20, asked for 10 & --init & --carry-optimizer
--extend --steps 5 => needs a larger --steps, not 5
--init tiny => began from new weights, asked for the weights of tiny
--objective own.py:Mine => of its recipe, not with Mine
[electra_pretrain]
--out precious => something else
--data examples --out tales.txt => tales.txt
--extend --steps 50 --out nowhere => --extend trains a run longer & nowhere holds none
--data examples --extend --steps 9 --out nowhere => nowhere holds none
--extend --out r2 => --steps
--extend --minutes 1 --out r2 => whenever the command is repeated
--out run --data news => trained on other examples: the text is
--out run => trained on tales.txt, not on the embedded sample
[electra_evaluate]
--run precious => holds no run
--run nowhere => nowhere
[electra_evaluate --run run]
=> give the folder that electra_data wrote of that text as --data & not on the embedded sample
--objective mine.py:Mine => there is no file mine.py
--data precious => holds no examples
--data other => have vocab_size 99
--data slang => the examples in slang were built with another vocabulary
--data examples --objective own.py:Mine => not with Mine
[electra_finetune]
--task colla --data-dir precious => Did you mean `cola`?
--task cola,sst --data-dir precious => Several have spaces between them: --task cola sst
--task cola --data-dir precious => has no folder for cola
--task cola => --data-dir & or a table with --csv, --text-column and --label-column
--task cola --data-dir nowhere => nowhere
--csv one.csv --text-column text --label-column kind --out found => at least two classes
--csv rows.csv --text-column text --label-column text --out found => the column of the label
--csv many.csv --text-column kind --label-column text --out found => --label-column is text & exchanged?
--csv rows.csv --text-column text --label-column kind,more --out found => --label-column kind more
--csv rows.csv --text-column texts --label-column kind --out found => Did you mean `text`?
--csv rows.csv --text-column text --label-column kinds --out found => Did you mean `kind`?
[electra_finetune --csv rows.csv --text-column text --label-column kind --out tried]
=> num_train_epochs is 5.0, asked for 3.0
--seed 4 => seed is 0, asked for 4
[electra_finetune --csv rows.csv --text-column text --label-column kind --out found]
--out . --task precious => something else than trials
--recipe small => official, paper
--precision fp8 => bf16
--model precious => holds no model
--hparams '{"learn_rate": 1}' => `learning_rate`?
--hparams '{"epochs": 1}' => Did you mean `num_train_epochs`?
--regression true => label 'x' is not a number
[electra_predict]
--model precious --src rows.csv => holds no model
--model tuned --src nowhere.csv => nowhere.csv
--model tuned --src rows.parquet => allowed: .csv, .tsv, .jsonl
--model tuned --src rows.txt --task squad => holds no questions
--model tuned 'a good day' => such as --text;
--model tuned --src 'a good day' => A sentence is given with --text.
--model tuned --src rows.jsonl --task chunk => no column `words`
--model tuned --text rows.csv => rows.csv is a file; give it as --src
[electra_predict --model tuned --src rows.csv]
=> no column `mood`
--out p.xml => allowed: .jsonl, .tsv, .csv
--out ./rows.csv => which --src reads; give another file
--task colla => no task 'colla'; it has moods
--task cola => no column `sentence`
--task squad => no column `question`
[electra_check]
tales.txt => 'tales.txt' stands without a flag; put one before it, such as --src or --text
=> stdin is empty: it has no words
--src nowhere.txt => nowhere.txt, where there is nothing
--src empty.txt => empty.txt is empty: it has no words
--src blank.txt => blank.txt is empty: it has no words
--src latin.txt => latin.txt line 2: is not UTF-8 & iconv
--src bin.txt => bin.txt line 1: has a zero byte: the file is binary
--src rows.jsonl => rows.jsonl looks like JSON lines & take the text out of it
--src precious => precious, which is a folder; give a file of text
--text rows.txt => rows.txt is a file; give it as --src
[electra_check --src tales.txt]
--text hello => and not both
--model nowhere => --model is nowhere, where there is nothing
--model precious => holds no model
--model electric => electric has no discriminator & give a run or a discriminator, a model of the task ged
--model tuned => tuned is fine-tuned for moods (a TextTask) & tells no wrong words
--threshold 1.5 => --threshold is 1.5; allowed: a number of at least 0, at most 1
--threshold .5 --precision .8 => --threshold and --precision both say & give one of them
--precision .8 => --precision needs a dev set, of which electra-check keeps nothing; give --dev
--gate .95 => --gate needs a dev set
--gate 95 --dev rows.csv => --gate is 95.0; allowed: a number of at least 0, at most 1
--gate .95 --dev rows.csv => rows.csv line 1 is 'text,kind'; each line has a word, a tab, and c or i
--dev rows.csv => --dev is for --precision and --gate
--out ./tales.txt => which --src reads; give another file
--out precious => a folder
--color --json => --color has no effect in a file or in JSON; leave it out
--device gpu => allowed: cpu, cuda
[electra_convert]
--src tales.txt --out c2 => a file that holds no weights
--src precious --out c2 => holds no model
--src nowhere --out c2 => there is no
--src run,mute --out c2 => Several have spaces between them: --src run mute
--src run run run --out c2 => has 3 names
--src run --out precious => exists
--src run --out c2.npz --onnx => writes a folder
--src run --out c2.npz --push me/mine => uploads a folder & give one in place of the .npz
[electra_convert --src run --out c2]
--hparams '{"mask_prob": 15}' => at most 0.9
--hparams '{"heads": 4}' => there is no hparam `heads`
--missing some => embeddings
--int8 => add --onnx
--onnx --push me/mine => leave these out
--onnx --missing fresh => leave these out
--onnx --license mit => leave these out
--private => name it with --push
[electra_score]
tales.txt => 'tales.txt' stands without a flag; put one before it, such as --show or --text
- => '-' stands without a flag; put one before it, such as --show or --text
--model tiny 'a good day' => A sentence is given with --show.
'a good day' => such as --show;
--frob => there is no flag --frob. --help-all lists all flags
--show hello --field kind => leave out --field
--text rows.csv --field kinds => has no column `kinds`; its columns are text, kind; name that of the texts with --field
--text rows.csv --by pll,towers => Several have spaces between them: --by pll towers
--choices 'the ___' --candidates cat,dog => --candidates has one, 'cat,dog', & between them: --candidates cat dog
--show hello --by towers => leave out --by
--show hello --out rows.jsonl => leave out --out
--show hello --vocab precious => there is no vocabulary
--show rows.txt => give it with --text
--model tuned --show rows => electra_predict applies it
--text tales.txt --model precious/../rum => Did you mean `precious/../run`?
--text tales.txt --model precious => holds no model
--text rows.csv --out o.csv => the rows are JSON lines; give a name that ends in .jsonl
--text tales.txt --by some => allowed: towers, energies, pll, word-l2r, log-likelihood, p-replaced
--text tales.txt --model run --by energy => allowed: pll, word-l2r
--text tales.txt --out precious => a folder
--text tales.txt --weights w.json => leave out --weights
--text blank.txt => is empty: it has no text
--surprisal tuned => is a folder
--pairs rows.jsonl => sentence_good
--choices nowhere.jsonl => nowhere.jsonl
--choices 'no blank' --candidates a b => has 0 blanks
--choices 'the ___' --candidates cat, dog => --candidates has 'cat,', and a comma is a part of it & --candidates cat dog
--choices rows.jsonl --candidates a b => --candidates go with a text, and rows.jsonl is a file
--choices rows.csv => rows.csv holds no JSON lines; give choices as .jsonl, a line such as {"text": "the ___ sat."
--choices rows.jsonl => one blank
--nbest rows.jsonl => has no hypotheses
--nbest rows.jsonl --weights nowhere.json => where there is nothing
--nbest asr.jsonl => no references, so no weights can be tuned
[electra_score --nbest lists.jsonl]
=> no references & with --weights
--weights rows.jsonl => holds no weights
--weights text.json => no weights (weight
--weights minus.json => weight -1.0
--weights odd.json => bonus nan
--weights flag.json => no weights (scored
--weights torn.json => is no JSON
--weights list.json => instead of an object
--weights w.json --by energy => tuned by towers & give --by towers
--weights w.json --model run => by towers of another model
--weights w.json => with scores of the ASR system, and these have none
--weights w.json --text tales.txt => --text and --nbest came
""")

@table(SOON)
def test_no_is_said_before_torch_is_imported(place, line, needles): bad(place, line, *needles, run=lean)

SCRIPTS = [o.name for o in entry_points(group='console_scripts') if o.name.startswith('electra_')]

@pytest.mark.parametrize('name', SCRIPTS)
def test_a_flag_that_no_command_has(place, name):
    said = alone(f'{name} --colour', place)
    assert said.code==2 and said.err.startswith(f'{name}: ') and said.err.count('\n')==1 and '--help' in said.err

def test_every_command_refuses_something_here(): assert {o.split()[0] for o,_ in SOON}=={*SCRIPTS}

@table(rows("""
[electra_vocab --out v2]
--corpus nowhere.txt => nowhere.txt
--corpus empty.txt => empty.txt & is empty
--corpus bin.txt => bin.txt & line 1
--corpus latin.txt => latin.txt & line 2
--corpus nothing.txt => nothing.txt & no words
[electra_data --vocab vocab --out e2]
--corpus nowhere.txt => nowhere.txt
--corpus empty.txt => empty.txt & is empty
--corpus bin.txt => bin.txt & line 1
--corpus latin.txt => latin.txt & line 2
--corpus nothing.txt => nothing.txt & no examples
[electra_vocab --corpus tales.txt]
--out vocab --vocab-size 110 --min-frequency 50 => another vocabulary
[electra_data --corpus tales.txt --out e2]
--vocab no_mask.txt => no_mask.txt & [MASK]
--vocab twice.txt => twice.txt line 11 & line 8
--vocab latin.txt => latin.txt & UTF-8
[electra_pretrain --data examples --out r2 --device cpu]
--hparams '{"mask_prob": "high"}' => float
--hparams '{"mask_prob": 0.2' => line 1
--hparams '{"train_batch_size": 0}' => at least 1
--hparams '{"length_schedule": [[7, 1.0]]}' => divide
--hparams '{"length_schedule": 3}' => of type list
--hparams '{"use_tpu": true}' => --device
--hparams '{"seed": true}' => int
--hparams '[1]' => where there is nothing
--hparams '{"model_hparam_overrides": {"hiden_size": 64}}' => hidden_size
--init nowhere => nowhere
--init torn_run => torn_run
--init mute => mute & vocabulary
--init bert => bert & electra
--init run --preset tinny => Did you mean `tiny`
--init run --hparams '{"model_hparam_overrides": {"num_hidden_layers": 5}}' => num_hidden_layers & 2 & 5
--init run --hparams '{"untied_generator": true, "gdes": true}' => `gdes` is False & leave it
--carry-optimizer => --init
--init tiny --carry-optimizer => no checkpoint
[electra_pretrain --out r2 --steps 4 --device cpu]
--init run --data long => 160 & 128 & --max-length
--data packed --hparams '{"length_schedule": [[8, 0.5], [16, 0.5]]}' => the hparam `length_schedule` & without `pack`
--data packed --hparams '{"length_window": 4}' => cannot have the hparam `length_window`
--data packed --hparams '{"duplicates": "official"}' => cannot have the hparam `duplicates` 'official'
--data packed --hparams '{"body": {"model_type": "deberta-v2"}}' => 'deberta-v2' cannot read rows
"""))
def test_a_run_is_refused(place, line, needles): bad(place, line, *needles)

@pytest.mark.parametrize('line', ['electra_vocab --corpus tales.txt', 'electra_pretrain --steps 1',
                                  'electra_convert --src tiny', 'electra_finetune --csv rows.csv',
                                  'electra_score --text tales.txt', 'electra_check --src tales.txt'])
def test_a_place_within_a_file_is_refused(place, line):
    bad(place, f'{line} --out tales.txt/here', '--out is tales.txt/here, but tales.txt is a file; give another place')

# Fine-tuning

@pytest.fixture(scope='module')
def tuner(tmp_path_factory):
    "Files of tasks, tables, models that open and models that do not"
    d = tmp_path_factory.mktemp('tuner')
    task_files(d/'data')
    electra_folder(d/'model')
    write(d/'recipe.json', json.dumps(dict(max_seq_length=32, train_batch_size=8, num_train_epochs=1)))
    for o in ('mixed', 'bare', 'torn'): shutil.copytree(d/'model', d/o)
    for o in ('tokenizer.json', 'tokenizer_config.json', 'vocab.txt'):
        for folder in ('mixed', 'bare'): (d/folder/o).unlink(missing_ok=True)
    write(d/'mixed/vocab.txt', (GOLDEN/'vocab.txt').read_text() + 'more\n')
    kept = {k: v for k,v in load_file(d/'model/model.safetensors').items() if 'layer.1' not in k}
    save_file(kept, d/'torn/model.safetensors', metadata={'format': 'pt'})
    for name,task in dict(kinds=TextTask('kinds', ('a', 'b')), reader=QATask('squadv1'),
                          tagger=TagTask('chunk', ('O', 'S-X')), judge=GEDTask()).items():
        untrained(task, d/'model', d/name)
    write(d/'train.csv', 'id,question,about\n' + ''.join(f'{i},{q},{("pet", "animal")[i%2]}\n'
                                                         for i,q in enumerate(['a red dog', 'a house']*10)))
    for name,text in TABLES.items(): write(d/name, text)
    (d/'all/chunk').mkdir(parents=True)
    return d

TABLES = {'train.xlsx': 'question,about\n', 'empty.csv': 'question,about\nred,pet\ndog, \n',
          'one.csv': 'question,about\nred,pet\ndog,pet\n', 'open.csv': 'question,about\n"red,pet\ndog,animal\n',
          'twice.csv': 'question,about,question\nred,pet,dog\n', 'semi.csv': 'question;about\na;pet\n',
          'tabs.csv': 'question\tabout\na\tpet\n',
          'taken.csv': 'text,prediction\nred,a\n', 'half.csv': 'text\nred\n"dog', 'blank.csv': 'text\nred\n \n',
          'answer.csv': 'question,context,answer\nwho ?,red,dog\n', 'torn.json': '{"data": [',
          'gap.csv': 'question,context\nwho ?,red\n ,dog\nwhere ?,\n', 'tags.txt': 'the DT\ndog\n', 'new.txt': 'red\n'}

@table(rows("""
[electra_finetune --model model --data-dir data --hparams recipe.json --device cpu --out fresh]
--task colla => Did you mean `cola`
--task squads => Did you mean `squad`
--task ax => mnli
--task qqp => should be called qqp
--task triviaqa => no folder for triviaqa
--task cola --data-dir nowhere => nowhere
--task squad --data-dir nowhere => nowhere
--task chunk --data-dir all/chunk => all/chunk has no folder for chunk & give its parent
--task ged --data-dir hf:some/set => ged reads files & give a folder
--task chunk --head-init discriminator => --head-init & for ged, not for chunk
--task ged --head-init old => --head-init is 'old'; allowed: discriminator, new
--task cola --doc-stride 16 => --doc-stride is 16, but no task here answers questions; leave it out
--task rte+cola --hparams '{"n_best_size": 5}' => hparam `n_best_size` is 5, but no task here answers questions
--task cola --max-answer-length 5 --eval-only => --max-answer-length is 5, but no task here answers questions
--task squad --joint-prediction false --beam-size 5 => --beam-size is 5, but without --joint-prediction nothing reads
--task squad --tag-rows official => --tag-rows is 'official', but no task here tags words; leave it out
--task ged+cola --class-weights even => --class-weights
--task cola --model nowhere => nowhere
--task cola --model data => no model
--task cola --model mixed => 201 pieces & 200
--task cola --model bare => bare
--task cola --model torn => lacks weights & layer.1
--task cola --preset papers => Did you mean `paper`
--task cola --device quantum => quantum
--task cola --trials 0 => at least 1
--task cola --label about => --label-column is about a table
--task cola --regression false => --regression is about a table
--task rte --eval-only => nothing to evaluate
--task rte --eval-only --compile => --compile is about training
--task rte --eval-only --predict-test => --predict-test
--task cola --hparams '{"max_seq_length": 128}' => 64 positions
--task squad --hparams '{"max_seq_length": 7}' => leaves no room
--task cola --hparams '{"learning_rates": 1}' => Did you mean `learning_rate`
--task cola --hparams '{"num_train_epochs": 0.01, "max_seq_length": 32}' => not one step
--task cola --hparams '{"loss_reduction": "max"}' => sum, mean
--task cola --hparams '{"vocab_size": 30522}' => the model's is 200
--task cola --hparams '{"model_hparam_overrides": {"hidden_size": 64}, "max_seq_length": 32}' => have other shapes
--task cola --hparams '{"init_checkpoint": "x"}' => --model
--task cola --hparams '{"do_eval": false}' => do_eval
[electra_finetune --model model --hparams recipe.json --device cpu --out fresh]
--csv train.csv --text question => give --label
--csv train.csv --text questions --label about => Did you mean `question`
--csv train.csv --text question --label kind => no column `kind`; its columns are id, question, about
--csv train.csv --text question --label about --pair second => no column `second`
--csv train.csv --text question --label about --dev nowhere.csv => nowhere.csv
--csv train.csv --text question --label about --data-dir model => --csv and --data-dir were both given
--csv train.csv --text question --label about --task a b => give --task one name
--csv train.csv --text question --label about --task a/b => it becomes a file name
--csv train.csv --text question --label about --max-query-length 9 => --max-query-length is 9, but no task here answers
--csv train.csv --text question --label about --predict-test => electra_predict
--csv train.csv --text question --label about --eval-only --hparams '{"max_eval_row": 3}' => max_eval_row
--csv train.xlsx --text question --label about => '.xlsx'; allowed: .csv
--csv empty.csv --text question --label about => empty.csv line 3: the column `about` is missing or empty
--csv one.csv --text question --label about => all training rows of one have the label 'pet'
--csv open.csv --text question --label about => open.csv line 3: unexpected end of data; is a quot
--csv twice.csv --text question --label about => twice.csv has several columns `question`
--csv semi.csv --text question --label about => one column & separate columns with commas
--csv tabs.csv --text question --label about => one column & with tabs in a .tsv
--csv train.csv --text question --label about --out train.csv => --out is train.csv, a file; give a folder
[electra_predict --device cpu]
--model model --src new.txt => no fine-tuned model
--model kinds --src taken.csv => taken.csv has a column `prediction`, which
--model kinds --src half.csv => half.csv line 3
--model kinds --src blank.csv => blank.csv line 3 & `text` & empty
--model reader --src answer.csv => column `answer`, which
--model reader --src gap.csv => gap.csv line 3 & `question`
--model reader --src new.txt => new.txt holds no questions
--model reader --src torn.json => not JSON
--model reader --src torn.json --qa-na-threshold 0 => --qa-na-threshold & squadv1 has an answer to every question
--model kinds --src new.txt --qa-na-threshold 0 => --qa-na-threshold & kinds has no questions
--model reader --src gap.csv --out x.json => .jsonl
--model tagger --src tags.txt => tags.txt line 2 & 1 column
--model tagger --src new.txt --out said.xml => .conll
--model judge --src new.txt --out said.xml => .conll
"""))
def test_a_fine_tuning_or_prediction_is_refused(tuner, line, needles): bad(tuner, line, *needles)

def questions(**change):
    "Questions of which one is another"
    d = squad(4, True)
    d['data'][0]['paragraphs'][1]['qas'][0] |= change
    return d

def unsaid():
    "Questions none of which says whether it has an answer"
    d = squad(4, True)
    for p in d['data'][0]['paragraphs']: del p['qas'][0]['is_impossible']
    return d

TRAIN_JSON = 'squad/train.json', 'squadv1 squad'
BAD_FILES = { # what is wrong: file, task, content, needles
    'missing column': ('CoLA/train.tsv', 'mnli cola', 'x\t1\n', 'train.tsv line 1', '2 columns'),
    'unknown label': ('RTE/dev.tsv', 'mnli rte', 'i\ta\tb\tl\n0\tx\ty\tmaybe\n', 'dev.tsv line 2', 'maybe',
                      'not_entailment'),
    'no number': ('STS-B/train.tsv', 'mnli sts', 'h\na\tb\tmuch\n', 'line 2', 'much'),
    'beyond the scale': ('STS-B/train.tsv', 'mnli sts', 'h\na\tb\t7\n', 'line 2', '5'),
    'not UTF-8': ('sst2/train.tsv', 'mnli sst', b'sentence\tlabel\ncaf\xe9\t1\n', 'train.tsv line 2', 'UTF-8'),
    'empty': ('CoLA/train.tsv', 'mnli cola', '', 'train.tsv', 'empty'),
    'header only': ('sst2/dev.tsv', 'mnli sst', 'sentence\tlabel\n', 'dev.tsv', 'empty'),
    'bad test': ('CoLA/test.tsv', 'cola --skip-bad-rows --predict-test', 'index\tsentence\n0\n', 'test.tsv line 2'),
    'ragged': ('chunk/train.txt', 'chunk', 'the X B-NP\ndog B-NP\n', 'train.txt line 2', '2 columns'),
    'phrase without beginning': ('chunk/train.txt', 'chunk', 'the X O\n\ndog X I-NP\n', 'train.txt line 3',
                                 'I-NP after O'),
    'unknown in dev': ('chunk/dev.txt', 'chunk', 'the X B-NP\ndog X B-WHAT\n', 'dev.txt line 2', 'B-WHAT',
                       'never occurs'),
    'no tag': ('chunk/train.txt', 'chunk', 'the X NP\n', 'train.txt line 1', "'NP'"),
    'no sentence': ('chunk/train.txt', 'chunk', '', 'train.txt', 'empty'),
    'blank sentences': ('chunk/dev.txt', 'chunk', '\n\n\n', 'dev.txt', 'empty'),
    'empty word': ('chunk/train.txt', 'chunk', '\tX\tB-NP\n', 'train.txt line 1', 'word is empty'),
    'tags not UTF-8': ('chunk/dev.txt', 'chunk', b'caf\xe9 X B-NP\n', 'dev.txt line 1', 'UTF-8'),
    'bad test of tags': ('chunk/test.txt', 'chunk', 'the X\n\ndog\n', 'test.txt line 3', '1 column'),
    'another label': ('ged/train.tsv', 'ged', 'He\tc\ngo\tx\n', 'train.tsv line 2', "'x' of 'go'", 'neither c'),
    'an edit beyond the end': ('ged/dev.m2', 'ged', 'S He go\nA 1 3|||R|||x|||REQUIRED|||-NONE-|||0\n', 'dev.m2 line 2',
                               'from 1 to 3'),
    'answer nowhere': (*TRAIN_JSON, questions(answers=[dict(text='blue dog', answer_start=3)]), 'train.json',
                       '1 question cannot', "the answer is not in the passage (1: q1 'blue dog')"),
    'twice': (*TRAIN_JSON, questions(id='q0'), 'train.json', 'q0', 'was there before'),
    'no is_impossible': (*TRAIN_JSON, unsaid(), 'train.json', '4 questions', 'q0', 'is_impossible', 'squadv1'),
    'no question': (*TRAIN_JSON, questions(question=None), 'train.json', 'q1', '`question` has to be text', 'None'),
    'no answers': (*TRAIN_JSON, questions(answers=[]), 'train.json', 'q1', 'no answer'),
    'no place': (*TRAIN_JSON, questions(answers=[dict(text='red')]), 'train.json', 'q1', '`answer_start` is missing'),
    'no text': (*TRAIN_JSON, questions(answers=[dict(text='', answer_start=0)]), 'train.json', 'q1',
                'not in the passage'),
    'answers no list': (*TRAIN_JSON, questions(answers='red'), 'train.json', 'q1', '`answers`', 'a list'),
    'not JSON': (*TRAIN_JSON, '{"data"', 'train.json', 'not JSON'),
    'an empty file': (*TRAIN_JSON, '', 'train.json', 'empty'),
    'no questions': (*TRAIN_JSON, dict(data=[]), 'train.json', 'empty'),
    'a list': (*TRAIN_JSON, [1], 'train.json', '`data` is missing'),
    'no paragraphs': (*TRAIN_JSON, dict(data=[dict(title='x')]), 'train.json', '`paragraphs` is missing'),
    'no context': (*TRAIN_JSON, dict(data=[dict(paragraphs=[dict(qas=[])])]), 'train.json', '`context` is missing'),
    'latin': (*TRAIN_JSON, '{"data": "caf\u00e9"}'.encode('latin-1'), 'train.json', 'not UTF-8'),
    'cut line': ('NewsQA/train.jsonl', 'newsqa', mrqa(3)+'\n{"context": \n', 'train.jsonl', 'line 5', 'not JSON',
                 '--skip-bad-rows'),
    'cut archive': ('NewsQA/dev.jsonl.gz', 'newsqa', gzip.compress(mrqa(3).encode())[:-20], 'dev.jsonl.gz',
                    'is damaged')}

@pytest.mark.parametrize('name', BAD_FILES)
def test_a_file_of_a_task_is_refused(tuner, name):
    "Before anything is trained, also the last of several"
    file, task, data, *needles = BAD_FILES[name]
    odd_data(tuner, file, data)
    line = f'electra_finetune --model model --data-dir odd --hparams recipe.json --device cpu --out fresh --task {task}'
    bad(tuner, line, *needles)

# Scoring

@pytest.fixture(scope='module')
def scored(tmp_path_factory):
    "Runs of Electric, ELECTRA-TT, ELECTRA and BERT, damaged ones, and files to score"
    d = electric_runs(tmp_path_factory.mktemp('scored'))
    run_folder(d/'run', pieces(PIECES))
    (d/'bert').mkdir()
    save_hparams(preset('tiny', electra_objective=False), d/'bert/hparams.json')
    (d/'empty').mkdir()
    for o in ('torn', 'odd'): shutil.copytree(d/'run', d/o)
    weights, config = d/'torn/discriminator/model.safetensors', d/'odd/discriminator/config.json'
    weights.write_bytes(weights.read_bytes()[:1000])
    config.write_text(json.dumps(json.loads(config.read_text()) | dict(hidden_size=32)))
    shutil.copytree(shipped('tiny')/'discriminator', d/'disc')
    write(d/'numbered.csv', 'line,text\n1,the cat\n')
    write(d/'none.json', '[{"hypotheses": [], "reference": "the cat"}]')
    write(d/'c.txt', (d/'lines.txt').read_text())
    write(d/'v.txt', (d/'electric/electric/vocab.txt').read_text())
    return d

@table(rows("""
[electra_score --model electric --out never.jsonl]
--choices 'the ___' => electric has no generator to fill a blank by
--choices nowhere.jsonl => there is no file 'nowhere.jsonl'
--choices bad.jsonl => line 1
--text 'LONG' => where there is nothing
--text nowhere.txt => nowhere.txt
--text lines.txt --candidates a => leave out --candidates
--text lines.txt --by passes => towers, energies
--text lines.txt --by towers energies => several are for --pairs
--text lines.txt --unit bits => leave out --unit
--text lines.txt --per word => allowed: text, token
--text lines.txt --color => leave out --color
--pairs bad.jsonl => line 2
--pairs nowhere => where there is nothing
--pairs lines.txt => an odd number
--pairs bad.json => bad.json ends in .json; give pairs as .csv or .tsv & or as .jsonl, a line such as
--pairs pairs --per word => allowed: phenomenon, set
--nbest bad.json => item 2
--nbest none.json => none.json, item 1, has no hypothesis in `hypotheses`; leave it out
--nbest lines.txt => allowed: .json
[electra_score --model electric --out never.tsv]
--surprisal nowhere.txt => nowhere
--surprisal numbered.csv => has a column `line`, as the results have
--surprisal lines.txt --unit bit => allowed: nats, bits
--surprisal lines.txt --per words => `word`?
--surprisal lines.txt --by p-replaced => allowed: towers, energies
--surprisal lines.txt --context bad.jsonl => a context for each
--surprisal lines.txt --context contxts.txt => there is no file contxts.txt
[electra_score --model electric]
--show cat => electra_objective is false
--choices 'the ___' --candidates a b --by discriminator => allowed: towers, energies
--pairs pairs --out never.png => the name of its picture
--pairs pairs --out pairs/never.jsonl => in the folder of
--pairs pairs/a.jsonl --out pairs/a.jsonl => --pairs reads
--surprisal lines.txt --out never.csv => end it in .tsv
--surprisal lines.txt --context c.txt --out c.txt => --context reads
--text lines.txt --out pairs => a folder
--text lines.txt --out ./lines.txt => --text reads
--text lines.txt --vocab v.txt --out v.txt => --vocab reads
[electra_score --out never.tsv]
--surprisal lines.txt --model disc => gives no surprisal
--text lines.txt --model electric tt => --model has 2 names; several are for --pairs
--text lines.txt --model lines.txt => no folder
[electra_score --model tiny]
--choices 'the end' => no file
--show '-' => give standard input with --text
[electra_score --choices 'the ___' --candidates a b]
--by towers --model tiny => allowed: generator, p-replaced, pll
[electra_score --model run]
=> one of --show, --text, --pairs, --nbest, --choices
--show '' => no words
--show cat --text lines.txt => came
--show cat --out rows => leave out --out
--show cat --device cuda:99 => which this machine does not have
[electra_score --show cat]
--model nowhere => nowhere
--model empty => holds no model
--model run/hparams.json => no folder
--model run/generator => is no ElectraForPreTraining
--model torn => torn
--model odd => odd
--model bert => electra_objective is false
--model hf:me/none => hf:me/none does not open
"""))
def test_a_scoring_is_refused(scored, line, needles): bad(scored, line.replace('LONG', 'the cat sat '*60), *needles)

# Files, from Python

TAGGER = TagTask('toy', ('B-NP', 'E-NP', 'O', 'S-NP', 'S-VP'))
GOOD = '{"sentence_good": "a", "sentence_bad": "b"}'
READ = [ # reader, name, content, needles
    (read_pairs, 'a.jsonl', '{"Context1": "a", "Target1": "b"}',
     'line 1 has no `Context2` and no `Target2` and no `Domain`'),
    (read_pairs, 'b.jsonl', f'{GOOD}\n{{"sentence_good": "a", "sentence_bad": 7}}', 'line 2', 'BLiMP'),
    (read_pairs, 'c.jsonl', '{"sentences": "one", "ratio": 1}', 'line 1', 'WUG'),
    (read_pairs, 'd.jsonl', '{"sentences": "one\\ttwo", "ratio": "often"}', 'line 1', 'WUG'),
    (read_pairs, 'e.jsonl', '{"input_prefix": "a ", "options": ["b"], "numops": 0}', 'line 1', 'entity tracking'),
    (read_pairs, 'f.txt', 'the cats sits .\nthe cats sit .\nthe cats sits .\n', 'has 3 lines, an odd number'),
    (read_pairs, 'g.txt', 'A story begins.\nAnd it goes on here.\n', 'line 1', "are no minimal pair: 'A story"),
    (read_pairs, 'h.csv', 'good,bad\n', 'is empty: it has no pairs'),
    (read_pairs, 'i.jsonl', '', 'has no pairs'),
    (read_pairs, 'j.jsonl', '{', 'line 1'),
    (read_pairs, 'k.jsonl', '{"text": "a"}', 'line 1 has the fields of no test', 'COMPS: prefix_acceptable'),
    (read_pairs, 'l.jsonl', '{"sentence_good": "a", "sentence_bad": " "}', 'line 1', 'BLiMP', 'not its texts'),
    (read_pairs, 'm.jsonl', '{"input_prefix": "a", "options": [" b", ""], "numops": 0}', 'line 1', 'entity'),
    (read_pairs, 'n.txt', 'the cats sits .\n\nthe cats sit .\nthe cat sit .\na dog barks .\n', 'line 4'),
    (read_pairs, 'o.jsonl', '{"sentence_good": "a", "sentence_bad": "b", "ratio": 1}', 'line 1', 'a field `ratio`'),
    (read_pairs, 'p.jsonl', '{"sentence_good": "The mat."}', 'line 1 has no `sentence_bad`, which BLiMP has'),
    (read_nbest, 'a.json', '[{"output": "a"}]', 'has no hypotheses among its fields (output)'),
    (read_nbest, 'b.json', '[{"guesses": ["a"], "utt": 1}]', 'fields (guesses, utt)', 'a list called hyp'),
    (read_nbest, 'c.json', '[{"hypotheses": [{"words": "a", "cost": 1}]}]', 'fields (hypotheses, words, cost)',
     'with rec_text, hyp'),
    (read_nbest, 'd.json', '[{"input": ["a"], "output": "a"}, {"input": ["a"]}]', 'item 2', 'no reference'),
    (read_nbest, 'e.json', '[{"input": ["a"], "reference": 7}]', 'a reference that is no text: 7'),
    (read_nbest, 'f.json', '{"beams": [["a", "b"]]}', 'no numbers'),
    (read_nbest, 'g.json', '[]', 'is empty'),
    (read_nbest, 'h.json', '{', 'is not JSON'),
    (read_nbest, 'i.json', '[{"input": ["a"], "output": "a", "scores": ["x"]}]', 'no numbers'),
    (read_nbest, 'j.json', '[{"input": ["a"], "output": "a", "scores": [1, 2]}]', '2 scores for 1'),
    (read_nbest, 'a.tsv', 'text\tscore\na\t1\n', 'id or reference', 'it has text, score'),
    (read_nbest, 'b.tsv', 'id\ttext\n1\ta\n\tb\n', 'line 3 has neither id nor reference'),
    (TextFile, 'bad.txt', b'good\n\xff\n', 'line 2', 'is not UTF-8 (byte 0xff at column 1)'),
    (TextFile, 'mac.txt', b'One.\rTwo.\r', 'mac.txt: its lines end in carriage returns alone'),
    (TextFile, 'zip.txt', b'PK\x03\x04a\rb\r', 'zip.txt looks like a zip archive'),
    (TextFile, 'a.csv', 'item,sentence\n1,the cat\n', 'columns are item, sentence; name that of'),
    (TextFile, 'c.csv', 'item,text\n', 'only a header'),
    (TextFile, 'd.csv', 'item,text\n1\n', '1 column instead of 2'),
    (TextFile, 'a.jsonl', '{"text": "the cat"}\n{"text": 7}\n', 'line 2', 'the column `text` is 7'),
    (TextFile, 'a.txt', '{"text": "the cat"}\n', 'looks like JSON lines; give texts, one a line, or a .csv'),
    (TAGGER.read, 'a.jsonl', '{"words": "He left."}\n{"words": 3}', 'line 2: `words` is neither'),
    (TAGGER.read, 'b.jsonl', '{"text": "He left."}', 'no column `words`'),
    (partial(read_table, columns=['text']), 'cut.jsonl', '{"text": "so \\ud83d", "label": "a"}\n', 'line 1: not JSON',
     'surrogates'),
    (partial(tag_task, 'x'), 'only', 'of O\n', 'all words of x have the tag O')]

@pytest.mark.parametrize('reader,name,content,needles', [(a, b, c, o) for a,b,c,*o in READ])
def test_a_file_is_refused(tmp_path, reader, name, content, needles):
    write(tmp_path/name, content)
    with pytest.raises(InputError) as e: reader(tmp_path/name)
    for o in needles: assert o in str(e.value), e.value
    assert '\n' not in str(e.value) and [*files_of(tmp_path)]==[name]

# Rows of one's own, from Python

def kinds(*rows, **kw): return text_task('kinds', [dict(text=t, label=y) for t,y in rows], **kw)

CALLS = {'1 word, 2 tags': lambda: tag_task('x', [dict(words=['a'], tags=['O', 'O'])]),
         '`words` is no list': lambda: tag_task('x', [dict(words='a b', tags=['O', 'O'])]),
         'have to be text': lambda: tag_task('x', [dict(words=['a'], tags=[3])]),
         'word is empty': lambda: tag_task('x', [dict(words=[''], tags=['O'])]),
         'empty': lambda: tag_task('x', [dict(words=[], tags=[])]),
         "row 0: `label` is 'a', in other rows it is a list": lambda: kinds(('one', 'a'), ('two', ['a', 'b'])),
         'row 1: `text` is a list': lambda: kinds(('one', 'a'), (['a', 'b'], 'b')),
         'acc': lambda: kinds(('one', 'a'), ('two', 'b'), measures=['acc']),
         'f1': lambda: kinds(('one', 'a'), ('two', 'b'), ('three', 'c'), measures=['f1']),
         'mse': lambda: kinds(('one', 'a'), ('two', 'b'), measures=['mse']),
         'accuracy': lambda: kinds(('one', '1'), ('two', '2'), measures=['accuracy'], regression=True)}
CALLS |= {f'{o!r} is no sentence to tag': partial(TAGGER.unlabelled, [o]) for o in ('', ' ', [], ['a', ''], [3])}

@pytest.mark.parametrize('needle', CALLS)
def test_a_call_is_refused(needle):
    with pytest.raises(InputError) as e: CALLS[needle]()
    assert needle in str(e.value)

# Arguments of the wrong kind, from Python

@pytest.fixture(scope='module')
def tiny(tmp_path_factory):
    "What calls are made with: models that are open, a table, a text"
    d = tmp_path_factory.mktemp('tiny')
    write(d/'lines.txt', 'the cat sat on the mat\n\n'*9)
    frame = pd.DataFrame(dict(text=['a', 'b', 'c', 'd']*9, label=['x', 'y']*18))
    pair = dict(good='a day', bad='a days', right=True, ties=0)
    by = {o: load_likelihood('tiny', o, device='cpu') for o in ('pll', 'p-replaced')}
    return SimpleNamespace(d=d, frame=frame, pair=pair, scorer=load_scorer('tiny', device='cpu'), pll=by['pll'],
                           replaced=by['p-replaced'], text=d/'lines.txt')

WRONG = [
    ('`threshold` is 50; allowed: a number of at least 0, at most 1', lambda o: o.scorer('The cat sat.', threshold=50)),
    ("`threshold` is '0.5'", lambda o: o.scorer('The cat sat.', threshold='0.5')),
    ('`text` is of type list; give one text', lambda o: o.scorer(['The cat sat.'])),
    ('`scorer` is of type str; open it with `load_scorer`', lambda o: score_tokens('tiny', 'The cat sat.')),
    ('`share` is 5', lambda o: text_task('x', o.frame, share=5)),
    ('there is no vocabulary at nix', lambda o: load_scorer('tiny', vocab='nix')),
    ('is not the vocabulary of', lambda o: load_likelihood('tiny', vocab='electra-baby')),
    ('the model to open is of type Scorer; give a folder', lambda o: load_scorer(o.scorer)),
    ('the model to open is of type NoneType', lambda o: load_likelihood(None)),
    ('the model to open is of type DataFrame', lambda o: load_finetuned(o.frame)),
    ('`path` is of type DataFrame; give a file', lambda o: predict_file('tiny', o.frame)),
    ('`model` is of type str; open it once with `load_likelihood`', lambda o: likely_words('tiny', 'a ___ day')),
    ('`model` scores by p-replaced', lambda o: likely_words(o.replaced, 'a ___ day')),
    ('`model` is of type str', lambda o: rank_choices('tiny', 'a ___ day', ['good', 'bad'])),
    ('`model` is of type Scorer', lambda o: pseudo_log_likelihood(o.scorer, 'a day')),
    ('`model` is of type str', lambda o: score_text('tiny', o.pll)),
    ('`texts` is of type list; give the path of a file; `pseudo_log', lambda o: score_text(o.pll, ['a day'])),
    ('there is no file nix', lambda o: score_surprisal(o.pll, 'nix')),
    ('`pairs` is of type str; read them with `read_pairs`', lambda o: compare_on_pairs(o.pll, 'nix')),
    ('pair 0 has no `phenomenon`; add it', lambda o: accuracies([o.pair])),
    ('pair 0 has no `set`; add it', lambda o: accuracies([o.pair | dict(phenomenon='x')])),
    ('pair 0 has no `right`; `score_pairs` gives it', lambda o: accuracies([dict(phenomenon='x', set='x')])),
    ('`rows` is of type str; read them with `read_choices`', lambda o: choose(o.pll, 'nix')),
    ('`lists` is of type str; read them with `read_nbest`', lambda o: score_nbest(o.pll, 'nix')),
    ('`corpus` is of type DataFrame; give a file', lambda o: train_vocab(o.frame, o.d/'v')),
    ("`vocab_size` is '1000'; allowed: a whole number of at least 100", lambda o: train_vocab(o.text, o.d/'v', '1000')),
    ("`max_length` is '16'", lambda o: build_examples(o.text, 'tiny', o.d/'e', max_length='16')),
    ("`held_out` is '.1'", lambda o: build_examples(o.text, 'tiny', o.d/'e', held_out='.1')),
    ('has its own `field`', lambda o: build_examples(Corpus(o.text), 'tiny', o.d/'e', field='body')),
    ('the place of examples is of type int', lambda o: load_examples(3)),
    ('rows are of type dict; give a data frame', lambda o: text_task('x', dict(text=['a'], label=['b']))),
    ('the first row is of type str', lambda o: text_task('x', ['a', 'b'])),
    ('`tasks` has a name', lambda o: run_trials('tiny', 'cola', o.d/'t')),
    ('nix has no finished trial', lambda o: results_table(Trials('nix'))),
    ('nix has no finished trial', lambda o: Trials('nix').best),
    ('`results` is of type str; give `Trials(folder)`', lambda o: plot_results('nix')),
    ('there is no history at nix', lambda o: read_history('nix')),
    ('`rows` is of type DataFrame; give lines from `read_history`', lambda o: plot_history(o.frame)),
    ("`hp` is of type dict; give preset('tiny'", lambda o: load_networks(shipped('tiny'), {})),
    ('does not fit the recipe', lambda o: load_networks(shipped('tiny'), 'tiny')),
    ('`out` is of type PretrainHParams', lambda o: run_pretraining(None, preset('tiny'))),
    ("is a table; give the column of the texts", lambda o: pseudo_log_likelihood(o.pll, o.frame)),
    ("text 1 is ('a', 'b'); it has to be a string", lambda o: pseudo_log_likelihood(o.pll, ['a day', ('a', 'b')])),
    ('`bs` is 0; allowed: a whole number of at least 1', lambda o: pseudo_log_likelihood(o.pll, 'a day', bs=0)),
    ('`given` has 1 number for 2 texts', lambda o: pseudo_log_likelihood(o.pll, ['a day', 'a night'], given=[1])),
    ('`model` fills blanks', lambda o: pseudo_log_likelihood(load_chooser('tiny', device='cpu'), 'a day')),
    ('`n` is -1', lambda o: likely_words(o.pll, 'a ___ day', -1)),
    ('`n` is 2.5', lambda o: o.scorer('The cat sat.', n=2.5)),
    ("`minutes` is '5'; allowed: a number of at least 0.01", lambda o: PretrainRequest(minutes='5').check()),
    ('`text` is of type int; give strings', lambda o: pseudo_log_likelihood(o.pll, 3)),
    ('`given` is of type int', lambda o: pseudo_log_likelihood(o.pll, ['a'], given=3)),
    ('`text` is of type NoneType', lambda o: rank_choices(o.pll, None, ['a'])),
    ('candidate is of type NoneType', lambda o: rank_choices(o.pll, 'The ___.', [None])),
    ('`text` is of type NoneType', lambda o: likely_words(o.pll, None)),
    ('of the pairs is of type NoneType', lambda o: score_pairs(o.pll, [dict(good=None, bad='a')])),
    ('`data_dir` is of type list', lambda o: qa_task('squad', [{}])),
    ('`vocab` is of type', lambda o: build_examples(o.text, load_tokenizer('tiny'), o.d/'e')),
    ('column is of type int', lambda o: labelled_texts('x', [{0: 'a', 1: 'b'}], text=0, label=1)),
    ('a column, or two without a `pair`', lambda o: TextTaskDataLoaders.from_df(o.frame, ('text', 'label'), pair='c')),
    ('a column, or two without a `pair`', lambda o: TextTaskDataLoaders.from_df(o.frame, ['text'])),
    ('two tasks of one network are called a_b', lambda o: FinetuneRequest()._job(
        dict(x=[TextTask('a.b', ('0', '1')), TextTask('a_b', ('0', '1'))]), 'x')),
    ('`task` has x twice', lambda o: FinetuneRequest([TextTask('x'), TextTask('x')])._networks()),
    ('corpus is a text of 25 characters; write it', lambda o: train_vocab('The cat sat.\nThe dog ran.', o.d/'v')),
    ('`pack` is of type str; give True or False', lambda o: build_examples(o.text, 'tiny', o.d/'e', pack='no')),
    ('`seed` is of type str', lambda o: build_examples(o.text, 'tiny', o.d/'e', seed='a')),
    ('`regression` is of type str', lambda o: text_task('x', [dict(text='a', label='b')], regression='no')),
    ('a file; give a folder', lambda o: save_networks(None, preset('tiny'), o.text))]

@pytest.mark.parametrize('needle,call', WRONG, ids=[f'{i} {o[:40]}' for i,(o,_) in enumerate(WRONG)])
def test_an_argument_of_the_wrong_kind_is_refused(tiny, needle, call):
    with pytest.raises(InputError) as e: call(tiny)
    assert needle in str(e.value) and '\n' not in str(e.value)
    assert [o.name for o in tiny.d.iterdir()]==['lines.txt']
