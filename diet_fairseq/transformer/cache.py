"""The state of incremental decoding: keys and values of earlier tokens and of the source."""

import torch
from torch import Tensor

from ..errors import UserError

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
        sentences_of_rows: (rows,) int64, the sentence of each row, if ``beams`` is larger than 1
    """

    def __init__(self) -> None:
        self.target: dict[int, KeysAndValues] = {}
        self.source: dict[int, KeysAndValues] = {}
        self.source_padding_mask: Tensor | None = None
        self.length = 0
        self.beams = 1
        self.sentences_of_rows = torch.empty(0, dtype=torch.int64)

    def store(self, layer: int, is_cross: bool) -> KeysAndValues:
        """The keys and values of a layer's self-attention or cross-attention."""
        return (self.source if is_cross else self.target).setdefault(layer, KeysAndValues())

    def share_source(self, sentences: int, beams: int) -> None:
        """Replace each of ``sentences`` rows by ``beams`` rows, which share their source.

        From then on the decoder needs one new token at a time, and no scheme in cross-attention.
        """
        device = next((s.keys.device for s in self.target.values() if s.keys is not None), None)
        rows = torch.arange(sentences, device=device).repeat_interleave(beams)
        for store in self.target.values():
            store.select(rows)
        self.sentences_of_rows, self.beams = rows, beams

    def reorder(self, order: Tensor) -> None:
        """Replace row i by row ``order[i]``; the number of rows may change.

        Raises:
            UserError: rows that share a source do not stay together
        """
        sentences: Tensor | None = order
        if self.beams > 1:
            sentences = self._reorder_sentences(order)
        for store in self.target.values():
            store.select(order)
        if sentences is None:
            return
        for store in self.source.values():
            store.select(sentences)
        if self.source_padding_mask is not None:
            self.source_padding_mask = self.source_padding_mask.index_select(0, sentences)

    def _reorder_sentences(self, order: Tensor) -> Tensor | None:
        """The order of the sentences; None if rows move only within their sentence."""
        sentences_of_rows = order // self.beams
        # one comparison in the usual case, because each waits for the device
        if torch.equal(sentences_of_rows, self.sentences_of_rows):
            return None
        sentences = sentences_of_rows[:: self.beams]
        if not torch.equal(sentences.repeat_interleave(self.beams), sentences_of_rows):
            raise UserError(
                f"the {self.beams} rows of a sentence, which share its source, must stay together, "
                f"but the order is {order.tolist()}: reorder whole sentences, or leave out "
                "share_source"
            )
        self.sentences_of_rows = self.sentences_of_rows[: len(order)]
        return sentences
