"""Scores by length, and the curve of a training, as `benchmarks.convergence` reports them."""

from benchmarks import convergence


def test_scores_are_of_all_lines_and_of_each_length_of_the_source(tmp_path):
    source, reference, output = (tmp_path / name for name in ("a.en", "a.de", "output"))
    source.write_text("a b c\n" + "a b c d e f g\n" * 2)
    reference.write_text("eins zwei drei vier\n" + "fünf sechs sieben acht\n" * 2)
    output.write_text("eins zwei drei vier\n" + "etwas anderes steht hier\n" * 2)
    scores = convergence.score_by_length(source, reference, output)
    assert {label: score["lines"] for label, score in scores.items()} == {
        "all": 3, "1-5": 1, "6-8": 2,
    }  # fmt: skip
    assert round(scores["1-5"]["BLEU"]) == 100
    assert scores["6-8"]["BLEU"] < scores["all"]["BLEU"] < 100


def test_the_curve_has_the_validations_alone(tmp_path):
    log = tmp_path / "log"
    log.write_text(
        '2026 | INFO | train_inner | {"epoch": 1, "loss": "9"}\n'
        '2026 | INFO | valid | {"epoch": 1, "valid_loss": "8.5", "valid_nll_loss": "7", '
        '"valid_num_updates": "20"}\n'
    )
    assert convergence.read_curve(log) == [
        {"epoch": 1, "updates": 20, "loss": 8.5, "loss without smoothing": 7}
    ]
