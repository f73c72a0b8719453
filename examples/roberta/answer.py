"""Extractive question answering: SQuAD, XQuAD, MLQA, TyDiQA-GoldP, or a question of one's own.

    answer.py train --train SQuAD/train-v1.1.json --model bert_hf --out runs/squad \\
        --test XQuAD de=XQuAD/xquad.de.json --test MLQA de-en=test-context-de-question-en.json
    answer.py predict runs/squad/model --test XQuAD de=XQuAD/xquad.de.json --out submission
    answer.py ask runs/squad/model --question "Who wrote it?" --text "Ada wrote it."

Contexts longer than a sample are read in windows that overlap by ``--stride`` tokens. Training
selects by every 20th context of its file, as SQuAD's own dev set has XQuAD's contexts.
"""

import json
import unicodedata
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from datasets import Dataset
from scores import question_scores
from squad_files import Question, read_squad, right_answers, unique_ids
from torch import Tensor
from training import (
    MODEL,
    add_training_arguments,
    check_length,
    count_positions,
    finish,
    in_locked_folder,
    load,
    run,
    run_command,
    training_arguments,
)
from transformers import AutoModelForQuestionAnswering, DataCollatorWithPadding, Trainer, set_seed

from diet_fairseq.errors import UserError, exit_with_one_line
from diet_fairseq.files import atomic_file, read_json

#: one of so many contexts is held out of training
HELD_OUT = 20
#: tokens of an answer, and of a question (Devlin et al. 2019, run_squad.py)
LONGEST_ANSWER, LONGEST_QUESTION = 30, 64
#: the characters (begin, end) of a token in the context; none of other tokens: (0, 0)
Span = tuple[int, int]


class TestSet(NamedTuple):
    """The questions of a benchmark in a language, or a pair such as ``de-en``."""

    benchmark: str
    language: str
    questions: list[Question]


class Answer(NamedTuple):
    """A part of a context, by the sum of the scores of its first and last token."""

    score: float
    begin: int
    end: int


class Windows:
    """Questions with their contexts as samples ``<s> question </s> context </s>``.

    Attributes:
        features: for the model, a sample for each window
        owners: the number of each sample's question
        offsets: a span for each token of each sample
    """

    def __init__(
        self, questions: Sequence[Question], tokenizer: Any, length: int, stride: int
    ) -> None:
        if not tokenizer.is_fast:
            raise UserError(
                "question answering needs the character offsets of subwords, which this model's "
                "tokenizer lacks: pretrain with SentencePiece's byte pair encoding"
            )
        room = length - LONGEST_QUESTION - 3
        if room <= stride:
            raise UserError(
                f"--stride must be below {max(room, 1)}, the subwords of a context that --length "
                f"{length} has room for beside the longest question, but is {stride}: lower it"
            )
        texts = [question["question"] for question in questions]
        question_offsets = tokenizer(
            texts, add_special_tokens=False, truncation=True, max_length=LONGEST_QUESTION,
            return_offsets_mapping=True,
        )["offset_mapping"]  # fmt: skip
        encoded = tokenizer(
            [text[: spans[-1][1] if spans else 0]
             for text, spans in zip(texts, question_offsets, strict=True)],
            [question["context"] for question in questions],
            truncation="only_second", max_length=length, stride=stride,
            return_overflowing_tokens=True, return_offsets_mapping=True,
        )  # fmt: skip
        self.owners: list[int] = encoded.pop("overflow_to_sample_mapping")
        self.offsets: list[list[Span]] = []
        for number, spans in enumerate(encoded.pop("offset_mapping")):
            context = questions[self.owners[number]]["context"]
            sides = zip(spans, encoded.sequence_ids(number), strict=True)
            self.offsets.append(
                [trimmed(context, *span) if side else (0, 0) for span, side in sides]
            )
        self.features: dict[str, list[Any]] = dict(encoded)

    def with_targets(self, questions: Sequence[Question]) -> Dataset:
        """The samples with the columns of the answer's first and last token.

        Both are 0, ``<s>``, in a window without the whole answer, as in BERT.
        """
        targets = []
        for owner, offsets in zip(self.owners, self.offsets, strict=True):
            answers = questions[owner]["answers"]
            begin = answers["answer_start"][0]
            targets.append(columns_of(offsets, begin, begin + len(answers["text"][0])))
        first, last = zip(*targets, strict=True)
        return Dataset.from_dict(self.features | {"start_positions": first, "end_positions": last})


def trimmed(context: str, begin: int, end: int) -> Span:
    """A token's characters without white space around them, and with all marks on the last."""
    while begin < end and context[begin].isspace():
        begin += 1
    while begin < end and context[end - 1].isspace():
        end -= 1
    while begin < end < len(context) and unicodedata.category(context[end])[0] == "M":
        end += 1
    return begin, end


