"""`benchmarks.long_documents`: queries, chunks and intervals."""

import sys

import pytest
import torch

pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")
from benchmarks import long_documents
from diet_fairseq.hf import DietEncoderModel, swap_positions
from tests.support import originals


def test_passages_come_from_the_second_half_and_are_cut_out():
    documents = [list(range(n, n + 900)) for n in (0, 1000)]
    passages, rest, owners = long_documents.cut_passages(documents, 500)
    assert owners == [0, 0, 0, 1, 1, 1]
    for number, text in enumerate(rest):
        own = passages[3 * number : 3 * number + 3]
        assert all(passage[0] >= documents[number][343] for passage in own)
        assert sorted(sum(own, text)) == documents[number][:686]
        assert len(text) == 500


def test_each_query_counts_for_its_document():
    documents = torch.eye(2)
    queries = torch.tensor([[1.0, 0.1], [0.9, 0.2], [0.1, 1.0], [1.0, 0.1]])
    hits = long_documents.find_hits(queries, documents, [0, 0, 1, 1])
    assert hits.tolist() == [1.0, 0.5]
    low, high = long_documents.confidence_interval(torch.tensor([0.0, 1.0] * 50))
    assert 0.35 < low < 0.45 < 0.55 < high < 0.65


@pytest.mark.slow
@pytest.mark.parametrize("test", ["late", "halves"])
def test_the_table_has_a_row_for_each_method(tmp_path, monkeypatch, capsys, test):
    folder = originals.bert(tmp_path / "original", head="Model")
    original = long_documents.AutoModel.from_pretrained(folder)
    swapped = swap_positions(original, "diet_rel", max_positions=600)
    assert type(swapped) is DietEncoderModel
    swapped.save_pretrained(tmp_path / "swapped")
    sentences = [english for english, _ in originals.sentence_pairs(1500)]
    texts = ["\n".join(sentences[n::3]) for n in range(3)]
    (tmp_path / "text.txt").write_text("\n\n".join(texts))
    words = [str(folder), str(tmp_path / "swapped"), "--text", str(tmp_path / "text.txt")]
    words += ["--tokens", "300", "--chunk", "20", "--test", test]
    monkeypatch.setattr(sys, "argv", ["long_documents", *words])
    long_documents.main()
    out = capsys.readouterr().out
    assert out.startswith(f"3 documents, {9 if test == 'late' else 3} queries")
    rows = [line.split(" | ")[0] for line in out.splitlines()[4:]]
    assert rows == ["| original, first 20 tokens", "| original, mean of chunks of 20",
                    f"| {tmp_path / 'swapped'}, 300 tokens"]  # fmt: skip
