"""A profile says what is a matrix product and what isn't, and how fast the products are."""

import pytest
import torch

from benchmarks import breakdown
from benchmarks.breakdown import OTHERS, PRODUCTS


@pytest.mark.parametrize(
    ("operator", "kind"),
    [
        ("aten::addmm", PRODUCTS),
        ("aten::baddbmm", PRODUCTS),
        ("aten::addcmul", "sums, masks, elementwise"),
        ("aten::_log_softmax_backward_data", "softmax, losses"),
        ("aten::_fused_adamw_", "optimizer"),
        ("aten::native_dropout", "random numbers"),
        ("aten::index_select", "look-ups and their gradients"),
        ("aten::topk", OTHERS),
    ],
)
def test_an_operator_has_its_kind(operator, kind):
    assert breakdown.kind_of(operator) == kind


def test_the_operations_of_products_are_counted():
    x = torch.randn(64, 32)
    _, kinds, gflop = breakdown.breakdown(lambda: (x @ x.T).softmax(dim=1))
    assert gflop == pytest.approx(2 * 64 * 64 * 32 / 1e9)
    assert {PRODUCTS, "softmax, losses"} <= kinds.keys()
