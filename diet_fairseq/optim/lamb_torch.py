"""``--optimizer lamb_torch``: LAMB for large batches, without apex."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer, register_optimizer
from omegaconf import II
from torch import Tensor

from ..errors import UserError
from . import resuming
from .fused_adamw import read_options
from .sharded import FullNorms, is_sharded


@dataclass
class LambTorchConfig(FairseqDataclass):
    """The options of fairseq's lamb."""

    lamb_betas: Any = field(
        default="(0.9, 0.999)", metadata={"help": "decay rates of the two moments"}
    )
    lamb_eps: float = field(
        default=1e-6,
        metadata={
            "help": "epsilon, added to the root of the second moment and to the norm of an update"
        },
    )
    weight_decay: float = field(
        default=0.0, metadata={"help": "weight decay, except for vectors (biases, LayerNorm)"}
    )
    lr: list[float] = field(default=II("optimization.lr"))


@register_optimizer("lamb_torch", dataclass=LambTorchConfig)
class LambTorch(FairseqOptimizer):
    """LAMB (You et al. 2020) from the package pytorch-optimizer, as in ALBERT.

    With Adam's r = m / (sqrt(v) + eps), and u = r + weight_decay x, a tensor x becomes
    x - lr |x| / (|u| + eps) u, or x - lr u if x or u is 0. The paper and ALBERT's released code
    divide by |u|; the package adds ``--lamb-eps``, which matters only if |u| is as small. The
    paper is ambiguous, and this optimizer follows ALBERT's code: no bias correction, no bounds on
    |x|, and neither weight decay nor the ratio for tensors of one dimension (biases, LayerNorm).

    ``--fp16`` also needs ``--fp16-no-flatten-grads``, because each tensor has its own ratio;
    ``--bf16`` needs no further option.
    """

    def __init__(self, cfg: Any, params: Iterable[Tensor]) -> None:
        super().__init__(cfg)
        try:
            from pytorch_optimizer import Lamb
        except ModuleNotFoundError as error:
            raise UserError(
                "--optimizer lamb_torch needs the package pytorch-optimizer: in the "
                "checkout, pip install '.[pretraining]', or use --optimizer fused_adamw"
            ) from error
        params = list(params)
        groups: list[dict[str, Any]] = [
            {"params": [p for p in params if p.dim() > 1]},
            {"params": [p for p in params if p.dim() <= 1], "weight_decay": 0.0, "adam": True},
        ]
        self._optimizer = Lamb(
            [group for group in groups if group["params"]],
            weight_decouple=False,  # weight decay is part of u
            adam_debias=True,  # otherwise the package divides lr by 1 - beta_1^t
            # PyTorch's foreach norms do not support sharded tensors
            foreach=False if any(map(is_sharded, params)) else None,
            **self.optimizer_config,
        )
        self._optimizer.clamp = float("inf")

    @property
    def optimizer_config(self) -> dict[str, Any]:
        return read_options(self.cfg, "lamb")

    def step(self, *args: Any, **kwargs: Any) -> None:
        with FullNorms():
            super().step(*args, **kwargs)

    def load_state_dict(self, state_dict: Any, optimizer_overrides: Any = None) -> None:
        needed = {"step", "adam_debias", "weight_decouple"}
        ours = resuming.loadable_state(
            state_dict, self.optimizer, "lamb_torch", needed, "param_groups"
        )
        super().load_state_dict(ours, optimizer_overrides)
