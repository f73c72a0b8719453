"""Make the folder of the model that trainings start from, whatever its format was.

The folder has model.json, model.pt, dictionaries and subword models, and options of fairseq-train:
options.txt for the model's shape, positions.txt for its positions, and for several directions
task/options.txt for fairseq's multilingual task. description.txt is one line.
"""

import hashlib
import json
import logging
import os
import shlex
import shutil
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, redirect_stdout
from dataclasses import replace
from io import StringIO
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from diet_fairseq.errors import UserError, exit_with_one_line
from diet_fairseq.files import read_json
from diet_fairseq.text.lines import read_lines, read_pairs, write_lines
from diet_fairseq.text.subwords import TARGET, copy_subwords
from diet_fairseq.translate.directions import EOS, TAG_STYLES, Directions
from diet_fairseq.translate.directions import SOURCE as SOURCE_TAG
from diet_fairseq.translate.directions import TARGET as TARGET_TAG
from diet_fairseq.translate.model_files import ModelOptions, resolve_model
from diet_fairseq.translate.model_json import (
    MODEL_JSON,
    ModelDescription,
    dictionary_paths,
    read_model_json,
)

#: files of a folder of transformers that decide what its model computes
TRANSFORMERS_FILES = (
    "*.json", "*.txt", "*.spm", "*.model", "*.safetensors", "pytorch_model*.bin", "README.md"
)  # fmt: skip
#: languages of an imported model whose folder names none
UNNAMED = ("source", "target")
#: name of the checkpoint in the folder that is written
CHECKPOINT = "model.pt"
#: number of lines of a test set that are translated before and after its vocabulary is trimmed
TESTED_LINES = 100
#: prefixes of the links to the dictionaries, whose own names differ among models
SIDES = ("source", "target")
#: of a model whose checkpoint does not name it
LABEL_SMOOTHING = 0.1
#: kind of subwords -> fairseq-train's options that join the subwords and words of a translation
JOINED = {
    "sentencepiece": ["--eval-bleu-remove-bpe", "sentencepiece", "--eval-bleu-detok", "space"],
    "subword_nmt": ["--eval-bleu-remove-bpe", "subword_nmt", "--eval-bleu-detok", "moses"],
}
ADVICE = (
    "give a folder of transformers, a folder with model.json, or checkpoint, data and subwords of a"
    " fairseq model"
)
#: folder with the files of a task with several directions
TASK = "task"
#: folder with the files for `export hf --original`
ORIGINAL = "original"

#: tokens before a source -> options of fairseq's multilingual task
TAG_OPTIONS = {
    (): [], (SOURCE_TAG,): ["--encoder-langtok", "src"], (TARGET_TAG,): ["--encoder-langtok", "tgt"]
}  # fmt: skip

Start = str | Mapping[str, str]
#: source and target
Direction = tuple[str, str]


def options(start: Start) -> tuple[Path, ModelOptions]:
    """The path of a model, and the options by which ``diet-fairseq translate`` finds its files."""
    if isinstance(start, str):
        return Path(start), ModelOptions()
    data, subwords = (Path(start[key]) if key in start else None for key in ("data", "subwords"))
    return Path(start["checkpoint"]), ModelOptions(data, subwords, start.get("tokenizer"))


def is_of_transformers(path: Path) -> bool:
    """Whether a folder is one of transformers' (its own classes or ours), not of fairseq."""
    if not (path / "config.json").is_file():
        return False
    if not (path / MODEL_JSON).is_file():
        return True
    content = read_json(path / MODEL_JSON)
    return isinstance(content, dict) and content.get("engine") == "transformers"


def list_files(start: Start, directions: Sequence[Direction]) -> dict[str, Path]:
    """The files that decide what the model is: name, without the place of the folder -> path.

    Raises:
        UserError: there is no model
    """
    path, given = options(start)
    if not path.exists():
        raise UserError(f"{path} does not exist: {ADVICE}")
    if is_of_transformers(path):
        found = (file for pattern in TRANSFORMERS_FILES for file in sorted(path.glob(pattern)))
        return {file.name: file for file in found}
    description = describe(start, directions)
    files = {f"dictionary {n}": path for n, path in enumerate(dictionary_paths(description))}
    if description.checkpoint:
        files["checkpoint"] = description.checkpoint
    for name in ("subword_model", "target_subword_model"):
        if file := getattr(description, name):
            files[name] = file
    if (description.folder / MODEL_JSON).is_file() and given == ModelOptions():
        files[MODEL_JSON] = description.folder / MODEL_JSON
    return files


