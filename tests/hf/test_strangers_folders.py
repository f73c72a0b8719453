"""`import hf` of a stranger's folder takes no more memory, time or files than the folder needs."""

import json
import shutil
import time

import pytest

pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")

from diet_fairseq.hf.convert import original
from diet_fairseq.hf.convert.card import read_license
from tests.hf.conftest import take_back
from tests.hf.test_bad_input import refused
from tests.support import originals

FOLDERS = {"bart": originals.bart, "bert": originals.bert}


@pytest.fixture(scope="module", params=FOLDERS)
def _published(request, tmp_path_factory):
    return FOLDERS[request.param](tmp_path_factory.mktemp(request.param) / "folder")


@pytest.fixture
def folder(_published, tmp_path):
    return shutil.copytree(_published, tmp_path / "folder")


def set_values(folder, **values):
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | values))


VALUES = [
    ({"num_labels": 10**9}, "num_labels must be from 0 to 65,536, but is 1000000000"),
    ({"num_labels": 1e9}, "num_labels must be from 0 to 65,536, but is 1000000000.0"),
    ({"dropout": 5.0}, "dropout must be from 0 to 1, but is 5.0"),
    ({"hidden_dropout_prob": float("nan")}, "hidden_dropout_prob must be from 0 to 1, but is nan"),
    ({"activation_dropout": -1}, "activation_dropout must be from 0 to 1, but is -1"),
]


@pytest.mark.parametrize(("values", "says"), VALUES)
def test_values_out_of_range_are_refused(values, says, folder, tmp_path):
    set_values(folder, **values)
    text = refused(take_back, folder, tmp_path / "out")
    assert text == f"{folder / 'config.json'}: {says}: give another folder"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("values", "says"), VALUES)
def test_values_out_of_range_are_refused_in_our_own_folders(
    values, says, translation_folder, tmp_path
):
    folder = shutil.copytree(translation_folder, tmp_path / "folder")
    set_values(folder, **values)
    assert f"config.json: {says}: give another folder" in refused(take_back, folder, tmp_path / "o")


@pytest.mark.parametrize("key", ["quantization_config", "compression_config"])
def test_a_quantised_folder_is_refused_by_name(key, folder, tmp_path):
    set_values(folder, **{key: {"quant_method": "bitsandbytes", "load_in_8bit": True}})
    assert refused(take_back, folder, tmp_path / "out") == (
        f"{folder / 'config.json'} has {key}, but a quantised model can't be imported: give the "
        "folder of the model before quantisation"
    )


def test_code_that_a_configuration_names_is_not_used(folder, tmp_path, monkeypatch):
    """transformers fetches kernels by the name of the attention, and runs them."""
    kernel = "kernels-community/flash-attn"
    set_values(
        folder,
        attn_implementation=kernel,
        _attn_implementation=kernel,
        experts_implementation=kernel,
        auto_map={"AutoConfig": "code.Config"},
        fusion_config={"a": True},
        transformers_weights="../other.safetensors",
    )
    load, used = original.load_reference, []

    def load_and_record(*args):
        model, *others = load(*args)
        used.append(model.config)
        return model, *others

    monkeypatch.setattr(original, "load_reference", load_and_record)
    take_back(folder, tmp_path / "out")
    [config] = used
    assert config._attn_implementation == "eager"
    assert not any(hasattr(config, key) for key in ("auto_map", "fusion_config"))


@pytest.mark.parametrize("_published", ["bert"], indirect=True)
def test_a_vocabulary_that_is_not_utf_8_is_named(folder, tmp_path):
    (folder / "vocab.txt").write_bytes(b"[PAD]\ncaf\xe9\n")
    assert refused(take_back, folder, tmp_path / "out") == (
        f"{folder / 'vocab.txt'} is not UTF-8 text (byte 10 is 0xe9): give another folder"
    )


@pytest.mark.parametrize("_published", ["bart"], indirect=True)
def test_merges_that_are_not_utf_8_are_named(folder, tmp_path):
    (folder / "merges.txt").write_bytes(b"#version: 0.2\n\xe9 a\n")
    assert refused(take_back, folder, tmp_path / "out") == (
        f"{folder / 'merges.txt'} is not UTF-8 text (byte 15 is 0xe9): give another folder"
    )


def test_a_folder_of_the_hub_s_cache_is_imported(folder, tmp_path):
    """There the files are links to blobs with other names."""
    blobs, snapshot = tmp_path / "models--a--b" / "blobs", tmp_path / "models--a--b/snapshots/1f"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for number, path in enumerate(folder.iterdir()):
        path.rename(blobs / str(number))
        (snapshot / path.name).symlink_to(f"../../blobs/{number}")
    take_back(snapshot, tmp_path / "out")
    assert (tmp_path / "out" / "original" / "config.json").is_file()


def test_links_that_leave_the_folder_are_refused(folder, tmp_path):
    secret, card = tmp_path / "secret", folder / "README.md"
    secret.write_text("---\nlicense: mit\n---\n")
    card.unlink(missing_ok=True)
    card.symlink_to("../secret")
    assert refused(take_back, folder, tmp_path / "out") == (
        f"{card} is a link to {secret}, outside the folder: put a copy of the file there"
    )
    card.unlink()
    card.symlink_to("README.md")
    assert f"{card} is a link to itself: " in refused(take_back, folder, tmp_path / "out")
    card.unlink()
    shutil.copy(secret, folder / "card")
    card.symlink_to("card")
    take_back(folder, tmp_path / "out")
    assert read_license(tmp_path / "out" / "original") == "mit"


@pytest.mark.parametrize(
    ("line", "license"),
    [
        ("license: mit", "mit"),
        ("license:   'cc-by-4.0'  \r", "cc-by-4.0"),
        ('license: "apache-2.0"', "apache-2.0"),
        ("license:", None),
        ("license: [a, b]", None),
        (f"license: x{' ' * 98_000}y", None),
    ],
)
def test_the_licence_of_a_card_is_read_in_time_linear_in_its_length(line, license, tmp_path):
    (tmp_path / "README.md").write_text(f"---\nlanguage: en\n{line}\nlicense: later\n---\n")
    start = time.process_time()
    assert read_license(tmp_path) == license
    assert time.process_time() - start < 1
