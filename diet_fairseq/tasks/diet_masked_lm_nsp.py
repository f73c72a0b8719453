"""Task ``masked_lm_nsp``: masked language modelling with next-sentence prediction, as in BERT."""

import logging
import os
from typing import Any

from fairseq import utils
from fairseq.data import (
    FairseqDataset,
    NestedDictionaryDataset,
    RawLabelDataset,
    RightPadDataset,
    data_utils,
)
from fairseq.tasks import register_task
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask

from .sentence_pairs import Segments, SentencePairs

logger = logging.getLogger(__name__)


@register_task("masked_lm_nsp", dataclass=MaskedLMConfig)
class MaskedLMNspTask(MaskedLMTask):
    """fairseq's ``masked_lm`` on samples ``<s> A </s> B </s>`` (`SentencePairs`).

    A batch of this task also has ``net_input["segments"]`` (B, T) int64, 0 for the first text and
    for padding, 1 for the second text, and ``next_sentence`` (B,) int64, 1 if the second text
    follows the first.

    Masking is fairseq's own. As in its RoBERTa, ``<s>`` and ``</s>`` are masked and predicted like
    any other token (each is a word for ``--mask-whole-words``), but never inserted as random
    replacements. BERT does not mask them.

    ``--sample-break-mode`` and ``--shorten-method`` have no meaning for pairs.

    Every epoch pairs the training text anew. Pairs depend on the seed and the epoch only, so a
    resumed run has the pairs of an uninterrupted run, and all processes have equal pairs.
    """

    def has_sharded_data(self, split: str) -> bool:
        """True, so that fairseq loads the data for every epoch, with the epoch's number."""
        return True

    def load_dataset(
        self, split: str, epoch: int = 1, combine: bool = False, **options: Any
    ) -> None:
        # fairseq keeps the iterator of every dataset, and with it the pairs of all earlier epochs.
        self.dataset_to_epoch_iter.pop(self.datasets.get(split), None)
        super().load_dataset(split, epoch=epoch, combine=combine, **options)

    def _load_dataset_split(self, split: str, epoch: int, combine: bool) -> FairseqDataset:
        paths = utils.split_paths(self.cfg.data)
        path = os.path.join(paths[(epoch - 1) % len(paths)], split)
        lines = data_utils.load_indexed_dataset(path, self.source_dictionary, combine=combine)
        if lines is None:
            raise FileNotFoundError(f"Dataset not found: {split} ({path})")
        self._pairs = SentencePairs(
            lines,
            bos=self.source_dictionary.bos(),
            eos=self.source_dictionary.eos(),
            tokens_per_sample=self.cfg.tokens_per_sample,
            seed=f"{self.cfg.seed} {split} {epoch}",
            name=path,
        )
        share = 100 * self._pairs.follows.mean()
        logger.info(
            f"{path}: {len(self._pairs):,} pairs, {share:.0f}% of them in the original order"
        )
        return self._pairs

    def _regular_dataset(
        self, src_dataset: FairseqDataset, target_dataset: FairseqDataset
    ) -> NestedDictionaryDataset:
        dataset = super()._regular_dataset(src_dataset, target_dataset)
        dataset.defn |= {
            "net_input.segments": RightPadDataset(Segments(self._pairs), pad_idx=0),
            "next_sentence": RawLabelDataset(self._pairs.follows.tolist()),
        }
        return dataset
