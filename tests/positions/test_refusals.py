"""What can't work is refused in words, each of them pinned: name, rule, value, what to do."""

import pytest
from fairseq import options

from diet_fairseq.config import PositionConfig, acts_in_attention, position_options
from diet_fairseq.errors import UserError
from diet_fairseq.positions import SCHEMES
from tests.support import tiny
from tests.support.tiny import Case


def parsed(*flags: str):
    """fairseq's own reading of a command line."""
    parser = options.get_training_parser()
    small = ["--encoder-layers", "1"]
    translating = any(flag.startswith("transformer") for flag in flags)
    small += ["--decoder-layers", "1"] if translating else ["--task", "masked_lm"]
    return options.parse_args_and_arch(parser, ["data", *small, *flags])


def build(*flags: str):
    return tiny.from_arguments(parsed(*flags))


def flags_of(line: str) -> list[str]:
    """A command line; its architecture is a tiny one for translation unless it names an encoder."""
    arch, *rest = line.split()
    if arch.startswith(("roberta_", "bert_")):
        return ["--arch", arch, *rest, "--max-positions", "16"]
    return ["--arch", f"transformer_{arch}_tiny", *rest]


def listed(names) -> str:
    return ", ".join(names)


def having(option: str) -> str:
    """The schemes that have an option."""
    names = [name for name in SCHEMES if acts_in_attention(SCHEMES[name])]
    return listed(n for n in names if f"position_{option}" in tiny.default_options(SCHEMES[n]))


def no_option(scheme: str, flag: str, option: str) -> str:
    return (
        f"{flag} is not an option of the position scheme {scheme}: leave it out, or use one of "
        f"{having(option)}"
    )


def no_effect(option: str, need: str) -> str:
    return f"--position-{option} has no effect without {need}: leave it out, or add {need}"


LOCAL = "--position-start local (tupe_r: and --position-relative scalar)"


def round_about(flag: str) -> str:
    return (
        f"{flag} can't be combined with position schemes: leave it out, or use fairseq's own model"
    )


def at_the_input(flag: str, arch: str) -> str:
    meant = "learned" if "learned" in flag else "none"
    return f"{flag} can't be combined with --arch {arch}: use --position-input {meant} instead"


def no_projection(scheme: str, flag: str) -> str:
    return (
        f"{flag} is not an option of the position scheme {scheme}: leave it out, or use one of "
        "linformer, diet_abs_lin"
    )


def no_segments_of_mixtures(scheme: str) -> str:
    return (
        f"--segment-scheme per-head can't be combined with the position scheme {scheme}: its "
        "compressed keys mix tokens of all segments; use input or none"
    )


def no_pattern(value: str) -> str:
    return (
        "--position-layers must be a word of the letters g (global layer) and l (local layer), and "
        f"must have both, but is {value}: gll makes every third layer global, beginning with the "
        "first; leave it out if all layers are local"
    )


def one_kind(side: str, pattern: str, kind: str) -> str:
    return (
        f"--position-layers {pattern} must make some of the {side}'s 1 layers global and some "
        f"local, but makes all {kind}: use a shorter pattern"
    )


def not_global(scheme: str) -> str:
    fit = [n for n in SCHEMES if SCHEMES[n].in_attention and not SCHEMES[n].compressed]
    return (
        "--position-global-scheme must be none or a scheme that acts in the attention of single "
        f"layers, but is {scheme}: use one of {listed(['none', *fit])}, or --position-input for "
        "positions at the input of all layers"
    )


def no_base(scheme: str) -> str:
    return (
        "--position-global-base 500.0 needs global layers with rotations, but their scheme is "
        f"{scheme}: leave it out, or set --position-global-scheme to one of rope, xpos, pope"
    )


def no_layers(scheme: str, flag: str) -> str:
    return (
        f"{flag} can't be combined with the position scheme {scheme}: its compressed keys mix "
        "tokens of all distances; use another scheme, or leave it out"
    )


