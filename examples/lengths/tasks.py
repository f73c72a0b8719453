"""Write the text of a task whose test sets are longer than its training text.

    python examples/lengths/tasks.py reverse lengths/reverse/text

The tasks copy, repeat (twice) and reverse have sequences of random symbols: the lengths of training
have the mean N, and the test sets have the means N, 2N and 4N. The task scan has the commands of
SCAN with at most N actions for training, and two test sets: held-out commands with at most N
actions, and all commands with more. Sources and references are train.input and train.output,
valid.input, valid.output, and test-LENGTH.input, test-LENGTH.output for each test set.

Kogkalidis et al. (2024, arXiv 2312.16045), scripts/synthetic_sequence.py of their repository: copy,
repeat and reverse, 20 symbols, N = 100, standard deviation N / 10, 6,000 sequences for training.
Lake and Baroni (2018, arXiv 1711.00350): SCAN, N = 22. Csordás et al. (2021, arXiv 2108.12284):
other limits of SCAN, such as N = 26, and a tenth of the commands held out.
"""

import random
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from string import ascii_lowercase

from diet_fairseq.errors import UserError, exit_with_one_line
from diet_fairseq.text.lines import write_lines

Pair = tuple[str, str]

#: output of a task for a sequence of symbols
SEQUENCES = {
    "copy": lambda symbols: symbols,
    "repeat": lambda symbols: symbols * 2,
    "reverse": lambda symbols: symbols[::-1],
}
SCAN = "scan"
#: default of N
LENGTHS = dict.fromkeys(SEQUENCES, 20) | {SCAN: 22}
#: mean lengths of the test sets, in multiples of N
MULTIPLES = (1, 2, 4)

ACTIONS = ("walk", "look", "run", "jump")
#: direction -> its action, in the paper's notation: the released I_TURN_LEFT is several subwords
TURNS = {"left": "LTURN", "right": "RTURN"}
TIMES = {"twice": 2, "thrice": 3}
#: share of SCAN's commands with at most N actions that are held out
HELD_OUT = 0.1


def list_commands() -> Iterator[str]:
    """All commands of SCAN's grammar (Lake and Baroni, figure 6)."""
    turns = [f"turn {direction}" for direction in TURNS]
    verbs = [*ACTIONS, *turns]
    for verb, direction in product(ACTIONS, TURNS):
        verbs.append(f"{verb} {direction}")
    for verb, manner, direction in product((*ACTIONS, "turn"), ("opposite", "around"), TURNS):
        verbs.append(f"{verb} {manner} {direction}")
    sentences = [" ".join(words).rstrip() for words in product(verbs, ("", *TIMES))]
    yield from sentences
    for first, connective, second in product(sentences, ("and", "after"), sentences):
        yield f"{first} {connective} {second}"


def interpret(command: str) -> list[str]:
    """The actions of a command of SCAN (Lake and Baroni, figure 7)."""
    first, found, second = command.partition(" and ")
    if found:
        return interpret(first) + interpret(second)
    first, found, second = command.partition(" after ")
    if found:
        return interpret(second) + interpret(first)
    verb, *modifiers = command.split()
    if modifiers and modifiers[-1] in TIMES:
        return interpret(command.rpartition(" ")[0]) * TIMES[modifiers[-1]]
    action = [] if verb == "turn" else [verb.upper()]
    if not modifiers:
        return action
    turn = [TURNS[modifiers[-1]]]
    if modifiers[0] == "around":
        return (turn + action) * 4
    return (turn * 2 if modifiers[0] == "opposite" else turn) + action


def split_commands(longest: int, seed: int) -> dict[str, list[Pair]]:
    """The commands with at most `longest` actions, some of which are held out, and the others.

    Raises:
        UserError: all commands are on one side
    """
    pairs = [(command, " ".join(interpret(command))) for command in list_commands()]
    lengths = [len(actions.split()) for _, actions in pairs]
    if not min(lengths) < longest < max(lengths):
        raise UserError(
            f"--length of {SCAN} must be between {min(lengths)} and {max(lengths)}, the fewest and"
            f" the most actions of a command, but is {longest}: name a number between them"
        )
    short = [pair for pair, length in zip(pairs, lengths, strict=True) if length <= longest]
    random.Random(seed).shuffle(short)
    number = round(HELD_OUT * len(short))
    return {
        "train": short[number:],
        "valid": short[:number:2],
        f"test-{longest}": short[1:number:2],
        f"test-{max(lengths)}": [
            pair for pair, length in zip(pairs, lengths, strict=True) if length > longest
        ],
    }


def draw_pairs(task: str, length: int, number: int, symbols: str, rng: random.Random) -> list[Pair]:
    """Pairs of random sequences and their outputs.

    Args:
        length: mean of the normal distribution of the sequences' lengths. The standard deviation
            is a tenth of it
    """
    pairs = []
    for _ in range(number):
        drawn = rng.choices(symbols, k=max(1, round(rng.gauss(length, length / 10))))
        pairs.append((" ".join(drawn), " ".join(SEQUENCES[task](drawn))))
    return pairs


def draw_sets(
    task: str, length: int, sizes: Sequence[int], number_of_symbols: int, seed: int
) -> dict[str, list[Pair]]:
    """Training, validation and test sets of a task with random sequences.

    Args:
        sizes: of training, of validation, and of each test set
    """
    rng, symbols = random.Random(seed), ascii_lowercase[:number_of_symbols]
    sets = {"train": (length, sizes[0]), "valid": (length, sizes[1])}
    sets |= {f"test-{multiple * length}": (multiple * length, sizes[2]) for multiple in MULTIPLES}
    return {
        name: draw_pairs(task, mean, number, symbols, rng) for name, (mean, number) in sets.items()
    }


def main() -> None:
    parser = ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("task", choices=[*SEQUENCES, SCAN])
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--length", type=int, help="N, the training length (default: 20; scan: 22 actions)"
    )
    parser.add_argument(
        "--symbols", type=int, default=20, help="number of symbols; not for scan (default: 20)"
    )
    parser.add_argument(
        "--sizes", type=int, nargs=3, default=[6000, 500, 500], metavar=("TRAIN", "VALID", "TEST"),
        help="numbers of pairs; not for scan (default: 6000 500 500)",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=int, default=1, help="seed of the random choices (default: 1)"
    )
    args = parser.parse_args()

    length = LENGTHS[args.task] if args.length is None else args.length
    for name, number in (("length", length), ("sizes", min(args.sizes))):
        if number < 1:
            raise UserError(f"--{name} must be at least 1, but is {number}")
    if not 1 < args.symbols <= len(ascii_lowercase):
        raise UserError(
            f"--symbols must be from 2 to {len(ascii_lowercase)}, but is {args.symbols}"
        )
    if args.task == SCAN:
        sets = split_commands(length, args.seed)
    else:
        sets = draw_sets(args.task, length, args.sizes, args.symbols, args.seed)
    args.folder.mkdir(parents=True, exist_ok=True)
    for name, pairs in sets.items():
        for side, lines in zip(("input", "output"), zip(*pairs, strict=True), strict=True):
            write_lines(args.folder / f"{name}.{side}", lines)
        print(f"{args.folder / name}: {len(pairs):,} pairs")


if __name__ == "__main__":
    with exit_with_one_line():
        main()
