"""ELECTRA and Electric, from raw text to fine-tuned models and scores

The main names of `electra_nbdev.pretrain`, `electra_nbdev.finetune` and `electra_nbdev.score` are here too; each loads
its face when it is asked for, so that `import electra_nbdev` is quick."""
__version__ = "0.3.0"

from importlib import import_module

FACES = dict(
    pretrain="""train_vocab load_tokenizer build_examples load_examples sample_examples pretrain_dls preset
        PretrainHParams electra_learner run_pretraining ReplacedTokenDetection MaskedLanguageModel
        NoiseContrastiveEstimation MaskTokens ReplaceTokens LinearWarmupDecay load_networks""".split(),
    finetune="""FinetuneHParams FinetuneRequest PredictRequest Task TextTask text_task glue_task qa_task tag_task
        TextTaskDataLoaders electra_classifier finetune_learner run_trials finetune_tasks load_finetuned
        predict_file""".split(),
    score="""Scorer load_scorer show_scores load_likelihood pseudo_log_likelihood surprisal read_pairs score_pairs
        accuracies load_chooser rank_choices ScoreRequest""".split()) # {module: its main names}

def __getattr__(name):
    if name in FACES: return import_module(f'electra_nbdev.{name}')
    face = next((face for face,names in FACES.items() if name in names), None)
    if face: return getattr(import_module(f'electra_nbdev.{face}'), name)
    raise AttributeError(f"module 'electra_nbdev' has no attribute {name!r}")

def __dir__(): return sorted(['__doc__', '__version__', *FACES, *sum(FACES.values(), [])])

def load_fastai():
    "Import fastai without what torch says about it to its developers"
    import warnings
    with warnings.catch_warnings():
        warnings.filterwarnings('ignore', '.torch.jit', FutureWarning)
        import fastai.learner

def tell_parameters(
    names:dict, # {name: function or class}, as a face has them; their `__doc__` changes
):
    "Let `help(f)` and `f?` tell what stands beside the parameters in the source, of methods too"
    from inspect import isclass, isfunction, ismethod
    bases = [c for o in names.values() if isclass(o) for c in o.__mro__ if _is_ours(c)]
    methods = [getattr(c, name) for c in bases for name in vars(c) if name[0]!='_']
    functions = [getattr(o, '__func__', o) for o in (*names.values(), *methods) if isfunction(o) or ismethod(o)]
    for o in dict.fromkeys([*bases, *functions]):
        if _is_ours(o) and (lines := _parameters(o)) and lines not in (o.__doc__ or ''):
            o.__doc__ = f"{o.__doc__ or ''}\n\n{lines}"

def _is_ours(o): return o.__module__.startswith('electra_nbdev.')

def _parameters(o):
    "Lines for the parameters of a function or class, and for what it returns"
    from inspect import isclass, signature
    from fastcore.docments import docments
    parts = [c for c in reversed(o.__mro__) if _is_ours(c)] if isclass(o) else [o] # a dataclass has fields of its bases
    found = [docments(part, returns=not isclass(o), args_kwargs=True) for part in parts]
    told = {k: ' '.join(v.split()) for d in found for k,v in d.items() if v}
    own = {k: told[k] for k in signature(o).parameters if k in told}
    width = max(map(len, own), default=0)
    lines = ['Parameters:', *(f'    {k:<{width}}  {v}' for k,v in own.items()), ''] if own else []
    if 'return' in told: lines.append(f"Returns: {told['return']}")
    return '\n'.join(lines).rstrip()
