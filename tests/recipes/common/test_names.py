"""Names of tasks, rows and runs become folders: those that lie elsewhere, or break, are refused."""

import pytest

from diet_fairseq_cli import main

#: commands that make a folder of a name, which is their last word
NAMED = {
    "task": "encoder prepare-task --train a.tsv --dev a.tsv --text a --label b",
    "row": "encoder finetune own a.pt --row",
    "run": "encoder pretrain t5 --run",
    "translation": "translation train t5 en de --run",
    "evaluation": "translation evaluate t5 en de --run",
}


@pytest.fixture
def said(capsys, tmp_path, monkeypatch):
    """The one line that a command ends with before it has written anything."""

    def call(words, *more):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(SystemExit) as end:
            main([*words.split(), *more])
        assert end.value.code == 2
        assert list(tmp_path.iterdir()) == []
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        return err

    return call


@pytest.mark.parametrize("kind", NAMED)
@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_is_no_folder_of_its_own_is_refused(said, kind, name):
    rule = f"must be the name of a folder of its own, but is {name!r} (--help"
    assert rule in said(NAMED[kind], name)


@pytest.mark.parametrize("kind", ["task", "row"])  # a run may lie elsewhere
@pytest.mark.parametrize("name", ["../../evil", "a/b", "/evil"])
def test_a_name_that_leads_elsewhere_is_refused(said, kind, name):
    rule = f"must be the name of one folder, without a slash, but is {name!r} (--help"
    assert rule in said(NAMED[kind], name)


@pytest.mark.parametrize("words", NAMED.values(), ids=NAMED)
def test_a_name_that_fairseq_would_split_or_nobody_can_read_is_refused(said, words):
    assert "must have no ':', where fairseq splits paths, but is 'a:b'" in said(words, "a:b")
    assert r"must be UTF-8, but is '\udcff'" in said(words, "\udcff")


@pytest.mark.parametrize(
    "words",
    [
        "encoder pretrain t5",
        "encoder prepare-glue glue",
        "encoder report",
        "translation train t5 en de",
    ],
)
def test_a_folder_that_fairseq_would_split_or_nobody_can_read_is_refused(said, words):
    for folder, mark in (("a,b", ","), ("a:b/c", ":")):
        line = said(words, "--folder", folder)
        rule = f"must have no {mark!r}, where fairseq splits paths, but is {folder!r}"
        assert line.startswith(f"error: argument --folder: {rule}")
    assert r"--folder: must be UTF-8, but is '\udcff'" in said(words, "--folder", "\udcff")


@pytest.mark.parametrize("name", ["all", "a,b"])
def test_a_task_is_called_by_a_name_that_finetune_finds(said, name):
    rule = f"argument NAME: must name one task, not all, without commas, but is {name!r}"
    assert rule in said(NAMED["task"], name)
