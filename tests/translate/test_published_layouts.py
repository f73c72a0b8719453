"""Checkpoints in published layouts are translated, exported and trained on with other positions."""

import math
import re
import shutil

import pytest

from diet_fairseq import Translator
from diet_fairseq.cli import main
from diet_fairseq.text.whitespace import normalise
from tests.support import commands, published
from tests.support.texts import sentences, write

pytestmark = pytest.mark.slow

TEXTS = sentences(4, seed=5)
TRANSLATION = [
    published.wmt16, published.wmt19, published.nllb, published.mbart, published.multilingual,
    published.indictrans2,
]  # fmt: skip


def layouts(*slow):
    return [published.m2m100, *commands.slow(slow)]


@pytest.fixture(scope="module")
def model(request, tmp_path_factory):
    model = request.param(tmp_path_factory.mktemp("published"))
    published.import_package(model)
    return model


translation_models = pytest.mark.parametrize(
    "model", layouts(*TRANSLATION), indirect=True, ids=lambda layout: layout.__name__
)


def generate(model, pair, folder):
    """What stock fairseq-generate prints of both hypotheses: score and text of each."""
    source, target = model.sides or pair
    for language in (source, target):
        lines = [model.mark(model.encode(text), pair) for text in TEXTS]
        write(folder / f"test.{language}", lines)
    names = [f"--{kind}dict={name}" for kind, name in model.dictionaries((source, target)).items()]
    binary = folder / "-".join(pair)
    done = commands.run(
        "preprocess", f"-s={source}", f"-t={target}", f"--testpref={folder / 'test'}", *names,
        f"--destdir={binary}", plugin=False,
    )  # fmt: skip
    assert done.status == 0, done.text
    for dictionary in model.folder.glob("dict.*.txt"):  # a task may need those of all languages
        shutil.copyfile(dictionary, binary / dictionary.name)
    done = commands.run(
        "generate", binary, *model.task, f"-s={source}", f"-t={target}",
        f"--path={model.checkpoint}", "--beam=2", "--nbest=2", "--batch-size=1",
        "--required-batch-size-multiple=1", "--max-len-a=1", "--max-len-b=50", "--cpu",
        plugin=False, first=published.repair_stock_fairseq,
    )  # fmt: skip
    assert done.status == 0, done.text
    lines = re.findall(r"^H-(\d+)\t(\S+)\t(.*)$", done.out, re.MULTILINE)
    lines.sort(key=lambda line: int(line[0]))
    tags = re.compile(r"__\w+__|\[\w+\]|<mask>")
    decoded = [normalise(model.decode(tags.sub("", line[2]))) for line in lines]
    scores = [float(score) * math.log(2) for _, score, _ in lines]
    return scores, decoded


@translation_models
def test_both_engines_translate_as_fairseq_generate_does(model, tmp_path):
    first = model.pairs[0]
    translator = Translator(model.path, **model.options(first))
    words = ["export", "ctranslate2", str(model.path), str(tmp_path / "exported")]
    assert main([*words, *model.flags(first)]) == 0
    exported = Translator(tmp_path / "exported")
    assert (exported.source_lang, exported.target_lang) == first
    assert exported.targets == translator.targets
    outputs = []
    for source, target in model.pairs:
        scores, texts = generate(model, (source, target), tmp_path)
        # CTranslate2 renormalises the first step, which must not be an end (`CTranslate2Engine`)
        for engine, tolerance in ((translator, 1e-3), (exported, 2e-2)):
            candidates = engine.candidates(
                TEXTS, beam=2, nbest=2, source_lang=source, target_lang=target
            )
            ours = [candidate for line in candidates for candidate in line]
            assert [candidate.text for candidate in ours] == texts
            assert [candidate.score for candidate in ours] == pytest.approx(scores, abs=tolerance)
        assert len(set(texts)) > 1
        outputs.append(texts)
    assert outputs[0] != outputs[-1] or len(outputs) == 1


@pytest.mark.parametrize(
    "model", [published.wmt16, published.wmt19], indirect=True, ids=lambda layout: layout.__name__
)
def test_transformers_translates_the_same_without_tags(model, tmp_path):
    transformers = pytest.importorskip("transformers")
    first = model.pairs[0]
    words = ["export", "hf", str(model.path), str(tmp_path / "hf"), *model.flags(first)]
    translator = Translator(model.path, **model.options(first))
    assert main(words) == 0
    exported = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "hf")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    inputs = tokenizer(TEXTS, return_tensors="pt", padding=True)
    outputs = tokenizer.batch_decode(
        exported.generate(**inputs, num_beams=1), skip_special_tokens=True
    )
    ours = translator.translate(TEXTS, beam=1)
    # random translations hardly end, and the limits differ
    assert [text.split()[:30] for text in outputs] == [text.split()[:30] for text in ours]
    assert len(set(outputs)) > 1
