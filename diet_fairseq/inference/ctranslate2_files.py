"""Checks of an exported CTranslate2 folder, before CTranslate2 reads it.

CTranslate2 trusts the names, shapes and values in ``model.bin``: a forged folder can crash the
process. So only the form that `export.ctranslate2` writes is loaded: a ``TransformerSpec`` whose
variables have consistent names, types and shapes, and vocabularies with as many words as the
embeddings have rows.
"""

import math
import struct
from collections.abc import Collection, Mapping
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
#: version of model.bin's format, and name and revision of `ctranslate2.specs.TransformerSpec`
FORMAT = (6, "TransformerSpec", 7)
#: CTranslate2's numbers of types -> bytes of a number
TYPES = {0: 4, 1: 1, 2: 2, 3: 4, 4: 2, 5: 2}
FLOAT32, INT8, INT16, INT32 = 0, 1, 2, 3
FLOATS = {FLOAT32, 4, 5}  # and float16, bfloat16
#: types of scalars -> format of `struct`
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
        TransformerCheck(variables).check(*vocabularies)
    except Fault as fault:
        raise UserError(
            f"{model} is not as `diet-fairseq export ctranslate2` writes it "
            f"({one_line(str(fault))}): {AGAIN}"
        ) from fault


def read_vocabularies(folder: Path) -> tuple[list[str], list[str]]:
    """The words of source and target; the folder may hold no other vocabulary."""
    names = sorted(path.name for path in folder.glob("*vocabulary*"))
    separate = ["source_vocabulary.json", "target_vocabulary.json"]
    if names not in (["shared_vocabulary.json"], separate):
        raise UserError(
            f"{folder} must have shared_vocabulary.json, or source_vocabulary.json and "
            f"target_vocabulary.json, but has {one_line(', '.join(names)) or 'none'}: {AGAIN}"
        )
    vocabularies = []
    for name in names:
        words = input_files.read_json(folder / name, input_files.VOCABULARY, AGAIN)
        if not (isinstance(words, list) and all(isinstance(word, str) for word in words)):
            raise UserError(f"{folder / name} is no list of words: {AGAIN}")
        vocabularies.append(words)
    return vocabularies[0], vocabularies[-1]


def read_variables(file: BinaryIO) -> dict[str, Variable]:
    """The arrays of an open ``model.bin`` and their aliases, by name; numbers are not read.

    Raises:
        Fault: the file is of another format, or cut
    """

    def take(form: str) -> tuple[Any, ...]:
        data = file.read(struct.calcsize(form))
        if len(data) < struct.calcsize(form):
            raise Fault("it is cut")
        return struct.unpack(form, data)

    def name() -> str:
        (text,) = take(f"<{take('<H')[0]}s")
        if text[-1:] != b"\0" or b"\0" in text[:-1]:
            raise Fault("a name does not end")
        return str(text[:-1].decode("utf-8", "replace"))

    (version,) = take("<I")
    spec = name() if version == FORMAT[0] else ""
    revision, count = take("<II")
    if (version, spec, revision) != FORMAT:
        raise Fault(f"it holds version {version} of {spec or 'the format'}, revision {revision}")
    arrays: dict[str, Variable] = {}
    for _ in range(count):
        key = name()
        shape = take(f"<{take('<B')[0]}I")
        kind, length = take("<BI")
        if kind not in TYPES or length != math.prod(shape) * TYPES[kind]:
            raise Fault(f"{key} has {length} bytes, not those of its shape {shape}")
        if key in arrays:
            raise Fault(f"{key} is there twice")
        value = None
        if not shape and kind in FORMATS:
            (value,) = take(FORMATS[kind])
        else:
            file.seek(length, 1)
        arrays[key] = Variable(shape, kind, value)
    variables = dict(arrays)
    for _ in range(take("<I")[0]):
        alias, key = name(), name()
        if key not in arrays or alias in variables:
            raise Fault(f"the alias {alias} of {key} leads nowhere")
        variables[alias] = arrays[key]
        if f"{key}_scale" in arrays:  # which follows its weight
            variables[f"{alias}_scale"] = arrays[f"{key}_scale"]
    if file.read(1):
        raise Fault("it goes on behind its end")
    return variables


