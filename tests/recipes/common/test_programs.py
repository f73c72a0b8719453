"""fairseq's programs are run with this plugin, whatever the user's environment."""

import os
import signal
import subprocess
import sys
import time

import pytest

from diet_fairseq.recipes.common import programs


def test_programs_read_and_write_utf_8_whatever_the_locale(tmp_path, monkeypatch):
    for name, value in {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}.items():
        monkeypatch.setenv(name, value)
    text, log = tmp_path / "text", tmp_path / "log"
    text.write_text("Grüße, 世界", encoding="utf-8")
    programs.run([sys.executable, "-c", f"print(open({str(text)!r}).read())"], log)
    assert log.read_text(encoding="utf-8") == "Grüße, 世界\n"


#: says its process and that of a worker, and works on
AT_WORK = """
import os, sys, time
from multiprocessing import Pool
if __name__ == "__main__":
    with Pool(1) as pool:
        pid = pool.apply(os.getpid)
        print(os.getpid(), pid, file=open(sys.argv[1], "w", buffering=1))
        pool.apply(time.sleep, [600])
"""
PREPARE = "programs.run([sys.executable, *sys.argv[1:3]], log)"
EVALUATE = """
programs.python = lambda *_: [sys.executable, *sys.argv[1:3]]
programs.data_of, evaluate.given = lambda _: "", lambda *_: Namespace(data="")
args = Namespace(source="a", target="b", beam=1, penalty="fairseq", length_penalty=1,
                 max_tokens=1, gpus=0)
evaluate.translate("", log, 1, args)
"""


@pytest.mark.parametrize("command", [PREPARE, EVALUATE], ids=["prepare", "evaluate"])
def test_a_command_that_is_terminated_ends_the_program_that_it_runs_with_its_workers(
    command, tmp_path
):
    (tmp_path / "program.py").write_text(AT_WORK)
    (tmp_path / "command.py").write_text(
        "import sys\nfrom argparse import Namespace\nfrom pathlib import Path\n"
        "from diet_fairseq.interrupts import interruptible\n"
        "from diet_fairseq.recipes.common import programs\n"
        "from diet_fairseq.recipes.translation import evaluate\n"
        "log = Path(sys.argv[2]).with_name('log')\n"
        "with interruptible(lambda: 'run the same command to continue'):\n"
        + "".join(f"    {line}\n" for line in command.strip().split("\n"))
    )
    pids = tmp_path / "pids"
    words = [tmp_path / "command.py", tmp_path / "program.py", pids]
    with subprocess.Popen([sys.executable, *words]) as process:
        end = time.monotonic() + 60
        while not (pids.exists() and pids.read_text().endswith("\n")):
            assert time.monotonic() < end
            time.sleep(0.05)
        process.terminate()
    assert process.returncode == 128 + signal.SIGTERM
    for pid in map(int, pids.read_text().split()):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
