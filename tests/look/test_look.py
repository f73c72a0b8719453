"""`diet-fairseq look`: every scheme's scores, the page of a model, and what it refuses."""

import base64
import csv
import re
from argparse import Namespace
from pathlib import Path

import pytest
import torch

from diet_fairseq.cli import main
from diet_fairseq.errors import UserError
from diet_fairseq.look import measures, report, tables
from diet_fairseq.look.report import Analysis, Item, render_page
from diet_fairseq.look.scores import look
from diet_fairseq.look.windows import read_ids, read_windows, window_length
from diet_fairseq.translate.loading import LoadedModel, load_transformer
from diet_fairseq.translate.model_files import NO_SUBWORDS, ModelOptions, resolve_model
from diet_fairseq.translate.model_json import ModelDescription
from tests.support import hugging, tiny
from tests.support.tiny import Case

LENGTH = 12


class Task(tiny.Task):
    cfg = Namespace()


def loaded(model) -> LoadedModel:
    """A tiny model as if it had been read from a checkpoint."""
    description = ModelDescription("fairseq", "", "", Path(), Path("checkpoint.pt"))
    return LoadedModel(description, model, Namespace(model=Namespace()), Task)


def scores_of(model):
    analysed = loaded(model)
    return analysed, look(analysed, read_windows(analysed, LENGTH))


PLAIN = Case("diet_rel", family="roberta")
#: local layers share one scheme, and global layers another scheme
HYBRID = Case("t5", family="roberta").but(
    position_window=2, position_layers="lg", position_global_scheme="diet_abs"
)
WARM = PLAIN.but(position_temperature=0.5)


@pytest.mark.parametrize("case", [PLAIN, Case("sinusoidal")], ids=str)
def test_position_scores_are_divided_by_the_temperature(case):
    _, plain = scores_of(tiny.model_of(case))
    _, warm = scores_of(tiny.model_of(case.but(position_temperature=0.5)))
    torch.testing.assert_close(warm.positions[0].matrix, 2 * plain.positions[0].matrix)


def test_layers_of_two_kinds_have_a_score_each():
    _, scores = scores_of(tiny.fresh(HYBRID.but(encoder_layers=4)))
    assert [(score.layer, score.rank) for score in scores.positions] == [(1, None), (2, 8)]
    _, scores = scores_of(tiny.fresh(HYBRID.but(position_sharing="none")))
    assert [(score.layer, score.rank) for score in scores.positions] == [(1, None), (2, 8)]
    _, scores = scores_of(tiny.fresh(HYBRID.but(position_global_scheme=None)))
    assert [(score.layer, score.rank) for score in scores.positions] == [(0, None)]


@tiny.each([
    *tiny.first_of_each_scheme(tiny.TRANSLATION), *tiny.first_of_each_scheme(tiny.ENCODERS), WARM,
])  # fmt: skip
def test_logits_are_those_that_the_model_attends_by(case):
    """softmax of the logits that `look` computes gives the weights of the model's attention."""
    model, scores = scores_of(tiny.model_of(case))
    stack = model.stacks["encoder"]
    attention, weights = stack.layers[0].self_attn, []
    forward = type(attention).forward

    def with_weights(module, *args, **options):
        out, head_weights = forward(module, *args[:4], need_weights=True)
        weights.append(head_weights)  # (B, H, Tq, Tk)
        return out, head_weights

    attention.forward = with_weights.__get__(attention)
    try:
        stack(read_windows(model, LENGTH), src_lengths=None)
    finally:
        del attention.forward
    first = scores.logits[0]
    assert (first.place, first.layer) == ("encoder", 1)
    torch.testing.assert_close(
        first.columns["entropy"],
        measures.entropy(weights[0].transpose(0, 1)).mean(1),
        **tiny.TOLERANCE,
    )


@pytest.mark.parametrize("scheme", sorted({"diet_rel", "t5"}))
def test_relative_scores_are_explained_by_the_offset(scheme):
    rows = tables.head_rows(scores_of(tiny.model_of(tiny.named(f"{scheme}-roberta")))[1])
    assert len(rows) == tiny.HEADS * (1 if scheme == "t5" else tiny.LAYERS)
    assert {round(row["offset share"], 3) for row in rows} == {1.0}


@pytest.mark.parametrize("sharing", ["none", "layer"])
def test_fox_has_a_curve_of_its_mean_decay_for_every_layer_and_head(sharing):
    case = Case("fox", family="roberta").but(position_sharing=sharing)
    _, scores = scores_of(tiny.model_of(case))
    assert [score.layer for score in scores.positions] == [1, 2]
    for score in scores.positions:
        assert score.matrix.diagonal(0, -2, -1).abs().max() == 0
        means = torch.stack([score.matrix.diagonal(d, -2, -1).mean(-1) for d in range(LENGTH)])
        assert bool((means.diff(dim=0) < 0).all())
        assert tiny.difference(score.matrix[0], score.matrix[1]) > 0.1
    curve = [row["score"] for row in tables.offset_rows(scores)][: 2 * LENGTH - 1]
    assert curve == sorted(curve[:LENGTH]) + sorted(curve[LENGTH:], reverse=True)


