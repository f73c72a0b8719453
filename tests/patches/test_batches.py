"""Batches hold every sentence once."""

import fairseq
import numpy as np
import pytest
from fairseq import checkpoint_utils, hub_utils, options  # noqa: F401


@pytest.mark.parametrize("size", [1, 7, 8, 12, 25])
def test_batches_hold_every_sentence_once(size):
    lengths = np.full(size, 5)
    for multiple in (1, 8):
        batches = fairseq.data.data_utils.batch_by_size(
            np.arange(size), None, lengths, 60, None, multiple
        )
        assert np.concatenate(batches).tolist() == list(range(size))
        assert max(map(len, batches)) <= 12
