"""What importing changes in fairseq and in the process: `table` lists all of it.

One subject a file; each file holds functions that a row of the table names, and changes nothing by
itself.
"""

import fairseq  # noqa: F401  # first of all: it imports the plugin
