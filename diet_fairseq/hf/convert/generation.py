"""The defaults of ``generate`` in a folder of transformers, and the same options in model.json.

`import_generation` translates the defaults into options of model.json, and lists the defaults that
our search does not have. `to_generation` is the inverse for an exported folder.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairseq.data import Dictionary
from pydantic import BaseModel
from transformers import GenerationConfig

from ...checkpoints.plain import shorten
from ...errors import UserError
from ...files import MAX_JSON_BYTES, read_json, validate
from ...translate.directions import EOS, PLAIN, TARGET, Directions
from ...translate.model_json import ModelDescription
from .vocabulary import ADVICE, Vocabulary

PAD = "<pad>"
#: defaults that change no translation, and ids that `import hf` reads from other files
HARMLESS = frozenset({
    "bos_token_id", "decoder_start_token_id", "pad_token_id", "output_attentions",
    "output_hidden_states", "output_logits", "output_scores", "return_dict_in_generate",
    "transformers_version", "use_cache", "_from_model_config",
})  # fmt: skip


class Generation(BaseModel, strict=True):
    """The defaults of ``generate`` that our search can have."""

    num_beams: int | None = None
    length_penalty: float | None = None
    early_stopping: bool | str | None = None
    max_length: int | None = None
    max_new_tokens: int | None = None
    min_length: int | None = None
    min_new_tokens: int | None = None
    no_repeat_ngram_size: int | None = None
    forced_bos_token_id: int | None = None
    forced_eos_token_id: int | list[int] | None = None
    bad_words_ids: list[list[int]] | None = None
    suppress_tokens: list[int] | None = None
    eos_token_id: int | list[int] | None = None


@dataclass
class ImportedGeneration:
    """A folder's defaults of ``generate`` as options of our search.

    Attributes:
        options: fields of `ModelDescription`
        unsupported: names and values of the defaults that the imported model does not have
    """

    options: dict[str, Any] = field(default_factory=dict)
    unsupported: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """A line that names the `unsupported` defaults, or nothing."""
        names = [f"{name} {shorten(json.dumps(x), 80)}" for name, x in self.unsupported.items()]
        start = "defaults of generate that the imported model does not have: "
        return start + ", ".join(names) if names else ""


def read_generation(folder: Path, config: Any) -> tuple[dict[str, Any], Generation]:
    """The defaults of ``generate``, from generation_config.json or, without it, from config.json.

    Args:
        config: the folder's configuration, which knows the defaults of its class

    Raises:
        UserError: the file can't be read, or a value has another type than in transformers
    """
    path = folder / "generation_config.json"
    has_file = path.exists()
    if not has_file:
        path = folder / "config.json"
    values = read_json(path, MAX_JSON_BYTES, ADVICE)
    if not isinstance(values, dict):
        raise UserError(f"{path} is not a JSON object: {ADVICE}")
    if not has_file:
        values = {"forced_eos_token_id": getattr(config, "forced_eos_token_id", None)} | values
        if values.get("force_bos_token_to_be_generated"):  # an older name
            values["forced_bos_token_id"] = values.get("bos_token_id")
    return values, validate(values, Generation, f"{path}: ", ADVICE)


def import_generation(
    folder: Path,
    config: Any,
    vocabulary: Vocabulary,
    directions: Directions | None,
    source_lang: str,
) -> ImportedGeneration:
    """The folder's defaults of ``generate`` as options of our search.

    Args:
        vocabulary: the vocabulary of the target language
        source_lang: the default source language

    Raises:
        UserError: see `read_generation`
    """
    values, generation = read_generation(folder, config)
    result = ImportedGeneration()
    symbols = dict(zip(vocabulary.ids, vocabulary.symbols, strict=True))
    symbols.pop(-1, None)  # the symbols without an id
    _import_search(generation, result)
    _import_lengths(generation, result, symbols)
    _import_ends(generation, result, symbols)
    _import_forced_language(generation, result, symbols, directions, source_lang)
    _import_forbidden(generation, result, symbols)
    start = values.get("decoder_start_token_id")
    if start is not None and config.decoder_start_token_id not in (None, start):
        result.unsupported["decoder_start_token_id"] = start
    result.unsupported |= unsupported_defaults(values)
    return result


def unsupported_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """The options of ``GenerationConfig`` that `Generation` lacks and that are not neutral."""
    neutral = GenerationConfig().to_dict()
    # the neutral values of versions in which an unset option is None
    neutral |= getattr(GenerationConfig, "_get_default_generation_params", dict)()
    return {
        name: value
        for name, value in values.items()
        if name in neutral
        and name not in HARMLESS
        and name not in Generation.model_fields
        and not (value is None or value is False or value == neutral[name])
    }


def _import_search(generation: Generation, result: ImportedGeneration) -> None:
    result.options["beam"] = 1 if generation.num_beams is None else generation.num_beams
    if generation.length_penalty is not None:
        result.options["lenpen"] = float(generation.length_penalty)
    if isinstance(generation.early_stopping, str):  # "never"
        result.unsupported["early_stopping"] = generation.early_stopping
    if generation.no_repeat_ngram_size:
        result.options["no_repeat_ngram_size"] = generation.no_repeat_ngram_size


def _import_lengths(
    generation: Generation, result: ImportedGeneration, symbols: Mapping[int, str]
) -> None:
    """Lengths: transformers counts the decoder's first input in ``max_length`` and ``min_length``.

    A forced end is the last of the tokens; without it, all may be subwords.
    """
    longest, least = generation.max_new_tokens, generation.min_new_tokens
    if longest is None and generation.max_length is not None:
        longest = generation.max_length - 1
    if least is None and generation.min_length is not None:
        least = generation.min_length - 1
    forced = generation.forced_eos_token_id
    if forced is not None:
        forced = forced if isinstance(forced, list) else [forced]
        if [symbols.get(number) for number in forced] != [EOS]:
            result.unsupported["forced_eos_token_id"] = generation.forced_eos_token_id
        longest = None if longest is None else longest - 1
    if longest is not None and longest >= 0:
        result.options["max_target_length"] = max(1, longest)
    if least is not None and least > 1:
        result.options["min_target_length"] = least


def _import_ends(
    generation: Generation, result: ImportedGeneration, symbols: Mapping[int, str]
) -> None:
    ends = generation.eos_token_id
    if ends is None:
        return
    tokens = [symbols.get(number, "") for number in (ends if isinstance(ends, list) else [ends])]
    if EOS in tokens and "" not in tokens:
        others = [token for token in dict.fromkeys(tokens) if token != EOS]
        result.options["end_tokens"] = tuple(others)
    else:
        result.unsupported["eos_token_id"] = ends


def _import_forced_language(
    generation: Generation,
    result: ImportedGeneration,
    symbols: Mapping[int, str],
    directions: Directions | None,
    source_lang: str,
) -> None:
    """The forced first token: the target language's tag, or the token before every translation."""
    number = generation.forced_bos_token_id
    prefix = (directions.framing if directions else PLAIN).target_prefix
    symbol = symbols.get(number, "") if number is not None else None
    if directions and prefix == (TARGET,) and symbol is not None:
        languages = [name for name, tag in directions.tags.items() if tag == symbol]
        if languages and languages[0] in directions.targets.get(source_lang, ()):
            result.options["target_lang"] = languages[0]
            return
    elif prefix == (TARGET,) or prefix == (() if symbol is None else (symbol,)):
        return
    result.unsupported["forced_bos_token_id"] = number


