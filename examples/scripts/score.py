"""Score translations with sacreBLEU: BLEU and chrF with their signatures, as JSON."""

import hashlib
import json
from argparse import ArgumentParser
from pathlib import Path

from diet_fairseq.errors import exit_with_one_line
from diet_fairseq.text.lines import read_pairs
from diet_fairseq.text.scores import score


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("translations", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--checkpoints", nargs="+", type=Path, required=True)
    parser.add_argument("--pair", nargs=2, required=True, help="languages, such as en de")
    parser.add_argument("--tokenizer", default="auto", help="sacreBLEU's tokenizer for BLEU")
    parser.add_argument("--test-set", default="", help="sacreBLEU's name of the test set")
    parser.add_argument(
        "--settings",
        type=json.loads,
        default={},
        help="settings to store beside the scores, as JSON",
    )
    args = parser.parse_args()

    hypotheses, references = zip(*read_pairs(args.translations, args.reference), strict=True)
    scores = score(hypotheses, references, args.test_set, args.pair, args.tokenizer)
    scores["model"] = " ".join(map(str, args.checkpoints))
    if len(args.checkpoints) == 1:
        with open(args.checkpoints[0], "rb") as checkpoint:
            scores["sha256"] = hashlib.file_digest(checkpoint, "sha256").hexdigest()
    args.output.write_text(json.dumps(scores | args.settings, indent=1), encoding="utf-8")
    for name in ("BLEU", "chrF"):
        print(f"{args.translations}: {name} {scores[name]:.2f}  {scores[f'{name} signature']}")


if __name__ == "__main__":
    with exit_with_one_line():
        main()
