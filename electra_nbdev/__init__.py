"""ELECTRA and Electric, from raw text to fine-tuned models and scores

The main names of `electra_nbdev.pretrain`, `electra_nbdev.finetune` and `electra_nbdev.score` are here too; each loads
its face when it is asked for, so that `import electra_nbdev` is quick."""
__version__ = "0.3.0"

from importlib import import_module

FACES = dict(
    pretrain="""train_vocab load_tokenizer build_examples load_examples sample_examples pretrain_dls preset
        PretrainHParams PretrainRequest electra_learner run_pretraining ReplacedTokenDetection MaskedLanguageModel
        NoiseContrastiveEstimation MaskTokens ReplaceTokens LinearWarmupDecay load_networks""".split(),
    finetune="""FinetuneHParams FinetuneRequest PredictRequest Task TextTask text_task glue_task qa_task tag_task
        TextTaskDataLoaders electra_classifier finetune_learner run_trials finetune_tasks load_finetuned
        predict_file""".split(),
    score="""Scorer load_scorer show_scores load_likelihood pseudo_log_likelihood surprisal read_pairs score_pairs
        accuracies load_chooser rank_choices likely_words ScoreRequest""".split()) # {module: its main names}

def __getattr__(name):
    if name in FACES: return import_module(f'electra_nbdev.{name}')
    face = next((face for face,names in FACES.items() if name in names), None)
    if face: return getattr(import_module(f'electra_nbdev.{face}'), name)
    raise AttributeError(f"module 'electra_nbdev' has no attribute {name!r}")

def __dir__(): return sorted(['__doc__', '__version__', *FACES, *sum(FACES.values(), [])])
