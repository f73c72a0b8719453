"""Conversion of parameters between fairseq and transformers.

Names differ in their prefixes alone, and tied parameters are stored once.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import UserError

#: the head of task ``question_answering`` in 0.2, on every token
SPAN = "span"
#: prefixes of names: fairseq's -> ours in transformers; the first match counts
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
#: an entry of fairseq's state that nobody reads
VERSION = "version"


def names_of(config: Any, head: str | None = None) -> dict[str, str]:
    """Prefixes of names: fairseq's -> ours in transformers."""
    if config.is_encoder_decoder:
        return TRANSFORMER_NAMES
    heads = {f"classification_heads.{head}.": prefix_of(head)} if head else {}
    return ENCODER_NAMES | heads


def prefix_of(head: str) -> str:
    """The prefix of a head's parameters in transformers."""
    return "qa_outputs." if head == SPAN else "classifier."


def renamed(name: str, names: Mapping[str, str]) -> str:
    """The name with its prefix replaced."""
    for before, after in names.items():
        if name.startswith(before):
            return after + name.removeprefix(before)
    return name


def state_for(
    model: nn.Module, config: Any, tensors: Mapping[str, Tensor], head: str | None
) -> tuple[dict[str, Tensor], list[str], list[str]]:
    """The state of fairseq's model with these parameters of a model in transformers.

    Returns:
        the state, names of fairseq's parameters that are missing there and keep the model's values,
        and names of ``tensors`` that the model doesn't read
    """
    names = names_of(config, head)
    is_bare_encoder = not any(name.startswith(("model.", "lm_head.")) for name in tensors)
    loaded: dict[tuple[int, tuple], str] = {}  # place of a tensor -> its name
    model_state = model.state_dict()
    state, missing, read = dict(model_state), [], set()

    def place(name: str) -> tuple[int, tuple]:
        return model_state[name].data_ptr(), tuple(model_state[name].shape)

    for name, tensor in model_state.items():
        if name.rpartition(".")[2] == VERSION:
            continue
        if name.rpartition(".")[2] == "gain":
            is_segment = name.endswith("segments.gain")
            gain = config.segment_gain if is_segment else config.positions.position_gain
            state[name] = tensor if gain is None else torch.tensor(gain, dtype=torch.float64)
            continue
        key = renamed(name, names)
        key = key.removeprefix("model.") if is_bare_encoder else key
        if key not in tensors:
            missing.append(name)
            continue
        if tensors[key].shape != tensor.shape:
            raise UserError(
                f"{key} is {tuple(tensors[key].shape)}, but the configuration asks for "
                f"{tuple(tensor.shape)}: the folder's files don't belong together"
            )
        state[name] = tensors[key].to(tensor.dtype)
        loaded[place(name)] = name
        read.add(key)
    tied = [name for name in missing if place(name) in loaded]
    state |= {name: state[loaded[place(name)]] for name in tied}
    missing = [name for name in missing if name not in tied]
    return state, missing, [name for name in tensors if name not in read]
