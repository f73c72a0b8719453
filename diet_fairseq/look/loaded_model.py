"""A checkpoint's model for analysis, and the windows of text that it reads."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import UserError
from ..export import checkpoint
from ..model_json import ModelDescription
from ..text.lines import read_lines
from ..text.tokenizer import tokenizers
from ..transformer.stack import Stack

WINDOWS = 8


@dataclass(frozen=True)
class LoadedModel(checkpoint.TrainedModel):
    """A checkpoint's model and its stacks."""

    @property
    def path(self) -> Path:
        return self.about.checkpoint or self.about.folder

    @property
    def stacks(self) -> dict[str, Any]:
        """Its encoder and, in translation, its decoder, by name."""
        if self.is_encoder:
            return {"encoder": self.model.encoder.sentence_encoder}
        return {"encoder": self.model.encoder, "decoder": self.model.decoder}

    @property
    def limit(self) -> int:
        """The number of tokens that all of its stacks can read."""
        return min(int(stack.max_positions()) for stack in self.stacks.values())

    @property
    def scheme(self) -> str:
        """The position scheme of each stack, in words."""
        schemes = []
        for name, stack in self.stacks.items():
            if isinstance(stack, Stack):
                schemes.append(f"{name}: {stack.stack_config.positions.position_scheme}")
            else:
                kind = type(stack.embed_positions).__name__
                schemes.append(f"{name}: fairseq's own, {kind}")
        return "; ".join(schemes)

    @property
    def facts(self) -> dict[str, str]:
        """The model's description at the top of the page."""
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        return {
            "architecture": getattr(self.config, "arch", None) or "not named",
            "positions": self.scheme,
            "parameters": f"{parameters:,}",
            "updates": f"{self.updates:,}",
        }


def load(about: ModelDescription) -> LoadedModel:
    """The model of a checkpoint."""
    return LoadedModel(**vars(checkpoint.load(about)))


def window_length(models: list[LoadedModel], length: int | None) -> int:
    """The number of tokens in a window: ``length``, as far as all models can read so many."""
    default = 128 if models[0].is_encoder else 64
    return min(length or default, *(model.limit for model in models))


def read_windows(model: LoadedModel, length: int, text: Path | None = None) -> Tensor:
    """(B, T) int64: `WINDOWS` windows of a text or of random words, without padding."""
    words = model.task.source_dictionary
    tokens = length - (2 if model.is_encoder else 1)
    if text is None:
        generator = torch.Generator().manual_seed(1)
        ids = torch.randint(words.nspecial, len(words), (WINDOWS, tokens), generator=generator)
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
    words, (tokenizer, _) = model.task.source_dictionary, tokenizers(model.about)
    ids: list[int] = []
    for line in read_lines(text):
        subwords = [words.index(piece) for piece in tokenizer.encode(line)]
        ids += [*subwords, words.eos()] if subwords and line_ends else subwords
        if len(ids) >= most:
            break
    if ids.count(words.unk()) > len(ids) / 3:
        raise UserError(
            f"over a third of the subwords of {text} are not in the vocabulary of {model.path}: "
            "give its subword model by --subwords"
        )
    return torch.tensor(ids[:most], dtype=torch.int64)
