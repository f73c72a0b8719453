"""The workflows' scripts: tables, imports."""

import gzip
import json
import math
import re
import sys
from runpy import run_path

import pytest
from pandas import DataFrame, Series, read_csv
from pandas.testing import assert_frame_equal

from diet_fairseq.errors import UserError
from diet_fairseq.text.lines import read_lines
from tests.support.texts import write
from tests.workflows.conftest import EXAMPLES, script

describe, table = script("scripts/describe"), script("scripts/table")


def test_spreads_and_differences_are_those_of_the_seeds():
    assert table.spread(Series([1.0])) == "1.00"
    assert table.spread(Series([1.0, 2.0, 3.0])) == "2.00 ± 1.00"
    ours, theirs = Series([2.0, 4.0, 6.0]), Series([1.0, 2.0, 3.0])
    # t(0.975, 2) / sqrt(3) = 2.4842; scipy.stats.ttest_rel gives the p
    assert table.difference(ours, theirs) == "+2.00 ± 2.48 (p = 0.074)"
    assert table.difference(theirs + 1, theirs) == "+1.00"


def grid(folder):
    """Results of two schemes with two seeds, of which one is better in every sentence."""
    references = [f"this is sentence number {n} of the test" for n in range(30)]
    reference = write(folder / "reference", references)
    rows = []
    for scheme, offset in (("shaw", 0), ("t5", 5)):
        for seed in ("1", "2", "1 2"):
            run = folder / f"{scheme}-{seed}"
            (run / "evaluation-test").mkdir(parents=True)
            lines = references if offset else [line.replace("sentence", "x") for line in references]
            write(run / "evaluation-test" / "translations.txt", lines)
            row = {"folder": str(run), "scheme": scheme, "size": "tiny", "seeds": seed}
            row |= {"test": "test", "BLEU": 20 + offset + 0.5 * len(seed) * int(seed[0]),
                    "chrF": 50.0, "BLEU signature": "s", "chrF signature": "t"}  # fmt: skip
            if " " not in seed:
                row |= {"parameters": 1000, "minutes": 1.5, "words/s": 2000, "memory (GB)": 1.25}
            rows.append(row)
    rows = DataFrame(rows, columns=table.COLUMNS.split(","))
    return rows.astype({"parameters": "Int64"}), reference


def test_a_table_has_rows_for_schemes_and_ensembles(tmp_path):
    rows, reference = grid(tmp_path)
    text = table.markdown(rows, "test", reference, "shaw", ("en", "de"))
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if "tiny" in line]
    assert [line[0] for line in lines] == [
        "shaw, tiny", "shaw, tiny, ensemble", "t5, tiny", "t5, tiny, ensemble"
    ]  # fmt: skip
    assert lines[2][1:3] == ["25.75 ± 0.35", "50.00 ± 0.00"]
    assert lines[2][3:7] == ["1,000", "1.5", "2,000", "1.2"]
    assert lines[2][7:9] == ["1, 2", "+5.00"]
    assert lines[2][9].count("(p = 0.001)") == 2
    assert [line[3:8] for line in lines[1::2]] == [["", "", "", "", "1 2"]] * 2
    assert "against" not in table.markdown(rows, "test", reference, "", ("en", "de"))


def test_scores_become_a_csv_and_a_table(tmp_path, monkeypatch, capsys):
    rows, reference = grid(tmp_path)
    for row in rows.to_dict("records"):
        run = tmp_path / row["folder"]
        (run / "evaluation-test" / "scores.json").write_text(json.dumps(
            {"BLEU": row["BLEU"], "chrF": 50.0, "BLEU signature": "s", "chrF signature": "t"}
        ))  # fmt: skip
        if " " not in row["seeds"]:
            (run / "train.log").write_text(
                "num. shared model params: 1,000 (num. trained: 1,000)\n"
                '{"wps": "1000"}\n{"valid_loss": "9", "valid_wps": "9"}\n{"wps": "2000"}\n'
                f'{{"wps": "9000"}}\n{{"valid_loss": "{row["BLEU"]}"}}\n'
            )
            (run / "plan.json").write_text('{"seconds": 90.0, "gigabytes": 1.25}')
    models = rows.set_index("folder")[["scheme", "size", "seeds"]].to_dict("index")
    output = tmp_path / "table.md"
    words = [tmp_path / "results.csv", output, "--test", "test", reference, "en", "de"]
    words += ["--models", json.dumps(models), "--baseline", "shaw"]
    for number, folder in enumerate(rows["folder"]):
        path = tmp_path / folder / "evaluation-test" / "metric-comet.json"
        path.write_text(json.dumps({"score": number / 8}))
    rows["comet"] = rows.index / 8
    words += ["--metrics", "comet"]
    monkeypatch.setattr("sys.argv", ["table.py", *map(str, words)])
    table.main()
    assert output.read_text() == table.markdown(
        rows, "test", reference, "shaw", ("en", "de"), metrics=["comet"]
    )
    lines = [line.split(" | ") for line in output.read_text().splitlines() if " | " in line]
    assert [line[3] for line in (lines[0], *lines[2:])] == [
        "comet", "0.0625 ± 0.0884", "0.2500", "0.4375 ± 0.0884", "0.6250"
    ]  # fmt: skip
    assert (tmp_path / "best").resolve() == tmp_path / "shaw-1"  # of the lowest last loss
    csv = read_csv(tmp_path / "results.csv", dtype={"parameters": "Int64", "seeds": str})
    assert_frame_equal(csv, rows, check_dtype=False)


