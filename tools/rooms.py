"""The rooms of the package, and which of them import which."""

import ast
import re
from pathlib import Path

import cog

PACKAGE = Path(__file__).parents[1] / "diet_fairseq"
#: files of the package that are no rooms
DOORS = ("__init__.py", "__main__.py", "py.typed", "__pycache__")
WIDTH = 90


def list_rooms() -> set[str]:
    """The names of folders and modules, such as ``hf`` and ``config``."""
    return {path.stem for path in PACKAGE.iterdir() if path.name not in DOORS}


def find_imports(file: Path) -> set[str]:
    """The rooms that a file imports, by relative imports or by a name such as ``..hf.convert``."""
    depth = len(file.relative_to(PACKAGE).parts)
    rooms = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level == depth:
            names = [node.module] if node.module else [alias.name for alias in node.names]
            rooms |= {name.split(".")[0] for name in names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            module = re.fullmatch(r"\.+(\w+)(\.\w+)*", node.value)
            rooms |= {module[1]} if module else set()
    return rooms & list_rooms()


def map_imports() -> dict[str, set[str]]:
    """Room -> the rooms that it imports."""
    imports: dict[str, set[str]] = {room: set() for room in sorted(list_rooms())}
    for file in PACKAGE.rglob("*.py"):
        room = Path(file.relative_to(PACKAGE).parts[0]).stem
        if room in imports:
            imports[room] |= find_imports(file) - {room}
    return imports


def reach(imports: dict[str, set[str]], room: str) -> set[str]:
    """The rooms that a room imports, directly or through others."""
    return imports[room].union(*(reach(imports, other) for other in imports[room]))


def draw() -> None:
    """Write the imports as chains, without those that follow from others."""
    imports = map_imports()
    arrows = {
        room: sorted(
            other for other in others if not any(other in reach(imports, third) for third in others)
        )
        for room, others in imports.items()
    }
    height = {room: len(reach(imports, room)) for room in imports}
    cog.outl("\n```")
    for room in sorted(imports, key=lambda room: (-height[room], room)):
        while arrows[room]:
            chain = [room]
            while arrows[chain[-1]]:
                highest = max(arrows[chain[-1]], key=lambda other: height[other])
                if len(" --> ".join([*chain, highest])) > WIDTH:
                    break
                arrows[chain[-1]].remove(highest)
                chain.append(highest)
            cog.outl(" --> ".join(chain))
    cog.outl("```\n")
