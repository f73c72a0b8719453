"""`swap_positions`: another position scheme, everything else unchanged, without fairseq."""

import os
import subprocess
import sys
from typing import Any

import pytest
import torch

pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")
import transformers

import diet_fairseq.hf as hf
from diet_fairseq.errors import UserError
from tests.hf.conftest import export, take_back
from tests.hf.test_headless import QUERIES, SENTENCES, embed
from tests.hf.test_without_fairseq import HIDE
from tests.support import originals
from tests.support.originals import randomize
from tests.support.pages import ROOT, section_of

close = torch.testing.assert_close
LENGTH, WORDS = 20, 40
SIZES = {
    "vocab_size": WORDS, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 24,
}  # fmt: skip
ROBERTA = {"max_position_embeddings": LENGTH + 2, "type_vocab_size": 1, "pad_token_id": 1}
BERT = {"max_position_embeddings": LENGTH}
CLASSES: dict[str, dict[str, Any]] = {
    "BertModel": BERT,
    "BertForMaskedLM": BERT,
    "ElectraModel": BERT | {"embedding_size": 8},
    "ElectraForMaskedLM": BERT | {"embedding_size": 8},
    "DistilBertModel": BERT | {"hidden_dim": 24},
    "DistilBertForMaskedLM": BERT | {"hidden_dim": 24, "activation": "relu"},
    "RobertaModel": ROBERTA,
    "RobertaForMaskedLM": ROBERTA,
    "XLMRobertaModel": ROBERTA,
    "XLMRobertaForMaskedLM": ROBERTA,
}
each_class = pytest.mark.parametrize("name", CLASSES)


def build(name: str, **options: Any) -> Any:
    """A model with random parameters of a class of transformers."""
    kind = getattr(transformers, name)
    return randomize(kind(kind.config_class(**SIZES | CLASSES.get(name, BERT) | options)))


def build_ours(scheme: str, kind: Any = hf.DietForMaskedLM, **options: Any) -> Any:
    """One of our encoders with random parameters."""
    config = hf.DietEncoderConfig(
        position_scheme=scheme, vocab_size=WORDS, encoder_layers=2, encoder_embed_dim=16,
        encoder_attention_heads=2, encoder_ffn_embed_dim=24, max_source_positions=LENGTH, **options
    )  # fmt: skip
    return randomize(kind(config))


@torch.no_grad()
def run(model: Any) -> dict[str, torch.Tensor]:
    """Features and probabilities at real tokens, and pooled features, of two padded texts."""
    pad = model.config.pad_token_id
    tokens = torch.randint(4, WORDS, (2, LENGTH), generator=torch.Generator().manual_seed(1))
    tokens[1, 12:] = pad
    real = tokens.ne(pad)
    segments = (torch.arange(LENGTH) > 7).long().expand(2, -1)
    inputs = {}
    if kinds := getattr(model.config, "type_vocab_size", None):  # DistilBERT has no segments
        inputs = {"token_type_ids": segments.clamp(max=kinds - 1)}
    out = model(input_ids=tokens, attention_mask=real.long(), output_hidden_states=True, **inputs)
    results = {"features": out.hidden_states[-1][real]}
    if "logits" in out:
        results["probabilities"] = out.logits.softmax(-1)[real]
    if out.get("pooler_output") is not None:
        results["pooled"] = out.pooler_output
    return results


@torch.no_grad()
def average_positions(model: Any) -> None:
    """Give all positions the mean of their vectors."""
    table = model.base_model.embeddings.position_embeddings.weight
    first = 2 if model.config.pad_token_id else 0
    table[first:] = table[first:].mean(0)


@each_class
def test_the_learned_scheme_keeps_the_outputs(name):
    model = build(name)
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    swapped = hf.swap_positions(model, "learned")
    close(run(swapped), run(model))
    assert type(swapped) is (hf.DietForMaskedLM if "MaskedLM" in name else hf.DietEncoderModel)
    close(model.state_dict(), before, rtol=0, atol=0)


@each_class
@pytest.mark.parametrize("scheme", ["none", "diet_rel", "tupe_a"])
def test_the_mean_of_the_old_positions_remains(name, scheme):
    """Untrained schemes are zero, so only the mean is left, and probabilities do not change."""
    model = build(name)
    swapped = hf.swap_positions(model, scheme)
    average_positions(model)
    close(run(swapped), run(model), rtol=1e-4, atol=1e-5)


def test_a_swapped_distilbert_embeds_text_as_its_import(tmp_path):
    folder = originals.distilbert(tmp_path / "folder", head="Model", hidden_dim=20)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    hf.swap_positions(model, "learned").save_pretrained(tmp_path / "swapped")
    tokenizer.save_pretrained(tmp_path / "swapped")
    take_back(folder, tmp_path / "out")
    export(tmp_path / "out" / "model.pt", tmp_path / "exported")
    lines = QUERIES + SENTENCES
    close(embed(tmp_path / "swapped", lines), embed(tmp_path / "exported", lines))
    configs = [transformers.AutoConfig.from_pretrained(tmp_path / name).to_dict()
               for name in ("swapped", "exported")]  # fmt: skip
    same = ("layer_norm_eps", "activation_fn", "encoder_ffn_embed_dim", "max_source_positions")
    assert [configs[0][name] for name in same] == [configs[1][name] for name in same]
    assert configs[0]["layer_norm_eps"] == 1e-12
    texts = [tokenizer, transformers.AutoTokenizer.from_pretrained(tmp_path / "exported")]
    first, second = (text(lines, return_offsets_mapping=True).offset_mapping for text in texts)
    assert first == second


