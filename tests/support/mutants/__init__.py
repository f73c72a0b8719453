"""Faults to put into the plugin: a property is only proven where its test fails with one of them.

Each is a function of pytest's `monkeypatch`; `assert_caught` applies one and wants the check to
fail. The names say what is wrong.
"""

from .catching import Table, assert_caught, build_test, each
from .exports import *  # noqa: F403
from .models import *  # noqa: F403  # one name a fault
from .moving import *  # noqa: F403
from .options import *  # noqa: F403
from .schemes import *  # noqa: F403
from .scores import *  # noqa: F403
from .windows import *  # noqa: F403

__all__ = ["Table", "assert_caught", "build_test", "each"]
