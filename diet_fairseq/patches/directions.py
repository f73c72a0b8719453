"""Validation text of one direction of fairseq's task for several."""

from collections.abc import Callable
from typing import Any

from .patch import intercepts


@intercepts(
    "fairseq.tasks.translation_multi_simple_epoch:TranslationMultiSimpleEpochTask.load_dataset",
    plugin="--valid-subset can't name the text of one direction, whose loss stays unknown",
)
def load_direction(
    load: Callable[..., None],
    task: Any,
    split: str,
    epoch: int = 1,
    combine: bool = False,
    **options: Any,
) -> None:
    """Load a split such as valid.en-de, which is the part of valid in that direction."""
    subset, _, pair = split.partition(".")
    if pair not in task.lang_pairs:
        load(task, split, epoch=epoch, combine=combine, **options)
        return
    manager = task.data_manager
    manager.get_split_num_data_shards(subset)  # which it remembers, of all directions
    pairs, manager.lang_pairs = manager.lang_pairs, [pair]
    try:
        task.datasets[split] = manager.load_dataset(
            subset, task.training, epoch=epoch, combine=combine, **options
        )
    finally:
        manager.lang_pairs = pairs