def digest_files(files: Mapping[str, Path], known: Mapping[str, Any]) -> dict[str, list]:
    """Path of each file -> its size, time of change and SHA-256 (``known``, if unchanged)."""
    digests = {}
    for path in map(str, files.values()):
        status = os.stat(path)
        key: list[Any] = [status.st_size, status.st_mtime_ns]
        if known.get(path, [])[:2] != key:
            with open(path, "rb") as file:
                key.append(hashlib.file_digest(file, "sha256").hexdigest())
        digests[path] = known[path] if len(key) == 2 else key
    return digests


def find_digest(
    start: Start,
    directions: Sequence[Direction],
    known: Mapping[str, Any],
    new_languages: Mapping[str, str],
) -> dict:
    """The digest of a model, which depends on no path, and the digests of its files by path.

    Args:
        known: an earlier result, which saves the time to read files that have not changed
        new_languages: languages that the model lacks -> languages that it has
    """
    files = list_files(start, find_old_languages(directions, new_languages))
    digests = digest_files(files, known.get("files", {}))
    content = json.dumps({name: digests[str(path)][2] for name, path in files.items()})
    return {
        "digest": hashlib.sha256(content.encode()).hexdigest(),
        "bytes": sum(size for size, _, _ in digests.values()),
        "files": digests,
    }


def find_old_languages(
    directions: Sequence[Direction], new_languages: Mapping[str, str]
) -> list[Direction]:
    """The directions, with old languages in the place of new ones."""
    return [
        (new_languages.get(source, source), new_languages.get(target, target))
        for source, target in directions
    ]


def describe(start: Start, directions: Sequence[Direction]) -> ModelDescription:
    """The description of a fairseq model for the first of some directions, all of which it has.

    Raises:
        UserError: the model does not translate between the languages, or is not of fairseq
    """
    path, given = options(start)
    if not isinstance(start, str) or (path.is_file() and not (path.parent / MODEL_JSON).exists()):
        given = replace(given, source_lang=directions[0][0], target_lang=directions[0][1])
    description = resolve_model(path, given)
    if description.engine != "fairseq":
        raise UserError(
            f"start names {path}, a model for {description.engine}, which can't be trained: name "
            "the folder that it was exported from"
        )
    if description.languages == UNNAMED and len(directions) == 1:
        return description
    known = description.all_directions
    matched = [known.match(*languages) for languages in directions]
    names = ("a source language", "a target language")
    if len(directions) == 1:
        names = ("the first of languages", "the second of languages")
    for languages in matched:
        known.check(*languages, names)
    return replace(description, source_lang=matched[0][0], target_lang=matched[0][1])


def make(
    start: Start,
    directions: Sequence[Direction],
    out: Path,
    scores_bleu: bool,
    new_languages: Mapping[str, str],
    is_multilingual: bool = False,
) -> str:
    """Write the model into the folder ``out``; the result is its description in one line.

    Raises:
        UserError: the model can't be imported, or its training is not supported
    """
    path, _ = options(start)
    with ExitStack() as stack:
        if is_of_transformers(path):
            from diet_fairseq.hf.convert import from_transformers

            imported = Path(stack.enter_context(TemporaryDirectory(dir=out)), "imported")
            with redirect_stdout(StringIO()) as output:
                from_transformers.run(Namespace(folder=path, out=imported, keep_text=()))
            # the last two lines name the temporary folder
            print(*output.getvalue().splitlines()[:-2], sep="\n")
            if not (imported / MODEL_JSON).exists():
                raise UserError(f"start must be a translation model, but {path} is an encoder")
            start = str(imported)
        description = describe(start, find_old_languages(directions, new_languages))
        check_tags(description, path, scores_bleu)
        if description.languages == UNNAMED and description.directions is None:
            source, target = directions[0]
            named = replace(description, source_lang=source, target_lang=target)
        else:
            named = description
        # fairseq's multilingual task computes no BLEU
        size = write_model(description, named, out, {} if is_multilingual else JOINED)
    if new_languages:
        add_new_languages(out, new_languages, directions[0])
    return f"{path} ({size})"


