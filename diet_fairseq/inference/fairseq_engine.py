"""fairseq's beam search, with a checkpoint that is read as the plugin reads all of them."""

import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from fairseq import checkpoint_utils, utils
from fairseq.data import Dictionary
from fairseq.dataclass.configs import GenerationConfig
from fairseq.tasks.translation import TranslationTask
from torch import Tensor

from ..errors import UserError, one_line
from ..model_json import ModelDescription
from ..patches.explaining import mistake_behind
from .engine import LONGER, Hypothesis, Search


class FairseqEngine:
    """One of fairseq's checkpoints, or several as an ensemble: one call at a time, others wait.

    Args:
        descriptions: of models with one vocabulary, whose probabilities are averaged
    """

    def __init__(
        self, descriptions: Sequence[ModelDescription], device: str, threads: int | None
    ) -> None:
        description = descriptions[0]
        if threads:
            torch.set_num_threads(threads)
        self.device = _device(device)
        overrides = {
            "data": str(description.data),
            "source_lang": description.source_lang,
            "target_lang": description.target_lang,
        }
        with _in_words():
            self.models, cfg, self.task = checkpoint_utils.load_model_ensemble_and_task(
                [str(one.checkpoint) for one in descriptions], overrides
            )
        if not isinstance(self.task, TranslationTask):
            raise UserError(
                f"{description.checkpoint} was trained for {one_line(str(cfg.task._name))}, not "
                "for translation: give another checkpoint"
            )
        for model in self.models:
            model.to(self.device).eval()
            model.prepare_for_inference_(cfg)
        limits = utils.resolve_max_positions(
            self.task.max_positions(), *(model.max_positions() for model in self.models)
        )
        self.longest: int | None = int(limits[0]) - 1  # the end of the sentence takes a place
        self.source: Dictionary = self.task.source_dictionary
        self.target: Dictionary = self.task.target_dictionary
        self.vocabulary: Collection[str] = self.source.symbols[self.source.nspecial :]
        self._turn = threading.Lock()

    def translate(
        self, sentences: Sequence[Sequence[str]], search: Search
    ) -> list[list[Hypothesis]]:
        sources = [self._numbers(sentence) for sentence in sentences]
        lengths = torch.tensor([len(source) for source in sources])
        dataset = self.task.build_dataset_for_inference(sources, lengths)
        batch = dataset.collater([dataset[number] for number in range(len(sources))])
        batch = utils.apply_to_sample(lambda tensor: tensor.to(self.device), batch)
        with self._turn:
            generator = self.task.build_generator(self.models, _options(search))
            found = generator.generate(self.models, batch)
        # the batch is sorted by length
        places = dict(zip(batch["id"].tolist(), found, strict=True))
        return [
            [self._hypothesis(one) for one in places[number][: search.nbest]]
            for number in range(len(sources))
        ]

    def _numbers(self, sentence: Sequence[str]) -> Tensor:
        """(T + 1,) with the end. What is a mark of fairseq's and stands in the text is unknown."""
        numbers = [self.source.index(token) for token in sentence]
        words = [n if n >= self.source.nspecial else self.source.unk() for n in numbers]
        return torch.tensor([*words, self.source.eos()])

    def _hypothesis(self, found: dict[str, Any]) -> Hypothesis:
        marks = (self.target.eos(), self.target.pad(), self.target.bos())
        numbers = [number for number in found["tokens"].tolist() if number not in marks]
        return Hypothesis([self.target[number] for number in numbers], float(found["score"]))


class Tensor2TensorPenalty(float):
    """An exponent that makes of fairseq's ``length ** alpha`` tensor2tensor's length penalty.

    That is ``((5 + length) / 6) ** alpha`` (Wu et al. 2016, equation 14).
    """

    def __rpow__(self, length: int) -> float:  # type: ignore[override]
        return ((5 + length) / 6) ** float(self)


def _options(search: Search) -> GenerationConfig:
    options = GenerationConfig(beam=search.beam, nbest=search.nbest, max_len_a=1, max_len_b=LONGER)
    penalty = Tensor2TensorPenalty if search.penalty == "tensor2tensor" else float
    options.lenpen = penalty(search.lenpen)
    return options


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = one_line(str(error).partition("\n")[0])
        raise UserError(
            f"--device {one_line(name)} can't be used ({reason}): give cpu, cuda or cuda:N"
        ) from error
    return device


@contextmanager
def _in_words() -> Iterator[None]:
    """fairseq's own errors over missing files are the user's to mend."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        mistake = mistake_behind(error)
        if mistake is None:
            raise
        raise UserError(mistake) from error
