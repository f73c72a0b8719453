"""Set-up names a missing requirement before it starts; every target sets up first."""

import fcntl
import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.support.pages import ROOT, committed_files

# programs that set-up calls besides Python and the compiler
TOOLS = ["bash", "cat", "grep", "sed", "tail"]


@pytest.fixture
def machine(tmp_path):
    """A machine with nothing but TOOLS; returns (add a program, run set-up)."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for tool in TOOLS:
        (programs / tool).symlink_to(shutil.which(tool))

    def add(name: str, script: str) -> None:
        path = programs / name
        path.write_text(f"#!{shutil.which('bash')}\n{script}\n")
        path.chmod(0o755)

    def set_up(**environment: str) -> subprocess.CompletedProcess:
        paths = {"PATH": str(programs), "VENV": str(tmp_path / "venv"), "TORCH": "2.13.0"}
        command = [shutil.which("bash"), str(ROOT / "tools/setup.sh")]
        return subprocess.run(command, env=paths | environment, capture_output=True, text=True)

    return add, set_up


def python_but(pattern: str, action: str, version: str = ":") -> str:
    """The script of a Python that does `action` when its command line matches `pattern`.

    Args:
        version: the action that tells its version; without one it is this Python's
    """
    says = "" if version == ":" else f"*version_info*) {version}; exit ;;"
    return f'case "$*" in {says} {pattern}) {action} ;; esac; exec {sys.executable} "$@"'


def assert_refused(done: subprocess.CompletedProcess, *words: str) -> None:
    assert done.returncode != 0
    last = done.stderr.splitlines()[-1]
    assert last.startswith("set-up failed: ")
    for word in words:
        assert word in last


AS_3_11 = python_but("nothing", ":", "echo 3.11")
REFUSED = {
    "no Python": ({}, ["Python 3.11, 3.12 or 3.13 is needed; there is no python3."]),
    "an old Python": ({"python3": "echo 3.10"}, ["is needed; python3 is 3.10.", "PYTHON="]),
    "a new Python": ({"python3": "echo 3.14"}, ["is needed; python3 is 3.14.", "PYTHON="]),
    "no venv": (
        {"python3": python_but("*ensurepip*", "exit 1")}, ["python3 has no venv module", "-venv"]
    ),
    "no compiler": (
        {"python3": AS_3_11}, ["no C++ compiler (g++)", "for Python 3.11.", "apt install g++"]
    ),
    "no headers": (
        {"python3": python_but("*Python.h*", "exit 1", "echo 3.11"), "g++": ":"},
        ["no C headers (Python.h)", "-dev"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("programs", "words"), REFUSED.values(), ids=REFUSED)
def test_a_machine_without_a_requirement_is_refused(machine, programs, words):
    add, set_up = machine
    for name, script in programs.items():
        add(name, script)
    assert_refused(set_up(), *words)


def environment_with(folder, add, case: str) -> None:
    """An environment whose pip only notes what it should do, in the file ``calls``."""
    (folder / "calls").touch()
    (folder / "venv/bin").mkdir(parents=True)
    (folder / "venv/bin/activate").write_text(str(folder / "venv"))
    add(
        "../venv/bin/python",
        f"""case "$*" in
        *"pip --version") ;;
        *"pip "*install*) echo "$*" >>{folder}/calls ;;
        *"import torch") ;;
        {case}
        *) exec {sys.executable} "$@" ;;
        esac""",
    )


def test_a_second_set_up_in_one_folder_is_refused(machine, tmp_path):
    add, set_up = machine
    (tmp_path / "bin" / "flock").symlink_to(shutil.which("flock"))
    add("python3.12", python_but("nothing", ":", "echo 3.12"))
    environment_with(tmp_path, add, "*fairseq.data.data_utils_fast* | *torchaudio*) ;;")
    with open(tmp_path / "venv.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert_refused(set_up(), f"another set-up is making {tmp_path / 'venv'}: wait for it")
        assert not (tmp_path / "calls").read_text()
    assert "set-up: done." in set_up().stdout


@pytest.mark.parametrize(
    ("wheel", "says"),
    [
        ("fairseq_fixed-0.12.3.1-cp311-cp311-linux_x86_64.whl", "pip's cache has it: nothing is"),
        ("fairseq_fixed-0.12.3.1-cp313-cp313-linux_x86_64.whl", "compiled here: 3 to 5 minutes"),
    ],
)
def test_set_up_says_whether_fairseq_is_compiled(wheel, says, machine, tmp_path):
    add, set_up = machine
    add("python3", AS_3_11)
    add("g++", ":")
    environment_with(tmp_path, add, f"""*"cache list"*) echo " - {wheel} (21.9 MB)" ;;
        *fairseq.data.data_utils_fast*) [ -e {tmp_path}/runs ] || ! : >{tmp_path}/runs ;;
        *torchaudio*) ;;
        *sys.version_info*) ;;""")  # fmt: skip
    assert f"set-up: fairseq ({says}" in set_up().stdout


@pytest.mark.slow
def test_a_fairseq_that_does_not_run_is_compiled_again_and_then_set_up_fails(machine, tmp_path):
    add, set_up = machine
    add("python3", AS_3_11)
    add("g++", ":")
    environment_with(tmp_path, add, """*fairseq.data.data_utils_fast*)
            echo "ImportError: data_utils_fast.so: undefined symbol: _ZN3c10" >&2
            exit 1 ;;
        *torchaudio*) ;;
        *sys.version_info*) ;;""")  # fmt: skip
    done = set_up()
    calls = (tmp_path / "calls").read_text().splitlines()
    first, again, *_ = [call for call in calls if "fairseq-fixed==" in call]
    assert first.endswith("fairseq-fixed==0.12.3.1 --no-build-isolation --no-binary fairseq-fixed")
    assert again.endswith("--no-cache-dir --force-reinstall --no-deps")
    reason = "(ImportError: data_utils_fast.so: undefined symbol: _ZN3c10)."
    assert_refused(done, f"is installed, but does not run with PyTorch 2.13.0 {reason}")


def test_python_3_12_compiles_nothing_and_a_broken_torchaudio_goes(machine, tmp_path):
    """The machine has no compiler."""
    add, set_up = machine
    add("python3.12", python_but("nothing", ":", "echo 3.12"))
    add("python3", AS_3_11)
    environment_with(tmp_path, add, """*fairseq.data.data_utils_fast*) ;;
        *torchaudio*) exit 1 ;;""")  # fmt: skip
    done = set_up()
    assert "set-up: done." in done.stdout, done.stderr
    calls = (tmp_path / "calls").read_text()
    assert "fairseq-fixed==0.12.3.1\n" in calls
    assert "--no-binary" not in calls
    *_, last_install, removal = calls.splitlines()
    assert "--editable .[dev]" in last_install
    assert removal.endswith("uninstall --yes torchaudio")


@pytest.mark.slow
def test_transformers_models_can_be_imported_after_set_up():
    """transformers imports torchaudio, which fails beside the CPU build, without this package."""
    statement = (
        "import sys; from transformers import MarianMTModel; print('diet_fairseq' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", statement], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr


def make(*arguments: str) -> str:
    """The output of make, independent of a make that runs these tests."""
    outer = {"MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "TORCH", "PYTHON", "VENV"}
    environment = {name: value for name, value in os.environ.items() if name not in outer}
    command = ["make", "--silent", *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_every_target_sets_up_first():
    names = make()
    variables = ("TORCH=2.10.0", "PYTHON=python3.12", "VENV=.venv-x")
    for target in ("demo", "test", "test-slow", "lint", "docs", "bench"):
        assert f"make {target} " in names
        for variable in variables if target == "test" else variables[:1]:
            assert "tools/setup.sh" in make("--dry-run", target, variable).splitlines()[0]


def test_no_file_names_a_place_on_one_machine():
    place = re.compile(rb"(?<![\w.])/(root|home|work|opt|Users|mnt)/\w")
    assert [path for path in committed_files() if place.search(path.read_bytes())] == []


def test_the_oldest_pytorch_is_one_that_the_tests_run_with():
    """Before 2.10 weights_only can corrupt memory (CVE-2026-24747)."""
    oldest = re.search(r'"torch>=([\d.]+)"', (ROOT / "setup.py").read_text())[1]
    script = (ROOT / "tools" / "environments.sh").read_text()
    versions = re.findall(r"3\.\d+-(\d+)\.(\d+)\.0", script.partition("all=(")[2].partition(")")[0])
    assert min(tuple(map(int, version)) for version in versions) == (2, 10)
    assert oldest == "2.10"
