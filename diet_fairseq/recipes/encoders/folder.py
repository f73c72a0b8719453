"""``--folder``: where the text, the runs and the tasks of encoders are kept."""

from argparse import ArgumentParser
from pathlib import Path

from ..common.options import folder_path

USUAL = Path("roberta")


def add_folder(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--folder",
        type=folder_path,
        default=USUAL,
        help="folder for all data and runs (%(default)s)",
    )
