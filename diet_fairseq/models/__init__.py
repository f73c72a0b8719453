"""fairseq models."""

import fairseq  # noqa: F401  # first of all: it imports the plugin
