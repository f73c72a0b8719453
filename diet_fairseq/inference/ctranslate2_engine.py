"""CTranslate2, with a folder that holds its model."""

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from ..errors import UserError, one_line
from ..model_json import ModelDescription
from .engine import LONGER, Hypothesis, Search


class CTranslate2Engine:
    """An exported model. Calls from several threads are CTranslate2's to put in order.

    Both searches give at least one subword. CTranslate2 masks the end in the first step and
    renormalises, fairseq doesn't: the log-probabilities differ by log(1 - P(</s> first)),
    which in trained models is as good as 0. Where a translation reaches the limit of its length,
    it is cut, while fairseq adds the end and its log-probability.
    """

    def __init__(self, description: ModelDescription, device: str, threads: int | None) -> None:
        try:
            import ctranslate2
        except ImportError as error:
            raise UserError(
                f"{description.folder} needs CTranslate2: pip install 'diet_fairseq[ctranslate2]'"
            ) from error
        kind, _, number = device.partition(":")
        if kind not in ("cpu", "cuda") or (number and not number.isdecimal()):
            raise UserError(f"--device {one_line(device)} can't be used: give cpu, cuda or cuda:N")
        try:
            self.model: Any = ctranslate2.Translator(
                str(description.folder),
                device=kind,
                device_index=int(number or 0),
                intra_threads=threads or 0,
            )
            self.vocabulary: Collection[str] = _vocabulary(description.folder)
        # CTranslate2 raises RuntimeError and ValueError with texts of its own.
        except (RuntimeError, ValueError, OSError) as error:
            raise UserError(
                f"{description.folder} can't be loaded by CTranslate2 ({one_line(str(error))}): "
                "export the model again"
            ) from error
        self.longest = description.max_source_length
        self.longest_target = description.max_target_length

    def translate(
        self, sentences: Sequence[Sequence[str]], search: Search
    ) -> list[list[Hypothesis]]:
        # Its own penalty is fairseq's. For tensor2tensor's, all hypotheses are weighed here.
        own = search.penalty == "fairseq"
        longest = LONGER + max(map(len, sentences))
        if self.longest_target is not None:
            longest = min(longest, self.longest_target)
        results = self.model.translate_batch(
            sentences,
            beam_size=search.beam,
            num_hypotheses=search.nbest if own else search.beam,
            length_penalty=search.lenpen if own else 0,
            max_input_length=0,
            max_decoding_length=longest + 1,  # and </s>
            return_scores=True,
        )
        found = [
            [
                Hypothesis(tokens, score if own else score / self._penalty(tokens, search.lenpen))
                for tokens, score in zip(result.hypotheses, result.scores, strict=True)
            ]
            for result in results
        ]
        return [
            sorted(some, key=lambda one: one.score, reverse=True)[: search.nbest] for some in found
        ]

    @staticmethod
    def _penalty(tokens: list[str], lenpen: float) -> float:
        """tensor2tensor's, in which the end of the sentence counts."""
        return float(((5 + len(tokens) + 1) / 6) ** lenpen)


def _vocabulary(folder: Path) -> list[str]:
    for name in ("source_vocabulary", "shared_vocabulary"):
        path = folder / f"{name}.json"
        if path.is_file():
            words = json.loads(path.read_text(encoding="utf-8"))
            return [word for word in words if isinstance(word, str)]
    raise ValueError("there is no source_vocabulary.json or shared_vocabulary.json")