def test_the_first_token_stands_out_where_tupe_unties_it():
    def share(untie):
        case = Case("tupe_a", family="bert").but(position_untie_cls=untie)
        matrix = scores_of(tiny.model_of(case))[1].positions[0].matrix
        return matrix[:, 1:, 0].std(1).max()

    assert share("paper") == 0
    assert share("no") > 0.1


def test_no_rank_passes_the_bound_of_theorem_1():
    for name in ("diet_abs-roberta", "learned-roberta", "bert_ad-roberta", "tupe_a-roberta"):
        _, scores = scores_of(tiny.fresh(tiny.named(name), encoder_embed_dim=4))
        assert scores.logits
        for statistics in scores.logits:
            assert statistics.bound is not None
            assert statistics.bound < LENGTH
            assert statistics.columns["rank"].max() <= statistics.bound
        for score in scores.positions:
            assert score.rank is not None
            assert measures.rank(score.singular).max() <= score.rank


@pytest.mark.parametrize("scheme", ["shaw", "transformer_xl", "deberta", "cope"])
def test_scores_that_read_the_words_have_no_bound_of_rank(scheme):
    _, scores = scores_of(tiny.fresh(tiny.named(f"{scheme}-roberta"), encoder_embed_dim=4))
    assert [statistics.bound for statistics in scores.logits] == [None] * tiny.LAYERS


def test_stock_models_show_their_input_positions():
    for family in ("roberta", "transformer"):
        model, scores = scores_of(tiny.stock(family))
        places = {score.place for score in scores.positions}
        assert places == {f"{name}'s input" for name in model.stacks}
        assert len(scores.logits) == tiny.LAYERS * len(model.stacks)
        for score in scores.positions:
            assert score.matrix.shape == (tiny.HEADS, LENGTH, LENGTH)
        assert {len(rows) for rows in scores.embeddings.values()} == {LENGTH}


def test_input_positions_are_projected_as_in_figure_8():
    model = tiny.stock("roberta")
    _, scores = scores_of(model)
    attention = model.encoder.sentence_encoder.layers[0].self_attn
    rows, size = scores.embeddings["encoder"], tiny.DIM // tiny.HEADS
    for head in range(tiny.HEADS):
        part = slice(head * size, (head + 1) * size)
        expected = (rows @ attention.q_proj.weight[part].T) @ (
            rows @ attention.k_proj.weight[part].T
        ).T
        torch.testing.assert_close(
            scores.positions[0].matrix[head], (expected / size**0.5).detach()
        )


def test_two_segments_make_blocks():
    model = tiny.model_of(tiny.named("diet_rel-bert"))
    _, scores = scores_of(model)
    blocks = scores.segments[0].matrix - scores.positions[0].matrix
    weight = model.encoder.sentence_encoder.layers[0].self_attn.segments
    expected = weight.amplify(weight.weight).detach()  # (H, 2, 2)
    half = LENGTH // 2
    torch.testing.assert_close(
        blocks, expected.repeat_interleave(half, 1).repeat_interleave(half, 2)
    )


def test_positions_in_cross_attention_are_seen():
    case = Case("diet_abs").but(position_cross_attention=True)
    _, scores = scores_of(tiny.model_of(case))
    [cross] = [score for score in scores.positions if score.place == "cross-attention"]
    assert cross.layer == 0
    assert not cross.has_offsets


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
    """The page of a checkpoint of 7 updates."""
    state = torch.load(encoder, weights_only=False)  # this test wrote it
    state["optimizer_history"][-1]["num_updates"] = 7
    torch.save(state, encoder)
    out = tmp_path_factory.mktemp("page") / "out"
    main(["look", str(encoder), "--out", str(out), "--text", str(text), "--length", "16"])
    return out


@pytest.mark.slow
def test_the_page_needs_nothing_beside_it(page):
    html = (page / "index.html").read_text()
    pictures = re.findall(r'<img src="data:image/png;base64,([^"]+)"', html)
    assert len(pictures) == 4
    assert sorted(map(base64.b64decode, pictures)) == sorted(
        path.read_bytes() for path in page.glob("*.png")
    )
    assert set(re.findall(r'(?:src|href)="([^":]+:)', html)) == {"data:"}
    assert "http" not in re.sub(r"data:image/png;base64,[^\"]+", "", html)
    assert "<dd>7</dd>" in html
    assert "<dd>bert_diet_rel</dd>" in html
    assert "8 windows of 16 tokens: text.txt" in html
    sections = ["Position scores", "Position scores by offset", "Heads",
                "Position and segment scores", "Ranks"]  # fmt: skip
    assert re.findall("<h2>(.*?)</h2>", html) == sections  # no positions at the input


