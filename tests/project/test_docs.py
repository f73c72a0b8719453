"""The documentation: its links lead somewhere, its lists are complete."""

import csv
import re
from argparse import Namespace
from collections import Counter

import pytest

from diet_fairseq.config import PositionConfig, position_options
from diet_fairseq.positions import SCHEMES
from tests.support.pages import BLOCK, MARKDOWN, ROOT, text_of

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
DOCS = [page for page in MARKDOWN if page.startswith("docs/")]


# --- form ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [*DOCS, "CONTRIBUTING.md", "SECURITY.md"])
def test_a_page_begins_with_what_its_reader_can_do(page):
    _, first, *_ = text_of(page).split("\n\n")
    assert re.match(r"(After reading|With) this page you (can|know) |You can ", first)


@pytest.mark.parametrize("page", [*DOCS, "README.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_lines_wrap_at_100_characters(page):
    lines = BLOCK.sub("", text_of(page)).splitlines()
    long = [line for line in lines if len(line) > 100 and not line.startswith(("|", "![", "    "))]
    assert long == []


# --- links --------------------------------------------------------------------------------------


def anchors(page: str) -> set[str]:
    """The names that GitHub gives to the headings of a page."""
    seen: Counter[str] = Counter()
    names = set()
    for heading in HEADING.findall(BLOCK.sub("", text_of(page))):
        name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        names.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return names


def broken_links(page: str, text: str) -> list[str]:
    """The relative links of a text that lead to no file, or to no heading of it."""
    broken = []
    for link in LINK.findall(BLOCK.sub("", text)):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = ((ROOT / page).parent / path if path else ROOT / page).resolve()
        inside = target.is_relative_to(ROOT) and target.exists()
        if not inside or (anchor and anchor not in anchors(target.relative_to(ROOT).as_posix())):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", MARKDOWN)
def test_every_link_leads_to_a_file_and_a_heading(page):
    assert broken_links(page, text_of(page)) == []


@pytest.mark.parametrize(
    "link", ["docs/no-such.md", "docs/results.md#no-such-heading", "#no-such", "../outside"]
)
def test_a_broken_link_is_reported(link):
    assert broken_links("README.md", f"[text]({link})") == [link]


def test_the_index_names_every_page():
    index = text_of("docs/README.md")
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "README.md" or f"({page.name})" in index, page.name


# --- lists --------------------------------------------------------------------------------------


def test_every_position_option_is_documented():
    text = text_of("docs/options.md")
    for option in position_options().values():
        assert f"| `{option.flag}" in text, option.flag


@pytest.mark.parametrize("page", ["docs/options.md", ".github/ISSUE_TEMPLATE/bug.yml"])
def test_the_line_that_names_a_run_is_documented_as_logged(page):
    line = str(PositionConfig.from_args(Namespace(position_scheme="diet_rel")))
    assert f" {line}|version:" in text_of(page)


def test_pre_commit_checks_with_the_ruff_of_the_development_environment():
    [hook] = re.findall(r"rev: v(\S+)", text_of(".pre-commit-config.yaml"))
    assert f'"ruff=={hook}"' in text_of("setup.py")


def test_continuous_integration_runs_every_supported_python():
    supported = re.findall(r"Python :: (3\.\d+)", text_of("setup.py"))
    [matrix] = re.findall(r"python: \[(.+)\]", text_of(".github/workflows/ci.yml"))
    assert re.findall(r"[\d.]+", matrix) == supported


def test_every_scheme_is_documented():
    text = text_of("docs/schemes.md")
    rows = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert rows == list(SCHEMES)
    sections = " ".join(re.findall(r"^## (.+)$", text, re.MULTILINE))
    for scheme in SCHEMES:
        assert f"`{scheme}`" in sections, scheme


def tables_of(text: str) -> list[list[list[str]]]:
    """The cells of every table, its header first."""
    tables = []
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        header, _, *rows = block.splitlines()
        tables.append(
            [[cell.strip() for cell in line.split("|")[1:-1]] for line in (header, *rows)]
        )
    return tables


def test_the_figures_of_schemes_are_the_measured_ones():
    def read(name):
        with open(ROOT / f"results/{name}.csv", encoding="utf-8", newline="") as file:
            return {row["scheme"]: row for row in csv.DictReader(file)}

    costs, losses = read("performance/schemes-cpu"), read("pretraining/eltec-1000-updates")
    peak, speed, loss = (
        "peak of a training step, MiB",
        "training step, speed against none",
        "loss after 1,000 updates, nats",
    )
    (header, *rows), *_ = tables_of(text_of("docs/schemes.md"))
    for row in rows:
        # from the right, as |i - j| stands in a cell, too
        cells = {
            name: row[header.index(name) - len(header)] for name in ("speed", "memory", "loss")
        }
        scheme = row[0].strip("`")
        memory = float(costs[scheme][peak]) / float(costs["none"][peak])
        expected = [float(costs[scheme][speed]), memory, float(losses.get(scheme, {loss: 0})[loss])]
        shown = [float(cell or 0) for cell in cells.values()]
        assert shown == pytest.approx(expected, abs=0.0051), scheme


def test_every_claim_of_the_papers_has_a_verdict():
    claims, *_ = tables_of(text_of("docs/results.md"))
    verdicts = {row[-1] for row in claims[1:]}
    assert claims[0][-1] == "verdict"
    assert verdicts <= {"seen", "not seen", "contradicted", "untested"}


#: of 0.2's `diet-fairseq`, and settings of its grids
REPLACED = """
translation prepare train evaluate encoder pretrain prepare-glue prepare-task prepare-xtreme
finetune ablate report predict answer score-xtreme grid run table plot tables seeds_of script
"""


def test_every_command_of_0_2_has_its_successor():
    words = set(re.findall(r"[\w-]+", text_of("docs/migrating.md")))
    assert set(REPLACED.split()) - words == set()


def test_every_table_of_measurements_is_described():
    index = text_of("results/README.md")
    for table in (ROOT / "results").rglob("*.csv"):
        assert str(table.relative_to(ROOT / "results")) in index, table
