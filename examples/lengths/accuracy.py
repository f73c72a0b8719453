"""Score the outputs of a task: one line for each output, 1 if it equals the reference, else 0.

With --tokens the score is the share of right tokens: positions with the reference's token, divided
by the length of the longer line.
"""

from argparse import ArgumentParser
from pathlib import Path

from diet_fairseq.errors import exit_with_one_line
from diet_fairseq.text.lines import read_pairs


def score_tokens(hypothesis: list[str], reference: list[str]) -> float:
    """The share of right tokens; missing tokens and tokens beyond the end are wrong."""
    right = sum(map(str.__eq__, hypothesis, reference))
    return right / (max(len(hypothesis), len(reference)) or 1)


def main() -> None:
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("hypotheses", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--tokens", action="store_true", help="the share of right tokens")
    args = parser.parse_args()
    for lines in read_pairs(args.hypotheses, args.reference):
        hypothesis, reference = map(str.split, lines)
        if args.tokens:
            print(f"{score_tokens(hypothesis, reference):.4f}")
        else:
            print(int(hypothesis == reference))


if __name__ == "__main__":
    with exit_with_one_line():
        main()
