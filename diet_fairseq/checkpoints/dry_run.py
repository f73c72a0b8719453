"""A dry run of a pickle: its operations on descriptions of values, before PyTorch runs them.

PyTorch's ``weights_only`` runs no programs, but a small pickle could take all memory or all time: a
value that is stored once can be copied, hashed or printed many times, and a tensor of one number
can be iterated as a tensor of a billion. The dry run refuses such pickles.
"""

import pickletools
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pickle import UnpicklingError
from typing import Any

from torch.serialization import StorageType

from .plain import Refused, shorten

#: largest depth of nested tuples: Python crashes when it compares a depth of a million
DEEPEST_TUPLE = 50
#: largest absolute value of an integer key: integers that differ by 2^61 - 1 have the same hash
LARGEST_KEY = 1 << 60
#: largest number of floating-point keys, of which thousands can have the same hash
MOST_FLOAT_KEYS = 1000

#: operations of pickles without names, as in the parts around the content of an old checkpoint
PLAIN_OPERATIONS = frozenset({
    "PROTO", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1",
    "BINFLOAT", "BINUNICODE", "SHORT_BINSTRING", "EMPTY_LIST", "EMPTY_DICT", "APPEND", "APPENDS",
    "SETITEM", "SETITEMS", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET",
})  # fmt: skip
#: the operations of ``weights_only`` except EMPTY_SET
OPERATIONS = PLAIN_OPERATIONS | {
    "EMPTY_TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "TUPLE", "GLOBAL", "REDUCE", "NEWOBJ", "BUILD",
    "BINPERSID",
}  # fmt: skip


@dataclass(eq=False, slots=True)
class Value:
    """The description of a value on the pickle machine's stack.

    Attributes:
        kind: "constant", "name", "tuple", "list", "dict", "storage", "tensor", or "object" for the
            result of calling any other name
        content: the value of a constant, or a name
        depth: levels of tuples in tuples
        size: number of characters or direct parts; of an object: of all its arguments
        parts: the items of a tuple, which may grow after the tuple is built
    """

    kind: str
    content: Any = None
    depth: int = 0
    size: int = 1
    parts: tuple["Value", ...] = ()


_MARK = Value("mark")


