"""The documentation's site: all pages, all public names, nothing loaded from elsewhere."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import diet_fairseq

ROOT = Path(__file__).parents[2]


def test_every_public_name_has_an_entry():
    pages = "\n".join(page.read_text() for page in (ROOT / "docs/api").glob("*.md"))
    for name in (*diet_fairseq.__all__, "AttentionShape", "Layout", "Option", "PositionScheme"):
        assert name == "__version__" or re.search(rf"[.\[ ]{name}\b", pages), name


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder that `mkdocs build` writes; warnings are errors."""
    pytest.importorskip("mkdocs", reason="needs diet_fairseq[docs]")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_every_page_of_the_documentation_is_in_the_site(site):
    for page in (ROOT / "docs").glob("*.md"):
        name = "index" if page.stem == "README" else page.stem
        assert (site / "docs" / f"{name}.html").is_file(), page


@pytest.mark.slow
def test_python_names_are_found_by_the_search(site):
    index = json.loads((site / "search/search_index.json").read_text())
    places = {entry["location"] for entry in index["docs"]}
    assert "docs/api/translator.html#diet_fairseq.translate.translator.Translator" in places
    assert "docs/api/schemes.html#diet_fairseq.positions.base.PositionScheme" in places
    assert "docs/api/hf.html#diet_fairseq.hf.DietForMaskedLM" in places


@pytest.mark.slow
def test_the_site_loads_nothing_from_elsewhere(site):
    loads = re.compile(r'(?:<script[^>]* src|<img[^>]* src|<link[^>]* href)="?https?://')
    for page in site.rglob("*.html"):
        assert not loads.search(page.read_text()), page
