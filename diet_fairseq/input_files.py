"""Old name of `files`."""

from .files import (
    ADVICE,
    check_regular,
    open_regular,
    open_text,
    read_bytes,
    read_json,
)
from .files import MAX_JSON_BYTES as DESCRIPTION
from .files import MAX_VOCABULARY_BYTES as VOCABULARY
from .files import describe_validation_error as broken_rule
from .files import read_json_object as read_object
from .files import validate as validated

__all__ = [
    "ADVICE",
    "DESCRIPTION",
    "VOCABULARY",
    "broken_rule",
    "check_regular",
    "open_regular",
    "open_text",
    "read_bytes",
    "read_json",
    "read_object",
    "validated",
]
