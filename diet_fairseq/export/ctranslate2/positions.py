"""Position schemes in CTranslate2's form: scores of the offset, Shaw's tables, RoPE.

A scheme whose only term is a score of the offset is written as a table of this score. The table
ends at the offset where the score becomes constant. If the score never does (ALiBi), the table ends
at the model's largest offset, and CTranslate2 uses its last row for all larger offsets.
"""

from typing import Any

import numpy as np
import torch
from ctranslate2.specs import attention_spec, model_spec
from torch import Tensor

from ...errors import UserError
from ...positions import PositionScheme
from ...positions.layout import Layout
from ...positions.rope import Rope
from ...positions.scores import Offsets
from ...positions.shaw import Shaw
from ...transformer.stack import Stack


def refusal(feature: str, reason: str) -> UserError:
    return UserError(
        f"CTranslate2 can't represent {feature}: {reason}; "
        "export it to Hugging Face: diet-fairseq export hf"
    )


class Positions:
    """The positions of an encoder or decoder, in self-attention or at the input.

    Attributes:
        schemes: the scheme of every layer; None for fairseq's own attention, or without positions
        temperature: divisor of the logits; the export divides query weights and tables by it
        shaw, bias, rope: the form of the positions; none of the three: a table at the input
    """

    def __init__(self, stack: Any) -> None:
        self.stack = stack
        config = stack.stack_config.positions if isinstance(stack, Stack) else None
        self.temperature: float = 1.0 if config is None else config.temperature
        if config is not None and (config.position_window or config.position_layers):
            raise refusal(
                "--position-window and --position-layers",
                "its encoders have no windows, and all its layers have the same positions",
            )
        self.schemes: list[Any] = [
            getattr(layer.self_attn, "positions", None) or getattr(stack, "positions", None)
            for layer in stack.layers
        ]
        at_input = stack.embed_positions is not None
        self.shaw = any(isinstance(scheme, Shaw) for scheme in self.schemes)
        self.rope = next((scheme for scheme in self.schemes if isinstance(scheme, Rope)), None)
        # By default CTranslate2 silently adds sinusoidal positions to the input, so a model without
        # positions is exported with a score of zero.
        self.bias = not self.shaw and not self.rope and not at_input
        for scheme in self.schemes:
            if scheme is not None:
                self._check(scheme, at_input)
        if config is not None and config.position_cross_attention:
            raise refusal("positions in cross-attention", "its cross-attention has no positions")

    def _check(self, scheme: PositionScheme, at_input: bool) -> None:
        is_rope = type(scheme) is Rope
        if not is_rope and not isinstance(scheme, Shaw) and scheme.kinds != {"offsets"}:
            raise refusal(
                f"the position scheme {self.stack.stack_config.positions.position_scheme}",
                "it has only scores of offsets, Shaw's tables and RoPE",
            )
        if is_rope and scheme.scaling == "yarn":
            raise refusal("--position-rope-scaling yarn", "it has only RoPE's linear scaling")
        if at_input:
            raise refusal(
                "positions both at the input and in attention",
                "its positions in attention disable its positions at the input",
            )
        if isinstance(scheme, Shaw) and len(scheme.keys) > 1:
            raise refusal(
                "a Shaw table for each head",
                "its heads share one table (--position-sharing head)",
            )

    @property
    def options(self) -> dict[str, Any]:
        """Options of the encoder's or decoder's specification.

        CTranslate2 rotates the first D = ``rotary_dim`` dimensions of a head by base^(-2m / D).
        p-RoPE rotates D < d_h dimensions by base^(-2m / d_h), so its base is converted.
        """
        options: dict[str, Any] = {
            "relative_position": self.shaw,
            "relative_attention_bias": self.bias,
        }
        if self.rope is None:
            return options
        rotary_dim, width = 2 * self.rope.pairs, self.rope.shape.head_dim
        options |= {
            "rotary_dim": rotary_dim,
            "rotary_interleave": False,  # pairs are m and m + D / 2
            "rotary_base": self.rope.base ** (rotary_dim / width),
        }
        if self.rope.scaling == "linear":
            options["rotary_scaling_type"] = attention_spec.RotaryScalingType.Linear
            options["rotary_scaling_factor"] = self.rope.factor
        return options

    def ordered(self, projection: Tensor) -> Tensor:
        """Rows of W_Q or W_K, or its bias, (d, ...), with each head's rotated rows first."""
        if self.rope is None:
            return projection
        pairs, half = self.rope.pairs, self.rope.shape.head_dim // 2
        first = torch.arange(half)
        rotated = torch.cat([first[:pairs], first[:pairs] + half])
        unrotated = torch.cat([first[pairs:], first[pairs:] + half])
        heads = projection.unflatten(0, (-1, 2 * half))  # (H, d_h, ...)
        return heads[:, torch.cat([rotated, unrotated])].flatten(0, 1)

    def write(self, spec: Any) -> None:
        """Write the positions to the specification of the encoder or decoder."""
        if not self.shaw and not self.bias and not self.rope:
            spec.position_encodings.encodings = input_table(self.stack)
        causal = hasattr(self.stack, "output_projection")
        for layer, scheme, layer_spec in zip(
            self.stack.layers, self.schemes, spec.layer, strict=True
        ):
            attention = layer_spec.self_attention
            if self.shaw:
                attention.relative_position_keys = scheme.amplify(scheme.keys[0])  # (2 k + 1, d_h)
                attention.relative_position_values = (
                    model_spec.OPTIONAL
                    if scheme.values is None
                    else scheme.amplify(scheme.values[0])
                )
            elif self.bias:
                table, max_distance = bias_table(scheme, layer.self_attn.num_heads, causal)
                attention.relative_attention_bias = table / self.temperature
                attention.relative_attention_max_distance = np.int32(max_distance)


