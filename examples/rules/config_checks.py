"""Checks of a config against its keys, with messages in words."""

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any, get_args

from config_keys import Section
from pydantic import ValidationError
from snakemake.exceptions import WorkflowError

from diet_fairseq.errors import one_line

#: pydantic's name of a wrong type -> the right type in words, and what to do
TYPES = {
    "string_type": "text: put it in quotes",
    "list_type": "a list: write [{value}]",
    "dict_type": "a mapping: write NAME: VALUE lines below the key",
    "model_type": "a mapping: write NAME: VALUE lines below the key",
    "int_type": "an integer: write digits only",
    "float_type": "a number: write 0.001 or 1.0e-3",
    "bool_type": "true or false",
    "literal_error": "{expected}",
}
#: key of these configs -> its names in other programs, which are not spelt like it
OTHER_NAMES = {
    "learning_rate": "lr peak_lr",
    "rates": "lr learning_rate",
    "updates": "epoch epochs max_epoch num_train_epochs steps max_steps train_steps max_update",
    "batch": "max_tokens tokens bsz",
    "warmup": "warmup_updates warmup_ratio",
    "schemes": "position_scheme model arch",
    "models": "scheme position_scheme arch",
    "languages": "source_lang target_lang src tgt pair",
    "valid": "dev devset validation_set",
    "folder": "output out save_dir destdir",
    "vocabulary": "vocab_size bpe_size",
    "subwords": "bpe spm sentencepiece",
    "precision": "fp16 bf16 dtype",
    "patience": "early_stopping",
    "length_penalty": "lenpen alpha",
    "pretraining_seeds": "seed random_seed",
    "seeds": "random_seed",
    "max_words": "max_length",
    "validate_interval": "eval_steps",
}


def did_you_mean(name: object, names: Iterable[object], similarity: float = 0.6) -> str:
    """A suggestion for a misspelled name, or nothing."""
    similar = get_close_matches(str(name), [*map(str, names)], n=1, cutoff=similarity)
    return f": did you mean {similar[0]}?" if similar else ""


def suggest_key(name: str, section: type[Section]) -> str:
    """Advice about an unknown key; a name of other programs gets the key's meaning, too."""
    known = section.model_fields
    plain = name.lower().replace("-", "_")
    key = next((key for key in known if plain in OTHER_NAMES.get(key, "").split()), None)
    if key is None:
        return did_you_mean(name, known) or ": remove it"
    meaning = known[key].description
    return f": did you mean {key}{f' ({meaning})' if meaning else ''}?"


def find_sections(annotation: Any) -> Iterator[type[Section]]:
    """The section that values of a type are, or have in them."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for part in get_args(annotation):
        yield from find_sections(part)


def find_keys(place: Iterable[Any], config: Any) -> list[str]:
    """The keys on the way to a fault; pydantic's ``place`` has types of values among them."""
    keys = ["config"]
    for part in place:
        is_number = isinstance(config, list) and isinstance(part, int)
        if is_number or (isinstance(config, dict) and part in config):
            keys.append(str(part))
            config = config[part]
    return keys


def describe_type(faults: list[Any]) -> str:
    """The types that a value may have, and what to do."""
    value, kind = faults[0]["input"], faults[0]["type"]
    texts = [TYPES[fault["type"]].format(value=value, **fault.get("ctx", {})) for fault in faults]
    types, advice = zip(*(text.partition(":")[::2] for text in dict.fromkeys(texts)), strict=True)
    text = f"must be {' or '.join(types)}, but is {value!r}"
    if kind == "literal_error":
        return text + did_you_mean(value, re.findall("'(.*?)'", types[0]))
    is_compound = kind in ("list_type", "string_type") and isinstance(value, list | dict | None)
    return text if is_compound or not advice[0] else f"{text}:{advice[0]}"


def describe_faults(faults: list[Any], config: dict, model: type[Section]) -> str:
    """All unknown keys or, if there are none, one fault: the key, the rule, the value, advice."""
    messages = []
    for fault in sorted(faults, key=lambda fault: (len(fault["loc"]), str(fault["loc"]))):
        if fault["type"] in ("extra_forbidden", "invalid_key"):
            *place, name = fault["loc"]
            keys = find_keys(place, config)
            kind = model.model_fields[keys[1]].annotation if keys[1:] else model
            advice = suggest_key(str(name), next(find_sections(kind)))
            messages.append(f"{'.'.join(keys)} has no key {name}{advice}")
    if messages:
        return ". ".join(messages).replace("?. ", "? ")
    # A value that may have several types has a fault for each; one of another kind says more.
    fault = max(faults, key=lambda f: (f["type"] not in TYPES, len(find_keys(f["loc"], config))))
    keys = find_keys(fault["loc"], config)
    same = [other for other in faults if find_keys(other["loc"], config) == keys]
    if fault["type"] == "missing":
        names = [other["loc"][-1] for other in same if other["type"] == "missing"]
        return f"{'.'.join(keys)} lacks the keys {', '.join(names)}: add them"
    place = ".".join(keys)
    if fault["loc"][-1] == "[key]":
        place = f"a key of {'.'.join(keys[:-1])}"
    if fault["type"] in TYPES:
        return f"{place} {describe_type(same)}"
    rule = re.sub(r"^\w+ should", "must", fault["msg"].removeprefix("Value error, "))
    rule = re.sub(" after validation, not [0-9]+$", "", rule)
    rule, colon, advice = rule.partition(": ")
    return f"{place} {rule}, but is {fault['input']!r}{colon}{advice}"


def check_config(config: dict, model: type[Section]) -> None:
    """Fill in defaults; refuse a config with one message."""
    try:
        model.model_validate(config)
    except ValidationError as error:
        raise WorkflowError(one_line(describe_faults(error.errors(), config, model))) from None
    for key, default in model.model_construct().model_dump(warnings=False).items():
        config.setdefault(key, default)
