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

from torch._utils import IMPORT_MAPPING, NAME_MAPPING
from torch.serialization import StorageType

from .plain import Refused, shorten

#: largest depth of nested tuples: Python crashes when it compares a depth of a million
DEEPEST_TUPLE = 50
#: largest absolute value of an integer key: integers that differ by 2^61 - 1 have the same hash
LARGEST_KEY = 1 << 60
#: largest number of keys whose places in a hash table can be chosen: floating-point numbers, and
#: integers that are neither close to 0 nor follow the key before them
MOST_DISTANT_KEYS, CLOSE_KEY = 5000, 1 << 16
#: what a container and a call cost, in parts and characters
CONTAINER_COST, CALL_COST = 60, 200
#: largest index of the memo before anything is in it; pickles count from 0
LARGEST_FIRST_INDEX = 1000

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
#: operations that always give the same object
_ONLY_VALUES = {
    "NONE": Value("constant"),
    "NEWTRUE": Value("constant", True),
    "NEWFALSE": Value("constant", False),
    "EMPTY_TUPLE": Value("tuple", depth=1),
}


class DryRun:
    """Dry runs of the pickles of one file.

    Args:
        names: name in a pickle -> the object that it stands for
        most_size: limit of the parts and characters in all copies that the pickles make, and of the
            costs of containers and calls
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
        self.distant_keys, self.last_key = 0, 0.0
        self.keys_read: set[str] = set()  # of storages
        self.stack: list[Value] = []
        self.memo: dict[int, Value] = {}

    def check(self, pickle: Any, operations: Collection[str] = OPERATIONS) -> Value:
        """Refuse a pickle that needs much more time or memory to load than its size suggests.

        Args:
            pickle: bytes, or a file that is read to the end of its next pickle

        Returns:
            the value that the pickle describes

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
                    raise UnpicklingError(f"GLOBAL {_read_name(str(argument))}")
                else:
                    raise UnpicklingError(f"damaged (it has the operation {operation.name})")
        except Refused:
            raise
        except (ValueError, LookupError) as error:
            raise UnpicklingError(f"damaged ({error})") from error
        return self._pop()

    def _run(self, operation: str, argument: Any) -> None:
        stack, pop = self.stack, self._pop
        match operation:
            case "PROTO" | "STOP":
                pass
            case "MARK":
                stack.append(_MARK)
            case "EMPTY_LIST" | "EMPTY_DICT":
                self._count(CONTAINER_COST)
                stack.append(Value("list" if operation == "EMPTY_LIST" else "dict"))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                stack.append(self._build_tuple([pop() for _ in range(int(operation[-1]))][::-1]))
            case "TUPLE":
                stack.append(self._build_tuple(self._pop_to_mark()))
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
                stack.append(Value("name", _read_name(argument)))
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
                self._count(CALL_COST)
                self.check_storage(pop())
                stack.append(Value("storage"))
            case "BINPUT" | "LONG_BINPUT":
                value = pop()
                self.check_index(argument)
                self.memo[argument] = value
                stack.append(value)
            case "BINGET" | "LONG_BINGET":
                stack.append(self.memo[argument])
            case "NONE" | "NEWTRUE" | "NEWFALSE" | "EMPTY_TUPLE":
                stack.append(_ONLY_VALUES[operation])
            case "SHORT_BINSTRING":  # PyTorch reads UTF-8
                text = argument.encode("latin-1").decode("utf-8")
                stack.append(Value("constant", text, size=len(text)))
            case _:
                length = len(argument) if isinstance(argument, str) else 1
                stack.append(Value("constant", argument, size=length))

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

    def _build_tuple(self, parts: list[Value]) -> Value:
        self._count(CONTAINER_COST)
        depth = 1 + max((value.depth for value in parts), default=0)
        if depth > DEEPEST_TUPLE:
            raise Refused(f"it has tuples nested more than {DEEPEST_TUPLE} deep")
        return Value("tuple", depth=depth, size=1 + len(parts), parts=tuple(parts))

    def _count_copies(self, arguments: Value) -> int:
        """The parts and characters that a call may copy, which count against the limit."""
        size = sum(value.size for value in (arguments, *arguments.parts))
        self._count(CALL_COST + size)
        return size

    def _count(self, size: int) -> None:
        self.size_left -= size
        if self.size_left < 0:
            raise Refused("it makes copies of more than is in the file")

    def check_key(self, key: Value) -> None:
        """Refuse keys that are slow to hash, or that may all have one place in a hash table."""
        number = key.content
        if key.kind != "constant":
            raise Refused("it has a key that is neither a number nor text")
        if not isinstance(number, int | float):
            return
        if isinstance(number, int) and abs(number) > LARGEST_KEY:
            raise Refused("it has an integer key above 2^60")
        is_next, self.last_key = number == self.last_key + 1, number
        if isinstance(number, float) or (abs(number) > CLOSE_KEY and not is_next):
            self.distant_keys += 1
            if self.distant_keys > MOST_DISTANT_KEYS:
                raise Refused(
                    f"it has more than {MOST_DISTANT_KEYS:,} keys that are neither text, nor "
                    f"integers up to {CLOSE_KEY:,}, nor the successor of the key before them"
                )

    def check_index(self, index: int) -> None:
        """Refuse indices of the memo that do not count: they may have one place in a table."""
        if index > LARGEST_FIRST_INDEX + 2 * len(self.memo):
            raise Refused("its values are not numbered in order")

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
        # NumPy's states are only recorded; states of a user's types are attributes and slots
        is_numpy = target.content.startswith("numpy.")
        has_slots = state.kind == "tuple" and target.content != "collections.OrderedDict"
        is_plain = is_numpy or {part.kind for part in state.parts} <= {"constant", "dict"}
        if not (state.kind == "dict" or (has_slots and is_plain)):
            raise Refused(f"it sets the state of {shorten(target.content)} to another value")

    def check_storage(self, identity: Value) -> None:
        """Refuse storages of other sizes than in the file."""
        kinds = ["constant", "name", "constant", "constant", "constant"]
        if self.records is None:  # and None, or a view of another storage
            kinds.append("constant")
        if [part.kind for part in identity.parts] != kinds:
            raise Refused("it refers to a value outside the pickle that is not a storage")
        _, name, key, location, numel, *view = (part.content for part in identity.parts)
        storage_type = self.names.get(name)
        if not isinstance(storage_type, StorageType):
            raise UnpicklingError(f"GLOBAL {name}")
        if type(key) is not str or type(numel) is not int or numel < 0 or view not in ([], [None]):
            raise Refused("it has a storage without a name or a size")
        if location == "meta":  # PyTorch would read it again at each place
            raise Refused(f"its storage {shorten(key)} is on the device meta")
        size = numel * storage_type.dtype.itemsize
        if self.records is None:
            self.bytes_left -= 0 if key in self.keys_read else size
            self.keys_read.add(key)
            if self.bytes_left < 0:
                raise Refused("it has storages of more numbers than are in the file")
        elif size != len(self.records.get(f"data/{key}", range(-1, 0))):
            raise Refused(f"its storage {shorten(key)} has another size than its record")


def _read_name(argument: str) -> str:
    """The name in a GLOBAL operation; PyTorch reads Python 2's names as Python 3's."""
    module, _, name = argument.partition(" ")
    module, name = NAME_MAPPING.get((module, name), (IMPORT_MAPPING.get(module, module), name))
    return f"{module}.{name}"
