"""Faster beam search with the same translations, for our architectures.

fairseq's search copies the encoder's output, keys and values for every hypothesis and reorders them
at every step. It decodes the first step for every hypothesis, although all are equal. It
normalises, looks for NaN, masks and adds scores over the whole vocabulary. This search avoids these
costs.
"""

from typing import Any

import torch
import torch.nn.functional as F
from fairseq.search import BeamSearch
from fairseq.sequence_generator import EnsembleModel, SequenceGenerator
from torch import Tensor

from ..errors import UserError
from ..models.adapters import CACHE, PositionalDecoder
from ..models.introspection import has_standard_output
from ..transformer import DecodingCache

# Notation: B sentences still being translated, K hypotheses (beams) each, V words, S source tokens,
# t steps done, E hypotheses that end. A row is a hypothesis; the rows of a sentence are adjacent.

Hypothesis = dict[str, Tensor]
#: number of columns per group: each group's maximum is found before the largest elements
GROUP = 16


class QuickBeamSearch(SequenceGenerator):
    """fairseq's generator, with a faster beam search for one transformer.

    fairseq searches in all other cases: sampling, prefixes, constraints, ensembles, language
    models, n-gram blocking, schemes in cross-attention, models that override methods, and more
    beams than half the vocabulary.
    """

    def _generate(
        self,
        sample: dict[str, Any],
        prefix_tokens: Tensor | None = None,
        constraints: Tensor | None = None,
        bos_token: int | None = None,
    ) -> list[list[Hypothesis]]:
        if prefix_tokens is not None or constraints is not None or not self._is_plain(sample):
            return super()._generate(sample, prefix_tokens, constraints, bos_token)
        translations = self._search(sample, self.model.single_model.decoder, bos_token)
        return [
            sorted(beam, key=lambda h: float(h["score"]), reverse=True) for beam in translations
        ]

    def _is_plain(self, sample: dict[str, Any]) -> bool:
        model = self.model.single_model
        return (
            type(self.model) is EnsembleModel
            and self.model.models_size == 1
            and has_standard_output(model)
            and isinstance(model.decoder, PositionalDecoder)
            and model.decoder.stack_config.positions.scheme_in(cross=True) is None
            and type(self.search) is BeamSearch
            and 2 * self.beam_size < self.vocab_size
            and not self.match_source_len
            and self.token_indices_to_suppress is None
            and self.repeat_ngram_blocker is None
            and self.lm_model is None
            and "src_tokens" in sample["net_input"]
        )

    def _search(
        self, sample: dict[str, Any], decoder: Any, bos_token: int | None
    ) -> list[list[Hypothesis]]:
        source = sample["net_input"]["src_tokens"]  # (B, S)
        longest = min(int(self.max_len_a * source.size(1) + self.max_len_b), self.max_len - 1)
        assert self.min_len <= longest, "min_len cannot be larger than max_len"
        [encoder_out] = self.model.forward_encoder(sample["net_input"])
        cache = DecodingCache()
        state = {CACHE: cache}
        beams = self.beam_size
        finished: list[list[Hypothesis]] = [[] for _ in range(len(source))]
        sentences = torch.arange(len(source), device=source.device)  # (B,)
        first_token = self.eos if bos_token is None else bos_token
        tokens = sentences.new_full((len(source), 1), first_token)  # (rows, t + 1)
        scores = torch.zeros(len(source), 0, device=source.device)  # cumulative, (rows, t)
        attention: Tensor | None = None  # (rows, t, S)

        for step in range(longest + 1):
            # fairseq calls ``forward``, too, which skips hooks
            logits, extra = decoder.forward(tokens, encoder_out, state)
            # cumulative score, parent row in the sentence, and word: (B, 2 K) each
            totals, parents, words = self._best(logits[:, -1], scores, len(sentences), longest)
            weights = extra["attn"][0]  # (rows, 1, S), or None
            if weights is not None:
                dtype = torch.promote_types(weights.dtype, torch.float32)
                weights = weights.to(scores.device, dtype)
                attention = weights if attention is None else torch.cat([attention, weights], dim=1)
            if step == 0:
                # each sentence had one hypothesis; from now on it has K, with the same past
                cache.share_source(len(source), beams)
                copies = torch.arange(len(source), device=source.device).repeat_interleave(beams)
                tokens, scores = tokens[copies], scores[copies]
                attention = None if attention is None else attention[copies]

            parents += torch.arange(len(sentences), device=source.device).unsqueeze(1) * beams
            eos_mask = words.eq(self.eos) & totals.ne(-torch.inf)  # (B, 2 K)

            is_done = [False] * len(sentences)
            numbers = sentences.tolist()
            ends = eos_mask[:, :beams]
            rows = parents[:, :beams][ends]  # (E,)
            past = None if attention is None else attention[rows]
            hypotheses = self._finish(tokens[rows], scores[rows], totals[:, :beams][ends], past)
            for index, hypothesis in zip(ends.nonzero()[:, 0].tolist(), hypotheses, strict=True):
                beam = finished[numbers[index]]
                if len(beam) < beams:
                    beam.append(hypothesis)
                    is_done[index] = self.is_finished(step, index, longest, len(beam), beams)
            if step == longest or all(is_done):
                break

            # the K best active hypotheses of unfinished sentences
            active = eos_mask.int().sort(dim=1, stable=True).indices[:, :beams]  # (B, K)
            unfinished = ~torch.tensor(is_done, device=source.device)
            sentences, active = sentences[unfinished], active[unfinished]
            order = parents[unfinished].gather(1, active).flatten()  # (B K,)
            last = words[unfinished].gather(1, active).view(-1, 1)
            total = totals[unfinished].gather(1, active).view(-1, 1)
            tokens = torch.cat([tokens[order], last], dim=1)
            scores = torch.cat([scores[order], total], dim=1)
            attention = None if attention is None else attention[order]
            cache.reorder(order)

        if not all(finished):
            raise UserError(
                "the model gives no finite score to any translation: its parameters are not "
                "finite, or too large for half precision; use another checkpoint, or no --fp16"
            )
        return finished

    def _best(
        self, logits: Tensor, scores: Tensor, sentences: int, longest: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(rows, V), (rows, t) -> cumulative scores, rows in the sentence, words: (B, 2 K) each.

        2 K are enough, because at most K of them end.
        """
        step = scores.size(1)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if self.temperature != 1:
            logits = logits / self.temperature
        # in place, because on a CPU allocating another array takes longer than the logarithms
        out = logits if logits.device.type == "cpu" else None
        gains = torch.log_softmax(logits, dim=1, out=out)  # (rows, V)
        bad = gains[:, 0].isnan().nonzero()[:, 0]  # one NaN makes the whole row NaN
        gains.index_fill_(0, bad, -torch.inf)
        gains[:, self.pad] = -torch.inf
        gains[:, self.unk] -= self.unk_penalty
        if step == longest:
            end = gains[:, self.eos].clone()
            gains.fill_(-torch.inf)[:, self.eos] = end
        elif step < self.min_len:
            gains[:, self.eos] = -torch.inf
        past = scores[:, -1:] if step else gains.new_zeros(len(gains), 1)  # (rows, 1)
        gains, past = gains.view(sentences, -1, gains.size(1)), past.view(sentences, -1)
        best, places = find_largest(gains, past, 2 * self.beam_size)
        return best, places // self.vocab_size, places % self.vocab_size

    def _finish(
        self, tokens: Tensor, scores: Tensor, totals: Tensor, attention: Tensor | None
    ) -> list[Hypothesis]:
        """E finished hypotheses in fairseq's form: tokens (E, t + 1), earlier scores (E, t)."""
        cumulative = torch.cat([scores, totals.unsqueeze(1)], dim=1)  # (E, t + 1)
        length = cumulative.size(1)
        columns = {
            "tokens": F.pad(tokens[:, 1:], (0, 1), value=self.eos),
            "score": totals / length**self.len_penalty if self.normalize_scores else totals,
            "attention": totals.new_empty(len(totals), 0) if attention is None else attention.mT,
            "alignment": totals.new_empty(len(totals), 0),
            "positional_scores": cumulative.diff(prepend=torch.zeros_like(cumulative[:, :1])),
        }
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def find_largest(gains: Tensor, past: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """Find the largest sums of a row's past and its gains: values and places, (B, number).

    The result is ``(gains + past.unsqueeze(2)).flatten(1).topk(number)``, faster on a CPU: columns
    are put into groups of `GROUP`, far apart from each other so that vector instructions find their
    maxima. The largest elements are in the groups with the largest maxima.

    Args:
        gains: (B, rows, V)
        past: (B, rows)
    """
    rows, columns = gains.shape[1:]
    groups = columns // GROUP
    if gains.device.type != "cpu" or rows * groups < number:
        return (gains + past.unsqueeze(2)).flatten(1).topk(number)
    grouped = gains[..., : groups * GROUP].unflatten(2, (GROUP, groups))
    maxima = grouped.amax(dim=2) + past.unsqueeze(2)  # (B, rows, groups)
    best = maxima.flatten(1).topk(number, sorted=False).indices  # groups, (B, number)
    first = best // groups * columns + best % groups  # where a group begins
    members = first.unsqueeze(1) + torch.arange(0, groups * GROUP, groups).unsqueeze(1)
    ungrouped = torch.arange(rows * columns).view(rows, columns)[:, groups * GROUP :].flatten()
    places = torch.cat([members.flatten(1), ungrouped.expand(len(gains), -1)], dim=1)
    sums = gains.flatten(1).gather(1, places) + past.gather(1, places // columns)
    values, which = sums.topk(number)
    return values, places.gather(1, which)
