"""Every position scheme in an encoder: ``diet-fairseq encoder grid ...``."""

import sys

from diet_fairseq_cli import main

if __name__ == "__main__":
    sys.exit(main(["encoder", "grid", *sys.argv[1:]]))