def columns_of(offsets: Sequence[Span], begin: int, end: int) -> tuple[int, int]:
    """The first and last column whose token has a part of the characters, or (0, 0)."""
    context = [column for column, (first, last) in enumerate(offsets) if first < last]
    inside = [n for n in context if offsets[n][0] < end and offsets[n][1] > begin]
    is_whole = inside and offsets[context[0]][0] <= begin and offsets[context[-1]][1] >= end
    return (inside[0], inside[-1]) if is_whole else (0, 0)


@torch.no_grad()
def best_answers(
    model: Any, tokenizer: Any, questions: Sequence[Question], length: int, stride: int,
    batch: int = 64, count: int = 20,
) -> list[list[Answer]]:  # fmt: skip
    """The ``count`` best answers to each question over all windows of its context, best first."""
    windows = Windows(questions, tokenizer, length, stride)
    collate: Any = DataCollatorWithPadding(tokenizer)
    order = sorted(
        range(len(windows.owners)), key=lambda row: len(windows.features["input_ids"][row])
    )
    answers: list[set[Answer]] = [set() for _ in questions]
    was_training = model.training
    model.eval()
    for start in range(0, len(order), batch):
        rows = order[start : start + batch]
        samples = [{name: column[row] for name, column in windows.features.items()} for row in rows]
        output = model(**collate(samples).to(model.device))
        for row, first, last in zip(rows, output.start_logits, output.end_logits, strict=True):
            answers[windows.owners[row]].update(
                spans_of(first.float().cpu(), last.float().cpu(), windows.offsets[row], count)
            )
    model.train(was_training)
    return [sorted(candidates, reverse=True)[:count] for candidates in answers]


def spans_of(first: Tensor, last: Tensor, offsets: Sequence[Span], count: int) -> list[Answer]:
    """The best answers within a window, out of the scores (T,) of first and last tokens."""
    outside = torch.tensor([begin == end for begin, end in offsets])  # (T,) without padding
    first = first[: len(offsets)].masked_fill(outside, -torch.inf)
    last = last[: len(offsets)].masked_fill(outside, -torch.inf)
    last = torch.nn.functional.pad(last, (0, LONGEST_ANSWER - 1), value=-torch.inf)
    scores = first[:, None] + last.unfold(0, LONGEST_ANSWER, 1)  # (T, longest)
    values, places = scores.flatten().topk(min(count, scores.numel()))
    answers = []
    for value, place in zip(values.tolist(), places.tolist(), strict=True):
        column, distance = divmod(place, LONGEST_ANSWER)
        if value > -torch.inf:
            answers.append(Answer(value, offsets[column][0], offsets[column + distance][1]))
    return answers


def answers_by_id(
    model: Any, tokenizer: Any, questions: Sequence[Question], args: Namespace
) -> dict[str, str]:
    """The best answer to each question; "" where the context has no subword."""
    candidates = best_answers(model, tokenizer, questions, args.length, args.stride)
    spans = [answers[0][1:] if answers else (0, 0) for answers in candidates]
    texts = [
        question["context"][begin:end]
        for question, (begin, end) in zip(questions, spans, strict=True)
    ]
    return dict(zip(unique_ids(questions), texts, strict=True))


class AnswerTrainer(Trainer):
    """Trainer that evaluates by F1 and exact match of answers in the held-out questions."""

    held_out: Sequence[Question]
    options: Namespace

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        answers = answers_by_id(self.model, self.processing_class, self.held_out, self.options)
        scores = question_scores("SQuAD", "en", answers, right_answers(self.held_out))
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in scores.items()}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics


def split_contexts(questions: Sequence[Question]) -> tuple[list[Question], list[Question]]:
    """Questions to train on, and those of every `HELD_OUT`-th context, to select by."""
    contexts = list(dict.fromkeys(question["context"] for question in questions))
    if len(contexts) < 2:
        raise UserError(
            "the training set must have two contexts or more, one of them held out, but has one: "
            "give more"
        )
    every = min(HELD_OUT, len(contexts))
    selection = set(contexts[every - 1 :: every])
    sides: tuple[list[Question], list[Question]] = ([], [])
    for question in questions:
        sides[question["context"] in selection].append(question)
    return sides


def read_tests(options: Sequence[Sequence[str]], answered: bool) -> list[TestSet]:
    """``BENCHMARK LANGUAGE=FILE...`` as tests; ``answered``: whether all questions must be."""
    tests = []
    for benchmark, *files in options:
        for file in files:
            language, equals, path = file.partition("=")
            if not equals:
                raise UserError(
                    f"--test {benchmark} {file} must be LANGUAGE=FILE, such as de=xquad.de.json"
                )
            tests.append(TestSet(benchmark, language, read_squad(Path(path), answered)))
    return tests


