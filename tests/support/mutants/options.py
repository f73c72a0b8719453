"""Faults in ``--position-sampling`` and ``--position-temperature``."""

from dataclasses import replace
from functools import partial

import torch
from torch.utils.checkpoint import checkpoint

from diet_fairseq.attention.backends import AttentionCall
from diet_fairseq.positions.layout import Layout
from diet_fairseq.positions.sampling import PositionSampling
from diet_fairseq.transformer import PositionalAttention, StackConfig, layer
from diet_fairseq.transformer.stack import Stack
from tests.support.mutants.catching import Patch, instead_of

# --- random positions in training ------------------------------------------------------------


@instead_of(PositionSampling, "draw")
def a_shift_of_the_longest_sentence(original, self, layout, batch, source=None):
    """Every sentence has the room that the longest one leaves."""
    return original(self, replace(layout, padding_mask=None), batch, source)


@instead_of(PositionSampling, "draw")
def random_positions_without_gaps(original, self, layout, batch, source=None):
    return original(replace(self, kind="shifted"), layout, batch, source)


@instead_of(PositionSampling, "draw")
def a_target_with_a_shift_of_its_own(original, self, layout, batch, source=None):
    return original(self, layout, batch)


@instead_of(Layout, "with_positions")
def random_offsets_read_as_slots(original, self, positions, end):
    return replace(original(self, positions, end), is_toeplitz=True)


@instead_of(Layout, "with_positions")
def positions_one_further_on(original, self, positions, end):
    return original(self, positions + 1, end)


@instead_of(Layout, "of_cross_attention")
def sources_at_plain_positions(original, target, source_padding_mask, source_positions=None):
    return original(target, source_padding_mask)


def positions_that_are_never_drawn(patch: Patch) -> None:
    patch.setattr(StackConfig, "build_sampling", lambda self: None)


def positions_drawn_anew_in_every_layer(patch: Patch) -> None:
    forward = PositionalAttention.forward

    def redraw(self, x, context, *rest, **options):
        layout = context.layout
        if layout.indices is not None and not self.is_cross:
            plain = replace(layout, key_positions=layout.key_indices)
            drawn = PositionSampling("randomised", 16).draw(plain, len(layout.indices[1]))
            context = replace(context, layout=drawn)
        return forward(self, x, context, *rest, **options)

    patch.setattr(PositionalAttention, "forward", redraw)
    patch.setattr(layer, "checkpoint", partial(checkpoint, preserve_rng_state=False))


# --- the temperature at inference ------------------------------------------------------------


@instead_of(torch.Tensor, "__truediv__")
def logits_that_are_not_divided(original, self, divisor):
    is_temperature = self.dim() == 4 and isinstance(divisor, float)
    return self if is_temperature else original(self, divisor)


@instead_of(AttentionCall, "fold_temperature")
def fused_attention_without_a_temperature(original, self):
    return replace(self, temperature=1.0)


@instead_of(AttentionCall, "fold_temperature")
def a_temperature_of_queries_alone(original, self):
    return replace(original(self), scores=self.scores)


@instead_of(AttentionCall, "fold_temperature")
def a_division_by_one(original, self):
    return replace(self, q=self.q * 1.0)


@instead_of(Stack, "create_context")
def a_temperature_in_training(original, self, *args, **options):
    context = original(self, *args, **options)
    return replace(context, temperature=self.stack_config.positions.temperature)


def converted_temperature_forgotten(patch: Patch) -> None:
    from diet_fairseq.export.ctranslate2.positions import Positions

    original = Positions.__init__

    def init(self, stack):
        original(self, stack)
        self.temperature = 1.0

    patch.setattr(Positions, "__init__", init)
