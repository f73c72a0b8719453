"""The documentation's site: all pages, all public names, nothing loaded from elsewhere."""

import json
import re
import subprocess
import sys

import pytest

from tests.support.pages import ROOT, text_of


@pytest.mark.slow
def test_the_site_has_every_page_and_name_and_loads_nothing_from_elsewhere(tmp_path):
    pytest.importorskip("mkdocs", reason="needs diet_fairseq[docs]")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for page in (ROOT / "docs").glob("*.md"):
        name = "index" if page.stem == "README" else page.stem
        assert (tmp_path / "docs" / f"{name}.html").is_file(), page
    index = json.loads((tmp_path / "search/search_index.json").read_text())
    places = {entry["location"] for entry in index["docs"]}
    assert "docs/api/translator.html#diet_fairseq.translate.translator.Translator" in places
    assert "docs/api/schemes.html#diet_fairseq.positions.base.PositionScheme" in places
    assert "docs/api/hf.html#diet_fairseq.hf.DietForMaskedLM" in places
    assert list((tmp_path / "assets" / "stylesheets").glob("main.*.css"))
    sections = re.findall(r"^- ([^:]+): ", text_of("docs/README.md"), re.MULTILINE)
    index = (tmp_path / "index.html").read_text()
    shown = re.findall(r'md-nav__icon md-icon"></span>\s+(.+)', index)
    assert [name for name in shown if name in sections] == sections
    loads = re.compile(r'(?:<script[^>]* src|<img[^>]* src|<link[^>]* href)="?https?://')
    for page in tmp_path.rglob("*.html"):
        assert not loads.search(page.read_text()), page
