"""A tiny trained-looking model with its data: what `export hf` reads."""

from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import sentencepiece
import torch
from fairseq import options
from fairseq.data import Dictionary
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask

from diet_fairseq.translate.loading import GLUE, QUESTION_ANSWERING
from tests.support import tiny
from tests.support.checkpoints import write_checkpoint
from tests.support.texts import train_sentencepiece

TEXT = [
    "the quick brown fox jumps over the lazy dog",
    "a dog sleeps and a fox runs over the hill",
    "der schnelle braune fuchs springt über den faulen hund",
    "ein hund schläft und ein fuchs läuft über den hügel",
]


@cache
def subword_model(seed: int = 0) -> bytes:
    """A SentencePiece model; another seed's knows other words."""
    words = [line[::-1] for line in TEXT] if seed else TEXT
    return train_sentencepiece(words * 5, 90)


def data(folder: Path, names: tuple[str, ...], seed: int = 0) -> Dictionary:
    """Dictionaries and a subword model, placed as the recipes place them."""
    (folder / "subwords").mkdir(parents=True)
    (folder / "subwords" / "sentencepiece.model").write_bytes(subword_model(seed))
    model = sentencepiece.SentencePieceProcessor(model_proto=subword_model())
    dictionary = Dictionary()
    for number in range(3, model.get_piece_size()):
        dictionary.add_symbol(model.id_to_piece(number))
    for name in names:
        place = folder / "data-bin" / name
        place.parent.mkdir(exist_ok=True, parents=True)
        dictionary.save(str(place))
    return dictionary


def checkpoint(folder: Path, arch: str, task: str = "translation", **overrides: object) -> Path:
    """A random model as fairseq-train saves it, beside its data in ``folder``."""
    names = ("dict.en.txt", "dict.de.txt") if task == "translation" else ("dict.txt",)
    names = ("input0/dict.txt",) if task == GLUE else names
    dictionary = data(folder, names)
    if task != "translation":
        dictionary.add_symbol("<mask>")
    if task == GLUE:
        (folder / "data-bin" / "label").mkdir()
        (folder / "data-bin" / "label" / "dict.txt").write_text("no 5\nyes 4\n")
    fine_tuned = task in (GLUE, QUESTION_ANSWERING)  # of 0.2: no command takes them any more
    known = "masked_lm" if fine_tuned else task
    words = [str(folder / "data-bin"), "--task", known, "--arch", arch]
    if task == "translation":
        words += ["--source-lang", "en", "--target-lang", "de"]
    args = options.parse_args_and_arch(options.get_training_parser(default_task=known), words)
    args.task = known
    sizes = vars(tiny.complete(arch, **overrides))
    vars(args).update({name: value for name, value in sizes.items() if name != "task"})
    vars(args).update(overrides)
    holder: Any = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    if arch.startswith("electra_"):  # has a generator in pretraining only
        holder = MaskedLMTask(MaskedLMConfig(), dictionary)
    model = ARCH_MODEL_REGISTRY[arch].build_model(args, holder)
    if task == GLUE:
        args.classification_head_name, args.num_classes = "sentence_classification_head", 2
        model.register_classification_head("sentence_classification_head", 2)
    if task == QUESTION_ANSWERING:
        model.register_classification_head("span", 2)
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return write_checkpoint(folder / "checkpoint_best.pt", args, model.state_dict(), task)
