"""fairseq's commands: the whole help of our architectures, and ``--bf16`` without a TPU."""

from argparse import ArgumentParser, Namespace

import pytest

from diet_fairseq.patches import command_line
from tests.support.commands import run


@pytest.mark.parametrize(("arch", "is_whole"), [("transformer_t5", True), ("transformer", False)])
def test_help_has_the_model_s_options_for_our_architectures_alone(arch, is_whole):
    done = run("train", "--arch", arch, "--help")
    assert done.status == 0, done.err
    assert "--save-interval-updates" in done.out
    for option in ("--position-buckets", "--encoder-embed-dim"):
        assert (option in done.out) == is_whole


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
    def parse(parser, input_args):
        return Namespace(tpu=bool(words))

    spec = object() if installed else None
    monkeypatch.setattr(command_line, "find_spec", lambda name: spec)
    assert command_line.parse_options(parse, ArgumentParser(), words).tpu == tpu