def exact_length(stack: Any) -> int:
    """The largest length at which CTranslate2 has all scores of the encoder or decoder."""
    limits = [
        scheme.shape.queries.positions
        for scheme in Positions(stack).schemes
        if scheme is not None
        and "offsets" in scheme.kinds
        and compute_offset_scores(scheme, 1).reach is None
    ]
    return min([stack.max_positions(), *limits])


def compute_offset_scores(scheme: PositionScheme, tokens: int) -> Offsets:
    """The scheme's score at the offsets from 1 - tokens to tokens - 1."""
    layout = Layout.of_self_attention(torch.zeros(1, tokens, dtype=torch.bool), scheme.shape.causal)
    score = scheme.score(layout)
    if not isinstance(score, Offsets):
        raise TypeError(f"{type(scheme).__name__}.score is not Offsets, but declares it")
    return score


@torch.no_grad()
def bias_table(scheme: PositionScheme | None, heads: int, causal: bool) -> tuple[Tensor, int]:
    """The score of each offset and head in T5's buckets; zeros without a scheme.

    T5 has half of the rows (causal: all) for offsets up to 0 and half for positive offsets. The
    first half of each part is for single offsets: L offsets, up to the largest offset in the table.

    Returns:
        (4 L, heads), in a decoder (2 L, heads): row k is offset -min(k, L - 1), row 2 L + k is
        offset min(k, L - 1); and T5's ``max_distance``, which must be larger than L
    """
    outermost = 0
    if scheme is not None:
        reach = compute_offset_scores(scheme, 1).reach
        outermost = scheme.shape.queries.positions - 1 if reach is None else reach
    distances = torch.arange(2 * (outermost + 1)).clamp(max=outermost)  # (2 L,)
    offsets = -distances if causal else torch.cat([-distances, distances])
    if scheme is None:
        return torch.zeros(len(offsets), heads), 2 * (outermost + 1)
    line = compute_offset_scores(scheme, outermost + 1).line  # (H|1, 2 L - 1)
    table = line[:, offsets + outermost].float().T  # (4 L, H|1)
    return table.expand(-1, heads).contiguous(), 2 * (outermost + 1)


def input_table(stack: Any) -> Tensor:
    """(positions, d): fairseq's table at the input, from the first token on."""
    embed = stack.embed_positions
    table = embed.weight if hasattr(embed, "weight") else embed.weights
    first = embed.padding_idx + 1
    return table[first : first + stack.max_positions()].float()
