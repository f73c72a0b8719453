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


def test_classes_are_predicted_in_other_groups():
    """Features that name the group, and only them, are of no use for other groups."""
    generator = torch.Generator().manual_seed(1)
    classes = [name for name in "ab" for _ in range(60)]
    groups = [f"{name}{n % 6}" for name in "ab" for n in range(60)]
    of_class = torch.tensor([[1.0, 0.0]] * 60 + [[0.0, 1.0]] * 60)
    noise = 0.1 * torch.randn(120, 2, generator=generator)
    assert long_documents.classify(of_class + noise, classes, groups).tolist() == [1.0] * 12
    of_group = torch.eye(12)[[sorted(set(groups)).index(group) for group in groups]]
    assert long_documents.classify(of_group, classes, groups).mean() < 0.6


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--test", "classes"], "--test classes and --labels need each other"),
     (["--labels", "labels.tsv"], "--test classes and --labels need each other"),
     (["--test", "classes", "--labels", "labels.tsv"],
      "--labels labels.tsv must have a line for each of the 2 documents, but has 1")],
)  # fmt: skip
def test_wrong_labels_are_refused(tmp_path, monkeypatch, capsys, words, message):
    originals.bert(tmp_path / "original", head="Model")
    (tmp_path / "text.txt").write_text("a dog\n\na fox\n")
    (tmp_path / "labels.tsv").write_text("a\tb\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["long_documents", "original", "--text", "text.txt", *words])
    with pytest.raises(SystemExit):
        long_documents.main()
    assert message in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("test", ["late", "halves", "classes"])
def test_the_table_has_a_row_for_each_method(tmp_path, monkeypatch, capsys, test):
    folder = originals.bert(tmp_path / "original", head="Model")
    original = long_documents.AutoModel.from_pretrained(folder)
    swapped = swap_positions(original, "diet_rel", max_positions=600)
    assert type(swapped) is DietEncoderModel
    swapped.save_pretrained(tmp_path / "swapped")
    sentences = [english for english, _ in originals.sentence_pairs(1500)]
    count = 9 if test == "classes" else 3
    texts = ["\n".join(sentences[n::3]) for n in range(3)] * (count // 3)
    (tmp_path / "text.txt").write_text("\n\n".join(texts))
    words = [str(folder), str(tmp_path / "swapped"), "--text", str(tmp_path / "text.txt")]
    words += ["--tokens", "300", "--chunk", "20", "--test", test]
    measure = "R@1"
    if test == "classes":
        measure = "right classes"
        labels = [f"{n % 2}\t{n % 4}" for n in range(count - 1)]
        (tmp_path / "labels.tsv").write_text("\n".join([*labels, "\n"]))  # one is left out
        words += ["--labels", str(tmp_path / "labels.tsv")]
    monkeypatch.setattr(sys, "argv", ["long_documents", *words])
    long_documents.main()
    out = capsys.readouterr().out
    number = {"late": "3 documents, 9", "halves": "3 documents, 3", "classes": "8 documents, 0"}
    assert out.startswith(f"{number[test]} queries\n\n| method | {measure} | ")
    rows = [line.split(" | ")[0] for line in out.splitlines()[4:]]
    assert rows == ["| original, first 20 tokens", "| original, mean of chunks of 20",
                    f"| {tmp_path / 'swapped'}, 300 tokens"]  # fmt: skip
