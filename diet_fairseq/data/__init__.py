"""fairseq datasets of texts and pairs of texts, and metrics."""

import fairseq  # noqa: F401  # first of all: it imports the plugin
