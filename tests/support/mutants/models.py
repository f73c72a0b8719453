"""Faults in models: sharing, caching, packing, compression and starts."""

import copy
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from diet_fairseq.attention.compressed import Compression
from diet_fairseq.attention.packing import Packing
from diet_fairseq.config import PositionConfig
from diet_fairseq.models import adapters, diet_roberta, lengthening, warm_start
from diet_fairseq.models.adapters import PositionalEncoder
from diet_fairseq.models.diet_electra import DietElectraModel, Generator
from diet_fairseq.models.diet_transformer import DietTransformerModel
from diet_fairseq.patches import beam_search
from diet_fairseq.patches.beam_search import QuickBeamSearch
from diet_fairseq.positions.diet_abs import DietAbs
from diet_fairseq.positions.input import NoPositions
from diet_fairseq.positions.layout import Layout
from diet_fairseq.positions.relative import OffsetScalars
from diet_fairseq.positions.tupe import TupeA
from diet_fairseq.transformer import (
    DecodingCache,
    PositionalAttention,
    StackConfig,
    attention,
    layer,
    scheme_change,
)
from diet_fairseq.transformer.stack import Stack
from tests.support.mutants.catching import Patch, instead_of, instead_of_scores

# --- where parameters live -------------------------------------------------------------------


def a_table_for_every_layer_by_accident(patch: Patch) -> None:
    patch.setattr(StackConfig, "shares_schemes", False)


@instead_of(PositionalAttention, "create_context")
def every_layer_computes_what_all_share(original, *arguments, **options):
    return replace(original(*arguments, **options), scores=None)


def a_pooler_that_is_trained_for_nothing(patch: Patch) -> None:
    patch.setattr(torch.nn.Module, "requires_grad_", lambda self, *_: self)


def dropout_drawn_anew(patch: Patch) -> None:
    """Recomputed activations drop other elements."""
    patch.setattr(torch, "set_rng_state", lambda state: None)


def fairseqs_activation_checkpointing(patch: Patch) -> None:
    """A backward pass of its own for every layer."""

    def reentrant(function: Any, *args: Any, use_reentrant: bool, **options: Any) -> Any:
        return checkpoint(partial(function, **options), *args, use_reentrant=True)

    patch.setattr(layer, "checkpoint", reentrant)


@instead_of(OffsetScalars, "_save_to_state_dict")
def a_table_that_is_not_saved(original, self, destination, prefix, keep_vars):
    destination[prefix + "weight"] = torch.zeros_like(self.weight)


@instead_of(PositionConfig, "write_to")
def options_that_are_not_written_down(original, self, args):
    pass


@instead_of(DecodingCache, "reorder")
def keys_that_are_not_reordered(original, self, order):
    pass


@instead_of(Stack, "active_layers")
def tables_numbered_by_the_layers_that_are_kept(original, self):
    tables = [part.self_attn.positions for part in self.layers]
    for table, (index, part) in zip(tables, original(self), strict=False):
        moved = copy.copy(part)
        moved._modules = {**part._modules, "self_attn": copy.copy(part.self_attn)}
        moved.self_attn._modules = {**part.self_attn._modules, "positions": table}
        yield index, moved


@instead_of(DietTransformerModel, "build_model")
def embeddings_that_are_not_tied(original, args, task):
    args.share_all_embeddings = False
    return original(args, task)


# --- what is remembered ----------------------------------------------------------------------


known: dict[Any, Any] = {}


@instead_of_scores
def terms_remembered_until_a_change_is_counted(original, self, layout):
    """Terms are cached at inference as long as PyTorch counts no change of parameters."""
    versions = tuple((p.data_ptr(), p._version, p.dtype) for p in self.parameters())
    key = layout.query_positions.size(1), layout.key_positions.size(1), versions
    if torch.is_grad_enabled() or key not in known:
        known[key] = self, original(self, layout)
    return known[key][1]


# --- translating -----------------------------------------------------------------------------


@instead_of(QuickBeamSearch, "_finish")
def scores_that_forget_the_past(original, self, tokens, scores, totals, attention):
    return original(self, tokens, scores, totals - scores.sum(dim=1), attention)


