"""A grid trains what is missing, and its table says what came out, with its spread."""

import json
import math
from argparse import ArgumentParser
from itertools import pairwise
from pathlib import Path

import pytest
from sacrebleu.metrics import BLEU

from diet_fairseq.errors import UserError
from diet_fairseq.recipes.common import cells
from diet_fairseq.recipes.grid import outcome, run, significance, table

PRETRAINING = """
kind = "pretraining"
folder = "{folder}"
options = "--encoder roberta --updates 200"
seeds = [1, 2]

[rows]
shaw = "shaw"
"diet_rel, as in the paper" = "diet_rel --position-start blind"

[seeds_of]
shaw = [1, 2, 3]
"""
TRANSLATION = """
kind = "translation"
folder = "{folder}"
pair = "en-de"
options = "--updates 200"
evaluate = "--average 5"

[rows]
stock = "stock"
"""
VALID = "| valid on 'valid' subset | loss {} | ppl 1.0 | num_updates {}\n"
VALID_NSP = VALID.replace("| ppl 1.0", "| mlm_loss {} | nsp_accuracy 0.{} | ppl 1.0")
ELECTRA = PRETRAINING.replace("roberta", "electra")
VALID_ELECTRA = (
    "| valid on 'valid' subset | loss {0} | generator_loss 8.0 | discriminator_loss 0.5 "
    "| generator_accuracy 0.1 | discriminator_accuracy 0.9 | precision 0.75 | recall 0.{1} "
    "| num_updates {1}00\n"
)
LOG = (
    "| num. shared model params: 2,322,432 (num. trained: 1)\n"
    "{}| num_updates 200 | train_wall 81 | wall 120\n"
)
#: of seeds 1, 2, 3, in bits
LOSS = {"shaw": (6.0, 6.2, 6.4), "diet_rel": (5.9, 6.0, 6.1)}


@pytest.fixture
def called(tmp_path, monkeypatch):
    """Runs the command with a stand-in for training; returns the status and what it called."""
    calls = []

    def call(words, log, **_):
        command, options = words[2:], dict(pairwise(words))
        calls.append((command[1], options["--run"]))
        folder = Path(options["--folder"]) / "runs" / options["--run"]
        folder.mkdir(parents=True, exist_ok=True)
        if options["--run"] in failing:
            return "FAILED: it was cut"
        if command[1] == "evaluate":
            scores = {"BLEU": 30.5, "BLEU signature": "nrefs:1", "chrF": 50.25}
            (folder / "evaluation-test").mkdir()
            (folder / "evaluation-test" / "scores.json").write_text(json.dumps(scores))
        else:
            scheme, seed = command[2], int(options.get("--seed", 1))
            bits = LOSS.get(scheme, LOSS["shaw"])[seed - 1]
            curve = VALID.format(8.5, 100) + VALID.format(bits, 200)
            if "--nsp" in options:
                curve = VALID_NSP.format(8.5, 7.5, 50, 100)
                curve += VALID_NSP.format(bits, round(bits - 1, 1), 50 + seed, 200)
            if options.get("--encoder") == "electra":
                curve = VALID_ELECTRA.format(8.5, 1) + VALID_ELECTRA.format(bits, 2)
            (folder / "train.log").write_text(LOG.format(curve))
        return ""

    failing: set[str] = set()
    monkeypatch.setattr(cells, "run_logged", call)

    def main(text, action, *words):
        calls.clear()
        path = tmp_path / "grid.toml"
        path.write_text(text.format(folder=tmp_path / "data"))
        parser = ArgumentParser()
        run.add_arguments(parser)
        return run.run(parser.parse_args([action, str(path), *words])), list(calls)

    main.failing = failing
    return main


def test_every_cell_is_trained_once_the_first_seeds_first(called):
    status, calls = called(PRETRAINING, "run")
    assert status == 0
    assert [name for _, name in calls] == [
        "grid-shaw-s1",
        "grid-diet_rel-as-in-the-paper-s1",
        "grid-shaw-s2",
        "grid-diet_rel-as-in-the-paper-s2",
        "grid-shaw-s3",
    ]
    assert called(PRETRAINING, "run") == (0, [])


def test_a_translation_is_trained_and_evaluated(called, capsys):
    assert called(TRANSLATION, "run")[1] == [
        ("train", "grid-stock-s1"),
        ("evaluate", "grid-stock-s1"),
    ]
    called(TRANSLATION, "table")
    said = capsys.readouterr().out
    assert "| row | BLEU | chrF | parameters | minutes | seeds |" in said
    assert "| stock | 30.50 | 50.25 | 2,322,432 | 2.0 | 1 |" in said
    assert "BLEU: `nrefs:1`" in said


