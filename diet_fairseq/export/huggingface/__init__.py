"""fairseq's models as Hugging Face transformers', and back.

`configuration` converts options, `parameters` names and tensors, each in both directions; `model`
makes a model of them, and `comparison` checks that it computes what fairseq's does.
"""

from .configuration import arguments
from .model import Converted, converted
from .parameters import SPAN, beginning_of, state_for

__all__ = ["SPAN", "Converted", "arguments", "beginning_of", "converted", "state_for"]
