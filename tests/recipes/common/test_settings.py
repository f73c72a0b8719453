"""A run is gone on with by its own settings only; `--run NAME` begins another."""

import json
import re

import pytest

from diet_fairseq.errors import UserError
from diet_fairseq.patches import saving
from diet_fairseq.recipes.common import settings
from diet_fairseq.recipes.translation.corpora import MULTI30K
from diet_fairseq_cli import main
from tests.support import road
from tests.support.road import programs


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "prepared.json").write_text('{"longest_line": 126, "bpe": "sentencepiece"}')
    (tmp_path / "subwords").mkdir()
    (tmp_path / "subwords" / "sentencepiece.model").touch()
    return tmp_path


@pytest.fixture
def begin(folder, monkeypatch):
    """Starts `train` or `pretrain` with a stand-in for fairseq-train, which leaves a checkpoint."""

    def become(_, command, __):
        run = command[command.index("--save-dir") + 1]
        (folder / run / "checkpoint_last.pt").touch()

    monkeypatch.setattr(programs.os, "execve", become)

    def call(command, *arguments, gpus=0):
        monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
        words = [command, *map(str, arguments), "--folder", str(folder)]
        if command == "train":
            road.run(MULTI30K, *words)
        else:
            main(["encoder", *words])

    return call


TRAIN = ("train", "t5", "en", "de")
PRETRAIN = ("pretrain", "t5")
FOLDERS = {TRAIN: "t5-tiny-en-de", PRETRAIN: "bert_t5-tiny"}


@pytest.mark.parametrize(
    ("command", "others", "was"),
    [
        (TRAIN, ("--lr", "0.5"), "--lr 0.002 (now 0.5)"),
        (TRAIN, ("--seed", 2), "--seed 1 (now 2)"),
        (TRAIN, ("--dropout", "0"), "--dropout 0.3 (now 0.0)"),
        (TRAIN, ("--lr=0.5", "--seed=3"), "--seed 1 (now 3) and --lr 0.002 (now 0.5)"),
        (TRAIN, ("--max-tokens", 77), "--max-tokens 4096 (now 77)"),
        (PRETRAIN, ("--lr", "0.5"), "--lr 0.003 (now 0.5)"),
        (PRETRAIN, ("--seed", 2), "--seed 1 (now 2)"),
        (PRETRAIN, ("--batch", 64), "--batch-size 32 (now 64)"),
        (PRETRAIN, ("--encoder-layers", 2), "--encoder-layers 4 (now 2)"),
    ],
)  # fmt: skip
def test_other_settings_are_refused_with_both_values(command, others, was, begin, folder):
    begin(*command)
    with pytest.raises(UserError) as error:
        begin(*command, *others)
    run = folder / "runs" / FOLDERS[command]
    assert str(error.value) == (
        f"{run} was begun with {was}: give the same to resume it, or --run NAME to begin another"
    )
    begin(*command, *others, "--run", "other")
    begin(*command)  # the refused ones left no trace


#: command and scheme, an option that the run was begun without, and the values that are named
POSITIONS = [
    ("train shaw en de", "--position-clip 8", "16 (now 8)"),
    ("train shaw en de", "--position-values", "False (now True)"),
    ("pretrain diet_rel", "--position-gain 2", "left out (now 2.0)"),
    ("train diet_rel en de", "--position-gain 2", "30.0 (now 2.0)"),
    ("train t5 en de", "--position-buckets 16", "32 (now 16)"),
    ("train t5 en de", "--position-max-distance 64", "128 (now 64)"),
    ("pretrain diet_rel", "--position-start blind", "left out (now 1.0)"),
    ("train diet_abs en de", "--position-peak 2", "3.0 (now 2.0)"),
    ("train tupe_a en de", "--position-untie-cls paper", "no (now paper)"),
    ("pretrain tupe_a", "--position-no-layer-norm", "False (now True)"),
    ("pretrain tupe_a", "--position-no-rescale", "False (now True)"),
    ("pretrain tupe_r", "--position-relative product", "scalar (now product)"),
    ("pretrain diet_abs", "--position-rank 4", "left out (now 4)"),
    ("train diet_rel en de", "--position-sharing layer", "none (now layer)"),
    ("pretrain t5", "--position-input sinusoidal", "none (now sinusoidal)"),
    ("train tupe_a en de", "--position-cross-attention", "False (now True)"),
    ("pretrain linformer", "--projection-length 32", "left out (now 32)"),
    ("pretrain linformer", "--projection-sharing layer", "none (now layer)"),
    ("pretrain t5", "--num-segments 3", "2 (now 3)"),
]


