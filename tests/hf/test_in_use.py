"""Transformers' own machinery around our models: attention functions, caches, search, Trainer."""

import copy
import logging

import pytest
import torch

from tests.hf.test_equality import convert, converted, logits
from tests.support import tiny

pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")

from transformers import (
    AttentionInterface,
    StaticCache,
    Trainer,
    TrainingArguments,
)
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from diet_fairseq.errors import UserError
from diet_fairseq.hf.configuration import CACHE

#: one of every scheme, and what else changes decoding
TRANSLATION = [
    *tiny.first_of_each_scheme(tiny.TRANSLATION),
    tiny.Case("shaw", (("position_values", True),)),
    tiny.Case("tupe_r", (("position_cross_attention", True),)),
]
ENCODERS = [tiny.Case("diet_rel", family="bert"), tiny.Case("diet_abs_lin", family="bert")]
#: one for each kind of terms: none, scores, rows, transformations, changed logits
KINDS = [tiny.Case(name) for name in ("none", "t5", "shaw", "rope", "cope")]


def sources(left_pad=True):
    return tiny.padded(tiny.SOURCES, left_pad)


def generated(model, **options):
    """Eight words, none of them padding, and the scores of each step."""
    words = {"max_new_tokens": 8, "min_new_tokens": 8, "suppress_tokens": [tiny.PAD]}
    return model.generate(
        sources(), return_dict_in_generate=True, output_scores=True, **words, **options
    )


@tiny.each(TRANSLATION)
def test_generation_with_a_cache_equals_generation_without(case):
    model = converted(case)
    with_cache, without = (
        generated(model, num_beams=3, use_cache=use_cache) for use_cache in (True, False)
    )
    assert torch.equal(with_cache.sequences, without.sequences)
    for cached, computed in zip(with_cache.scores, without.scores, strict=True):
        torch.testing.assert_close(cached, computed, rtol=1e-4, atol=1e-4)


@tiny.each(KINDS)
@pytest.mark.parametrize(("attention", "beams"), [("eager", 1), ("sdpa", 3)])
def test_generation_with_a_static_cache_equals_that_with_a_dynamic_one(case, attention, beams):
    model = converted(case)
    model.set_attn_implementation(attention)
    dynamic, static = (
        generated(model, num_beams=beams, **cache)
        for cache in ({}, {"cache_implementation": "static"})
    )
    assert torch.equal(dynamic.sequences, static.sequences)


def test_generation_without_masks_leaves_out_padding():
    model = converted(tiny.Case("t5"))
    starts = torch.tensor([[tiny.EOS, 5, 6], [tiny.PAD, tiny.EOS, 7]] * 5)[: len(sources())]
    masks = {
        "attention_mask": sources().ne(tiny.PAD).long(),
        "decoder_attention_mask": starts.ne(tiny.PAD).long(),
    }
    without_masks = generated(model, decoder_input_ids=starts)
    with_masks = generated(model, decoder_input_ids=starts, **masks)
    torch.testing.assert_close(without_masks.scores, with_masks.scores)


