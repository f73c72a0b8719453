"""A checkpoint takes no more time and memory than its size suggests, and only its own numbers."""

import copy
import io
import random
import struct
import tarfile
import zipfile
from collections import OrderedDict
from pickle import dumps

import pytest
import torch
from torch.serialization import MAGIC_NUMBER, PROTOCOL_VERSION

from diet_fairseq.checkpoints import archive, file
from diet_fairseq.checkpoints.dry_run import DryRun
from diet_fairseq.errors import UserError
from tests.support import costly_files, forged_pickles
from tests.support.costly_files import (
    USES,
    expanded_tensor,
    integer,
    keys_with_one_hash,
    name,
    storage,
    text,
    tower,
)  # fmt: skip

STATE = {"cfg": {"a": 1}, "model": {n: torch.arange(10.0**k) for k, n in enumerate("abcde")}}


def saved_bytes(state):
    packed = io.BytesIO()
    torch.save(state, packed)
    return packed.getvalue()


GOOD = saved_bytes(STATE)


def is_good(state):
    return all(torch.equal(state["model"][n], x) for n, x in STATE["model"].items())


def pickles(seed, count):
    return (costly_files.forge_pickle(random.Random(f"{seed} {n}")) for n in range(count))


def archives(seed, count):
    forge = costly_files.forge_directory
    return (forge(GOOD, random.Random(f"{seed} {n}")) for n in range(count))


# --- Forged files


def test_forged_pickles_cost_no_more_than_their_size(tmp_path):
    read = lambda: costly_files.read_all(pickles(1, 300))  # noqa: E731
    assert costly_files.find_fault(read, tmp_path / "run") is None


def test_archives_with_forged_directories_are_read_as_they_were_or_refused(tmp_path):
    read = lambda: costly_files.read_all([GOOD, *archives(1, 700)], is_good)  # noqa: E731
    assert costly_files.find_fault(read, tmp_path / "run") is None


@pytest.mark.slow
def test_forged_files_of_a_new_seed_cost_no_more_than_their_size(tmp_path):
    seed = random.SystemRandom().randrange(10**9)

    def read():
        costly_files.read_all(pickles(seed, 1000))
        costly_files.read_all(archives(seed, 1000), is_good)

    assert costly_files.find_fault(read, tmp_path / "run") is None, f"seed {seed}"


def every_name_is_builtin(patch):
    names = file.checkpoint_names

    def with_types(*args):
        return names(*args) | {"collections.OrderedDict": OrderedDict, "torch.Size": torch.Size}

    patch.setattr(file, "checkpoint_names", with_types)


def any_directory(patch):
    patch.setattr(file, "locate_records", lambda archive: {})
    patch.setattr(DryRun, "check_storage", lambda *_: None)


def pythons_directory(patch):
    def find(file, begin):
        return zipfile.ZipFile(file).start_dir - begin

    patch.setattr(archive, "_find_directory", find)


def unchecked(rule, allows=lambda *values: True):
    """A mutant of a rule of the dry run: it checks no values that ``allows`` is true for."""

    def mutate(patch):
        check = getattr(DryRun, rule)
        patch.setattr(DryRun, rule, lambda run, *v: None if allows(*v) else check(run, *v))

    return mutate


#: a reader that lacks one check, and the files that find it
UNCHECKED = {
    "any directory": (any_directory, archives),
    "the directory that Python reads": (pythons_directory, archives),
    "any container as a key": (unchecked("check_key", lambda key: key.kind == "tuple"), pickles),
    "any integer as a key": (unchecked("check_key", lambda key: key.kind == "constant"), pickles),
    "any state": (unchecked("check_state"), pickles),
    "any call": (unchecked("check_call"), pickles),
    "any reference": (unchecked("check_storage"), pickles),
    "any arguments of OrderedDict and Size": (every_name_is_builtin, pickles),
}


@pytest.mark.slow
@pytest.mark.few(5)
@pytest.mark.parametrize("mutant", UNCHECKED)
def test_forged_files_find_a_reader_without_a_check(mutant, tmp_path, monkeypatch):
    mutate, files = UNCHECKED[mutant]
    mutate(monkeypatch)
    check = is_good if files is archives else lambda state: True
    read = lambda: costly_files.read_all(files(1, 700), check)  # noqa: E731
    assert costly_files.find_fault(read, tmp_path / "run") is not None


