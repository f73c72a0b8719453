"""A checkpoint to look into, and what its model reads."""

from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import UserError
from ..export import checkpoint
from ..inference.model_files import NONE, Pieces, resolve_model
from ..model_json import ModelDescription
from ..positions import PositionScheme
from ..text.lines import read_lines
from ..text.tokenizer import tokenizers

#: how many windows of text are read, and how long they are where nothing is said
WINDOWS, LONGEST = 8, {True: 128, False: 64}
#: the longest window: pictures of more show nothing more, and take memory
MOST = 1024


@dataclass(frozen=True)
class Trained(checkpoint.Trained):
    """A model of a checkpoint, and its parts that have positions."""

    @property
    def path(self) -> Path:
        """Of the checkpoint."""
        return self.about.checkpoint or self.about.folder

    @property
    def arch(self) -> str:
        """As the checkpoint names it."""
        return str(getattr(self.config, "arch", None) or "not named")

    @property
    def stacks(self) -> dict[str, Any]:
        """Its encoder and, in translation, its decoder, by name."""
        if self.is_encoder:
            return {"encoder": self.model.encoder.sentence_encoder}
        return {"encoder": self.model.encoder, "decoder": self.model.decoder}

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


def load(path: Path, pieces: Pieces, text: bool) -> Trained:
    """The model of a checkpoint, and what belongs to it.

    Args:
        path: of the checkpoint, or its run's folder
        pieces: what is given by hand
        text: whether it is to read text; otherwise it needs no subword model

    Raises:
        UserError: it or what belongs to it can't be read, or it has no positions anywhere
    """
    if not text and pieces.subwords is None:
        pieces = replace(pieces, subwords=NONE)
    found = opened(resolve_model(path, pieces, translates=False))
    if not any(has_positions(stack) for stack in found.stacks.values()):
        raise UserError(
            f"{found.path} has no positions (--arch {found.arch}): there is nothing to look at; "
            "give a model with a position scheme"
        )
    return found


def opened(about: ModelDescription) -> Trained:
    """The model of a checkpoint, with positions or without.

    Raises:
        UserError: it can't be read
    """
    return Trained(**vars(checkpoint.trained(about)))


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


def read(model: Trained, length: int, text: Path | None = None) -> Batch:
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
        tokenizer, _ = tokenizers(model.about)
        pieces = (piece for line in read_lines(text) for piece in tokenizer.encode(line))
        first = islice(pieces, WINDOWS * inside)  # a long text is not read to its end
        stream = torch.tensor([words.index(piece) for piece in first])
        number = len(stream) // inside
        if not number:
            raise UserError(
                f"{text} has {len(stream)} subwords, which is less than one window of {inside}: "
                "give a longer text, or a smaller --length"
            )
        ids = stream[: number * inside].view(number, inside)
        check_known(ids, model, text)
        source = f"the first {number} times {inside} subwords of {text.name}"
    ends = ids.new_full((len(ids), 1), words.eos())
    starts = [ids.new_full((len(ids), 1), words.bos())] if model.is_encoder else []
    return Batch(torch.cat([*starts, ids, ends], 1), source)


def check_known(ids: Tensor, model: Trained, text: Path) -> None:
    """Refuse a text most of whose subwords are not in the model's vocabulary."""
    unknown = float((ids == model.dictionary.unk()).float().mean())
    if unknown > 0.5:
        raise UserError(
            f"{unknown:.0%} of the subwords of {text} are not in the vocabulary of "
            f"{model.path}: give its subword model by --subwords"
        )
