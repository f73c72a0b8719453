"""fairseq's models as Hugging Face transformers', and back: configurations and parameters' names.

Parameters keep fairseq's names but for their beginnings. Gains are part of the configuration, and
of tied parameters one copy is kept.
"""

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from fairseq.modules import LearnedPositionalEmbedding, SinusoidalPositionalEmbedding
from torch import Tensor, nn

from ..config import PositionConfig
from ..errors import UserError
from ..hf import (
    DietEncoderConfig,
    DietEncoderModel,
    DietForConditionalGeneration,
    DietForMaskedLM,
    DietForQuestionAnswering,
    DietForSequenceClassification,
    DietTransformerConfig,
)
from ..positions.gain import ScoreParameters
from ..positions.segments import SegmentScores
from ..stack.encoder import PositionalEncoder
from ..tasks.diet_question_answering import HEAD as SPAN

#: names of activations: fairseq's -> transformers'
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_fast": "gelu_new",
    "gelu_accurate": "gelu_new",
    "tanh": "tanh",
    "linear": "linear",
}
#: beginnings of names: fairseq's -> ours in transformers; the first that fits counts
ENCODER_NAMES = {
    "encoder.sentence_encoder.": "model.",
    "encoder.lm_head.weight": "lm_head.decoder.weight",
    "encoder.lm_head.bias": "lm_head.decoder.bias",
    "encoder.lm_head.": "lm_head.",
    "pooler.": "model.pooler.",
}
TRANSFORMER_NAMES = {
    "decoder.output_projection.": "lm_head.",
    "encoder.": "model.encoder.",
    "decoder.": "model.decoder.",
}
#: what fairseq's state has and nobody reads
VERSION = "version"
#: how far logits may lie apart: the same equation, in another order of sums
TOLERANCE = 1e-3


@dataclass(frozen=True)
class Converted:
    """A model in transformers.

    Attributes:
        model: in eval mode
        others: parameters that it doesn't read but others of the same encoder do: further heads
    """

    model: Any
    others: dict[str, Tensor]

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All that the folder's file of weights holds."""
        copies = self.model.all_tied_weights_keys
        state = {**self.model.state_dict(), **self.others}
        return {name: tensor.contiguous() for name, tensor in state.items() if name not in copies}


def converted(model: Any, head: str | None = None) -> Converted:
    """fairseq's model in transformers, with the one of its heads that is called ``head``.

    Raises:
        UserError: the model has something that the other can't hold
    """
    is_encoder = not hasattr(model, "decoder")
    config = encoder_config(model, head) if is_encoder else transformer_config(model)
    names = names_of(config, head)
    state = {
        renamed(name, names): tensor
        for name, tensor in model.state_dict().items()
        if name.rpartition(".")[2] not in (VERSION, "gain")
    }
    kind: Any = DietForConditionalGeneration
    if is_encoder:
        kind = DietForMaskedLM
        if head:
            kind = DietForQuestionAnswering if head == SPAN else DietForSequenceClassification
        if not head and "lm_head.decoder.bias" not in state:  # an ELECTRA
            kind = DietEncoderModel
            state = {name.removeprefix("model."): tensor for name, tensor in state.items()}
    other = kind(config).eval()
    own = other.state_dict()
    more = [name for name in state if name not in own]
    strange = [name for name in more if not is_encoder or name.startswith("model.")]
    strange += [name for name in own if name not in state]
    if strange:
        raise UserError(
            f"the model has options that its form in transformers lacks ({strange[0]}"
            f"{f' and {len(strange) - 1} more' if len(strange) > 1 else ''}): keep it in fairseq"
        )
    other.load_state_dict({name: state[name] for name in own})
    places = {state[name].data_ptr() for name in own}
    others = {}
    for name in more:
        if state[name].data_ptr() not in places:  # a tied copy is tied again when it is loaded
            places.add(state[name].data_ptr())
            others[name] = state[name]
    found = Converted(other, others)
    check_same(model, other, head)
    return found