@pytest.mark.parametrize("older", [False, True], ids=["", "settings-of-an-older-version"])
@pytest.mark.parametrize(
    ("command", "others", "was"), POSITIONS, ids=[option.split()[0] for _, option, _ in POSITIONS]
)
def test_a_position_option_that_the_run_was_begun_without_is_refused(
    command, others, was, older, begin, monkeypatch
):
    with monkeypatch.context() as patch:
        if older:  # which kept what was given, or is the architecture's
            patch.setattr(settings, "with_positions", lambda found: found)
        begin(*command.split())
    with pytest.raises(UserError, match=rf"was begun with .*{re.escape(was)}.*: give the same to"):
        begin(*command.split(), *others.split())
    begin(*command.split())


@pytest.mark.parametrize(
    ("command", "others"),
    [
        ("train t5 en de", "--position-buckets 32"),
        ("train t5 en de", "--position-sharing layer"),
        ("train t5 en de", "--attention-backend reference"),
        ("train diet_rel en de", "--position-gain 30"),
    ],
)
def test_a_position_option_that_says_its_default_goes_on(command, others, begin):
    begin(*command.split())
    begin(*command.split(), *others.split())


def test_the_gain_of_segments_is_not_taken_for_the_scheme_s(begin):
    command = ("pretrain", "diet_rel")  # a BERT, which has segments per head
    begin(*command)
    with pytest.raises(UserError, match=r"--position-gain left out \(now 30\.0\): give the same"):
        begin(*command, "--position-gain", "30")


@pytest.mark.parametrize("command", [TRAIN, PRETRAIN])
@pytest.mark.parametrize(
    "others",
    [
        ("--updates", 5000),
        ("--updates", 3),
        ("--max-update", 5000),
        ("--seed", 1, "--dropout", "{dropout}"),  # said, but no other
        ("--log-interval", 10, "--num-workers", 0, "--save-interval-updates", 7, "--no-save"),
    ],
)
def test_more_updates_and_what_changes_no_model_go_on(command, others, begin):
    begin(*command)
    dropout = {TRAIN: "0.3", PRETRAIN: "0.1"}[command]
    begin(*command, *(str(word).format(dropout=dropout) for word in others))


@pytest.mark.parametrize("gpus", [1, 3, 8])
@pytest.mark.parametrize(
    ("command", "memory"), [(TRAIN, ("--tokens-per-gpu", 100)), (PRETRAIN, ("--per-gpu", 2))]
)
def test_a_run_goes_on_on_another_machine(command, memory, gpus, begin):
    begin(*command)
    begin(*command, "--gpus", gpus, *memory, gpus=gpus)


def test_a_run_without_a_checkpoint_can_be_begun_anew(begin, folder):
    begin(*TRAIN)
    run = folder / "runs" / FOLDERS[TRAIN]
    (run / "checkpoint_last.pt").unlink()
    begin(*TRAIN, "--lr", "0.5")
    assert json.loads((run / "settings.json").read_text())["lr"] == [0.5]


@pytest.mark.parametrize(
    ("command", "names"), [(TRAIN, ("dict.de.txt", "dict.en.txt")), (PRETRAIN, ("dict.txt",))]
)
def test_a_run_does_not_go_on_with_other_subwords(command, names, begin, folder):
    """Of as many lines, so that fairseq-train would take them."""
    (folder / "data-bin").mkdir()
    for name in names:
        (folder / "data-bin" / name).write_text("a 2\nb 1\n")
    begin(*command)
    (folder / "data-bin" / names[-1]).write_text("b 2\na 1\n")
    with pytest.raises(
        UserError, match=r"begun with data whose dictionaries have digests \w+.* \(now \w+.*: give"
    ):
        begin(*command)
    begin(*command, "--run", "other")


def test_a_run_that_does_not_know_its_subwords_goes_on(begin, folder):
    """Those of older versions don't."""
    begin(*TRAIN)
    (folder / "data-bin").mkdir()
    (folder / "data-bin" / "dict.de.txt").write_text("a 2\n")
    begin(*TRAIN)


def test_a_run_at_work_keeps_its_settings_before_its_first_checkpoint(begin, folder):
    begin(*TRAIN)
    run = folder / "runs" / FOLDERS[TRAIN]
    (run / "checkpoint_last.pt").unlink()
    with saving.alone_in(str(run)), pytest.raises(UserError, match=r"--lr 0.002 \(now 0.5\)"):
        begin(*TRAIN, "--lr", "0.5")


def test_only_the_first_of_a_run_s_processes_writes(begin, folder, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    begin(*PRETRAIN)
    assert not (folder / "runs" / FOLDERS[PRETRAIN] / "settings.json").exists()


def test_what_is_only_shown_is_not_kept(begin, folder):
    begin(*TRAIN, "--show")
    assert not (folder / "runs").exists()


@pytest.mark.parametrize("damaged", ["{", "null", "[1]"])
def test_settings_that_are_damaged_are_named(damaged, begin, folder):
    begin(*TRAIN)
    path = folder / "runs" / FOLDERS[TRAIN] / "settings.json"
    path.write_text(damaged)
    with pytest.raises(UserError, match=r"settings\.json is damaged .*: remove it, or take --run"):
        begin(*TRAIN)
