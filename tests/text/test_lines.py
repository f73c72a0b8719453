"""Lines go in as they are meant, and what is broken is named: file, line, and what to do."""

import gzip
import re

import pytest

from diet_fairseq.errors import UserError
from diet_fairseq.text.lines import read_lines, read_pairs, write_lines
from diet_fairseq.text.whitespace import normalise
from tests.support.texts import ODD, sentences, write


def test_nothing_but_a_newline_ends_a_line(tmp_path):
    lines = [f"one{odd}two" for odd in ODD] + [ODD, "", " ", "\u2028", "x" * 100_000]
    lines_read = list(read_lines(write(tmp_path / "a", lines)))
    assert len(lines_read) == len(lines)
    assert lines_read == [
        line.removeprefix("\ufeff") if i == 0 else line for i, line in enumerate(lines)
    ]


def test_normalised_text_has_no_other_line_ends():
    for line in [
        line for odd in ODD for line in (f"one{odd}two", odd, f"{odd}one ", f"one {odd} {odd}two")
    ]:
        plain = normalise(line)
        assert len(plain.splitlines()) <= 1
        assert plain.split() == plain.split(" ") or plain == ""
        assert plain == normalise(plain)


def test_carriage_returns_and_a_byte_order_mark_are_no_text(tmp_path):
    path = tmp_path / "a"
    path.write_bytes("\ufeffeins\r\nzwei\r\n\r\ndrei".encode())
    assert list(read_lines(path)) == ["eins", "zwei", "", "drei"]


def test_gzipped_text_is_read_by_its_name(tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"eins\nzwei\n", mtime=0))
    assert list(read_lines(path)) == ["eins", "zwei"]


def refused(read, *words):
    with pytest.raises(UserError) as caught:
        list(read)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message
    return message


def test_bytes_that_are_not_utf8_are_named_with_their_line(tmp_path):
    path = tmp_path / "latin1.de"
    path.write_bytes("schön\n".encode() * 41 + "schön\n".encode("latin1"))
    message = refused(read_lines(path), "latin1.de, line 42: byte 4 (0xf6) is not UTF-8")
    assert message.endswith(": convert the file, or remove the line (and its translation)")


def test_a_truncated_gzip_is_named(tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress("\n".join(sentences(2000)).encode())[:-100])
    message = refused(read_lines(path), "a.gz is truncated or damaged")
    assert re.search(r"after line \d\d+", message)


@pytest.mark.parametrize("content", [b"no gzip at all", gzip.compress(b"eins", mtime=0)[:6]])
def test_a_damaged_gzip_is_named(tmp_path, content):
    (tmp_path / "a.gz").write_bytes(content)
    refused(read_lines(tmp_path / "a.gz"), "a.gz is truncated or damaged")


@pytest.mark.parametrize("name", ["a", "a.gz"])
def test_an_empty_file_is_named(tmp_path, name):
    (tmp_path / name).write_bytes(gzip.compress(b"", mtime=0) if name == "a.gz" else b"")
    refused(read_lines(tmp_path / name), f"{name} is empty")


def test_a_missing_file_is_named(tmp_path):
    refused(read_lines(tmp_path / "nowhere"), "nowhere can't be read: No such file")


@pytest.mark.parametrize(("source", "target"), [(7, 12), (12, 7), (7, 8)])
def test_files_of_different_length_are_refused(tmp_path, source, target):
    paths = [
        write(tmp_path / f"a.{name}", sentences(lines))
        for name, lines in {"de": source, "en": target}.items()
    ]
    message = refused(read_pairs(*paths), f"a.de has {source} lines", f"a.en has {target}")
    assert "they differ in length from line 8 on," in message


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    def lines():
        yield "half"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_lines(tmp_path / "a", lines())
    assert not (tmp_path / "a").exists()
    write_lines(tmp_path / "a", ["eins", "zwei"])
    assert (tmp_path / "a").read_bytes() == b"eins\nzwei\n"


@pytest.mark.parametrize("name", ["news-test2008", "newstest2009", "newstest2012"])
def test_real_files_keep_their_lines(shared_data, name):
    counts = {"news-test2008": 2051, "newstest2009": 2525, "newstest2012": 3003}
    for pair, language in [("eng-deu", "deu"), ("eng-ces", "ces")]:
        folder = shared_data / "newstest2008-2016" / pair
        pairs = list(read_pairs(folder / f"{name}.eng.gz", folder / f"{name}.{language}.gz"))
        assert len(pairs) == counts[name]
        plain = "\n".join(normalise(line) for both in pairs for line in both)
        assert len(plain.splitlines()) == 2 * counts[name]
