"""Faults in the comparison with a checkpoint's options."""

from functools import partial

from diet_fairseq.models import warm_start
from diet_fairseq.positions.base import PositionScheme
from diet_fairseq.positions.distances import Kerple
from tests.support.mutants.catching import Patch


def positions_at_the_input_not_compared(patch: Patch) -> None:
    patch.setattr(warm_start, "differences", partial(_converted, warm_start.differences))


def _converted(differences, old, new, converted=()):
    return differences(old, new)


def formulas_not_compared(patch: Patch) -> None:
    patch.setattr(Kerple, "meaning", PositionScheme.meaning)
