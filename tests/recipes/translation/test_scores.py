"""Published figures of real systems come out to the digit."""

import pytest

from diet_fairseq.errors import UserError
from diet_fairseq.recipes.translation.score import score
from tests.support.road import script

outputs = script("wmt18/score_outputs.py")


def check(rows):
    rows = list(rows)
    assert rows
    assert [str(row) for row in rows if not row.same] == []


@pytest.mark.parametrize("figure", ["bleu_mteval_v14_intl"])
def test_a_published_figure_comes_out(shared_data, monkeypatch, figure):
    monkeypatch.setattr(outputs, "FIGURES", {figure: outputs.FIGURES[figure]})
    check(outputs.rows(shared_data))


@pytest.mark.slow
def test_every_kind_of_published_figure_comes_out(shared_data):
    """Of two systems a table; the script scores all of them, in four minutes."""
    check(outputs.rows(shared_data, systems=2))


def test_a_figure_that_differs_is_marked_and_the_status(monkeypatch, tmp_path, capsys):
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


def test_words_are_counted_by_the_target_s_rules():
    assert "tok:zh" in score(["猫坐"], ["猫坐"], pair="en-zh")["BLEU signature"]
