"""Positions at the input only: the baselines that leave attention unchanged."""

from .base import PositionScheme


class InputPositions(PositionScheme):
    """Positions that are added to the input, or none at all; attention is the plain one."""

    in_attention = False


class NoPositions(InputPositions):
    """No positions at all: the control. Only a causal decoder sees order, through its mask."""


class Sinusoidal(InputPositions):
    """Vaswani et al. (2017), section 3.5: fairseq's fixed table, added to the input."""

    input = "sinusoidal"


class Learned(InputPositions):
    """Devlin et al. (2019): fairseq's learned table, added to the input."""

    input = "learned"


class Linformer(InputPositions):
    """Wang et al. (2020): keys and values compressed along time, learned positions at the input."""

    input = "learned"
    absolute = True
    compressed = True
