"""Conversion of parameters between fairseq's models and our models in transformers.

Only the prefixes of the names differ, and tied parameters are stored once in transformers.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import UserError

#: the classification head of version 0.2 for question answering, which reads every token
SPAN = "span"
#: prefix in fairseq -> prefix in transformers; the first match counts
ENCODER_NAMES = {
    "encoder.sentence_encoder.": "model.",
    "encoder.lm_head.weight": "lm_head.decoder.weight",
    "encoder.lm_head.bias": "lm_head.decoder.bias",
    "encoder.lm_head.": "lm_head.",
    "pooler.": "model.pooler.",
}
TRANSFORMER_NAMES = {
    "decoder.output_projection.": "lm_head.",
    "encoder.": "model.encoder.",
    "decoder.": "model.decoder.",
}
#: suffix of the names of entries in fairseq's state that are not parameters
VERSION = ".version"


def rename_parameter(name: str, config: Any, head: str | None = None) -> str:
    """The name in transformers of a parameter of fairseq's model.

    Args:
        config: the model's configuration in transformers
        head: the name of the classification head in fairseq; None: there is none
    """
    names = TRANSFORMER_NAMES if config.is_encoder_decoder else ENCODER_NAMES
    if head and not config.is_encoder_decoder:
        prefix = "qa_outputs." if head == SPAN else "classifier."
        names = names | {f"classification_heads.{head}.": prefix}
    for before, after in names.items():
        if name.startswith(before):
            return after + name.removeprefix(before)
    return name


def load(
    model: nn.Module, config: Any, tensors: Mapping[str, Tensor]
) -> tuple[list[str], list[str]]:
    """Load parameters, named as in transformers, into fairseq's model.

    Returns:
        names of fairseq's parameters that ``tensors`` lacks, which keep the model's values, and
        names of ``tensors`` that the model doesn't have
    """
    is_bare_encoder = not any(name.startswith(("model.", "lm_head.")) for name in tensors)
    initial = model.state_dict()
    state, names_read = {}, set()
    for name, tensor in initial.items():
        key = rename_parameter(name, config)
        key = key.removeprefix("model.") if is_bare_encoder else key
        if name.endswith(".gain"):
            is_segment = name.endswith("segments.gain")
            gain = config.segment_gain if is_segment else config.positions.position_gain
            state[name] = tensor if gain is None else torch.tensor(gain, dtype=torch.float64)
        elif key in tensors:
            if tensors[key].shape != tensor.shape:
                raise UserError(
                    f"{key} is {tuple(tensors[key].shape)}, but the configuration asks for "
                    f"{tuple(tensor.shape)}: the folder's files don't belong together"
                )
            state[name] = tensors[key]
            names_read.add(key)
    nn.Module.load_state_dict(model, state, strict=False)
    places = {(initial[name].data_ptr(), initial[name].shape) for name in state}
    missing_names = [
        name
        for name, tensor in initial.items()
        if (tensor.data_ptr(), tensor.shape) not in places and not name.endswith(VERSION)
    ]
    return missing_names, [name for name in tensors if name not in names_read]
