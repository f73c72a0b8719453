"""`make bench`: its models are built, its figures are saved and compared with their floors."""

import json
import sys

import pytest

from benchmarks import __main__ as bench
from benchmarks import convergence, encoders, translation
from benchmarks.harness import Timing, save
from diet_fairseq.distributions import TESTED

pytestmark = pytest.mark.slow


def write(folder, name, **ratios):
    save(folder / name, "", [Timing(row, [1.0], [ratio]) for row, ratio in ratios.items()])


@pytest.fixture
def call(monkeypatch, tmp_path, capsys):
    """A function that runs it with stand-ins; it returns the output and their words."""
    told = []

    def measure():
        words = sys.argv[1:]
        told.append(words)
        out = bench.Path(words[words.index("--out") + 1])
        write(out, "training_tiny.json", stock=1.0, diet_rel=2.0)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bench, "STEPS", [step._replace(main=measure) for step in bench.STEPS])

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["bench", *words])
        bench.main()
        return capsys.readouterr().out, told

    return run


def test_figures_are_saved_and_compared(call, tmp_path):
    output, told = call("--out", str(tmp_path / "mine"), "--schemes", "shaw")
    assert all(words[-2:] == ["--schemes", "shaw"] for words in told)
    assert "| training_tiny.json | diet_rel | 2.00 | 1.10 |  |" in output
    figures = json.loads((tmp_path / "mine" / "training_tiny.json").read_text())
    assert figures["timings"][1]["ratios"] == [2.0]
    assert figures["machine"]["fairseq"] in map(" ".join, TESTED.items())
    printed, _ = call("--compare", str(tmp_path / "mine"))
    assert "| training_tiny.json | diet_rel | 2.00 | 1.10 |  |" in printed
    assert len(told) == len(bench.STEPS)  # nothing was measured again


@pytest.mark.parametrize(
    ("file", "row", "ratio"),
    [
        ("training_tiny.json", "diet_abs", 0.98),
        ("encoders-base-512-mixed-inference.json", "shaw", 0.89),
        ("linear-layer-forward-8192.json", "diet_abs_lin", 2.2),
    ],
)
def test_a_ratio_far_below_its_floor_fails(tmp_path, file, row, ratio):
    write(tmp_path, file, stock=1.0, **{row: ratio})
    with pytest.raises(SystemExit, match=r"1 of 1 ratios are below 0\.9 of their floor"):
        bench.compare(tmp_path)


def test_a_folder_without_figures_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="holds no figures that have a floor"):
        bench.compare(tmp_path)


@pytest.mark.parametrize("scheme", [translation.WITH_OURS, "diet_rel, bf16"])
def test_a_translation_model_is_configured(scheme):
    cfg = translation.configuration(scheme, "_tiny")
    assert (cfg.model.encoder_layers, cfg.generation.beam) == (4, 5)
    assert cfg.common.bf16 == scheme.endswith("bf16")


def test_an_encoder_is_built():
    trainer = encoders.trainer_of("diet_rel", "tiny", 16, [])
    assert len(trainer.model.encoder.sentence_encoder.layers) == 4


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
