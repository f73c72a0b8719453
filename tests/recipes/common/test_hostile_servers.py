"""A server may send what it likes: every download ends, in one line, and within its limits."""

import hashlib
import io
import os
import socket
import tarfile
import threading
import time

import pytest

from diet_fairseq.errors import UserError
from diet_fairseq.recipes.common import transfer
from tests.support.road import download, stages

CONTENT = b"0123456789" * 10


@pytest.fixture
def server():
    """Answers every request with what ``sends()`` has; numbers are seconds to wait."""
    listening = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    class Server:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/file.tgz"
        sends = tuple
        asked = b""

    def serve():
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                try:
                    Server.asked = connection.recv(1 << 16)
                    for part in Server.sends():
                        if stop.wait(part) if isinstance(part, float) else stop.is_set():
                            break
                        if isinstance(part, bytes):
                            connection.sendall(part)
                except OSError:
                    pass

    thread = threading.Thread(target=serve)
    thread.start()
    yield Server
    stop.set()
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    thread.join()


@pytest.fixture
def fetch(server, tmp_path):
    path = tmp_path / "new" / "file.tgz"

    def call(*sends, sha256=None):
        [server.sends] = sends if callable(sends[0]) else [lambda: sends]
        download.fetch(server.url, path, sha256)
        return path.read_bytes()

    return call


@pytest.fixture
def refused(fetch, server, tmp_path):
    """What is said without the address, and how much is kept for a second call."""

    def call(*sends, sha256=None):
        with pytest.raises(UserError) as error:
            fetch(*sends, sha256=sha256)
        text = str(error.value)
        assert text.isprintable()
        assert not (tmp_path / "new" / "file.tgz").exists()
        partial = tmp_path / "new" / "file.tgz.partial"
        size = partial.stat().st_size if partial.exists() else None
        return text.removeprefix(f"{server.url}: "), size

    return call


def head(*lines, status="200 OK"):
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode("latin-1")


GO_ON = "; run this again to go on, or use --from-dir with files you have"


@pytest.mark.parametrize("length", ["x", "-5", "1e3", "²", "9" * 5000, ""])
def test_a_length_that_is_none_is_as_good_as_none(refused, length):
    assert refused(head(f"Content-Length: {length}"), CONTENT) == (
        "the server states no size, so the file can't be checked", None
    )  # fmt: skip


def test_more_than_the_largest_file_is_not_begun(refused):
    assert refused(head("Content-Length: 5000000000000"), CONTENT) == (
        "the server announces 5,000,000,000,000 bytes, more than 2,000,000,000", None
    )  # fmt: skip


def endless():
    yield head()
    while True:
        yield b"x" * 1000


def endless_chunks():
    yield head("Transfer-Encoding: chunked")
    while True:
        yield b"3e8\r\n" + b"x" * 1000 + b"\r\n"


@pytest.mark.parametrize("sends", [endless, endless_chunks])
def test_a_stream_without_an_end_is_ended(refused, monkeypatch, sends):
    monkeypatch.setattr(download, "LARGEST", 50_000)
    assert refused(sends) == ("more than 50,000 bytes arrived, and still no end", None)


@pytest.mark.parametrize(
    ("before", "part", "kept"),
    [
        (head("Content-Length: 5000"), b"x", True),
        (head("Transfer-Encoding: chunked"), b"1\r\nx\r\n", True),
        (head("Transfer-Encoding: chunked"), b"0", False),  # a chunk's length, for ever
        (b"HTTP/1.1 200 OK\r\n", b"x", False),  # a header's name, for ever
        (b"HTTP/1.1 200 OK\r\n", b"a:b\r\n", False),
        (b"HTTP/1.1 200 ", b"x", False),
        (b"", b"x", False),
    ],
)
def test_a_server_that_drips_is_left(refused, monkeypatch, before, part, kept):
    """A byte or two at a time, each well within a socket's own limit."""
    monkeypatch.setattr(transfer, "SECONDS", 0.3)
    started = time.monotonic()
    text, size = refused(before, *[0.02, part] * 1000)
    assert time.monotonic() - started < 10
    assert text.endswith(GO_ON)
    assert "bytes in 0.3 seconds are too few" in text
    assert bool(size) is kept


def test_a_server_that_says_nothing_is_left(refused, monkeypatch):
    monkeypatch.setattr(transfer, "SECONDS", 0.3)
    assert refused(5.0)[0] == "0 bytes in 0.3 seconds are too few" + GO_ON


def test_what_came_before_a_server_falls_silent_is_kept(refused, monkeypatch):
    monkeypatch.setattr(transfer, "SECONDS", 0.3)
    text, size = refused(head("Content-Length: 100"), CONTENT[:50], 5.0)
    assert text.endswith("bytes in 0.3 seconds are too few" + GO_ON)
    assert size == 50


