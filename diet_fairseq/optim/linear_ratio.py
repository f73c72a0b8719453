"""``--lr-scheduler linear_ratio``: linear warm-up over a part of training, then linear decay."""

import math
from dataclasses import dataclass, field
from typing import Any

from fairseq.dataclass import FairseqDataclass
from fairseq.optim.lr_scheduler import FairseqLRScheduler, register_lr_scheduler
from omegaconf import II

from ..errors import UserError


@dataclass
class LinearRatioConfig(FairseqDataclass):
    """Options of the schedule."""

    warmup_ratio: float = field(
        default=0.06, metadata={"help": "fraction of all updates that are warm-up"}
    )
    end_learning_rate: float = field(
        default=0.0, metadata={"help": "learning rate after the last update"}
    )
    lr: list[float] = field(default=II("optimization.lr"))
    max_update: int = field(default=II("optimization.max_update"))
    max_epoch: int = field(default=II("optimization.max_epoch"))
    update_freq: list[int] = field(default=II("optimization.update_freq"))
    skip_remainder_batch: bool = field(default=II("optimization.skip_remainder_batch"))


@register_lr_scheduler("linear_ratio", dataclass=LinearRatioConfig)
class LinearRatio(FairseqLRScheduler):
    """The schedule of BERT's and RoBERTa's fine-tuning, with warm-up given as a ratio.

    It is fairseq's polynomial_decay, where ``--total-num-update`` is the number of updates after
    which training ends, by ``--max-update`` or ``--max-epoch``, and ``--warmup-updates`` is that
    number times ``--warmup-ratio``, rounded down as in fairseq's recipes for GLUE. A resumed run
    computes the number from its own options and data, so a larger ``--max-epoch`` changes it.

    With ``--max-epoch``, updates that fp16 skips are counted, so that the final rate is slightly
    above ``--end-learning-rate``.
    """

    def __init__(self, cfg: Any, optimizer: Any) -> None:
        super().__init__(cfg, optimizer)
        if not cfg.max_update and not cfg.max_epoch:
            raise UserError(
                "--lr-scheduler linear_ratio must know when training ends, but neither "
                "--max-update nor --max-epoch is given: give one"
            )
        if not 0 <= cfg.warmup_ratio < 1:
            raise UserError(
                f"--warmup-ratio must be from 0 to below 1, but is {cfg.warmup_ratio}: 0.06 is "
                "RoBERTa's"
            )
        #: number of updates; None until the trainer has set the number of batches per epoch
        self.total: int | None = cfg.max_update or None

    def learn_epoch_size(self, batches: int) -> None:
        """Compute the number of updates from --max-epoch, unless --max-update comes first."""
        if self.cfg.max_epoch:
            epochs = range(1, self.cfg.max_epoch + 1)
            total = sum(self._count_updates(epoch, batches) for epoch in epochs)
            self.total = min(total, self.cfg.max_update or total)

    def _count_updates(self, epoch: int, batches: int) -> int:
        every = self.cfg.update_freq[min(epoch, len(self.cfg.update_freq)) - 1]
        # fairseq drops the last batch, and then an update of fewer than `every` batches
        return (batches - 1) // every if self.cfg.skip_remainder_batch else -(-batches // every)

    def step_update(self, num_updates: int) -> float:
        if self.total is not None:
            self.optimizer.set_lr(self._compute_lr(num_updates, self.total))
        return self.optimizer.get_lr()

    def _compute_lr(self, update: int, total: int) -> float:
        lr, end = self.cfg.lr[0], self.cfg.end_learning_rate
        warmup = math.floor(round(self.cfg.warmup_ratio * total, 6))  # 0.29 * 100 is not quite 29
        if update < warmup:
            return lr * update / warmup
        return end + (lr - end) * max(total - update, 0) / (total - warmup)
