"""fairseq's own models: the plugin changes what rows of the kind correctness name, and no more."""

import re
from functools import partial

import pytest

from tests.support.commands import (
    assert_same_tensors,
    log_lines,
    run,
    set_environment,
    without_protection,
)

#: no row of the kind correctness acts on these runs: every batch size is allowed
EVERY_SIZE = ("--required-batch-size-multiple", 1)
COMMON = (
    *("--encoder-layers", 1, "--encoder-embed-dim", 8, "--encoder-ffn-embed-dim", 8),
    *("--encoder-attention-heads", 2, "--seed", 1, "--max-epoch", 2, "--lr", 0.01),
    *("--optimizer", "adam", "--num-workers", 0, "--cpu", "--log-format", "json"),
    *("--log-interval", 1, "--clip-norm", 1),
)
DECODER = (
    *("--decoder-layers", 1, "--decoder-embed-dim", 8, "--decoder-ffn-embed-dim", 8),
    *("--decoder-attention-heads", 2, "--max-tokens", 160),
)
MODELS = {
    "transformer": ("--arch", "transformer", *DECODER, "--update-freq", 2),
    "BART": ("--arch", "bart_base", *DECODER, "--share-all-embeddings", "--no-epoch-checkpoints",
             "--max-source-positions", 32, "--max-target-positions", 32),
    "RoBERTa": ("--arch", "roberta", "--task", "masked_lm", "--criterion", "masked_lm",
                "--tokens-per-sample", 16, "--batch-size", 8),
}  # fmt: skip


#: every loss and gradient norm that is printed
LOGGED = ("num_updates", "train_num_updates", "loss", "gnorm", "train_loss", "valid_loss")


@pytest.fixture(scope="module")
def data(data, documents, tmp_path_factory):
    """Sentence pairs with one dictionary, which BART needs, and documents."""
    pairs = tmp_path_factory.mktemp("pairs")
    sets = [a for s in ("train", "valid", "test") for a in (f"--{s}pref", data.parent / s)]
    done = run("preprocess", "-s", "de", "-t", "en", *sets, "--joined-dictionary", "--destdir",
               pairs, "--cpu")  # fmt: skip
    assert done.status == 0, done.err
    return {"pairs": pairs, "texts": documents}


def in_mode(mode):
    """Arguments of `run` for a mode of the plugin, or for no plugin."""
    if mode is None:  # so that fairseq alone loads its checkpoints
        return {"plugin": False, "first": without_protection}
    return {"first": partial(set_environment, DIET_FAIRSEQ_PATCHES=mode)}


def results_of(mode, name, data, folder, *options):
    """Losses of a training, and translations or a validation's loss."""
    source = data["texts" if name == "RoBERTa" else "pairs"]
    done = run("train", source, *COMMON, *MODELS[name], *options, "--save-dir", folder,
               **in_mode(mode))  # fmt: skip
    losses = [[line.get(key) for key in LOGGED] for line in log_lines(done)]
    if name == "RoBERTa":
        command = ("validate", source, "--task", "masked_lm", "--criterion", "masked_lm",
                   "--batch-size", 8, "--log-format", "json")  # fmt: skip
    else:
        command = ("generate", source, "--gen-subset", "valid", "--beam", 3, "--max-len-b", 5)
    done = run(*command, "--path", folder / "checkpoint_last.pt", "--cpu", "--num-workers", 0,
               *options, **in_mode(mode))  # fmt: skip
    assert done.status == 0, done.err
    lines = [line for line in done.out.splitlines() if line.startswith(("H-", "P-"))]
    outputs = lines or re.findall(r'"valid_loss": "[\d.]+"', done.text)
    assert losses
    assert outputs
    return losses, outputs


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_stock_models_compute_what_they_do_without_the_plugin(name, data, tmp_path):
    """In both modes: with every batch size no row of the kind correctness acts."""
    alone = results_of(None, name, data, tmp_path / "alone", *EVERY_SIZE)
    for mode in ("no-correctness", "all"):
        assert results_of(mode, name, data, tmp_path / mode, *EVERY_SIZE) == alone, mode
        assert_same_tensors(tmp_path / mode, tmp_path / "alone")


@pytest.mark.slow
def test_every_sentence_is_translated_with_rows_of_correctness_only(data, tmp_path):
    """The test set has four sentences: fairseq drops a last batch of fewer than eight."""
    done = run("train", data["pairs"], *COMMON, *MODELS["transformer"], "--max-update", 1,
               "--save-dir", tmp_path)  # fmt: skip
    assert done.status == 0, done.err
    model = ("--path", tmp_path / "checkpoint_last.pt", "--cpu", "--max-len-b", 5)
    for mode, sentences in (("no-correctness", 0), ("all", 4)):
        done = run("generate", data["pairs"], *model, **in_mode(mode))
        assert done.out.count("\nH-") == sentences, done.err
