"""torchaudio, which fairseq brings along, can't be imported beside a CPU build of PyTorch.

transformers imports it wherever it is installed, and ends with the error of its library.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec

NAME = "torchaudio"


def left_out_if_broken() -> Callable[[], None]:
    """Where it can't be imported, let Python and transformers say that it isn't there."""
    if NAME in sys.modules or find_spec(NAME) is None:
        return lambda: None
    try:
        import_module(NAME)
    except (OSError, ImportError, RuntimeError):
        for name in [name for name in sys.modules if name.partition(".")[0] == NAME]:
            del sys.modules[name]
        sys.modules[NAME] = None  # type: ignore[assignment]
        _ask_again()
        return _as_before
    return lambda: None


def _as_before() -> None:
    if sys.modules.get(NAME, NAME) is None:
        del sys.modules[NAME]
        _ask_again()


def _ask_again() -> None:
    """Let transformers forget whether it is installed, if it was imported before."""
    utils = sys.modules.get("transformers.utils.import_utils")
    if utils is not None:
        utils.is_torchaudio_available.cache_clear()