def _import_forbidden(
    generation: Generation, result: ImportedGeneration, symbols: Mapping[int, str]
) -> None:
    """Forbidden tokens and sequences; our search never writes padding, and must write </s>."""
    sequences: list[tuple[str, ...]] = []
    for name, values in (
        ("suppress_tokens", [[number] for number in generation.suppress_tokens or ()]),
        ("bad_words_ids", generation.bad_words_ids or ()),
    ):
        unsupported = []
        for numbers in values:
            tokens = tuple(symbols.get(number, PAD) for number in numbers)
            if not tokens or PAD in tokens or (name, tokens) == ("bad_words_ids", (EOS,)):
                continue  # transformers ignores the end among bad words
            if EOS in tokens:
                unsupported.append(numbers if name == "bad_words_ids" else numbers[0])
            else:
                sequences.append(tokens)
        if unsupported:
            result.unsupported[name] = unsupported
    result.options["suppress_sequences"] = tuple(dict.fromkeys(sequences))


def to_generation(description: ModelDescription, target: Dictionary) -> dict[str, Any]:
    """The options of a model's search that ``generate`` has, for ``GenerationConfig``.

    Args:
        target: dictionary of the target language
    """
    return dict(_to_generation(description, target))


def _to_generation(description: ModelDescription, target: Dictionary) -> Iterator[tuple[str, Any]]:
    yield "num_beams", description.beam
    if description.penalty == "fairseq":
        yield "length_penalty", description.lenpen
    yield "min_new_tokens", description.min_target_length
    if description.max_target_length is not None:
        yield "max_new_tokens", description.max_target_length + 1  # </s>
    if description.no_repeat_ngram_size:
        yield "no_repeat_ngram_size", description.no_repeat_ngram_size
    sequences = [[target.index(token) for token in s] for s in description.suppress_sequences]
    yield "suppress_tokens", [target.pad(), *(s[0] for s in sequences if len(s) == 1)]
    if longer := [sequence for sequence in sequences if len(sequence) > 1]:
        yield "bad_words_ids", longer
