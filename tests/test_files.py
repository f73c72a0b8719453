"""Untrusted files: those that are not regular, too large or too deep are refused at once."""

import gzip
import os
import re
import shutil
from functools import partial
from itertools import cycle

import pytest
from pydantic import BaseModel

from diet_fairseq.cli import main
from diet_fairseq.errors import UserError
from diet_fairseq.files import (
    check_regular,
    open_regular,
    open_text,
    read_bytes,
    read_json,
    read_json_object,
)
from diet_fairseq.translate.model_json import MODEL_JSON
from tests.support import hostile
from tests.support.translating import untrained

KINDS = ["pipe", "device", "link to a device", "folder"]


def put(path, kind):
    """Put an irregular file in the file's place."""
    if path.exists():
        path.unlink()
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "device" | "link to a device":
            path.symlink_to("/dev/zero")
        case "folder":
            path.mkdir()
    return path if kind != "device" else type(path)("/dev/zero")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "read",
    [
        check_regular,
        open_regular,
        open_text,
        read_json,
        lambda path: read_bytes(path, 100),
    ],
)
def test_only_regular_files_are_opened(tmp_path, kind, read):
    path = put(tmp_path / "file", kind)
    kinds = "a folder" if kind == "folder" else "not a regular file"
    with pytest.raises(UserError, match=rf"^{path} is {kinds}: give another file$"):
        read(path)


def test_a_pipe_that_takes_the_name_of_a_file_is_refused(tmp_path, monkeypatch):
    path = put(tmp_path / "file", "pipe")
    status = os.stat
    monkeypatch.setattr(os, "stat", lambda place: status(__file__ if place == path else place))
    with pytest.raises(UserError, match="is not a regular file"):
        open_regular(path)


def test_a_file_that_can_not_be_read_is_named(tmp_path):
    for name in ("nosuch", "a" * 256, "a\0b"):
        with pytest.raises(UserError, match=r"can't be read: .*; give another file"):
            read_bytes(tmp_path / name, 9)


def test_sizes_are_bounded_also_when_unpacked(tmp_path):
    (tmp_path / "file").write_bytes(b"a" * 10)
    assert read_bytes(tmp_path / "file", 10) == b"a" * 10
    with pytest.raises(UserError, match="is too large: it must have at most 9 bytes, but has 10;"):
        read_bytes(tmp_path / "file", 9)
    packed = tmp_path / "file.gz"
    packed.write_bytes(gzip.compress(b"a" * 10_000_000))
    assert len(read_bytes(packed, 10_000_000)) == 10_000_000
    with pytest.raises(UserError, match="is too large: it must have at most 9,999,999 bytes"):
        read_bytes(packed, 9_999_999)
    packed.write_bytes(packed.read_bytes()[:-10])
    with pytest.raises(UserError, match="is truncated or damaged"):
        read_bytes(packed, 10_000_000)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 300 + "]" * 300, "recursion limit exceeded"),
        ('{"a":' * 300 + "1" + "}" * 300, "recursion limit exceeded"),
        ("9" * 4301, "number out of range"),
        ('"\\ud800"', "hex escape"),
        ("{", "EOF"),
    ],
)
def test_json_is_bounded(tmp_path, text, reason):
    (tmp_path / "file").write_text(text)
    with pytest.raises(UserError, match=rf"is not valid JSON \(.*{reason}.*\): give another file"):
        read_json(tmp_path / "file")


def test_an_object_is_checked_key_by_key(tmp_path):
    class Numbers(BaseModel, strict=True):
        size: int
        ids: list[int] = []

    path = tmp_path / "file"
    path.write_text('\ufeff{"size": 1, "ids": [2], "other": null}')
    assert read_json_object(path, Numbers) == Numbers(size=1, ids=[2])
    for text, fault in (
        ("[1]", f"{path} is not a JSON object: give another file"),
        ("{}", f"{path}: size is missing; give another file"),
        ('{"size": "1"}', f'{path}: size must be a valid integer, but is "1"; give another file'),
        ('{"size": 1, "ids": [0, NaN]}', f"{path}: ids.1 must be "),
        (f'{{"size": {"9" * 400}.0}}', f"{path}: size must be "),
    ):
        path.write_text(text)
        with pytest.raises(UserError, match="^" + re.escape(fault)):
            read_json_object(path, Numbers)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A run, what is exported of it for CTranslate2 and transformers, and a text."""
    pytest.importorskip("ctranslate2")
    pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")
    place = tmp_path_factory.mktemp("folders")
    untrained(place / "run", "--arch", "transformer_t5_tiny", "--share-all-embeddings")
    for kind in ("ctranslate2", "hf"):
        assert main(["export", kind, str(place / "run"), str(place / kind)]) == 0
    (place / "text").write_text("ban\n")
    return place


#: the first are those that the default run tries
PLACES = [
    *(("run", MODEL_JSON), ("run", "checkpoint_last.pt"), ("ctranslate2", "model.bin")),
    *(("hf", "model.safetensors"), ("run", "dict.en.txt"), ("run", "sentencepiece.model")),
    *(("ctranslate2", name) for name in (MODEL_JSON, "config.json", "shared_vocabulary.json")),
    ("ctranslate2", "sentencepiece.model"),
    *(("hf", name) for name in ("config.json", "tokenizer_config.json", "dict.txt")),
]


@pytest.mark.slow
@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("place", "kind"), zip(PLACES, cycle(["pipe", "link to a device"]), strict=False)
)
def test_no_command_hangs_at_a_file_of_a_folder(folders, tmp_path, place, kind):
    """Each command ends in one line in a process that may take 20 seconds."""
    folder, name = place
    copy = tmp_path / "tried" / folder
    shutil.copytree(folders / folder, copy)
    put(copy / name, kind)
    words = ["translate", str(copy), str(folders / "text")]
    if folder == "hf":
        words = ["import", "hf", str(copy), str(tmp_path / "tried" / "out")]
    outcome = hostile.attempt(partial(main, words), tmp_path / "tried", limit=20)
    assert outcome.fault is None
    assert outcome.status == 1
    assert name in outcome.err.splitlines()[-1]
