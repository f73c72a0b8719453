"""Set-up names a missing requirement before it starts, and the packages are complete."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
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
        environment = {
            "PATH": str(programs),
            "VENV": str(tmp_path / "venv"),
            "TORCH": "2.13.0",
            **environment,
        }
        command = [shutil.which("bash"), str(ROOT / "tools/setup.sh")]
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    return add, set_up


def python_but(pattern: str, action: str) -> str:
    """The script of a Python that does `action` when its command line matches `pattern`."""
    return f'case "$*" in {pattern}) {action} ;; esac; exec {sys.executable} "$@"'


def assert_refused(done: subprocess.CompletedProcess, *words: str) -> None:
    assert done.returncode != 0
    last = done.stderr.splitlines()[-1]
    assert last.startswith("set-up failed: ")
    for word in words:
        assert word in last


RUNS = python_but("nothing", ":")
IS_3_12 = python_but("*version_info*", "echo 3.12; exit")
REFUSED = {
    "no Python": ({}, ["Python 3.11, 3.12 or 3.13 is needed; there is no python3."]),
    **{
        f"Python {version}": (
            {"python3": f"echo {version}"}, [f"is needed; python3 is {version}.", "PYTHON="]
        )
        for version in ("3.9", "3.10", "3.14")
    },
    "a second Python": ({"python3": "echo 3.9", "python3.12": IS_3_12}, ["no C++ compiler"]),
    "no venv": (
        {"python3": python_but("*ensurepip*", "exit 1")}, ["python3 has no venv module", "-venv"]
    ),
    "no compiler": ({"python3": RUNS}, ["no C++ compiler (g++)", "apt install g++"]),
    "no headers": (
        {"python3": python_but("*Python.h*", "exit 1"), "g++": ":"},
        ["no C headers (Python.h)", "-dev"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("programs", "words"), REFUSED.values(), ids=REFUSED)
def test_a_machine_without_a_requirement_is_refused(machine, programs, words):
    add, set_up = machine
    for name, script in programs.items():
        add(name, script)
    assert_refused(set_up(), *words)


def test_a_named_python_is_not_replaced_by_another(machine):
    add, set_up = machine
    add("python3", RUNS)
    assert_refused(set_up(PYTHON="python3.99"), "there is no python3.99")


@pytest.mark.slow
def test_set_up_without_a_network_is_refused(machine, tmp_path):
    """The closed port 9 stands for a network that is not there."""
    add, set_up = machine
    add("python3", f'exec {sys.executable} "$@"')
    add("g++", ":")
    nowhere = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": "http://127.0.0.1:9/"}
    done = set_up(**nowhere, PIP_RETRIES="1")
    assert_refused(done, "pip could not reach its package index", "run this again")
    assert "PyTorch 2.13.0" in done.stdout
    assert (tmp_path / "venv/set-up.log").read_text()


@pytest.fixture
def installing(machine, tmp_path):
    """Run set-up in an environment whose pip only says that it installs.

    fairseq can be imported after so many builds of it. Returns (how it ended, pip's arguments).
    """
    add, set_up = machine
    add("python3", python_but("nothing", ":"))
    add("g++", ":")
    calls = tmp_path / "calls"
    calls.touch()

    def call(builds: int) -> tuple[subprocess.CompletedProcess, list[str]]:
        (tmp_path / "venv/bin").mkdir(parents=True)
        (tmp_path / "venv/bin/activate").write_text(str(tmp_path / "venv"))
        add(
            "../venv/bin/python",
            f"""case "$*" in
            *"pip --version") ;;
            *"pip "*" install "*) echo "$*" >>{calls} ;;
            *"import torch") ;;
            *fairseq.libbase*)
                [ "$(grep -c fairseq-fixed== {calls})" -ge {builds} ] && exit
                echo Traceback >&2; echo "ImportError: libbase.so: undefined symbol: _ZN3c10" >&2
                exit 1 ;;
            *) exec {sys.executable} "$@" ;;
            esac""",
        )
        return set_up(), calls.read_text().splitlines()

    return call


@pytest.mark.slow
def test_fairseq_is_compiled_here_whatever_wheel_there_is(installing):
    done, calls = installing(1)
    assert done.returncode == 0, done.stderr
    assert "set-up: done." in done.stdout
    [built] = [call for call in calls if "fairseq-fixed==" in call]
    assert "--no-build-isolation --no-binary fairseq-fixed fairseq-fixed==0.12.3.1" in built
    assert "--editable .[dev]" in calls[-1]


@pytest.mark.slow
def test_fairseq_of_another_pytorch_is_compiled_again(installing):
    done, calls = installing(2)
    assert done.returncode == 0, done.stderr
    assert "fairseq again, for PyTorch 2.13.0" in done.stdout
    [_, built] = [call for call in calls if "fairseq-fixed==" in call]
    assert built.endswith("--no-cache-dir --force-reinstall --no-deps")


def test_set_up_fails_if_fairseq_does_not_run(installing, tmp_path):
    done, calls = installing(3)
    assert_refused(
        done,
        "fairseq was compiled, but does not run with PyTorch 2.13.0 (ImportError: libbase.so: "
        "undefined symbol: _ZN3c10).",
        f"what the compiler said is in {tmp_path}/venv/set-up.log",
    )
    assert "set-up: done." not in done.stdout
    assert not any("--editable" in call for call in calls)


def make(*arguments: str) -> str:
    """The output of make, independent of a make that runs these tests."""
    outer = {
        "MAKEFLAGS",
        "MFLAGS",
        "MAKELEVEL",
        "MAKEOVERRIDES",
        "TORCH",
        "PYTHON",
        "VENV",
        "PYTEST",
    }
    environment = {name: value for name, value in os.environ.items() if name not in outer}
    command = ["make", "--silent", *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_make_lists_its_targets():
    names = make()
    for target in ["setup", "demo", "test", "lint", "docs", "bench"]:
        assert f"make {target} " in names


@pytest.mark.parametrize("target", ["demo", "test", "test-slow", "lint", "docs", "bench"])
@pytest.mark.parametrize("variable", ["TORCH=2.6.0", "PYTHON=python3.12", "VENV=.venv-x"])
def test_every_target_sets_up_first(target, variable):
    assert "tools/setup.sh" in make("--dry-run", target, variable).splitlines()[0]


def files() -> list[Path]:
    """Files that are or may be committed."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for name in names.split("\0")[:-1] if (path := ROOT / name).is_file()]


