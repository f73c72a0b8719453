"""Random programs for the pickle machine: every allowed name, every operation that sets state.

`forge` writes the operations of a pickle that need not come from any object: names are called,
built and given states of every form, with `PROGRAM` as text and as bytes, and by way of the memo.
`inspect_tree` says what a loaded tree holds that no checkpoint may hold; its list of types is
independent of the loader's.
"""

import io
import random
import struct
import zipfile
from argparse import Namespace
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pickle import dumps
from typing import Any

import numpy as np
import torch
from torch.serialization import MAGIC_NUMBER, PROTOCOL_VERSION

#: names that ``weights_only`` takes by itself, and names in checkpoints
NAMES = [
    "argparse Namespace", "numpy ndarray", "numpy dtype", "numpy._core.multiarray _reconstruct",
    "numpy.core.multiarray _reconstruct", "numpy._core.multiarray scalar",
    "numpy.core.multiarray scalar", "collections OrderedDict", "collections Counter",
    "torch Size", "torch device", "torch Tensor", "torch.nn.parameter Parameter", "torch float32",
    "torch FloatStorage", "torch.storage UntypedStorage", "_codecs encode", "builtins bytearray",
    "builtins set", "builtins complex", "torch._utils _rebuild_parameter",
    "torch._utils _rebuild_parameter_with_state", "torch._utils _rebuild_tensor_v2",
    "torch._utils _rebuild_wrapper_subclass", "torch._utils _rebuild_device_tensor_from_numpy",
    "torch._tensor _rebuild_from_type_v2", "torch.serialization _get_layout",
]  # fmt: skip
LIKELY, WITH_STATE = NAMES[:7], NAMES[:3]
REFUSED = ["os system", "builtins eval", "builtins getattr", "builtins object", "argparse Action",
           "diet_fairseq.checkpoints.pickled_objects RecordedArray"]  # fmt: skip
PROGRAM = "__import__('os').system('touch it-ran')"
#: attributes that a file may want to set: of objects, of the loader's classes, of tensors
ATTRIBUTES = [
    "__class__", "__dict__", "__setstate__", "__reduce__", "__deepcopy__", "numbers", "code",
    "state", "args", "raw", "_metadata", "detach", "layout", "numel", "items", "a",
]  # fmt: skip


def forge(draw: random.Random) -> bytes:
    """The bytes of a checkpoint whose configuration holds an object of a random pickle."""
    operations = io.BytesIO()
    operations.write(b"\x80\x02}(")
    _Writer(draw, operations).text("model")
    operations.write(b"}")
    _Writer(draw, operations).text(draw.choice(["cfg", "cfg", "args", "extra_state", "model"]))
    operations.write(b"}(")
    _Writer(draw, operations).text("model")
    _Writer(draw, operations).value(0)
    operations.write(b"uu.")
    return archive(operations.getvalue())


