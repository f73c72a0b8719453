"""fairseq's own multilingual tasks train our models, and start from published ones."""

import pytest
import torch

from diet_fairseq import Translator
from tests.support import commands, published
from tests.support.texts import sentences, write


def prepare(model, folder):
    """Binarised data of one direction, by the dictionary of the model."""
    source, target = model.pairs[0]
    for split, size in (("train", 40), ("valid", 5)):
        for language, seed in ((source, size), (target, size + 1)):
            texts = sentences(size, seed=seed)
            lines = [" ".join(model.pieces.encode(text, out_type=str)) for text in texts]
            write(folder / f"{split}.{language}", lines)
    words = [f"--{side}dict={path}" for side, path in model.dictionaries((source, target)).items()]
    done = commands.run(
        "preprocess", f"-s={source}", f"-t={target}", f"--trainpref={folder / 'train'}",
        f"--validpref={folder / 'valid'}", *words, f"--destdir={folder / 'bin'}",
    )  # fmt: skip
    assert done.status == 0, done.text
    return folder / "bin"


def train(model, data, scheme, folder, *options):
    """Three updates with --finetune-from-model; the log."""
    sizes = [f"--{name.replace('_', '-')}={value}" for name, value in published.SIZES.items()]
    done = commands.run(
        "train", data, f"--arch=transformer_{scheme}", *sizes, "--share-all-embeddings",
        "--encoder-normalize-before", "--decoder-normalize-before", "--optimizer=adam", "--cpu",
        "--lr=0.001", "--max-tokens=400", "--max-update=3", "--num-workers=0",
        f"--finetune-from-model={model.checkpoint}", f"--save-dir={folder}", *options,
    )  # fmt: skip
    assert done.status == 0, done.text[-3000:]
    return done.text


LAYOUTS = [pytest.param(published.m2m100, "rope")]
LAYOUTS += [
    pytest.param(layout, scheme, marks=pytest.mark.slow)
    for layout, scheme in ((published.m2m100, "diet_rel"), (published.nllb, "rope"))
]


@pytest.mark.parametrize(("layout", "scheme"), LAYOUTS)
def test_a_published_model_goes_on_with_other_positions(layout, scheme, tmp_path):
    model = layout(tmp_path / "published")
    data = prepare(model, tmp_path)
    task = [word for word in model.task if not word.startswith(("--fixed", "--lang-pairs"))]
    source, target = model.pairs[0]
    pairs = f"--lang-pairs={source}-{target}"
    langs = ["--langs=de,en,fr"] if layout is published.m2m100 else []
    train(model, data, scheme, tmp_path / "run", *task, *langs, pairs)
    name = "encoder.embed_tokens.weight"
    before = torch.load(model.checkpoint, weights_only=False)["model"][name]  # this test wrote it
    # three updates, each of about the learning rate
    assert (commands.saved_tensors(tmp_path / "run")[name] - before).abs().max() < 0.01
    translator = Translator(
        tmp_path / "run" / "checkpoint_last.pt", data=data, subwords=model.subwords,
        source_lang=source, target_lang=target,
    )  # fmt: skip
    assert source in translator.targets[target]
    texts = sentences(3)
    assert translator.translate(texts) != [""] * 3


@pytest.mark.slow
def test_a_language_is_added_to_m2m100(tmp_path):
    model = published.m2m100(tmp_path / "published")
    data = prepare(model, tmp_path)
    log = train(
        model, data, "rope", tmp_path / "run", "--task=translation_multi_simple_epoch",
        "--langs=de,en,fr,nl", "--lang-pairs=en-de", "--encoder-langtok=src", "--decoder-langtok",
        "--new-rows-from=__de__",
    )  # fmt: skip
    assert "tokens, from __nl__ on; new rows are copies of __de__" in log
    translator = Translator(
        tmp_path / "run" / "checkpoint_last.pt", data=data, subwords=model.subwords,
        source_lang="en", target_lang="de",
    )  # fmt: skip
    assert translator.targets["en"] == ["de", "fr", "nl"]
    assert translator.translate(sentences(2), target_lang="de") != [""] * 2
