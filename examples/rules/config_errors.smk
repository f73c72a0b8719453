# Checks of a config against its schema, with messages in words.

import math
from collections import defaultdict

from jsonschema import Draft202012Validator
from jsonschema.exceptions import relevance
from snakemake.utils import validate


def check_values(key, value):
    """Refuse numbers that are not finite, and text with a control character, such as a line break.

    A line break would end a shell command.
    """
    if isinstance(value, dict):
        for name, part in value.items():
            check_values(f"a key of {key}", name)
            check_values(f"{key}.{name}", part)
    elif isinstance(value, list):
        for number, part in enumerate(value):
            check_values(f"{key}.{number}", part)
    elif isinstance(value, float) and not math.isfinite(value):
        raise WorkflowError(f"{key} must be a finite number, but is {value}")
    elif isinstance(value, str) and re.search(r"[\0-\x1f\x7f]", value):
        raise WorkflowError(f"{key} must be one line, but is {value!r}: write >- instead of | in front of it")


WORDS_AND_SIGNS = "must begin with a letter or a digit, and may also have hyphens and underscores"
#: pattern of a schema -> its rule in words
PATTERN_RULES = {
    r"^[\w.@+=/]([\w.#@+=/ -]*[\w.#@+=/-])?$": "must be a path of letters, digits, spaces and . _ @ + = # / -, no space or"
    " hyphen first, no space last",
    r"^[A-Za-z0-9][A-Za-z0-9_-]*$": WORDS_AND_SIGNS,
    r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$": f"{WORDS_AND_SIGNS}, dots and +",
    r"^(?!pretraining$)[A-Za-z0-9][A-Za-z0-9_.+-]*$": f"{WORDS_AND_SIGNS}, dots and +, and must not be pretraining",
    r"^(?!(pretraining|adaptation|as_it_was)$)[A-Za-z0-9][A-Za-z0-9_.+-]*$": f"{WORDS_AND_SIGNS}, dots and +, and must not be"
    " pretraining, adaptation or as_it_was",
    r"^(?!questions$)[A-Za-z0-9][A-Za-z0-9_.+-]*$": f"{WORDS_AND_SIGNS}, dots and +, and must not be questions",
    r"^(?!(folder|scheme|size|seeds|test|model|BLEU|chrF|parameters|minutes)$)[A-Za-z0-9][A-Za-z0-9_.+-]*$": f"{WORDS_AND_SIGNS},"
    " dots and +, and must not be a column that the table has anyway",
    r"[{]hypotheses[}]": "must have the word {hypotheses}, which stands for the translations",
    r"^[A-Za-z0-9]+$": "must have letters and digits only",
    r"^(?!-)[^{}]+$": "must be a path without braces, and no hyphen first",
    r"^(?!-)([^{}]|[{](lang|pair)[}])+$": "must be a path without other braces than {lang} and {pair}, and no hyphen first",
    r"^[A-Za-z0-9][A-Za-z0-9_]*-[A-Za-z0-9][A-Za-z0-9_]*$": "must be two languages with a hyphen between, such as en-de",
    r"^(all|(from|to|with)_[A-Za-z0-9][A-Za-z0-9_-]*)$": "must be all, or from_, to_ or with_ and a language",
    r"^https?://": "must begin with http:// or https://",
    r"^[0-9a-f]{64}$": "must be 64 digits from 0 to f",
    r"^[a-z][a-z0-9_]*( .*)?$": "must be the name of a scheme, and may have options of fairseq-train behind it",
    r"^(bert|roberta|electra)_[a-z][a-z0-9_]*( .*)?$": "must be bert_, roberta_ or electra_ with the name of a scheme,"
    " and may have options of fairseq-train behind it",
}


#: type of a schema -> its name in words, and advice for a value of another type
TYPES = {
    "array": ("a list", ""),
    "object": ("a mapping", ": write NAME: VALUE lines below the key"),
    "integer": ("an integer", ": write digits only"),
    "number": ("a number", ": write 0.001 or 1.0e-3"),
    "string": ("text", ": put it in quotes"),
    "boolean": ("true or false", ""),
    "null": ("null", ""),
}
#: rule of a schema about an amount -> the rule in words
AMOUNTS = {
    "minimum": "must be at least {}",
    "maximum": "must be at most {}",
    "exclusiveMinimum": "must be above {}",
    "exclusiveMaximum": "must be below {}",
    "minItems": "must have {} or more entries",
    "maxItems": "must have {} or fewer entries",
    "minProperties": "must have {} or more keys",
}
#: key of these configs -> its names in other programs, which are not spelt like it
OTHER_NAMES = {
    "learning_rate": ("lr", "peak_lr"),
    "rates": ("lr", "learning_rate"),
    "updates": ("epoch", "epochs", "max_epoch", "num_train_epochs", "steps", "max_steps", "train_steps", "max_update"),
    "batch": ("max_tokens", "tokens", "bsz"),
    "warmup": ("warmup_updates", "warmup_ratio"),
    "schemes": ("position_scheme", "model", "arch"),
    "models": ("scheme", "position_scheme", "arch"),
    "languages": ("source_lang", "target_lang", "src", "tgt", "pair"),
    "valid": ("dev", "devset", "validation_set"),
    "folder": ("output", "out", "save_dir", "destdir"),
    "vocabulary": ("vocab_size", "bpe_size"),
    "subwords": ("bpe", "spm", "sentencepiece"),
    "precision": ("fp16", "bf16", "dtype"),
    "patience": ("early_stopping",),
    "length_penalty": ("lenpen", "alpha"),
    "pretraining_seeds": ("seed", "random_seed"),
    "seeds": ("random_seed",),
    "max_words": ("max_length",),
    "validate_interval": ("eval_steps",),
}


