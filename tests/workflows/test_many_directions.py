"""One config trains a model of several directions, from nothing or from a model that exists."""

import json
import re
import shutil
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from pandas import DataFrame

from diet_fairseq import Translator
from diet_fairseq.__main__ import main
from diet_fairseq.errors import UserError
from diet_fairseq.text.lines import read_lines
from tests.support import hub_folders, originals, published
from tests.support.texts import sentences, write
from tests.workflows.conftest import M2M, Experiment, script
from tests.workflows.test_resources import megabytes

shares, start, table = (script(f"scripts/{name}") for name in ("shares", "start", "table"))

PAIRS = ["en-de", "de-en", "fi-en"]
#: languages of a direction -> the folder's file of its test sources
SOURCES = {tuple(pair.split("-")): f"text/test.{pair[:2]}" for pair in PAIRS}


class ManyDirections(Experiment):
    """Three directions between three languages; English and Finnish have less text."""

    tiny: ClassVar = Experiment.tiny | {
        "pairs": PAIRS,
        "train": [
            {"file": "text/{pair}.{lang}", "pairs": ["de-en"]},
            {"file": "text/fi", "pairs": ["fi-en"]},
        ],
        "valid": "text/valid",
        "test": {"flores": "text/test"},
        "inputs": {"some": {"file": "text/test.fi", "pair": "fi-en"}},
        "updates": 60,
        "save_interval": 15,
        "temperature": 2,
    }  # fmt: skip
    del tiny["languages"]


def write_texts(folder: Path, shared_data: Path | None) -> None:
    """Sentences of FLORES in three languages, or sentences that mean nothing."""
    (folder / "text").mkdir(parents=True)
    for number, lang in enumerate(("en", "de", "fi")):
        lines = sentences(300, seed=number)
        if shared_data:
            lines = list(read_lines(shared_data / "flores-dev" / f"flores-dev.{lang}"))[:300]
        write(folder / "text" / f"valid.{lang}", lines[:10])
        write(folder / "text" / f"test.{lang}", [*lines[10:16], "", *lines[16:18]])
        if lang != "fi":
            write(folder / "text" / f"en-de.{lang}", lines[20:260])
        if lang != "de":
            write(folder / "text" / f"fi.{lang}", lines[200:260])


def limit_translations(path: Path) -> None:
    """Give model.json a limit that does not depend on the other sources of a batch."""
    content = json.loads(path.read_text()) | {"max_len_a": 0.0, "max_len_b": 20}
    path.write_text(json.dumps(content))


@pytest.fixture(scope="session")
def trained(make_once, shared_data):
    """A training of several directions, killed in the middle."""

    def make(folder: Path) -> None:
        write_texts(folder, shared_data)
        experiment = ManyDirections(folder)
        experiment.kill(experiment.start_until("train", "out/runs/*/checkpoint_last.pt"))
        write(folder / "output", [experiment.made("--until", "average")])
        limit_translations(experiment.path("out/runs/*/model.json"))
        experiment.made()

    folder = make_once("many-directions", make)
    return ManyDirections(folder)


@pytest.mark.slow
def test_all_directions_are_translated_as_by_fairseq_generate(trained, tmp_path):
    folder = trained.folder
    run, best = trained.path("out/runs/*"), folder / "out/results/best"
    main(["export", "ctranslate2", str(best), str(tmp_path / "exported")])
    seen: set[str] = set()
    for source, target in SOURCES:
        lines = list(read_lines(folder / SOURCES[source, target]))
        file = run / f"evaluation-flores.{source}-{target}/translations.txt"
        expected = list(read_lines(file))
        seen |= {*expected}
        assert expected[6] == ""
        assert not any("__" in line for line in expected)
        for model in (best, tmp_path / "exported"):
            translations = Translator(model).translate(
                lines, source_lang=source, target_lang=target, split_sentences=False
            )
            assert translations == expected, model
    assert (run / "input-some.txt").read_text() == file.read_text()  # fi-en is the last direction
    assert len(seen) > 2


@pytest.mark.slow
def test_the_command_translates_each_direction_of_a_trained_folder(trained, capsys):
    folder, run = trained.folder, trained.path("out/runs/*")
    for source, target in SOURCES:
        words = ["translate", str(folder / "out/results/best"), "--split-sentences", "no"]
        words += ["--source-lang", source, "--target-lang", target]
        main([*words, str(folder / SOURCES[source, target])])
        expected = run / f"evaluation-flores.{source}-{target}/translations.txt"
        assert capsys.readouterr().out == expected.read_text()


