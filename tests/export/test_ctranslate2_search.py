"""CTranslate2 finds the translations that our search finds, and reads tokens as fairseq does."""

import io
from pathlib import Path

import ctranslate2
import pytest
import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.sequence_generator import SequenceGenerator

from diet_fairseq.errors import UserError
from diet_fairseq.export.ctranslate2.specification import build_specification
from diet_fairseq.patches.beam_search import QuickBeamSearch
from diet_fairseq.translate.ctranslate2_engine import CTranslate2Engine
from diet_fairseq.translate.engine import Search
from tests.export.test_ctranslate2 import EXACT, difference, exported
from tests.support import tiny
from tests.support.tiny import Case

LONGEST = tiny.LIMIT - 2
SOURCES = tiny.sentences(12, 9, 7, 5, 3, 2, 14, 4)


def ending_model(scheme, padding):
    """A model whose translations end, and which adds ``padding`` to the logit of <pad>."""
    model = tiny.model_to_change(Case(scheme))
    with torch.no_grad():
        last, out = model.decoder.layers[-1].final_layer_norm, model.decoder.output_projection
        towards = torch.nn.functional.normalize(tiny.vectors(tiny.DIM), dim=0)
        last.weight.fill_(1)
        last.bias.copy_(4 * towards)
        weight = 0.6 * out.weight  # (V, d)
        weight -= (weight @ towards)[:, None] * towards
        weight[tiny.EOS] += 0.4 * towards
        weight[tiny.PAD] = padding / 4 * towards
        out.weight.copy_(weight)
    return model


@pytest.fixture(scope="module", params=["none", "shaw", "diet_rel"])
def pair(request, tmp_path_factory):
    """A model that never writes <pad>, and the same in CTranslate2."""
    model = ending_model(request.param, padding=-40)
    folder = exported(model, tmp_path_factory.mktemp("exported"))
    return model, ctranslate2.Translator(folder, device="cpu")


def words_of(numbers):
    return [tiny.WORDS[number] for number in numbers if number != tiny.EOS]


def translations(model, kind, prefix=None, min_len=0, **options):
    generator = kind([model], tiny.WORDS, max_len_b=LONGEST, min_len=min_len, **options)
    source = tiny.padded(SOURCES, left_pad=True)
    lengths = torch.tensor([len(source) for source in SOURCES])
    sample = {"net_input": {"src_tokens": source, "src_lengths": lengths}}
    with torch.no_grad():
        return generator.generate([model], sample, prefix_tokens=prefix)


@pytest.mark.parametrize("beam", [1, 5])
@pytest.mark.parametrize("lenpen", [1.0, 0.3])
def test_a_batch_of_mixed_lengths_has_the_same_translations(pair, beam, lenpen):
    model, translator = pair
    results = translator.translate_batch(
        [words_of(source.tolist()) for source in SOURCES],
        beam_size=beam,
        length_penalty=lenpen,
        return_scores=True,
        min_decoding_length=0,
        max_decoding_length=LONGEST + 1,
    )
    hypotheses = translations(model, QuickBeamSearch, beam_size=beam, len_penalty=lenpen)
    compared = 0
    for [best, *_], result in zip(hypotheses, results, strict=True):
        if len(best["tokens"]) <= LONGEST:  # it ends by itself: neither search made it end
            assert result.hypotheses[0] == words_of(best["tokens"].tolist())
            assert result.scores[0] == pytest.approx(float(best["score"]), abs=EXACT)
            compared += 1
    assert compared >= len(SOURCES) // 2


def test_a_prefix_has_the_same_continuations(pair):
    model, translator = pair
    prefix = torch.randint(tiny.FIRST_WORD, tiny.VOCABULARY, (len(SOURCES), 3))
    hypotheses = translations(model, SequenceGenerator, prefix, min_len=LONGEST, beam_size=1)
    results = translator.translate_batch(
        [words_of(source.tolist()) for source in SOURCES],
        target_prefix=[words_of(words.tolist()) for words in prefix],
        beam_size=1,
        min_decoding_length=LONGEST,
        max_decoding_length=LONGEST,
    )
    for [best, *_], result in zip(hypotheses, results, strict=True):
        assert result.hypotheses[0] == words_of(best["tokens"].tolist())


ODD = [
    "two words", " ", "\u3000", "\x07", "\x1b[31m", "\ufeff", "\u2028", "\x85", "▁", "@@", '"',
    "\\", "￨", "<blank>", "<mask>", "｟x｠", "madeupword0000", "ein", "é", "e\u0301", "😀",
]  # fmt: skip


@pytest.fixture(scope="module")
def odd():
    """fairseq's dictionary of odd entries."""
    words = Dictionary()
    for entry in ODD:
        words.add_symbol(entry)
    return words


def test_a_dictionary_of_repeated_names_is_refused():
    class Task:
        source_dictionary = target_dictionary = Dictionary()

    Task.source_dictionary.add_from_file(io.StringIO("<s> 1 #fairseq:overwrite\n"))
    args = tiny.arguments(Case("t5"))
    model = ARCH_MODEL_REGISTRY["transformer_t5"].build_model(args, Task)
    with pytest.raises(UserError, match="can't represent a dictionary with #fairseq:overwrite"):
        build_specification(model)


def test_odd_entries_are_read_and_scored_as_the_model_does(odd, tmp_path):
    class Task:
        source_dictionary = target_dictionary = odd

    torch.manual_seed(1)
    model = ARCH_MODEL_REGISTRY["transformer_t5"].build_model(
        tiny.arguments(Case("t5")), Task
    ).eval()  # fmt: skip
    folder = exported(model, tmp_path)
    assert difference(model, folder) < EXACT
    translator = ctranslate2.Translator(folder, device="cpu")
    source = [*ODD, "nobody knows this"]
    tokens = torch.tensor([[*map(odd.index, source), odd.eos()]])
    target = torch.tensor([*map(odd.index, ODD), odd.eos()])
    with torch.no_grad():
        out, _ = model(tokens, None, target.roll(1).unsqueeze(0))
    expected = out[0].log_softmax(dim=-1)[range(len(target)), target]
    [result] = translator.score_batch([source], [ODD])
    torch.testing.assert_close(torch.tensor(result.log_probs), expected, rtol=0, atol=EXACT)


@pytest.mark.parametrize("padding", [1, 2, 4])
def test_padding_is_never_written_though_a_model_finds_it_likely(padding, tmp_path):
    """Greedy search, in which a word that is left out changes no other choice."""
    model = ending_model("diet_rel", padding)
    folder = Path(exported(model, tmp_path))
    engine = object.__new__(CTranslate2Engine)
    engine.model, engine.folder = ctranslate2.Translator(str(folder), device="cpu"), folder
    expected = translations(model, SequenceGenerator, min_len=1, beam_size=1)
    sentences = [words_of(source.tolist()) for source in SOURCES]
    hypotheses = engine.search(sentences, LONGEST + 1, Search(beam=1))
    for [right], [hypothesis] in zip(expected, hypotheses, strict=True):
        assert hypothesis.tokens[:LONGEST] == words_of(right["tokens"].tolist())[:LONGEST]
    plain = engine.model.translate_batch(sentences, beam_size=1, max_decoding_length=LONGEST + 1)
    assert any("<pad>" in result.hypotheses[0] for result in plain)
