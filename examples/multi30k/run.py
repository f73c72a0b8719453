"""Multi30k from raw text to BLEU: a corpus that one machine learns in minutes.

``run.py COMMAND ...`` is ``diet-fairseq translation COMMAND --corpus multi30k ...``.
"""

import sys

from diet_fairseq_cli import main

if __name__ == "__main__":
    sys.exit(main(["translation", *sys.argv[1:2], "--corpus=multi30k", *sys.argv[2:]]))
