"""fairseq-interactive with tensor2tensor's length penalty: ``--tensor2tensor-penalty ALPHA``.

fairseq divides a hypothesis's score by ``length ** alpha``, tensor2tensor by
``((5 + length) / 6) ** alpha`` (Wu et al. 2016, eq. 14); the end of the sentence counts in both.
Started as a program of its own, since fairseq-interactive can't be told of another penalty.
"""

import sys
from argparse import ArgumentParser
from typing import Any

from fairseq.tasks.fairseq_task import FairseqTask
from fairseq_cli.interactive import cli_main

FLAG = "--tensor2tensor-penalty"


class Tensor2TensorPenalty(float):
    """An alpha that makes of fairseq's ``length ** alpha`` tensor2tensor's penalty."""

    def __rpow__(self, length: int) -> float:  # type: ignore[override]
        return ((5 + length) / 6) ** float(self)


def main() -> None:
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(FLAG, type=Tensor2TensorPenalty)
    ours, sys.argv[1:] = parser.parse_known_args()
    build = FairseqTask.build_generator

    def build_generator(self: FairseqTask, *args: Any, **options: Any) -> Any:
        generator = build(self, *args, **options)
        if ours.tensor2tensor_penalty is not None:
            generator.len_penalty = ours.tensor2tensor_penalty
        return generator

    FairseqTask.build_generator = build_generator
    cli_main()


if __name__ == "__main__":
    main()
