"""Put model.json, dictionaries and the subword model beside a run's checkpoints.

The folder is then enough to translate, serve and export, and can be moved or sent as it is.
"""

import math
import shutil
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from statistics import median
from typing import Any

from diet_fairseq.errors import exit_with_one_line
from diet_fairseq.text.lines import read_lines
from diet_fairseq.text.sentences import split_sentences
from diet_fairseq.text.subwords import SUBWORD_FILES
from diet_fairseq.translate.directions import Directions, read_task
from diet_fairseq.translate.model_json import (
    MODEL_JSON,
    PENALTIES,
    TRAINING_SHARE,
    ModelDescription,
    read_model_json,
)

#: folder of an imported model with the files for `diet-fairseq export hf --original`
ORIGINAL = "original"
#: number of training sources that are measured
SAMPLES = 100_000


def measure_sources(texts: Sequence[tuple[Path, Path]], language: str) -> dict[str, Any]:
    """The fields of `ModelDescription` about the training sources; none if a file is missing.

    Args:
        texts: plain text of the sources of each direction, and the same lines as subwords
    """
    if not all(path.is_file() for files in texts for path in files):
        return {}
    lengths = sorted(len(line.split()) for _, encoded in texts for line in read_lines(encoded))
    step = math.ceil(len(lengths) / SAMPLES)
    samples = islice(chain.from_iterable(read_lines(text) for text, _ in texts), 0, None, step)
    return {
        "sentences_per_line": float(median(len(split_sentences(s, language)) for s in samples)),
        "training_source_length": lengths[math.ceil(TRAINING_SHARE * len(lengths)) - 1],
    }


def name_directions(pairs: Sequence[str]) -> Directions:
    """The directions of a model of fairseq's task, with the tags that the task gives languages."""
    task = {
        "_name": "translation_multi_simple_epoch",
        "lang_pairs": pairs,
        "encoder_langtok": "src",
        "decoder_langtok": True,
    }
    marked = read_task(task)
    assert marked is not None
    trained = tuple(
        (source, target) for source, _, target in (pair.partition("-") for pair in pairs)
    )
    return replace(marked[0], pairs=trained)


def describe_adapted(
    start: ModelDescription,
    folder: Path,
    checkpoint: str,
    search: dict[str, Any],
    measures: dict[str, Any],
) -> None:
    """Write the files of a model that was trained further, and its model.json.

    Args:
        start: the model that the training started from
        search: options of the search; None: the start's
        measures: of the training sources. Where the start's are known, the larger ones count
    """
    for path in start.folder.iterdir():
        if path.name == ORIGINAL:
            shutil.copytree(path, folder / ORIGINAL, dirs_exist_ok=True)
        elif path.is_file() and path not in (start.checkpoint, start.folder / MODEL_JSON):
            shutil.copyfile(path, folder / path.name)
    models = {
        name: model and folder / model.name
        for name in ("subword_model", "target_subword_model")
        for model in [getattr(start, name)]
    }
    for name in ("sentences_per_line", "training_source_length"):
        if measures and (known := getattr(start, name)):
            measures[name] = max(known, measures[name])
    if start.training_source_length is None:  # the start may have seen longer sentences
        measures.pop("training_source_length", None)
    given = {name: value for name, value in search.items() if value is not None}
    changes: dict[str, Any] = models | measures | given
    replace(
        start, folder=folder, checkpoint=folder / checkpoint, data=folder, state=None, **changes
    ).write()


def main() -> None:
    parser = ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--checkpoint", required=True, help="checkpoint in the folder; it need not exist yet"
    )
    parser.add_argument("--start", type=Path, help="model folder that the training starts from")
    parser.add_argument("--data", type=Path, help="folder of fairseq-preprocess")
    parser.add_argument("--languages", nargs=2)
    parser.add_argument(
        "--pairs", nargs="+", help="directions of a multilingual model, such as en-de de-en"
    )
    parser.add_argument("--subwords", nargs=2, metavar=("KIND", "MODEL"))
    parser.add_argument("--beam", type=int)
    parser.add_argument("--length-penalty", type=float)
    parser.add_argument("--penalty", choices=PENALTIES)
    parser.add_argument("--max-len-a", type=float)
    parser.add_argument(
        "--train", nargs=2, type=Path, action="append", required=True, metavar=("TEXT", "ENCODED"),
        help="training sources of a direction, as text and as subwords",
    )  # fmt: skip
    args = parser.parse_args()

    folder, texts = args.folder, args.train
    folder.mkdir(parents=True, exist_ok=True)
    if args.start:
        start = read_model_json(args.start)
        search = {
            "beam": args.beam,
            "lenpen": args.length_penalty,
            "penalty": args.penalty,
            "max_len_a": args.max_len_a,
        }
        measures = measure_sources(texts, start.source_lang)
        describe_adapted(start, folder, args.checkpoint, search, measures)
        return
    kind, subwords = args.subwords
    directions, names = None, [f"dict.{language}.txt" for language in args.languages]
    if args.pairs:
        directions, names = name_directions(args.pairs), ["dict.txt"]
    for file in (Path(subwords), *(args.data / name for name in names)):
        shutil.copyfile(file, folder / file.name)
    ModelDescription(
        engine="fairseq",
        source_lang=args.languages[0],
        target_lang=args.languages[1],
        folder=folder,
        checkpoint=folder / args.checkpoint,
        data=folder,
        subwords=kind,
        subword_model=folder / SUBWORD_FILES[kind],
        preprocessing="moses" if kind == "subword_nmt" else "none",
        beam=args.beam,
        lenpen=args.length_penalty,
        penalty=args.penalty,
        max_len_a=ModelDescription.max_len_a if args.max_len_a is None else args.max_len_a,
        max_source_length=1000,
        directions=directions,
        **measure_sources(texts, args.languages[0]),
    ).write()


if __name__ == "__main__":
    with exit_with_one_line():
        main()
