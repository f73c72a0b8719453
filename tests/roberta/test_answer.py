"""answer.py: windows and spans, against loops; training and a question."""

import gzip
import json
import os
import sys
from itertools import product

import pytest
import torch

from diet_fairseq.errors import UserError
from diet_fairseq.hf import DietEncoderTokenizer
from tests.support import originals

CONTEXT = "the quick brown fox jumps over the lazy dog. ein hund schläft und ein fuchs läuft."
CONTEXTS = [f"{' '.join([CONTEXT] * 4)} {word}" for word in CONTEXT.split()]


def squad(contexts):
    """A file's content, with a question for each context: what is its last word?"""
    paragraphs = []
    for number, context in enumerate(contexts):
        answer = context.split()[-1]
        right = {"text": answer, "answer_start": context.rindex(answer)}
        question = {"id": str(number), "question": "der hund?", "answers": [right]}
        paragraphs.append({"context": context, "qas": [question]})
    return {"data": [{"paragraphs": paragraphs}]}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "squad.json"
    path.write_text(json.dumps(squad(CONTEXTS)))
    return path


@pytest.mark.slow
def test_targets_are_the_tokens_of_the_answer(script, pretrained, file):
    answer = script("answer")
    tokenizer = DietEncoderTokenizer.from_pretrained(pretrained)
    questions = answer.read_squad(file)
    windows = answer.Windows(questions, tokenizer, length=80, stride=5)
    samples = windows.with_targets(questions)
    answered = set()
    for row, (owner, offsets) in enumerate(zip(windows.owners, windows.offsets, strict=True)):
        first, last = samples[row]["start_positions"], samples[row]["end_positions"]
        if (first, last) != (0, 0):
            question = questions[owner]
            text = question["context"][offsets[first][0] : offsets[last][1]]
            assert question["answers"]["text"][0] in text
            answered.add(owner)
    assert answered == set(range(len(questions)))
    assert len(samples) > len(questions)  # some contexts have several windows


def test_the_first_word_of_a_context_is_answered_whole(script, pretrained):
    """And a question reaches the model as its own pieces, though it is one word."""
    answer = script("answer")
    tokenizer = DietEncoderTokenizer.from_pretrained(pretrained)
    right = {"text": ["quick"], "answer_start": [0]}
    question = {"id": "1", "question": "dog", "context": "quick brown fox", "answers": right}
    windows = answer.Windows([question], tokenizer, length=80, stride=5)
    ids, offsets = windows.features["input_ids"][0], windows.offsets[0]
    expected = tokenizer("dog", add_special_tokens=False)["input_ids"]
    assert list(ids[1 : 1 + len(expected)]) == expected
    first, last = answer.columns_of(offsets, 0, len("quick"))
    scores = torch.full((2, len(ids)), -9.0)
    scores[0, first] = scores[1, last] = 9.0  # of a model that knows the answer
    _, begin, end = max(answer.spans_of(scores[0], scores[1], offsets, 20))[:3]
    assert question["context"][begin:end] == "quick"


def test_spans_have_the_best_scores(script, monkeypatch):
    answer = script("answer")
    assert answer.trimmed("xe\u0301 y", 1, 2) == (1, 3)  # a mark belongs to the character before
    monkeypatch.setattr(answer, "LONGEST_ANSWER", 3)
    draw = torch.Generator().manual_seed(1)
    first, last = torch.randn(2, 9, generator=draw)
    offsets = [(0, 0), (0, 0), (0, 2), (2, 3), (4, 4), (5, 7), (8, 9), (0, 0)]
    inside = [n for n, span in enumerate(offsets) if span[0] < span[1]]
    expected = sorted(
        ((first[a] + last[b]).item(), offsets[a][0], offsets[b][1])
        for a, b in product(inside, inside)
        if a <= b < a + 3
    )[::-1]
    spans = answer.spans_of(first, last, offsets, count=50)
    scores, begins, ends = zip(*expected, strict=True)
    assert [(span.begin, span.end) for span in spans] == [*zip(begins, ends, strict=True)]
    assert [span.score for span in spans] == pytest.approx(scores)


def test_every_twentieth_context_is_held_out(script):
    questions = [{"context": str(number // 2)} for number in range(80)]
    train, held_out = script("answer").split_contexts(questions)
    assert [question["context"] for question in held_out] == ["19", "19", "39", "39"]
    assert len(train) == 76
    with pytest.raises(UserError, match="but has one: give more"):
        script("answer").split_contexts(questions[:2])


@pytest.mark.slow
@pytest.mark.parametrize("model", ["ours", "transformers' own"])
def test_a_model_learns_to_answer_and_is_asked(
    script, pretrained, model, file, tmp_path, monkeypatch, capsys
):
    answer = script("answer")
    if model != "ours":
        pretrained = originals.bert(tmp_path / "bert", head="Model", max_position_embeddings=128)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["answer.py", *map(str, words)])
        answer.main()

    out = tmp_path / "run"
    run("train", "--train", file, "--model", pretrained, "--out", out, "--epochs", 1, "--batch", 4,
        "--length", 100, "--stride", 20, "--test", "MLQA", f"de-en={file}", "--test", "XQuAD",
        f"de={file}")  # fmt: skip
    result = json.loads((out / "result.json").read_text())
    assert result["tests"].keys() == {"MLQA", "XQuAD"}
    assert result["tests"]["XQuAD"]["de"].keys() == {"f1", "exact_match"}
    run("predict", out / "model", "--test", "XQuAD", f"de={file}", "--out", tmp_path / "sub")
    answers = json.loads((tmp_path / "sub/xquad/test-de.json").read_text())
    assert list(answers) == [str(number) for number in range(len(CONTEXTS))]
    assert all(answers[str(number)] in context for number, context in enumerate(CONTEXTS))
    capsys.readouterr()
    run("ask", out / "model", "--question", "der hund?", "--text", CONTEXT, "--best", 2)
    lines = capsys.readouterr().out.strip().split("\n")
    assert len(lines) == 2
    text, _, place = lines[0].split("\t")
    _, begin, _, end = place.split()
    assert CONTEXT[int(begin) : int(end)] == text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answer_start": 0}, "answer_start 0 has 'the quick', but the answer is 'schläft. '"),
        ({"text": None}, "is not in SQuAD's format 1.1"),
    ],
)
def test_a_wrong_file_is_refused(script, tmp_path, change, message):
    content = squad(["the quick schläft. "])
    right = content["data"][0]["paragraphs"][0]["qas"][0]["answers"][0]
    right |= {"text": "schläft. ", "answer_start": 10} | change
    (tmp_path / "squad.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=message):
        script("squad_files").read_squad(tmp_path / "squad.json")


def test_only_regular_files_of_bounded_size_are_read(script, tmp_path, monkeypatch):
    path = tmp_path / "squad.json.gz"
    read = script("squad_files").read_squad
    os.mkfifo(path)
    with pytest.raises(UserError, match=r"squad\.json\.gz is not a regular file: give another"):
        read(path)
    path.unlink()
    path.write_bytes(gzip.compress(json.dumps(squad(CONTEXTS)).encode()))
    assert len(read(path)) == len(CONTEXTS)
    path.write_bytes(gzip.compress(b"[" * (1 << 20)))
    with pytest.raises(UserError, match=r"is not valid JSON .*recursion limit"):
        read(path)
    monkeypatch.setattr(script("squad_files"), "LARGEST", 1 << 16)
    with pytest.raises(
        UserError, match=r"squad\.json\.gz is too large: it must have at most 65,536 bytes"
    ):
        read(path)
