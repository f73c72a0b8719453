"""WMT18 news translation from raw text to a newstest2018 BLEU, as in DIET's Table 4.

``run.py COMMAND ...`` is ``diet-fairseq translation COMMAND --corpus wmt18 ...``.
"""

import sys

from diet_fairseq_cli import main

if __name__ == "__main__":
    sys.exit(main(["translation", *sys.argv[1:2], "--corpus=wmt18", *sys.argv[2:]]))
