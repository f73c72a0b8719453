"""Checkpoints in the layouts of RoBERTa and XLM-R are encoders like any other."""

import pytest
import torch
from fairseq import checkpoint_utils
from transformers import AutoModelForMaskedLM, AutoTokenizer

from diet_fairseq.cli import main
from diet_fairseq.errors import UserError
from diet_fairseq.text.whitespace import WHITE_SPACE
from diet_fairseq.translate.model_files import ModelOptions, resolve_model
from tests.support import published
from tests.support.texts import scrambled, sentences, write

pytestmark = pytest.mark.slow

ODD = [
    "", " ", "  ban  dor ", "ban\tdor", "ban\ndor\r\n", "ba\u200bn \u200b", "\ufeffban\u2060",
    "ban\xa0dor\u3000bir\u2028dan", "e\u0301 é ﬁ Ⅻ ½", "\u1100\u1161\u11a8 각",
    "👩\u200d👩\u200d👧 ban😀", "x\x07y\x00z \x1b[0m\x7f\x85", "don't we'll I'M",
    "ban...!? 3.14 10,000", "日本語 русский العربية", "\u202eban\u202c \xad", "▁ban ▁▁", "@@ ban@@",
]  # fmt: skip


@pytest.fixture(scope="module", params=[published.roberta, published.xlmr], ids=["roberta", "xlmr"])
def model(request, tmp_path_factory):
    return request.param(tmp_path_factory.mktemp("published"))


@pytest.fixture(scope="module")
def exported(model, tmp_path_factory):
    out = tmp_path_factory.mktemp("exported") / "hf"
    run("export", "hf", model.checkpoint, out, "--data", model.folder, "--subwords", model.subwords)
    return out


@pytest.fixture(scope="module")
def original(model):
    """fairseq's model with its own task's dictionary."""
    [encoder], _, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(model.checkpoint)], {"data": str(model.folder)}
    )
    return encoder.eval(), task.source_dictionary


def run(*words):
    assert main([str(word) for word in words]) == 0


def ids_of(model, dictionary, text):
    line = f"<s> {model.encode(text)} </s>"
    return dictionary.encode_line(line, append_eos=False, add_if_not_exist=False).tolist()


def test_the_export_gives_the_logits_of_fairseq_s_own_task(model, exported, original):
    encoder, dictionary = original
    text = sentences(1)[0]
    inputs = AutoTokenizer.from_pretrained(exported)(text, return_tensors="pt")
    assert inputs["input_ids"].tolist() == [ids_of(model, dictionary, text)]
    with torch.no_grad():
        theirs = AutoModelForMaskedLM.from_pretrained(exported)(**inputs).logits
        expected = encoder(inputs["input_ids"])[0]
    torch.testing.assert_close(theirs, expected, rtol=1e-4, atol=1e-4)


def test_the_tokenizer_is_fairseq_s_encoder_on_odd_text(model, exported, original):
    """With SentencePiece, control characters are spaces, as in all text here."""
    tokenizer = AutoTokenizer.from_pretrained(exported)
    assert tokenizer.is_fast
    for text in [*ODD, *sentences(20, seed=9), *scrambled(20, seed=9)]:
        plain = text
        if isinstance(model, published.ByteModel):
            assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text
        else:
            plain = WHITE_SPACE.sub(" ", text)
        assert tokenizer(text)["input_ids"] == ids_of(model, original[1], plain), ascii(text)
    masked = tokenizer("ban <mask>")["input_ids"]
    assert masked[-2] == tokenizer.mask_token_id == original[1].index("<mask>")


def test_look_reads_it(model, tmp_path):
    text = write(tmp_path / "text", sentences(20))
    run("look", model.checkpoint, "--data", model.folder, "--subwords", model.subwords, "--text",
        text, "--out", tmp_path / "look")  # fmt: skip
    assert (tmp_path / "look" / "index.html").exists()


@pytest.fixture
def roberta(tmp_path):
    return published.roberta(tmp_path)


def test_a_dictionary_without_all_pieces_of_gpt2_has_no_tokenizer(roberta, tmp_path):
    path = roberta.folder / "dict.txt"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(["lost 9\n", *lines[1:]]))
    words = ["export", "hf", roberta.checkpoint, tmp_path / "hf", "--data", roberta.folder]
    with pytest.raises(UserError) as error:
        run(*words, "--subwords", roberta.subwords)
    assert str(error.value) == (
        "the dictionary lacks 1 of 380 pieces of GPT-2's BPE (such as 379), which RoBERTa's "
        "tokenizer needs: add them to the dictionary, or export without a tokenizer, with "
        "--subwords none"
    )
    assert not (tmp_path / "hf").exists()
    run(*words, "--subwords", "none")


def test_files_that_are_not_gpt2_s_are_refused(roberta):
    (roberta.folder / "encoder.json").write_text("[]")
    options = ModelOptions(data=roberta.folder, subwords=roberta.subwords)
    description = resolve_model(roberta.checkpoint, options, translates=False)
    with pytest.raises(UserError) as error:
        _ = description.tokenizers
    assert str(error.value) == (
        f"{roberta.subwords} and encoder.json beside it are not the files of fairseq's --bpe gpt2 "
        "(256 of 256 bytes have no number): give others"
    )


def test_the_subwords_of_gpt2_are_restored(roberta):
    options = ModelOptions(data=roberta.folder, subwords=roberta.subwords)
    tokenizer = resolve_model(roberta.checkpoint, options, translates=False).tokenizers[0]
    tokens = tokenizer.encode("ban  bür\u2028😀")
    assert " ".join(tokens) == roberta.encode("ban  bür\u2028😀")
    assert tokenizer.decode(tokens) == "ban  bür 😀"
    starts = [n for n in range(1, len(tokens)) if tokenizer.subwords.is_word_start(tokens, n)]
    assert len(starts) == 2


def test_an_imported_export_keeps_the_files_of_gpt2(roberta, tmp_path):
    words = "--data", roberta.folder, "--subwords", roberta.subwords
    run("export", "hf", roberta.checkpoint, tmp_path / "hf", *words)
    run("import", "hf", tmp_path / "hf", tmp_path / "back")
    for name in ("vocab.bpe", "encoder.json"):
        assert (tmp_path / "back" / name).read_bytes() == (roberta.folder / name).read_bytes()
    back = tmp_path / "back"
    options = ModelOptions(data=back, subwords=back / "vocab.bpe")
    tokenizer = resolve_model(back / "model.pt", options, translates=False).tokenizers[0]
    assert " ".join(tokenizer.encode("ban 😀")) == roberta.encode("ban 😀")
