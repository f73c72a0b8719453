"""Files of subword models are read, whichever program wrote them."""

import pytest
import tokenizers

from diet_fairseq.errors import UserError
from diet_fairseq.text.subwords import (
    GPT2_NUMBERS,
    Gpt2,
    SentencePiece,
    SubwordNmt,
    detect_subword_kind,
)
from tests.support.texts import learn_subwords, scrambled, sentences, write

#: codes that fastBPE reads, and what its version 0.1.0 makes of a line
MERGES = ["s t</w>", "l m</w>", "d o", "b e", "be r</w>", "d e", "k e", "d u", "du n</w>"]
LINE = "dost dun delm über naïve 日本 — a@@ b kest"
FASTBPE = "do@@ st dun de@@ lm ü@@ ber n@@ a@@ ï@@ v@@ e 日@@ 本 — a@@ @@@ @ b ke@@ st"


def test_pieces_of_another_sentencepiece_model_are_joined(tmp_path):
    model = learn_subwords(tmp_path / "model", "sentencepiece", sentences(50), 60)
    assert SentencePiece(model).decode(["▁नम", "स्ते", "▁b", "."]).strip() == "नमस्ते b."


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_codes_of_fastbpe_give_its_subwords(tmp_path, end):
    codes = tmp_path / "codes"
    codes.write_bytes("".join(f"{merge} {9 - n}{end}" for n, merge in enumerate(MERGES)).encode())
    assert detect_subword_kind(codes) == "subword_nmt"
    assert " ".join(SubwordNmt(codes).encode(LINE)) == FASTBPE
    codes.write_text("\n".join(["#version: 0.2", *MERGES]) + "\n")
    assert " ".join(SubwordNmt(codes).encode(LINE)) == FASTBPE


def test_a_line_that_is_no_merge_is_refused(tmp_path):
    codes = tmp_path / "codes"
    codes.write_text("s t</w> 9\nl m</w> 8 7\n")
    with pytest.raises(UserError, match=r"does not hold codes of subword-nmt or fastBPE: give"):
        SubwordNmt(codes)


@pytest.mark.parametrize("kind", ["0.2", "0.1", "fastbpe", "gpt2"])
def test_restricted_merges_make_the_same_tokens_of_their_text_and_no_others(kind, tmp_path):
    lines = [*sentences(100), *scrambled(100)]
    path = tmp_path / "codes"
    if kind == "gpt2":
        bpe = tokenizers.ByteLevelBPETokenizer()
        bpe.train_from_iterator(lines, 380, show_progress=False)
        bpe.save_model(str(tmp_path))
        (tmp_path / "merges.txt").rename(path)
        (tmp_path / "vocab.json").rename(tmp_path / GPT2_NUMBERS)
    else:
        learn_subwords(path, "subword_nmt", lines, 120)
        merges = path.read_text().splitlines()[1:]
        if kind == "0.1":  # its words end in a symbol of their own
            merges = [merge.replace("</w>", "") for merge in merges] + ["a </w>", "n</w> </w>"]
        if kind == "fastbpe":
            merges = [f"{merge} {9000 - n}" for n, merge in enumerate(merges)]
        header = ["#version: 0.2"] if kind == "0.2" else []
        write(path, [*header, *merges])
    model = (Gpt2 if kind == "gpt2" else SubwordNmt)(path)
    text = [*scrambled(2, seed=2), "bun abba"]
    (tmp_path / "new").mkdir()
    tokens = {token for line in text for token in model.encode(line)}
    produced = model.restrict(tokens, tmp_path / "new" / "codes")
    restricted = type(model)(tmp_path / "new" / "codes")
    for line in text:
        assert restricted.encode(line) == model.encode(line)
    others = [*sentences(100, seed=3), *scrambled(100, seed=3)]
    before, after = (
        {token for line in others for token in subwords.encode(line)}
        for subwords in (model, restricted)
    )
    # single characters stay in every vocabulary
    assert {token for token in after if len(token.removesuffix("@@")) > 1} <= produced
    assert len(after) < len(before)
    assert any(model.encode(line) != restricted.encode(line) for line in others)
