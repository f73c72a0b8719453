"""Training in transformers: dropout, labels, limits."""

import re
from dataclasses import replace

import pytest
import torch

from diet_fairseq.attention.backends import BACKENDS
from diet_fairseq.errors import UserError
from diet_fairseq.hf import DietTokenizer
from diet_fairseq.hf.convert.configuration import fairseq_args
from diet_fairseq.hf.convert.to_transformers import convert
from tests.hf.test_equality import logits
from tests.support import tiny
from tests.support.tiny import Case


def dropouts():
    return {"dropout": 0.3, "attention_dropout": 0.2, "activation_dropout": 0.1}


@pytest.mark.parametrize("case", ["diet_rel", "diet_rel-bert"])
def test_dropouts_are_exported_act_and_come_back(case, monkeypatch):
    model = convert(tiny.fresh(tiny.named(case), **dropouts())).model
    assert {name: getattr(model.config, name) for name in dropouts()} == dropouts()
    back = vars(fairseq_args(model.config))
    assert {name: back[name] for name in dropouts()} == dropouts()
    active = {
        (re.sub(r".*layers\.\d+\.", "", name), part.p)
        for name, part in model.named_modules()
        if isinstance(part, torch.nn.Dropout) and "layers" in name and "encoder_attn" not in name
    }
    assert active == {
        ("dropout_module", 0.3),
        ("self_attn.dropout_module", 0.2),
        ("activation_dropout_module", 0.1),
    }
    probabilities, reference = [], BACKENDS["reference"]

    def watched(call):
        probabilities.append(call.dropout)
        return reference.compute(call)

    monkeypatch.setitem(BACKENDS, "reference", replace(reference, compute=watched))
    logits(model.train())
    assert set(probabilities) == {0.2}


def test_the_old_name_of_a_dropout_is_exported_too():
    model = convert(tiny.fresh(tiny.named("diet_rel"), relu_dropout=0.1)).model
    assert model.config.activation_dropout == 0.1


def test_labels_that_are_ignored_are_read_as_padding():
    model = convert(tiny.model_of(tiny.named("diet_rel"))).model
    labels = torch.tensor([[5, 6, 7, 2], [5, 2, -100, -100]])
    inputs = model.prepare_decoder_input_ids_from_labels(labels)
    assert inputs.tolist() == [[2, 5, 6, 7], [2, 5, 2, tiny.PAD]]


def test_too_long_an_input_to_learned_positions_is_refused():
    model = convert(
        tiny.fresh(Case("diet_rel", family="roberta").but(position_input="learned"))
    ).model
    with pytest.raises(UserError, match="longer than the"):
        model(torch.full((1, tiny.LIMIT + 1), 5))


def test_words_are_split_by_source_rules_and_joined_by_target_rules(tmp_path):
    (tmp_path / "codes").write_text("#version: 0.2\nd o\n")
    (tmp_path / "dict.txt").write_text("L 1\nL@@ 1\n")
    tokenizer = DietTokenizer(
        str(tmp_path / "dict.txt"),
        codes_file=str(tmp_path / "codes"),
        moses=True,
        source_lang="fr",
        target_lang="en",
    )
    assert tokenizer("L'homme")["input_ids"][0] == 5  # L&apos; homme
    assert tokenizer(text_target="L'homme")["input_ids"][0] == 4  # L &apos;homme
    assert tokenizer.target_text.language == "en"
