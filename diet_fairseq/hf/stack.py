"""The base classes of our models in transformers."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ..attention.backends import AttentionCall
from ..attention.backends.call import Backend
from ..attention.backends.choice import UNFUSED
from ..attention.backends.reference import attention_bias
from ..attention.compressed import Compression
from ..positions import PositionScheme
from ..positions.base import KINDS
from ..positions.gain import ScoreParameters
from ..transformer.embedding import SinusoidalPositions
from ..transformer.stack import Stack
from .configuration import CACHE, DietConfig

# Notation: B sentences, T tokens, d model dimension.

#: pattern of the names of heads' parameters, which a model without the head ignores
OTHER_HEADS = (
    r"^(lm_head|classifier|classification_heads|qa_outputs|nsp_head|discriminator_head|generator)\."
)


class DietPreTrainedModel(PreTrainedModel):
    """The base class of all our models in transformers."""

    config: DietConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _skip_keys_device_placement = [CACHE]  # noqa: RUF012
    _supports_sdpa = True
    _supports_attention_backend = True
    # neither supports an attention bias in transformers
    _supports_flash_attn = False
    _supports_flex_attn = False
    _keys_to_ignore_on_load_unexpected = [OTHER_HEADS]  # noqa: RUF012

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The state without gains, which are in the configuration.

        If the model is part of another module, the state of the other module includes the gains,
        because PyTorch then does not call the `load_state_dict` of this class.
        """
        state = super().state_dict(*args, **kwargs)
        if kwargs.get("destination") is None:
            for name in [name for name in state if name.endswith(".gain")]:
                del state[name]
        return state

    def load_state_dict(self, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        """Load a state and keep the model's gains.

        Without this method, a scheme would set its gain to 1, because the state has no gain.
        """
        gains = {
            f"{name}.gain": torch.tensor(module.gain, dtype=torch.float64)
            for name, module in self.named_modules()
            if isinstance(module, ScoreParameters)
        }
        return super().load_state_dict({**state_dict, **gains}, *args, **kwargs)

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, Compression):
            init.copy_(module.weight, module.initial_values())
        elif isinstance(module, SinusoidalPositions):
            init.copy_(module.weights, module.initial_values())
        elif isinstance(module, PositionScheme):
            # the values of a new scheme of the same class, which may be a part of another scheme
            shape = module.shape
            stack = self.config.stack("decoder" if shape.causal or shape.cross else "encoder")
            # layers may share the scheme of one kind of layers, which then has the number 0
            kinds = [stack] if shape.cross else [stack.at_layer(shape.layer), *stack.layer_kinds]
            parts = (
                part
                for kind in kinds
                for scheme in kind.build_schemes(shape.cross, shape.layer).values()
                for part in scheme.modules()
            )
            new = next(part for part in parts if type(part) is type(module))
            for name, parameter in module.named_parameters():
                init.copy_(parameter, new.get_parameter(name))
            for name, buffer in module.named_buffers():
                init.copy_(buffer, new.get_buffer(name))
        else:
            super()._init_weights(module)


class DietStack(Stack, DietPreTrainedModel):
    """The base class of our encoder and decoder with the interface of transformers.

    Args:
        side: "encoder" or "decoder"
        vocabulary: the number of tokens
    """

    def __init__(self, config: DietConfig, side: str, vocabulary: int) -> None:
        DietPreTrainedModel.__init__(self, config)
        stack, width = config.stack(side), config.embedding_dim
        if width is None or side == "decoder":
            width = stack.embed_dim
        super().__init__(stack, nn.Embedding(vocabulary, width, stack.padding))

    def backend_setting(self) -> str | Backend:
        """The attention backend for ``attn_implementation``.

        It is ``reference`` for "eager", the value of ``--attention-backend`` (default: "auto") for
        "sdpa", which is transformers' default, and otherwise a function that is registered with
        transformers.
        """
        name = self.config._attn_implementation
        if name == "eager":
            return "reference"
        if name == "sdpa":
            return super().backend_setting()
        # schemes with terms that are not an additive mask do not use the function
        return Backend(partial(call_registered, name), serves=KINDS - UNFUSED)

    @property
    def gradient_checkpointing(self) -> bool:
        """Whether layers store only their input for the backward pass; transformers sets this."""
        return any(layer.checkpoint_activations for layer in self.layers)

    @gradient_checkpointing.setter
    def gradient_checkpointing(self, is_enabled: bool) -> None:
        for layer in self.layers:
            layer.checkpoint_activations = is_enabled  # type: ignore[assignment]

    def padding_mask(
        self, attention_mask: Tensor | None, tokens: Tensor | None, embeddings: Tensor | None
    ) -> Tensor:
        """The padding mask (B, T) bool, True at padding.

        Args:
            attention_mask: (B, T), 0 at padding; None: padding follows from the tokens
            tokens: (B, T) int64, or None
            embeddings: (B, T, d), or None

        Raises:
            ValueError: both tokens and embeddings are given, or neither
        """
        if tokens is not None and embeddings is not None:
            raise ValueError("input_ids and inputs_embeds are both given: give only one of them")
        if attention_mask is not None:
            return attention_mask == 0
        if tokens is not None:
            return tokens == self.padding_idx
        if embeddings is None:
            raise ValueError("input_ids and inputs_embeds are both missing: give one of them")
        return torch.zeros(embeddings.shape[:2], dtype=torch.bool, device=embeddings.device)

    def read_output_options(self, options: dict[str, Any]) -> tuple[Any, ...]:
        """The options ``output_hidden_states`` and ``output_attentions`` of a forward pass.

        Args:
            options: the keyword arguments of the call; the configuration has the defaults

        Raises:
            ValueError: an argument sets token positions
        """
        for name in ("position_ids", "decoder_position_ids"):
            if options.get(name) is not None:
                raise ValueError(
                    f"{name} is not supported, because positions count the tokens that "
                    "attention_mask does not hide: leave it out"
                )
        names = ("output_hidden_states", "output_attentions")
        return tuple(options.get(name, getattr(self.config, name)) for name in names)


def select_states(states: list[Tensor], features: Tensor, selection: Any) -> Any:
    """The hidden states of a model's output, or None.

    Args:
        states: (B, T, d) each, the input of the first layer and the output of every layer
        features: (B, T, d), which replace the last state
        selection: the value of ``output_hidden_states``: True for all states, False for none, or
            the index or indices of some states; the other states are then None
    """
    if not selection:
        return None
    states, number = [*states[:-1], features], len(states)
    if selection is True:
        return tuple(states)
    indices = [selection] if isinstance(selection, int) else selection
    wanted = {index % number for index in indices if -number <= index < number}
    return tuple(state if index in wanted else None for index, state in enumerate(states))


def call_registered(name: str, call: AttentionCall) -> tuple[Tensor, Tensor | None]:
    """Compute an attention call with an attention function that is registered with transformers.

    The mask of the function is `attention_bias`, one tensor for positions, segments and masks.
    """
    call = call.fold_temperature()
    bias = attention_bias(call)
    # the mask is complete: a function must not add a causal one
    module = SimpleNamespace(is_causal=False, training=call.dropout > 0)
    out, weights = ALL_ATTENTION_FUNCTIONS[name](
        module, call.q, call.k, call.v, bias, dropout=call.dropout, scaling=1.0
    )
    return out.transpose(1, 2), weights
