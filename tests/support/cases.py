"""Every position scheme in every kind of model, with every option: the parameters of tests.

`CASES` follow from `SCHEMES`: a new scheme is tested in every way without a change here, but for
values of its own options, which `OTHER_VALUES` has.
"""

from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

import pytest
from fairseq.models import ARCH_CONFIG_REGISTRY

from diet_fairseq.attention.backends import BACKENDS
from diet_fairseq.config import (
    acts_in_attention,
    default_options,
    encoder_defaults,
    position_options,
)
from diet_fairseq.positions import SCHEMES, AttentionShape, Limit, PositionScheme

LAYERS, HEADS, DIM, LIMIT = 2, 2, 16, 16
SHARING, INPUTS, SEGMENTS = (
    position_options()[name].choices or ()
    for name in ("position_sharing", "position_input", "segment_scheme")
)


@dataclass(frozen=True)
class Case:
    """A scheme with options in a kind of model, and its name."""

    scheme: str
    options: tuple[tuple[str, Any], ...] = ()
    family: str = "transformer"

    def __str__(self) -> str:
        family = [] if self.family == "transformer" else [self.family]
        shown = (f"{name.removeprefix('position_')}={value}" for name, value in self.options)
        return "-".join([self.scheme, *family, *shown])

    def option(self, name: str) -> Any:
        options = default_options(self.kind) | DEFAULTS[self.family](self.kind) | dict(self.options)
        if options.get("segment_scheme") == "per-head":
            options.setdefault("position_sharing", "none")
        return options.get(name)

    def but(self, **options: Any) -> "Case":
        return Case(self.scheme, tuple((dict(self.options) | options).items()), self.family)

    @property
    def is_hybrid(self) -> bool:
        """Whether there are windows, or layers of two kinds."""
        return not HYBRID_OPTIONS.isdisjoint(dict(self.options))

    @property
    def kind(self) -> type[PositionScheme]:
        return SCHEMES[self.scheme]


#: what a family takes for options that are not given, beside its schemes' own defaults
DEFAULTS: dict[str, Callable[[type[PositionScheme]], dict[str, Any]]] = {
    "transformer": lambda scheme: {},
    "roberta": partial(encoder_defaults, has_segments=False),
    "bert": partial(encoder_defaults, has_segments=True),
}

#: values that change what an option's scheme does to sentences as short as these
OTHER_VALUES: list[dict[str, Any]] = [
    {"position_rank": 3},
    {"position_clip": 2},
    {"position_values": True},
    {"position_buckets": 8, "position_max_distance": 6},
    {"position_cope_length": 3},
    {"position_untie_cls": "paper"},
    {"position_untie_cls": "official"},
    {"position_no_layer_norm": True},
    {"position_no_rescale": True},
    {"position_relative": "product"},
    {"position_slopes": "learned"},
    {"position_alibi": "shifted"},
    {"position_kerple": "power"},
    {"position_fire_width": 5},
    {"position_fox_gates": "head"},
    {"position_rope_base": 100.0},
    {"position_rope_share": 0.5},
    {"position_rope_scaling": "linear", "position_rope_factor": 2.0},
    {
        "position_rope_scaling": "yarn",
        "position_rope_factor": 4.0,
        "position_rope_trained": 16,
    },
    {"position_cross_attention": True},
    {"position_cross_attention": True, "position_untie_cls": "paper"},
    {"projection_length": 7},
    {"projection_sharing": "key-value"},
    {"projection_sharing": "layer"},
]

#: values that decoders refuse
ENCODER_VALUES: list[dict[str, Any]] = [
    {
        "position_rope_scaling": "dynamic",
        "position_rope_factor": 2.0,
        "position_rope_trained": 4,
    },
    {
        "position_rope_scaling": "longrope",
        "position_rope_factor": 4.0,
        "position_rope_trained": 4,
        "position_rope_short": "1,1.1,1.2,1.3",
        "position_rope_long": "1,2,4,8",
    },
]

