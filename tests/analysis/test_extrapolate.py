"""`diet-fairseq extrapolate`: quality by length of encoders and translation models."""

import csv
import logging
import os
from argparse import Namespace
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from fairseq.data import indexed_dataset
from sacrebleu.metrics import BLEU, CHRF

from diet_fairseq.analysis import lengths, loaded_model, masked_words, translations
from diet_fairseq.analysis.lengths import Curve, Point
from diet_fairseq.errors import UserError
from diet_fairseq.inference import model_files
from diet_fairseq.inference.translator import Translator
from diet_fairseq.model_json import ModelDescription
from diet_fairseq_cli import main
from tests.support import electra, hugging, translating

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
    call(*encoders, "--text", text, "--lengths", "16,8,32,8", "--tokens", 700, "--out", out)
    return out


def load(path):
    return loaded_model.load(
        model_files.resolve_model(path, model_files.Pieces(), translates=False)
    )


@torch.no_grad()
def test_losses_are_those_of_each_window_read_by_itself(encoders, text, out_of_encoders):
    """An oracle that knows neither batches nor sums by place."""
    model = load(encoders[0])
    stream = loaded_model.read_ids(model, text, 700, line_ends=True)
    hidden = masked_words.draw_mask(stream, model.dictionary.eos())
    losses = {}  # (length, place) -> losses
    for length in LENGTHS:
        for start in range(0, len(stream) - length + 2, length - 1):
            part = stream[start : start + length - 1]
            masked = hidden[start : start + length - 1]
            read = torch.where(masked, model.dictionary.index("<mask>"), part)
            window = torch.cat([torch.tensor([model.dictionary.bos()]), read])
            log_probabilities = model.model(window.unsqueeze(0))[0][0].log_softmax(-1)  # (T, V)
            for place in masked.nonzero()[:, 0].tolist():
                loss = -log_probabilities[place + 1, part[place]]
                losses.setdefault((length, place + 1), []).append(loss)
    mine = [row for row in rows_of(out_of_encoders) if row["positions"].startswith("diet_rel")]
    assert [(row["length"], row["first"], row["last"]) for row in mine] == [
        ("8", "1", "8"), ("16", "1", "16"), ("32", "1", "32"),
        ("8", "1", "8"), ("16", "1", "8"), ("16", "9", "16"),
        ("32", "1", "8"), ("32", "9", "16"), ("32", "17", "32"),
    ]  # fmt: skip
    for row in mine:
        places = range(int(row["first"]) - 1, int(row["last"]))
        inside = [x for place in places for x in losses.get((int(row["length"]), place), [])]
        assert len(inside) == int(row["masked tokens"])
        assert float(row["loss"]) == pytest.approx(float(torch.stack(inside).mean()), rel=1e-4)


def test_all_lengths_and_checkpoints_predict_the_same_words(encoders, text):
    streams = [loaded_model.read_ids(load(path), text, 700, line_ends=True) for path in encoders]
    assert torch.equal(*streams)
    mask, second = (masked_words.draw_mask(stream, 2) for stream in streams)
    assert torch.equal(mask, second)
    assert not streams[0][mask].eq(2).any()
    assert 0.1 < mask.float().mean() < 0.2
    assert streams[0].eq(2).sum() >= 20  # lines end as in training


def test_accuracy_is_the_share_of_hits():
    sums = torch.tensor([[0.0, 0, 0], [4, 2, 3], [1, 1, 0]], dtype=torch.float64)
    assert masked_words.mean(3, 0, 2, sums).values == {"loss": 0.5, "accuracy": 0.75}
    with pytest.raises(UserError, match=r"^no token at places 1 to 1 of windows of 3 was masked"):
        masked_words.mean(3, 0, 1, sums)


def test_the_report_says_where_an_absolute_model_stops(encoders, text, tmp_path, capsys):
    call(*encoders, "--text", text, "--lengths", "8,16,32", "--out", tmp_path / "out")
    out = capsys.readouterr().out
    name = encoders[1].parent.name
    assert f"{name} stops at 16 positions: --max-positions 32 with --finetune-from-model" in out
    [line] = [line for line in out.splitlines() if line.endswith("| stops |")]
    assert line.startswith(f"| {name} | tupe_a, sharing layer | 16 | ")
    assert "By place in windows of 16, the longest that all checkpoints read:" in out
    assert (tmp_path / "out" / lengths.PNG).read_bytes()[:4] == b"\x89PNG"
    last = [row for row in rows_of(tmp_path / "out") if row["checkpoint"] == name][2]
    assert (last["length"], last["masked tokens"], last["loss"]) == ("32", "0", "")


def test_the_report_keeps_the_number_of_compressed_keys(text, tmp_path):
    """More of them would be refused."""
    model = load(hugging.checkpoint(tmp_path, "roberta_linformer", "masked_lm",
                                    tokens_per_sample=16, max_positions=16))  # fmt: skip
    curve = masked_words.measure("some", model, text, [8, 32], 700)
    flags = "--max-positions 32 --projection-length 4 with --finetune-from"
    assert f"\n\nsome stops at 16 positions: {flags}" in lengths.markdown([curve])


