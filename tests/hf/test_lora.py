"""peft trains LoRA adapters of our models, and merged models are imported into fairseq."""

import pytest
import torch

pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")
pytest.importorskip("peft", reason="peft is not installed")

from peft import LoraConfig, PeftModel, get_peft_model

from tests.hf.conftest import loaded, take_back
from tests.hf.test_equality import convert, logits
from tests.support import tiny
from tests.support.texts import write

pytestmark = pytest.mark.slow

#: one of each kind of terms, maps of positions that have adapters, and an encoder
SCHEMES = ("shaw", "transformer_xl", "cope", "t5", "tupe_a", "rope", "diet_rel", "diet_abs", "fire")
CASES = [*map(tiny.Case, SCHEMES), tiny.Case("diet_rel", family="bert")]


def train(model, updates=3):
    """Updates of the parameters that need gradients."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)
    tokens = torch.randint(4, tiny.VOCABULARY, (4, 7))
    for _ in range(updates):
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize(
    ("case", "also"),
    [*((case, None) for case in CASES), (tiny.Case("diet_rel"), ["positions"])],
    ids=str,
)
def test_an_adapter_is_trained_saved_merged_and_imported(case, also, tmp_path):
    model = convert(tiny.fresh(case)).model
    is_encoder = not model.config.is_encoder_decoder
    with torch.no_grad():
        before = logits(model)
    kind = None if is_encoder else "SEQ_2_SEQ_LM"
    config = LoraConfig(task_type=kind, target_modules="all-linear", modules_to_save=also)
    adapted = get_peft_model(model, config)
    positions = [p for name, p in adapted.named_parameters() if name.endswith("default.weight")
                 and "modules_to_save" in name]  # fmt: skip
    assert bool(positions) == bool(also)
    train(adapted.train())
    adapted.eval().save_pretrained(tmp_path / "adapter")
    again = PeftModel.from_pretrained(convert(tiny.fresh(case)).model, tmp_path / "adapter")
    with torch.no_grad():
        expected = logits(adapted)
        torch.testing.assert_close(logits(again), expected)
        merged = adapted.merge_and_unload()
        torch.testing.assert_close(logits(merged), expected, **tiny.TOLERANCE)
    assert tiny.difference(expected, before) > tiny.VISIBLE
    merged.save_pretrained(tmp_path / "hf")
    words = tiny.WORDS.symbols[tiny.FIRST_WORD :]
    # an encoder's last token is <mask>, which its task adds
    lines = [f"{word} 1" for word in words[: len(words) - is_encoder]]
    write(tmp_path / "hf" / "dict.txt", lines)
    take_back(tmp_path / "hf", tmp_path / "out")
    with torch.no_grad():
        model = loaded(tmp_path / "out" / "model.pt", tmp_path / "out").model.eval()
        torch.testing.assert_close(tiny.logits(model), logits(merged), **tiny.TOLERANCE)
    if not is_encoder:
        tokens = merged.generate(tiny.padded(tiny.SOURCES, True), max_new_tokens=4)
        assert tokens.shape == (len(tiny.SOURCES), 5)