def archive(pickle: bytes) -> bytes:
    """A file as by ``torch.save``, of a pickle and one storage of 16 numbers."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as entries:
        entries.writestr("x/data.pkl", pickle)
        entries.writestr("x/byteorder", "little")
        entries.writestr("x/data/0", b"\0" * 64)
        entries.writestr("x/version", "3\n")
    return file.getvalue()


def write(pickle: bytes, legacy: bool = False) -> io.BytesIO:
    """A file with this pickle: an `archive`, or as PyTorch wrote files before 1.6."""
    if not legacy:
        return io.BytesIO(archive(pickle))
    parts: tuple[Any, ...] = (MAGIC_NUMBER, PROTOCOL_VERSION, {})
    first = [dumps(part, 2) for part in parts]
    return io.BytesIO(b"".join([*first, pickle, dumps([], 2)]))


class _Writer:
    """Writes operations, each of which leaves one more object on the pickle machine's stack."""

    def __init__(self, draw: random.Random, out: io.BytesIO) -> None:
        self.draw, self.out = draw, out

    def text(self, text: str) -> None:
        raw = text.encode()
        self.out.write(b"X" + struct.pack("<I", len(raw)) + raw)

    def bytes(self, text: str, name: str | None = None) -> None:
        """Text as bytes, as protocol 2 writes them; ``name`` is called with these bytes."""
        if name:
            self.name(name)
        self.name("_codecs encode")
        self.text(text)
        self.text("latin1")
        self.out.write(b"\x86R" + (b"\x85R" if name else b""))

    def name(self, name: str) -> None:
        module, attribute = name.split()
        self.out.write(f"c{module}\n{attribute}\n".encode())

    def value(self, depth: int) -> None:
        kinds: list[Callable[[int], None]] = [*[self.program] * 8, self.constant, self.any_name]
        if depth < 4:
            kinds += [self.container, *[self.object] * (40 if depth == 0 else 2), self.storage]
        self.draw.choice(kinds)(depth)

    def program(self, _: int) -> None:
        self.draw.choice([
            lambda: self.text(PROGRAM),
            lambda: self.bytes(PROGRAM),
            lambda: self.bytes(PROGRAM, "builtins bytearray"),
        ])()  # fmt: skip

    def constant(self, _: int) -> None:
        self.out.write(self.draw.choice(
            [b"N", b"\x88", b"\x89", b")", b"]", b"}", b"K\x01", b"K\x08", b"G" + b"\0" * 8]
        ))  # fmt: skip

    def any_name(self, _: int) -> None:
        draw = self.draw
        [names] = draw.choices([WITH_STATE, LIKELY, NAMES, REFUSED], [50, 20, 29, 1])
        self.name(draw.choice(names))

    def storage(self, _: int) -> None:
        """A tensor of eight numbers, of the only storage in the file."""
        self.name("torch._utils _rebuild_tensor_v2")
        self.out.write(b"((")
        self.text("storage")
        self.name("torch FloatStorage")
        self.text("0")
        self.text("cpu")
        self.out.write(b"K\x10tQK\x00K\x08\x85K\x01\x85\x89)tR")

    def container(self, depth: int) -> None:
        draw, out = self.draw, self.out
        match draw.randrange(3):
            case 0:
                self.values(depth, draw.choice([0, 1, 2, 3, 5]))
            case 1:
                out.write(b"](")
                for _ in range(draw.randrange(3)):
                    self.value(depth + 1)
                out.write(b"e")
            case 2:
                self.attributes(depth)

    def values(self, depth: int, count: int) -> None:
        self.out.write(b"(")
        for _ in range(count):
            self.value(depth + 1)
        self.out.write(b"t")

    def attributes(self, depth: int) -> None:
        """A dictionary, mostly of attributes."""
        draw, out = self.draw, self.out
        out.write(b"}(")
        if draw.random() < 0.5:  # one value under every name
            names = [name for name in ATTRIBUTES if not name.startswith("__")]
            self.text(names[0])
            self.value(depth + 1)
            out.write(b"q\x04")
            for name in names[1:]:
                self.text(name)
                out.write(b"h\x04")
        else:
            for _ in range(draw.choice([0, 1, 1, 2])):
                self.text(draw.choice(ATTRIBUTES))
                self.value(depth + 1)
        out.write(b"u")

    def class_attribute(self, _: int) -> None:
        """A dictionary that makes an object one of another class."""
        self.out.write(b"}(")
        self.text("__class__")
        self.name(self.draw.choice(WITH_STATE))
        self.out.write(b"u")

    def object(self, depth: int) -> None:
        """A name that is called or built, and the states that are set on the result."""
        draw, out = self.draw, self.out
        self.any_name(depth)
        if draw.random() < 0.8:
            out.write(b")")
        else:
            self.values(depth, draw.choice([1, 2, 3]))
        # NEWOBJ and REDUCE; PyTorch refuses NEWOBJ_EX
        out.write(draw.choice([b"\x81"] * 30 + [b"R"] * 15 + [b"}\x92"]))
        place = bytes([draw.randrange(4)])
        if draw.random() < 0.3:
            out.write(b"q" + place)  # kept in the memo, where later operations find it
        for _ in range(draw.choice([0, 1, 1, 1, 2])):
            match draw.randrange(6):
                case 0:
                    self.attributes(depth)
                case 1 | 2 | 3:  # a state and the state of slots
                    self.attributes(depth)
                    slots = draw.choice([self.attributes, *[self.class_attribute] * 2])
                    slots(depth)
                    out.write(b"\x86")
                case 4:
                    self.values(depth, draw.choice([2, 5, 8]))
                case 5:
                    self.value(depth + 1)
            out.write(b"b")
        if draw.random() < 0.03:
            out.write(b"h" + place)
            out.write(b"\x86")


def inspect_tree(state: Any) -> Iterator[str]:
    """Each value of a loaded checkpoint that its place may not hold, with its place."""
    plain = {type(None), bool, int, float, str, list, tuple, dict}
    allowed = {
        "cfg": plain | {Namespace},
        "args": plain | {Namespace},
        "model": plain | {OrderedDict, torch.Tensor},
        "last_optimizer_state": plain | {OrderedDict, torch.Tensor},
    }
    numbers = {OrderedDict, torch.Tensor, np.ndarray, np.int64, np.float64, torch.Size, torch.dtype}
    waiting: list[tuple[tuple[str, ...], Any]] = [((), state)]
    while waiting:
        path, value = waiting.pop()
        kind = type(value)
        if kind not in allowed.get(path[0] if path else "", plain | numbers):
            yield f"{'.'.join(path)} is of the type {kind.__name__}"
            continue
        attributes = getattr(value, "__dict__", {})
        if kind is not Namespace and attributes:
            yield f"{'.'.join(path)} has attributes {list(attributes)}"
        if kind is Namespace:
            items = attributes.items()
        elif isinstance(value, dict):
            items = dict.items(value)
        else:
            items = enumerate(value) if isinstance(value, (list, tuple)) else ()
        for key, item in items:
            if type(key) not in (type(None), bool, int, float, str) or str(key).startswith("__"):
                yield f"{'.'.join(path)} has the key {key!r}"
            waiting.append(((*path, str(key)), item))
        if kind is np.ndarray and (value.dtype.kind not in "if" or not value.flags.owndata):
            yield f"{'.'.join(path)} is an array of {value.dtype}, or without memory of its own"
