"""A new scheme is one file and one line, as CONTRIBUTING.md tells it: its own example is tried."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import diet_fairseq

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "CONTRIBUTING.md"


@pytest.fixture(scope="module")
def house(tmp_path_factory) -> Path:
    """A folder with copies of the package and its tests, with what the guide puts into them."""
    folder = tmp_path_factory.mktemp("house")
    package = folder / "diet_fairseq"
    skip = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(diet_fairseq.__file__).parent, package, ignore=skip)
    for name in ("tests", "benchmarks"):
        shutil.copytree(ROOT / name, folder / name, ignore=skip)
    shutil.copytree(ROOT / "docs", folder / "docs", ignore=shutil.ignore_patterns("*.png"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    example = GUIDE.read_text().partition("## A new scheme is one file and one line")[2]
    path = re.search(r"The file `(\S+)`", example)[1]
    file, line, values = re.findall(r"```(?:python)?\n(.*?) *```", example, re.DOTALL)[:3]
    assert line.count("\n") == 1
    (folder / path).write_text(file)
    table = package / "positions" / "__init__.py"
    text = table.read_text()
    begin = "SCHEMES: dict[str, type[PositionScheme]] = {\n"
    assert begin in text
    text = text.replace("from .base import", "from .alibi import Alibi\nfrom .base import", 1)
    table.write_text(text.replace("}\n\n__all__", line + "}\n\n__all__", 1))
    cases = folder / "tests" / "support" / "cases.py"
    begin = "OTHER_VALUES: list[dict[str, Any]] = [\n"
    assert begin in cases.read_text()
    cases.write_text(cases.read_text().replace(begin, begin + values, 1))
    return folder


def run(house: Path, *arguments: str) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=house,  # first on the path of `python -m` and `python -c`
        env=environment | {"PYTHONPATH": str(house)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.slow
def test_the_command_line_and_the_architectures_know_it(house):
    said = run(
        house,
        "-c",
        "from argparse import Namespace\n"
        "import diet_fairseq\n"
        "from fairseq import options\n"
        "print(diet_fairseq.__file__)\n"
        "given = ['data', '--arch', 'transformer_alibi_tiny']\n"
        "given += ['--position-last-slope', '0.25', '--position-furthest', '7']\n"
        "args = options.parse_args_and_arch(options.get_training_parser(), given)\n"
        "print(args.position_scheme, args.encoder_layers, args.position_furthest, end=' ')\n"
        "print(args.position_last_slope)\n"
        "from diet_fairseq.config import PositionConfig\n"
        "print(PositionConfig.of(args))\n"
        "try:\n"
        "    PositionConfig.of(Namespace(position_scheme='alibi', position_last_slope=0.0))\n"
        "except ValueError as error:\n"
        "    print(error)\n"
        "try:\n"
        "    given[1:] = ['--arch', 'transformer_alibi', '--position-rank', '7']\n"
        "    PositionConfig.of(options.parse_args_and_arch(options.get_training_parser(), given))\n"
        "except ValueError as error:\n"
        "    print(error)\n",
    )
    place, reached, config, unfit, refusal = said.splitlines()[-5:]
    assert Path(place).is_relative_to(house)
    assert reached == "alibi 4 7 0.25"
    assert "scheme:alibi" in config
    assert "furthest:7" in config
    assert "last_slope:0.25" in config
    assert unfit == "--position-last-slope must be a number above 0, but is 0.0"
    assert refusal == (
        "--position-rank 7 is not an option of the position scheme alibi: leave it out, or take "
        "one of diet_abs, diet_abs_lin"
    )


@pytest.mark.slow
def test_every_test_that_tries_all_schemes_tries_it(house):
    rooms = ("analysis", "attention", "export", "hf", "models", "positions", "properties", "stack")
    said = run(
        house,
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"),
        *(f"tests/{room}" for room in rooms),
        *("--ignore", "tests/positions/test_new_scheme.py", "-k", "alibi"),
    )
    summary = said.splitlines()[-1]
    assert int(re.search(r"(\d+) passed", summary)[1]) > 150


@pytest.mark.slow
def test_its_types_fit(house):
    run(house, "-m", "mypy", "diet_fairseq/positions")