class Wrapper(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.inner = model
        self.head = torch.nn.ParameterDict({"gain": torch.nn.Parameter(torch.ones(1))})


@tiny.each([case for case in TRANSLATION if "position_gain" in tiny.default_options(case.kind)])
def test_a_model_within_another_module_keeps_its_gains(case):
    model = converted(case)
    state = Wrapper(model).state_dict()
    assert "head.gain" in state
    wrapper = Wrapper(type(model)(model.config).eval())
    assert wrapper.load_state_dict(state)
    torch.testing.assert_close(logits(wrapper.inner), logits(model), rtol=0, atol=0)
    assert not [name for name in model.state_dict() if name.endswith(".gain")]


@torch.no_grad()
@tiny.each(TRANSLATION)
def test_every_step_and_every_cache_equals_the_whole_forward_pass(case):
    # transformers 5.24 calls `cache` what was `past_key_values`
    name = "cache" if case.kind.kinds else "past_key_values"
    model = converted(case)
    targets = tiny.padded(tiny.TARGETS, left_pad=True)
    mask = targets.ne(tiny.PAD).long()
    whole = model(sources(), decoder_input_ids=targets, decoder_attention_mask=mask).logits
    options = {"max_cache_len": 14, "config": model.config.get_text_config(decoder=True)}
    for cache in (DynamicCache(), StaticCache(**options)):
        past = EncoderDecoderCache(cache, DynamicCache())
        parts = []
        for begin, end in ((0, 4), (4, 5), (5, targets.size(1))):
            out = model(
                sources(),
                decoder_input_ids=targets[:, begin:end],
                decoder_attention_mask=mask[:, :end],
                use_cache=True,
                **{name: past},
            )
            assert out.get(CACHE) is past
            parts.append(out.logits)
        real = mask.bool()
        torch.testing.assert_close(torch.cat(parts, 1)[real], whole[real], **tiny.TOLERANCE)


@torch.no_grad()
@tiny.each(TRANSLATION)
def test_no_word_sees_a_later_one_though_nothing_is_padded(case):
    """SDPA is given no mask where transformers thinks that `is_causal` says it all."""
    model = converted(case)
    model.set_attn_implementation("sdpa")
    source = sources()[:1]
    targets = torch.randint(4, tiny.VOCABULARY, (1, 7))
    changed = torch.cat([targets[:, :4], targets[:, 4:].flip(1) * 0 + 5], dim=1)
    first, second = (model(source, decoder_input_ids=words).logits for words in (targets, changed))
    torch.testing.assert_close(first[:, :4], second[:, :4], rtol=0, atol=0)
    assert tiny.difference(first[:, 4:], second[:, 4:]) > tiny.VISIBLE


@torch.no_grad()
@tiny.each([*tiny.first_of_each_scheme(tiny.IN_ATTENTION), *ENCODERS])
def test_positions_act_with_any_attention_function(case):
    """An attention function may be registered without one for its mask."""
    AttentionInterface.register("a_stranger", sdpa_attention_forward)
    model = converted(case)
    model.set_attn_implementation("eager")
    expected = logits(model)
    model.set_attn_implementation("a_stranger")
    torch.testing.assert_close(logits(model), expected, **tiny.TOLERANCE)
    before = {name: p.clone() for name, p in model.named_parameters() if "positions" in name}
    for name, parameter in model.named_parameters():
        if name in before:
            parameter.mul_(-1.5).add_(0.1 * torch.randn_like(parameter))
    if before:  # a scheme may have no parameters
        assert tiny.difference(logits(model), expected) > tiny.VISIBLE
    for name, parameter in model.named_parameters():
        if name in before:
            parameter.copy_(before[name])


@torch.no_grad()
@tiny.each([tiny.Case("shaw"), tiny.Case("diet_rel"), *ENCODERS])
def test_attention_weights_and_hidden_states_are_outputs(case):
    model = converted(case)
    model.set_attn_implementation("eager")
    options = {"output_attentions": True, "output_hidden_states": True}
    if model.config.is_encoder_decoder:
        out = model(sources(), decoder_input_ids=sources(), **options)
        weights, states = out.decoder_attentions, out.decoder_hidden_states
        assert len(out.cross_attentions) == tiny.LAYERS
    else:
        out = model(sources(), **options)
        weights, states = out.attentions, out.hidden_states
    assert len(weights) == tiny.LAYERS
    assert len(states) == tiny.LAYERS + 1
    torch.testing.assert_close(weights[0].sum(-1), torch.ones_like(weights[0].sum(-1)))


@torch.no_grad()
def test_the_last_hidden_state_is_normalized_and_some_can_be_selected():
    model = convert(tiny.fresh(tiny.Case("t5"), encoder_normalize_before=True)).model.get_encoder()
    assert model.layer_norm is not None
    out = model(sources(), output_hidden_states=True)
    assert torch.equal(out.hidden_states[-1], out.last_hidden_state)
    some = model(sources(), output_hidden_states=[0, -1, 99]).hidden_states
    assert [state is not None for state in some] == [True] + [False] * (tiny.LAYERS - 1) + [True]
    assert torch.equal(some[0], out.hidden_states[0])
    assert model(sources()).hidden_states is None
    assert model(sources(), return_dict=False)[0] is not None


@pytest.mark.few(1)
@torch.no_grad()
@tiny.each([tiny.Case("sinusoidal"), tiny.Case("diet_rel"), tiny.Case("rope"), ENCODERS[1]])
def test_a_model_loads_in_any_dtype_with_tables_that_are_not_in_the_file(case, tmp_path):
    model = converted(case)
    model.save_pretrained(tmp_path)
    expected = logits(model)
    again = type(model).from_pretrained(tmp_path).eval()
    torch.testing.assert_close(logits(again), expected, **tiny.TOLERANCE)
    half = logits(type(model).from_pretrained(tmp_path, dtype=torch.bfloat16).eval())
    assert half.dtype == torch.bfloat16
    assert (half - expected).norm() < 0.1 * expected.norm()


@tiny.each([tiny.Case("tupe_r"), tiny.Case("diet_rel", family="bert")])
def test_gradients_are_the_same_when_activations_are_recomputed(case):
    model = converted(case)
    gradients = []
    for recompute in (False, True):
        if recompute:
            model.gradient_checkpointing_enable()
        assert model.is_gradient_checkpointing == recompute
        model.train()
        gradients.append(tiny.gradients(model, tiny.some_loss(logits(model, True, True))))
    model.gradient_checkpointing_disable()
    model.eval()
    tiny.assert_same(gradients[1], gradients[0])


def test_a_vocabulary_that_has_grown_is_saved_and_loaded(tmp_path):
    model = convert(tiny.fresh(tiny.Case("t5"), share_all_embeddings=True)).model
    model.resize_token_embeddings(tiny.VOCABULARY + 3)
    new = torch.full((1, 4), tiny.VOCABULARY + 2)
    expected = model.eval()(input_ids=new, decoder_input_ids=new).logits
    assert expected.size(-1) == tiny.VOCABULARY + 3
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path).eval()
    torch.testing.assert_close(again(input_ids=new, decoder_input_ids=new).logits, expected)


