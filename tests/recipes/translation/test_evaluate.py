"""`evaluate` translates every line once, with the penalty asked for, and scores plain text."""

import json

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator

from diet_fairseq.errors import UserError
from diet_fairseq.recipes.translation.corpora import WMT18
from tests.support.road import (
    corpus,
    evaluate,
    interactive,
    run,
    score,
    stages,
    subwords,
    test_sets,
    text,
    use,
    write,
)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_tensor2tensor_s_penalty_takes_the_place_of_fairseq_s(alpha):
    generator = SequenceGenerator.__new__(SequenceGenerator)
    torch.nn.Module.__init__(generator)
    generator.len_penalty = interactive.Tensor2TensorPenalty(alpha)
    for length in (1, 7, 100):
        wanted = ((5 + length) / 6) ** alpha
        assert length**generator.len_penalty == pytest.approx(wanted)
        score = torch.tensor([-3.0])
        score /= length**generator.len_penalty  # as finalize_hypos does
        assert score.item() == pytest.approx(-3 / wanted)


def test_hypotheses_are_those_printed_in_order():
    printed = ["S-0\tx\n", "H-0\t-0.5\tein \u2028 H-9\tx\n", "D-0\t-0.5\tein\n", "H-1\t-inf\t\n"]
    assert list(evaluate.hypotheses(printed)) == ["ein \u2028 H-9\tx", ""]
    with pytest.raises(UserError, match="translation 2 came instead of 1"):
        list(evaluate.hypotheses([printed[1], "H-2\t0\tx\n"]))


def test_scores_have_signatures_that_name_the_test_set():
    scores = score.score(
        ["Ein guter Satz ist das ."], ["Ein guter Satz ist das ."], "wmt18", "en-de"
    )
    assert scores["BLEU"] == pytest.approx(100)
    assert scores["chrF"] == pytest.approx(100)
    assert "test:wmt18|lang:en-de|" in scores["BLEU signature"]
    assert "tok:13a|smooth:exp" in scores["BLEU signature"]
    with pytest.raises(UserError, match="1 translations of 2 references"):
        score.score(["a"], ["a", "b"])


def test_a_test_set_unknown_to_sacrebleu_is_named():
    with pytest.raises(UserError, match="no test set wmt18 for en-fr"):
        test_sets.lines_of("wmt18", "en-fr")


def test_a_test_set_that_can_not_be_fetched_is_named(monkeypatch, tmp_path):
    def fail(*_):
        raise SystemExit(1)

    monkeypatch.setattr("sacrebleu.dataset.base.Dataset.get_files", fail)
    with pytest.raises(UserError, match="sacreBLEU could not fetch wmt18 en-de"):
        test_sets.write("wmt18", tmp_path, "test", "en", "de")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model that has seen three batches."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        use(patch)
        texts = corpus(folder / "texts", train=100)
        small = ("--vocabulary", 160)
        run(WMT18, "prepare", "en", "de", "--from-dir", texts, "--folder", folder, *small)
        fast = ("--encoder-layers", 1, "--decoder-layers", 1, "--num-workers", 0)
        run(
            *(WMT18, "train", "diet_rel", "de", "en", "--folder", folder, "--gpus", 0),
            *(
                "--size",
                "tiny",
                "--updates",
                10,
                "--max-tokens",
                100,
                "--update-freq",
                1,
                "--max-source-positions",
                99,
            ),
            *fast,
        )
    return folder


def translated(folder, *arguments):
    options = ("--size", "tiny", "--folder", folder, "--gpus", 0, "--beam", 2)
    run(WMT18, "evaluate", "diet_rel", "de", "en", *options, *arguments)


@pytest.mark.slow
def test_the_test_set_is_translated_and_scored(trained):
    translated(trained)
    output = trained / "runs" / "diet_rel-tiny-de-en" / "evaluation-test"
    scores = json.loads((output / "scores.json").read_text())
    assert scores["lines"] == 12
    assert scores["averaged"] == 5
    assert len((output / "translations.txt").read_text().split("\n")) == 13


@pytest.mark.slow
def test_given_files_are_translated_without_a_reference(trained, tmp_path):
    source = write(tmp_path / "mine", ["", "ban.", "din kon" * 2000, "\u2028"])
    translated(trained, "--input", source, "--average", 0, "--output", tmp_path)
    lines = (tmp_path / "translations.txt").read_text().split("\n")
    assert [bool(line) for line in lines] == [False, True, True, False, False]


