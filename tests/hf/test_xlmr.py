"""A checkpoint in XLM-R's layout is an encoder like any other."""

import pytest
import torch
from fairseq import checkpoint_utils
from transformers import AutoModelForMaskedLM, AutoTokenizer

from diet_fairseq.cli import main
from tests.support import published
from tests.support.texts import sentences, write


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return published.xlmr(tmp_path_factory.mktemp("xlmr"))


def run(*words):
    assert main([str(word) for word in words]) == 0


def test_its_export_gives_the_logits_of_fairseq_s_own_task(model, tmp_path):
    out = tmp_path / "hf"
    run("export", "hf", model.checkpoint, out, "--data", model.folder, "--subwords", model.subwords)
    [ours], _, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(model.checkpoint)], {"data": str(model.folder)}
    )
    text = sentences(1)[0]
    pieces = ["<s>", *model.pieces.encode(text, out_type=str), "</s>"]
    tokens = torch.tensor([[task.dictionary.index(piece) for piece in pieces]])
    inputs = AutoTokenizer.from_pretrained(out)(text, return_tensors="pt")
    assert torch.equal(inputs["input_ids"], tokens)
    with torch.no_grad():
        theirs = AutoModelForMaskedLM.from_pretrained(out)(**inputs).logits
        torch.testing.assert_close(theirs, ours.eval()(tokens)[0], rtol=1e-4, atol=1e-4)


def test_look_reads_it(model, tmp_path):
    text = write(tmp_path / "text", sentences(20))
    run("look", model.checkpoint, "--data", model.folder, "--subwords", model.subwords, "--text",
        text, "--out", tmp_path / "look")  # fmt: skip
    assert (tmp_path / "look" / "index.html").exists()
