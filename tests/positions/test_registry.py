"""Registration of schemes from outside, and the check of their properties."""

import re
from argparse import Namespace
from dataclasses import replace

import pytest
import torch
from fairseq import models
from fairseq.models import ARCH_MODEL_REGISTRY

from diet_fairseq import register_position_scheme
from diet_fairseq.attention.backends import BACKENDS
from diet_fairseq.attention.backends.call import CallShape
from diet_fairseq.attention.backends.choice import list_candidates
from diet_fairseq.config import PositionConfig, position_options
from diet_fairseq.errors import UserError
from diet_fairseq.positions import SCHEMES, AttentionShape, Limit, Option, PositionScheme
from diet_fairseq.positions.layout import Layout
from diet_fairseq.positions.relative import DietRel
from diet_fairseq.positions.scores import Dense, Offsets, Score
from diet_fairseq.testing import check_scheme
from tests.support import tiny

REGISTRIES = [SCHEMES, *(getattr(models, f"ARCH_{name}REGISTRY") for name in
              ("MODEL_", "MODEL_NAME_", "MODEL_INV_", "CONFIG_"))]  # fmt: skip


@pytest.fixture(autouse=True)
def registries():
    """Restore schemes and architectures after the test."""
    before = [dict(registry) for registry in REGISTRIES]
    inverse = {model: list(names) for model, names in models.ARCH_MODEL_INV_REGISTRY.items()}
    yield
    for registry, content in zip(REGISTRIES, before, strict=True):
        registry.clear()
        registry.update(content)
    models.ARCH_MODEL_INV_REGISTRY.update(inverse)


def test_a_registered_scheme_has_options_and_architectures_of_all_sizes():
    decay = Option("position_decay", float, "slope: of every token", default=0.5)

    @register_position_scheme("slope")
    class Slope(PositionScheme):
        options = (decay,)
        score_type = Offsets

        def __init__(self, shape, *, decay):
            super().__init__(shape)
            self.decay = decay

        def score(self, layout) -> Offsets:
            return Offsets(-self.decay * layout.offset_line.abs().float().unsqueeze(0))

    for family in ("transformer", "roberta", "bert", "electra"):
        sizes = {arch.removeprefix(f"{family}_t5") for arch in ARCH_MODEL_REGISTRY
                 if arch.startswith(f"{family}_t5")}  # fmt: skip
        assert sizes == {arch.removeprefix(f"{family}_slope") for arch in ARCH_MODEL_REGISTRY
                         if arch.startswith(f"{family}_slope")}  # fmt: skip
    assert "slope" in position_options()["position_scheme"].choices
    assert position_options()["position_decay"] == decay.with_default(None)
    model = tiny.from_arguments(tiny.complete("transformer_slope", position_decay=0.25))
    assert model.encoder.positions.decay == 0.25
    check_scheme(Slope)
    refused = "--position-decay 0.5 is not an option of the position scheme t5: leave it out, or "
    with pytest.raises(UserError, match=re.escape(f"{refused}use one of slope")):
        PositionConfig.from_args(Namespace(position_scheme="t5", position_decay=0.5))


def test_names_that_are_taken_or_not_allowed_are_refused():
    taken = "the position scheme t5 is registered already, by diet_fairseq.positions.relative.T5"
    with pytest.raises(UserError, match=f"{taken}: give DietRel another name"):
        register_position_scheme("t5")(DietRel)
    with pytest.raises(UserError, match="lower-case letters, digits and _, but is 'My-Scheme'"):
        register_position_scheme("My-Scheme")(DietRel)
    assert "My-Scheme" not in SCHEMES


def test_a_name_that_ends_in_a_size_leaves_no_architectures_behind():
    before = dict(ARCH_MODEL_REGISTRY)
    text = "the position scheme t5_tiny can't be registered, because --arch "
    with pytest.raises(UserError, match=rf"{text}\w+_t5_tiny exists .*: rename the scheme"):
        register_position_scheme("t5_tiny")(DietRel)
    assert before == ARCH_MODEL_REGISTRY
    assert "t5_tiny" not in SCHEMES


class SubclassOfOffsets(Offsets):
    """A score of a user's own type."""


class SlopeOfASubclass(PositionScheme):
    """ALiBi's score for one slope."""

    score_type = SubclassOfOffsets

    def score(self, layout):
        return SubclassOfOffsets(-0.5 * layout.offset_line.abs()[None].float())


