"""A checkpoint to look into, and what its model reads."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils
from torch import Tensor

from ..errors import UserError
from ..inference.text import Text
from ..model_json import ModelDescription
from ..positions import PositionScheme

#: how many windows of text are read, and how long they are where nothing is said
WINDOWS, LONGEST = 8, {True: 128, False: 64}
#: the longest window: pictures of more show nothing more, and take memory
MOST = 1024
#: where the recipes put subword models: beside the data, with what parted the text before them
SUBWORDS = {
    "sentencepiece.model": ("sentencepiece", "none"),
    "codes": ("subword_nmt", "moses"),
}


@dataclass(frozen=True)
class Trained:
    """A model in eval mode and float32.

    Attributes:
        path: of the checkpoint
        model: fairseq's, stock or ours
        stacks: its encoder and, in translation, its decoder, by name
        task: with the dictionaries
        arch: as the checkpoint names it
        updates: how often its parameters were updated
    """

    path: Path
    model: Any
    stacks: dict[str, Any]
    task: Any
    arch: str
    updates: int

    @property
    def is_encoder(self) -> bool:
        return "decoder" not in self.stacks

    @property
    def dictionary(self) -> Any:
        return self.task.source_dictionary

    @property
    def limit(self) -> int:
        """The most tokens that all of its stacks read."""
        return min(int(stack.max_positions()) for stack in self.stacks.values())

    @property
    def scheme(self) -> str:
        """What acts where, in words."""
        found = []
        for name, stack in self.stacks.items():
            config = getattr(getattr(stack, "placement", None), "config", None)
            if config is None:
                kind = type(getattr(stack, "embed_positions", None)).__name__
                found.append(f"{name}: fairseq's own, {kind}")
            else:
                sharing = f", sharing {config.position_sharing}" if config.position_sharing else ""
                found.append(f"{name}: {config.position_scheme}{sharing}")
        return "; ".join(found)

    @property
    def numbers(self) -> dict[str, int]:
        """How many parameters there are, and how many of them are positions'."""
        of_positions = {
            id(parameter): parameter.numel()
            for name, module in self.model.named_modules()
            if isinstance(module, PositionScheme) or name.endswith("embed_positions")
            for parameter in module.parameters()
        }
        return {
            "parameters": sum(parameter.numel() for parameter in self.model.parameters()),
            "of positions": sum(of_positions.values()),
        }

    @property
    def sizes(self) -> str:
        shapes = []
        for name, stack in self.stacks.items():
            attention = stack.layers[0].self_attn
            shapes.append(
                f"{name}: {len(stack.layers)} layers, {attention.embed_dim} wide, "
                f"{attention.num_heads} heads"
            )
        return "; ".join(shapes)


def load(path: Path, data: Path | None = None) -> Trained:
    """The model of a checkpoint, read safely; ``data`` is the folder of its dictionaries.

    Raises:
        UserError: it can't be read, has no attention, or has no positions anywhere
    """
    if not path.is_file():
        raise UserError(f"there is no checkpoint {path}: give a file that fairseq-train wrote")
    overrides = {} if data is None else {"data": str(data)}
    try:
        state = checkpoint_utils.load_checkpoint_to_cpu(str(path), overrides)
        history = state.get("optimizer_history") or [{}]
        updates = int(history[-1].get("num_updates") or 0)
        [model], cfg, task = checkpoint_utils.load_model_ensemble_and_task([str(path)], state=state)
    except FileNotFoundError as error:
        raise UserError(
            f"there is no file {error.filename or error}, which {path} was trained with: give the "
            "folder of its dictionaries by --data"
        ) from error
    encoder = getattr(getattr(model, "encoder", None), "sentence_encoder", None)
    stacks = {"encoder": encoder or getattr(model, "encoder", None)}
    if encoder is None:
        stacks["decoder"] = getattr(model, "decoder", None)
    if not all(len(getattr(stack, "layers", ())) for stack in stacks.values()):
        raise UserError(
            f"{path} holds a {type(model).__name__}: `look` reads encoders (roberta, bert, "
            "electra) and translation models (transformer), ours and fairseq's"
        )
    found = Trained(
        path, model.float().eval(), stacks, task, str(getattr(cfg.model, "arch", "")), updates
    )
    if not any(has_positions(stack) for stack in stacks.values()):
        raise UserError(
            f"{path} has no positions (--arch {found.arch}): there is nothing to look at; give a "
            "model with a position scheme"
        )
    return found


