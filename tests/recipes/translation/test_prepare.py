"""`prepare`: from files to what fairseq-train reads, with no line lost, in stages."""

import json
import re

import pytest
from fairseq.data import Dictionary, data_utils

from diet_fairseq.errors import UserError
from diet_fairseq.recipes.translation.corpora import WMT18
from diet_fairseq.text.whitespace import normalise
from tests.support import commands
from tests.support.road import clean, corpus, prepare, raw, run, stages, text, use, write

SMALL = ("--vocabulary", 160)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return corpus(tmp_path_factory.mktemp("texts"))


@pytest.fixture(scope="module")
def prepared(texts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepared") / "en-de"
    with pytest.MonkeyPatch.context() as patch:
        use(patch)
        run(WMT18, "prepare", "de", "en", "--from-dir", texts, "--folder", folder, *SMALL)
    return folder


def test_every_line_of_test_and_validation_arrives_in_its_place(texts, prepared):
    counts = json.loads((prepared / "clean" / "counts.json").read_text())
    for language in ("en", "de"):
        words = Dictionary.load(str(prepared / "data-bin" / f"dict.{language}.txt"))
        for split in ("train", "valid", "test"):
            coded = list(text.read_lines(prepared / "encoded" / f"{split}.{language}"))
            path = prepared / "data-bin" / f"{split}.en-de.{language}"
            data = data_utils.load_indexed_dataset(str(path), words)
            assert len(data) == len(coded) == counts[split]["kept"]
            found = [words.string(tokens, unk_string="?") for tokens in data]
            known = [" ".join(w if w in words else "?" for w in line.split(" ")) for line in coded]
            assert found == ["" if line == "?" and not whole else line for line, whole in
                             zip(known, coded, strict=True)]  # fmt: skip
            if split != "train":
                lines = list(text.read_lines(texts / f"{split}.{language}"))
                assert len(lines) == len(coded) == 12
                clean = list(text.read_lines(prepared / "clean" / f"{split}.{language}"))
                assert clean == [normalise(line) for line in lines]


def test_the_reference_is_kept_as_it_came(texts, prepared):
    for language in ("en", "de"):
        kept = prepared / "clean" / f"test.{language}.as-it-came"
        came = list(text.read_lines(texts / f"test.{language}"))
        assert list(text.read_lines(kept)) == came


def test_both_languages_have_one_dictionary(prepared):
    one, other = (prepared / "data-bin" / f"dict.{language}.txt" for language in ("en", "de"))
    assert one.read_bytes() == other.read_bytes()


def test_what_was_dropped_is_counted(prepared, capsys):
    counts = json.loads((prepared / "clean" / "counts.json").read_text())["train"]
    assert counts["read"] == 300
    assert counts["blank"] == 1
    assert counts["kept"] == 300 - sum(counts[r] for r in ("blank", "long", "ratio", "duplicate"))
    assert f"kept {counts['kept']:>17,}" in clean.table(counts)


def test_prepared_data_is_not_prepared_again(texts, prepared, capsys, monkeypatch):
    monkeypatch.setattr(prepare.programs, "run", None)
    before = {path: path.stat().st_mtime_ns for path in prepared.rglob("*") if path.is_file()}
    run(WMT18, "prepare", "en", "de", "--from-dir", texts, "--folder", prepared, *SMALL)
    assert capsys.readouterr().out.count("done before") == 4
    after = {path: path.stat().st_mtime_ns for path in prepared.rglob("*") if path.is_file()}
    assert [path.name for path in after if after[path] != before[path]] == ["prepared.json"]


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (
            ("--vocabulary", 130),
            "subwords was made with other settings: vocabulary (160, now 130): take",
        ),
        (("--bpe", "subword-nmt"), 'other settings: bpe ("sentencepiece", now "subword-nmt")'),
        (("--max-ratio", 2), "clean was made with other settings: rules"),
        (
            ("--train", "train", "--valid", "test", "--test", "valid"),
            "made with other settings: files",
        ),
    ],
)
def test_other_settings_do_not_mix_with_what_is_there(texts, prepared, option, words):
    options = (*SMALL, *option)
    with pytest.raises(UserError) as caught:
        run(WMT18, "prepare", "en", "de", "--from-dir", texts, "--folder", prepared, *options)
    assert words in str(caught.value)


