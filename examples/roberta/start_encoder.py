"""Prepare the model that trainings start from: its checkpoint, vocabulary, subwords and options.

    start.py xlm-roberta-base out/start/1a2b3c4d

The model is a folder of transformers' own class or of `diet-fairseq export hf`, a folder of
`diet-fairseq import hf`, or a run of this workflow (or one of its checkpoints). The new folder has
the places in which `translate.model_files` looks for files:

    model.pt            the checkpoint
    data-bin            dict.txt, made-from.json, and the folder original of an import
    subwords            the subword model
    options-start.txt   options of fairseq-train for the same model
    options-swap.txt    the same options for another position scheme, named SCHEME
"""

import logging
import shlex
import shutil
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import diet_fairseq.hf  # noqa: F401  # before transformers: it hides a broken torchaudio

# isort: split
from fairseq.models import ARCH_MODEL_NAME_REGISTRY, ARCH_MODEL_REGISTRY

from diet_fairseq.config import import_user_dir
from diet_fairseq.errors import UserError, exit_with_one_line
from diet_fairseq.files import atomic_folder
from diet_fairseq.hf.convert.checkpoint import MODEL
from diet_fairseq.hf.convert.from_transformers import run as import_folder
from diet_fairseq.hf.convert.original import ORIGINAL
from diet_fairseq.hf.convert.to_transformers import has_trained_head
from diet_fairseq.text.subwords import SUBWORD_FILES, WORDPIECE_FILES, copy_subwords
from diet_fairseq.translate.loading import read_checkpoint
from diet_fairseq.translate.model_files import DATA, TEXT_OPTIONS_JSON, TextOptions, resolve_model
from diet_fairseq.translate.model_json import dictionary_paths
from diet_fairseq.translate.training_options import option_words

#: models that masked language modelling continues to train -> the start of their --arch
CLASSES = {"diet_bert": "bert", "diet_roberta": "roberta"}
#: options of a machine or a run, and of heads: masked language modelling trains no head for next
#: sentences, and needs a head for masked words, which is new if the model has none
OTHER_OPTIONS = {
    "attention_backend",
    "checkpoint_activations",
    "load_checkpoint_heads",
    "new_rows_from",
    "no_lm_head",
    "nsp",
}
#: options of a position scheme, which a model with another scheme does not share
POSITION_OPTIONS = ("position_", "projection_")


def find_checkpoint(path: Path) -> Path:
    """The checkpoint of an import or a run, or the checkpoint itself.

    Raises:
        UserError: there is none
    """
    names = (MODEL, "checkpoint_last.pt")
    checkpoints = [path, *(path / name for name in names)]
    if checkpoint := next(filter(Path.is_file, checkpoints), None):
        return checkpoint
    raise UserError(
        f"start must be a folder with config.json, {' or '.join(names)}, but {path} has none of "
        "them: name another folder"
    )


def copy_model(checkpoint: Path, out: Path, start: Path) -> None:
    """Copy a checkpoint and the files of its text into ``out``, and write its options.

    Args:
        start: the model that the user has named, for messages

    Raises:
        UserError: the checkpoint is not an encoder, or its subword model is missing
    """
    description = resolve_model(checkpoint, translates=False)
    data, subwords = out / DATA, out / "subwords"
    data.mkdir()
    subwords.mkdir()
    if description.subword_model is None:
        raise UserError(
            f"{start} must have a subword model that this package reads, but has none of "
            f"{', '.join((*SUBWORD_FILES.values(), *WORDPIECE_FILES))}: put it there, or name "
            "another model"
        )
    copy_subwords(description.subwords, description.subword_model, subwords)
    shutil.copyfile(dictionary_paths(description)[0], data / "dict.txt")
    text = TextOptions(
        lower=description.lower, language=description.language, license=description.license
    )
    (data / TEXT_OPTIONS_JSON).write_text(text.model_dump_json(exclude_none=True))
    if (original := checkpoint.parent / ORIGINAL).is_dir():
        shutil.copytree(original, data / ORIGINAL)
    shutil.copyfile(checkpoint, out / MODEL)
    state = read_checkpoint(checkpoint)
    options = state["cfg"]["model"]
    write_options(options if isinstance(options, Mapping) else vars(options), out, start)
    parameters = {name.removeprefix("encoder."): x for name, x in state["model"].items()}
    if not has_trained_head(parameters):
        (out / "new-head").touch()
        print(
            f"warning: {start} has no trained head for masked words: continued pretraining "
            "trains a new one, and the table has no held-out loss of the model as it was"
        )


def write_options(options: Mapping[str, Any], out: Path, start: Path) -> None:
    """Write the options of fairseq-train for the same model, and for another position scheme.

    Raises:
        UserError: the model is not one of `CLASSES`
    """
    arch = str(options.get("arch") or options.get("_name"))
    kind = CLASSES.get(ARCH_MODEL_NAME_REGISTRY.get(arch, ""))
    if kind is None:
        names = " or ".join(f"{name}_SCHEME" for name in CLASSES.values())
        raise UserError(
            f"the start must be a model of --arch {names}, but {start} is of --arch {arch}: "
            "name another model"
        )
    words = dict(model_options(arch, options))
    swap = {name: word for name, word in words.items() if not name.startswith(POSITION_OPTIONS)}
    same = f"--arch {kind}_{options['position_scheme']}"
    del words["position_scheme"]
    for name, class_words, chosen in (
        ("start", same, words), ("swap", f"--arch {kind}_SCHEME", swap)
    ):  # fmt: skip
        text = " ".join([class_words, *chosen.values()])
        (out / f"options-{name}.txt").write_text(f"{text}\n", encoding="utf-8")


def model_options(arch: str, options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The names and the words of a model's options that differ from fairseq-train's defaults."""
    parser = ArgumentParser()
    ARCH_MODEL_REGISTRY[arch].add_args(parser)
    for action in parser._actions:
        value = options.get(action.dest)
        is_default = value is None or value is False or value == action.default
        if action.dest not in OTHER_OPTIONS and not is_default:
            yield action.dest, shlex.join(option_words(action, value))


def main() -> None:
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("start", type=Path, help="the model")
    parser.add_argument("out", type=Path, help="the new folder")
    parser.add_argument("--user-dir", type=Path, help="package of the model's position scheme")
    args = parser.parse_args()
    if args.user_dir:
        import_user_dir(args.user_dir)
    logging.getLogger().setLevel(logging.WARNING)
    with atomic_folder(args.out) as out:
        if not (args.start / "config.json").is_file():
            copy_model(find_checkpoint(args.start), out, args.start)
            return
        with TemporaryDirectory(dir=out.parent) as folder:
            imported = Path(folder) / "import"
            report = StringIO()
            with redirect_stdout(report):
                import_folder(Namespace(folder=args.start, out=imported, keep_text=()))
            for line in report.getvalue().splitlines():
                if str(imported) not in line:  # advice about this temporary folder
                    print(line)
            copy_model(imported / MODEL, out, args.start)


if __name__ == "__main__":
    with exit_with_one_line():
        main()
