"""Checkpoints of earlier versions load and give the numbers that they gave then.

``checkpoints/v0.1.pt`` holds, by the name of a case, what version 0.1 (37a1c2c) made of it: the
arguments that a checkpoint keeps, the state dict, and the logits of `tiny.logits`.
"""

from argparse import Namespace
from pathlib import Path

import pytest
import torch
from fairseq.models import ARCH_MODEL_REGISTRY

from tests.support import tiny

FILES = sorted((Path(__file__).parents[1] / "checkpoints").glob("*.pt"))
SAVED = {(file.stem, case): outputs for file in FILES for case, outputs in torch.load(file).items()}


@pytest.mark.parametrize(("version", "case"), SAVED, ids=map("-".join, SAVED))
def test_a_model_of_an_earlier_version_gives_its_numbers(version, case):
    saved = SAVED[version, case]
    args = Namespace(**saved["args"])
    model = ARCH_MODEL_REGISTRY[args.arch].build_model(args, tiny.Task)
    model.load_state_dict(saved["model"])
    with torch.no_grad():
        torch.testing.assert_close(tiny.logits(model.eval()), saved["logits"], **tiny.TOLERANCE)
