"""CTranslate2's beam search with an exported folder."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..errors import UserError, one_line
from ..files import check_regular
from .ctranslate2_files import check_ctranslate2_folder, read_vocabularies
from .directions import EOS
from .engine import Engine, Hypothesis, Search
from .model_json import ModelDescription

#: number of targets in a batch of `_log_probabilities`, each (subwords, vocabulary) in memory
SCORE_BATCH = 8


class CTranslate2Engine(Engine):
    """An exported model. Any thread may call it: CTranslate2 queues the calls.

    Both fairseq and CTranslate2 write at least one token, which may be a forced tag. CTranslate2
    masks </s> in the first step and renormalises, and fairseq does not, so log-probabilities differ
    by log(1 - P(</s> first)), which is almost 0 in trained models. At the length limit fairseq adds
    </s> and CTranslate2 stops, so `_add_ends` adds the score of </s>. Two differences remain. If a
    hypothesis ends in the step to the limit, fairseq refills its slot in the beam and CTranslate2
    does not. Directly after forced tags fairseq ends a hypothesis if </s> is in the beam, and
    CTranslate2 only if </s> is the most probable token.

    CTranslate2 normalises over the tokens that are not forbidden, and fairseq over all tokens. If a
    search forbids n-grams, sequences or an early end, `_score` computes fairseq's scores of the
    hypotheses, but the beam may contain other hypotheses than fairseq's. CTranslate2 does not write
    one of `Search.end_tokens` as the first token of a translation.

    Args:
        description: the folder and its limits
        device: such as "cpu" or "cuda:0"
        threads: number of CPU threads (None: CTranslate2's choice)
        any_folder: whether to load the folder without `check_ctranslate2_folder`

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
        vocabularies = read_vocabularies(folder)
        description.check_vocabulary(vocabularies[0])
        description.check_target_tokens(vocabularies[-1])
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
        self, sentences: Sequence[Sequence[str]], max_length: int, options: Search
    ) -> list[list[Hypothesis]]:
        framing, limit = options.framing, max_length + options.framing.target_length
        # the export lets CTranslate2 add the end and the start if both are </s>
        end = framing.source_end if framing.has_own_ends else ()
        sources = [[*framing.source_prefix, *sentence, *end] for sentence in sentences]
        start = [framing.target_start] if framing.has_own_ends else []
        try:
            results = self.model.translate_batch(
                sources,
                target_prefix=[[*start, *framing.target_prefix]] * len(sources),
                beam_size=options.beam,
                num_hypotheses=options.beam,
                length_penalty=options.engine_lenpen,
                max_input_length=0,
                max_decoding_length=limit,
                min_decoding_length=min(options.min_length, limit),
                no_repeat_ngram_size=options.no_repeat_ngram_size,
                # fairseq's search never writes <pad>
                suppress_sequences=[["<pad>"], *map(list, options.suppress_sequences)],
                disable_unk=options.no_unk,
                end_token=[framing.target_end, *options.end_tokens],
                return_scores=True,
                return_end_token=True,
            )
            hypotheses = [
                [
                    Hypothesis(tokens, score, len(tokens))
                    for tokens, score in zip(result.hypotheses, result.scores, strict=True)
                ]
                for result in results
            ]
            if options.is_restricted or options.min_length > 1:
                self._score(sources, hypotheses, options, start)
            else:
                self._add_ends(sources, hypotheses, options, start)
                if framing.target_prefix:
                    self._add_forced(sources, hypotheses, options, start)
        except Exception as error:  # CTranslate2 raises many types
            raise UserError(
                f"CTranslate2 can't translate with {self.folder} ({one_line(str(error))}): give a "
                "smaller --beam, or export the model again"
            ) from error
        special = framing.target_tokens | {EOS}
        return [
            [
                replace(hypothesis, tokens=[t for t in hypothesis.tokens if t not in special])
                for hypothesis in beam_of_sentence
            ]
            for beam_of_sentence in hypotheses
        ]

    def _add_ends(
        self,
        sources: Sequence[list[str]],
        hypotheses: list[list[Hypothesis]],
        options: Search,
        start: list[str],
    ) -> None:
        """Add the step of the end token, and its score, to hypotheses that lack the token."""
        target_end, lenpen = options.framing.target_end, options.engine_lenpen
        unfinished = [
            (row, rank)
            for row, beam in enumerate(hypotheses)
            for rank, hypothesis in enumerate(beam)
            if hypothesis.tokens[-1:] != [target_end]
        ]
        if not unfinished:
            return
        end = [target_end] if target_end != EOS else []  # CTranslate2 adds </s> to every target
        scores = self._log_probabilities(
            [sources[row] for row, _ in unfinished],
            [[*start, *hypotheses[row][rank].tokens, *end] for row, rank in unfinished],
        )
        for (row, rank), log_probabilities in zip(unfinished, scores, strict=True):
            before = hypotheses[row][rank]
            total = before.score * before.steps**lenpen + log_probabilities[before.steps]
            steps = before.steps + 1
            hypotheses[row][rank] = Hypothesis(before.tokens, total / steps**lenpen, steps)

    def _add_forced(
        self,
        sources: Sequence[list[str]],
        hypotheses: list[list[Hypothesis]],
        options: Search,
        start: list[str],
    ) -> None:
        """Add the log-probability of forced tokens to the scores, as fairseq does.

        CTranslate2 only includes the number of forced tokens in the length.
        """
        prefix, lenpen = options.framing.target_prefix, options.engine_lenpen
        scores = self._log_probabilities(sources, [[*start, *prefix]] * len(sources))
        for row, log_probabilities in enumerate(scores):
            forced = sum(log_probabilities[: len(prefix)])
            hypotheses[row] = [
                replace(hypothesis, score=hypothesis.score + forced / hypothesis.steps**lenpen)
                for hypothesis in hypotheses[row]
            ]

    def _score(
        self,
        sources: Sequence[list[str]],
        hypotheses: list[list[Hypothesis]],
        options: Search,
        start: list[str],
    ) -> None:
        """Compute the scores of all hypotheses, with their ends and forced tokens."""
        target_end, lenpen = options.framing.target_end, options.engine_lenpen
        end = [target_end] if target_end != EOS else []  # CTranslate2 adds </s> to every target
        ends = {target_end, *options.end_tokens}
        scored_sources, targets = [], []
        for source, beam in zip(sources, hypotheses, strict=True):
            for hypothesis in beam:
                tokens = hypothesis.tokens
                words = tokens[:-1] if tokens[-1] == target_end else tokens
                scored_sources.append(source)
                targets.append([*start, *words, *end])
        scores = iter(self._log_probabilities(scored_sources, targets))
        for row, beam in enumerate(hypotheses):
            hypotheses[row] = []
            for hypothesis in beam:
                tokens = hypothesis.tokens
                steps = len(tokens) + (tokens[-1] not in ends)  # 1 for </s> at the limit
                total = sum(next(scores)[:steps])
                hypotheses[row].append(Hypothesis(tokens, total / steps**lenpen, steps))

    def _log_probabilities(
        self, sources: Sequence[list[str]], targets: Sequence[list[str]]
    ) -> list[list[float]]:
        """The log-probabilities of the tokens after the start of each target, and of </s>."""
        results = self.model.score_batch(
            sources, targets, max_batch_size=SCORE_BATCH, max_input_length=0
        )
        return [result.log_probs for result in results]
