"""The description of a model's position parameters in the configuration of a checkpoint.

Parameters of two models may have the same names and shapes but different meanings: a table may
begin with rows that belong to no position, or count compressed keys instead of tokens. Therefore a
model that loads a checkpoint compares descriptions, not shapes (`models.warm_start`).
"""

import json
import re
from typing import Any

#: the scheme's name, `PositionScheme.describe`, and options: ``input``, ``cross``, ``window``,
#: ``layers``; with layers of two kinds also ``global``, the description of global layers
Description = dict[str, Any]

#: the largest `PositionScheme.score_terms` that a description may have
MAX_SCORE_TERMS = 16


def describe(config: Any) -> Description:
    """The description of the positions that a `PositionConfig` builds."""
    scheme = config.scheme
    description = {
        "scheme": config.position_scheme,
        "input": config.position_input,
        "cross": config.position_cross_attention,
        "window": config.position_window,
        "layers": config.position_layers,
        **scheme.describe(**scheme.with_defaults(config.constructor_options(scheme))),
    }
    if config.position_layers is not None:
        description["global"] = describe(config.layer_kinds[-1])
    return description


def is_global(name: str, pattern: str | None) -> bool:
    """Whether a parameter is of the self-attention of global layers, by ``--position-layers``."""
    if pattern is None:
        return False
    layer = re.search(r"\blayers\.(\d+)\.self_attn\.", name)
    if layer is None:
        return "global_positions" in name.split(".")
    return pattern[int(layer[1]) % len(pattern)] == "g"


def select_kind(description: Description, name: str) -> Description:
    """The description of the layers to which a parameter belongs, local or global."""
    has_global_layers = is_global(name, description.get("layers"))
    kind: Description = description["global"] if has_global_layers else description
    return kind


def serialize_description(description: Description) -> str:
    """The description as text for a checkpoint's configuration, see `parse_description`."""
    return json.dumps(description, sort_keys=True)


def parse_description(text: Any) -> Description | None:
    """The description in a text of `serialize_description`, or None if the text is not valid."""
    try:
        description = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return None
    if not _is_valid(description):
        return None
    if description.get("layers") is None:
        return dict(description)
    has_pattern = isinstance(description["layers"], str) and description["layers"] != ""
    return dict(description) if has_pattern and _is_valid(description.get("global")) else None


def _is_valid(description: object) -> bool:
    """Whether the values that a warm start reads have the right types."""
    if not isinstance(description, dict) or not isinstance(description.get("scheme"), str):
        return False
    terms = description.get("score_terms")
    return type(terms) is int and 1 <= terms <= MAX_SCORE_TERMS


def list_differences(
    old: Description,
    new: Description,
    converted: tuple[str, ...] = ("input", "cross", "score_terms", "window", "layers", "global"),
) -> list[str]:
    """The differences that make the parameters of one model meaningless in the other, in words.

    Args:
        old: the description of the checkpoint
        new: the description of the model
        converted: keys whose differences are omitted, because a warm start converts them
    """
    if old["scheme"] != new["scheme"]:
        return [f"scheme {old['scheme']} instead of {new['scheme']}"]
    differences = [
        f"{name.replace('_', ' ')} {old.get(name)} instead of {value}"
        for name, value in new.items()
        if name not in (*converted, "global") and old.get(name) != value
    ]
    if "global" not in converted and old.get("global") and new.get("global"):
        inner = list_differences(old["global"], new["global"], converted)
        differences += [f"in global layers {difference}" for difference in inner]
    return differences