# --- What each refusal says

TAMPERED = "it is not a checkpoint, or was tampered with"
TENSOR, TOWER, KEYS = expanded_tensor(30_000_000), tower(44), keys_with_one_hash(10)
PAIR = b"(K\1K\2t"
BAD_KEY = "it has a key that is neither a number nor text"
BAD_REFERENCE = "it refers to a value outside the pickle that is not a storage"
#: a costly value, a use of it, and what is wrong with it
COSTLY = [
    (TENSOR, "as the argument of OrderedDict", f"{TAMPERED} (an OrderedDict with arguments)"),
    (TENSOR, "as the argument of Size", f"{TAMPERED} (a size without integers)"),
    (TENSOR, "as the arguments of a call",
     "it calls collections.OrderedDict with arguments that are not a tuple"),
    (TENSOR, "as the arguments of a class",
     "it calls argparse.Namespace with arguments that are not a tuple"),
    (TENSOR, "as a function", "it calls a value that is not a name"),
    (TENSOR, "as the state of an object",
     "it sets the state of collections.OrderedDict to another value"),
    (PAIR, "as the state of an object",
     "it sets the state of collections.OrderedDict to another value"),
    (TENSOR, "as the state of a tensor", "it sets the state of a value that has no state"),
    (PAIR, "as the state of a tensor", "it sets the state of a value that has no state"),
    (TOWER, "as a key", BAD_KEY),
    (TOWER, "as one of several keys", BAD_KEY),
    (TOWER, "as the reference to a storage", BAD_REFERENCE),
    (TOWER, "as the key of a storage", BAD_REFERENCE),
    (TOWER, "as a function", "it calls a value that is not a name"),
    (TOWER, "as a class", "it calls a value that is not a name"),
    (tower(60), "as an item", "it has tuples nested more than 50 deep"),
    (KEYS, "as an item", "it has an integer key above 2^60"),
]  # fmt: skip


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize(("value", "use", "words"), COSTLY, ids=lambda value: str(value)[:40])
def test_costly_values_are_refused(value, use, words, legacy):
    before, after = USES[use]
    pickle = b"\x80\x02" + before + value + after + b"."
    if legacy:  # storages have one part more
        pickle = pickle.replace(b"tQ", b"NtQ")
    with pytest.raises(UserError) as error:
        file.load(forged_pickles.write(pickle, legacy))
    assert f"is refused: {words}; " in str(error.value)


@pytest.mark.parametrize("key", [None, True, "a", 7, -(2**60), 2**60, 0.5])
def test_numbers_and_text_are_keys(key):
    assert file.load(io.BytesIO(saved_bytes({"a": {key: 1}})))["a"] == {key: 1}


@pytest.mark.parametrize("value", [(), [], {}, (1, 2), [1, 2], torch.Size([1]), None, True])
def test_many_small_values_are_read(value):
    state = {"a": [copy.copy(value) for _ in range(5000)]}
    assert file.load(io.BytesIO(saved_bytes(state))) == state


def test_many_keys_are_text_close_integers_and_integers_in_order():
    state = {"a": dict.fromkeys(range(200_000)), "b": {str(n): None for n in range(9000)}}
    assert file.load(io.BytesIO(saved_bytes(state))) == state


@pytest.mark.parametrize("step", [0.5, 2**20])
def test_few_other_keys_are_read(step):
    """Their places in a hash table could be chosen."""
    keys = {number * step: None for number in range(1, 5002)}
    with pytest.raises(UserError, match="it has more than 5,000 keys that are neither text, nor"):
        file.load(io.BytesIO(saved_bytes(keys)))
    keys.popitem()
    assert file.load(io.BytesIO(saved_bytes(keys))) == keys


def test_names_of_python_2_are_checked_as_names_of_python_3():
    """There ``UserDict.OrderedDict`` is ``collections.OrderedDict``."""
    pickle = name("UserDict.OrderedDict") + b")R" + TENSOR + b"\x85b"
    with pytest.raises(UserError, match=r"it sets the state of collections\.OrderedDict to"):
        file.load(forged_pickles.write(b"\x80\x02" + pickle + b"."))


