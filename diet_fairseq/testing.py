"""Property tests of position schemes: `check_scheme` tests a scheme of your own.

The module depends only on PyTorch.
"""

import copy
from collections.abc import Callable
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from .attention.backends import BACKENDS
from .attention.moving import sum_steps
from .positions import SCHEMES, AttentionShape, Limit, PositionScheme
from .positions.base import Projections
from .positions.layout import Layout
from .transformer import DecodingCache, Encoder, StackConfig, Transformer

# Notation: B sentences, H heads, Tq queries, Tk keys, d_h width of a head, V words.

LAYERS, HEADS, WIDTH, LIMIT = 2, 2, 16, 16
#: number of words, and the words with a meaning, as in fairseq
WORDS, PAD, EOS, FIRST_WORD = 28, 1, 2, 4


def check_scheme(scheme: type[PositionScheme]) -> None:
    """Check `PROPERTIES` of a registered scheme, with its default options, in small random models.

    Raises:
        AssertionError: a property doesn't hold; the message begins with its name
    """
    name = next((name for name in SCHEMES if SCHEMES[name] is scheme), None)
    assert name, f"{scheme.__qualname__} has no name: decorate it with register_position_scheme"
    for check in PROPERTIES:
        try:
            with torch.random.fork_rng(devices=[]):
                check(name)
        except Exception as error:
            property_name = check.__name__.removeprefix("check_")
            raise AssertionError(
                f"{property_name}: {scheme.__qualname__} fails: {error}"
            ) from error


def check_shapes(name: str, heads: int = HEADS) -> None:
    """Every method returns the shapes and types of its kind of term, for all layouts."""
    kind, width, limit = SCHEMES[name], WIDTH // HEADS, Limit(LIMIT, "--max-positions")
    keys = Limit(4, "--projection-length") if kind.compressed else limit
    project = Projections(*[lambda x: x.unflatten(-1, (HEADS, width)).transpose(0, 1)] * 2)
    right = torch.arange(9) >= torch.tensor([[9], [5], [1]])  # (B, T): padding
    paddings = [(right[:1], None), (right, None), (right.flip(1), 1)]
    for (padding, queries), causal in product(paddings, (False, True)):
        scheme = kind.create(AttentionShape(heads, width, WIDTH, limit, keys, causal))
        layout = Layout.of_self_attention(padding, causal, queries)
        layout = layout.compressed(4) if kind.compressed else layout
        tq, tk = layout.query_positions.size(1), layout.key_positions.size(1)
        if scheme.moves:
            whole = Layout.of_self_attention(padding, causal)
            moved = sum_steps(scheme, torch.randn(3, tk, WIDTH), whole)
            _check_shape(moved, 3, heads, tk, moved.size(-1))
            layout = layout.move(moved[:, :, tk - tq :], moved)
        score = scheme.score(layout)
        if score is not None:
            returned, declared = type(score), scheme.score_type
            assert issubclass(returned, declared), (
                f"score returns {returned.__name__}, but score_type is {declared.__name__}"
            )
            _check_shape(score.dense(layout), 3, heads, tq, tk)
        q, k = torch.randn(3, HEADS, tq, width), torch.randn(3, HEADS, tk, width)
        for x, turned in zip((q, k), scheme.transform(q, k, layout), strict=True):
            shape = *x.shape[:-1], width * scheme.widening
            assert turned.shape == shape, (
                f"transform must return the shape {shape}, but returns {tuple(turned.shape)}"
            )
        rows_of = scheme.query_rows(layout, project), scheme.key_rows(layout, project)
        for rows in (*rows_of, scheme.value_rows(layout)):
            if rows is not None:
                _check_shape(rows.rows, HEADS, rows.rows.size(1), width)
                _check_shape(rows.index, 3, 1, tq, tk)
        logits = scheme.content_score(torch.randn(3, HEADS, tq, tk), q, layout)
        _check_shape(logits, 3, HEADS, tq, tk)


def _check_shape(x: Tensor, *shape: int) -> None:
    fits = [n in (1, most) for n, most in zip(x.shape, shape, strict=True)]
    assert all(fits), f"a shape must be {shape}, or 1 in any dimension, but is {tuple(x.shape)}"


