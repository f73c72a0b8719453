"""The table, defaults and checks of the position options, and the registration of schemes."""

import logging
import re
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from importlib import import_module
from numbers import Integral, Real
from pathlib import Path
from typing import TypeVar

from .attention.backends import BACKENDS
from .errors import UserError, check_positive, one_line
from .positions import SCHEMES, PositionScheme
from .positions.options import Option, Value, at_least

Scheme = TypeVar("Scheme", bound=type[PositionScheme])

#: options of per-head segments, whatever the position scheme is
SEGMENT_OPTIONS = ("position_sharing", "position_gain")
#: names of backends in earlier versions, which checkpoints still have
RETIRED_BACKENDS = ("auto-measured", "flex", "offsets_v2", "recompute")

logger = logging.getLogger(__name__)


def check_layers(flag: str, value: str) -> None:
    """Refuse a pattern that doesn't have both kinds of layers.

    Raises:
        UserError: the letters of the pattern are not l (local) and g (global)
    """
    if {*value} != {"g", "l"}:
        raise UserError(
            f"{flag} must be a word of the letters g (global layer) and l (local layer), and must "
            f"have both, but is {value}: gll makes every third layer global, beginning with the "
            "first; leave it out if all layers are local"
        )


#: options that no scheme declares
GENERAL_OPTIONS = (
    Option("position_scheme", str, "position scheme (default: the scheme in the name of --arch)"),
    Option(
        "position_sharing",
        str,
        "sharing of position parameters: none, among the heads of a layer (head), or among layers "
        "(layer) (default: by scheme)",
        choices=("none", "head", "layer"),
    ),
    Option(
        "position_input",
        str,
        "position embeddings at the input, in addition to the scheme (default: by scheme)",
        choices=("none", "sinusoidal", "learned"),
    ),
    Option(
        "position_cross_attention",
        bool,
        "alibi, diet_abs, tupe_a, tupe_r: add a separate position term to cross-attention",
        default=False,
    ),
    Option(
        "position_sampling",
        str,
        "positions in training: 0, 1, ... (none), consecutive from a random start (shifted), or "
        "random and increasing (randomised) (default: none)",
        choices=("none", "shifted", "randomised"),
    ),
    Option(
        "position_sampling_length",
        int,
        "number of positions that --position-sampling draws from (default: all positions)",
        check=at_least(1),
    ),
    Option(
        "position_temperature",
        float,
        "softmax temperature of attention at inference; below 1 sharpens attention on inputs "
        "longer than in training (default: 1)",
        check=check_positive,
    ),
    Option(
        "position_window",
        int,
        "largest distance in tokens between a token and the tokens that it sees in self-attention "
        "of local layers (default: no limit)",
        check=at_least(1),
    ),
    Option(
        "position_layers",
        str,
        "repeated pattern of local (l) and global (g) layers; global layers have no window, e.g. "
        "gll (default: all layers are local)",
        check=check_layers,
    ),
    Option(
        "position_global_scheme",
        str,
        "position scheme of global layers (default: the scheme of local layers)",
    ),
    Option(
        "position_global_base",
        float,
        "rope, xpos, pope: --position-rope-base of global layers (default: that of local layers)",
        check=at_least(2),
    ),
    Option(
        "projection_length",
        int,
        "linear schemes: number k of compressed keys (default: --max-positions / 4)",
        check=at_least(1),
    ),
    Option(
        "projection_sharing",
        str,
        "linear schemes: separate matrices for keys and values in every layer (none), one matrix "
        "for both (key-value), or one matrix for all layers (layer) (default: none)",
        choices=("none", "key-value", "layer"),
    ),
    Option(
        "segment_scheme",
        str,
        "segments: ignored (none), embedded at the input (input), or scored in every head "
        "(per-head) (default: per-head for diet_rel and diet_abs, otherwise input)",
        choices=("none", "input", "per-head"),
    ),
    Option("num_segments", int, "number of segments (default: 2)", check=at_least(1)),
    Option(
        "attention_backend",
        str,
        "implementation of attention; auto chooses by timings on CPUs, an H100 and an H200 "
        "(default: auto)",
        default="auto",
        choices=("auto", *BACKENDS),
    ),
)


def translation_schemes() -> tuple[str, ...]:
    """The names of the schemes for encoder-decoder models."""
    return tuple(name for name, scheme in SCHEMES.items() if not scheme.compressed)


