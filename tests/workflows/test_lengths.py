"""The example of tasks whose test sets are longer than their training text."""

import json
import re
from collections import Counter
from itertools import pairwise
from typing import ClassVar

import pytest
import yaml
from pandas import DataFrame

from diet_fairseq.errors import UserError
from diet_fairseq.text.lines import read_lines
from tests.support.texts import write
from tests.workflows.conftest import EXAMPLES, Experiment, script

tasks, accuracy = script("lengths/tasks"), script("lengths/accuracy")
summary = script("lengths/summary")

#: examples of SCAN's README and of its length split, github.com/brendenlake/SCAN, whose files have
#: I_TURN_LEFT for LTURN
PUBLISHED = {
    "jump": "JUMP",
    "jump left": "LTURN JUMP",
    "jump around right": "RTURN JUMP RTURN JUMP RTURN JUMP RTURN JUMP",
    "turn left twice": "LTURN LTURN",
    "jump thrice": "JUMP JUMP JUMP",
    "jump opposite left and walk thrice": "LTURN LTURN JUMP WALK WALK WALK",
    "jump opposite left after walk around left":
        "LTURN WALK LTURN WALK LTURN WALK LTURN WALK LTURN LTURN JUMP",
    "turn opposite right": "RTURN RTURN",
    "turn left after jump twice": "JUMP JUMP LTURN",
    "walk around left twice and turn around right twice": "LTURN WALK " * 8 + "RTURN " * 8,
    "turn around left twice and jump around right twice": "LTURN " * 8 + "RTURN JUMP " * 8,
    "jump around right twice and walk": "RTURN JUMP " * 8 + "WALK",
}  # fmt: skip


@pytest.mark.parametrize("command", PUBLISHED)
def test_commands_of_scan_have_their_published_actions(command):
    assert tasks.interpret(command) == PUBLISHED[command].split()
    assert command in set(tasks.list_commands())


def test_the_length_split_of_scan_has_the_published_sizes():
    commands = [*tasks.list_commands()]
    assert len(commands) == len({*commands}) == 20_910
    assert max(len(command.split()) for command in commands) == 9
    sets = tasks.split_commands(22, seed=1)
    sizes = {name: len(pairs) for name, pairs in sets.items()}
    assert sizes == {"train": 15_291, "valid": 850, "test-22": 849, "test-48": 3_920}
    assert sum(sizes.values()) == 16_990 + 3_920
    assert {command for pairs in sets.values() for command, _ in pairs} == {*commands}
    lengths = {
        name: sorted({len(actions.split()) for _, actions in pairs}) for name, pairs in sets.items()
    }
    # the limits in sweeps/scan_trafo_length_cutoff.yaml of github.com/robertcsordas/
    # transformer_generalization, whose last one leaves the longest commands
    assert lengths["test-48"] == [24, 25, 26, 27, 28, 30, 32, 33, 36, 40, 48]
    assert max(lengths["train"]) == max(lengths["valid"]) == max(lengths["test-22"]) == 22


def test_another_limit_of_scan_moves_commands_into_training():
    sets = tasks.split_commands(26, seed=1)
    assert {*sets} == {"train", "valid", "test-26", "test-48"}
    assert max(len(actions.split()) for _, actions in sets["train"]) == 26
    assert min(len(actions.split()) for _, actions in sets["test-48"]) == 27
    # The split is random: each part has commands of all kinds.
    for name in ("train", "valid", "test-26"):
        words = Counter(word for command, _ in sets[name] for word in command.split())
        assert {"and", "after", "jump", "twice"} <= words.keys()


@pytest.mark.parametrize("task", ["copy", "repeat", "reverse"])
def test_sequences_have_the_output_of_the_task_and_the_lengths_of_the_sets(
    task, tmp_path, monkeypatch, capsys
):
    words = [task, tmp_path, "--length", 30, "--sizes", 400, 50, 60]
    monkeypatch.setattr("sys.argv", ["tasks.py", *map(str, words)])
    tasks.main()
    sizes = {"train": 400, "valid": 50, "test-30": 60, "test-60": 60, "test-120": 60}
    assert capsys.readouterr().out == "".join(
        f"{tmp_path / name}: {number} pairs\n" for name, number in sizes.items()
    )
    output = {
        "copy": lambda line: line,
        "repeat": lambda line: f"{line} {line}",
        "reverse": lambda line: line[::-1],  # each symbol is a letter
    }[task]
    means, symbols = {}, set()
    for name, number in sizes.items():
        lines = [*read_lines(tmp_path / f"{name}.input")]
        assert [*read_lines(tmp_path / f"{name}.output")] == [*map(output, lines)]
        assert len(lines) == len({*lines}) == number
        lengths = [len(line.split()) for line in lines]
        means[name] = sum(lengths) / number
        deviation = (sum((n - means[name]) ** 2 for n in lengths) / number) ** 0.5
        expected = 30 if name in ("train", "valid") else int(name.removeprefix("test-"))
        assert means[name] == pytest.approx(expected, rel=0.05)
        assert deviation == pytest.approx(expected / 10, rel=0.4)
        symbols |= {*" ".join(lines).split()}
    assert len(symbols) == 20
    assert all(ours < theirs for ours, theirs in pairwise([*means.values()][2:]))


