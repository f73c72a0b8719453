"""Faults in ``--position-window`` and in layers of two kinds."""

from dataclasses import replace
from importlib import import_module

import torch

from diet_fairseq.config import PositionConfig
from diet_fairseq.models import warm_start
from diet_fairseq.positions.layout import Layout
from diet_fairseq.transformer import StackConfig, scheme_change
from diet_fairseq.transformer.stack import Stack
from tests.support.mutants.catching import Patch, instead_of

# the package has the function under this name
banded = import_module("diet_fairseq.attention.backends.banded")


@instead_of(Layout, "with_window")
def a_window_one_token_wider(original, self, window):
    return original(self, window and window + 1)


@instead_of(Layout, "with_window")
def a_window_one_token_wider_in_decoding(original, self, window):
    return original(self, window and window + (self.query_positions.size(1) == 1))


@instead_of(Layout, "with_window")
def windows_that_count_padding(original, self, window):
    slots = (self.slot_offsets.new_tensor(range(self.key_positions.size(1))))[None]
    queries = slots[:, -self.query_positions.size(1) :]
    return replace(original(self, window), indices=(queries, slots))


@instead_of(Layout, "with_window")
def windows_of_sampled_positions(original, self, window):
    return replace(original(self, window), indices=None)


def padding_sees_no_key(patch: Patch) -> None:
    mask = Layout.mask.func  # type: ignore[attr-defined]

    def changed(self):
        if self.is_far is None:
            return mask(self)
        far = self.is_far if self.hidden is None else self.is_far | self.hidden[:, None, None, :]
        return far | (self.slot_offsets > 0) if self.causal else far

    patch.setattr(Layout, "mask", property(changed))


@instead_of(PositionConfig, "is_global")
def a_pattern_that_begins_one_layer_later(original, self, layer):
    return original(self, layer + 1)


@instead_of(Stack, "create_contexts")
def every_layer_in_the_context_of_the_first(original, self, *args):
    return [original(self, *args)[0]] * len(self.layers)


@instead_of(StackConfig, "at_layer")
def every_layer_with_the_local_scheme(original, self, layer):
    return self


@instead_of(PositionConfig, "_differing_defaults")
def global_layers_with_the_local_scheme_s_defaults(original, self, scheme):
    return {}


@instead_of(Stack, "_build_global_positions")
def layers_of_both_kinds_share_one_scheme(original, self):
    return self.positions


# --- warm starts -----------------------------------------------------------------------------


@instead_of(scheme_change, "select_kind")
def every_layer_has_the_scale_of_local_layers(original, description, name):
    return description


@instead_of(warm_start, "select_kind")
def kinds_of_layers_are_not_compared(original, description, name):
    return description


# --- windows in blocks -----------------------------------------------------------------------


@instead_of(banded, "add_neighbours")
def blocks_without_the_keys_after_them(original, x, window, causal):
    after = torch.zeros_like(x[..., :window, :])
    before = original(x, window, True)
    return before if causal else torch.cat([before, after], dim=-2)


@instead_of(banded, "compute_block_scores")
def blocks_that_see_padding(original, call, window, size):
    return original(replace(call, layout=replace(call.layout, padding_mask=None)), window, size)


@instead_of(banded, "compute_block_scores")
def scores_of_the_next_offset_in_blocks(original, call, window, size):
    scores = tuple(replace(score, line=score.line.roll(1, -1)) for score in call.scores)
    return original(replace(call, scores=scores), window, size)


@instead_of(banded, "drop_far_keys")
def one_key_too_few_in_decoding(original, call):
    window = call.layout.window - 1
    return original(replace(call, layout=replace(call.layout, window=window)))
