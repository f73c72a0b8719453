"""New languages of multilingual models start as copies, and the others translate as before."""

from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")
from diet_fairseq import Translator
from diet_fairseq.errors import UserError
from diet_fairseq.translate.model_json import read_model_json
from diet_fairseq.vocabulary import add_languages
from tests.hf.conftest import take_back
from tests.support import commands, hub_folders, originals, published, translating
from tests.support.pages import Block, run_block
from tests.support.texts import sentences, write
from tests.test_vocabulary import ARCH, describe, forbid, group_tied, load

TEXT = sentences(4, seed=5)
LAYOUTS = [published.m2m100]
LAYOUTS += commands.slow([published.nllb, published.multilingual, published.indictrans2])
TAGS = {
    "m2m100": "__tyv__",
    "nllb": "__tyv_Latn__",
    "multilingual": "__tyv__",
    "indictrans2": "tyv_Deva",
}


def forbid_tags(folder: Path) -> None:
    """Make the tags' probability 0, as in trained models, which never write a tag."""
    loaded, (words, _) = load(folder)
    forbid(folder, [words.index(tag) for tag in loaded.description.directions.tags.values()])


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
def test_a_new_language_is_a_copy_and_the_others_translate_as_before(layout, tmp_path):
    model = layout(tmp_path / "model")
    published.import_package(model)
    folder, out = describe(model), tmp_path / "out"
    if layout in (published.m2m100, published.nllb):
        forbid_tags(folder)
    source, copied = model.pairs[0]
    new = "_".join(["tyv", *copied.split("_")[1:]])
    add_languages(folder, out, {new: copied})
    tag = TAGS[layout.__name__]
    (old_model, old_words), (new_model, new_words) = load(folder), load(out)
    directions = new_model.description.directions
    assert directions.tags == {**old_model.description.directions.tags, new: tag}
    assert directions.targets[source] == [*old_model.description.directions.targets[source], new]
    ends_in_mask = old_words[0].symbols[-1] == "<mask>"
    assert new_words[0].symbols[-1 - ends_in_mask] == tag
    assert (tag in new_words[1].indices) == (layout is not published.indictrans2)
    row = new_model.model.encoder.embed_tokens.weight[new_words[0].index(tag)]
    copied_tag = directions.tags[copied]
    old_row = old_model.model.encoder.embed_tokens.weight[old_words[0].index(copied_tag)]
    assert torch.equal(row, old_row)
    assert group_tied(old_model.path) == group_tied(new_model.path)

    before, after = Translator(folder, max_len_b=8), Translator(out, max_len_b=8)
    for pair in model.pairs:
        options: dict[str, Any] = dict(zip(("source_lang", "target_lang"), pair, strict=True))
        theirs = after.translate(TEXT, **options)
        assert any(theirs)
        if layout is not published.multilingual:  # whose tags have a probability
            assert before.translate(TEXT, **options) == theirs
        if pair[1] == copied:
            assert after.translate(TEXT, **options | {"target_lang": new}) == theirs
        if pair[0] == copied:
            assert after.translate(TEXT, **options | {"source_lang": new}) == theirs


