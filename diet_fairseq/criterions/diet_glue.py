"""Criterion ``glue``: classification or regression loss, and GLUE's metrics over a whole set."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.criterions import FairseqCriterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from torch import Tensor

from ..data.metrics import chosen, percent
from ..errors import UserError
from ..registration import register_criterion
from ..tasks.diet_glue import labels_of


@dataclass
class GlueCriterionConfig(FairseqDataclass):
    classification_head_name: str = field(
        default="sentence_classification_head", metadata={"help": "the head that predicts"}
    )
    regression_target: bool = field(
        default=False, metadata={"help": "predict a number instead of a class"}
    )
    metrics: str = field(
        default="",
        metadata={
            "help": "separated by commas; classification: accuracy, f1, matthews; regression: "
            "pearson, spearman (default: accuracy, or both for regression)"
        },
    )
    positive_label: str = field(default="1", metadata={"help": "the label whose f1 is computed"})


@register_criterion("glue", dataclass=GlueCriterionConfig)
class GlueLoss(FairseqCriterion):
    """Cross entropy or squared error, and the metrics that ``--metrics`` names.

    Metrics are of the whole set, as F1 and correlations are not means over batches. Every process
    sends its predictions (B,) and targets (B,) to all others. fairseq's ``sentence_prediction``
    collects them within one process only, and needs labels that are numbers.

    Logged: ``loss``, divided by log 2 as everywhere in fairseq, and each metric in percent.
    """

    def __init__(self, cfg: GlueCriterionConfig, task: Any) -> None:
        super().__init__(task)
        self.head, self.regression = cfg.classification_head_name, cfg.regression_target
        names = [] if self.regression else labels_of(task.label_dictionary)
        positive = cfg.positive_label
        self.positive = names.index(positive) if positive in names else None
        self.metrics = chosen(cfg.metrics, self.regression, self.positive)

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """The loss summed over the batch, the batch size, and the logging output."""
        if self.head not in getattr(model, "classification_heads", {}):
            raise UserError(
                f"the model has no head {self.head}: take --task glue and --arch bert_<scheme>, "
                "roberta_<scheme> or roberta"
            )
        if "target" not in sample:
            raise UserError(
                "the data has no labels: take a split with labels, or `diet-fairseq encoder "
                "predict`"
            )
        logits, _ = model(
            **sample["net_input"], features_only=True, classification_head_name=self.head
        )  # (B, C)
        target = sample["target"].view(-1)  # (B,)
        if self.regression:
            found = logits.view(-1).float()
            loss = F.mse_loss(found, target.float(), reduction="sum")
        else:
            found = logits.argmax(dim=-1)
            loss = F.cross_entropy(logits.float(), target, reduction="sum")
        log = {
            "loss": loss.detach(),
            "ntokens": sample["ntokens"],
            "nsentences": len(target),
            "sample_size": len(target),
        }
        if not model.training:
            log |= {"found": found.detach().cpu().numpy(), "target": target.cpu().numpy()}
            log |= {"metrics": self.metrics, "positive": self.positive}
        return loss, len(target), log

    @staticmethod
    def reduce_metrics(logging_outputs: Sequence[dict[str, Any]]) -> None:
        """Aggregate the logging outputs of all processes."""
        size = sum(log.get("sample_size", 0) for log in logging_outputs)
        loss = sum(log.get("loss", 0) for log in logging_outputs)
        evaluated = [log for log in logging_outputs if "metrics" in log]
        metrics.log_scalar("loss", float(loss) / size / math.log(2), size, round=4)
        for log in evaluated:
            for name in ("found", "target"):
                metrics.log_concat_tensor(f"_{name}", torch.from_numpy(log[name]))  # "_": not shown
        for name in evaluated[0]["metrics"] if evaluated else ():
            metrics.log_derived(name, partial(_of_all, name, evaluated[0]["positive"]))

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """False: predictions are concatenated."""
        return False


def _of_all(name: str, positive: int | None, meters: Any) -> float:
    return percent(name, meters["_target"].tensor, meters["_found"].tensor, positive)
