"""NumPy's numbers are read from a checkpoint, and no other arrays."""

import numpy as np
import pytest
import torch

from diet_fairseq import checkpoints
from tests.support import hostile
from tests.support.checkpoints import refusal, saved

# --- NumPy's numbers

NUMBERS = [
    np.array([1, -2, 3]),
    np.array([[1.5, 2], [3, 4], [5, np.inf]]),
    np.asfortranarray([[1.0, 2], [3, 4]]),
    np.array(3.5),
    np.float64(2.5),
    np.int64(-3),
]


@pytest.mark.parametrize("numpy_1", [False, True])
@pytest.mark.parametrize("value", NUMBERS, ids=repr)
def test_numpys_numbers_are_read(value, numpy_1, tmp_path):
    path = saved(tmp_path / "x.pt", numbers=value)
    if numpy_1:  # names of NumPy 1, whose dtypes are called with 0 and 1
        path.write_bytes(hostile._repacked(path.read_bytes(), lambda p: (
            p.replace(b"numpy._core.", b"numpy.core.").replace(b"\x89\x88\x87", b"K\0K\1\x87")
        )))  # fmt: skip
    numbers = checkpoints.read(path)["numbers"]
    assert type(numbers) is type(value)
    assert numbers.dtype == value.dtype
    np.testing.assert_array_equal(numbers, value)
    if isinstance(value, np.ndarray):
        numbers += 1  # it has memory of its own
        again = checkpoints.read(saved(tmp_path / "again.pt", numbers=numbers))["numbers"]
        np.testing.assert_array_equal(again, numbers)


class Kind:
    """A ``numpy.dtype`` as a pickle may describe it."""

    def __init__(self, code, *state):
        self.code, self.state = code, state

    def __reduce__(self):
        return np.dtype, (self.code, False, True), *self.state


class Numbers:
    """A ``numpy.ndarray`` as a pickle may describe it."""

    def __init__(self, kind, shape, raw):
        self.state = 1, shape, kind, False, raw

    def __reduce__(self):
        return np.empty(0).__reduce__()[0], (np.ndarray, (0,), b"b"), self.state


INT = (3, "<", None, None, None, -1, -1, 0)
#: int64 by its name, but an object by its field, and with flags that say that it holds none
POINTERS = Kind("i8", (3, "|", None, ("a",), {"a": (Kind("O"), 0)}, 8, 1, 0))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Numbers(POINTERS, (3,), b"A" * 24), "x holds numbers in the byte order '|'"),
        (np.array([None], dtype=object), "numbers of the type 'O8', not int64 or float64"),
        (np.array(["a"]), "numbers of the type 'U1', not int64 or float64"),
        (np.zeros(1, ">f8"), "numbers in the byte order '>'"),
        (Numbers(Kind("i8", INT), (1,), [1]), "numbers that are not stored as bytes"),
        (Numbers(Kind("i8", INT), (2,), b"A" * 24), "3 numbers in an array of another shape"),
        (Numbers(Kind("i8", INT), (1,), b"A" * 7), "truncated numbers"),
        (Numbers(Kind("i8", INT), (-3, -5), b"A" * 120), "an array without a shape"),
        (Numbers(Kind(8, INT), (1,), b"A" * 8), "numbers of the type int, not int64 or float64"),
        (Numbers(INT, (1,), b"A" * 8), "numbers without a type"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_no_other_array_is_built(value, words, tmp_path):
    assert words in refusal(saved(tmp_path / "x.pt", x=value))


def test_types_that_a_user_allows_do_not_widen_what_a_checkpoint_may_hold(tmp_path):
    path = saved(tmp_path / "x.pt", x=Numbers(POINTERS, (3,), b"A" * 24))
    theirs = [np.ndarray, np.dtype, type(np.dtype(np.int64)), np.empty(0).__reduce__()[0]]
    with torch.serialization.safe_globals(theirs):
        assert "numbers in the byte order '|'" in refusal(path)
        assert set(theirs) <= set(torch.serialization.get_safe_globals())
