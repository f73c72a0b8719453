"""The parameters of a model in transformers from fairseq's, and back.

They keep fairseq's names but for their beginnings, and of tied parameters one copy is kept.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import UserError

#: the head of task ``question_answering`` in 0.2, on every token
SPAN = "span"
#: beginnings of names: fairseq's -> ours in transformers; the first that fits counts
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
#: what fairseq's state has and nobody reads
VERSION = "version"


def names_of(config: Any, head: str | None = None) -> dict[str, str]:
    """Beginnings of names, fairseq's and ours."""
    if config.is_encoder_decoder:
        return TRANSFORMER_NAMES
    heads = {f"classification_heads.{head}.": beginning_of(head)} if head else {}
    return ENCODER_NAMES | heads


def beginning_of(head: str) -> str:
    """Of the names of a head's parameters."""
    return "qa_outputs." if head == SPAN else "classifier."


def renamed(name: str, names: Mapping[str, str]) -> str:
    """The name with its beginning replaced."""
    for before, after in names.items():
        if name.startswith(before):
            return after + name.removeprefix(before)
    return name


def state_for(
    model: nn.Module, config: Any, tensors: Mapping[str, Tensor], head: str | None = None
) -> tuple[dict[str, Tensor], list[str], list[str]]:
    """The state of fairseq's model with these parameters of a model in transformers.

    Returns:
        the state, names of parameters that stay as the model has them, names that it doesn't take
    """
    names = names_of(config, head)
    bare = not any(name.startswith(("model.", "lm_head.")) for name in tensors)  # a bare encoder
    places: dict[tuple[int, tuple], str] = {}
    state, missing, taken = dict(model.state_dict()), [], set()
    for name, tensor in model.state_dict().items():
        if name.rpartition(".")[2] == VERSION:
            continue
        if name.rpartition(".")[2] == "gain":
            segment = name.endswith("segments.gain")
            gain = config.segment_gain if segment else config.positions.position_gain
            state[name] = tensor if gain is None else torch.tensor(gain, dtype=torch.float64)
            continue
        there = renamed(name, names)
        there = there.removeprefix("model.") if bare else there
        place = (tensor.data_ptr(), tuple(tensor.shape))
        if there in tensors:
            if tensors[there].shape != tensor.shape:
                raise UserError(
                    f"{there} is {tuple(tensors[there].shape)}, but the configuration asks for "
                    f"{tuple(tensor.shape)}: the folder's files don't belong together"
                )
            state[name] = tensors[there].to(tensor.dtype)
            places[place] = name
            taken.add(there)
        elif place in places:  # a tied copy
            state[name] = state[places[place]]
        else:
            missing.append(name)
    for name in list(missing):  # tied to one that came later
        place = (state[name].data_ptr(), tuple(state[name].shape))
        if place in places:
            state[name] = state[places[place]]
            missing.remove(name)
    return state, missing, [name for name in tensors if name not in taken]
