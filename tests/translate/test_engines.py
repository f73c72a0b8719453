"""Both engines give the translations of fairseq's own search."""

import math
import shutil
import threading
from dataclasses import replace

import pytest
import torch
from fairseq.models.transformer import TransformerModel

import diet_fairseq
from diet_fairseq import Translator
from diet_fairseq.cli import main
from diet_fairseq.errors import UserError
from diet_fairseq.translate.engine import Search
from diet_fairseq.translate.model_files import resolve_model
from diet_fairseq.translate.translator import load_engine
from tests.support.texts import sentences
from tests.support.translating import untrained

TEXTS = sentences(4, seed=5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return untrained(tmp_path_factory.mktemp("model"), "--arch", "transformer_diet_rel_tiny")


@pytest.fixture(scope="module")
def translator(folder):
    return Translator(folder)


def test_translations_equal_those_of_from_pretrained(folder, translator):
    hub = TransformerModel.from_pretrained(
        str(folder), "checkpoint_last.pt", str(folder), bpe="sentencepiece",
        sentencepiece_model=str(folder / "sentencepiece.model"),
    )  # fmt: skip
    expected = hub.translate(TEXTS, beam=3, max_len_a=1, max_len_b=50)
    assert [translator.translate(text) for text in TEXTS] == expected
    assert len(set(expected)) > 1


@pytest.fixture(scope="module")
def second(folder, tmp_path_factory):
    """Another model of the same vocabulary."""
    place = untrained(tmp_path_factory.mktemp("second"), "--arch", "transformer_t5_tiny")
    for name in ("dict.en.txt", "dict.de.txt", "sentencepiece.model"):
        shutil.copyfile(folder / name, place / name)
    return place


@pytest.mark.slow
def test_an_ensemble_gives_the_translations_of_fairseq_s(folder, second, tmp_path):
    for name in ("dict.en.txt", "dict.de.txt"):
        shutil.copyfile(folder / name, tmp_path / name)
    paths = f"{folder / 'checkpoint_last.pt'}:{second / 'checkpoint_last.pt'}"
    hub = TransformerModel.from_pretrained(
        str(tmp_path), paths, str(tmp_path), bpe="sentencepiece",
        sentencepiece_model=str(folder / "sentencepiece.model"),
    )  # fmt: skip
    expected = hub.translate(TEXTS, beam=3, max_len_a=1, max_len_b=50)
    assert Translator([folder, second]).translate(TEXTS) == expected
    assert expected not in [Translator(path).translate(TEXTS) for path in (folder, second)]


@pytest.mark.slow
def test_an_ensemble_of_two_vocabularies_is_refused(folder, second):
    with open(second / "dict.en.txt", "a") as dictionary:
        dictionary.write("word 1\n")
    with pytest.raises(UserError) as error:
        Translator([folder, second])
    assert str(error.value) == (
        f"an ensemble's models must have one vocabulary, but {folder / 'dict.en.txt'} and "
        f"{second / 'dict.en.txt'} differ: use models of the same data"
    )


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("preprocessing", ("none", "moses")),
        ("subwords", ("sentencepiece", "none")),
        ("lower", (False, True)),
    ],
)
def test_an_ensemble_that_prepares_text_differently_is_refused(folder, second, name, values):
    models = [
        replace(resolve_model(path), **{name: value})
        for path, value in zip((folder, second), values, strict=True)
    ]
    with pytest.raises(UserError) as error:
        load_engine(models)
    assert str(error.value) == (
        f"an ensemble's models must prepare text alike, but {folder} has {name} {values[0]} and "
        f"{second} {values[1]}: use models of the same data"
    )


def test_hypotheses_are_sorted_and_do_not_depend_on_the_batch(folder):
    model = load_engine([resolve_model(folder)])
    short, long = ["▁b", "a", "n"], ["▁k", "o", "n", "▁d", "i", "n"]
    search = Search(beam=3, nbest=3)
    [alone] = model.translate([short], search)
    together = model.translate([long, short], search)[1]
    for single, batched in zip(alone, together, strict=True):
        assert single.tokens == batched.tokens
        assert single.score == pytest.approx(batched.score, abs=1e-4)
    scores = [hypothesis.score for hypothesis in alone]
    assert scores == sorted(scores, reverse=True)