def test_the_memo_is_numbered_in_order():
    pickle = b"](" + b"".join(b"Nr" + struct.pack("<I", n << 20) for n in range(9)) + b"e."
    with pytest.raises(UserError, match="its values are not numbered in order"):
        file.load(forged_pickles.write(b"\x80\x02" + pickle))


def test_a_storage_without_numbers_is_refused():
    """PyTorch would read its record at each place again, and drop it."""
    pickle = storage(2**10).replace(text("cpu"), text("meta"))
    with pytest.raises(UserError, match="its storage 0 is on the device meta"):
        file.load(forged_pickles.write(b"\x80\x02" + pickle + b"."))


@pytest.mark.parametrize("value", [b"}", b"]", b"("])
def test_many_containers_and_calls_in_a_small_file_are_refused(value):
    pickle = b"\x80\x02](" + value * 100_000
    with pytest.raises(UserError, match=r"copies of more than is in the file|damaged"):
        file.load(forged_pickles.write(pickle + b"e."))


def test_a_refusal_of_a_long_place_is_short(tmp_path):
    key = text("\U0001f600" + "a" * 1_000_000)
    pickle = b"\x80\x02" + key + b"q\1" + b"}h\1" * 60 + b"N" + b"s" * 60 + b"."
    read = lambda: costly_files.read_all([forged_pickles.archive(pickle)])  # noqa: E731
    assert costly_files.find_fault(read, tmp_path / "run") is None


@pytest.mark.parametrize("tensor", [torch.ones(2, dtype=torch.complex64).conj()])
def test_a_tensor_whose_signs_are_not_in_memory_is_refused(tensor):
    for values in (tensor, tensor.imag):
        with pytest.raises(UserError, match="a conjugate or negative view of a tensor"):
            file.load(io.BytesIO(saved_bytes({"a": values})))


# --- Files of PyTorch before 1.6


def test_a_view_of_memory_that_the_file_does_not_fill_is_refused():
    view = b"(" + text("v") + b"K\0K\x10t"
    pickle = expanded_tensor(16).replace(b"tQ", view + b"tQ")
    with pytest.raises(UserError, match="it refers to a value outside the pickle that is not a st"):
        file.load(forged_pickles.write(b"\x80\x02" + pickle + b".", legacy=True))


@pytest.mark.parametrize("part", [0, 1])
def test_numbers_at_the_beginning_are_compared_and_not_printed(part, tmp_path):
    tower = b"]q\0" + b"](h\0h\0eq\0" * 40
    parts = [dumps(number, 2) for number in (MAGIC_NUMBER, PROTOCOL_VERSION, {}, None, [])]
    parts[part] = b"\x80\x02" + tower + b"."
    read = lambda: costly_files.read_all([b"".join(parts)])  # noqa: E731
    assert costly_files.find_fault(read, tmp_path / "run") is None
    with pytest.raises(UserError, match="is not a checkpoint, or is truncated or damaged"):
        file.load(io.BytesIO(b"".join(parts)))


def test_a_tar_archive_is_refused_before_it_is_opened(tmp_path):
    """PyTorch opens it, and tarfile reads its headers in time that grows with their square."""
    path = tmp_path / "x.pt"
    with tarfile.open(path, "w") as archive:
        archive.addfile(tarfile.TarInfo("storages"))
    with pytest.raises(UserError, match="is refused: it is a tar archive"):
        file.load(path)


def test_a_dimension_of_an_array_costs_no_product_of_long_integers():
    """The product of 10,000 integers of 2,000 bits takes minutes."""
    shape = b"(" + integer(2**2000) * 10_000 + b"t"
    dtype = name("numpy.dtype") + b"(" + text("i8") + b"\x89\x88tR"
    state = b"(K\1" + shape + dtype + b"\x89" + text("") + b"t"
    array = name("numpy.core.multiarray._reconstruct") + b"(tR" + state + b"b"
    with pytest.raises(UserError, match="holds an array without a shape"):
        file.load(forged_pickles.write(b"\x80\x02" + array + b"."))


def test_the_bytes_of_an_array_are_not_copied_many_times():
    raw = name("_codecs.encode") + b"(" + text("a" * 800_000) + text("latin1") + b"tRq\1"
    array = name("numpy.core.multiarray._reconstruct") + b"(tR(K\1(K\1tNNh\1tb"
    with pytest.raises(UserError, match="it makes copies of more than is in the file"):
        file.load(forged_pickles.write(b"\x80\x02(" + raw + array * 1000 + b"t."))


