"""Faults in the comparison with a checkpoint's options."""

from diet_fairseq.patches import position_options
from tests.support.mutants.catching import Patch


def parameters_of_positions_not_compared(patch: Patch) -> None:
    patch.setattr(position_options, "position_shapes", lambda _: {})


def untied_cls_not_compared(patch: Patch) -> None:
    _without(patch, "position_untie_cls")


def positions_at_the_input_not_compared(patch: Patch) -> None:
    _without(patch, "position_input")


def _without(patch: Patch, option: str) -> None:
    options = tuple(name for name in position_options.OPTIONS if name != option)
    patch.setattr(position_options, "OPTIONS", options)
