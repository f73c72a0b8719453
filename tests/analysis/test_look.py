"""`diet-fairseq look`: every scheme's scores, the page of a model, and what it refuses."""

import base64
import csv
import json
import os
import re
import shutil
from argparse import Namespace
from itertools import product
from pathlib import Path

import pytest
import torch

from diet_fairseq.analysis import loaded_model, masked_words, measures, tables
from diet_fairseq.analysis.page import Item, ModelFacts, Section, render
from diet_fairseq.analysis.scores import look
from diet_fairseq.errors import UserError
from diet_fairseq.inference.model_files import NONE, Pieces
from diet_fairseq.model_json import ModelDescription
from diet_fairseq_cli import main
from tests.support import browser, hugging, tiny
from tests.support.tiny import Case

LENGTH = 12


class Task(tiny.Task):
    cfg = Namespace()


def of(model) -> loaded_model.LoadedModel:
    """A tiny model as if it had been read from a checkpoint."""
    about = ModelDescription("fairseq", "", "", Path(), Path("checkpoint.pt"))
    return loaded_model.LoadedModel(about, model, Namespace(), Task)


def seen(model):
    one = of(model)
    return one, look(one, loaded_model.read_batch(one, LENGTH).tokens)


@tiny.each(tiny.first_of_each_scheme(tiny.TRANSLATION) + tiny.first_of_each_scheme(tiny.ENCODERS))
def test_whole_scores_are_those_that_the_model_attends_by(case):
    """softmax of what `look` computes is what the model's own attention computes."""
    model = tiny.model_of(case)
    one = of(model)
    tokens = loaded_model.read_batch(one, LENGTH).tokens
    found = look(one, tokens)
    if case.family == "transformer":
        attention = model.encoder.layers[0].self_attn
    else:
        attention = model.encoder.sentence_encoder.layers[0].self_attn
    weights = []
    forward = type(attention).forward

    def watched(module, *args, **given):
        given["need_weights"] = given["need_head_weights"] = True
        out, found_weights = forward(module, *args, **given)
        weights.append(found_weights)  # (H, B, Tq, Tk)
        return out, found_weights

    attention.forward = watched.__get__(attention)
    try:
        one.stacks["encoder"](tokens, src_lengths=None)
    finally:
        del attention.forward
    first = found.whole[0]
    assert (first.place, first.layer) == ("encoder", 1)
    torch.testing.assert_close(
        first.entropy, measures.entropy(weights[0]).mean(1), **tiny.TOLERANCE
    )


@pytest.mark.parametrize("scheme", sorted({"diet_rel", "t5"}))
def test_relative_scores_are_explained_by_the_offset(scheme):
    [case] = [case for case in tiny.CASES if str(case) == f"{scheme}-roberta"]
    rows = tables.heads(seen(tiny.model_of(case))[1])
    assert len(rows) == tiny.HEADS * (1 if scheme == "t5" else tiny.LAYERS)
    assert {round(row["offset share"], 3) for row in rows} == {1.0}


def test_the_first_token_stands_out_where_tupe_unties_it():
    def share(untie):
        [case] = [
            case
            for case in tiny.CASES
            if case.scheme == "tupe_a" and case.family == "bert" and len(case.options) == 1
            and case.option("position_untie_cls") == untie
            and dict(case.options).get("position_untie_cls")
        ]  # fmt: skip
        matrix = seen(tiny.model_of(case))[1].positions[0].matrix
        return matrix[:, 1:, 0].std(1).max()

    assert share("paper") == 0
    assert share("no") > 0.1


def test_no_rank_passes_the_bound_of_theorem_1():
    for name in ("diet_abs-roberta", "learned-roberta", "bert_ad-roberta", "tupe_a-roberta"):
        [case] = [case for case in tiny.CASES if str(case) == name]
        found = seen(tiny.fresh(case, encoder_embed_dim=4))[1]
        assert found.whole
        for one in found.whole:
            assert one.bound is not None
            assert one.bound < LENGTH
            assert one.rank.max() <= one.bound
        for scores in found.positions:
            assert scores.rank is not None
            assert measures.rank(measures.singular_values(scores.matrix)).max() <= scores.rank


@pytest.mark.parametrize("scheme", ["shaw", "transformer_xl", "deberta", "cope"])
def test_scores_that_read_the_words_have_no_bound_of_rank(scheme):
    [case] = [case for case in tiny.CASES if str(case) == f"{scheme}-roberta"]
    found = seen(tiny.fresh(case, encoder_embed_dim=4))[1]
    assert [one.bound for one in found.whole] == [None] * tiny.LAYERS


