"""torchaudio, which fairseq brings along, can't be imported beside a CPU build of PyTorch.

transformers imports it wherever it is installed, and ends with the error of its library.
"""

import sys
from importlib import import_module
from importlib.util import find_spec


def leave_out_if_broken() -> None:
    """Where torchaudio can't be imported, let Python and transformers say that it isn't there."""
    if "torchaudio" in sys.modules or find_spec("torchaudio") is None:
        return
    try:
        import_module("torchaudio")
    except (OSError, ImportError, RuntimeError):
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchaudio"]:
            del sys.modules[name]
        sys.modules["torchaudio"] = None  # type: ignore[assignment]
        utils = sys.modules.get("transformers.utils.import_utils")
        if utils is not None:  # transformers, imported before, remembers that it is installed
            utils.is_torchaudio_available.cache_clear()
