"""The key `start`: a config adapts a model that exists."""

import random
import re
import shutil
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from transformers import MarianMTModel, MarianTokenizer

from diet_fairseq import Translator
from diet_fairseq.__main__ import main
from diet_fairseq.text.lines import read_lines
from diet_fairseq.translate.directions import SOURCE, Directions, Framing
from tests.support import hub_folders, originals, published, translating
from tests.support.texts import sentences, write
from tests.workflows.conftest import EXAMPLES, M2M, Experiment, script, write_corpus

encode = script("scripts/encode")

#: name -> a function that writes the model into a folder, the key `start`, the words of its text
STARTS = {
    "marian": (lambda folder: originals.marian(folder, True, 100, d_model=32),
               "model", originals.TEXT),
    "nllb": (hub_folders.nllb_4, "model", originals.TEXT),
    "mbart50": (hub_folders.mbart50, "model", originals.TEXT),
    "m2m": (published.m2m100, M2M, sentences(50)),
    "run": (
        lambda folder: translating.untrained(folder, "--arch=transformer_diet_rel_tiny"),
        "model", sentences(50),
    ),
}  # fmt: skip


class Adaptation(Experiment):
    """A training that changes nothing."""

    tiny: ClassVar = {
        "folder": "out", "languages": ["en", "de"], "train": "text/train", "valid": "text/valid",
        "test": "text/test", "updates": 1, "learning_rate": 0, "batch": 200, "threads": 1,
        "precision": "float32",
    }  # fmt: skip


def write_start(folder: Path, name: str) -> Adaptation:
    """A folder with a model, text that it can read, and a config."""
    make, start, text = STARTS[name]
    make(folder / "model")
    if name == "marian":
        (folder / "model/README.md").write_text("---\nlicense: cc-by-4.0\n---\n# A model\n")
    words, draw = " ".join(text).split(), random.Random(1)
    (folder / "text").mkdir()
    for split, size in (("train", 30), ("valid", 5), ("test", 8)):
        for lang in ("en", "de"):
            lines = [" ".join(draw.choices(words, k=draw.randint(1, 5))) for _ in range(size)]
            if split == "test":
                lines[4] = ""
            write(folder / "text" / f"{split}.{lang}", lines)
    return Adaptation(folder, start=start)


@pytest.fixture(scope="session")
def adapted(make_once):
    """A function that adapts a start, by its name, once."""

    def adapt(name: str) -> Adaptation:
        def make(folder: Path) -> None:
            folder.mkdir()
            write_start(folder, name).made()

        folder = make_once(f"adapted-{name}", make)
        return Adaptation(folder, start=STARTS[name][1])

    return adapt


@pytest.mark.slow
@pytest.mark.parametrize("name", STARTS)
def test_a_training_at_rate_0_translates_as_before(adapted, name):
    experiment = adapted(name)
    before, after = experiment.folder / "out/start", experiment.path("out/runs/*")
    files = [folder / "evaluation-test/translations.txt" for folder in (before, after)]
    assert files[0].read_text() == files[1].read_text()
    lines = list(read_lines(experiment.folder / "text/test.en"))
    translations = [
        Translator(folder).translate(lines)
        for folder in (before, after, experiment.folder / "out/results/best")
    ]
    assert translations[0] == translations[1] == translations[2]
    assert len({*translations[0]}) > 2
    assert translations[0][4] == ""
    if name == "run":  # the others are imported
        assert Translator(experiment.folder / "model").translate(lines) == translations[0]
    if name == "m2m":
        options = {key: experiment.folder / M2M[key] for key in ("data", "subwords")}
        model = Translator(
            experiment.folder / M2M["checkpoint"], source_lang="en", target_lang="de", **options
        )
        assert model.translate(lines) == translations[0]
    table = (experiment.folder / "out/results/table.md").read_text()
    assert re.findall(r"^\| (as it was|start) \|", table, re.MULTILINE) == ["as it was", "start"]
    assert "| BLEU against as it was, all seeds |" in table
    assert table.count("| +0.00 | +0.00 (p = 1.000) |") == 1


