"""Names: no bare participles or fillers in code and tests, and short names of tests."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BARE_NAMES = {
    *("asked", "begun", "chosen", "found", "kept", "left", "more", "one", "other", "own"),
    *("parted", "present", "said", "written"),
}
LONGEST_TEST_NAME = 70
CODE = [
    ROOT / "diet_fairseq_cli.py",
    *(ROOT / "diet_fairseq").rglob("*.py"),
    *(ROOT / "examples").rglob("*.py"),
    *(ROOT / "benchmarks").rglob("*.py"),
    *(ROOT / "tests").rglob("*.py"),
]


def defined_names(tree: ast.AST) -> Iterator[str]:
    """Names of functions, classes, arguments, variables and attributes that a module defines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name.lower()
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def bare_names(source: str) -> set[str]:
    return {name.strip("_") for name in defined_names(ast.parse(source))} & BARE_NAMES


def bare_names_in_code() -> set[str]:
    """Lines `file: name`, of bare names in files and of files."""
    return {
        f"{path.relative_to(ROOT).as_posix()}: {name}"
        for path in CODE
        for name in bare_names(path.read_text(encoding="utf-8")) | ({path.stem} & BARE_NAMES)
    }


def long_test_names() -> set[str]:
    """Lines `file: name`, of tests with long names."""
    return {
        f"{path.relative_to(ROOT).as_posix()}: {node.name}"
        for path in (ROOT / "tests").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
        and node.name.startswith("test_")
        and len(node.name) > LONGEST_TEST_NAME
    }


def test_the_code_has_no_bare_names():
    assert bare_names_in_code() == set()


def test_tests_have_short_names():
    assert long_test_names() == set()


@pytest.mark.parametrize(
    "source",
    [
        "found = 1",
        "for one in []: pass",
        "def left(): pass",
        "class Found: pass",
        "def f(given, *, _own=1): pass",
        "self.kept = 1",
        "class A:\n    said: int",
        "[more for more in []]",
    ],
)
def test_bare_names_are_recognized(source):
    assert bare_names(source)


def test_nouns_of_the_field_are_no_bare_names():
    assert bare_names("checkpoint = left_padding = one_line = other_rows") == set()
