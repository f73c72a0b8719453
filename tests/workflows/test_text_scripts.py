"""Scripts from raw text to subwords: downloads, cleaning, learning, encoding."""

import gzip
import hashlib
import io
import os
import random
import re
import signal
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from argparse import Namespace
from collections import Counter
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from diet_fairseq.errors import UserError
from diet_fairseq.text.lines import read_lines
from diet_fairseq.text.tokenizer import Tokenizer
from tests.support.texts import ODD, sentences, write
from tests.workflows.conftest import EXAMPLES, script

download, clean = script("scripts/download"), script("scripts/clean")
learn, encode = script("scripts/learn_subwords"), script("scripts/encode")


# Downloads

CONTENT = bytes(range(256)) * 400
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server():
    """Serves ``content``, cut where ``sent`` says so."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            site.requests += 1
            self.send_response(site.status)
            self.send_header("Content-Length", str(len(site.content)))
            self.end_headers()
            self.wfile.write(site.content[: site.sent])

        def log_message(self, *_):
            pass

    site = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    site.content, site.sent, site.status, site.requests = CONTENT, None, 200, 0
    site.url = f"http://127.0.0.1:{site.server_port}/file.bin"
    thread = threading.Thread(target=site.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield site
    site.shutdown()
    site.server_close()
    thread.join()


def fetched(folder, url, **source):
    download.download({"url": url, **source}, "de", folder / "text", folder / "archives")
    return (folder / "text").read_bytes()


@pytest.mark.parametrize("sha256", [{}, {"sha256": DIGEST}, {"sha256": {"de": DIGEST}}])
def test_a_complete_file_is_not_fetched_again(server, tmp_path, sha256):
    for _ in range(2):
        assert fetched(tmp_path, server.url, **sha256) == CONTENT
    assert server.requests == 1


def test_a_language_without_a_checksum_is_named(server, tmp_path):
    with pytest.raises(UserError, match="sha256 must have a value for de, but has en, cs"):
        fetched(tmp_path, server.url, sha256={"en": DIGEST, "cs": DIGEST})


@pytest.mark.parametrize(
    ("fault", "source", "reason"),
    [
        ({"sent": 70_000}, {}, "IncompleteRead|70000 bytes read"),
        ({"content": b"x" + CONTENT}, {"sha256": DIGEST}, DIGEST),
        ({"status": 404}, {}, "404"),
    ],
)
def test_a_failed_download_is_named_and_leaves_nothing(server, tmp_path, fault, source, reason):
    vars(server).update(fault)
    with pytest.raises(UserError, match=rf"{server.url} can't be downloaded \((.|\n)*({reason})"):
        fetched(tmp_path, server.url, **source)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def archive(kind, **files):
    """A tar or zip archive of these files, in a folder, and of a link."""
    content = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(content, "w") as zipped:
            for name, text in files.items():
                zipped.writestr(f"training/{name}", text)
    else:
        with tarfile.open(fileobj=content, mode="w:gz") as tar:
            link = tarfile.TarInfo("training/europarl.de")
            link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
            tar.addfile(link)
            for name, text in files.items():
                member = tarfile.TarInfo(f"training/{name}")
                member.size = len(text)
                tar.addfile(member, io.BytesIO(text))
    return content.getvalue()


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_a_regular_file_comes_out_of_an_archive(server, tmp_path, kind):
    server.content = archive(kind, **{"europarl.de": b"ano\n", "other": b"ne\n"})
    assert fetched(tmp_path, server.url, member="europarl.{lang}") == b"ano\n"
    with pytest.raises(UserError, match=r"holds no regular file missing: correct its name"):
        fetched(tmp_path, server.url, member="missing")


@pytest.mark.parametrize("kind", ["tar", "zip", "gz"])
def test_a_damaged_archive_is_named_and_leaves_no_text(server, tmp_path, kind):
    text = random.Random(1).randbytes(100_000)
    if kind == "gz":
        server.url += ".gz"
    whole = gzip.compress(text) if kind == "gz" else archive(kind, **{"europarl.de": text})
    changed = whole[:50_000] + bytes(100) + whole[50_100:]  # zip has its list of files at the end
    server.content = changed if kind == "zip" else whole[:50_000]
    member = {} if kind == "gz" else {"member": "europarl.de"}
    refuse(server, tmp_path, r"can't be unpacked \(.+\): remove it, and run this again", **member)


def refuse(server, folder, message, **source):
    """Check that a download ends in one line and writes no text."""
    with pytest.raises(UserError, match=message) as error:
        fetched(folder, server.url, **source)
    assert "\n" not in str(error.value)
    assert {path.name for path in folder.iterdir()} == {"archives"}


def test_a_tar_archive_is_read_to_its_checksum(server, tmp_path):
    """Random bytes are stored as they are: only a checksum tells that one has changed."""
    content = bytearray(archive("tar", **{"europarl.de": random.Random(1).randbytes(5000)}))
    content[-8] ^= 1
    server.content = bytes(content)
    refuse(server, tmp_path, r"can't be unpacked \(.+\): remove", member="europarl.de")


def test_a_folder_or_link_in_a_zip_is_no_text(server, tmp_path):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as zipped:
        zipped.writestr("europarl.de/", "")
        link = zipfile.ZipInfo("training/europarl.de")
        link.external_attr = 0o120777 << 16
        zipped.writestr(link, "/etc/passwd")
    server.content = content.getvalue()
    refuse(server, tmp_path, "holds no regular file europarl.de", member="europarl.de")


def test_a_test_set_of_sacrebleu_is_two_files(tmp_path, monkeypatch):
    class TestSet:
        langpairs, source, references = ("en-de",), lambda *_: ["a "], lambda *_: [["b"]]

    monkeypatch.setitem(download.DATASETS, "wmt18", TestSet())
    words = ['{"sacrebleu": "wmt18"}', tmp_path / "en", tmp_path / "de"]
    words += ["--archives", tmp_path, "--languages", "en"]
    monkeypatch.setattr("sys.argv", ["download.py", *map(str, [*words, "de"])])
    download.main()
    assert [(tmp_path / name).read_text() for name in ("en", "de")] == ["a\n", "b\n"]
    monkeypatch.setattr("sys.argv", ["download.py", *map(str, [*words, "fr"])])
    with pytest.raises(UserError, match="has no test set wmt18 for en-fr: see sacrebleu --list"):
        download.main()


# Cleaning

GOOD = ("ein Satz", "a sentence")
RULES = Namespace(
    max_words=250, max_characters=2500, max_ratio=3.0,
    check_languages=False, languages=("de", "en"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (("", "a"), "blank"),
        (("\xa0\u2028 ", "a"), "blank"),
        (("\u200b \ufeff", "a"), "blank"),
        (("w " * 251, "w " * 250), "long"),
        (("x" * 100_000, "x"), "long"),
        (("a b c d", "a"), "ratio"),
        (("@@", "four words in English"), "ratio"),
        (("ein\u2003Satz", "a sentence "), "duplicate"),
        (("ein Satz", "another sentence"), "kept"),
        (("w " * 250, "w " * 250), "kept"),
        (("a b c", "a"), "kept"),
    ],
)
def test_each_fault_has_its_reason(pair, reason):
    counts = Counter()
    cleaned = list(clean.clean([([GOOD, pair], 1)], RULES, counts))
    assert len(cleaned) == 1 + (reason == "kept")
    assert counts["read"] == 2
    assert counts[reason] == 1 + (reason == "kept")
    assert set(counts) == {"read", *clean.REASONS, "kept"} - {"language"}


@pytest.mark.parametrize("pair", [("en", "zh"), ("th.gz", "en"), ("en", "ko")])
def test_scripts_without_spaces_lose_no_pairs(pair, shared_data):
    texts = [read_lines(shared_data / "flores-dev" / f"flores-dev.{name}") for name in pair]
    assert len(list(clean.clean([(zip(*texts, strict=True), 1)], RULES, Counter()))) == 997


def test_the_report_has_shares_and_warns_from_a_fifth_on():
    counts = Counter(read=10, blank=0, long=0, ratio=1, duplicate=0, kept=9)
    assert clean.report(counts).splitlines()[4] == "  ratio                1   10.0%"
    assert "warning" not in clean.report(counts)
    counts.update(ratio=1, kept=-1)
    assert clean.report(counts).splitlines()[-1] == (
        "warning: 20% of the pairs are dropped, most by the rule 'ratio': raise max_ratio, or "
        "check that line n of one file translates line n of the other"
    )


HOUSE = ("Das Haus steht am Ufer eines Flusses.", "The house stands by a river.")


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (HOUSE, "kept"),
        (HOUSE[::-1], "language"),
        ((HOUSE[0], HOUSE[0]), "language"),
        ((HOUSE[1], HOUSE[1]), "language"),
        (("La maison est au bord de la rivière.", HOUSE[1]), "language"),
        ((HOUSE[0], "房子坐落在河边，周围有很多树。"), "language"),
        ((HOUSE[0], "Дом стоит на берегу реки."), "language"),
        (("123, 456", "123; 456"), "kept"),
        (("A1 B2 C3 D4 E5 F6",) * 2, "kept"),  # a text without words by 2,000 to 1
        (("Ja.", "Yes."), "kept"),
    ],
)
def test_a_side_in_another_language_is_dropped_if_languages_are_checked(pair, reason):
    pytest.importorskip("py3langid", reason="needs diet_fairseq[detect]")
    counts = Counter()
    rules = Namespace(**vars(RULES) | {"check_languages": True})
    list(clean.clean([([pair], 1)], rules, counts))
    assert counts[reason] == 1
    assert set(counts) == {"read", *clean.REASONS, "kept"}
    assert "  language  " in clean.report(counts)


@pytest.mark.parametrize("language", ["zh", "hi.gz", "ar.gz", "id"])
def test_text_in_its_own_language_is_kept(language, shared_data):
    pytest.importorskip("py3langid", reason="needs diet_fairseq[detect]")
    lines = list(read_lines(shared_data / "flores-dev" / f"flores-dev.{language}"))[::10]
    code = language.removesuffix(".gz")
    assert [line for line in lines if clean.is_other_language(line, code)] == []


def run_clean(folder, monkeypatch, *words):
    """Clean two files of one pair; the table that is written beside them."""
    for language, line in zip(("de", "en"), HOUSE, strict=True):
        write(folder / f"text.{language}", [line])
    files = [folder / "text.de", folder / "text.en"]
    words = [folder, "--languages", *words, "--train", *files, "--valid", *files]
    words += ["--max-words", 9, "--max-characters", 99, "--max-ratio", 3]
    monkeypatch.setattr("sys.argv", ["clean.py", *map(str, words)])
    clean.main()
    return (folder / "counts.txt").read_text()


def test_a_language_that_the_library_lacks_is_refused(tmp_path, monkeypatch):
    pytest.importorskip("py3langid", reason="needs diet_fairseq[detect]")
    message = (
        "check_languages needs languages that py3langid knows, but it does not know tyv: "
        "set check_languages to false"
    )
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        run_clean(tmp_path, monkeypatch, "de", "tyv", "--check-languages")
    monkeypatch.setattr(clean, "has_detection_library", lambda: False)
    message = "check_languages needs the library py3langid: install diet_fairseq[detect]"
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        run_clean(tmp_path, monkeypatch, "fr", "en", "--check-languages")
    assert "language" not in run_clean(tmp_path, monkeypatch, "de", "tyv")


def test_a_source_s_pairs_are_written_as_often_as_the_config_says(tmp_path, monkeypatch):
    counts = Counter()
    sources = [([GOOD, GOOD], 3), ([HOUSE, GOOD], 1)]
    assert list(clean.clean(sources, RULES, counts)) == [GOOD] * 3 + [HOUSE]
    assert (counts["read"], counts["duplicate"], counts["kept"], counts["repeated"]) == (4, 2, 2, 2)
    table = run_clean(tmp_path, monkeypatch, "de", "en", "--repeat", 4)
    assert table.splitlines()[-1] == "  repeated             3  300.0%"
    assert (tmp_path / "train.en").read_text().splitlines() == [HOUSE[1]] * 4
    assert (tmp_path / "valid.en").read_text().splitlines() == [HOUSE[1]]


def test_only_the_same_pair_is_a_duplicate():
    pairs = [("a b", "c"), ("a", "b c"), ("a b", "c d"), ("a b", "c")]
    assert len(list(clean.clean([(pairs, 1)], RULES, Counter()))) == 3


# Subwords

LINES = sentences(400) + [f"über {odd} Länge, naïve 世界 😀 Müller." for odd in ODD if odd != "\n"]


def learned(folder, kind, size=200):
    """A subword model, of German and English."""
    for language, lines in (("de", LINES), ("en", LINES[::-1])):
        write(folder / language, lines)
    words = [kind, folder / kind, "--text", folder / "de", folder / "en"]
    words += ["--languages", "de", "en", "--size", size]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["learn_subwords.py", *map(str, words)])
        learn.main()
    return folder / kind


@pytest.mark.parametrize("kind", ["sentencepiece", "subword_nmt"])
def test_learning_is_deterministic_and_bounded(kind, tmp_path, monkeypatch):
    content = learned(tmp_path, kind).read_bytes()
    assert learned(tmp_path, kind).read_bytes() == content
    assert any(len(token) > 3 for token in Tokenizer(kind, tmp_path / kind, "de").encode(LINES[0]))
    monkeypatch.setattr(learn, "LINES", 50)
    assert learned(tmp_path, kind).read_bytes() != content


def test_sentencepiece_may_have_fewer_subwords_than_characters(tmp_path):
    tokenizer = Tokenizer("sentencepiece", learned(tmp_path, "sentencepiece", size=20), "de")
    assert all(tokenizer.encode(line) for line in LINES)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("split", [False, True])
def test_lines_are_encoded_in_order(tmp_path, monkeypatch, workers, split):
    monkeypatch.setattr(encode, "CHUNK", 30)
    arguments = ("sentencepiece", learned(tmp_path, "sentencepiece"), "de", False)
    work = partial(encode.encode, arguments=arguments, longest=30, split=split)
    tokenizer = Tokenizer(*arguments)
    expected = [
        part
        for line in ["", *LINES]
        for part in ((tokenizer.split(line, 30) or [[]]) if split else [tokenizer.encode(line)])
    ]
    assert list(encode.map_lines(work, ["", *LINES], workers)) == expected


#: its workers say who they are, and work on
AT_WORK = """
import os, runpy, sys, time
from functools import partial