class DryRun:
    """Dry runs of the pickles of one file.

    Args:
        names: name in a pickle -> the object that it stands for
        most_size: limit of the parts and characters in all copies that the pickles make
        records: record of an archive -> its place in the file; None: storages follow the pickle
        most_bytes: limit of the bytes of all storages that follow the pickle
    """

    def __init__(
        self,
        names: Mapping[str, Any],
        most_size: int,
        records: Mapping[str, range] | None,
        most_bytes: int,
    ) -> None:
        self.names, self.records = names, records
        self.size_left, self.bytes_left = most_size, most_bytes
        self.float_keys = 0
        self.keys_read: set[str] = set()  # of storages
        self.stack: list[Value] = []
        self.memo: dict[int, Value] = {}

    def check(self, pickle: Any, operations: Collection[str] = OPERATIONS) -> None:
        """Refuse a pickle that needs much more time or memory to load than its size suggests.

        Args:
            pickle: bytes, or a file that is read to the end of its next pickle

        Raises:
            Refused: a value exceeds a limit, or is used as no checkpoint uses it
            UnpicklingError: the pickle is damaged, or has other ``operations``
        """
        self.stack, self.memo = [], {}
        try:
            for operation, argument, _ in pickletools.genops(pickle):
                if operation.name in operations:
                    self._run(operation.name, argument)
                elif operation.name == "GLOBAL":
                    raise UnpicklingError(f"GLOBAL {str(argument).replace(' ', '.')}")
                else:
                    raise UnpicklingError(f"damaged (it has the operation {operation.name})")
        except Refused:
            raise
        except (ValueError, LookupError) as error:
            raise UnpicklingError(f"damaged ({error})") from error

    def _run(self, operation: str, argument: Any) -> None:
        stack, pop = self.stack, self._pop
        match operation:
            case "PROTO":
                pass
            case "STOP":
                pop()
            case "MARK":
                stack.append(_MARK)
            case "EMPTY_LIST":
                stack.append(Value("list"))
            case "EMPTY_DICT":
                stack.append(Value("dict"))
            case "EMPTY_TUPLE":
                stack.append(_build_tuple([]))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                stack.append(_build_tuple([pop() for _ in range(int(operation[-1]))][::-1]))
            case "TUPLE":
                stack.append(_build_tuple(self._pop_to_mark()))
            case "APPEND":
                self._add([pop()])
            case "APPENDS":
                self._add(self._pop_to_mark())
            case "SETITEM":
                value, key = pop(), pop()
                self._add_items([key, value])
            case "SETITEMS":
                self._add_items(self._pop_to_mark())
            case "GLOBAL":
                stack.append(Value("name", argument.replace(" ", ".")))
            case "REDUCE" | "NEWOBJ":
                arguments, called = pop(), pop()
                self.check_call(called, arguments)
                is_tensor = str(called.content).startswith("torch._utils._rebuild_")
                kind = "tensor" if is_tensor else "object"
                stack.append(Value(kind, called.content, size=1 + self._count_copies(arguments)))
            case "BUILD":
                state, target = pop(), pop()
                self.check_state(target, state)
                self._count_copies(state)
                stack.append(target)
            case "BINPERSID":
                self.check_storage(pop())
                stack.append(Value("storage"))
            case "BINPUT" | "LONG_BINPUT":
                value = pop()
                self.memo[argument] = value
                stack.append(value)
            case "BINGET" | "LONG_BINGET":
                stack.append(self.memo[argument])
            case _:
                constant = {"NEWTRUE": True, "NEWFALSE": False}.get(operation, argument)
                length = len(constant) if isinstance(constant, str) else 1
                stack.append(Value("constant", constant, size=length))

    def _pop(self) -> Value:
        value = self.stack.pop()
        if value is _MARK:
            raise LookupError("a value is missing")
        return value

    def _pop_to_mark(self) -> list[Value]:
        values = []
        while (value := self.stack.pop()) is not _MARK:
            values.append(value)
        return values[::-1]

    def _add(self, items: list[Value]) -> None:
        container = self._pop()
        container.size += len(items)
        self.stack.append(container)

    def _add_items(self, items: list[Value]) -> None:
        for key in items[::2]:
            self.check_key(key)
        self._add(items)

    def _count_copies(self, arguments: Value) -> int:
        """The parts and characters that a call may copy, which count against the limit."""
        size = sum(value.size for value in (arguments, *arguments.parts))
        self.size_left -= size
        if self.size_left < 0:
            raise Refused("it makes copies of more than is in the file")
        return size

    def check_key(self, key: Value) -> None:
        """Refuse keys that are slow to hash, or that may all have one hash."""
        if key.kind != "constant":
            raise Refused("it has a key that is neither a number nor text")
        if isinstance(key.content, float):
            self.float_keys += 1
            if self.float_keys > MOST_FLOAT_KEYS:
                raise Refused(f"it has more than {MOST_FLOAT_KEYS:,} keys that are not integers")
        elif isinstance(key.content, int) and abs(key.content) > LARGEST_KEY:
            raise Refused("it has an integer key above 2^60")

    def check_call(self, called: Value, arguments: Value) -> None:
        """Refuse calls of anything but names, and arguments that are not in a tuple."""
        if called.kind != "name":
            raise Refused("it calls a value that is not a name")
        if arguments.kind != "tuple":
            raise Refused(f"it calls {shorten(called.content)} with arguments that are not a tuple")

    def check_state(self, target: Value, state: Value) -> None:
        """Refuse states of tensors, and states that would be iterated."""
        if target.kind != "object":
            raise Refused("it sets the state of a value that has no state")
        is_ordered_dict = target.content == "collections.OrderedDict"
        if state.kind not in (("dict",) if is_ordered_dict else ("dict", "tuple")):
            raise Refused(f"it sets the state of {shorten(target.content)} to another value")

    def check_storage(self, identity: Value) -> None:
        """Refuse storages of other sizes than in the file."""
        kinds = [part.kind for part in identity.parts[:5]]
        others = [item for part in identity.parts[5:] for item in part.parts or (part,)]
        if (
            kinds != ["constant", "name", "constant", "constant", "constant"]
            or len(others) > 3
            or any(item.kind != "constant" for item in others)
        ):
            raise Refused("it refers to a value outside the pickle that is not a storage")
        _, name, key, _, numel = (part.content for part in identity.parts[:5])
        storage_type = self.names.get(name)
        if not isinstance(storage_type, StorageType):
            raise UnpicklingError(f"GLOBAL {name}")
        if type(key) is not str or type(numel) is not int or numel < 0:
            raise Refused("it has a storage without a name or a size")
        size = numel * storage_type.dtype.itemsize
        if self.records is None:
            self.bytes_left -= 0 if key in self.keys_read else size
            self.keys_read.add(key)
            if self.bytes_left < 0:
                raise Refused("it has storages of more numbers than are in the file")
        elif size != len(self.records.get(f"data/{key}", range(-1, 0))):
            raise Refused(f"its storage {shorten(key)} has another size than its record")


def _build_tuple(parts: list[Value]) -> Value:
    depth = 1 + max((value.depth for value in parts), default=0)
    if depth > DEEPEST_TUPLE:
        raise Refused(f"it has tuples nested more than {DEEPEST_TUPLE} deep")
    return Value("tuple", depth=depth, size=1 + len(parts), parts=tuple(parts))