@pytest.mark.slow
def test_the_service_has_the_directions_of_a_trained_folder_alone(trained):
    pytest.importorskip("starlette", reason="needs diet_fairseq[serve]")
    from starlette.testclient import TestClient

    from diet_fairseq.translate.service.app import application
    from diet_fairseq.translate.service.requests import Limits

    folder, run = trained.folder, trained.path("out/runs/*")
    translator = Translator(folder / "out/results/best", split_sentences=False)
    assert translator.targets == {"en": ["de"], "de": ["en"], "fi": ["en"]}
    with TestClient(application(translator, Limits(), ["testserver"])) as client:
        languages = client.get("/languages").json()
        assert {row["code"]: row["targets"] for row in languages} == translator.targets
        for source, target in SOURCES:
            lines = list(read_lines(folder / SOURCES[source, target]))
            answer = client.post(
                "/translate", json={"q": lines, "source": source, "target": target}
            )
            expected = run / f"evaluation-flores.{source}-{target}/translations.txt"
            assert answer.json()["translatedText"] == list(read_lines(expected))
        answer = client.post("/translate", json={"q": "Talo.", "source": "fi", "target": "de"})
        assert answer.status_code == 400
        assert "de" in answer.json()["error"]


@pytest.mark.slow
def test_shares_losses_and_scores_are_by_direction(trained):
    folder = trained.folder
    # 240, 240 and 60 pairs, of which the roots count: 15.5, 15.5 and 7.7
    assert re.search(
        r"sampled with temperature 2: en-de 40\.0% \(240 pairs\), de-en 40\.0% \(240 pairs\), "
        r"fi-en 20\.0% \(60 pairs\)",
        (folder / "output").read_text(),
    )
    log = trained.path("out/runs/*/train.log").read_text()
    losses = [
        float(re.findall(rf'"{subset}_loss": "([^"]+)"', log)[-1])
        for subset in ("valid", *(f"valid.{pair}" for pair in PAIRS))
    ]
    assert len({*losses}) == 4
    assert min(losses[1:]) < losses[0] < max(losses[1:])
    text = (folder / "out/results/table.md").read_text()
    assert (
        "## flores: BLEU by direction\n\n| model | seeds | en-de | de-en | fi-en | mean |" in text
    )
    assert [*re.findall(r"^## flores\.(\S+)$", text, re.MULTILINE)] == PAIRS
    assert (folder / "out/results/curves.png").read_bytes().startswith(b"\x89PNG")


def copy_prepared(trained: ManyDirections, folder: Path) -> ManyDirections:
    """An experiment whose next step is the training."""
    for name in ("text", "out/clean", "out/subwords", "out/encoded", "out/data-bin", ".snakemake"):
        shutil.copytree(trained.folder / name, folder / name, copy_function=shutil.copy2)
    return ManyDirections(folder)


@pytest.mark.slow
def test_memory_grows_with_the_text_of_every_pair(trained, tmp_path):
    experiment = copy_prepared(trained, tmp_path)
    small = megabytes(experiment.planned("--until", "train"), "train")
    indexes = [*(tmp_path / "out/data-bin").glob("train.*.idx")]
    assert len(indexes) == 4  # two pairs
    for index in indexes:
        index.write_bytes(bytes(12_000_000))
    assert megabytes(experiment.planned("--until", "train"), "train") == small + 2 * 200


@pytest.mark.slow
def test_a_killed_training_of_several_directions_has_seen_the_same_text(trained, tmp_path):
    experiment = copy_prepared(trained, tmp_path)
    experiment.made("--until", "train")
    models = [
        torch.load(e.path("out/runs/*/checkpoint_last.pt"), weights_only=False)["model"]
        for e in (trained, experiment)
    ]
    for name, tensor in models[0].items():
        assert torch.equal(tensor, models[1][name]), name


# --- a start

#: name -> a function that writes the model into a folder, the key `start`, its words
STARTS = {
    "nllb": (hub_folders.nllb_4, "model", originals.TEXT),
    "mbart50": (hub_folders.mbart50, "model", originals.TEXT),
    "m2m": (published.m2m100, M2M, sentences(50)),
}


class Adaptation(Experiment):
    """A training that changes nothing."""

    tiny: ClassVar = {
        "folder": "out", "train": "text/train", "valid": "text/valid", "test": "text/test",
        "updates": 1, "learning_rate": 0, "batch": 200, "threads": 1, "precision": "float32",
    }  # fmt: skip


