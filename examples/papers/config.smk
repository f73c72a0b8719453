# The tables, and the configs that train their rows.

from pathlib import Path

import yaml

EXAMPLES = Path(str(workflow.current_basedir)).parent


def read(path):
    return yaml.safe_load((EXAMPLES / path).read_text(encoding="utf-8"))


TABLES = read("papers/tables.yaml")["tables"]
PRESETS = ("diet", "diet-multilingual", "tupe", "tupe-large", "electra")
PAIRS = ("en-de", "de-en", "en-cs", "cs-en")


def wmt18(source, target):
    """The config of DIET's Table 4 in one direction: examples/wmt18 with the table's schemes."""
    text = (EXAMPLES / "wmt18" / "config.yaml").read_text(encoding="utf-8")
    czech_or_german = target if source == "en" else source
    return yaml.safe_load(text.replace("de-en", f"{czech_or_german}-en")) | {
        "folder": f"wmt18/{source}-{target}",
        "languages": [source, target],
        "schemes": {row["model"]: row["options"] for row in TABLES["diet_table_4"]["rows"]},
        "baseline": "sinusoidal",
    }


# Name of a workflow -> its Snakefile and its config.
WORKFLOWS = {name: ("../roberta/Snakefile", read(f"roberta/configs/{name}.yaml")) for name in PRESETS}
WORKFLOWS |= {pair: ("../Snakefile", wmt18(*pair.split("-"))) for pair in PAIRS}


def results(table):
    """The files that a table is made of: for each row its model, fine-tuned on all tasks."""
    if table == "diet_table_4":
        return [f"wmt18/{pair}/results/table.md" for pair in PAIRS]
    if table == "diet_table_6":
        return ["papers/parameters.txt"]
    return [
        f"{WORKFLOWS[row.get('preset', TABLES[table]['preset'])][1]['folder']}/results/{row['model']}.csv"
        for row in TABLES[table]["rows"]
    ]
