"""fairseq-interactive with tensor2tensor's length penalty: ``--tensor2tensor-penalty ALPHA``.

fairseq divides a hypothesis's score by ``length ** alpha``, tensor2tensor by
``((5 + length) / 6) ** alpha`` (Wu et al. 2016, eq. 14); the end of the sentence counts in both.
Started as a program of its own, since fairseq-interactive can't be told of another penalty.
"""

import sys
from argparse import ArgumentParser
from typing import Any

from fairseq.tasks.fairseq_task import FairseqTask

from ...inference.fairseq_engine import Tensor2TensorPenalty

FLAG = "--tensor2tensor-penalty"
#: how many sentences were just translated: fairseq prints none before its buffer is done
DONE = "translated "


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

    step = FairseqTask.inference_step

    def inference_step(self: FairseqTask, *args: Any, **options: Any) -> Any:
        found = step(self, *args, **options)
        print(f"{DONE}{len(found)}", flush=True)
        return found

    FairseqTask.build_generator = build_generator
    FairseqTask.inference_step = inference_step
    from fairseq_cli.interactive import cli_main  # takes over the log, wherever it is imported

    cli_main()


if __name__ == "__main__":
    main()
