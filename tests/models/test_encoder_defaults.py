"""Encoders have defaults of their own, because they read longer inputs than translation models."""

from argparse import Namespace

import pytest
from fairseq.models import ARCH_CONFIG_REGISTRY

from diet_fairseq.config import PositionConfig

FAMILIES = ("transformer", "roberta", "bert", "electra")


def options(arch: str, **given) -> PositionConfig:
    args = Namespace(**given)
    ARCH_CONFIG_REGISTRY[arch](args)
    return PositionConfig.from_args(args)


@pytest.mark.parametrize("scheme", ["diet_rel", "t5", "tupe_free", "diet_abs", "tupe_r"])
@pytest.mark.parametrize("family", FAMILIES)
def test_scores_start_with_a_higher_peak_in_encoders(family, scheme):
    peak = 3.0 if family == "transformer" else 6.0
    assert options(f"{family}_{scheme}").position_peak == peak
    assert options(f"{family}_{scheme}", position_peak=3.0).position_peak == 3.0
