"""Programs that start without the seconds that imports take, for commands in a shell.

Each process of pytest has a server, which ends with it. The server has imported fairseq,
transformers and Snakemake. `start_server` writes a folder of stand-ins for `python` and for the
commands of the environment. A stand-in sends its arguments, folder, environment and standard
streams to the server, which forks; the fork runs the program. The stand-in passes signals on and
ends as the program ends; if it is killed, the server kills the program, with all processes that the
program has started in its process group.
"""

import array
import atexit
import importlib
import json
import logging
import os
import runpy
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

STREAMS = (0, 1, 2)
PRELOADED = (
    *(f"fairseq_cli.{name}" for name in ("preprocess", "train", "generate", "interactive")),
    *("fairseq_cli.validate", "torch._dynamo", "torch.distributed.fsdp"),
    *("sacrebleu", "sentencepiece", "subword_nmt.apply_bpe", "subword_nmt.learn_bpe"),
    *("snakemake.cli", "pandas", "yte", "smart_open", "matplotlib.pyplot"),
    *("transformers", "safetensors.torch", "tokenizers", "huggingface_hub"),
    *(f"transformers.models.{name}.modeling_{name}" for name in ("marian", "bart", "bert")),
)
STAND_IN = """#!{python} -IS
import array, json, os, signal, socket, sys

server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
message = json.dumps([{name!r}, sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
streams = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))]
server.sendmsg([len(message).to_bytes(4, "big")], streams)
server.sendall(message)
pid = int.from_bytes(server.recv(4), "big")
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, _: os.kill(pid, number))
status = int.from_bytes(server.recv(4), "big", signed=True)
if status < 0:
    signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
sys.exit(status)
"""


@lru_cache(maxsize=1)
def start_server() -> Path:
    """Start the server of this process, and return the folder of stand-ins."""
    folder = Path(tempfile.mkdtemp(prefix="programs-"))
    with open(folder / "log", "w") as log:
        words = [sys.executable, __file__, str(folder)]
        process = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)

    def end() -> None:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    while not (folder / "server").exists():
        assert process.poll() is None, (folder / "log").read_text()
        time.sleep(0.05)
    return folder


def serve(folder: Path) -> None:
    """Fork a process for each stand-in that connects."""
    commands = {entry.name: entry.value for entry in entry_points(group="console_scripts")}
    for name in ("python", *commands):
        text = STAND_IN.format(python=sys.executable, address=str(folder / "server"), name=name)
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    sys.modules["torchaudio"] = None  # type: ignore[assignment]  # broken beside a CPU build
    for module in PRELOADED:
        importlib.import_module(module)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "preparing"))
    listener.listen(64)
    (folder / "preparing").rename(folder / "server")
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    ends: dict[int, tuple[int, socket.socket]] = {}  # of programs, by their descriptors
    parent = os.getppid()
    while os.getppid() == parent:
        for key, _ in selector.select(5):
            if key.fileobj is listener:
                stand_in, _ = listener.accept()
                pid = fork(stand_in, folder, commands, selector)
                ends[end := os.pidfd_open(pid)] = pid, stand_in
                selector.register(end, selectors.EVENT_READ)
                selector.register(stand_in, selectors.EVENT_READ, pid)
            elif key.data:  # the stand-in was killed
                selector.unregister(key.fileobj)
                with suppress(ProcessLookupError):
                    os.killpg(key.data, signal.SIGKILL)
            else:
                end = key.fd
                pid, stand_in = ends.pop(end)
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                selector.unregister(end)
                os.close(end)
                with suppress(KeyError):
                    selector.unregister(stand_in)
                with suppress(OSError):
                    stand_in.sendall(status.to_bytes(4, "big", signed=True))
                stand_in.close()
    for pid, _ in ends.values():
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


def fork(stand_in: socket.socket, folder: Path, commands: dict[str, str], selector: Any) -> int:
    """Fork a process for the program that the stand-in asks for, and return its number."""
    size, ancillary, _, _ = stand_in.recvmsg(4, socket.CMSG_SPACE(len(STREAMS) * 4))
    streams = array.array("i", ancillary[0][2])
    message = b""
    while len(message) < int.from_bytes(size, "big"):
        message += stand_in.recv(1 << 20)
    name, words, cwd, environment = json.loads(message)
    pid = os.fork()
    if pid == 0:
        with suppress(BaseException):
            os.setpgid(0, 0)
            stand_in.close()
            selector.close()
            for stream, number in zip(streams, STREAMS, strict=True):
                os.dup2(stream, number)
                os.close(stream)
            os.chdir(cwd)
            os.environ.clear()
            os.environ.update(environment)
            run(name, words, folder, commands)
        os._exit(70)
    with suppress(ProcessLookupError, PermissionError):
        os.setpgid(pid, pid)
    for stream in streams:
        os.close(stream)
    stand_in.sendall(pid.to_bytes(4, "big"))
    return pid


def run(name: str, words: list[str], folder: Path, commands: dict[str, str]) -> None:
    """Run a program to its end in this process, which was forked for it."""
    import torch

    if name == "python" and (not words or (words[0][0] == "-" and words[0] not in ("-c", "-m"))):
        os.execv(sys.executable, [sys.executable, *words])
    sys.executable = str(folder / "python")
    sys.stdin = sys.__stdin__ = open(0)  # type: ignore[misc]  # noqa: SIM115
    buffering = 1 if os.isatty(1) else -1
    sys.stdout = sys.__stdout__ = open(1, "w", buffering)  # type: ignore[misc]  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", 1)  # type: ignore[misc]  # noqa: SIM115
    logging.getLogger().handlers.clear()
    logging.getLogger().setLevel(logging.WARNING)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1)))
    sys.path[0:1] = [place for place in os.environ.get("PYTHONPATH", "").split(":") if place]
    with suppress(ModuleNotFoundError):  # as at the start of Python
        importlib.import_module("sitecustomize")
    status: Any = 0
    try:
        if name != "python":
            module, _, function = commands[name].partition(":")
            sys.path.insert(0, str(folder))
            sys.argv = [str(folder / name), *words]
            program = importlib.import_module(module)
            if module.startswith("fairseq_cli."):
                importlib.reload(program)  # sets up logging
            status = getattr(program, function)()
        elif words[0] == "-m":
            sys.path.insert(0, os.getcwd())
            sys.argv = words[1:]
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        elif words[0] == "-c":
            sys.path.insert(0, "")
            sys.argv = ["-c", *words[2:]]
            exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})
        else:
            sys.path.insert(0, os.path.dirname(os.path.realpath(words[0])))
            sys.argv = words
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        status = end.code
    except KeyboardInterrupt:
        sys.excepthook(*sys.exc_info())
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    if isinstance(status, str):
        print(status, file=sys.stderr)
    vars(threading)["_shutdown"]()
    vars(atexit)["_run_exitfuncs"]()
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status if isinstance(status, int) else int(status is not None))


if __name__ == "__main__":
    sys.path.pop(0)
    serve(Path(sys.argv[1]))