IMPORTS = {
    "nllb": (originals.nllb, "deu_Latn", "tyv_Latn"),
    "m2m_100": (originals.m2m_100, "de", "tyv"),
    "mbart": (originals.mbart, "de_DE", "tyv_RU"),
    "mbart50": (hub_folders.mbart50, "de_DE", "tyv_RU"),
    "marian": (originals.marian, "deu", "gos"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", IMPORTS)
def test_an_imported_model_gets_a_new_language(name, tmp_path):
    build, copied, new = IMPORTS[name]
    changes = {"languages": ("deu", "nld")} if name == "marian" else {}
    folder, out = tmp_path / "imported", tmp_path / "out"
    take_back(build(tmp_path / "folder", **changes), folder)
    forbid_tags(folder)
    add_languages(folder, out, {new: copied})
    assert {path.name for path in folder.iterdir()} - {path.name for path in out.iterdir()} == {
        "original"
    }
    source = read_model_json(folder).source_lang
    lines = [line for line, _ in originals.sentence_pairs(5, seed=3)]
    before, after = Translator(folder, max_len_b=8), Translator(out, max_len_b=8)
    theirs = before.translate(lines, source_lang=source, target_lang=copied)
    assert after.translate(lines, source_lang=source, target_lang=copied) == theirs
    assert after.translate(lines, source_lang=source, target_lang=new) == theirs


def test_refused_languages_are_named_and_leave_nothing(tmp_path):
    folder = describe(published.m2m100(tmp_path / "model"))

    def refuse(languages, model=folder):
        with pytest.raises(UserError) as error:
            add_languages(model, tmp_path / "out", languages)
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith("out")] == []
        return str(error.value)

    assert refuse({"tyv": "ru"}) == (
        f"a new language must start as a language whose tag {folder} has, de, en, fr, but tyv "
        "starts as ru: give one of these"
    )
    assert refuse({"de": "en"}) == f"{folder} already has the language de: leave it out"
    for code in ("zz", "x y", "../de"):
        assert refuse({code: "en"}) == (
            f"a new language must be a language's code such as tyv_Cyrl, but is {code!r}: give its "
            "code by ISO 639, with its script if the model's codes have one"
        )
    dictionary = folder / "dict.txt"
    text = dictionary.read_text()
    first = text.split()[0]
    dictionary.write_text(text.replace(first, "__tyv__", 1))
    assert refuse({"tyv": "en"}) == (
        f"the vocabulary of {folder} already has the token __tyv__, which would be the tag of tyv: "
        "give another code"
    )
    mbart = describe(published.mbart(tmp_path / "mbart"))
    assert refuse({"tyv_RU": "ro_RO"}, mbart) == (
        f"{mbart} ends translations with the target language's tag, and a copy of this tag would "
        "take half of its probability: new languages need a model that ends with </s>"
    )
    bilingual = translating.untrained(tmp_path / "bilingual", *ARCH)
    assert refuse({"tyv": "en"}, bilingual) == (
        f"{bilingual} has no language tags, so a new language can't have one: new languages need a "
        "multilingual model"
    )


TRAIN = """
fairseq-preprocess -s eng -t new --trainpref train --validpref valid --destdir bin \
    --srcdict out/dict.txt --tgtdict out/dict.txt
fairseq-train bin --user-dir diet_fairseq --arch transformer_sinusoidal \
    --finetune-from-model out/model.pt $(cat out/options.txt) --optimizer adam --lr 0.002 \
    --criterion label_smoothed_cross_entropy --max-tokens 400 --max-update 60 --cpu \
    --save-dir trained --no-progress-bar
cp out/model.json out/dict.txt out/sentencepiece.model trained
mv trained/checkpoint_last.pt trained/model.pt
"""


@torch.no_grad()
def measure_loss(folder: Path, pairs, target: str) -> float:
    """The mean loss in nats of the tokens of translations from English."""
    loaded, (words, _) = load(folder)
    tokenizer, directions = loaded.description.tokenizers[0], loaded.description.directions
    losses = []
    for source, translation in pairs:
        inputs = [directions.tags["eng_Latn"], *tokenizer.encode(source), "</s>"]
        outputs = ["</s>", directions.tags[target], *tokenizer.encode(translation), "</s>"]
        ids, labels = (torch.tensor([[words.index(t) for t in row]]) for row in (inputs, outputs))
        logits, _ = loaded.model(ids, torch.tensor([ids.numel()]), labels[:, :-1])
        losses.append(torch.nn.functional.cross_entropy(logits[0, 1:], labels[0, 2:]))
    return float(torch.stack(losses).mean())


@pytest.mark.slow
def test_a_new_language_learns_and_the_old_direction_stays(tmp_path):
    """Copies of the English sentences are the text in the new language."""
    folder = originals.nllb(
        tmp_path / "folder", updates=150, languages=("eng_Latn", "deu_Latn"), d_model=32
    )
    take_back(folder, tmp_path / "imported")
    add_languages(tmp_path / "imported", tmp_path / "out", {"nds_Latn": "deu_Latn"})

    def copy(pairs):
        return [(source, source) for source, _ in pairs]

    tokenizer = read_model_json(tmp_path / "out").tokenizers[0]
    for part, count in (("train", 150), ("valid", 10)):
        german = originals.sentence_pairs(count, seed=count)
        pairs = [(pair, "deu_Latn") for pair in german]
        pairs += [(pair, "nds_Latn") for pair in copy(german)]
        for side, name in enumerate(("eng", "new")):
            lines = [
                " ".join([("eng_Latn", tag)[side], *tokenizer.encode(pair[side])])
                for pair, tag in pairs
            ]
            write(tmp_path / f"{part}.{name}", lines)
    run_block(Block("run", "sh", TRAIN), tmp_path)

    test = originals.sentence_pairs(20, seed=7)
    german, new = (
        [
            measure_loss(tmp_path / name, pairs, target)
            for name in ("imported", "out", "trained")
            if target == "deu_Latn" or name != "imported"
        ]
        for target, pairs in (("deu_Latn", test), ("nds_Latn", copy(test)))
    )
    assert german[0] == pytest.approx(german[1], abs=0.01)  # the mass of a tag
    assert new[1] < 0.5 * new[0]  # the copied row's loss
    assert german[2] < german[1] + 0.2
    sources = [source for source, _ in test]
    before, after = (
        Translator(tmp_path / name).translate(
            sources, source_lang="eng_Latn", target_lang="deu_Latn"
        )
        for name in ("imported", "out")
    )
    assert before == after
