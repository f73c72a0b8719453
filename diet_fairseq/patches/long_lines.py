"""fairseq-interactive: a line that is too long loses its own translation only."""

import logging
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import numpy as np
import torch
from fairseq.token_generation_constraints import pack_constraints

logger = logging.getLogger(__name__)


def _spared(make_batches: Callable) -> Callable:
    """Make batches of the lines that fit; the others are named, and their translation is empty.

    fairseq ends at a line that the model or ``--max-tokens`` has no room for, and all lines that
    were read with it are lost. (``--skip-invalid-size-inputs-valid-test``: no translation, not
    even an empty one.)
    """
    before = 0  # lines in the buffers that came earlier

    @wraps(make_batches)
    def wrapper(
        lines: list[str], cfg: Any, task: Any, max_positions: Any, encode_fn: Callable
    ) -> Iterator[Any]:
        nonlocal before
        constrained, most = cfg.generation.constraints, cfg.dataset.max_tokens
        texts = [line.split("\t")[0] for line in lines] if constrained else lines
        tokens, lengths = task.get_interactive_tokens_and_lengths(texts, encode_fn)
        dataset = task.build_dataset_for_inference(tokens, lengths)
        _, over = dataset.filter_indices_by_size(np.arange(len(lines)), max_positions)
        long = {int(number): f"the model takes {_source(max_positions)}" for number in over}
        for number in range(len(lines)):
            if most and dataset.num_tokens(number) > most:
                long.setdefault(number, f"--max-tokens is {most}")

        fit = torch.tensor([number for number in range(len(lines)) if number not in long])
        if len(fit):
            chosen = [lines[number] for number in fit]
            for batch in make_batches(chosen, cfg, task, max_positions, encode_fn):
                yield batch._replace(ids=fit[batch.ids])
        for number, limit in sorted(long.items()):
            size = dataset.num_tokens(number)
            place = before + number + 1
            logger.warning("line %d has %d tokens, but %s: not translated", place, size, limit)
            if cfg.dataset.skip_invalid_size_inputs_valid_test:
                continue
            # Whoever asked for the batch has it translated by the task before asking for another.
            translate = task.inference_step
            task.inference_step = lambda *_, **__: [[_nothing(task.target_dictionary.eos())]]
            try:
                yield make_batches.__globals__["Batch"](
                    ids=torch.tensor([number]),
                    src_tokens=tokens[number][None],  # (1, T)
                    src_lengths=torch.as_tensor(lengths[number])[None],
                    constraints=pack_constraints([[]]) if constrained else None,
                )
            finally:
                task.inference_step = translate
        before += len(lines)

    return wrapper


def _source(max_positions: Any) -> Any:
    return max_positions[0] if isinstance(max_positions, (list, tuple)) else max_positions


def _nothing(eos: int) -> dict[str, Any]:
    """An empty hypothesis."""
    return {
        "tokens": torch.tensor([eos]),
        "score": float("-inf"),
        "attention": None,
        "alignment": torch.empty(0, 2),
        "positional_scores": torch.tensor([float("-inf")]),
    }


def passing_over(call_main: Callable) -> Callable:
    """Change fairseq-interactive while it runs, under whatever name its module has.

    Started by ``python -m``, it is ``__main__``.
    """

    @wraps(call_main)
    def wrapper(cfg: Any, main: Callable, **kwargs: Any) -> Any:
        names = getattr(main, "__globals__", {})
        make_batches = names.get("make_batches")
        if make_batches is None:
            return call_main(cfg, main, **kwargs)
        names["make_batches"] = _spared(make_batches)
        try:
            return call_main(cfg, main, **kwargs)
        finally:
            names["make_batches"] = make_batches

    return wrapper
