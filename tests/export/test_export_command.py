"""``diet-fairseq export``: from a checkpoint to a folder, complete or absent."""

import re
import resource
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import ctranslate2
import pytest
import torch

from diet_fairseq.cli import main
from diet_fairseq.errors import UserError
from diet_fairseq.export import ctranslate2 as export
from diet_fairseq.files import atomic_folder
from diet_fairseq.translate import loading
from diet_fairseq.translate.loading import LoadedModel
from diet_fairseq.translate.model_json import ModelDescription, read_model_json
from tests.support import tiny
from tests.support.checkpoints import Touch
from tests.support.texts import train_sentencepiece
from tests.support.tiny import Case

TEXT = [f"a word and word{number} more" for number in range(24)]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A run: a checkpoint, its dictionaries, and a SentencePiece model of them and of others."""
    place = tmp_path_factory.mktemp("run")
    (place / "data-bin").mkdir()
    for language in ("en", "de"):
        tiny.WORDS.save(str(place / "data-bin" / f"dict.{language}.txt"))
    text = {"task": "translation", "source_lang": "en", "target_lang": "de", "data": "elsewhere"}
    for name, scheme in (("checkpoint.pt", "t5"), ("tupe.pt", "tupe_a")):
        case = Case(scheme)
        args = tiny.arguments(case, share_all_embeddings=True, **text)
        model = tiny.from_arguments(args)
        history = [{"criterion_name": "", "best_loss": 1.0, "num_updates": 1}]
        state = {"args": args, "model": model.state_dict(), "optimizer_history": history}
        torch.save({**state, "extra_state": {}}, place / name)
    pieces(place / "own.model", tiny.WORDS.symbols[tiny.FIRST_WORD :])
    pieces(place / "other.model", ["another", "vocabulary"])
    words = tiny.WORDS.symbols[tiny.FIRST_WORD :]
    merges = "".join(f"{word[0]} {word[1:]}</w>\n" for word in words)
    (place / "codes").write_text(f"#version: 0.2\n{merges}")
    return place


@pytest.fixture(scope="module", autouse=True)
def _read_once():
    """Exports leave a model as it is, so the tests share those that could be read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "load_model", lru_cache(loading.load_model))
        yield


def pieces(path, symbols):
    options = {"model_type": "unigram", "user_defined_symbols": symbols}
    path.write_bytes(train_sentencepiece(TEXT, 60, **options))


def run(*words):
    return main([str(word) for word in words])


def refusal(capsys, *words):
    """The one line that the command ends with."""
    with pytest.raises((UserError, SystemExit)) as error:
        run(*words)
    text = str(error.value) if isinstance(error.value, UserError) else capsys.readouterr().err
    assert "\n" not in text.strip()
    return text.strip()


def names_in(folder):
    return {path.name for path in folder.iterdir()}


@pytest.mark.slow
def test_ctranslate2_gets_a_folder_that_translates_text(place, tmp_path, capsys):
    out = tmp_path / "deep" / "out"
    run(
        "export",
        "ctranslate2",
        place / "checkpoint.pt",
        out,
        "--subwords",
        place / "own.model",
    )
    output = capsys.readouterr().out
    assert output.startswith(
        f"wrote {out}: log-probabilities of random sentences differ by at most "
    )
    assert names_in(out) == {
        "config.json", "model.bin", "model.json", "sentencepiece.model",
        "shared_vocabulary.json",
    }  # fmt: skip
    assert (out / "sentencepiece.model").read_bytes() == (place / "own.model").read_bytes()
    assert read_model_json(out) == ModelDescription(
        "ctranslate2", "en", "de", out, None, None, "sentencepiece", out / "sentencepiece.model"
    )
    assert ctranslate2.Translator(str(out)).translate_batch([["word1"]])
    assert names_in(out.parent) == {"out"}


@pytest.mark.slow
def test_model_json_beside_the_checkpoint_is_exported_too(place, tmp_path):
    run_folder = tmp_path / "run"
    run_folder.mkdir()
    for name in ("checkpoint.pt", "codes", "data-bin/dict.en.txt", "data-bin/dict.de.txt"):
        (run_folder / Path(name).name).symlink_to(place / name)
    ModelDescription(
        "fairseq", "en", "de", run_folder, run_folder / "checkpoint.pt", run_folder,
        "subword_nmt", run_folder / "codes", "moses", 4, 0.6, "tensor2tensor",
    ).write()  # fmt: skip
    out = tmp_path / "out"
    run("export", "ctranslate2", run_folder / "checkpoint.pt", out)
    description = read_model_json(out)
    assert description.engine == "ctranslate2"
    assert (description.checkpoint, description.data) == (None, None)
    assert (description.subwords, description.subword_model) == ("subword_nmt", out / "codes")
    assert (description.preprocessing, description.beam, description.lenpen) == ("moses", 4, 0.6)
    assert description.penalty == "tensor2tensor"


def test_a_model_of_absolute_positions_says_how_long_a_sentence_may_be(place, tmp_path):
    description = ModelDescription("fairseq", "en", "de", place)
    for scheme, limit, longest in (("learned", None, tiny.LIMIT - 1), ("none", None, None),
                                   ("learned", 3, 3), ("none", 3, 3)):  # fmt: skip
        model = tiny.model_of(Case(scheme))
        limits = {"max_source_length": limit, "max_target_length": limit}
        loaded = LoadedModel(replace(description, **limits), model, None, None)
        loaded.write_model_json("ctranslate2", tmp_path)
        description = read_model_json(tmp_path)
        assert description.max_source_length == longest
        assert description.max_target_length == longest


