"""Requests a second of ``diet-fairseq serve``, and a check of every answer.

    python -m benchmarks.serving MODEL TEXT [--clients 1 8 64] [--requests 200] [--out FOLDER]

The service runs on a free port, and clients request one line of TEXT after the other. Every answer
must equal the service's answer to the same line requested alone. Seconds are wall-clock seconds, so
the machine must be idle. The clients are threads of this process, which also need CPU time.
"""

import argparse
import http.client
import itertools
import json
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .harness import machine


@contextmanager
def service(model: str, *options: str) -> Iterator[int]:
    """The port of a service that runs within this context."""
    command = [sys.executable, "-m", "diet_fairseq", "serve", model, "--port", "0",
               "--split-sentences", "no", *options]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        port = re.search(r":(\d+) ", process.stdout.readline())
        if not port:
            sys.exit("the service did not start")
        try:
            yield int(port[1])
        finally:
            process.terminate()
            process.wait()


class Client:
    """A client with one connection."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)

    def translate(self, line: str) -> str:
        headers = {"Content-Type": "application/json"}
        self.connection.request("POST", "/translate", json.dumps({"q": line}), headers)
        answer = self.connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"status {answer.status}: {body.decode()}")
        return str(json.loads(body)["translatedText"])


def measure(port: int, clients: int, lines: list[str], expected: dict[str, str]) -> dict[str, Any]:
    """Requests a second, percentiles of their seconds, and numbers of lost and wrong answers."""
    numbers, seconds = itertools.count(), []
    wrong = lost = 0
    lock = threading.Lock()

    def work() -> None:
        nonlocal wrong, lost
        client = Client(port)
        while (number := next(numbers)) < len(lines):
            start = time.perf_counter()
            try:
                answer = client.translate(lines[number])
            except (OSError, RuntimeError, http.client.HTTPException) as error:
                print(error, file=sys.stderr)
                with lock:
                    lost += 1
                return
            with lock:
                seconds.append(time.perf_counter() - start)
                wrong += answer != expected[lines[number]]

    threads = [threading.Thread(target=work) for _ in range(clients)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - start
    return {
        "clients": clients,
        "requests": len(lines),
        "requests/s": len(seconds) / took,
        "p50": statistics.median(seconds),
        "p99": sorted(seconds)[int(0.99 * len(seconds))],
        "lost": lost,
        "wrong": wrong,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="model, as for `diet-fairseq serve`")
    parser.add_argument("text", type=Path, help="lines to translate")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument(
        "--requests", type=int, default=200, help="requests at each number of clients (%(default)s)"
    )
    parser.add_argument("--threads", default="1", help="threads of the service (%(default)s)")
    parser.add_argument("--out", type=Path, help="folder for the figures as JSON")
    args = parser.parse_args()

    texts = [line for line in args.text.read_text(encoding="utf-8").split("\n") if line.strip()]
    lines = list(itertools.islice(itertools.cycle(texts), args.requests))
    rows = []
    with service(args.model, "--threads", args.threads) as port:
        first = Client(port)
        expected = {line: first.translate(line) for line in dict.fromkeys(lines)}
        print("| clients | requests/s | p50, s | p99, s | lost | wrong |\n" + "| --- " * 6 + "|")
        for clients in args.clients:
            row = measure(port, clients, lines, expected)
            rows.append(row)
            cells = [clients, *(f"{row[name]:.2f}" for name in ("requests/s", "p50", "p99"))]
            cells += [row["lost"], row["wrong"]]
            print("| " + " | ".join(map(str, cells)) + " |", flush=True)
    print(machine())
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        record = {"what": "serving", "machine": machine(), "rows": rows}
        (args.out / "serving.json").write_text(json.dumps(record, indent=1) + "\n")
    if any(row["lost"] or row["wrong"] for row in rows):
        sys.exit("answers were lost or mixed up")


if __name__ == "__main__":
    main()
