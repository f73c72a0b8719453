"""Samples of one text or a pair, as a sentence encoder reads them."""

import numpy as np
import torch
from fairseq.data import FairseqDataset
from torch import Tensor

from ..errors import UserError
from .sentence_pairs import SPECIAL


class Texts(FairseqDataset):
    """``<s> A </s>``, or ``<s> A </s> B </s>``, optionally with a separator before B.

    The inputs are datasets of lines as fairseq-preprocess writes them: each ends in ``</s>``. A
    sample longer than ``longest`` is shortened as in BERT's code: first the longer of the two texts
    is cut at its end, then both in turn; every ``</s>`` stays.

    Raises `UserError` if there are no texts, or different numbers of first and second texts.
    """

    def __init__(
        self,
        one: FairseqDataset,
        other: FairseqDataset | None = None,
        *,
        bos: int,
        longest: int,
        separator: int | None = None,
        name: str = "the data",
    ) -> None:
        super().__init__()
        special, texts = 2, 1
        if other is not None:
            special, texts = SPECIAL + (separator is not None), 2
        if longest < special + texts:
            some = "two texts" if texts > 1 else "a text"
            raise UserError(
                f"--max-length {longest} has no room for {some}: take {special + texts} or more"
            )
        if not len(one):
            raise UserError(f"{name} is empty: prepare it from a file that holds examples")
        if other is not None and len(one) != len(other):
            raise UserError(
                f"{name} has {len(one):,} first texts and {len(other):,} second ones: prepare it "
                "again"
            )
        self.one, self.other = one, other
        self.before = [bos], [] if separator is None else [separator]
        own = np.asarray(one.sizes, dtype=np.int64) - 1  # without </s>
        others = np.zeros_like(own)
        if other is not None:
            others = np.asarray(other.sizes, dtype=np.int64) - 1
        room = longest - special
        # The longer one is cut until the sample fits, but not to less than one half.
        keep = np.minimum(own, np.maximum(room - others, (room + 1) // 2))
        #: (N, 2): how many tokens of each text are kept, without </s>
        self.kept = np.stack([keep, np.minimum(others, room - keep)], axis=1)
        #: the number of samples that were shortened
        self.shortened = int((self.kept.sum(axis=1) < own + others).sum())
        self.sizes = self.kept.sum(axis=1) + special

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, index: int) -> Tensor:
        """(T,) int64."""
        return torch.cat(self._sides(index))

    def segments(self, index: int) -> Tensor:
        """(T,) int64: 0 for ``<s> A </s>``, 1 for ``B </s>``."""
        sides = self._sides(index)
        return torch.cat([torch.full_like(side, number) for number, side in enumerate(sides)])

    def _sides(self, index: int) -> list[Tensor]:
        sides = []
        for lines, before, kept in zip(
            (self.one, self.other), self.before, self.kept[index], strict=True
        ):
            if lines is not None:
                line = lines[index]
                text = torch.cat([line[:kept], line[-1:]])
                sides.append(torch.cat([text.new_tensor(before), text]))
        return sides

    def size(self, index: int) -> int:
        return int(self.sizes[index])

    num_tokens = size
