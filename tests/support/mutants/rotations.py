"""Faults in rotations of queries and keys."""

from dataclasses import replace
from weakref import WeakKeyDictionary

from diet_fairseq.positions import rope
from diet_fairseq.positions.layout import Layout
from diet_fairseq.positions.rope import Rope, Rotation
from tests.support.mutants.catching import Patch, instead_of


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
def angles_in_half_precision(original, self, positions, magnitude, dtype):
    return original(self, positions.to(dtype), magnitude, dtype)


class Forgetful(dict):
    """A dictionary that says it has nothing."""

    def __contains__(self, key):
        return False


def nothing_that_layers_share(patch: Patch) -> None:
    caches: WeakKeyDictionary[Layout, Forgetful] = WeakKeyDictionary()
    patch.setattr(Layout, "cache", property(lambda self: caches.setdefault(self, Forgetful())))


@instead_of(Rope, "__init__")
def the_lowest_frequencies_turn(original, self, *args, **options):
    original(self, *args, **options)
    self.frequencies = self.frequencies[::-1]
