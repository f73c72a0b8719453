"""Faults in ELECTRA's objective."""

import torch
import torch.nn.functional as F

from diet_fairseq.models.diet_electra import DietElectraModel, Generator
from tests.support.mutants.catching import Patch, instead_of


@instead_of(DietElectraModel, "forward")
def all_targets_count_as_replaced(original, self, src_tokens, *rest, targets=None, **options):
    logits, extra = original(self, src_tokens, *rest, targets=targets, **options)
    if targets is not None:
        extra["replaced"] = targets.ne(self.encoder.dictionary.pad())
    return logits, extra


@instead_of(Generator, "forward")
def logits_of_every_token(original, self, tokens, is_target, segments):
    return original(self, tokens, torch.ones_like(is_target), segments)[is_target.flatten()]


def a_sample_with_a_gradient(patch: Patch) -> None:
    original = DietElectraModel.forward

    def forward(self, src_tokens, targets=None, **options):
        logits, extra = original(self, src_tokens, targets=targets, **options)
        if targets is None:
            return logits, extra
        # the discriminator's logits move with what the generator gave
        likely = F.softmax(extra["generator_logits"], dim=-1).amax(-1).sum()
        return logits + likely, extra

    patch.setattr(DietElectraModel, "forward", forward)
