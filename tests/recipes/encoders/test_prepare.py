"""From raw text to a pretrained encoder: `prepare` in its stages, what it refuses, all of it."""

import gzip
import json
import math
import re
import subprocess
import sys

import numpy as np
import pytest
from fairseq.data import Dictionary, data_utils

from diet_fairseq.errors import UserError
from diet_fairseq.recipes.encoders import prepare
from diet_fairseq.recipes.grid import outcome
from tests.support import commands
from tests.support.glue import run
from tests.support.road import EXAMPLES, ODD, sentences, subwords, text, use, write

SMALL = ("--vocabulary", 160, "--workers", 1)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Thirty documents in two files, one of them gzipped; and one in WikiText's form."""
    folder = tmp_path_factory.mktemp("texts")
    lines = sentences(290)
    lines[5] = lines[4]
    lines[7] = ODD.join(lines[7].split())
    lines[11] = " ".join(lines[12:40])
    parts = [[*lines[n : n + 10], ""] for n in range(0, 290, 10)]
    write(folder / "one", [line for part in parts[:15] for line in part])
    more = "".join(line + "\n" for part in parts[15:] for line in part)
    (folder / "other.gz").write_bytes(gzip.compress(more.encode()))
    write(folder / "wiki", [" = Title = ", " ", " Some text , well @-@ known . "])
    return folder


def prepared_from(files, folder, *more):
    sources = (files / "one", files / "other.gz", "--wikitext", files / "wiki")
    run("prepare", *sources, "--folder", folder, *SMALL, "--valid-share", 0.1, *more)


@pytest.fixture(scope="module")
def prepared(files, tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepared") / "text"
    with pytest.MonkeyPatch.context() as patch:
        use(patch)
        prepared_from(files, folder, "--longest-line", 30)
    return folder


def parted(lines):
    """The documents among the lines."""
    found = [[]]
    for line in lines:
        if line:
            found[-1].append(line)
        else:
            found.append([])
    return found


def test_every_document_is_in_one_of_the_parts(files, prepared):
    whole, train, valid = (
        parted(text.read_lines(prepared / name))
        for name in ("clean/text", "split/train", "split/valid")
    )
    assert len(whole) == 30
    assert len(valid) == 3
    assert sorted(train + valid) == sorted(whole)
    assert whole[-1] == ["Title", "Some text , well-known ."]
    counts = json.loads((prepared / "clean" / "counts.json").read_text())
    assert counts["documents"] == 30
    assert counts["repeated"] == 1
    assert counts["read"] == 292 == counts["kept"] + 1 == sum(map(len, whole)) + 1
    assert counts["words"] == sum(len(line.split(" ")) for one in whole for line in one)


def test_the_binary_text_is_that_of_the_files_with_its_documents(prepared):
    words = Dictionary.load(str(prepared / "data-bin" / "dict.txt"))
    model = subwords.SentencePiece(prepared / "subwords")
    for split in ("train", "valid"):
        data = data_utils.load_indexed_dataset(str(prepared / "data-bin" / split), words)
        coded = list(text.read_lines(prepared / "encoded" / split))
        assert [words.string(line, unk_string="?") for line in data] == [
            " ".join(piece if piece in words else "?" for piece in line.split(" ")) if line else ""
            for line in coded
        ]
        assert max(data.sizes) <= 31
        assert (np.array(data.sizes) == 1).sum() == len(parted(coded)) - 1
        clean = parted(text.read_lines(prepared / "split" / split))
        for pieces, lines in zip(parted(coded), clean, strict=True):
            assert model.decode(" ".join(pieces), "en") == " ".join(lines).replace("▁", " ") or any(
                odd in "".join(lines) for odd in ODD
            )


def test_prepared_data_is_not_prepared_again(files, prepared, capsys, monkeypatch):
    monkeypatch.setattr(prepare.programs, "run", None)
    prepared_from(files, prepared, "--longest-line", 30)
    said = capsys.readouterr().out
    assert said.count("done before") == 5
    assert "292 lines, 1 of them (0.34%) left out because they repeat an earlier line" in said


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (
            ("--vocabulary", 150),
            "subwords was made with other settings: vocabulary (160, now 150): take",
        ),
        (("--bpe", "subword-nmt"), 'other settings: bpe ("sentencepiece", now "subword-nmt")'),
        (("--lower",), "clean was made with other settings: lower (false, now true)"),
        (("--valid-share", 0.2), "split was made with other settings: valid_share (0.1, now 0.2)"),
        (("--longest-line", 20), "encoded was made with other settings: longest_line (30, now 20)"),
        (("--lines-per-document", 3), "clean was made with other settings: files"),
    ],
)
def test_other_settings_do_not_mix_with_what_is_there(files, prepared, option, words):
    with pytest.raises(UserError) as caught:
        prepared_from(files, prepared, "--longest-line", 30, *option)
    assert words in str(caught.value)


