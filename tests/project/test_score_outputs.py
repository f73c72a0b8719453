"""tools/score_outputs.py: published scores of real systems come out again."""

import runpy

import pytest

from tests.support.pages import ROOT

SCRIPT = runpy.run_path(str(ROOT / "tools" / "score_outputs.py"))
rows, FIGURES, BLEU = SCRIPT["rows"], SCRIPT["FIGURES"], SCRIPT["BLEU"]


@pytest.mark.parametrize("name", ["bleu_mteval_v14_intl"])
def test_a_published_figure_comes_out_to_the_digit(shared_data, monkeypatch, name):
    monkeypatch.setitem(rows.__globals__, "FIGURES", {name: FIGURES[name]})
    scored = list(rows(shared_data))
    assert scored
    assert [str(row) for row in scored if not row.same] == []


@pytest.mark.slow
def test_every_published_bleu_comes_out(shared_data, monkeypatch):
    names = ("published_bleu", "bleu_mteval_v13a")
    figures = dict.fromkeys(names, ("BLEU 13a", BLEU, 1, 4))
    monkeypatch.setitem(rows.__globals__, "FIGURES", figures)
    scored = list(rows(shared_data))
    assert len(scored) == 25
    for row in scored:
        digits = len(row.published.partition(".")[2])
        assert float(row.published) == pytest.approx(float(row.ours), abs=0.51 * 10**-digits), row
