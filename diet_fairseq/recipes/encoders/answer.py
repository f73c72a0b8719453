"""``answer CHECKPOINT``: finds the answer to a question in a text, or those to a whole set."""

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from fairseq import checkpoint_utils, utils
from tqdm import tqdm

from ...data.questions import BEST, Question, best_answers, merged
from ...errors import UserError
from ...tasks.diet_question_answering import HEAD
from ..common.options import at_least
from ..common.text import read_lines
from . import squad
from .folder import add_folder
from .question_files import coded
from .start import Start


class Found(NamedTuple):
    """An answer, the characters of the text that it is, and its probability among the best."""

    text: str
    begin: int
    end: int
    probability: float


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("checkpoint", metavar="CHECKPOINT", type=Path, help="that answers")
    parser.add_argument("--question", metavar="TEXT", required=True)
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--text", help="to find the answer in")
    given.add_argument("--file", type=Path, help="the same, in a file")
    parser.add_argument("--best", type=at_least(1), default=1, help="answers (%(default)s)")
    parser.add_argument("--gpu", action="store_true", help="answer on a GPU")
    add_folder(parser)


def run(args: Namespace) -> None:
    text = "\n".join(read_lines(args.file)) if args.file else args.text
    source = f"--file {args.file}" if args.file else "--text"
    for name, given in (("--question", args.question), (source, text)):
        if not given.strip():
            raise UserError(f"{name} is empty: give some words")
    best = max(args.best, BEST)  # probabilities are among them
    answerer = Answerer(args.checkpoint, args.folder / "data-bin", args.gpu, best=best)
    asked = squad.Question("", args.question, text, ())
    [found] = answerer(answerer.questions(coded([asked], Namespace(folder=args.folder, workers=1),
                                                "the text")))  # fmt: skip
    if not found:  # as of a zero-width space
        raise UserError(f"{source} has nothing that is made into subwords: give some words")
    for one in found[: args.best]:
        print(f"{one.text}\t{one.probability:.3f}\tcharacters {one.begin} to {one.end}")


class Answerer:
    """A fine-tuned model, asked questions.

    Raises:
        UserError: the checkpoint is none of task ``question_answering``, or has other subwords
    """

    def __init__(
        self, checkpoint: Path, data: Path, gpu: bool = False, batch: int = 64, best: int = BEST
    ) -> None:
        start = Start(checkpoint)
        if start.task != "question_answering":
            raise UserError(
                f"{checkpoint} has not learned to answer questions: give one that `finetune` wrote "
                "for XQuAD, MLQA or TyDiQA"
            )
        start.check_dictionary(data / "dict.txt")
        models, _, self.task = checkpoint_utils.load_model_ensemble_and_task(
            [str(checkpoint)], arg_overrides={"data": str(data)}
        )
        self.model, self.gpu, self.batch, self.best = models[0].eval(), gpu, batch, best
        if gpu:
            self.model.cuda()

    def questions(self, lines: Any) -> list[Question]:
        """Those of lines as ``SPLIT.jsonl`` has."""
        return [one for text in lines for one in self.task.questions(json.loads(text))]

    @torch.no_grad()
    def __call__(self, questions: Sequence[Question]) -> list[list[Found]]:
        """The ``best`` answers to each question, the best first."""
        samples = self.task.samples(questions)
        order = sorted(range(len(samples)), key=samples.size)
        found: list[tuple[int, Any]] = []
        for start in tqdm(range(0, len(order), self.batch), "answers", disable=None):
            batch = samples.collater([samples[n] for n in order[start : start + self.batch]])
            if self.gpu:
                batch = utils.move_to_cuda(batch)
            logits, _ = self.model(
                **batch["net_input"], features_only=True, classification_head_name=HEAD
            )  # (B, T, 2)
            best = best_answers(logits, batch, self.task.dictionary.pad(), self.best)
            found += zip((window.question for window in batch["windows"]), best, strict=True)
        by_question = merged(found, self.best)
        return [self._texts(one, by_question[n]) for n, one in enumerate(questions)]

    @staticmethod
    def _texts(question: Question, best: Sequence[Any]) -> list[Found]:
        scores = np.array([one.score for one in best])
        probabilities = np.exp(scores - scores.max()) if len(scores) else scores
        context = question.context
        return [
            Found(
                context.between(one.first, one.last),
                context.begins[one.first],
                context.ends[one.last],
                float(probability / probabilities.sum()),
            )
            for one, probability in zip(best, probabilities, strict=True)
        ]
