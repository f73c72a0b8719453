"""`diet_fairseq.hf` needs torch and transformers, not fairseq, and changes neither of them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from transformers.utils.import_utils import is_torchaudio_available

import diet_fairseq
from diet_fairseq import hide_broken_torchaudio
from diet_fairseq.positions import SCHEMES

#: packages that only users of fairseq install
HIDDEN = (
    "fairseq",
    "fairseq_cli",
    "hydra",
    "omegaconf",
    "sacrebleu",
    "scipy",
    "sklearn",
    "torchaudio",
)

HIDE = f"""
import sys
from importlib.machinery import PathFinder
find = PathFinder.find_spec
def find_spec(name, *rest):
    return None if name.partition(".")[0] in {HIDDEN} else find(name, *rest)
PathFinder.find_spec = staticmethod(find_spec)
"""
TRAIN = """
import torch, diet_fairseq.hf as hf
from diet_fairseq.positions import SCHEMES
assert "fairseq" not in sys.modules and "diet_fairseq.patches" not in sys.modules
torch.manual_seed(1)
sizes = dict(encoder_layers=1, encoder_embed_dim=16, encoder_ffn_embed_dim=16,
             encoder_attention_heads=2, vocab_size=20, max_source_positions=16)
tokens = torch.randint(4, 20, (2, 9))
for name in SCHEMES:
    model = hf.DietForMaskedLM(hf.DietEncoderConfig(position_scheme=name, **sizes)).train()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0], (name, losses)
    if name in ("diet_rel", "tupe_r", "rope", "shaw"):
        config = hf.DietTransformerConfig(
            position_scheme=name, decoder_layers=1, decoder_embed_dim=16, decoder_ffn_embed_dim=16,
            decoder_attention_heads=2, max_target_positions=16, **sizes)
        model = hf.DietForConditionalGeneration(config).eval()
        out = model.generate(tokens, num_beams=2, max_new_tokens=5, min_new_tokens=5)
        assert out.shape[1] == 6, (name, out)
    print(name)
"""
EVERY_MODULE = """
import importlib, pathlib, diet_fairseq
package = pathlib.Path(diet_fairseq.__file__).parent
rooms = ["positions", "attention", "transformer", "hf"]
files = [file for room in rooms for file in sorted(package.glob(f"{room}/**/*.py"))]
files = [file for file in files if file.parent.name != "convert"]
files += [package / "config.py", package / "errors.py"]
for file in files:
    if file.stem != "offset_kernels":  # Triton's
        importlib.import_module(".".join(file.relative_to(package.parent).with_suffix("").parts))
try:
    import diet_fairseq.plugin
except ModuleNotFoundError as error:
    print(len(files) > 30, error.name)
"""


@pytest.mark.slow
def test_models_train_and_generate_and_modules_import_without_fairseq():
    program = HIDE + TRAIN + EVERY_MODULE
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [*SCHEMES, "True", "fairseq"]


@pytest.mark.parametrize("fault", ['raise OSError("libcudart")', "import nosuch", ""])
def test_a_broken_torchaudio_is_hidden(tmp_path, monkeypatch, fault):
    (tmp_path / "torchaudio.py").write_text(fault)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "torchaudio", None)
    del sys.modules["torchaudio"]
    is_torchaudio_available.cache_clear()
    assert is_torchaudio_available()
    hide_broken_torchaudio()
    is_torchaudio_available.cache_clear()
    assert is_torchaudio_available() == (not fault)


@pytest.mark.slow
@pytest.mark.parametrize("first", ["", "import fairseq; "])
def test_transformers_imports_beside_a_broken_torchaudio(tmp_path, first):
    (tmp_path / "torchaudio.py").write_text('raise OSError("libcudart")')
    program = f"{first}import diet_fairseq; from transformers import Trainer, pipeline"
    path = f"{tmp_path}:{Path(diet_fairseq.__file__).parents[1]}:{os.environ.get('PYTHONPATH', '')}"
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": path},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
