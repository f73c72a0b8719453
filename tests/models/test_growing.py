"""A warm start with new tokens at the end of the dictionary keeps the others."""

import logging
from argparse import Namespace

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
from omegaconf import OmegaConf

from diet_fairseq.checkpoints.configuration import adds_mask
from diet_fairseq.errors import UserError
from diet_fairseq.models import warm_start
from tests.support import tiny
from tests.support.tiny import Case

CASE = Case("rope")


def build(words, case=CASE, **options):
    args = tiny.arguments(case, **options)

    class Task:
        source_dictionary = target_dictionary = words

    task = Task if case is CASE else MaskedLMTask(MaskedLMConfig(), words)  # for ELECTRA
    torch.manual_seed(3)
    return ARCH_MODEL_REGISTRY[args.arch].build_model(args, task).eval()


def dictionary(*words):
    result = Dictionary()
    for word in words:
        result.add_symbol(word)
    return result


OLD = ["a", "b", "c", "__en__"]


def grown(words, source, **options):
    """A model of these words that starts from ``source``."""
    model = build(dictionary(*words), **options)
    with warm_start.checkpoint_loading(model):
        model.load_state_dict(source.state_dict())
    return model


@pytest.mark.parametrize("shared", [True, False])
def test_new_tokens_start_as_copies_of_a_named_one(shared, caplog):
    options = {"share_all_embeddings": shared, "share_decoder_input_output_embed": shared}
    source = build(dictionary(*OLD), **options)
    with caplog.at_level(logging.INFO):
        model = grown([*OLD, "__nl__", "d"], source, new_rows_from="__en__", **options)
    tables = [
        model.encoder.embed_tokens,
        model.decoder.embed_tokens,
        model.decoder.output_projection,
    ]
    before = [
        source.encoder.embed_tokens, source.decoder.embed_tokens, source.decoder.output_projection
    ]  # fmt: skip
    for new, old in zip(tables, before, strict=True):
        assert torch.equal(new.weight[:8], old.weight)
        assert torch.equal(new.weight[8:], old.weight[7:8].expand(2, -1))
    assert (
        "the dictionary grows from 8 to 10 tokens, from __nl__ on; new rows are copies of __en__"
        in (caplog.text)
    )


def test_new_tokens_start_with_mean_and_spread_of_the_others():
    source = build(dictionary(*(f"w{n}" for n in range(400))))
    words = [f"w{n}" for n in range(800)]
    model = grown(words, source)
    old = source.encoder.embed_tokens.weight
    new = model.encoder.embed_tokens.weight[len(old) :]
    for statistic in (torch.mean, torch.std):
        assert (statistic(new, 0) - statistic(old, 0)).abs().max() < 0.3 * old.std()
    assert not torch.equal(new[0], new[1])


@pytest.mark.parametrize(
    ("words", "token", "text"),
    [
        (["a"], None, "--finetune-from-model has 8 tokens (encoder.embed_tokens.weight), more than "
         "the 5 of this model's dictionary: use the checkpoint's dictionary, with new tokens at its"
         " end"),
        ([*OLD, "d"], "e", "--new-rows-from must be a token that --finetune-from-model has, but is "
         "e: give another token, or leave it out"),
        ([*OLD, "d"], "d", "--new-rows-from must be a token that --finetune-from-model has, but is "
         "d: give another token, or leave it out"),
    ],
)  # fmt: skip
def test_what_can_t_grow_is_refused(words, token, text):
    source = build(dictionary(*OLD))
    with pytest.raises(UserError) as error:
        grown(words, source, new_rows_from=token)
    assert str(error.value) == text


ENCODERS = ["roberta", "bert", "electra"]


@pytest.mark.parametrize("family", ENCODERS)
def test_an_encoder_grows_before_its_mask(family, caplog):
    """fairseq adds <mask> to the dictionary's tokens, so its number changes."""
    case = Case("diet_rel", family=family)
    source = build(dictionary(*OLD, "<mask>"), case)
    model = build(dictionary(*OLD, "d", "e", "<mask>"), case, new_rows_from="b")
    with caplog.at_level(logging.INFO), warm_start.checkpoint_loading(model):
        model.load_state_dict(source.state_dict())
    before, after = source.state_dict(), model.state_dict()
    grown_names = [name for name in after if len(after[name].shape) and len(after[name]) == 11]
    assert len(grown_names) >= 3  # the embeddings, and the head's weights and bias
    for name in grown_names:
        old, new = before[name], after[name]
        assert torch.equal(new, torch.cat([old[:8], old[[5, 5]], old[8:]])), name
    assert (
        "the dictionary grows from 9 to 11 tokens, from d on; new rows are copies of b"
        in caplog.text
    )
    tokens = torch.tensor([[0, 4, 5, 8, 6, 2]])
    moved = tokens.where(tokens != 8, 10)
    if family != "electra":  # whose head is the generator's
        ours, theirs = model(moved)[0], source(tokens)[0]
        torch.testing.assert_close(ours[..., [*range(8), 10]], theirs)


