"""Searches that forbid or compare words, BLEU in validation, and mBART's task."""

from collections.abc import Callable
from typing import Any

from .patch import intercepts


@intercepts(
    "fairseq.ngram_repeat_block:NGramRepeatBlock._no_repeat_ngram",
    correctness="--no-repeat-ngram-size has no effect without fairseq's CUDA extension, because "
    "n-grams are compared with the padding after the last word",
)
def compare_words_alone(
    forbid: Callable, self: Any, tokens: Any, lprobs: Any, bsz: int, beam_size: int, step: int
) -> Any:
    return forbid(self, tokens[:, : step + 1], lprobs, bsz, beam_size, step)


@intercepts(
    "fairseq.search:DiverseBeamSearch.step",
    correctness="--diverse-beam-groups compares the groups of different sentences, or ends in an "
    "IndexError, because sentences are looked up by their numbers in the data, not in the batch",
)
def index_by_place(
    search: Callable,
    self: Any,
    step: int,
    lprobs: Any,
    scores: Any,
    prev_output_tokens: Any = None,
    original_batch_idxs: Any = None,
) -> Any:
    """Pass places in the first step's batch; later batches lack the sentences that have ended."""
    if step == 0:
        self.first_batch_idxs = original_batch_idxs
    places = None
    if original_batch_idxs is not None:
        is_same = original_batch_idxs.unsqueeze(1) == self.first_batch_idxs  # (now, first)
        places = is_same.int().argmax(dim=1)
    return search(self, step, lprobs, scores, prev_output_tokens, places)


@intercepts(
    "fairseq.tasks.translation:TranslationTask._inference_with_bleu",
    correctness="--eval-bleu splits text of every language by the rules for English",
)
def count_words_of_language(
    score: Callable, self: Any, generator: Any, sample: Any, model: Any
) -> Any:
    """Score with sacreBLEU's tokenizer of the target language."""
    import sacrebleu

    from ..text.scores import bleu

    if self.cfg.eval_tokenized_bleu:
        return score(self, generator, sample, model)
    if not hasattr(self, "bleu"):
        self.bleu = bleu(self.cfg.target_lang or "")
    corpus_bleu, sacrebleu.corpus_bleu = sacrebleu.corpus_bleu, self.bleu.corpus_score
    try:  # fairseq's method has no argument for the tokenizer
        return score(self, generator, sample, model)
    finally:
        sacrebleu.corpus_bleu = corpus_bleu


@intercepts(
    "fairseq.tasks.translation_from_pretrained_bart:TranslationFromPretrainedBARTTask.__init__",
    correctness="--task translation_from_pretrained_bart (mBART) ends in an AttributeError: "
    "it reads options that TranslationTask no longer keeps",
)
def keep_options(initialize: Callable, self: Any, args: Any, *dictionaries: Any) -> None:
    self.args = args
    initialize(self, args, *dictionaries)
