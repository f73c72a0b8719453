"""Files of subword models are read, whichever program wrote them."""

import pytest

from diet_fairseq.errors import UserError
from diet_fairseq.text.subwords import SentencePiece, SubwordNmt, detect_subword_kind
from tests.support.texts import learn_subwords, sentences

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
