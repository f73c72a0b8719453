"""Encoders from raw text on: ``run.py COMMAND ...`` is ``diet-fairseq encoder COMMAND ...``."""

import sys

from diet_fairseq_cli import main

if __name__ == "__main__":
    sys.exit(main(["encoder", *sys.argv[1:]]))
