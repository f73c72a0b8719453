"""``--optimizer fused_adamw``: fairseq's Adam, step for step, in PyTorch's fused kernel."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer, register_optimizer
from omegaconf import II
from torch import Tensor
from torch.optim.adamw import adamw

from ..errors import check_at_least, check_betas, check_positive
from . import resuming


class AdamW(torch.optim.AdamW):
    """PyTorch's fused AdamW (Loshchilov & Hutter 2019) with eps as in fairseq's Adam.

    With the moments m and v after t updates, and c_i = 1 - beta_i^t, PyTorch's step is

        m / c_1 / (sqrt(v / c_2) + eps)

    and fairseq's step, in the more efficient order of section 2 of Kingma & Ba (2015), is

        sqrt(c_2) / c_1 * m / (sqrt(v) + eps) = m / c_1 / (sqrt(v / c_2) + eps / sqrt(c_2)).

    So PyTorch is given eps / sqrt(c_2). Every parameter has its own t, which is smaller if it
    had no gradient in some updates, for example in a layer that LayerDrop left out.
    """

    supports_flat_params = True  # the update is elementwise

    def __init__(self, params: Iterable[Tensor], **options: Any) -> None:
        super().__init__(params, fused=True, **options)
        self._step_supports_amp_scaling = False  # `step` is not called with infinite gradients
        self._updates: dict[Tensor, int] = {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._updates = {}

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None if closure is None else closure()
        for group in self.param_groups:
            by_updates: dict[int, list[Tensor]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._updates[parameter] = self._count_updates(parameter) + 1
                    by_updates[self._updates[parameter]].append(parameter)
            for updates, parameters in by_updates.items():
                self._update(parameters, updates, group)
        return loss

    @torch.no_grad()
    def _update(self, parameters: list[Tensor], updates: int, group: dict[str, Any]) -> None:
        """Make the ``updates``-th update of some parameters of a group."""
        states = [self._get_state(parameter) for parameter in parameters]
        beta_1, beta_2 = group["betas"]
        adamw(
            parameters,
            [_like_parameter(parameter.grad, parameter) for parameter in parameters],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],  # the state of AMSGrad
            [state["step"] for state in states],
            fused=True,
            amsgrad=False,
            maximize=False,
            beta1=beta_1,
            beta2=beta_2,
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"] / math.sqrt(1 - beta_2**updates),
        )

    def _get_state(self, parameter: Tensor) -> dict[str, Tensor]:
        """The moments and the count of a parameter, which start at zero."""
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
            state |= {name: torch.zeros_like(parameter) for name in resuming.MOMENTS}
        return state

    def _count_updates(self, parameter: Tensor) -> int:
        """Updates of a parameter, counted on the CPU: reading PyTorch's count waits for the GPU."""
        if parameter not in self._updates:
            state = self.state.get(parameter)
            return int(state["step"]) if state else 0
        return self._updates[parameter]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume from a state of this optimizer or of fairseq's Adam, whose ``step`` is an int."""
        needed = {"step", *resuming.MOMENTS}
        super().load_state_dict(
            resuming.loadable_state(state_dict, self, "fused_adamw", needed, "state")
        )


def _like_parameter(gradient: Any, parameter: Tensor) -> Tensor:
    """The gradient in the parameter's memory layout, because the kernel reads memory in order."""
    if gradient.stride() == parameter.stride():
        return gradient
    return torch.empty_like(parameter).copy_(gradient)


def read_options(cfg: Any, name: str) -> dict[str, Any]:
    """The options of an optimizer with ``--NAME-betas`` and ``--NAME-eps``, checked."""
    return {
        "lr": cfg.lr[0],
        "betas": check_betas(f"--{name}-betas", getattr(cfg, f"{name}_betas")),
        "eps": check_positive(f"--{name}-eps", getattr(cfg, f"{name}_eps"), "1e-6"),
        "weight_decay": check_at_least("--weight-decay", cfg.weight_decay, 0, "0.01"),
    }


@dataclass
class FusedAdamWConfig(FairseqDataclass):
    """The options of fairseq's adam, so that existing commands remain valid."""

    adam_betas: Any = field(
        default="(0.9, 0.999)", metadata={"help": "decay rates of the two moments"}
    )
    adam_eps: float = field(
        default=1e-8, metadata={"help": "epsilon, added to the root of the second moment"}
    )
    weight_decay: float = field(default=0.0, metadata={"help": "decoupled weight decay"})
    lr: list[float] = field(default=II("optimization.lr"))


@register_optimizer("fused_adamw", dataclass=FusedAdamWConfig)
class FusedAdamW(FairseqOptimizer):
    """`AdamW` in fairseq: on CPU and GPU, with ``--fp16`` and ``--bf16`` on float32 copies.

    ``--memory-efficient-fp16`` is not supported: the kernel needs moments of the parameters' type.
    """

    def __init__(self, cfg: Any, params: Iterable[Tensor]) -> None:
        super().__init__(cfg)
        self._optimizer = AdamW(params, **self.optimizer_config)

    @property
    def optimizer_config(self) -> dict[str, Any]:
        return read_options(self.cfg, "adam")
