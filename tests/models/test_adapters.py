"""fairseq's encoder and decoder around the ones in plain PyTorch."""

import copy
from inspect import signature

import pytest
import torch
from fairseq.models import FairseqEncoder, FairseqIncrementalDecoder
from fairseq.models.roberta import RobertaModel
from fairseq.models.transformer import (
    TransformerDecoderBase,
    TransformerEncoderBase,
    TransformerModel,
)
from fairseq.sequence_generator import SequenceGenerator

from diet_fairseq.errors import UserError
from diet_fairseq.models.adapters import HOOKS, PositionalDecoder, PositionalEncoder
from diet_fairseq.transformer import DecodingCache
from tests.support import mutants, tiny
from tests.support.tiny import SOURCES, TOLERANCE, WORDS, Case

close = torch.testing.assert_close
SINUSOIDAL = Case("sinusoidal")


def test_models_are_of_the_classes_that_scripts_ask_for():
    model, roberta = tiny.model_of(SINUSOIDAL), tiny.model_of(Case("t5", family="roberta"))
    assert isinstance(model, TransformerModel)
    assert isinstance(model.encoder, FairseqEncoder)
    assert isinstance(model.decoder, FairseqIncrementalDecoder)
    assert isinstance(roberta, RobertaModel)
    assert isinstance(roberta.encoder.sentence_encoder, FairseqEncoder)


@pytest.mark.parametrize(
    ("ours", "stock"),
    [
        (PositionalDecoder, TransformerDecoderBase),
        (PositionalDecoder.forward, TransformerDecoderBase.forward),
        (PositionalDecoder.extract_features, TransformerDecoderBase.extract_features),
        (PositionalEncoder.forward, TransformerEncoderBase.forward),
    ],
)
def test_arguments_have_fairseq_s_order(ours, stock):
    names = list(signature(stock).parameters)
    assert list(signature(ours).parameters)[: len(names)] == names


@pytest.mark.parametrize("base", [PositionalEncoder, PositionalDecoder])
@pytest.mark.parametrize("hook", HOOKS)
def test_a_method_that_would_never_be_called_is_refused(base, hook):
    with pytest.raises(UserError) as error:
        type("Mine", (base,), {hook: lambda *_: None})
    assert str(error.value) == (
        f"Mine.{hook} would never be called: encoders and decoders with position schemes build "
        "their layers themselves; change diet_fairseq.transformer.TransformerLayer, or use "
        "fairseq's own model"
    )


def as_early_fairseq(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The parameters with the names of fairseq 0.6."""
    old = {}
    for name, value in state.items():
        prefix, _, end = name.rpartition(".")
        if prefix.endswith("_attn.q_proj"):
            parts = [state[name.replace("q_proj", f"{part}_proj")] for part in "qkv"]
            old[name.replace("q_proj.", "in_proj_")] = torch.cat(parts)
        elif prefix.endswith(("_attn.k_proj", "_attn.v_proj")):
            pass
        elif ".layers." in name and prefix.endswith("layer_norm"):
            norms = ["self_attn_layer_norm", "final_layer_norm"]
            if name.startswith("decoder"):
                norms.insert(1, "encoder_attn_layer_norm")
            layer, _, norm = prefix.rpartition(".")
            old[f"{layer}.layer_norms.{norms.index(norm)}.{end}"] = value
        else:
            old[name] = value
    return old


def check_early_checkpoint(case: Case) -> None:
    """fairseq's own model is the oracle of the upgrade."""
    stock = tiny.stock()
    old, model, theirs = as_early_fairseq(stock.state_dict()), tiny.fresh(case), tiny.stock()
    for built in (model, theirs):
        with torch.no_grad():
            for parameter in built.parameters():
                parameter.zero_()
        built.load_state_dict(copy.copy(old))
    close(tiny.logits(theirs), tiny.logits(stock), **TOLERANCE)
    close(tiny.logits(model), tiny.logits(stock), **TOLERANCE)


def test_checkpoints_of_early_versions_of_fairseq_load():
    check_early_checkpoint(SINUSOIDAL)


@pytest.mark.parametrize("version", [None, 1.0, 2.0, 3.0])
def test_early_models_had_no_layer_norm_after_the_layers(version):
    options = {"encoder_normalize_before": True, "decoder_normalize_before": True}
    ours, theirs = tiny.fresh(SINUSOIDAL, **options), tiny.stock(**options)
    state = theirs.state_dict()
    for side in ("encoder", "decoder"):
        state.pop(f"{side}.version")
        if version is not None:
            state[f"{side}.version"] = torch.Tensor([version])
    for model in (ours, theirs):
        model.load_state_dict(dict(state), strict=False)
    for side in ("encoder", "decoder"):
        has_norm = getattr(theirs, side).layer_norm is not None
        assert (getattr(ours, side).layer_norm is not None) == has_norm
    close(tiny.logits(ours), tiny.logits(theirs), **TOLERANCE)


def check_reorders(case: Case) -> None:
    model, reorders, steps = tiny.model_of(case), [], []
    reorder, decode = DecodingCache.reorder, PositionalDecoder.decode
    source = tiny.padded(SOURCES, left_pad=True)
    lengths = torch.tensor([len(sentence) for sentence in SOURCES])
    sample = {"net_input": {"src_tokens": source, "src_lengths": lengths}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DecodingCache, "reorder", lambda *x: reorders.append(1) or reorder(*x))
        patch.setattr(
            PositionalDecoder, "decode", lambda *x, **y: steps.append(1) or decode(*x, **y)
        )
        SequenceGenerator([model], WORDS, beam_size=2, max_len_b=4).generate([model], sample)
    assert len(reorders) == len(steps) - 1 > 0


def test_the_decoding_state_is_reordered_once_a_step():
    check_reorders(SINUSOIDAL)


MUTANTS: mutants.Table = [
    (check_reorders, mutants.a_state_reordered_by_every_layer, "sinusoidal"),
    (check_early_checkpoint, mutants.projections_split_in_another_order, "sinusoidal"),
]
test_a_mutant_is_caught = mutants.build_test(MUTANTS)
