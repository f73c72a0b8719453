"""`export hf --original`: an imported model, trained further, is a model of transformers again."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")
import transformers
from huggingface_hub import ModelCard

from diet_fairseq import Translator
from diet_fairseq.hf.convert.card import read_kept
from tests.hf.conftest import export, loaded, take_back
from tests.hf.test_bad_input import refused
from tests.hf.test_originals import (
    ENCODERS,
    TRANSLATIONS,
    compare_encoder,
    compare_translation,
    generate,
    swapped,
)
from tests.hf.test_without_fairseq import HIDE
from tests.support import originals
from tests.support.checkpoints import write_checkpoint

pytestmark = pytest.mark.slow

CARD = "---\nlanguage:\n- en\n- de\nlicense: cc-by-nc-4.0\nmodel-index:\n- name: x\n---\n# Model\n"


LINES = [line for line, _ in originals.sentence_pairs(20, seed=7)]


def train(out: Path, updates: int = 3, lr: float = 0.01) -> None:
    """Train an imported model on random tokens, and write its checkpoint again."""
    path = out / "model.pt"
    known = loaded(path, out)
    torch.manual_seed(5)
    model = known.model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for _ in range(updates):
        tokens = torch.randint(4, len(known.task.source_dictionary), (4, 9))
        inputs = (tokens,)
        if not known.is_encoder:
            tokens = torch.randint(4, len(known.task.target_dictionary), (4, 9))
            inputs = (*inputs, torch.full((4,), 9), tokens.roll(1, 1))
        if known.is_encoder and model.encoder.lm_head is None:
            logits = model(*inputs, features_only=True)[0]  # (B, T, d)
            tokens = tokens % logits.size(-1)
        else:
            logits = model(*inputs)[0]
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()
    checkpoint = torch.load(path, weights_only=False)
    torch.save(checkpoint | {"model": model.state_dict()}, path)


def trained(build, folder: Path, out: Path, **changes) -> Path:
    """An imported model that was trained further, whose original has a card."""
    build(folder, **changes)
    (folder / "README.md").write_text(CARD)
    take_back(folder, out)
    train(out)
    return out


@pytest.mark.few(1)
@pytest.mark.parametrize("name", TRANSLATIONS)
def test_a_trained_translation_model_is_of_its_class_again(name, tmp_path):
    build, changes = TRANSLATIONS[name]
    out = trained(build, tmp_path / "folder", tmp_path / "out", **changes)
    export(out, tmp_path / "hf", "--original")
    compare_translation(tmp_path / "hf", out)
    compare_folder(tmp_path)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ENCODERS)
def test_a_trained_encoder_is_of_its_class_again(name, tmp_path):
    build, changes = ENCODERS[name]
    out = trained(build, tmp_path / "folder", tmp_path / "out", **changes)
    export(out / "model.pt", tmp_path / "hf", "--original", "--data", out, "--subwords", "none")
    compare_encoder(tmp_path / "hf", out)
    compare_folder(tmp_path)


@pytest.mark.parametrize("name", ["marian", "m2m_100", "mbart"])
def test_generate_translates_as_fairseq_does(name, tmp_path):
    build, _ = TRANSLATIONS[name]
    take_back(build(tmp_path / "folder", updates=250, d_model=32), tmp_path / "out")
    train(tmp_path / "out", lr=0.001)
    export(tmp_path / "out", tmp_path / "hf", "--original")
    ours = Translator(tmp_path / "out").translate(LINES, beam=4, lenpen=0.0)
    assert generate(tmp_path / "hf", tmp_path / "out", LINES) == ours
    assert generate(tmp_path / "folder", tmp_path / "out", LINES) != ours


def compare_folder(folder: Path) -> None:
    """Check the files of ``folder / "hf"`` against the original ones in ``folder / "folder"``."""
    before, after = folder / "folder", folder / "hf"
    configs = [json.loads((path / "config.json").read_text()) for path in (before, after)]
    assert configs[0]["architectures"] == configs[1]["architectures"]
    assert configs[1]["dtype"] == "float32"
    weights = {"config.json", "model.safetensors", "README.md"}
    for path in before.iterdir():
        assert path.name in weights or (after / path.name).read_bytes() == path.read_bytes()
    assert {path.name for path in before.iterdir()} == {path.name for path in after.iterdir()}
    card = ModelCard.load(after / "README.md")
    assert (card.data.license, card.data.language) == ("cc-by-nc-4.0", ["en", "de"])
    assert "model-index" not in card.content  # scores of the original


WITHOUT_PACKAGE = """
import json
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
folder, text = sys.argv[1:]
inputs = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")
model = AutoModelForSeq2SeqLM.from_pretrained(folder)
assert "diet_fairseq" not in sys.modules
print(json.dumps(model.generate(**inputs, num_beams=4, max_new_tokens=9)[0].tolist()))
"""


def test_the_folder_needs_no_package_of_ours(tmp_path):
    out = trained(originals.marian, tmp_path / "folder", tmp_path / "out")
    export(out, tmp_path / "hf", "--original")
    hide = HIDE.replace("torchaudio", "diet_fairseq', 'torchaudio")
    words = [sys.executable, "-c", hide + WITHOUT_PACKAGE, str(tmp_path / "hf"), LINES[0]]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "hf")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    inputs = tokenizer(LINES[0], return_tensors="pt")
    expected = model.generate(**inputs, num_beams=4, max_new_tokens=9)
    assert json.loads(done.stdout) == expected[0].tolist()


def test_a_model_with_other_positions_is_refused(tmp_path):
    take_back(originals.marian(tmp_path / "folder"), tmp_path / "out")
    args, known = swapped(tmp_path / "out", "transformer_rope")
    write_checkpoint(tmp_path / "out" / "rope.pt", args, known.state_dict(), "translation")
    text = refused(export, tmp_path / "out" / "rope.pt", tmp_path / "hf", "--original")
    assert text == (
        f"{tmp_path}/out/rope.pt has the position scheme rope in its encoder, but MarianMTModel "
        "has learned positions: leave out --original, which exports the model with the classes of "
        "diet_fairseq"
    )
    assert not (tmp_path / "hf").exists()
    export(tmp_path / "out" / "rope.pt", tmp_path / "hf")
    values = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert values["model_type"] == "diet_transformer"


@pytest.fixture(scope="module")
def m2m_100_out(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("m2m_100")
    take_back(originals.m2m_100(folder / "folder"), folder / "out")
    return folder / "out"


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda out: shutil.rmtree(out / "original"),
            "original is not there: leave out --original, which exports the model with the classes "
            "of diet_fairseq, or, if the vocabulary was neither trimmed nor extended, copy the ",
        ),
        (
            lambda out: edit(out / "original" / "config.json", model_type="t5"),
            "is of the model type t5, but --original writes marian, m2m_100, mbart, bart, xlm-rob",
        ),
        (
            lambda out: edit(out / "original" / "config.json", encoder_layers=1),
            "has the parameter encoder.layers.1.self_attn.k_proj.weight, which M2M100ForCond",
        ),
        (
            lambda out: edit(out / "original" / "config.json", encoder_ffn_dim=20),
            "has model.encoder.layers.0.fc1.weight of shape (24, 16), but the imported M2M100ForC",
        ),
        (
            lambda out: edit(out / "original" / "config.json", scale_embedding=False),
            "M2M100ForConditionalGeneration does not reproduce ",
        ),
        (
            lambda out: swap_lines(out / "dict.txt"),
            "at index 4, but the imported M2M100ForConditionalGeneration has ",
        ),
        (
            lambda out: edit(out / "original" / "config.json", encoder_layers=10**4),
            "config.json is not valid",
        ),
    ],
)
def test_a_model_that_its_class_can_t_express_is_refused(change, says, m2m_100_out, tmp_path):
    shutil.copytree(m2m_100_out, tmp_path / "out")
    change(tmp_path / "out")
    text = refused(export, tmp_path / "out", tmp_path / "hf", "--original")
    assert says in text
    assert {path.name for path in tmp_path.iterdir()} == {"out"}


def edit(path: Path, **changes: object) -> None:
    """Change values of a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def swap_lines(path: Path) -> None:
    """Swap the first two lines of a dictionary."""
    first, second, *rest = path.read_text().splitlines(keepends=True)
    path.write_text("".join([second, first, *rest]))


@pytest.mark.parametrize(
    ("top", "kept"),
    [
        ("language: no\ndate: 2020-13-45\nlicense: mit\n", {"language": "no", "license": "mit"}),
        ("language: [en, no]\nlicense: {a: b}\n", {"language": ["en", "no"]}),
        ("language: " + "[" * 5000, {}),
        ("language: [en", {}),
        ("just text", {}),
    ],
)
def test_a_stranger_s_card_gives_its_text_alone(top, kept):
    assert read_kept(f"---\n{top}") == kept
