"""Whatever a pickle does with the names that it may use, a loaded checkpoint is plain data."""

import io
import random
import struct
import sys
import zipfile
from collections import Counter

import pytest
import torch

from diet_fairseq.checkpoints import file
from diet_fairseq.errors import UserError
from tests.support import forged_pickles, hostile

#: prefixes of the audit events that a pickle must not cause
ACTIONS = ("os.", "subprocess.", "socket.", "exec", "compile", "shutil.", "ctypes.")
watched: list[str] | None = None


def watch(event, args):
    if watched is not None and event.startswith(ACTIONS):
        watched.append(f"{event} {str(args)[:100]}")


@pytest.fixture(scope="module", autouse=True)
def _audit():
    faults(0, 20)  # PyTorch imports modules when it loads the first file
    sys.addaudithook(watch)  # stays until the process ends, but notes nothing after a test


def faults(seed, count):
    """What is wrong with the trees of random pickles, and how many pickles were loaded."""
    global watched
    found, loaded = Counter(), 0
    for number in range(count):
        forged = forged_pickles.forge(random.Random(f"{seed} {number}"))
        watched = []
        try:
            state = file.load(io.BytesIO(forged), "cpu")
        except UserError:
            state = None
        finally:
            acted, watched = watched, None
        found.update(f"{number}: {event}" for event in acted)
        if state is not None:
            loaded += 1
            found.update(forged_pickles.inspect_tree(state))
    return found, loaded


def test_forged_pickles_load_as_plain_data_or_are_refused():
    found, loaded = faults(1, 1500)
    assert not found
    assert loaded > 50


@pytest.mark.slow
def test_three_thousand_forged_pickles_of_a_new_seed_load_as_plain_data_or_are_refused():
    seed = random.SystemRandom().randrange(10**9)
    found, _ = faults(seed, 3_000)
    assert not found, f"seed {seed}"


def test_forged_pickles_find_a_loader_without_a_check_at_its_exit(monkeypatch):
    monkeypatch.setattr(file, "copy_plain_data", lambda state, *_: state)
    found, _ = faults(1, 600)
    assert "cfg.model is of the type RecordedArray" in found


# --- Pickles that take all time or memory, or end the process


def pickled(operations, legacy=False):
    """A checkpoint file of these operations."""
    return forged_pickles.write(b"\x80\x02" + operations + b".", legacy)


TEXT = "一".encode() * 60_000
STORAGE = b"((X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuJ%sNtQ"
BOMBS = {
    "a deep tuple as a key": b"})" + b"\x85" * 1_000_000 + b"Ns",
    "a slow codec": b"c_codecs\nencode\n(X" + struct.pack("<I", len(TEXT)) + TEXT
    + b"X\x08\0\0\0punycodetR",
    "memory": b"c__builtin__\nbytearray\nJ\xff\xff\xff\x7f\x85R",
    "memory of a tensor": b"ctorch\nFloatTensor\nJ\xff\xff\xff\x7f\x85R",
}  # fmt: skip


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_small_file_can_take_neither_time_nor_memory_nor_the_process(bomb, legacy, tmp_path):
    def read():
        file.load(pickled(BOMBS[bomb], legacy))

    outcome = hostile.attempt(read, tmp_path / "run", limit=20)
    assert outcome.status == 1, outcome
    assert outcome.is_refusal


def test_storages_that_the_file_does_not_fill_are_refused():
    """Before PyTorch 1.6 a file named the size of its storages, and memory was taken for them."""
    numbers = struct.pack("<i", 1 << 29)
    storage = STORAGE.replace(b"%s", numbers)
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n" + storage + b"K\0J" + numbers
    tensor += b"\x85K\x01\x85\x89NtR"
    with pytest.raises(UserError, match="more numbers than are in the file"):
        file.load(pickled(tensor, legacy=True))


@pytest.mark.parametrize("size", [b"K\x11", b"J\xff\xff\xff\x7f"])
def test_a_tensor_larger_than_its_storage_is_refused(size):
    storage = STORAGE.replace(b"%s", struct.pack("<i", 16))
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n" + storage + b"K\0" + size
    tensor += b"\x85K\x01\x85\x89NtR"
    for legacy in (True, False):
        if not legacy:  # a storage has one part less
            tensor = tensor.replace(b"NtQ", b"tQ")
        with pytest.raises(UserError, match="is not a checkpoint, or"):
            file.load(pickled(tensor, legacy))


def text(value):
    """The operation that reads text."""
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


NUMBERS = b"(" + b"K\1" * 10_000 + b"tq\1"
PAIRS = b"}q\1(" + b"".join(b"J" + struct.pack("<i", n) + b"N" for n in range(10_000)) + b"u"
#: one argument or state that is read once and copied by many objects
COPIES = {
    "texts": b"c_codecs\nencode\nq\0" + text("a" * 20_000) + text("latin1") + b"\x86q\1R"
    + b"h\0h\1R" * 1000,
    "sizes": b"ctorch\nSize\nq\0" + NUMBERS + b"\x85q\2R" + b"h\0h\2R" * 1000,
    "arguments": b"ccollections\nOrderedDict\nq\0" + PAIRS + b"\x85q\2R" + b"h\0h\2R" * 1000,
    "a list that grows after it": b"ccollections\nOrderedDict\nq\0]q\1\x85q\2R"
    + b"h\1(" + b"K\1K\1\x86" * 10_000 + b"e" + b"h\0h\2R" * 1000,
    "states": b"ccollections\nOrderedDict\n)R" + PAIRS + b"b" + b"h\1b" * 1000,
}  # fmt: skip


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("kind", COPIES)
def test_a_value_is_not_copied_many_times(kind, legacy):
    with pytest.raises(UserError, match="is refused: it makes copies of more than is in the file"):
        file.load(pickled(b"(" + COPIES[kind] + b"t", legacy))


@pytest.mark.parametrize("end", [b"", b"PK\5\6"])
def test_a_compressed_archive_is_refused_before_it_is_unpacked(end):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as entries:
        entries.writestr("x/data.pkl", b"\x80\x02" + text("a" * 1_000_000) + b".")
        entries.writestr("x/version", "3\n")
    with pytest.raises(UserError, match=r"it is compressed|is not a checkpoint"):
        file.load(io.BytesIO(packed.getvalue() + end))


def test_memory_that_an_old_file_does_not_fill_is_zero():
    """Before PyTorch 1.6 the numbers of the storages in a list followed the pickle."""
    storage = STORAGE.replace(b"%s", struct.pack("<i", 64))
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n" + storage + b"K\0K\x40\x85K\x01\x85\x89NtR"
    dirty = [torch.full((64,), 7.0) for _ in range(1000)]
    del dirty
    for _ in range(100):
        read = file.load(pickled(tensor + text("a" * 1000) + b"\x86", legacy=True))
        assert not read[0].any()


@pytest.mark.slow
def test_a_file_of_many_storages_is_read_in_time_linear_in_their_number(monkeypatch):
    tensors = [torch.ones(1) for _ in range(3000)]
    packed = io.BytesIO()
    torch.save({"extra_state": tensors}, packed)
    packed.seek(0)
    counted = []
    nbytes = torch.UntypedStorage.nbytes
    monkeypatch.setattr(torch.UntypedStorage, "nbytes", lambda s: counted.append(1) or nbytes(s))
    assert len(file.load(packed)["extra_state"]) == 3000
    assert len(counted) <= 4 * 3000
