"""Every option of fairseq's transformer has its effect in ours, or is refused by its flag.

fairseq's own model is the oracle: ``transformer_sinusoidal`` has its positions and parameters.
"""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
import torch
from fairseq import options
from fairseq.models.transformer import TransformerConfig

from diet_fairseq.errors import UserError
from tests.support import tiny
from tests.support.tiny import TOLERANCE, Case

close = torch.testing.assert_close

ON = {"encoder_normalize_before": True, "decoder_normalize_before": True}
CUTOFF = {"adaptive_softmax_cutoff": "10,20"}
#: option -> a value, and what it needs beside it: the models are equal
EQUAL: dict[str, dict[str, Any]] = {
    "activation_fn": {"activation_fn": "gelu"},
    "adaptive_input": {"adaptive_input": True},
    "adaptive_softmax_cutoff": CUTOFF,
    "adaptive_softmax_dropout": CUTOFF | {"adaptive_softmax_dropout": 0.5},
    "adaptive_softmax_factor": CUTOFF | {"adaptive_softmax_factor": 2},
    "base_shuffle": {"base_shuffle": 1},
    "base_sublayers": {"base_sublayers": 2},
    "char_inputs": {"char_inputs": True},
    "checkpoint_activations": {"checkpoint_activations": True},
    "decoder_attention_heads": {"decoder_attention_heads": 4},
    "decoder_embed_dim": {"decoder_embed_dim": 24, "decoder_output_dim": 24,
                          "share_decoder_input_output_embed": False},
    "decoder_ffn_embed_dim": {"decoder_ffn_embed_dim": 20},
    "decoder_input_dim": {"decoder_input_dim": 8, "share_decoder_input_output_embed": False},
    "decoder_layerdrop": {"decoder_layerdrop": 0.5},
    "decoder_layers": {"decoder_layers": 1},
    "decoder_normalize_before": {"decoder_normalize_before": True},
    "decoder_output_dim": {"decoder_output_dim": 8},
    "encoder_attention_heads": {"encoder_attention_heads": 4},
    "encoder_embed_dim": {"encoder_embed_dim": 24, "share_all_embeddings": False},
    "encoder_ffn_embed_dim": {"encoder_ffn_embed_dim": 20},
    "encoder_layerdrop": {"encoder_layerdrop": 0.5},
    "encoder_layers": {"encoder_layers": 3},
    "encoder_layers_to_keep": {"encoder_layers": 2, "encoder_layers_to_keep": "0"},
    "decoder_layers_to_keep": {"decoder_layers": 2, "decoder_layers_to_keep": "1"},
    "encoder_normalize_before": {"encoder_normalize_before": True},
    "export": {"export": True},
    "layernorm_embedding": {"layernorm_embedding": True},
    "max_source_positions": {"max_source_positions": 40},
    "max_target_positions": {"max_target_positions": 40},
    "merge_src_tgt_embed": {"merge_src_tgt_embed": True},
    "min_params_to_wrap": {"min_params_to_wrap": 1},
    "no_cross_attention": {"no_cross_attention": True},
    "no_decoder_final_norm": ON | {"no_decoder_final_norm": True},
    "no_scale_embedding": {"no_scale_embedding": True},
    "offload_activations": {"offload_activations": True},
    "quant_noise_pq": {"quant_noise_pq": 0.5, "quant_noise_pq_block_size": 4},
    "quant_noise_pq_block_size": {"quant_noise_pq": 0.5, "quant_noise_pq_block_size": 8},
    "quant_noise_scalar": {"quant_noise_scalar": 0.5},
    "share_all_embeddings": {"share_all_embeddings": True},
    "share_decoder_input_output_embed": {"share_decoder_input_output_embed": True},
    "tie_adaptive_proj": CUTOFF | {"tie_adaptive_proj": True},
}  # fmt: skip
#: options that would bypass our attention: positions/test_refusals.py has them
REFUSED = {
    *("base_layers", "cross_self_attention", "no_token_positional_embeddings"),
    *("encoder_learned_pos", "decoder_learned_pos"),
    *("encoder_xformers_att_config", "decoder_xformers_att_config"),
}
#: options whose random numbers are drawn in another order than fairseq's: tests/attention has them
DROPOUTS = {"dropout", "attention_dropout", "activation_dropout", "relu_dropout"}
#: options of noise, which ours adds to attention's projections, too, as 0.3 did
NOISE = {"quant_noise_pq", "quant_noise_pq_block_size"}
#: options that name a file, or that fairseq itself cannot build with an ordinary embedding
ELSEWHERE = {"encoder_embed_path", "decoder_embed_path", "tie_adaptive_weights"}


def option_names(config: type, prefix: str = "") -> Iterator[str]:
    for option in fields(config):
        if option.name == "_name":
            continue
        nested = option.default if is_dataclass(option.default) else None
        if nested is None:
            yield prefix + option.name
        else:
            yield from option_names(nested, f"{option.name}_")


def test_every_option_of_fairseq_s_transformer_is_tested():
    assert set(option_names(TransformerConfig)) == {*EQUAL, *REFUSED, *DROPOUTS, *ELSEWHERE}


@pytest.mark.parametrize("option", EQUAL)
def test_an_option_has_the_effect_that_it_has_in_fairseq(option):
    theirs, ours = (
        build(**EQUAL[option]) for build in (tiny.stock, lambda **x: tiny.fresh(SINUSOIDAL, **x))
    )
    state = theirs.state_dict()
    assert list(ours.state_dict()) == list(state)
    assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    ours.load_state_dict(state)
    shared = [id(p) for p in theirs.parameters()], [id(p) for p in ours.parameters()]
    assert len(set(shared[0])) == len(set(shared[1]))
    for training in (False,) if option in NOISE else (False, True):
        results = []
        for model in (theirs.train(training), ours.train(training)):
            torch.manual_seed(3)
            out = tiny.logits(model)
            results.append((out, tiny.gradients(model, tiny.some_loss(out))))
        (expected, their_gradients), (actual, our_gradients) = results
        close(actual, expected, **TOLERANCE)
        tiny.assert_same_gradients(our_gradients, their_gradients)


SINUSOIDAL = Case("sinusoidal")


@pytest.mark.parametrize("option", sorted({*DROPOUTS, "quant_noise_pq"}))
def test_randomness_of_every_kind_acts_in_training_alone(option):
    model = tiny.fresh(SINUSOIDAL, **{option: 0.5, "quant_noise_pq_block_size": 4})
    assert torch.equal(tiny.logits(model), tiny.logits(model))
    model.train()
    assert not torch.equal(tiny.logits(model), tiny.logits(model))


def test_the_output_may_have_a_bias():
    plain, biased = (tiny.fresh(SINUSOIDAL, decoder_output_bias=on) for on in (False, True))
    biased.load_state_dict(plain.state_dict(), strict=False)
    bias = biased.decoder.output_projection.bias
    close(tiny.logits(biased), tiny.logits(plain) + bias, **TOLERANCE)
    with pytest.raises(UserError, match=r"--decoder-output-bias can't be combined with --adaptive"):
        tiny.fresh(SINUSOIDAL, decoder_output_bias=True, **CUTOFF)


def test_swish_is_an_activation_of_the_command_line():
    words = ["data", "--arch", "transformer_none", "--activation-fn", "swish"]
    args = options.parse_args_and_arch(options.get_training_parser(), words)
    layer = tiny.fresh(SINUSOIDAL, activation_fn=args.activation_fn).encoder.layers[0]
    x = torch.linspace(-3, 3, 7)
    close(layer.activation_fn(x), x * x.sigmoid())
