"""The name of `diet_fairseq.translate` in 0.3, for the modules that the documentation named."""

import sys
from contextlib import suppress
from importlib import import_module

with suppress(ModuleNotFoundError):  # the service needs an optional package
    for name in ("translator", "service", "service.app"):
        sys.modules[f"{__name__}.{name}"] = import_module(f".translate.{name}", __package__)
