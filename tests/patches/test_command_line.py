"""fairseq's commands: the whole help of our architectures, and ``--bf16`` without a TPU."""

from argparse import ArgumentParser, Namespace

import pytest

from diet_fairseq.errors import UserError
from diet_fairseq.patches import command_line
from tests.support.commands import run


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize(("arch", "is_whole"), [("transformer_t5", True), ("transformer", False)])
def test_help_has_the_model_s_options_for_our_architectures_alone(arch, is_whole):
    done = run("train", "--arch", arch, "--help")
    assert done.status == 0, done.err
    assert "--save-interval-updates" in done.out
    for option in ("--position-buckets", "--encoder-embed-dim"):
        assert (option in done.out) == is_whole


def test_a_misspelled_architecture_of_ours_comes_with_a_suggestion():
    done = run("train", "data", "--arch", "transformer_diet_rle_tiny")
    assert done.status == 1
    assert done.last == (
        "error: --arch must be a registered architecture, but is transformer_diet_rle_tiny: did "
        "you mean transformer_diet_rel_tiny? `diet-fairseq schemes` lists the schemes"
    )


@pytest.mark.parametrize("words", [["-a", "roberta_tupe"], ["--arch=bert_diet_rle"]])
def test_every_spelling_of_the_option_is_checked(words):
    with pytest.raises(UserError, match=r"did you mean (roberta_tupe_[ar]|bert_diet_rel)"):
        command_line.check_architecture_spelling(words)


@pytest.mark.parametrize("name", ["transformer_iwslt_de_em", "no_such_model", "transformer_rope"])
def test_other_names_are_fairseq_s_to_judge(name):
    command_line.check_architecture_spelling(["--arch", name])


@pytest.mark.parametrize(
    ("words", "installed", "tpu"),
    [
        (["--bf16"], False, False),
        (["--bf16"], True, True),
        (["--tpu"], False, True),  # fairseq says that torch_xla is missing
        ([], False, False),
    ],
)
def test_bf16_means_a_tpu_only_where_torch_xla_is_installed(words, installed, tpu, monkeypatch):
    def parse(parser, input_args, *_):
        return Namespace(tpu=bool(words))

    spec = object() if installed else None
    monkeypatch.setattr(command_line, "find_spec", lambda name: spec)
    assert command_line.parse_options(parse, ArgumentParser(), words).tpu == tpu
