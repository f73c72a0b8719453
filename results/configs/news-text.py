"""The news of results/pretraining/novels-peak.csv: train.txt.gz and valid.txt.gz.

    python news-text.py FILE.gz...   # English sides of WMT test sets of 2008 to 2017, WikiText-2
    bash eltec-masked-lm.sh data CHECKOUT train.txt.gz valid.txt.gz 2000

A line that repeats an earlier line is left out, and the last 5% of the lines are held out.
"""

import gzip
import sys
from pathlib import Path

lines: dict[str, None] = {}
for name in sys.argv[1:]:
    with gzip.open(name, "rt", encoding="utf-8") as file:
        lines.update(dict.fromkeys(line.strip() for line in file if line.strip()))
text = [*lines]
end = len(text) * 95 // 100
for part, chosen in (("train", text[:end]), ("valid", text[end:])):
    with gzip.open(Path(f"{part}.txt.gz"), "wt", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in chosen)
