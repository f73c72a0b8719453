"""What a row costs at full size, computed from its configuration.

Floating-point operations are those of matrix products, 2 for each multiplication with its addition,
and a backward pass takes twice a forward pass. Scores of positions are left out: they are below
some percent of the rest (docs/performance.md has their times).
"""

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fairseq.models import ARCH_CONFIG_REGISTRY

from .. import diet_bert, diet_electra, diet_transformer  # noqa: F401  registers architectures
from ..recipes.encoders.presets import PRESETS

#: of an NVIDIA H100 SXM in bf16 without sparsity, its data sheet
H100 = 989.4e12
#: the share of them that training is taken to reach
UTILISATION = 0.4
#: what a checkpoint has of each parameter: itself and Adam's two means, in float32
BYTES = 12
#: of WMT18's recipe: updates, tokens on each side of a batch, their mean number in a sentence
#: (ours), and the checkpoints that are kept
WMT = {"updates": 250_000, "tokens": 25_000, "length": 30, "kept": 5}


@dataclass(frozen=True)
class Cost:
    """Of one run of a row.

    Attributes:
        tokens: that training reads, on each side in translation
        operations: floating-point operations
        parameters: those of matrices and embeddings
        kept: checkpoints
    """

    tokens: float
    operations: float
    parameters: float
    kept: int

    @property
    def hours(self) -> float:
        """On one H100, at `UTILISATION`."""
        return self.operations / (H100 * UTILISATION) / 3600

    @property
    def disk(self) -> float:
        """Bytes of checkpoints."""
        return self.kept * self.parameters * BYTES

    def times(self, runs: int) -> "Cost":
        return replace(
            self, tokens=self.tokens * runs, operations=self.operations * runs,
            kept=self.kept * runs,
        )  # fmt: skip


def of_architecture(arch: str) -> Namespace:
    """Its sizes."""
    args = Namespace(arch=arch, max_positions=512, nsp=False)
    ARCH_CONFIG_REGISTRY[arch](args)
    return args


def layer(width: int, inner: int) -> float:
    """Parameters of an encoder's layer: four projections and two of the feed-forward part."""
    return 4 * width**2 + 2 * width * inner


def attention(width: int, keys: float) -> float:
    """Operations for a token that looks at so many keys: its scores, and the sum of values."""
    return 4 * width * keys


def pretraining(
    preset: str, scheme: str, vocabulary: int, encoder: str = "bert", keys: int | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Cost:  # fmt: skip
    """Of an encoder with a preset of `encoder pretrain`.

    Args:
        encoder: "bert", "roberta" or "electra", which also has a generator
        keys: compressed ones of a linear scheme; None: all
        changes: ``updates``, ``batch`` or ``length`` that differ from the preset's
    """
    chosen: Any = replace(PRESETS[preset], **(changes or {}))
    args = of_architecture(f"{encoder}_{scheme}_{chosen.size}")
    width, inner, layers = (
        args.encoder_embed_dim, args.encoder_ffn_embed_dim, args.encoder_layers
    )  # fmt: skip
    tokens = chosen.updates * chosen.batch * chosen.length

    def stack(width: int, inner: int) -> float:
        """Operations of a forward pass for a token."""
        compressed = 0 if keys is None else 4 * keys * width  # E X and F X
        seen = keys or chosen.length
        return layers * (2 * layer(width, inner) + attention(width, seen) + compressed)

    head = 0.15 * 2 * (width**2 + width * vocabulary)  # at the tokens that are masked
    operations = stack(width, inner)
    parameters = layers * layer(width, inner) + width * vocabulary
    if encoder == "electra":
        small = args.generator_size
        narrow = int(width * small)
        operations += stack(narrow, int(inner * small)) + 2 * width**2
        parameters += layers * layer(narrow, int(inner * small))
    return Cost(
        tokens, 3 * tokens * (operations + head), parameters, chosen.updates // chosen.save_every
    )


def translation(scheme: str, vocabulary: int) -> Cost:
    """Of one direction of WMT18, with the recipe's settings."""
    args = of_architecture(f"transformer_{scheme}")
    width = args.encoder_embed_dim
    source = args.encoder_layers * (
        2 * layer(width, args.encoder_ffn_embed_dim) + attention(width, WMT["length"])
    )
    target = (
        args.decoder_layers
        * (  # cross-attention has four projections more
            2 * (layer(width, args.decoder_ffn_embed_dim) + 4 * width**2)
            + 2 * attention(width, WMT["length"])
        )
        + 2 * width * vocabulary
    )
    parameters = (
        args.encoder_layers * layer(width, args.encoder_ffn_embed_dim)
        + args.decoder_layers * (layer(width, args.decoder_ffn_embed_dim) + 4 * width**2)
        + width * vocabulary
    )
    tokens = WMT["updates"] * WMT["tokens"]
    return Cost(tokens, 3 * tokens * (source + target), parameters, WMT["kept"])
