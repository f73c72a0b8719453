"""Criterion ``question_answering``: beginnings and ends of answers; F1 and exact match."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from fairseq.criterions import FairseqCriterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from torch import Tensor

from ..data import answers
from ..data.questions import best_answers, leading
from ..errors import UserError
from ..registration import register_criterion
from ..tasks.diet_question_answering import HEAD

METRICS = ("f1", "exact_match")


@dataclass
class QuestionAnsweringCriterionConfig(FairseqDataclass):
    max_answer_length: int = field(default=30, metadata={"help": "tokens of an answer found"})


@register_criterion("question_answering", dataclass=QuestionAnsweringCriterionConfig)
class QuestionAnsweringLoss(FairseqCriterion):
    """Mean of the cross entropies of an answer's first and last token (Devlin et al. 2019).

    Both are over all tokens of a sample but padding. Validation logs ``f1`` and ``exact_match`` in
    percent, over all questions of the set: a question's answer is the best of all its windows,
    whichever process has them.

    Logged: ``loss``, divided by log 2 as everywhere in fairseq, and the metrics.
    """

    def __init__(self, cfg: QuestionAnsweringCriterionConfig, task: Any) -> None:
        super().__init__(task)
        if cfg.max_answer_length < 1:
            raise UserError(f"--max-answer-length {cfg.max_answer_length}: take 1 or more")
        self.longest = cfg.max_answer_length
        self.pad = task.source_dictionary.pad()

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """The loss summed over the batch, the batch size, and the logging output."""
        if HEAD not in getattr(model, "classification_heads", {}):
            raise UserError(
                "the model has no head for answers: take --task question_answering and --arch "
                "bert_<scheme>, roberta_<scheme> or roberta"
            )
        if "target" not in sample:
            raise UserError(
                "the data has no answers: take a split with answers, or `diet-fairseq encoder "
                "predict`"
            )
        tokens = sample["net_input"]["src_tokens"]  # (B, T)
        logits, _ = model(
            **sample["net_input"], features_only=True, classification_head_name=HEAD
        )  # (B, T, 2)
        scores = logits.float().masked_fill(tokens.eq(self.pad)[..., None], -torch.inf)
        target = sample["target"] + leading(tokens, self.pad)[:, None]  # (B, 2)
        loss = F.cross_entropy(scores, target, reduction="sum") / 2
        log = {
            "loss": loss.detach(),
            "ntokens": sample["ntokens"],
            "nsentences": len(target),
            "sample_size": len(target),
        }
        if not model.training:
            log["answers"] = self._scored(logits.detach(), sample)
        return loss, len(target), log

    def _scored(self, logits: Tensor, sample: dict[str, Any]) -> np.ndarray:
        """(B, 4): of each window its question, the score of its best answer, and its `METRICS`."""
        rows = []
        found = best_answers(logits, sample, self.pad, count=1, longest=self.longest)
        for question, window, best in zip(
            sample["questions"], sample["windows"], found, strict=True
        ):
            if not best:  # no token is the window's own, or no score is a number
                rows.append((window.question, -np.inf, *(0.0 for _ in METRICS)))
                continue
            text = question.context.between(best[0].first, best[0].last)
            right = [one for one, _ in question.answers]
            rules = answers.rules_of(question.context.rules)
            values = (getattr(answers, name)(text, right, rules) for name in METRICS)
            rows.append((window.question, best[0].score, *values))
        return np.array(rows, dtype=np.float64).reshape(-1, 2 + len(METRICS))

    @staticmethod
    def reduce_metrics(logging_outputs: Sequence[dict[str, Any]]) -> None:
        """Aggregate the logging outputs of all processes."""
        size = sum(log.get("sample_size", 0) for log in logging_outputs)
        loss = sum(log.get("loss", 0) for log in logging_outputs)
        metrics.log_scalar("loss", float(loss) / size / math.log(2), size, round=4)
        evaluated = [log["answers"] for log in logging_outputs if "answers" in log]
        for one in evaluated:
            metrics.log_concat_tensor("_answers", torch.from_numpy(one))  # "_": not shown
        for number, name in enumerate(METRICS if evaluated else ()):
            metrics.log_derived(name, partial(of_all_questions, 2 + number))

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """False: answers are concatenated."""
        return False


def of_all_questions(column: int, meters: Any) -> float:
    """The mean over questions, in percent, of the window whose answer has the highest score."""
    rows = meters["_answers"].tensor.tolist()
    best = {row[0]: row[column] for row in sorted(rows, key=lambda row: row[1])}
    return round(100 * sum(best.values()) / len(best), 3)
