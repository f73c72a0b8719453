"""Checks of an exported CTranslate2 folder, before CTranslate2 reads it.

CTranslate2 trusts the names, shapes and values in ``model.bin``: a forged folder can crash the
process. So only the form that `export.ctranslate2` writes is loaded: a ``TransformerSpec`` whose
variables have consistent names, types and shapes, and vocabularies with as many words as the
embeddings have rows.
"""

import math
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from pydantic import BaseModel

from .. import input_files
from ..errors import UserError, one_line

AGAIN = (
    "export the model again, or give --any-ctranslate2 if you trust the folder, which can run into "
    "memory errors"
)
#: versions of model.bin's format and of `ctranslate2.specs.TransformerSpec`
VERSION, SPEC, REVISION = 6, "TransformerSpec", 7
#: CTranslate2's numbers of types -> bytes of a number
TYPES = {0: 4, 1: 1, 2: 2, 3: 4, 4: 2, 5: 2}
FLOAT32, INT8, INT16, INT32 = 0, 1, 2, 3
FLOATS = (0, 4, 5)  # float32, float16, bfloat16
MOST_LAYERS = 1000

_ZERO = (INT8, (0,))
_SCALARS: dict[str, tuple[int, Any]] = {
    "activation": (INT8, range(6)),
    "num_heads": (INT16, None),
    "pre_norm": (INT8, (0, 1)),
    "scale_embeddings": (FLOAT32, None),
}
#: scalars of encoder and decoder -> type, and values that the export writes (None: checked below)
SCALARS: dict[str, dict[str, tuple[int, Any]]] = {
    "encoder": _SCALARS | {"embeddings_merge": (INT8, (1,)), "multi_query_attention": _ZERO},
    "decoder": _SCALARS
    | {
        "alibi": _ZERO,
        "alibi_use_positive_positions": _ZERO,
        "alignment_heads": (INT16, (0,)),
        "alignment_layer": (INT16, (-1,)),
        "scale_alibi": _ZERO,
        "start_from_zero_embedding": _ZERO,
    },
}
FORMATS = {FLOAT32: "<f", INT8: "<b", INT16: "<h", INT32: "<i"}


class Fault(ValueError):
    """A difference from the form that the export writes."""


@dataclass(frozen=True)
class Variable:
    """An array of ``model.bin``: its shape, CTranslate2's number of its type, a scalar's value."""

    shape: tuple[int, ...]
    type: int
    value: float | None = None


class Config(BaseModel, strict=True):
    """The content of CTranslate2's ``config.json``."""

    add_source_bos: Literal[False]
    add_source_eos: Literal[True]
    bos_token: str
    decoder_start_token: str
    eos_token: str
    unk_token: str
    layer_norm_epsilon: None = None
    multi_query_attention: Literal[False] = False


def check(folder: Path) -> None:
    """Refuse a folder that `export.ctranslate2` has not written.

    Raises:
        UserError: a file differs from the form that the export writes; the first fault is named
    """
    model = folder / "model.bin"
    input_files.read_object(folder / "config.json", Config, advice=AGAIN)
    vocabularies = [len(words) for words in read_vocabularies(folder)]
    try:
        with input_files.open_regular(model, advice=AGAIN) as file:
            variables = read_variables(file)
        check_variables(variables, *vocabularies)
    except Fault as fault:
        raise UserError(
            f"{model} is not as `diet-fairseq export ctranslate2` writes it "
            f"({one_line(str(fault))}): {AGAIN}"
        ) from fault


def read_vocabularies(folder: Path) -> tuple[list[str], list[str]]:
    """The words of source and target; the folder may hold no other vocabulary."""
    files = {path.name for path in folder.glob("*vocabulary*")}
    shared, separate = (
        {"shared_vocabulary.json"},
        {"source_vocabulary.json", "target_vocabulary.json"},
    )
    if files not in (shared, separate):
        names = one_line(", ".join(sorted(files))) or "none"
        raise UserError(
            f"{folder} must have shared_vocabulary.json, or source_vocabulary.json and "
            f"target_vocabulary.json, but has {names}: {AGAIN}"
        )
    source, *target = (_words(folder / name) for name in sorted(files))
    return source, target[0] if target else source


def _words(path: Path) -> list[str]:
    words = input_files.read_json(path, input_files.VOCABULARY, AGAIN)
    if not (isinstance(words, list) and all(isinstance(word, str) for word in words)):
        raise UserError(f"{path} is no list of words: {AGAIN}")
    return words


