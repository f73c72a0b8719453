"""`diet-fairseq extrapolate`: quality by length of encoders and translation models."""

import csv
import logging
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from sacrebleu.metrics import BLEU, CHRF

from diet_fairseq.cli import main
from diet_fairseq.errors import UserError
from diet_fairseq.look import lengths, masked_words, translations
from diet_fairseq.look.lengths import Curve
from diet_fairseq.look.windows import read_ids
from diet_fairseq.text.lines import read_pairs
from diet_fairseq.translate.loading import LoadedModel, load_transformer
from diet_fairseq.translate.model_files import resolve_model
from diet_fairseq.translate.model_json import ModelDescription
from diet_fairseq.translate.translator import Translator
from tests.support import electra, hugging, translating

pytestmark = pytest.mark.slow

LENGTHS = [8, 16, 32]


@pytest.fixture(scope="module", autouse=True)
def loud_again():
    """The command silences these for its process; other tests read them."""
    loggers = [logging.getLogger(name) for name in ("fairseq", "diet_fairseq")]
    before = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


def rows_of(folder):
    with open(folder / lengths.CSV) as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def encoders(tmp_path_factory):
    """A relative encoder, and an absolute one with fewer positions than the longest window."""
    return [
        hugging.checkpoint(
            tmp_path_factory.mktemp(arch), arch, "masked_lm", tokens_per_sample=16, max_positions=16
        )
        for arch in ("bert_diet_rel", "roberta_tupe_a")
    ]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n".join(hugging.TEXT * 12) + "\n")
    return path


def call(*words):
    main(["extrapolate", *map(str, words)])


@pytest.fixture(scope="module")
def out_of_encoders(encoders, text, tmp_path_factory):
    out = tmp_path_factory.mktemp("lengths") / "out"
    call(*encoders, "--text", text, "--lengths", 16, 8, 32, 8, "--tokens", 700, "--out", out)
    return out


def load(path):
    return load_transformer(resolve_model(path, translates=False))


@torch.no_grad()
def test_losses_are_those_of_each_window_read_by_itself(encoders, text, out_of_encoders):
    """An oracle that knows neither batches nor sums."""
    model = load(encoders[0])
    stream = read_ids(model, text, 700, line_ends=True)
    hidden = masked_words.draw_mask(stream, model.task.source_dictionary.eos())
    mine = [row for row in rows_of(out_of_encoders) if row["positions"] == "encoder: diet_rel"]
    assert [int(row["length"]) for row in mine] == LENGTHS
    for row, length in zip(mine, LENGTHS, strict=True):
        losses, hits = [], []
        for start in range(0, len(stream) - length + 2, length - 1):
            part = stream[start : start + length - 1]
            here = hidden[start : start + length - 1]
            read = torch.where(here, model.task.source_dictionary.index("<mask>"), part)
            window = torch.cat([torch.tensor([model.task.source_dictionary.bos()]), read])
            log_probabilities = model.model(window.unsqueeze(0))[0][0, 1:].log_softmax(-1)
            losses += (-log_probabilities[here, part[here]]).tolist()
            hits += log_probabilities[here].argmax(-1).eq(part[here]).tolist()
        assert int(row["masked tokens"]) == len(losses)
        assert float(row["loss"]) == pytest.approx(sum(losses) / len(losses), rel=1e-4)
        assert float(row["accuracy"]) == pytest.approx(sum(hits) / len(hits), rel=1e-4)


def test_all_lengths_and_checkpoints_predict_the_same_words(encoders, text):
    streams = [read_ids(load(path), text, 700, line_ends=True) for path in encoders]
    assert torch.equal(*streams)
    mask, second = (masked_words.draw_mask(stream, 2) for stream in streams)
    assert torch.equal(mask, second)
    assert not streams[0][mask].eq(2).any()
    assert 0.1 < mask.float().mean() < 0.2
    assert streams[0].eq(2).sum() >= 20  # lines end as in training


def test_the_report_says_where_an_absolute_model_stops(encoders, text, tmp_path, capsys):
    words = ("--text", text, "--lengths", 8, 16, 32, "--out", tmp_path / "out")
    call(*encoders, *words)
    out = capsys.readouterr().out
    assert f"{encoders[1]} stops at 16 positions: --finetune-from-model lengthens it" in out
    [line] = [line for line in out.splitlines() if line.endswith("| stops |")]
    assert line.startswith(f"| {encoders[1]} | encoder: tupe_a | ")
    assert (tmp_path / "out" / lengths.PNG).read_bytes()[:4] == b"\x89PNG"
    last = rows_of(tmp_path / "out")[-1]
    assert (last["length"], last["masked tokens"], last["loss"]) == ("32", "", "")


