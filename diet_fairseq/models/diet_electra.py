"""ELECTRA with position schemes in generator and discriminator: `electra_<scheme>`."""

from argparse import ArgumentParser, Namespace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from fairseq import utils
from fairseq.models import register_model
from fairseq.models.roberta import RobertaEncoder
from fairseq.models.transformer import TransformerConfig
from fairseq.modules.transformer_sentence_encoder import init_bert_params
from fairseq.tasks.masked_lm import MaskedLMTask
from torch import Tensor, nn

from ..config import encoder_defaults
from ..errors import UserError, check_at_least
from .adapters import PositionalEncoder, layer_norm_eps
from .architectures import ArchitectureFunction, register_architectures
from .diet_roberta import DietRobertaModel, FactoredHead, PositionalRobertaEncoder, create_size

# Notation: B sentences of T tokens; M tokens are the generator's targets; V words; width d of the
# discriminator, d_g of the generator, e of the embeddings.


class DiscriminatorEncoder(PositionalRobertaEncoder):
    """Our encoder without a language-model head."""

    def build_lm_head(self, embed_dim: int, **options: Any) -> None:
        return None


class DiscriminatorHead(nn.Module):
    """(B, T, d) -> (B, T): the logits of the probability that a token was replaced."""

    def __init__(self, width: int, activation: str) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.activation = utils.get_activation_fn(activation)
        self.out = nn.Linear(width, 1)

    def forward(self, features: Tensor) -> Tensor:
        return self.out(self.activation(self.dense(features))).squeeze(-1)


#: the parts between token embeddings and an encoder's layers, which have the embeddings' width
EMBEDDING_PARTS = ("embed_positions", "embed_segments", "layernorm_embedding")


class Generator(nn.Module):
    """A small masked language model on the discriminator's embeddings.

    Clark et al. (2020), section 3.2; google-research/electra. The generator has as many layers as
    the discriminator, ``--generator-size`` times its width, one head per 64 dimensions, and a
    feed-forward layer of 4 times its width. It shares token embeddings and, as in the released
    code, `EMBEDDING_PARTS` (the paper names the first two). It has its own position schemes, whose
    parameters are as wide as its layers.
    """

    def __init__(self, args: Namespace, dictionary: Any, discriminator: PositionalEncoder) -> None:
        super().__init__()
        cfg = TransformerConfig.from_namespace(generator_options(args))
        embed_tokens: Any = discriminator.embed_tokens
        self.encoder = PositionalEncoder(cfg, dictionary, embed_tokens)
        if shares_embeddings(args):
            for part in EMBEDDING_PARTS:
                setattr(self.encoder, part, getattr(discriminator, part))
        words, embedding_size = embed_tokens.weight.shape  # (V, e)
        self.lm_head = FactoredHead(
            cfg.encoder.embed_dim,
            embedding_size,
            output_dim=words,
            activation_fn=args.activation_fn,
            weight=embed_tokens.weight,
        )
        self.lm_head.layer_norm.eps = layer_norm_eps(args)

    def forward(self, tokens: Tensor, is_target: Tensor, segments: Tensor | None) -> Tensor:
        """tokens (B, T), is_target (B, T) bool -> logits (M, V) of the targets only."""
        features = self.encoder(tokens, segments=segments)["encoder_out"][0]  # (T, B, d_g)
        return self.lm_head(features.transpose(0, 1), is_target)


def shares_embeddings(args: Namespace) -> bool:
    """Whether the generator has the discriminator's `EMBEDDING_PARTS`.

    Checkpoints of version 0.2 and before lack the option and have two of each part.
    """
    return getattr(args, "generator_embeddings", "own") == "shared"


