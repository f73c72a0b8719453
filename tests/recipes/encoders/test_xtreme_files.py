"""XTREME's files, fetched from a local server that has them as their publishers do."""

import io
import json
import tarfile
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from diet_fairseq.errors import UserError
from diet_fairseq.recipes.encoders import squad, xtreme_files
from diet_fairseq.recipes.encoders.prepare_xtreme import published
from diet_fairseq.recipes.encoders.xtreme_files import fetch_missing
from diet_fairseq.recipes.encoders.xtreme_tasks import xtreme_task


def questions(*ids):
    qas = [{"id": one, "question": "Who?", "answers": [{"text": "Ada", "answer_start": 0}]}
           for one in ids]  # fmt: skip
    return json.dumps({"version": "1.1", "data": [{"paragraphs": [
        {"context": "Ada reads.", "qas": qas}]}]})  # fmt: skip


def zipped(**files):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(f"FOLDER/{name}", text)
    return content.getvalue()


def tarred(**files):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"FOLDER/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return content.getvalue()


def table(*rows):
    return "".join("\t".join(row) + "\n" for row in rows)


XNLI = ("language", "gold_label", "sentence1_parse", "sentence1", "sentence2", "genre")
MLQA, TYDIQA, TRAIN, PAIRS, MULTINLI = (
    "dl.fbaipublicfiles.com/MLQA/MLQA_V1.zip",
    "storage.googleapis.com/tydiqa/v1.1/tydiqa-goldp-v1.1-dev.tgz",
    "storage.googleapis.com/tydiqa/v1.1/tydiqa-goldp-v1.1-train.json",
    "dl.fbaipublicfiles.com/XNLI/XNLI-1.0.zip",
    "dl.fbaipublicfiles.com/XNLI/XNLI-MT-1.0.zip",
)
FILES = {
    MLQA: zipped(**{
        f"{split}-context-{context}-question-{question}.json": questions(split)
        for split in ("dev", "test") for context in ("de", "en") for question in ("de", "en")
    }),
    TYDIQA: tarred(**{
        f"tydiqa-goldp-dev-{name}.json": questions(f"{name}-1") for name in ("swahili", "english")
    }),
    TRAIN: questions("english-3", "swahili-4", "english-5").encode(),
    PAIRS: zipped(**{
        f"xnli.{split}.tsv": table(
            XNLI, ("en", "neutral", "(", f"It is \"{split}", "We  go", "x"),
            ("sw", "entailment", "(", "Ni", "Sisi", "x"), ("../x", "neutral", "(", "a", "b", "x"),
        ) for split in ("dev", "test")
    }),
    MULTINLI: zipped(**{
        "multinli.train.en.tsv": table(("premise", "hypo", "label"), ("A", "B", "contradictory")),
        "multinli.train.sw.tsv": "",
    }),
    "raw.githubusercontent.com/google-deepmind/xquad/7d30520c717524000f0d9d2f9c10a069acd9d285/"
    "xquad.de.json": questions("6").encode(),
    "rajpurkar.github.io/SQuAD-explorer/dataset/train-v1.1.json": questions("7").encode(),
}  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("www")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def www(site, monkeypatch):
    """Where the server's files are: those of `FILES`."""
    folder, address = site
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    moved = [replace(one, url=one.url.replace("https://", address)) for one in
             xtreme_files.PUBLISHED]  # fmt: skip
    monkeypatch.setattr(xtreme_files, "PUBLISHED", moved)
    return folder


def wanted(task, train_on, *languages):
    return published(xtreme_task(task), train_on, languages)


def test_questions_get_the_names_that_they_are_prepared_by(www, tmp_path):
    data = tmp_path / "new"
    fetch_missing(wanted("MLQA", "squad", "de", "de-en"), data)
    fetch_missing(wanted("TyDiQA", "tydiqa", "sw"), data)
    fetch_missing(wanted("XQuAD", "squad", "de"), data)
    ids = {path.name: [one.id for one in squad.read(path)] for path in data.glob("*.json")}
    assert ids == {
        "train-v1.1.json": ["7"],
        "xquad.de.json": ["6"],
        "tydiqa.goldp.en.train.json": ["english-3", "english-5"],
        "tydiqa.goldp.en.dev.json": ["english-1"],
        "tydiqa.goldp.sw.dev.json": ["swahili-1"],
        **{f"test-context-{context}-question-{question}.json": ["test"]
           for context in ("de", "en") for question in ("de", "en")},
    }  # fmt: skip


