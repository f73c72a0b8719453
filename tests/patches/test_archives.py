"""An archive of a model is unpacked into its own folder, or refused before anything is written."""

import io
import shutil
import tarfile

import pytest
from fairseq import file_utils, hub_utils

from diet_fairseq.errors import UserError
from tests.support.commands import TINY, run


def member(name, kind=tarfile.REGTYPE, link="", text=b"x"):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(text) if kind == tarfile.REGTYPE else 0
    return info, io.BytesIO(text)


def archive(path, *members):
    with tarfile.open(path, "w:gz") as tar:
        for info, content in members:
            tar.addfile(info, content)
    return path


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a neighbour that must stay as it is, and a folder for temporary files."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    for name in ("temporary", "own"):
        (tmp_path / name).mkdir()
    (tmp_path / "neighbour").write_text("as it was")
    return tmp_path


def files(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if not p.is_dir())


def refusal(path):
    with pytest.raises(UserError) as error:
        file_utils.load_archive_file(str(path))
    assert "\n" not in str(error.value)
    return str(error.value)


FOLDER = tarfile.DIRTYPE
OUTSIDE = {
    "above": [member("top", FOLDER), member("../evil")],
    "above, in a folder": [member("top", FOLDER), member("top/../../evil")],
    "absolute": [member("/evil/x")],
    "in no folder": [member("model.pt")],
    "two folders": [member("one/model.pt"), member("other/model.pt")],
    "two dots in common": [member("..a/model.pt"), member("..b/model.pt")],
    "a link to elsewhere": [member("top/link", tarfile.SYMTYPE, "../../neighbour")],
    "an absolute link": [member("top/link", tarfile.SYMTYPE, "/etc/passwd")],
    "a link inside": [member("top/a"), member("top/link", tarfile.SYMTYPE, "a")],
    "a hard link": [member("top/link", tarfile.LNKTYPE, "../neighbour")],
    "through a link": [member("top/link", tarfile.SYMTYPE, "../.."), member("top/link/evil")],
    "a pipe": [member("top/pipe", tarfile.FIFOTYPE)],
    "a device": [member("top/device", tarfile.CHRTYPE)],
    "control characters": [member("top/\x1b[2J", tarfile.FIFOTYPE)],
    "nothing": [],
}


@pytest.mark.parametrize("members", OUTSIDE.values(), ids=list(OUTSIDE))
def test_an_unsafe_archive_is_refused_before_anything_is_written(folder, members):
    path = archive(folder / "own" / "model.tar.gz", *members)
    before, content = files(folder), path.read_bytes()
    text = refusal(path)
    assert text.startswith(f"{path} can't be unpacked as a model archive (")
    assert text.endswith("): give one from a source that you trust, or a folder")
    assert "\x1b" not in text
    assert files(folder) == before
    assert path.read_bytes() == content
    assert (folder / "neighbour").read_text() == "as it was"


def test_an_archive_larger_than_the_disk_is_refused(folder, monkeypatch):
    """A file of zeros is small in an archive."""
    usage = shutil.disk_usage(folder)._replace(free=5)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    path = archive(folder / "own" / "model.tar.gz", member("top/a", text=b"123456"))
    assert "(it needs 6 bytes, but " in refusal(path)


@pytest.mark.parametrize("first", [[], [member("top", FOLDER)]])
def test_an_archive_of_one_folder_takes_its_place(folder, first):
    """Two names may begin alike, and the folder may have no entry of its own."""
    members = [*first, member("top/dict.de"), member("top/dict.en")]
    path = archive(folder / "own" / "model.tar.gz", *members)
    assert file_utils.load_archive_file(str(path)) == str(path)
    assert files(folder) == ["neighbour", "own/model.tar.gz/dict.de", "own/model.tar.gz/dict.en"]


@pytest.mark.slow
def test_a_model_is_loaded_from_its_archive(data, tmp_path):
    done = run("train", data, *TINY, "--max-update", 1, "--disable-validation", "--save-dir",
               tmp_path / "top")  # fmt: skip
    assert done.status == 0, done.err
    for side in ("de", "en"):
        shutil.copy(data / f"dict.{side}.txt", tmp_path / "top")
    with tarfile.open(tmp_path / "model.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "top", "top")
    hub = hub_utils.from_pretrained(
        str(tmp_path / "model.tar.gz"), "checkpoint_last.pt", source_lang="de", target_lang="en"
    )
    assert sum(p.numel() for p in hub["models"][0].parameters()) > 0
