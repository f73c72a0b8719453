"""Dropout as a module."""

from torch import Tensor, nn

from ..attention.dropout import dropout


class Dropout(nn.Dropout):
    """`attention.dropout.dropout` as a module, active at inference if ``is_retained``."""

    def __init__(self, p: float) -> None:
        super().__init__(p)
        self.is_retained = False

    @property
    def active_p(self) -> float:
        """The probability that an element is dropped now."""
        return self.p if self.training or self.is_retained else 0.0

    def forward(self, x: Tensor) -> Tensor:
        p = self.active_p
        return dropout(x, p) if p > 0 else x
