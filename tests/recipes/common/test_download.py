"""A download is whole or has not its name; a second call goes on. The network is a local server."""

import hashlib
import io
import re
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from diet_fairseq.errors import UserError
from diet_fairseq.recipes.translation.corpora import CORPORA, multi30k, wmt18
from tests.support.road import download, run, stages, test_sets

CONTENT = bytes(range(256)) * 400
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server():
    """Serves CONTENT (or ``files``); ``asked`` lists the ranges; see the other attributes."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            site = self.server
            content = site.files.get(self.path, CONTENT)
            asked = self.headers.get("Range")
            site.asked.append(asked)
            start = int(re.findall(r"\d+", asked)[0]) if asked and site.ranges else 0
            if site.status != 200 or (start and start >= len(content)):
                self.send_response(416 if site.status == 200 else site.status)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.end_headers()
                return
            self.send_response(206 if start else 200)
            if start:
                self.send_header(
                    "Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}"
                )
            if site.states_size:
                self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            self.wfile.write(content[start : site.stop_at or None])

        def log_message(self, *_):
            pass

    site = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    site.files, site.asked = {}, []
    site.stop_at, site.ranges, site.states_size, site.status = None, True, True, 200
    site.url = f"http://127.0.0.1:{site.server_port}"
    thread = threading.Thread(target=site.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield site
    site.shutdown()
    site.server_close()
    thread.join()


@pytest.fixture
def fetch(server, tmp_path):
    def call(sha256=None):
        path = tmp_path / "new" / "file.tgz"
        download.fetch(f"{server.url}/file.tgz", path, sha256)
        return path

    return call


@pytest.fixture
def refused(fetch, tmp_path):
    def call(words, sha256=None):
        with pytest.raises(UserError, match=words):
            fetch(sha256)
        assert not (tmp_path / "new" / "file.tgz").exists()
        partial = tmp_path / "new" / "file.tgz.partial"
        return partial.stat().st_size if partial.exists() else None

    return call


@pytest.mark.parametrize("sha256", [None, DIGEST])
def test_a_whole_file_gets_its_name_and_is_not_fetched_again(server, fetch, sha256):
    assert fetch(sha256).read_bytes() == CONTENT
    fetch(sha256)
    assert server.asked == [None]


def test_a_cut_transfer_is_named_and_a_second_call_goes_on(server, fetch, refused):
    server.stop_at = 70_000
    assert refused("70,000 of 102,400 bytes arrived: run this again to go on") == 70_000
    server.stop_at = None
    assert fetch().read_bytes() == CONTENT
    assert server.asked == [None, "bytes=70000-"]


def test_a_server_that_can_not_go_on_sends_all_again(server, fetch, refused):
    server.stop_at, server.ranges = 70_000, False
    refused("run this again")
    server.stop_at = None
    assert fetch().read_bytes() == CONTENT


def test_a_file_that_only_lacked_its_name_gets_it(server, fetch, tmp_path):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "file.tgz.partial").write_bytes(CONTENT)
    assert fetch(DIGEST).read_bytes() == CONTENT


def test_a_file_longer_than_announced_is_thrown_away(server, refused, tmp_path):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "file.tgz.partial").write_bytes(CONTENT * 2)
    assert refused("204,800 bytes arrived, but 102,400 were announced") is None


def test_a_wrong_digest_throws_the_file_away(server, fetch, refused):
    server.files["/file.tgz"] = b"x" + CONTENT[1:]
    assert refused("SHA-256 is .*, not .*run this again", DIGEST) is None
    server.files.clear()
    fetch(DIGEST)


def test_a_file_of_unknown_size_needs_a_digest(server, fetch, refused):
    server.states_size = False
    assert refused("states no size") is None
    assert fetch(DIGEST).read_bytes() == CONTENT


@pytest.mark.parametrize("status", [404, 500])
def test_the_server_s_refusal_is_passed_on(server, refused, status):
    server.status = status
    refused(f"file.tgz: the server answers {status}")


def test_without_a_network_the_way_out_is_named(tmp_path):
    with pytest.raises(UserError, match=r"127\.0\.0\.1:9/x: .*--from-dir"):
        download.fetch("http://127.0.0.1:9/x", tmp_path / "x")


def tar(**files: bytes) -> bytes:
    """A .tgz of these files, in a folder."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"training/{name.replace('_', '.').replace('XX', '-')}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    return content.getvalue()