def has_positions(stack: Any) -> bool:
    """Whether a stack has positions, at its input or in its attention, or scores of segments."""
    if getattr(stack, "embed_positions", None) is not None:
        return True
    return any(isinstance(module, PositionScheme) for module in stack.modules())


def run_of(checkpoint: Path) -> list[Path]:
    """The checkpoints that fairseq saved in the same folder."""
    return sorted(checkpoint.parent.glob("checkpoint*.pt"))


def length_of(models: list[Trained], asked: int | None) -> int:
    """How many tokens each window has, for all of the models."""
    limits = {model.limit: model for model in models}
    limit = min(limits)
    if asked is None:
        trained_at = [
            int(getattr(model.task.cfg, "tokens_per_sample", 0) or LONGEST[model.is_encoder])
            for model in models
        ]
        return min(limit, *trained_at, *(LONGEST[model.is_encoder] for model in models))
    if not 4 <= asked <= MOST:
        raise UserError(f"--length must be 4 to {MOST}, but is {asked}")
    if asked > limit:
        raise UserError(
            f"--length {asked} is more than the {limit} positions of {limits[limit].path}: give at "
            f"most {limit}"
        )
    return asked


@dataclass(frozen=True)
class Batch:
    """Windows of tokens, (B, T) int64, without padding, and where they are from."""

    tokens: Tensor
    source: str


def read(
    model: Trained, length: int, text: Path | None = None, subwords: Path | None = None
) -> Batch:
    """`WINDOWS` windows of a text, or of words of the vocabulary at random where there is none.

    Raises:
        UserError: the text can't be read, or is shorter than one window
    """
    words = model.dictionary
    inside = length - (2 if model.is_encoder else 1)
    if text is None:
        generator = torch.Generator().manual_seed(1)
        real = [
            number
            for number in range(words.nspecial, len(words))
            if not words[number].startswith("madeupword") and words[number] != "<mask>"
        ]
        known = torch.tensor(real or [words.unk()])
        drawn = torch.randint(len(known), (WINDOWS, inside), generator=generator)
        ids, source = known[drawn], "words of the vocabulary, drawn at random (seed 1)"
    else:
        pieces = pieces_of(model, text, subwords)
        stream = torch.tensor([words.index(piece) for piece in pieces])
        number = min(WINDOWS, len(stream) // inside)
        if not number:
            raise UserError(
                f"{text} has {len(stream)} subwords, which is less than one window of {inside}: "
                "give a longer text, or a smaller --length"
            )
        ids = stream[: number * inside].view(number, inside)
        unknown = float((ids == words.unk()).float().mean())
        if unknown > 0.5:
            raise UserError(
                f"{unknown:.0%} of the subwords of {text} are not in the vocabulary of "
                f"{model.path}: give its subword model by --subwords"
            )
        source = f"the first {number} times {inside} subwords of {text.name}"
    ends = ids.new_full((len(ids), 1), words.eos())
    starts = [ids.new_full((len(ids), 1), words.bos())] if model.is_encoder else []
    return Batch(torch.cat([*starts, ids, ends], 1), source)


def pieces_of(model: Trained, text: Path, subwords: Path | None) -> list[str]:
    """The subwords of a file of text."""
    try:
        lines = text.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UserError(f"--text {text} can't be read: {reason}; give a file of text") from error
    kind, before = "none", "none"
    if subwords is None:
        folder = Path(str(model.task.cfg.data).split(":")[0]).parent / "subwords"
        places = [folder / name for name in SUBWORDS]
        subwords = next((place for place in places if place.is_file()), None)
        if subwords is not None:
            kind, before = SUBWORDS[subwords.name]
    elif not subwords.is_file():
        raise UserError(f"--subwords {subwords} is no file: name sentencepiece.model or codes")
    else:
        kind = "sentencepiece" if subwords.suffix == ".model" else "subword_nmt"
    language = getattr(model.task.cfg, "source_lang", None) or "en"
    described = ModelDescription(
        "fairseq", language, language, text.parent,
        subwords=kind, subword_model=subwords, preprocessing=before,
    )  # fmt: skip
    reader = Text(described)
    return [piece for line in lines for piece in reader.tokens(line)]