def test_tensor2tensor_s_penalty_divides_by_its_own_formula(folder):
    model = load_engine([resolve_model(folder)])
    plain, penalised = (
        model.translate([["▁b", "a"]], Search(beam=1, lenpen=alpha, penalty=penalty))[0][0]
        for alpha, penalty in ((0.0, "fairseq"), (0.6, "tensor2tensor"))
    )
    assert plain.tokens == penalised.tokens
    length = len(plain.tokens) + 1
    assert penalised.score == pytest.approx(plain.score / ((5 + length) / 6) ** 0.6)


def test_special_tokens_in_the_text_are_unknown_words(folder):
    model = load_engine([resolve_model(folder)])
    marks = [["▁b", mark, "a"] for mark in ("</s>", "<pad>", "<s>", "nosuch")]
    outputs = [hypotheses[0].tokens for hypotheses in model.translate(marks, Search())]
    assert len(set(map(tuple, outputs))) == 1


def test_threads_get_their_own_translations(translator):
    expected = {text: translator.translate(text) for text in TEXTS}
    translations = {}

    def work(text):
        translations[text] = translator.translate(text)

    threads = [threading.Thread(target=work, args=(text,)) for text in TEXTS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert translations == expected


def test_a_hostile_checkpoint_is_refused_and_not_run(folder, tmp_path):
    from tests.support.checkpoints import Touch

    copy = tmp_path / "hostile.pt"
    torch.save({"model": Touch(tmp_path / "marker"), "cfg": {}}, copy)
    with pytest.raises(UserError, match=r"hostile\.pt is refused: it holds posix\.system"):
        Translator(copy, data=folder, source_lang="en", target_lang="de")
    assert not (tmp_path / "marker").exists()


def test_a_missing_device_is_named(folder):
    with pytest.raises(UserError, match=r"^--device nosuch can't be used"):
        Translator(folder, device="nosuch")


def export(run, towards_end, scheme="diet_rel", *options):
    """A model's folder, and what `export ctranslate2` makes of it."""
    pytest.importorskip("ctranslate2")
    untrained(run, "--arch", f"transformer_{scheme}_tiny", *options, towards_end=towards_end)
    assert main(["export", "ctranslate2", str(run), str(run / "exported")]) == 0
    return run, run / "exported"


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    return export(tmp_path_factory.mktemp("run"), towards_end=4)


@pytest.mark.slow
@pytest.mark.parametrize("penalty", ["fairseq", "tensor2tensor"])
def test_both_engines_give_the_same_hypotheses(exported, penalty):
    engines = [load_engine([resolve_model(folder)]) for folder in exported]
    sources = [["▁b", "a", "n"], ["▁k", "o", "n", "▁d", "i", "n"], ["▁d", "</s>", "n"]]
    for source in sources:
        search = Search(beam=3, nbest=2, lenpen=0.6, penalty=penalty)
        ours, theirs = (model.translate([source], search)[0] for model in engines)
        assert [hypothesis.tokens for hypothesis in ours] == [
            hypothesis.tokens for hypothesis in theirs
        ]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["sinusoidal", "learned"])
def test_a_translation_ends_where_the_decoder_has_no_more_positions(scheme, tmp_path):
    """This model never says the end by itself."""
    folders = export(tmp_path, -50, scheme, "--max-target-positions", "12")
    engines = [load_engine([resolve_model(folder)]) for folder in folders]
    for source in (["▁b"], 6 * ["▁b", "a", "n"]):
        ours, theirs = (model.translate([source], Search(beam=2, nbest=1))[0] for model in engines)
        assert (len(ours[0].tokens), len(theirs[0].tokens)) == (11, 11)  # and </s>


@pytest.fixture(scope="module")
def endless(tmp_path_factory):
    """A checkpoint and its export; the model never ends a translation by itself."""
    return export(tmp_path_factory.mktemp("endless"), towards_end=-50)


@pytest.mark.few(1)
@pytest.mark.parametrize("place", [0, 1], ids=["fairseq", "ctranslate2"])
@pytest.mark.parametrize("ends", [True, False], ids=["ends", "endless"])
def test_a_translation_does_not_depend_on_its_batch(place, ends, request):
    folder = request.getfixturevalue("exported" if ends else "endless")[place]
    lines = [*TEXTS[:2], "ban", *([" ".join(TEXTS)] if ends else [])]
    alone = [Translator(folder).candidates([line], nbest=2)[0] for line in lines]
    for max_tokens in (30, 4000):
        together = Translator(folder, max_tokens=max_tokens).candidates(lines, nbest=2)
        for single, batched in zip(alone, together, strict=True):
            assert single[0].text == batched[0].text  # later ones may have equal scores
            scores = [[candidate.score for candidate in nbest] for nbest in (single, batched)]
            assert scores[0] == pytest.approx(scores[1], abs=1e-4)
    if not ends:
        engines = [
            load_engine([resolve_model(path)]) for path in request.getfixturevalue("endless")
        ]
        for source in (["▁b"], 4 * ["▁b", "a", "n"]):
            hypotheses = engines[place].translate([source, 9 * source], Search(beam=2))
            assert [len(nbest[0].tokens) for nbest in hypotheses] == [
                len(source) + 51,
                9 * len(source) + 51,
            ]


