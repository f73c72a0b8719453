"""Small checkpoints that could take all time or memory, and a place to read them in.

A costly value is stored once, and some operation would copy, hash, print or iterate it. The
directory of a costly archive describes the records otherwise than the archive contains them.
"""

import io
import os
import pickle
import random
import resource
import struct
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

from diet_fairseq.checkpoints import file
from diet_fairseq.errors import UserError
from tests.support import forged_pickles, hostile

#: limits for one file: seconds of the processor, and bytes of memory
MOST_SECONDS = 1.0
MOST_MEMORY = 100 << 20


def text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def integer(value: int) -> bytes:
    if abs(value) < 1 << 31:
        return b"J" + struct.pack("<i", value)
    raw = pickle.encode_long(value)
    return b"\x8a" + bytes([len(raw)]) + raw


def name(value: str) -> bytes:
    module, _, attribute = value.rpartition(".")
    return f"c{module}\n{attribute}\n".encode()


def storage(numbers: int = 16, key: bytes = text("0")) -> bytes:
    return (
        b"(" + text("storage") + name("torch.FloatStorage") + key + text("cpu")
        + integer(numbers) + b"tQ"
    )  # fmt: skip


def expanded_tensor(*sizes: int) -> bytes:
    """A tensor of one number, which seems to have many: its strides are 0."""
    shape = b"(" + b"".join(map(integer, sizes)) + b"t"
    strides = b"(" + b"K\0" * len(sizes) + b"t"
    ordered = name("collections.OrderedDict") + b")R"
    build = name("torch._utils._rebuild_tensor_v2")
    return build + b"(" + storage() + b"K\0" + shape + strides + b"\x89" + ordered + b"tR"


def tower(levels: int) -> bytes:
    """A pair of twice the same pair, and so on: 2^levels parts in 7 bytes for each level."""
    pairs = b"".join(
        b"q" + bytes([n]) + b"h" + bytes([n]) + b"\x86" for n in range(100, levels + 100)
    )
    return b")" + pairs


def keys_with_one_hash(count: int) -> bytes:
    """A dictionary whose keys differ by 2^61 - 1."""
    items = b"".join(integer(n * (2**61 - 1)) + b"N" for n in range(1, count + 1))
    return b"}(" + items + b"u"


#: a use of a value -> the operations before and after the value
USES: dict[str, tuple[bytes, bytes]] = {
    "as a key": (b"}", b"Ns"),
    "as one of several keys": (b"}(", b"Nu"),
    "as the key of a storage": (
        b"(" + text("storage") + name("torch.FloatStorage"), text("cpu") + b"K\x10tQ"
    ),
    "as the reference to a storage": (b"", b"Q"),
    "as a function": (b"", b")R"),
    "as a class": (b"", b")\x81"),
    "as the arguments of a call": (name("collections.OrderedDict"), b"R"),
    "as the arguments of a class": (name("argparse.Namespace"), b"\x81"),
    "as the argument of OrderedDict": (name("collections.OrderedDict"), b"\x85R"),
    "as the argument of Size": (name("torch.Size"), b"\x85R"),
    "as the state of an object": (name("collections.OrderedDict") + b")R", b"b"),
    "as the state of a tensor": (expanded_tensor(16), b"b"),
    "as an item": (b"]", b"a"),
    "as a value": (b"}" + text("a"), b"s"),
}  # fmt: skip


def forge_pickle(draw: random.Random) -> bytes:
    """A checkpoint with a value that is costly to iterate, hash or print, in any of `USES`."""
    make: Callable[[], bytes] = draw.choice([
        lambda: expanded_tensor(int(10 ** draw.uniform(1, 7.5)), 2),
        lambda: expanded_tensor(int(10 ** draw.uniform(1, 7.5))),
        lambda: tower(draw.choice([3, 28])),
        lambda: keys_with_one_hash(draw.choice([10, 10, 10, 25_000])),
    ])  # fmt: skip
    before, after = USES[draw.choice(list(USES))]
    return forged_pickles.archive(b"\x80\x02" + before + make() + after + b".")


#: place of a field in an entry of an archive's directory, and its format
FIELDS = {"packed": (20, "<I"), "size": (24, "<I"), "attributes": (38, "<I"), "place": (42, "<I")}


