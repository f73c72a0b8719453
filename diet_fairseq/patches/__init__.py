"""Every change that importing the plugin makes to fairseq, one subject a file.

A function that `patch.replaces` decorates takes an attribute and returns its replacement, and the
reasons stand in the decorator. `table` collects all changes.
"""

import fairseq  # noqa: F401  # first of all: it imports the plugin
