"""fairseq's encoders and decoders with position schemes in their attention."""

import fairseq  # noqa: F401  # first of all: it imports the plugin
