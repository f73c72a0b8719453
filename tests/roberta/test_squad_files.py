"""XTREME's published files: their digests, and TyDiQA's questions in one language."""

import gzip
import hashlib
import json
from pathlib import Path

import pytest
import yaml

from diet_fairseq.errors import UserError
from tests.roberta.conftest import ROBERTA

CONFIG = yaml.safe_load((ROBERTA / "configs" / "diet-multilingual.yaml").read_text())
#: a download's name -> the same file in ../shared/data/xtreme
PLACES = {
    "xquad.": "xquad/{}.gz",
    "tydiqa.": "tydiqa_goldp/{}.gz",
    "dev-": "xnli/{}.gz",
    "test-de.tsv": "xnli/test-de.labelled.txt.gz",
}


@pytest.fixture
def every_language(shared_data, tmp_path) -> Path:
    """TyDiQA's English and Swahili questions in one file, as it was published."""
    paragraphs = []
    for language, code in (("swahili", "sw"), ("english", "en")):
        path = shared_data / "xtreme" / "tydiqa_goldp" / f"tydiqa.goldp.{code}.train.json.gz"
        for number, article in enumerate(json.loads(gzip.decompress(path.read_bytes()))["data"]):
            [paragraph] = article["paragraphs"]
            [question] = paragraph["qas"]
            question["id"] = f"{language}-{number}-{question['id']}"
            paragraphs.append(paragraph)
    paragraphs.sort(key=lambda question: int(question["qas"][0]["id"].split("-")[1]))  # in turn
    content = {"data": [{"paragraphs": paragraphs}]}
    (tmp_path / "train.json").write_text(json.dumps(content))
    return tmp_path / "train.json"


@pytest.mark.slow
def test_english_questions_are_those_that_xtreme_selects(script, shared_data, every_language):
    read = script("squad_files").read_squad
    folder = shared_data / "xtreme" / "tydiqa_goldp"
    english = read(folder / "tydiqa.goldp.en.train.json.gz")
    selected = read(every_language, language="english")
    assert len(english) == 3696
    for question, expected in zip(selected, english, strict=True):
        assert question["id"].split("-")[-1] == expected["id"]
        assert question | {"id": ""} == expected | {"id": ""}
    assert len(read(every_language)) == 3696 + 2755
    with pytest.raises(UserError, match=r"train\.json holds no question whose id begins with fin-"):
        read(every_language, language="fin")


def test_downloads_have_the_digests_of_the_published_files(shared_data):
    pinned = {
        name: source["sha256"] for name, source in CONFIG["downloads"].items() if source["sha256"]
    }
    assert len(pinned) == 7
    for name, digest in pinned.items():
        name = Path(name).name
        [place] = [place for start, place in PLACES.items() if name.startswith(start)]
        content = gzip.decompress((shared_data / "xtreme" / place.format(name)).read_bytes())
        assert hashlib.sha256(content).hexdigest() == digest, name


def test_every_file_of_questions_has_a_download():
    questions = CONFIG["questions"]
    files = {file for tests in questions["tests"].values() for file in tests.values()}
    assert files | {questions["train"]} <= CONFIG["downloads"].keys()
