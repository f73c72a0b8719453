"""Forbidden repetitions and sequences, lengths, and end tokens, in both engines."""

import json
from argparse import ArgumentParser
from dataclasses import replace

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator
from transformers import (
    MinLengthLogitsProcessor,
    NoBadWordsLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
)

from diet_fairseq import Translator
from diet_fairseq.cli import main
from diet_fairseq.commands import serve
from diet_fairseq.errors import UserError
from diet_fairseq.translate.directions import Framing
from diet_fairseq.translate.engine import Search
from diet_fairseq.translate.model_files import resolve_model
from diet_fairseq.translate.restricted_search import RestrictedBeamSearch
from diet_fairseq.translate.translator import load_engine
from tests.support.tiny import FIRST_WORD, WORDS
from tests.support.translating import untrained

SOURCES = [["▁b", "a", "n"], ["▁k", "o", "n", "▁d", "i", "n"], ["▁d"]]
EOS, PAD = WORDS.eos(), WORDS.pad()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A model that repeats itself and never ends by itself, and its export to CTranslate2."""
    pytest.importorskip("ctranslate2")
    run = tmp_path_factory.mktemp("run")
    untrained(run, "--arch", "transformer_diet_rel_tiny", towards_end=-50)
    assert main(["export", "ctranslate2", str(run), str(run / "exported")]) == 0
    return run, run / "exported"


@pytest.fixture(scope="module")
def engines(folders):
    return [load_engine([resolve_model(folder)]) for folder in folders]


def restrict(options, tokens, lprobs):
    """Log-probabilities of our search after hypotheses, whose first token starts the decoder."""
    search = RestrictedBeamSearch(WORDS, options, EOS)
    search.restrict(result := lprobs.clone(), tokens[:, 1:])
    return result


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_repetitions_are_forbidden_as_in_transformers(size):
    torch.manual_seed(1)
    words = torch.randint(FIRST_WORD, FIRST_WORD + 3, (50, 9))
    lprobs = torch.rand(50, len(WORDS)).log()
    for length in range(10):
        tokens = torch.cat([torch.full((50, 1), EOS), words[:, :length]], dim=1)
        # our search, as CTranslate2's, counts no n-grams with the decoder's first input
        expected = NoRepeatNGramLogitsProcessor(size)(tokens[:, 1:], lprobs.clone())
        assert torch.equal(restrict(Search(no_repeat_ngram_size=size), tokens, lprobs), expected)
        assert size == 1 or torch.equal(
            NoRepeatNGramLogitsProcessor(size)(tokens, lprobs.clone()), expected
        )
    assert expected.isinf().any()


def test_sequences_are_forbidden_as_in_transformers():
    torch.manual_seed(1)
    words = torch.randint(FIRST_WORD, FIRST_WORD + 3, (50, 9))
    ids = [[FIRST_WORD], [FIRST_WORD + 1, FIRST_WORD + 2], [*range(FIRST_WORD, FIRST_WORD + 3)]]
    options = Search(suppress_sequences=tuple(tuple(WORDS[n] for n in seq) for seq in ids))
    lprobs = torch.rand(50, len(WORDS)).log()
    for length in range(10):
        tokens = torch.cat([torch.full((50, 1), EOS), words[:, :length]], dim=1)
        expected = NoBadWordsLogitsProcessor(ids, EOS)(tokens, lprobs.clone())
        assert torch.equal(restrict(options, tokens, lprobs), expected)


def test_no_end_token_comes_before_the_least_length():
    ends = (WORDS[FIRST_WORD], WORDS[FIRST_WORD + 1])
    tokens, lprobs = torch.full((2, 4), FIRST_WORD + 3), torch.zeros(2, len(WORDS))
    for least in (3, 4):
        expected = MinLengthLogitsProcessor(least + 1, [FIRST_WORD, FIRST_WORD + 1])(
            tokens, lprobs.clone()
        )
        ours = restrict(Search(end_tokens=ends, min_length=least), tokens, lprobs)
        assert torch.equal(ours, expected)
        assert ours.isinf().any() == (least == 4)


def test_forced_tokens_are_never_forbidden():
    options = Search(
        framing=Framing(target_prefix=(WORDS[FIRST_WORD],)),
        suppress_sequences=((WORDS[FIRST_WORD],),),
    )
    lprobs = torch.full((1, 1, len(WORDS)), -torch.inf)
    lprobs[..., FIRST_WORD] = -1.0
    search = RestrictedBeamSearch(WORDS, options, EOS)
    scores, words, _ = search.step(0, lprobs.clone(), None, torch.tensor([[EOS]]))
    assert (scores[0, 0], words[0, 0]) == (-1.0, FIRST_WORD)
    scores, _, _ = search.step(
        1, lprobs.clone(), torch.zeros(1, 1, 1), torch.tensor([[EOS, FIRST_WORD]])
    )
    assert scores[0, 0] == -torch.inf


def repetitions(tokens, size):
    """The number of n-grams that the tokens repeat."""
    ngrams = [tuple(tokens[n : n + size]) for n in range(len(tokens) - size + 1)]
    return len(ngrams) - len(set(ngrams))


@pytest.mark.parametrize("beam", [1, 4])
def test_no_translation_repeats_an_ngram_as_in_fairseq(folders, engines, beam):
    """The patched block of fairseq is another implementation."""
    options = Search(beam=beam, nbest=beam, no_repeat_ngram_size=2, max_len_b=20)
    plain = engines[0].translate(SOURCES, replace(options, no_repeat_ngram_size=0))
    assert all(repetitions(nbest[0].tokens, 2) for nbest in plain)
    engine = engines[0]
    for source in SOURCES:
        [ours] = engine.translate([source], options)
        indices = engine._encode(source, Framing())
        sample = {
            "net_input": {"src_tokens": indices[None], "src_lengths": torch.tensor([len(indices)])}
        }
        generator = SequenceGenerator(
            engine.models, engine.target, beam_size=beam, max_len_a=1, max_len_b=20,
            no_repeat_ngram_size=2,
        )  # fmt: skip
        [theirs] = generator.generate(engine.models, sample)
        for hypothesis, expected in zip(ours, theirs, strict=True):
            assert hypothesis.tokens == [engine.target[n] for n in expected["tokens"][:-1]]
            assert hypothesis.score == pytest.approx(float(expected["score"]), abs=1e-5)
            assert not repetitions(hypothesis.tokens, 2)


#: options that both engines must obey alike
OPTIONS = {
    "2-grams": {"no_repeat_ngram_size": 2},
    "3-grams": {"no_repeat_ngram_size": 3},
    "length": {"max_len_a": 0.5, "max_len_b": 3},
    "least length": {"end_tokens": ("▁do",), "min_length": 4},
    "token": {"suppress_sequences": (("▁do",),)},
    "sequences": {"suppress_sequences": (("▁do", "▁do"), ("▁do", "▁bulm", "▁bun"))},
    "ends": {"end_tokens": ("▁bulm", "▁di"), "no_repeat_ngram_size": 2},
}


@pytest.mark.few(3)
@pytest.mark.parametrize("name", OPTIONS)
def test_both_engines_obey_alike(engines, name):
    options = Search(**{"beam": 1, "lenpen": 0.6, "max_len_b": 15, **OPTIONS[name]})
    ours, theirs = (engine.translate(SOURCES, options) for engine in engines)
    assert [nbest[0].tokens for nbest in ours] == [nbest[0].tokens for nbest in theirs]
    for [our], [their] in zip(ours, theirs, strict=True):
        assert our.score == pytest.approx(their.score, abs=1e-4)
        assert our.steps == their.steps
    plain = engines[0].translate(SOURCES, Search(beam=1, max_len_b=15))
    assert all(our[0].tokens != before[0].tokens for our, before in zip(ours, plain, strict=True))


def test_a_translation_is_as_long_as_the_limit_says(engines):
    for a, b, lengths in ((0, 3, [3, 3, 3]), (0.5, 2, [4, 5, 3]), (0, 0, [1, 1, 1])):
        for engine in engines:
            results = engine.translate(SOURCES, Search(beam=2, max_len_a=a, max_len_b=b))
            assert [len(nbest[0].tokens) for nbest in results] == lengths


def test_an_end_token_is_part_of_the_text_and_no_step_follows_it(engines):
    """CTranslate2 has no end token in the first step."""
    options = Search(beam=1, end_tokens=("▁do",))
    for engine, tokens in zip(engines, (["▁do"], ["▁di", "▁do"]), strict=True):
        for length in (9, len(tokens)):
            limited = replace(options, max_len_a=0, max_len_b=length)
            [hypothesis] = engine.translate([["▁d"]], limited)[0]
            assert (hypothesis.tokens, hypothesis.steps) == (tokens, len(tokens))


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["3-grams", "least length", "ends"])
def test_scores_of_a_beam_are_those_of_the_model(engines, name):
    """CTranslate2 normalises over the tokens that are not forbidden, so it prefers others."""
    engine = engines[0]
    options = Search(**{"beam": 4, "nbest": 4, "lenpen": 0.6, "max_len_b": 9, **OPTIONS[name]})
    for source, beam in zip(SOURCES, engines[1].translate(SOURCES, options), strict=True):
        indices = engine._encode(source, Framing())[None]
        for hypothesis in beam:
            tokens = torch.tensor([EOS, *map(engine.target.index, hypothesis.tokens), EOS])
            with torch.no_grad():
                logits, _ = engine.models[0](
                    indices, torch.tensor([indices.size(1)]), tokens[None, :-1]
                )
            steps = logits[0].log_softmax(-1).gather(1, tokens[1:, None])[: hypothesis.steps]
            has_end = hypothesis.tokens[-1] not in options.end_tokens
            assert hypothesis.steps == len(hypothesis.tokens) + has_end
            assert hypothesis.score == pytest.approx(
                float(steps.sum()) / hypothesis.steps**0.6, abs=1e-3
            )


def test_a_model_s_own_options_are_read_and_can_be_changed(folders, tmp_path):
    """`export ctranslate2` copies them."""
    path = folders[1] / "model.json"
    content = path.read_text()
    values = json.loads(content)
    try:
        more = {"no_repeat_ngram_size": 2, "max_len_a": 0.5, "max_len_b": 6}
        path.write_text(json.dumps(values | more))
        translator = Translator(folders[1])
        expected = Translator(folders[0], **more)
        plain = Translator(folders[0], max_len_a=0.5, max_len_b=6).translate("ban", beam=1)
        assert translator.translate("ban", beam=1) == expected.translate("ban", beam=1) != plain
        assert translator.translate("ban", beam=1, no_repeat_ngram_size=0) == plain
        short = translator.translate("ban", beam=1, max_len_a=0, max_len_b=2)
        assert expected.candidates(["ban"], beam=1, max_len_a=0, max_len_b=2)[0][0].text == short
        assert len(short.split()) == 2
    finally:
        path.write_text(content)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("no_repeat_ngram_size", -1, "no_repeat_ngram_size must be at least 0, but is -1"),
        ("max_len_a", float("inf"), "max_len_a must be at least 0.0 and finite, but is inf"),
        ("max_len_b", -1, "max_len_b must be at least 0, but is -1"),
    ],
)
def test_numbers_that_are_too_small_are_refused(folders, name, value, text):
    with pytest.raises(UserError) as error:
        Translator(folders[0], **{name: value})
    assert str(error.value) == text


FLAGS = ["--no-repeat-ngram-size=2", "--max-len-a=0", "--max-len-b=7"]


def test_the_command_translates_with_the_options(folders, tmp_path, capsys):
    file = tmp_path / "lines.txt"
    file.write_text("ban\n")
    assert main(["translate", str(folders[0]), str(file), *FLAGS, "--beam=1"]) == 0
    expected = Translator(folders[0], no_repeat_ngram_size=2, max_len_a=0, max_len_b=7)
    printed = capsys.readouterr().out.strip()
    assert printed == expected.translate("ban", beam=1)
    assert len(printed.split()) > 1


def test_the_service_has_the_options(folders):
    parser = ArgumentParser()
    serve.add_arguments(parser)
    search = serve.load_translator(parser.parse_args([str(folders[1]), *FLAGS])).search
    assert (search.no_repeat_ngram_size, search.max_len_a, search.max_len_b) == (2, 0, 7)


@pytest.mark.parametrize("place", [0, 1])
def test_tokens_that_the_vocabulary_lacks_are_refused(folders, place):
    description = replace(resolve_model(folders[place]), suppress_sequences=(("▁do", "nosuch"),))
    with pytest.raises(UserError, match="but it lacks 'nosuch'; make or fetch the folder again"):
        load_engine([description])