def translated(tmp_path, row, lines):
    folder = tmp_path / "data" / "runs" / f"grid-{row}-s1" / "evaluation-test"
    (folder / "translations.txt").write_text("".join(f"{line}\n" for line in lines))


def test_translations_are_compared_by_sacrebleu_s_paired_bootstrap(called, tmp_path, capsys):
    right = [f"this is sentence number {number} of the test set ." for number in range(60)]
    wrong = [line.replace("sentence", "phrase") for line in right]
    grid = TRANSLATION + 'shaw = "shaw"\nt5 = "t5"\n'
    called(grid, "run")
    clean = tmp_path / "data" / "clean"
    clean.mkdir()
    (clean / "test.de.as-it-came").write_text("".join(f"{line}\n" for line in right))
    for row, lines in (("stock", wrong), ("shaw", right), ("t5", wrong)):
        translated(tmp_path, row, lines)
    capsys.readouterr()
    called(grid, "table", "--baseline", "stock")
    head, _, stock, shaw, t5, *_ = capsys.readouterr().out.splitlines()
    column = head.split(" | ").index("each seed's test set (paired bootstrap)")
    assert stock.split(" | ")[column] == ""
    assert shaw.split(" | ")[column].endswith("(p = 0.001)")
    assert float(shaw.split(" | ")[column].split()[0]) == pytest.approx(29.29)
    assert t5.split(" | ")[column] == "+0.00 (p = 1.000)"  # the same translations


SCRIPT = """
kind = "script"
folder = "{folder}"
script = "{folder}/score.py"
options = "--add 2"
measures = ["test bleu", "long bleu"]

[rows]
one = "--arch 1"
"""
SCORE = """
import json, sys
from pathlib import Path
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
value = int(words["--arch"]) + int(words["--add"]) + int(words["--seed"])
scores = dict(test=dict(bleu=value, signature="x"), long=dict(bleu=9, chrf=8))
Path(words["--out"], "scores.json").write_text(json.dumps(scores))
"""


def test_a_script_writes_its_scores_by_name(tmp_path, capsys):
    (tmp_path / "score.py").write_text(SCORE)
    path = tmp_path / "grid.toml"
    path.write_text(SCRIPT.format(folder=tmp_path))
    parser = ArgumentParser()
    run.add_arguments(parser)
    assert run.run(parser.parse_args(["run", str(path)])) == 0
    assert "test bleu 4.00, long bleu 9.00" in capsys.readouterr().out
    run.run(parser.parse_args(["table", str(path)]))
    assert capsys.readouterr().out.splitlines()[::2] == [
        "| row | test bleu | long bleu | seeds |",
        "| one | 4.00 | 9.00 | 1 |",
    ]
    with pytest.raises(UserError, match="the kind script has no curves: ask for a"):
        run.run(parser.parse_args(["plot", str(path)]))


def test_a_cell_that_failed_does_not_stop_the_others_and_is_run_again(called, capsys):
    called.failing.add("grid-shaw-s1")
    status, calls = called(PRETRAINING, "run", "--seeds", "1")
    assert (status, len(calls)) == (1, 2)
    assert "grid-shaw-s1: FAILED: it was cut" in capsys.readouterr().out
    called.failing.clear()
    assert called(PRETRAINING, "run", "--seeds", "1") == (0, [("pretrain", "grid-shaw-s1")])


def test_a_loss_beyond_measure_has_a_perplexity(capsys):
    assert "| a | 1000.000 | inf | 1 |" in table.markdown({"a": {1: {"loss": 1000.0}}})


def test_rows_and_seeds_can_be_chosen(called):
    assert called(PRETRAINING, "run", "--rows", "shaw", "--seeds", "2", "3")[1] == [
        ("pretrain", "grid-shaw-s2"),
        ("pretrain", "grid-shaw-s3"),
    ]
    with pytest.raises(UserError, match="--rows 'shwa': the grid has 'shaw', 'diet_rel, as in the"):
        called(PRETRAINING, "run", "--rows", "shwa")
    with pytest.raises(UserError, match="--seeds 9: the grid has 1, 2, 3"):
        called(PRETRAINING, "run", "--seeds", "9")


def test_the_table_shows_means_spread_and_paired_differences(called, capsys):
    called(PRETRAINING, "run")
    capsys.readouterr()
    called(PRETRAINING, "table", "--baseline", "shaw")
    head, _, shaw, diet, *_ = capsys.readouterr().out.splitlines()
    assert head == (
        "| row | loss, nats | perplexity | loss against shaw, same seeds "
        "| parameters | minutes | seeds |"
    )
    assert shaw == "| shaw | 4.298 ± 0.139 | 73.5 |  | 2,322,432 | 2.0 | 1, 2, 3 |"
    # seeds 1 and 2: -0.1 and -0.2 bits; their mean in nats, t(1) = 12.7
    assert "| -0.104 ± 0.440 (p = 0.2) | 2,322,432 | 2.0 | 1, 2 |" in diet


