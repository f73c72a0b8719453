"""The documentation: its links lead somewhere, its lists are complete, its commands run."""

import csv
import os
import random
import re
import subprocess
import sys
import sysconfig
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from diet_fairseq.config import PositionConfig, position_options
from diet_fairseq.positions import SCHEMES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
#: folders that are made by running things
MADE = {".venv", "build", "dist", "bench", "demo", "multi30k", "tatoeba", "wmt18", "roberta"}
MARKDOWN = sorted(
    path.relative_to(ROOT)
    for path in (
        *ROOT.glob("*.md"),
        *DOCS.rglob("*.md"),
        *ROOT.glob("examples/**/*.md"),
        *ROOT.glob("results/*.md"),
    )
    if path.relative_to(ROOT).parts[0] not in MADE
)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def text_of(page: Path) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


# --- links --------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to the headings of a page."""
    seen: Counter[str] = Counter()
    names = set()
    for heading in HEADING.findall(BLOCK.sub("", text_of(page))):
        name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        names.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return names


def broken_links(page: Path, text: str) -> list[str]:
    """The relative links of a text that lead to no file, or to no heading of it."""
    broken = []
    for link in LINK.findall(BLOCK.sub("", text)):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = ((ROOT / page).parent / path if path else ROOT / page).resolve()
        inside = target.is_relative_to(ROOT) and target.exists()
        if not inside or (anchor and anchor not in anchors(target.relative_to(ROOT))):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", MARKDOWN, ids=str)
def test_every_link_leads_to_a_file_and_a_heading(page):
    assert broken_links(page, text_of(page)) == []


@pytest.mark.parametrize(
    "link", ["docs/no-such.md", "docs/results.md#no-such-heading", "#no-such", "../outside"]
)
def test_a_link_that_leads_nowhere_is_found(link):
    assert broken_links(Path("README.md"), f"[text]({link})") == [link]


def test_the_index_names_every_page():
    index = text_of(Path("docs/README.md"))
    for page in DOCS.glob("*.md"):
        assert page.name == "README.md" or f"({page.name})" in index, page.name


# --- lists --------------------------------------------------------------------------------------


def test_every_position_option_is_documented():
    text = text_of(Path("docs/options.md"))
    for option in position_options().values():
        assert f"| `{option.flag}" in text, option.flag


@pytest.mark.parametrize("page", ["docs/options.md", ".github/ISSUE_TEMPLATE/bug.yml"])
def test_the_line_that_names_a_run_is_shown_as_it_is_logged(page):
    line = str(PositionConfig.of(Namespace(position_scheme="diet_rel")))
    assert f" {line}|version:" in text_of(Path(page))


def test_pre_commit_checks_with_the_ruff_of_the_development_environment():
    [hook] = re.findall(r"rev: v(\S+)", text_of(Path(".pre-commit-config.yaml")))
    assert f'"ruff=={hook}"' in text_of(Path("setup.py"))


def test_continuous_integration_runs_every_supported_python():
    supported = re.findall(r"Python :: (3\.\d+)", text_of(Path("setup.py")))
    [matrix] = re.findall(r"python: \[(.+)\]", text_of(Path(".github/workflows/ci.yml")))
    assert re.findall(r"[\d.]+", matrix) == supported


def test_the_design_names_every_folder_of_the_package():
    text = text_of(Path("docs/design.md"))
    for init in (ROOT / "diet_fairseq").glob("*/__init__.py"):
        assert f"`{init.parent.name}/`" in text, init.parent.name


def test_every_scheme_is_documented():
    text = text_of(Path("docs/schemes.md"))
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


@pytest.mark.parametrize("page", ["README.md", "docs/results.md"])
def test_the_scores_of_multi30k_are_those_that_were_measured(page):
    with open(ROOT / "results/translation/multi30k.csv", encoding="utf-8", newline="") as file:
        measured = list(csv.DictReader(file))
    tables = [
        table
        for table in tables_of(text_of(Path(page)))
        if "BLEU" in table[0] and {*table[0]} <= {*measured[0]}
    ]
    assert tables
    for header, *rows in tables:
        # the pages leave out p
        assert rows == [[row[name].split(" (p")[0] for name in header] for row in measured]


def test_every_claim_of_the_papers_has_a_verdict():
    claims, *_ = tables_of(text_of(Path("docs/results.md")))
    verdicts = {row[-1] for row in claims[1:]}
    assert claims[0][-1] == "verdict"
    assert verdicts <= {"seen", "not seen", "contradicted", "untested"}


def test_every_table_of_measurements_is_described():
    index = text_of(Path("results/README.md"))
    for table in (ROOT / "results").rglob("*.csv"):
        assert str(table.relative_to(ROOT / "results")) in index, table


# --- commands -----------------------------------------------------------------------------------

#: pages whose blocks behind a line `<!-- run -->` are run, in this order, in one folder
PAGES = ("docs/using-a-model.md", "docs/schemes.md", "docs/look.md", "docs/design.md")
RUN = re.compile(r"^<!-- run -->\n```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INTERPRETERS = {"sh": ["bash", "-e", "-o", "pipefail", "-c"], "python": [sys.executable, "-c"]}
#: what README's section on your own data leaves behind, made small
BEFORE = """
subword-nmt learn-joint-bpe-and-vocab --input train.en train.de -s 60 -o codes \
    --write-vocabulary vocab.en vocab.de
for text in {train,valid,test}.{en,de}; do subword-nmt apply-bpe -c codes < $text > bpe.$text; done
fairseq-preprocess --source-lang en --target-lang de --joined-dictionary --destdir data-bin \
    --trainpref bpe.train --validpref bpe.valid --testpref bpe.test
fairseq-train data-bin --user-dir diet_fairseq --arch transformer_diet_rel_tiny \
    --share-all-embeddings --optimizer fused_adamw --lr 1e-3 --max-update 4 --max-tokens 400 \
    --save-dir checkpoints --save-interval-updates 1 --keep-interval-updates 2 \
    --no-epoch-checkpoints
cp checkpoints/checkpoint_last.pt checkpoints/average.pt
"""


def with_whole_path(program: str) -> str:
    # an editable installation is not beside fairseq, where fairseq looks for a bare name
    return program.replace("--user-dir diet_fairseq", f"--user-dir {ROOT / 'diet_fairseq'}")


def everything_it_reads(folder: Path) -> None:
    """Write a made-up parallel corpus."""
    draw = random.Random(1)
    words = [a + b + c for a in "bdk" for b in "aeiou" for c in ("n", "r", "st", "lm")]

    def sentence() -> str:
        return " ".join(draw.choices(words, k=draw.randint(3, 9))) + "."

    def write(name: str, lines: Iterable[str]) -> None:
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    for split, size in {"train": 200, "valid": 12, "test": 12}.items():
        german = [sentence() for _ in range(size)]
        write(f"{split}.de", german)
        write(f"{split}.en", (line[::-1] for line in german))


def run(language: str, program: str, folder: Path) -> None:
    scripts = sysconfig.get_path("scripts")
    done = subprocess.run(
        [*INTERPRETERS[language], with_whole_path(program)],
        cwd=folder,
        env={**os.environ, "PATH": f"{scripts}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, f"{program}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    everything_it_reads(folder)
    run("sh", BEFORE, folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_that_are_marked_run_from_top_to_bottom(page, folder):
    blocks = RUN.findall(text_of(Path(page)))
    assert blocks
    for language, block in blocks:
        run(language, block, folder)
