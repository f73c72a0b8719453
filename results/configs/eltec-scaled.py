"""fairseq-train, with token embeddings times the root of their width, as in translation.

python results/configs/eltec-scaled.py DATA-BIN [options of sinusoidal-0.001 in
eltec-more-schemes.yaml]
"""

import math

from fairseq.tasks.masked_lm import MaskedLMTask
from fairseq_cli.train import cli_main

build_model = MaskedLMTask.build_model


def build_scaled_model(self, *args, **kwargs):
    model = build_model(self, *args, **kwargs)
    encoder = model.encoder.sentence_encoder
    encoder.embed_scale = math.sqrt(encoder.embed_tokens.embedding_dim)
    return model


MaskedLMTask.build_model = build_scaled_model

if __name__ == "__main__":
    cli_main()