def test_masked_words_and_next_sentences_have_columns_of_their_own(called, capsys):
    nsp = PRETRAINING.replace('options = "', 'options = "--nsp ')
    called(nsp, "run")
    capsys.readouterr()
    called(nsp, "table", "--baseline", "shaw")
    head, _, shaw, diet, *_ = capsys.readouterr().out.splitlines()
    assert head == (
        "| row | loss, nats | mlm loss, nats | NSP accuracy | perplexity "
        "| loss against shaw, same seeds | mlm loss against shaw, same seeds "
        "| NSP accuracy against shaw, same seeds | parameters | minutes | seeds |"
    )
    assert shaw.startswith("| shaw | 4.298 ± 0.139 | 3.604 ± 0.139 | 0.520 ± 0.010 | 36.8 |  |")
    assert diet.count("-0.104 ± 0.440 (p = 0.2)") == 2
    called(nsp, "table", "--at", "100")
    assert "| shaw | 5.892 ± 0.000 | 5.199 ± 0.000 | 0.500 ± 0.000 | 181.0 |" in (
        capsys.readouterr().out
    )


def test_every_dev_set_is_compared_with_the_baseline():
    found = {
        "learned": {1: {"RTE dev": 50.0, "MRPC dev": 70.0}, 2: {"RTE dev": 52.0, "MRPC dev": 72.0}},
        "shaw": {1: {"RTE dev": 55.0, "MRPC dev": 69.0}, 2: {"RTE dev": 57.0}},
    }
    head, _, learned, shaw = table.markdown(found, "learned").splitlines()
    assert head == (
        "| row | RTE dev | MRPC dev | RTE dev against learned, same seeds "
        "| MRPC dev against learned, same seeds | seeds |"
    )
    assert learned.endswith("| 71.00 ± 1.41 |  |  | 1, 2 |")
    assert shaw == "| shaw | 56.00 ± 1.41 | 69.00, seed 1 | +5.00 | -1.00, seed 1 | 1, 2 |"


def test_a_difference_of_fewer_seeds_than_the_row_has_names_them():
    found = {"none": {seed: {"chrF": 50.0} for seed in (1, 3)}}
    found["shaw"] = {seed: {"chrF": 50.0 + seed} for seed in (1, 2, 3)}
    *_, shaw = table.markdown(found, "none").splitlines()
    assert shaw == "| shaw | 52.00 ± 1.00 | +2.00 ± 12.71 (p = 0.3), seeds 1, 3 | 1, 2, 3 |"


def test_the_table_shows_an_earlier_update(called, capsys):
    called(PRETRAINING, "run")
    capsys.readouterr()
    called(PRETRAINING, "table", "--at", "100")
    assert "| shaw | 5.892 ± 0.000 | 362.0 | 2,322,432 | 1, 2, 3 |" in capsys.readouterr().out
    with pytest.raises(UserError, match="--at 150: shaw was validated after 100, 200 updates"):
        called(PRETRAINING, "table", "--at", "150")
    with pytest.raises(UserError, match="--at 100 goes with table: leave it out, or take table"):
        called(PRETRAINING, "plot", "--at", "100")


def test_a_band_spans_the_seeds_of_a_row(called, tmp_path, monkeypatch):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    called(PRETRAINING, "run")
    bands = []
    axes = pyplot.Axes
    monkeypatch.setattr(axes, "fill_between", lambda self, x, *ends, **_: bands.append((x, *ends)))
    called(PRETRAINING, "plot", "--output", str(tmp_path / "curves.png"))
    assert (tmp_path / "curves.png").stat().st_size > 1000
    assert bands[0][0] == [100, 200]
    assert bands[0][2][1] - bands[0][1][1] == pytest.approx(0.4 * 0.6931, abs=1e-3)


def test_an_electra_s_table_has_what_its_discriminator_finds(called, capsys):
    called(ELECTRA, "run")
    for at, loss, recall in ((), "4.298 ± 0.139", 0.2), (("--at", "100"), "5.892 ± 0.000", 0.1):
        capsys.readouterr()
        called(ELECTRA, "table", *at)
        head, _, shaw, *_ = capsys.readouterr().out.splitlines()
        assert head.startswith(
            "| row | loss, nats | generator loss, nats | generator accuracy | discriminator loss, "
            "nats | discriminator accuracy | precision | recall | parameters |"
        )
        cells = (loss, *(f"{x:.3f} ± 0.000" for x in (5.545, 0.1, 0.347, 0.9, 0.75, recall)))
        assert shaw.startswith(f"| shaw | {' | '.join(cells)} | 2,322,432 |")