@pytest.mark.parametrize("interrupted", ["clean", "encode", "binarise"])
def test_an_interrupted_run_goes_on(texts, prepared, tmp_path, monkeypatch, interrupted):
    use(monkeypatch)
    arguments = ("prepare", "en", "de", "--from-dir", texts, "--folder", tmp_path, *SMALL)
    work = getattr(prepare.Text, interrupted)

    def interrupt(*args):
        work(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(prepare.Text, interrupted, interrupt)
        with pytest.raises(SystemExit, match="130"):
            run(WMT18, *arguments)
    assert not (tmp_path / "prepared.json").exists()
    done = {path: path.stat().st_ino for path in tmp_path.iterdir() if path.suffix != ".partial"}
    run(WMT18, *arguments)
    assert all(path.stat().st_ino == inode for path, inode in done.items())
    assert not list(tmp_path.glob("*.partial"))
    for path in (prepared / "data-bin").glob("*-*.*"):
        assert (tmp_path / "data-bin" / path.name).read_bytes() == path.read_bytes()


def test_a_folder_of_someone_else_is_left_alone(tmp_path):
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(UserError, match="was not made by this command"):
        stages.stage(tmp_path, {}, lambda partial: None)
    assert (tmp_path / "mine").exists()


# finding the files


def files(folder, **patterns):
    found = raw.find_pairs(folder, WMT18.files | patterns, ("en", "de"))
    return {
        split: [path.relative_to(folder).as_posix() for both in pairs for path in both]
        for split, pairs in found.items()
    }


@pytest.fixture
def folder(tmp_path):
    for name in ("train.a", "train.b", "valid", "test", "sub/train.c"):
        for language in ("en", "de"):
            path = tmp_path / f"{name}.{language}"
            path.parent.mkdir(exist_ok=True)
            write(path, [name])
    return tmp_path


def test_all_training_files_are_taken_in_order(folder):
    assert files(folder) == {
        "train": ["train.a.en", "train.a.de", "train.b.en", "train.b.de"],
        "valid": ["valid.en", "valid.de"],
        "test": ["test.en", "test.de"],
    }


def test_what_tests_or_validates_does_not_train(folder):
    found = files(folder, train="*", valid="train.a")
    assert found["train"] == ["train.b.en", "train.b.de", "valid.en", "valid.de"]


def test_files_may_be_gzipped_and_named_by_three_letters(folder):
    (folder / "valid.de").rename(folder / "valid.deu")
    (folder / "test.en").rename(folder / "test.eng.gz")
    found = files(folder)
    assert found["valid"] == ["valid.en", "valid.deu"]
    assert found["test"] == ["test.eng.gz", "test.de"]


@pytest.mark.parametrize(
    ("where", "pair", "said"),
    [
        ("", ("en", "fr"), r"test\.en has no partner .*test\.fr\[\.gz\]"),
        ("", ("xx", "yy"), r"no file .*test\.xx\[\.gz\]: --test names the files"),
        ("nosuch", ("en", "de"), r"--from-dir .*nosuch is not a folder: name the one that holds"),
    ],
)
def test_wrong_languages_and_folders_leave_nothing_behind(folder, tmp_path, where, pair, said):
    new = tmp_path / "new"
    with pytest.raises(UserError, match=said):
        run(WMT18, "prepare", *pair, "--from-dir", folder / where, "--folder", new)
    assert not new.exists()


def test_a_file_without_partner_is_named(folder):
    (folder / "train.b.de").unlink()
    with pytest.raises(UserError, match=r"train\.b\.en has no partner .*train\.b\.de\[\.gz\]"):
        files(folder)


def test_missing_files_are_named_with_their_option(folder):
    for language in ("en", "de"):
        (folder / f"test.{language}").unlink()
    with pytest.raises(UserError, match=r"no file .*test\.en\[\.gz\]: --test names the files"):
        files(folder)


@pytest.mark.parametrize("pattern", ["/some/where/test", "**test"])
def test_what_is_no_pattern_is_refused(folder, pattern):
    with pytest.raises(
        UserError, match=rf"^--test {re.escape(pattern)} is no pattern of names in .*: give one"
    ):
        files(folder, test=pattern)


def test_one_test_set_is_wanted(folder):
    with pytest.raises(UserError, match=r"2 files match --test train\*, but there must be one"):
        files(folder, test="train*", train="valid")


def test_one_language_twice_is_refused():
    with pytest.raises(UserError, match="source and target are both de"):
        raw.pair_of("de", "de")


def test_both_directions_share_one_folder():
    assert raw.pair_of("de", "en") == raw.pair_of("en", "de") == ("en", "de")


# bad input, as the user meets it


def refused(folder, tmp_path):
    with pytest.raises(UserError) as caught:
        run(
            WMT18, "prepare", "en", "de", "--from-dir", folder, "--folder", tmp_path / "out", *SMALL
        )
    assert not (tmp_path / "out" / "clean").exists()
    return str(caught.value)


def test_different_line_counts_stop_it(folder, tmp_path):
    write(folder / "train.b.en", ["one", "more"])
    assert "they part at line 2" in refused(folder, tmp_path)


def test_an_empty_side_stops_it(folder, tmp_path):
    (folder / "valid.de").write_bytes(b"")
    assert "valid.de is empty" in refused(folder, tmp_path)


def test_nothing_left_to_train_on_stops_it(folder, tmp_path):
    for language in ("en", "de"):
        write(folder / f"train.a.{language}", [""])
        (folder / f"train.b.{language}").unlink()
    assert "no pair is left to train on" in refused(folder, tmp_path)


def test_a_mistake_is_the_last_line_and_the_status(folder, tmp_path):
    (folder / "train.a.de").write_bytes(b"\xff\n")
    options = ("--corpus", "wmt18", "--from-dir", folder, "--folder", tmp_path / "out")
    done = commands.run(
        "diet_fairseq_cli:main", "translation", "prepare", "en", "de", *options, plugin=False
    )
    assert done.status == 1
    assert done.last.startswith(f"error: {folder}/train.a.de, line 1: byte 1 (0xff) is not UTF-8")
    assert "Traceback" not in done.err
