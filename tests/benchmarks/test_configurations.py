"""The benchmarks' models can be built: fairseq's option checks take their command lines."""

import pytest

from benchmarks import encoders, translation


@pytest.mark.parametrize("scheme", [translation.STOCK, translation.WITH_OURS, "diet_rel"])
def test_a_translation_model_is_configured(scheme):
    cfg = translation.configuration(scheme, "_tiny")
    assert cfg.model.encoder_layers == 4
    assert cfg.generation.beam == 5


@pytest.mark.few(1)
@pytest.mark.parametrize("scheme", ["diet_rel", translation.STOCK])
def test_a_row_in_bfloat16_is_the_same_model_in_bfloat16(scheme):
    narrow, wide = (translation.configuration(scheme + end, "_tiny") for end in (", bf16", ""))
    assert narrow.common.bf16
    assert not wide.common.bf16
    for part in ("model", "optimizer", "criterion"):
        assert narrow[part]._name == wide[part]._name


@pytest.mark.parametrize("scheme", [encoders.STOCK, "diet_rel"])
def test_an_encoder_is_built(scheme):
    trainer = encoders.trainer_of(scheme, "tiny", 16, [])
    assert len(trainer.model.encoder.sentence_encoder.layers) == 4