def names_of(config: Any, head: str | None = None) -> dict[str, str]:
    """Beginnings of names, fairseq's and ours."""
    if config.is_encoder_decoder:
        return TRANSFORMER_NAMES
    heads = {f"classification_heads.{head}.": beginning_of(head)} if head else {}
    return ENCODER_NAMES | heads


def beginning_of(head: str) -> str:
    """Of the names of a head's parameters."""
    return "qa_outputs." if head == SPAN else "classifier."


def renamed(name: str, names: Mapping[str, str]) -> str:
    """The name with its beginning replaced."""
    for before, after in names.items():
        if name.startswith(before):
            return after + name.removeprefix(before)
    return name


def stock_positions(*stacks: Any) -> Namespace:
    """What positions fairseq's own encoder, or encoder and decoder, have: our scheme of that name.

    Our models with them are fairseq's, with its parameters' names.
    """
    kinds = {
        type(None): "none",
        LearnedPositionalEmbedding: "learned",
        SinusoidalPositionalEmbedding: "sinusoidal",
    }
    kinds_here = (type(stack.embed_positions) for stack in stacks)
    found = [kinds.get(kind, kind.__name__) for kind in kinds_here]
    if len(set(found)) > 1 or found[0] not in kinds.values():
        raise UserError(
            f"the model's positions are {' and '.join(found)}, which its form in transformers "
            "lacks: keep it in fairseq"
        )
    return Namespace(position_scheme=found[0])


def position_options(model: Any, args: Any, *stacks: Any) -> dict[str, Any]:
    """What `DietConfig` has of positions, with the gains that the parameters have."""
    if not isinstance(stacks[0], PositionalEncoder):
        args = stock_positions(*stacks)
    options = {
        name: value for name, value in asdict(PositionConfig.of(args)).items() if value is not None
    }
    del options["attention_backend"]  # transformers has attn_implementation
    gains: dict[bool, set[float]] = {False: set(), True: set()}
    for module in model.modules():
        if isinstance(module, ScoreParameters):
            gains[isinstance(module, SegmentScores)].add(module.gain)
    if any(len(found) > 1 for found in gains.values()):
        raise UserError(
            "the model's layers have gains of their own, which its form in transformers lacks: "
            "keep it in fairseq"
        )
    if gains[False]:
        [options["position_gain"]] = gains[False]
    segment_gain = next(iter(gains[True]), None)
    return {
        "position_scheme": options.pop("position_scheme"),
        "position_options": options,
        "segment_gain": segment_gain,
    }


def activation(name: str) -> str:
    if name not in ACTIVATIONS:
        raise UserError(
            f"--activation-fn {name} has no counterpart in transformers: keep the model in fairseq"
        )
    return ACTIVATIONS[name]


def stack_options(side: str, stack: Any, cfg: Any) -> dict[str, Any]:
    """The sizes of fairseq's encoder or decoder."""
    return {
        f"{side}_layers": len(stack.layers),
        f"{side}_embed_dim": cfg.embed_dim,
        f"{side}_ffn_embed_dim": cfg.ffn_embed_dim,
        f"{side}_attention_heads": cfg.attention_heads,
        f"{side}_normalize_before": bool(cfg.normalize_before),
        f"{side}_final_norm": stack.layer_norm is not None,
    }


def common_options(stack: Any) -> dict[str, Any]:
    """What encoder and decoder have in common."""
    cfg, dictionary = stack.cfg, stack.dictionary
    return {
        "activation_fn": activation(cfg.activation_fn),
        "layernorm_embedding": stack.layernorm_embedding is not None,
        "scale_embedding": not cfg.no_scale_embedding,
        "dropout": float(cfg.dropout),
        "attention_dropout": float(cfg.attention_dropout),
        "activation_dropout": float(cfg.activation_dropout or cfg.relu_dropout or 0.0),
        "bos_token_id": dictionary.bos(),
        "pad_token_id": dictionary.pad(),
        "eos_token_id": dictionary.eos(),
        "dtype": "float32",
    }


