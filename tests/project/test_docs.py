"""The documentation: its links work, its lists are complete, its commands run."""

import csv
import os
import re
import shlex
import subprocess
import sys
import sysconfig
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from fairseq import options

import diet_fairseq_cli
from diet_fairseq.config import PositionConfig, position_options
from diet_fairseq.positions import SCHEMES
from tests.support.texts import corpus

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
def test_a_broken_link_is_reported(link):
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
def test_the_line_that_names_a_run_is_documented_as_logged(page):
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
def test_the_scores_of_multi30k_are_the_measured_ones(page):
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

#: pages whose blocks after a line `<!-- run -->` are run, in this order, in one folder
PAGES = ("docs/using-a-model.md", "docs/schemes.md", "docs/look.md", "docs/design.md")
RUN = re.compile(r"^<!-- run -->\n```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INTERPRETERS = {"sh": ["bash", "-e", "-o", "pipefail", "-c"], "python": [sys.executable, "-c"]}
#: numbers for a corpus of 200 sentences in docs/training.md, whose files the pages above use
SMALLER = {
    "-s 8000": "-s 60",
    "--max-tokens 4096": "--max-tokens 400",
    "--max-update 5000": "--max-update 6",
    "--save-interval-updates 250": "--save-interval-updates 1",
}


def with_whole_path(program: str) -> str:
    # an editable installation is not beside fairseq, where fairseq looks for a bare name
    return program.replace("--user-dir diet_fairseq", f"--user-dir {ROOT / 'diet_fairseq'}")


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
    corpus(folder, train=200, odd=False)
    training = RUN.findall(text_of(Path("docs/training.md")))
    assert len(training) == 2
    for language, block in training:
        for number, smaller in SMALLER.items():
            block = block.replace(number, smaller)
        run(language, block, folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_marked_commands_run_from_top_to_bottom(page, folder):
    blocks = RUN.findall(text_of(Path(page)))
    assert blocks
    for language, block in blocks:
        run(language, block, folder)


# --- commands that are parsed -------------------------------------------------------------------

SHELL = re.compile(r"^ *```sh\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
FAIRSEQ_PARSERS = {
    "fairseq-train": options.get_training_parser,
    "fairseq-generate": options.get_generation_parser,
}


def commands(text: str) -> Iterator[list[str]]:
    """The words of every simple command in the shell blocks of a page."""
    for block in SHELL.findall(text):
        lines = block.replace("\\\n", " ").splitlines()
        program = " ; ".join(re.sub(r"(^|\s)#.*", "", line) for line in lines)
        lexer = shlex.shlex(program, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        command: list[str] = []
        for word in [*lexer, ";"]:
            if set(word) <= set("|;&<>"):
                if command:
                    yield command
                command = []
            elif word != "do":
                command.append(word)


def check(command: list[str]) -> None:
    """Fail if a command has an option, a target or a file that there is not."""
    program, *words = command
    if words and words[0] in diet_fairseq_cli.REPLACED:
        return  # of 0.2, which made the measurements of that time
    if program == "diet-fairseq":
        parser = diet_fairseq_cli.Parser(prog=program)
        parser.add_commands(diet_fairseq_cli.COMMANDS)
        parser.parse_args(words)
    elif program == "make":
        assert re.search(rf"^{words[0]}:", text_of(Path("Makefile")), re.MULTILINE), words[0]
    for name, parser_of in FAIRSEQ_PARSERS.items():
        if name in command and "..." not in command:
            rest = command[command.index(name) + 1 :]
            at = rest.index("--user-dir")  # this process has imported the plugin
            del rest[at : at + 2]
            options.parse_args_and_arch(parser_of(), input_args=rest)
    for word in words:
        assert not word.startswith("examples/") or (ROOT / word).exists(), word


@pytest.mark.parametrize("page", MARKDOWN, ids=str)
def test_commands_have_no_unknown_option_target_or_file(page):
    for command in commands(text_of(page)):
        check(command)


@pytest.mark.parametrize(
    "command",
    [
        "diet-fairseq translate MODEL --beams 5",
        "diet-fairseq recipe",
        "make demos",
        "snakemake -s examples/no-such/Snakefile",
        "torchrun fairseq-train DATA --user-dir diet_fairseq --arch bert_tupe_r --positions 5",
    ],
)
def test_a_command_with_a_mistake_is_reported(command):
    with pytest.raises((SystemExit, AssertionError)):
        check(*commands(f"```sh\n{command}\n```\n"))
