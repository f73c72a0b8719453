"""Print the share of each direction in the text that fairseq samples by temperature."""

from argparse import ArgumentParser
from pathlib import Path

from diet_fairseq.errors import exit_with_one_line
from diet_fairseq.text.lines import read_lines


def describe_shares(sizes: dict[str, int], temperature: float) -> str:
    """The directions with their numbers of pairs and their shares, as one line.

    Args:
        sizes: direction -> number of pairs
    """
    # fairseq takes seconds to import
    from fairseq.data.multilingual.sampling_method import temperature_sampling

    ratios = temperature_sampling(sizes.values(), temperature)
    shares = [
        f"{direction} {ratio / sum(ratios):.1%} ({size:,} pairs)"
        for (direction, size), ratio in zip(sizes.items(), ratios, strict=True)
    ]
    return f"sampled with temperature {temperature:g}: {', '.join(shares)}"


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("temperature", type=float)
    parser.add_argument("--directions", nargs="+", required=True)
    parser.add_argument("--files", nargs="+", type=Path, required=True, help="one a direction")
    args = parser.parse_args()
    sizes = {
        direction: sum(1 for _ in read_lines(file))
        for direction, file in zip(args.directions, args.files, strict=True)
    }
    print(describe_shares(sizes, args.temperature))


if __name__ == "__main__":
    with exit_with_one_line():
        main()