def position_options() -> dict[str, Option]:
    """All position options by name, including options of schemes that a user registered.

    Options of schemes have no default here, because defaults differ among schemes.

    Raises:
        TypeError: the name of a scheme's option is not allowed, or is declared in two ways
    """
    general = {option.name: option for option in GENERAL_OPTIONS}
    options: dict[str, Option] = {}
    for option in (option for scheme in SCHEMES.values() for option in scheme.options):
        default = False if option.type is bool else None
        option = replace(option, default=default, encoder_default=None)
        is_new = option.name.startswith("position_") and option.name not in general
        if not is_new or options.setdefault(option.name, option) != option:
            raise TypeError(
                f"the scheme option {option.name!r} must begin with position_ and must not differ "
                "from another option of this name: rename it"
            )
    names = ("position_scheme", "position_global_scheme")
    schemes = {name: replace(general[name], choices=tuple(SCHEMES)) for name in names}
    return options | general | schemes


#: called with the name of a scheme that is registered; written by `models.architectures` alone
registration_hooks: list[Callable[[str], None]] = []


def register_position_scheme(name: str) -> Callable[[Scheme], Scheme]:
    """Register a subclass of `PositionScheme` under a name, as a decorator.

        @register_position_scheme("rotate")
        class Rotate(PositionScheme): ...

    From then on ``--position-scheme rotate`` and the architectures ``transformer_rotate``,
    ``roberta_rotate``, ``bert_rotate`` and ``electra_rotate`` exist, with the scheme's options. The
    module that does this must be imported wherever a checkpoint or an exported model with the
    scheme is used: fairseq's commands and ours import the package that ``--user-dir`` names.

    Raises:
        UserError: the name is already registered, or not allowed
        TypeError: the name of an option is not allowed, or another scheme declares it differently
    """

    def register(scheme: Scheme) -> Scheme:
        if not re.fullmatch("[a-z][a-z0-9_]*", name):
            raise UserError(
                f"the name of a position scheme must be lower-case letters, digits and _, but is "
                f"{name!r}: rename it"
            )
        if name in SCHEMES:
            first = SCHEMES[name]
            raise UserError(
                f"the position scheme {name} is registered already, by "
                f"{first.__module__}.{first.__qualname__}: give {scheme.__qualname__} another name"
            )
        SCHEMES[name] = scheme
        try:
            position_options()
            for hook in registration_hooks:
                hook(name)
        except Exception:
            del SCHEMES[name]
            raise
        return scheme

    return register


