"""Copy a finished run into the package as a model: recipe, history and networks, with weights in half precision.

`config.json` says float32, and that is what `from_pretrained` makes of them. README.md, the model's card, is written
by hand."""
import json, shutil, sys
from pathlib import Path
from safetensors.torch import load_file, save_file

MODELS = Path(__file__).resolve().parents[1]/'electra_nbdev'/'models'

def ship(run, name, models=MODELS):
    "Replace the model of that name; its card stays"
    run, dest = Path(run), Path(models)/name
    networks = sorted(o.relative_to(run) for o in run.rglob('config.json') if 'checkpoints' not in o.parts)
    if not networks: raise SystemExit(f'{run} has no finished networks; give the folder of a run that is done')
    for o in dest.glob('*/'): shutil.rmtree(o)
    dest.mkdir(parents=True, exist_ok=True)
    shutil.copy(run/'history.jsonl', dest)
    recipe = json.loads((run/'hparams.json').read_text(encoding='utf-8'))
    if begun := recipe['run'].get('init'): begun['folder'] = Path(begun['folder']).name # no place of this machine
    (dest/'hparams.json').write_text(json.dumps(recipe, indent=2)+'\n', encoding='utf-8')
    for o in networks:
        shutil.copytree(run/o.parent, dest/o.parent, dirs_exist_ok=True)
        for w in (dest/o.parent).rglob('*.safetensors'):
            save_file({k: v.half() for k,v in load_file(w).items()}, w, metadata=dict(format='pt'))
            w.chmod(0o644)
    size = sum(o.stat().st_size for o in dest.rglob('*') if o.is_file())
    print(f'{size/1e6:.2f} MB in {dest}')

if __name__=='__main__': ship(*sys.argv[1:])
