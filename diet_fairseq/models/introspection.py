"""Checks whether a model has fairseq's own output layer and methods."""

from typing import Any

from fairseq.models.transformer import (
    TransformerDecoder,
    TransformerDecoderBase,
    TransformerModelBase,
)

from .adapters import PositionalDecoder

#: exact types: a subclass may change its features, its attention or the encoder's output
DECODERS = (TransformerDecoderBase, TransformerDecoder, PositionalDecoder)
PROBABILITIES = ("get_normalized_probs", "get_normalized_probs_scriptable")
OUTPUT = ("forward", "extract_features", "output_layer", *PROBABILITIES)


def has_standard_output(model: Any) -> bool:
    """Whether log-probabilities are the log-softmax of the output projection of fairseq's decoder.

    False with an adaptive softmax, a pointer-generator, or overridden methods of the model.
    """
    decoder: Any = getattr(model, "decoder", None)
    return (
        isinstance(model, TransformerModelBase)
        and has_methods_of(TransformerModelBase, model, *PROBABILITIES)
        and type(decoder) in DECODERS
        and has_methods_of(type(decoder), decoder, *OUTPUT)
        and decoder.adaptive_softmax is None
    )


def has_methods_of(kind: type, thing: Any, *names: str) -> bool:
    """Whether the object has these methods of the class, which nothing overrides."""
    return all(
        getattr(getattr(thing, name), "__func__", None) is getattr(kind, name) for name in names
    )
