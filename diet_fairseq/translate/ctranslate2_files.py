"""Checks of an exported CTranslate2 folder, before CTranslate2 reads it.

CTranslate2 trusts the names, shapes and values in ``model.bin``: a forged folder can crash the
process. Therefore only the format that `export.ctranslate2` writes is loaded.
"""

import math
import struct
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from .. import files
from ..errors import UserError, one_line

ADVICE = "export it again, or give --any-ctranslate2 if you trust it: it can run into memory errors"
#: version of model.bin's format, and name and revision of `ctranslate2.specs.TransformerSpec`
FORMAT = (6, "TransformerSpec", 7)
#: `struct`'s formats of float32, int8, int16, int32, float16 and bfloat16: CTranslate2's types
TYPES = "fbhieH"
#: type of matrices and type of all other parameters, for each quantization
QUANTIZATIONS = ("ff", "bf", "be", "bH", "hf", "ee", "HH")
#: the content of config.json
CONFIG = {
    "add_source_bos": False, "add_source_eos": True, "layer_norm_epsilon": None,
    "bos_token": "<s>", "eos_token": "</s>", "decoder_start_token": "</s>", "unk_token": "<unk>",
    "multi_query_attention": False,
}  # fmt: skip

#: the content of config.json if language tokens replace the ends of sentences
MARKED_CONFIG = CONFIG | {"add_source_eos": False, "decoder_start_token": None}

#: shape, type, and allowed values of a number (empty: all positive finite values)
Rule = tuple[tuple[int, ...], str, Collection[float]]


class Variable(NamedTuple):
    """The shape and type of an array in ``model.bin``, and the value if it is a number."""

    shape: tuple[int, ...]
    type: str
    value: Any = 1


def check_ctranslate2_folder(folder: Path) -> None:
    """Refuse a folder that is not in the format of `export.ctranslate2`.

    Raises:
        UserError: a file differs from the format that the export writes
    """
    model = folder / "model.bin"
    config = files.read_json(folder / "config.json", advice=ADVICE)
    if not isinstance(config, dict) or all(
        form | config != form for form in (CONFIG, MARKED_CONFIG)
    ):
        raise UserError(f"{folder / 'config.json'} is not {CONFIG}: {ADVICE}")
    source, target = map(len, read_vocabularies(folder))
    with files.open_regular(model, advice=ADVICE) as file:
        try:
            variables = read_variables(file)
            rules = build_rules("encoder", variables, source)
            rules |= build_rules("decoder", variables, target)
            for name in sorted(variables.keys() | rules):
                variable, (shape, kind, values) = variables[name], rules[name]
                is_valid = variable.value in values if values else 0 < variable.value < math.inf
                if (variable.shape, variable.type) != (shape, kind) or not is_valid:
                    raise ValueError(f"{name} has {variable}")
        except (LookupError, ValueError, struct.error) as error:
            raise UserError(
                f"{model} is not in the format of `diet-fairseq export ctranslate2` "
                f"({one_line(str(error))}): {ADVICE}"
            ) from error


def read_vocabularies(folder: Path) -> tuple[list[str], list[str]]:
    """The words of source and target.

    Raises:
        UserError: a vocabulary is missing or not valid, or the folder has others
    """
    names = sorted(path.name for path in folder.glob("*vocabulary*"))
    separate = ["source_vocabulary.json", "target_vocabulary.json"]
    if names not in (["shared_vocabulary.json"], separate):
        raise UserError(
            f"{folder} must have shared_vocabulary.json, or {' and '.join(separate)}, but has "
            f"{one_line(', '.join(names)) or 'none'}: {ADVICE}"
        )
    vocabularies: list[list[str]] = []
    for name in names:
        words = files.read_json(folder / name, files.MAX_VOCABULARY_BYTES, ADVICE)
        vocabularies.append(files.validate(words, list[str], f"{folder / name}: ", ADVICE))
    return vocabularies[0], vocabularies[-1]


def read_variables(file: BinaryIO) -> dict[str, Variable]:
    """The arrays of an open ``model.bin`` and their aliases, by name.

    Raises:
        LookupError, ValueError, struct.error: the file has another format, or is cut off
    """

    def unpack(form: str) -> tuple[Any, ...]:
        return struct.unpack(f"<{form}", file.read(struct.calcsize(f"<{form}")))

    def unpack_string() -> str:
        text, end, rest = unpack(f"{unpack('H')[0]}s")[0].partition(b"\0")
        if not end or rest:
            raise ValueError("a string is not NUL-terminated")
        return str(text.decode())

    if (form := (*unpack("I"), unpack_string(), *unpack("I"))) != FORMAT:
        raise ValueError(f"its format is {form}")
    arrays: dict[str, Variable] = {}
    for _ in range(*unpack("I")):
        key, shape = unpack_string(), unpack(f"{unpack('B')[0]}I")
        number, length = unpack("BI")
        size = math.prod(shape) * struct.calcsize(TYPES[number])
        if key in arrays or length != size or not length:
            raise ValueError(f"{key} is defined twice, or has {length} bytes for the shape {shape}")
        arrays[key] = Variable(shape, TYPES[number], *(() if shape else unpack(TYPES[number])))
        file.seek(length if shape else 0, 1)
    variables = dict(arrays)
    for _ in range(*unpack("I")):
        alias, key = unpack_string(), unpack_string()
        for end in ("", "_scale"):  # the alias of a matrix includes its scale
            if f"{alias}{end}" in variables:
                raise ValueError(f"{alias}{end} is defined twice")
            if not end or f"{key}{end}" in arrays:
                variables[f"{alias}{end}"] = arrays[f"{key}{end}"]
    if file.read(1):
        raise ValueError("trailing bytes after the last alias")
    return variables


