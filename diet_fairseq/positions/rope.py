"""RoPE and xPos: queries and keys are rotated by angles that grow with their positions."""

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..errors import UserError
from .base import AttentionShape, PositionScheme
from .layout import Layout
from .options import Option, Value, at_least

#: the cosines and sines of a rotation, (B|1, 1, T, 1, d_h / 2) each
CosSin = tuple[Tensor, Tensor]


def check_share(flag: str, value: float) -> None:
    """Refuse a share outside 0 < share <= 1, with a `UserError`."""
    if not 0 < value <= 1:
        raise UserError(f"{flag} must be above 0 and at most 1, but is {value}")


BASE = Option(
    "position_rope_base",
    float,
    "rope, xpos, pope: base of the frequencies; pair m rotates by base^(-2m / d_h) radians per "
    "token, and dimension c of pope by base^(-c / d_h) (default: 10,000)",
    default=10000.0,
    check=at_least(2),
)
ROTATED_SHARE = Option(
    "position_rope_share",
    float,
    "rope: fraction of a head's dimensions that are rotated, highest frequencies first (p-RoPE) "
    "(default: 1)",
    default=1.0,
    check=check_share,
)
SCALING = Option(
    "position_rope_scaling",
    str,
    "rope: scaling of the frequencies for inputs longer than in training (default: none)",
    default="none",
    choices=("none", "linear", "yarn", "dynamic", "longrope"),
)
FACTOR = Option(
    "position_rope_factor",
    float,
    "rope: length of the inputs divided by the length in training (all scalings)",
    check=at_least(1),
)
TRAINED = Option(
    "position_rope_trained",
    int,
    "rope: number of positions that the model was trained on (yarn, dynamic, longrope)",
    check=at_least(1),
)


def parse_divisors(flag: str, text: str) -> list[float]:
    """The numbers of a text like "1,1.5,4".

    Raises:
        UserError: a number is not above 0, or the text has something else
    """
    try:
        divisors = [float(number) for number in text.split(",")]
    except ValueError:
        divisors = []
    if not divisors or not all(0 < divisor < math.inf for divisor in divisors):
        raise UserError(
            f"{flag} must be numbers above 0, one for each pair of dimensions of a head, separated "
            f"by commas, but is {text!r}"
        )
    return divisors


SHORT = Option(
    "position_rope_short",
    str,
    "rope: divisors of the frequencies of inputs up to --position-rope-trained, one for each pair "
    "of a head's dimensions, such as 1,1.5,4,8 (longrope)",
    check=parse_divisors,
)
LONG = Option(
    "position_rope_long",
    str,
    "rope: divisors of the frequencies of longer inputs (longrope)",
    check=parse_divisors,
)
#: the options that a scaling needs
NEEDS: dict[str, tuple[Option, ...]] = {
    "linear": (FACTOR,),
    "yarn": (FACTOR, TRAINED),
    "dynamic": (FACTOR, TRAINED),
    "longrope": (FACTOR, TRAINED, SHORT, LONG),
}


