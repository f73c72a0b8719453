"""Where torchaudio can't be imported, transformers takes it for missing."""

import sys
from types import SimpleNamespace

import pytest

from diet_fairseq.hf.broken_torchaudio import hide_broken_torchaudio


@pytest.mark.parametrize("broken", [True, False])
def test_torchaudio_is_hidden_where_it_cannot_be_imported(tmp_path, monkeypatch, broken):
    content = "from . import part\n" + 'raise OSError("libcudart")' * broken
    (tmp_path / "torchaudio").mkdir()
    (tmp_path / "torchaudio" / "__init__.py").write_text(content)
    (tmp_path / "torchaudio" / "part.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    cleared = []
    clear = SimpleNamespace(cache_clear=lambda: cleared.append(True))
    utils = SimpleNamespace(is_torchaudio_available=clear)
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchaudio"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "transformers.utils.import_utils", utils)
    before = dict(sys.modules)
    try:
        hide_broken_torchaudio()
        assert (sys.modules["torchaudio"] is None) == broken == bool(cleared)
        assert ("torchaudio.part" in sys.modules) != broken
    finally:
        for name in sys.modules.keys() - before.keys():
            del sys.modules[name]
