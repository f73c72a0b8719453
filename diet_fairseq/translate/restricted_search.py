"""fairseq's beam search with forbidden n-grams, forbidden sequences and further end tokens."""

from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.search import BeamSearch
from torch import Tensor

from .engine import Search

# Notation: B sentences, K hypotheses each, V words, t tokens of a hypothesis.


class RestrictedBeamSearch(BeamSearch):
    """The beam search of a `Search` that `Search.is_restricted`.

    Log-probabilities of forbidden tokens become -inf; the others are not normalised again, as in
    fairseq and transformers. The end of a translation is never forbidden.

    Args:
        dictionary: dictionary of the target language
        options: options of the search
        end: index of the token that ends translations
    """

    def __init__(self, dictionary: Dictionary, options: Search, end: int) -> None:
        super().__init__(dictionary)
        self.end, self.ngram_size = end, options.no_repeat_ngram_size
        self.forced, self.min_length = len(options.framing.target_prefix), options.min_length
        self.end_tokens = [dictionary.index(token) for token in options.end_tokens]
        sequences = [
            [dictionary.index(token) for token in sequence]
            for sequence in options.suppress_sequences
        ]
        self.tokens = [sequence[0] for sequence in sequences if len(sequence) == 1]
        self.sequences = [sequence for sequence in sequences if len(sequence) > 1]

    def step(
        self,
        step: int,
        lprobs: Tensor,
        scores: Tensor | None,
        prev_output_tokens: Tensor | None = None,
        original_batch_idxs: Tensor | None = None,
        candidate_multiple: int = 2,
    ) -> Any:
        """One step of the search, see `fairseq.search.BeamSearch.step`.

        Args:
            lprobs: (B, K, V) log-probabilities, which are changed in place
            prev_output_tokens: (B K, t + 1), from the decoder's first input on
        """
        if step >= self.forced:
            assert prev_output_tokens is not None
            self.restrict(lprobs.view(-1, lprobs.size(-1)), prev_output_tokens[:, 1:])
        return super().step(
            step, lprobs, scores, prev_output_tokens, original_batch_idxs, candidate_multiple
        )

    def restrict(self, lprobs: Tensor, tokens: Tensor) -> None:
        """Apply all restrictions in place to (rows, V) for hypotheses (rows, t)."""
        length = tokens.size(1)
        is_short = length < self.min_length and self.min_length > 1
        forbidden = [*self.tokens, *(self.end_tokens if is_short else ())]
        lprobs.index_fill_(1, tokens.new_tensor(forbidden, dtype=torch.long), -torch.inf)
        for *first, last in self.sequences:
            if len(first) <= length:
                is_begun = tokens[:, length - len(first) :] == tokens.new_tensor(first)
                lprobs[is_begun.all(dim=1), last] = -torch.inf
        if self.ngram_size:
            rows, repeated = find_repeated(tokens, self.ngram_size)
            lprobs[rows, repeated] = -torch.inf
        if self.end_tokens and length > self.forced:
            has_ended = torch.isin(tokens[:, -1], tokens.new_tensor(self.end_tokens))
            lprobs[has_ended] = -torch.inf
            lprobs[has_ended, self.end] = 0.0


def find_repeated(tokens: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Tokens that would end an n-gram which the hypothesis already has.

    Args:
        tokens: (rows, t)
        size: the n of the n-grams

    Returns:
        rows and tokens, (N,) each
    """
    if tokens.size(1) < size:
        return tokens.new_zeros(0), tokens.new_zeros(0)
    ngrams = tokens.unfold(1, size, 1)  # (rows, t - n + 1, n)
    begun = tokens[:, tokens.size(1) - size + 1 :].unsqueeze(1)  # (rows, 1, n - 1)
    rows, places = (ngrams[:, :, :-1] == begun).all(dim=2).nonzero(as_tuple=True)
    return rows, ngrams[rows, places, -1]