def forge_directory(good: bytes, draw: random.Random) -> bytes:
    """Change one or two entries of an archive's directory, or add a second directory."""
    archive = zipfile.ZipFile(io.BytesIO(good))
    start, entries = archive.start_dir, split_directory(good)
    for _ in range(draw.choice([1, 1, 2])):
        number, other = draw.randrange(len(entries)), draw.randrange(len(entries))
        entry = entries[number]
        match draw.randrange(6):
            case 0:
                set_field(entry, "attributes", draw.choice([0x10, 0x11, 1 << 29 | 0x10]))
            case 1:
                set_field(entry, "place", draw.choice([get_field(entries[other], "place"), 0]))
            case 2:
                size = draw.choice([0, 1, 16, get_field(entries[other], "size"), len(good)])
                for field in draw.choice([("packed",), ("size",), ("packed", "size")]):
                    set_field(entry, field, size)
            case 3:  # only names of the same length fit
                entry[46:] = draw.choice([entry[46:].upper(), entry[46:-1] + b"/"])
            case 4:
                entries.insert(draw.randrange(len(entries)), bytearray(entry))
            case 5:
                entries[number : number + 1] = [] if len(entries) > 1 else [entry]
    if draw.random() < 0.2:
        return write_two_directories(good, entries)
    return good[:start] + write_directory(entries, start)


def write_directory(entries: list[bytearray], place: int) -> bytes:
    """A directory at this place in the file, and the end of the archive."""
    directory, count = b"".join(entries), len(entries)
    end = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, count, count, len(directory), place, 0)
    return directory + end


def write_two_directories(good: bytes, entries: list[bytearray]) -> bytes:
    """An archive in which PyTorch finds ``entries``, and Python's reader the directory of ``good``.

    PyTorch reads the directory at the place that the archive's end names, Python the one before the
    end; then Python assumes that as many bytes were put before the archive.
    """
    start, honest = zipfile.ZipFile(io.BytesIO(good)).start_dir, split_directory(good)
    size = sum(map(len, honest))
    first = io.BytesIO()
    with zipfile.ZipFile(first, "w") as archive:
        archive.writestr("x", bytes(size))
    front = first.getvalue()[: archive.start_dir]
    for entry in entries:
        set_field(entry, "place", get_field(entry, "place") + len(front))
    for entry in honest:
        set_field(entry, "place", get_field(entry, "place") + len(front) - size)
    forged = b"".join(entries)[:size].ljust(size, b"\0")
    return front + good[:start] + forged + write_directory(honest, len(front) + start)


def split_directory(good: bytes) -> list[bytearray]:
    """The entries of an archive's directory."""
    place, entries = zipfile.ZipFile(io.BytesIO(good)).start_dir, []
    while good[place : place + 4] == b"PK\1\2":
        length = 46 + sum(struct.unpack_from("<HHH", good, place + 28))
        entries.append(bytearray(good[place : place + length]))
        place += length
    return entries


def get_field(entry: bytearray, field: str) -> int:
    place, form = FIELDS[field]
    return int(struct.unpack_from(form, entry, place)[0])


def set_field(entry: bytearray, field: str, value: int) -> None:
    place, form = FIELDS[field]
    struct.pack_into(form, entry, place, value)


def read_all(files: Iterable[bytes], check: Callable[[object], bool] = lambda state: True) -> None:
    """Read checkpoints; an AssertionError if one costs too much, or ``check`` fails for one."""
    first = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number, content in enumerate(files):
        start = os.times().user  # the system's own time also pays for other programs' memory
        try:
            assert check(file.load(io.BytesIO(content), "cpu")), f"file {number} is not itself"
        except UserError as error:
            if "more memory than there is" in str(error):
                raise AssertionError(f"file {number} needs memory") from error
        seconds = os.times().user - start
        assert seconds < MOST_SECONDS, f"file {number} took {seconds:.1f} s"
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - first) << 10
        assert grown < MOST_MEMORY, f"file {number} took {grown >> 20} MB"


def find_fault(action: Callable[[], None], folder: Path) -> str | None:
    """The fault of an action in a process with `MOST_MEMORY` more than it needs, or None."""
    outcome = hostile.attempt(action, folder, limit=60, memory=4 * MOST_MEMORY)
    lines = outcome.err.strip().splitlines()
    return outcome.fault or (None if outcome.status == 0 else lines[-1])