def transformer_config(model: Any) -> DietTransformerConfig:
    encoder, decoder = model.encoder, model.decoder
    cfg = decoder.cfg
    if decoder.project_in_dim is not None or decoder.project_out_dim is not None:
        raise UserError(
            "the decoder's embeddings have a width of their own (--decoder-input-dim, "
            "--decoder-output-dim), which its form in transformers lacks: keep it in fairseq"
        )
    if decoder.adaptive_softmax is not None:
        raise UserError(
            "--adaptive-softmax-cutoff has no counterpart in transformers: keep it in fairseq"
        )
    read, written = decoder.embed_tokens.weight, decoder.output_projection.weight
    shares_all, shares_output = read is encoder.embed_tokens.weight, written is read
    return DietTransformerConfig(
        **position_options(model, getattr(model, "args", None), encoder, decoder),
        **common_options(encoder),
        **stack_options("encoder", encoder, cfg.encoder),
        **stack_options("decoder", decoder, cfg.decoder),
        vocab_size=len(decoder.dictionary),
        source_vocab_size=len(encoder.dictionary),
        max_source_positions=cfg.max_source_positions,
        max_target_positions=cfg.max_target_positions,
        share_all_embeddings=shares_all,
        share_decoder_input_output_embed=shares_output,
        tie_word_embeddings=shares_all or shares_output,
        decoder_start_token_id=decoder.dictionary.eos(),
    )


def encoder_config(model: Any, head: str | None = None) -> DietEncoderConfig:
    stack, args = model.encoder.sentence_encoder, model.args
    lm_head = getattr(model.encoder, "lm_head", None)
    labels = {}
    if head not in (None, SPAN):
        labels["num_labels"] = model.classification_heads[head].out_proj.out_features
    return DietEncoderConfig(
        **position_options(stack, args, stack),
        **common_options(stack),
        **stack_options("encoder", stack, stack.cfg.encoder),
        vocab_size=len(stack.dictionary),
        embedding_dim=stack.embed_tokens.embedding_dim,
        max_source_positions=stack.cfg.max_source_positions,
        pooler=hasattr(model, "pooler"),
        pooler_activation_fn=activation(args.pooler_activation_fn),
        pooler_dropout=float(args.pooler_dropout),
        tie_word_embeddings=lm_head is None or lm_head.weight is stack.embed_tokens.weight,
        **labels,
    )


