"""`diet-fairseq serve`: it starts, answers, and completes all requests before it ends."""

import errno
import http.client
import json
import logging
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from contextlib import suppress

import pytest

pytest.importorskip("starlette", reason="needs diet_fairseq[serve]")
from diet_fairseq.cli import main
from diet_fairseq.errors import UserError
from diet_fairseq.translate.service import server
from tests.support.translating import words_only

pytestmark = pytest.mark.slow

#: the command with a model that reverses the words of a line, in half a second
PROGRAM = """
import os, resource, sys, time
from diet_fairseq.translate import translator
from diet_fairseq.translate.service import server
from tests.support.backwards import Backwards
from diet_fairseq.cli import main

class Slow(Backwards):
    def translate(self, *args):
        time.sleep(0.5)
        return super().translate(*args)

translator.load_engine = lambda *_: Slow()
if "TEST_CONNECTIONS" in os.environ:
    server.MAX_CONNECTIONS, server.TRANSFER_SECONDS = int(os.environ["TEST_CONNECTIONS"]), 1
if "TEST_FILES" in os.environ:
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(os.environ["TEST_FILES"]),) * 2)
if "TEST_SIGNAL" in os.environ:
    run = server.Server.run

    def interrupted_run(self, **options):
        os.kill(os.getpid(), int(os.environ["TEST_SIGNAL"]))
        run(self, **options)

    server.Server.run = interrupted_run
sys.exit(main(sys.argv[1:]))
"""


def test_libretranslate_s_own_client_is_answered(service):
    _, port = service
    client = pytest.importorskip("libretranslatepy").LibreTranslateAPI(f"http://127.0.0.1:{port}")
    assert client.translate("aä b&c\nd", "en", "de") == "b&c aä\nd"
    assert [language["code"] for language in client.languages()] == ["en", "de"]


def test_forms_as_libretranslate_s_client_sends_them_are_answered(service):
    """The bytes of libretranslatepy 2.1.4: urllib names a type of its own, and GET has a body."""
    _, port = service
    url = f"http://127.0.0.1:{port}/"
    form = urllib.parse.urlencode({"q": "aä b&c\nd", "source": "en", "target": "de"})
    request = urllib.request.Request(url + "translate", data=form.encode())
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert json.loads(answer.read()) == {"translatedText": "b&c aä\nd"}
    request = urllib.request.Request(url + "languages", data=b"", method="GET")
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert [language["code"] for language in json.loads(answer.read())] == ["en", "de"]


def test_a_wrong_multipart_form_is_answered_and_not_logged(service):
    process, port = service
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    headers = {"Content-Type": "multipart/form-data; boundary=B"}
    connection.request("POST", "/translate", b"--B\r\nq", headers)
    assert connection.getresponse().status == 400
    connection.close()
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=20) == ("stopped\n", "")


@pytest.fixture
def few_connections(monkeypatch):
    """Services that are started have a limit of 20 connections, and a second for each transfer."""
    monkeypatch.setenv("TEST_CONNECTIONS", "20")