#: layers of two kinds, with windows that hide tokens of sentences as short as these
HYBRIDS: list[dict[str, Any]] = [
    {"position_window": 2},
    {"position_window": 1, "position_layers": "gl"},
    {"position_window": 2, "position_layers": "lg", "position_global_scheme": "none"},
    {"position_layers": "gl", "position_global_scheme": "alibi"},
    {"position_window": 2, "position_layers": "lg", "position_global_scheme": "diet_abs"},
]
HYBRID_OPTIONS = {name for values in HYBRIDS for name in values} | {"position_global_base"}


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
    """The scheme in RoBERTa, and in BERT with every kind of segments."""
    roberta, bert = Case(scheme, family="roberta"), Case(scheme, family="bert")
    yield from (roberta, bert)
    options = default_options(roberta.kind)
    yield from (
        roberta.but(**values) for values in ENCODER_VALUES if values.keys() <= options.keys()
    )
    yield from hybrids_of(roberta, HYBRIDS[2:])
    if SCHEMES[scheme].in_attention:
        yield roberta.but(position_input="learned")
    if "position_untie_cls" in default_options(SCHEMES[scheme]):
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
    yield from hybrids_of(case, HYBRIDS[:3])
    if "position_cross_attention" in default_options(case.kind):
        for backend in fast_paths(case):
            yield case.but(attention_backend=backend, position_cross_attention=True)


def hybrids_of(case: Case, hybrids: list[dict[str, Any]]) -> Iterator[Case]:
    """The case with windows, with another scheme in global layers, and with another base."""
    for values in hybrids:
        if values.get("position_global_scheme") != case.scheme:
            yield case.but(**values)
    if "position_rope_base" in default_options(case.kind):
        yield case.but(position_layers="gl", position_global_base=20.0)


def with_its_options(case: Case) -> Iterator[Case]:
    """The case as it is, and with every option that its scheme has, one at a time."""
    options = default_options(case.kind)
    yield case
    inputs = INPUTS if case.scheme in SEGMENTED or case.kind.compressed else ("none", "learned")
    for name, values in (("position_sharing", SHARING), ("position_input", inputs)):
        if name in options and acts_in_attention(case.kind):
            yield from (case.but(**{name: value}) for value in values if value != options[name])
    yield from (case.but(**values) for values in OTHER_VALUES if values.keys() <= options.keys())
    yield from (case.but(attention_backend=backend) for backend in fast_paths(case))


#: backends that are the reference on a CPU
ON_GPUS = ("offsets", "cudnn")
#: a backend for windows alone, which tests/attention/test_banded.py tests in blocks of few tokens
BANDED = "banded"