class TransformerCheck:
    """Takes the variables of a transformer one by one and compares them with what they must be.

    Every fault is raised as a `Fault` with the name of the first wrong variable.
    """

    def __init__(self, variables: Mapping[str, Variable]) -> None:
        self.variables = dict(variables)  # those that are not taken yet
        self.matrices: set[int] = set()  # types
        self.vectors: set[int] = set()

    def check(self, source: int, target: int) -> None:
        """Check all variables; ``source`` and ``target`` are numbers of words."""
        width = self.take_stack("encoder", "embeddings_0", source, 0)
        self.take_stack("decoder", "embeddings", target, width)
        if self.variables:
            raise Fault(f"{next(iter(self.variables))} does not belong to such a model")
        floats = self.matrices & FLOATS
        if (
            len(self.matrices) > 1
            or not self.matrices <= FLOATS | {INT8, INT16}
            or not self.vectors <= FLOATS
            or len(self.vectors - {FLOAT32}) > 1
            or (floats and not self.vectors <= floats | {FLOAT32})
        ):
            raise Fault("its parameters are of types that do not go together")

    def take_stack(self, side: str, table: str, words: int, source_width: int) -> int:
        """Take the encoder or the decoder, and return its width."""
        width = self.matrix(f"{side}/{table}/weight")[1]
        self.take_linear(f"{side}/{table}", words, width)
        heads = int(self.take_scalar(f"{side}/num_heads", INT16))
        if width % heads:
            raise Fault(f"{side}/num_heads is {heads}, which does not divide the width, {width}")
        self.take_scalar(f"{side}/scale_embeddings", FLOAT32)
        self.take_scalar(f"{side}/activation", INT8, range(6))
        self.take_scalar(f"{side}/pre_norm", INT8, (0, 1))
        if side == "encoder":
            self.take_scalar("encoder/embeddings_merge", INT8, (1,))
            self.take_scalar("encoder/multi_query_attention", INT8, (0,))
        else:
            self.take_linear("decoder/projection", words, width)
            for name in ("alibi", "alibi_use_positive_positions", "scale_alibi"):
                self.take_scalar(f"decoder/{name}", INT8, (0,))
            self.take_scalar("decoder/start_from_zero_embedding", INT8, (0,))
            self.take_scalar("decoder/alignment_heads", INT16, (0,))
            self.take_scalar("decoder/alignment_layer", INT16, (-1,))
        if (name := f"{side}/position_encodings/encodings") in self.variables:
            self.take_vector(name, self.matrix(name)[0], width)
        for name in (f"{side}/layer_norm", f"{side}/layernorm_embedding"):
            if f"{name}/gamma" in self.variables:
                self.take_norm(name, width)
        kinds: list[str] = []
        while f"{side}/layer_{len(kinds)}/ffn/linear_0/weight" in self.variables:
            layer = f"{side}/layer_{len(kinds)}"
            kinds.append(self.take_layer(side, layer, width, heads, source_width))
        if len(set(kinds)) != 1:
            raise Fault(f"the {side} has no layers, or layers with positions of several kinds")
        return width

    def take_layer(self, side: str, layer: str, width: int, heads: int, source_width: int) -> str:
        """Take a layer, and return the kind of its positions."""
        inner = self.matrix(f"{layer}/ffn/linear_0/weight")[0]
        self.take_linear(f"{layer}/ffn/linear_0", inner, width)
        self.take_linear(f"{layer}/ffn/linear_1", width, inner)
        self.take_norm(f"{layer}/ffn/layer_norm", width)
        self.take_linear(f"{layer}/self_attention/linear_0", 3 * width, width)
        self.take_linear(f"{layer}/self_attention/linear_1", width, width)
        self.take_norm(f"{layer}/self_attention/layer_norm", width)
        if side == "decoder":
            self.take_linear(f"{layer}/attention/linear_0", width, width)
            self.take_linear(f"{layer}/attention/linear_1", 2 * width, source_width)
            self.take_linear(f"{layer}/attention/linear_2", width, width)
            self.take_norm(f"{layer}/attention/layer_norm", width)
        return self.take_positions(f"{layer}/self_attention", side, width, heads)

    def take_positions(self, attention: str, side: str, width: int, heads: int) -> str:
        """Take a layer's positions, as `export.ctranslate2.positions` writes them, if any."""
        bias = f"{attention}/relative_attention_bias"
        keys, values = (f"{attention}/relative_position_{name}" for name in ("keys", "values"))
        if bias in self.variables:
            rows, directions = self.matrix(bias)[0], 2 if side == "encoder" else 1
            name = f"{attention}/relative_attention_max_distance"
            distance = self.take_scalar(name, INT32)
            if distance * directions != rows or rows % (2 * directions):
                raise Fault(f"{name} is not that of {rows} buckets")
            self.take_vector(bias, rows, heads)
            return "bias"
        if keys in self.variables:
            rows = self.matrix(keys)[0]
            if rows % 2 == 0:
                raise Fault(f"{keys} has {rows} rows, which are not symmetric")
            self.take_vector(keys, rows, width // heads)
            if values in self.variables:
                self.take_vector(values, rows, width // heads)
            return "keys"
        if f"{attention}/rotary_dim" in self.variables:
            self.take_scalar(f"{attention}/rotary_dim", INT32, range(2, width // heads + 1, 2))
            self.take_scalar(f"{attention}/rotary_interleave", INT8, (0,))
            self.take_scalar(f"{attention}/rotary_base", FLOAT32)
            if f"{attention}/rotary_scaling_type" in self.variables:
                self.take_scalar(f"{attention}/rotary_scaling_type", INT8, (0,))
                self.take_scalar(f"{attention}/rotary_scaling_factor", FLOAT32)
            return "rotary"
        return "none"

    def take_linear(self, name: str, rows: int, columns: int) -> None:
        """Take a matrix, with its scale if it is of integers, and its bias if there is one."""
        weight = self.take(f"{name}/weight", rows, columns)
        self.matrices.add(weight.type)
        if weight.type not in FLOATS:
            scale = self.take(f"{name}/weight_scale", *([rows] if weight.type == INT8 else []))
            if scale.type != FLOAT32:
                raise Fault(f"{name}/weight_scale is not of float32")
        if f"{name}/bias" in self.variables:
            self.take_vector(f"{name}/bias", rows)

    def take_norm(self, name: str, width: int) -> None:
        self.take_vector(f"{name}/gamma", width)
        if f"{name}/beta" in self.variables:
            self.take_vector(f"{name}/beta", width)

    def take_vector(self, name: str, *shape: int) -> None:
        """Take a parameter that is no weight of a product: a table, a bias, a norm."""
        self.vectors.add(self.take(name, *shape).type)

    def take_scalar(self, name: str, kind: int, values: Collection[float] | None = None) -> float:
        """Take a number of ``values``, or above 0."""
        scalar = self.take(name)
        if scalar.type != kind or scalar.value is None:
            raise Fault(f"{name} is of another type")
        is_valid = 0 < scalar.value < math.inf if values is None else scalar.value in values
        if not is_valid:
            raise Fault(f"{name} is {scalar.value:g}")
        return scalar.value

    def take(self, name: str, *shape: int) -> Variable:
        if name not in self.variables:
            raise Fault(f"{name} is missing")
        variable = self.variables.pop(name)
        if variable.shape != shape:
            raise Fault(f"{name} has the shape {variable.shape}, not {shape}")
        return variable

    def matrix(self, name: str) -> tuple[int, int]:
        """The shape of a matrix that is not empty."""
        shape = self.variables[name].shape if name in self.variables else ()
        if len(shape) != 2 or not all(shape):
            raise Fault(f"{name} has the shape {shape}, or is missing")
        return shape[0], shape[1]
