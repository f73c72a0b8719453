"""The files of xtreme-sinusoidal.yaml: ``xtreme-data.py PUBLIC data`` copies them.

PUBLIC has the folders flores-dev, newstest2008-2016, newstest2017, ud and xtreme.
"""

import sys
from pathlib import Path
from shutil import copyfile

#: the folders' names of languages -> ours
NAMES = {"eng": "en", "deu": "de", "ces": "cs", "de_gsd": "de", "cs_cac": "cs"}

public, data = map(Path, sys.argv[1:])
files = [*public.glob("flores-dev/flores-dev.*"), *public.glob("newstest20*[0-9]/*/*.gz")]
languages = {path: path.name.removesuffix(".gz").rpartition(".")[2] for path in files}
languages |= {path: path.name.partition("-")[0] for path in public.glob("ud/*.txt")}
copies = {
    path: f"texts/{NAMES.get(language, language)}/{path.parent.name}-{path.name}"
    for path, language in languages.items()
}
copies |= {
    path: f"tasks/{path.parent.name}/{path.name}" for path in public.glob("xtreme/*/*.json.gz")
}
for path, name in copies.items():
    (data / name).parent.mkdir(parents=True, exist_ok=True)
    copyfile(path, data / name)
