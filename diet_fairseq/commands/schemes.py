"""``diet-fairseq schemes``: architectures and options of each scheme."""

import inspect
import textwrap
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import Any

from ..errors import UserError, silent_interrupts

#: family of architectures -> suffixes of the sizes
SIZES = {
    "transformer": ("", "_tiny", "_iwslt_de_en", "_wmt_en_de", "_wmt_en_de_big"),
    "roberta": ("", "_tiny", "_small", "_base", "_large"),
    "bert": ("", "_tiny", "_small", "_base", "_large"),
    "electra": ("", "_tiny", "_small", "_base"),
}
WIDTH = 100


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("names", metavar="SCHEME", nargs="*", help="schemes to list (default: all)")


def run(args: Namespace) -> None:
    with silent_interrupts():
        from ..config import default_options, position_options
        from ..positions import SCHEMES

    for name in args.names:
        if name not in SCHEMES:
            raise UserError(f"unknown scheme {name}: give one of {', '.join(SCHEMES)}")
    for name in args.names or SCHEMES:
        print(*describe(name), "", sep="\n")
    print("with every scheme")
    fields = {"position_scheme"}.union(*map(default_options, SCHEMES.values()))
    for name, option in position_options().items():
        if name not in fields:
            print(*describe_option(name, format_default({"": option.default})), sep="\n")


def describe(name: str) -> Iterator[str]:
    """Lines with a scheme's summary, architectures and options."""
    from ..config import acts_in_attention, default_options, encoder_defaults, translation_schemes
    from ..positions import SCHEMES

    scheme = SCHEMES[name]
    yield f"{name}: {(inspect.getdoc(scheme) or '').splitlines()[0]}"
    families = [f for f in SIZES if f != "transformer" or name in translation_schemes()]
    for family in families:
        yield f"    --arch {family}_{name}[{'|'.join(filter(None, SIZES[family]))}]"
    if not acts_in_attention(scheme):
        return
    defaults = {
        family: {} if family == "transformer" else encoder_defaults(scheme, family != "roberta")
        for family in families
    }
    for field, default in default_options(scheme).items():
        by_family = {family: values.get(field, default) for family, values in defaults.items()}
        yield from describe_option(field, format_default(by_family))


def format_default(defaults: dict[str, Any]) -> str:
    """The default as text, or the default of each family if families differ."""
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
