"""What is wrong with a grid's file is said in a line; those of the examples are right."""

from pathlib import Path

import pytest

from diet_fairseq.errors import UserError
from diet_fairseq.recipes.grid import spec

START = 'kind = "pretraining"\nfolder = "f"\n'
ROW = 'rows = {a = "a"}\n'
WRONG = {
    "": "has no kind: add it",
    f'kind = "script"\nfolder = "f"\n{ROW}': "has no script, which a grid of the kind script needs",
    f'{START}{ROW}tasks = "RTE"': "tasks is for grids of the kind fine-tuning: leave it out",
    "kind = ": "is not valid TOML",
    f'kind = "other"\nfolder = "f"\n{ROW}': "kind must be one of pretraining, translation, fine",
    f'{START}row = {{a = "a"}}': "has the key row, which is unknown",
    f'kind = "pretraining"\nfolder = 1\n{ROW}': "folder must be a TOML str, but is 1",
    f'kind = "pretraining"\nfolder = "a:b"\n{ROW}': (
        "folder must have no ':', where fairseq splits paths, but is 'a:b': give it another name"
    ),
    f"{START}rows = {{}}": "every row of [rows] is text",
    f"{START}rows = {{a = 1}}": "every row of [rows] is text",
    f"{START}{ROW}seeds = [0]": "seeds must be numbers above",
    f"{START}{ROW}seeds_of = {{b = [1]}}": "names 'b', which",
    f'{START}{ROW}pair = "en-de"': "pair is for grids of the kind translation",
    f'kind = "translation"\nfolder = "f"\n{ROW}': "has no pair, which a grid of the kind",
    f'kind = "translation"\nfolder = "f"\npair = "de"\n{ROW}': "pair must be like",
    f'kind = "translation"\nfolder = "f"\npair = "en-de"\n{ROW}evaluate = "--test-set wmt17"': (
        "evaluate can't have --test-set, --input, --output: a grid is scored on its corpus's test"
    ),
    f'{START}rows = {{a = "t5 --x \'1"}}': "the row 'a' can't be read as words (No closing",
    f'{START}{ROW}options = "--x \'1"': "options can't be read as words (No closing",
    f'{START}rows = {{a = ""}}': "the row 'a' is empty: give it what the command is to be given",
    f'{START}rows = {{"lr +1" = "a", "lr -1" = "b"}}': (
        "the rows 'lr +1' and 'lr -1' would both be the run lr-1: give one of them another name"
    ),
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_with_a_grid_is_said_in_a_line(text, tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text(text)
    with pytest.raises(UserError) as error:
        spec.read(path)
    assert str(error.value).startswith(str(path))
    assert WRONG[text] in str(error.value)
    assert "\n" not in str(error.value).replace(" (at line 1, column 8)", "")


def test_a_grid_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UserError, match=r"no\.toml can't be read \(No such file"):
        spec.read(tmp_path / "no.toml")


@pytest.mark.parametrize(
    "path", sorted(Path(__file__).parents[3].glob("examples/*/grids/*.toml")), ids=lambda p: p.stem
)
def test_the_grids_of_the_examples_can_be_read(path):
    assert list(spec.read(path).cells())