def test_separate_embeddings_are_not_resized():
    """transformers would save a folder that it can't load."""
    model = convert(tiny.fresh(tiny.Case("t5"))).model
    with pytest.raises(UserError, match="needs one matrix of embeddings"):
        model.resize_token_embeddings(tiny.VOCABULARY + 3)


@pytest.mark.slow
@tiny.each([tiny.Case("diet_rel"), tiny.Case("tupe_r", family="bert")])
def test_trainer_fine_tunes_and_saves_the_parameters_that_it_has(case, tmp_path):
    pytest.importorskip("accelerate", reason="Trainer needs accelerate")
    model = copy.deepcopy(converted(case))
    tokens = torch.randint(4, tiny.VOCABULARY, (4, 7))
    samples = [{"input_ids": row, "labels": row} for row in tokens]
    args = TrainingArguments(
        tmp_path / "run", max_steps=1, learning_rate=0.01, report_to=[], use_cpu=True,
        save_strategy="no", disable_tqdm=True, per_device_train_batch_size=4,
    )  # fmt: skip
    before = {name: p.clone() for name, p in model.named_parameters()}
    trainer = Trainer(model, args, train_dataset=samples)
    trainer.train()
    still = [name for name, p in model.named_parameters() if torch.equal(p, before[name])]
    # softmax is blind to what is the same for all keys
    assert all("k_proj.bias" in name or "pos_k_linear.bias" in name or "pooler" in name
               or "segments" in name or "embed_segments" in name for name in still)  # fmt: skip
    trainer.save_model(tmp_path / "saved")
    again = type(model).from_pretrained(tmp_path / "saved").eval()
    again.set_attn_implementation(model.config._attn_implementation)
    model.eval()
    with torch.no_grad():
        assert torch.equal(logits(again), logits(model))
    # as load_best_model_at_end does
    from safetensors.torch import load_file

    model.load_state_dict(load_file(tmp_path / "saved" / "model.safetensors"), strict=False)
    with torch.no_grad():
        assert torch.equal(logits(again), logits(model))


@pytest.mark.parametrize("device_map", ["cpu", "auto"])
def test_a_device_map_of_one_device_is_accepted(device_map, tmp_path):
    pytest.importorskip("accelerate", reason="device_map needs accelerate")
    model = converted(tiny.named("diet_rel"))
    model.save_pretrained(tmp_path)
    with torch.no_grad():
        again = type(model).from_pretrained(tmp_path, device_map=device_map).eval()
        torch.testing.assert_close(logits(again), logits(model), **tiny.TOLERANCE)


