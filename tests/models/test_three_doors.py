"""Position options at the three doors: fairseq's commands, plain PyTorch and transformers."""

import json
from argparse import Namespace
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.models.transformer import TransformerConfig
from omegaconf import OmegaConf
from torch import nn

from diet_fairseq.config import PositionConfig, position_options
from diet_fairseq.errors import UserError
from diet_fairseq.models.adapters import stack_config
from diet_fairseq.positions import SCHEMES
from diet_fairseq.transformer import Encoder, StackConfig, Transformer
from tests.support import tiny

hf = pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")

SIZES = {"layers": 1, "embed_dim": 16, "heads": 2}
#: the same sizes in transformers' encoders
ENCODER: dict[str, Any] = {
    "encoder_layers": 1, "encoder_embed_dim": 16, "encoder_ffn_embed_dim": 64,
    "encoder_attention_heads": 2, "vocab_size": 20, "max_source_positions": 32,
}  # fmt: skip
DECODER = {name.replace("encoder", "decoder"): ENCODER[name] for name in list(ENCODER)[:4]}


def translation_with_pytorch(scheme: str, **options: Any) -> PositionConfig:
    config = StackConfig.for_scheme(scheme, **SIZES, position_options=options)
    Transformer(config, vocabulary=20)
    return config.positions


def encoder_with_pytorch(scheme: str, **options: Any) -> PositionConfig:
    return StackConfig.for_encoder(scheme, **SIZES, position_options=options).positions


def encoder_with_transformers(scheme: str, **options: Any) -> PositionConfig:
    config = hf.DietEncoderConfig(position_scheme=scheme, position_options=options, **ENCODER)
    return config.positions


def translation_with_transformers(scheme: str, **options: Any) -> PositionConfig:
    return hf.DietTransformerConfig(
        position_scheme=scheme, position_options=options, **ENCODER, **DECODER
    ).positions


def fairseq_train(scheme: str, **options: Any) -> PositionConfig:
    return PositionConfig.from_args(Namespace(position_scheme=scheme, **options))


def fairseq_hydra_train(scheme: str, **options: Any) -> PositionConfig:
    return PositionConfig.from_args(OmegaConf.create({"position_scheme": scheme, **options}))


#: doors that check names; fairseq-train's parser does
NAMING = {
    "fairseq-hydra-train": fairseq_hydra_train,
    "PyTorch": translation_with_pytorch,
    "PyTorch, encoder": encoder_with_pytorch,
    "transformers": translation_with_transformers,
    "transformers, encoder": encoder_with_transformers,
}
DOORS: dict[str, Callable[..., PositionConfig]] = {"fairseq-train": fairseq_train, **NAMING}
#: options, and the error text without the section of fairseq-hydra-train
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (
        "shaw",
        {"position_values": "no"},
        "position_values must be true or false, but is 'no': change it",
    ),
    (
        "alibi",
        {"position_cross_attention": "false"},
        "position_cross_attention must be true or false, but is 'false': change it",
    ),
    ("diet_abs", {"position_rank": 2.5}, "position_rank must be an integer, but is 2.5: change it"),
    (
        "diet_abs",
        {"position_rank": True},
        "position_rank must be an integer, but is True: change it",
    ),
    ("t5", {"position_gain": "2"}, "position_gain must be a number, but is '2': change it"),
    ("t5", {"position_sharing": 1}, "position_sharing must be text in quotes, but is 1: change it"),
    ("diet_abs", {"position_rank": 0}, "--position-rank must be at least 1, but is 0"),
    (
        "t5",
        {"position_sharing": "heads"},
        "--position-sharing must be one of none, head, layer, but is heads",
    ),
    (
        "diet_rel",
        {"position_rank": 3},
        "--position-rank 3 is not an option of the position scheme diet_rel: leave it out, or use "
        "one of diet_abs, diet_abs_lin",
    ),
    (
        "learned",
        {"position_sampling_length": 3},
        "--position-sampling-length 3 has no effect without --position-sampling: leave it out, or "
        "add --position-sampling",
    ),
    (
        "slope",
        {"position_decay": 0.5},
        f"--position-scheme must be one of {', '.join(SCHEMES)}, but is slope: if a package of "
        "your own registers it, import that package first (--user-dir in commands)",
    ),
]
MISSPELT = {
    "position_rnk": "position_rank or position_peak or position_gain",
    "projection_lenght": "projection_length or projection_sharing or position_cope_length",
    "segment_schem": "segment_scheme or num_segments",
}


@pytest.mark.parametrize(("scheme", "options", "text"), REFUSED, ids=lambda value: str(value)[:40])
@pytest.mark.parametrize("door", DOORS)
def test_all_doors_refuse_an_option_in_the_same_words(door, scheme, options, text):
    with pytest.raises(UserError) as refused:
        DOORS[door](scheme, **options)
    assert str(refused.value).removeprefix("model.") == text


