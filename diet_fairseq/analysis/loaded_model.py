"""A checkpoint's model for analysis, and the windows of text that it reads."""

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

#: number of windows
WINDOWS = 8
#: upper bounds of the default length, of encoders and of translation models
LONGEST = {True: 128, False: 64}
#: the largest --length: larger pictures show nothing more, and take memory
MOST = 1024


@dataclass(frozen=True)
class LoadedModel(checkpoint.TrainedModel):
    """A checkpoint's model, and its parts that have positions."""

    @property
    def path(self) -> Path:
        return self.about.checkpoint or self.about.folder

    @property
    def arch(self) -> str:
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
        """The number of tokens that all of its stacks can read."""
        return min(int(stack.max_positions()) for stack in self.stacks.values())

    @property
    def scheme(self) -> str:
        """The position scheme of each stack, in words."""
        schemes = []
        for name, stack in self.stacks.items():
            config = getattr(getattr(stack, "placement", None), "config", None)
            if config is None:
                kind = type(getattr(stack, "embed_positions", None)).__name__
                schemes.append(f"{name}: fairseq's own, {kind}")
            else:
                sharing = f", sharing {config.position_sharing}" if config.position_sharing else ""
                schemes.append(f"{name}: {config.position_scheme}{sharing}")
        return "; ".join(schemes)

    @property
    def numbers(self) -> dict[str, int]:
        """The number of parameters, and of those of positions."""
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
            layers, width, heads = len(stack.layers), attention.embed_dim, attention.num_heads
            shapes.append(f"{name}: {layers} layers, {width} wide, {heads} heads")
        return "; ".join(shapes)


def load(about: ModelDescription) -> LoadedModel:
    """The model of a checkpoint, with positions or without.

    Raises:
        UserError: it can't be read
    """
    return LoadedModel(**vars(checkpoint.load(about)))


def load_with_positions(path: Path, pieces: Pieces, reads_text: bool) -> LoadedModel:
    """The model of a checkpoint, or of its run's folder.

    Args:
        pieces: its files, as the command line names them
        reads_text: whether it needs its subword model

    Raises:
        UserError: it or its files can't be read, or it has no positions anywhere
    """
    if not reads_text and pieces.subwords is None:
        pieces = replace(pieces, subwords=NONE)
    model = load(resolve_model(path, pieces, translates=False))
    if not any(has_positions(stack) for stack in model.stacks.values()):
        raise UserError(
            f"{model.path} has no positions (--arch {model.arch}): there is nothing to look at; "
            "give a model with a position scheme"
        )
    return model


def has_positions(stack: Any) -> bool:
    """Whether a stack has positions, at its input or in its attention, or scores of segments."""
    if getattr(stack, "embed_positions", None) is not None:
        return True
    return any(isinstance(module, PositionScheme) for module in stack.modules())


def window_length(models: list[LoadedModel], length: int | None) -> int:
    """The number of tokens in a window, for all models: ``--length``, or the default."""
    shortest = min(models, key=lambda model: model.limit)
    limit = shortest.limit
    if length is None:
        bounds = [LONGEST[model.is_encoder] for model in models]
        trained_at = [getattr(model.task.cfg, "tokens_per_sample", None) for model in models]
        return min(limit, *bounds, *(int(tokens) for tokens in trained_at if tokens))
    if not 4 <= length <= MOST:
        raise UserError(f"--length must be 4 to {MOST}, but is {length}")
    if length > limit:
        raise UserError(
            f"--length {length} is more than the {limit} positions of {shortest.path}: give at "
            f"most {limit}"
        )
    return length


@dataclass(frozen=True)
class Batch:
    """Windows of tokens, (B, T) int64, without padding, and a description of their source."""

    tokens: Tensor
    source: str


def read_batch(model: LoadedModel, length: int, text: Path | None = None) -> Batch:
    """`WINDOWS` windows of a text or, without one, of random words of the vocabulary.

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
        vocabulary = torch.tensor(real or [words.unk()])
        draws = torch.randint(len(vocabulary), (WINDOWS, inside), generator=generator)
        ids, source = vocabulary[draws], "words of the vocabulary, drawn at random (seed 1)"
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


def check_known(ids: Tensor, model: LoadedModel, text: Path) -> None:
    """Refuse a text most of whose subwords are not in the model's vocabulary."""
    unknown = float((ids == model.dictionary.unk()).float().mean())
    if unknown > 0.5:
        raise UserError(
            f"{unknown:.0%} of the subwords of {text} are not in the vocabulary of "
            f"{model.path}: give its subword model by --subwords"
        )