def write_losses(folder, name, *losses):
    """A run whose log has validations with these losses."""
    (folder / name).mkdir()
    entries = [
        f'{{"valid_loss": "{loss}", "valid_num_updates": "{n}"}}\n' for n, loss in enumerate(losses)
    ]
    (folder / name / "train.log").write_text("".join(entries))
    return str(folder / name)


def test_a_run_without_a_finite_last_loss_is_not_the_best(tmp_path, capsys):
    link = tmp_path / "best"
    diverged = write_losses(tmp_path, "diverged", 1, "nan")
    infinite = write_losses(tmp_path, "infinite", 1, "inf")
    silent = write_losses(tmp_path, "silent")
    good = write_losses(tmp_path, "good", 9, "8.5e-1")
    table.link_best(link, [diverged, infinite, silent, good, str(tmp_path / "ensemble")])
    assert link.resolve() == tmp_path / "good"
    assert capsys.readouterr().out.splitlines() == [
        f"{diverged} can't be best: its last held-out loss is nan; lower learning_rate",
        f"{infinite} can't be best: its last held-out loss is inf; lower learning_rate",
        f"{silent} can't be best: it was never validated; change its options",
    ]
    table.link_best(link, [diverged])
    assert not link.is_symlink()  # which an earlier run has left


def run_metric(folder, monkeypatch, *command):
    """The scores of a program's, from gzipped source text, translations and references."""
    files = [folder / "my source.en.gz", folder / "translations.txt", folder / "reference.de"]
    with gzip.open(files[0], "wt") as file:
        file.write("a\nb\n")
    for path, count in zip(files[1:], (3, 4), strict=True):
        write(path, ["x"] * count)
    words = [folder / "out.json", "--files", *files, "--", *command]
    monkeypatch.setattr("sys.argv", ["metric.py", *map(str, words)])
    script("scripts/metric").main()
    return json.loads((folder / "out.json").read_text())


def test_the_score_of_a_program_is_its_last_number(tmp_path, monkeypatch, capfd):
    program = tmp_path / "program.py"
    program.write_text(
        "import sys; sizes = [len(open(name).readlines()) for name in sys.argv[1:]]; "
        "print('segment 1:', *sizes); print('score of', *sizes, 'is', -0.25, '.', end='\\n\\n')"
    )
    words = ("{reference}", "{source}", "{hypotheses}")
    scores = run_metric(tmp_path, monkeypatch, sys.executable, program, *words)
    assert scores["score"] == -0.25
    assert "sentences" not in scores
    assert capfd.readouterr().out.startswith("segment 1: 4 2 3\n")


#: what comet-score prints of three sentences
COMET = "".join(
    f"t.de\tSegment {number}\tscore: {score}\n"
    for number, score in enumerate(("0.8751", "-0.12", "1e-2"))
)


@pytest.mark.parametrize(
    ("output", "score", "sentences"),
    [
        (COMET + "t.de\tscore: 0.2550\n", 0.255, [0.8751, -0.12, 0.01]),
        ("loaded in 5.3 s\n" + COMET + "t.de\tscore: 0.2550\n", 0.255, [0.8751, -0.12, 0.01]),
        ("0.5\n1\n0\n", 0.5, [0.5, 1, 0]),
        (COMET + "t.de\tscore: 0.31\n", 0.31, None),  # is not the mean of the lines before
        ("0.5\n1\nscore: 7\nn = 3\n", 3, None),
        ("1\n2\n", 2, None),
    ],
)
def test_lines_of_sentences_are_scores_of_sentences(
    output, score, sentences, tmp_path, monkeypatch
):
    scores = run_metric(tmp_path, monkeypatch, "printf", output)
    assert scores["score"] == score
    assert scores.get("sentences") == sentences


