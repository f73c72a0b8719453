"""``--position-temperature``: at inference, and only there, logits are divided by it."""

from importlib import import_module
from tempfile import TemporaryDirectory

import pytest
import torch
from fairseq import checkpoint_utils

from diet_fairseq import Translator
from diet_fairseq.attention.backends import BACKENDS, AttentionCall
from diet_fairseq.cli import main
from diet_fairseq.errors import UserError
from diet_fairseq.positions.layout import Layout
from diet_fairseq.positions.scores import Offsets
from tests.support import mutants, tiny
from tests.support.attentions import attentions
from tests.support.tiny import TOLERANCE, Case
from tests.support.translating import untrained

offsets_module = import_module("diet_fairseq.attention.backends.offsets")
close = torch.testing.assert_close
LOW = 0.5
FIRST = tiny.first_of_each_scheme(tiny.TRANSLATION) + tiny.first_of_each_scheme(
    [case for case in tiny.ENCODERS if case.kind.compressed]
)
CROSS = [Case("diet_abs", (("position_cross_attention", True),))]


def at(temperature, case, **options):
    return tiny.copy_of(tiny.model_of(case), case, position_temperature=temperature, **options)


@torch.no_grad()
def check_weights(case):
    """softmax(x / t) is softmax(x) to the power 1 / t, divided by its sum."""
    x = tiny.vectors(2, 9, tiny.DIM)
    padding = torch.arange(9) >= torch.tensor([[9], [6]])
    pairs = zip(attentions(at(LOW, case)), attentions(tiny.model_of(case)), strict=True)
    for low, plain in pairs:
        layout = plain.layout(padding)
        expected = plain(x, layout, weights=True) ** (1 / LOW)
        expected = expected / expected.sum(-1, keepdim=True)
        close(low(x, layout, weights=True), expected, **TOLERANCE)


@tiny.each(FIRST + CROSS)
def test_weights_are_those_of_divided_logits(case):
    check_weights(case)


@torch.no_grad()
def check_backends(case):
    expected = tiny.logits(at(LOW, case, attention_backend="reference"))
    assert tiny.difference(expected, tiny.logits(tiny.model_of(case))) > tiny.VISIBLE
    for name, backend in BACKENDS.items():
        if case.kind.kinds <= backend.serves:
            close(tiny.logits(at(LOW, case, attention_backend=name)), expected, **TOLERANCE)


@tiny.each(FIRST)
def test_every_backend_has_the_temperature(case):
    check_backends(case)


def check_training(case):
    models = (at(value, case).train() for value in (LOW, None))
    assert torch.equal(*(tiny.logits(model) for model in models))


def test_training_has_no_temperature():
    check_training(Case("diet_rel"))


def check_kernels(case):
    """On a GPU, where `kernels_fit`, the kernels read the line itself."""
    calls = []
    layout = Layout.of_self_attention(torch.zeros(1, 4, dtype=torch.bool))
    q, line = tiny.vectors(1, 2, 4, 8), tiny.vectors(2, 7)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offsets_module, "kernels_fit", lambda *_: True)
        patch.setattr(offsets_module, "attend", lambda *x: (calls.append(x) or x[0], None))
        BACKENDS["offsets"](AttentionCall(q, q, q, (Offsets(line),), (), layout, 0.0, LOW))
    close(calls[0][0], q / LOW)
    close(calls[0][3], line / LOW)


def test_the_kernels_of_offsets_are_given_divided_queries_and_scores():
    check_kernels(Case("t5"))


def check_temperature_of_one(case):
    q = tiny.vectors(1, 2, 4, 8)
    layout = Layout.of_self_attention(torch.zeros(1, 4, dtype=torch.bool))
    call = AttentionCall(q, q, q, (), (), layout, 0.0, temperature=1.0)
    assert call.fold_temperature() is call


def test_a_temperature_of_one_leaves_the_call_as_it_is():
    check_temperature_of_one(Case("t5"))


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("inf"), float("nan")])
def test_a_temperature_must_be_a_positive_number(temperature):
    with pytest.raises(UserError) as refused:
        tiny.fresh(Case("t5"), position_temperature=temperature)
    assert str(refused.value) == (
        f"--position-temperature must be a number above 0, but is {temperature}"
    )


@torch.no_grad()
def check_transformers(case):
    pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")
    from transformers import AttentionInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    from diet_fairseq.hf.convert.configuration import fairseq_args
    from diet_fairseq.hf.convert.to_transformers import convert

    model = at(LOW, case)
    converted = convert(model).model  # compares them
    assert converted.config.position_options["position_temperature"] == LOW
    outputs = []
    AttentionInterface.register("a_stranger", sdpa_attention_forward)
    for name in ("eager", "a_stranger"):
        converted.set_attn_implementation(name)
        sources = tiny.padded(tiny.SOURCES, left_pad=True)
        inputs = {"input_ids": sources}
        if case.family == "transformer":
            inputs["decoder_input_ids"] = tiny.padded(tiny.TARGETS, left_pad=False)
        outputs.append(converted(**inputs).logits)
    close(*outputs, **TOLERANCE)
    assert fairseq_args(converted.config).position_temperature == LOW


