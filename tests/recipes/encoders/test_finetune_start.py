"""What a checkpoint says of itself becomes part of a command line, and no more than that."""

import os
import re
import shlex
from argparse import Namespace
from pathlib import Path

import pytest
import torch

from diet_fairseq import checkpoints
from diet_fairseq.errors import UserError
from diet_fairseq.recipes.encoders import finetune, predict, start
from diet_fairseq.recipes.encoders.glue_tasks import GLUE
from tests.support import glue
from tests.support.glue import run
from tests.support.road import use, write


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An encoder and a task."""
    folder = glue.encoder_folder(tmp_path_factory.mktemp("encoder"))
    glue.pretrained(folder, "base", "roberta_diet_rel")
    glue.made(folder / "raw", "RTE", number=4)
    with pytest.MonkeyPatch.context() as patch:
        use(patch)
        run("prepare-glue", folder / "raw", "--folder", folder, "--workers", 1)
    return folder


@pytest.fixture
def edited(folder):
    """The encoder with other options, in a run of its own; returns the file."""

    def edit(change=lambda state: None, **options):
        with open(folder / "runs/base/checkpoint_last.pt", "rb") as file:
            state = checkpoints.read(file, "cpu")
        vars(state["cfg"]["model"]).update(options)
        change(state)
        path = folder / "runs" / "edited" / "checkpoint_last.pt"
        path.parent.mkdir(exist_ok=True)
        torch.save(state, path)
        return path

    return edit


def refused(path):
    with pytest.raises(UserError) as error:
        start.Start(path)
    assert "\n" not in str(error.value)
    return str(error.value)


def shown(folder, capsys, path, *more):
    """The words of the one command that `finetune --show` prints."""
    run("finetune", "RTE", path, "--folder", folder, "--gpus", 0, "--length", 32, "--seeds", 1,
        "--show", *more)  # fmt: skip
    return shlex.split(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, "--user-dir=evil") for name in (*start.SIZES, *start.POSITIONS)),
        ("position_scheme", "--user-dir=evil"),
        ("position_scheme", ""),
        ("encoder_layers", "2"),
        ("encoder_layers", 2.0),
        ("encoder_layers", True),
        ("encoder_layers", [2]),
        ("encoder_layers", torch.tensor(2)),
        ("dropout", "0.1"),
        ("dropout", float("nan")),
        ("position_values", 1),
        ("position_values", "yes"),
        ("attention_backend", "none\n--user-dir=evil"),
        ("arch", "--user-dir=evil"),
        ("arch", "transformer"),
        ("arch", None),
        ("arch", ["roberta"]),
    ],
)
def test_an_option_that_fairseq_train_would_not_take_is_refused(edited, name, value):
    text = refused(edited(**{name: value}))
    assert re.search(rf" is refused: (cfg\.model\.)?{name} of its configuration is ", text)
    # A dropout is looked at already where a checkpoint is read.
    flag = "--" + name.replace("_", "-")
    rule = f"which {flag} does not take|but must be a number"
    assert re.search(rf", ({rule}); use a checkpoint from a source that you trust$", text)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("encoder_layers", 10**8),
        ("encoder_ffn_embed_dim", 10**8),
        ("max_positions", 10**8),
        ("position_clip", 10**8),
        ("position_max_distance", 10**12),
        ("projection_length", 10**600),
    ],
)
def test_sizes_that_its_parameters_have_no_room_for_are_refused(edited, name, value):
    text = refused(edited(**{name: value}))
    assert re.search(rf" is refused: .*{name} of its configuration is 10000", text)
    assert "000, " in text


def test_control_characters_are_shown_as_such(edited):
    assert r"'\x1b[2Jx'" in refused(edited(segment_scheme="\x1b[2Jx"))


def test_no_folder_that_a_checkpoint_names_is_imported(folder, edited, tmp_path):
    """What a fairseq-train that is told ``--encoder-layers --user-dir=FOLDER`` does."""
    evil = tmp_path / "evil"
    evil.mkdir()
    write(evil / "__init__.py", [f"open({str(tmp_path / 'ran')!r}, 'w')"])
    path = edited(encoder_layers=f"--user-dir={evil}")
    with pytest.raises(UserError, match="is refused: encoder_layers"):
        run("finetune", "RTE", path, "--folder", folder, "--gpus", 0, "--length", 32, "--seeds", 1)
    assert not (tmp_path / "ran").exists()


def test_every_option_is_one_word(folder, edited, capsys):
    path = edited(position_clip=3, position_values=False, attention_backend="reference")
    words = shown(folder, capsys, path)
    assert {"--arch=roberta_diet_rel", "--encoder-layers=2", "--position-clip=3",
            "--attention-backend=reference", "--metrics=accuracy", "--valid-subset=valid",
            "--positive-label=1", "--best-checkpoint-metric=accuracy"} <= set(words)  # fmt: skip
    assert "--position-values" not in words


def test_a_dropout_of_zero_stays_zero(folder, edited, capsys):
    words = shown(folder, capsys, edited(dropout=0.0, attention_dropout=0))
    assert {"--dropout=0.0", "--attention-dropout=0"} <= set(words)


def test_what_a_task_is_called_by_is_no_option(folder, capsys, monkeypatch):
    """A prepared folder may be another's, too."""
    task = finetune.load_task(folder / "tasks/RTE")
    vars(task)["positive"] = "--user-dir=evil"
    monkeypatch.setattr(finetune, "load_task", lambda _: task)
    words = shown(folder, capsys, folder / "runs/base/checkpoint_last.pt")
    assert "--positive-label=--user-dir=evil" in words


