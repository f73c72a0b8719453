"""Attention as the papers write it: one sentence, nested loops, double precision, no cleverness.

Positions i and j are 0-based. `ORACLES` gives each scheme its term of the equation, read off the
papers; all that they take from the plugin is the shape of its parameters, and their gain.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from diet_fairseq.positions import PositionScheme

Vector = Tensor  # of doubles
Number = Tensor  # one double


class Oracle:
    """A scheme's terms: numbers added to a score, vectors added to a value. Here: none."""

    #: terms that share the scale of the score: content / sqrt(terms d_h)
    terms = 1

    def __init__(self, scheme: Any = None) -> None:
        pass

    def read(self, module: Any) -> None:
        """Look at the layer's own projections."""

    def read_tokens(self, tokens: Tensor) -> None:
        """Look at the layer's input (T, d)."""

    def score(self, head: int, i: int, j: int, query: Vector, key: Vector) -> Number | float:
        return 0.0

    def logits(self, head: int, i: int, query: Vector, logits: list[Number]) -> list[Number]:
        """Content scores of a query with the keys that it sees; a scheme may change them."""
        return logits

    def value(self, head: int, i: int, j: int) -> Vector | float:
        return 0.0

    def keys_of(self, tokens: Tensor) -> Tensor:
        """The input of W_K: (T, d) -> (Tk, d)"""
        return tokens

    def values_of(self, tokens: Tensor) -> Tensor:
        """The input of W_V, likewise."""
        return tokens


def attention(queries: Tensor, keys: Tensor, module: Any, oracle: Oracle, causal: bool) -> Tensor:
    """softmax(q k / sqrt(terms d_h) + score) (v + value), heads side by side, then W^O.

    Args:
        queries: (Tq, d); keys: (T, d): the tokens of one sentence, without padding
        module: has q_proj, k_proj, v_proj, out_proj
    """
    heads, width = module.num_heads, module.head_dim
    oracle.read(module)
    oracle.read_tokens(keys)
    q = linear(module.q_proj, queries)
    k = linear(module.k_proj, oracle.keys_of(keys))
    v = linear(module.v_proj, oracle.values_of(keys))
    joined = torch.zeros(len(q), heads * width, dtype=torch.double)
    for head in range(heads):
        dims = slice(head * width, (head + 1) * width)
        for i in range(len(q)):
            seen = range(i + 1) if causal else range(len(k))
            logits = [q[i, dims] @ k[j, dims] / math.sqrt(oracle.terms * width) for j in seen]
            scores = [
                logit + oracle.score(head, i, j, q[i, dims], k[j, dims])
                for j, logit in zip(seen, oracle.logits(head, i, q[i, dims], logits), strict=True)
            ]
            highest = max(float(score) for score in scores)
            exponentials = [math.exp(score - highest) for score in scores]
            for j, exponential in zip(seen, exponentials, strict=True):
                share = exponential / sum(exponentials)
                joined[i, dims] += share * (v[j, dims] + oracle.value(head, i, j))
    return linear(module.out_proj, joined)


def linear(module: nn.Linear, x: Tensor) -> Tensor:
    return x.double() @ module.weight.double().T + module.bias.double()


