"""Pretraining and fine-tuning of encoders, from raw text on."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1]))

from roberta.cli import main

if __name__ == "__main__":
    sys.exit(main(__doc__))