@pytest.mark.slow
def test_a_moved_start_trains_nothing_anew_and_a_changed_one_does(adapted, tmp_path):
    finished = adapted("run").folder
    shutil.copytree(finished, tmp_path / "copy", copy_function=shutil.copy2, symlinks=True)
    (tmp_path / "copy/model").rename(tmp_path / "copy/moved")
    experiment = Adaptation(tmp_path / "copy", start="moved")
    assert "Nothing to be done" in experiment.planned()
    [run] = experiment.folder.glob("out/runs/*")
    dictionary = experiment.folder / "moved/dict.en.txt"
    dictionary.write_text(dictionary.read_text().replace(" 9", " 8"))
    output = experiment.planned()
    [changed] = set(re.findall(r"out/runs/(\S+)/trained", output))
    assert changed != run.name
    assert re.search(r"^start +1$", output, re.MULTILINE)


@pytest.mark.slow
def test_a_trimmed_start_learns_a_new_language(tmp_path):
    experiment = write_start(tmp_path, "nllb")
    for path in [*tmp_path.glob("text/*.de")]:
        path.rename(path.with_suffix(".bar"))
    experiment.configure(
        start="model", languages=["en", "bar"], new_languages={"bar": "deu_Latn"},
        vocabulary="trim", updates=20, learning_rate=0.005, warmup=2, save_interval=5,
    )  # fmt: skip
    experiment.made()
    log = (tmp_path / "out/logs/start.log").read_text()
    before, after = re.findall(r"vocabulary (?:before|after): (\d+) tokens", log)
    assert int(after) < int(before)
    lines = list(read_lines(tmp_path / "text/test.en"))
    best = tmp_path / "out/results/best"
    texts = Translator(best, target_lang="bar").translate(lines)
    assert len(texts) == len(lines)
    assert not any("bar" in text for text in texts)  # no tag
    log = (experiment.path("out/runs/*") / "train.log").read_text()
    losses = [float(loss) for loss in re.findall(r'"valid_loss": "([\d.]+)"', log)]
    assert losses[-1] < losses[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["marian", "run"])
def test_an_adapted_model_translates_in_ctranslate2_and_keeps_its_licence(adapted, tmp_path, name):
    folder, exported = adapted(name).folder, tmp_path / "exported"
    best = folder / "out/results/best"
    lines, texts = list(read_lines(folder / "text/test.en")), []
    for model in (folder / "out/start", best):
        main(["export", "ctranslate2", str(model), str(exported / model.name)])
        texts.append(Translator(exported / model.name).translate(lines))
    assert texts[0] == texts[1]
    main(["export", "hf", str(best), str(exported / "hf")])
    card = (exported / "hf/README.md").read_text()
    assert ("license: cc-by-4.0" in card) == (name == "marian")


