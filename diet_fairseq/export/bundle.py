"""One Python file of all that some classes of this package need of it.

Where the package isn't installed, transformers can load models by a file that lies beside them
(``trust_remote_code``). That file is made of the package's own definitions, word for word: those
that the classes use, and those that these use, in the order in which Python would import them.
"""

import ast
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from ..version import __version__

PACKAGE = Path(__file__).parents[1]
HEADER = f'''"""The position schemes of diet_fairseq for transformers, in one file.

diet_fairseq {__version__} (MIT License) made it of its own files, whose names stand above their
parts: change those, and export the model again.
"""
'''


@dataclass
class Module:
    """A file of the package: its statements, and what each name of it stands for.

    Attributes:
        name: such as "positions/base.py"
        inside: names defined here, and the statements that make them what they are
        outside: names from other files of the package: the file, and the name there
        libraries: names from elsewhere, and the import that brings them
    """

    name: str
    lines: list[str]
    statements: list[ast.stmt]
    inside: dict[str, list[int]] = field(default_factory=dict)
    outside: dict[str, tuple[str, str]] = field(default_factory=dict)
    libraries: dict[str, str] = field(default_factory=dict)

    def has(self, name: str) -> bool:
        return name in self.inside or name in self.outside or name in self.libraries

    def text(self, statement: ast.stmt) -> str:
        """Its source, with decorators and the comments above it."""
        decorators = getattr(statement, "decorator_list", [])
        first = min(node.lineno for node in (statement, *decorators)) - 1
        while first and self.lines[first - 1].startswith("#"):
            first -= 1
        return "\n".join(self.lines[first : statement.end_lineno])


@cache
def module(name: str) -> Module:
    """The file of this name."""
    source = (PACKAGE / name).read_text(encoding="utf-8")
    found = Module(name, source.splitlines(), ast.parse(source).body)
    for number, statement in enumerate(found.statements):
        if isinstance(statement, ast.ImportFrom) and statement.level:
            for alias in statement.names:
                place = (file_of(name, statement), alias.name)
                found.outside[alias.asname or alias.name] = place
        elif isinstance(statement, (ast.Import, ast.ImportFrom)):
            for alias in statement.names:
                start = f"from {statement.module} " if isinstance(statement, ast.ImportFrom) else ""
                known = alias.asname or alias.name
                renamed = f" as {alias.asname}" if alias.asname else ""
                found.libraries[known.partition(".")[0]] = f"{start}import {alias.name}{renamed}"
        else:
            for known in names_made_by(statement):
                found.inside.setdefault(known, []).append(number)
    return found


def file_of(name: str, statement: ast.ImportFrom) -> str:
    """The file that a relative import in the file ``name`` is from."""
    folder = Path(name).parents[statement.level - 1]
    place = folder.joinpath(*(statement.module or "").split("."))
    is_folder = (PACKAGE / place).is_dir()
    return (place / "__init__.py" if is_folder else place.with_suffix(".py")).as_posix()


def names_made_by(statement: ast.stmt) -> list[str]:
    """What it defines, or makes an attribute of: ``A.b = c`` is a part of A."""
    if isinstance(statement, (ast.ClassDef, ast.FunctionDef)):
        return [statement.name]
    targets: list[ast.expr] = getattr(statement, "targets", [])
    if isinstance(statement, (ast.AnnAssign, ast.AugAssign)):
        targets = [statement.target]
    return [
        node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)
    ]


def bundle(roots: dict[str, list[str]]) -> str:
    """The source of a file that has these names; ``roots``: file -> names.

    Raises:
        ValueError: for two definitions of one name, and for a module that is imported whole
    """
    wanted: dict[str, set[int]] = {}
    aliases: dict[str, set[str]] = {}
    imports: set[str] = set()
    owner: dict[str, str] = {}
    order: list[str] = []

    def visit(name: str) -> None:
        """Put the file after those that it imports from."""
        if name not in order:
            for other, _ in module(name).outside.values():
                if other != name and other not in order:
                    visit(other)
            order.append(name)

    def take(name: str, known: str) -> None:
        there = module(name)
        if known in there.outside:
            other, original = there.outside[known]
            if (other, original) == (name, known) or not module(other).has(original):
                raise ValueError(
                    f"{name} imports the module {original}, which one file can't have: import the "
                    "names that it needs of it"
                )
            take(other, original)
            if original != known:
                aliases.setdefault(name, set()).add(f"{known} = {original}")
        elif known in there.libraries:
            imports.add(there.libraries[known])
        elif known in there.inside:
            if owner.setdefault(known, name) != name:
                raise ValueError(f"{known} is defined in {owner[known]} and in {name}: rename one")
            for number in set(there.inside[known]) - wanted.setdefault(name, set()):
                wanted[name].add(number)
                for node in ast.walk(there.statements[number]):
                    if isinstance(node, ast.Name) and node.id != known:
                        take(name, node.id)

    for name, names in roots.items():
        visit(name)
        for known in names:
            take(name, known)
    parts = [HEADER, "\n".join(sorted(imports))]
    for name in order:
        if name in wanted:
            there = module(name)
            texts = sorted(aliases.get(name, ()))
            texts += [there.text(there.statements[number]) for number in sorted(wanted[name])]
            parts.append(f"# {name}\n\n" + "\n\n\n".join(texts))
    return "\n\n\n".join(parts) + "\n"
