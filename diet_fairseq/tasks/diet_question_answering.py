"""Task ``question_answering``: the part of a text that answers a question (SQuAD)."""

import json
import logging
import os
from dataclasses import dataclass, field
from typing import Any

from fairseq.data import Dictionary, FairseqDataset
from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import FairseqTask
from omegaconf import II, MISSING

from ..data.questions import Context, Question, Windows
from ..errors import UserError
from ..models.span_head import SpanHead
from ..registration import register_task
from .diet_glue import freeze_output_layer, ordered, parts, text_lines

logger = logging.getLogger(__name__)

HEAD = "span"


def add_head(model: Any) -> None:
    """Give an encoder a `SpanHead` that is called `HEAD`."""
    size, args = model.args.encoder_embed_dim, model.args
    model.classification_heads[HEAD] = SpanHead(
        size, size, 2, args.pooler_activation_fn, args.pooler_dropout
    )


@dataclass
class QuestionAnsweringConfig(FairseqDataclass):
    data: str = field(default=MISSING, metadata={"help": "folder with dict.txt and SPLIT.jsonl"})
    max_positions: int = field(
        default=512, metadata={"help": "number of positions of the pretrained model"}
    )
    max_length: int = field(
        default=-1, metadata={"help": "tokens of a sample (default: --max-positions)"}
    )
    stride: int = field(
        default=128,
        metadata={"help": "tokens from the beginning of a context's window to that of the next"},
    )
    max_question_length: int = field(
        default=64, metadata={"help": "tokens of a question; longer ones are cut"}
    )
    no_shuffle: bool = field(default=False, metadata={"help": "keep the order of the data"})
    group_by_length: bool = field(
        default=False,
        metadata={"help": "batches of samples of similar lengths: less padding, less time"},
    )
    seed: int = II("common.seed")


@register_task("question_answering", dataclass=QuestionAnsweringConfig)
class QuestionAnsweringTask(FairseqTask):
    """Extractive question answering on ``<s> question </s> context </s>`` (`Windows`).

    ``net_input["segments"]`` is as in task ``glue``. A line of ``SPLIT.jsonl`` is a context::

        {"context": "Ada has a ball.", "tokens": "▁Ada ▁has ▁a ▁ball .",
         "begins": [0, 4, 8, 10, 14], "ends": [3, 7, 9, 14, 15], "rules": "squad",
         "questions": [{"id": "1", "question": "▁Who ?", "answers": [["Ada", 0]]}]}

    ``begins`` and ``ends`` are characters of ``context``, and ``rules`` those that answers are
    compared by in validation: ``squad``, or ``mlqa LANGUAGE``. The first answer is the one to
    train on. The model gets a `SpanHead`.
    """

    def __init__(self, cfg: QuestionAnsweringConfig, dictionary: Dictionary) -> None:
        super().__init__(cfg)
        self.dictionary = dictionary
        for option, value in (("stride", cfg.stride), ("max-question-length",
                                                       cfg.max_question_length)):  # fmt: skip
            if value < 1:
                raise UserError(f"--{option} {value}: take 1 or more")

    @classmethod
    def setup_task(cls, cfg: QuestionAnsweringConfig, **kwargs: Any) -> "QuestionAnsweringTask":
        dictionary = cls.load_dictionary(os.path.join(cfg.data, "dict.txt"))
        dictionary.add_symbol("<mask>")
        return cls(cfg, dictionary)

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        model = super().build_model(cfg, from_checkpoint)
        if not hasattr(model, "classification_heads"):
            raise UserError(
                "--task question_answering needs an encoder: take --arch bert_<scheme>, "
                "roberta_<scheme> or roberta"
            )
        add_head(model)
        freeze_output_layer(model)
        return model

    def load_dataset(self, split: str, combine: bool = False, **kwargs: Any) -> FairseqDataset:
        path = os.path.join(self.cfg.data, f"{split}.jsonl")
        if not os.path.exists(path):
            raise FileNotFoundError(f"Dataset not found: {split} ({path})")
        questions = [
            one
            for part in parts(path, combine)
            for number, line in enumerate(text_lines(part), 1)
            for one in self._questions(line, f"{part}, line {number}")
        ]
        samples = self.samples(questions, path)
        dataset = ordered(samples, samples.sizes, self.cfg)
        logger.info(f"{split}: {len(questions):,} questions, {len(samples):,} windows")
        self.datasets[split] = dataset
        return dataset

    def samples(self, questions: list[Question], name: str = "the questions") -> Windows:
        """The windows of questions, for the model and the criterion."""
        return Windows(
            questions,
            bos=self.dictionary.bos(),
            eos=self.dictionary.eos(),
            pad=self.dictionary.pad(),
            longest=self.max_positions(),
            stride=self.cfg.stride,
            question_length=self.cfg.max_question_length,
            name=name,
        )

    def _questions(self, line: str, where: str) -> list[Question]:
        try:
            return self.questions(json.loads(line))
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"{where} is not a context with its questions ({error!r}): prepare it again"
            ) from error

    def questions(self, found: dict[str, Any]) -> list[Question]:
        """Those of a line of ``SPLIT.jsonl``."""

        def coded(text: str) -> Any:
            tokens = self.dictionary.encode_line(text, append_eos=False, add_if_not_exist=False)
            return tokens.long().numpy()

        begins, ends = found["begins"], found["ends"]
        context = Context(
            found["context"], coded(found["tokens"]), begins, ends, found.get("rules", "squad")
        )
        if not len(begins) == len(ends) == len(context.tokens):
            raise ValueError("begins, ends and tokens differ in number")
        return [
            Question(one["id"], coded(one["question"]), context, [tuple(a) for a in one["answers"]])
            for one in found["questions"]
        ]

    def max_positions(self) -> int:
        return self.cfg.max_positions if self.cfg.max_length < 0 else self.cfg.max_length

    @property
    def source_dictionary(self) -> Dictionary:
        return self.dictionary

    @property
    def target_dictionary(self) -> Dictionary:
        return self.dictionary