def write_task(folder: Path, place: Path, directions: Sequence[Direction], path: Path) -> None:
    """Write the files by which fairseq's multilingual task trains the model in a folder.

    The dictionaries of the training have the model's tags under the names that the task gives them.

    Args:
        place: the folder's later path
        path: of the start, for errors

    Raises:
        UserError: the model has no tags in the places where the task puts them
    """
    description = read_model_json(folder)
    known, framing = description.all_directions, description.all_directions.framing
    tags = find_tags(known, directions)
    fault = None
    if missing := ", ".join(name for name, tag in tags.items() if tag is None):
        fault = f"{path} has none for {missing}"
    elif framing.source_prefix not in TAG_OPTIONS:
        fault = f"{path} writes {' '.join(framing.source_prefix)} before a source"
    if fault:
        raise UserError(
            "start must have a tag for every language of several directions, at most one before a "
            f"source, but {fault}: adapt each direction in a config of its own, or start from "
            "NLLB, M2M-100 or mBART-50"
        )
    dictionaries = dictionary_paths(description)
    if not is_one_vocabulary(description, dictionaries):
        sides = [{direction[side] for direction in directions} for side in (0, 1)]
        if both := sorted(sides[0] & sides[1]):
            raise UserError(
                f"start must have one vocabulary for sources and targets, but {path} has two, and "
                f"{both[0]} is both: adapt the directions in configs of their own"
            )
    words = [*TAG_OPTIONS[framing.source_prefix]]
    words += ["--decoder-langtok"] if framing.target_prefix else []
    names = {tag: TAG_STYLES["multilingual"].format(name) for name, tag in tags.items()}
    (folder / TASK).mkdir()
    for side, dictionary in zip(SIDES, dictionaries, strict=True):
        entries = (line.rpartition(" ") for line in read_lines(dictionary))
        lines = (f"{names.get(word, word)} {count}" for word, _, count in entries)
        write_lines(folder / TASK / f"{side}.txt", lines)
        words += [f"--{side}-dict", str(place / TASK / f"{side}.txt")]
    write_lines(folder / TASK / "languages.txt", tags)
    words += ["--lang-dict", str(place / TASK / "languages.txt")]
    write_lines(folder / TASK / "options.txt", [shlex.join(words)])


def find_tags(known: Directions, directions: Sequence[Direction]) -> dict[str, str | None]:
    """The languages of directions -> the model's tag, or None."""
    tags: dict[str, str | None] = {}
    for direction in directions:
        tags |= {
            name: known.tags.get(own)
            for name, own in zip(direction, known.match(*direction), strict=True)
        }
    return dict(sorted(tags.items()))


def is_one_vocabulary(description: ModelDescription, dictionaries: Sequence[Path]) -> bool:
    """Whether sources and targets have the same dictionary and the same subwords."""
    source, target = (path.read_bytes() for path in dictionaries)
    return source == target and description.target_subword_model is None


def check_tags(description: ModelDescription, path: Path, scores_bleu: bool) -> None:
    """Refuse language tags, and scores of BLEU while training, that text can't express."""
    framing = description.all_directions.frame(description.source_lang, description.target_lang)
    if framing.has_own_ends or framing.target_end != EOS:
        raise UserError(
            f"start must mark languages before its sentences, but {path} marks them in place of "
            "</s> or behind it, as mBART-25 does: start from mBART-50, NLLB, M2M-100 "
            "or OPUS-MT, or run fairseq-train with the model's own task"
        )
    if scores_bleu and (framing.target_prefix or description.subwords not in JOINED):
        raise UserError(
            "validation must be loss for a start whose translations begin with a tag or whose "
            f"subwords are {description.subwords}, but is bleu: leave it out"
        )


