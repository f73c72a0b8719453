"""Which models our quicker ways may serve: those that speak as fairseq's transformer does."""

from typing import Any

from fairseq.models.transformer import (
    TransformerDecoder,
    TransformerDecoderBase,
    TransformerModelBase,
)
from torch import nn

from .decoder import PositionalDecoder

#: a subclass may do anything with its features, its attention and the encoder's output
DECODERS = (TransformerDecoderBase, TransformerDecoder, PositionalDecoder)
NORMALISING = ("get_normalized_probs", "get_normalized_probs_scriptable")
SPEAKING = ("forward", "extract_features", "output_layer", *NORMALISING)


def speaks_plainly(model: Any) -> bool:
    """Whether a model's log-probabilities are the log-softmax of what fairseq's decoder projects.

    That is not so with an adaptive softmax, a pointer-generator, or any method of its own.
    """
    decoder: Any = getattr(model, "decoder", None)
    return (
        isinstance(model, TransformerModelBase)
        and has_methods_of(TransformerModelBase, model, *NORMALISING)
        and type(decoder) in DECODERS
        and has_methods_of(type(decoder), decoder, *SPEAKING)
        and decoder.adaptive_softmax is None
    )


def has_methods_of(kind: type, thing: Any, *names: str) -> bool:
    """Whether these methods are the class's: no subclass has its own, nor the object itself."""
    return all(
        getattr(getattr(thing, name), "__func__", None) is getattr(kind, name) for name in names
    )


def has_hooks(module: nn.Module) -> bool:
    """Whether anybody wants to know what goes into a module or comes out of it."""
    kinds = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
    return any(getattr(module, kind) for kind in kinds)
