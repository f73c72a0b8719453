"""Commands with an exported CTranslate2 folder need neither PyTorch nor fairseq, and are light."""

import http.client
import json
import re
import signal
import subprocess
import sys

import pytest

pytest.importorskip("ctranslate2")
from diet_fairseq import Translator
from diet_fairseq.cli import main
from tests.support.texts import sentences
from tests.support.translating import untrained

#: the command without the libraries that an exported folder does not need; it prints the largest
#: memory that it held
PROGRAM = """
import sys
sys.modules |= dict.fromkeys(["torch", "fairseq", "transformers", "hydra", "omegaconf", "numpy",
                              "py3langid"])
from diet_fairseq.cli import main
status = main()
print(*[line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")])
sys.exit(status)
"""
MAX_KB = 130_000
TEXTS = sentences(40, seed=5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    run = untrained(tmp_path_factory.mktemp("run"), "--arch", "transformer_diet_rel_tiny")
    assert main(["export", "ctranslate2", str(run), str(run / "exported")]) == 0
    return run / "exported"


@pytest.fixture(scope="module")
def translations(folder):
    return Translator(folder).translate(TEXTS)


def start(*words):
    command = [sys.executable, "-c", PROGRAM, *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def finish(process):
    """The lines that it printed before its end, which must be well and within `MAX_KB`."""
    *lines, kilobytes = process.stdout.read().splitlines()
    assert process.wait() == 0
    assert int(kilobytes) < MAX_KB
    return lines


@pytest.mark.slow
def test_translate_needs_neither_torch_nor_fairseq(folder, translations, tmp_path):
    (tmp_path / "text").write_text("\n".join(TEXTS))
    with start("translate", folder, tmp_path / "text") as process:
        assert finish(process) == translations


@pytest.mark.slow
def test_serve_needs_neither_torch_nor_fairseq(folder, translations):
    pytest.importorskip("starlette", reason="needs diet_fairseq[serve]")
    with start("serve", folder, "--port", 0) as process:
        port = re.search(r":(\d+) ", process.stdout.readline())[1]
        connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=60)
        body = json.dumps({"q": "\n".join(TEXTS)})
        connection.request("POST", "/translate", body, {"Content-Type": "application/json"})
        answer = json.loads(connection.getresponse().read())
        connection.close()
        process.send_signal(signal.SIGTERM)
        assert finish(process) == ["stopped"]
    assert answer == {"translatedText": "\n".join(translations)}
