"""The description of positions in a checkpoint's options."""

import json

import pytest
import torch

from diet_fairseq.config import PositionConfig
from diet_fairseq.models import warm_start
from diet_fairseq.positions.description import describe
from tests.support import tiny
from tests.support.tiny import Case


@pytest.mark.parametrize("forged", ["[" * 100_000, "{}", '{"scheme": "t5"}', 7, json.dumps(
    {"scheme": "t5", "score_terms": 1e300}), json.dumps({"scheme": "t5", "score_terms": 1,
    "layers": "lg"}), json.dumps({"scheme": "t5", "score_terms": 1, "layers": [], "global": {}})],
)  # fmt: skip
def test_a_forged_description_gives_way_to_the_options(forged):
    options = vars(tiny.model_of(Case("tupe_a")).args)
    honest = warm_start.derive_description(options)
    assert warm_start.derive_description(options | {"position_description": forged}) == honest
    assert honest["scheme"] == "tupe_a"


@tiny.each(tiny.first_of_each_scheme(tiny.ENCODERS))
def test_describing_positions_draws_no_random_numbers(case):
    args = tiny.model_of(case).args
    before = {name: value for name, value in vars(args).items() if name != "position_description"}
    state = torch.get_rng_state()
    assert warm_start.derive_description(before) == describe(PositionConfig.from_args(args))
    assert torch.equal(torch.get_rng_state(), state)


def test_a_stock_checkpoint_has_no_description():
    assert warm_start.derive_description(tiny.stock().args) is None
