"""Lines of the text files that fairseq-preprocess reads: only a newline ends them."""

import os
from collections.abc import Callable
from typing import Any

from .patch import intercepts, replaces

SHIFTED_PAIRS = "fairseq-preprocess ends lines at carriage returns, too: later pairs are shifted"


@intercepts("fairseq.file_chunker_utils:Chunker.__enter__", correctness=SHIFTED_PAIRS)
def open_lines(enter: Callable, self: Any) -> Any:
    lines = enter(self)
    self.fd.reconfigure(newline="\n")
    return lines


@replaces(
    "fairseq.binarizer:find_offsets",
    "fairseq.data.dictionary:find_offsets",
    correctness=SHIFTED_PAIRS,
)
def split_at_newlines(_: Callable) -> Callable[[str, int], list[int]]:
    def find_offsets(filename: str, num_chunks: int) -> list[int]:
        """Byte offsets of parts of a file that begin at the beginning of a line."""
        with open(filename, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            offsets = [0]
            for number in range(1, num_chunks):
                file.seek(size // num_chunks * number)
                file.readline()
                offsets.append(file.tell())
            return [*offsets, size]

    return find_offsets