class PositionConfig:
    """How position information enters the model: an attribute for each of `position_options`.

    The value is None if the option is not given and the scheme decides. The annotations list the
    options that this package reads outside the scheme that declares them.
    """

    position_scheme: str
    position_sharing: str | None
    position_input: str
    position_cross_attention: bool
    position_sampling: str | None
    position_sampling_length: int | None
    position_temperature: float | None
    position_gain: float | None
    position_relative: str | None
    position_start: str | None
    position_window: int | None
    position_layers: str | None
    position_global_scheme: str | None
    position_global_base: float | None
    projection_length: int | None
    projection_sharing: str | None
    segment_scheme: str | None
    num_segments: int | None
    attention_backend: str

    def __init__(self, **options: Value) -> None:
        vars(self).update(options)

    @staticmethod
    def add_args(parser: ArgumentParser) -> None:
        """Add one flag per option, without defaults: architectures set options that are missing."""
        for option in position_options().values():
            if option.type is bool:
                parser.add_argument(option.flag, help=option.help, action="store_true")
                continue
            kind = current_backend if option.name == "attention_backend" else option.type
            parser.add_argument(option.flag, help=option.help, type=kind, choices=option.choices)

    @classmethod
    def from_args(cls, args: object) -> "PositionConfig":
        """Read and check the options in fairseq's arguments, and set missing defaults.

        Args:
            args: the model's section of fairseq-hydra-train, or fairseq-train's Namespace, in which
                the parser checked the names, and other parts of fairseq have options, too
        """
        if isinstance(args, Mapping):
            return cls._create(select_position_options(args), DESCRIPTION in args, "model.")
        names = position_options()
        return cls._create({name: getattr(args, name) for name in names if hasattr(args, name)})

    @classmethod
    def from_options(
        cls, scheme: str, options: Mapping[str, Value] | None, is_saved: bool = False
    ) -> "PositionConfig":
        """Check the options of plain PyTorch or transformers, and set missing defaults.

        Args:
            scheme: a key of `SCHEMES`
            options: values by name, such as ``{"position_rank": 32}``; None is the default
            is_saved: whether the options come from a file, see `check_names_and_types`
        """
        if "position_scheme" in (options or {}):
            raise UserError(
                "position_scheme must not be one of the position options, because it is set beside "
                "them: leave it out"
            )
        return cls._create({**(options or {}), "position_scheme": scheme}, is_saved)

    @classmethod
    def _create(
        cls, options: Mapping[str, Value], is_saved: bool = False, prefix: str = ""
    ) -> "PositionConfig":
        """Check names, types and combinations of options, and set missing defaults."""
        find_scheme(options.get("position_scheme"))
        check_names_and_types(options, is_saved, prefix)
        config = cls(
            **{
                name: option.default if options.get(name) is None else options[name]
                for name, option in position_options().items()
            }
        )
        config.attention_backend = current_backend(config.attention_backend)
        config._check()
        config._set_defaults()
        return config

    def write_to(self, args: object) -> None:
        """Write every option into fairseq's arguments, which the checkpoint saves."""
        for name, value in vars(self).items():
            setattr(args, name, value)

    @property
    def scheme(self) -> type[PositionScheme]:
        return SCHEMES[self.position_scheme]

    @property
    def temperature(self) -> float:
        """Divisor of the logits of attention at inference, Chi et al. (2024).

        It divides the sum of q k^T, scores and mask in every attention in which a scheme may act.
        """
        return 1.0 if self.position_temperature is None else self.position_temperature

    @property
    def scheme_label(self) -> str:
        """The scheme's name, with its window and its global layers if there are any."""
        given = [
            f"{name.replace('_', ' ')} {value}"
            for name in ("window", "layers", "global_scheme", "global_base")
            if (value := getattr(self, f"position_{name}")) is not None
        ]
        return self.position_scheme + (f" ({', '.join(given)})" if given else "")

    def is_global(self, layer: int) -> bool:
        """Whether a layer is global, by the pattern of `position_layers`."""
        pattern = self.position_layers or "l"
        return pattern[layer % len(pattern)] == "g"

    @property
    def has_global_scheme(self) -> bool:
        """Whether global layers have another scheme, or other options of it, than local layers."""
        given = self.position_global_scheme, self.position_global_base
        return given not in ((None, None), (self.position_scheme, None))

    def at_layer(self, layer: int) -> "PositionConfig":
        """The options of self-attention in one layer, which is local or global."""
        return self if self.position_layers is None else self._of_kind(self.is_global(layer))

    @property
    def layer_kinds(self) -> tuple["PositionConfig", ...]:
        """The options of every kind of layer: of local layers, and of global layers if any."""
        return (
            (self,) if self.position_layers is None else (self._of_kind(False), self._of_kind(True))
        )

    def _of_kind(self, is_global: bool) -> "PositionConfig":
        """The options of local or of global layers, without a pattern of layers."""
        options: dict[str, Value] = dict(vars(self))
        if is_global:
            options["position_window"] = None
            if self.position_global_scheme is not None:
                options["position_scheme"] = self.position_global_scheme
                options |= self._differing_defaults(SCHEMES[self.position_global_scheme])
            if self.position_global_base is not None:
                options["position_rope_base"] = self.position_global_base
        options |= dict.fromkeys(
            ("position_layers", "position_global_scheme", "position_global_base")
        )
        return PositionConfig(**options)

    def _differing_defaults(self, scheme: type[PositionScheme]) -> dict[str, Value]:
        """The scheme's defaults of options that have the local scheme's default, another one."""
        local = {option.name: option.default for option in self.scheme.options}
        return {
            option.name: option.default
            for option in scheme.options
            if option.name in local
            and local[option.name] != option.default
            and getattr(self, option.name) == local[option.name]
        }

    def scheme_in(self, cross: bool) -> type[PositionScheme] | None:
        """The scheme that acts in self-attention, or in cross-attention, if one does."""
        if cross:
            return self.scheme.cross if self.position_cross_attention else None
        return self.scheme if self.scheme.in_attention else None

    def constructor_options(self, scheme: type[PositionScheme]) -> dict[str, Value]:
        """The given options, by the keywords of the scheme's constructor."""
        given = {option.argument: getattr(self, option.name) for option in scheme.options}
        return {name: value for name, value in given.items() if value is not None}

    def __str__(self) -> str:
        """One line that identifies a run: all options with their final values."""
        given = vars(self).copy()
        if self.position_gain is None:  # the scheme's default, unless it depends on the size
            given["position_gain"] = default_options(self.scheme).get("position_gain")
        return "|".join(
            f"{name.removeprefix('position_')}:{value}"
            for name, value in sorted(given.items(), key=lambda item: item[0] != "position_scheme")
            if value not in (None, False)
        )

    def _set_defaults(self) -> None:
        """Set the defaults of the options that are not given."""
        defaults = default_options(self.scheme)
        has_gain = self._has_option("position_gain")
        is_blind = self.position_start == "blind" != defaults.get("position_start")
        if has_gain and is_blind and self.position_gain is None:
            self.position_gain = 1.0
        for name, default in defaults.items():
            # per-head segments have another default gain than the scheme
            if getattr(self, name) is None and name != "position_gain":
                setattr(self, name, default)
        if self.position_sharing is None and self.position_global_scheme is not None:
            global_scheme = SCHEMES[self.position_global_scheme]
            self.position_sharing = global_scheme.sharing if global_scheme.in_attention else None
        if self.segment_scheme == "per-head" and self.position_sharing is None:
            self.position_sharing = "none"
        if self.segment_scheme in ("input", "per-head") and self.num_segments is None:
            self.num_segments = 2

    def _check(self) -> None:
        """Refuse values that are not allowed, and options that would have no effect."""
        defaults = default_options(self.scheme), encoder_defaults(self.scheme, has_segments=False)
        given = [o for o in position_options().values() if getattr(self, o.name) is not None]
        for option in given:
            option.validate(getattr(self, option.name))
        for option in given:
            value = getattr(self, option.name)
            if value in (option.default, *(values.get(option.name) for values in defaults)):
                continue
            if not self._has_option(option.name):
                raise UserError(
                    f"{option.flag}{'' if value is True else f' {value}'} is not an option of the "
                    f"position scheme {self.position_scheme}: leave it out, or use one of "
                    f"{', '.join(schemes_with(option.name))}"
                )
            need, has_effect = NEEDS.get(option.name, ("", lambda _: True))
            if not has_effect(self):
                raise UserError(
                    f"{option.flag} {value} has no effect without {need}: leave it out, or add "
                    f"{need}"
                )
        self._check_layers()
        if self.segment_scheme == "per-head" and self.scheme.compressed:
            raise UserError(
                "--segment-scheme per-head can't be combined with the position scheme "
                f"{self.position_scheme}: its compressed keys mix tokens of all segments; use "
                "input or none"
            )

    def _check_layers(self) -> None:
        """Refuse windows and global layers that the schemes can't have."""
        names = ("position_window", "position_layers")
        given = [name for name in names if getattr(self, name) is not None]
        if given and self.scheme.compressed:
            flag = position_options()[given[0]].flag
            raise UserError(
                f"{flag} {getattr(self, given[0])} can't be combined with the position scheme "
                f"{self.position_scheme}: its compressed keys mix tokens of all distances; use "
                "another scheme, or leave it out"
            )
        name = self.position_global_scheme
        if name not in (None, "none") and not can_be_global(SCHEMES[name]):
            fit = [name for name in SCHEMES if can_be_global(SCHEMES[name])]
            raise UserError(
                f"--position-global-scheme must be none or a scheme that acts in the attention of "
                f"single layers, but is {name}: use one of {', '.join(('none', *fit))}, or "
                "--position-input for positions at the input of all layers"
            )
        scheme = self.layer_kinds[-1].position_scheme
        with_base = schemes_with("position_rope_base")
        if self.position_global_base is not None and scheme not in with_base:
            raise UserError(
                f"--position-global-base {self.position_global_base} needs global layers with "
                f"rotations, but their scheme is {scheme}: leave it out, or set "
                f"--position-global-scheme to one of {', '.join(with_base)}"
            )

    def _has_option(self, name: str) -> bool:
        """Whether the option belongs to a layer's scheme, to per-head segments, or to all."""
        return (
            not any(name in default_options(scheme) for scheme in SCHEMES.values())
            or self.position_scheme in schemes_with(name)
            # cross-attention has the scheme of local layers
            or (
                self.position_global_scheme in schemes_with(name)
                and name != "position_cross_attention"
            )
            or (self.segment_scheme == "per-head" and name in SEGMENT_OPTIONS)
        )

    def check_no_segments(self, model: str, advice: str) -> None:
        """Refuse segments in a model that has none."""
        if self.segment_scheme not in (None, "none"):
            raise UserError(
                f"--segment-scheme {self.segment_scheme} needs segments, which {model} lacks: "
                f"{advice}"
            )

    def check_no_cross_attention(self) -> None:
        """Refuse a scheme in cross-attention in an encoder."""
        if self.position_cross_attention:
            raise UserError(
                "--position-cross-attention needs cross-attention, which an encoder lacks: leave "
                "it out"
            )

    def check_backend(self, scheme: PositionScheme) -> None:
        """Refuse a backend that does not compute all kinds of the scheme's terms."""
        backend = BACKENDS.get(self.attention_backend)
        lacking = () if backend is None else scheme.kinds - backend.serves
        if lacking:
            fit = [name for name in BACKENDS if scheme.kinds <= BACKENDS[name].serves]
            raise UserError(
                f"--attention-backend {self.attention_backend} can't compute the position scheme "
                f"{self.position_scheme}, which has {' and '.join(sorted(lacking))}: use "
                f"{', '.join(('auto', *fit))}"
            )