class Rope(PositionScheme):
    """RoPE, Su et al. (2021), eq. 14 to 16: the product of rotated q_i and k_j depends on j - i.

    Pair m of a head is rotated by the angle position * base^(-2m / d_h). It consists of the
    dimensions m and m + d_h / 2, as in transformers' Llama. The paper pairs 2m and 2m + 1, which is
    the same up to the order of the rows of W_Q and W_K. Angles are float32 in every precision.

    ``rope_share`` is the p of p-RoPE, Barbero et al. (2025): the floor(p d_h / 2) highest
    frequencies, but at least one, are used. The other frequencies are 0, so that their pairs are
    not rotated.

    ``rope_scaling`` "linear" divides every frequency by ``rope_factor`` (Chen et al. 2023). "yarn"
    (Peng et al. 2023, sections 3.2 and 3.4) divides the frequencies of pairs that rotate less than
    once in ``rope_trained`` positions by the factor, and interpolates for pairs that rotate up to
    32 times. It also multiplies queries and keys by 0.1 ln(factor) + 1 each, as a temperature of
    the softmax, including the pairs that p-RoPE does not rotate.

    "dynamic" and "longrope" are as in transformers, except that n is the number of tokens of each
    input. In transformers n is that of the longest input of the batch. "dynamic" (NTK scaling)
    has a larger base for an input of n > ``rope_trained`` tokens: base (factor n / trained - factor
    + 1)^(d_h / (d_h - 2)). "longrope" (Ding et al. 2024) divides frequencies by ``rope_short`` or,
    if n is above ``rope_trained``, by ``rope_long``, and multiplies queries and keys by
    sqrt(1 + ln(factor) / ln(trained)). Both are refused in decoders, whose cached keys would have
    the frequencies of other lengths.
    """

    options: ClassVar[tuple[Option, ...]] = (
        BASE,
        ROTATED_SHARE,
        SCALING,
        FACTOR,
        TRAINED,
        SHORT,
        LONG,
    )

    def __init__(
        self,
        shape: AttentionShape,
        *,
        rope_base: float,
        rope_share: float = 1.0,
        rope_scaling: str = "none",
        rope_factor: float | None = None,
        rope_trained: int | None = None,
        rope_short: str | None = None,
        rope_long: str | None = None,
    ) -> None:
        super().__init__(shape)
        if shape.head_dim % 2:
            raise UserError(
                "a head's dimension must be even, because rotary positions rotate pairs, but is "
                f"{shape.head_dim}: change the model's width or number of heads"
            )
        check_scaling(rope_scaling, (rope_factor, rope_trained, rope_short, rope_long))
        if shape.causal and rope_scaling in ("dynamic", "longrope"):
            raise UserError(
                f"{SCALING.flag} must be none, linear or yarn in a decoder, because cached keys "
                f"would have the frequencies of shorter inputs, but is {rope_scaling}"
            )
        self.base, self.scaling, self.factor = rope_base, rope_scaling, rope_factor or 1.0
        self.trained = rope_trained or 1
        self.pairs = max(1, int(rope_share * shape.head_dim // 2))
        self.magnitude = 1.0
        frequencies = [rope_base ** (-2 * m / shape.head_dim) for m in range(shape.head_dim // 2)]
        tables = [frequencies]
        if rope_scaling == "linear":
            tables = [[frequency / self.factor for frequency in frequencies]]
        if rope_scaling == "yarn":
            tables = [scale_yarn_frequencies(frequencies, rope_base, self.factor, self.trained)]
            self.magnitude = 0.1 * math.log(self.factor) + 1
        if rope_scaling == "longrope":
            divisors = (SHORT.flag, rope_short or ""), (LONG.flag, rope_long or "")
            tables = [divide_frequencies(frequencies, *given) for given in divisors]
            if self.factor > 1:
                self.magnitude = math.sqrt(
                    1 + math.log(self.factor) / math.log(max(self.trained, 2))
                )
        for table in tables:
            table[self.pairs :] = [0.0] * (len(table) - self.pairs)
        # numbers, not a buffer, which `half()` would round
        self.frequencies, self.long_frequencies = tuple(tables[0]), tuple(tables[-1])
        scaling = rope_scaling, rope_factor, rope_trained, rope_short, rope_long
        self.cache_key = type(self), shape.head_dim, rope_base, self.pairs, scaling

    @classmethod
    def describe(cls, **options: Value) -> dict[str, Value]:
        return super().describe() | {
            "base": options["rope_base"],
            "share": options.get("rope_share", 1.0),
            "scaling": options.get("rope_scaling", "none"),
            "factor": options.get("rope_factor") or 1.0,
            "trained": options.get("rope_trained"),
            # descriptions of earlier checkpoints lack these keys
            **{
                name: options[f"rope_{name}"]
                for name in ("short", "long")
                if options.get(f"rope_{name}")
            },
        }

    def transform(self, q: Tensor, k: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        query_rotation, key_rotation = self._rotations(layout, q.dtype)
        apply = Rotation.apply if torch.is_grad_enabled() else rotate
        return apply(q, *query_rotation), apply(k, *key_rotation)

    def _rotations(self, layout: Layout, dtype: torch.dtype) -> tuple[CosSin, CosSin]:
        """The rotations of queries and of keys, computed once for all layers."""
        key = self.cache_key, dtype
        if key not in layout.cache:
            layout.cache[key] = self._compute_rotations(layout, dtype)
        return layout.cache[key]

    def _compute_rotations(self, layout: Layout, dtype: torch.dtype) -> tuple[CosSin, CosSin]:
        queries, keys = layout.query_positions, layout.key_positions
        rates = self._scale_by_length(layout)
        key_rotation = self._rotation(keys, self.magnitude, dtype, rates)
        if queries.shape == keys.shape:  # queries are the last of the keys
            return key_rotation, key_rotation
        return self._rotation(queries, self.magnitude, dtype, rates), key_rotation

    def _scale_by_length(self, layout: Layout) -> Tensor | None:
        """The frequencies for the lengths of the inputs, (B|1, 1, 1, 1, d_h / 2), or None."""
        if self.scaling not in ("dynamic", "longrope"):
            return None
        lengths = count_tokens(layout)[:, None, None, None, None]  # (B|1, 1, 1, 1, 1)
        short, long = (
            torch.tensor(rates, device=lengths.device)
            for rates in (self.frequencies, self.long_frequencies)
        )
        if self.scaling == "longrope":
            return torch.where(lengths > self.trained, long, short)
        stretch = self.factor * lengths.clamp(min=self.trained) / self.trained - (self.factor - 1)
        pairs = torch.arange(len(self.frequencies), device=lengths.device)
        return short * stretch ** (-pairs / max(len(self.frequencies) - 1, 1))

    def _rotation(
        self,
        positions: Tensor,
        magnitude: Tensor | float,
        dtype: torch.dtype,
        rates: Tensor | None = None,
    ) -> CosSin:
        """The cosines and sines of the angles, multiplied by the magnitude.

        Args:
            positions: (B|1, T)
            magnitude: a number, or (B|1, 1, T, 1, d_h / 2)
            dtype: of the result, which is computed in float32
            rates: (B|1, 1, 1, 1, d_h / 2), radians per token; None: ``frequencies``
        """
        if rates is None:
            angles = multiply_positions(self.frequencies, positions)
        else:
            angles = positions[:, None, :, None, None] * rates
        cos, sin = angles.cos() * magnitude, angles.sin() * magnitude
        return cos.to(dtype), sin.to(dtype)


class Xpos(Rope):
    """xPos, Sun et al. (2022), algorithm 1: RoPE with a product that fades with the distance.

    Pair m of query i is multiplied by zeta^(i / 512) and pair m of key j by zeta^(-j / 512), with
    zeta = (2m / d_h + 0.4) / 1.4. The product then has the factor zeta^((i - j) / 512), which falls
    with the distance of an earlier key. The values 0.4 and 512 are from the paper.

    The paper's models are causal. In encoders the product with keys after the query grows with the
    distance, as in the encoders of the authors' torchscale (x-transformers refuses encoders). In
    float16 keys overflow before position 4,500.
    """

    options = (BASE,)

    def __init__(self, shape: AttentionShape, *, rope_base: float) -> None:
        super().__init__(shape, rope_base=rope_base)
        half = shape.head_dim // 2
        self.growth = tuple(math.log((m / half + 0.4) / 1.4) / 512 for m in range(half))

    def _compute_rotations(self, layout: Layout, dtype: torch.dtype) -> tuple[CosSin, CosSin]:
        query_growth = multiply_positions(self.growth, layout.query_positions)
        key_growth = multiply_positions(self.growth, layout.key_positions)
        return (
            self._rotation(layout.query_positions, query_growth.exp(), dtype),
            self._rotation(layout.key_positions, (-key_growth).exp(), dtype),
        )


def multiply_positions(rates: tuple[float, ...], positions: Tensor) -> Tensor:
    """Multiply rates per token by positions, in float32.

    Args:
        rates: d_h / 2 numbers, one for each pair
        positions: (B|1, T)

    Returns:
        (B|1, 1, T, 1, d_h / 2)
    """
    numbers = torch.tensor(rates, dtype=torch.float32, device=positions.device)
    return positions[:, None, :, None, None] * numbers


class Rotation(torch.autograd.Function):
    """`rotate`, whose backward pass rotates the gradient back.

    PyTorch's own backward pass would take twice the time and memory.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return rotate(x, cos, sin)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return Rotation.apply(gradient, cos, -sin), None, None


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x (B, H, T, d_h) with its pairs rotated; cos and sin are (B|1, 1, T, 1, d_h / 2)."""
    halves = x.unflatten(-1, (2, -1))  # (B, H, T, 2, d_h / 2)
    out = halves * cos
    (real, imaginary), (out_real, out_imaginary) = halves.unbind(-2), out.unbind(-2)
    sin = sin.squeeze(-2)
    out_real.addcmul_(imaginary, sin, value=-1)
    out_imaginary.addcmul_(real, sin)
    return out.flatten(-2)


def scale_yarn_frequencies(
    frequencies: list[float], base: float, factor: float, trained: int
) -> list[float]:
    """YaRN's frequencies, as in transformers: low frequencies are divided by the factor.

    Args:
        frequencies: radians per token of each pair
        base: the base of the frequencies
        factor: the length of the inputs divided by the length in training
        trained: the number of positions in training
    """
    width = 2 * len(frequencies)

    def find_pair(turns: int) -> float:
        """The pair that rotates ``turns`` times within the positions of training."""
        return width * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(base))

    first, last = max(math.floor(find_pair(32)), 0), min(math.ceil(find_pair(1)), width - 1)
    reach = last - first or 0.001
    ramp = [min(max((m - first) / reach, 0), 1) for m in range(len(frequencies))]
    return [f / factor * r + f * (1 - r) for f, r in zip(frequencies, ramp, strict=True)]


def divide_frequencies(frequencies: list[float], flag: str, text: str) -> list[float]:
    """The frequencies divided by the numbers of an option, see `parse_divisors`.

    Raises:
        UserError: there are more or fewer numbers than frequencies
    """
    divisors = parse_divisors(flag, text)
    if len(divisors) != len(frequencies):
        raise UserError(
            f"{flag} must have {len(frequencies)} numbers, one for each pair of a head's "
            f"dimensions, but has {len(divisors)}"
        )
    return [frequency / divisor for frequency, divisor in zip(frequencies, divisors, strict=True)]


def count_tokens(layout: Layout) -> Tensor:
    """(B|1,) int64: the number of tokens of each sentence, without padding."""
    if layout.padding_mask is None:
        keys = layout.key_positions.size(1)
        return torch.full((1,), keys, device=layout.key_positions.device)
    return (~layout.padding_mask).sum(1)


def check_scaling(scaling: str, values: tuple[float | str | None, ...]) -> None:
    """Refuse a scaling without an option that it needs, and an option without its scaling.

    Args:
        scaling: the value of `SCALING`
        values: the values of all options of `NEEDS`; None: not given

    Raises:
        UserError: the options contradict one another
    """
    needed = NEEDS.get(scaling, ())
    for option, value in zip((FACTOR, TRAINED, SHORT, LONG), values, strict=True):
        if option in needed and value is None:
            meaning = option.help.removeprefix("rope: ")
            raise UserError(f"{SCALING.flag} {scaling} needs {option.flag}: {meaning}")
        if option not in needed and value is not None:
            raise UserError(
                f"{option.flag} {value} has no effect with {SCALING.flag} {scaling}: leave it out, "
                "or use another scaling"
            )
