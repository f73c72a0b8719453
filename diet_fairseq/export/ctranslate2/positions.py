"""Position schemes as CTranslate2 holds them: a score of offset and head, or Shaw's tables."""

from typing import Any

import numpy as np
import torch
from ctranslate2.specs import model_spec
from torch import Tensor

from ...errors import UserError
from ...positions import SCHEMES
from ...positions.relative import OffsetScalars
from ...positions.shaw import Shaw

INSTEAD = "export it to Hugging Face: diet-fairseq export hf"


def refused(what: str, why: str) -> UserError:
    return UserError(f"CTranslate2 can't hold {what}: {why}; {INSTEAD}")


class Positions:
    """What an encoder or decoder has in its self-attention or at its input.

    Attributes:
        schemes: of every layer; None: it has none, or fairseq's own attention
        temperature: what its logits are divided by; weights of queries and tables are, instead
        shaw, bias: which of CTranslate2's ways holds them; neither: a table at the input
    """

    def __init__(self, stack: Any) -> None:
        self.stack = stack
        placement = getattr(stack, "placement", None)  # fairseq's own have none
        self.temperature: float = 1.0 if placement is None else placement.config.temperature
        self.schemes: list[Any] = [
            getattr(layer.self_attn, "positions", None) or getattr(stack, "positions", None)
            for layer in stack.layers
        ]
        at_input = stack.embed_positions is not None
        self.shaw = any(isinstance(scheme, Shaw) for scheme in self.schemes)
        # Where nothing is said, CTranslate2 silently adds sinusoidal positions of its own to the
        # input. So no positions at all are a score that is zero.
        self.bias = not self.shaw and not at_input
        self._check(at_input)

    def _check(self, at_input: bool) -> None:
        placement = getattr(self.stack, "placement", None)  # fairseq's own have none
        name = "" if placement is None else placement.config.position_scheme
        if any(getattr(part, "segments", None) is not None for part in self.stack.modules()):
            raise refused(
                "a score of segments in every head",
                "its scores know offsets alone (segments at the input it can hold)",
            )
        for scheme in self.schemes:
            held = scheme is None or isinstance(scheme, OffsetScalars | Shaw)
            if not held or (name and SCHEMES[name].compressed):
                raise refused(
                    f"the position scheme {name}",
                    "of scores it knows T5's and DIET-REL's tables of offsets, and Shaw's tables",
                )
            if scheme is not None and at_input:
                raise refused(
                    "positions at the input beside those in attention",
                    "these switch the former off",
                )
            if isinstance(scheme, Shaw) and len(scheme.keys) > 1:
                raise refused(
                    "a table of Shaw's for every head",
                    "its heads share one, as with --position-sharing head",
                )

    def write(self, spec: Any) -> None:
        """Into the specification of the encoder or decoder."""
        if not self.shaw and not self.bias:
            spec.position_encodings.encodings = input_table(self.stack)
        causal = hasattr(self.stack, "output_projection")
        for layer, scheme, own in zip(self.stack.layers, self.schemes, spec.layer, strict=True):
            attention = own.self_attention
            if self.shaw:
                attention.relative_position_keys = scheme.gained(scheme.keys[0])  # (2 k + 1, d_h)
                attention.relative_position_values = (
                    model_spec.OPTIONAL
                    if scheme.values is None
                    else scheme.gained(scheme.values[0])
                )
            elif self.bias:
                table, furthest = bias_table(scheme, layer.self_attn.num_heads, causal)
                attention.relative_attention_bias = table / self.temperature
                attention.relative_attention_max_distance = np.int32(furthest)


def bias_table(scheme: OffsetScalars | None, heads: int, causal: bool) -> tuple[Tensor, int]:
    """A score of offset and head as T5's buckets; None: zero at every offset.

    CTranslate2 has as many buckets as the table has rows: half of them (causal: all) for offsets up
    to 0 and half for those beyond, and half of these for one offset each. Here they are as many
    that the exact ones reach the scheme's outermost offset, beyond which all is the same.

    Returns:
        (4 L, heads), in a decoder (2 L, heads): row k is offset -min(k, L - 1), row 2 L + k is
        min(k, L - 1); and the ``max_distance``, which only has to be more than L
    """
    outermost = 0 if scheme is None else scheme.outermost
    distances = torch.arange(2 * (outermost + 1)).clamp(max=outermost)  # (2 L,)
    offsets = -distances if causal else torch.cat([-distances, distances])
    if scheme is None:
        return torch.zeros(len(offsets), heads), 2 * (outermost + 1)
    rows = scheme.row_of_offset[offsets + outermost]
    table = scheme.scalars[rows].float()  # (4 L, H), or (4 L, 1) where heads share
    return table.expand(-1, heads).contiguous(), 2 * (outermost + 1)


def input_table(stack: Any) -> Tensor:
    """(positions, d): fairseq's table at the input, from the first token on."""
    embed = stack.embed_positions
    table = embed.weight if hasattr(embed, "weight") else embed.weights
    first = embed.padding_idx + 1
    return table[first : first + stack.max_positions()].float()
