"""The description of a model's position parameters in the configuration of a checkpoint.

Parameters of two models may have the same names and shapes but different meanings: a table may
begin with rows that belong to no position, or count compressed keys instead of tokens. Therefore a
model that loads a checkpoint compares descriptions, not shapes (`models.warm_start`).
"""

import json
from typing import Any

#: the scheme's name and `PositionScheme.describe`, and two options: ``input``, ``cross``
Description = dict[str, Any]

#: the largest `PositionScheme.score_terms` that a description may have
MAX_SCORE_TERMS = 16


def describe(config: Any) -> Description:
    """The description of the positions that a `PositionConfig` builds."""
    scheme = config.scheme
    return {
        "scheme": config.position_scheme,
        "input": config.position_input,
        "cross": config.position_cross_attention,
        **scheme.describe(**scheme.with_defaults(config.constructor_options(scheme))),
    }


def serialize_description(description: Description) -> str:
    """The description as text for a checkpoint's configuration, see `parse_description`."""
    return json.dumps(description, sort_keys=True)


def parse_description(text: Any) -> Description | None:
    """The description in a text of `serialize_description`, or None if the text is not valid."""
    try:
        description = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return None
    if not isinstance(description, dict) or not isinstance(description.get("scheme"), str):
        return None
    terms = description.get("score_terms")
    return description if type(terms) is int and 1 <= terms <= MAX_SCORE_TERMS else None


def list_differences(
    old: Description,
    new: Description,
    converted: tuple[str, ...] = ("input", "cross", "score_terms"),
) -> list[str]:
    """The differences that make the parameters of one model meaningless in the other, in words.

    Args:
        old: the description of the checkpoint
        new: the description of the model
        converted: keys whose differences are omitted, because a warm start converts them
    """
    if old["scheme"] != new["scheme"]:
        return [f"scheme {old['scheme']} instead of {new['scheme']}"]
    return [
        f"{name.replace('_', ' ')} {old.get(name)} instead of {value}"
        for name, value in new.items()
        if name not in converted and old.get(name) != value
    ]