@pytest.fixture
def service(tmp_path, request):
    """A process that serves, and its port; options are the fixture's parameter."""
    options = ["--port", "0", *getattr(request, "param", ())]
    # PyTorch 2.15 warns of fairseq's use of torch.jit
    python = [sys.executable, "-W", "ignore::FutureWarning"]
    command = [*python, "-c", PROGRAM, "serve", words_only(tmp_path), *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        line = process.stdout.readline()
        port = re.fullmatch(
            r"translating en to de at http://127\.0\.0\.1:(\d+) \(Ctrl-C ends it\)\n", line
        )
        assert port, line + process.stderr.read()
        try:
            yield process, int(port[1])
        finally:
            process.kill()


def post(port, text):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Content-Type": "application/json"}
    connection.request("POST", "/translate", json.dumps({"q": text}), headers)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def raw_request(text):
    body = json.dumps({"q": text}).encode()
    return (
        b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n" % len(body) + body
    )


@pytest.fixture(params=[signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def interrupted(monkeypatch, request):
    """Services that are started receive a signal before uvicorn listens to it."""
    monkeypatch.setenv("TEST_SIGNAL", str(int(request.param)))


def test_a_signal_in_the_start_ends_it(interrupted, service):
    process, _ = service
    out, err = process.communicate(timeout=30)
    assert (out, err, process.returncode) == ("stopped\n", "", 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_all_requests_are_answered_before_it_ends(service, number):
    process, port = service
    answers = {}

    def ask(text):
        answers[text] = post(port, text)

    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(raw_request("lines of a client that disconnects"))
    assert post(port, "ready") == (200, {"translatedText": "ready"})
    texts = [f"one two{place}" for place in range(6)]
    threads = [threading.Thread(target=ask, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    process.send_signal(number)
    for thread in threads:
        thread.join()
    expected = {text: (200, {"translatedText": " ".join(reversed(text.split()))}) for text in texts}
    assert answers == expected
    out, err = process.communicate(timeout=60)
    assert (out, err) == ("stopped\n", "")
    assert process.returncode == 0


@pytest.mark.parametrize("service", [["--max-seconds", "1"]], indirect=True)
def test_a_client_that_does_not_read_does_not_prevent_the_end(service):
    process, port = service
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", port))
        client.sendall(
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3000
        )  # more than buffers take
        time.sleep(3)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=30)
    assert out == "stopped\n"
    assert process.returncode == 0


@pytest.mark.parametrize("service", [["--max-seconds", "1"]], indirect=True)
def test_idle_connections_are_closed(few_connections, service):
    """Of 20 connections; half of them have sent half of a request's headers."""
    _, port = service
    idle = []
    try:
        for number in range(60):
            idle.append(socket.create_connection(("127.0.0.1", port), timeout=10))
            if number % 2:
                with suppress(ConnectionError):
                    idle[-1].sendall(b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-")
        start = time.monotonic()
        for connection in reversed(idle):  # the last were refused
            assert read_to_end(connection) == b""
        assert 1 < time.monotonic() - start < 5
        assert post(port, "one two") == (200, {"translatedText": "two one"})
    finally:
        for connection in idle:
            connection.close()


def read_to_end(connection):
    try:
        return connection.recv(1000)
    except ConnectionResetError:
        return b""


@pytest.mark.parametrize("service", [["--max-seconds", "1"]], indirect=True)
def test_a_slow_request_is_refused_and_its_connection_closed(few_connections, service):
    """Slow headers, a slow body, a connection that is in use."""
    _, port = service
    head = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"

    def response_to(first, repeated):
        start = time.monotonic()
        response = b""
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            connection.sendall(first)
            connection.settimeout(0.3)
            while time.monotonic() - start < 20:
                try:
                    response += (part := connection.recv(4096))
                except TimeoutError:
                    connection.sendall(repeated)
                    continue
                except (ConnectionResetError, BrokenPipeError):
                    break
                if not part:
                    break
        return response, time.monotonic() - start

    response, seconds = response_to(head, b"A: b\r\n")
    assert (response, 1.5 < seconds < 4) == (b"", True)
    response, seconds = response_to(head + b"Content-Length: 9999\r\n\r\n", b" ")
    assert response.startswith(b"HTTP/1.1 504 ")
    assert 0.9 < seconds < 7
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    for _ in range(10):  # in 5 seconds
        connection.request("GET", "/health")
        assert connection.getresponse().read().startswith(b'{"status":"ok"')
        time.sleep(0.5)


HEAD = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"


def test_a_malformed_chunk_leaves_no_line_in_the_log(service):
    process, port = service
    for parts, status in [
        ([HEAD + b"\r\nzz\r\n"], b"400"),
        ([HEAD + b"Content-Type: application/json\r\n\r\n", b"zz\r\n"], b"400"),
        ([HEAD + b"\r\n", b"zz\r\n"], b"415"),  # answered before the chunk comes
    ]:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            for part in parts:
                connection.sendall(part)
                time.sleep(0.3)
            assert read_to_end(connection).split()[1] == status
    assert post(port, "one two") == (200, {"translatedText": "two one"})
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=30) == ("stopped\n", "")


@pytest.fixture
def few_files(monkeypatch):
    """Services that are started may open 256 files."""
    monkeypatch.setenv("TEST_FILES", "256")


def test_more_connections_than_descriptors_leave_no_line_in_the_log(few_files, service):
    process, port = service
    idle = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(260)]
    time.sleep(3)
    for connection in idle:
        connection.close()
    assert post(port, "one two") == (200, {"translatedText": "two one"})
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=30) == ("stopped\n", "")


@pytest.mark.parametrize(
    ("soft", "hard", "expected", "raised"),
    [
        (1024, 4096, (512, 128), (1088, 4096)),
        (1024, -1, (512, 128), (1088, -1)),
        (-1, -1, (512, 128), None),
        (256, 256, (96, 24), (256, 256)),
        (20, 20, (4, 1), (20, 20)),
    ],
)
def test_connections_leave_descriptors_for_the_rest(monkeypatch, soft, hard, expected, raised):
    limits = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: limits.append(pair))
    assert server.find_connection_limits() == expected
    assert limits == ([raised] if raised else [])


def test_the_system_s_errors_are_one_line_a_second(caplog, monkeypatch):
    times = iter([100.0, 100.9, 101.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    log = logging.getLogger("a service")
    log.addFilter(server.OneErrorPerSecond())
    error = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    for _ in range(3):
        log.error("out of resource\nsocket: %s", 3, exc_info=error)
    assert [record.getMessage() for record in caplog.records] == [
        "out of resource: Too many open files"
    ] * 2
    assert not any(record.exc_info for record in caplog.records)


def test_headers_are_bounded(service):
    _, port = service
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
        with suppress(ConnectionError):
            for _ in range(100):
                connection.sendall(b"A: " + b"b" * 9995 + b"\r\n")
                time.sleep(0.01)
            pytest.fail("a megabyte of headers was taken")
    assert post(port, "one two") == (200, {"translatedText": "two one"})


def test_a_second_signal_ends_it_at_once(service):
    process, port = service
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(raw_request("slow\n" * 1999))
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=3)
    assert err == "stopped at once: some requests are not answered\n"
    assert process.returncode == 128 + signal.SIGTERM


def test_an_impossible_address_is_named_before_the_model_is_read():
    with socket.create_server(("127.0.0.1", 0)) as other:
        used = other.getsockname()[1]
        in_use = f"--port {used} is already in use on 127.0.0.1: choose another port, or 0 for a"
        unknown = "can't listen on --host nosuch.invalid --port 5000 ("
        for host, port, text in (("127.0.0.1", used, in_use), ("nosuch.invalid", 5000, unknown)):
            with pytest.raises(UserError) as error:
                main(["serve", "nosuch", "--host", host, "--port", str(port)])
            assert str(error.value).startswith(text)
            assert "attempting" not in str(error.value)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--port", "70000"], "--port: must be from 0 to 65535, but is 70000"),
        (["--port", "-1"], "--port: must be from 0 to 65535, but is -1"),
        (["--threads", "0"], "--threads: must be from 1 to 1024, but is 0"),
        (["--threads", str(10**14)], f"--threads: must be from 1 to 1024, but is {10**14}"),
        (["--max-seconds", "-1"], "--max-seconds: must be at least 0.0, but is -1.0"),
        (["--host-names", "a*b"], "--host-names: must be NAME, *.NAME or *, but is a*b"),
    ],
)
def test_an_impossible_option_is_refused_in_one_line(capsys, words, text):
    with pytest.raises(SystemExit, match="2"):
        main(["serve", "nosuch", *words])
    assert capsys.readouterr().err == f"error: argument {text} (--help shows all options)\n"
