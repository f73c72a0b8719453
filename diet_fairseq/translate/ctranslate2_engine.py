"""CTranslate2's beam search with an exported folder."""

from collections.abc import Sequence
from typing import Any

from ..errors import UserError, one_line
from ..files import check_regular
from .ctranslate2_files import check_ctranslate2_folder, read_vocabularies
from .engine import Engine, Hypothesis
from .model_json import ModelDescription

#: hypotheses in a batch of `_add_ends`, each with a distribution over the vocabulary per subword
SCORE_BATCH = 8


class CTranslate2Engine(Engine):
    """An exported model. Any thread may call it: CTranslate2 queues the calls.

    Both searches write at least one subword. CTranslate2 masks </s> in the first step and
    renormalises, fairseq does not: the log-probabilities differ by log(1 - P(</s> first)), which is
    almost 0 in trained models. At the limit of length fairseq adds </s>, and CTranslate2 stops:
    `_add_ends` adds the score of </s>. One difference remains: if a hypothesis ends by itself in
    the step to the limit, fairseq refills its slot in the beam and CTranslate2 does not.

    Args:
        description: the folder and its limits
        device: such as "cpu" or "cuda:0"
        threads: number of CPU threads (None: CTranslate2's choice)
        any_folder: whether the folder is loaded without `check_ctranslate2_folder`

    Raises:
        UserError: the folder can't be loaded, or its vocabulary does not belong to its subwords
    """

    def __init__(
        self, description: ModelDescription, device: str, threads: int | None, any_folder: bool
    ) -> None:
        import ctranslate2

        folder = description.folder
        if any_folder:
            check_regular(folder / "model.bin")
        else:
            check_ctranslate2_folder(folder)
        description.check_vocabulary(read_vocabularies(folder)[0])
        kind, _, number = device.partition(":")
        try:
            self.model: Any = ctranslate2.Translator(
                str(folder), kind, device_index=int(number or 0), intra_threads=threads or 0
            )
        except Exception as error:  # CTranslate2 raises many types
            raise UserError(
                f"{folder} can't be loaded by CTranslate2 on {one_line(device)} "
                f"({one_line(str(error))}): give --device cpu, cuda or cuda:N, or export it again"
            ) from error
        self.folder = folder
        self.max_source_length = description.max_source_length
        self.max_target_length = description.max_target_length

    def search(
        self, sentences: Sequence[Sequence[str]], max_length: int, beam: int, lenpen: float
    ) -> list[list[Hypothesis]]:
        try:
            results = self.model.translate_batch(
                sentences,
                beam_size=beam,
                num_hypotheses=beam,
                length_penalty=lenpen,
                max_input_length=0,
                max_decoding_length=max_length,
                suppress_sequences=[["<pad>"]],  # fairseq's search never writes it
                return_scores=True,
                return_end_token=True,
            )
            hypotheses = [
                list(map(self._hypothesis, result.hypotheses, result.scores)) for result in results
            ]
            return self._add_ends(sentences, hypotheses, lenpen)
        except Exception as error:  # CTranslate2 raises many types
            raise UserError(
                f"CTranslate2 can't translate with {self.folder} ({one_line(str(error))}): give a "
                "smaller --beam, or export the model again"
            ) from error

    def _add_ends(
        self,
        sentences: Sequence[Sequence[str]],
        hypotheses: list[list[Hypothesis]],
        lenpen: float,
    ) -> list[list[Hypothesis]]:
        """Add </s> and its score to hypotheses without it."""
        unfinished = [
            (row, rank)
            for row, beam in enumerate(hypotheses)
            for rank, hypothesis in enumerate(beam)
            if hypothesis.steps == len(hypothesis.tokens)
        ]
        if unfinished:
            scores = self.model.score_batch(
                [sentences[row] for row, _ in unfinished],
                [hypotheses[row][rank].tokens for row, rank in unfinished],
                max_batch_size=SCORE_BATCH,
                max_input_length=0,
            )
            for (row, rank), score in zip(unfinished, scores, strict=True):
                before = hypotheses[row][rank]
                total = before.score * before.steps**lenpen + score.log_probs[-1]
                steps = before.steps + 1
                hypotheses[row][rank] = Hypothesis(before.tokens, total / steps**lenpen, steps)
        return hypotheses

    @staticmethod
    def _hypothesis(tokens: list[str], score: float) -> Hypothesis:
        has_end = tokens[-1:] == ["</s>"]
        return Hypothesis(tokens[:-1] if has_end else tokens, score, len(tokens))
