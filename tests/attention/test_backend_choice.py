"""How attention is computed is decided once a call, by what acts in that call."""

from argparse import ArgumentParser, Namespace
from dataclasses import replace

import pytest
import torch

from diet_fairseq import config
from diet_fairseq.attention.backends import CallShape, choice
from diet_fairseq.positions.layout import Layout
from diet_fairseq.positions.scores import Factors
from diet_fairseq.transformer import PositionalAttention
from tests.support import mutants, tiny
from tests.support.tiny import Case, Model

FACTORED = [
    case
    for case in tiny.IN_ATTENTION
    if not case.is_hybrid
    and case.kind.kinds == {"factors"}
    and not case.kind.moves
    and case.option("attention_backend") is None
]


class Calls(list[tuple[str, bool]]):
    """The backend of each call with a scheme, and whether it was given factors."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        super().__init__()
        for name, backend in tiny.BACKENDS.items():

            def watched(call, name=name, backend=backend):
                if call.schemes:
                    has_factors = any(isinstance(score, Factors) for score in call.scores)
                    self.append((name, has_factors))
                return backend(call)

            patch.setitem(tiny.BACKENDS, name, replace(backend, compute=watched))

    def of(self, model: Model, *inputs: object) -> set[tuple[str, bool]]:
        self.clear()
        tiny.logits(model, *inputs)
        return set(self)


def with_attention_dropout(model: Model) -> Model:
    for module in model.modules():
        if isinstance(module, PositionalAttention):
            module.dropout_module.p = 0.1
    return model


def check_one_decision(case: Case) -> None:
    """Factors go to the backend that appends them, and to nobody else, whatever acts."""
    model = with_attention_dropout(tiny.model_to_change(case))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            choice, "choose_backend", lambda request: "reference" if request.dropout else "factors"
        )
        calls = Calls(patch)
        for training, retained, backend in [
            (False, False, "factors"),
            (True, False, "reference"),
            (False, True, "reference"),
            (False, False, "factors"),
        ]:
            model.train(training)
            for module in model.modules():
                if isinstance(module, PositionalAttention):
                    module.dropout_module.is_retained = retained
            calls_of_model = calls.of(model)
            assert (backend, backend == "factors") in calls_of_model
            assert calls_of_model - {("reference", True)} <= {(backend, backend == "factors")}


@tiny.each(FACTORED)
def test_shared_scores_are_computed_for_the_selected_backend(case):
    check_one_decision(case)


@pytest.mark.parametrize("scheme", ["diet_abs", "tupe_a"])
@torch.no_grad()
def test_long_inputs_append_factors_at_inference(scheme, monkeypatch):
    case = Case(scheme, family="roberta")
    model = tiny.fresh(case, max_positions=2049, attention_dropout=0.1)
    calls = Calls(monkeypatch)
    assert calls.of(model, tiny.sentences(2048)) == {("factors", True)}


def test_a_backend_that_is_given_is_really_taken(monkeypatch):
    calls = Calls(monkeypatch)
    calls.of(tiny.model_of(Case("diet_abs").but(attention_backend="factors")))
    assert calls == 2 * tiny.LAYERS * [("factors", True)]


@torch.no_grad()
def test_decoding_one_token_appends_nothing_to_all_keys():
    """Appending is 16 times as slow as adding a row of scores, measured at 2,100 keys."""
    decoder = tiny.fresh(Case("diet_abs"), max_target_positions=2048).decoder.eval()
    padding = torch.zeros(1, 2048, dtype=torch.bool)
    for queries, backend in ((None, "factors"), (1, "sdpa")):
        layout = Layout.of_self_attention(padding, causal=True, queries=queries)
        assert decoder.create_context(layout, batch=1).backend == backend


@torch.no_grad()
@pytest.mark.parametrize("name", ["transformer", "none", "shaw", "diet_abs"])
def test_attention_dropout_acts_at_inference_where_it_is_retained(name):
    """``fairseq-generate --retain-dropout``; fairseq's own model is the first."""
    options = {"attention_dropout": 0.5}
    stock = name == "transformer"
    model = tiny.stock(**options) if stock else tiny.fresh(Case(name), **options)

    def differs() -> float:
        return tiny.difference(*(tiny.encoded(model, tiny.SOURCES) for _ in range(2)))

    assert differs() == 0
    model.make_generation_fast_(retain_dropout=True)
    assert differs() > tiny.VISIBLE


@pytest.mark.parametrize("name", config.RETIRED_BACKENDS)
def test_backends_of_earlier_versions_become_auto_with_one_log_line(name, caplog):
    """The option may come from a checkpoint, whose options the model rewrites, or be typed."""
    parser = ArgumentParser()
    config.PositionConfig.add_args(parser)
    saved = Namespace(position_scheme="diet_rel", attention_backend=name)
    with caplog.at_level("INFO", "diet_fairseq"):
        typed = parser.parse_args(["--attention-backend", name], saved)
        once = list(caplog.messages)
        config.PositionConfig.from_args(typed).write_to(typed)
        assert typed.attention_backend == "auto"
        assert caplog.messages == once
        caplog.clear()
        saved.attention_backend = name
        for _ in range(2):
            config.PositionConfig.from_args(saved).write_to(saved)
    assert saved.attention_backend == "auto"
    line = f"--attention-backend {name} no longer exists: using auto"
    assert caplog.messages == once == [line]


MUTANTS: mutants.Table = [(check_one_decision, mutants.a_second_decision, "diet_abs")]
test_a_mutant_is_caught = mutants.build_test(MUTANTS)


@pytest.mark.parametrize(
    ("tokens", "window", "backend"),
    [
        *((383, 64, "sdpa"), (384, 64, "banded"), (191, 1, "banded"), (120, 1, "reference")),
        *((2048, 500, "sdpa"), (4096, 500, "banded"), (4096, None, "sdpa")),
    ],
)
def test_blocks_are_chosen_if_they_read_at_most_half_of_the_keys(tokens, window, backend):
    layout = Layout.without_padding(tokens, torch.device("cpu")).with_window(window)
    for dropout in (0.0, 0.1):
        call = CallShape((), layout, (1, 2, 8), torch.float32, dropout)
        expected = "reference" if dropout and backend == "sdpa" else backend
        assert choice.choose_backend(call) == expected


def test_blocks_are_not_chosen_with_padding_between_tokens():
    padding = torch.zeros(1, 4096, dtype=torch.bool)
    padding[0, 5] = True
    layout = Layout.of_self_attention(padding).with_window(64)
    call = CallShape((), layout, (1, 2, 8), torch.float32, 0.0)
    assert choice.choose_backend(call) == "sdpa"
    decoding = Layout.of_self_attention(padding[:, 6:], True, 1).with_window(64)
    assert choice.choose_backend(replace(call, layout=decoding)) == "banded"
