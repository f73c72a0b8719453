"""Decoupled positional attention (DIET, TUPE and their baselines) for fairseq.

Imports have three properties, which this file and `plugin` implement:

- In whichever order a program imports fairseq and this package, the plugin is active before
  fairseq can load a checkpoint: models, tasks, criterions and optimizers are registered, and the
  changes of `patches` are made. ``--user-dir diet_fairseq`` is one way of importing the package.
- Importing the package imports neither fairseq nor PyTorch. `diet_fairseq.hf`, exported CTranslate2
  folders and ``--help`` need no fairseq.
- Every module of the package can be the first that a program imports.
"""

import sys
from importlib import import_module
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from .config import register_position_scheme
    from .translate.translator import Translation, Translator

__all__ = ["Translation", "Translator", "__version__", "register_position_scheme"]

#: Packages of the plugin. They import fairseq, which imports the plugin, which needs all packages:
#: therefore fairseq is imported before the first module of any package.
PLUGIN_PACKAGES = {
    f"{__name__}.{name}"
    for name in ("checkpoints", "criterions", "models", "optim", "patches", "tasks")
}


def hide_broken_torchaudio() -> None:
    """Make torchaudio appear missing if its import fails.

    fairseq requires torchaudio, whose import fails with a CPU build of PyTorch. transformers
    imports torchaudio if it is installed, and then fails, too.
    """
    try:
        import_module("torchaudio")
    except (OSError, ImportError, RuntimeError):
        sys.modules["torchaudio"] = None  # type: ignore[assignment]


class PluginFinder(MetaPathFinder):
    """Imports the plugin at the end of the first import of fairseq.

    Before transformers it hides a broken torchaudio.
    """

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> Any:
        if name == "transformers":
            hide_broken_torchaudio()
        if name != "fairseq" and name not in PLUGIN_PACKAGES:
            return None
        other_finders = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(name, path, target) for finder in other_finders)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            execute: Any = spec.loader.exec_module

            def execute_with_plugin(module: ModuleType) -> None:
                if name == "fairseq":
                    execute(module)
                    import_module(".plugin", __name__)
                else:
                    import_module("fairseq")
                    execute(module)

            spec.loader.exec_module = execute_with_plugin  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, PluginFinder())
if sys.modules.get("fairseq") is not None:
    from . import plugin  # noqa: F401


def __getattr__(name: str) -> Any:
    """Import names that need PyTorch at their first use."""
    module = {
        "Translation": "translate.translator",
        "Translator": "translate.translator",
        "register_position_scheme": "config",
    }.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{module}", __name__), name)
