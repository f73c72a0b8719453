"""A checkpoint's model for analysis, and the windows of text that it reads."""

from dataclasses import dataclass, replace
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

WINDOWS = 8
#: largest --length: larger pictures show nothing more, and take memory
LONGEST = 1024


@dataclass(frozen=True)
class LoadedModel(checkpoint.TrainedModel):
    """A checkpoint's model and its stacks, which have positions."""

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
    def trained_length(self) -> int | None:
        """The length of an encoder's inputs in training, if the checkpoint says it."""
        length = getattr(self.task.cfg, "tokens_per_sample", None)
        return int(length) if length else None

    @property
    def scheme(self) -> str:
        """The position scheme of each stack, in words."""
        schemes = []
        for name, stack in self.stacks.items():
            if hasattr(stack, "placement"):
                config = stack.placement.config
                sharing = f", sharing {config.position_sharing}" if config.position_sharing else ""
                schemes.append(f"{name}: {config.position_scheme}{sharing}")
            else:
                kind = type(stack.embed_positions).__name__
                schemes.append(f"{name}: fairseq's own, {kind}")
        return "; ".join(schemes)

    @property
    def position_modules(self) -> list[Any]:
        """Position schemes, and positions at the input."""
        return [
            module
            for name, module in self.model.named_modules()
            if isinstance(module, PositionScheme) or name.endswith("embed_positions")
        ]

    @property
    def position_parameters(self) -> int:
        """The number of parameters of positions."""
        parameters = {p for module in self.position_modules for p in module.parameters()}
        return sum(parameter.numel() for parameter in parameters)

    @property
    def facts(self) -> dict[str, str]:
        """The model's description at the top of the page."""
        sizes = []
        for name, stack in self.stacks.items():
            attention = stack.layers[0].self_attn
            layers, width, heads = len(stack.layers), attention.embed_dim, attention.num_heads
            sizes.append(f"{name}: {layers} layers of width {width} with {heads} heads")
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        return {
            "architecture": self.arch,
            "positions": self.scheme,
            "size": "; ".join(sizes),
            "parameters": f"{parameters:,}, of which {self.position_parameters:,} for positions",
            "updates": f"{self.updates:,}",
        }


def load(about: ModelDescription) -> LoadedModel:
    """The model of a checkpoint."""
    return LoadedModel(**vars(checkpoint.load(about)))


def load_with_positions(path: Path, pieces: Pieces, reads_text: bool) -> LoadedModel:
    """The model of a checkpoint, or of a run's folder.

    Args:
        pieces: its files, as the command line names them
        reads_text: whether the model needs its subword model
    """
    if not reads_text and pieces.subwords is None:
        pieces = replace(pieces, subwords=NONE)
    model = load(resolve_model(path, pieces, translates=False))
    if not model.position_modules:
        raise UserError(
            f"{model.path} has no positions (--arch {model.arch}): there is nothing to look at; "
            "give a model with a position scheme"
        )
    return model


def window_length(models: list[LoadedModel], length: int | None) -> int:
    """The number of tokens in a window, for all models: ``--length``, or the default."""
    shortest = min(models, key=lambda model: model.limit)
    if length is None:
        lengths = [128 if model.is_encoder else 64 for model in models]
        lengths += [model.trained_length for model in models if model.trained_length]
        return min(shortest.limit, *lengths)
    if not 4 <= length <= LONGEST:
        raise UserError(f"--length must be 4 to {LONGEST}, but is {length}")
    if length > shortest.limit:
        raise UserError(
            f"--length {length} is more than the {shortest.limit} positions of {shortest.path}: "
            f"give at most {shortest.limit}"
        )
    return length


def read_windows(model: LoadedModel, length: int, text: Path | None = None) -> Tensor:
    """(B, T) int64: `WINDOWS` windows of a text or of random words, without padding."""
    words = model.dictionary
    tokens = length - (2 if model.is_encoder else 1)
    if text is None:
        vocabulary = torch.tensor([
            number
            for number in range(words.nspecial, len(words))
            if not words[number].startswith("madeupword") and words[number] != "<mask>"
        ] or [words.unk()])  # fmt: skip
        draws = torch.randint(
            len(vocabulary), (WINDOWS, tokens), generator=torch.Generator().manual_seed(1)
        )
        ids = vocabulary[draws]
    else:
        stream = read_ids(model, text, WINDOWS * tokens)
        number = len(stream) // tokens
        if not number:
            raise UserError(
                f"{text} has {len(stream)} subwords, which is less than one window of {tokens}: "
                "give a longer text, or a smaller --length"
            )
        ids = stream[: number * tokens].view(number, tokens)
    ends = ids.new_full((len(ids), 1), words.eos())
    starts = [ids.new_full((len(ids), 1), words.bos())] if model.is_encoder else []
    return torch.cat([*starts, ids, ends], 1)


def read_ids(model: LoadedModel, text: Path, most: int, line_ends: bool = False) -> Tensor:
    """(n,) int64: at most ``most`` subwords of a text, on request with </s> after each line."""
    words, (tokenizer, _) = model.dictionary, tokenizers(model.about)
    ids: list[int] = []
    for line in read_lines(text):
        subwords = [words.index(piece) for piece in tokenizer.encode(line)]
        ids += [*subwords, words.eos()] if subwords and line_ends else subwords
        if len(ids) >= most:
            break
    stream = torch.tensor(ids[:most], dtype=torch.int64)
    unknown = float(stream.eq(words.unk()).float().mean())
    if unknown > 0.5:
        raise UserError(
            f"{unknown:.0%} of the subwords of {text} are not in the vocabulary of "
            f"{model.path}: give its subword model by --subwords"
        )
    return stream
