"""Tiny models of every position scheme, and what the tests ask of them."""

import copy
from argparse import Namespace
from functools import lru_cache, partial
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.data.data_utils import collate_tokens
from fairseq.models import ARCH_MODEL_REGISTRY
from torch import Tensor, nn

from diet_fairseq.config import PositionConfig  # noqa: F401, likewise
from diet_fairseq.positions import PositionScheme
from diet_fairseq.positions.distances import DistanceNetwork, Fire, Kerple
from diet_fairseq.positions.tupe import TupeA
from tests.support.cases import (  # noqa: F401, since tests have them from here
    BACKENDS,
    CASES,
    DIM,
    ENCODERS,
    HEADS,
    IN_ATTENTION,
    LAYERS,
    LIMIT,
    NO_BACKEND,
    SCHEMES,
    TRANSLATION,
    UNIFORM,
    Case,
    Test,
    arguments,
    complete,
    default_options,
    each,
    fast_paths,
    first_of_each_scheme,
    has_parameters,
    of_scheme,
    quick_cases,
    run_of,
    share_of,
)

Model = Any  # fairseq's modules, whose attributes no type tells

TOLERANCE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}
#: an effect that is there, not rounding
VISIBLE = 1e-3

WORDS = Dictionary()
for _number in range(24):
    WORDS.add_symbol(f"word{_number}")
PAD, EOS, FIRST_WORD, VOCABULARY = WORDS.pad(), WORDS.eos(), WORDS.nspecial, len(WORDS)


class Task:
    source_dictionary = target_dictionary = WORDS


def from_arguments(args: Namespace, seed: int = 1) -> Model:
    """A model in eval mode; no parameter that is a bias or a position has its initial value."""
    torch.default_generator.manual_seed(seed)
    model = ARCH_MODEL_REGISTRY[args.arch].build_model(args, Task)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
            elif is_encoder(model):
                parameter.mul_(10)  # BERT's N(0, 0.02) lets so narrow a model do next to nothing
        for scheme in schemes_in(model).values():
            for module in scheme.modules():
                for parameter in module.parameters(recurse=False):
                    gain = getattr(module, "gain", 1.0)  # the score is as large with any
                    # products of three parameters would be so large that softmax sees one key
                    is_small = is_encoder(model) or isinstance(scheme, TupeA)
                    parameter.normal_(std=(0.5 if is_small else 1.0) / gain)
                if isinstance(module, Kerple):  # what is below 0 counts as 0
                    module.r1.abs_(), module.r2.abs_()
                if isinstance(module, DistanceNetwork):  # its output sums over hidden units
                    module.output.mul_(module.output.size(1) ** -0.5)
                if isinstance(module, Fire):  # beyond L, offsets are not all that counts
                    module.threshold.fill_(LIMIT / 512)
    return model.eval()


def fresh(case: Case, seed: int = 1, **overrides: Any) -> Model:
    """A new model, which a test may change."""
    return from_arguments(arguments(case, **overrides), seed)


def stock(family: str = "transformer", **overrides: Any) -> Model:
    """fairseq's own model of this kind."""
    return from_arguments(complete(family, **overrides))


def named(name: str) -> Case:
    """The case of this name."""
    return next(case for case in CASES if str(case) == name)


#: a model that nobody changes
model_of = lru_cache(maxsize=None)(fresh)


def model_to_change(case: Case) -> Model:
    """A copy of `model_of` to change; quicker than a fresh one."""
    return copy.deepcopy(model_of(case))


def copy_of(model: Model, case: Case, **overrides: Any) -> Model:
    """The model's parameters in another one, built from its arguments."""
    copied = fresh(case, seed=2, **overrides)
    copied.load_state_dict(model.state_dict())
    return copied


def schemes_in(module: nn.Module) -> dict[str, PositionScheme]:
    """The outermost scheme modules, by name."""
    schemes: dict[str, PositionScheme] = {}
    for name, part in module.named_modules():
        inside = any(name.startswith(outer + ".") for outer in schemes)
        if isinstance(part, PositionScheme) and not inside:
            schemes[name] = part
    return schemes


