"""``diet-fairseq translate MODEL... [FILE]``: translation of plain text, line by line."""

import json
import math
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError, interruptible, silent_interrupts
from .arguments import YES_OR_NO, add_model, add_search_limits, at_least

if TYPE_CHECKING:
    from ..translate.translation import Translation
    from ..translate.translator import Translator


#: first bytes of checkpoints: zip archives, and the pickles of PyTorch before 1.6
CHECKPOINT_STARTS = (b"PK\x03\x04", b"\x80")


def separate_file(paths: list[Path]) -> tuple[list[Path], Path | None]:
    """Models, and the file to translate: the last path, unless it is a folder or a checkpoint."""
    *models, last = paths
    if not models or last.is_dir() or _is_checkpoint(last):
        return paths, None
    return models, last


def _is_checkpoint(path: Path) -> bool:
    """Whether a file is a checkpoint: by its content, because names of Portuguese texts end in .pt.

    The name decides about a file that is empty or can't be read.
    """
    is_named_checkpoint = path.suffix == ".pt"
    try:
        if path.exists() and not path.is_file():
            return False  # a pipe is not opened, because that would consume its text
        with open(path, "rb") as file:
            start = file.read(4)
    except OSError:
        return is_named_checkpoint
    return start.startswith(CHECKPOINT_STARTS) if start else is_named_checkpoint


def load_translator(args: Namespace) -> "Translator":
    """The translator for the arguments of `add_model`; prints the models of an ensemble."""
    if len(args.models) > 1:
        print(f"ensemble of {len(args.models)} models:", *args.models, file=sys.stderr)
    with silent_interrupts():  # the model determines which libraries are imported
        from ..translate.model_files import ModelOptions
        from ..translate.translator import Translator

        return Translator(
            args.models,
            **vars(ModelOptions.from_args(args)),
            device=args.device,
            threads=args.threads,
            max_tokens=args.max_tokens,
            split_sentences=YES_OR_NO.get(args.split_sentences),
            any_ctranslate2=args.any_ctranslate2,
            no_repeat_ngram_size=args.no_repeat_ngram_size,
            max_len_a=args.max_len_a,
            max_len_b=args.max_len_b,
        )


def add_arguments(parser: ArgumentParser) -> None:
    add_model(parser, "; then the text, a file in UTF-8 (default: standard input)")
    add = parser.add_argument
    add("--beam", type=at_least(1), help="beam size (default: from model.json, otherwise 5)")
    add("--nbest", type=at_least(1), default=1,
        help="number of translations of each line, one per line (default: "
             "%(default)s)")  # fmt: skip
    add("--length-penalty", type=at_least(-math.inf), dest="lenpen", metavar="ALPHA",
        help="exponent of the length penalty (default: from model.json, otherwise 1)")  # fmt: skip
    add_search_limits(parser)
    add("--no-unk", action="store_true",
        help="forbid <unk>, which stands for characters that the vocabulary lacks")  # fmt: skip
    add("--scores", action="store_true", help="write a line of JSON for each line, with scores")
    add("--max-characters", type=at_least(1), default=20_000,
        help="largest number of characters in a line; a longer line stops the command (default: "
             "%(default)s)")  # fmt: skip


def run(args: Namespace) -> None:
    from ..text.lines import read_line_blocks

    printed_lines = 0
    with interruptible(lambda: f"{printed_lines:,} lines were translated and written"):
        args.models, file = separate_file(args.models)
        name = str(file or "standard input")
        try:
            source = open(file, "rb") if file else sys.stdin.buffer  # noqa: SIM115
        except OSError as error:
            raise UserError(f"{name} can't be read: {error.strerror}") from error
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")  # in any locale
        translator = load_translator(args)
        omissions = translator.find_omissions(translator.source_lang, translator.target_lang)
        translate = partial(
            translator.candidates,
            warn=False,
            nbest=args.nbest,
            beam=args.beam,
            lenpen=args.lenpen,
            no_unk=args.no_unk,
        )
        with show_progress() as count_lines:
            for lines in read_line_blocks(source, name, args.max_characters):
                candidates = translate(lines, done=count_lines)
                for translations in candidates:
                    print(_render(translations, printed_lines + 1, args.scores))
                    printed_lines += 1
                sys.stdout.flush()
                if omissions:
                    omissions.add(translations[0] for translations in candidates)
        if omissions:
            omissions.log()


@contextmanager
def show_progress() -> Iterator[Callable[[int], Any]]:
    """Show the number of translated lines in a terminal; yields a function that adds lines."""
    if not sys.stderr.isatty():
        yield lambda lines: None
        return
    from tqdm import tqdm  # a tenth of the command's start-up time

    with tqdm(desc="translating", unit=" lines") as bar:
        yield bar.update


def _render(translations: "list[Translation]", number: int, scores: bool) -> str:
    if not scores:
        return "\n".join(translation.text for translation in translations)
    from ..translate.translation import json_score

    values = [
        {
            "text": item.text,
            "score": json_score(item.score),
        }
        for item in translations
    ]
    return json.dumps({"line": number, "translations": values}, ensure_ascii=False)