def test_scores_of_sentences_are_tested_by_pairs(tmp_path):
    rows, reference = grid(tmp_path)
    for number, folder in enumerate(rows["folder"]):
        scores = {"score": 1.0, "sentences": [0.25, 0.5 + number]}
        path = tmp_path / folder / "evaluation-test" / "metric-comet.json"
        path.write_text(json.dumps(scores))
    rows["comet"] = 1.0
    arguments = rows, "test", reference, "shaw", ("en", "de"), "auto", ["comet"]
    heading, _, *lines = table.markdown(*arguments).splitlines()[2:8]
    assert heading.endswith(" | comet against shaw (paired bootstrap) |")
    difference = re.compile(r"\| \+1\.5000 \(p = (0\.\d+)\), \+1\.5000 \(p = \1\) \|$")
    assert [bool(difference.search(line)) for line in lines[:4:2]] == [False, True]
    path.write_text('{"score": 1.0}')  # of an ensemble
    assert table.markdown(*arguments).splitlines()[7].endswith(" |  |")


def test_the_checkpoint_with_the_highest_score_is_selected(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(EXAMPLES / "scripts")
    select = script("scripts/select_checkpoint")
    names = ["checkpoint_1_20", "checkpoint_2_100", "checkpoint_best", "checkpoint_last", "average"]
    for name in names:
        (tmp_path / f"{name}.pt").write_text(name)

    class Translator:
        def __init__(self, checkpoint, **options):
            self.name = checkpoint.stem

        def translate(self, lines, beam, split_sentences):
            assert (beam, split_sentences) == (1, False)
            return [f"{self.name} {line}" for line in lines]

    monkeypatch.setattr(select, "Translator", Translator)
    for name in ("source", "reference"):
        write(tmp_path / name, ["a", "b"])
    files = [tmp_path / "source", tmp_path / "reference"]
    words = [tmp_path, tmp_path / "best.pt", "--user-dir", EXAMPLES.parent / "diet_fairseq"]
    words += ["--valid", "en", "de", *files]
    marks = "s/.*_20 b/1/p; s/.*_100 b/7/p; s/average b/-9/p"
    words += ["--", "sed", "-n", marks, "{hypotheses}"]
    monkeypatch.setattr("sys.argv", ["select_checkpoint.py", *map(str, words)])
    select.main()
    assert (tmp_path / "best.pt").read_text() == "checkpoint_2_100"
    assert [line for line in capsys.readouterr().out.splitlines() if ":" in line] == [
        "checkpoint_1_20.pt: 1.0000", "checkpoint_2_100.pt: 7.0000", "average.pt: -9.0000"
    ]  # fmt: skip

    def translate(self, lines, beam, split_sentences, source_lang, target_lang):
        number = {"en-de": 1, "de-en": 5}[f"{source_lang}-{target_lang}"]
        return [f"{self.name} {number if len(self.name) == 7 else 2}"]

    monkeypatch.setattr(Translator, "translate", translate)
    words[-5:] = ["--valid", "de", "en", *files[::-1], "--", "sed", "s/.* //", "{hypotheses}"]
    monkeypatch.setattr("sys.argv", ["select_checkpoint.py", *map(str, words)])
    select.main()
    assert (tmp_path / "best.pt").read_text() == "average"  # the mean of 1 and 5 is above 2


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["echo", "1\n", "no score"], "the last line of a metric's output must have a number, but"),
        (["true"], "the last line of a metric's output must have a number, but is '': true"),
        (["sh", "-c", "echo 1; exit 3"], "status 3 of sh -c 'echo 1; exit 3'"),
        (
            ["no-such-program"],
            "the program no-such-program can't be run: No such file or directory",
        ),
    ],
)
def test_a_program_without_a_score_is_named(tmp_path, monkeypatch, command, message):
    with pytest.raises(UserError, match=f"^{re.escape(message)}"):
        run_metric(tmp_path, monkeypatch, *command)
    assert not (tmp_path / "out.json").exists()