def test_a_subclass_of_a_score_s_type_is_of_its_kind():
    assert SlopeOfASubclass.kinds == {"offsets"}
    register_position_scheme("subclass")(SlopeOfASubclass)
    check_scheme(SlopeOfASubclass)
    with pytest.raises(
        TypeError, match="score_type must be Offsets, Factors, Sum, Dense or a subclass"
    ):
        type("Other", (SlopeOfASubclass,), {"score_type": Score})


class Doubled(PositionScheme):
    """Queries and keys whose second half is the first, larger from token to token."""

    widening = 2

    def transform(self, q, k, layout):
        return self.double(q, layout.query_positions), self.double(k, layout.key_positions)

    def double(self, x, positions):
        return torch.cat([x, x * (positions[:, None, :, None] / 10).to(x.dtype)], -1)


def test_a_scheme_may_widen_queries_and_keys_in_every_backend(monkeypatch):
    register_position_scheme("doubled")(Doubled)
    check_scheme(Doubled)
    widths = set()
    for name, backend in BACKENDS.items():

        def record(call, name=name, compute=backend.compute):
            if call.schemes:
                widths.add((name, call.q.size(3), call.k.size(3), call.v.size(3)))
            return compute(call)

        monkeypatch.setitem(BACKENDS, name, replace(backend, compute=record))
    for name in ("reference", "sdpa"):
        model = tiny.from_arguments(tiny.complete("transformer_doubled", attention_backend=name))
        tiny.logits(model)
    assert widths == {("reference", 16, 16, 8), ("sdpa", 16, 16, 16)}
    limit = Limit(16, "--max-positions")
    schemes = (Doubled(AttentionShape(2, 64, 128, limit, limit)),)
    layout = Layout.without_padding(9, torch.device("cpu"))
    assert CallShape(schemes, layout, (1, 2, 64), torch.float32, 0.0).head_dim == 128


class WithABufferOfSteps(Doubled):
    def __init__(self, shape):
        super().__init__(shape)
        self.register_buffer("steps", torch.ones(1), persistent=False)


def test_a_scheme_of_version_0_4_may_have_a_buffer_with_the_name_of_a_later_method():
    limit = Limit(16, "--max-positions")
    scheme = WithABufferOfSteps(AttentionShape(2, 8, 16, limit, limit))
    assert not scheme.moves
    assert scheme.steps.tolist() == [1.0]


class TooNarrow(Doubled):
    widening = 1


@pytest.mark.parametrize(
    "option",
    [
        Option("position_clip", float, "other"),
        Option("position_input", str, "other"),
        Option("dropout", float, "other"),
    ],
    ids=lambda option: option.name,
)
def test_options_that_contradict_others_are_refused_at_registration(option):
    class Contradicting(PositionScheme):
        options = (option,)

    with pytest.raises(TypeError, match=f"scheme option {option.name!r} must begin with position_"):
        register_position_scheme("other")(Contradicting)
    assert "other" not in SCHEMES
    assert "transformer_other" not in ARCH_MODEL_REGISTRY


#: one scheme of each kind: scores, rows, changed logits, rotations, factors, compressed keys
KINDS = ("diet_rel", "shaw", "cope", "rope", "tupe_r", "linformer")


@pytest.mark.few(2)
@pytest.mark.parametrize("name", sorted(SCHEMES, key=lambda name: name not in KINDS))
def test_every_scheme_has_the_properties_that_check_scheme_asks_for(name):
    check_scheme(SCHEMES[name])


class Learned(PositionScheme):
    """A learned score of the offset."""

    score_type = Offsets

    def __init__(self, shape):
        super().__init__(shape)
        self.weight = torch.nn.Parameter(torch.zeros(shape.heads, 65))

    def of(self, offsets):
        return self.weight[:, offsets.clamp(-32, 32) + 32]

    def score(self, layout: Layout) -> Offsets:
        return Offsets(self.of(layout.offset_line))


class OfAnotherShape(Learned):
    score_type = Dense

    def score(self, layout):
        return Dense(self.of(layout.offsets))  # (H, B, Tq, Tk)


class OfAnUndeclaredType(Learned):
    score_type = Dense


class OfSlots(Learned):
    score_type = Dense

    def score(self, layout):
        keys = torch.arange(layout.key_positions.size(1))
        queries = keys[-layout.query_positions.size(1) :].unsqueeze(1)
        return Dense(self.of(queries + keys).unsqueeze(0))  # (1, H, Tq, Tk)