def test_wmt18_takes_its_pair_out_of_the_archives(server, tmp_path, monkeypatch):
    monkeypatch.setattr(test_sets, "write", lambda *_: None)
    monkeypatch.setattr(
        wmt18, "ARCHIVES", (f"{server.url}/{{other}}-en.tgz", f"{server.url}/c.tgz")
    )
    server.files = {
        "/cs-en.tgz": tar(ep_csXXen_cs=b"ano\n", ep_csXXen_en=b"yes\n"),
        "/c.tgz": tar(
            cc_csXXen_cs=b"ne\n",
            cc_csXXen_en=b"no\n",
            cc_deXXen_de=b"x\n",
            cc_csXXen_annotation=b"x",
        ),
    }
    raw = tmp_path / "raw"
    archives = tmp_path / "archives"
    stages.stage(raw, {}, lambda partial: wmt18.download(partial, archives, ("en", "cs")))
    assert sorted(path.name for path in raw.glob("train*")) == [
        "train.cc.cs-en.cs",
        "train.cc.cs-en.en",
        "train.ep.cs-en.cs",
        "train.ep.cs-en.en",
    ]
    assert (raw / "train.ep.cs-en.en").read_bytes() == b"yes\n"


@pytest.mark.parametrize("content", [b"no archive", tar(a=b"a" * 99_999)[:-40]])
def test_a_broken_archive_is_named_and_leaves_no_half_folder(tmp_path, content):
    archive, raw = tmp_path / "a.tgz", tmp_path / "raw"
    archive.write_bytes(content)
    with pytest.raises(UserError, match=r"a\.tgz can't be unpacked .*: remove it"):
        stages.stage(raw, {}, lambda partial: download.extract(archive, "a", partial, ""))
    assert not raw.exists()


def test_an_archive_without_the_pair_is_named(tmp_path):
    (tmp_path / "a.tgz").write_bytes(tar(a=b"a"))
    with pytest.raises(UserError, match=r"a\.tgz holds no file named like b"):
        download.extract(tmp_path / "a.tgz", "b", tmp_path, "")


def test_multi30k_is_checked_by_digest(server, tmp_path, monkeypatch):
    monkeypatch.setattr(multi30k, "REPOSITORY", server.url)
    with pytest.raises(UserError, match="SHA-256"):
        multi30k.download(tmp_path, tmp_path / "archives", ("en", "de"))
    monkeypatch.setattr(multi30k, "SHA256", dict.fromkeys(multi30k.SHA256, DIGEST))
    multi30k.download(tmp_path, tmp_path / "archives", ("en", "de"))
    assert len(list(tmp_path.glob("*.gz"))) == 6


@pytest.mark.parametrize(
    ("name", "pair", "pairs"),
    [
        ("multi30k", ("fr", "en"), "en-fr to download, but en-de, en-cs, cs-de: name two of"),
        ("wmt18", ("de", "cs"), "cs-de to download, but en-de, en-cs: name two of"),
    ],
)
def test_languages_that_there_are_not_are_named_before_anything_is_made_or_fetched(
    tmp_path, name, pair, pairs
):
    corpus = CORPORA[name]
    with pytest.raises(UserError, match=f"{name} has no {pairs}"):
        run(corpus, "prepare", *pair, "--folder", tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_the_digests_are_those_of_the_shared_files(shared_data):
    for name, digest in multi30k.SHA256.items():
        with open(shared_data / "multi30k" / name, "rb") as file:
            assert hashlib.file_digest(file, "sha256").hexdigest() == digest
