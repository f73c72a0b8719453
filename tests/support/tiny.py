"""Tiny models of every position scheme, and what the tests ask of them.

`CASES` follow from `SCHEMES`: a new scheme is tested in every way without a change here.
"""

import copy
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import groupby
from typing import Any

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.data.data_utils import collate_tokens
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from torch import Tensor, nn

from diet_fairseq import diet_bert, diet_roberta  # also registers the architectures
from diet_fairseq.attention.backends import BACKENDS
from diet_fairseq.config import (
    INPUTS,
    SEGMENTS,
    SHARING,
    PositionConfig,
    acts_in_attention,
    options_of,
)
from diet_fairseq.errors import UserError
from diet_fairseq.positions import SCHEMES, PositionScheme

Model = Any  # fairseq's modules, whose attributes no type tells

LAYERS, HEADS, DIM, LIMIT = 2, 2, 16, 16
TOLERANCE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}
#: an effect that is there, not rounding
VISIBLE = 1e-3

WORDS = Dictionary()
for _number in range(24):
    WORDS.add_symbol(f"word{_number}")
PAD, EOS, FIRST_WORD, VOCABULARY = WORDS.pad(), WORDS.eos(), WORDS.nspecial, len(WORDS)


class Task:
    source_dictionary = target_dictionary = WORDS


@dataclass(frozen=True)
class Case:
    """A scheme with options, in a kind of model; named by them, as the report relies on."""

    scheme: str
    options: tuple[tuple[str, Any], ...] = ()
    family: str = "transformer"

    def __str__(self) -> str:
        family = [] if self.family == "transformer" else [self.family]
        shown = (f"{name.removeprefix('position_')}={value}" for name, value in self.options)
        return "-".join([self.scheme, *family, *shown])

    def option(self, name: str) -> Any:
        options = options_of(self.kind) | DEFAULTS[self.family](self.kind) | dict(self.options)
        if options.get("segment_scheme") == "per-head":
            options.setdefault("position_sharing", "none")
        return options.get(name)

    def but(self, **options: Any) -> "Case":
        return Case(self.scheme, tuple((dict(self.options) | options).items()), self.family)

    @property
    def kind(self) -> type[PositionScheme]:
        return SCHEMES[self.scheme]


#: what a family takes for options that are not given, beside its schemes' own defaults
DEFAULTS: dict[str, Callable[[type[PositionScheme]], dict[str, Any]]] = {
    "transformer": lambda scheme: {},
    "roberta": diet_roberta.defaults,
    "bert": diet_bert.defaults,
}

#: values that change what an option's scheme does to sentences as short as these
OTHER_VALUES: list[dict[str, Any]] = [
    {"position_rank": 3},
    {"position_clip": 2},
    {"position_values": True},
    {"position_buckets": 8, "position_max_distance": 6},
    {"position_untie_cls": "paper"},
    {"position_untie_cls": "official"},
    {"position_no_layer_norm": True},
    {"position_no_rescale": True},
    {"position_relative": "product"},
    {"position_cross_attention": True},
    {"position_cross_attention": True, "position_untie_cls": "paper"},
    {"projection_length": 7},
    {"projection_sharing": "key-value"},
    {"projection_sharing": "layer"},
]


#: those with which segments per head are tested in every way: without a term of positions, DIET's
#: (one score, a product), and one that divides the score by more
SEGMENTED = ("none", "diet_rel", "diet_abs", "tupe_a")


def cases_of(scheme: str) -> Iterator[Case]:
    """The scheme in every kind of model."""
    if SCHEMES[scheme].compressed:
        yield from with_its_options(Case(scheme, family="roberta"))
        bert = Case(scheme, family="bert")
        yield from (bert, bert.but(segment_scheme="none"))
        return
    yield from in_translation(scheme)
    yield from in_encoders(scheme)