def reads_positions(config: PositionConfig) -> bool:
    """Whether the model's output depends on the positions of tokens."""
    schemes = {kind.scheme for kind in config.layer_kinds if not kind.scheme.moves}
    return (
        config.scheme.compressed
        or (config.position_input or config.scheme.input) != "none"
        or any(scheme.in_attention and not scheme.kinds <= {"content_score"} for scheme in schemes)
    )


def has_local_start(config: PositionConfig) -> bool:
    """Whether layers of some kind may have the start "local"."""
    return any(kind.position_start != "blind" for kind in config.layer_kinds)


#: option -> the options without which it has no effect, and whether they are given
NEEDS: dict[str, tuple[str, Callable[[PositionConfig], bool]]] = {
    "position_peak": (
        "--position-start local (tupe_r: and --position-relative scalar)",
        lambda c: c.position_relative != "product" and has_local_start(c),
    ),
    "position_sampling": (
        "a scheme with positions",
        lambda c: c.position_sampling == "none" or reads_positions(c),
    ),
    "position_sampling_length": (
        "--position-sampling",
        lambda c: c.position_sampling not in (None, "none"),
    ),
    "position_layers": (
        "--position-window, another --position-global-scheme or --position-global-base",
        lambda c: (
            c.position_window is not None
            or c.position_global_scheme not in (None, c.position_scheme)
            or c.position_global_base is not None
        ),
    ),
    "position_global_scheme": ("--position-layers", lambda c: c.position_layers is not None),
    "position_global_base": ("--position-layers", lambda c: c.position_layers is not None),
    "num_segments": ("--segment-scheme", lambda c: c.segment_scheme not in (None, "none")),
}


