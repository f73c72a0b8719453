"""fairseq's training program, in whatever process and under whatever name it runs.

``fairseq-train`` and ``python -m fairseq_cli.train`` are two modules of the same text, which the
processes of a run on several GPUs import anew. What the program calls of its own module is
therefore changed where it is called, for as long as it runs.
"""

import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import wraps
from typing import Any

from fairseq.distributed import utils as distributed

from ..interrupts import interruptible
from . import limits, saving

#: what tells fairseq-train from fairseq's other commands
_CHANGED = "validate_and_save"


def trains(main: Callable) -> bool:
    """Whether this is the program of fairseq-train."""
    return _CHANGED in getattr(main, "__globals__", {})


@dataclass(frozen=True)
class Program:
    """``main`` with our changes; it can be sent to another process."""

    main: Callable

    def __call__(self, cfg: Any, **kwargs: Any) -> None:
        names = self.main.__globals__
        changed = {
            _CHANGED: saving.keeping_best(limits.patient(names[_CHANGED])),
            # where the model is built for fairscale; `sharding` shards it later
            "fsdp_enable_wrap": nullcontext,
        }
        originals = {name: names[name] for name in changed}
        names.update(changed)
        try:
            self.main(cfg, **kwargs)
        finally:
            names.update(originals)


def changed(call_main: Callable) -> Callable:
    @wraps(call_main)
    def wrapper(cfg: Any, main: Callable, **kwargs: Any) -> Any:
        return call_main(cfg, Program(main) if trains(main) else main, **kwargs)

    return wrapper


def alone(call_main: Callable) -> Callable:
    """Let one training at a time write to a folder; the processes of a run are one training."""

    @wraps(call_main)
    def wrapper(cfg: Any, main: Callable, **kwargs: Any) -> Any:
        if not trains(main) or cfg.checkpoint.no_save:
            return call_main(cfg, main, **kwargs)
        # Which of a run's processes this is, torchrun and Slurm say in the environment.
        distributed.infer_init_method(cfg.distributed_training)
        if not distributed.is_master(cfg.distributed_training):
            return call_main(cfg, main, **kwargs)
        with saving.alone_in(cfg.checkpoint.save_dir):
            return call_main(cfg, main, **kwargs)

    return wrapper


def how_to_go_on(checkpoint: Any) -> str:
    """How to continue an interrupted training, depending on what it has saved."""
    last = os.path.join(checkpoint.save_dir, saving.LAST)
    if not os.path.exists(last):
        return "there is no checkpoint yet: run the same command to start over"
    if checkpoint.restore_file != saving.LAST:
        return f"run the same command without --restore-file to resume from {last}"
    return f"run the same command to resume from {last}"


def interruptible_training(call_main: Callable) -> Callable:
    @wraps(call_main)
    def wrapper(cfg: Any, main: Callable, **kwargs: Any) -> Any:
        if not trains(main):
            return call_main(cfg, main, **kwargs)
        with interruptible(lambda: how_to_go_on(cfg.checkpoint)):
            return call_main(cfg, main, **kwargs)

    return wrapper
