"""n-gram blocking, diverse beam search and BLEU in validation count what they say."""

from argparse import Namespace
from types import SimpleNamespace

import pytest
import sacrebleu
import torch
from fairseq.data import Dictionary
from fairseq.ngram_repeat_block import NGramRepeatBlock
from fairseq.search import DiverseBeamSearch
from fairseq.tasks.translation import TranslationTask
from fairseq.tasks.translation_from_pretrained_bart import TranslationFromPretrainedBARTTask
from transformers import NoRepeatNGramLogitsProcessor

from diet_fairseq.text.scores import score
from tests.support.tiny import WORDS


@pytest.mark.parametrize("size", [2, 3])
def test_ngrams_are_forbidden_as_in_transformers(size):
    torch.manual_seed(1)
    words = torch.randint(2, 5, (6, 9))
    buffer = torch.ones(6, 20, dtype=torch.long)  # fairseq's, with padding behind the words
    buffer[:, :9] = words
    logits = torch.rand(6, 7)
    expected = NoRepeatNGramLogitsProcessor(size)(words, logits.clone())
    block = NGramRepeatBlock(size, use_extension=False)
    ours = block(buffer, logits.clone(), bsz=2, beam_size=3, step=8)
    assert torch.equal(ours, expected)
    assert ours.isinf().any()


def steps_of(search, ids, lprobs):
    """Words of all steps; the first sentence ends after the second step."""
    words, scores = [], torch.zeros(len(ids), 4, 3)
    for step in range(3):
        first = 1 if step == 2 else 0
        _, indices, _ = search.step(
            step, lprobs[first:, :, step].contiguous(), scores[first:, :, :step], None, ids[first:]
        )
        words.append(indices[-2:].tolist())
    return words


def test_groups_of_a_beam_do_not_depend_on_the_numbers_of_sentences():
    torch.manual_seed(1)
    lprobs = torch.rand(3, 4, 3, len(WORDS)).log_softmax(-1)
    by_place = steps_of(DiverseBeamSearch(WORDS, 2, 5.0), torch.arange(3), lprobs)
    assert steps_of(DiverseBeamSearch(WORDS, 2, 5.0), torch.tensor([2, 0, 1]), lprobs) == by_place
    assert steps_of(DiverseBeamSearch(WORDS, 2, 5.0), torch.tensor([7, 90, 4]), lprobs) == by_place


@pytest.mark.parametrize("language", ["en", "zho_Hans"])
def test_bleu_in_validation_counts_words_of_the_target_language(language):
    lines, references = ["猫坐在垫子上看着窗外的鸟，b."], ["猫坐于垫子上看着窗外的鸟，b."]
    texts = iter([*lines, *references])
    task = SimpleNamespace(
        cfg=SimpleNamespace(
            eval_tokenized_bleu=False, eval_bleu_print_samples=False, eval_bleu_remove_bpe=None,
            target_lang=language,
        ),
        tokenizer=None,
        tgt_dict=SimpleNamespace(string=lambda *_, **__: next(texts), pad=lambda: 1),
        inference_step=lambda *_, **__: [[{"tokens": torch.tensor([4])}]],
    )  # fmt: skip
    sample = {"target": torch.tensor([[4]])}
    corpus_bleu = sacrebleu.corpus_bleu
    ours = TranslationTask._inference_with_bleu(task, None, sample, None)
    assert ours.score == score(lines, references, pair=("de", language))["BLEU"]
    assert sacrebleu.corpus_bleu is corpus_bleu


def test_mbart_s_task_has_its_options():
    options = Namespace(
        langs="en_XX,ro_RO", source_lang="en_XX", target_lang="ro_RO", left_pad_source=True,
        left_pad_target=False,
    )  # fmt: skip
    words = Dictionary()
    task = TranslationFromPretrainedBARTTask(options, words, words)
    assert task.build_generator([Echo(words)], Namespace()).eos == words.index("[ro_RO]")


class Echo(torch.nn.Module):
    """A model of which the search needs no more than its length."""

    def __init__(self, dictionary):
        super().__init__()
        self.encoder, self.decoder = torch.nn.Identity(), torch.nn.Identity()
        self.decoder.dictionary = dictionary

    def max_decoder_positions(self):
        return 9
