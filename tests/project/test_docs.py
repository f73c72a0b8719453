"""The documentation: its links lead somewhere, its lists are complete."""

import csv
import re
from argparse import Namespace
from collections import Counter

import pytest

import diet_fairseq
from diet_fairseq import __version__
from diet_fairseq.config import PositionConfig, position_options
from diet_fairseq.positions import SCHEMES
from tests.support.pages import BLOCK, MARKDOWN, ROOT, text_of

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


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


def test_every_link_leads_to_a_file_and_a_heading():
    broken = {page: links for page in MARKDOWN if (links := broken_links(page, text_of(page)))}
    assert broken == {}


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


def test_every_public_name_has_an_entry_in_the_api_pages():
    pages = "\n".join(page.read_text() for page in (ROOT / "docs/api").glob("*.md"))
    for name in (*diet_fairseq.__all__, "AttentionShape", "Layout", "Option", "PositionScheme"):
        assert name == "__version__" or re.search(rf"[.\[ ]{name}\b", pages), name


def test_changelog_and_citation_have_the_version():
    sections = re.findall(r"^## \[(.+?)\](?: - (.+))?$", text_of("CHANGELOG.md"), re.MULTILINE)
    (unreleased, undated), (version, date), *_ = sections
    assert (unreleased, undated, version) == ("Unreleased", "", __version__)
    assert f"\nversion: {version}\ndate-released: {date}\n" in text_of("CITATION.cff")


def rows_of_schemes() -> dict[str, dict[str, str]]:
    """The first two tables of docs/schemes.md: scheme -> its cells by heading."""
    lines = [line for line in text_of("docs/schemes.md").splitlines() if line.startswith("|")]
    cells: dict[str, dict[str, str]] = {}
    size = len(SCHEMES) + 2
    for table in (lines[:size], lines[size : 2 * size]):
        names, _, *rows = (
            [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table
        )
        assert [row[0].strip("`") for row in rows] == list(SCHEMES)
        for row in rows:
            cells.setdefault(row[0].strip("`"), {}).update(zip(names, row, strict=True))
    return cells


def test_every_scheme_is_documented():
    sections = " ".join(re.findall(r"^## (.+)$", text_of("docs/schemes.md"), re.MULTILINE))
    for scheme in SCHEMES:
        assert f"`{scheme}`" in sections, scheme


def test_the_figures_of_schemes_are_the_measured_ones():
    """A scheme that has not been measured has empty cells."""

    def read(name):
        with open(ROOT / f"results/{name}.csv", encoding="utf-8", newline="") as file:
            return {row["scheme"]: row for row in csv.DictReader(file)}

    costs, losses = read("performance/schemes-cpu"), read("pretraining/eltec-1000-updates")
    peak = "peak of a training step, MiB"
    for scheme, row in rows_of_schemes().items():
        measured = {"speed": "", "memory": "", "loss": ""}
        if scheme in costs:
            cost = costs[scheme]
            measured["speed"] = cost["training step, speed against none"]
            measured["memory"] = float(cost[peak]) / float(costs["none"][peak])
        if scheme in losses:
            measured["loss"] = losses[scheme]["loss after 1,000 updates, nats"]
        for name, value in measured.items():
            assert bool(row[name]) == (value != ""), (scheme, name)
            assert float(row[name] or 0) == pytest.approx(float(value or 0), abs=0.0051), scheme


def test_every_table_of_measurements_is_described():
    index = text_of("results/README.md")
    for table in (ROOT / "results").rglob("*.csv"):
        assert str(table.relative_to(ROOT / "results")) in index, table
