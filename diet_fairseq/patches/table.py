"""The table of all changes, which ``diet-fairseq patches`` prints."""

from ..errors import report_user_errors
from . import (  # noqa: F401  # each declares its changes
    archives,
    batches,
    command_line,
    directions,
    generation,
    loading,
    precision,
    preprocessing,
    processes,
    saving,
    sharding,
    training,
)
from .patch import TABLE, Patches, replaces

replaces("sys:excepthook", plugin="an error of the plugin ends in a traceback")(report_user_errors)

PATCHES = Patches(TABLE)
