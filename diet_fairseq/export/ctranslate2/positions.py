"""Position schemes in CTranslate2's form: a score of offset and head, or Shaw's tables.

A scheme whose only term is a score of the offset is written as a table of that score. The table
ends at the offset from which on the score is constant or, where there is none (ALiBi), at the last
offset within the model's positions, whose score CTranslate2 then uses for all offsets beyond.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from ctranslate2.specs import model_spec
from torch import Tensor

from ...errors import UserError
from ...positions import SCHEMES, PositionScheme
from ...positions.layout import Layout
from ...positions.scores import Offsets
from ...positions.shaw import Shaw

INSTEAD = "export it to Hugging Face: diet-fairseq export hf"


def unsupported(feature: str, reason: str) -> UserError:
    return UserError(f"CTranslate2 can't hold {feature}: {reason}; {INSTEAD}")


class Positions:
    """The positions of an encoder or decoder, in self-attention or at the input.

    Attributes:
        schemes: the scheme of every layer; None for fairseq's own attention, or without positions
        shaw, bias: whether Shaw's tables or a score hold them; neither: a table at the input
    """

    def __init__(self, stack: Any) -> None:
        self.stack = stack
        self.schemes: list[Any] = [
            getattr(layer.self_attn, "positions", None) or getattr(stack, "positions", None)
            for layer in stack.layers
        ]
        at_input = stack.embed_positions is not None
        self.shaw = any(isinstance(scheme, Shaw) for scheme in self.schemes)
        # By default CTranslate2 silently adds sinusoidal positions to the input, so a model without
        # any positions has a score of zero.
        self.bias = not self.shaw and not at_input
        self._check(at_input)

    def _check(self, at_input: bool) -> None:
        placement = getattr(self.stack, "placement", None)  # fairseq's own stacks have none
        name = "" if placement is None else placement.config.position_scheme
        if any(getattr(part, "segments", None) is not None for part in self.stack.modules()):
            raise unsupported(
                "a score of segments in every head",
                "its scores know offsets alone (segments at the input it can hold)",
            )
        if any(crossing(self.stack)):
            raise unsupported("positions in cross-attention", "its cross-attention has none")
        for scheme in self.schemes:
            held = scheme is None or isinstance(scheme, Shaw) or scheme.kinds == {"offsets"}
            if not held or (name and SCHEMES[name].compressed):
                raise unsupported(
                    f"the position scheme {name}",
                    "of scores it knows those of the offset alone, and Shaw's tables",
                )
            if scheme is not None and at_input:
                raise unsupported(
                    "positions at the input beside those in attention",
                    "these switch the former off",
                )
            if isinstance(scheme, Shaw) and len(scheme.keys) > 1:
                raise unsupported(
                    "a table of Shaw's for every head",
                    "its heads share one, as with --position-sharing head",
                )

    def write(self, spec: Any) -> None:
        """Write them to the specification of the encoder or decoder."""
        if not self.shaw and not self.bias:
            spec.position_encodings.encodings = input_table(self.stack)
        causal = hasattr(self.stack, "output_projection")
        for layer, scheme, layer_spec in zip(
            self.stack.layers, self.schemes, spec.layer, strict=True
        ):
            attention = layer_spec.self_attention
            if self.shaw:
                attention.relative_position_keys = scheme.gained(scheme.keys[0])  # (2 k + 1, d_h)
                attention.relative_position_values = (
                    model_spec.OPTIONAL
                    if scheme.values is None
                    else scheme.gained(scheme.values[0])
                )
            elif self.bias:
                table, max_distance = bias_table(scheme, layer.self_attn.num_heads, causal)
                attention.relative_attention_bias = table
                attention.relative_attention_max_distance = np.int32(max_distance)


def crossing(stack: Any) -> Iterator[PositionScheme]:
    """The position schemes of a decoder's cross-attention."""
    attentions = (getattr(layer, "encoder_attn", None) for layer in stack.layers)
    schemes = (getattr(attention, "positions", None) for attention in attentions)
    for scheme in (getattr(stack, "cross_positions", None), *schemes):
        if scheme is not None:
            yield scheme


def exact_length(stack: Any) -> int:
    """The length up to which CTranslate2 has the scores of the encoder or decoder."""
    limits = [
        scheme.shape.queries.positions
        for scheme in Positions(stack).schemes
        if scheme is not None and "offsets" in scheme.kinds and score_of(scheme, 1).reach is None
    ]
    return min([stack.max_positions(), *limits])


def score_of(scheme: PositionScheme, tokens: int) -> Offsets:
    """The scheme's score at the offsets from 1 - tokens to tokens - 1."""
    layout = Layout.of_self_attention(torch.zeros(1, tokens, dtype=torch.bool), scheme.shape.causal)
    score = scheme.score(layout)
    if not isinstance(score, Offsets):
        raise TypeError(f"{type(scheme).__name__}.score is no Offsets, but says that it is")
    return score


@torch.no_grad()
def bias_table(scheme: PositionScheme | None, heads: int, causal: bool) -> tuple[Tensor, int]:
    """A score of offset and head as T5's buckets; without a scheme it is zero.

    Rows are buckets: half of them (causal: all) for offsets up to 0, half for those beyond, and
    half of each for single offsets. The number of rows is such that the single offsets reach the
    outermost one, beyond which the score is constant.

    Returns:
        (4 L, heads), in a decoder (2 L, heads): row k is offset -min(k, L - 1), row 2 L + k is
        min(k, L - 1); and the ``max_distance``, which must be larger than L
    """
    outermost = 0
    if scheme is not None:
        reach = score_of(scheme, 1).reach
        outermost = scheme.shape.queries.positions - 1 if reach is None else reach
    distances = torch.arange(2 * (outermost + 1)).clamp(max=outermost)  # (2 L,)
    offsets = -distances if causal else torch.cat([-distances, distances])
    if scheme is None:
        return torch.zeros(len(offsets), heads), 2 * (outermost + 1)
    line = score_of(scheme, outermost + 1).line  # (H|1, 2 L - 1)
    table = line[:, offsets + outermost].float().T  # (4 L, H|1)
    return table.expand(-1, heads).contiguous(), 2 * (outermost + 1)


def input_table(stack: Any) -> Tensor:
    """(positions, d): fairseq's table at the input, from the first token on."""
    embed = stack.embed_positions
    table = embed.weight if hasattr(embed, "weight") else embed.weights
    first = embed.padding_idx + 1
    return table[first : first + stack.max_positions()].float()
