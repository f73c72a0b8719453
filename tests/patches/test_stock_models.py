"""fairseq's own models: the plugin changes what the rows of the kind data name, and no more."""

import json
import re
from functools import partial

import pytest
import torch

from diet_fairseq import checkpoints
from tests.support import commands
from tests.support.commands import run, set_environment, without_protection

#: no row of the kind data acts on these runs: every batch size is allowed
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


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Sentence pairs with one dictionary, which BART needs, and documents."""
    pairs, texts = (tmp_path_factory.mktemp(name) for name in ("pairs", "texts"))
    commands.corpus(pairs)
    sets = [a for s in ("train", "valid", "test") for a in (f"--{s}pref", pairs / s)]
    done = run("preprocess", "-s", "de", "-t", "en", *sets, "--joined-dictionary", "--destdir",
               pairs / "joined", "--cpu")  # fmt: skip
    assert done.status == 0, done.err
    return {"pairs": pairs / "joined", "texts": commands.documents(texts)}


def in_mode(mode):
    """Without the plugin, or with it in one of its modes."""
    if mode is None:  # so that fairseq alone loads its checkpoints
        return {"plugin": False, "first": without_protection}
    return {"first": partial(set_environment, DIET_FAIRSEQ_PATCHES=mode)}


def losses(done):
    """Every loss and gradient norm that is printed."""
    lines = [json.loads(text) for text in re.findall(r"\{\"epoch\".*\}", done.text)]
    names = ("num_updates", "train_num_updates", "loss", "gnorm", "train_loss", "valid_loss")
    return [tuple(line.get(name) for name in names) for line in lines]


def trained(mode, name, data, folder, *options):
    """Losses, parameters with the optimizer's moments, and translations or a validation's loss."""
    source = data["texts" if name == "RoBERTa" else "pairs"]
    done = run("train", source, *COMMON, *MODELS[name], *options, "--save-dir", folder,
               **in_mode(mode))  # fmt: skip
    assert done.status == 0, done.err
    last = folder / "checkpoint_last.pt"
    with open(last, "rb") as file:
        state = checkpoints.read(file, "cpu")
    moments = state["last_optimizer_state"]["state"]
    tensors = {
        **state["model"],
        **{f"{n}.{k}": v for n, m in moments.items() for k, v in m.items()},
    }
    if name == "RoBERTa":
        command = ("validate", source, "--task", "masked_lm", "--criterion", "masked_lm",
                   "--batch-size", 8, "--log-format", "json")  # fmt: skip
    else:
        command = ("generate", source, "--gen-subset", "valid", "--beam", 3, "--max-len-b", 5)
    done = run(*command, "--path", last, "--cpu", "--num-workers", 0, *options, **in_mode(mode))
    assert done.status == 0, done.err
    lines = [line for line in done.out.splitlines() if line.startswith(("H-", "P-"))]
    results = lines or re.findall(r'"valid_loss": "[\d.]+"', done.text)
    assert results
    return losses(done), tensors, results


def assert_same(one, other):
    assert one[0] == other[0]
    assert one[2] == other[2]
    assert one[1].keys() == other[1].keys()
    for name, value in one[1].items():
        equal = torch.equal(value, other[1][name]) if torch.is_tensor(value) else (
            value == other[1][name])  # fmt: skip
        assert equal, name


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_without_rows_of_data_stock_models_are_as_without_the_plugin(name, data, tmp_path):
    alone = trained(None, name, data, tmp_path / "alone")
    assert_same(trained("no-data", name, data, tmp_path / "no-data"), alone)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_where_no_row_of_data_acts_stock_models_are_the_same(name, data, tmp_path):
    alone = trained(None, name, data, tmp_path / "alone", *EVERY_SIZE)
    assert_same(trained("all", name, data, tmp_path / "all", *EVERY_SIZE), alone)


def test_every_sentence_is_translated_but_without_rows_of_data(data, tmp_path):
    """The test set has four sentences: fairseq drops a last batch of fewer than eight."""
    done = run("train", data["pairs"], *COMMON, *MODELS["transformer"], "--save-dir", tmp_path)
    assert done.status == 0, done.err
    model = ("--path", tmp_path / "checkpoint_last.pt", "--cpu", "--max-len-b", 5)
    for mode, sentences in ((None, 0), ("no-data", 0), ("all", 4)):
        done = run("generate", data["pairs"], *model, **in_mode(mode))
        assert done.out.count("\nH-") == sentences, done.err