def test_pairs_are_cut_by_language_and_keep_their_labels(www, tmp_path):
    fetch_missing(wanted("XNLI", "mnli", "sw"), tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.glob("*.*")} == {
        "train-en.tsv": "A\tB\tcontradiction\n",
        "dev-en.tsv": 'It is "dev\tWe go\tneutral\n',
        "dev-sw.tsv": "Ni\tSisi\tentailment\n",
        "test-en.tsv": 'It is "test\tWe go\tneutral\n',
        "test-sw.tsv": "Ni\tSisi\tentailment\n",
    }
    assert not (tmp_path.parent / "x.tsv").exists()


def test_what_is_there_is_neither_fetched_nor_replaced(www, tmp_path):
    (tmp_path / "mine").mkdir()
    mine = tmp_path / "mine/test-context-en-question-en.json.gz"
    mine.write_text("mine")
    fetch_missing(["test-context-en-question-en.json", "no-such-file.json"], tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [mine]
    fetch_missing(["test-context-de-question-de.json"], tmp_path)
    assert mine.read_text() == "mine"
    assert not (tmp_path / "test-context-en-question-en.json").exists()


@pytest.mark.parametrize(
    ("file", "content", "name", "said"),
    [
        (MLQA, b"<html>moved</html>", "test-context-de-question-de.json",
         "can't be unpacked (file could not be opened successfully"),
        (MLQA, FILES[MLQA][:-40], "test-context-de-question-de.json",
         "can't be unpacked (file could not be opened successfully"),
        (MLQA, zipped(a="x"), "test-context-de-question-de.json",
         r"holds no file named like test-context-.*\.json"),
        (MLQA, FILES[MLQA], "test-context-vi-question-vi.json",
         ": test-context-vi-question-vi.json can't be made of it (that is not in it): put that "
         "into {data} yourself"),
        (PAIRS, zipped(**{"xnli.dev.tsv": table(XNLI[1:], "abcde")}), "dev-sw.tsv",
         ": dev-sw.tsv can't be made of it (xnli.dev.tsv, line 1: a column named 'language' is "
         "expected, found are 'gold_label', 'sentence1_parse', 'sentence1', 'sentence2', 'genre': "
         "give the file that has it): put that into {data} yourself"),
        (MULTINLI, zipped(**{"multinli.train.en.tsv": "premise\thypo\tlabel\na\tb\n"}),
         "train-en.tsv", ": train-en.tsv can't be made of it (multinli.train.en.tsv, line 2: 3 "
         "tab-separated columns are expected, 2 are found: correct the file): put that into {data} "
         "yourself"),
        (TRAIN, questions("swahili-1").encode(), "tydiqa.goldp.en.train.json",
         "has no question whose id begins with 'english-'): put that into {data} yourself"),
        (TRAIN, b'{"data": [{"paragraph": []}]}', "tydiqa.goldp.en.train.json",
         "has no paragraphs and ids as in TyDiQA-GoldP (KeyError('paragraphs'))): put that"),
    ],
)  # fmt: skip
def test_a_download_of_another_form_is_one_line_and_leaves_no_half_file(
    www, tmp_path, file, content, name, said
):
    (www / file).write_bytes(content)
    with pytest.raises(UserError) as error:
        fetch_missing([name], tmp_path)
    message = str(error.value)
    assert said.format(data=tmp_path) in message
    assert file.rpartition("/")[2] in message
    assert "\n" not in message
    assert not [path.name for path in tmp_path.rglob("*.tsv")]
    assert not (tmp_path / name).exists()
    assert not list(tmp_path.glob(f"{xtreme_files.UNPACKED}*"))


def test_a_download_that_fails_says_where_to_put_the_file(tmp_path, monkeypatch):
    def failing(url, path):
        raise UserError(f"{url}: no route; run this again to go on, or use --from-dir with files "
                        "you have")  # fmt: skip

    monkeypatch.setattr(xtreme_files, "fetch", failing)
    with pytest.raises(UserError) as error:
        fetch_missing(["xquad.de.json"], tmp_path)
    assert str(error.value).endswith(f"no route; run this again to go on, or put it in {tmp_path}")


def test_of_two_downloads_at_once_one_fetches(www, tmp_path, monkeypatch):
    fetched = []
    fetch = xtreme_files.fetch

    def counted(url, path):
        fetched.append(url)
        time.sleep(0.2)
        fetch(url, path)

    monkeypatch.setattr(xtreme_files, "fetch", counted)
    with ThreadPoolExecutor() as pool:
        for one in [pool.submit(fetch_missing, ["dev-sw.tsv"], tmp_path) for _ in range(2)]:
            one.result()
    assert len(fetched) == 1
    assert (tmp_path / "dev-sw.tsv").exists()
