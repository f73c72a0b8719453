"""Text of a config reaches a command as literal words, or is refused before anything runs."""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from copy import deepcopy
from itertools import cycle, pairwise
from pathlib import Path

import pytest
import yaml
from config_keys import Encoder, Translation

from tests.workflows.conftest import (
    EXAMPLES,
    EncoderExperiment,
    Experiment,
    line_of_config,
    write_corpus,
)

#: a file called MARKER is made where a shell reads one of these as more than a word
HOSTILE = {
    "special characters": 'a\'b;"\'"$(>MARKER)`>MARKER`";>MARKER&&b|c>MARKER#*',
    "spaces": "a $(touch MARKER) b",
    "lines": "a\ntouch MARKER\n",
    "a hyphen": "-x",
    "a comment": "#a",
}
#: the place of a dictionary's key, in the path to a text of a config
KEY = object()
#: the key of each dictionary whose keys are free; no file has this name
LABEL = "any"
#: the keys of configs, and values at many places that may be text
EXPERIMENTS = {
    Experiment: (
        Translation,
        {
            "inputs": {LABEL: "text/test.en"},
            "schemes": {LABEL: "diet_rel"},
            "metrics": {LABEL: "cat {hypotheses}"},
        },
    ),
    EncoderExperiment: (
        Encoder,
        {
            "text": {LABEL: ["text/en.txt"]},
            "models": {LABEL: "bert_diet_rel"},
            "tasks": {LABEL: {"data": "RTE", "task": "RTE"}},
            "questions": {"train": LABEL, "tests": {LABEL: {LABEL: "squad.json"}}, "stride": 10},
            "downloads": {LABEL: {"url": "http://x", "sha256": "0" * 64}},
        },
    ),
}


def places_of_text(schema: dict, rule: dict, path: tuple = ()) -> Iterator[tuple]:
    """The paths to all text in a JSON schema, among them the keys of dictionaries."""
    if "$ref" in rule:
        rule = schema["$defs"][rule["$ref"].rpartition("/")[2]]
    if "sacrebleu" in rule.get("properties", {}) and path != ("train",):
        return  # the same source as in train
    for branch in rule.get("anyOf", rule.get("oneOf", [])):
        yield from places_of_text(schema, branch, path)
    if rule.get("type") == "string" and not {"enum", "const"} & {*rule}:
        yield path
    for key, part in rule.get("properties", {}).items():
        yield from places_of_text(schema, part, (*path, key))
    if "items" in rule:
        yield from places_of_text(schema, rule["items"], (*path, 0))
    if isinstance(rule.get("additionalProperties"), dict):
        yield (*path, KEY)
        yield from places_of_text(schema, rule["additionalProperties"], (*path, LABEL))


#: options of fairseq-train, where the text is the value of an option: other words are refused
TRAINING_OPTIONS = {("options",), ("optimizer",), ("schemes", LABEL), ("models", LABEL)}
OPTIONS = TRAINING_OPTIONS | {("metrics", LABEL)}


def places() -> list[tuple]:
    """Pairs of an experiment and a path; options, which are several words, come first."""
    pairs = []
    for kind, (model, _) in EXPERIMENTS.items():
        schema = model.model_json_schema()
        pairs += [(kind, path) for path in dict.fromkeys(places_of_text(schema, schema))]
    return sorted(pairs, key=lambda pair: pair[1] not in OPTIONS)


#: what most characters are special in, at every place, and the other texts in turn at some places
FIRST, *OTHERS = HOSTILE
TEXTS = [(*place, FIRST) for place in places()]
TEXTS += [(*place, text) for place, text in zip(places()[::3], cycle(OTHERS), strict=False)]
TASK = yaml.safe_load((EXAMPLES / "roberta" / "tasks.yaml").read_text())["RTE"]


