"""Faults in schemes that rotate, and in those whose score is a function of the distance."""

from dataclasses import replace
from weakref import WeakKeyDictionary

import torch

from diet_fairseq.positions import distances, rope
from diet_fairseq.positions.base import PositionScheme
from diet_fairseq.positions.distances import Cpb, Fire, Kerple, Sandwich
from diet_fairseq.positions.layout import Layout
from diet_fairseq.positions.rope import Rope, Rotation
from diet_fairseq.positions.scores import Offsets
from tests.support.mutants.catching import Patch, instead_of

# --- rotations -------------------------------------------------------------------------------


def yarn_without_its_temperature(patch: Patch) -> None:
    patch.setattr(Rope, "magnitude", property(lambda self: 1.0, lambda *_: None), raising=False)


@instead_of(Layout, "last_keys")
def the_new_key_stands_first(original, self, keys):
    return replace(original(self, keys), key_positions=self.key_positions[:, :keys])


def gradients_turned_on(patch: Patch) -> None:
    patch.setattr(
        Rotation,
        "backward",
        lambda ctx, gradient: (rope.rotate(gradient, *ctx.saved_tensors), None, None),
    )


@instead_of(Rope, "_rotation")
def angles_in_half_precision(original, self, positions, magnitude, dtype, rates=None):
    return original(self, positions.to(dtype), magnitude, dtype, rates)


class Forgetful(dict):
    """A dictionary that says it has nothing."""

    def __contains__(self, key):
        return False


def nothing_that_layers_share(patch: Patch) -> None:
    caches: WeakKeyDictionary[Layout, Forgetful] = WeakKeyDictionary()
    patch.setattr(Layout, "cache", property(lambda self: caches.setdefault(self, Forgetful())))


@instead_of(rope, "count_tokens")
def lengths_with_padding(original, layout):
    return original(layout).amax(0, keepdim=True)


@instead_of(Rope, "__init__")
def the_lowest_frequencies_turn(original, self, *args, **options):
    original(self, *args, **options)
    self.frequencies = self.frequencies[::-1]


# --- distances -------------------------------------------------------------------------------


@instead_of(distances.Alibi, "score")
def scores_of_the_other_direction(original, self, layout):
    return Offsets(original(self, layout).line.flip(-1))


@instead_of(distances, "published_slopes")
def slopes_of_a_formula_for_powers_of_two(original, heads, device=None):
    return torch.exp2(-8 / heads * torch.arange(1, heads + 1, device=device))


@instead_of(Layout, "of_cross_attention")
def a_cross_score_of_slots(original, *args):
    return replace(original(*args), is_toeplitz=True)


@instead_of(distances, "clamp_parameter")
def kernels_without_bounds(original, parameter, *bounds):
    return parameter


@instead_of(distances, "clamp_parameter")
def kernels_that_are_stuck_at_a_bound(original, parameter, *bounds):
    return parameter.clamp(*bounds)


@instead_of(Sandwich, "score")
def ratios_that_multiply(original, self, layout):
    score = original(self, layout)
    return replace(score, line=score.line.flip(0))


@instead_of(Fire, "_score_positions")
def a_normalizer_of_the_key(original, self, query, key):
    return original(self, key, query).transpose(1, 2)


@instead_of(Fire, "zero")
def a_zero_that_learns_nothing(original, self):
    for parameter in self.parameters():
        torch.nn.init.zeros_(parameter)


@instead_of(Cpb, "score")
def offsets_without_a_sign(original, self, layout):
    line = original(self, layout).line
    past = line[:, : -layout.offset_range[0] + 1]
    return Offsets(torch.cat([past, past.flip(1)[:, 1:]], 1))


def formulas_not_compared(patch: Patch) -> None:
    patch.setattr(Kerple, "described_options", PositionScheme.described_options)
