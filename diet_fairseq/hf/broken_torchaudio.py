"""Protection of transformers from a broken torchaudio.

fairseq requires torchaudio, whose import fails beside a CPU build of PyTorch. transformers imports
it wherever it is installed, and fails with it.
"""

import sys
from importlib import import_module
from importlib.util import find_spec

NAME = "torchaudio"


def hide_broken_torchaudio() -> None:
    """Make torchaudio appear missing to Python and transformers if its import fails."""
    if NAME in sys.modules or find_spec(NAME) is None:
        return
    try:
        import_module(NAME)
    except (OSError, ImportError, RuntimeError):
        for name in [name for name in sys.modules if name.partition(".")[0] == NAME]:
            del sys.modules[name]
        sys.modules[NAME] = None  # type: ignore[assignment]
        # transformers has cached the answer if it was imported before
        if utils := sys.modules.get("transformers.utils.import_utils"):
            utils.is_torchaudio_available.cache_clear()
