"""Masked-language-model pretraining of encoders, from raw text on."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1]))

from roberta.cli import main

if __name__ == "__main__":
    main(__doc__)
