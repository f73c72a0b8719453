"""Models with an adaptive softmax resume and generate, whatever embeddings they share."""

import pytest

from diet_fairseq.errors import UserError
from tests.support import tiny
from tests.support.commands import TINY, run
from tests.support.tiny import Case

#: options that share embeddings, or the weights of the softmax
SHARING = {
    "nothing": (),
    "input and output of the decoder": ("--share-decoder-input-output-embed",),
    "all embeddings": ("--share-all-embeddings",),
    "projections": ("--share-all-embeddings", "--tie-adaptive-proj"),
}


@pytest.mark.parametrize("sharing", SHARING)
def test_a_state_with_an_adaptive_softmax_loads_strictly(sharing):
    options = {flag.removeprefix("--").replace("-", "_"): True for flag in SHARING[sharing]}
    first, second = (
        tiny.fresh(Case("t5"), adaptive_softmax_cutoff="10,20", **options) for _ in range(2)
    )
    state = first.state_dict()
    second.upgrade_state_dict(state)
    assert list(state) == list(first.state_dict())
    second.load_state_dict(state)


def test_weights_of_adaptive_embeddings_can_t_be_tied():
    with pytest.raises(UserError, match="--tie-adaptive-weights needs adaptive input embeddings"):
        tiny.fresh(Case("t5"), adaptive_softmax_cutoff="10,20", tie_adaptive_weights=True)


@pytest.mark.slow
@pytest.mark.parametrize("sharing", ["input and output of the decoder", "projections"])
def test_an_adaptive_softmax_trains_resumes_and_generates(sharing, data, tmp_path):
    options = (
        *TINY, "--arch", "transformer_t5", "--adaptive-softmax-cutoff", "4,8",
        "--criterion", "adaptive_loss", "--ddp-backend", "legacy_ddp", *SHARING[sharing],
        "--save-dir", tmp_path,
    )  # fmt: skip
    for updates in (2, 4):
        done = run("train", data, *options, "--max-update", updates)
        assert done.status == 0, done.err
    assert "@ 2 updates)" in done.text
    done = run("generate", data, "--path", tmp_path / "checkpoint_last.pt", "--max-tokens", 160,
               "--max-len-b", 3, "--cpu")  # fmt: skip
    assert done.status == 0, done.err
    assert "Generate test with beam=5" in done.text
