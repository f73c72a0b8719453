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
    model, config = (trained := checkpoint.load(about)).model, trained.config
    names, tied, tensors = ({}, {}, {})  # type: tuple[dict[Any, str], dict[str, str], dict]
    for name, tensor in model.state_dict().items():
        first = names.setdefault((tensor.data_ptr() or name, tensor.shape), name)
        (tied if first != name else tensors)[name] = first if first != name else tensor.contiguous()
    values: Any = vars(config) if isinstance(config, Namespace) else OmegaConf.to_container(config)
    type(model).add_args(parser := ArgumentParser())
    known = {*vars(parser.parse_args([])), "arch", "max_positions"}
    known |= {"max_source_positions", "max_target_positions"}
    options = {name: value for name, value in values.items() if name in known}
    with folder.create(args.out, args.force) as new:
        text = json.dumps(options, indent=1, sort_keys=True, default=str)
        (new / "config.json").write_text(f"{text}\n", encoding="utf-8")
        (new / "model.safetensors").write_bytes(save(tensors, {"tied": json.dumps(tied)}))
        for side in ("encoder",) if trained.is_encoder else ("encoder", "decoder"):
            language = {"encoder": about.source_lang, "decoder": about.target_lang}[side]
            name = "dict.txt" if trained.is_encoder else f"dict.{language}.txt"
            getattr(model, side).dictionary.save(str(new / name))
    print(f"wrote {args.out}: {len(tensors)} tensors")