def test_untied_output_rows_do_not_change():
    model = build("BertForMaskedLM", tie_word_embeddings=False)
    swapped = hf.swap_positions(model, "none")
    close(swapped.lm_head.decoder.weight, model.cls.predictions.decoder.weight, rtol=0, atol=0)
    average_positions(model)
    close(run(swapped), run(model), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scheme", ["learned", "sinusoidal"])
def test_our_own_encoders_keep_the_mean(scheme):
    model = build_ours(scheme, scale_embedding=True, position_options={"segment_scheme": "input"})
    swapped = hf.swap_positions(model, "none")
    [table] = (
        value
        for name, value in [*model.named_parameters(), *model.named_buffers()]
        if "embed_positions" in name
    )
    with torch.no_grad():
        table[2:] = table[2:].mean(0)
    close(run(swapped), run(model), rtol=1e-4, atol=1e-5)


def test_heads_and_segments_of_our_own_encoders_remain():
    options = {"segment_scheme": "per-head", "num_segments": 2}
    kind = hf.DietForSequenceClassification
    model = build_ours("diet_rel", kind, num_labels=3, position_options=options)
    swapped = hf.swap_positions(model, "alibi")
    assert type(swapped) is kind
    assert swapped.config.num_labels == 3
    assert swapped.config.position_options["segment_scheme"] == "per-head"
    changed = {
        name for name, tensor in swapped.state_dict().items()
        if not torch.equal(tensor, model.state_dict().get(name, torch.empty(0)))
    }  # fmt: skip
    assert not changed
    assert not any(".positions." in name for name in swapped.state_dict())


def test_the_same_scheme_keeps_its_parameters():
    model = build_ours("diet_rel", position_options={"position_clip": 4})
    swapped = hf.swap_positions(model, "diet_rel", position_temperature=0.5)
    assert swapped.config.position_options["position_clip"] == 4
    close(dict(swapped.state_dict()), dict(model.state_dict()), rtol=0, atol=0)


@pytest.mark.parametrize("sharing", ["none", "layer"])
@pytest.mark.parametrize("options", [{}, {"position_global_scheme": "none"},
                                     {"position_global_scheme": "tupe_r"}])  # fmt: skip
def test_layers_of_two_kinds_and_back_keep_the_layers_with_the_same_scheme(options, sharing):
    model = build_ours("diet_rel", position_options={"position_sharing": sharing})
    wide = {"position_window": LENGTH, "position_layers": "lg"}
    there = hf.swap_positions(model, "diet_rel", **wide, **options)
    back = hf.swap_positions(there, "diet_rel", **dict.fromkeys(wide | options))
    assert back.config.positions.scheme_label == "diet_rel"
    if not options or sharing == "layer":
        for (name, old), new in zip(model.named_parameters(), back.parameters(), strict=True):
            torch.testing.assert_close(new, old, msg=name)
    if not options:
        torch.testing.assert_close(run(there), run(model))


def test_a_swap_back_to_no_positions_drops_the_options_of_global_layers():
    options = {"position_layers": "lg", "position_global_scheme": "t5"}
    model = build_ours("none", position_options=options)
    back = hf.swap_positions(model, "none", **dict.fromkeys(options))
    assert back.config.positions.scheme_label == "none"


def test_dtype_and_mode_remain():
    model = build("RobertaModel").bfloat16().train()
    swapped = hf.swap_positions(model, "rope")
    assert swapped.dtype == torch.bfloat16
    assert swapped.training
    assert not hf.swap_positions(model.eval(), "rope").training


def test_a_swapped_model_reads_longer_texts_and_is_saved(tmp_path):
    model = build("BertModel", num_hidden_layers=1)
    swapped = hf.swap_positions(model, "diet_rel", max_positions=4 * LENGTH, position_clip=4)
    assert swapped.config.max_position_embeddings == 4 * LENGTH
    assert swapped.config.trained_length == LENGTH
    again = hf.swap_positions(swapped, "alibi", max_positions=8 * LENGTH)
    assert again.config.max_position_embeddings == 8 * LENGTH
    assert again.config.trained_length == LENGTH
    swapped.save_pretrained(tmp_path)
    loaded = transformers.AutoModel.from_pretrained(tmp_path).eval()
    assert type(loaded) is hf.DietEncoderModel
    tokens = torch.randint(4, WORDS, (1, 3 * LENGTH))
    with torch.no_grad():
        close(loaded(tokens).last_hidden_state, swapped(tokens).last_hidden_state)


TRANSLATION: dict[str, dict[str, Any]] = {
    "MarianMTModel": {
        "pad_token_id": 39, "decoder_start_token_id": 39, "eos_token_id": 0,
        "scale_embedding": True, "activation_function": "swish", "forced_eos_token_id": 0,
    },
    "BartForConditionalGeneration": {},
    "MBartForConditionalGeneration": {"scale_embedding": True},
    "M2M100ForConditionalGeneration": {},
}  # fmt: skip
each_translation = pytest.mark.parametrize("name", TRANSLATION)


def build_translation(name: str) -> Any:
    """A translation model with random parameters of a class of transformers."""
    kind = getattr(transformers, name)
    sizes = {
        "vocab_size": WORDS, "d_model": 16, "encoder_layers": 2, "decoder_layers": 1,
        "encoder_ffn_dim": 24, "decoder_ffn_dim": 20, "encoder_attention_heads": 2,
        "decoder_attention_heads": 4, "max_position_embeddings": LENGTH,
    }  # fmt: skip
    model = randomize(kind(kind.config_class(**sizes | TRANSLATION[name])))
    if name == "MarianMTModel":
        model.final_logits_bias.normal_()
    return model


@torch.no_grad()
def run_translation(model: Any) -> list[torch.Tensor]:
    """Logits of targets, and translations by beam search, of two sentences."""
    draw, pad = torch.Generator().manual_seed(1), model.config.pad_token_id
    source = torch.randint(4, 38, (2, 12), generator=draw)
    source[1, 8:] = pad
    mask, target = source.ne(pad).long(), torch.randint(4, 38, (2, 7), generator=draw)
    options = {"num_beams": 2, "max_new_tokens": 6, "min_new_tokens": 6}
    return [
        model(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits,
        model.generate(source, attention_mask=mask, **options),
    ]


@each_translation
def test_translation_models_keep_their_outputs_with_their_own_positions(name):
    model = build_translation(name)
    swapped = hf.swap_positions(model, "sinusoidal" if "M2M" in name else "learned")
    assert type(swapped) is hf.DietForConditionalGeneration
    close(run_translation(swapped), run_translation(model), rtol=1e-4, atol=1e-5)


@each_translation
@torch.no_grad()
def test_translation_models_with_another_scheme_start_without_positions(name):
    model = build_translation(name)
    swapped = hf.swap_positions(model, "diet_rel", max_positions=99)
    assert swapped.config.max_target_positions == 99
    for side in (model.model.encoder, model.model.decoder):
        table = side.embed_positions
        (table.weights if "M2M" in name else table.weight).zero_()
    close(run_translation(swapped), run_translation(model), rtol=1e-4, atol=1e-5)


REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "a class with another head": (
        lambda: build("BertForSequenceClassification"), {},
        "ElectraForMaskedLM.*the model is a BertForSequenceClassification: give one of these",
    ),
    "another family": (
        lambda: transformers.GPT2Model(transformers.GPT2Config(n_layer=1, n_embd=8, n_head=1)), {},
        "the model is a GPT2Model",
    ),
    "a modern encoder": (
        lambda: transformers.ModernBertModel(
            transformers.ModernBertConfig(
                num_hidden_layers=1, hidden_size=8, num_attention_heads=1, intermediate_size=8,
                vocab_size=WORDS, pad_token_id=0,
            )
        ),
        {}, "the model is a ModernBertModel: give one of these",
    ),
    "a decoder": (
        lambda: build("BertModel", is_decoder=True), {}, "is_decoder False, but the BertModel has T"
    ),
    "segments": (
        lambda: build("BertModel"), {"segment_scheme": "none"}, "segment_scheme must not be given"
    ),
    "a longer table": (
        lambda: build("BertModel"), {"scheme": "learned", "max_positions": 30},
        r"embed_positions.weight is \(21, 16\) in the model, but \(31, 16\) with",
    ),
    "an unknown option": (lambda: build("BertModel"), {"position_clop": 3}, "position_clip"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_other_models_and_options_are_refused(case):
    create, options, message = REFUSED[case]
    with pytest.raises(UserError, match=message):
        hf.swap_positions(create(), **{"scheme": "diet_rel"} | options)


CHECKS = """
assert "fairseq" not in sys.modules and "diet_fairseq.patches" not in sys.modules
again = AutoModel.from_pretrained("swapped").eval()
torch.testing.assert_close(again(**inputs)[0], model(**inputs)[0])
assert AutoTokenizer.from_pretrained("swapped")("a dog").input_ids == tokenizer("a dog").input_ids
"""


@pytest.mark.slow
def test_the_example_of_the_documentation_runs_without_fairseq(tmp_path):
    originals.bert(tmp_path / "all-MiniLM-L6-v2", head="Model")
    block = section_of("docs/hugging-face.md", "Swapped positions").split("```")[1]
    program = HIDE + block.removeprefix("python\n") + CHECKS
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("DietEncoderModel torch.Size([1, "), done.stdout
