"""The names of 0.3 for the encoder, the decoder and their attention; they go with 0.5."""

import sys
from importlib import import_module

for old, new in {
    "attention": "transformer.attention",
    "decoder": "models.adapters",
    "encoder": "models.adapters",
    "warm_start": "models.warm_start",
}.items():
    sys.modules[f"{__name__}.{old}"] = import_module(f".{new}", __package__)