@pytest.mark.parametrize("interrupted", ["clean", "split", "encode", "binarise"])
def test_an_interrupted_run_goes_on(files, prepared, tmp_path, monkeypatch, interrupted):
    use(monkeypatch)
    work = getattr(prepare.Text, interrupted)

    def interrupt(*args):
        work(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(prepare.Text, interrupted, interrupt)
        with pytest.raises(SystemExit, match="130"):
            prepared_from(files, tmp_path, "--longest-line", 30)
    prepared_from(files, tmp_path, "--longest-line", 30)
    for path in ("clean/text", "split/valid", "encoded/train", "data-bin/train.bin"):
        assert (tmp_path / path).read_bytes() == (prepared / path).read_bytes()


def test_subword_nmt_and_lower_case_go_the_same_road(files, tmp_path, monkeypatch):
    use(monkeypatch)
    prepared_from(files, tmp_path, "--bpe", "subword-nmt", "--lower")
    coded = (tmp_path / "encoded" / "train").read_text(encoding="utf-8")
    assert "@@" in coded
    assert coded == coded.lower()
    assert "\n\n" in coded


# Bad input, as the user meets it


def refused(tmp_path, *arguments):
    with pytest.raises(UserError) as caught:
        run("prepare", *arguments, "--folder", tmp_path / "out", *SMALL)
    assert not (tmp_path / "out" / "clean").exists()
    return str(caught.value)


def test_a_single_document_is_refused(tmp_path):
    assert refused(tmp_path, write(tmp_path / "text", ["a b", "c d", ""])) == (
        "the text is a single document, so there is nothing to validate with: put blank lines "
        "between documents, or give --lines-per-document N"
    )


def test_blank_lines_alone_are_refused(tmp_path):
    path = write(tmp_path / "text", ["", " ", ""])
    assert refused(tmp_path, path) == "the files hold no text: name others"


def test_no_file_is_refused(tmp_path):
    assert refused(tmp_path) == "there is nothing to prepare: name one or more files of text"


def test_a_file_that_is_not_there_is_refused(tmp_path):
    path = tmp_path / "text"
    assert refused(tmp_path, path) == f"{path} can't be read: No such file or directory"


def test_bytes_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"a\n\nb\xff\n")
    assert refused(tmp_path, path).startswith(f"{path}, line 3: byte 2 (0xff) is not UTF-8")


def test_an_empty_file_is_refused(tmp_path):
    path = tmp_path / "text"
    path.touch()
    assert refused(tmp_path, path) == f"{path} is empty"


def test_a_cut_gzip_file_is_refused(tmp_path):
    path = tmp_path / "text.gz"
    whole = gzip.compress("\n\n".join(sentences(2000)).encode())
    path.write_bytes(whole[: len(whole) // 2])
    assert re.match(
        rf"{path} is truncated or damaged after line \d+ .*: fetch it", refused(tmp_path, path)
    )


def test_a_share_is_a_part(tmp_path):
    text = write(tmp_path / "text", ["a", "", "b"])
    assert refused(tmp_path, text, "--valid-share", 1) == (
        "--valid-share 1.0 must be between 0 and 1: a part of the documents"
    )


def test_a_mistake_is_the_last_line_and_the_status(tmp_path):
    path = write(tmp_path / "text", ["a b"])
    done = commands.run("diet_fairseq_cli:main", "encoder", "prepare", path,
                        "--folder", tmp_path / "out", plugin=False)  # fmt: skip
    assert done.status == 1
    assert done.last.startswith("error: the text is a single document")
    assert "Traceback" not in done.err


# All of it


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "nsp"), [("diet_rel", ()), ("diet_rel", ("--nsp",)), ("stock", ())]
)
def test_from_text_to_a_pretrained_encoder(prepared, tmp_path, scheme, nsp):
    command = [sys.executable, EXAMPLES / "roberta/run.py", "pretrain", scheme, *nsp]
    command += ["--folder", prepared, "--run", tmp_path / "run", "--gpus", "0", "--updates", "6"]
    command += [
        "--length",
        "32",
        "--batch",
        "8",
        "--encoder-embed-dim",
        "16",
        "--log-interval",
        "1",
    ]
    command += ["--encoder-layers", "2", "--encoder-ffn-embed-dim", "16", "--lr", "0.01"]
    command += ["--save-interval-updates", "3", "--validate-interval-updates", "3"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("fairseq-train ")
    curve = outcome.curve_of(tmp_path / "run" / "train.log")
    assert [updates for updates, _ in curve] == [3, 6]
    assert curve[1][1] < curve[0][1] < math.log(200) * (1.5 if nsp else 1.1)
    assert (tmp_path / "run" / "checkpoint_last.pt").exists()
    if nsp:
        log = (tmp_path / "run" / "train.log").read_text(encoding="utf-8")
        assert re.search(r"valid on .* nsp_loss [\d.]+ .*nsp_accuracy 0\.\d+", log)