def test_a_model_that_is_offloaded_by_whole_stacks_computes_the_same(tmp_path):
    accelerate = pytest.importorskip("accelerate")
    model = converted(tiny.named("tupe_r"))
    offloaded = accelerate.disk_offload(
        copy.deepcopy(model), tmp_path, execution_device=torch.device("cpu"),
        preload_module_classes=["DietEncoder", "DietDecoder"],
    )  # fmt: skip
    with torch.no_grad():
        assert torch.equal(logits(offloaded), logits(model))


def test_a_model_of_a_configuration_alone_has_the_scheme_s_own_start():
    from diet_fairseq.hf import DietTransformerConfig, DietTransformerModel

    sizes = {"layers": 1, "embed_dim": 16, "ffn_embed_dim": 16, "attention_heads": 2}
    both = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in sizes.items()}
    config = DietTransformerConfig(position_scheme="diet_rel", vocab_size=20, **both)
    model = DietTransformerModel(config)
    scheme = model.encoder.layers[0].self_attn.positions
    assert float(scheme.scalars.max()) == pytest.approx(3.0)  # --position-start local
    assert scheme.row_of_offset.tolist() == list(range(2 * 1024 - 1))


def test_two_names_of_one_cache_are_refused():
    model = converted(tiny.Case("none"))
    caches = {
        name: EncoderDecoderCache(DynamicCache(), DynamicCache())
        for name in ("cache", "past_key_values")
    }
    with pytest.raises(
        ValueError, match="cache and past_key_values are two names of the same cache"
    ):
        model(sources(), decoder_input_ids=sources(left_pad=False), **caches)


@torch.no_grad()
@tiny.each([tiny.Case("t5"), tiny.Case("alibi", (("position_cross_attention", True),))])
def test_a_static_cache_longer_than_the_source_changes_nothing(case):
    model = converted(case)
    source, target = torch.tensor([[5, 6, 7, 8]]), torch.tensor([[2, 5, 6, 7]])
    whole = model(source, decoder_input_ids=target).logits  # (1, T, V)
    config = model.config.get_text_config(decoder=True)
    cache = EncoderDecoderCache(
        StaticCache(config=config, max_cache_len=14), StaticCache(config=config, max_cache_len=9)
    )
    steps = [
        model(source, decoder_input_ids=word, use_cache=True, **{CACHE: cache}).logits
        for word in target.split(1, dim=1)
    ]
    torch.testing.assert_close(torch.cat(steps, dim=1), whole, **tiny.TOLERANCE)


@tiny.each([tiny.Case("learned", family="bert"), tiny.Case("t5")])
def test_inputs_that_would_be_ignored_are_refused(case):
    model = converted(case)
    inputs = {"input_ids": sources()}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = tiny.padded(tiny.TARGETS, False)
    positions = torch.arange(sources().size(1)).expand_as(sources())
    with pytest.raises(ValueError, match="position_ids is not supported, because positions count"):
        model(**inputs, position_ids=positions)
    embeddings = model.get_input_embeddings()(sources())
    with pytest.raises(ValueError, match="input_ids and inputs_embeds are both given"):
        model(**inputs, inputs_embeds=embeddings)


QUANTIZED = [
    *tiny.first_of_each_scheme(tiny.ENCODERS),
    tiny.Case("tupe_r", (("position_relative", "product"),), family="bert"),
]


@torch.no_grad()
@tiny.each(QUANTIZED)
def test_every_scheme_runs_with_quantized_linear_maps(case):
    """`quantize_dynamic` puts another module in the place of each `nn.Linear`."""
    model = convert(tiny.fresh(case)).model.eval()
    exact = logits(model)
    quantized = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, torch.qint8)
    assert (logits(quantized) - exact).norm() < 0.3 * exact.norm()


@pytest.mark.slow
def test_compiling_logs_no_warning(caplog):
    model, logger = converted(tiny.Case("diet_rel")), logging.getLogger("torch._dynamo")
    logger.addHandler(caplog.handler)
    try:
        torch._dynamo.reset()
        torch.compile(model, backend="eager")(
            sources(), decoder_input_ids=tiny.padded(tiny.TARGETS, False)
        )
    finally:
        logger.removeHandler(caplog.handler)
    assert not [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