def test_a_dictionary_that_a_checkpoint_names_is_not_read(edited, folder, tmp_path, capsys):
    """A reader of the pipe would wait for ever."""
    os.mkfifo(tmp_path / "dict.txt")
    path = edited(lambda state: vars_of(state["cfg"]["task"]).update(data=str(tmp_path)))
    (tmp_path / "own").mkdir()
    one = start.Start(path.rename(tmp_path / "own" / "model.pt"))
    assert one.dictionary() is None
    one.check_dictionary(folder / "data-bin/dict.txt")
    assert "its dictionary is not beside it, so only the number" in capsys.readouterr().err


def test_a_cell_s_dictionary_is_that_of_the_task_it_was_fine_tuned_on(edited, folder, capsys):
    """Subwords in another order have the same number, and other meanings."""
    ours = folder / "data-bin/dict.txt"
    cell = folder / "tasks/other/runs/row/cell"
    cell.mkdir(parents=True)
    theirs = folder / "tasks/other/data-bin/input0/dict.txt"
    theirs.parent.mkdir(parents=True)
    theirs.write_text(ours.read_text())
    one = start.Start(edited().rename(cell / "checkpoint_best.pt"))
    one.check_dictionary(ours)
    assert one.dictionary() == theirs
    assert capsys.readouterr().err == ""
    write(theirs, ours.read_text().splitlines()[::-1])
    with pytest.raises(
        UserError, match=rf"trained with the dictionary {theirs} of \d+ subwords, w"
    ):
        one.check_dictionary(ours)


def vars_of(part):
    return vars(part) if isinstance(part, Namespace) else part


def test_a_pipe_is_no_checkpoint(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert refused(tmp_path / "pipe").endswith(
        "pipe is a device or a pipe, not a file: name a checkpoint"
    )


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (
            "weights",
            "encoder.sentence_encoder.embed_tokens.weight of its model is not a tensor; give",
        ),
        (torch.zeros(()), "is not an encoder: give one that `pretrain` wrote, or a RoBERTa"),
        (torch.zeros(3), "is not an encoder: give one that `pretrain` wrote, or a RoBERTa"),
    ],
)
def test_weights_that_are_none_make_no_encoder(edited, table, words):
    name = "encoder.sentence_encoder.embed_tokens.weight"
    text = refused(edited(lambda state: state["model"].update({name: table})))
    assert words in text


@pytest.mark.parametrize("task", ["RTE", "rte"])
def test_an_encoder_that_was_not_fine_tuned_predicts_nothing(folder, task):
    path = folder / "runs/base/checkpoint_last.pt"
    with pytest.raises(UserError) as error:
        run("predict", task, "--folder", folder, "--checkpoint", path)
    assert str(error.value) == f"{path} has not been fine-tuned yet: give one that `finetune` wrote"


def test_a_folder_for_labels_that_is_not_there_is_refused_before_any_work(folder, tmp_path):
    path = tmp_path / "none" / "labels"
    words = ("predict", "RTE", "--folder", folder, "--tsv", "x.tsv", "--output", path)
    with pytest.raises(UserError) as error:
        run(*words)
    assert str(error.value) == f"--output {path}: there is no folder {path.parent}: make it first"


@pytest.mark.parametrize("task", ["all", "RTE,STS-B"])
def test_one_task_is_predicted_at_a_time(task, folder, capsys):
    with pytest.raises(SystemExit):
        run("predict", task, "--folder", folder)
    assert (
        f"argument TASK: must name one task, not all, without commas, but is '{task}'"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("task", "head", "classes", "said"),
    [("RTE", "own", 1, 1), ("RTE", "another", 2, 0), ("STS-B", "own", 2, 2)],
)
def test_a_model_of_other_classes_predicts_nothing(monkeypatch, task, head, classes, said):
    model = torch.nn.Module()
    model.classification_heads = {head: Namespace(out_proj=Namespace(out_features=classes))}
    loaded = [model], None, Namespace(cfg=Namespace(classification_head_name="own"))
    monkeypatch.setattr(
        predict.checkpoint_utils, "load_model_ensemble_and_task", lambda *_, **__: loaded
    )
    with pytest.raises(UserError) as error:
        predict.Predictor(Path("x.pt"), GLUE[task], Path(), False, 1)
    assert str(error.value) == (
        f"x.pt distinguishes {said} classes, which does not fit {task}: give one that `finetune` "
        "wrote for it"
    )


def test_segments_of_an_encoder_that_has_none_are_refused(folder):
    path = folder / "runs/base/checkpoint_last.pt"
    words = ("RTE", path, "--folder", folder, "--length", 32, "--segment-scheme", "per-head")
    with pytest.raises(UserError) as error:
        run("finetune", *words, "--show")
    assert str(error.value) == (
        f"--segment-scheme per-head: {path} has no segments: add --encoder bert, which gives them "
        "to a roberta_<scheme>, or leave it out"
    )
    assert run("finetune", *words, "--show", "--encoder", "bert") == 0


def test_an_electra_is_fine_tuned_as_itself_or_as_a_bert():
    one = object.__new__(start.Start)
    one.path, names = Path("checkpoint.pt"), (*start.SIZES, *start.POSITIONS)
    one.model = dict.fromkeys(names) | {"arch": "electra_t5_small", "position_scheme": "t5"}
    one.model["embedding_size"] = 128
    assert one.flags(None) == ["--arch=electra_t5_small", "--embedding-size=128"]
    assert one.flags("bert") == ["--arch=bert_t5_small", "--embedding-size=128"]
    with pytest.raises(UserError, match=r"--encoder roberta: .* is electra_t5_small, wh"):
        one.flags("roberta")
