"""Faults in schemes of rows, and in those that read the logits."""

from dataclasses import replace
from types import SimpleNamespace

import torch

from diet_fairseq.positions.cope import Cope
from diet_fairseq.positions.deberta import Deberta
from tests.support.mutants.catching import instead_of

# --- DeBERTa ---------------------------------------------------------------------------------


@instead_of(Deberta, "key_rows")
def keys_that_read_the_row_of_the_opposite_offset(original, self, layout, project):
    result = original(self, layout, project)
    return replace(result, index=result.index.mT)


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