def write_model(
    description: ModelDescription, named: ModelDescription, out: Path, joined: Mapping[str, list]
) -> str:
    """Write a fairseq model as a folder with options of fairseq-train; its size in words.

    Args:
        named: the description with the languages that the folder is to have
        joined: kind of subwords -> further options
    """
    # fairseq takes seconds to import
    from fairseq import options
    from fairseq.models import ARCH_MODEL_REGISTRY

    from diet_fairseq.translate.loading import load_transformer
    from diet_fairseq.translate.training_options import (
        position_flags,
        shape_flags,
        write_checkpoint,
    )

    loaded = load_transformer(description)
    shape = shape_flags(to_mapping(loaded.config.model))
    positions = position_flags(to_mapping(loaded.config.model), *loaded.stacks.values())
    words = [str(out), "-s", named.source_lang, "-t", named.target_lang, *positions, *shape]
    args = options.parse_args_and_arch(options.get_training_parser("translation"), words)
    # the options must build the same parameters
    model = ARCH_MODEL_REGISTRY[args.arch].build_model(args, loaded.task)
    model.load_state_dict(loaded.model.state_dict())
    write_checkpoint(out / CHECKPOINT, args, model.state_dict())
    limits = args.max_source_positions - 1, args.max_target_positions - 1  # without </s>
    write_files(limit_lengths(named, *limits), dictionary_paths(description), loaded.task, out)
    shape += joined.get(description.subwords, [])
    smoothing = to_mapping(loaded.config.criterion).get("label_smoothing")
    shape += ["--label-smoothing", str(LABEL_SMOOTHING if smoothing is None else smoothing)]
    (out / "options.txt").write_text(" ".join(shape) + "\n", encoding="utf-8")
    (out / "positions.txt").write_text(" ".join(positions) + "\n", encoding="utf-8")
    original = (description.checkpoint or out).parent / ORIGINAL
    if original.is_dir():
        shutil.copytree(original, out / ORIGINAL)
    license = f", licence {description.license}" if description.license else ""
    size = sum(parameter.numel() for parameter in model.parameters())
    return f"{positions[1]}, {size:,} parameters{license}"


def to_mapping(section: Any) -> Mapping[str, Any]:
    """A section of fairseq's configuration, which has several types; empty if there is none."""
    return vars(section) if isinstance(section, Namespace) else section or {}


def add_new_languages(
    folder: Path, new_languages: Mapping[str, str], languages: tuple[str, str]
) -> None:
    """Add languages to the model in ``folder``, which then has the direction ``languages``."""
    from diet_fairseq.vocabulary import add_languages

    with TemporaryDirectory(dir=folder.parent) as aside:
        add_languages(folder, Path(aside, "new"), new_languages)
        description = read_model_json(Path(aside, "new"))
        source, target = description.all_directions.match(*languages)
        replace(description, source_lang=source, target_lang=target).write()
        replace_model(folder, Path(aside, "new"))


def trim(
    folder: Path,
    texts: Sequence[Path],
    tests: Sequence[Sequence[str]],
    directions: Sequence[Direction],
) -> Iterator[str]:
    """Trim the vocabulary of the model in ``folder`` to the tokens of texts; lines to print.

    A multilingual model keeps the directions of the training: the tokens of others may be gone.

    Args:
        tests: two languages and two files each. The first lines are translated before and after
    """
    from diet_fairseq.text.scores import score
    from diet_fairseq.translate.translator import Translator
    from diet_fairseq.vocabulary import ANY_LANGUAGE, trim_vocabulary

    def score_tests() -> Iterator[str]:
        translator = Translator(folder, split_sentences=False)
        for source, target, *files in tests:
            languages: dict[str, Any] = {}
            if len(directions) > 1:
                languages = {"source_lang": source, "target_lang": target}
            pairs = read_pairs(*map(Path, files))
            lines, references = zip(*islice(pairs, TESTED_LINES), strict=True)
            translations = translator.translate([*lines], **languages)
            scores = score(translations, references, "", (source, target))
            yield f"BLEU {scores['BLEU']:.2f}, chrF {scores['chrF']:.2f}"

    before = [*score_tests()]
    with TemporaryDirectory(dir=folder.parent) as aside:
        sizes = trim_vocabulary(folder, Path(aside, "new"), {ANY_LANGUAGE: texts})
        replace_model(folder, Path(aside, "new"))
    description = read_model_json(folder)
    if known := description.directions:
        trained = tuple(known.match(*direction) for direction in directions)
        replace(description, directions=replace(known, pairs=trained)).write()
    yield f"vocabulary before: {sizes[0]}"
    yield f"vocabulary after: {sizes[1]}"
    for (_, _, text, _), old, new in zip(tests, before, score_tests(), strict=True):
        yield f"first {TESTED_LINES} lines of {text}, before: {old}; after: {new}"


