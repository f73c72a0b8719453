"""``diet-fairseq translate MODEL... [FILE]``: plain text in, plain text out, line by line."""

import json
import math
import sys
import zipfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ..arguments import at_least
from ..errors import UserError
from ..inference import found as pieces
from ..inference.lines import windows
from ..inference.translator import MAX_TOKENS, TooLong, Translation, Translator
from ..interrupts import interruptible
from ..progress import heartbeat


def add_model_arguments(parser: ArgumentParser, text: str = "") -> None:
    """Arguments that name a model and its device; ``text`` ends the help of the first."""
    add = parser.add_argument
    add("models", type=Path, metavar="MODEL", nargs="+",
        help=f"run's folder, exported model or checkpoint; several: an ensemble{text}")  # fmt: skip
    add("--threads", type=at_least(1), help="of the CPU (as PyTorch or CTranslate2 choose)")
    add("--device", default="cpu", help="cpu, cuda or cuda:N (%(default)s)")
    pieces.add_arguments(parser)


def separate_file(paths: list[Path]) -> tuple[list[Path], Path | None]:
    """Models and the text to translate: the last path, unless it is a folder or a checkpoint."""
    *models, last = paths
    if not models or last.is_dir() or last.suffix == ".pt" or zipfile.is_zipfile(last):
        return paths, None
    return models, last


def loaded(args: Namespace) -> Translator:
    names = ("data", "subwords", "tokenizer", "source_lang", "target_lang", "device", "threads")
    given = {name: getattr(args, name) for name in names}
    return Translator(args.models, **given, max_tokens=args.max_tokens)


def add_arguments(parser: ArgumentParser) -> None:
    add_model_arguments(parser, "; then the text, a file in UTF-8 (default: standard input)")
    add = parser.add_argument
    add("--beam", type=at_least(1), help="hypotheses to keep (the model's own)")
    add("--nbest", type=at_least(1), default=1, help="lines to write for each line (%(default)s)")
    add("--length-penalty", type=at_least(-math.inf), metavar="ALPHA", help="(the model's own)")
    add("--scores", action="store_true", help="write a line of JSON for each line, with scores")
    add("--strict", action="store_true", help="stop at a line that is too long, don't cut it")
    add(
        "--max-tokens",
        type=at_least(1),
        default=MAX_TOKENS,
        help="subwords in a batch (%(default)s)",
    )


def run(args: Namespace) -> None:
    written = completed = 0
    with interruptible(lambda: f"{written:,} lines were translated and written"):
        args.models, file = separate_file(args.models)
        name = str(file or "standard input")
        try:
            source = open(file, "rb") if file else sys.stdin.buffer  # noqa: SIM115
        except OSError as error:
            raise UserError(f"{name} can't be read: {error.strerror}") from error
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")  # whatever the locale says
        translator = loaded(args)
        bar = tqdm(desc="translating", unit=" lines", disable=None)

        def done(lines: int) -> None:
            nonlocal completed
            completed += lines
            bar.update(lines)

        with bar, heartbeat(lambda: _say(completed) if bar.disable else None):
            for lines in windows(source, name):
                fault = None
                try:
                    found = _translated(translator, lines, args, done)
                except TooLong as error:
                    before = lines[: error.number - 1]
                    found = _translated(translator, before, args, done)
                    fault = UserError(
                        f"{name}, line {written + error.number} has {error.subwords:,} subwords, "
                        f"but the model takes {error.longest:,}: shorten it, or leave out --strict"
                    )
                for some in found:
                    print(_shown(some, written + 1, args.scores))
                    written += 1
                sys.stdout.flush()
                if fault:
                    raise fault


def _translated(
    translator: Translator, lines: list[str], args: Namespace, done: Callable[[int], Any]
) -> list[list[Translation]]:
    return translator.candidates(
        lines,
        nbest=args.nbest,
        beam=args.beam,
        lenpen=args.length_penalty,
        strict=args.strict,
        done=done,
    )


def _shown(found: list[Translation], number: int, scores: bool) -> str:
    if not scores:
        return "\n".join(one.text for one in found)
    translations = [{"text": one.text, "score": round(one.score, 6)} for one in found]
    return json.dumps({"line": number, "translations": translations}, ensure_ascii=False)


def _say(lines: int) -> None:
    print(f"translated: {lines:,} lines", file=sys.stderr, flush=True)
