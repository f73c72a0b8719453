"""Every position scheme on Multi30k: ``diet-fairseq translation grid --corpus multi30k ...``."""

import sys

from diet_fairseq_cli import main

if __name__ == "__main__":
    sys.exit(main(["translation", "grid", "--corpus=multi30k", *sys.argv[1:]]))
