"""torchaudio, which fairseq requires, can't be imported beside a CPU build of PyTorch.

transformers imports it wherever it is installed, and ends with the error of its library.
"""

import sys
from importlib import import_module
from importlib.util import find_spec

NAME = "torchaudio"


def hide_broken_torchaudio() -> None:
    """Where it can't be imported, let Python and transformers take it for missing."""
    if NAME in sys.modules or find_spec(NAME) is None:
        return
    try:
        import_module(NAME)
    except (OSError, ImportError, RuntimeError):
        for name in [name for name in sys.modules if name.partition(".")[0] == NAME]:
            del sys.modules[name]
        sys.modules[NAME] = None  # type: ignore[assignment]
        # If transformers was imported before, it has already looked.
        utils = sys.modules.get("transformers.utils.import_utils")
        if utils is not None:
            utils.is_torchaudio_available.cache_clear()