def put(config: dict, path: tuple, text: str) -> dict:
    """The config with a text at this place."""
    config = deepcopy(config)
    if {"file", "pairs"} & {*path[1:]} or path[1:] == (LABEL, "pair"):  # of several directions
        entry = {"file": "text/train", "pairs": ["en-de"]}
        config |= {"languages": None, "pairs": ["en-de"], "train": entry}
        config["inputs"] = {LABEL: {"file": "text/test.en", "pair": "en-de"}}
    part, last = config, path[-1]
    for key, following in pairwise(path):
        if isinstance(key, str) and not isinstance(part.get(key), list if following == 0 else dict):
            part[key] = [text] if following == 0 else {}
        part = part[key]
    if path[0] == "train" and {"member", "sha256"} & {*path}:
        config["train"]["url"] = "http://x"
    if path[0] == "wikitext":
        config["valid"] = [text]
    if path == ("downloads", KEY):
        config["questions"]["train"] = text
    if last is KEY:
        part[text] = part.pop(LABEL, "0" * 64)
    elif last == "url":
        part[last] = f"http://{text}"
    elif last == "task":
        part[last] = f"{text}.yaml"
    elif path in TRAINING_OPTIONS:
        first = "fused_adamw" if path == ("optimizer",) else part.get(last, "diet_rel")
        part[last] = f"{first} {shlex.quote(f'--wandb-project={text}')}"
    elif path == ("metrics", LABEL):
        part[last] += f" {text}"
    else:
        part[last] = text
    return config


def name_of_parameter(value: object) -> str:
    """The name of a parameter in a test's id."""
    if isinstance(value, tuple):
        return ".".join("KEY" if part is KEY else str(part) for part in value)
    return getattr(value, "__name__", str(value))


#: bash functions with the names of all programs, which write down their words
PROGRAMS = (
    "python",
    "fairseq-preprocess",
    "fairseq-train",
    "diet-fairseq",
    "rm",
    "mv",
    "cp",
    "cmp",
)
STAND_INS = "".join(f'{name}() {{ builtin printf "%s\\0" "$@" >> words; }}\n' for name in PROGRAMS)


def words_of(plan: str, folder: Path) -> list[str]:
    """The words that programs receive when bash runs the commands of a plan."""
    commands = re.findall(r"^Shell command: (?!None)((?:.|\n)*?)(?=^\[|^Job stats)", plan, re.M)
    assert commands
    for command in commands:
        tokens = [*shlex.shlex(command, posix=True, punctuation_chars=True)]
        for sign, name in pairwise(tokens):
            if sign in (">", ">>"):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
    script = STAND_INS + "\n".join(f"(\n{command}\n)" for command in commands)
    subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, check=False)
    return (folder / "words").read_text().split("\0")


@pytest.mark.slow
@pytest.mark.few(2)
@pytest.mark.parametrize(("kind", "path", "text"), TEXTS, ids=name_of_parameter)
def test_no_text_of_a_config_runs_a_program(tmp_path, kind, path, text):
    text = HOSTILE[text]
    experiment = kind(tmp_path, **EXPERIMENTS[kind][1])
    if kind is Experiment:
        write_corpus(tmp_path / "text")
    if path[-1] == "data" and path[0] != "start":
        shutil.copytree(tmp_path / "RTE", tmp_path / text)
    elif path[0] != "downloads":  # files of these names exist
        for ending in ("", ".en", ".de", ".yaml"):
            (tmp_path / f"{text}{ending}").write_text(yaml.safe_dump(TASK))
    experiment.configure(**put(experiment.config, path, text))
    status, output = experiment.plan("-p")
    assert "Traceback (most recent" not in output
    if "\n" not in text and "schemes must not be set without start" not in output:
        assert status == 0 or path not in OPTIONS, output
    if status == 0:
        words = words_of(output, tmp_path)
        for part in shlex.split(text) if path == ("metrics", LABEL) else [text]:
            assert any(part in word or json.dumps(part)[1:-1] in word for word in words)
    else:
        assert "must be one line" in line_of_config(output) or "\n" not in text
    assert not (tmp_path / "MARKER").exists()


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", EXPERIMENTS)
def test_a_folder_with_spaces_and_umlauts_is_one_word_of_every_command(tmp_path, kind):
    experiment = kind(tmp_path, folder="my data \u00fc/out")
    if kind is Experiment:
        write_corpus(tmp_path / "text")
    words = words_of(experiment.planned("-p"), tmp_path)
    assert sum("my data \u00fc/out" in word for word in words) > 20
    assert not [word for word in words if "data" in word.split("/") or word.startswith("\u00fc")]
    assert "my" not in words
