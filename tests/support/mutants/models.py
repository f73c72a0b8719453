"""Faults in models: sharing, caching, packing, compression and starts."""

import copy
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from fairseq.modules import LayerDropModuleList
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from torch.utils.checkpoint import checkpoint

from diet_fairseq.attention.compressed import Compression
from diet_fairseq.attention.packing import Packing
from diet_fairseq.config import PositionConfig
from diet_fairseq.models import diet_roberta
from diet_fairseq.models.diet_transformer import DietTransformerModel
from diet_fairseq.patches import beam_search
from diet_fairseq.patches.beam_search import QuickBeamSearch
from diet_fairseq.positions.diet_abs import DietAbs, DietAbsLin
from diet_fairseq.positions.input import NoPositions
from diet_fairseq.positions.layout import Layout
from diet_fairseq.positions.relative import OffsetScalars
from diet_fairseq.positions.scores import Factors
from diet_fairseq.positions.tupe import TupeA
from diet_fairseq.stack import attention, forward_context, lengthening, warm_start
from diet_fairseq.stack.attention import LinformerAttention, PositionalAttention
from diet_fairseq.stack.encoder import PositionalEncoder
from diet_fairseq.stack.placement import Placement
from tests.support.mutants.catching import Patch, instead_of, instead_of_scores

# --- where parameters live -------------------------------------------------------------------


def one_table_for_all_layers_by_accident(patch: Patch) -> None:
    tables: dict[Any, Any] = {}
    build = Placement.build_for_layer

    def build_for_layer(self: Placement, index: int) -> Any:
        return tables.setdefault(self.shape, build(self, index))

    patch.setattr(Placement, "build_for_layer", build_for_layer)


def a_table_for_every_layer_by_accident(patch: Patch) -> None:
    patch.setattr(Placement, "build_shared", lambda self: {})
    build = PositionConfig.build
    patch.setattr(
        Placement, "build_for_layer", lambda self, _: build(self.config, self.shape, None)
    )


@instead_of(forward_context, "create_context")
def every_layer_computes_what_all_share(original, *arguments, **options):
    return replace(original(*arguments, **options), scores=None)


def a_pooler_that_is_trained_for_nothing(patch: Patch) -> None:
    patch.setattr(torch.nn.Module, "requires_grad_", lambda self, *_: self)


def dropout_drawn_anew(patch: Patch) -> None:
    """Recomputed activations drop other elements."""
    patch.setattr(forward_context, "checkpoint", partial(checkpoint, preserve_rng_state=False))


def fairseqs_activation_checkpointing(patch: Patch) -> None:
    """A backward pass of its own for every layer."""

    def wrap_layer(layer: Any, cfg: Any) -> Any:
        return checkpoint_wrapper(layer) if cfg.checkpoint_activations else layer

    patch.setattr(forward_context, "wrap_layer", wrap_layer)


@instead_of(OffsetScalars, "_save_to_state_dict")
def a_table_that_is_not_saved(original, self, destination, prefix, keep_vars):
    destination[prefix + "weight"] = torch.zeros_like(self.weight)


@instead_of(PositionConfig, "write_to")
def options_that_are_not_written_down(original, self, args):
    pass


@instead_of(PositionalAttention, "reorder_incremental_state")
def keys_that_are_not_reordered(original, self, incremental_state, new_order):
    pass


@instead_of(LayerDropModuleList, "__iter__")
def tables_numbered_by_the_layers_that_are_kept(original, self):
    tables = [self[index].self_attn.positions for index in range(len(self))]
    for table, layer in zip(tables, original(self), strict=False):
        moved = copy.copy(layer)
        moved._modules = {**layer._modules, "self_attn": copy.copy(layer.self_attn)}
        moved.self_attn._modules = {**layer.self_attn._modules, "positions": table}
        yield moved


@instead_of(DietTransformerModel, "build_model")
def embeddings_that_are_not_tied(original, args, task):
    args.share_all_embeddings = False
    return original(args, task)


# --- what is remembered ----------------------------------------------------------------------


@instead_of(Layout, "of_self_attention")
def a_length_that_counts_padding(original, padding_mask, causal=False, queries=None, segments=None):
    result = original(padding_mask, causal, queries, segments)
    return result if queries else replace(result, length=padding_mask.size(1))


known: dict[Any, Any] = {}


@instead_of_scores
def terms_remembered_until_a_change_is_counted(original, schemes, layout, typed=None):
    """Terms are cached at inference as long as PyTorch counts no change of parameters."""
    parameters = [parameter for scheme in schemes for parameter in scheme.parameters()]
    versions = tuple((p.data_ptr(), p._version, p.dtype) for p in parameters)
    key = layout.query_positions.size(1), layout.key_positions.size(1), typed, versions
    if torch.is_grad_enabled() or key not in known:
        known[key] = schemes, original(schemes, layout, typed)
    return known[key][1]


# --- translating -----------------------------------------------------------------------------


@instead_of(QuickBeamSearch, "_finish")
def scores_that_forget_the_past(original, self, tokens, scores, totals, attention):
    return original(self, tokens, scores, totals - scores.sum(dim=1), attention)


