"""Criterion ``masked_lm_nsp``: BERT's loss for masked tokens and for the next sentence."""

import math
from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from fairseq import utils
from fairseq.criterions import register_criterion
from fairseq.criterions.masked_lm import MaskedLmConfig, MaskedLmLoss
from fairseq.logging import metrics
from torch import Tensor

from ..errors import UserError


class _Recorder:
    """Calls the model, and records its second output."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.get_targets = model.get_targets
        self.extra: dict[str, Any] = {}

    def __call__(self, **net_input: Any) -> tuple[Tensor, dict[str, Any]]:
        logits, self.extra = self.model(**net_input)
        return logits, self.extra


@register_criterion("masked_lm_nsp", dataclass=MaskedLmConfig)
class MaskedLmNspLoss(MaskedLmLoss):
    """fairseq's ``masked_lm`` plus the cross entropy of the next sentence.

    As in BERT, the loss of a batch is the mean over masked tokens plus the mean over pairs. fairseq
    sums the losses and masked tokens of all processes and accumulated batches and divides once, so
    a batch's mean over pairs is multiplied by its number of masked tokens. In the result every
    masked token has the same weight, and the pairs of a batch are weighted by the batch's share of
    the masked tokens; these weights add up to one on any number of processes.

    Logged: ``mlm_loss`` and ``nsp_loss`` and their sum ``loss``, all to base 2 as in fairseq,
    ``ppl`` of the masked tokens, ``nsp_accuracy`` from 0 to 1.

    Raises `UserError` unless the batch has ``next_sentence`` (B,) (``--task masked_lm_nsp``) and
    the model returns ``nsp_logits`` (B, 2) (``bert_*`` with ``--nsp``).
    """

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, Tensor, dict[str, Any]]:
        if "next_sentence" not in sample:
            raise UserError("--criterion masked_lm_nsp needs --task masked_lm_nsp: give both")
        recorder = _Recorder(model)
        mlm_loss, sample_size, logging_output = super().forward(recorder, sample, reduce)
        logits, target = recorder.extra.get("nsp_logits"), sample["next_sentence"]  # (B, 2), (B,)
        if logits is None:
            raise UserError(
                "--criterion masked_lm_nsp needs a model that predicts the next sentence: use "
                "--arch bert_<scheme> and --nsp, or --task masked_lm and --criterion masked_lm"
            )
        nsp_loss = F.cross_entropy(logits.float(), target, reduction="sum")
        loss = mlm_loss + nsp_loss * sample_size / len(target)
        logging_output |= {
            "loss": loss.detach(),
            "mlm_loss": mlm_loss.detach(),
            "nsp_loss": nsp_loss.detach(),
            "nsp_right": (logits.argmax(dim=-1) == target).sum(),
        }
        return loss, sample_size, logging_output

    @staticmethod
    def reduce_metrics(logging_outputs: Sequence[dict[str, Any]]) -> None:
        """Aggregate the logging outputs of all processes."""

        def total(name: str) -> Any:
            return sum(log.get(name, 0) for log in logging_outputs)

        tokens, pairs = total("sample_size"), total("nsentences")
        for name, number in (("loss", tokens), ("mlm_loss", tokens), ("nsp_loss", pairs)):
            metrics.log_scalar(name, total(name) / number / math.log(2), number, round=3)
        metrics.log_scalar("nsp_accuracy", total("nsp_right") / pairs, pairs, round=3)
        metrics.log_derived("ppl", lambda meters: utils.get_perplexity(meters["mlm_loss"].avg))