def generator_options(args: Namespace) -> Namespace:
    """The options of the generator's encoder."""
    check_at_least("--generator-size", args.generator_size, 1 / args.encoder_embed_dim)
    width = int(args.encoder_embed_dim * args.generator_size + 1e-6)
    heads = max(1, width // 64)
    if width % heads:
        raise UserError(
            f"--generator-size {args.generator_size:g} of width {args.encoder_embed_dim} is "
            f"{width}, which must be a multiple of the generator's {heads} heads: use "
            f"{64 * heads / args.encoder_embed_dim:g}"
        )
    sizes = {"embed_dim": width, "ffn_embed_dim": 4 * width, "attention_heads": heads}
    return Namespace(**vars(args) | {f"encoder_{name}": size for name, size in sizes.items()})


@register_model("diet_electra")
class DietElectraModel(DietRobertaModel):
    """A discriminator that detects the tokens which a generator replaced, Clark et al. (2020).

    The discriminator has the parameters of `DietRobertaModel` without the language-model head, so
    that ``bert_<scheme>`` and ``roberta_<scheme>`` of equal shape (and ``--embedding-size``) load
    it; ``generator`` exists only for pretraining (``--task masked_lm``). Ke et al. (2021, section
    4.1) use TUPE in the generator and the discriminator.
    """

    has_segments = True

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        super().add_args(parser)
        parser.add_argument(
            "--generator-size",
            type=float,
            help="width of the generator divided by the encoder's width",
        )
        parser.add_argument(
            "--generator-embeddings",
            choices=("shared", "own"),
            help="position and segment embeddings of the generator, and their LayerNorm: shared "
            "with the discriminator, or own, as in version 0.2 (default: shared)",
        )

    @classmethod
    def build_encoder(cls, args: Namespace, task: Any) -> RobertaEncoder:
        args.pretrains = isinstance(task, MaskedLMTask)
        return DiscriminatorEncoder(args, task.source_dictionary)

    def __init__(self, args: Namespace, encoder: RobertaEncoder) -> None:
        super().__init__(args, encoder)
        self.discriminator_head = self.generator = None
        if args.pretrains:
            head = DiscriminatorHead(args.encoder_embed_dim, args.activation_fn)
            generator = Generator(args, encoder.dictionary, encoder.sentence_encoder)
            self.discriminator_head = head.apply(init_bert_params)
            self.generator = generator.apply(init_bert_params)

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """Like fairseq's, but refuse a generator's own embeddings if this model shares them.

        Loading would silently keep one of the two.
        """
        super().upgrade_state_dict_named(state_dict, name)
        if self.generator is None or not shares_embeddings(self.args):
            return
        prefix = f"{name}." if name else ""
        for key, value in state_dict.items():
            part = key.removeprefix(f"{prefix}generator.encoder.")
            shared = state_dict.get(f"{prefix}encoder.sentence_encoder.{part}")
            if part == key or shared is None or not part.startswith(EMBEDDING_PARTS):
                continue
            if not torch.equal(value, shared):
                raise UserError(
                    f"the checkpoint's generator has {part} of its own, but this model's generator "
                    "shares the discriminator's: give --generator-embeddings own, as in version "
                    "0.2, or another checkpoint"
                )

    def forward(  # type: ignore[override]  # all but tokens are given by name
        self, src_tokens: Tensor, *, targets: Tensor | None = None, **kwargs: Any
    ) -> tuple[Tensor, dict[str, Any]]:
        """Like RoBERTa's; with ``targets``, detect replaced tokens.

        Args:
            src_tokens: (B, T); with ``targets`` the generator's input, in which tokens are masked
            targets: (B, T), the original of each token that the generator replaces, else padding

        Returns:
            the discriminator's logits (B, T), and a dict with ``generator_logits`` (M, V) and
            ``replaced`` (B, T) bool, True where the sampled token differs from the original
        """
        if targets is None:
            if kwargs.get("features_only") or kwargs.get("classification_head_name"):
                return super().forward(src_tokens, **kwargs)
            raise UserError(
                "--arch electra_... needs --criterion electra: give it, or use --arch bert_... or "
                "roberta_... with this criterion"
            )
        if self.generator is None or self.discriminator_head is None:
            raise UserError("--criterion electra needs --task masked_lm: give both")
        padding = self.encoder.dictionary.pad()
        is_target = targets.ne(padding)  # (B, T)
        segments = kwargs.get("segments")
        generator_logits = self.generator(src_tokens, is_target, segments)  # (M, V)
        original = torch.where(is_target, targets, src_tokens)
        corrupted = original.masked_scatter(is_target, sample(generator_logits, padding))
        features, extra = super().forward(corrupted, **kwargs | {"features_only": True})
        extra |= {"generator_logits": generator_logits, "replaced": corrupted.ne(original)}
        return self.discriminator_head(features), extra


@torch.no_grad()
def sample(logits: Tensor, padding: int) -> Tensor:
    """Sample a word from each distribution, never padding, without a gradient: (M, V) -> (M,)."""
    if not len(logits):
        return logits.new_zeros(0, dtype=torch.int64)
    hidden = torch.tensor([padding], device=logits.device)
    words = logits.float().index_fill(1, hidden, -torch.inf)  # (M, V)
    return torch.multinomial(F.softmax(words, dim=-1), 1).squeeze(1)


def create_electra_size(
    layers: int, width: int, heads: int, embedding_size: int | None, generator_size: float
) -> ArchitectureFunction:
    """Create the function of a size with ELECTRA's widths of embeddings and generator."""
    return create_size(
        *(layers, width, 4 * width, heads),
        embedding_size=embedding_size,
        generator_size=generator_size,
        generator_embeddings="shared",
    )


#: the sizes small and base of google-research/electra, and a size for a CPU
SIZES: dict[str, ArchitectureFunction] = {
    "_tiny": create_electra_size(4, 128, 4, None, 1 / 4),
    "_small": create_electra_size(12, 256, 4, 128, 1 / 4),
    "_base": create_electra_size(12, 768, 12, None, 1 / 3),
}
SIZES[""] = SIZES["_base"]

register_architectures(
    "diet_electra", "electra", SIZES, partial(encoder_defaults, has_segments=True)
)
