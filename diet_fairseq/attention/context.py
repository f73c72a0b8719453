"""The inputs of attention besides queries, keys and values: layout, schemes and their scores."""

from dataclasses import dataclass

from torch import nn

from ..positions.layout import Layout
from .backends import Backend
from .packing import Packing
from .terms import Schemes, Scores


@dataclass(frozen=True, eq=False)
class Context:
    """The inputs of attention that are the same for all layers of a forward pass.

    Attributes:
        layout: the positions of queries and keys, and the mask
        shared: the schemes that all layers share; empty if each layer has separate schemes
        scores: the scores of the shared schemes, computed once; None if ``shared`` is empty or has
            a scheme with steps, whose scores depend on the layer's input
        backend: the backend of all layers, for which the scores were computed: a key of `BACKENDS`
            or a `Backend`
        compress: the compression of keys and values that all layers share, or None
        packing: the packing of the layers' tokens; None: they are not packed
        temperature: the divisor of the logits, see `PositionConfig.temperature`
    """

    layout: Layout
    shared: Schemes = ()
    scores: Scores | None = None
    backend: str | Backend = "reference"
    compress: nn.Module | None = None
    packing: Packing | None = None
    temperature: float = 1.0