def test_a_steady_server_has_all_the_time_it_needs(fetch, monkeypatch):
    """A pause at the end of a second that brought enough is none."""
    monkeypatch.setattr(transfer, "SECONDS", 0.5)
    monkeypatch.setattr(transfer, "LEAST", 3)
    parts = [part for number in range(10) for part in (0.15, CONTENT[number * 10 :][:10])]
    assert fetch(head("Content-Length: 100"), *parts) == CONTENT


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"\x1b[2J\r\n\r\n", "[2J"),
        (head(status="404 \x1b[2Jno\tsuch"), "the server answers 404 [2Jno such"),
        (head(status="416 nothing there"), "the server answers 416 nothing there"),
        (head("Location: http://[/", status="302 Found"), "Invalid IPv6 URL"),
        (head("Location: file:///etc/passwd", status="302 Found"), "302"),
        (head("Location: ftp://127.0.0.1:9/x", status="302 Found"), "unknown url type: ftp"),
        (head("Location: /file.tgz", status="302 Found") + CONTENT, "infinite loop"),
        (head("Transfer-Encoding: chunked") + b"nonsense\r\n", "IncompleteRead"),
        (head(*["a: b"] * 200), "got more than 100 headers"),
        (head("a: " + "b" * 100_000), "got more than 65536 bytes"),
    ],
)
def test_an_answer_that_is_none_is_told_in_one_line(refused, answer, words):
    assert words in refused(answer)[0]


def test_what_comes_with_a_redirection_is_not_read(refused):
    """urllib reads all of it, into memory."""

    def sends():
        yield head("Location: http://127.0.0.1:9/", status="302 Found")
        while True:
            yield b"x" * 100_000

    started = time.monotonic()
    assert "Connection refused" in refused(sends)[0]
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("part", ["bytes 0-99/100", "bytes 60-99/100", "x", "bytes ²-99/100"])
def test_another_part_than_asked_for_is_thrown_away(refused, fetch, server, tmp_path, part):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "file.tgz.partial").write_bytes(CONTENT[:50])
    answer = head(f"Content-Range: {part}", "Content-Length: 50", status="206 Partial Content")
    assert refused(answer, CONTENT[50:]) == (
        "the server sent another part of the file than requested: run this again", None
    )  # fmt: skip
    assert b"Range: bytes=50-" in server.asked
    assert fetch(head("Content-Length: 100"), CONTENT) == CONTENT


def test_a_file_without_a_known_digest_is_said_to_be_unchecked(fetch, capsys):
    """Here the server announces less than there is."""
    assert fetch(head("Content-Length: 10"), CONTENT) == CONTENT[:10]
    assert "file.tgz: 10 bytes, as announced; no digest is known, so it is unchecked" in (
        capsys.readouterr().out
    )


def test_a_file_of_the_known_digest_is_not(fetch, capsys):
    assert fetch(head(), CONTENT, sha256=hashlib.sha256(CONTENT).hexdigest()) == CONTENT
    assert "unchecked" not in capsys.readouterr().out


# Archives


def tar(path, *members):
    with tarfile.open(path, "w") as archive:
        for name, kind, link, size in members:
            made = tarfile.TarInfo(name)
            made.type, made.linkname, made.size = kind, link, size
            archive.addfile(made, io.BytesIO(b"x" * size))
    return path


@pytest.mark.parametrize(
    ("kind", "link"),
    [
        (tarfile.SYMTYPE, "/etc/passwd"),
        (tarfile.SYMTYPE, "a.de"),  # itself: Python would look for it without end
        (tarfile.SYMTYPE, "nowhere"),
        (tarfile.LNKTYPE, "/etc/passwd"),
        (tarfile.FIFOTYPE, ""),
        (tarfile.CHRTYPE, ""),
    ],
)
def test_a_link_in_an_archive_is_refused(tmp_path, kind, link):
    archive = tar(tmp_path / "a.tar", ("\x1b/a.de", kind, link, 0))
    with pytest.raises(UserError) as error:
        download.extract(archive, r".+\.de", tmp_path, "train.")
    assert str(error.value) == (
        f"{archive} can't be unpacked ('\\x1b/a.de' in it is a link or a device): remove it, and "
        "run this again"
    )
    assert os.listdir(tmp_path) == ["a.tar"]


def test_what_is_not_wanted_in_an_archive_does_not_count(tmp_path):
    members = [("link", tarfile.SYMTYPE, "/etc/passwd", 0), ("a.de", tarfile.DIRTYPE, "", 0)]
    archive = tar(tmp_path / "a.tar", *members, ("b.de", tarfile.REGTYPE, "", 3))
    download.extract(archive, r".+\.de", tmp_path, "train.")
    assert (tmp_path / "train.b.de").read_bytes() == b"xxx"
    assert sorted(os.listdir(tmp_path)) == ["a.tar", "train.b.de"]


def test_a_file_larger_than_the_disk_is_not_unpacked(tmp_path, monkeypatch):
    usage = download.shutil.disk_usage(tmp_path)._replace(free=2)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    archive = tar(tmp_path / "a.tar", ("b.de", tarfile.REGTYPE, "", 3))
    with pytest.raises(UserError, match=r"'b\.de' needs 3 bytes, and .* has 2"):
        stages.stage(tmp_path / "raw", {}, lambda to: download.extract(archive, "b.de", to, ""))
    assert not (tmp_path / "raw").exists()