@pytest.fixture
def translator(tmp_path, monkeypatch):
    """A prepared folder, and a model that says `kon` to all lines but those of `din`s."""
    prepared = {"pair": ["en", "de"], "bpe": "sentencepiece", "test_set": None}
    (tmp_path / "prepared.json").write_text(json.dumps(prepared))
    (tmp_path / "subwords").mkdir()
    subwords.SentencePiece.learn(tmp_path / "subwords", {"de": ["ban din kon."] * 9}, 30, 1)
    asked = []

    def translate(model, source, lines, args):
        asked.extend(text.read_lines(source) if lines else [])
        return ["" if "din" in line.replace(" ", "") else "▁ k o n" for line in asked]

    monkeypatch.setattr(evaluate, "translate", translate)
    return asked


def test_a_blank_line_stays_blank_and_is_not_translated(translator, tmp_path, capsys):
    source = write(tmp_path / "mine", ["", "ban", " \u2028", "din", "ban", "\t"])
    model = write(tmp_path / "model.pt", [])
    translated(tmp_path, "--input", source, "--checkpoint", model, "--output", tmp_path / "out")
    out = tmp_path / "out"
    assert len(translator) == 3
    assert (out / "translations.txt").read_text() == "\nkon\n\n\nkon\n\n"
    said = f"mine: no translation of line 4: see {out / 'translate.log'}"
    assert said in capsys.readouterr().out


def test_scores_say_of_what_they_are(translator, tmp_path):
    source, reference = write(tmp_path / "mine", ["ban"]), write(tmp_path / "theirs", ["kon"])
    given = ("--input", source, "--reference", reference, "--output", tmp_path / "out")
    model = write(tmp_path / "model.pt", [])
    translated(tmp_path, *given, "--checkpoint", model)
    scores = json.loads((tmp_path / "out" / "scores.json").read_text())
    assert scores["averaged"] == 0
    assert scores["sha256"] == stages.digest_of(model)


def test_a_text_named_as_the_test_set_leaves_the_test_set_s_scores_alone(translator, tmp_path):
    for place in ("clean", "mine"):
        (tmp_path / place).mkdir()
    for language in ("de", "en"):
        write(tmp_path / "clean" / f"test.{language}.as-it-came", ["ban", "din"])
    mine, model = write(tmp_path / "mine" / "test", ["kon"]), write(tmp_path / "model.pt", [])
    run_folder = tmp_path / "runs" / "diet_rel-tiny-de-en"
    translated(tmp_path, "--checkpoint", model)
    translator.clear()
    translated(tmp_path, "--checkpoint", model, "--input", mine, "--reference", mine)
    for folder, lines in (("evaluation-test", 2), ("input-test", 1)):
        assert json.loads((run_folder / folder / "scores.json").read_text())["lines"] == lines


def test_nothing_but_blank_lines_starts_no_program(tmp_path):
    assert evaluate.translate(tmp_path / "model.pt", tmp_path / "source", 0, None) == []


def test_a_mistake_leaves_no_folder_behind(translator, tmp_path):
    source = write(tmp_path / "mine", ["ban"])
    with pytest.raises(UserError, match=r"is not a file: --checkpoint names one"):
        translated(tmp_path, "--input", source, "--checkpoint", tmp_path, "--run", "new")
    assert not (tmp_path / "runs").exists()


def test_mistakes_are_named(tmp_path):
    prepared = {"pair": ["en", "de"], "bpe": "sentencepiece", "test_set": None}
    (tmp_path / "prepared.json").write_text(json.dumps(prepared))
    (tmp_path / "clean").mkdir()
    for language in prepared["pair"]:
        write(tmp_path / "clean" / f"test.{language}.as-it-came", ["ban."])
    one, two = write(tmp_path / "one", ["ban."]), write(tmp_path / "two", ["ban.", "kon."])
    for arguments, words in [
        (("--input", one, "--reference", two), "they part at line 2"),
        (("--reference", two), "--reference needs --input"),
        (("--test-set", "wmt18", "--input", one), "one can't be combined with --test-set wmt18"),
        (("--test-set", "wmt18", "--reference", one), "--reference .*one can't be combined with"),
        (("--run", "other"), "checkpoint_last.pt does not exist: train first"),
        (("--checkpoint", tmp_path / "no.pt"), "no.pt is not a file"),
        (("--checkpoint", "a.pt", "--average", 0), "--average 0 is of a run's checkpoints, and"),
    ]:
        with pytest.raises(UserError, match=words):
            translated(tmp_path, *arguments)
    with pytest.raises(UserError, match="holds en-de: name these languages"):
        run(WMT18, "evaluate", "diet_rel", "cs", "en", "--folder", tmp_path)
