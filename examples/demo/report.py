"""Show ten of the demo's translations beside their references, its scores, and what comes next."""

import json
import random
from argparse import ArgumentParser
from pathlib import Path

from diet_fairseq.errors import exit_with_one_line
from diet_fairseq.text.lines import read_lines

#: results/translation/demo-seeds.csv
EXPECTED = "31 to 33, by seed and number of threads"
SHOWN = 10


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="folder of the trained model")
    parser.add_argument("source", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("heads", type=Path, help="folder of `diet-fairseq look`")
    parser.add_argument("output", type=Path, help="Markdown")
    args = parser.parse_args()
    evaluation = args.run / "evaluation-test"
    scores = json.loads((evaluation / "scores.json").read_text(encoding="utf-8"))
    files = (args.source, evaluation / "translations.txt", args.reference)
    lines = list(zip(*map(read_lines, files), strict=True))
    report = [
        f"# {len(lines):,} sentences from English to German",
        "",
        f"BLEU {scores['BLEU']:.1f}, chrF {scores['chrF']:.1f}",
        f"BLEU to expect: {EXPECTED}",
        f"`{scores['BLEU signature']}`",
        "",
    ]
    for source, translation, reference in random.Random(1).sample(lines, SHOWN):
        report += [f"    {source}", f"    {translation}", f"    reference: {reference}", ""]
    report += [
        f"Learned scores by offset: {args.heads}/index.html",
        "",
        "A sentence of your own:",
        "",
        f"    echo 'She has a dog.' | .venv/bin/diet-fairseq translate {args.run}",
        "",
        "Text of your own: copy examples/demo/config.yaml, name your files in it, and run",
        "",
        "    .venv/bin/snakemake -s examples/Snakefile --configfile YOURS.yaml -j 2",
    ]
    text = "\n".join(report) + "\n"
    args.output.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    with exit_with_one_line():
        main()