def adapt(folder: Path, name: str, pairs: list[str], **changes: object) -> Adaptation:
    """An experiment that adapts a model of several directions to sentences of its words."""
    make, start, text = STARTS[name]
    make(folder / "model")
    (folder / "text").mkdir()
    words = " ".join(text).split()
    for language in {*"-".join(pairs).split("-")}:
        for split, size in (("train", 30), ("valid", 5), ("test", 6)):
            lines = [
                " ".join(words[(n + k * len(language)) % len(words)] for k in range(4))
                for n in range(size)
            ]
            write(folder / "text" / f"{split}.{language}", lines)
    return Adaptation(folder, start=start, pairs=pairs, **changes)


@pytest.mark.slow
@pytest.mark.parametrize("name", STARTS)
def test_a_start_at_rate_0_translates_all_directions_as_before(tmp_path, name):
    experiment = adapt(tmp_path, name, ["en-de", "de-en", "en-fr"])
    experiment.made("--until", "start")
    limit_translations(tmp_path / "out/start/model.json")
    experiment.made()
    before, after = tmp_path / "out/start", tmp_path / "out/results/best"
    seen = set()
    for source, target in (("en", "de"), ("de", "en"), ("en", "fr")):
        lines = list(read_lines(tmp_path / f"text/test.{source}"))
        translations = [
            Translator(model).translate(
                lines, source_lang=source, target_lang=target, split_sentences=False
            )
            for model in (before, after)
        ]
        file = f"out/runs/*/evaluation-test.{source}-{target}/translations.txt"
        assert list(read_lines(experiment.path(file))) == translations[0] == translations[1]
        seen.add(tuple(translations[0]))
    assert len(seen) == 3
    text = (tmp_path / "out/results/table.md").read_text()
    assert re.findall(r"^\| (as it was|start) \| 1? \|", text, re.MULTILINE) == [
        "as it was", "start", "as it was", "start"
    ]  # fmt: skip


@pytest.mark.slow
def test_a_trimmed_start_of_several_directions_keeps_these_alone(tmp_path):
    experiment = adapt(
        tmp_path, "nllb", ["en-bar", "bar-en"], new_languages={"bar": "deu_Latn"},
        vocabulary="trim", updates=10, learning_rate=0.005, warmup=2,
    )  # fmt: skip
    experiment.made("--until", "start")
    limit_translations(tmp_path / "out/start/model.json")
    experiment.made()
    translator = Translator(tmp_path / "out/results/best")
    assert translator.targets == {"eng_Latn": ["bar"], "bar": ["eng_Latn"]}
    lines = list(read_lines(tmp_path / "text/test.en"))
    expected = list(
        read_lines(experiment.path("out/runs/*/evaluation-test.en-bar/translations.txt"))
    )
    assert translator.translate(lines, target_lang="bar", split_sentences=False) == expected
    log = (tmp_path / "out/logs/start.log").read_text()
    assert log.count("first 100 lines of text/test.") == 2


def make_start(folder: Path, pairs: list[tuple[str, str]]) -> Path:
    """The folder that the step `start` makes of the folder model, without the task's files."""
    (folder / "start").mkdir()
    start.make(str(folder / "model"), pairs, folder / "start", False, {}, True)
    return folder / "start"


@pytest.mark.slow
def test_a_start_with_tags_for_targets_alone_is_refused(tmp_path):
    """OPUS-MT from one language to several marks the target."""
    pairs = [("eng", "deu"), ("eng", "fra")]
    originals.marian(tmp_path / "model", languages=["deu", "fra"])
    folder = make_start(tmp_path, pairs)
    with pytest.raises(UserError) as error:
        start.write_task(folder, folder, pairs, Path("opus"))
    assert str(error.value) == (
        "start must have a tag for every language of several directions, at most one before a "
        "source, but opus has none for eng: adapt each direction in a config of its own, or start "
        "from NLLB, M2M-100 or mBART-50"
    )
    assert not (folder / "task").exists()


@pytest.mark.slow
def test_a_start_with_other_marks_or_two_vocabularies_is_refused(tmp_path):
    pairs = [("en", "de"), ("de", "en")]
    hub_folders.nllb_4(tmp_path / "model")
    folder = make_start(tmp_path, pairs)
    content = json.loads((folder / "model.json").read_text())
    marks = content["directions"] | {"source_prefix": ["{source}", "{target}"]}  # IndicTrans2's
    subwords = content["subwords"] | {"target_model": "sentencepiece.model"}
    for change, message in (
        ({"directions": marks}, "but nllb writes {source} {target} before a source: adapt each "),
        ({"subwords": subwords}, "start must have one vocabulary for sources and targets, "
         "but nllb has two, and de is both: adapt the directions in configs of their own"),
    ):  # fmt: skip
        (folder / "model.json").write_text(json.dumps(content | change))
        with pytest.raises(UserError, match=re.escape(message)):
            start.write_task(folder, folder, pairs, Path("nllb"))