@pytest.mark.parametrize("name", MISSPELT)
@pytest.mark.parametrize("door", NAMING)
def test_a_misspelt_option_is_refused_with_the_right_spelling(door, name):
    with pytest.raises(UserError) as refused:
        NAMING[door]("diet_abs", **{name: 4})
    text = f"{name} is not an option: correct it to {MISSPELT[name]}"
    assert str(refused.value).removeprefix("model.") == text


@pytest.mark.parametrize("off", [None, False])
def test_saved_options_that_are_off_may_belong_to_a_scheme_that_is_not_registered(off):
    """A checkpoint has the options of all schemes that were registered in its training."""
    new = {"position_decay": off}
    saved = {
        "fairseq-train": fairseq_train("t5", **new),
        "fairseq-hydra-train": fairseq_hydra_train("t5", position_description="{}", **new),
        "transformers": hf.DietEncoderConfig(
            position_scheme="t5", position_options=new, transformers_version="5.24.0", **ENCODER
        ).positions,
    }
    for positions in saved.values():
        assert vars(positions) == vars(fairseq_train("t5"))
    for door in NAMING.values():  # YAML reads the value ``no`` as false
        with pytest.raises(UserError, match="position_decay is not an option"):
            door("t5", **new)


def test_other_parts_of_fairseq_may_have_options_of_such_names():
    """fairseq-train has one Namespace for all parts of a run, and its parser checks the names."""
    assert vars(fairseq_train("t5", position_noise=0.5)) == vars(fairseq_train("t5"))


@pytest.mark.parametrize("door", DOORS)
def test_none_is_the_default(door):
    names = set(position_options()) - {"position_scheme"}
    assert vars(DOORS[door]("tupe_r", **dict.fromkeys(names))) == vars(DOORS[door]("tupe_r"))


def test_options_outside_position_options_are_refused_in_transformers():
    for config in (hf.DietEncoderConfig, hf.DietTransformerConfig):
        with pytest.raises(UserError) as refused:
            config(vocab_size=20, position_rank=4, num_segments=2)
        assert str(refused.value) == (
            "position_rank and num_segments must be in position_options: write "
            "position_options={'position_rank': 4, 'num_segments': 2}"
        )
        with pytest.raises(UserError, match="position_rnk is not an option: correct it to"):
            config(vocab_size=20, position_rnk=4)


def test_the_scheme_is_not_one_of_the_position_options():
    with pytest.raises(UserError, match="position_scheme must not be one of the position options"):
        StackConfig.for_scheme("t5", **SIZES, position_options={"position_scheme": "shaw"})
    with pytest.raises(UserError, match="position_scheme must not be one of the position options"):
        hf.DietEncoderConfig(position_scheme="t5", position_options={"position_scheme": "shaw"})


def test_a_saved_option_that_earlier_versions_ignored_is_ignored_with_a_warning(caplog):
    saved = {"transformers_version": "5.24.0", "position_rank": 4}
    positions = hf.DietEncoderConfig(position_scheme="diet_abs", **saved, **ENCODER).positions
    assert positions.position_rank is None
    assert "ignoring position_rank beside position_options" in caplog.text


# --- combinations with the model --------------------------------------------------------------


@pytest.mark.parametrize("segments", ["input", "per-head"])
@pytest.mark.parametrize("build", [translation_with_pytorch, translation_with_transformers])
def test_translation_models_refuse_segments(build, segments):
    with pytest.raises(UserError) as refused:
        build("t5", segment_scheme=segments)
    assert str(refused.value) == (
        f"--segment-scheme {segments} needs segments, which a translation model lacks: leave it out"
    )


@pytest.mark.parametrize("build", [encoder_with_pytorch, encoder_with_transformers])
def test_encoders_refuse_schemes_in_cross_attention(build):
    with pytest.raises(UserError) as refused:
        build("alibi", position_cross_attention=True)
    assert str(refused.value) == (
        "--position-cross-attention needs cross-attention, which an encoder lacks: leave it out"
    )


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ({"layers": 0}, "number of layers must be an integer of at least 1, but is 0"),
        ({"heads": 0}, "number of attention heads must be an integer of at least 1, but is 0"),
        ({"embed_dim": -1}, "width must be an integer of at least 1, but is -1"),
        ({"ffn_embed_dim": 0}, "feed-forward width must be an integer of at least 1, but is 0"),
        ({"heads": 3}, "the width must be a multiple of the 3 attention heads, but is 16: change "),
    ],
    ids=str,
)
def test_all_doors_refuse_sizes_that_can_t_be_built(sizes, text):
    names = {name: "attention_heads" if name == "heads" else name for name in sizes}
    for side in ("encoder", "decoder"):
        given = {f"{side}_{names[name]}": size for name, size in sizes.items()}
        args = tiny.arguments(tiny.Case("t5"), **given)
        config = TransformerConfig.from_namespace(args)
        with pytest.raises(UserError, match=text):
            stack_config(config, side)
        with pytest.raises(UserError, match=text):
            hf.DietTransformerConfig(**ENCODER | DECODER | given)
    with pytest.raises(UserError, match=text):
        StackConfig.for_scheme("t5", **SIZES | sizes)


