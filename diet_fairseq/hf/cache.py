"""The interface between transformers' caches of keys and values and our decoder."""

from typing import Any

from torch import Tensor
from transformers.cache_utils import EncoderDecoderCache

# Notation: B sentences, H heads, S source tokens, Tk keys, d_h width of a head.


class TransformersCache:
    """A cache of transformers with the interface of `transformer.DecodingCache`.

    transformers reorders the cache itself.

    Args:
        cache: a dynamic cache, or a static cache, whose tensors are longer than the stored keys
        length: the number of target tokens in the cache
        new_length: the number of target tokens in the cache after the forward pass
        source_length: the number of source tokens
    """

    def __init__(
        self, cache: EncoderDecoderCache, length: int, new_length: int, source_length: int
    ) -> None:
        self.cache, self.length = cache, length
        self.new_length, self.source_length = new_length, source_length
        self.source_padding_mask: Tensor | None = None  # (B, S) bool, set in each forward pass

    def store(self, layer: int, is_cross: bool) -> "KeysAndValues":
        """The keys and values of a layer's self-attention or cross-attention."""
        return KeysAndValues(self, layer, is_cross)


class KeysAndValues:
    """The keys and values of one attention, (B, H, Tk, d_h) each."""

    def __init__(self, owner: TransformersCache, layer: int, is_cross: bool) -> None:
        cache: Any = owner.cache
        self.is_updated, self.layer, self.is_cross = cache.is_updated, layer, is_cross
        self.part = cache.cross_attention_cache if is_cross else cache.self_attention_cache
        self.length = owner.source_length if is_cross else owner.new_length

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add the keys and values of new tokens, (B, H, new, d_h), and return all."""
        keys, values = self.part.update(keys, values, self.layer)
        if self.is_cross:
            self.is_updated[self.layer] = True
        return self._truncate(keys, values)

    def get_all(self) -> tuple[Tensor, Tensor] | None:
        """The keys and values of the source in cross-attention; None: not stored yet."""
        if not self.is_updated.get(self.layer):
            return None
        stored = self.part.layers[self.layer]
        return self._truncate(stored.keys, stored.values)

    def _truncate(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """The keys and values without the unused end of a static cache."""
        return keys[:, :, : self.length], values[:, :, : self.length]
