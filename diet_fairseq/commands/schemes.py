"""``schemes``: each scheme's sizes and options, which ``fairseq-train --help`` can't show."""

import inspect
import textwrap
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..errors import UserError

if TYPE_CHECKING:
    from ..positions import PositionScheme

FAMILIES = ("transformer", "roberta", "bert", "electra")
WIDTH = 100


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("names", metavar="SCHEME", nargs="*", help="schemes to list (default: all)")


def run(args: Namespace) -> None:
    from ..positions import SCHEMES

    for name in args.names:
        if name not in SCHEMES:
            raise UserError(f"there is no scheme {name}: take one of {', '.join(SCHEMES)}")
    for name in args.names or SCHEMES:
        print(*described(name), "", sep="\n")
    print("with every scheme", *common(), sep="\n")


def described(name: str) -> Iterator[str]:
    """The lines of a scheme: what it is, its architectures, its own options."""
    from ..config import acts_in_attention, options_of
    from ..positions import SCHEMES

    scheme = SCHEMES[name]
    yield f"{name}: {(inspect.getdoc(scheme) or '').splitlines()[0]}"
    families = {family: sizes for family in FAMILIES if (sizes := sizes_of(family, name))}
    for family, sizes in families.items():
        yield f"    --arch {family}_{name}[{'|'.join(filter(None, sizes))}]"
    if not acts_in_attention(scheme):
        return
    for field, default in options_of(scheme).items():
        takes = {family: defaults_of(family, scheme).get(field, default) for family in families}
        yield from option_lines(field, said(takes))


def defaults_of(family: str, scheme: "type[PositionScheme]") -> dict[str, Any]:
    """The family's values of options that are not given."""
    from ..models import diet_bert, diet_electra, diet_roberta

    models = {"roberta": diet_roberta, "bert": diet_bert, "electra": diet_electra}
    return models[family].defaults(scheme) if family in models else {}


def sizes_of(family: str, name: str) -> list[str]:
    """The suffixes of the scheme's architectures that the family's tasks can use."""
    from fairseq.models import ARCH_CONFIG_REGISTRY

    from ..config import translation_schemes
    from ..positions import SCHEMES

    if family == "transformer" and name not in translation_schemes():
        return []
    longer = tuple(f"{family}_{other}" for other in SCHEMES if other.startswith(f"{name}_"))
    mine = [arch for arch in ARCH_CONFIG_REGISTRY if f"{arch}_".startswith(f"{family}_{name}_")]
    found = [arch for arch in mine if not (longer and arch.startswith(longer))]
    return [arch.removeprefix(f"{family}_{name}") for arch in found]


def said(takes: dict[str, Any]) -> str:
    """The default, or the default of each family where they differ."""
    values = set(takes.values())
    if len(values) > 1:
        return ", ".join(f"{family}: {value}" for family, value in takes.items())
    [value] = values
    return "" if value in (None, False) else str(value)


def option_lines(name: str, default: str = "") -> Iterator[str]:
    """The option as a command line has it, its default, and its help."""
    from ..config import position_options

    option = position_options()[name]
    value = "" if option.type is bool else option.type.__name__.upper()
    value = "|".join(option.choices) if option.choices else value
    yield f"    {option.flag} {value}{f'  (default: {default})' if default else ''}".rstrip()
    indent = " " * 8
    yield textwrap.fill(option.help, WIDTH, initial_indent=indent, subsequent_indent=indent)


def common() -> Iterator[str]:
    """The options that belong to no scheme in particular."""
    from ..config import options_of, position_options
    from ..positions import SCHEMES

    own = {field for scheme in SCHEMES.values() for field in options_of(scheme)}
    for name, option in position_options().items():
        if name not in own and name != "position_scheme":
            yield from option_lines(name, said({"": option.default}))