def position_parameters(model: Model) -> dict[str, nn.Parameter]:
    """Parameters of the schemes, without fairseq's own table at the input."""
    return {
        f"{name}.{inner}": parameter
        for name, scheme in schemes_in(model).items()
        for inner, parameter in scheme.named_parameters()
    }


# sentences


def sentences(*lengths: int, seed: int = 1) -> list[Tensor]:
    """Words and, at the end, </s>."""
    draw = torch.Generator().manual_seed(seed)
    words = [torch.randint(FIRST_WORD, VOCABULARY, (length,), generator=draw) for length in lengths]
    return [torch.cat([sentence[1:], torch.tensor([EOS])]) for sentence in words]


def shifted(targets: list[Tensor]) -> list[Tensor]:
    """The decoder's input, which begins with </s>."""
    return [target.roll(1) for target in targets]


def segments_of(model: Model, batch: list[Tensor], left_pad: bool) -> Tensor | None:
    """(B, T): each sentence in as many pieces as the model has segments; None: it has none."""
    pieces = getattr(model.encoder.sentence_encoder, "num_segments", None)
    if pieces is None:
        return None
    ids = []
    for sentence in batch:
        real = int(sentence.ne(PAD).sum())
        ids.append((torch.arange(len(sentence)) * pieces // real).clamp(max=pieces - 1))
    return collate_tokens(ids, 0, left_pad=left_pad).to(batch[0].device)


SOURCES = sentences(9, 5, 1, seed=1)
TARGETS = shifted(sentences(5, 9, 1, seed=2))
#: whether the source and whether the target is padded on the left
SIDES = [(True, False), (False, True)]


def padded(batch: list[Tensor], left_pad: bool) -> Tensor:
    """(B, T), the shorter ones padded on the left or on the right."""
    return collate_tokens(batch, PAD, left_pad=left_pad)


def device_of(model: Model) -> torch.device:
    return next(model.parameters()).device


def is_encoder(model: Model) -> bool:
    return not hasattr(model, "decoder")


def logits(
    model: Model,
    sources: list[Tensor] = SOURCES,
    targets: list[Tensor] = TARGETS,
    left_source: bool = True,
    left_target: bool = False,
    **options: Any,
) -> Tensor:
    """(sum of target lengths, vocabulary): outputs at real tokens, in their order.

    An encoder reads the sources alone, in segments if it knows any.
    """
    sources, targets = ([x.to(device_of(model)) for x in batch] for batch in (sources, targets))
    if is_encoder(model):
        source = padded(sources, left_source)
        segments = segments_of(model, sources, left_source)
        return model(source, segments=segments, **options)[0][source.ne(PAD)]
    target = padded(targets, left_target)
    encoder_out = model.encoder(padded(sources, left_source), None)
    return model.decoder(target, encoder_out=encoder_out, **options)[0][target.ne(PAD)]


def encoded(model: Model, sources: list[Tensor], left_pad: bool = True) -> Tensor:
    """(sum of source lengths, d): the encoder's output at real tokens, in their order."""
    source = padded(sources, left_pad)
    stack = model.encoder.sentence_encoder if is_encoder(model) else model.encoder
    return stack(source, None)["encoder_out"][0].transpose(0, 1)[source.ne(PAD)]


def some_loss(out: Tensor) -> Tensor:
    """A number that depends on every entry in another way."""
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(3))
    return (out * weights.to(out)).sum()


def gradients(model: Model, loss: Tensor) -> dict[str, Tensor]:
    """The gradient of every parameter that has one."""
    model.zero_grad()
    loss.backward()
    gradients = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return gradients


def assert_same(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        message = partial("{}: {}".format, name)
        torch.testing.assert_close(actual[name], value, **TOLERANCE, msg=message)


def assert_same_gradients(
    actual: dict[str, Tensor], expected: dict[str, Tensor], part: float = 1e-5
) -> None:
    """Gradients may differ by a part of their largest entry: they are sums over many tokens."""
    assert actual.keys() == expected.keys()
    for name, gradient in expected.items():
        allowed = part * max(1.0, float(gradient.abs().max()))
        torch.testing.assert_close(actual[name], gradient, rtol=1e-5, atol=allowed)


def difference(a: Tensor, b: Tensor) -> float:
    return float((a - b).detach().abs().max())


def vectors(*shape: int, seed: int = 4) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
