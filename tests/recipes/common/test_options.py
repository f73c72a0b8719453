"""Numbers on a command line are read by their type and their least value."""

from argparse import ArgumentParser

import pytest

from diet_fairseq.recipes.common.options import at_least


@pytest.fixture
def parser():
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--beam", type=at_least(1))
    parser.add_argument("--rates", type=at_least(0.0), nargs="+")
    return parser


def test_numbers_have_the_type_of_their_least_value(parser):
    args = parser.parse_args(["--beam", "1", "--rates", "0", "1e-3"])
    assert (args.beam, args.rates) == (1, [0.0, 1e-3])
    assert type(args.beam) is int


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--beam", "0"], "argument --beam: must be at least 1, but is 0"),
        (["--beam", "1.5"], "argument --beam: invalid int value: '1.5'"),
        (["--rates", "1", "-1"], "argument --rates: must be at least 0 and finite, but is -1"),
        (["--rates", "inf"], "argument --rates: must be at least 0 and finite, but is inf"),
        (["--rates", "nan"], "argument --rates: must be at least 0 and finite, but is nan"),
    ],
)
def test_others_are_refused(parser, words, said):
    with pytest.raises(Exception, match=f"^{said}$"):
        parser.parse_args(words)