def work(lines, pids):
    with open(pids, "a") as file:
        print(os.getpid(), file=file)
    time.sleep(600)

script = runpy.run_path(sys.argv[1])
list(script["map_lines"](partial(work, pids=sys.argv[2]), "a" * 2 * script["CHUNK"], 2))
"""


def test_a_terminated_encoding_leaves_no_worker_behind(tmp_path):
    (tmp_path / "command.py").write_text(AT_WORK)
    pids = tmp_path / "pids"
    words = [sys.executable, tmp_path / "command.py", EXAMPLES / "scripts" / "encode.py", pids]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        try:
            end = time.monotonic() + 60
            while not (pids.exists() and pids.read_text().count("\n") == 2):
                assert time.monotonic() < end
                time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 1
    for pid in map(int, pids.read_text().split()):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


# Selection of pairs


@pytest.mark.parametrize("train", [None, 2])
def test_selected_sentences_have_frequent_words_and_are_in_one_split(tmp_path, monkeypatch, train):
    texts = {
        "valid": [("a b", "d e"), ("a", "d e"), ("a b c a", "d e"), ("a q", "d e")],
        "test": [("a b", "f e"), ("a c", "d e"), ("b a", "e d")],  # two have a sentence of valid
        "train": [("a b c", "d e f"), ("a b c", "d e f"), ("a b c", "f d"), ("A c b", "f e d"),
                  ("b a", "d f e"), ("c b", "e d"), ("c q", "d e f"), ("c", "d f")],
    }  # fmt: skip
    for split, pairs in texts.items():
        for lang, lines in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
            content = gzip.compress("".join(f"{line}\n" for line in lines).encode())
            (tmp_path / f"{split}.{lang}.gz").write_bytes(content)
    words = [*("--words", 2, 3), *("--frequent", 3, 3), *("--valid", 1), *("--test", 1)]
    words += [] if train is None else ["--train", train]
    (tmp_path / "data").mkdir()
    arguments = ["select_pairs.py", tmp_path, tmp_path / "data", *words]
    monkeypatch.setattr("sys.argv", [*map(str, arguments)])
    script("demo/select_pairs").main()
    files = (tmp_path / "data" / f"train.{lang}.gz" for lang in ("en", "de"))
    selected = [*zip(*map(read_lines, files), strict=True)]
    assert [*read_lines(tmp_path / "data" / "valid.de.gz")] == ["d e"]
    assert [*read_lines(tmp_path / "data" / "test.en.gz")] == ["b a"]
    if train is None:
        assert selected == [("a b c", "d e f"), ("a b c", "f d"), ("A c b", "f e d")]
    else:  # one translation of a sentence
        assert {*selected} == {("a b c", "d e f"), ("A c b", "f e d")}
