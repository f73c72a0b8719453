"""The state of incremental decoding: keys and values of earlier tokens and of the source."""

import torch
from torch import Tensor

# Notation: B sentences, K rows (hypotheses) each, H heads, T target tokens, S source tokens.


class KeysAndValues:
    """The keys and values of one attention, (B, H, Tk, d_h) each; initially empty."""

    def __init__(self) -> None:
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add the keys and values of new tokens, (B, H, new, d_h), and return all."""
        if (earlier := self.get_all()) is not None:
            keys = torch.cat([earlier[0], keys], dim=2)
            values = torch.cat([earlier[1], values], dim=2)
        self.keys, self.values = keys, values
        return keys, values

    def get_all(self) -> tuple[Tensor, Tensor] | None:
        """The stored keys and values; None: they are not stored yet."""
        if self.keys is None or self.values is None:
            return None
        return self.keys, self.values

    def select(self, rows: Tensor) -> None:
        """Keep the rows with these indices (int64), in this order."""
        if (stored := self.get_all()) is not None:
            self.keys, self.values = (part.index_select(0, rows) for part in stored)


class DecodingCache:
    """The keys and values of all attentions of a decoder, and the padding of the source.

    Rows are hypotheses. The source is stored once for the ``beams`` consecutive rows of each
    sentence.

    Attributes:
        target: layer -> keys and values of self-attention
        source: layer -> keys and values of cross-attention
        source_padding_mask: (sentences, S) bool, True at padding; None: no padding
        length: the number of tokens that have been decoded
        beams: the number of rows of each sentence that share a source
        sentences: the number of sentences, if ``beams`` is larger than 1
    """

    def __init__(self) -> None:
        self.target: dict[int, KeysAndValues] = {}
        self.source: dict[int, KeysAndValues] = {}
        self.source_padding_mask: Tensor | None = None
        self.length = 0
        self.beams, self.sentences = 1, 0

    def store(self, layer: int, is_cross: bool) -> KeysAndValues:
        """The keys and values of a layer's self-attention or cross-attention."""
        return (self.source if is_cross else self.target).setdefault(layer, KeysAndValues())

    def share_source(self, sentences: int, beams: int) -> None:
        """Store the source once for ``beams`` rows of each of ``sentences`` sentences."""
        self.sentences, self.beams = sentences, beams

    def reorder(self, order: Tensor) -> None:
        """Replace row i by row ``order[i]``; the number of rows may change."""
        for store in self.target.values():
            store.select(order)
        sentences = order
        if self.beams > 1:
            sentences = order[:: self.beams] // self.beams
            if len(sentences) == self.sentences:
                return  # no sentence has ended, and rows move only within their sentence
            self.sentences = len(sentences)
        for store in self.source.values():
            store.select(sentences)
        if self.source_padding_mask is not None:
            self.source_padding_mask = self.source_padding_mask.index_select(0, sentences)