def replace_model(folder: Path, new: Path) -> None:
    """Move the files of another model over the files of a model; the new one is of no class."""
    shutil.rmtree(folder / ORIGINAL, ignore_errors=True)
    for path in new.iterdir():
        os.replace(path, folder / path.name)


def limit_lengths(description: ModelDescription, source: int, target: int) -> ModelDescription:
    """The description with limits of subwords that the model's positions suffice for."""
    lengths = description.max_source_length or source, description.max_target_length or target
    return replace(
        description,
        max_source_length=min(lengths[0], source),
        max_target_length=min(lengths[1], target),
    )


def write_files(
    description: ModelDescription, dictionaries: Sequence[Path], task: Any, out: Path
) -> None:
    """Write model.json, the dictionaries and the subword models.

    Args:
        dictionaries: the files of the source's and the target's dictionary
        task: fairseq's, which may have added the tags of languages to the dictionaries
    """
    words = task.source_dictionary, task.target_dictionary
    names = [f"dict.{lang}.txt" for lang in (description.source_lang, description.target_lang)]
    if description.directions:  # of all languages
        names = ["dict.txt"] * 2 if words[0] == words[1] else ["dict.SRC.txt", "dict.TGT.txt"]
    for side, name, path, dictionary in zip(SIDES, names, dictionaries, words, strict=True):
        (out / f"{side}-dict.txt").symlink_to(name)
        if len(type(dictionary).load(str(path))) == len(dictionary):
            shutil.copyfile(path, out / name)
        else:
            dictionary.save(str(out / name))
    models: dict[str, Any] = {
        name: copy_subwords(description.subwords, model, out, prefix)
        for name, prefix in (("subword_model", ""), ("target_subword_model", TARGET))
        if (model := getattr(description, name))
    }
    replace(
        description, folder=out, checkpoint=out / CHECKPOINT, data=out, state=None, **models
    ).write()


def main() -> None:
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="folder to write")
    parser.add_argument(
        "--start", type=json.loads, required=True, help="the config's key start, as JSON"
    )
    parser.add_argument(
        "--directions", nargs="+", required=True, help="pairs of languages, such as en de de en"
    )
    parser.add_argument(
        "--multilingual", action="store_true", help="write a model of several directions"
    )
    parser.add_argument(
        "--scores-bleu", action="store_true", help="the training selects checkpoints by BLEU"
    )
    parser.add_argument(
        "--new-language", nargs=2, action="append", default=[], metavar=("NEW", "OLD"),
        help="language that the model lacks, and the language whose tag it begins with",
    )  # fmt: skip
    parser.add_argument("--trim", nargs="+", type=Path, help="texts whose tokens stay")
    parser.add_argument(
        "--tests", nargs=4, action="append", default=[],
        metavar=("SOURCE", "TARGET", "TEXT", "REFERENCE"), help="languages and files",
    )  # fmt: skip
    parser.add_argument("--user-dir", type=Path, help="package with position schemes")
    args = parser.parse_args()

    logging.disable(logging.INFO)  # fairseq describes the model
    if args.user_dir:
        from diet_fairseq.config import import_user_dir

        import_user_dir(args.user_dir)
    directions = [*zip(args.directions[::2], args.directions[1::2], strict=True)]
    args.folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=args.folder.parent) as aside:
        folder = Path(aside, "model")
        folder.mkdir()
        line = make(
            args.start, directions, folder,
            args.scores_bleu, dict(args.new_language), args.multilingual,
        )  # fmt: skip
        if args.trim:
            print(*trim(folder, args.trim, args.tests, directions), sep="\n")
        if args.multilingual:
            write_task(folder, args.folder, directions, options(args.start)[0])
        (folder / "description.txt").write_text(line + "\n", encoding="utf-8")
        for path in args.folder.iterdir():  # of another model
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path in folder.iterdir():
            path.rename(args.folder / path.name)
    print(f"start: {line}")


if __name__ == "__main__":
    with exit_with_one_line():
        main()
