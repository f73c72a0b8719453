"""The pages of the documentation, and the commands that they print, as a reader runs them."""

import os
import re
import signal
import socket
import subprocess
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.programs import start_server

ROOT = Path(__file__).parents[2]
#: folders that are made by running things
MADE = {".venv", "build", "dist", "bench", "demo", "multi30k", "tatoeba", "wmt18", "roberta"}
MARKDOWN = sorted(
    path.relative_to(ROOT).as_posix()
    for glob in ("*.md", "docs/**/*.md", "examples/**/*.md", "results/*.md")
    for path in ROOT.glob(glob)
    if path.relative_to(ROOT).parts[0] not in MADE
)
BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
MARKED = re.compile(r"^<!-- (run|serve) -->\n```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INTERPRETERS = {"sh": ["bash", "-e", "-o", "pipefail", "-c"], "python": ["python", "-c"]}
ADDRESS = "http://127.0.0.1:5000"


class Block(NamedTuple):
    """A code block behind a line `<!-- run -->`, or `<!-- serve -->` for a server.

    Attributes:
        mark: "run" or "serve"
        language: "sh" or "python"
        text: the commands
    """

    mark: str
    language: str
    text: str

    def changed(self, changes: Mapping[str, str]) -> "Block":
        """The block with replacement values."""
        text = self.text
        for value, replacement in changes.items():
            text = text.replace(value, replacement)
        return self._replace(text=text)


def committed_files() -> list[Path]:
    """Files that are or may be committed."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for name in names.split("\0")[:-1] if (path := ROOT / name).is_file()]


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def section_of(page: str, heading: str) -> str:
    """The text between a heading of the second level and the next one."""
    [section] = re.findall(
        rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text_of(page), re.MULTILINE | re.DOTALL
    )
    return section


def marked_blocks(text: str, changes: Mapping[str, str] | None = None) -> list[Block]:
    """The marked blocks, with a tiny experiment's values for those that they must have."""
    changes = changes or {}
    blocks = [Block(*match) for match in MARKED.findall(text)]
    for value in changes:
        assert any(value in block.text for block in blocks), value
    return [block.changed(changes) for block in blocks]


def first_block(text: str, language: str) -> str:
    """The first block in a language."""
    return next(block for name, block in BLOCK.findall(text) if name == language)


def write_own_scheme(folder: Path) -> Path:
    """Write the schemes of CONTRIBUTING.md, a package each; the folder of the first."""
    section = section_of("CONTRIBUTING.md", "A new scheme is one file")
    files = re.findall(r"the file `(\S+)`.*?```python\n(.*?)```", section, re.DOTALL)
    for path, text in files:
        (folder / path).parent.mkdir()
        (folder / path).write_text(text)
    return (folder / files[0][0]).parent


def environment() -> dict[str, str]:
    """Variables of a shell that finds the programs of this environment, which the server starts."""
    path = f"{start_server()}:{sysconfig.get_path('scripts')}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}


def words_of(block: Block) -> list[str]:
    """The program that runs a block.

    An editable installation is not beside fairseq, where fairseq looks for a bare name: there the
    package has its whole path.
    """
    text = block.text.replace("--user-dir diet_fairseq", f"--user-dir {ROOT / 'diet_fairseq'}")
    return [*INTERPRETERS[block.language], text]


def run_block(block: Block, folder: Path, limit: float = 900) -> str:
    """The output of a block, which must succeed within ``limit`` seconds."""
    process = subprocess.Popen(
        words_of(block), cwd=folder, env=environment(), text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=limit)
    finally:
        end_group(process)
    assert process.returncode == 0, f"{block.text}\n{out[-3000:]}\n{err[-3000:]}"
    return out + err


def end_group(process: subprocess.Popen) -> None:
    """Kill what is left of a process and of all processes that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextmanager
def serving(block: Block, folder: Path) -> Iterator[str]:
    """Serve what a block serves, at a free port; yields the address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    command = block._replace(text=f"{block.text.rstrip()} --port {port}")
    process = subprocess.Popen(
        words_of(command), cwd=folder, env=environment(), text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert process.stdout
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith("translating "):
            break
    try:
        assert f":{port} (Ctrl-C ends it)" in "".join(lines[-1:]), lines
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    assert output.endswith("stopped\n"), output


def run_blocks(blocks: Iterable[Block], folder: Path) -> list[str]:
    """The outputs of blocks from top to bottom; a server answers the block behind its own."""
    outputs = []
    server = None
    for block in blocks:
        if block.mark == "serve":
            server = block
            continue
        with serving(server, folder) if server else nullcontext(ADDRESS) as address:
            outputs.append(run_block(block.changed({ADDRESS: address}), folder))
        server = None
    return outputs
