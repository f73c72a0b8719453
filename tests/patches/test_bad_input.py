"""A user's mistakes on fairseq's own command lines: the last line says it, the status is not 0."""

from pathlib import Path

import pytest

from tests.support.commands import TINY, corpus, run

ARCH = ["--arch", "transformer_diet_rel_tiny"]
SMALL = [*TINY[2:], "--max-update", "1", "--no-save"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return corpus(tmp_path_factory.mktemp("corpus"))


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--arch", "transformer_diet_rel", "--position-scheme", "rotary"],
            "argument --position-scheme: invalid choice: 'rotary' (choose from 'none', 'sin",
        ),
        ([*ARCH, "--position-sharing", "all"], "argument --position-sharing: invalid choice: 'al"),
        ([*ARCH, "--attention-backend", "magic"], "argument --attention-backend: invalid choice:"),
        (
            [*ARCH, "--position-scheme", "t5"],
            "error: --position-scheme t5 contradicts --arch transformer_diet_rel_tiny, whose "
            "scheme is diet_rel: leave it out, or take --arch transformer_t5_tiny",
        ),
        (
            [*ARCH, "--encoder-learned-pos"],
            "error: --encoder-learned-pos can't be combined with --arch "
            "transformer_diet_rel_tiny: use --position-input learned instead",
        ),
        ([*ARCH, "--position-clip", "0"], "error: --position-clip must be at least 1, but is 0"),
        (
            [*ARCH, "--position-rank", "8"],
            "error: --position-rank 8 is not an option of the position scheme diet_rel: leave it "
            "out, or take one of diet_abs, diet_abs_lin",
        ),
        (
            ["--arch", "transformer_linformer_tiny"],
            "error: the position scheme linformer compresses all keys, later ones too, so no "
            "decoder can have it: take --arch roberta_linformer or bert_linformer, or another "
            "scheme",
        ),
        (
            ["--arch", "transformer_diet_abs_tiny", "--position-rank", "-1"],
            "error: --position-rank must be at least 1, but is -1",
        ),
        (
            ["--arch", "transformer_t5_tiny", "--position-buckets", "6"],
            "error: --position-buckets must be a multiple of 4, but is 6",
        ),
        (
            ["--arch", "transformer_t5_tiny", "--position-max-distance", "16"],
            "error: --position-max-distance must be larger than half of --position-buckets (16), "
            "but is 16",
        ),
        (
            ["--arch", "transformer_shaw_tiny", "--attention-backend", "sdpa"],
            "error: --attention-backend sdpa can't compute the position scheme shaw, whose score "
            "depends on the query: take auto or reference",
        ),
        (
            [*ARCH, "--segment-scheme", "per-head"],
            "error: --segment-scheme per-head: a translation model has no segments: leave it out",
        ),
    ],
)
def test_a_wrong_option_is_refused_by_name_before_anything_is_trained(
    data: Path, tmp_path: Path, arguments: list[str], said: str
) -> None:
    done = run("train", data, *SMALL, *arguments, "--save-dir", tmp_path)
    assert done.status != 0
    assert said in done.last
    assert "Traceback" not in done.err


def test_a_missing_dictionary_is_named(data: Path, tmp_path: Path) -> None:
    for file in data.iterdir():
        if not file.name.startswith("dict.de"):
            (tmp_path / file.name).symlink_to(file)
    done = run("train", tmp_path, *SMALL, *ARCH, "--save-dir", tmp_path)
    assert done.status != 0
    assert done.last == (
        f"error: there is no dictionary {tmp_path}/dict.de.txt: give the folder that "
        "fairseq-preprocess wrote, and the languages that it was written for"
    )
    assert "Traceback" not in done.err


def test_a_folder_without_data_is_named(tmp_path: Path) -> None:
    done = run("train", tmp_path, *SMALL, *ARCH, "--save-dir", tmp_path)
    assert done.status != 0
    assert done.last.startswith("error: there is no prepared data in the folder given: give the")


#: a command, and the last line of what it says
EVERYWHERE = {
    "train DATA --arch transformer --lr -1": "error: --lr must be at least 0, but is -1.0",
    "train nosuch --arch transformer --max-tokens 9": "error: nosuch: there is no such file or "
    "folder: check the path",
    "train DATA --arch transformer": "error: the size of a batch is missing: give --max-tokens N "
    "or --batch-size N",
    "generate DATA --path DATA": "error: DATA is a folder: give a checkpoint, such as "
    "checkpoint_best.pt",
    "generate DATA --path DATA/dict.de.txt --results-path DATA/dict.de.txt": "error: "
    "--results-path DATA/dict.de.txt: a file stands where a folder is needed: name another folder",
    "interactive DATA --path nosuch.pt": "error: there is no checkpoint nosuch.pt: check --path",
    "validate DATA --path DATA/dict.de.txt": "error: DATA/dict.de.txt is refused: it is not "
    "a checkpoint, or was tampered with (Unsupported operand 119); give another file",
    "eval_lm DATA --path nosuch.pt --beam": "error: unrecognized arguments: --beam (--help shows "
    "all options)",
    "preprocess -s xx -t en --trainpref nosuch": "error: --trainpref nosuch: there is no file "
    "nosuch.xx: check the prefix and the languages",
    "preprocess -s de -t en --trainpref DATA/../train --destdir DATA": "error: DATA/dict.de.txt "
    "already exists: name another --destdir, or remove that folder to prepare the data again",
}


@pytest.mark.few(3)
@pytest.mark.parametrize("line", EVERYWHERE)
def test_whichever_command_says_a_mistake_in_one_line(data: Path, line: str) -> None:
    command, *arguments = line.replace("DATA", str(data)).split()
    done = run(command, *arguments, "--cpu")
    assert done.status != 0
    assert done.last == EVERYWHERE[line].replace("DATA", str(data))
    assert "Traceback" not in done.err


def test_a_split_that_is_not_there_is_named(data: Path, tmp_path: Path) -> None:
    split = ["--train-subset", "training", "--save-dir", tmp_path]
    done = run("train", data, *SMALL, *ARCH, *split)
    assert done.status != 0
    assert done.last.startswith(f"error: there is no data of the split training in {data}: give")


@pytest.mark.slow
def test_a_relative_scheme_translates_longer_sentences_than_it_was_trained_for(
    data: Path, tmp_path: Path
) -> None:
    limits = ["--max-source-positions", "10", "--max-target-positions", "10"]
    trained = run("train", data, *SMALL[:-1], *ARCH, *limits, "--save-dir", tmp_path)
    assert trained.status == 0, trained.err
    model = ["--path", tmp_path / "checkpoint_last.pt", "-s", "de", "-t", "en", "--cpu"]
    longer = ["--max-source-positions", "100", "--max-target-positions", "100"]
    done = run("interactive", data, *model, *longer, stdin="w1 " * 30 + "\n")
    assert done.status == 0, done.err
    assert "H-0" in done.out


def test_what_only_training_needs_is_not_asked_of_a_translation(data: Path, tmp_path: Path) -> None:
    trained = run("train", data, *SMALL, *ARCH, "--save-dir", tmp_path)
    assert trained.status == 0, trained.err
    model = ["--path", tmp_path / "checkpoint_last.pt", "-s", "de", "-t", "en", "--cpu"]
    done = run("interactive", data, *model, "--fp16", stdin="w1\n")
    assert "makes one vector of all parameters" not in done.text
