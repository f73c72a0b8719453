"""Hostile checkpoints by mutation of a real one, and a place to try them in.

The mutations change the bytes of a good file, those of its pickle, or a value. `attempt` runs one
of fairseq's commands on such a file in a process of its own, which is watched: for how it ends,
and for what it touches.
"""

import faulthandler
import io
import json
import os
import random
import resource
import signal
import struct
import sys
import time
import zipfile
from argparse import Namespace
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

MEMORY = 8 << 30  # of a process that reads a checkpoint of 80 KB


class Outcome(NamedTuple):
    """How an attempt ended: `status` is negative for a signal, None if it had to be ended."""

    status: int | None
    err: str
    touched: list[str]  # forbidden writes, programs and connections

    @property
    def fault(self) -> str | None:
        """The fault of this outcome, or None."""
        last = self.err.strip().splitlines()[-1:] or [""]
        if self.touched:
            return f"touched {'; '.join(self.touched)}"
        if self.status is None:
            return "hung"
        if self.status < 0:
            return f"ended by signal {-self.status}"
        if self.is_refusal and any(not c.isprintable() for c in last[0]):
            return f"control characters: {last[0]!r}"
        if self.status not in (0, 1):
            return f"status {self.status}: {last[0]}"
        return None

    @property
    def is_refusal(self) -> bool:
        """Whether it is one line of ours, and not an error of fairseq's or PyTorch's."""
        last = self.err.strip().splitlines()[-1:] or [""]
        return self.status == 1 and "Traceback" not in self.err and last[0].startswith("error: ")


def attempt(
    action: Callable[[], Any], folder: Path, limit: float = 60, memory: int = MEMORY
) -> Outcome:
    """Do ``action`` in a fork of this process, which may write to ``folder`` and nowhere else.

    Args:
        limit: seconds
        memory: bytes that the fork may allocate
    """
    folder.mkdir(exist_ok=True)
    err, watched = folder / "stderr", folder / "watched"
    pid = os.fork()
    if pid == 0:
        _child(action, folder, err, watched, memory)
    status = _wait(pid, limit)
    return Outcome(status, err.read_text(errors="replace"), watched.read_text().splitlines())


def command(name: str, *argv: Any) -> Callable[[], Any]:
    """fairseq's command of this name, as an action. The plugin is there: this process has it."""

    def action() -> None:
        sys.argv = [f"fairseq-{name}", *map(str, argv)]
        import_module(f"fairseq_cli.{name}").cli_main()

    return action


def _data() -> int:
    """Bytes that count against RLIMIT_DATA already: those of the process that was forked."""
    lines = Path("/proc/self/status").read_text().splitlines()
    [kibibytes] = [line.split()[1] for line in lines if line.startswith("VmData:")]
    return int(kibibytes) * 1024


def _wait(pid: int, limit: float) -> int | None:
    end = time.monotonic() + limit
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def _child(action: Callable[[], Any], folder: Path, err: Path, watched: Path, memory: int) -> None:
    status = 70
    faulthandler.disable()  # it would write its dump to where pytest's own output goes
    try:
        note = os.open(watched, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        for number, path in ((0, os.devnull), (1, os.devnull), (2, err)):
            os.dup2(os.open(path, os.O_CREAT | os.O_RDWR | os.O_TRUNC, 0o600), number)
        sys.stdin, sys.stdout, sys.stderr = (
            os.fdopen(number, mode) for number, mode in ((0, "r"), (1, "w"), (2, "w"))
        )
        os.chdir(folder)
        sys.dont_write_bytecode = True  # a file that no process has compiled yet is not an attack
        allowed = _data() + memory
        resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))
        sys.addaudithook(_watch(note, str(folder)))
        action()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    finally:
        sys.stderr.flush()
        os._exit(status)


def _watch(note: int, folder: str) -> Callable[[str, tuple], None]:
    writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT
    forbidden = ("os.system", "os.exec", "os.posix_spawn", "subprocess.", "socket.getaddrinfo",
                 "os.rename", "os.remove", "os.mkdir", "os.symlink", "shutil.")  # fmt: skip
    secret = ("/etc/passwd", "/dev/zero")

    def hook(event: str, args: tuple) -> None:
        if event == "open":
            path, _, flags = args
            path = os.path.abspath(os.fsdecode(path)) if isinstance(path, (str, bytes)) else ""
            bad = path in secret or (flags & writing and not path.startswith((folder, "/dev/null")))
        elif event == "socket.connect":  # where the address is a path, processes of ours talk
            path, bad = str(args[1]), isinstance(args[1], tuple)
        else:
            path = str(args[0]) if args else ""
            if event in ("os.remove", "os.rmdir") and args[1] >= 0:  # in an open folder
                path = os.path.join(os.readlink(f"/proc/self/fd/{args[1]}"), path)
            bad = event.startswith(forbidden) and not path.startswith(folder)
        if bad:
            os.write(note, f"{event} {path[:200]!r}\n".encode())

    return hook


# --- Mutations: of a good file's bytes, another file's

STRINGS = [
    "", "x", "\x1b[2J\x07\nerror: all is well", "${oc.env:HOME}", "$\\{oc.env\\:HOME}",
    "'\\x24{oc.env:HOME}'", "__import__('os').system('touch it-ran')", "/etc/passwd", "/dev/zero",
    "../../../../etc/passwd", "http://127.0.0.1:9/x", "nan", "[0] * 10 ** 9", "(" * 5000,
    "9" * 5000, "\ud800", "a" * 100_000, "-1", "1e400", "sentencepiece", "???",
]  # fmt: skip
NUMBERS = [0, -1, 1, 3, 2**31, 10**8, -(2**63), 10**30, 0.5, -0.5, float("nan"), float("inf")]


