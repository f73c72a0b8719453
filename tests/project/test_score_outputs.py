"""tools/score_outputs.py: published scores of real systems come out again."""

import re
import sys

import pytest

from diet_fairseq.errors import UserError
from tests.support.pages import ROOT

sys.path.append(str(ROOT / "tools"))
import score_outputs as outputs


def assert_published(rows):
    rows = list(rows)
    assert rows
    assert [str(row) for row in rows if not row.same] == []


def test_a_published_figure_comes_out_to_the_digit(shared_data, monkeypatch):
    name = "bleu_mteval_v14_intl"
    monkeypatch.setattr(outputs, "FIGURES", {name: outputs.FIGURES[name]})
    assert_published(outputs.rows(shared_data))


@pytest.mark.slow
def test_every_published_bleu_comes_out(shared_data, monkeypatch):
    """The test scores all 25 systems, with the four digits of SOURCE.md where it has them."""
    full = ("BLEU 13a", outputs.BLEU, 1, 4)
    names = ("published_bleu", "bleu_mteval_v13a")
    monkeypatch.setattr(outputs, "FIGURES", dict.fromkeys(names, full))
    rows = list(outputs.rows(shared_data))
    assert len(rows) == 25
    for row in rows:
        digits = len(row.published.partition(".")[2])
        assert float(row.published) == pytest.approx(float(row.ours), abs=0.51 * 10**-digits), row
    source = (shared_data / "newstest2017_outputs" / "SOURCE.md").read_text()
    table = re.findall(r"^\| (..-..) \| .* \| ([\d.]+) \| ([\d.]+) \|$", source, re.MULTILINE)
    bergamot = [(row.pair, row.published, row.ours) for row in rows if "bergamot" in row.system]
    assert len(table) == 9
    assert sorted(bergamot) == sorted(table)


@pytest.mark.slow
def test_every_kind_of_published_figure_comes_out(shared_data):
    """The test scores two systems of each table; the script takes four minutes for all."""
    assert_published(outputs.rows(shared_data, systems=2))


def test_a_figure_that_differs_is_marked_and_ends_with_status_1(monkeypatch, tmp_path, capsys):
    row = outputs.Row(
        "en-de", "newstest2017.KIT.4950.en-de", "BLEU 13a", "26.08", "26.08", "nrefs:1"
    )
    monkeypatch.setattr("sys.argv", ["score_outputs.py", str(tmp_path)])
    for rows, status in [([row], 0), ([row, row._replace(ours="26.09")], 1)]:
        monkeypatch.setattr(outputs, "rows", lambda *_, rows=rows: iter(rows))
        assert outputs.main() == status
        assert ("differs" in capsys.readouterr().out) == bool(status)


def test_a_folder_without_outputs_is_named(tmp_path):
    with pytest.raises(UserError, match=r"has no newstest2017_outputs"):
        list(outputs.rows(tmp_path))