@pytest.mark.slow
@pytest.mark.parametrize("penalty", ["fairseq", "tensor2tensor"])
def test_both_engines_end_a_translation_at_its_limit(endless, penalty):
    engines = [load_engine([resolve_model(folder)]) for folder in endless]
    sources = [["▁b"], ["▁k", "o", "n"], ["▁d", "i", "n", "▁b"], 9 * ["a", "n"]]
    search = Search(beam=4, nbest=4, lenpen=0.6, penalty=penalty, max_len_b=3)
    for ours, theirs in zip(*(model.translate(sources, search) for model in engines), strict=True):
        assert ours[0].tokens == theirs[0].tokens  # later ones have equal scores
        for our, their in zip(ours, theirs, strict=True):
            assert our.score == pytest.approx(their.score, abs=1e-3)
            assert our.steps == their.steps == len(their.tokens) + 1


@pytest.mark.slow
def test_scores_differ_by_the_probability_of_an_empty_translation(tmp_path):
    """Neither search ends at once. fairseq's scores keep the end's share, CTranslate2's don't."""
    ours, theirs = (
        load_engine([resolve_model(folder)]) for folder in export(tmp_path, towards_end=3)
    )
    source, search = ["▁b", "a", "n"], Search(beam=3, nbest=3, lenpen=0)
    [empty] = theirs.model.score_batch([source], [[]])
    log_p_of_words = math.log1p(-math.exp(empty.log_probs[0]))
    assert log_p_of_words < -1  # a trained model's is about 0
    pairs = zip(*(model.translate([source], search)[0] for model in (ours, theirs)), strict=True)
    for our, their in pairs:
        assert our.tokens == their.tokens
        assert our.score == pytest.approx(their.score + log_p_of_words, abs=1e-3)


def test_an_exported_model_translates_like_its_checkpoint(exported, tmp_path, capsys):
    ours, theirs = (Translator(folder) for folder in exported)
    assert [ours.translate(text) for text in TEXTS] == [theirs.translate(text) for text in TEXTS]
    capsys.readouterr()
    (tmp_path / "text").write_text("\n\n".join(TEXTS))
    outputs = []
    for folder in exported:
        assert main(["translate", str(folder), str(tmp_path / "text")]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    assert len(outputs[0].splitlines()) == 2 * len(TEXTS) - 1


def test_a_damaged_export_is_named(exported, tmp_path):
    _, out = exported
    for name in ("model.json", "sentencepiece.model", "config.json"):
        (tmp_path / name).write_bytes((out / name).read_bytes())
    (tmp_path / "model.bin").write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"vocabulary\.json, but has none: export it again"):
        Translator(tmp_path)


def test_the_package_has_the_translator_as_an_attribute():
    assert "Translator" in diet_fairseq.__all__
    with pytest.raises(AttributeError, match="no attribute 'nosuch'"):
        diet_fairseq.nosuch  # noqa: B018


@pytest.mark.slow
def test_unknown_words_can_be_forbidden_in_both_engines(tmp_path):
    pytest.importorskip("ctranslate2")
    untrained(
        tmp_path, "--arch", "transformer_diet_rel_tiny", towards_end=4, towards_unknown=4
    )  # fmt: skip
    assert main(["export", "ctranslate2", str(tmp_path), str(tmp_path / "exported")]) == 0
    search, source = Search(beam=3, nbest=2), ["▁b", "a", "n"]
    best = []
    for folder in (tmp_path, tmp_path / "exported"):
        model = load_engine([resolve_model(folder)])
        [free] = model.translate([source], search)
        assert "<unk>" in free[0].tokens
        [known] = model.translate([source], replace(search, no_unk=True))
        assert not any("<unk>" in hypothesis.tokens for hypothesis in known)
        best.append([hypothesis.tokens for hypothesis in known])
    assert best[0] == best[1]
