"""An encoder and a decoder with position schemes in their attention.

The package depends only on PyTorch.
"""

from .attention import PositionalAttention
from .cache import DecodingCache
from .config import StackConfig
from .decoder import Decoder, DecoderOutput
from .encoder import Encoder, EncoderOutput
from .model import Transformer

__all__ = [
    "Decoder",
    "DecoderOutput",
    "DecodingCache",
    "Encoder",
    "EncoderOutput",
    "PositionalAttention",
    "StackConfig",
    "Transformer",
]