class CountedFromTheFirstNewKey(Learned):
    def transform(self, q, k, layout):
        places = layout.key_positions - layout.key_positions[:, :1]  # (B|1, T)
        return q, k * (1 + places[:, None, :, None]).sqrt()


class OfTheFuture(Learned):
    def content_score(self, logits, q, layout):
        hidden = torch.zeros(()) if layout.hidden is None else layout.hidden[:, None, None]
        return logits + logits.masked_fill(hidden.bool(), 0.0).sum(-1, keepdim=True) * logits


class Detached(Learned):
    def of(self, offsets):
        return super().of(offsets).detach()


class ZeroForEver(Learned):
    def of(self, offsets):
        return super().of(offsets) ** 2


class Forgetful(Learned):
    def __init__(self, shape):
        super().__init__(shape)
        self.register_buffer("random", torch.randn(65), persistent=False)

    def of(self, offsets):
        return super().of(offsets) + self.random[offsets.clamp(-32, 32) + 32]


class Selfish(Learned):
    def __init__(self, shape):
        super().__init__(shape)
        self.weight = torch.nn.Parameter(torch.zeros(2, 65))


class MovedByNeighbours(Learned):
    def steps(self, x, layout):
        return (x + x.roll(1, 1)).mean(-1).unsqueeze(1).unsqueeze(-1)


class MovedInHalfPrecision(Learned):
    def steps(self, x, layout):
        return x.to(self.weight.dtype).mean(-1).unsqueeze(1).unsqueeze(-1)


@pytest.mark.parametrize(
    ("scheme", "property_name"),
    [
        (OfAnotherShape, "shapes"),
        (OfAnUndeclaredType, "shapes"),
        (MovedByNeighbours, "steps"),
        (MovedInHalfPrecision, "steps"),
        (TooNarrow, "shapes"),
        (OfSlots, "padding"),
        (CountedFromTheFirstNewKey, "decoding"),
        (OfTheFuture, "future"),
        (Detached, "gradients"),
        (ZeroForEver, "gradients"),
        (Forgetful, "saving"),
        (Selfish, "sharing"),
    ],
)
def test_a_broken_scheme_is_caught_by_the_name_of_the_property(scheme, property_name):
    register_position_scheme("broken")(scheme)
    with pytest.raises(AssertionError, match=f"^{property_name}: {scheme.__name__} fails: "):
        check_scheme(scheme)


POSTPONED = """
from __future__ import annotations
import torch
from diet_fairseq import register_position_scheme
from diet_fairseq.positions import PositionScheme
from diet_fairseq.positions.scores import Offsets

@register_position_scheme("postponed")
class Postponed(PositionScheme):
    score_type = Offsets

    def score(self, layout: Layout) -> Offsets:
        return Offsets(-layout.offset_line.abs().float().unsqueeze(0))
"""


def test_a_file_with_postponed_annotations_keeps_the_backends_of_its_scheme():
    exec(compile(POSTPONED, "postponed.py", "exec"), {"__name__": "postponed"})
    scheme = SCHEMES["postponed"]
    assert scheme.kinds == SCHEMES["alibi"].kinds == {"offsets"}  # what export ctranslate2 asks for
    layout, limit = Layout.of_self_attention(torch.zeros(1, 8, dtype=torch.bool)), Limit(8, "")
    backends = [
        list_candidates(CallShape(
            (kind.create(AttentionShape(2, 4, 8, limit, limit, False)),), layout, (1, 2, 4),
            torch.float32, 0.0,
        ))
        for kind in (scheme, SCHEMES["alibi"])
    ]  # fmt: skip
    assert backends[0] == backends[1]


def test_a_score_of_an_undeclared_type_is_refused_with_what_to_write():
    register_position_scheme("undeclared")(OfAnUndeclaredType)
    model = tiny.from_arguments(tiny.complete("transformer_undeclared"))
    with pytest.raises(UserError, match=r"returns Offsets, but \w+\.score_type is Dense: write "):
        tiny.logits(model)


def test_a_backend_that_differs_is_caught(monkeypatch):
    def forgetful(call):
        return BACKENDS["reference"].compute(replace(call, scores=()))

    monkeypatch.setitem(BACKENDS, "sdpa", replace(BACKENDS["sdpa"], compute=forgetful))
    with pytest.raises(AssertionError, match=r"^backends: DietRel fails: sdpa: outputs differ "):
        check_scheme(DietRel)


def test_a_scheme_without_a_name_is_not_checked():
    with pytest.raises(AssertionError, match="has no name: decorate it with register_position_s"):
        check_scheme(Learned)