def test_the_curve_of_a_chosen_metric_is_drawn(called, tmp_path, monkeypatch):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    called(ELECTRA, "run")
    drawn, axes, plot = [], pyplot.Axes, pyplot.Axes.plot

    def watched(self, x, y, *more, **named):
        drawn.append((x, y, named["label"]))
        return plot(self, x, y, *more, **named)

    monkeypatch.setattr(axes, "plot", watched)
    labels = []
    monkeypatch.setattr(axes, "set", lambda self, **given: labels.append(given["ylabel"]))
    called(ELECTRA, "plot", "--metric", "recall", "--output", str(tmp_path / "recall.png"))
    assert drawn[0] == ([100, 200], [pytest.approx(0.1), pytest.approx(0.2)], "shaw")
    assert labels == ["recall (held-out text)"]


def test_a_metric_that_a_run_has_not_is_refused(called):
    called(PRETRAINING, "run")
    with pytest.raises(UserError, match="--metric recall: shaw has none: take loss, or --rows"):
        called(PRETRAINING, "plot", "--metric", "recall")
    with pytest.raises(UserError, match="--metric recall goes with plot: leave it out, or take"):
        called(PRETRAINING, "table", "--metric", "recall")


def test_an_interval_needs_runs_that_differ():
    assert table.difference([2.0], [1.0], 2) == "+1.00"
    assert table.difference([2.0, 3.0], [1.0, 2.0], 2) == "+1.00"


def test_a_run_without_a_validation_has_no_outcome(tmp_path):
    assert outcome.of_pretraining(tmp_path) == outcome.of_translation(tmp_path) == {}


def test_each_seed_is_compared_with_the_baseline_s_run_of_that_seed(
    called, tmp_path, capsys, monkeypatch
):
    languages = []

    def bleu(trg_lang):
        languages.append(trg_lang)
        return BLEU(trg_lang=trg_lang)

    monkeypatch.setattr(significance, "BLEU", bleu)
    right = [f"this is sentence number {number} of the test set ." for number in range(60)]
    wrong = [line.replace("sentence", "phrase") for line in right]
    grid = TRANSLATION.replace("[rows]", "seeds = [1, 2]\n\n[rows]")
    grid += 'shaw = "shaw"\n\n[seeds_of]\nshaw = [1, 2, 3]\n'
    called(grid, "run")
    clean = tmp_path / "data" / "clean"
    clean.mkdir()
    (clean / "test.de.as-it-came").write_text("".join(f"{line}\n" for line in right))
    for run_, lines in {
        "stock-s1": right,
        "stock-s2": wrong,
        "shaw-s1": wrong,
        "shaw-s2": right,
        "shaw-s3": right,
    }.items():
        place = tmp_path / "data" / "runs" / f"grid-{run_}" / "evaluation-test"
        (place / "translations.txt").write_text("".join(f"{line}\n" for line in lines))
    capsys.readouterr()
    called(grid, "table", "--baseline", "stock")
    assert "| -29.29 (p = 0.001), +29.29 (p = 0.001) |" in capsys.readouterr().out
    assert set(languages) == {"de"}
    called(grid, "table", "--baseline", "stock", "--at", "100")
    assert "bootstrap" not in capsys.readouterr().out  # the test set is of the last update


def test_a_line_is_the_mean_of_its_seeds(called, tmp_path, monkeypatch):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    called(PRETRAINING, "run")
    drawn, plot = [], pyplot.Axes.plot
    monkeypatch.setattr(
        pyplot.Axes,
        "plot",
        lambda self, x, y, *more, **named: (drawn.append(y), plot(self, x, y, *more, **named))[1],
    )
    called(PRETRAINING, "plot", "--output", str(tmp_path / "curves.png"))
    assert drawn[0] == pytest.approx([8.5 * math.log(2), 6.2 * math.log(2)])


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("--average 5", "--average 1", '--average ("5", now "1")'),
        ("--updates 200", "--updates 200 --max-update 9", '--max-update (null, now "9")'),
    ],
)
def test_a_result_of_another_evaluation_or_length_is_not_kept(called, capsys, was, now, said):
    called(TRANSLATION, "run")
    assert called(TRANSLATION.replace(was, now), "run") == (1, [])
    assert f"was made with other options: {said}: remove it" in capsys.readouterr().out