def current_backend(name: str) -> str:
    """The name of the backend: "auto" instead of the name of a removed backend."""
    if name not in RETIRED_BACKENDS:
        return name
    logger.info(f"--attention-backend {name} no longer exists: using auto")
    return "auto"


def find_scheme(name: object) -> type[PositionScheme]:
    """The scheme of this name.

    Raises:
        UserError: no scheme is registered under the name
    """
    scheme = SCHEMES.get(name) if isinstance(name, str) else None
    if scheme is None:
        raise UserError(
            f"--position-scheme must be one of {', '.join(SCHEMES)}, but is {name}: if a package "
            "of your own registers it, import that package first (--user-dir in commands)"
        )
    return scheme


#: types of options -> their values in words
VALUES_IN_WORDS = {
    int: "an integer",
    float: "a number",
    bool: "true or false",
    str: "text in quotes",
}
#: beginnings of the names of position options, which no option of fairseq's models has
PREFIXES = ("position_", "projection_", "segment_")
#: name of the description of the positions in a checkpoint (`positions.description`)
DESCRIPTION = "position_description"


def select_position_options(options: Mapping[str, Value]) -> dict[str, Value]:
    """The position options among a model's options, and options that were meant to be such."""
    declared = position_options()
    return {
        str(name): value
        for name, value in options.items()
        if name in declared or (str(name).startswith(PREFIXES) and name != DESCRIPTION)
    }


