"""CTranslate2 computes what the model computes, or is not asked to."""

import json
from argparse import ArgumentParser
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch

from diet_fairseq.commands.exports import add_ctranslate2_arguments
from diet_fairseq.errors import UserError
from diet_fairseq.export import ctranslate2 as export
from diet_fairseq.export.ctranslate2 import positions
from diet_fairseq.positions.relative import OffsetScores
from diet_fairseq.positions.rope import Rope
from diet_fairseq.positions.shaw import Shaw
from diet_fairseq.translate.ctranslate2_files import read_variables
from tests.support import mutants, tiny
from tests.support.tiny import Case

EXACT = 1e-4  # tolerance of log-probabilities in float32


def exported(model, folder, quantization="float32"):
    export.save_model(model, str(folder), quantization)
    return str(folder)


def difference(model, folder):
    return export.measure_difference(model, str(folder))


def fits(case):
    if case.is_hybrid:
        return False
    if not case.kind.in_attention:
        return True
    if case.option("position_input") != "none":
        return False
    if issubclass(case.kind, Shaw):
        return case.option("position_sharing") == "head"
    if case.kind is Rope:
        return case.option("position_rope_scaling") != "yarn"
    return case.kind.kinds == {"offsets"} and not case.option("position_cross_attention")


CASES = [case for case in tiny.NO_BACKEND if case.family == "transformer"]
TRANSLATORS = [case for case in CASES if fits(case)]
REFUSED = [case for case in CASES if not fits(case)]


def test_every_scheme_that_fits_is_among_those_tested():
    assert {case.scheme for case in TRANSLATORS} == {
        "none", "sinusoidal", "learned", "shaw", "t5", "diet_rel",
        "alibi", "kerple", "sandwich", "cpb", "rope",
    }  # fmt: skip
    for scheme in ("t5", "diet_rel"):
        sharings = {c.option("position_sharing") for c in TRANSLATORS if c.scheme == scheme}
        assert sharings == {"none", "head", "layer"}


def check_outputs(case):
    model = tiny.model_of(case)
    with TemporaryDirectory() as folder:
        assert difference(model, exported(model, folder)) < EXACT


@tiny.each(TRANSLATORS)
def test_outputs_are_the_models_own(case):
    """Sentences of many lengths in one batch; tables that end are read beyond their end."""
    check_outputs(case)
    if issubclass(case.kind, OffsetScores | Shaw):
        assert max(export.LENGTHS) > tiny.LIMIT


def reasons():
    for case in REFUSED:
        if case.is_hybrid:
            yield case, "--position-window and --position-layers: its encoders have no windows"
        elif issubclass(case.kind, Shaw) and case.option("position_sharing") != "head":
            yield case, "a Shaw table for each head: its heads share one table"
        elif case.option("position_cross_attention") and case.kind.kinds == {"offsets"}:
            yield case, "positions in cross-attention: its cross-attention has no positions"
        elif case.option("position_rope_scaling") == "yarn":
            yield case, "--position-rope-scaling yarn: it has only RoPE's linear scaling"
        elif issubclass(case.kind, Shaw) or case.kind is Rope or case.kind.kinds == {"offsets"}:
            yield (
                case,
                "positions both at the input and in attention: its positions in attention",
            )
        else:
            yield case, f"the position scheme {case.scheme}: it has only scores of offsets"


@pytest.mark.parametrize(
    ("case", "reason"),
    {(case.scheme, reason): (case, reason) for case, reason in reasons()}.values(),
)
def test_an_unsupported_scheme_is_refused_with_a_reason(case, reason):
    with pytest.raises(UserError) as error:
        export.build_specification(tiny.model_of(case))
    assert str(error.value).startswith(f"CTranslate2 can't represent {reason}")
    assert str(error.value).endswith("export it to Hugging Face: diet-fairseq export hf")


@pytest.mark.parametrize("options", [{}, {"position_rope_share": 0.25}], ids=str)
def test_rotary_positions_fit_to_1e_5(options, tmp_path):
    """CTranslate2 pairs dimensions as we do, and then adds no positions at the input."""
    model = tiny.model_to_change(Case("rope").but(**options))
    assert difference(model, exported(model, tmp_path)) < 1e-5


VARIANTS = [
    {"encoder_normalize_before": True, "decoder_normalize_before": True},
    {"encoder_normalize_before": True, "decoder_layers": 1, "activation_fn": "gelu"},
    {"decoder_normalize_before": True, "no_decoder_final_norm": True},
    {"layernorm_embedding": True, "no_scale_embedding": True, "activation_fn": "gelu_accurate"},
    {"share_all_embeddings": True, "share_decoder_input_output_embed": True},
    {"decoder_embed_dim": 24, "decoder_attention_heads": 3, "decoder_output_dim": 24},
]  # fmt: skip


