"""The encoder-decoder model."""

from dataclasses import replace

from torch import Tensor, nn

from .cache import DecodingCache
from .config import StackConfig
from .decoder import Decoder
from .encoder import Encoder, EncoderOutput

# Notation: B sentences, S source tokens, T target tokens, V words, d model dimension.


class Transformer(nn.Module):
    """An encoder and a decoder of the same sizes, with one vocabulary or two.

    Args:
        config: the sizes and options of the encoder and, except ``is_decoder``, of the decoder
        vocabulary: V, the number of target words
        source_vocabulary: the number of source words (default: source and target share embeddings)
    """

    def __init__(
        self, config: StackConfig, vocabulary: int, source_vocabulary: int | None = None
    ) -> None:
        super().__init__()
        target = build_token_embedding(vocabulary, config)
        source = target
        if source_vocabulary is not None:
            source = build_token_embedding(source_vocabulary, config)
        self.encoder = Encoder(config, source)
        self.decoder = Decoder(replace(config, is_decoder=True, source=config), target)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """The logits of every next target word.

        Args:
            source: (B, S) int64
            target: (B, T) int64, the target shifted right

        Returns:
            (B, T, V)
        """
        return self.decode(target, self.encoder(source))

    def decode(
        self, target: Tensor, source: EncoderOutput, cache: DecodingCache | None = None
    ) -> Tensor:
        """The logits of the next words.

        Args:
            target: (B, T) int64, all target tokens so far
            source: the result of the encoder
            cache: the decoding state; with it, only the logits after new tokens are computed

        Returns:
            (B, T, V), or (B, new tokens, V) with a cache
        """
        out = self.decoder(target, source.features, source.padding_mask, cache)
        words: Tensor = self.decoder.embed_tokens.weight  # type: ignore[assignment]  # (V, d)
        return nn.functional.linear(out.features, words)


def build_token_embedding(words: int, config: StackConfig) -> nn.Embedding:
    """Token embeddings from N(0, 1/d), and 0 for padding, as in fairseq."""
    table = nn.Embedding(words, config.embed_dim, config.padding)
    nn.init.normal_(table.weight, std=config.embed_dim**-0.5)
    nn.init.zeros_(table.weight[config.padding])
    return table
