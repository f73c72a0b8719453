"""Reading of a transformers folder's tensors, and fairseq's model with the same options."""

from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fairseq import options
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from safetensors.torch import load_file
from torch import Tensor

from ...checkpoints.file import load
from ...checkpoints.plain import shorten
from ...errors import UserError, as_user_error
from ...files import check_regular
from ...translate.model_files import TEXT_OPTIONS_JSON, TextOptions
from .card import read_license
from .family import read_texts

#: the checkpoint in the folder that is written
MODEL = "model.pt"


def read_tensors(folder: Path, reads_bin: bool = False) -> dict[str, Tensor]:
    """All tensors of a folder: name -> tensor.

    Args:
        reads_bin: whether to read ``pytorch_model*.bin`` (as data) if there are no safetensors
    """
    if files := sorted(folder.glob("model*.safetensors")):
        for file in files:
            check_regular(file)
        with as_user_error(
            lambda error: f"{folder}'s weights are cut off or damaged ({error}): give another"
        ):
            return {name: tensor for file in files for name, tensor in load_file(file).items()}
    files = sorted(folder.glob("pytorch_model*.bin")) if reads_bin else []
    if not files:
        raise UserError(
            f"{folder} holds no model.safetensors: save the model with save_pretrained, which "
            "writes it (files in pickle's format are not read)"
        )
    tensors: dict[str, Tensor] = {}
    for file in files:
        content = load(file, "cpu")
        for name, tensor in content.items() if isinstance(content, dict) else ((None, None),):
            if not (isinstance(name, str) and isinstance(tensor, Tensor)):
                raise UserError(
                    f"{file} is refused: {shorten(str(name))} is not a tensor; give another folder"
                )
            tensors[name] = tensor
    return tensors


def complete_options(args: Namespace, data: Path, task: str) -> Namespace:
    """All options of fairseq-train: ``args``, and defaults for the others."""
    words = [str(data), "--task", task, "--arch", args.arch]
    full = options.parse_args_and_arch(options.get_training_parser(default_task=task), words)
    ARCH_CONFIG_REGISTRY[args.arch](args)  # adds the options that follow from sizes
    vars(full).update(vars(args))
    return full


def build_model(args: Namespace, source: Dictionary, target: Dictionary) -> Any:
    """fairseq's model with these options and dictionaries."""
    task: Any = SimpleNamespace(
        source_dictionary=source, target_dictionary=target, max_positions=lambda: None
    )
    return ARCH_MODEL_REGISTRY[args.arch].build_model(args, task)


def write_encoder_text(folder: Path, out: Path, lower: bool) -> None:
    """Write an encoder's `TextOptions`, with the licence of the model in ``folder``."""
    texts = read_texts(folder)
    text = TextOptions(
        lower=lower,
        language=texts.source_lang or "en",
        license=read_license(folder),
    )
    content = text.model_dump_json(indent=1, exclude_none=True) + "\n"
    (out / TEXT_OPTIONS_JSON).write_text(content, encoding="utf-8")
