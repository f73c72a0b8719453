"""Our models start from published ones, by fairseq's own tasks."""

import shutil
from itertools import cycle

import pytest
import torch

from diet_fairseq import Translator
from tests.support import commands, published
from tests.support.texts import sentences, write

pytestmark = pytest.mark.slow


def prepare(model, folder):
    """Binarised data of one direction, by the dictionary of the model."""
    pair = model.pairs[0]
    source, target = model.sides or pair
    for split, size in (("train", 40), ("valid", 5)):
        for language, seed in ((source, size), (target, size + 1)):
            lines = [model.mark(model.encode(text), pair) for text in sentences(size, seed=seed)]
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
        "train", data, f"--arch=transformer_{scheme}", *sizes, "--optimizer=adam", "--cpu",
        "--lr=0.001", "--max-tokens=400", "--max-update=3", "--num-workers=0",
        f"--finetune-from-model={model.checkpoint}", f"--save-dir={folder}", *options,
    )  # fmt: skip
    assert done.status == 0, done.text[-3000:]
    return done.text


LAYOUTS = [
    published.m2m100, published.nllb, published.mbart, published.multilingual, published.wmt16,
    published.wmt19, published.indictrans2,
]  # fmt: skip
SWAPS = [*zip(LAYOUTS, cycle(("rope", "diet_rel")), strict=False)]


@pytest.mark.parametrize(
    ("layout", "scheme"),
    [SWAPS[0], *(pytest.param(*swap, marks=pytest.mark.slow) for swap in SWAPS[1:])],
)
def test_a_published_model_goes_on_with_other_positions(layout, scheme, tmp_path):
    model = layout(tmp_path / "published")
    data = prepare(model, tmp_path)
    source, target = model.sides or model.pairs[0]
    names = () if "--lang-pairs" in " ".join(model.training) else (f"-s={source}", f"-t={target}")
    train(model, data, scheme, tmp_path / "run", *model.training, *names)
    before = torch.load(model.checkpoint, weights_only=False)["model"]  # this test wrote it
    [name] = [name for name in before if name.endswith("encoder.embed_tokens.weight")][:1]
    after = commands.saved_tensors(tmp_path / "run")["encoder.embed_tokens.weight"]
    # three updates, each of about the learning rate
    assert 0 < (after - before[name]).abs().max() < 0.01
    if model.sides:  # IndicTrans2's model.json describes the new checkpoint, too
        shutil.copyfile(tmp_path / "run" / "checkpoint_last.pt", model.checkpoint)
        translator = Translator(model.path)
    else:
        path = tmp_path / "run" / "checkpoint_last.pt"
        translator = Translator(path, **model.options(model.pairs[0]) | {"data": data})
    first = model.pairs[0]
    assert first[1] in translator.targets[first[0]]
    texts = sentences(3)
    assert translator.translate(texts) != [""] * 3


@pytest.mark.parametrize(
    ("layout", "languages", "copied", "tag"),
    [
        (published.m2m100, "de,en,fr,nl", "__de__", "__nl__"),
        (published.mbart, "ar_AR,cs_CZ,en_XX,ro_RO,nl_XX", "[ro_RO]", "[nl_XX]"),  # before <mask>
    ],
)
def test_a_language_is_added(layout, languages, copied, tag, tmp_path):
    model = layout(tmp_path / "published")
    data, pair = prepare(model, tmp_path), model.pairs[0]
    names = [f"-s={pair[0]}", f"-t={pair[1]}"] if layout is published.mbart else []
    log = train(
        model, data, "rope", tmp_path / "run", *model.training, *names, f"--langs={languages}",
        f"--new-rows-from={copied}",
    )  # fmt: skip
    assert f"tokens, from {tag} on; new rows are copies of {copied}" in log
    options = model.options(pair) | {"data": data}
    translator = Translator(tmp_path / "run" / "checkpoint_last.pt", **options)
    if layout is published.m2m100:
        assert translator.targets["en"] == ["de", "fr", "nl"]
    assert translator.translate(sentences(2)) != [""] * 2


@pytest.mark.parametrize(
    ("layout", "scheme"), [(published.roberta, "rope"), (published.xlmr, "diet_rel")]
)
def test_a_published_encoder_goes_on_with_other_positions_and_new_tokens(layout, scheme, tmp_path):
    model = layout(tmp_path / "published")
    language = tmp_path / "bin" / "en" if layout is published.xlmr else tmp_path / "bin"
    dictionary = tmp_path / "dict.txt"
    dictionary.write_text((model.folder / "dict.txt").read_text() + "new 1\n")
    for split, size in (("train", 40), ("valid", 5)):
        write(tmp_path / split, [model.encode(text) for text in sentences(size)])
    done = commands.run(
        "preprocess", "--only-source", f"--trainpref={tmp_path / 'train'}",
        f"--validpref={tmp_path / 'valid'}", f"--srcdict={dictionary}", f"--destdir={language}",
    )  # fmt: skip
    assert done.status == 0, done.text
    shutil.copyfile(dictionary, tmp_path / "bin" / "dict.txt") if language.name == "en" else None
    sizes = [f"--{name.replace('_', '-')}={value}" for name, value in published.SIZES.items()
             if name.startswith("encoder")]  # fmt: skip
    done = commands.run(
        "train", tmp_path / "bin", *model.training, f"--arch=roberta_{scheme}", *sizes, "--cpu",
        "--criterion=masked_lm", "--tokens-per-sample=32", "--optimizer=adam", "--lr=0.001",
        "--batch-size=8", "--max-update=3", "--num-workers=0", "--sample-break-mode=eos",
        f"--finetune-from-model={model.checkpoint}", f"--save-dir={tmp_path / 'run'}",
    )  # fmt: skip
    assert done.status == 0, done.text[-3000:]
    assert "the dictionary grows from" in done.text
    assert "tokens, from new on; new rows are random" in done.text
    before = torch.load(model.checkpoint, weights_only=False)["model"]  # this test wrote it
    [old] = [table for name, table in before.items() if name.endswith("embed_tokens.weight")]
    new = commands.saved_tensors(tmp_path / "run")["encoder.sentence_encoder.embed_tokens.weight"]
    # three updates, each of about the learning rate; <mask> is the last row of both
    assert (torch.cat([new[:-2], new[-1:]]) - old).abs().max() < 0.01