@pytest.mark.parametrize(
    ("words", "token", "text"),
    [
        (["a", "<mask>"], None, "--finetune-from-model has 9 tokens"),
        ([*OLD, "d", "<mask>"], "<mask>", "--new-rows-from must be a token that"),
        ([*OLD, "d", "<mask>"], "d", "--new-rows-from must be a token that"),
    ],
)
def test_an_encoder_that_can_t_grow_is_refused(words, token, text):
    case = Case("rope", family="roberta")
    source = build(dictionary(*OLD, "<mask>"), case)
    model = build(dictionary(*words), case, new_rows_from=token)
    with warm_start.checkpoint_loading(model), pytest.raises(UserError, match=text):
        model.load_state_dict(source.state_dict())


def test_a_mask_in_the_dictionary_s_file_stays():
    case = Case("rope", family="roberta")
    source = build(dictionary("<mask>", *OLD), case)
    model = build(dictionary("<mask>", *OLD, "d"), case)
    with warm_start.checkpoint_loading(model):
        model.load_state_dict(source.state_dict())
    name = "encoder.sentence_encoder.embed_tokens.weight"
    assert torch.equal(model.state_dict()[name][:9], source.state_dict()[name])


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ({"_name": "translation"}, False),
        ({"_name": "multilingual_denoising"}, True),
        ({"_name": "translation_from_pretrained_bart", "langs": "en"}, True),
        ({"_name": "translation_multi_simple_epoch", "langs": "en,de"}, False),
        ({"_name": "translation_multi_simple_epoch", "lang_tok_style": "mbart"}, True),
        ({"_name": "translation_multi_simple_epoch", "extra_data": {"mono_dae": ""}}, True),
    ],
)
def test_the_task_of_a_translation_model_tells_whether_it_has_a_mask(task, expected):
    for stored in (task, Namespace(**task), OmegaConf.create(task)):
        assert adds_mask({"cfg": {"task": stored}}) == expected


def test_a_language_s_tag_of_mbart_stands_before_the_mask():
    source = build(dictionary(*OLD, "<mask>"))
    model = build(dictionary(*OLD, "[nl]", "<mask>"), new_rows_from="__en__")
    with warm_start.checkpoint_loading(model):
        warm_start.record_description({"cfg": {"model": {}}}, ends_in_mask=True)
        model.load_state_dict(source.state_dict())
    old, new = source.encoder.embed_tokens.weight, model.encoder.embed_tokens.weight
    assert torch.equal(new, torch.cat([old[:8], old[7:8], old[8:]]))


def test_a_resumed_run_does_not_grow():
    source, model = build(dictionary(*OLD)), build(dictionary(*OLD, "d"))
    with (
        warm_start.checkpoint_loading(model, starts=False),
        pytest.raises(RuntimeError, match="size mismatch"),
    ):
        model.load_state_dict(source.state_dict())


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_model_of_several_directions_must_share_its_parameters(is_shared):
    """fairseq's multilingual_transformer has them once for each pair."""
    source, model = build(dictionary(*OLD)), build(dictionary(*OLD))
    name = "encoder.layers.0.fc1.bias"
    state = {}
    for pair in ("de-en", "en-de"):
        state |= {f"models.{pair}.{name}": value for name, value in source.state_dict().items()}
    with warm_start.checkpoint_loading(model):
        if is_shared:
            model.load_state_dict(state)
            assert torch.equal(model.state_dict()[name], source.state_dict()[name])
            return
        state[f"models.en-de.{name}"] = state[f"models.en-de.{name}"] + 1
        with pytest.raises(UserError) as error:
            model.load_state_dict(state)
    assert str(error.value) == (
        "--finetune-from-model has an encoder or a decoder for each language (encoder.layers.0.fc1."
        "bias of en-de differs): only models of --share-encoders --share-decoders can be used"
    )
