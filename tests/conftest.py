"""Settings and fixtures of all tests: threads, seeds, corpora, the marker `few`."""

import gc
import logging
import os
import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

# One thread a process: the tests run side by side, and the commands they start inherit this.
# This stands before the import of torch, which reads it once.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest
import torch

import diet_fairseq  # noqa: F401  # a file of tests that is run alone has the plugin, too
from tests.support import cases, commands

logging.getLogger("fairseq").setLevel(logging.WARNING)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    random.seed(1)
    np.random.seed(1)
    # torch.manual_seed would also format three stack traces, for devices that are not here.
    torch.default_generator.manual_seed(1)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of corpora and reference numbers, which is no part of the repository."""
    beside = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get("DIET_FAIRSEQ_DATA", beside))
    if not folder.is_dir():
        pytest.skip(f"no shared data in {folder}; DIET_FAIRSEQ_DATA may name another folder")
    return folder


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentence pairs for fairseq's commands, in the folder with their text; no test changes it."""
    return commands.corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="session")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents for fairseq's commands; no test changes them."""
    return commands.documents(tmp_path_factory.mktemp("documents"))


@pytest.fixture
def _quick_end_of_workers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """End data loader workers with the test; otherwise a later test waits 5 seconds for each."""
    monkeypatch.setattr("torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL", 0.1)
    yield
    gc.collect()


def pytest_addoption(parser: pytest.Parser) -> None:
    today = datetime.now(UTC).date().toordinal()
    parser.addoption(
        "--day", type=int, default=today, help="day that chooses the cases of slow tests (today)"
    )
    parser.addoption("--every-case", action="store_true", help="all cases in every slow test")


def pytest_configure(config: pytest.Config) -> None:
    cases.DAY, cases.EVERY_CASE = config.getoption("day"), config.getoption("every_case")


def pytest_report_header(config: pytest.Config) -> str:
    return "cases of slow tests: " + (
        "all" if cases.EVERY_CASE else f"the choice of --day {cases.DAY} (--every-case: all)"
    )


@pytest.hookimpl(tryfirst=True)  # before slow tests are deselected
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    counts: Counter[str] = Counter()
    for item in items:
        few = item.get_closest_marker("few")
        if few is not None:
            name = item.nodeid.partition("[")[0]
            counts[name] += 1
            if counts[name] > few.args[0]:
                item.add_marker(pytest.mark.slow)


def pytest_runtest_setup(item: pytest.Item) -> None:
    rehearsed = "REHEARSAL" in os.environ  # by tools/gpu.sh on a CPU
    if item.get_closest_marker("gpu") and not (torch.cuda.is_available() or rehearsed):
        pytest.skip("needs a CUDA device")