def test_a_seed_repeats_its_text_and_another_seed_draws_other_text():
    def draw(seed):
        return tasks.draw_sets("copy", 9, (5, 5, 5), 20, seed)

    assert draw(1) == draw(1) != draw(2)
    sets = draw(1)
    assert sets["train"] != sets["valid"] != sets["test-9"]
    assert tasks.split_commands(22, 1)["valid"] != tasks.split_commands(22, 2)["valid"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["copy", "--length", 0], "--length must be at least 1, but is 0"),
        (["copy", "--sizes", 9, 0, 9], "--sizes must be at least 1, but is 0"),
        (["copy", "--symbols", 27], "--symbols must be from 2 to 26, but is 27"),
        (
            ["scan", "--length", 48],
            "--length of scan must be between 1 and 48, the fewest and the most actions of a"
            " command, but is 48: name a number between them",
        ),
    ],
)
def test_sizes_that_no_task_has_are_refused(words, message, tmp_path, monkeypatch):
    words = [words[0], tmp_path / "text", *words[1:]]
    monkeypatch.setattr("sys.argv", ["tasks.py", *map(str, words)])
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        tasks.main()
    assert not (tmp_path / "text").exists()


@pytest.mark.parametrize(
    ("words", "scores"),
    [([], "1\n0\n0\n0\n0\n"), (["--tokens"], "1.0000\n0.5000\n0.7500\n0.7500\n0.0000\n")],
)
def test_outputs_are_scored_by_line_and_by_token(words, scores, tmp_path, monkeypatch, capsys):
    write(tmp_path / "hypotheses", ["a b", "b b", "a b c d", "a b c", ""])
    write(tmp_path / "reference", ["a b", "a b", "a b c", "a b c d", "a"])
    files = [str(tmp_path / name) for name in ("hypotheses", "reference")]
    monkeypatch.setattr("sys.argv", ["accuracy.py", *files, *words])
    accuracy.main()
    assert capsys.readouterr().out == scores


def test_a_row_of_the_summary_has_the_scores_of_all_lengths():
    rows = [("rope", test, value + seed / 10, value / 2)
            for seed in (1, 2) for test, value in ((80, 0.0), (9, 0.5))]  # fmt: skip
    rows += [("none", 80, 0.25, 0.5), ("none", 9, 1.0, 1.0)]
    table = DataFrame(rows, columns=["model", "test", "exact", "tokens"])
    assert summary.markdown(table, ["exact", "tokens"]).splitlines() == [
        "| model | exact, 9 | exact, 80 | tokens, 9 | tokens, 80 |",
        "| --- | --- | --- | --- | --- |",
        "| rope | 0.650 ± 0.071 | 0.150 ± 0.071 | 0.250 ± 0.000 | 0.000 ± 0.000 |",
        "| none | 1.000 | 0.250 | 1.000 | 0.500 |",
    ]


class Task(Experiment):
    """A tiny model of a task's text, which lies in the folder of the outputs."""

    snakefile = "lengths/Snakefile"
    tiny: ClassVar = {
        "folder": "out", "schemes": ["rope"], "updates": 20, "save_interval": 10, "gpus": 0,
        "options": Experiment.tiny["options"], "threads": 1,
    }  # fmt: skip

    def __init__(self, folder, /, **changes):
        (folder / "examples").symlink_to(EXAMPLES)
        super().__init__(folder, **changes)


def write_task(folder, monkeypatch, *words):
    monkeypatch.setattr("sys.argv", ["tasks.py", words[0], str(folder), *map(str, words[1:])])
    tasks.main()


@pytest.mark.slow
def test_a_folder_without_a_task_s_text_is_refused(tmp_path):
    status, output = Task(tmp_path).plan()
    assert status == 1
    assert (
        "config.folder must have the text of a task, but out/text has no test-LENGTH.input: write "
        "it with python examples/lengths/tasks.py TASK out/text"
    ) in output


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lengths", "lengths-100"])
def test_the_carried_configs_are_valid(name, tmp_path, monkeypatch):
    experiment = Task(tmp_path)
    write_task(tmp_path / "out" / "text", monkeypatch, "reverse")
    config = yaml.safe_load((EXAMPLES.parent / f"results/configs/{name}.yaml").read_text())
    experiment.configure(**config | {"folder": "out"})
    output = experiment.planned()
    assert re.search(rf"^train +{len(config['schemes'])}$", output, re.MULTILINE)
    assert re.search(rf"^generate +{3 * len(config['schemes'])}$", output, re.MULTILINE)


@pytest.mark.slow
def test_a_task_is_trained_and_scored_by_length(tmp_path, monkeypatch):
    experiment = Task(tmp_path)
    write_task(tmp_path / "out" / "text", monkeypatch, "scan")
    for path in (tmp_path / "out" / "text").iterdir():  # the others take longer, and no other way
        write(path, [*read_lines(path)][: 1000 if path.stem == "train" else 5])
    output = experiment.made()
    table = (tmp_path / "out/results/lengths.md").read_text()
    assert table in output
    header, _, row = table.splitlines()
    assert header == "| model | exact, 22 | exact, 48 | tokens, 22 | tokens, 48 |"
    assert re.fullmatch(r"\| rope( \| [01]\.\d{3}){4} \|", row)
    assert (tmp_path / "out/results/lengths.png").read_bytes().startswith(b"\x89PNG")
    # cleaning keeps outputs that are six times as long as their inputs
    assert re.search(r"kept +1,000 +100\.0%", (tmp_path / "out/clean/counts.txt").read_text())
    # each word is one subword, so lengths are lengths of the models' inputs
    for side in ("input", "output"):
        words = [*read_lines(tmp_path / f"out/clean/train.{side}")]
        subwords = [*read_lines(tmp_path / f"out/encoded/train.{side}")]
        assert [len(line.split()) for line in subwords] == [len(line.split()) for line in words]
    model = json.loads(experiment.path("out/runs/*/model.json").read_text())
    assert model["max_len_a"] == yaml.safe_load(
        (EXAMPLES / "lengths/config.yaml").read_text()
    )["max_len_a"]  # fmt: skip