# --- Archives

ENTRIES = costly_files.split_directory(GOOD)
START = zipfile.ZipFile(io.BytesIO(GOOD)).start_dir


def with_entries(change):
    """The good file with changed entries of its directory."""
    entries = [bytearray(entry) for entry in ENTRIES]
    change(entries)
    return GOOD[:START] + costly_files.write_directory(entries, START)


def mark_as_folder(entries):
    costly_files.set_field(entries[4], "attributes", 0x10)


def end_with_slash(entries):
    entries[4][-1:] = b"/"


def repeat(entries):
    entries.append(entries[4])


def repeat_in_capitals(entries):
    entries.append(bytearray(entries[4]))
    entries[-1][46:] = entries[-1][46:].upper()


def share_bytes(entries):
    for entry in entries[5:9]:
        costly_files.set_field(entry, "place", costly_files.get_field(entries[8], "place"))


def lengthen(entries):
    for field in ("packed", "size"):
        costly_files.set_field(entries[8], field, 1 << 20)


def unpack(entries):
    costly_files.set_field(entries[8], "size", 1 << 30)


def shorten(entries):
    for field in ("packed", "size"):
        costly_files.set_field(entries[8], field, 4)


def rename(entries):
    entries[4][46:53] = b"ARCHIVE"


def end_early(entries):
    entries[4][-2:] = b"\0a"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (mark_as_folder, "its record archive/data/0 is marked as a folder, so it could not be"),
        (end_with_slash, "its record archive/data// is marked as a folder, so it could not be rea"),
        (repeat, "it has two records of the name archive/data/0"),
        (repeat_in_capitals, "it has two records of the name ARCHIVE/DATA/0"),
        (share_bytes, "its record archive/data/2 shares bytes with another part of the file"),
        (lengthen, "its record archive/data/4 shares bytes with another part of the file"),
        (unpack, "it is compressed, and unpacks to more than its size"),
        (shorten, "its storage 4 has another size than its record"),
        (rename, "it has records in 2 folders, not in one"),
        (end_early, r"its record archive/data\\x00a has no valid name"),
    ],
)  # fmt: skip
def test_an_archive_whose_directory_is_forged_is_refused(change, words, tmp_path):
    assert is_good(file.load(io.BytesIO(with_entries(lambda entries: None))))  # the control
    path = tmp_path / "x.pt"
    path.write_bytes(with_entries(change))
    with pytest.raises(UserError, match=f"is refused: {words}"):
        file.load(path)


def test_an_archive_with_two_directories_or_a_comment_is_refused():
    entries = [bytearray(entry) for entry in ENTRIES]
    two = costly_files.write_two_directories(GOOD, entries)
    with pytest.raises(UserError, match="PyTorch could read another directory of its records than"):
        file.load(io.BytesIO(two))
    packed = io.BytesIO(GOOD)
    with zipfile.ZipFile(packed, "a") as entries:
        entries.comment = b"PK\5\6" + bytes(30)
    with pytest.raises(UserError, match="its archive does not end with the end of its directory"):
        file.load(io.BytesIO(packed.getvalue()))


def test_an_archive_that_has_its_folder_as_an_entry_is_read():
    """So does ``zip -0 -r``."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as new, zipfile.ZipFile(io.BytesIO(GOOD)) as old:
        new.mkdir("archive")
        for record in old.namelist():
            new.writestr(record, old.read(record))
    assert is_good(file.load(io.BytesIO(packed.getvalue())))


def test_an_archive_in_the_middle_of_an_open_file_is_read():
    opened = io.BytesIO(b"something else" + GOOD)
    opened.seek(len("something else"))
    assert is_good(file.load(opened))


def test_the_file_that_was_checked_is_loaded_even_if_its_name_gets_another(tmp_path, monkeypatch):
    path, load = tmp_path / "x.pt", torch.load
    path.write_bytes(GOOD)

    def load_late(*args, **kwargs):
        torch.save({"model": "another"}, tmp_path / "other.pt")
        (tmp_path / "other.pt").replace(path)
        return load(*args, **kwargs)

    monkeypatch.setattr(torch, "load", load_late)
    assert is_good(file.load(path))
    assert load(path) == {"model": "another"}
