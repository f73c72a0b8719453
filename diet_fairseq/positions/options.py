"""The declaration of a command-line option."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ..errors import UserError, check_at_least

#: a value of an option; None: the default
Value = bool | int | float | str | None
#: check of a flag and its value, which has the option's type; it raises `UserError`
Check = Callable[[str, Any], object]


@dataclass(frozen=True)
class Option:
    """A position option, which `config.position_options` and every ``--help`` list.

    Attributes:
        name: name in a checkpoint's arguments, such as ``position_clip``
        type: int, float, str, or bool; the flag of a bool has no value
        help: text of ``--help``
        default: default of the scheme; None: the scheme computes the default
        choices: the allowed values; None: any value of the type
        check: raises `UserError` for values of the type that are not allowed; None: no check
        encoder_default: default of encoder architectures; None: ``default``
    """

    name: str
    type: type
    help: str
    default: Value = None
    choices: tuple[str, ...] | None = None
    check: Check | None = None
    encoder_default: Value = None

    @property
    def flag(self) -> str:
        """The flag of the command line: ``position_clip`` -> ``--position-clip``."""
        return "--" + self.name.replace("_", "-")

    @property
    def argument(self) -> str:
        """The keyword of the scheme's constructor: ``position_clip`` -> ``clip``."""
        return self.name.removeprefix("position_")

    def validate(self, value: Value) -> None:
        """Refuse a value that is not allowed.

        Raises:
            UserError: the value is not one of ``choices``, or ``check`` refuses it
        """
        if self.choices is not None and value not in self.choices:
            raise UserError(f"{self.flag} must be one of {', '.join(self.choices)}, but is {value}")
        if self.check is not None:
            self.check(self.flag, value)

    def with_default(self, default: Value) -> "Option":
        """A copy of the option with another default."""
        return replace(self, default=default)


def at_least(least: int) -> Check:
    """A check that the value is not below ``least``."""
    return partial(check_at_least, least=least)
