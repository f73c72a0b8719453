"""fairseq's programs are run with this plugin, whatever the user's environment."""

import sys

from diet_fairseq.recipes.common import programs


def test_programs_read_and_write_utf_8_whatever_the_locale(tmp_path, monkeypatch):
    for name, value in {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}.items():
        monkeypatch.setenv(name, value)
    text, log = tmp_path / "text", tmp_path / "log"
    text.write_text("Grüße, 世界", encoding="utf-8")
    programs.run([sys.executable, "-c", f"print(open({str(text)!r}).read())"], log)
    assert log.read_text(encoding="utf-8") == "Grüße, 世界\n"