@torch.no_grad()
def check_steps(name: str) -> None:
    """The step of a token does not depend on other tokens, nor on the dtype of the model."""
    kind, limit = SCHEMES[name], Limit(LIMIT, "--max-positions")
    for causal in (False, True) if kind.moves else ():
        shape = AttentionShape(HEADS, WIDTH // HEADS, WIDTH, limit, limit, causal)
        scheme = kind.create(shape)
        for parameter in scheme.parameters():
            nn.init.normal_(parameter, std=1 / getattr(scheme, "gain", 1.0))
        x, padding = torch.randn(3, 9, WIDTH), torch.zeros(3, 9, dtype=torch.bool)
        layout = Layout.of_self_attention(padding, causal)
        steps = scheme.steps(x, layout)
        for n in range(9):
            other = torch.where(torch.arange(9).eq(n)[:, None], x, torch.randn(3, 9, WIDTH))
            _check_same(scheme.steps(other, layout)[:, :, n], steps[:, :, n], "other tokens: ")
        last = Layout.of_self_attention(padding, causal, queries=1)
        _check_same(scheme.steps(x[:, -1:], last), steps[:, :, -1:], "one new token: ")
        for number in (steps, scheme.bfloat16().steps(x, layout)):
            assert number.dtype is torch.float32, f"steps must be float32, but are {number.dtype}"


@torch.no_grad()
def check_padding(name: str) -> None:
    """A sentence has equal logits without padding and with padding on any side, or inside."""
    model = _model(name)
    alone = [_logits(model, [x], [y]) for x, y in zip(SOURCES, TARGETS, strict=True)]
    sources, targets = ([_insert_padding(x) for x in batch] for batch in (SOURCES, TARGETS))
    for left_pad in (False, True):
        _check_same(_logits(model, left_pad=left_pad), torch.cat(alone))
        out = _logits(model, sources, targets, left_pad)
        _check_same(out, torch.cat(alone), "padding between tokens: ")


def _insert_padding(sentence: Tensor) -> Tensor:
    """A sentence (T) with padding after its first token, and after its third."""
    pad = torch.tensor([PAD])
    parts = sentence[:1], pad, sentence[1:3], pad, pad, sentence[3:]
    return torch.cat(parts) if len(sentence) > 3 else sentence


@torch.no_grad()
def check_decoding(name: str) -> None:
    """Decoding step by step equals decoding at once, also after beam search has reordered."""
    model = _model(name)
    if isinstance(model, Encoder):
        return
    encoded = model.encoder(SOURCES[0].expand(4, -1))
    target = torch.stack(_sentences(9, 9, 9, 9, seed=3))  # (4, 9)
    target[1, :2] = PAD
    cache = DecodingCache()
    for step in range(1, 10):
        if step == 4:
            order = torch.tensor([1, 1, 3, 2])
            cache.reorder(order)
            target = target[order]
        words = target[:, :step]
        real = words[:, -1].ne(PAD)
        new = model.decode(words, encoded, cache)[real, -1]
        _check_same(new, model.decode(words, encoded)[real, -1])


@torch.no_grad()
def check_future(name: str) -> None:
    """A decoder's output doesn't depend on later words."""
    model = _model(name)
    words, changed = (torch.stack(_sentences(9, 9, 9, seed=n)) for n in (4, 5))  # (B, T)
    for step in () if isinstance(model, Encoder) else (1, 4, 8):
        mixed = torch.cat([words[:, :step], changed[:, step:]], 1)
        full, *partial = (_logits(model, targets=[*x]) for x in (words, mixed, words[:, :step]))
        for logits in partial:
            _check_same(logits.view(3, -1, WORDS)[:, :step], full.view(3, 9, -1)[:, :step])


def check_gradients(name: str) -> None:
    """Every parameter gets a gradient, and after ``zero()`` some parameter of each module does."""
    model = _model(name)
    before = _logits(model)
    gradients = _gradients(model, before)
    names = [f"{at}.{key}" for at, part in _schemes(model).items() for key in part.state_dict()]
    for name in (name for name, _ in model.named_parameters() if name in names):
        assert name in gradients, f"{name} gets no gradient"
        if gradients[name].abs().max() < 1e-5:  # allowed if softmax does not depend on it
            moved = copy.deepcopy(model)
            moved.get_parameter(name).data += 1
            _check_same(_logits(moved), before, f"{name} gets no gradient: ", 1e-4)
    for scheme in _schemes(model).values():
        scheme.zero()
    gradients = _gradients(model, _logits(model))
    for place, scheme in _schemes(model).items():
        learned = [gradients[f"{place}.{key}"].any() for key, _ in scheme.named_parameters()]
        assert any(learned) or not learned, f"{place} never learns after zero()"


@torch.no_grad()
def check_saving(name: str) -> None:
    """A model has equal outputs after its state dict was loaded into another model."""
    model, copied = _model(name), _model(name, seed=2)
    copied.load_state_dict(model.state_dict())
    _check_same(_logits(copied), _logits(model), tolerance=0.0)


def check_backends(name: str) -> None:
    """Every backend that serves the scheme's kinds equals the reference, gradients included."""
    results: list[tuple[Tensor, Tensor]] = []  # the results of the reference are first
    for backend in (key for key in BACKENDS if SCHEMES[name].kinds <= BACKENDS[key].serves):
        model = _model(name, attention_backend=backend)
        out = _logits(model)
        gradients = [gradient.flatten() for gradient in _gradients(model, out).values()]
        results.append((out, torch.cat(gradients)))
        for value, expected in zip(results[-1], results[0], strict=True):
            _check_same(value, expected, f"{backend}: ", 1e-4)


def check_sharing(name: str) -> None:
    """Heads and layers share parameters by ``--position-sharing``, and copies share nothing."""
    if not SCHEMES[name].in_attention:
        return
    if any(scheme.state_dict() for scheme in _schemes(_model(name)).values()):
        check_shapes(name, heads=1)  # parameters are shared, nothing else
    for sharing in ("none", "head", "layer"):
        model = _model(name, position_sharing=sharing)
        stacks = 1 if isinstance(model, Encoder) else 2
        modules = stacks * (1 if sharing == "layer" else LAYERS)
        for copied in (model, copy.deepcopy(model)):
            schemes = _schemes(copied).values()
            places = [tensor.data_ptr() for scheme in schemes for tensor in scheme.parameters()]
            assert len(schemes) == modules, f"{sharing}: {len(schemes)} modules"
            assert len({*places}) == len(places), f"{sharing}: modules share parameters"
            assert _logits(copied).isfinite().all(), f"{sharing}: not finite"


PROPERTIES: tuple[Callable[[str], None], ...] = (
    check_shapes,
    check_steps,
    check_padding,
    check_future,
    check_decoding,
    check_gradients,
    check_saving,
    check_backends,
    check_sharing,
)


def _model(name: str, seed: int = 1, **options: Any) -> Transformer | Encoder:
    """A translation model, or an encoder if keys are compressed; position parameters are random."""
    is_encoder = SCHEMES[name].compressed
    sizes = {"layers": LAYERS, "embed_dim": WIDTH, "heads": HEADS, "ffn_embed_dim": WIDTH}
    given: dict[str, Any] = {**sizes, "max_positions": LIMIT, "position_options": options}
    given |= {"dropout": 0.0, "attention_dropout": 0.0}
    config = (StackConfig.for_encoder if is_encoder else StackConfig.for_scheme)(name, **given)
    torch.default_generator.manual_seed(seed)
    words = nn.Embedding(WORDS, WIDTH, PAD)
    model = Encoder(config, words) if is_encoder else Transformer(config, WORDS)
    for module in (part for scheme in _schemes(model).values() for part in scheme.modules()):
        for parameter in module.parameters(recurse=False):
            nn.init.normal_(parameter, std=1 / getattr(module, "gain", 1.0))
    return model.eval()


def _schemes(model: nn.Module) -> dict[str, PositionScheme]:
    """The outermost schemes in a model, by the names of their modules."""
    schemes: dict[str, PositionScheme] = {}
    for name, part in model.named_modules():
        is_inner = name.startswith(tuple(f"{outer}." for outer in schemes))
        if isinstance(part, PositionScheme) and not is_inner:
            schemes[name] = part
    return schemes


def _sentences(*lengths: int, seed: int) -> list[Tensor]:
    draw = torch.Generator().manual_seed(seed)
    words = [torch.randint(FIRST_WORD, WORDS, (n - 1,), generator=draw) for n in lengths]
    return [torch.cat([torch.tensor([EOS]), sentence]) for sentence in words]


SOURCES, TARGETS = _sentences(9, 5, 1, seed=1), _sentences(5, 9, 1, seed=2)


def _logits(
    model: Transformer | Encoder,
    sources: list[Tensor] = SOURCES,
    targets: list[Tensor] = TARGETS,
    left_pad: bool = True,
) -> Tensor:
    """(real tokens, V | d); targets and sources are padded on opposite sides."""
    sides = ("left", "right") if left_pad else ("right", "left")
    source = pad_sequence(sources, True, PAD, sides[0])  # (B, T)
    target = pad_sequence(targets, True, PAD, sides[1])
    if isinstance(model, Encoder):
        return model(source).features[source.ne(PAD)]
    return model(source, target)[target.ne(PAD)]


def _gradients(model: nn.Module, logits: Tensor) -> dict[str, Tensor]:
    weights = torch.randn(logits.shape, generator=torch.Generator().manual_seed(3))
    model.zero_grad()
    (logits * weights).sum().backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def _check_same(a: Tensor, b: Tensor, prefix: str = "", tolerance: float = 1e-5) -> None:
    difference = float((a - b).detach().abs().max() / b.detach().abs().max().clamp(min=1))
    assert difference <= tolerance, f"{prefix}outputs differ by {difference:.1g}"
