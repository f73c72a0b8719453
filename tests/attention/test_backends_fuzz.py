"""Every backend computes what the reference does, forward and backward, for drawn models.

A failure is drawn again by its seed:
`pytest -m slow tests/attention/test_backends_fuzz.py -k seed7`.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from diet_fairseq.attention import backends
from diet_fairseq.attention.backends import CallShape
from diet_fairseq.attention.terms import Schemes
from diet_fairseq.config import (
    PositionConfig,
    default_options,
    position_options,
    translation_schemes,
)
from diet_fairseq.errors import UserError
from diet_fairseq.positions import SCHEMES
from tests.support import mutants, tiny
from tests.support.tiny import Case, Model

SEEDS, DRAWS = range(5), 10
LIMIT = 160
#: relative to what the reference computes in float32; in bfloat16 rounding moves a ReLU across its
#: corner, and only gross faults are seen
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 0.5}

VALUES: dict[str, tuple[Any, ...]] = {
    "position_sharing": position_options()["position_sharing"].choices or (),
    "position_input": position_options()["position_input"].choices or (),
    "position_rank": (1, 3, 9),
    "position_clip": (1, 5, 200),
    "position_values": (True,),
    "position_buckets": (8, 16),
    "position_max_distance": (20, 100),
    "position_untie_cls": position_options()["position_untie_cls"].choices or (),
    "position_cross_attention": (True,),
    "projection_length": (1, 7, 40),
    "projection_sharing": position_options()["projection_sharing"].choices or (),
    "segment_scheme": position_options()["segment_scheme"].choices or (),
    "num_segments": (1, 2, 3),
}


@dataclass(frozen=True)
class Drawn:
    """A random model and its inputs."""

    case: Case
    shape: dict[str, Any]
    dtype: torch.dtype
    sources: list[Tensor]
    targets: list[Tensor]
    reading: dict[str, Any]

    def __str__(self) -> str:
        lengths = [[len(x) for x in batch] for batch in (self.sources, self.targets)]
        return f"{self.case} {self.shape} {self.dtype} {lengths} {self.reading}"

    def model(self, backend: str) -> Model:
        return tiny.fresh(self.case.but(attention_backend=backend), **self.shape)

    def read(self, model: Model) -> dict[str, Tensor]:
        """The logits at inference, those that have gradients, and the gradients."""
        inputs = (self.sources, self.targets)
        with torch.no_grad():
            inferred = tiny.logits(model.eval(), *inputs, **self.reading)
        model.train(not self.shape["attention_dropout"])
        out = tiny.logits(model, *inputs, **self.reading)
        results = tiny.gradients(model, tiny.some_loss(out))
        results |= {"logits at inference": inferred, "logits": out.detach()}
        return {name: value.float() for name, value in results.items()}


def draw(chance: random.Random) -> Drawn:
    """Draw cases until the options allow one."""
    while True:
        family = chance.choice(["transformer", "roberta", "bert"])
        scheme = chance.choice(translation_schemes() if family == "transformer" else list(SCHEMES))
        possible = default_options(SCHEMES[scheme])
        if family == "bert":
            possible = possible | {"segment_scheme": None, "num_segments": None}
        options = {
            name: chance.choice(VALUES[name])
            for name in possible
            if name in VALUES and chance.random() < 0.5
        }
        if family != "transformer":
            options.pop("position_cross_attention", None)  # which encoders don't have
        case = Case(scheme, tuple(options.items()), family)
        heads, layers = chance.choice([1, 2, 4]), chance.choice([1, 2, 3])
        limits = ["max_source_positions", "max_target_positions"]
        shape = dict.fromkeys(limits if family == "transformer" else ["max_positions"], LIMIT)
        for side in ("encoder", "decoder"):
            shape |= {f"{side}_attention_heads": heads, f"{side}_layers": layers}
        shape["checkpoint_activations"] = chance.random() < 0.2
        shape["attention_dropout"] = chance.choice([0.0, 0.1])  # which then no model acts by
        try:
            PositionConfig.from_args(tiny.arguments(case, **shape))
            break
        except UserError:
            continue
    longest = chance.choice([3, 16, 16, LIMIT])  # sdpa at inference from 128 keys on
    number = chance.choice([1, 2, 4])
    sources, targets = (
        tiny.sentences(
            *(chance.randint(1, longest) for _ in range(number)), seed=chance.randrange(100)
        )
        for _ in range(2)
    )
    reading = {"left_source": chance.random() < 0.5, "left_target": chance.random() < 0.5}
    if family == "transformer" and chance.random() < 0.3:
        reading["full_context_alignment"] = True
    dtype = chance.choice([torch.float32, torch.bfloat16])
    return Drawn(case, shape, dtype, sources, tiny.shifted(targets), reading)


def errors(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> dict[str, float]:
    """Errors relative to each tensor or, where its entries cancel, to a tenth of the largest."""
    norms = {name: float(value.norm()) for name, value in expected.items()}
    least = max(norms.values()) / 10
    zeros = {name: torch.zeros_like(value) for name, value in expected.items()}
    return {
        name: float(((zeros | actual)[name] - value).norm()) / max(norms[name], least)
        for name, value in expected.items()
    }


def at_random(chance: random.Random, names: list[str]) -> Callable[[CallShape], str]:
    """A choice that is random for every call, and the same when activations are recomputed."""
    choices: dict[tuple[int, Schemes], str] = {}

    def choose(request: CallShape) -> str:
        # a layout of compressed keys is made again, but with the same queries
        queries = id(request.layout.query_positions)
        return choices.setdefault((queries, request.schemes), chance.choice(names))

    return choose


def compare(chance: random.Random) -> None:
    """One drawn model: every backend, "auto", and an "auto" that chooses at random each time."""
    drawn = draw(chance)
    slow = drawn.model("reference").to(drawn.dtype)
    of_reference = drawn.read(slow)
    expected = drawn.read(slow.float())
    # what is lost to bfloat16 is the reference's loss, too
    rounding = errors(of_reference, expected)
    state = slow.state_dict()
    fast = tiny.fast_paths(drawn.case)
    for backend in (*fast, "auto", "any"):
        model = drawn.model("auto" if backend == "any" else backend)
        model.load_state_dict(state)
        with pytest.MonkeyPatch.context() as patch:
            if backend == "any":
                patch.setattr(backends, "choose_backend", at_random(chance, ["reference", *fast]))
            results = drawn.read(model.to(drawn.dtype))
        assert results.keys() <= expected.keys(), (backend, str(drawn))
        for name, error in errors(results, expected).items():
            allowed = TOLERANCE[drawn.dtype] + 3 * rounding[name]
            assert error <= allowed, (name, error, allowed, backend, str(drawn))


def compare_all(*seeds: int) -> None:
    for seed in seeds:
        chance = random.Random(seed)
        for _ in range(DRAWS):
            compare(chance)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS, ids="seed{}".format)
def test_every_backend_computes_what_the_reference_does(seed):
    compare_all(seed)


@pytest.mark.slow
def test_the_fuzz_finds_a_wrong_backend(monkeypatch):
    mutants.keys_without_gradient(monkeypatch)
    with pytest.raises(AssertionError):
        compare_all(*SEEDS)