def of_the_archive(good: bytes, draw: random.Random) -> bytes:
    """Change, drop or double some bytes of the file, or drop its end."""
    return _scratched(good, draw)


def of_the_pickle(good: bytes, draw: random.Random) -> bytes:
    """Do the same to the pickle in it, with valid check sums."""
    return _repacked(good, lambda pickle: _scratched(pickle, draw))


def of_a_value(good: bytes, draw: random.Random) -> bytes:
    """Replace or remove a value anywhere but in the optimizer's state."""
    from diet_fairseq import checkpoints

    state = checkpoints.read(io.BytesIO(good))
    if draw.random() < 0.3:  # as fairseq wrote them until 2020
        state["args"], state["cfg"] = state["cfg"]["model"], None
    state.pop("last_optimizer_state", None) if draw.random() < 0.5 else None
    options = [part for part in (state["args"], *(state["cfg"] or {}).values()) if part]
    for _ in range(draw.choice([1, 1, 2])):
        if draw.random() < 0.6:
            holder: Any = draw.choice(options)
        else:
            holder = draw.choice(list(_holders(state, "last_optimizer_state")))
        holder = vars(holder) if isinstance(holder, Namespace) else holder
        keys = list(range(len(holder)) if isinstance(holder, list) else holder)
        if not keys:
            continue
        key = draw.choice(keys)
        if isinstance(holder, dict) and draw.random() < 0.1:
            del holder[key]
        elif isinstance(holder, dict) and draw.random() < 0.15:
            holder[draw.choice(NAMES)] = _value(draw)
        else:
            holder[key] = _value(draw)
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


def of_json(good: bytes, draw: random.Random) -> bytes:
    """Replace or remove a value of a JSON file, also by a deep or long one."""
    value = json.loads(good)
    for _ in range(draw.choice([1, 1, 2])):
        holder = draw.choice(list(_holders(value)))
        keys = list(range(len(holder)) if isinstance(holder, list) else holder)
        if not keys:
            continue
        key = draw.choice(keys)
        if draw.random() < 0.15:
            del holder[key]
        else:
            holder[key] = draw.choice(
                [draw.choice(STRINGS), draw.choice(NUMBERS), None, True, [], {}, [[1]], {"a": {}}]
            )
    text = json.dumps(value).encode()
    if draw.random() < 0.1:
        place = draw.randrange(len(text))
        text = text[:place] + draw.choice([b"[" * 100_000, b"9" * 5000, b"\xff"]) + text[place:]
    return text


def of_safetensors(good: bytes, draw: random.Random) -> bytes:
    """Mutate the JSON header of a safetensors file, with the right length before it."""
    (length,) = struct.unpack("<Q", good[:8])
    header = of_json(good[8 : 8 + length], draw)
    return struct.pack("<Q", len(header)) + header + good[8 + length :]


NAMES = ["encoder_embed_path", "decoder_embed_path", "bpe_codes", "bpe", "tokenizer", "scoring",
         "load_pretrained_encoder_from", "encoder_layers_to_keep", "__deepcopy__", "_target_",
         "no_encoder_attn", "quant_noise_pq", "user_dir", "arch", "task", "_name"]  # fmt: skip


def _value(draw: random.Random) -> Any:
    cycle: list[Any] = []
    cycle.append(cycle)
    shared: list[Any] = [0]
    for _ in range(60):
        shared = [shared, shared]
    return draw.choice([
        draw.choice(STRINGS), draw.choice(STRINGS), draw.choice(NUMBERS), draw.choice(NUMBERS),
        None, True, False, [], {}, (), [[]], {"a": {}}, cycle, shared, Namespace(a=1), b"x", 1j,
        {1: 2}, {(1,): 2}, np.arange(3), np.float64(2), torch.zeros(2), torch.zeros(0),
        torch.zeros(1).expand(1 << 40), torch.zeros(2).to_sparse(), torch.zeros(2, device="meta"),
        torch.float16, torch.Size([2]), torch.zeros(2, dtype=torch.complex64),
    ])  # fmt: skip


def _holders(value: Any, *without: str) -> Iterator[Any]:
    if isinstance(value, (dict, list)):
        yield value
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inside in items:
            if key not in without:
                yield from _holders(inside)
    elif isinstance(value, Namespace):
        yield value


def _scratched(data: bytes, draw: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.choice([1, 1, 3, 10])):
        place = draw.randrange(len(changed))
        match draw.randrange(5):
            case 0:
                changed[place] = draw.randrange(256)
            case 1:
                changed[place] ^= 1 << draw.randrange(8)
            case 2:
                del changed[place : place + draw.choice([1, 4, 50])]
            case 3:
                changed[place:place] = changed[place : place + draw.choice([1, 4, 50])]
            case 4:
                changed[place : place + 4] = draw.choice(
                    [b"\xff" * 4, b"\0" * 4, b"\xff\xff\xff\x7f"]
                )
    return bytes(changed[: draw.randrange(len(changed))] if draw.random() < 0.1 else changed)


def _repacked(good: bytes, change: Callable[[bytes], bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(good)) as old, zipfile.ZipFile(file, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, change(data) if name.endswith("/data.pkl") else data)
    return file.getvalue()


MUTATIONS = [of_the_archive, of_the_pickle, of_a_value]
