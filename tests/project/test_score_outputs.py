"""tools/score_outputs.py: published scores of real systems come out again."""

import runpy

import pytest

from tests.support.pages import ROOT

SCRIPT = runpy.run_path(str(ROOT / "tools" / "score_outputs.py"))
rows, FIGURES = SCRIPT["rows"], SCRIPT["FIGURES"]


@pytest.mark.parametrize("name", ["bleu_mteval_v14_intl"])
def test_a_published_figure_comes_out_to_the_digit(shared_data, monkeypatch, name):
    monkeypatch.setitem(rows.__globals__, "FIGURES", {name: FIGURES[name]})
    scored = list(rows(shared_data))
    assert scored
    assert [str(row) for row in scored if not row.same] == []
