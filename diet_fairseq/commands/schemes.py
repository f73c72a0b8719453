"""``diet-fairseq schemes``: architectures and options of each scheme."""

import inspect
import textwrap
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import Any

from ..errors import UserError

FAMILIES = ("transformer", "roberta", "bert", "electra")
WIDTH = 100


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("names", metavar="SCHEME", nargs="*", help="schemes to list (default: all)")


def run(args: Namespace) -> None:
    from ..config import options_of, position_options
    from ..positions import SCHEMES

    for name in args.names:
        if name not in SCHEMES:
            raise UserError(f"there is no scheme {name}: take one of {', '.join(SCHEMES)}")
    for name in args.names or SCHEMES:
        print(*describe(name), "", sep="\n")
    print("with every scheme")
    fields = {"position_scheme"}.union(*map(options_of, SCHEMES.values()))
    for name, option in position_options().items():
        if name not in fields:
            print(*describe_option(name, format_default({"": option.default})), sep="\n")


def describe(name: str) -> Iterator[str]:
    """Lines with a scheme's summary, architectures and options."""
    from ..config import acts_in_attention, options_of
    from ..models import diet_bert, diet_roberta
    from ..positions import SCHEMES

    scheme = SCHEMES[name]
    yield f"{name}: {(inspect.getdoc(scheme) or '').splitlines()[0]}"
    families = {family: sizes for family in FAMILIES if (sizes := sizes_of(family, name))}
    for family, sizes in families.items():
        yield f"    --arch {family}_{name}[{'|'.join(filter(None, sizes))}]"
    if not acts_in_attention(scheme):
        return
    models = {"roberta": diet_roberta, "bert": diet_bert, "electra": diet_bert}
    defaults = {
        family: models[family].defaults(scheme) if family in models else {} for family in families
    }
    for field, default in options_of(scheme).items():
        by_family = {family: values.get(field, default) for family, values in defaults.items()}
        yield from describe_option(field, format_default(by_family))


def sizes_of(family: str, name: str) -> list[str]:
    """The suffixes of the scheme's architectures that the family's tasks can use."""
    from fairseq.models import ARCH_CONFIG_REGISTRY

    from ..config import translation_schemes
    from ..positions import SCHEMES

    if family == "transformer" and name not in translation_schemes():
        return []
    longer = tuple(f"{family}_{scheme}" for scheme in SCHEMES if scheme.startswith(f"{name}_"))
    return [
        arch.removeprefix(f"{family}_{name}")
        for arch in ARCH_CONFIG_REGISTRY
        if f"{arch}_".startswith(f"{family}_{name}_") and not arch.startswith(longer)
    ]


def format_default(defaults: dict[str, Any]) -> str:
    """The default, or the default of each family where they differ."""
    values = set(defaults.values())
    if len(values) > 1:
        return ", ".join(f"{family}: {value}" for family, value in defaults.items())
    [value] = values
    return "" if value in (None, False) else str(value)


def describe_option(name: str, default: str) -> Iterator[str]:
    """Lines with the option's flag, default and help."""
    from ..config import position_options

    option = position_options()[name]
    value = "" if option.type is bool else option.type.__name__.upper()
    value = "|".join(option.choices) if option.choices else value
    yield f"    {option.flag} {value}{f'  (default: {default})' if default else ''}".rstrip()
    indent = " " * 8
    yield textwrap.fill(option.help, WIDTH, initial_indent=indent, subsequent_indent=indent)
