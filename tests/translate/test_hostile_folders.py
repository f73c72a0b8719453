"""Mutations of every file of our folders: each is read, or ends in one line and status 1."""

import random
import shutil
from functools import partial

import pytest

from diet_fairseq.cli import main
from tests.support import hostile
from tests.support.translating import untrained

#: file of the folder -> how it is mutated
JSON, BYTES = hostile.of_json, hostile.of_the_archive
FOLDERS = {
    "run": {
        "model.json": [JSON, BYTES],
        "dict.en.txt": [BYTES],
        "sentencepiece.model": [BYTES],
        "checkpoint_last.pt": [hostile.of_a_value],
    },
    "ctranslate2": {
        "model.json": [JSON, BYTES],
        "config.json": [JSON, BYTES],
        "shared_vocabulary.json": [JSON, BYTES],
        "model.bin": [BYTES],
        "sentencepiece.model": [BYTES],
    },
    "hf": {
        "config.json": [JSON, BYTES],
        "model.json": [JSON, BYTES],
        "tokenizer_config.json": [JSON, BYTES],
        "dict.txt": [BYTES],
        "model.safetensors": [hostile.of_safetensors, BYTES],
    },
}
CASES = [
    (kind, name, mutate)
    for kind, files in FOLDERS.items()
    for name, mutations in files.items()
    for mutate in mutations
]
#: those that the default run tries
QUICK = [("run", "model.json"), ("ctranslate2", "model.bin"), ("hf", "model.safetensors")]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    pytest.importorskip("ctranslate2")
    pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")
    run = untrained(
        tmp_path_factory.mktemp("good") / "run",
        "--arch", "transformer_t5_tiny", "--share-all-embeddings",
    )  # fmt: skip
    for kind in ("ctranslate2", "hf"):
        assert main(["export", kind, str(run), str(run.parent / kind)]) == 0
    (run.parent / "text").write_text("ban din kon\n")
    return run.parent


def read(kind, folder, text):
    if kind == "hf":
        main(["import", "hf", str(folder), str(folder.parent / "imported")])
    else:
        main(["translate", str(folder), str(text)])


@pytest.mark.slow
@pytest.mark.parametrize("kind", FOLDERS)
def test_the_good_folder_is_read(folders, tmp_path, kind):
    shutil.copytree(folders / kind, tmp_path / "tried" / kind)
    action = partial(read, kind, tmp_path / "tried" / kind, folders / "text")
    outcome = hostile.attempt(action, tmp_path / "tried")
    assert (outcome.status, outcome.fault) == (0, None), outcome.err


@pytest.mark.parametrize(("kind", "name"), QUICK)
def test_a_mutated_file_is_read_or_refused_in_one_line(folders, tmp_path, kind, name):
    for mutate in FOLDERS[kind][name]:
        try_mutations(folders, tmp_path, kind, name, mutate, range(1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name", "mutate"), CASES, ids=[f"{k}-{n}-{m.__name__}" for k, n, m in CASES]
)  # fmt: skip
def test_every_mutated_file_is_read_or_refused_in_one_line(folders, tmp_path, kind, name, mutate):
    try_mutations(folders, tmp_path, kind, name, mutate, range(8))


def try_mutations(folders, tmp_path, kind, name, mutate, seeds):
    for number in seeds:
        folder = tmp_path / str(number) / kind
        shutil.copytree(folders / kind, folder)
        path = folder / name
        path.write_bytes(mutate(path.read_bytes(), random.Random(number)))
        outcome = hostile.attempt(partial(read, kind, folder, folders / "text"), folder.parent)
        assert outcome.fault is None, (number, outcome.err[-2000:])
        shutil.rmtree(folder.parent)