@torch.no_grad()
def check_same(model: Any, other: Any, head: str | None = None) -> float:
    """How far the two lie apart on sentences of chance; too far is a `UserError`."""
    model.eval()
    config = other.config
    draw = torch.Generator().manual_seed(1)
    longest = min(config.max_source_positions, 24)

    def sentences(vocabulary: int, longest: int) -> Tensor:
        tokens = torch.randint(4, max(vocabulary, 5), (2, longest), generator=draw) % vocabulary
        tokens[:, -1] = config.eos_token_id
        tokens[1, longest // 2 :] = config.pad_token_id
        return tokens

    sources = sentences(
        config.source_vocab_size if config.is_encoder_decoder else config.vocab_size, longest
    )
    real = sources != config.pad_token_id
    if config.is_encoder_decoder:
        targets = sentences(config.vocab_size, min(config.max_target_positions, 17))
        real = targets != config.pad_token_id
        expected = model(sources, real.sum(1), targets)[0]
        found = other(input_ids=sources, decoder_input_ids=targets).logits
    else:
        segments = (torch.arange(longest) >= longest // 3).long().expand_as(sources)
        segments = segments.clamp(max=max(config.type_vocab_size - 1, 0))
        out = other(sources, token_type_ids=segments)
        if head is not None:
            expected = model(sources, segments=segments, classification_head_name=head)[0]
            if head == SPAN:
                out["logits"] = torch.stack([out.start_logits, out.end_logits], -1)
            else:
                real = torch.ones(2, dtype=torch.bool)
        else:
            only = "logits" not in out
            expected = model(sources, features_only=only, segments=segments)[0]
        found = out.last_hidden_state if "logits" not in out else out.logits
    apart = float((found[real] - expected[real]).abs().max())
    if not apart <= TOLERANCE * max(1.0, float(expected[real].abs().max())):
        raise UserError(
            f"the model has an option that its form in transformers lacks: their outputs lie "
            f"{apart:.2g} apart; keep it in fairseq"
        )
    return apart


def arguments(config: Any) -> Namespace:
    """fairseq's options of a model with this configuration, to be completed by its ``arch``."""
    names = {after: before for before, after in ACTIVATIONS.items() if before != "gelu_fast"}
    if config.activation_fn not in names:
        raise UserError(f"the activation {config.activation_fn} has no counterpart in fairseq")
    options = config.positions
    given = {
        "activation_fn": names[config.activation_fn],
        "no_scale_embedding": not config.scale_embedding,
        "layernorm_embedding": config.layernorm_embedding,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        **{name: value for name, value in asdict(options).items() if value is not None},
    }
    sides = ("encoder", "decoder") if config.is_encoder_decoder else ("encoder",)
    for side in sides:
        for name in ("layers", "embed_dim", "ffn_embed_dim", "attention_heads", "normalize_before"):
            given[f"{side}_{name}"] = getattr(config, f"{side}_{name}")
    if config.is_encoder_decoder:
        given |= {
            "max_source_positions": config.max_source_positions,
            "max_target_positions": config.max_target_positions,
            "share_all_embeddings": config.share_all_embeddings,
            "share_decoder_input_output_embed": config.share_decoder_input_output_embed,
            "no_decoder_final_norm": not config.decoder_final_norm,
        }
        return Namespace(arch=f"transformer_{config.position_scheme}", **given)
    family = "bert" if config.pooler or config.type_vocab_size else "roberta"
    if config.embedding_dim not in (None, config.encoder_embed_dim):
        family, given["embedding_size"] = "electra", config.embedding_dim
    given |= {
        "max_positions": config.max_source_positions,
        "tokens_per_sample": config.max_source_positions,
        "pooler_activation_fn": names[config.pooler_activation_fn],
        "pooler_dropout": config.pooler_dropout,
        "untie_weights_roberta": not config.tie_word_embeddings,
    }
    return Namespace(arch=f"{family}_{config.position_scheme}", **given)


def state_for(
    model: nn.Module, config: Any, tensors: Mapping[str, Tensor], head: str | None = None
) -> tuple[dict[str, Tensor], list[str], list[str]]:
    """The state of fairseq's model with these parameters of a model in transformers.

    Returns:
        the state, names of parameters that stay as the model has them, names that it doesn't take
    """
    names = names_of(config, head)
    bare = not any(name.startswith(("model.", "lm_head.")) for name in tensors)  # a bare encoder
    places: dict[tuple[int, tuple], str] = {}
    state, missing, taken = dict(model.state_dict()), [], set()
    for name, tensor in model.state_dict().items():
        if name.rpartition(".")[2] == VERSION:
            continue
        if name.rpartition(".")[2] == "gain":
            segment = name.endswith("segments.gain")
            gain = config.segment_gain if segment else config.positions.position_gain
            state[name] = tensor if gain is None else torch.tensor(gain, dtype=torch.float64)
            continue
        there = renamed(name, names)
        there = there.removeprefix("model.") if bare else there
        place = (tensor.data_ptr(), tuple(tensor.shape))
        if there in tensors:
            if tensors[there].shape != tensor.shape:
                raise UserError(
                    f"{there} is {tuple(tensors[there].shape)}, but the configuration asks for "
                    f"{tuple(tensor.shape)}: the folder's files don't belong together"
                )
            state[name] = tensors[there].to(tensor.dtype)
            places[place] = name
            taken.add(there)
        elif place in places:  # a tied copy
            state[name] = state[places[place]]
        else:
            missing.append(name)
    for name in list(missing):  # tied to one that came later
        place = (state[name].data_ptr(), tuple(state[name].shape))
        if place in places:
            state[name] = state[places[place]]
            missing.remove(name)
    return state, missing, [name for name in tensors if name not in taken]