# --- configs that are refused


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"languages": ["en", "de"]},
         "config must have either languages or pairs, but has both: write "),
        ({"pairs": []}, "config must have either languages or pairs, but has neither: "),
        ({"pairs": ["en-en"]}, "config.pairs must have two languages each, but has en-en"),
        ({"pairs": ["en de"]}, "config.pairs.0 must be two languages with a hyphen between"),
        ({"directions": "all"}, "config.directions must not be set beside pairs, which name them"),
        ({"pairs": [], "languages": ["en", "de", "fi"]},
         "config.directions must be set for more than two languages, but is null: write all, "
         "from_en, to_en or with_en, or pairs instead of languages"),
        ({"pairs": [], "languages": ["en", "de"], "directions": "from_ed"},
         "config.directions must name one of languages, en, de, but is 'from_ed'"),
        ({"pairs": [], "languages": ["en", "zh-Hans"], "directions": "all"},
         "config.languages must have no hyphen in a code where there are several "),
        ({"pairs": [], "languages": ["en", "de"], "temperature": 2},
         "config.temperature must not be set for one direction, but is 2: remove it"),
        ({"validation": "bleu"}, "config.validation must be loss or a name of metrics "),
        ({"train": "text/{language}"}, "config.train must be a path without other braces than {"),
        ({"train": {"file": "text/fi", "pairs": ["fi-en"]}},
         "config.train must have text of every pair, but has none of en-de: add"),
        ({"train": {"file": "text/fi", "pairs": ["fi-sv"]}},
         "config.train.0.pairs must name pairs of the config, en-de, de-en, fi-en, "),
        ({"inputs": {"a": "text/test.fi"}},
         "config.inputs.a must have file and pair, one of en-de, de-en, fi-en, "),
        ({"options": "--encoder-langtok tgt"},
         "config.options must not have --encoder-langtok, which follows "),
    ],
)  # fmt: skip
def test_a_config_of_several_directions_with_a_fault_is_refused(tmp_path, change, message):
    write_texts(tmp_path, None)
    experiment = ManyDirections(tmp_path)
    experiment.configure(**change)
    assert experiment.refusal().startswith(message)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("directions", "expected"),
    [
        ("from_en", ["en-de", "en-fi"]),
        ("to_en", ["de-en", "fi-en"]),
        ("with_en", ["en-de", "en-fi", "de-en", "fi-en"]),
        ("all", ["en-de", "en-fi", "de-en", "de-fi", "fi-en", "fi-de"]),
    ],
)
def test_directions_are_chosen_from_languages(tmp_path, directions, expected):
    write_texts(tmp_path, None)
    experiment = ManyDirections(tmp_path)
    change = {"pairs": [], "languages": ["en", "de", "fi"], "inputs": {}, "train": "text/valid"}
    experiment.configure(**change, directions=directions)
    output = experiment.planned()
    evaluated = {*re.findall(r"test-bin/flores\.(\S+-\w+)", output)}
    assert evaluated == {*expected}


def test_a_table_has_the_mean_over_directions():
    rows = [
        {"scheme": scheme, "size": "tiny", "seeds": "1", "test": f"news.v2.{pair}", "BLEU": bleu,
         "chrF": 50.0, "comet": 0.5}
        for scheme, scores in (("rope", (10, 30)), ("t5", (20, 21)))
        for pair, bleu in zip(("en-de", "de-en"), scores, strict=True)
    ]  # fmt: skip
    texts = [*table.summarise_directions(DataFrame(rows), ["en-de", "de-en"], ["comet"])]
    assert texts[0] == (
        "## news.v2: BLEU by direction\n\n"
        "| model | seeds | en-de | de-en | mean |\n| --- | --- | --- | --- | --- |\n"
        "| rope, tiny | 1 | 10.00 | 30.00 | 20.00 |\n| t5, tiny | 1 | 20.00 | 21.00 | 20.50 |\n"
    )
    assert [text.partition("\n")[0] for text in texts] == [
        f"## news.v2: {score} by direction" for score in ("BLEU", "chrF", "comet")
    ]
    assert "0.5000 | 0.5000 | 0.5000 |" in texts[2]


def test_shares_are_those_of_fairseq():
    sizes = {"en-de": 8000, "en-fi": 1000}
    assert shares.describe_shares(sizes, 3) == (
        "sampled with temperature 3: en-de 66.7% (8,000 pairs), en-fi 33.3% (1,000 pairs)"
    )
