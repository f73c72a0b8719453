"""Evaluation of Python literals without running code."""

import ast
import operator
import warnings
from collections.abc import Sized
from typing import Any

#: operators in fairseq's options, such as `[(512, 3)] * 20` (the convolutions of fconv)
_OPERATIONS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
#: limit of the length of a text and of the size of its value
_LONGEST = 100_000
#: limit of the size of an operator's result, of which a text has thousands: `[0] * 10 ** 9` is an
#: attack on memory
_LARGEST_RESULT = 1_000


def literal(text: str) -> Any:
    """The value of a Python literal, or of an arithmetic expression of literals.

    Raises:
        ValueError: it is anything else, such as a name, a call or an attribute
    """
    try:
        if len(text) > _LONGEST:
            raise ValueError("too long")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the parser emits one for `1if`, for example
            value = _value(ast.parse(text.strip(), mode="eval").body)
        if _size(value) > _LONGEST:
            raise ValueError("too long")
        return value
    # the errors of parser and operators, those of deep nesting included
    except (SyntaxError, ValueError, TypeError, ArithmeticError, RecursionError, MemoryError):
        raise ValueError(f"not a literal: {text!r}") from None


def _value(node: Any) -> Any:
    match node:
        case ast.List(elts=items):
            return [_value(item) for item in items]
        case ast.Tuple(elts=items):
            return tuple(_value(item) for item in items)
        case ast.Dict(keys=keys, values=values):
            return {_value(key): _value(value) for key, value in zip(keys, values, strict=True)}
        case ast.BinOp(left=a, op=op, right=b) if type(op) in _OPERATIONS:
            return _combined(type(op), _value(a), _value(b))
        case _:
            return ast.literal_eval(node)


def _combined(op: type[ast.operator], a: Any, b: Any) -> Any:
    size = _size(a) + _size(b)
    if op is ast.Mult and isinstance(a, Sized) != isinstance(b, Sized):  # a sequence and a number
        size = _size(a) * b if isinstance(a, Sized) else a * _size(b)
    if size > _LARGEST_RESULT:
        raise ValueError("too long")
    return _OPERATIONS[op](a, b)


def _size(value: Any) -> int:
    """The number of containers, characters and numbers in ``value``."""
    if isinstance(value, dict):
        return 1 + sum(_size(key) + _size(inside) for key, inside in value.items())
    if isinstance(value, (list, tuple)):
        return 1 + sum(map(_size, value))
    return 1 + len(value) if isinstance(value, (str, bytes)) else 1
