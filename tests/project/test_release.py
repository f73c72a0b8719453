"""The version in the package, the changelog and the citation."""

import re
from pathlib import Path

from diet_fairseq import __version__

ROOT = Path(__file__).parents[2]
SECTION = re.compile(r"^## \[([^\]]+)\](?: - (\d{4}-\d\d-\d\d))?$", re.MULTILINE)


def test_the_changelog_begins_with_unreleased_and_this_version():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    (unreleased, undated), (version, date), *_ = SECTION.findall(changelog)
    assert (unreleased, undated) == ("Unreleased", "")
    assert version == __version__
    assert date


def test_the_citation_has_version_and_date_of_the_changelog():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    _, (version, date), *_ = SECTION.findall(changelog)
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {version}\ndate-released: {date}\n" in citation