def read_variables(file: BinaryIO) -> dict[str, Variable]:
    """The arrays of an open ``model.bin`` and their aliases, by name; numbers are not read.

    Raises:
        Fault: the file is of another format, or cut
    """
    size = file.seek(0, 2)
    file.seek(0)

    def take(form: str) -> tuple[Any, ...]:
        data = file.read(struct.calcsize(form))
        if len(data) < struct.calcsize(form):
            raise Fault("it is cut")
        return struct.unpack(form, data)

    def name() -> str:
        (length,) = take("<H")
        (text,) = take(f"<{length}s")
        if text[-1:] != b"\0" or b"\0" in text[:-1]:
            raise Fault("a name does not end")
        return str(text[:-1].decode("utf-8", "replace"))

    (version,) = take("<I")
    spec = name() if version == VERSION else ""
    revision, count = take("<II")
    if (version, spec, revision) != (VERSION, SPEC, REVISION):
        raise Fault(f"it holds version {version} of {spec or 'the format'}, revision {revision}")
    variables: dict[str, Variable] = {}
    for _ in range(count):
        key = name()
        (rank,) = take("<B")
        shape = take(f"<{rank}I")
        kind, length = take("<BI")
        if kind not in TYPES or length != math.prod(shape) * TYPES[kind]:
            raise Fault(f"{key} has {length} bytes, not those of its shape {shape}")
        if file.tell() + length > size:
            raise Fault("it is cut")
        value = None
        if not shape and kind in FORMATS:
            (value,) = take(FORMATS[kind])
        else:
            file.seek(length, 1)
        if key in variables:
            raise Fault(f"{key} is there twice")
        variables[key] = Variable(shape, kind, value)
    (count,) = take("<I")
    arrays = dict(variables)
    for _ in range(count):
        alias, key = name(), name()
        if key not in arrays or alias in variables:
            raise Fault(f"the alias {alias} of {key} leads nowhere")
        variables[alias] = arrays[key]
        if f"{key}_scale" in arrays:  # which follows its weight
            variables[f"{alias}_scale"] = arrays[f"{key}_scale"]
    if file.tell() != size:
        raise Fault("it goes on behind its end")
    return variables


def check_variables(variables: Mapping[str, Variable], source: int, target: int) -> None:
    """Refuse inconsistent variables; ``source`` and ``target`` are numbers of words.

    Raises:
        Fault: with the name of the first wrong variable
    """
    shapes: dict[str, tuple[int, ...]] = {}
    optional: set[str] = set()
    widths = {}
    for side, words, table in (
        ("encoder", source, "embeddings_0"),
        ("decoder", target, "embeddings"),
    ):
        embeddings = _matrix(variables, f"{side}/{table}/weight")
        widths[side] = width = embeddings[1]
        heads = _check_scalars(variables, side, width)
        linear = {f"{side}/{table}": (words, width)}
        norms = [f"{side}/layer_norm", f"{side}/layernorm_embedding"]
        optional.update(f"{norm}/gamma" for norm in norms)
        if side == "decoder":
            linear["decoder/projection"] = (words, width)
        encodings = f"{side}/position_encodings/encodings"
        if encodings in variables:
            shapes[encodings] = (_matrix(variables, encodings)[0], width)
        for layer in _layers(variables, side):
            inner = _matrix(variables, f"{layer}/ffn/linear_0/weight")[0]
            linear |= {
                f"{layer}/self_attention/linear_0": (3 * width, width),
                f"{layer}/self_attention/linear_1": (width, width),
                f"{layer}/ffn/linear_0": (inner, width),
                f"{layer}/ffn/linear_1": (width, inner),
            }
            norms += [f"{layer}/self_attention/layer_norm", f"{layer}/ffn/layer_norm"]
            if side == "decoder":
                linear |= {
                    f"{layer}/attention/linear_0": (width, width),
                    f"{layer}/attention/linear_1": (2 * width, widths["encoder"]),
                    f"{layer}/attention/linear_2": (width, width),
                }
                norms.append(f"{layer}/attention/layer_norm")
            shapes |= _positions(variables, layer, side, width, heads)
        for name, shape in linear.items():
            shapes |= {f"{name}/weight": shape, f"{name}/bias": shape[:1]}
            optional.add(f"{name}/bias")
            weight = variables.get(f"{name}/weight")
            if weight is not None and weight.type in (INT8, INT16):
                shapes[f"{name}/weight_scale"] = shape[:1] if weight.type == INT8 else ()
        for name in norms:
            shapes |= {f"{name}/gamma": (width,), f"{name}/beta": (width,)}
            optional.add(f"{name}/beta")
        shapes |= {f"{side}/{name}": () for name in SCALARS[side]}
    for name, expected in shapes.items():
        if name not in variables and name not in optional:
            raise Fault(f"{name} is missing")
        if name in variables and variables[name].shape != expected:
            raise Fault(f"{name} has the shape {variables[name].shape}, not {expected}")
    for name in variables:
        if name not in shapes:
            raise Fault(f"{name} does not belong to such a model")
    _check_types(variables)