#: the scheme and flags -> what is said
REFUSED = {
    "t5 --position-window 0": "--position-window must be at least 1, but is 0",
    "t5 --position-window 2 --position-layers l": no_pattern("l"),
    "t5 --position-window 2 --position-layers g": no_pattern("g"),
    "t5 --position-window 2 --position-layers gxl": no_pattern("gxl"),
    "t5 --position-window 2 --position-layers gl": one_kind("encoder", "gl", "global"),
    "t5 --position-window 2 --position-layers lg": one_kind("encoder", "lg", "local"),
    "t5 --encoder-layers 2 --decoder-layers 2 --position-window 2 --position-layers gl "
    "--encoder-layers-to-keep 0": "--encoder-layers-to-keep 0 can't be combined with "
    "--position-layers gl, because the remaining layers would have other numbers and thus other "
    "kinds: keep all layers",
    "t5 --position-layers gl": no_effect(
        "layers gl", "--position-window, another --position-global-scheme or --position-global-base"
    ),
    "t5 --position-layers gl --position-global-scheme t5": no_effect(
        "layers gl", "--position-window, another --position-global-scheme or --position-global-base"
    ),
    "t5 --position-window 2 --position-global-scheme none": no_effect(
        "global-scheme none", "--position-layers"
    ),
    "rope --position-window 2 --position-global-base 500": no_effect(
        "global-base 500.0", "--position-layers"
    ),
    "rope --position-layers gl --position-global-base 1": "--position-global-base must be at least "
    "2, but is 1.0",
    "t5 --position-layers gl --position-global-scheme learned": not_global("learned"),
    "t5 --position-layers gl --position-global-scheme sinusoidal": not_global("sinusoidal"),
    "t5 --position-layers gl --position-global-scheme linformer": not_global("linformer"),
    "t5 --position-layers gl --position-global-scheme diet_abs_lin": not_global("diet_abs_lin"),
    "t5 --position-layers gl --position-global-base 500": no_base("t5"),
    "rope --position-layers gl --position-global-scheme none --position-global-base 500": no_base(
        "none"
    ),
    "roberta_linformer_tiny --position-window 2": no_layers("linformer", "--position-window 2"),
    "roberta_diet_abs_lin_tiny --position-layers gl --position-global-scheme none": no_layers(
        "diet_abs_lin", "--position-layers gl"
    ),
    "t5 --position-layers gl --position-global-scheme alibi --position-cross-attention": no_option(
        "t5", "--position-cross-attention", "cross_attention"
    ),
    "t5 --position-layers gl --position-global-scheme alibi --position-rank 3": no_option(
        "t5", "--position-rank 3", "rank"
    ),
    "t5 --position-scheme linformer": "--position-scheme linformer contradicts --arch "
    "transformer_t5_tiny, whose scheme is t5: leave it out, or use --arch roberta_linformer or "
    "bert_linformer",
    "none --position-scheme t5": "--position-scheme t5 contradicts --arch transformer_none_tiny, "
    "whose scheme is none: leave it out, or use --arch transformer_t5_tiny",
    "diet_abs --position-rank 0": "--position-rank must be at least 1, but is 0",
    "diet_rel --position-clip 0": "--position-clip must be at least 1, but is 0",
    "diet_rel --position-gain 0": "--position-gain must be a number above 0, but is 0.0",
    "diet_abs --position-gain nan": "--position-gain must be a number above 0, but is nan",
    "t5 --position-peak -1": "--position-peak must be a number above 0, but is -1.0",
    "t5 --position-buckets 3": "--position-buckets must be at least 4, but is 3",
    "t5 --position-buckets 6": "--position-buckets must be a multiple of 4, but is 6",
    "t5 --position-max-distance 16": "--position-max-distance must be larger than half of "
    "--position-buckets (16), but is 16",
    "t5 --position-start blind --position-peak 5": no_effect("peak 5.0", LOCAL),
    "tupe_r --position-relative product --position-peak 5": no_effect("peak 5.0", LOCAL),
    "none --position-sampling shifted": no_effect("sampling shifted", "a scheme with positions"),
    "cope --position-sampling randomised": no_effect(
        "sampling randomised", "a scheme with positions"
    ),
    "t5 --position-sampling-length 9": no_effect("sampling-length 9", "--position-sampling"),
    "diet_rel --position-rank 3": no_option("diet_rel", "--position-rank 3", "rank"),
    "t5 --position-cross-attention": no_option(
        "t5", "--position-cross-attention", "cross_attention"
    ),
    "sinusoidal --position-sharing head": no_option(
        "sinusoidal", "--position-sharing head", "sharing"
    ),
    "alibi --no-cross-attention --position-cross-attention": "--position-cross-attention has no "
    "effect with --no-cross-attention: leave one of them out",
    "none --position-input learned": no_option("none", "--position-input learned", "input"),
    "shaw --position-values --attention-backend sdpa": "--attention-backend sdpa can't compute the "
    "position scheme shaw, which has value_rows: use auto, reference",
    "t5 --segment-scheme per-head": "--segment-scheme per-head needs segments, which a translation "
    "model lacks: leave it out",
    "t5 --segment-scheme input": "--segment-scheme input needs segments, which a translation "
    "model lacks: leave it out",
    "t5 --no-token-positional-embeddings": at_the_input(
        "--no-token-positional-embeddings", "transformer_t5_tiny"
    ),
    "t5 --position-input sinusoidal --encoder-learned-pos": at_the_input(
        "--encoder-learned-pos", "transformer_t5_tiny"
    ),
    "t5 --encoder-learned-pos": at_the_input("--encoder-learned-pos", "transformer_t5_tiny"),
    "none --decoder-learned-pos": at_the_input("--decoder-learned-pos", "transformer_none_tiny"),
    "t5 --no-cross-attention --cross-self-attention": round_about("--cross-self-attention True"),
    "t5 --base-layers 1": round_about("--base-layers 1"),
    "t5 --encoder-xformers-att-config {}": round_about("--encoder-xformers-att-config {}"),
    "t5 --decoder-xformers-att-config {}": round_about("--decoder-xformers-att-config {}"),
    "diet_abs --projection-length 4": no_projection("diet_abs", "--projection-length 4"),
    "t5 --projection-sharing layer": no_projection("t5", "--projection-sharing layer"),
    "roberta_t5_tiny --segment-scheme input": "--segment-scheme input needs segments, which a "
    "RoBERTa lacks: leave it out, or use --arch bert_...",
    "bert_t5_tiny --segment-scheme none --num-segments 3": "--num-segments 3 has no effect without "
    "--segment-scheme: leave it out, or add --segment-scheme",
    "bert_t5_tiny --num-segments 0": "--num-segments must be at least 1, but is 0",
    "bert_linformer_tiny --segment-scheme per-head": no_segments_of_mixtures("linformer"),
    "bert_diet_abs_lin_tiny --segment-scheme per-head": no_segments_of_mixtures("diet_abs_lin"),
    "roberta_linformer_tiny --projection-length 0": "--projection-length must be at least 1, but "
    "is 0",
    "roberta_diet_abs_lin_tiny --projection-length 17": "--projection-length must be at most "
    "--max-positions (16), but is 17: lower it",
    "roberta_linformer_tiny --position-rank 3": no_option("linformer", "--position-rank 3", "rank"),
    "roberta_diet_abs_lin_tiny --position-cross-attention": no_option(
        "diet_abs_lin", "--position-cross-attention", "cross_attention"
    ),
    "roberta_diet_abs_tiny --position-cross-attention": "--position-cross-attention needs "
    "cross-attention, which an encoder lacks: leave it out",
    "bert_t5_tiny --embedding-size -1": "--embedding-size must be at least 0, but is -1",
    "roberta_t5 --position-scheme shaw": "--position-scheme shaw contradicts --arch roberta_t5, "
    "whose scheme is t5: leave it out, or use --arch roberta_shaw",
}


