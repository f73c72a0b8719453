"""A warm start with new tokens at the end of the dictionary keeps the others."""

import logging

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_MODEL_REGISTRY

from diet_fairseq.errors import UserError
from diet_fairseq.models import warm_start
from tests.support import tiny
from tests.support.tiny import Case

CASE = Case("rope")


def build(words, **options):
    args = tiny.arguments(CASE, **options)

    class Task:
        source_dictionary = target_dictionary = words

    torch.manual_seed(3)
    return ARCH_MODEL_REGISTRY[args.arch].build_model(args, Task).eval()


def dictionary(*words):
    result = Dictionary()
    for word in words:
        result.add_symbol(word)
    return result


OLD = ["a", "b", "c", "__en__"]


def grown(words, source, **options):
    """A model of these words that starts from ``source``."""
    model = build(dictionary(*words), **options)
    with warm_start.loading(model):
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
         "e: give another one, or leave it out"),
        ([*OLD, "d"], "d", "--new-rows-from must be a token that --finetune-from-model has, but is "
         "d: give another one, or leave it out"),
    ],
)  # fmt: skip
def test_what_can_t_grow_is_refused(words, token, text):
    source = build(dictionary(*OLD))
    with pytest.raises(UserError) as error:
        grown(words, source, new_rows_from=token)
    assert str(error.value) == text


def test_a_resumed_run_does_not_grow():
    source, model = build(dictionary(*OLD)), build(dictionary(*OLD, "d"))
    with (
        warm_start.loading(model, starts=False),
        pytest.raises(RuntimeError, match="size mismatch"),
    ):
        model.load_state_dict(source.state_dict())