def fast_paths(case: Case) -> list[str]:
    """The backends, reference aside, that compute the scheme and on a CPU its gradients."""

    limit = Limit(LIMIT, "--max-positions")
    options = {"values": True} if case.option("position_values") else {}
    kinds = case.kind.create(
        AttentionShape(HEADS, DIM // HEADS, DIM, limit, limit), **options
    ).kinds
    return [
        name
        for name, backend in BACKENDS.items()
        if name not in ("reference", BANDED, *ON_GPUS) and kinds <= backend.serves
    ]


def arguments(case: Case, **overrides: Any) -> Namespace:
    """The arguments that fairseq's command line gives to `build_model`."""
    return complete(f"{case.family}_{case.scheme}", **dict(case.options), **overrides)


def complete(arch: str, **options: Any) -> Namespace:
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
    args = Namespace(**{"arch": arch} | no_dropout | shape | limits | options)
    ARCH_CONFIG_REGISTRY[arch](args)
    return args


CASES = [case for scheme in SCHEMES for case in cases_of(scheme)]
#: those whose backend is not chosen: neither parameters nor weights depend on it
NO_BACKEND = [case for case in CASES if case.option("attention_backend") is None]
UNIFORM = [case for case in CASES if not case.is_hybrid]
IN_ATTENTION = [case for case in CASES if case.kind.in_attention]
TRANSLATION = [case for case in CASES if case.family == "transformer"]
ENCODERS = [case for case in CASES if case.family != "transformer"]


def of_scheme(*names: str) -> list[Case]:
    return [case for case in CASES if case.scheme in names]


#: options that mean the same in every scheme
COMMON = {"attention_backend", "position_input", "position_sharing", "segment_scheme"}
COMMON |= HYBRID_OPTIONS
#: of longer lists of cases, a test has one in so many of those whose options are all of `COMMON`,
#: and one in so many of those with an option of their scheme
COMMON_PART, OWN_PART, LONG = 5, 2, 30
#: the day, which chooses a test's share; `--day` of pytest
DAY = 0
#: whether tests have all cases and no share; `--every-case` of pytest
EVERY_CASE = False
#: of longer lists of cases, a test leaves all but one of each kind of scheme to the slow run
MANY = 12

Test = Callable[..., None]


def each(
    cases: list[Case], own_part: int = OWN_PART, all_schemes: bool = False
) -> Callable[[Test], Test]:
    """Parametrize a test over the cases: over all if they are few, else over its share.

    Args:
        cases: models
        own_part: the test has one in so many of the cases with an option of their scheme
        all_schemes: the default run has every scheme, and not one of each kind
    """

    def decorate(test: Test) -> Test:
        name = test.__name__
        share = share_of(name, cases, own_part) if len(cases) > LONG else cases
        quick = quick_cases(name, cases, all_schemes)
        chosen = [case for case in cases if case in quick or case in share]
        parameters = [pytest.param(case, marks=run_of(case, quick)) for case in chosen]
        return pytest.mark.parametrize("case", parameters, ids=str)(test)

    return decorate


def share_of(test: str, cases: list[Case], own_part: int = OWN_PART) -> list[Case]:
    """Every scheme in one kind of model, and some of the cases with options.

    Tests and days take cases in turn: the tests of a day together meet every case, and a test meets
    every case within a week.
    """
    if EVERY_CASE:
        return cases
    turn = DAY + len(test)
    share = {
        group[(turn + number) % len(group)]
        for number, group in enumerate(_group_by_scheme(case for case in CASES if not case.options))
    }
    # alike options are neighbours, so that a share has some of each
    with_options = sorted((case for case in CASES if case.options), key=lambda c: repr(c.options))
    for is_common, part in ((True, COMMON_PART), (False, own_part)):
        alike = [
            case for case in with_options if COMMON.issuperset(dict(case.options)) == is_common
        ]
        share.update(case for number, case in enumerate(alike) if (turn + number) % part == 0)
    return [case for case in cases if case in share]


def _group_by_scheme(cases: Iterable[Case]) -> list[list[Case]]:
    return [list(group) for _, group in groupby(cases, key=lambda case: case.scheme)]


def quick_cases(test: str, cases: list[Case], all_schemes: bool = False) -> set[Case]:
    """The default run's cases: one scheme of each kind in one kind of model.

    The names of tests differ in length, so that they meet a scheme and a kind of model in turn.
    """
    if len(cases) <= MANY:
        return {*cases}
    alike: dict[object, list[Case]] = {}
    for case in cases:
        kind = case.scheme if all_schemes else (case.kind.kinds, case.kind.compressed)
        alike.setdefault(kind, []).append(case)
    plain = ([case for case in group if not case.options] or group for group in alike.values())
    return {group[len(test) % len(group)] for group in plain}


def run_of(case: Case, quick: set[Case]) -> list[pytest.MarkDecorator]:
    """The marks of a case."""
    return [] if case in quick else [pytest.mark.slow]


def first_of_each_scheme(cases: list[Case]) -> list[Case]:
    return [group[0] for group in _group_by_scheme(cases)]


def has_parameters(scheme: str) -> bool:
    """Whether the scheme learns anything."""
    limit = Limit(LIMIT, "--max-positions")
    shape = AttentionShape(HEADS, DIM // HEADS, DIM, limit, limit)
    return any(True for _ in SCHEMES[scheme].create(shape).parameters())
