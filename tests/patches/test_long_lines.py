"""fairseq-interactive translates all lines that fit, and names those that don't."""

import re
from pathlib import Path

import pytest

from tests.support.commands import TINY, Done, corpus, run, slow

LONG = "w1 " * 12
LINES = ["w1 w2", "w3", LONG, "w4 w5 w6", LONG]
#: a model that has learned nothing does not come to an end by itself
SHORT = ("--max-len-b", "5")
SMALL = [*TINY[2:], "--max-update", "1", "--max-source-positions", "10"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module", params=["transformer_diet_abs_tiny", *slow(["transformer"])])
def model(request: pytest.FixtureRequest, data: Path) -> Path:
    """One that takes ten tokens: fairseq's own, and an absolute scheme."""
    folder = data.parent / request.param
    done = run("train", data, *SMALL, "--arch", request.param, "--save-dir", folder)
    assert done.status == 0, done.err
    return folder / "checkpoint_last.pt"


def interactive(data: Path, model: Path, lines: list[str], *options: object) -> Done:
    arguments = [
        data,
        "--path",
        model,
        "-s",
        "de",
        "-t",
        "en",
        "--cpu",
        "--beam",
        "2",
        *SHORT,
        *options,
    ]
    return run("interactive", *arguments, stdin="".join(f"{line}\n" for line in lines))


def translations(done: Done) -> dict[int, str]:
    found = re.findall(r"^D-(\d+)\t([^\t]*)\t(.*)$", done.out, re.MULTILINE)
    assert [int(number) for number, *_ in found] == sorted(int(number) for number, *_ in found)
    return {int(number): f"{score} {text}" for number, score, text in found}


def named(done: Done) -> list[str]:
    return re.findall(r"line \d+ has .*", done.text)


@pytest.fixture(scope="module")
def alone(data: Path, model: Path) -> list[str]:
    """The translations of the lines that fit, without the others."""
    done = interactive(data, model, [line for line in LINES if line != LONG])
    return list(translations(done).values())


@pytest.mark.parametrize("buffer", [3, *slow([1, 9])])
def test_a_line_too_long_for_the_model_has_an_empty_translation_and_is_named(
    data: Path, model: Path, alone: list[str], buffer: int
) -> None:
    done = interactive(data, model, LINES, "--buffer-size", buffer)
    assert done.status == 0, done.err
    assert named(done) == [
        "line 3 has 13 tokens, but the model takes 10: not translated",
        "line 5 has 13 tokens, but the model takes 10: not translated",
    ]
    found = translations(done)
    assert found[2] == found[4] == "-inf "
    assert [found[0], found[1], found[3]] == alone


def test_a_line_too_long_for_max_tokens_is_named_likewise(data: Path, model: Path) -> None:
    options = ["--max-tokens", 3, "--buffer-size", 9]
    done = interactive(data, model, LINES[:4], *options, "--constraints")
    assert done.status == 0, done.err
    assert named(done) == [
        "line 3 has 13 tokens, but the model takes 10: not translated",
        "line 4 has 4 tokens, but --max-tokens is 3: not translated",
    ]
    assert [number for number, text in translations(done).items() if text == "-inf "] == [2, 3]


def test_who_asked_to_skip_long_lines_gets_no_translation_of_them(data: Path, model: Path) -> None:
    done = interactive(data, model, LINES, "--skip-invalid-size-inputs-valid-test")
    assert done.status == 0, done.err
    assert list(translations(done)) == [0, 1, 3]
    assert len(named(done)) == 2
