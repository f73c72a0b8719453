"""Faults in scores: gain, positions, mask, terms and scales."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module

import torch
import torch.nn.functional as F
from torch import Tensor

from diet_fairseq.attention import compressed as linformer
from diet_fairseq.positions import diet_abs, layout, relative
from diet_fairseq.positions import scores as score_values
from diet_fairseq.positions.diet_abs import DietAbs
from diet_fairseq.positions.gain import ScoreParameters
from diet_fairseq.positions.input import NoPositions
from diet_fairseq.positions.layout import Layout
from diet_fairseq.positions.relative import OffsetScores
from diet_fairseq.positions.scores import Factors, Offsets
from diet_fairseq.transformer import attention, decoder, encoder
from tests.support.mutants.catching import Mutant, Patch, instead_of, instead_of_scores


@dataclass(frozen=True, eq=False)
class ChangedOffsets(Offsets):
    """Offsets whose scores of pairs are changed."""

    change: Callable[[Tensor], Tensor] = lambda scores: scores

    def dense(self, layout):
        return self.change(super().dense(layout))


# --- the gain --------------------------------------------------------------------------------


@instead_of(DietAbs, "score")
def factors_without_the_gain(original, self, layout):
    score = original(self, layout)
    return Factors(score.query, score.key / self.gain)


@instead_of(diet_abs, "wave_frequencies")
def equally_spaced_frequencies(original, count):
    return torch.pi * (torch.arange(count) + 0.5) / count


# --- where tokens stand ----------------------------------------------------------------------


@instead_of(layout, "token_positions")
def positions_from_arange(original, padding_mask, length, device):
    return original(None, length, device)


@instead_of(Layout, "of_self_attention")
def offsets_that_count_padding_within(
    original, padding_mask, causal=False, queries=None, segments=None
):
    return replace(original(padding_mask, causal, queries, segments), is_toeplitz=True)


@instead_of(OffsetScores, "score")
def offsets_that_weigh_more_further_on(original, self, layout):
    line = original(self, layout).line
    return ChangedOffsets(line, change=lambda x: x * (1 + layout.key_positions))


def positions_parked_from_one_pass_to_the_next(patch: Patch) -> None:
    parked: dict[bool, Layout] = {}

    @instead_of(Layout, "of_self_attention")
    def park(original, *args, **options):
        result = original(*args, **options)
        first = parked.setdefault(result.causal, result)
        values = dict(vars(result))
        vars(first).clear()
        vars(first).update(values)
        return first

    park(patch)


# --- what may be seen ------------------------------------------------------------------------


def masked_by(change: Callable[[Layout], Layout]) -> Mutant:
    """`Layout.mask` is that of a changed layout."""
    original = Layout.mask.func  # type: ignore[attr-defined]

    def mutant(patch: Patch) -> None:
        patch.setattr(Layout, "mask", property(lambda self: original(change(self))))

    return mutant


def padding_is_seen(patch: Patch) -> None:
    masked_by(lambda result: replace(result, padding_mask=None))(patch)


def the_future_is_seen(patch: Patch) -> None:
    masked_by(lambda result: replace(result, causal=False))(patch)


@instead_of(Layout, "of_self_attention")
def the_future_is_never_seen(original, padding_mask, causal=False, queries=None, segments=None):
    return original(padding_mask, True, queries, segments)


def padding_sees_nothing(patch: Patch) -> None:
    def mask(self: Layout) -> torch.Tensor | None:
        later = (self.slot_offsets > 0).expand(1, 1, -1, -1) if self.causal else None
        if self.padding_mask is None:
            return later
        padding = self.padding_mask[:, None, None, :]
        return padding if later is None else padding | later

    patch.setattr(Layout, "mask", property(mask))


def a_finite_mask(patch: Patch) -> None:
    for name in ("reference", "fused"):
        module = import_module(f"diet_fairseq.attention.backends.{name}")
        patch.setattr(module, "float", lambda text: -1e4, raising=False)


@instead_of(F, "scaled_dot_product_attention")
def keys_without_gradient(original, q, k, *rest, **options):
    return original(q, k.detach(), *rest, **options)


# --- what is added ---------------------------------------------------------------------------


@instead_of_scores
def no_layer_has_positions(original, self, layout):
    return None


@instead_of_scores
def the_decoder_has_no_positions(original, self, layout):
    return None if self.shape.causal else original(self, layout)


@instead_of_scores
def scores_without_gradient(original, *args):
    with torch.no_grad():
        return original(*args)


@instead_of(OffsetScores, "score")
def offsets_with_the_other_sign(original, self, layout):
    return ChangedOffsets(original(self, layout).line, change=lambda x: x.mT)


@instead_of(attention, "query_scale")
def content_that_keeps_the_whole_scale(original, schemes, head_dim):
    return head_dim**-0.5


def a_promise_of_factors(patch: Patch) -> None:
    patch.setattr(relative.T5, "kinds", frozenset({"factors"}))


@instead_of(DietAbs, "_select_rows")
def factors_of_another_rank(original, self, *args):
    return original(self, *args).relu()[..., 1:]


def the_control_has_positions(patch: Patch) -> None:
    patch.setattr(NoPositions, "input", "sinusoidal")


def no_length_is_refused(patch: Patch) -> None:
    for module in (encoder, decoder, attention):
        patch.setattr(module, "check_length", lambda layout, limit: None)


def sums_in_half_precision(patch: Patch) -> None:
    for module in (score_values, relative, linformer, encoder):
        patch.setattr(module, "look_up", F.embedding)
    patch.setattr(ScoreParameters, "amplify", lambda self, parameter: parameter * self.gain)
