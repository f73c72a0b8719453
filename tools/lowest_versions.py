"""Print the lower bounds of all requirements as constraints of pip.

python tools/lowest_versions.py > lowest.txt
pip install -c lowest.txt '.[all]'
"""

from pathlib import Path
from runpy import run_path
from typing import Any

import setuptools
from packaging.requirements import Requirement

settings: dict[str, Any] = {}
setuptools.setup = settings.update  # setup.py describes the package by this call
run_path(str(Path(__file__).parents[1] / "setup.py"))
for text in (*settings["install_requires"], *settings["extras_require"]["all"]):
    requirement = Requirement(text)
    for bound in requirement.specifier:
        if bound.operator == ">=":
            print(f"{requirement.name}=={bound.version}")