@pytest.mark.slow
def test_an_imported_start_is_exported_to_its_class_again(adapted, tmp_path):
    folder, exported = adapted("marian").folder, tmp_path / "original"
    main(["export", "hf", str(folder / "out/results/best"), str(exported), "--original"])
    before, after = (MarianMTModel.from_pretrained(path) for path in (folder / "model", exported))
    lines = list(read_lines(folder / "text/test.en"))[:4]
    texts = []
    for path, model in ((folder / "model", before), (exported, after)):
        tokenizer = MarianTokenizer.from_pretrained(path)
        inputs = tokenizer(lines, return_tensors="pt", padding=True)
        texts.append(tokenizer.batch_decode(model.generate(**inputs, max_length=20)))
    assert texts[0] == texts[1]
    for name, tensor in before.state_dict().items():
        torch.testing.assert_close(after.state_dict()[name], tensor, rtol=0, atol=1e-6)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"vocabulary": 300},
            "config.vocabulary must not be set beside start, whose vocabulary stays or is trimmed",
        ),
        ({"sizes": ["tiny"]}, "config.sizes must not be set beside start, whose size stays, but "),
        (
            {"subwords": "sentencepiece"},
            "config.subwords must not be set beside start, whose subwords split the text, but is ",
        ),
        ({"start": None}, "config.learning_rate must be above 0 without start, but is 0"),
        ({"start": "nosuch"}, "config.start: nosuch does not exist: give a folder of transformers"),
        ({"start": "text"}, "config.start: text has no model.json: name a folder that has one"),
        ({"start": {"data": "model"}}, "config.start lacks the keys checkpoint: add them"),
        ({"start": "."}, "config.start must lie outside of folder, ., whose content depends on it"),
        (
            {"languages": ["de", "en"]},
            "config.start: the first of languages must be one of the model's languages, en, but is",
        ),
        ({"schemes": ["stock"]}, "config.schemes.stock must name one of the schemes start, none, "),
        (
            {"schemes": {"a": "start --drpout 1"}},
            "config.schemes.a: fairseq-train has no option --drpout with --arch transformer_sinuso",
        ),
    ],
)  # fmt: skip
def test_a_config_that_a_start_does_not_fit_is_refused(tmp_path, change, message):
    write_corpus(tmp_path / "text")
    for lang in ("en", "de"):  # a plan reads no checkpoint
        shutil.copy(tmp_path / f"text/train.{lang}", tmp_path / f"train.{lang}")
    translating.words_only(tmp_path)
    experiment = Adaptation(tmp_path, start="checkpoint_last.pt")
    experiment.configure(start="checkpoint_last.pt")
    experiment.configure(**{"start": "checkpoint_last.pt"} | change)
    if change.get("start") == ".":
        experiment.configure(start=".", folder=".")
    assert experiment.refusal().startswith(message)


@pytest.mark.slow
def test_a_killed_adaptation_resumes_bit_for_bit(adapted, tmp_path):
    change = {
        "updates": 40, "save_interval": 10, "average": 1, "learning_rate": 0.001, "warmup": 4,
        "schemes": ["rope"],
    }  # fmt: skip
    checkpoints = []
    for name, is_killed in (("one", False), ("other", True)):
        folder = tmp_path / name
        shutil.copytree(adapted("run").folder, folder, copy_function=shutil.copy2, symlinks=True)
        experiment = Adaptation(folder, start="model", **change)
        if is_killed:
            pattern = "out/runs/rope-*/checkpoint_last.pt"
            experiment.kill(experiment.start_until("train", pattern, start="model", **change))
        experiment.made("--until", "train")
        path = experiment.path("out/runs/rope-*/checkpoint_last.pt")
        checkpoints.append(torch.load(path, weights_only=False))
    models = [checkpoint["model"] for checkpoint in checkpoints]
    assert models[0].keys() == models[1].keys()
    for name, tensor in models[0].items():
        assert torch.equal(tensor, models[1][name]), name


@pytest.mark.parametrize(("side", "expected"), [(0, ["<a>", "x", "☃"]), (1, ["x", "☃"])])
def test_text_that_the_vocabulary_lacks_is_counted(tmp_path, capsys, side, expected):
    translating.words_only(
        tmp_path,
        directions=Directions({"en": "<a>", "de": "<b>"}, framing=Framing(source_prefix=(SOURCE,))),
    )
    for lang in ("en", "de"):
        (tmp_path / f"dict.{lang}.txt").write_text("x 1\n<a> 1\n<b> 1\n")
    text = encode.StartText(tmp_path, side, longest=9)
    assert [*text.mark([["x", "☃"], []])] == [expected, []]
    text.report("text")
    assert capsys.readouterr().out == (
        "warning: text: 1 of 2 lines have text that the start's vocabulary lacks, which becomes "
        "<unk>: ☃ (1)\n"
    )


def test_configs_without_a_start_keep_the_folders_of_their_runs(tmp_path):
    (tmp_path / "examples").symlink_to(EXAMPLES)
    experiment = Experiment(tmp_path)
    (tmp_path / "config.yaml").write_text((EXAMPLES / "demo/config.yaml").read_text())
    assert "demo/runs/diet_rel-tiny-s1-u650-5bb025cd/trained" in experiment.planned()
