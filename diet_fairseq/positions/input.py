"""Positions at the input only: the baselines that leave attention unchanged."""

from .base import InputPositions


class NoPositions(InputPositions):
    """No positions at all: the control. Only a causal decoder sees order, through its mask."""


class Sinusoidal(InputPositions):
    """Vaswani et al. (2017), section 3.5: fairseq's fixed table, added to the input."""

    input = "sinusoidal"


class Learned(InputPositions):
    """Devlin et al. (2019): fairseq's learned table, added to the input."""

    input = "learned"
