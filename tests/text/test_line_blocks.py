"""Lines of a file or pipe come in blocks, as soon as they have arrived."""

import os
import threading

import pytest

from diet_fairseq.errors import UserError
from diet_fairseq.text import lines
from diet_fairseq.text.lines import read_line_blocks
from tests.support.texts import ODD


def blocks_of(path, max_characters=200_000):
    with open(path, "rb") as file:
        return list(read_line_blocks(file, "text", max_characters))


def test_a_file_comes_in_blocks(tmp_path, monkeypatch):
    path = tmp_path / "text"
    path.write_bytes("\ufeffa\r\n\n\ufeffb\nc\nlast".encode())
    assert blocks_of(path) == [["a", "", "\ufeffb", "c"], ["last"]]
    monkeypatch.setattr(lines, "BLOCK_BYTES", 8)
    assert blocks_of(path) == [["a", ""], ["\ufeffb", "c"], ["last"]]
    path.write_bytes(b"")
    assert blocks_of(path) == []
    path.write_bytes(b"\n")
    assert blocks_of(path) == [[""]]


def test_a_line_may_be_longer_than_a_block_and_hold_anything(tmp_path):
    path = tmp_path / "text"
    long = "ä" * 100_001 + ODD + "\r" + "b"
    path.write_text(f"{long}\nx\n", encoding="utf-8", newline="")
    assert blocks_of(path) == [[long, "x"]]


def test_a_line_that_is_not_utf8_is_named_after_those_before_it(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "BLOCK_BYTES", 6)
    path = tmp_path / "text"
    path.write_bytes(b"a\nb\nc\nd\nab\xff\nf\n")
    with open(path, "rb") as file:
        batches = read_line_blocks(file, "text", 1000)
        assert [next(batches), next(batches)] == [["a", "b", "c"], ["d"]]
        with pytest.raises(
            UserError, match=r"^text, line 5: byte 3 \(0xff\) is not UTF-8: convert"
        ):
            next(batches)


def test_a_pipe_s_lines_are_not_held_back(tmp_path):
    reading, writing = os.pipe()
    with open(reading, "rb") as file:
        parts = read_line_blocks(file, "text", 1000)
        os.write(writing, b"first\nhalf a")
        assert next(parts) == ["first"]
        late = threading.Timer(0.05, lambda: (os.write(writing, b" line\n"), os.close(writing)))
        late.start()
        assert next(parts) == ["half a line"]
        assert list(parts) == []
        late.join()


@pytest.mark.parametrize("line", ["ä" * 11, "a" * 11, "\0" * 10_000_000, "ä" * 50], ids=len)
def test_a_line_that_is_too_long_is_named_after_those_before_it(tmp_path, line):
    path = tmp_path / "text"
    path.write_text(f"\ufeff{'ä' * 10}\r\n{line}\nlast\n", encoding="utf-8", newline="")
    with open(path, "rb") as file:
        parts = read_line_blocks(file, "text", 10)
        assert next(parts) == ["ä" * 10]
        with pytest.raises(UserError, match=r"^text, line 2 has more than 10 characters: split it"):
            next(parts)


def test_a_line_that_never_ends_is_named():
    with open("/dev/zero", "rb") as file, pytest.raises(UserError, match="line 1 has more than 99"):
        next(read_line_blocks(file, "text", 99))
