"""fairseq's beam search with loaded checkpoints."""

import math
import threading
from collections.abc import Sequence
from typing import Any

import torch
from fairseq import utils
from fairseq.data import Dictionary
from fairseq.dataclass.configs import GenerationConfig
from fairseq.tasks.translation import TranslationTask
from torch import Tensor

from ..errors import UserError, one_line
from .directions import Framing
from .engine import Engine, Hypothesis, Search
from .loading import LoadedModel
from .restricted_search import RestrictedBeamSearch


class FairseqEngine(Engine):
    """A fairseq model, or several as an ensemble. One call runs at a time; other calls wait.

    Args:
        models: models with one vocabulary, whose probabilities are averaged
        threads: number of PyTorch's CPU threads (None: unchanged)

    Raises:
        UserError: a model was not trained for translation
    """

    def __init__(
        self, models: Sequence[LoadedModel], device: torch.device, threads: int | None
    ) -> None:
        if threads:
            torch.set_num_threads(threads)
        self.device = device
        for loaded in models:
            if not isinstance(loaded.task, TranslationTask):
                raise UserError(
                    f"{loaded.path} was trained for {one_line(str(loaded.config.task._name))}, not "
                    "for translation: give another checkpoint"
                )
            loaded.model.to(device)
            loaded.model.prepare_for_inference_(loaded.config)
        self.models, self.task = [loaded.model for loaded in models], models[0].task
        limits = utils.resolve_max_positions(
            self.task.max_positions(), *(model.max_positions() for model in self.models)
        )
        self.max_source_length = int(limits[0]) - 1  # </s> has a position, too
        target_limits = [int(model.max_decoder_positions()) - 1 for model in self.models]
        target_limits += [
            loaded.description.max_target_length
            for loaded in models
            if loaded.description.max_target_length is not None
        ]
        self.max_target_length = min(target_limits)
        self.source: Dictionary = self.task.source_dictionary
        self.target: Dictionary = self.task.target_dictionary
        models[0].description.check_target_tokens(self.target.indices)
        self._lock = threading.Lock()

    def search(
        self, sentences: Sequence[Sequence[str]], max_length: int, options: Search
    ) -> list[list[Hypothesis]]:
        framing = options.framing
        sources = [self._encode(sentence, framing) for sentence in sentences]
        lengths = torch.tensor([len(source) for source in sources])
        dataset = self.task.build_dataset_for_inference(sources, lengths)
        batch = dataset.collater([dataset[index] for index in range(len(sources))])
        batch = utils.apply_to_sample(lambda tensor: tensor.to(self.device), batch)
        limit = max_length + framing.target_length
        config = GenerationConfig(
            beam=options.beam, lenpen=options.engine_lenpen, max_len_a=0, max_len_b=limit,
            min_len=min(options.min_length, limit), unkpen=math.inf if options.no_unk else 0.0,
        )  # fmt: skip
        start, end = (
            self.target.index(token) for token in (framing.target_start, framing.target_end)
        )
        forced = torch.tensor([self.target.index(token) for token in framing.target_prefix])
        # the generator of a user's task may lack these options
        ends = {"extra_gen_cls_kwargs": {"eos": end}} if end != self.target.eos() else {}
        tokens: dict[str, Any] = {"bos_token": start} if start != end else {}
        if framing.target_prefix:
            tokens["prefix_tokens"] = forced.expand(len(sources), -1).to(self.device)
        with self._lock:
            generator = self.task.build_generator(self.models, config, **ends)
            if options.is_restricted:
                generator.search = RestrictedBeamSearch(self.target, options, end)
            results = generator.generate(self.models, batch, **tokens)
        by_index = dict(zip(batch["id"].tolist(), results, strict=True))  # sorted by length
        return [
            [self._hypothesis(result, options) for result in by_index[index]]
            for index in range(len(sources))
        ]

    def _encode(self, sentence: Sequence[str], framing: Framing) -> Tensor:
        """(T,) int64 indices, with framing and </s>; special tokens in the text become <unk>."""
        indices = [self.source.index(token) for token in sentence]
        words = [n if n >= self.source.nspecial else self.source.unk() for n in indices]
        before, after = (
            [self.source.index(token) for token in tokens]
            for tokens in (framing.source_prefix, framing.source_end)
        )
        return torch.tensor([*before, *words, *after])

    def _hypothesis(self, result: dict[str, Any], options: Search) -> Hypothesis:
        framing, indices = options.framing, result["tokens"].tolist()
        score, steps = float(result["score"]), len(indices)
        if steps > 1 and self.target[indices[-2]] in options.end_tokens:
            # fairseq adds </s> after another end token, which the model did not choose
            score *= (steps / (steps - 1)) ** options.engine_lenpen
            steps -= 1
        special = {self.target.eos(), self.target.pad(), self.target.bos()}
        special |= {self.target.index(token) for token in framing.target_tokens}
        tokens = [self.target[index] for index in indices if index not in special]
        return Hypothesis(tokens, score, steps)


def find_device(name: str) -> torch.device:
    """The device of a name such as ``cpu`` or ``cuda:0``.

    Raises:
        UserError: there is no such device
    """
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = one_line(str(error).partition("\n")[0])
        raise UserError(
            f"--device {one_line(name)} can't be used ({reason}): give cpu, cuda or cuda:N"
        ) from error
    return device
