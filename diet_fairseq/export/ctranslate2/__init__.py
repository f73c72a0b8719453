"""``export ctranslate2``: export of translation models and encoders to CTranslate2.

CTranslate2 has T5's score of offset and head, as which `positions` writes our schemes.
`specification` assigns all parameters, `comparison` compares the two models' outputs.
"""

import re
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

import ctranslate2

from ...errors import UserError
from .. import checkpoint, description, folder
from ..checkpoint import TrainedModel
from .comparison import difference, stacks
from .positions import exact_length
from .specification import specification

#: the first version that reads a table per layer; 4.6.0, 4.8.1 and 4.8.2 silently use the first
#: layer's for all
LEAST = (4, 8, 3)
#: largest difference of log-probabilities in float32
TOLERANCE = 1e-3


def run(args: Namespace) -> None:
    check_version(ctranslate2.__version__)
    folder.check(args.out, args.force)
    trained = checkpoint.read(args)
    with folder.create(args.out, args.force) as new:
        save(trained, str(new), args.quantization)
        if not trained.is_encoder:
            description.write(trained, "ctranslate2", new)
        largest = difference(trained, str(new))
        if args.quantization == "float32" and not largest <= TOLERANCE:
            raise UserError(
                f"CTranslate2 computes something else than {args.checkpoint}: outputs differ by "
                f"{largest:.1g}; nothing was written; please report this, with --arch and options"
            )
    outputs = "outputs" if trained.is_encoder else "log-probabilities"
    print(f"wrote {args.out}: {outputs} of random sentences differ by at most {largest:.1g}")
    for line in clipped_offsets(trained.model):
        print(line)


def clipped_offsets(model: Any) -> Iterator[str]:
    """A warning for each stack whose scores CTranslate2 clips beyond an offset."""
    for stack in stacks(model):
        if (exact := exact_length(stack)) < stack.max_positions():
            yield f"{type(stack).__name__}: offsets of {exact - 1:,} tokens or more share one score"


def check_version(version: str) -> None:
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:3])
    if numbers < LEAST:
        raise UserError(
            f"CTranslate2 {version} can't be trusted with a table of positions for every layer "
            "(4.6.0, 4.8.1 and 4.8.2 silently use the first layer's for all): "
            "pip install 'ctranslate2>=4.8.3', here and where the model is used"
        )


def save(trained: TrainedModel, folder: str, quantization: str) -> None:
    """Write CTranslate2's files into the folder."""
    spec: Any = specification(trained.model)
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(folder)
