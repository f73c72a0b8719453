"""Mistakes in our options end fairseq's commands in one line; other errors are fairseq's."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from diet_fairseq.errors import (
    UserError,
    exit_with_one_line,
    find_user_error,
    one_line,
    report_user_errors,
)
from tests.support.commands import TINY, run, set_environment

ARCH = ["--arch", "transformer_diet_rel_tiny"]
SMALL = [*TINY[2:], "--max-update", "1", "--no-save"]


@pytest.mark.slow
@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--arch", "transformer_diet_rel", "--position-scheme", "rotary"],
            "argument --position-scheme: invalid choice: 'rotary' (choose from 'none', 'sin",
        ),
        ([*ARCH, "--position-clip", "0"], "error: --position-clip must be at least 1, but is 0"),
        (
            ["--arch", "transformer_linformer_tiny"],
            "argument --arch/-a: invalid choice: 'transformer_linformer_tiny'",
        ),
    ],
)
def test_a_wrong_option_is_refused_by_name(
    data: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = run("train", data, *SMALL, *arguments, "--save-dir", tmp_path)
    assert done.status != 0
    assert message in done.last
    assert "Traceback" not in done.err


@pytest.mark.slow
def test_a_relative_scheme_translates_beyond_its_training_length(
    data: Path, tmp_path: Path
) -> None:
    limits = ["--max-source-positions", "10", "--max-target-positions", "10"]
    trained = run("train", data, *SMALL[:-1], *ARCH, *limits, "--save-dir", tmp_path)
    assert trained.status == 0, trained.err
    model = ["--path", tmp_path / "checkpoint_last.pt", "-s", "de", "-t", "en", "--cpu"]
    longer = ["--max-source-positions", "100", "--max-target-positions", "100"]
    done = run("interactive", data, *model, *longer, stdin="w1 " * 30 + "\n")
    assert done.status == 0, done.err
    assert "H-0" in done.out


@pytest.mark.slow
def test_an_error_of_fairseq_s_keeps_its_traceback(data: Path, tmp_path: Path) -> None:
    done = run("train", tmp_path, *SMALL, *ARCH, "--save-dir", tmp_path)
    stock = run("train", tmp_path, *TINY, "--no-save", plugin=False)
    assert done.status == stock.status == 1
    assert done.last == stock.last
    assert "Could not infer language pair" in done.last
    assert "Traceback" in done.err


@pytest.mark.slow
@pytest.mark.parametrize("debug", ["0", "1"])
def test_a_traceback_of_ours_is_shown_for_debugging(data: Path, tmp_path: Path, debug: str) -> None:
    done = run(
        "train", data, *SMALL, *ARCH, "--position-clip", "0", "--save-dir", tmp_path,
        first=partial(set_environment, DIET_FAIRSEQ_DEBUG=debug),
    )  # fmt: skip
    assert done.last == "error: --position-clip must be at least 1, but is 0"
    assert ("Traceback" in done.err) == (debug == "1")


def test_control_characters_of_a_value_are_escaped(capsys: pytest.CaptureFixture) -> None:
    error = UserError("there is no ä\x1b[2J\nfile \u2028 \udcff")
    report_user_errors(sys.__excepthook__)(UserError, error, None)
    text = "there is no ä\\x1b[2J\\nfile \\u2028 \\udcff"
    assert one_line(str(error)) == text
    assert capsys.readouterr().err == f"error: {text}\n"
    with pytest.raises(SystemExit) as end, exit_with_one_line():
        raise error
    assert end.value.code == f"error: {text}"


@pytest.mark.parametrize("error", [KeyError("x"), KeyboardInterrupt(), OSError(2, "no", "x")])
def test_other_errors_reach_the_previous_hook(error: BaseException) -> None:
    seen = []
    report_user_errors(lambda *args: seen.append(args))(type(error), error, None)
    assert seen == [(type(error), error, None)]


def raised(raise_error: Callable[[], None]) -> BaseException:
    with pytest.raises(BaseException) as caught:  # noqa: PT011
        raise_error()
    return caught.value


def raise_from_itself() -> None:
    """As starlette and tenacity do."""
    error = ValueError("x")
    raise error from error


def raise_in_a_circle() -> None:
    first, second = ValueError("x"), KeyError("y")
    first.__cause__, second.__context__ = second, first
    raise first


def raise_after_a_handled_mistake() -> None:
    try:
        raise UserError("an old mistake")
    except UserError:
        raise OSError("another error") from None


@pytest.mark.parametrize(
    "raise_error", [raise_from_itself, raise_in_a_circle, raise_after_a_handled_mistake]
)
def test_an_error_without_a_mistake_behind_it_is_no_mistake(
    raise_error: Callable[[], None], capsys: pytest.CaptureFixture
) -> None:
    error, hooked = raised(raise_error), []
    report_user_errors(lambda *args: hooked.append(args))(type(error), error, None)
    assert hooked == [(type(error), error, None)]
    assert capsys.readouterr().err == ""


def test_a_mistake_is_found_behind_any_error_that_it_caused() -> None:
    mistake = UserError("a mistake")
    outer, middle = RuntimeError("outer"), KeyError("middle")
    outer.__cause__, middle.__context__ = middle, mistake
    assert find_user_error(outer) is mistake
    assert find_user_error(mistake) is mistake