@instead_of(DecodingCache, "reorder")
def a_source_that_stays_when_sentences_end(original, self, order):
    if self.beams == 1:  # fairseq's search
        return original(self, order)
    source, mask = self.source, self.source_padding_mask
    self.source, self.source_padding_mask = {}, None
    original(self, order)
    rows = range(len(order) // self.beams)
    for store in source.values():
        store.select(torch.tensor(rows))
    self.source, self.source_padding_mask = source, None if mask is None else mask[: len(rows)]
    return None


@instead_of(beam_search, "has_standard_output")
def every_model_has_standard_output(original, model):
    return True


# --- attention -------------------------------------------------------------------------------


@instead_of(PositionalAttention, "create_context")
def a_second_decision(original, self, *args, **options):
    """Shared scores go by the dropout of training, layers by that of the moment."""
    training = self.training
    result = original(self.train(), *args, **options)
    now = original(self.train(training), *args, **options)
    return replace(result, backend=now.backend)


# --- packed tokens ---------------------------------------------------------------------------


@instead_of(Packing, "unpack")
def tokens_unpacked_to_the_front(original, self, x):
    return original(replace(self, slots=torch.arange(len(self.slots))), x)


def padding_that_no_query_sees(patch: Patch) -> None:
    patch.setattr(Layout, "hidden", property(lambda self: self.padding_mask))


# --- compressed keys -------------------------------------------------------------------------


@instead_of(attention, "zero_padding")
def padding_is_compressed(original, x, layout):
    return x


@instead_of(Compression, "forward")
def an_average_of_all_tokens(original, self, x, layout):
    result = original(self, x, layout)
    return result + x.mean(dim=0)


@instead_of(Compression, "forward")
def compression_without_gradient(original, self, x, layout):
    with torch.no_grad():
        return original(self, x, layout)


@instead_of(layer, "build_attention")
def values_are_compressed_as_keys(original, *args):
    result = original(*args)
    result.compress_v = result.compress_k
    return result


@instead_of(PositionalAttention, "_keys_and_values")
def keys_that_are_not_compressed(original, self, x, context):
    return x, x, context


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


def content_that_keeps_its_scale(patch: Patch) -> None:
    patch.setattr(scheme_change, "PositionalAttention", NoPositions)


@instead_of(warm_start, "list_differences")
def positions_compared_by_shapes_alone(original, old, new):
    return []


def positions_that_keep_their_scale(patch: Patch) -> None:
    patch.setattr(TupeA, "scaled_projections", ())


# --- more positions than the checkpoint has ---------------------------------------------------


@instead_of(lengthening, "continue_table")
def tables_that_begin_anew(original, table, count, axis, first):
    result = original(table, count, axis, first)
    fresh = torch.randn_like(result)
    return torch.cat(
        [table, fresh.narrow(axis, table.size(axis), count)], axis
    )  # as if the model's own rows stayed


@instead_of(lengthening, "change_reach")
def offsets_that_begin_anew(original, table, reach, axis):
    result = original(table, reach, axis)
    outer = result.size(axis) // 2 - table.size(axis) // 2
    return torch.cat([torch.zeros_like(result.narrow(axis, 0, outer)),
                      result.narrow(axis, outer, result.size(axis) - outer)], axis)  # fmt: skip


# --- fairseq's arguments, results and checkpoints ---------------------------------------------


def a_state_reordered_by_every_layer(patch: Patch) -> None:
    reorder = adapters.PositionalDecoder.reorder_incremental_state

    def reorder_again(self: Any, state: Any, order: Any) -> None:
        reorder(self, state, order)
        reorder(self, state, torch.arange(len(order)))

    patch.setattr(adapters.PositionalDecoder, "reorder_incremental_state", reorder_again)


@instead_of(adapters.FairseqStack, "upgrade_layers")
def projections_split_in_another_order(original, self, state, name, norms):
    for key in [key for key in state if ".in_proj_" in key]:
        state[key] = state[key].roll(len(state[key]) // 3, 0)
    original(self, state, name, norms)


# --- ELECTRA ---------------------------------------------------------------------------------


@instead_of(DietElectraModel, "forward")
def all_targets_count_as_replaced(original, self, src_tokens, *rest, targets=None, **options):
    logits, extra = original(self, src_tokens, *rest, targets=targets, **options)
    if targets is not None:
        extra["replaced"] = targets.ne(self.encoder.dictionary.pad())
    return logits, extra


@instead_of(Generator, "forward")
def logits_of_every_token(original, self, tokens, is_target, segments):
    return original(self, tokens, torch.ones_like(is_target), segments)[is_target.flatten()]


def a_sample_with_a_gradient(patch: Patch) -> None:
    original = DietElectraModel.forward

    def forward(self, src_tokens, targets=None, **options):
        logits, extra = original(self, src_tokens, targets=targets, **options)
        if targets is None:
            return logits, extra
        # the discriminator's logits move with what the generator gave
        likely = F.softmax(extra["generator_logits"], dim=-1).amax(-1).sum()
        return logits + likely, extra

    patch.setattr(DietElectraModel, "forward", forward)