@instead_of(PositionalAttention, "reorder_incremental_state")
def keys_of_other_hypotheses(original, self, incremental_state, new_order):
    return original(self, incremental_state, new_order.flip(0))


@instead_of(beam_search, "largest")
def hypotheses_without_a_past(original, gains, past, number):
    return original(gains, torch.zeros_like(past), number)


@instead_of(beam_search, "has_standard_output")
def every_model_has_standard_output(original, model):
    return True


@instead_of(beam_search, "_keys_of_sentences")
@contextmanager
def beams_from_the_first_step_on(original, decoder):
    with original(decoder) as serve:
        serve(3)
        yield serve


@instead_of(beam_search, "_keys_of_sentences")
@contextmanager
def beams_that_are_not_given_back(original, decoder):
    with original(decoder) as serve:
        yield serve
    serve(1)


# --- attention -------------------------------------------------------------------------------


@instead_of(forward_context, "create_context")
def a_second_decision(original, of, layout, shared, batch, *rest, **options):
    """Shared scores go by the dropout of training, layers by that of the moment."""
    training = of.training
    result = original(of.train(), layout, shared, batch, *rest, **options)
    now = original(of.train(training), layout, shared, batch, *rest, **options)
    return replace(result, backend=now.backend)


# --- packed tokens ---------------------------------------------------------------------------


@instead_of(Packing, "unpack")
def tokens_unpacked_to_the_front(original, self, x):
    return original(replace(self, slots=torch.arange(len(self.slots))), x)


@instead_of(Packing, "pack")
def tokens_packed_without_gradient(original, self, x):
    return original(self, x).detach()


def padding_that_no_query_sees(patch: Patch) -> None:
    patch.setattr(Layout, "hidden", property(lambda self: self.padding_mask))


# --- compressed keys -------------------------------------------------------------------------


@instead_of(attention, "without_padding")
def padding_is_compressed(original, x, layout):
    return x


@instead_of(Compression, "forward")
def tokens_are_compressed_by_their_slots(original, self, x, layout):
    slots = torch.arange(len(x)).unsqueeze(0)
    return original(self, x, replace(layout, key_positions=slots))


@instead_of(Compression, "forward")
def an_average_of_all_tokens(original, self, x, layout):
    result = original(self, x, layout)
    return result + x.mean(dim=0)


@instead_of(Compression, "forward")
def compression_without_gradient(original, self, x, layout):
    with torch.no_grad():
        return original(self, x, layout)


@instead_of(Placement, "_build_compressions")
def values_are_compressed_as_keys(original, self):
    result = original(self)
    return result | {"compress_v": result["compress_k"]}


@instead_of(LinformerAttention, "forward")
def keys_that_are_not_compressed(original, self, *args, **options):
    return PositionalAttention.forward(self, *args, **options)


@instead_of(DietAbsLin, "score")
def positions_of_the_token_before(original, self, layout):
    score = original(self, layout)
    return Factors(score.query.roll(1, dims=2), score.key)


@instead_of(DietAbs, "zero")
def a_start_with_random_products(original, self):
    pass


# --- encoders --------------------------------------------------------------------------------


@instead_of(PositionalEncoder, "forward")
def segments_that_get_lost(original, self, *args, segments=None, **options):
    return original(self, *args, **options)


@instead_of(diet_roberta, "first_tokens")
def heads_that_read_column_0(original, features, padding_mask):
    return features[:, 0]


@instead_of(TupeA, "zero")
def a_start_with_random_positions(original, self):
    pass


def a_start_with_random_rows_at_the_input(patch: Patch) -> None:
    # in this file alone: whatever is built needs PyTorch's zeros
    init = SimpleNamespace(zeros_=lambda parameter: parameter)
    patch.setattr(warm_start, "nn", SimpleNamespace(init=init))


def content_that_keeps_its_scale(patch: Patch) -> None:
    patch.setattr(warm_start, "MultiheadAttention", NoPositions)


@instead_of(warm_start, "differences")
def positions_compared_by_shapes_alone(original, old, new):
    return []


def positions_that_keep_their_scale(patch: Patch) -> None:
    patch.setattr(TupeA, "scaled", ())


# --- more positions than the checkpoint has ---------------------------------------------------


@instead_of(lengthening, "continue_table")
def tables_that_begin_anew(original, table, count, axis, first):
    result = original(table, count, axis, first)
    fresh = torch.randn_like(result)
    return torch.cat(
        [table, fresh.narrow(axis, table.size(axis), count)], axis
    )  # as if the model's own rows stayed


@instead_of(lengthening, "continue_table")
def tables_that_are_stretched(original, table, count, axis, first):
    size = table.size(axis)
    rows = torch.arange(size + count) * size // (size + count)
    return table.index_select(axis, rows)


@instead_of(lengthening, "change_reach")
def offsets_that_begin_anew(original, table, reach, axis):
    result = original(table, reach, axis)
    outer = result.size(axis) // 2 - table.size(axis) // 2
    return torch.cat([torch.zeros_like(result.narrow(axis, 0, outer)),
                      result.narrow(axis, outer, result.size(axis) - outer)], axis)  # fmt: skip