@pytest.mark.slow
def test_bad_input_is_refused_in_one_line_and_leaves_nothing(place, tmp_path, capsys):
    out, good, data = tmp_path / "out", place / "checkpoint.pt", place / "data-bin"
    hostile = tmp_path / "hostile.pt"
    torch.save({"model": {}, "args": Touch(tmp_path / "touched")}, hostile)
    for words, error_text in (
        ((place / "tupe.pt",), "CTranslate2 can't represent the position scheme tupe_a: "),
        ((place / "missing.pt",), f"the model {place / 'missing.pt'} does not exist: check"),
        ((hostile, "--data", place / "data-bin"), f"{hostile} is "),
        ((good, "--data", tmp_path / "nowhere"), "the dictionary "),
        ((good, "--subwords", tmp_path / "no"), f"{tmp_path / 'no'} can't be read: No such file"),
        (
            (good, "--subwords", place / "other.model"),
            f"{data} and {place / 'other.model'} don't belong together: 24 of 24 subwords of ",
        ),
        (
            (good, "--subwords", data / "dict.en.txt"),
            f"{data} and {data / 'dict.en.txt'} don't belong together: ",
        ),
        (
            (good, "--subwords", good),
            f"{good} is neither a SentencePiece model nor codes of subword-nmt or fastBPE",
        ),
    ):
        assert refusal(capsys, "export", "ctranslate2", *words[:1], out, *words[1:]).startswith(
            error_text
        )
        assert names_in(tmp_path) == {"hostile.pt"}


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("words", "value"),
    [
        (("export", "hf"), float("nan")),
        (("look",), float("inf")),
    ],
)
def test_a_checkpoint_that_has_diverged_is_refused(place, tmp_path, capsys, words, value):
    state = torch.load(place / "checkpoint.pt", weights_only=False)
    state["model"]["encoder.layers.0.fc1.weight"][0, 0] = value
    diverged, out = tmp_path / "diverged.pt", tmp_path / "out"
    torch.save(state, diverged)
    out_words = ("--out", out) if words == ("look",) else (out,)
    assert refusal(capsys, *words, diverged, *out_words, "--data", place / "data-bin").startswith(
        f"{diverged} holds numbers that are not finite (encoder.layers.0.fc1.weight): its training"
    )
    assert not out.exists()


@pytest.mark.slow
def test_an_export_that_computes_something_else_is_not_kept(place, tmp_path, capsys, monkeypatch):
    furthest = float("nan")  # more than the tolerance, too
    monkeypatch.setattr(export, "measure_difference", lambda *_: furthest)
    words = ("export", "ctranslate2", place / "checkpoint.pt", tmp_path / "out")
    assert f"outputs differ by {furthest}; nothing was written" in refusal(capsys, *words)
    assert names_in(tmp_path) == set()
    run(*words, "--quantization", "int8")  # which differs by its nature
    assert f"differ by at most {furthest}" in capsys.readouterr().out


def test_a_file_that_comes_while_a_folder_is_written_is_not_removed(tmp_path):
    out = tmp_path / "out"

    def write():
        with atomic_folder(out) as new:
            (new / "ours").touch()
            out.mkdir()
            (out / "late").touch()

    with pytest.raises(UserError, match="out can't be written"):
        write()
    assert names_in(tmp_path) == {"out"}
    assert names_in(out) == {"late"}


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize("target", ["hf", "ctranslate2"])
def test_a_full_disk_is_told_in_one_line_and_leaves_nothing(place, tmp_path, target, capsys):
    """A limit on the size of files fails as a full disk does, within each library's own writer."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, limits[1]))
    words = (place / "checkpoint.pt", tmp_path / "out", "--subwords", place / "own.model")
    try:
        error = refusal(capsys, "export", target, *words)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert re.fullmatch(
        rf"{tmp_path}/out can't be written: .*; make room or give another .*", error
    )
    assert names_in(tmp_path) == set()


def test_a_failure_on_the_way_leaves_nothing(tmp_path):
    def fail():
        with atomic_folder(tmp_path / "out") as new:
            (new / "config.json").write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert names_in(tmp_path) == set()


def documented():
    """The names in docs/using-a-model.md, as one expression."""
    page = (Path(__file__).parents[2] / "docs" / "using-a-model.md").read_text()
    table = page.split("| name | shape | meaning |")[1].split("\n\n")[0]
    rows = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    patterns = []
    for name in re.findall("`([^`]+)`", " ".join(rows)):
        pattern = re.escape(name)
        pattern = re.sub(r"\\{(.+?)\\}", lambda m: f"(?:{m[1].replace(',', '|')})", pattern)
        for word, kind in (("POSITIONS", "positions"), ("SEGMENTS", "segments")):
            pattern = pattern.replace(word, rf"SIDE\.(?:layers\.N\.self_attn\.)?{kind}")
        side = r"(?:encoder|decoder|encoder\.sentence_encoder)"
        patterns.append(pattern.replace("SIDE", side).replace(r"\.N\.", r"\.\d+\."))
    return re.compile("|".join(patterns))


@tiny.each([*tiny.first_of_each_scheme(tiny.TRANSLATION), *tiny.first_of_each_scheme(tiny.ENCODERS),
            Case("tupe_r", family="bert"), Case("diet_rel", family="bert")])  # fmt: skip
def test_every_parameter_has_a_documented_name(case):
    names = [name for name in tiny.model_of(case).state_dict() if not name.endswith(".version")]
    assert [name for name in names if not documented().fullmatch(name)] == []
