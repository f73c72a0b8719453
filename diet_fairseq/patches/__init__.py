"""Every change that importing the plugin makes to fairseq: `table` lists all of them.

One subject a file. Each file holds functions that take an attribute of fairseq's and return its
replacement; importing it changes nothing.
"""

import fairseq  # noqa: F401  # first of all: it imports the plugin
