"""The declaration of a command-line option."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ..errors import UserError, check_at_least

#: takes the flag and its value; raises `UserError`
Check = Callable[[str, Any], Any]


@dataclass(frozen=True)
class Option:
    """A position option, which `config.position_options` and every ``--help`` list.

    Attributes:
        name: in a checkpoint's arguments
        type: int, float, str, or bool, whose flag takes no value
        help: for ``--help``
        default: the scheme's; None: the scheme decides
        encoder_default: the default of encoder architectures, where it differs
        choices: the values allowed; None: any value of the type
        check: refuses values that have the type and are not allowed
    """

    name: str
    type: type
    help: str
    default: Any = None
    choices: tuple[str, ...] | None = None
    check: Check | None = None
    encoder_default: Any = None

    @property
    def flag(self) -> str:
        """The option as it is typed: ``position_clip`` -> ``--position-clip``."""
        return "--" + self.name.replace("_", "-")

    @property
    def argument(self) -> str:
        """The keyword of a scheme's constructor that takes the value."""
        return self.name.removeprefix("position_")

    def validate(self, value: Any) -> None:
        """Refuse a value that is not allowed, by a `UserError`."""
        if self.choices is not None and value not in self.choices:
            raise UserError(f"{self.flag} must be one of {', '.join(self.choices)}, but is {value}")
        if self.check is not None:
            self.check(self.flag, value)

    def with_default(self, default: Any) -> "Option":
        """The same option with another default."""
        return replace(self, default=default)


def at_least(least: int) -> Check:
    """A check that the value is not below ``least``."""
    return partial(check_at_least, least=least)