def check_names_and_types(
    options: Mapping[str, Value], is_saved: bool = False, prefix: str = ""
) -> None:
    """Refuse misspelt position options and values of a wrong type.

    Args:
        options: values by name; None is the default
        is_saved: whether the options come from a checkpoint or an exported folder, which have the
            options of all schemes that were registered then; unknown options may then be off
        prefix: the beginning of the names in error messages

    Raises:
        UserError: an option does not exist, or a value has another type than its option
    """
    declared = position_options()
    for name, value in options.items():
        option, key = declared.get(name), f"{prefix}{one_line(str(name))}"
        if option is None:
            if not (is_saved and (value is None or value is False)):
                known = get_close_matches(str(name), declared) or sorted(declared)
                raise UserError(f"{key} is not an option: correct it to {' or '.join(known)}")
        elif value is not None and not has_type(value, option.type):
            raise UserError(
                f"{key} must be {VALUES_IN_WORDS[option.type]}, but is {value!r}: change it"
            )


def has_type(value: object, kind: type) -> bool:
    """Whether a value has the type; an integer is also a number, but True is not."""
    accepted = {int: Integral, float: Real}.get(kind, kind)
    return isinstance(value, accepted) and (kind is bool or not isinstance(value, bool))


def schemes_with(option: str) -> list[str]:
    """The names of the schemes that act in attention and have this option."""
    return [
        name
        for name, scheme in SCHEMES.items()
        if acts_in_attention(scheme) and option in default_options(scheme)
    ]


def encoder_defaults(scheme: type[PositionScheme], has_segments: bool) -> dict[str, Value]:
    """The defaults of a scheme's options in encoders, if they differ from `default_options`."""
    defaults: dict[str, Value] = {
        option.name: option.encoder_default
        for option in scheme.options
        if option.encoder_default is not None
    }
    if has_segments:
        defaults["segment_scheme"] = scheme.segment_scheme
    return defaults


def add_encoder_defaults(
    scheme: str, options: Mapping[str, Value] | None, has_segments: bool = False
) -> dict[str, Value]:
    """The options of plain PyTorch or transformers with the defaults of encoders.

    Raises:
        UserError: the scheme does not exist
    """
    given = dict(options or {})
    defaults = encoder_defaults(find_scheme(scheme), has_segments)
    global_scheme = given.get("position_global_scheme")
    if global_scheme is not None:
        defaults = encoder_defaults(find_scheme(global_scheme), has_segments) | defaults
    return given | {name: value for name, value in defaults.items() if given.get(name) is None}


def acts_in_attention(scheme: type[PositionScheme]) -> bool:
    """Whether the scheme changes attention, so that positions at the input are an option."""
    return scheme.in_attention or scheme.compressed


def can_be_global(scheme: type[PositionScheme]) -> bool:
    """Whether the scheme can be in global layers only, without changing the input or the keys."""
    return scheme.in_attention and not scheme.compressed


def default_options(scheme: type[PositionScheme]) -> dict[str, Value]:
    """The options that apply to the scheme, and their defaults."""
    options = {option.name: option.default for option in scheme.options}
    options["position_input"] = scheme.input
    if scheme.in_attention:
        options["position_sharing"] = scheme.sharing
    if scheme.cross is not None:
        options["position_cross_attention"] = False
    if scheme.compressed:
        options |= {"projection_length": None, "projection_sharing": "none"}
    return options


def import_user_dir(folder: Path) -> None:
    """Import a package by its folder, as fairseq's ``--user-dir``, without importing fairseq.

    Raises:
        UserError: the folder is not a package, or another module with its name is imported
    """
    folder = folder.resolve()
    if not (folder / "__init__.py").is_file():
        raise UserError(f"{folder} is not a Python package: give a folder with an __init__.py")
    sys.path.insert(0, str(folder.parent))
    module = import_module(folder.name)
    if Path(module.__file__ or "").parent != folder:
        raise UserError(
            f"{folder} has the same name as the module {module.__file__}: rename the folder"
        )
