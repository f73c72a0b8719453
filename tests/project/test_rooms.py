"""The package is the block diagram that CONTRIBUTING.md draws, and no arrow leads upward."""

import ast
import re
import sys
from pathlib import Path

import diet_fairseq

PACKAGE = Path(diet_fairseq.__file__).parent
TABLE = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text().split("## The rooms")[1]
#: the rooms, from the ground up; what stands in one row is one floor
FLOORS = [
    re.findall(r"`([\w./]+)`", row.split("|")[1])
    for row in TABLE.split("| --- | --- |")[1].split("\n\n")[0].splitlines()
    if row
]
FLOOR_OF = {room.rstrip("/"): floor for floor, rooms in enumerate(FLOORS) for room in rooms}
DOORS = ("__init__.py", "__main__.py", "py.typed", "__pycache__")


def test_the_table_of_rooms_names_every_room():
    assert set(FLOOR_OF) == {path.name for path in PACKAGE.iterdir()} - {*DOORS}


def imports_of(file: Path) -> set[str]:
    """The rooms that a file imports from, by relative imports."""
    inside = file.relative_to(PACKAGE).parts[:-1]
    rooms = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level > len(inside):
            names = [node.module] if node.module else [alias.name for alias in node.names]
            rooms |= {name.split(".")[0] for name in names}
    return rooms


def room_of(name: str) -> str:
    return name if (PACKAGE / name).is_dir() else f"{name}.py"


def test_a_room_imports_from_none_above_it():
    upward = set()
    for file in PACKAGE.rglob("*.py"):
        floor = FLOOR_OF.get(file.relative_to(PACKAGE).parts[0], len(FLOORS))
        rooms = {room_of(name) for name in imports_of(file)} & set(FLOOR_OF)
        upward |= {(str(file), room) for room in rooms if FLOOR_OF[room] > floor}
    assert upward == set()


def test_the_schemes_need_torch_alone():
    allowed = {"torch", *sys.stdlib_module_names}
    for file in PACKAGE.glob("positions/*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            else:
                continue
            assert {name.split(".")[0] for name in names} <= allowed, file
