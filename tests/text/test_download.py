"""A download is complete and checked, or absent. The network is a local server."""

import hashlib
import io
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from diet_fairseq.errors import UserError
from diet_fairseq.text import download
from diet_fairseq.text.download import extract, fetch

CONTENT = bytes(range(256)) * 400
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server():
    """Serves ``content``, cut where ``sent`` says so; then it is silent until it ``goes_on``."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            site.requests += 1
            self.send_response(site.status)
            self.send_header("Content-Length", str(len(site.content)))
            self.end_headers()
            self.wfile.write(site.content[: site.sent])
            site.goes_on.wait(2)

        def log_message(self, *_):
            pass

    site = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    site.content, site.sent, site.status, site.requests = CONTENT, None, 200, 0
    site.goes_on = threading.Event()
    site.goes_on.set()
    site.url = f"http://127.0.0.1:{site.server_port}/file.tgz"
    thread = threading.Thread(target=site.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield site
    site.goes_on.set()
    site.shutdown()
    site.server_close()
    thread.join()


@pytest.mark.parametrize("sha256", [None, DIGEST])
def test_a_complete_file_is_not_fetched_again(server, tmp_path, capsys, sha256):
    path = tmp_path / "new" / "file.tgz"
    for _ in range(2):
        assert fetch(server.url, path, sha256).read_bytes() == CONTENT
    assert server.requests == 1
    assert (f"sha256: {DIGEST}" in capsys.readouterr().out) == (sha256 is None)


@pytest.mark.parametrize(
    ("fault", "sha256", "reason"),
    [
        ({"sent": 70_000}, None, "IncompleteRead|70000 bytes read"),
        ({"content": b"x" + CONTENT}, DIGEST, f"{DIGEST}.*"),
        ({"status": 404}, None, "404"),
        ({"status": 500}, DIGEST, "500"),
    ],
)
def test_a_failed_download_is_named_and_leaves_nothing(server, tmp_path, fault, sha256, reason):
    vars(server).update(fault)
    with pytest.raises(UserError, match=rf"{server.url} can't be downloaded \(.*({reason}).*\)"):
        fetch(server.url, tmp_path / "file.tgz", sha256)
    assert list(tmp_path.iterdir()) == []


def test_a_silent_server_ends_a_download(server, tmp_path, monkeypatch):
    assert download.TIMEOUT == 60
    monkeypatch.setattr(download, "TIMEOUT", 0.2)
    server.sent = 70_000
    server.goes_on.clear()
    with pytest.raises(UserError, match=r"downloaded \(.*Read timed out.*\): run"):
        fetch(server.url, tmp_path / "file.tgz")
    assert list(tmp_path.iterdir()) == []


def test_no_connection_is_named(tmp_path):
    with pytest.raises(UserError, match=r"127\.0\.0\.1:9/x can't be downloaded .*: run the same"):
        fetch("http://127.0.0.1:9/x", tmp_path / "x")


def archive(path, kind, **files):
    """A tar or zip archive of these files, in a folder."""
    content = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(content, "w") as zipped:
            for name, text in files.items():
                zipped.writestr(f"training/{name}", text)
    else:
        with tarfile.open(fileobj=content, mode="w:gz") as tar:
            for name, text in files.items():
                member = tarfile.TarInfo(f"training/{name}")
                member.size = len(text)
                tar.addfile(member, io.BytesIO(text))
    path.write_bytes(content.getvalue())
    return path


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_one_file_comes_out_of_an_archive(tmp_path, kind):
    whole = archive(tmp_path / "a", kind, europarl=b"ano\n", other=b"ne\n")
    extract(whole, "europarl", tmp_path / "text")
    assert (tmp_path / "text").read_bytes() == b"ano\n"
    with pytest.raises(UserError, match=r"a holds no file missing: correct its name"):
        extract(whole, "missing", tmp_path / "missing")


@pytest.mark.parametrize("cut", [0, 40])
def test_a_damaged_archive_is_named_and_leaves_no_half_file(tmp_path, cut):
    path = archive(tmp_path / "a.tgz", "tar", a=bytes(range(256)) * 4000)
    path.write_bytes(path.read_bytes()[:-cut] if cut else b"no archive")
    with pytest.raises(UserError, match=r"a\.tgz can't be unpacked .*: remove it"):
        extract(path, "a", tmp_path / "text")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.tgz"]


def test_a_link_in_an_archive_is_no_file(tmp_path):
    with tarfile.open(tmp_path / "a.tgz", "w:gz") as tar:
        link = tarfile.TarInfo("secret")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    with pytest.raises(UserError, match="holds no file secret"):
        extract(tmp_path / "a.tgz", "secret", tmp_path / "text")
