"""Positions at the input only: the baselines that give attention nothing."""

from .base import InputPositions


class NoPositions(InputPositions):
    """No positions at all: the control. Order reaches only a causal decoder, by its mask."""


class Sinusoidal(InputPositions):
    """Vaswani et al. (2017), section 3.5: fairseq's own fixed table, added to the input."""

    input = "sinusoidal"


class Learned(InputPositions):
    """Devlin et al. (2019): fairseq's own learned table, added to the input."""

    input = "learned"