def test_stock_models_show_their_input_positions():
    for family in ("roberta", "transformer"):
        one, found = seen(tiny.stock(family))
        assert {scores.place for scores in found.positions} == {
            f"{name}'s input" for name in one.stacks
        }
        assert len(found.whole) == tiny.LAYERS * len(one.stacks)
        for scores in found.positions:
            assert scores.matrix.shape == (tiny.HEADS, LENGTH, LENGTH)
        assert {len(rows) for rows in found.input.values()} == {LENGTH}


def test_input_positions_are_projected_as_in_figure_8():
    model = tiny.stock("roberta")
    _, found = seen(model)
    attention = model.encoder.sentence_encoder.layers[0].self_attn
    rows, size = found.input["encoder"], tiny.DIM // tiny.HEADS
    for head in range(tiny.HEADS):
        part = slice(head * size, (head + 1) * size)
        expected = (rows @ attention.q_proj.weight[part].T) @ (
            rows @ attention.k_proj.weight[part].T
        ).T
        torch.testing.assert_close(found.positions[0].matrix[head], expected / size**0.5)


def test_two_segments_make_blocks():
    [case] = [case for case in tiny.CASES if str(case) == "diet_rel-bert"]
    model = tiny.model_of(case)
    found = seen(model)[1]
    blocks = found.segments[0].matrix - found.positions[0].matrix
    weight = model.encoder.sentence_encoder.layers[0].self_attn.segments
    expected = weight.gained(weight.weight).detach()  # (H, 2, 2)
    half = LENGTH // 2
    torch.testing.assert_close(
        blocks, expected.repeat_interleave(half, 1).repeat_interleave(half, 2)
    )


def test_positions_in_cross_attention_are_seen():
    [case] = [
        case for case in tiny.of_scheme("diet_abs") if dict(case.options) == CROSS
    ]  # fmt: skip
    found = seen(tiny.model_of(case))[1]
    crossing = [one for one in found.positions if one.place == "cross-attention"]
    assert [one.layer for one in crossing] == [0]
    assert not crossing[0].square


CROSS = {"position_cross_attention": True}


# --- the command --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoder")
    return hugging.checkpoint(folder, "bert_diet_rel", "masked_lm", tokens_per_sample=16)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n".join(hugging.TEXT * 2) + "\n")
    return path


@pytest.fixture(scope="module")
def page(encoder, text, tmp_path_factory):
    """The page of a checkpoint, with another of the same run."""
    shutil.copy(encoder, encoder.with_name("checkpoint1.pt"))
    state = torch.load(encoder, weights_only=False)  # this test wrote it
    state["optimizer_history"][-1]["num_updates"] = 7
    torch.save(state, encoder)
    out = tmp_path_factory.mktemp("page") / "out"
    main(["look", str(encoder), "--out", str(out), "--text", str(text), "--epochs"])
    return out


def test_the_page_needs_nothing_beside_it(page):
    html = (page / "index.html").read_text()
    pictures = re.findall(r'<img src="data:image/png;base64,([^"]+)"', html)
    assert len(pictures) == 6
    assert sorted(base64.b64decode(one) for one in pictures) == sorted(
        path.read_bytes() for path in page.glob("*.png")
    )
    assert set(re.findall(r'(?:src|href)="([^":]+:)', html)) == {"data:"}
    assert "http" not in re.sub(r"data:image/png;base64,[^\"]+", "", html)
    assert "7 updates (checkpoint_best.pt)" in html


def test_tables_of_numbers_stand_beside_the_page(page):
    with open(page / "heads.csv") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == tiny.LAYERS * tiny.HEADS
    assert {row["offset share"] for row in rows} == {"1"}
    for name in ("text", "offsets", "singular", "scores"):
        assert (page / f"{name}.csv").read_text().count("\n") > 2
    [facts, *_] = json.loads((page / "look.json").read_text()).values()
    assert facts["architecture"] == "bert_diet_rel"
    assert "text.txt" in facts["read"]


def test_names_in_a_checkpoint_are_text_and_no_markup():
    item = Item("<i>", rows=[{"a": "<script>", "b": 0.5, "c": None}])
    html = render("<b>", "", [ModelFacts("<u>", {"x": "</dl>"})], [Section("", "", [[item]])], "")
    assert "<b>" not in html
    assert "&lt;script&gt;" in html
    assert "<td>0.50</td>" in html


def test_windows_with_padding_are_refused():
    model = of(tiny.own(Case("diet_rel", family="roberta")))
    tokens = loaded_model.read_batch(model, LENGTH).tokens
    look(model, tokens)
    for place in (0, 5, LENGTH - 1):
        padded = tokens.clone()
        padded[1, place] = tiny.PAD
        with pytest.raises(ValueError, match=r"^look takes windows without padding$"):
            look(model, padded)