@in_locked_folder
def train(args: Namespace) -> None:
    questions, held_out = split_contexts(read_squad(args.train, language=args.train_language))
    tests = read_tests(args.test, answered=True)
    arguments = training_arguments(args, "f1")
    set_seed(args.seed)
    model, tokenizer = load(AutoModelForQuestionAnswering, args.model)
    check_length(args.length, model, tokenizer)
    windows = Windows(questions, tokenizer, args.length, args.stride)
    trainer = AnswerTrainer(
        model=model, args=arguments, train_dataset=windows.with_targets(questions),
        eval_dataset=[], processing_class=tokenizer,
        data_collator=DataCollatorWithPadding(tokenizer),
    )  # fmt: skip
    trainer.held_out, trainer.options = held_out, args
    result = {"task": args.train.name, **run(trainer, args), "tests": {}}
    for benchmark, language, questions in tests:
        answers = answers_by_id(trainer.model, tokenizer, questions, args)
        scores = question_scores(benchmark, language, answers, right_answers(questions))
        result["tests"].setdefault(benchmark, {})[language] = scores
    settings = {"length": args.length, "stride": args.stride}
    (args.out / MODEL / "answer.json").write_text(json.dumps(settings))
    finish(args, result)


def load_answerer(args: Namespace) -> tuple[Any, Any]:
    """Model and tokenizer, with the length and stride of training in ``args``."""
    model, tokenizer = load(AutoModelForQuestionAnswering, args.model)
    if not model.config.architectures[0].endswith("ForQuestionAnswering"):
        raise UserError(
            f"{args.model} is not a question-answering model: give RUN/{MODEL} of a fine-tuning"
        )
    path = args.model / "answer.json"
    settings = read_json(path) if path.exists() else {}
    args.length = settings.get("length", count_positions(model, tokenizer))
    args.stride = settings.get("stride", args.length // 4)
    if torch.cuda.is_available():
        model.cuda()
    return model, tokenizer


def predict(args: Namespace) -> None:
    tests = read_tests(args.test, answered=False)
    model, tokenizer = load_answerer(args)
    for benchmark, language, questions in tests:
        answers = answers_by_id(model, tokenizer, questions, args)
        path = args.out / benchmark.lower() / f"test-{language}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as file:
            json.dump(answers, file, ensure_ascii=False, indent=1)
        print(f"{path}: {len(answers):,} answers")


def ask(args: Namespace) -> None:
    text = args.file.read_text(encoding="utf-8") if args.file else args.text
    for name, value in (("--question", args.question), ("the text", text)):
        if not value.strip():
            raise UserError(f"{name} is empty: give some words")
    model, tokenizer = load_answerer(args)
    question = {"id": "", "question": args.question, "context": text, "answers": {}}
    [best] = best_answers(model, tokenizer, [question], args.length, args.stride)
    if not best:
        raise UserError("the text has no subword to answer with: give some words")
    probabilities = torch.tensor([answer.score for answer in best]).softmax(0).tolist()
    for answer, probability in list(zip(best, probabilities, strict=True))[: args.best]:
        span = text[answer.begin : answer.end]
        print(f"{span}\t{probability:.3f}\tcharacters {answer.begin} to {answer.end}")


def main() -> None:
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("train", help="fine-tune a pretrained encoder")
    command.set_defaults(run=train)
    command.add_argument("--train", type=Path, required=True, help="file in SQuAD's format")
    command.add_argument(
        "--train-language",
        default="",
        help="language to select from a file of several, such as english",
    )
    add_training_arguments(command)
    command.add_argument("--stride", type=int, default=128, help="overlap of windows (%(default)s)")
    test: dict[str, Any] = {"nargs": "+", "action": "append", "metavar": "BENCHMARK LANGUAGE=FILE"}
    command.add_argument("--test", default=[], help="test sets for the best checkpoint", **test)
    command = commands.add_parser("predict", help="answer files of questions, as XTREME submits")
    command.set_defaults(run=predict)
    command.add_argument("model", type=Path, metavar="MODEL", help="RUN/model that `train` wrote")
    command.add_argument("--test", required=True, help="files of questions", **test)
    command.add_argument("--out", type=Path, required=True, help="folder of the submission")
    command = commands.add_parser("ask", help="answer one question")
    command.set_defaults(run=ask)
    command.add_argument("model", type=Path, metavar="MODEL", help="RUN/model that `train` wrote")
    command.add_argument("--question", required=True)
    source = command.add_mutually_exclusive_group(required=True)
    source.add_argument("--text", help="a text that holds the answer")
    source.add_argument("--file", type=Path, help="a file with the text")
    command.add_argument("--best", type=int, default=1, help="number of answers (%(default)s)")
    run_command(parser, commands.choices)


if __name__ == "__main__":
    with exit_with_one_line():
        main()