def test_sizes_of_plain_pytorch_are_integers():
    for sizes in ({"layers": 1.5}, {"layers": "2"}, {"max_positions": 0}):
        with pytest.raises(UserError, match="must be an integer of at least 1, but is"):
            StackConfig.for_scheme("t5", **SIZES | sizes)


def test_projections_longer_than_the_input_are_refused():
    text = "must be at most max_.*positions .32., but is 33: lower it"
    with pytest.raises(UserError, match=text):
        StackConfig.for_encoder("linformer", **SIZES, max_positions=32,
                                position_options={"projection_length": 33})  # fmt: skip
    with pytest.raises(UserError, match=text):
        encoder_with_transformers("linformer", projection_length=33)


@pytest.mark.parametrize("has_segments", [False, True])
def test_segments_of_a_wrong_shape_or_type_are_refused(has_segments):
    config = StackConfig.for_encoder("t5", **SIZES, has_segments=has_segments)
    encoder = Encoder(config, nn.Embedding(20, 16, padding_idx=1))
    tokens = torch.full((3, 7), 5)
    for shape in ((3, 6), (1, 7), (7,)):
        with pytest.raises(UserError) as refused:
            encoder(tokens, torch.zeros(shape, dtype=torch.int64))
        assert str(refused.value) == (
            f"segments must have the shape of tokens, (3, 7), but have {shape}: give one segment "
            "id for each token"
        )
    with pytest.raises(UserError, match=r"must be integers, but are torch\.float32: convert them"):
        encoder(tokens, torch.zeros(3, 7))


# --- defaults ---------------------------------------------------------------------------------


def arguments_of(arch: str) -> Namespace:
    args = Namespace(max_source_positions=512, max_positions=512)
    ARCH_CONFIG_REGISTRY[arch](args)
    return args


@pytest.mark.parametrize("scheme", SCHEMES)
def test_encoders_have_the_same_defaults_at_all_doors(scheme):
    roberta, bert = (vars(PositionConfig.from_args(arguments_of(f"{family}_{scheme}")))
                     for family in ("roberta", "bert"))  # fmt: skip
    assert vars(encoder_with_transformers(scheme)) == roberta
    assert vars(encoder_with_pytorch(scheme)) == roberta
    config = StackConfig.for_encoder(scheme, **SIZES, has_segments=True)
    assert vars(config.positions) == bert


def test_an_option_that_is_given_replaces_the_default_of_encoders():
    for build in (encoder_with_pytorch, encoder_with_transformers):
        positions = build("tupe_free", position_untie_cls="paper", position_peak=2)
        assert (positions.position_untie_cls, positions.position_peak) == ("paper", 2)
        assert build("tupe_free").position_untie_cls == "official"
        assert build("tupe_free").position_peak == 6.0


def test_an_encoder_of_plain_pytorch_is_fairseq_s_roberta():
    args = arguments_of("roberta_t5")
    theirs = stack_config(TransformerConfig.from_namespace(args), "encoder")
    ours = StackConfig.for_encoder("t5", layers=12, embed_dim=768, heads=12)
    x = torch.linspace(-3, 3, 9)
    torch.testing.assert_close(ours.activation(x), theirs.activation(x))
    different = {"positions", "limit", "activation"}
    for name in set(vars(theirs)) - different:
        assert getattr(ours, name) == getattr(theirs, name), name


def test_a_saved_encoder_states_its_defaults(tmp_path):
    config = hf.DietEncoderConfig(position_scheme="tupe_free", **ENCODER)
    config.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    assert saved["position_options"] == {"position_untie_cls": "official", "position_peak": 6.0}
    for again in (
        hf.DietEncoderConfig.from_pretrained(tmp_path),
        hf.DietEncoderConfig.from_json_file(tmp_path / "config.json"),
        hf.DietEncoderConfig(**config.to_dict()),
    ):
        assert vars(again.positions) == vars(config.positions)


def test_a_folder_of_an_earlier_version_keeps_the_defaults_that_it_was_saved_with(tmp_path):
    """Before 0.5 an encoder that was built in transformers had a translation model's defaults."""
    options = {"position_untie_cls": "no", "position_peak": 3.0}
    config = hf.DietEncoderConfig(position_scheme="tupe_free", position_options=options, **ENCODER)
    model = hf.DietEncoderModel(config).eval()
    model.save_pretrained(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    del values["position_options"]
    (tmp_path / "config.json").write_text(json.dumps(values))
    again = hf.DietEncoderModel.from_pretrained(tmp_path).eval()
    assert vars(again.config.positions) == vars(config.positions)
    tokens = torch.randint(4, 20, (2, 9))
    assert torch.equal(again(tokens).last_hidden_state, model(tokens).last_hidden_state)