def layer_norm(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    weight, bias = norm.weight.double(), norm.bias.double()
    return F.layer_norm(x.double(), norm.normalized_shape, weight, bias, norm.eps)


def clip(offset: int, largest: int) -> int:
    return max(-largest, min(largest, offset))


class ShawOracle(Oracle):
    """Shaw et al. (2018), eq. 3-5: q_i . a^K_{clip(j-i,k)} / sqrt(d_h), and a^V on the values.

    w^K and w^V have 2k + 1 rows: the row of offset -k first.
    """

    def __init__(self, scheme: Any) -> None:
        self.keys = scheme.gain * scheme.keys.double()
        self.values = None if scheme.values is None else scheme.gain * scheme.values.double()
        self.largest = (self.keys.size(1) - 1) // 2

    def row(self, table: Tensor, head: int, i: int, j: int) -> Vector:
        return table[head % len(table), self.largest + clip(j - i, self.largest)]

    def score(self, head: int, i: int, j: int, query: Vector, key: Vector) -> Number:
        return query @ self.row(self.keys, head, i, j) / math.sqrt(len(query))

    def value(self, head: int, i: int, j: int) -> Vector | float:
        return 0.0 if self.values is None else self.row(self.values, head, i, j)


def t5_bucket(offset: int, causal: bool, buckets: int, max_distance: int) -> int:
    """Raffel et al. (2020): half of a direction's buckets are exact, the rest logarithmic."""
    if causal:
        first, distance = 0, -offset if offset < 0 else 0
    else:
        buckets = buckets // 2
        first, distance = (buckets, offset) if offset > 0 else (0, -offset)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    logarithmic = buckets - exact
    steps = math.log(distance / exact) / math.log(max_distance / exact) * logarithmic
    return first + min(exact + math.floor(steps), buckets - 1)


class T5Oracle(Oracle):
    """Raffel et al. (2020): b_{bucket(j-i)}, one number per head."""

    def __init__(self, scheme: Any, buckets: int = 32, max_distance: int = 128) -> None:
        self.table = scheme.gain * scheme.weight.double()  # (buckets, H)
        self.causal, self.buckets, self.max_distance = scheme.shape.causal, buckets, max_distance

    def score(self, head: int, i: int, j: int, *_: Vector) -> Number:
        row = t5_bucket(j - i, self.causal, self.buckets, self.max_distance)
        return self.table[row, head % self.table.size(1)]


class ProductOracle(T5Oracle):
    """Ke et al. (2021), appendix D: (r_{j-i} F^Q)(r_{j-i} F^K)^T, r by T5's buckets."""

    def __init__(self, scheme: Any, buckets: int = 32, max_distance: int = 128) -> None:
        r = scheme.gain * scheme.vectors.double()  # (buckets, d)
        query, key = (r @ f.weight.double().T for f in (scheme.query, scheme.key))
        heads, width = scheme.shape.heads, scheme.shape.head_dim
        self.table = torch.zeros(len(r), heads, dtype=torch.double)
        for row in range(len(r)):
            for head in range(heads):
                dims = slice(head * width, (head + 1) * width)
                self.table[row, head] = query[row, dims] @ key[row, dims]
        self.causal, self.buckets, self.max_distance = scheme.shape.causal, buckets, max_distance


class DietRelOracle(Oracle):
    """Chen et al. (2021), eq. 3: R_{i-j}, unscaled; row c holds R_0, row c + 1 R_{-1}."""

    def __init__(self, scheme: Any) -> None:
        self.table = scheme.gain * scheme.weight.double()  # (2c + 1, H)
        self.largest = (len(self.table) - 1) // 2

    def score(self, head: int, i: int, j: int, query: Vector, key: Vector) -> Number:
        index_of_r = clip(i - j, self.largest)
        return self.table[self.largest - index_of_r, head % self.table.size(1)]


class DietAbsOracle(Oracle):
    """Chen et al. (2021), eq. 1 and 4: (P_Q P_K^T)_ij, unscaled."""

    def __init__(self, scheme: Any) -> None:
        self.query = scheme.gain * scheme.query.double()  # (H, n, d_p)
        self.key = scheme.gain * scheme.key.double()

    def score(self, head: int, i: int, j: int, query: Vector, key: Vector) -> Number:
        head = head % len(self.query)
        return self.query[head, i] @ self.key[head, j]


class TupeAOracle(Oracle):
    """Ke et al. (2021), eq. 10: reset((p_i U^Q)(p_j U^K)^T / sqrt(2 d_h)).

    With reset, rows 0 and 1 of the table are p_theta1 and p_theta2, and p_t is row t + 1.
    """

    terms = 2

    def __init__(
        self,
        scheme: Any,
        untie_cls: str = "no",
        no_layer_norm: bool = False,
        no_rescale: bool = False,
    ) -> None:
        self.scheme, self.untied, self.norm = scheme, untie_cls != "no", not no_layer_norm
        self.terms = 1 if no_rescale else self.terms
        keys = scheme.pos if scheme.pos_key is None else scheme.pos_key
        self.p_query = linear(scheme.pos_q_linear, self.normalized(scheme.pos.weight))
        self.p_key = linear(scheme.pos_k_linear, self.normalized(keys.weight))
        self.width = scheme.shape.head_dim

    def normalized(self, table: Tensor) -> Tensor:
        return layer_norm(table, self.scheme.pos_ln) if self.norm else table.double()

    def product(self, head: int, query_row: int, key_row: int) -> Number:
        dims = slice(head * self.width, (head + 1) * self.width)
        if self.p_query.size(1) == self.width:  # one map for all heads
            dims = slice(None)
        scale = math.sqrt(self.terms * self.width)
        return self.p_query[query_row, dims] @ self.p_key[key_row, dims] / scale

    def absolute(self, head: int, i: int, j: int) -> Number:
        return self.product(head, i + 1, j + 1) if self.untied else self.product(head, i, j)

    def theta_1(self, head: int) -> Number:
        return self.product(head, 0, 0)

    def theta_2(self, head: int) -> Number:
        return self.product(head, 1, 1)

    def score(self, head: int, i: int, j: int, query: Vector, key: Vector) -> Number:
        if self.untied and i == 0:
            return self.theta_1(head)
        if self.untied and j == 0:
            return self.theta_2(head)
        return self.absolute(head, i, j)


class TupeROracle(TupeAOracle):
    """Ke et al. (2021), eq. 11: TUPE-A plus b_{j-i} inside the reset.

    "official": the relative part is reset on its own, to scalars of its own: in encoders, as the
    released code has it, bucket 16 for [CLS] to others and bucket 32 for others to [CLS]; in
    decoders, whose causal buckets fill the table, the last row and the last but one.
    """

    def __init__(
        self,
        scheme: Any,
        untie_cls: str = "no",
        buckets: int = 32,
        max_distance: int = 128,
        relative: str = "scalar",
        **appendix_b: bool,
    ) -> None:
        super().__init__(scheme, untie_cls, **appendix_b)
        kind = T5Oracle if relative == "scalar" else ProductOracle
        self.relative = kind(scheme.relative_attention_bias, buckets, max_distance)
        self.official = untie_cls == "official"
        cls_to_others = buckets + 1 if scheme.shape.causal else buckets // 2
        self.row_of_theta = {1: cls_to_others, 2: buckets}

    def relative_theta(self, number: int, head: int) -> Number:
        table = self.relative.table
        return table[self.row_of_theta[number], head % table.size(1)]

    def score(self, head: int, i: int, j: int, query: Vector, key: Vector) -> Number:
        if self.untied and i == 0:
            theta = self.relative_theta(1, head) if self.official else 0.0
            return self.theta_1(head) + theta
        if self.untied and j == 0:
            theta = self.relative_theta(2, head) if self.official else 0.0
            return self.theta_2(head) + theta
        return self.absolute(head, i, j) + self.relative.score(head, i, j)


class BertAdOracle(TupeAOracle):
    """Ke et al. (2021), section 4.3: four products of words and positions / sqrt(4 d_h).

    That of words with words is the content score.
    """

    terms = 4

    def score(self, head: int, i: int, j: int, query: Vector, key: Vector) -> Number:
        dims = slice(head * self.width, (head + 1) * self.width)
        if self.p_query.size(1) == self.width:  # one map for all heads
            dims = slice(None)
        p_query, p_key = self.p_query[i, dims], self.p_key[j, dims]
        return (query @ p_key + p_query @ key + p_query @ p_key) / math.sqrt(4 * self.width)


class FreeOracle(Oracle):
    """Ke et al. (2021), appendix D: reset(B_ij), unscaled, beside TUPE's content score."""

    terms = 2

    def __init__(self, scheme: Any, untie_cls: str = "no") -> None:
        self.b = scheme.gain * scheme.weight.double()  # (H, n, n)
        self.theta = None if untie_cls == "no" else scheme.gain * scheme.theta.double()  # (2, H)

    def score(self, head: int, i: int, j: int, query: Vector, key: Vector) -> Number:
        head = head % len(self.b)
        if self.theta is not None and i == 0:
            return self.theta[0, head]
        if self.theta is not None and j == 0:
            return self.theta[1, head]
        return self.b[head, i, j]


class AlibiOracle(Oracle):
    """Press et al. (2022), section 3: -m |i - j|, m = 2^(-8 h / H) for h = 1 ... H, or learned.

    Shifted as in EIFY/fairseq: 0.5 m is added where j > i.
    """

    def __init__(self, scheme: Any, slopes: str = "fixed", alibi: str = "symmetric") -> None:
        self.is_shifted = alibi == "shifted"
        self.slopes = scheme.slopes.double() if slopes == "learned" else None
        self.heads = scheme.shape.embed_dim // scheme.shape.head_dim
        assert self.heads & (self.heads - 1) == 0

    def score(self, head: int, i: int, j: int, *_: Vector) -> Number | float:
        distance = j - i - 0.5 if self.is_shifted and j > i else abs(i - j)
        if self.slopes is None:
            return -(2 ** (-8 * (head + 1) / self.heads)) * distance
        return -self.slopes[head % len(self.slopes)] * distance


class KerpleOracle(Oracle):
    """Chi et al. (2022): -r1 log(1 + r2 |i - j|), or -r1 |i - j|^r2, with r1 and r2 bounded."""

    def __init__(self, scheme: Any, kerple: str = "log") -> None:
        self.r1 = [max(float(r1), 0.0) for r1 in scheme.r1]
        self.r2 = [max(float(r2), 0.01) for r2 in scheme.r2]
        self.kerple = kerple

    def score(self, head: int, i: int, j: int, *_: Vector) -> float:
        r1, r2 = (r[head % len(r)] for r in (self.r1, self.r2))
        if self.kerple == "log":
            return -r1 * math.log(1 + r2 * abs(i - j))
        return -r1 * abs(i - j) ** min(r2, 2.0)


class SandwichOracle(Oracle):
    """Chi et al. (2023): (p_i . p_j - 64) H / (8 h), p sinusoidal and 128 wide, h = 1 ... H."""

    def __init__(self, scheme: Any) -> None:
        self.heads = scheme.shape.embed_dim // scheme.shape.head_dim

    def score(self, head: int, i: int, j: int, *_: Vector) -> float:
        product = 0.0
        for k in range(64):
            first, second = i / 10000 ** (2 * k / 128), j / 10000 ** (2 * k / 128)
            product += math.sin(first) * math.sin(second) + math.cos(first) * math.cos(second)
        return (product - 64) * self.heads / (8 * (head + 1))


class NetworkOracle(Oracle):
    """A network of one hidden layer of rectified linear units, unit by unit."""

    def __init__(self, scheme: Any) -> None:
        self.scheme = scheme

    def network(self, head: int, x: float) -> float:
        head = head % len(self.scheme.output)
        total = 0.0
        units = zip(*self.scheme.hidden.tolist(), self.scheme.output[head].tolist(), strict=True)
        for weight, bias, out in units:
            total += out * max(weight * x + bias, 0.0)
        return total


class FireOracle(NetworkOracle):
    """Li et al. (2023): f(psi(i - j) / psi(max(L, i))), psi(x) = log(c x + 1), c and L positive."""

    def score(self, head: int, i: int, j: int, *_: Vector) -> float:
        c, longest = abs(float(self.scheme.c)), abs(512 * float(self.scheme.threshold))
        psi = math.log(c * abs(i - j) + 1)
        x = math.copysign(psi, i - j) / (math.log(c * max(longest, i) + 1) + 1e-6)
        return self.network(head, x)


class CpbOracle(NetworkOracle):
    """Liu et al. (2022), section 3.3: f of the log-spaced offset, 16 sigmoid(f) as released."""

    def score(self, head: int, i: int, j: int, *_: Vector) -> float:
        spaced = math.copysign(math.log2(1 + abs(j - i)) / math.log2(8), j - i)
        return 16 / (1 + math.exp(-self.network(head, spaced))) - 8


class FoxOracle(Oracle):
    """Lin et al. (2025), eq. 6: the logarithms of the gates after the earlier of two tokens, added.

    In encoders the same for both directions.
    """

    def __init__(self, scheme: Any, fox_gates: str = "token") -> None:
        self.bias = scheme.gain * scheme.gate_bias.double()  # (H,)
        self.weight = scheme.gates.weight.double() if fox_gates == "token" else None  # (H, d)

    def read_tokens(self, tokens: Tensor) -> None:
        self.gates = []  # a list for each token, of a number for each head
        for x in tokens.double():
            logits = self.bias if self.weight is None else self.weight @ x + self.bias
            self.gates.append([1 / (1 + math.exp(-logit)) for logit in logits.tolist()])

    def score(self, head: int, i: int, j: int, *_: Vector) -> float:
        first, last = sorted((i, j))
        kept = 1.0
        for gates in self.gates[first + 1 : last + 1]:
            kept *= gates[head % len(gates)]
        return math.log(kept)


class PopeOracle(Oracle):
    """Gopalakrishnan et al. (2025), eq. 6: softplus(q) softplus(k) cos(...), in place of q . k."""

    def __init__(self, scheme: Any, rope_base: float = 10000.0) -> None:
        self.delta, self.base = scheme.delta.double(), rope_base  # (H, 1, d_h)

    def score(self, head: int, i: int, j: int, query: Vector, key: Vector) -> Number:
        total = -query @ key
        delta = self.delta[head % len(self.delta), 0]
        for c in range(len(query)):
            shift = min(max(float(delta[c]), -2 * math.pi), 0.0)
            angle = (j - i) * self.base ** (-c / len(query)) + shift
            size = torch.log1p(query[c].exp()) * torch.log1p(key[c].exp())
            total = total + size * math.cos(angle)
        return total / math.sqrt(len(query))


class TransformerXLOracle(Oracle):
    """Dai et al. (2019), section 3.3: (q_i + u) k_j + (q_i + v) W_R r_{i-j}, but for q_i k_j."""

    def __init__(self, scheme: Any) -> None:
        self.u, self.v = scheme.u.double(), scheme.v.double()  # (H, 1, d_h)
        self.weight = scheme.r_proj.weight.double()  # (H d_h, d)
        self.width = scheme.shape.head_dim

    def projected(self, head: int, offset: int) -> Vector:
        d = self.weight.size(1)
        angles = [offset / 10000 ** (2 * m / d) for m in range(d // 2)]
        r = torch.tensor([f(angle) for f in (math.sin, math.cos) for angle in angles]).double()
        return self.weight[head * self.width : (head + 1) * self.width] @ r

    def score(self, head: int, i: int, j: int, query: Vector, key: Vector) -> Number:
        head = head % len(self.u)
        u, v = self.u[head, 0], self.v[head, 0]
        return (u @ key + (query + v) @ self.projected(head, i - j)) / math.sqrt(self.width)


class DebertaOracle(Oracle):
    """He et al. (2021), eq. 4, v2's buckets: (q_i (P W_K) + k_j (P W_Q)) / sqrt(3 d_h).

    Both read the row of i - j, that of 0 in the middle.
    """

    terms = 3

    def __init__(self, scheme: Any, buckets: int = 256, max_distance: int = 512) -> None:
        assert scheme.norm.eps == 1e-7
        self.p = layer_norm(scheme.table, scheme.norm)
        self.buckets, self.max_distance = buckets, max_distance

    def read(self, module: Any) -> None:
        self.query = self.p @ module.q_proj.weight.double().T
        self.key = self.p @ module.k_proj.weight.double().T

    def row(self, offset: int) -> int:
        half, distance = self.buckets // 2, abs(offset)
        bucket = distance
        if distance > half:
            share = math.log(distance / half) / math.log((self.max_distance - 1) / half)
            bucket = half + math.ceil(share * (half - 1))
        signed = bucket if offset > 0 else -bucket
        return max(0, min(signed + self.buckets, 2 * self.buckets - 1))

    def score(self, head: int, i: int, j: int, query: Vector, key: Vector) -> Number:
        width = len(query)
        dims, row = slice(head * width, (head + 1) * width), self.row(i - j)
        return (query @ self.key[row, dims] + key @ self.query[row, dims]) / math.sqrt(3 * width)


class CopeOracle(Oracle):
    """Golovneva et al. (2024), section 4: q_i e[p_ij] / sqrt(d_h), p_ij the sum of gates j to i.

    In encoders that of gates i to j for later keys, with embeddings of their own.
    """

    def __init__(self, scheme: Any) -> None:
        self.e, self.largest = scheme.embeddings.double(), scheme.length - 1
        self.causal = scheme.shape.causal

    def logits(self, head: int, i: int, query: Vector, logits: list[Number]) -> list[Number]:
        e = self.e[head % len(self.e)]
        gates = [1 / (1 + math.exp(-float(logit))) for logit in logits]
        changed = []
        for j, logit in enumerate(logits):
            between = gates[j : i + 1] if j <= i else [] if self.causal else gates[i : j + 1]
            position = min(sum(between), self.largest)
            first = 0 if j <= i or self.causal else self.largest + 1
            share = position - math.floor(position)
            embedding = (1 - share) * e[first + math.floor(position)]
            embedding = embedding + share * e[first + math.ceil(position)]
            changed.append(logit + query @ embedding / math.sqrt(len(query)))
        return changed


class WithSegments(Oracle):
    """Chen et al. (2021), eq. 2: E_S(S(i), S(j)) beside another scheme's term."""

    def __init__(self, positions: Oracle, scheme: Any, segments: Tensor) -> None:
        self.positions, self.terms = positions, positions.terms
        self.table = scheme.gain * scheme.weight.double()  # (H, S, S)
        self.segments = segments.tolist()

    def read(self, module: Any) -> None:
        self.positions.read(module)

    def read_tokens(self, tokens: Tensor) -> None:
        self.positions.read_tokens(tokens)

    def logits(self, head: int, i: int, query: Vector, logits: list[Number]) -> list[Number]:
        return self.positions.logits(head, i, query, logits)

    def score(self, head: int, i: int, j: int, query: Vector, key: Vector) -> Number:
        segments = self.table[head % len(self.table), self.segments[i], self.segments[j]]
        return self.positions.score(head, i, j, query, key) + segments

    def value(self, head: int, i: int, j: int) -> Vector | float:
        return self.positions.value(head, i, j)


class Compressed(Oracle):
    """Wang et al. (2020), eq. 7, Chen et al. (2021), eq. 4: keys (E X)_j, values (F X)_j, j < k.

    Beside another scheme's term; token i of a sentence takes column i of E and F.
    """

    def __init__(self, positions: Oracle, e: Tensor, f: Tensor) -> None:
        self.positions, self.e, self.f = positions, e.double(), f.double()  # (k, n)

    def keys_of(self, tokens: Tensor) -> Tensor:
        return self.mixtures(self.e, tokens)

    def values_of(self, tokens: Tensor) -> Tensor:
        return self.mixtures(self.f, tokens)

    def mixtures(self, shares: Tensor, tokens: Tensor) -> Tensor:
        mixed = torch.zeros(len(shares), tokens.size(1), dtype=torch.double)
        for j, row in enumerate(shares):
            for i, token in enumerate(tokens):
                mixed[j] += row[i] * token
        return mixed

    def score(self, head: int, i: int, j: int, query: Vector, key: Vector) -> Number | float:
        return self.positions.score(head, i, j, query, key)


class RopeOracle(Oracle):
    """Su et al. (2021), eq. 12: Re[q_m conj(k_m) e^(i (i - j) w_m)], in place of q_m . k_m."""

    def __init__(
        self,
        scheme: PositionScheme,
        *,
        rope_base: float = 10000.0,
        rope_share: float = 1.0,
        rope_scaling: str = "none",
        rope_factor: float = 1.0,
        rope_trained: int = 0,
        rope_short: str = "",
        rope_long: str = "",
    ) -> None:
        self.width = width = scheme.shape.head_dim
        self.scaling, self.base = rope_scaling, rope_base
        self.factor, self.trained = rope_factor, rope_trained
        self.divisors = [[*map(float, x.split(","))] for x in (rope_short, rope_long) if x]
        self.frequencies = [rope_base ** (-2 * m / width) for m in range(width // 2)]
        self.temperature, self.zetas = 1.0, [1.0] * (width // 2)
        if rope_scaling == "linear":
            self.frequencies = [frequency / rope_factor for frequency in self.frequencies]
        if rope_scaling == "yarn":  # Peng et al. (2023), section 3.2, with pairs as the ramp's axis
            first, last = (
                width * math.log(rope_trained / (2 * math.pi * turns)) / 2 / math.log(rope_base)
                for turns in (32, 1)
            )
            first, last = max(0, math.floor(first)), math.ceil(last)
            for m in range(width // 2):
                scaled = max(0, min(1, (m - first) / (last - first)))
                self.frequencies[m] *= 1 - scaled + scaled / rope_factor
            self.temperature = (0.1 * math.log(rope_factor) + 1) ** 2  # section 3.4
        for m in range(int(rope_share * width / 2), width // 2):
            self.frequencies[m] = 0

    def read_tokens(self, tokens: Tensor) -> None:
        """Scale as transformers' `modeling_rope_utils` does for an input of this length."""
        n, width, pairs = len(tokens), self.width, range(self.width // 2)
        if self.scaling == "dynamic":
            longest = max(n, self.trained)
            stretch = self.factor * longest / self.trained - self.factor + 1
            base = self.base * stretch ** (width / (width - 2))
            self.frequencies = [base ** (-2 * m / width) for m in pairs]
        if self.scaling == "longrope":
            divisors = self.divisors[n > self.trained]
            self.frequencies = [self.base ** (-2 * m / width) / divisors[m] for m in pairs]
            self.temperature = 1 + math.log(self.factor) / math.log(self.trained)

    def score(self, head: int, i: int, j: int, query: Vector, key: Vector) -> Number:
        half, total = self.width // 2, -query @ key
        for m, (frequency, zeta) in enumerate(zip(self.frequencies, self.zetas, strict=True)):
            turned = torch.complex(query[m], query[m + half]) * torch.complex(
                key[m], -key[m + half]
            )
            angle = torch.tensor((i - j) * frequency, dtype=torch.double)
            product = (turned * torch.exp(1j * angle)).real
            total = total + self.temperature * product * zeta ** ((i - j) / 512)
        return total / math.sqrt(self.width)


class XposOracle(RopeOracle):
    """Sun et al. (2022), algorithm 1: zeta_m^((i - j) / 512) of every pair beside the rotation."""

    def __init__(self, scheme: PositionScheme, **options: Any) -> None:
        super().__init__(scheme, **options)
        half = self.width // 2
        self.zetas = [(m / half + 0.4) / (1 + 0.4) for m in range(half)]


ORACLES: dict[str, Callable[..., Oracle]] = {
    **dict.fromkeys(("none", "sinusoidal", "learned", "linformer"), Oracle),
    "shaw": ShawOracle,
    "transformer_xl": TransformerXLOracle,
    "deberta": DebertaOracle,
    "cope": CopeOracle,
    "t5": T5Oracle,
    "tupe_a": TupeAOracle,
    "tupe_r": TupeROracle,
    "tupe_free": FreeOracle,
    "bert_ad": BertAdOracle,
    "rope": RopeOracle,
    "xpos": XposOracle,
    "diet_rel": DietRelOracle,
    "diet_abs": DietAbsOracle,
    "alibi": AlibiOracle,
    "kerple": KerpleOracle,
    "sandwich": SandwichOracle,
    "fire": FireOracle,
    "cpb": CpbOracle,
    "fox": FoxOracle,
    "pope": PopeOracle,
    "diet_abs_lin": DietAbsOracle,  # beside `Compressed`
}
#: which of a scheme's options change its equation; the others show in its parameters' shapes
IN_THE_EQUATION = (
    *("buckets", "max_distance", "untie_cls"),
    *("no_layer_norm", "no_rescale", "relative", "slopes", "alibi", "kerple"),
    "fox_gates",
    *("rope_base", "rope_share", "rope_scaling", "rope_factor", "rope_trained"),
    *("rope_short", "rope_long"),
)
TUPE_A_S = ("untie_cls", "no_layer_norm", "no_rescale")


def oracle_of(name: str, scheme: PositionScheme | None, options: dict[str, Any]) -> Oracle:
    """The oracle of the scheme, or the plain attention's where no scheme acts."""
    if scheme is None:
        return Oracle()
    arguments = {
        option: options[f"position_{option}"]
        for option in IN_THE_EQUATION
        if f"position_{option}" in options
    }
    if scheme.shape.cross and name == "tupe_r":  # offsets mean nothing between two languages
        name, arguments = "tupe_a", {k: v for k, v in arguments.items() if k in TUPE_A_S}
    return ORACLES[name](scheme, **arguments)
