"""The Dockerfile of the service: its steps, run without Docker."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from runpy import run_path

import pytest

from tests.support.pages import ROOT
from tests.support.translating import untrained

#: instruction -> its arguments, one text for each time that it is there
STEPS: dict[str, list[str]] = {}
for step in re.findall(
    r"^([A-Z]+) (.+)$", (ROOT / "examples/serve/Dockerfile").read_text(), re.MULTILINE
):
    STEPS.setdefault(step[0], []).append(step[1])


def words_of(instruction):
    """The program and its words, of the form that no shell reads."""
    [text] = STEPS[instruction]
    return json.loads(text[text.index("[") :])


def test_what_is_copied_is_enough_to_install(tmp_path):
    for *files, target in (step.split() for step in STEPS["COPY"]):
        folder = tmp_path / target.removeprefix("/")
        for name in files:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, folder)
            else:
                folder.mkdir(exist_ok=True)
                shutil.copy(ROOT / name, folder)
    built = subprocess.run(
        [sys.executable, "setup.py", "-q", "build", "--build-base", tmp_path / "build"],
        cwd=tmp_path / "src", capture_output=True, text=True,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "build/lib/diet_fairseq/translate/service/page.html").exists()


def test_the_extras_that_are_installed_exist(monkeypatch):
    settings = {}
    monkeypatch.setattr("setuptools.setup", lambda **words: settings.update(words))
    run_path(str(ROOT / "setup.py"))
    [extras] = re.findall(r"/src\[(.+?)\]", STEPS["RUN"][0])
    assert {"fairseq", "serve"} <= {*extras.split(",")} <= settings["extras_require"].keys()


def test_the_service_does_not_run_as_root():
    [user] = STEPS["USER"]
    assert not {"root", "0"} & {*user.split(":")}


@pytest.mark.slow
def test_the_service_of_a_model_that_only_can_be_read_is_healthy(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    model = untrained(tmp_path / "model", "--arch", "transformer_rope_tiny")
    for path in (*model.iterdir(), model):
        path.chmod(path.stat().st_mode & ~0o222)
    program, *words = [word.replace("/model", str(model)) for word in words_of("ENTRYPOINT")]
    assert program == "diet-fairseq"
    python, *probe = [word.replace(":5000", f":{port}") for word in words_of("HEALTHCHECK")]
    assert python == "python"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    service = subprocess.Popen(
        [sys.executable, "-m", "diet_fairseq", *words, "--port", port],
        stdout=subprocess.PIPE, text=True, env=environment, cwd=model,
    )  # fmt: skip
    assert "translating en to de at http://0.0.0.0:" in service.stdout.readline()
    healthy = subprocess.run([sys.executable, *probe], capture_output=True, text=True)
    assert healthy.returncode == 0, healthy.stderr
    service.send_signal(signal.SIGTERM)  # as `docker stop` does
    assert service.wait(30) == 0
    assert subprocess.run([sys.executable, *probe], capture_output=True).returncode == 1