def in_encoders(scheme: str) -> Iterator[Case]:
    """RoBERTa, and BERT with all that segments can be."""
    roberta, bert = Case(scheme, family="roberta"), Case(scheme, family="bert")
    yield from (roberta, bert)
    if SCHEMES[scheme].in_attention:
        yield roberta.but(position_input="learned")
    if "position_untie_cls" in options_of(SCHEMES[scheme]):
        yield from (bert.but(position_untie_cls=untie) for untie in ("no", "paper"))
    usual = bert.option("segment_scheme")
    yield from (bert.but(segment_scheme=value) for value in SEGMENTS if value != usual)
    per_head = bert.but(segment_scheme="per-head")
    if SCHEMES[scheme].in_attention:
        yield from (per_head.but(attention_backend=backend) for backend in fast_paths(per_head))
    if scheme in SEGMENTED:
        yield from (
            per_head.but(position_sharing=sharing)
            for sharing in SHARING
            if sharing != per_head.option("position_sharing")
        )
        yield per_head.but(num_segments=3)


def in_translation(scheme: str) -> Iterator[Case]:
    case = Case(scheme)
    yield from with_its_options(case)
    if "position_cross_attention" in options_of(case.kind):
        for backend in fast_paths(case):
            yield case.but(attention_backend=backend, position_cross_attention=True)


def with_its_options(case: Case) -> Iterator[Case]:
    """The case as it is, and with every option that its scheme has, one at a time."""
    options = options_of(case.kind)
    yield case
    inputs = INPUTS if case.scheme in SEGMENTED or case.kind.compressed else ("none", "learned")
    for name, values in (("position_sharing", SHARING), ("position_input", inputs)):
        if name in options and acts_in_attention(case.kind):
            yield from (case.but(**{name: value}) for value in values if value != options[name])
    yield from (case.but(**values) for values in OTHER_VALUES if values.keys() <= options.keys())
    yield from (case.but(attention_backend=backend) for backend in fast_paths(case))


#: what on a CPU has no gradient, or is the reference
ON_GPUS = ("flex", "offsets")


def fast_paths(case: Case) -> list[str]:
    """The backends, reference aside, that compute the scheme and on a CPU its gradients."""

    def computes(backend: str) -> bool:
        try:
            PositionConfig.of(arguments(case.but(attention_backend=backend)))
        except UserError:
            return False
        return True

    others = [backend for backend in BACKENDS if backend not in ("reference", *ON_GPUS)]
    return [backend for backend in others if computes(backend)]


def arguments(case: Case, **overrides: Any) -> Namespace:
    """What fairseq's command line would give to `build_model`."""
    return complete(f"{case.family}_{case.scheme}", **dict(case.options), **overrides)


def complete(arch: str, **given: Any) -> Namespace:
    shape = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in {
            "embed_dim": DIM,
            "ffn_embed_dim": DIM,
            "layers": LAYERS,
            "attention_heads": HEADS,
        }.items()
    }
    limits = {"max_source_positions": LIMIT, "max_target_positions": LIMIT}
    if not arch.startswith("transformer"):
        limits = {"max_positions": LIMIT}
    no_dropout = {"dropout": 0.0, "attention_dropout": 0.0}
    args = Namespace(**{"arch": arch} | no_dropout | shape | limits | given)
    ARCH_CONFIG_REGISTRY[arch](args)
    return args


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
                    parameter.normal_(std=(0.5 if is_encoder(model) else 1.0) / gain)
    return model.eval()


def fresh(case: Case, seed: int = 1, **overrides: Any) -> Model:
    """A model of one's own."""
    return from_arguments(arguments(case, **overrides), seed)


def stock(family: str = "transformer", **overrides: Any) -> Model:
    """fairseq's own model of this kind."""
    return from_arguments(complete(family, **overrides))


def named(name: str) -> Case:
    """The case that is called so."""
    return next(case for case in CASES if str(case) == name)


#: a model that nobody changes
model_of = lru_cache(maxsize=None)(fresh)


def own(case: Case) -> Model:
    """A copy of `model_of` to change; quicker than a fresh one."""
    return copy.deepcopy(model_of(case))


def copy_of(model: Model, case: Case, **overrides: Any) -> Model:
    """The model's parameters in another one, built from its arguments."""
    other = fresh(case, seed=2, **overrides)
    other.load_state_dict(model.state_dict())
    return other


def schemes_in(module: nn.Module) -> dict[str, PositionScheme]:
    """The outermost scheme modules, by name."""
    found: dict[str, PositionScheme] = {}
    for name, part in module.named_modules():
        inside = any(name.startswith(outer + ".") for outer in found)
        if isinstance(part, PositionScheme) and not inside:
            found[name] = part
    return found


