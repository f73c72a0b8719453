"""Conversion of fairseq's models to Hugging Face transformers, and back.

`configuration` converts options, `parameters` names and tensors, each in both directions; `model`
converts a model, and `comparison` checks that its outputs stay the same.
"""

from .configuration import arguments
from .model import ConvertedModel, convert
from .parameters import SPAN, prefix_of, state_for

__all__ = ["SPAN", "ConvertedModel", "arguments", "convert", "prefix_of", "state_for"]