def test_special_tokens_in_a_text_are_unknown_words(encoder, tmp_path):
    model = loaded_model.load_with_positions(encoder, Pieces(subwords=NONE), reads_text=True)
    known = model.dictionary.symbols[model.dictionary.nspecial :][:4]
    texts = []
    for word in ("<pad>", "</s>", "nosuch"):
        texts.append(tmp_path / word.strip("</>"))
        texts[-1].write_text(" ".join(3 * [*known, word, *known]))
    for read in (lambda text: loaded_model.read_batch(model, 8, text).tokens,
                 lambda text: masked_words.subwords(model, text, 99)):  # fmt: skip
        pad, end, unknown = map(read, texts)
        assert torch.equal(pad, unknown)
        assert torch.equal(end, unknown)
        assert model.dictionary.unk() in unknown


def refused(*words, match):
    with pytest.raises(UserError, match=match):
        main(["look", *map(str, words)])


def test_what_can_not_be_looked_at_is_one_line(encoder, text, tmp_path):
    out = ("--out", tmp_path / "out")
    refused(tmp_path / "no.pt", *out, match=r"^there is no model .*no\.pt: check the path$")
    refused(encoder, encoder, encoder, *out, match="^look shows one checkpoint or two, .* are 3$")
    refused(encoder, *out, "--length", 3, match="^--length must be 4 to 1024, but is 3$")
    short = tmp_path / "short.txt"
    short.write_text("the dog\n")
    refused(encoder, *out, "--text", short, match="which is less than one window of 14: give a")
    refused(encoder, *out, "--text", tmp_path, match="^.* can't be read: Is a directory")
    short.write_bytes(b"\xff\xfe")
    refused(encoder, *out, "--text", short, match="^.*short.txt, line 1: .* is not UTF-8")
    subwords = ("--text", text, "--subwords", tmp_path)
    refused(encoder, *out, *subwords, match="^.* is a folder: give --subwords another file$")
    refused(encoder, *out, "--data", tmp_path, match="^there is no dictionary .*: give by --data")
    assert not (tmp_path / "out").exists()


def test_a_window_is_no_longer_than_the_shortest_table_of_positions():
    [absolute] = [case for case in tiny.CASES if str(case) == "diet_abs-roberta"]
    [relative] = [case for case in tiny.CASES if str(case) == "diet_rel-roberta"]
    models = [of(tiny.model_of(case)) for case in (relative, absolute)]
    assert loaded_model.window_length(models[:1], 40) == 40
    assert loaded_model.window_length(models, None) == tiny.LIMIT
    match = f"^--length 40 is more than the {tiny.LIMIT} positions of checkpoint.pt: give at most"
    with pytest.raises(UserError, match=match):
        loaded_model.window_length(models, 40)


def test_a_folder_that_is_no_page_stays_as_it_is(encoder, tmp_path):
    (tmp_path / "mine").write_text("mine")
    refused(encoder, "--out", tmp_path, match=f"^{tmp_path} exists: give another folder, or --fo")
    refused(encoder, "--out", tmp_path, "--force", match="^--force replaces folders that this comm")
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_model_without_positions_is_named(tmp_path):
    checkpoint = hugging.checkpoint(tmp_path, "roberta_none", "masked_lm", tokens_per_sample=16)
    match = r"^.*\.pt has no positions \(--arch roberta_none\): there is nothing to look at"
    refused(checkpoint, "--out", tmp_path / "out", match=match)


def test_a_hostile_checkpoint_is_refused_and_not_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    torch.save({"model": Evil(), "args": None, "cfg": {}}, tmp_path / "checkpoint.pt")
    refused(tmp_path / "checkpoint.pt", "--out", tmp_path / "out", match=r"checkpoint\.pt")
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_browser_shows_two_models_on_phones_and_screens(page, encoder, text, tmp_path):
    if not browser.chromium():
        pytest.skip("needs chromium")
    folder = tmp_path / "both"
    options = ["--out", str(folder), "--text", str(text), "--epochs"]
    main(["look", str(encoder), str(encoder), *options])
    with browser.open_browser(tmp_path) as tab:
        tab.open(f"file://{folder}/index.html")
        unloaded = "[...document.images].filter(image => !image.naturalWidth).length"
        assert tab.evaluate("document.images.length") > 0
        assert tab.evaluate(unloaded) == 0
        tab.evaluate("document.querySelector('.frames input').focus()")
        tab.press("Home")
        frame = tab.evaluate("document.querySelector('.frames output').textContent")
        assert frame == "0 updates (checkpoint1.pt)"
        for scheme, (width, height) in product(("light", "dark"), ((1000, 3000), (360, 740))):
            tab.set_color_scheme(scheme)
            tab.resize(width, height)
            tab.screenshot(tmp_path / f"{width}-{scheme}.png")
            assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.errors == []
