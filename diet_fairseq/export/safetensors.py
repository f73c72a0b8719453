"""``export safetensors``: parameters under fairseq's names, the model's options and dictionaries.

A tensor of several names is stored once; ``tied`` in the metadata maps other names to the stored.
"""

import json
from argparse import ArgumentParser, Namespace
from typing import Any

from omegaconf import OmegaConf
from safetensors.torch import save

from ..inference.model_files import NONE, Pieces, resolve_model
from . import checkpoint, folder


def run(args: Namespace) -> None:
    folder.check(args.out, args.force)
    pieces = Pieces(args.data, subwords=NONE)
    about = resolve_model(args.checkpoint, pieces, translates=False)
    trained = checkpoint.load(about)
    model, config = trained.model, trained.config
    first_names: dict[Any, str] = {}
    tensors, tied = {}, {}
    for name, tensor in model.state_dict().items():
        first = first_names.setdefault((tensor.data_ptr() or name, tensor.shape), name)
        if first == name:
            tensors[name] = tensor.contiguous()
        else:
            tied[name] = first
    values: Any = vars(config) if isinstance(config, Namespace) else OmegaConf.to_container(config)
    type(model).add_args(parser := ArgumentParser())
    names = {*vars(parser.parse_args([])), "arch", "max_positions"}
    names |= {"max_source_positions", "max_target_positions"}
    options = {name: value for name, value in values.items() if name in names}
    with folder.create(args.out, args.force) as new:
        text = json.dumps(options, indent=1, sort_keys=True, default=str)
        (new / "config.json").write_text(f"{text}\n", encoding="utf-8")
        (new / "model.safetensors").write_bytes(save(tensors, {"tied": json.dumps(tied)}))
        files = {"encoder": "dict.txt"}
        if not trained.is_encoder:
            files = {"encoder": f"dict.{about.source_lang}.txt",
                     "decoder": f"dict.{about.target_lang}.txt"}  # fmt: skip
        for side, file in files.items():
            getattr(model, side).dictionary.save(str(new / file))
    print(f"wrote {args.out}: {len(tensors)} tensors")
