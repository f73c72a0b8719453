"""fairseq-train, with a learning rate or a weight decay of their own for tables of positions.

    RATE_FACTOR=30 TABLE_DECAY=0 python results/configs/eltec-tables.py DATA-BIN [options]

RATE_FACTOR (1) multiplies the learning rate of the tables; TABLE_DECAY is their weight decay, by
default that of all parameters, 0.01. The options are those of `diet_rel` in eltec-rates.yaml with
rate 0.002, and `--position-gain 1` in the rows with gain 1.
"""

import os

from fairseq.trainer import Trainer
from fairseq_cli.train import cli_main

from diet_fairseq.optim.fused_adamw import AdamW

RATE_FACTOR = float(os.environ.get("RATE_FACTOR", "1"))
TABLE_DECAY = os.environ.get("TABLE_DECAY")

tables = set()
build_optimizer, parts_of = Trainer._build_optimizer, AdamW._parts


def build_and_find_tables(self):
    named = self.model.named_parameters()
    tables.update(parameter for name, parameter in named if "positions" in name)
    build_optimizer(self)


def parts_with_tables_apart(self, group):
    for of_tables in (False, True):
        members = [one for one in group["params"] if (one in tables) == of_tables]
        part = {**group, "params": members}
        if of_tables:
            part["lr"] = group["lr"] * RATE_FACTOR
            if TABLE_DECAY is not None:
                part["weight_decay"] = float(TABLE_DECAY)
        yield from parts_of(self, part)


Trainer._build_optimizer, AdamW._parts = build_and_find_tables, parts_with_tables_apart

if __name__ == "__main__":
    cli_main()