def config_key(fault):
    """The key that a fault of a config is about."""
    key = ".".join(["config", *map(str, fault.absolute_path)])
    return f"a key of {key}" if "propertyNames" in fault.absolute_schema_path else key


def find_fault(fault):
    """The fault itself or, where a value may have several forms, the fault in the form that it fits best."""
    while fault.validator in ("oneOf", "anyOf"):
        forms = defaultdict(list)
        for part in fault.context:
            forms[part.schema_path[0]].append(part)
        fitting = [
            parts for parts in forms.values()
            if not any(part.validator in ("type", "const") and not part.relative_path for part in parts)
        ]
        if not fitting:
            break
        best = min(fitting, key=lambda parts: sum(len(unknown_keys(part)) or 1 for part in parts))
        fault = max(best, key=relevance)
    return fault


def allowed_types(fault):
    """The types, and the words such as auto, that a value may have."""
    if fault.validator == "type":
        return [fault.validator_value] if isinstance(fault.validator_value, str) else fault.validator_value
    if fault.validator == "const":
        return [fault.validator_value]
    parts = [part for part in fault.context if not part.relative_path]
    return list(dict.fromkeys(name for part in parts for name in allowed_types(part)))


def describe_type(fault):
    """The message about a value of a wrong type."""
    names, value = allowed_types(fault), fault.instance
    known = [TYPES[name] for name in names if name in TYPES]
    words = " or ".join([name for name, _ in known] + [name for name in names if name not in TYPES])
    advice = known[0][1]
    if names[0] == "array":
        advice = f": write [{value}]" if isinstance(value, str | int | float) else ""
    elif names[0] == "string" and isinstance(value, list | dict | None):
        advice = ""
    return f"must be {words}, but is {value!r}{advice}"


def suggest_key(name, rules):
    """Advice about a key that the schema does not have; a name of other programs gets the key's meaning, too."""
    known = rules.get("properties", {})
    plain = name.lower().replace("-", "_")
    key = next((key for key, names in OTHER_NAMES.items() if key in known and plain in names), None)
    if key is None:
        return did_you_mean(name, known) or ": remove it"
    meaning = known[key].get("description")
    return f": did you mean {key}{f' ({meaning})' if meaning else ''}?"


def unknown_keys(fault):
    """A message about each key that the schema does not have; none if the fault is another one."""
    if fault.validator != "additionalProperties":
        return []
    unknown = sorted(map(str, fault.instance.keys() - fault.schema.get("properties", {}).keys()))
    return [f"{config_key(fault)} has no key {name}{suggest_key(name, fault.schema)}" for name in unknown]


def describe_fault(fault):
    """The message about a config error, behind the key: the rule, the value, what to do."""
    kind, expected, value = fault.validator, fault.validator_value, fault.instance
    if kind == "required":
        return f"must have the keys {', '.join(expected)}, but lacks {', '.join(key for key in expected if key not in value)}"
    if kind == "pattern":
        return f"{PATTERN_RULES[expected]}, but is {value!r}"
    if kind == "enum":
        return f"must be one of {', '.join(map(str, expected))}, but is {value!r}{did_you_mean(value, expected)}"
    if kind in ("type", "const", "oneOf", "anyOf"):
        return describe_type(fault)
    if kind in AMOUNTS:
        return f"{AMOUNTS[kind].format(expected)}, but is {value!r}"
    if kind == "uniqueItems":
        return f"must have no entry twice, but is {value!r}"
    return f"does not follow the schema: {fault.message}"


def check_config(schema):
    """Fill in defaults; refuse a config with one message of key, rule and value."""
    check_values("config", config)
    try:
        validate(config, str(schema))
    except WorkflowError:
        rules = yaml.safe_load(schema.read_text(encoding="utf-8"))
        faults = [*Draft202012Validator(rules).iter_errors(config)]
        # A misspelt key explains other faults, such as a missing key: all of them come first.
        messages = [message for fault in faults for message in unknown_keys(fault)]
        if not messages:
            fault = find_fault(max(faults, key=relevance))
            messages = unknown_keys(fault) or [f"{config_key(fault)} {describe_fault(fault)}"]
        raise WorkflowError(". ".join(messages).replace("?. ", "? ")) from None
