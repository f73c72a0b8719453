"""A run's folder holds all that it takes to translate with it."""

import json

import pytest

from diet_fairseq import model_json
from diet_fairseq.recipes.translation.corpora import WMT18
from diet_fairseq.recipes.translation.described import describe


@pytest.mark.parametrize(
    ("bpe", "file", "kind", "preprocessing"),
    [
        ("sentencepiece", "sentencepiece.model", "sentencepiece", "none"),
        ("subword-nmt", "codes", "subword_nmt", "moses"),
    ],
)
def test_a_run_can_be_moved_away_from_its_data(tmp_path, bpe, file, kind, preprocessing):
    data, run = tmp_path / "en-de", tmp_path / "run"
    for folder in (data / "subwords", data / "data-bin", run):
        folder.mkdir(parents=True)
    (data / "prepared.json").write_text(json.dumps({"pair": ["en", "de"], "bpe": bpe}))
    (data / "subwords" / file).write_bytes(b"subwords")
    for language in ("en", "de"):
        (data / "data-bin" / f"dict.{language}.txt").write_text("word 1\n")
    describe(run, data, "de", "en", WMT18.search, run / "checkpoint_last.pt")
    (run / "checkpoint_last.pt").touch()
    data.rename(tmp_path / "elsewhere")

    found = model_json.read(run.rename(tmp_path / "moved"))
    assert (found.source_lang, found.target_lang) == ("de", "en")
    assert (found.subwords, found.preprocessing) == (kind, preprocessing)
    assert (found.beam, found.lenpen, found.penalty) == (10, 0.6, "tensor2tensor")
    assert found.subword_model.read_bytes() == b"subwords"
    assert (found.data / "dict.de.txt").read_text() == "word 1\n"


def test_a_run_of_several_processes_is_described_by_the_first(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    describe(tmp_path, tmp_path / "nosuch", "de", "en", WMT18.search, tmp_path / "x.pt")
    assert list(tmp_path.iterdir()) == []
