"""From raw text to a pretrained encoder: documents, stages, the command, the table of results."""

import gzip
import json
import math
import re
import shlex
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from fairseq import options
from fairseq.data import Dictionary, data_utils
from fairseq.models import ARCH_CONFIG_REGISTRY

from diet_fairseq.errors import UserError
from diet_fairseq.positions import SCHEMES
from tests.support.road import EXAMPLES, ODD, cells, script, sentences, subwords, text, use, write

from roberta import cli, documents, prepare, presets, pretrain  # isort: skip  # road finds it

results = script("roberta/results.py")
SMALL = ("--vocabulary", 160, "--workers", 1)


def run(*arguments):
    """``run.py`` with these arguments, in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["run.py", *map(str, arguments)])
        cli.main("")


def lines_of(path, **options):
    return list(documents.Source(path, **options).lines())


# Documents


@pytest.mark.parametrize(
    "lines",
    [
        ["a", "b", "", "c"],
        ["", "", "a", "b", "", "", "", "c", "", ""],
        ["a", "b", " \t\u3000", "c"],
        ["a\r", "b\r", "\r", "c\r"],
    ],
)
def test_blank_lines_of_any_kind_and_number_part_documents(tmp_path, lines):
    assert lines_of(write(tmp_path / "text", lines)) == ["a", "b", "", "c"]


def test_only_a_newline_ends_a_line(tmp_path):
    [line] = lines_of(write(tmp_path / "text", [f"a {ODD} b"]))
    assert len(line.splitlines()) == 1


def test_a_text_without_blank_lines_is_cut(tmp_path):
    path = write(tmp_path / "text", [*"abcde", "", ""])
    assert lines_of(path, lines_per_document=2) == ["a", "b", "", "c", "d", "", "e"]
    assert lines_of(path, lines_per_document=5) == [*"abcde"]


def test_a_text_with_blank_lines_is_not_cut(tmp_path):
    path = write(tmp_path / "text", [*"abc", "", "d"])
    assert lines_of(path, lines_per_document=2) == ["a", "b", "c", "", "d"]


def test_wikitext_is_parted_by_titles(tmp_path):
    lines = [
        *(" ", " = A Town = ", " ", " It is well @-@ known , 1 @,@ 000 years . ", " More . ", " "),
        *(" = = History = = ", " ", " = = = Before 1 = = = ", " a = b ", " ", " = B = 1 = ", " x "),
    ]
    assert lines_of(write(tmp_path / "text", lines), wikitext=True) == [
        *("A Town", "It is well-known , 1,000 years .", "More .", "History", "Before 1", "a = b"),
        *("", "B = 1", "x"),
    ]


def test_repeated_lines_go_and_so_do_documents_that_lose_all(tmp_path):
    cleaner = documents.Cleaner()
    found = list(cleaner([["a b", "c", "", "a b"], ["c", "", "d", "a b", "e", "", "d", "f"]]))
    assert found == ["a b", "c", "", "d", "e", "", "f"]
    assert cleaner.counts == {"read": 9, "repeated": 4, "kept": 5, "documents": 3, "words": 6}


def test_lower_case_makes_lines_repeated():
    assert list(documents.Cleaner(lower=True)([["Übung", "übung", "X"]])) == ["übung", "x"]


@pytest.mark.parametrize(
    ("number", "share", "chosen"), [(2, 0.005, 1), (1000, 0.005, 5), (3, 0.99, 2), (100, 0.1, 10)]
)
def test_a_share_of_the_documents_is_held_out(number, share, chosen):
    found = documents.held_out(number, share)
    assert len(found) == chosen
    assert found <= set(range(number))
    assert found == documents.held_out(number, share)


# Lines that are too long


def test_a_short_line_is_not_parted():
    assert list(documents.parted("", 3)) == [""]
    assert list(documents.parted("▁a b ▁c", 3)) == ["▁a b ▁c"]


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("▁a ▁b . ▁c ▁d", ["▁a ▁b .", "▁c ▁d"]),  # after a sentence
        ("▁a ▁b . 5 ▁c ▁d", ["▁a ▁b . 5", "▁c ▁d"]),  # 3.5 is none
        ("▁a . ▁b ▁c ▁d e", ["▁a . ▁b ▁c", "▁d e"]),  # not in the first half
        ("▁a ▁b ▁c ▁d e", ["▁a ▁b ▁c", "▁d e"]),  # after a word
        ("▁a ▁b c d e ▁f", ["▁a ▁b c d", "e ▁f"]),  # not in the first half
        ("▁a b c d e f g", ["▁a b c d", "e f g"]),  # in a word that leaves no other way
        ("a。 b 。 c d", ["a。 b 。", "c d"]),  # no spaces
        ("a@@ b , c@@ d e", ["a@@ b ,", "c@@ d e"]),  # subword-nmt
        ('▁a ▁b ." ▁c ▁d', ['▁a ▁b ."', "▁c ▁d"]),
    ],
)
def test_a_long_line_is_parted_where_it_hurts_least(line, parts):
    assert list(documents.parted(line, 4)) == parts


@pytest.mark.parametrize("kind", subwords.KINDS)
def test_no_part_is_too_long_and_nothing_is_lost(tmp_path, kind):
    lines = [" ".join(sentences(60, seed=number)) for number in range(5)]
    subwords.KINDS[kind].learn(tmp_path, {"en": lines}, 160, 1)
    for line in subwords.KINDS[kind](tmp_path).encode(lines, "en", 1):
        parts = list(documents.parted(line, 20))
        assert " ".join(parts) == line
        assert max(len(part.split(" ")) for part in parts) <= 20
        assert all(part.endswith(".") for part in parts[:-1])


# Stages


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
    monkeypatch.setattr(prepare.commands, "run", None)
    prepared_from(files, prepared, "--longest-line", 30)
    said = capsys.readouterr().out
    assert said.count("done before") == 5
    assert "292 lines, 1 of them (0.34%) left out because the same line stood there before" in said


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (("--vocabulary", 150), "subwords was made with another vocabulary (160, now 150): take"),
        (("--bpe", "subword-nmt"), 'another bpe ("sentencepiece", now "subword-nmt")'),
        (("--lower",), "clean was made with another lower (false, now true)"),
        (("--valid-share", 0.2), "split was made with another valid_share (0.1, now 0.2)"),
        (("--longest-line", 20), "encoded was made with another longest_line (30, now 20)"),
        (("--lines-per-document", 3), "clean was made with another files"),
    ],
)
def test_other_settings_do_not_mix_with_what_is_there(files, prepared, option, words):
    with pytest.raises(UserError) as caught:
        prepared_from(files, prepared, "--longest-line", 30, *option)
    assert words in str(caught.value)


@pytest.mark.parametrize("interrupted", ["clean_files", "split_documents", "encode", "binarise"])
def test_an_interrupted_run_goes_on(files, prepared, tmp_path, monkeypatch, interrupted):
    use(monkeypatch)
    work = getattr(prepare, interrupted)

    def interrupt(*args):
        work(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(prepare, interrupted, interrupt)
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
    assert refused(tmp_path, path) == "no line of text is in the files: name others"


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
        rf"{path} is cut short or damaged after line \d+ .*: fetch it", refused(tmp_path, path)
    )


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (
            ("--valid-share", 1),
            "--valid-share 1.0 must be between 0 and 1: a part of the documents",
        ),
        (("--longest-line", 0), "--longest-line 0 must be 1 or more"),
        (("--lines-per-document", 0), "--lines-per-document 0 must be 1 or more"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(tmp_path, option, message):
    assert refused(tmp_path, write(tmp_path / "text", ["a", "", "b"]), *option) == message


def test_a_mistake_is_the_last_line_and_the_status(tmp_path):
    path = write(tmp_path / "text", ["a b"])
    command = [sys.executable, EXAMPLES / "roberta/run.py", "prepare", path]
    done = subprocess.run(
        [*command, "--folder", tmp_path / "out"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: the text is a single document")
    assert "Traceback" not in done.stderr


# The command


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "prepared.json").write_text('{"longest_line": 126}')
    return tmp_path


@pytest.fixture
def shown(folder, capsys, monkeypatch):
    """What `pretrain --show` prints, as fairseq-train reads it."""

    def call(*arguments, gpus=0):
        monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
        run("pretrain", *arguments, "--folder", folder, "--show")
        line = capsys.readouterr().out
        assert line.startswith("fairseq-train ")
        words = shlex.split(line)[1:]
        return options.parse_args_and_arch(options.get_training_parser(), words)

    return call


def test_tupe_s_settings(shown):
    args = shown("tupe_r", "--preset", "tupe", gpus=16)
    assert args.arch == "bert_tupe_r_base"
    assert (args.encoder_layers, args.encoder_embed_dim) == (12, 768)
    assert args.max_update == 1_000_000
    assert args.batch_size * args.update_freq[0] * args.distributed_world_size == 256
    assert args.batch_size == 16
    assert args.tokens_per_sample == 512
    assert (args.lr, args.warmup_ratio * args.max_update) == ([1e-4], 10_000)
    assert (args.optimizer, args.adam_betas, args.adam_eps) == ("fused_adamw", "(0.9, 0.999)", 1e-6)
    assert (args.weight_decay, args.clip_norm, args.dropout) == (0.01, 1.0, 0.1)
    assert (args.mask_prob, args.leave_unmasked_prob, args.random_token_prob) == (0.15, 0.1, 0.1)


def test_diet_s_settings(shown):
    args = shown("diet_abs", "--preset", "diet", gpus=8)
    assert args.arch == "bert_diet_abs_base"
    assert args.max_update == 500_000
    assert args.batch_size * args.update_freq[0] * args.distributed_world_size == 4096
    assert args.tokens_per_sample == 128
    assert (args.lr, args.warmup_ratio, args.lr_scheduler) == ([1.8e-3], 0.025, "linear_ratio")
    assert args.optimizer == "lamb_torch"


def test_full_sentences_are_packed_without_next_sentences(shown):
    for preset in presets.PRESETS:
        args = shown("t5", "--preset", preset)
        assert (args.task, args.criterion) == ("masked_lm", "masked_lm")
        assert not getattr(args, "nsp", False)
        assert str(args.sample_break_mode) == "complete"


def test_next_sentences_take_their_task_and_criterion(shown):
    args = shown("t5", "--nsp", "--length", 64)
    assert (args.task, args.criterion, args.nsp) == ("masked_lm_nsp", "masked_lm_nsp", True)
    assert str(args.sample_break_mode) == "none"
    assert args.save_dir.endswith("runs/bert_t5-tiny-nsp")


@pytest.mark.parametrize("arguments", [("stock",), ("t5", "--encoder", "roberta")])
def test_next_sentences_need_a_bert(folder, arguments):
    with pytest.raises(UserError) as error:
        run("pretrain", *arguments, "--nsp", "--folder", folder, "--show")
    assert str(error.value) == (
        "--nsp needs a BERT: take --encoder bert and one of our schemes, or leave it out"
    )


@pytest.mark.parametrize(("gpus", "nodes"), [(1, 1), (2, 1), (4, 1), (8, 1), (8, 2), (8, 8)])
@pytest.mark.parametrize("preset", ["tupe", "diet"])
def test_the_batch_is_the_same_on_any_number_of_gpus(shown, preset, gpus, nodes):
    args = shown("shaw", "--preset", preset, "--nodes", nodes, gpus=gpus)
    assert args.distributed_world_size == gpus * nodes
    assert args.load_checkpoint_on_all_dp_ranks
    assert args.batch_size <= presets.PRESETS[preset].per_gpu
    whole = args.batch_size * args.update_freq[0] * gpus * nodes
    assert whole == presets.PRESETS[preset].batch
    assert not args.cpu


def test_a_cpu_or_fewer_gpus_can_be_asked_for(shown):
    assert shown("shaw", "--gpus", 0, gpus=4).cpu
    assert shown("shaw", "--gpus", 2, gpus=4).distributed_world_size == 2
    with pytest.raises(UserError, match="--gpus 4: there are 1"):
        shown("shaw", "--gpus", 4, gpus=1)


def test_what_is_not_known_here_is_passed_on_and_wins(shown):
    more = ("--position-input", "learned", "--lr", "0.5", "--bf16", "--mask-whole-words")
    args = shown("diet_abs", "--updates", 7, "--seed", 3, *more)
    assert (args.position_input, args.lr, args.bf16) == ("learned", [0.5], True)
    assert (args.mask_whole_words, args.max_update, args.seed) == (True, 7, 3)


@pytest.mark.parametrize("size", pretrain.SIZES)
@pytest.mark.parametrize("encoder", ["bert", "roberta"])
@pytest.mark.parametrize("scheme", [*SCHEMES, "stock"])
def test_every_scheme_has_every_size(encoder, scheme, size):
    words = pretrain.architecture(encoder, scheme, size)
    assert words[1] in ARCH_CONFIG_REGISTRY
    assert (scheme in words[1]) == (scheme != "stock")


@pytest.mark.parametrize("size", pretrain.SIZES)
def test_stock_has_the_size_of_ours(shown, size):
    ours, stock = (
        vars(shown(scheme, "--encoder", "roberta", "--size", size))
        for scheme in ("learned", "stock")
    )
    skipped = ("arch", "save_dir", "log_file")
    known = [name for name in stock if name in ours and name not in skipped]
    assert {name: stock[name] for name in known} == {name: ours[name] for name in known}


def test_lines_that_have_no_room_are_refused(folder):
    with pytest.raises(UserError) as error:
        run("pretrain", "t5", "--length", 64, "--folder", folder, "--show")
    assert str(error.value) == (
        "--length 64 is too short for lines of up to 126 subwords: prepare the text with "
        "--longest-line 62, or take --length 128"
    )


def test_an_unknown_scheme_is_refused(folder):
    with pytest.raises(UserError, match="no scheme rotary: take one of none, sinusoidal"):
        run("pretrain", "rotary", "--folder", folder, "--show")


def test_data_must_be_prepared_first(tmp_path):
    with pytest.raises(UserError, match="holds no finished data: run `prepare` first"):
        run("pretrain", "shaw", "--folder", tmp_path, "--show")


# Results


@pytest.fixture
def called(tmp_path, monkeypatch):
    """Runs results.py with a stand-in for pretraining; returns what it called."""
    calls = []

    def call(command, stdout, stderr):
        words = dict(pairwise(command))
        run, seed = tmp_path / "runs" / words["--run"], int(words["--seed"])
        calls.append(words["--run"])
        if "shaw" in words["--run"]:
            return 1
        end = 500 if "t5_" in words["--run"] else 1000
        valid = "| valid | epoch 001 | valid on 'valid' subset | loss {} | ppl 9 | num_updates {}\n"
        (run / "train.log").write_text(
            "| num. shared model params: 2,322,432 (num. trained: 1)\n"
            + "| num_updates 4 | train_wall 81 | wall 60\n"
            + valid.format(9.5, 500)
            + valid.format(9.25, 500)
            + valid.format(7 + seed, end)
            + "| num_updates 1000 | train_wall 81 | wall 120\n"
        )
        return 0

    monkeypatch.setattr(cells.subprocess, "call", call)

    def main(*arguments):
        calls.clear()
        monkeypatch.setattr("sys.argv", ["results.py", "--data", str(tmp_path), *arguments])
        return results.main(), calls

    return main


def test_every_cell_is_pretrained_once(called):
    status, calls = called("--rows", "none", "t5, learned input", "--seeds", "1", "2")
    assert (status, len(calls)) == (0, 4)
    assert called("--rows", "none", "t5, learned input", "--seeds", "1", "2", "3")[1] == [
        f"{row}_roberta_machine_tiny_1000_seed3" for row in ("none", "t5-learned-input")
    ]


def test_another_budget_is_another_cell(called):
    called("--rows", "none")
    assert called("--rows", "none", "--encoder", "bert")[1] == ["none_bert_machine_tiny_1000_seed1"]


def test_a_failed_or_unfinished_cell_does_not_stop_the_others(called, capsys):
    status, _ = called("--rows", "shaw", "t5", "none")
    assert status == 1
    said = capsys.readouterr().out.splitlines()
    assert "FAILED: pretrain ended with status 1, see" in said[0]
    assert "FAILED: the last update was not validated, see" in said[1]
    assert said[2].endswith("none_roberta_machine_tiny_1000_seed1: loss 5.545, perplexity 256.0")
    assert len(called("--rows", "shaw", "none")[1]) == 1  # again


def test_a_cell_keeps_its_curve(called, tmp_path):
    called("--rows", "none")
    [path] = (tmp_path / "results").iterdir()
    found = json.loads(path.read_text())
    bits = [[500, 9.25], [1000, 8.0]]
    assert found["curve"] == [[update, loss * math.log(2)] for update, loss in bits]
    assert (found["perplexity"], found["seconds"]) == (pytest.approx(256), 120)


def test_the_table_shows_means_spread_and_commands(called, capsys):
    called("--rows", "none", "stock", "--seeds", "1", "2")
    capsys.readouterr()
    assert called("--table", "--seeds", "1", "2")[0] == 0
    said = capsys.readouterr().out
    assert "| none | 5.892 ± 0.490 | 384.0 ± 181.0 | 2,322,432 | 2.0 | 1, 2 |" in said
    assert "| stock |" in said
    assert "diet" not in said.split("```")[0]
    assert "roberta/run.py pretrain none --run none_roberta_machine_tiny_1000_seed1" in said


def test_the_curves_are_drawn(called, tmp_path):
    called("--rows", "none", "stock", "--seeds", "1", "2")
    assert called("--plot", str(tmp_path / "curves.png"))[0] == 0
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_every_row_is_a_scheme_that_pretrain_knows():
    for row, (scheme, *options_) in results.ROWS.items():
        assert row.split(",")[0] == scheme
        assert scheme in (*SCHEMES, "stock")
        assert options_ in ([], ["--position-input", "learned"])


def test_a_cell_of_another_length_is_another_cell(called):
    given = ("--rows", "linformer")
    for more, named in (((), ""), (("--length", "512", "--batch", "8"), "batch8_length512_")):
        name = f"linformer_roberta_machine_tiny_1000_{named}seed1"
        assert called(*given, *more) == (0, [name])
        assert called(*given, *more) == (0, [])


def test_a_cell_of_other_options_of_fairseq_train_is_another_cell(called):
    called("--rows", "none")
    assert called("--rows", "none", "--lr", "0.5")[1] == [
        "none_roberta_machine_tiny_1000_seed1_lr_0.5"
    ]


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
    curve = results.read_curve(tmp_path / "run" / "train.log")
    assert [updates for updates, _ in curve] == [3, 6]
    assert curve[1][1] < curve[0][1] < math.log(200) * (1.5 if nsp else 1.1)
    assert (tmp_path / "run" / "checkpoint_last.pt").exists()
    if nsp:
        log = (tmp_path / "run" / "train.log").read_text(encoding="utf-8")
        assert re.search(r"valid on .* nsp_loss [\d.]+ .*nsp_accuracy 0\.\d+", log)