def build_rules(side: str, variables: Mapping[str, Variable], words: int) -> dict[str, Rule]:
    """The rule of every variable of the encoder or decoder, by the sizes in ``variables``.

    Raises:
        LookupError, ValueError: a variable that determines a size is missing, or has another shape
    """
    is_decoder = side == "decoder"
    embeddings = "embeddings" if is_decoder else "embeddings_0"
    (_, source_width), matrix, _ = variables["encoder/embeddings_0/weight"]
    vector = variables["encoder/layer_0/ffn/layer_norm/gamma"].type
    if matrix + vector not in QUANTIZATIONS:
        raise ValueError(f"its parameters have the types {matrix} and {vector}")
    _, width = variables[f"{side}/{embeddings}/weight"].shape
    inner, _ = variables[f"{side}/layer_0/ffn/linear_0/weight"].shape
    _, kind, heads = variables[f"{side}/num_heads"]
    if kind != "h" or heads < 1 or width % heads:
        raise ValueError(f"{side}/num_heads is {heads}, which does not divide {width}")
    linears = {  # * is a layer
        "*/ffn/linear_0": (inner, width),
        "*/ffn/linear_1": (width, inner),
        "*/self_attention/linear_0": (3 * width, width),
        "*/self_attention/linear_1": (width, width),
    }
    norms = ["*/ffn/layer_norm", "*/self_attention/layer_norm"]
    norms += [name for name in ("layer_norm", "layernorm_embedding")
              if f"{side}/{name}/gamma" in variables]  # fmt: skip
    numbers: dict[str, tuple[str, Collection[float]]] = {
        "num_heads": ("h", (heads,)),
        "scale_embeddings": ("f", ()),
        "activation": ("b", range(6)),
        "pre_norm": ("b", (0, 1)),
    }
    without_bias = {embeddings: (words, width)}
    if is_decoder:
        without_bias["projection"] = words, width
        linears |= {
            "*/attention/linear_0": (width, width),
            "*/attention/linear_1": (2 * width, source_width),
            "*/attention/linear_2": (width, width),
        }
        norms.append("*/attention/layer_norm")
        numbers |= {"alignment_heads": ("h", (0,)), "alignment_layer": ("h", (-1,))}
        flags = "alibi", "alibi_use_positive_positions", "scale_alibi", "start_from_zero_embedding"
        numbers |= dict.fromkeys(flags, ("b", (0,)))
    else:
        numbers |= {"embeddings_merge": ("b", (1,)), "multi_query_attention": ("b", (0,))}
    vectors: dict[str, tuple[int, ...]] = {
        f"{name}/{part}": (width,) for name in norms for part in ("gamma", "beta")
    }
    vectors |= {f"{name}/bias": shape[:1] for name, shape in linears.items()}
    if "decoder/projection/bias" in variables and is_decoder:
        vectors["projection/bias"] = (words,)
    if table := variables.get(f"{side}/position_encodings/encodings"):
        vectors["position_encodings/encodings"] = table.shape[0], width
    positions = f"{side}/layer_0/self_attention"
    if table := variables.get(f"{positions}/relative_attention_bias"):
        directions = 1 if is_decoder else 2
        buckets = table.shape[0] // directions // 2 * 2  # an even number in each direction
        vectors["*/self_attention/relative_attention_bias"] = buckets * directions, heads
        numbers["*/self_attention/relative_attention_max_distance"] = "i", (buckets,)
    elif table := variables.get(f"{positions}/relative_position_keys"):
        for name in ("relative_position_keys", "relative_position_values"):
            if f"{positions}/{name}" in variables:
                vectors[f"*/self_attention/{name}"] = table.shape[0] | 1, width // heads  # odd
    elif f"{positions}/rotary_dim" in variables:
        rotary = {
            "dim": ("i", range(2, width // heads + 1, 2)), "interleave": ("b", (0,)),
            "base": ("f", ()),
        }  # fmt: skip
        if f"{positions}/rotary_scaling_type" in variables:
            rotary |= {"scaling_type": ("b", (0,)), "scaling_factor": ("f", ())}
        numbers |= {f"*/self_attention/rotary_{name}": rule for name, rule in rotary.items()}
    rules: dict[str, Rule] = {name: ((), *rule) for name, rule in numbers.items()}
    rules |= {name: (shape, vector, ()) for name, shape in vectors.items()}
    for name, shape in (without_bias | linears).items():
        rules[f"{name}/weight"] = shape, matrix, ()
        if matrix in "bh":
            rules[f"{name}/weight_scale"] = shape[:1] if matrix == "b" else (), "f", ()
    layers = [name for name in variables
              if name.startswith(side) and name.endswith("ffn/linear_0/weight")]  # fmt: skip
    return {
        f"{side}/{name.replace('*', f'layer_{layer}')}": rule
        for layer in range(len(layers))
        for name, rule in rules.items()
    }
