"""fairseq's beam search with a checkpoint, which is read as data (`checkpoints`)."""

import threading
from collections.abc import Collection, Sequence
from typing import Any

import torch
from fairseq import checkpoint_utils, utils
from fairseq.data import Dictionary
from fairseq.dataclass.configs import GenerationConfig
from fairseq.tasks.translation import TranslationTask
from torch import Tensor

from ..checkpoints import report_faults
from ..errors import UserError, one_line
from ..model_json import ModelDescription
from .engine import Engine, Hypothesis, Search
from .model_files import check_temperature, load_state


class FairseqEngine(Engine):
    """A fairseq checkpoint, or several as an ensemble. One call runs at a time; others wait.

    Args:
        descriptions: models with one vocabulary, whose probabilities are averaged
    """

    def __init__(
        self, descriptions: Sequence[ModelDescription], device: str, threads: int | None
    ) -> None:
        if threads:
            torch.set_num_threads(threads)
        self.device = _device(device)
        self.models, [self.task, *_] = zip(
            *(_load(description, self.device) for description in descriptions), strict=True
        )
        limits = utils.resolve_max_positions(
            self.task.max_positions(), *(model.max_positions() for model in self.models)
        )
        self.longest: int | None = int(limits[0]) - 1  # the end of the sentence takes a place
        self.source: Dictionary = self.task.source_dictionary
        self.target: Dictionary = self.task.target_dictionary
        self.vocabulary: Collection[str] = self.source.symbols[self.source.nspecial :]
        self.longest_target = min(int(model.max_decoder_positions()) for model in self.models) - 1
        self._lock = threading.Lock()

    def search(
        self, sentences: Sequence[Sequence[str]], limit: int, options: Search
    ) -> list[list[Hypothesis]]:
        sources = [self._numbers(sentence) for sentence in sentences]
        lengths = torch.tensor([len(source) for source in sources])
        dataset = self.task.build_dataset_for_inference(sources, lengths)
        batch = dataset.collater([dataset[number] for number in range(len(sources))])
        batch = utils.apply_to_sample(lambda tensor: tensor.to(self.device), batch)
        config = GenerationConfig(beam=options.beam, max_len_a=0, max_len_b=limit)
        config.lenpen = options.engine_lenpen
        with self._lock:
            generator = self.task.build_generator(self.models, config)
            results = generator.generate(self.models, batch)
        by_number = dict(zip(batch["id"].tolist(), results, strict=True))  # sorted by length
        return [list(map(self._hypothesis, by_number[number])) for number in range(len(sources))]

    def _numbers(self, sentence: Sequence[str]) -> Tensor:
        """(T + 1,) with </s>; special tokens in the text become <unk>."""
        numbers = [self.source.index(token) for token in sentence]
        words = [n if n >= self.source.nspecial else self.source.unk() for n in numbers]
        return torch.tensor([*words, self.source.eos()])

    def _hypothesis(self, result: dict[str, Any]) -> Hypothesis:
        special = (self.target.eos(), self.target.pad(), self.target.bos())
        numbers = [number for number in result["tokens"].tolist() if number not in special]
        tokens = [self.target[number] for number in numbers]
        return Hypothesis(tokens, float(result["score"]), len(result["tokens"]))


def _load(description: ModelDescription, device: torch.device) -> tuple[Any, TranslationTask]:
    with report_faults(description.checkpoint):
        state = load_state(description)
        [model], cfg, task = checkpoint_utils.load_model_ensemble_and_task(
            [str(description.checkpoint)], state=state
        )
    if not isinstance(task, TranslationTask):
        raise UserError(
            f"{description.checkpoint} was trained for {one_line(str(cfg.task._name))}, not "
            "for translation: give another checkpoint"
        )
    check_temperature(description, model)
    model.to(device).eval()
    model.prepare_for_inference_(cfg)
    return model, task


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