def test_the_length_of_training_is_drawn_for_every_line():
    points = {"64": {"loss": 1.0, "accuracy": 0.5}, "128": {}}
    curves = [Curve("a", "shaw", 64, points, 64), Curve("b", "t5", 9, points)]
    figure = lengths.draw_curves(curves, masked_words.METRICS)
    for panel in figure.axes:
        assert [line.get_linestyle() for line in panel.lines] == ["-", "--", "-"]
        assert list(panel.lines[0].get_xdata()) == [64]


# --- translation --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    limits = ("--max-source-positions=12", "--max-target-positions=12")
    return [
        translating.untrained(tmp_path_factory.mktemp(name), f"--arch=transformer_{name}", *options)
        for name, options in (("diet_rel", ()), ("learned", limits))
    ]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    lines = translating.sentences(6)
    lines = [*lines, "", *map(" ".join, pairwise(lines))]
    (folder / "en").write_text("\n".join(lines) + "\n")
    (folder / "de").write_text("\n".join(line[::-1] for line in lines) + "\n")
    return folder / "en", folder / "de"


def test_bleu_and_chrf_are_those_of_the_lines_in_each_bin(models, pairs, tmp_path, capsys):
    source, target = pairs
    call(*models, "--text", source, "--reference", target, "--lengths", 6, 11, "--out",
         tmp_path / "out", "--beam", 1)  # fmt: skip
    lines = [pair for pair in read_pairs(source, target) if pair[0]]
    description = resolve_model(models[0])
    sizes = translations.source_lengths(description, lines)
    mine = [
        row for row in rows_of(tmp_path / "out") if row["positions"].startswith("encoder: diet")
    ]
    assert sum(int(row["lines"]) for row in mine) == len(lines)
    assert mine[-1]["length"] == f"12-{max(sizes)}"
    for row in mine:
        first, last = map(int, row["length"].split("-"))
        inside = [pair for pair, size in zip(lines, sizes, strict=True) if first <= size <= last]
        sources, references = zip(*inside, strict=True)
        out = Translator(models[0], split_sentences=False).translate(sources, beam=1)
        for name, metric in {"BLEU": BLEU(trg_lang="de"), "chrF": CHRF()}.items():
            expected = metric.corpus_score(out, [references]).score
            assert float(row[name]) == pytest.approx(expected, rel=1e-4)
    printed = capsys.readouterr().out
    assert "/checkpoint_last.pt stops at 12 positions: --finetune-from-model lengthens" in printed
    assert all(row["BLEU signature"].startswith("nrefs:1|case:mixed") for row in mine)


def test_bins_are_those_that_have_sentences():
    bins = translations.length_bins([3, 41, 25, 9], [10, 20, 30])
    assert bins == {"1-10": [0, 3], "21-30": [2], "31-41": [1]}
    assert translations.length_bins([3], [10, 20]) == {"1-10": [0]}
    assert translations.length_bins([], [10, 20]) == {}


# --- what it refuses -----------------------------------------------------------------------------


def test_extrapolate_refuses_unusable_input_in_one_line(encoders, models, text, pairs, tmp_path):
    out = ("--out", tmp_path / "out", "--lengths", 8, 16)

    def refused(*words, match):
        with pytest.raises(UserError, match=match):
            call(*words, *out)

    both = ("--text", text, "--reference", text)
    refused(encoders[0], models[0], *both, match="predicts no masked words: give a model that")
    refused(models[0], encoders[0], *both, match="does not name its languages")
    refused(models[0], "--text", text, match="^translation models need --reference FILE: the trans")
    refused(tmp_path / "no.pt", "--text", text, match=r"^the model .*no\.pt does not exist: check")
    short = tmp_path / "short.txt"
    short.write_text("the dog\n")
    refused(
        encoders[0], "--text", short, match="^.*short.txt has .* fewer than one window of 16: g"
    )
    refused(models[0], "--text", pairs[0], "--reference", short,
            match="^.* has 12 lines and .*short.txt has 1: they differ in length from")  # fmt: skip
    refused(
        encoders[0], "--text", text, "--tokens", 4,
        match="^--tokens must be at least 15, the subwords of the largest window of --lengths, "
        "but is 4: raise it, or give smaller --lengths$",
    )  # fmt: skip
    foreign = tmp_path / "foreign.txt"
    foreign.write_text("слова другого языка\n" * 20)
    refused(encoders[0], "--text", foreign,
            match="^over a third of the subwords of .*foreign.txt are not in ")  # fmt: skip
    refused(encoders[0], "--text", tmp_path, match="^.* can't be read: Is a directory")
    assert not (tmp_path / "out").exists()


def test_an_electra_predicts_no_words(text):
    description = ModelDescription("fairseq", "", "", Path(), Path("checkpoint.pt"))
    model = LoadedModel(description, electra.build("electra_t5"), None, electra.TASK)
    with pytest.raises(UserError, match=r"^checkpoint.pt predicts no masked words: give a model"):
        masked_words.measure_masked_words(model, text, LENGTHS, 100)
