"""The package is the block diagram that CONTRIBUTING.md draws, and no arrow leads upward."""

import ast
import re
import sys
from graphlib import TopologicalSorter
from importlib.util import resolve_name
from itertools import accumulate
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


def module_name(file: Path) -> str:
    name = ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)
    return name.removesuffix(".__init__")


MODULES = {module_name(file): file for file in PACKAGE.rglob("*.py")}


def imports_of(name: str) -> set[str]:
    """The package's modules that a module imports, also in functions and for types.

    The import of a module in other packages also imports these packages.
    """
    package = name if MODULES[name].name == "__init__.py" else name.rpartition(".")[0]
    modules = set()
    for node in ast.walk(ast.parse(MODULES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            base = resolve_name("." * node.level + (node.module or ""), package)
            names = {f"{base}.{alias.name}" for alias in node.names}
            modules |= {name if name in MODULES else base for name in names} & set(MODULES)
    paths = {path for name in modules for path in accumulate(name.split("."), "{}.{}".format)}
    return modules | {path for path in paths if not f"{package}.".startswith(f"{path}.")}


IMPORTS = {name: imports_of(name) for name in MODULES}


def floor_of(module: str) -> int:
    room = module.split(".")[1] if "." in module else ""
    return FLOOR_OF.get(room, FLOOR_OF.get(f"{room}.py", len(FLOORS)))


def test_a_room_imports_from_none_above_it():
    upward = {
        (name, module)
        for name, modules in IMPORTS.items()
        for module in modules - {PACKAGE.name}  # which Python imports first
        if floor_of(name) < floor_of(module)
    }
    assert upward == set()


def test_no_modules_import_each_other():
    TopologicalSorter(IMPORTS).prepare()  # CycleError names the modules


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
