"""Schemes without positions in attention: the baselines with positions at the input, or none."""

from .base import PositionScheme


class InputPositions(PositionScheme):
    """A scheme that does not change attention; positions are at the input, or there are none."""

    in_attention = False


class NoPositions(InputPositions):
    """No positions, as a control: only the causal mask of a decoder depends on the order."""


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
