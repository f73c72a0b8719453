"""Hooks of mkdocs.yml: all Markdown pages of the repository, at their paths in it.

Pages keep the links that GitHub shows. The navigation has the sections and the order of the list
in docs/README.md, so no page is named twice.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
INDEX = "docs/README.md"
PAGES = ("*.md", "docs/**/*.md", "examples/**/*.md", "results/*.md")
#: text and path of a relative link
LINK = re.compile(r"\[([^\]]*)\]\((?!\w+:)([^)\s#]+)[^)]*\)")
#: an item of docs/README.md's list: the name before its colon, and its lines
SECTION = re.compile(r"^- ([^:\[]+):(.*\n(?:  .*\n)*)", re.MULTILINE)


def page_paths() -> list[str]:
    """The Markdown files, relative to the repository."""
    paths = {path.relative_to(ROOT).as_posix() for glob in PAGES for path in ROOT.glob(glob)}
    return sorted(paths)


def linked_paths(page: str, text: str) -> list[str]:
    """The files that the text of a page links to, relative to the repository."""
    targets = [((ROOT / page).parent / link).resolve() for _, link in LINK.findall(text)]
    files = [path for path in targets if path.is_relative_to(ROOT) and path.is_file()]
    return [path.relative_to(ROOT).as_posix() for path in files]


def navigation() -> list[dict[str, Any]]:
    """The sections of docs/README.md, the pages of Python names, and all other pages."""
    text = (ROOT / INDEX).read_text(encoding="utf-8")
    sections: dict[str, list[str]] = {"Start": ["README.md", INDEX]}
    for name, links in SECTION.findall(text):
        paths = dict.fromkeys(linked_paths(INDEX, links))
        sections.setdefault(name, []).extend(path for path in paths if path.endswith(".md"))
    sections["From Python"] = [path for path in page_paths() if path.startswith("docs/api/")]
    listed = {path for paths in sections.values() for path in paths}
    sections["More"] = [path for path in page_paths() if path not in listed]
    return [{title: paths} for title, paths in sections.items()]


def on_config(config: Any) -> Any:
    """Set the navigation."""
    config.nav = navigation()
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to folders become text: a site has no listing of them."""
    folder = (ROOT / page.file.src_uri).parent

    def replace(match: re.Match[str]) -> str:
        return match[1] if (folder / match[2]).is_dir() else match[0]

    return LINK.sub(replace, markdown)


def on_files(files: Files, config: Any) -> Files:
    """Replace the files of docs/ by the repository's pages and the files that these link to."""
    folder = Path(config.docs_dir)  # not the theme's files, which may lie in .venv below ROOT
    for file in [file for file in files if Path(file.abs_src_path or "").is_relative_to(folder)]:
        files.remove(file)
    pages = page_paths()
    linked = {
        path for page in pages for path in linked_paths(page, (ROOT / page).read_text("utf-8"))
    }
    for path in sorted({*pages, *linked}):
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files
