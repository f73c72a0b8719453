"""Every change that importing the plugin makes to fairseq, one subject a file: `table` has all.

A file holds functions that take an attribute of fairseq and return its replacement.
"""

import fairseq  # noqa: F401  # first of all: it imports the plugin
