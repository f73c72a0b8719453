"""fairseq's beam search, quicker: the same translations, for stock transformers as well.

What fairseq does on the way to them and this doesn't: to copy the encoder's output and its keys
and values for every hypothesis, and to reorder them at every step; to decode the first step once
for every hypothesis, all of which are alike; to normalise, search for NaN, mask and add scores over
the whole vocabulary, instead of over the few tokens that can be chosen.
"""

from collections.abc import Callable
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
from fairseq.models.transformer import TransformerModelBase
from fairseq.modules import MultiheadAttention
from fairseq.search import BeamSearch
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks.fairseq_task import FairseqTask
from torch import Tensor

from .errors import UserError

# Notation: B sentences still being translated, K hypotheses (beams) each, V words, S source tokens,
# C candidates, t steps done. A row is a hypothesis; those of a sentence stand together.

Hypothesis = dict[str, Tensor]
#: columns in which one maximum is looked for before the largest elements are
GROUP = 16


class QuickBeamSearch(SequenceGenerator):
    """fairseq's generator; plain beam search with a single transformer is done here.

    All else (sampling, prefixes, constraints, ensembles, language models, n-gram blocking, schemes
    in cross-attention, models that are no transformers) is left to fairseq.
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
        decoder = self.model.single_model.decoder
        with _keys_of_sentences(decoder) as serve_beams:
            found = self._search(sample, decoder, serve_beams, bos_token)
        return [sorted(some, key=lambda one: float(one["score"]), reverse=True) for some in found]

    def _is_plain(self, sample: dict[str, Any]) -> bool:
        model = self.model.single_model
        return (
            self.model.models_size == 1
            and isinstance(model, TransformerModelBase)
            and type(model).get_normalized_probs is TransformerModelBase.get_normalized_probs
            and model.decoder.adaptive_softmax is None
            and all(type(a) is MultiheadAttention for a in _cross_attentions(model.decoder))
            and type(self.search) is BeamSearch
            and not self.match_source_len
            and self.token_indices_to_suppress is None
            and self.repeat_ngram_blocker is None
            and self.lm_model is None
            and "src_tokens" in sample["net_input"]
        )

    def _search(
        self,
        sample: dict[str, Any],
        decoder: Any,
        serve_beams: Callable[[int], None],
        bos_token: int | None,
    ) -> list[list[Hypothesis]]:
        source = sample["net_input"]["src_tokens"]  # (B, S)
        longest = min(int(self.max_len_a * source.size(1) + self.max_len_b), self.max_len - 1)
        if self.min_len > longest:
            raise UserError(
                f"--min-len {self.min_len} is longer than the longest translation, {longest} "
                "tokens: lower it, or raise --max-len-b"
            )
        [encoder_out] = self.model.forward_encoder(sample["net_input"])
        state: dict[str, dict[str, Tensor | None]] = {}
        beams = self.beam_size
        finished: list[list[Hypothesis]] = [[] for _ in range(len(source))]
        sentences = torch.arange(len(source), device=source.device)  # (B,)
        first_token = self.eos if bos_token is None else bos_token
        tokens = source.new_full((len(source), 1), first_token)  # (rows, t + 1)
        scores = torch.zeros(len(source), 0, device=source.device)  # cumulative, (rows, t)
        attention: Tensor | None = None  # (rows, t, S)

        for step in range(longest + 1):
            logits, extra = decoder(tokens, encoder_out=encoder_out, incremental_state=state)
            gains, words = self._candidates(logits[:, -1], step, longest)  # (rows, C) both
            totals = gains + scores[:, -1:] if step else gains
            here = extra["attn"][0]  # (rows, 1, S), or None
            if here is not None:
                attention = here if attention is None else torch.cat([attention, here], dim=1)
            if step == 0:
                # There was one hypothesis for each sentence: from here on K, all with its past.
                serve_beams(beams)
                copies = torch.arange(len(source), device=source.device).repeat_interleave(beams)
                decoder.reorder_incremental_state_scripting(state, copies)
                tokens, scores = tokens[copies], scores[copies]
                attention = None if attention is None else attention[copies]

            choices = totals.view(len(sentences), -1)  # (B, K C), at first (B, C)
            totals, chosen = choices.topk(min(2 * beams, choices.size(1)))  # (B, 2 K)
            first_row = torch.arange(len(sentences), device=source.device).unsqueeze(1) * beams
            parents = first_row + chosen // words.size(1)  # (B, 2 K)
            words = words.view(len(sentences), -1).gather(1, chosen)  # (B, 2 K)
            ends = words.eq(self.eos) & totals.ne(-torch.inf)  # (B, 2 K)

            done = [False] * len(sentences)
            numbers = sentences.tolist()
            for index, rank in ends[:, :beams].nonzero().tolist():
                mine = finished[numbers[index]]
                if len(mine) < beams:
                    row = parents[index, rank]
                    past = None if attention is None else attention[row]
                    mine.append(self._finish(tokens[row], scores[row], totals[index, rank], past))
                    done[index] = self.is_finished(step, index, longest, len(mine), beams)
            if step == longest or all(done):
                break

            # the K best that go on, of sentences that do
            going = ends.int().sort(dim=1, stable=True).indices[:, :beams]  # (B, K)
            open_ = torch.tensor([not end for end in done], device=source.device)
            sentences, going = sentences[open_], going[open_]
            order = parents[open_].gather(1, going).flatten()  # (B K,)
            last = words[open_].gather(1, going).view(-1, 1)
            total = totals[open_].gather(1, going).view(-1, 1)
            tokens = torch.cat([tokens[order], last], dim=1)
            scores = torch.cat([scores[order], total], dim=1)
            attention = None if attention is None else attention[order]
            decoder.reorder_incremental_state_scripting(state, order)

        if not all(finished):
            raise UserError(
                "the model gives no finite score to any translation: its parameters are not "
                "finite, or too large for half precision; use another checkpoint, or no --fp16"
            )
        return finished

    def _candidates(self, logits: Tensor, step: int, longest: int) -> tuple[Tensor, Tensor]:
        """(rows, V) -> log-probabilities and numbers of the words that may come next, (rows, C).

        The 2 K best are enough: K of a hypothesis can be chosen beside its end.
        """
        logits = logits.float()
        if self.temperature != 1:
            logits = logits / self.temperature
        normaliser = logits.logsumexp(dim=1, keepdim=True)  # (rows, 1)
        logits[:, self.pad] = -torch.inf
        logits[:, self.unk] -= self.unk_penalty
        if step == longest:
            end = logits[:, self.eos].clone()
            logits.fill_(-torch.inf)[:, self.eos] = end
        elif step < self.min_len:
            logits[:, self.eos] = -torch.inf
        best, words = largest(logits, min(2 * self.beam_size, self.vocab_size - 1))
        gains = best - normaliser
        return gains.masked_fill(gains.isnan(), -torch.inf), words

    def _finish(
        self, tokens: Tensor, scores: Tensor, total: Tensor, attention: Tensor | None
    ) -> Hypothesis:
        """What fairseq says of a hypothesis: tokens (t + 1,) and scores (t,) before its end."""
        cumulative = torch.cat([scores, total.unsqueeze(0)])  # (t + 1,)
        length = len(cumulative)
        return {
            "tokens": torch.cat([tokens[1:], tokens.new_tensor([self.eos])]),
            "score": total / length**self.len_penalty if self.normalize_scores else total,
            "attention": torch.empty(0) if attention is None else attention.T,  # (S, t + 1)
            "alignment": torch.empty(0),
            "positional_scores": cumulative.diff(prepend=cumulative.new_zeros(1)),
        }


def largest(x: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """`torch.topk` of (rows, V) along V, quicker on a CPU: values and indices, (rows, number).

    The columns are put into groups of `GROUP`, far apart from each other so that their maxima are
    found by vector instructions. The largest elements are in the groups with the largest maxima.
    """
    groups = x.size(1) // GROUP
    if x.device.type != "cpu" or groups < number:
        return x.topk(number)
    grouped = x[:, : groups * GROUP].unflatten(1, (GROUP, groups))
    chosen = grouped.amax(dim=1).topk(number, sorted=False).indices  # (rows, number)
    firsts = torch.arange(0, groups * GROUP, groups)
    columns = (chosen.unsqueeze(1) + firsts.unsqueeze(1)).flatten(1)  # (rows, GROUP * number)
    ungrouped = torch.arange(groups * GROUP, x.size(1)).expand(len(x), -1)
    columns = torch.cat([columns, ungrouped], dim=1)
    values, places = x.gather(1, columns).topk(number)
    return values, columns.gather(1, places)


def _cross_attentions(decoder: Any) -> list[Any]:
    found = (getattr(layer, "encoder_attn", None) for layer in decoder.layers)
    return [attention for attention in found if attention is not None]


@contextmanager
def _keys_of_sentences(decoder: Any) -> Any:
    """Gives a function: from when it is called, rows of K share the encoder's keys and values.

    That is fairseq's own way, which its generator takes for BART alone.
    """

    def serve(beams: int) -> None:
        for attention in _cross_attentions(decoder):
            attention.set_beam_size(beams)

    try:
        yield serve
    finally:
        serve(1)


def _quicker(build_generator: Callable) -> Callable:
    @wraps(build_generator)
    def wrapper(
        self: FairseqTask, models: Any, args: Any, seq_gen_cls: Any = None, *rest: Any, **more: Any
    ) -> Any:
        if seq_gen_cls is None and not getattr(args, "print_alignment", False):
            seq_gen_cls = QuickBeamSearch
        return build_generator(self, models, args, seq_gen_cls, *rest, **more)

    return wrapper


def apply() -> None:
    """Every task's generator; a second call changes nothing."""
    if not hasattr(FairseqTask.build_generator, "__wrapped__"):
        FairseqTask.build_generator = _quicker(FairseqTask.build_generator)
