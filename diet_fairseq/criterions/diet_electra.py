"""Criterion ``electra``: losses of the generator and of the discriminator."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch.nn.functional as F
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from torch import Tensor

from ..errors import UserError, check_at_least

# Notation: B sentences of T tokens, M of them masked, V words.


@dataclass
class ElectraConfig(FairseqDataclass):
    """Options of the criterion."""

    discriminator_weight: float = field(
        default=50.0,
        metadata={"help": "weight of the discriminator's loss; the generator's loss has weight 1"},
    )


@register_criterion("electra", dataclass=ElectraConfig)
class ElectraLoss(FairseqCriterion):
    """Clark et al. (2020), section 3.2: L_MLM + lambda L_Disc.

    L_MLM is the generator's mean cross entropy over masked tokens, L_Disc the mean binary cross
    entropy over all tokens except padding, with label 1 where the sampled token differs from the
    original. fairseq sums losses and sample sizes of all processes and accumulated batches and
    divides once, so this criterion multiplies a batch's mean over tokens by its number of masked
    tokens, as `masked_lm_nsp` does.

    Logged: ``generator_loss`` and ``discriminator_loss``, to base 2 as in fairseq, their weighted
    sum ``loss``; ``generator_accuracy``, ``discriminator_accuracy``; ``precision`` and ``recall``
    of replaced tokens.

    Raises `UserError` unless the model has a generator.
    """

    def __init__(self, cfg: ElectraConfig, task: Any) -> None:
        super().__init__(task)
        weight = cfg.discriminator_weight
        self.weight = check_at_least("--discriminator-weight", weight, 0, "50")
        self.padding = task.source_dictionary.pad()

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        targets = sample["target"]  # (B, T)
        logits, extra = model(**sample["net_input"], targets=targets)  # (B, T)
        if "generator_logits" not in extra:
            raise UserError(
                "--criterion electra needs a model with a generator: use --arch electra_<scheme> "
                "with --task masked_lm, or --criterion masked_lm"
            )
        generated = extra["generator_logits"]  # (M, V)
        masked = targets.ne(self.padding)
        generator_loss = F.cross_entropy(generated.float(), targets[masked], reduction="sum")
        real = sample["net_input"]["src_tokens"].ne(self.padding)
        replaced = extra["replaced"][real]  # (tokens,)
        scores = logits[real].float()
        discriminator_loss = F.binary_cross_entropy_with_logits(
            scores, replaced.float(), reduction="sum"
        )
        size, tokens = int(masked.sum()), int(real.sum())
        loss = generator_loss + self.weight * discriminator_loss * size / tokens
        guess = scores > 0
        log = {
            "loss": loss.detach(),
            "generator_loss": generator_loss.detach(),
            "discriminator_loss": discriminator_loss.detach(),
            "generator_right": (generated.argmax(dim=-1) == targets[masked]).sum(),
            "discriminator_right": (guess == replaced).sum(),
            "replaced": replaced.sum(),
            "guessed": guess.sum(),
            "detected": (guess & replaced).sum(),
            "ntokens": tokens,
            "nsentences": len(targets),
            "sample_size": size,
        }
        return loss, size, log

    @staticmethod
    def reduce_metrics(logging_outputs: Sequence[dict[str, Any]]) -> None:
        """Aggregate the logging outputs of all processes."""

        def total(name: str) -> Any:
            return sum(log.get(name, 0) for log in logging_outputs)

        bit = math.log(2)
        for name, numerator, denominator, unit in (
            ("loss", "loss", "sample_size", bit),
            ("generator_loss", "generator_loss", "sample_size", bit),
            ("discriminator_loss", "discriminator_loss", "ntokens", bit),
            ("generator_accuracy", "generator_right", "sample_size", 1),
            ("discriminator_accuracy", "discriminator_right", "ntokens", 1),
            ("precision", "detected", "guessed", 1),
            ("recall", "detected", "replaced", 1),
        ):
            number = total(denominator)
            mean = total(numerator) / max(number, 1) / unit
            metrics.log_scalar(name, mean, number, round=4)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        return True
