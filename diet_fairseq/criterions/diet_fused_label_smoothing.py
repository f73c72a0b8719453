"""Criterion ``fused_label_smoothed_cross_entropy``, which stores no (tokens, V) logits."""

from typing import Any

import torch
from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from fairseq.models.bart import BARTModel
from fairseq.models.transformer import TransformerModelBase
from torch import Tensor, nn

from ..models.introspection import has_methods_of, has_standard_output

#: number of tokens whose logits are computed at a time, so that they fit into a CPU's cache
ROWS = 256


class LinearCrossEntropy(torch.autograd.Function):
    """The output projection and cross entropy with label smoothing, with gradients.

    As in fairseq, the target has probability 1 - smoothing and each of the other V - 1 words
    smoothing / (V - 1). With this distribution y and p = softmax(x W^T), the gradient of the logits
    is p - y, and the gradients of x and W need one more product each. Everything is computed while
    a few rows of logits are in the cache, so no (N, V) tensor exists.

    Probabilities and sums over tokens are in float32 for any type of x and W, because the terms of
    W's gradient nearly cancel. Second derivatives are not supported.

    Args:
        x: (N, d)
        weight: W, (V, d)
        target: (N,) int64
        smoothing: from 0 to 1

    Returns:
        The sums over N of the loss and, without a gradient, of -log p[target], in nats.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, target: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        others = smoothing / (len(weight) - 1)  # y of all words except the target
        extra = 1 - smoothing - others  # the difference of y at the target
        needs_gradients = any(ctx.needs_input_grad)
        grad_x, grad_weight = torch.empty_like(x), torch.zeros_like(weight, dtype=torch.float32)
        loss = nll = torch.zeros((), device=x.device)
        for rows, grad_rows, goal in zip(
            x.split(ROWS), grad_x.split(ROWS), target.unsqueeze(1).split(ROWS), strict=True
        ):
            logits = (rows @ weight.T).float()  # (n, V)
            logits -= logits.amax(dim=1, keepdim=True)
            at_goal = logits.gather(1, goal)  # (n, 1)
            everywhere = logits.sum() if others else 0.0
            exponential = logits.exp_()
            normaliser = exponential.sum(dim=1, keepdim=True)  # (n, 1)
            log_normaliser = normaliser.log()
            here = (log_normaliser - at_goal).sum()
            nll = nll + here
            loss = loss + extra * here
            loss = loss + others * (len(weight) * log_normaliser.sum() - everywhere)
            # p - y without the smoothing constant, which is subtracted after the loop
            if needs_gradients:
                change = exponential.scatter_add_(1, goal, -extra * normaliser)
                grad_rows.copy_((change.to(x.dtype) @ weight) / normaliser)
                grad_weight.addmm_(change.T, (rows / normaliser).float())
        if needs_gradients:
            grad_x -= others * weight.sum(dim=0)
            grad_weight -= others * x.sum(dim=0, dtype=torch.float32)
            ctx.save_for_backward(grad_x, grad_weight)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None, None]:
        # once_differentiable doesn't raise if grad_loss and therefore the gradients are constants
        assert not torch.is_grad_enabled(), "the fused criterion has no second derivative"
        grad_x, grad_weight = ctx.saved_tensors
        # autograd casts the gradient of W to W's type
        return grad_x * grad_loss, grad_weight * grad_loss, None, None


@register_criterion(
    "fused_label_smoothed_cross_entropy", dataclass=LabelSmoothedCrossEntropyCriterionConfig
)
class FusedLabelSmoothedCrossEntropy(LabelSmoothedCrossEntropyCriterion):
    """``label_smoothed_cross_entropy``, faster on a CPU, for our and stock transformers.

    Only real tokens are projected. fairseq's own criterion is used on a GPU, in fp16, for a loss
    per token, with an adaptive softmax, with accuracies or an ignored prefix, with
    ``--find-unused-parameters``, and for models that compute probabilities in another way.
    """

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        target = sample["target"]  # (B, T)
        needs_logits = not reduce or self.report_accuracy or self.ignore_prefix_size
        can_fuse = target.device.type == "cpu" and not needs_logits
        weight = output_weight(model) if can_fuse else None
        if weight is None:
            return super().forward(model, sample, reduce)
        features, _ = model(**sample["net_input"], features_only=True)  # (B, T, d)
        if not torch.is_grad_enabled():  # an autograd.Function can't see this
            weight = weight.detach()
        is_real = target.ne(self.padding_idx)
        loss, nll_loss = LinearCrossEntropy.apply(
            features[is_real], weight, target[is_real], self.eps
        )
        sample_size = len(target) if self.sentence_avg else sample["ntokens"]
        log = {
            "loss": loss.detach(),
            "nll_loss": nll_loss.detach(),
            "ntokens": sample["ntokens"],
            "nsentences": len(target),
            "sample_size": sample_size,
        }
        return loss, sample_size, log


def output_weight(model: Any) -> Tensor | None:
    """The matrix (V, d) if a model's logits are only features times this matrix, otherwise None.

    A model may be wrapped, for example for distributed training.
    """
    while hasattr(model, "module"):
        if getattr(model, "find_unused_parameters", False):
            return None  # DDP would consider the projection unused
        model = model.module
    # FSDP2 shards the projection again at the end of the forward pass
    if hasattr(model, "reshard") or not has_standard_output(model):
        return None
    projection = model.decoder.output_projection
    is_last = (
        any(has_methods_of(kind, model, "forward") for kind in (TransformerModelBase, BARTModel))
        and has_methods_of(TransformerModelBase, model, "get_targets")
        and type(projection) is nn.Linear
        and projection.bias is None
        and projection.weight.dtype is not torch.float16  # too narrow for sums over a vocabulary
    )
    return projection.weight if is_last else None