def test_curves_show_bleu_where_a_training_measured_it(tmp_path, monkeypatch):
    curves = script("scripts/curves")
    log = tmp_path / "train.log"
    log.write_text(
        '{"valid_loss": "2", "valid_num_updates": "10"}\n'
        '{"valid_loss": "1", "valid_bleu": "20.5", "valid_num_updates": "20"}\n'
    )
    assert curves.read_curve(log, "valid_bleu", 1) == {20: 20.5}
    labels = []
    monkeypatch.setattr(curves, "draw", lambda axes, label, runs: labels.append((label, runs)))
    logs = json.dumps({"rope": [str(log)]})
    monkeypatch.setattr("sys.argv", ["curves.py", str(tmp_path / "a.png"), "--logs", logs])
    curves.main()
    assert [label for label, _ in labels] == ["loss on held-out text, nats", "BLEU"]
    for text in ('{"valid_loss": "2", "valid_num_updates": "10"}\n', ""):  # or no validation
        log.write_text(text)
        labels.clear()
        curves.main()
        assert [label for label, _ in labels] == ["loss on held-out text, nats"]
    log.write_text(
        '{"valid_loss": "2", "valid_num_updates": "10"}\n'
        '{"valid.en-de_loss": "3", "valid.en-de_num_updates": "10"}\n'
        '{"valid.de-en_loss": "1", "valid.de-en_num_updates": "10"}\n'
    )
    labels.clear()
    monkeypatch.setattr("sys.argv", [*sys.argv, "--directions", "en-de", "de-en"])
    curves.main()
    assert [(label, runs["rope"]) for label, runs in labels] == [
        ("loss on held-out text, nats", [{10: 2 * math.log(2)}]),
        ("loss on held-out text, en-de, nats", [{10: 3 * math.log(2)}]),
        ("loss on held-out text, de-en, nats", [{10: math.log(2)}]),
    ]


def test_a_run_without_validation_has_an_empty_plot(tmp_path, monkeypatch):
    curves = script("scripts/curves")
    (tmp_path / "train.log").touch()
    logs = json.dumps({"rope": [str(tmp_path / "train.log")]})
    monkeypatch.setattr("sys.argv", ["curves.py", str(tmp_path / "a.png"), "--logs", logs])
    curves.main()
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_no_test_sentence_of_the_demo_is_in_its_training_text():
    data = EXAMPLES / "demo" / "data"
    for lang in ("en", "de"):
        train, test = (set(read_lines(data / f"{split}.{lang}.gz")) for split in ("train", "test"))
        assert len(train) > 30_000
        assert train.isdisjoint(test)
    assert sum(path.stat().st_size for path in data.glob("*.gz")) < 1_500_000


@pytest.mark.parametrize(("paragraphs", "median"), [(0, 1.0), (4, 1.0), (5, 2.5), (6, 4.0)])
def test_model_json_tells_the_sentences_and_lengths_of_the_training_text(
    paragraphs, median, tmp_path
):
    lines = ["Tom ran. Mary sat. It is so. We go."] * paragraphs + ["A dog ran."] * (
        10 - paragraphs
    )
    text = write(tmp_path / "train.en", lines)
    encoded = write(tmp_path / "encoded.en", ["a b c"] * 1998 + ["a " * 50, "a " * 60])
    fields = describe.measure_sources([(text, encoded)], "en")
    assert fields == {"sentences_per_line": median, "training_source_length": 3}
    write(encoded, ["a b c"] * 997 + ["a " * 50] * 2 + ["a " * 60])
    assert describe.measure_sources([(text, encoded)], "en")["training_source_length"] == 50


def test_a_run_whose_training_text_was_removed_is_described_without_it(tmp_path):
    files = tmp_path / "train.en", tmp_path / "encoded.en"
    assert describe.measure_sources([files], "en") == {}


def imports(path):
    """Top-level modules that a script or a file of rules imports."""
    pattern = r"^ *(?:import (\w+)|from (\w+)[\w.]* import )"
    return {a or b for a, b in re.findall(pattern, path.read_text(), re.MULTILINE)}


def test_imports_of_the_examples_are_requirements(monkeypatch):
    monkeypatch.setattr("setuptools.setup", lambda **settings: required.update(settings))
    required = {}
    run_path(str(EXAMPLES.parent / "setup.py"))
    lines = [*required["install_requires"], *required["extras_require"]["workflows"]]
    names = {re.match(r"[\w-]+", line)[0].lower().replace("-", "_") for line in lines}
    files = [path for path in EXAMPLES.rglob("*") if path.suffix in (".py", ".smk")]
    files += EXAMPLES.rglob("Snakefile")
    modules = set.union(*map(imports, files)) - sys.stdlib_module_names
    assert not any("sys.path" in path.read_text() for path in files)
    modules -= {path.stem for path in files} | {"diet_fairseq", "fairseq", "fairseq_cli"}
    modules.remove("sentence_transformers")  # examples/encoders/distill.py says how to install it
    other_names = {
        "sklearn": "scikit_learn",
        "yaml": "pyyaml",
        "snakemake_interface_logger_plugins": "snakemake",
    }
    assert {other_names.get(module, module) for module in modules} - names == set()
