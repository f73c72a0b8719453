"""The documentation's figures of measurements: drawn from the files of results/."""

import re
import runpy

import pytest

from tests.support.pages import MARKDOWN, ROOT, text_of

DRAWN = runpy.run_path(str(ROOT / "tools/figures.py"))
#: pictures of a model, which commands in the page draw
OF_MODELS = {"demo-offsets", "look-diet-rel"}


def lines_of(figure):
    """The y values of each line, by label."""
    return {line.get_label(): [*line.get_ydata()] for line in figure.axes[0].get_lines()}


def test_every_other_figure_of_the_docs_is_drawn_from_results():
    pages = [page for page in MARKDOWN if page.startswith("docs/") or page == "README.md"]
    text = "\n".join(map(text_of, pages))
    names = set(re.findall(r"!\[.*?\]\((?:docs/)?figures/([\w-]+)\.png\)", text))
    assert names - OF_MODELS == {draw.__name__ for draw in DRAWN["FIGURES"]}


@pytest.mark.parametrize(
    ("name", "line", "last"),
    [
        ("tatoeba", "rope", None),
        ("lengths", "diet_abs, lengthened", 7.705),
        ("linear", "diet_abs", 787.4),
    ],
)
def test_a_line_ends_at_the_number_of_its_file(name, line, last):
    if last is None:  # a mean over seeds
        rows = DRAWN["read"]("translation/tatoeba-curves").query("scheme == @line")
        last = rows[rows["updates"] == 2000]["without label smoothing, nats"].mean()
    assert lines_of(DRAWN[name]())[line][-1] == pytest.approx(last)
