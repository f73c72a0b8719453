"""`export hf --original` of fairseq's own RoBERTa and BART, which were not imported."""

from argparse import Namespace

import pytest
import torch

pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")
import transformers
from fairseq import checkpoint_utils

from tests.hf.conftest import export
from tests.hf.test_bad_input import refused
from tests.support import published
from tests.support.texts import sentences

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("layout", [published.roberta, published.bart])
@torch.no_grad()
def test_a_stock_model_is_exported_as_its_own_class(layout, tmp_path):
    model = layout(tmp_path / "published")
    text = "--data", model.folder, "--subwords", model.subwords
    export(model.checkpoint, tmp_path / "hf", "--original", *text)
    names = {path.name for path in (tmp_path / "hf").iterdir()}
    assert {"README.md", "config.json", "model.safetensors", "tokenizer.json"} <= names
    [stock], _, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(model.checkpoint)], {"data": str(model.folder)}
    )
    stock, dictionary = stock.eval(), task.source_dictionary
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    auto = transformers.AutoModelForMaskedLM
    if layout is published.bart:
        auto = transformers.AutoModelForSeq2SeqLM
    exported = auto.from_pretrained(tmp_path / "hf")
    assert type(exported).__module__.startswith("transformers.models.")
    for line in [*sentences(3), "  ban\t😀 नमस्ते"]:
        tokens = dictionary.encode_line(f"<s> {model.encode(line)}", add_if_not_exist=False).long()[
            None
        ]
        inputs = tokenizer(line, return_tensors="pt")
        assert inputs["input_ids"].tolist() == tokens.tolist()
        if layout is published.bart:
            previous = tokens.roll(1, 1)
            expected = stock(tokens, torch.tensor([tokens.size(1)]), previous)[0]
            actual = exported(**inputs, decoder_input_ids=previous).logits
        else:
            expected, actual = stock(tokens)[0], exported(**inputs).logits
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-4)


def test_a_stock_model_without_its_subwords_is_refused(tmp_path):
    model = published.roberta(tmp_path / "published")
    words = "--data", model.folder, "--subwords", "none"
    says = refused(export, model.checkpoint, tmp_path / "hf", "--original", *words)
    assert "original is not there: " in says


@pytest.mark.parametrize(
    ("options", "label"),
    [
        ({"arch": "roberta_rope"}, "rope"),
        ({"arch": "roberta_learned", "position_window": 4}, "learned (window 4)"),
    ],
)
def test_a_model_with_other_positions_is_refused(options, label, tmp_path):
    model = published.roberta(tmp_path / "published")
    args = Namespace(task="masked_lm", max_positions=32, **published.SIZES, **options)
    model.save(published.random_encoder(model, args), args)
    text = "--data", model.folder, "--subwords", model.subwords
    says = refused(export, model.checkpoint, tmp_path / "hf", "--original", *text)
    expected = f"has the position scheme {label} in its encoder, but RobertaForMaskedLM has learned"
    assert expected in says