def test_segments_in_heads_are_shared_also_without_positions_there():
    model = build("--arch", *["bert_learned_tiny", "--segment-scheme", "per-head"],
                  *["--position-sharing", "layer", "--max-positions", "16"])  # fmt: skip
    assert list(tiny.schemes_in(model)) == ["encoder.sentence_encoder.segments"]


@pytest.mark.parametrize("line", REFUSED)
def test_invalid_command_lines_are_refused(line):
    with pytest.raises(UserError) as refused:
        build(*flags_of(line))
    assert str(refused.value) == REFUSED[line]


@pytest.mark.parametrize("scheme", ["linformer", "diet_abs_lin"])
def test_a_decoder_refuses_schemes_that_read_later_tokens(scheme):
    args = parsed("--arch", "transformer_none_tiny")
    args.position_scheme = scheme
    with pytest.raises(UserError) as refused:
        tiny.ARCH_MODEL_REGISTRY[args.arch].build_model(args, tiny.Task())
    assert str(refused.value) == (
        f"--position-scheme {scheme} compresses all keys, future keys included, so a decoder can't "
        "have it: use an encoder, or another scheme"
    )


CHOICES = {name: option.choices for name, option in position_options().items() if option.choices}


@pytest.mark.parametrize("field", CHOICES)
def test_an_unknown_choice_is_refused_with_all_choices(field, capsys):
    flag = "--" + field.replace("_", "-")
    with pytest.raises(SystemExit):
        parsed("--arch", "transformer_tupe_a", flag, "wrong")
    last = capsys.readouterr().err.splitlines()[-1]
    assert f"{flag}: invalid choice: 'wrong'" in last
    assert all(choice in last for choice in CHOICES[field])
    # a checkpoint's arguments have passed no parser
    args = tiny.Namespace(**{"position_scheme": "tupe_a", field: "wrong"})
    with pytest.raises(UserError) as refused:
        PositionConfig.from_args(args)
    begin = f"{flag} must be one of {listed(CHOICES[field])}, but is wrong"
    advice = ": if a package of your own registers it, import that package first (--user-dir in "
    assert str(refused.value) == begin + (f"{advice}commands)" * (field == "position_scheme"))


ACCEPTED = [
    *("t5", "none", "learned", "diet_rel --position-input learned"),
    "roberta_linformer_tiny --position-input none",
    "roberta_linformer_tiny --projection-length 16 --projection-sharing key-value",
    "roberta_diet_abs_lin_tiny --projection-length 1 --position-rank 3 --position-sharing head",
]


@pytest.mark.parametrize("line", ACCEPTED, ids="--arch {}".format)
def test_valid_options_are_accepted(line):
    build(*flags_of(line))


def test_the_command_line_reaches_the_model():
    model = build(*flags_of("diet_abs --position-rank 3 --position-sharing none"))
    assert {s.query.shape[-1] for s in tiny.schemes_in(model).values()} == {3}
    assert len(tiny.schemes_in(model)) == 2
    assert Case("diet_abs").kind is type(next(iter(tiny.schemes_in(model).values())))
