"""Task ``glue``: classification or regression of one text or a pair of texts."""

import itertools
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from fairseq.data import (
    FairseqDataset,
    IdDataset,
    NestedDictionaryDataset,
    NumelDataset,
    NumSamplesDataset,
    RawLabelDataset,
    RightPadDataset,
    SortDataset,
    data_utils,
)
from fairseq.dataclass import FairseqDataclass
from fairseq.tasks.sentence_prediction import SentencePredictionTask
from omegaconf import II, MISSING

from ..data.sentence_pairs import Segments
from ..data.texts import Texts
from ..errors import UserError
from ..registration import register_task

logger = logging.getLogger(__name__)

#: with --group-by-length, samples whose lengths differ by less are in random order
LENGTHS_ALIKE = 8


@dataclass
class GlueConfig(FairseqDataclass):
    data: str = field(
        default=MISSING, metadata={"help": "folder with input0, label and, for pairs, input1"}
    )
    num_classes: int = field(
        default=-1,
        metadata={
            "help": "number of classes (default: that of the labels; 1 with --regression-target)"
        },
    )
    separator_token: int = field(
        default=-1,
        metadata={"help": "number of a token to put before the second text (default: none)"},
    )
    no_shuffle: bool = field(default=False, metadata={"help": "keep the order of the data"})
    group_by_length: bool = field(
        default=False,
        metadata={"help": "batches of samples of similar lengths: less padding, less time"},
    )
    max_positions: int = field(
        default=512, metadata={"help": "number of positions of the pretrained model"}
    )
    max_length: int = field(
        default=-1,
        metadata={
            "help": "largest number of tokens in a sample; longer ones are shortened "
            "(default: --max-positions)"
        },
    )
    regression_target: bool = II("criterion.regression_target")
    classification_head_name: str = II("criterion.classification_head_name")
    seed: int = II("common.seed")