def test_no_file_names_a_place_on_one_machine():
    place = re.compile(rb"(?<![\w.])/(root|home|work|opt|Users|mnt)/\w")
    named = [path for path in files() if place.search(path.read_bytes())]
    assert named == []


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with the wheel and the sdist, and the names of the files they were made from."""
    folder = tmp_path_factory.mktemp("built")
    names = {str(path.relative_to(ROOT)) for path in files()}
    for name in names:  # a copy, since building leaves files behind
        (folder / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / "tree" / name)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, "."]
    subprocess.run(command, cwd=folder / "tree", check=True)
    return folder, names


@pytest.mark.slow
def test_wheel_and_sdist_hold_what_they_need(built):
    folder, names = built
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        shipped = set(archive.namelist())
    package = {name for name in names if name.startswith("diet_fairseq/")}
    assert {name for name in shipped if ".dist-info/" not in name} == package
    assert any(name.endswith("/LICENSE") for name in shipped)

    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert names - held <= {".gitignore"}


def test_the_oldest_pytorch_is_one_that_the_tests_run_with():
    """Before 2.10 weights_only can corrupt memory (CVE-2026-24747)."""
    oldest = re.search(r'"torch>=([\d.]+)"', (ROOT / "setup.py").read_text())[1]
    script = (ROOT / "tools" / "environments.sh").read_text()
    versions = re.findall(r"3\.\d+-(\d+)\.(\d+)\.0", script.partition("all=(")[2].partition(")")[0])
    assert min(tuple(map(int, version)) for version in versions) == (2, 10)
    assert oldest == "2.10"
    defects = (ROOT / "docs" / "fairseq-defects.md").read_text()
    assert f"PyTorch {oldest} to " in defects
