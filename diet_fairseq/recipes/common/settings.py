"""A run's folder keeps the settings that it was begun with, and is not resumed with others.

fairseq-train resumes from whatever is in its folder, even with another learning rate, and writes
over the best checkpoint that was there: one model would be compared with itself.
"""

import json
import os
from argparse import Namespace
from dataclasses import fields
from pathlib import Path
from typing import Any

from ...atomic import written
from ...config import PositionConfig, flag
from ...errors import UserError
from .json_files import kept
from .stages import digest_of

NAME = "settings.json"
#: among them, the digests of the data's dictionaries: their words are the rows of embeddings
DICTIONARIES = "dictionaries"
#: fields of fairseq's common and checkpoint options that change what is learnt, or what is kept
LEARNT = {
    *("seed", "bf16", "fp16", "memory_efficient_bf16", "memory_efficient_fp16", "amp"),
    *("finetune_from_model", "best_checkpoint_metric", "maximize_best_checkpoint_metric"),
}
#: how far to train, how often to look, and where from
FREE = {
    *("max_update", "max_epoch", "stop_time_hours", "data", "num_workers", "data_buffer_size"),
    *("validate_interval", "validate_interval_updates", "validate_after_updates"),
    *("disable_validation", "max_valid_steps", "max_tokens_valid", "batch_size_valid"),
}


def keep(run: Path, words: list[str]) -> None:
    """Save the settings of the fairseq-train command, or refuse ones that differ from the saved.

    Options for the machine, the log and the length of training may differ.

    :raises UserError: if the run was begun with others, and something would be lost.
    """
    # The first process of a run checks for all of them.
    if int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0"))):
        return
    path, wanted = run / NAME, settings_of(words)
    before = {}
    if path.exists():
        before = with_positions(kept(path, "remove it, or take --run NAME"))
    other = [name for name in wanted if name in before and before[name] != wanted[name]]
    if other and is_begun(run):
        was = " and ".join(
            f"{_option(name)} {_value(before[name])} (now {_value(wanted[name])})"
            for name in other[:3]
        )
        raise UserError(
            f"{run} was begun with {was}: give the same to resume it, or --run NAME to begin "
            "another"
        )
    if other or not before:
        run.mkdir(parents=True, exist_ok=True)
        with written(path) as file:
            file.write(json.dumps(wanted, indent=1) + "\n")


def settings_of(words: list[str]) -> dict[str, Any]:
    """Every option that affects what is learnt, as fairseq-train reads it: names with values.

    Of the data it has the dictionaries: with those of other subwords nothing learnt would fit.
    """
    from fairseq import options
    from fairseq.dataclass import configs

    args = options.parse_args_and_arch(options.get_training_parser(), words)
    groups = (configs.CommonConfig, configs.CheckpointConfig, configs.DistributedTrainingConfig)
    free = FREE | ({field.name for group in groups for field in fields(group)} - LEARNT)
    found = {name: value for name, value in vars(args).items() if name not in free}
    # The architecture first, from which others follow.
    found = {"arch": found.pop("arch"), **found}
    if dictionaries := sorted(Path(args.data).glob("dict*.txt")):
        found[DICTIONARIES] = [digest_of(path)[:16] for path in dictionaries]
    return json.loads(json.dumps(with_positions(found), default=str))


def with_positions(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with all position options in force; how attention is computed is none of them.

    fairseq leaves a model's options that aren't given out, and so did the files of older versions:
    one that is given later would find nothing to be compared with.
    """
    if settings.get("position_scheme") is None:  # fairseq's own model
        return settings
    config = PositionConfig.of(Namespace(**settings))
    options = dict(vars(config))
    del options["attention_backend"]
    if config.segment_scheme != "per-head":  # whose gain is another than the scheme's
        options["position_gain"] = config.gain
    return settings | options


def is_begun(run: Path) -> bool:
    """Whether the run has a checkpoint, or is about to write one."""
    from ...patches import saving

    try:
        with saving.lock(str(run)):
            return any(run.glob("checkpoint*.pt"))
    except UserError:
        return True


def _option(name: str) -> str:
    return "data whose dictionaries have digests" if name == DICTIONARIES else flag(name)


def _value(value: Any) -> str:
    """As it would be typed; ``left out``: the default depends on the model."""
    if value is None:
        return "left out"
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