@tiny.each(FIRST + CROSS)
def test_a_model_in_transformers_has_the_temperature(case):
    check_transformers(case)


def check_ctranslate2(case):
    pytest.importorskip("ctranslate2")
    from tests.export.test_ctranslate2 import difference, exported

    with TemporaryDirectory() as folder:
        model = at(LOW, case)
        assert difference(model, exported(model, folder)) < 1e-4
        assert difference(tiny.model_of(case), folder) > 1e-3


@tiny.each([case for case in FIRST if case.scheme in
            ("none", "sinusoidal", "learned", "shaw", "t5", "diet_rel")])  # fmt: skip
def test_ctranslate2_has_the_temperature_in_its_weights(case):
    check_ctranslate2(case)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return untrained(tmp_path_factory.mktemp("model"), "--arch", "transformer_t5_tiny")


LINE = "ban kon din ban kon din"


@pytest.mark.slow
def test_the_translator_takes_a_temperature(folder):
    plain, neutral, low = (Translator(folder, position_temperature=t) for t in (None, 1.0, LOW))
    scores = [[candidate.score for candidate in translator.candidates([LINE], nbest=3)[0]]
              for translator in (plain, neutral, low)]  # fmt: skip
    assert scores[0] == scores[1] != scores[2]


@pytest.mark.slow
def test_checkpoints_of_earlier_versions_take_a_temperature(folder, tmp_path):
    state = torch.load(folder / "checkpoint_last.pt", weights_only=False)
    vars(state["cfg"]["model"]).pop("position_temperature", None)
    torch.save(state, tmp_path / "old.pt")
    places = {"data": folder, "subwords": folder / "sentencepiece.model"}
    languages = {"source_lang": "en", "target_lang": "de"}
    translator = Translator(tmp_path / "old.pt", **places, **languages, position_temperature=LOW)
    [model] = translator._engine.models
    assert model.encoder.stack_config.positions.temperature == LOW
    overrides = {"data": str(folder), "position_temperature": 0.25}  # of --model-overrides
    [model], _, _ = checkpoint_utils.load_model_ensemble_and_task(
        [str(tmp_path / "old.pt")], arg_overrides=overrides
    )
    assert model.decoder.stack_config.positions.temperature == 0.25


@pytest.mark.slow
def test_commands_take_a_temperature_for_checkpoints_alone(folder, tmp_path):
    pytest.importorskip("ctranslate2")
    exported, plain = tmp_path / "exported", tmp_path / "plain"
    words = ["--position-temperature", str(LOW)]
    # which compares the outputs with the model's
    assert main(["export", "ctranslate2", str(folder), str(exported), *words]) == 0
    assert main(["export", "ctranslate2", str(folder), str(plain)]) == 0
    assert (exported / "model.bin").read_bytes() != (plain / "model.bin").read_bytes()
    with pytest.raises(UserError) as refused:
        Translator(exported, position_temperature=LOW)
    assert str(refused.value) == (
        f"--position-temperature 0.5 must be given at export, but {exported} is exported already: "
        "export the checkpoint with this option"
    )


@pytest.mark.slow
def test_fairseq_s_own_models_have_no_temperature(tmp_path):
    folder = untrained(tmp_path / "stock", "--arch", "transformer")
    with pytest.raises(
        UserError, match=r"0\.5 is for models with a position scheme, and .* is fai"
    ):
        Translator(folder, position_temperature=LOW)


MUTANTS: mutants.Table = [
    (check_weights, mutants.logits_that_are_not_divided, "diet_rel"),
    (check_backends, mutants.a_temperature_of_queries_alone, "t5"),
    (check_training, mutants.a_temperature_in_training, "diet_rel"),
    (check_kernels, mutants.a_temperature_of_queries_alone, "t5"),
    (check_temperature_of_one, mutants.a_division_by_one, "t5"),
    (check_transformers, mutants.fused_attention_without_a_temperature, "t5"),
    (check_ctranslate2, mutants.converted_temperature_forgotten, "t5"),
]


@mutants.each(MUTANTS)
def test_a_mutant_is_caught(check, mutant, case, monkeypatch):
    if check is check_transformers:  # which compares on its own
        from diet_fairseq.hf.convert import to_transformers

        monkeypatch.setattr(to_transformers, "check_same", lambda *_: 0.0)
    mutants.assert_caught(check, mutant, case)
