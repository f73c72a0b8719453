"""Decoupled positional attention (DIET, TUPE and their baselines) for fairseq.

Importing it registers everything with fairseq and makes the changes of `patches.table` (`plugin`)
where fairseq is imported, before or after: ``--user-dir diet_fairseq`` does so. It doesn't import
fairseq or PyTorch by itself, so that commands start quickly, and `diet_fairseq.hf` needs no
fairseq. The environment variable DIET_FAIRSEQ_PATCHES (`modes`) selects the changes.
"""

import sys
from importlib import import_module
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .errors import UserError, report_user_errors
from .modes import active_kinds
from .version import __version__

if TYPE_CHECKING:
    from .config import register_position_scheme
    from .translate.translator import Translation, Translator

__all__ = ["Translation", "Translator", "__version__", "register_position_scheme"]


class PluginFinder(MetaPathFinder):
    """Imports the plugin at the end of the first import of fairseq."""

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> Any:
        if name != "fairseq":
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            load: Any = spec.loader.exec_module

            def load_with_plugin(module: ModuleType) -> None:
                load(module)
                import_module(".plugin", __name__)

            spec.loader.exec_module = load_with_plugin  # type: ignore[method-assign]
        return spec


try:
    has_plugin = bool(active_kinds())
except UserError:
    sys.excepthook = report_user_errors(sys.excepthook)  # the plugin, which does this, is missing
    raise
if has_plugin:
    if sys.modules.get("fairseq") is not None:
        from . import plugin  # noqa: F401
    else:
        sys.meta_path.insert(0, PluginFinder())


def __getattr__(name: str) -> Any:
    """Import what needs PyTorch when it is first used."""
    module = {
        "Translation": "translate.translator",
        "Translator": "translate.translator",
        "register_position_scheme": "config",
    }.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{module}", __name__), name)
