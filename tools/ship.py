"""Copy a finished run into the package as a model: recipe, history and networks, with weights in half precision.

`config.json` says float32, and that is what `from_pretrained` makes of them. What both networks have, embeddings or a
whole encoder, is stored once, in `discriminator/`. README.md, the model's card, is written by hand."""
import json, shutil, sys
from pathlib import Path
from safetensors.torch import load_file, save_file

MODELS = Path(__file__).resolve().parents[1]/'electra_nbdev'/'models'

def save_weights(tensors, path):
    "Tensors in a file that others may read"
    save_file(tensors, path, metadata=dict(format='pt'))
    path.chmod(0o644)

def share_encoder(model):
    "Store once what is the same in both networks; each has an index that says which file a weight is in"
    parts = [model/o for o in ('discriminator', 'generator') if (model/o/'model.safetensors').is_file()]
    if len(parts)<2: return
    found = [load_file(o/'model.safetensors') for o in parts]
    both = {k for k,v in found[0].items() if k in found[1] and v.equal(found[1][k])}
    if not both: return
    save_weights({k: found[0][k] for k in sorted(both)}, parts[0]/'encoder.safetensors')
    for folder,tensors,encoder in zip(parts, found, ('encoder.safetensors', '../discriminator/encoder.safetensors')):
        save_weights({k: v for k,v in tensors.items() if k not in both}, folder/'head.safetensors')
        index = dict(metadata=dict(total_size=sum(o.nbytes for o in tensors.values())),
                     weight_map={k: encoder if k in both else 'head.safetensors' for k in sorted(tensors)})
        (folder/'model.safetensors.index.json').write_text(json.dumps(index, indent=2)+'\n', encoding='utf-8')
        (folder/'model.safetensors').unlink()

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
        for w in (dest/o.parent).rglob('*.safetensors'): save_weights({k: v.half() for k,v in load_file(w).items()}, w)
    share_encoder(dest)
    size = sum(o.stat().st_size for o in dest.rglob('*') if o.is_file())
    print(f'{size/1e6:.2f} MB in {dest}')

if __name__=='__main__': ship(*sys.argv[1:])