@pytest.mark.slow
def test_tables_of_numbers_stand_beside_the_page(page):
    with open(page / "heads.csv") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == tiny.LAYERS * tiny.HEADS
    assert {row["offset share"] for row in rows} == {"1"}
    for name in ("text", "offsets", "scores"):
        assert (page / f"{name}.csv").read_text().count("\n") > 2


@pytest.mark.slow
def test_the_page_has_a_section_for_all_items(tmp_path):
    model, scores = scores_of(tiny.stock("roberta"))
    analysis = Analysis(model, "random words", scores)
    items = report.draw_sections(analysis, 1.0, tmp_path, "")
    template = Path(report.__file__).with_name("page.html").read_text()
    assert re.findall(r"section\('(\w+)'", template) == list(items)
    assert items["cosines"][0].picture


def test_names_in_a_checkpoint_are_text_and_no_markup():
    item = Item("<i>", rows=[{"a": "<script>", "b": 0.5, "c": None}])
    html = render_page([("<b>", {"x": "</dl><u>"})], {"heads": [[item]]})
    assert not re.search("<[biu]>", html)
    assert "&lt;script&gt;" in html
    assert "<td>0.50</td>" in html


def test_special_tokens_in_a_text_are_unknown_words(encoder, tmp_path):
    model = load_transformer(
        resolve_model(encoder, ModelOptions(subwords=NO_SUBWORDS), translates=False)
    )
    words = model.task.source_dictionary
    known = words.symbols[words.nspecial :][:4]
    texts = []
    for word in ("<pad>", "</s>", "nosuch"):
        texts.append(tmp_path / word.strip("</>"))
        texts[-1].write_text(" ".join(3 * [*known, word, *known]))
    pad, end, unknown = (read_ids(model, text, 99) for text in texts)
    assert torch.equal(pad, unknown)
    assert torch.equal(end, unknown)
    assert words.unk() in unknown


def refused(*words, match):
    with pytest.raises(UserError, match=match):
        main(["look", *map(str, words)])


def test_look_refuses_unusable_input_in_one_line(encoder, text, tmp_path):
    out = ("--out", tmp_path / "out")
    refused(tmp_path / "no.pt", *out, match=r"^the model .*no\.pt does not exist: check the path$")
    short = tmp_path / "short.txt"
    short.write_text("the dog\n")
    refused(encoder, *out, "--text", short, match="fewer than one window of 126: give a")
    refused(encoder, *out, "--text", tmp_path, match="^.* can't be read: Is a directory")
    short.write_bytes(b"\xff\xfe")
    refused(encoder, *out, "--text", short, match="^.*short.txt, line 1: .* is not UTF-8")
    subwords = ("--text", text, "--subwords", tmp_path)
    refused(encoder, *out, *subwords, match="^.* is a folder: name another file with --subwords$")
    refused(encoder, *out, "--data", tmp_path, match="^the dictionary .* does not exist: give")
    assert not (tmp_path / "out").exists()


def test_a_window_is_no_longer_than_the_shortest_table_of_positions():
    names = ("diet_rel-roberta", "diet_abs-roberta")
    models = [loaded(tiny.model_of(tiny.named(name))) for name in names]
    assert window_length(models[:1], 40) == 40
    assert window_length(models[:1], None) == 128
    assert window_length(models, 40) == tiny.LIMIT


def test_a_folder_of_other_files_is_not_replaced(encoder, tmp_path):
    (tmp_path / "mine").write_text("mine")
    refused(
        encoder, "--out", tmp_path, match=f"^{tmp_path} already exists: remove it, or give another"
    )
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.mark.slow
def test_a_model_without_positions_has_ranks_alone(tmp_path):
    checkpoint = hugging.checkpoint(tmp_path, "roberta_none", "masked_lm", tokens_per_sample=16)
    main(["look", str(checkpoint), "--out", str(tmp_path / "out"), "--length", "8"])
    assert re.findall("<h2>(.*?)</h2>", (tmp_path / "out" / "index.html").read_text()) == ["Ranks"]


@pytest.mark.slow
def test_layers_of_cross_attention_share_a_picture(tmp_path):
    case = Case("diet_abs").but(position_cross_attention=True, position_sharing="none")
    model, scores = scores_of(tiny.fresh(case))
    items = report.draw_sections(Analysis(model, "random words", scores), 1.0, tmp_path, "")
    places = [item.caption for item in items["positions"]]
    assert sorted(places) == ["cross-attention", "decoder", "encoder"]
