"""Faults in schemes of rows, and in those that read the logits."""

from dataclasses import replace
from types import SimpleNamespace

import torch

from diet_fairseq.attention import rows
from diet_fairseq.positions import deberta, transformer_xl
from diet_fairseq.positions.base import Projections
from diet_fairseq.positions.cope import Cope
from diet_fairseq.positions.deberta import Deberta
from diet_fairseq.positions.transformer_xl import TransformerXL
from tests.support.mutants.catching import instead_of

# --- Transformer-XL --------------------------------------------------------------------------


@instead_of(TransformerXL, "_scaled")
def biases_of_queries_without_their_scale(original, self, bias):
    return bias


@instead_of(TransformerXL, "query_rows")
def offsets_that_no_bias_meets(original, self, layout, project):
    return replace(original(self, layout, project), bias=None)


@instead_of(transformer_xl, "sinusoids")
def sinusoids_of_the_other_sign(original, positions, width):
    return original(-positions, width)


# --- DeBERTa ---------------------------------------------------------------------------------


@instead_of(Deberta, "key_rows")
def positions_that_meet_keys_as_keys(original, self, layout, project):
    return original(self, layout, Projections(project.key, project.key))


@instead_of(Deberta, "key_rows")
def keys_that_read_the_row_of_the_opposite_offset(original, self, layout, project):
    result = original(self, layout, project)
    return replace(result, index=result.index.mT)


@instead_of(Deberta, "_rows")
def positions_with_the_bias_of_words(original, self, layout, project):
    result = original(self, layout, project)
    nothing = torch.zeros(1, self.shape.embed_dim, dtype=self.table.dtype)
    return replace(result, rows=result.rows + project(nothing))


@instead_of(deberta, "rows_of_log_buckets")
def buckets_that_all_hold_one_offset(original, buckets, max_distance):
    offsets = range(-max_distance, max_distance + 1)
    return [min(max(buckets - offset, 0), 2 * buckets - 1) for offset in offsets]


@instead_of(rows, "gather_products")
def keys_that_all_read_the_first_row_in_decoding(original, x, vectors, index):
    return original(x, vectors, index if index.size(-1) > 1 else 0 * index)


# --- CoPE ------------------------------------------------------------------------------------


@instead_of(Cope, "content_score")
def gates_that_count_padding(original, self, logits, q, layout):
    return original(self, logits, q, replace(layout, padding_mask=None))


@instead_of(Cope, "content_score")
def later_keys_that_read_as_earlier_ones(original, self, logits, q, layout):
    before = self.embeddings[:, : self.length]
    alike = before if self.shape.causal else torch.cat([before, before], dim=1)
    blind = SimpleNamespace(shape=self.shape, length=self.length, embeddings=alike)
    return original(blind, logits, q, layout)