@pytest.mark.parametrize(
    ("arch", "options"), zip(cycle(["transformer", "transformer_diet_rel"]), VARIANTS), ids=str
)
def test_shapes_of_models_fit(arch, options, tmp_path):
    model = tiny.from_arguments(tiny.complete(arch, **options))
    assert difference(model, exported(model, tmp_path)) < EXACT


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"activation_fn": "relu_squared"}, "--activation-fn relu_squared: it has relu, gelu"),
        (
            {"adaptive_softmax_cutoff": "10,20"},
            "--adaptive-softmax-cutoff: its output layer is one",
        ),
        (
            {"scale_heads": True},
            "the parameter decoder.layers.0.c_attn (and 1 more): none of its layers",
        ),
        ({"scale_fc": True}, "the parameter decoder.layers.0.ffn_layernorm.bias (and 3 more)"),
        (
            {"decoder_output_dim": 12},
            "the parameter decoder.project_out_dim.weight: none of its layers",
        ),
    ],
)
def test_options_without_a_counterpart_are_refused(options, reason):
    model = tiny.from_arguments(tiny.complete("transformer", **options))
    with pytest.raises(UserError) as error:
        export.build_specification(model)
    assert str(error.value).startswith(f"CTranslate2 can't represent {reason}")


@tiny.each([Case("diet_rel"), Case("shaw"), Case("shaw").but(position_values=True)])
def test_a_gain_is_in_the_tables(case, tmp_path):
    model = tiny.model_to_change(case)
    for scheme in tiny.schemes_in(model).values():
        scheme.gain *= 1.5
    assert difference(model, exported(model, tmp_path)) < EXACT


def test_no_positions_are_zeros_as_their_absence_means_sinusoidal_ones(tmp_path, monkeypatch):
    """The same export without the zeros computes something else."""
    model = tiny.model_of(Case("none"))
    init = positions.Positions.__init__

    def silent(self, stack):
        init(self, stack)
        self.bias = False

    monkeypatch.setattr(positions.Positions, "__init__", silent)
    monkeypatch.setattr(positions, "input_table", lambda stack: positions.model_spec.OPTIONAL)
    assert difference(model, exported(model, tmp_path)) > 0.1


def test_quantization_leaves_the_model_unchanged(tmp_path):
    model = tiny.model_to_change(Case("diet_rel"))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    folder = exported(model, tmp_path, "int8")
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert EXACT < difference(model, folder) < 2


@pytest.mark.parametrize(
    ("quantization", "matrix", "vector", "table"),
    [("int8", "b", "f", "f"), ("int8_float16", "b", "e", "e"), ("float16", "e", "e", "e")],
)
def test_parameters_have_the_types_that_the_help_names(
    tmp_path, quantization, matrix, vector, table
):
    folder = exported(tiny.model_of(Case("t5")), tmp_path, quantization)
    with open(Path(folder, "model.bin"), "rb") as file:
        variables = read_variables(file)
    layer = "encoder/layer_0/self_attention"
    assert variables[f"{layer}/linear_0/weight"].type == matrix
    assert variables[f"{layer}/linear_0/bias"].type == vector
    assert variables[f"{layer}/relative_attention_bias"].type == table


def test_the_help_of_quantization_names_the_types_of_all_parameters():
    parser = ArgumentParser()
    add_ctranslate2_arguments(parser)
    assert (
        "type of weight matrices; with int8 and int16 the other parameters, such as biases and "
        "position tables, are float32, and with int8_TYPE they have this type (default: float32)"
    ) in " ".join(parser.format_help().split())


def test_the_comparison_sees_a_parameter_that_differs(tmp_path):
    model = tiny.model_to_change(Case("t5"))
    folder = exported(model, tmp_path)
    with torch.no_grad():
        model.decoder.layers[1].self_attn.k_proj.weight.mul_(1.1)
    assert difference(model, folder) > 10 * EXACT


def test_an_encoder_is_refused():
    with pytest.raises(UserError, match="can't represent a model without a decoder: only"):
        export.build_specification(tiny.model_of(Case("t5", family="bert")))


def test_special_tokens_are_in_the_configuration(tmp_path):
    exported(tiny.model_of(Case("t5")), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["decoder_start_token"] == config["eos_token"] == "</s>"
    assert config["add_source_eos"]


@pytest.mark.parametrize("version", ["3.24.0", "4.6.0", "4.8.2", "4.8.3", "4.9.0rc1", "5.0"])
def test_versions_that_confuse_the_layers_tables_are_refused(version):
    if version in ("4.8.3", "4.9.0rc1", "5.0"):
        export.check_version(version)
        return
    with pytest.raises(UserError, match=f"must be 4.8.3 or newer, but is {version}, which may use"):
        export.check_version(version)


MUTANTS: mutants.Table = [(check_outputs, mutants.converted_positions_shifted_by_one, "diet_rel")]
test_a_mutant_is_caught = mutants.build_test(MUTANTS)