def _matrix(variables: Mapping[str, Variable], name: str) -> tuple[int, int]:
    """The shape of a matrix that is not empty."""
    shape = variables[name].shape if name in variables else ()
    if len(shape) != 2 or not all(shape):
        raise Fault(f"{name} has the shape {shape}, or is missing")
    return shape[0], shape[1]


def _check_scalars(variables: Mapping[str, Variable], side: str, width: int) -> int:
    """Check the scalars of the encoder or decoder, and return its number of heads."""
    for name, (kind, values) in SCALARS[side].items():
        scalar = variables.get(f"{side}/{name}")
        if scalar is None or scalar.type != kind or scalar.value is None:
            raise Fault(f"{side}/{name} is missing, or of another type")
        if values is not None and scalar.value not in values:
            raise Fault(f"{side}/{name} is {scalar.value:g}")
    heads = variables[f"{side}/num_heads"].value or 0
    if heads < 1 or width % heads:
        raise Fault(f"{side}/num_heads is {heads:g}, which does not divide the width, {width}")
    if not math.isfinite(variables[f"{side}/scale_embeddings"].value or 0):
        raise Fault(f"{side}/scale_embeddings is not finite")
    return int(heads)


def _layers(variables: Mapping[str, Variable], side: str) -> Iterator[str]:
    """The name prefixes of all layers, which are counted from 0."""
    matches = (re.match(rf"{side}/layer_(0|[1-9]\d{{0,3}})/", name, re.ASCII) for name in variables)
    numbers = {int(match[1]) for match in matches if match}
    if numbers != set(range(len(numbers))) or not 0 < len(numbers) <= MOST_LAYERS:
        raise Fault(f"the layers of the {side} are not counted from 0")
    yield from (f"{side}/layer_{number}" for number in range(len(numbers)))


def _positions(
    variables: Mapping[str, Variable], layer: str, side: str, width: int, heads: int
) -> dict[str, tuple[int, ...]]:
    """Shapes of a layer's positions, as `export.ctranslate2.positions` writes them, if any."""
    part, first = f"{layer}/self_attention", f"{side}/layer_0/self_attention"
    bias, keys = f"{part}/relative_attention_bias", f"{part}/relative_position_keys"
    for kind in ("relative_attention_bias", "relative_position_keys"):
        if (f"{part}/{kind}" in variables) != (f"{first}/{kind}" in variables):
            raise Fault(f"{part}/{kind} is not in all layers")
    if bias in variables:
        rows, directions = _matrix(variables, bias)[0], 2 if side == "encoder" else 1
        name = f"{part}/relative_attention_max_distance"
        distance = variables.get(name, Variable((), FLOAT32))
        if (
            distance.type != INT32
            or (distance.value or 0) * directions != rows
            or rows % (2 * directions)
        ):
            raise Fault(f"{name} is not that of {rows} buckets")
        if keys in variables:
            raise Fault(f"{part} has two kinds of positions")
        return {bias: (rows, heads), name: ()}
    if keys in variables:
        rows = _matrix(variables, keys)[0]
        if rows % 2 == 0:
            raise Fault(f"{keys} has {rows} rows, which are not symmetric")
        values = f"{part}/relative_position_values"
        shape = (rows, width // heads)
        return {keys: shape, **({values: shape} if values in variables else {})}
    return {}


def _check_types(variables: Mapping[str, Variable]) -> None:
    """Check that all matrices have one type, and all else float32 or the half precision of both."""
    matrices, others = set(), set()
    scalars = {f"{side}/{name}" for side, names in SCALARS.items() for name in names}
    for name, variable in variables.items():
        if name in scalars or name.endswith("/relative_attention_max_distance"):
            continue
        if name.endswith("/weight"):
            matrices.add(variable.type)
        elif name.endswith("/weight_scale"):
            if variable.type != FLOAT32:
                raise Fault(f"{name} is not of float32")
        else:
            others.add(variable.type)
    matrix, *further = matrices
    if (
        further
        or matrix == INT32
        or not others <= set(FLOATS)
        or len(others - {FLOAT32}) > 1
        or (matrix in FLOATS and not others <= {FLOAT32, matrix})
    ):
        raise Fault("its parameters are of types that do not go together")