def position_parameters(model: Model) -> dict[str, nn.Parameter]:
    """What the schemes learn; not fairseq's own table at the input."""
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
    return [torch.cat([some[1:], torch.tensor([EOS])]) for some in words]


def shifted(targets: list[Tensor]) -> list[Tensor]:
    """What the decoder reads: </s> first."""
    return [target.roll(1) for target in targets]


def segments_of(model: Model, some: list[Tensor], left: bool) -> Tensor | None:
    """(B, T): each sentence in as many pieces as the model has segments; None: it has none."""
    pieces = getattr(model.encoder.sentence_encoder, "num_segments", None)
    if pieces is None:
        return None
    found = []
    for sentence in some:
        real = int(sentence.ne(PAD).sum())
        found.append((torch.arange(len(sentence)) * pieces // real).clamp(max=pieces - 1))
    return collate_tokens(found, 0, left_pad=left).to(some[0].device)


SOURCES = sentences(9, 5, 1, seed=1)
TARGETS = shifted(sentences(5, 9, 1, seed=2))
SIDES = [(left, not left) for left in (True, False)]  # of the source's, the target's padding


def padded(some: list[Tensor], left: bool) -> Tensor:
    """(B, T), the shorter ones padded on the left or on the right."""
    return collate_tokens(some, PAD, left_pad=left)


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
    """(sum of target lengths, vocabulary): what the model says at real tokens, in their order.

    An encoder reads the sources alone, in segments if it knows any.
    """
    sources, targets = ([x.to(device_of(model)) for x in some] for some in (sources, targets))
    if is_encoder(model):
        source = padded(sources, left_source)
        segments = segments_of(model, sources, left_source)
        return model(source, segments=segments, **options)[0][source.ne(PAD)]
    target = padded(targets, left_target)
    encoder_out = model.encoder(padded(sources, left_source), None)
    return model.decoder(target, encoder_out=encoder_out, **options)[0][target.ne(PAD)]


def encoded(model: Model, sources: list[Tensor], left: bool = True) -> Tensor:
    """(sum of source lengths, d): the encoder's output at real tokens, in their order."""
    source = padded(sources, left)
    stack = model.encoder.sentence_encoder if is_encoder(model) else model.encoder
    return stack(source, None)["encoder_out"][0].transpose(0, 1)[source.ne(PAD)]


def some_loss(out: Tensor) -> Tensor:
    """A number that depends on every entry in another way."""
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(3))
    return (out * weights.to(out)).sum()


def gradients(model: Model, loss: Tensor) -> dict[str, Tensor]:
    """Of every parameter that has one."""
    model.zero_grad()
    loss.backward()
    found = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return found


def assert_same(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        message = partial("{}: {}".format, name)
        torch.testing.assert_close(actual[name], value, **TOLERANCE, msg=message)


def difference(one: Tensor, other: Tensor) -> float:
    return float((one - other).detach().abs().max())


def vectors(*shape: int, seed: int = 4) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# parametrization

CASES = [case for scheme in SCHEMES for case in cases_of(scheme)]
#: those whose backend is not chosen: neither parameters nor weights depend on it
NO_BACKEND = [case for case in CASES if case.option("attention_backend") is None]
IN_ATTENTION = [case for case in CASES if case.kind.in_attention]
TRANSLATION = [case for case in CASES if case.family == "transformer"]
ENCODERS = [case for case in CASES if case.family != "transformer"]


def of_scheme(*names: str) -> list[Case]:
    return [case for case in CASES if case.scheme in names]


#: a test of more cases than this leaves some to the slow run
MANY = 60


def each(cases: list[Case]) -> pytest.MarkDecorator:
    few = len(cases) <= MANY
    given = [pytest.param(case, marks=[] if few else run_of(case)) for case in cases]
    return pytest.mark.parametrize("case", given, ids=str)


def run_of(case: Case) -> list[pytest.MarkDecorator]:
    """No mark for the default run, which has every scheme in every kind of model, and its own
    options and sharing in translation; the others' mark is that of the slow run."""
    rarely = {"position_input", "attention_backend"} & dict(case.options).keys()
    usual = not case.options or (case.family == "transformer" and not rarely)
    return [] if usual else [pytest.mark.slow]


def first_of_each_scheme(cases: list[Case]) -> list[Case]:
    return [next(group) for _, group in groupby(cases, key=lambda case: case.scheme)]