@register_task("glue", dataclass=GlueConfig)
class GlueTask(SentencePredictionTask):
    """fairseq's ``sentence_prediction``, on the same files, with segments.

    A sample is ``<s> A </s>`` or ``<s> A </s> B </s>`` (`Texts`), and ``net_input["segments"]``
    (B, T) int64 is 0 for A, its two marks and padding, 1 for B and its ``</s>``, as ``bert_*``
    was pretrained (Devlin et al. 2019, section 3); models without segments ignore it.
    ``target`` is (B,) int64, the label's index in ``label/dict.txt``, or float64.

    Raises `UserError` for an empty split, a label that the dictionary doesn't have, a target that
    is not a number, and a ``--num-classes`` smaller than the number of labels.
    """

    @classmethod
    def setup_task(cls, cfg: GlueConfig, **kwargs: Any) -> "GlueTask":
        dictionary = cls.load_dictionary(os.path.join(cfg.data, "input0", "dict.txt"))
        labels = dictionary
        if cfg.regression_target:
            cfg.num_classes = 1 if cfg.num_classes < 1 else cfg.num_classes
            if cfg.num_classes != 1:
                raise UserError(
                    f"--num-classes {cfg.num_classes} with --regression-target: --task glue "
                    "predicts one number; leave --num-classes out"
                )
        else:
            path = os.path.join(cfg.data, "label", "dict.txt")
            labels = cls.load_dictionary(path)
            names = labels_of(labels)
            cfg.num_classes = len(names) if cfg.num_classes < 1 else cfg.num_classes
            if cfg.num_classes < len(names):
                raise UserError(
                    f"--num-classes {cfg.num_classes}, but {path} has {len(names)} labels "
                    f"({', '.join(names[:5])}{' ...' * (len(names) > 5)}): leave --num-classes out"
                )
        return cls(cfg, dictionary, labels)

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        model = super().build_model(cfg, from_checkpoint)
        freeze_output_layer(model)
        return model

    def load_dataset(self, split: str, combine: bool = False, **kwargs: Any) -> FairseqDataset:
        one = self._lines("input0", split, combine)
        if one is None:
            path = os.path.join(self.cfg.data, "input0", split)
            raise FileNotFoundError(f"Dataset not found: {split} ({path})")
        texts = self.texts(one, self._lines("input1", split, combine), split)
        if texts.shortened:
            logger.info(f"{split}: {texts.shortened:,} of {len(texts):,} samples were shortened")
        labels: list[int] | list[float] | None
        labels = (
            self._numbers(split, combine)
            if self.cfg.regression_target
            else self._classes(split, combine)
        )
        if labels is not None and len(labels) != len(texts):
            raise UserError(
                f"{self.cfg.data}, {split}, has {len(texts)} texts and {len(labels)} labels: "
                "prepare it again"
            )
        dataset = ordered(self.samples(texts, labels), texts.sizes, self.cfg)
        logger.info(f"{split}: {len(dataset):,} samples")
        self.datasets[split] = dataset
        return dataset

    def max_positions(self) -> int:
        return self.cfg.max_positions if self.cfg.max_length < 0 else self.cfg.max_length

    def texts(
        self, one: FairseqDataset, other: FairseqDataset | None = None, name: str = "the data"
    ) -> Texts:
        """Samples of lines that end in ``</s>``."""
        return Texts(
            one,
            other,
            bos=self.source_dictionary.bos(),
            longest=self.max_positions(),
            separator=None if self.cfg.separator_token < 0 else self.cfg.separator_token,
            name=f"{self.cfg.data}, {name},",
        )

    def samples(
        self, texts: Texts, targets: list[int] | list[float] | None = None
    ) -> NestedDictionaryDataset:
        """The batches for the model and the criterion."""
        parts = {
            "id": IdDataset(),
            "net_input.src_tokens": RightPadDataset(texts, self.source_dictionary.pad()),
            "net_input.src_lengths": NumelDataset(texts, reduce=False),
            "net_input.segments": RightPadDataset(Segments(texts), pad_idx=0),
            "nsentences": NumSamplesDataset(),
            "ntokens": NumelDataset(texts, reduce=True),
        }
        if targets is not None:
            parts["target"] = RawLabelDataset(targets)
        return NestedDictionaryDataset(parts, sizes=[texts.sizes])

    def _lines(self, key: str, split: str, combine: bool = False) -> FairseqDataset | None:
        path = os.path.join(self.cfg.data, key, split)
        dictionary = self.label_dictionary if key == "label" else self.source_dictionary
        return data_utils.load_indexed_dataset(path, dictionary, combine=combine)

    def _classes(self, split: str, combine: bool = False) -> list[int] | None:
        """None without labels, as in GLUE's test sets."""
        lines = self._lines("label", split, combine)
        if lines is None:
            return None
        known = range(self.cfg.num_classes)
        classes = [int(line[0]) - self.label_dictionary.nspecial for line in lines]
        for number, one in enumerate(classes, 1):
            if one not in known:
                where = f"{os.path.join(self.cfg.data, 'label', split)}, line {number}"
                raise UserError(
                    f"{where}: its label is not among the {len(known)} that are known in training: "
                    "correct the data, and run fairseq-preprocess again"
                )
        return classes

    def _numbers(self, split: str, combine: bool = False) -> list[float] | None:
        """None without labels. In float64, which fairseq doesn't round to half precision."""
        path = os.path.join(self.cfg.data, "label", f"{split}.label")
        if not os.path.exists(path):
            return None
        return [
            np.float64(number(line, f"{part}, line {place}"))
            for part in parts(path, combine)
            for place, line in enumerate(text_lines(part), 1)
        ]


def freeze_output_layer(model: Any) -> None:
    """Of an encoder whose features are read: data parallel refuses parameters without gradients."""
    head = getattr(model.encoder, "lm_head", None)
    if head is not None:
        embedded = model.encoder.sentence_encoder.embed_tokens.weight
        for parameter in head.parameters():
            if parameter is not embedded:
                parameter.requires_grad_(False)


def ordered(dataset: FairseqDataset, sizes: np.ndarray, cfg: Any) -> FairseqDataset:
    """The samples as ``no_shuffle``, ``group_by_length`` and ``seed`` of a task want them."""
    if cfg.no_shuffle:
        return dataset
    with data_utils.numpy_seed(cfg.seed):
        order = [np.random.permutation(len(dataset))]
    if cfg.group_by_length:
        order.append(sizes // LENGTHS_ALIKE)  # numpy sorts by the last first
    return SortDataset(dataset, sort_order=order)


def parts(path: str, combine: bool) -> Iterator[str]:
    """The file of a split, and with ``combine``, as in fairseq's tasks, train1.x after train.x."""
    stem, ending = os.path.splitext(path)
    for number in itertools.count() if combine else [0]:
        part = f"{stem}{number or ''}{ending}"
        if not os.path.exists(part):
            return
        yield part


def text_lines(path: str) -> Iterator[str]:
    with open(path, encoding="utf-8") as lines:
        yield from lines


def labels_of(dictionary: Any) -> list[str]:
    """The names of the labels by class, without the symbols that fairseq adds."""
    names = dictionary.symbols[dictionary.nspecial :]
    return [name for name in names if name != "<mask>" and not name.startswith("madeupword")]


def number(text: str, where: str) -> float:
    """A finite number; else `UserError`."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        raise UserError(f"{where}: a label to regress on must be a number, but is {text.strip()!r}")
    return value