def test_the_length_of_training_is_drawn_for_every_line():
    points = [Point(64, 1, 64, 5, {"loss": 1.0, "accuracy": 0.5}), Point(128, 1, 128, 0, {})]
    curve = Curve("a", "shaw", 64, 64, "--max-positions 128", points, points[:1])
    figure = lengths.picture([curve, Curve("b", "t5", None, 9, "", points, points[:1])])
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
    call(*models, "--text", source, "--reference", target, "--lengths", "6,11", "--out",
         tmp_path / "out", "--beam", 1)  # fmt: skip
    lines = translations.pairs_to_translate(source, target)
    assert all(line for line, _ in lines)
    about = model_files.resolve_model(models[0])
    sizes = translations.source_lengths(about, lines)
    mine = [
        row for row in rows_of(tmp_path / "out") if row["positions"].startswith("encoder: diet")
    ]
    assert sum(int(row["sentences"]) for row in mine) == len(lines)
    assert int(mine[-1]["last"]) == max(sizes) > 11
    for row in mine:
        inside = [
            pair
            for pair, size in zip(lines, sizes, strict=True)
            if int(row["first"]) <= size <= int(row["last"])
        ]
        sources, references = zip(*inside, strict=True)
        out = Translator(models[0]).translate(sources, beam=1)
        for name, metric in {"BLEU": BLEU(trg_lang="de"), "chrF": CHRF()}.items():
            expected = metric.corpus_score(out, [references]).score
            assert float(row[name]) == pytest.approx(expected, rel=1e-4)
    printed = capsys.readouterr().out
    assert f"{models[1].name} stops at 12 positions: --max-source-positions" in printed
    assert "BLEU: `nrefs:1|case:mixed" in printed


def test_the_longest_source_of_training_is_read_from_its_data(tmp_path):
    (tmp_path / "data-bin").mkdir()
    path = str(tmp_path / "data-bin" / "train.en-de.en")
    data = indexed_dataset.make_builder(f"{path}.bin", impl="mmap", vocab_size=20)
    for length in (5, 9, 7):
        data.add_item(torch.ones(length, dtype=torch.int64))
    data.finalize(f"{path}.idx")
    checkpoint = tmp_path / "runs" / "one" / "checkpoint.pt"
    about = ModelDescription("fairseq", "en", "de", checkpoint.parent, checkpoint, tmp_path)
    assert translations.trained_length(about) == 8  # without </s>
    assert translations.trained_length(replace(about, source_lang="fr")) is None


def test_bins_are_those_that_have_sentences():
    bins = translations.bins([3, 41, 25, 9], [10, 20, 30])
    assert bins == {(1, 10): [0, 3], (21, 30): [2], (31, 41): [1]}
    assert translations.bins([3], [10, 20]) == {(1, 10): [0]}


# --- what it refuses -----------------------------------------------------------------------------


def test_extrapolate_refuses_unusable_input_in_one_line(encoders, models, text, pairs, tmp_path):
    out = ("--out", tmp_path / "out", "--lengths", "8,16")

    def refused(*words, match):
        with pytest.raises(UserError, match=match):
            call(*words, *out)

    refused(
        encoders[0], models[0], "--text", text, match="^extrapolate compares encoders or transl"
    )
    refused(models[0], "--text", text, match="^translation models need --reference FILE: the trans")
    refused(
        encoders[0], "--text", text, "--beam", 2, match="^--reference and --beam are for transl"
    )
    refused(
        tmp_path / "no.pt", "--text", text, match=r"^there is no model .*no\.pt: check the path$"
    )
    short = tmp_path / "short.txt"
    short.write_text("the dog\n")
    refused(encoders[0], "--text", short, match="^.*short.txt has .* less than one window of 16: g")
    refused(models[0], "--text", pairs[0], "--reference", short,
            match="^.* has 12 lines and .*short.txt has 1: they differ in length from")  # fmt: skip
    short.write_text("\n")
    refused(
        models[0], "--text", short, "--reference", short, match="^.*short.txt has no line to tr"
    )
    refused(encoders[0], "--text", tmp_path, match="^.* can't be read: Is a directory")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("lengths", ["a", "1,2", "", "8;16"])
def test_lengths_are_numbers(lengths, capsys):
    with pytest.raises(SystemExit):
        call("checkpoint.pt", "--text", "text", "--lengths", lengths)
    assert "--lengths: must be numbers of at least 2" in capsys.readouterr().err


def test_an_electra_predicts_no_words(text):
    about = ModelDescription("fairseq", "", "", Path(), Path("checkpoint.pt"))
    config = Namespace(arch="electra_t5")
    model = loaded_model.LoadedModel(about, electra.build("electra_t5"), config, electra.TASK)
    match = r"^checkpoint.pt predicts no masked words \(--arch electra_t5\): give a model that was "
    with pytest.raises(UserError, match=match):
        masked_words.measure("electra", model, text, LENGTHS, 100)


def test_a_hostile_checkpoint_is_refused_and_not_run(encoders, text, tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    torch.save({"model": Evil(), "args": None, "cfg": {}}, tmp_path / "checkpoint.pt")
    data = ("--data", encoders[0].parent / "data-bin")
    with pytest.raises(UserError, match=r"checkpoint\.pt"):
        call(tmp_path / "checkpoint.pt", *data, "--text", text, "--out", tmp_path / "out")
    assert not (tmp_path / "ran").exists()
