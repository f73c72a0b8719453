"""`diet-fairseq tables`: no row of the papers is without a command, and costs follow from sizes."""

import json
import re
import shlex
import tomllib
from argparse import ArgumentParser
from collections import Counter
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from fairseq.models import ARCH_MODEL_REGISTRY

from diet_fairseq.config import PositionConfig
from diet_fairseq.errors import UserError
from diet_fairseq.ledger import cost, entries, written
from diet_fairseq.recipes.common.options import by_name
from diet_fairseq.recipes.encoders import report_names
from diet_fairseq.recipes.encoders.presets import PRESETS
from diet_fairseq.recipes.grid import ablate
from diet_fairseq_cli import COMMANDS, Group, main

#: of `encoder prepare` without --vocabulary
ENCODER_VOCABULARY = 32_768
DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def tables():
    return entries.tables()


@pytest.fixture(scope="module")
def papers(shared_data):
    return shared_data.parent / "paper_tables.json"


def test_every_row_that_the_papers_print_has_a_row_here(tables, papers):
    printed = entries.read_papers(papers)
    ours = {table.key: table.entries for table in tables}
    assert {name for name, rows in printed.items() if rows} == set(ours) - {""}
    for name, rows in printed.items():
        for row in rows:
            fitting = [entry.row for entry in ours[name] if entries.fits(row, entry.fields)]
            assert len(fitting) == 1, (name, row, fitting)
        fields = Counter(str(entry.fields) for entry in ours.get(name, []))
        assert set(fields.values()) <= {1}
        assert len(ours.get(name, rows)) == len(rows)


def test_every_row_has_commands_that_exist(tables):
    for table in tables:
        for entry in table.entries:
            assert entry.commands, (table.title, entry.row)
            for command in entry.commands:
                words = shlex.split(command)
                if words[0] != "diet-fairseq":
                    continue
                known = COMMANDS[words[1]]
                if isinstance(known, Group):
                    assert words[2] in known.commands, command


def test_rows_of_one_name_are_one_model_in_all_tables_of_a_folder(tables):
    trained = {}
    for table in tables:
        for entry in table.entries:
            for command in entry.commands:
                words = shlex.split(command)
                if words[1:3] != ["encoder", "pretrain"]:
                    continue
                given = by_name(words[4:])
                run = (given.pop("--folder", "roberta"), given.pop("--run"))
                ARCH_MODEL_REGISTRY[f"bert_{words[3]}"].add_args(parser := ArgumentParser())
                args, _ = parser.parse_known_args(["--position-scheme", *words[3:]])
                model = (str(PositionConfig.of(args)), given["--preset"])
                assert trained.setdefault(run, model) == model
    assert len(set(trained.values())) == len(trained)  # and no model is trained twice


def test_every_encoder_s_text_is_prepared_with_the_vocabulary_that_is_counted(tables):
    counted = {one["key"]: one for one in tomllib.loads(entries.ROWS.read_text())["table"]}
    for table in tables:
        if counted[table.key]["kind"] != "encoder":
            continue
        for entry in table.entries:
            given = by_name(shlex.split(entry.commands[0]))
            assert given[""].startswith("diet-fairseq encoder prepare")
            size = int(given.get("--vocabulary", ENCODER_VOCABULARY))
            assert size == counted[table.key]["vocabulary"], (table.title, entry.row)


def test_checkpoints_that_are_fine_tuned_are_those_that_the_commands_before_leave(tables):
    found = 0
    for table in tables:
        for entry in table.entries:
            for before, command in pairwise(entry.commands):
                words = shlex.split(command)
                if words[1:3] != ["encoder", "finetune"] or "ablate" not in before:
                    continue
                [_, _, _, name, *rest] = shlex.split(before)
                parser = ArgumentParser()
                ablate.add_arguments(parser)
                grid = ablate.pretraining(*parser.parse_known_args([name, *rest]))
                [run] = {cell.run for cell in grid.cells() if f"/{cell.run}/" in words[4]}
                preset = PRESETS[by_name(rest)["--preset"]]
                updates = int(re.search(r"_(\d+)\.pt", words[4])[1])
                assert updates % preset.save_every == 0
                assert words[4].startswith(f"{grid.folder}/runs/{run}/checkpoint_*_")
                found += 1
    assert found == 4


def test_the_report_puts_diet_s_rows_beside_the_models_that_the_commands_train(tables, papers):
    printed = entries.read_papers(papers)
    ours = {table.key: table.entries for table in tables}
    for name in ("diet_table2_glue", "diet_table3_xtreme", "diet_table5_xtreme_ablation"):
        for row in printed[name]:
            [entry] = [entry for entry in ours[name] if entries.fits(row, entry.fields)]
            [words] = [shlex.split(one) for one in entry.commands if " pretrain " in one]
            arch, parser = f"bert_{words[3]}", ArgumentParser()
            ARCH_MODEL_REGISTRY[arch].add_args(parser)
            args, _ = parser.parse_known_args(["--position-scheme", *words[3:]])
            model = {"arch": arch, **vars(PositionConfig.of(args))}
            assert report_names.key(row) in report_names.names_in_papers(model), (name, row)


def test_papers_numbers_stand_beside_their_rows(papers):
    shown = {
        (table.key, entry.row): entry.paper
        for table in entries.tables(papers)
        for entry in table.entries
    }
    row = "diet_abs, rank 128, shared layer, segments per-head"
    assert shown["diet_table2_glue", row] == {"Avg": 85.2}
    assert shown["tupe_base_glue_avg", "tupe_r"] == {"value": 85.04}
    assert shown["diet_table4_mt", "shaw"]["en-de"] == 40.1
    assert all(numbers for (key, _), numbers in shown.items() if key)


def test_what_is_said_to_have_been_run_is_said_where_the_link_leads(tables):
    for table in tables:
        for entry in table.entries:
            if not entry.where:
                continue
            page, _, anchor = entry.where.partition("#")
            text = (DOCS / page).read_text()
            if anchor:
                _, *sections = re.split(r"^##+ ", text, flags=re.MULTILINE)
                titles = [section.partition("\n")[0].lower() for section in sections]
                names = [re.sub(r"[^\w\- ]", "", one).replace(" ", "-") for one in titles]
                text = sections[names.index(anchor)]
            for number in re.findall(r"\d+\.\d+", entry.ours):
                assert number in text, (entry.row, number)


def test_parameters_and_operations_are_those_of_bert_base():
    found = cost.pretraining("tupe", "learned", 30_522)
    # 12 (4 d^2 + 8 d^2) + V d, without positions, biases and layer norms
    assert found.parameters == 12 * 12 * 768**2 + 30_522 * 768
    assert found.tokens == 1_000_000 * 256 * 512
    dense = 6 * found.tokens * 12 * 12 * 768**2
    assert dense < found.operations < 1.4 * dense
    assert found.hours == pytest.approx(found.operations / 0.4 / 989.4e12 / 3600)
    assert found.disk == 10 * found.parameters * 12


def test_compressed_keys_cost_less_and_a_generator_costs_more():
    full, fewer = (cost.pretraining("diet", "linformer", 30_522, keys=keys) for keys in (None, 32))
    assert fewer.operations < full.operations
    bert = cost.pretraining("electra", "learned", 32_768)
    electra = cost.pretraining("electra", "learned", 32_768, "electra")
    assert 1.05 < electra.operations / bert.operations < 1.4
    longer = cost.pretraining("diet", "learned", 30_522, changes={"length": 512})
    assert longer.tokens == 4 * cost.pretraining("diet", "learned", 30_522).tokens


def test_translation_reads_its_tokens_once_for_each_direction(tables):
    [entry, *_] = next(table.entries for table in tables if table.key == "diet_table4_mt")
    assert entry.cost == cost.translation("sinusoidal", 32_000).times(4)
    assert entry.cost.tokens == 4 * 250_000 * 25_000


def test_all_formats_have_all_rows(tables, capsys):
    rows = [entry.row for table in tables for entry in table.entries]
    shown = written.markdown(tables)
    assert all(f"| {row}" in shown for row in rows)
    main(["tables", "--format", "json"])
    found = json.loads(capsys.readouterr().out)
    assert [row["row"] for table in found for row in table["rows"]] == rows

    class Cells(HTMLParser):
        number = 0

        def handle_starttag(self, tag, attrs):
            self.number += tag == "td"

    cells = Cells()
    cells.feed(written.html(tables))
    assert cells.number == len(rows) * len(written.COLUMNS)


def test_the_page_of_the_docs_is_what_the_command_prints(papers):
    assert (DOCS / "reproduction.md").read_text() == written.markdown(entries.tables(papers))


def test_papers_that_can_not_be_read_are_named(tmp_path):
    with pytest.raises(UserError, match=r"^--papers .* can't be read: No such file"):
        main(["tables", "--papers", str(tmp_path / "no.json")])
    (tmp_path / "odd.json").write_text("[")
    with pytest.raises(
        UserError, match=r"^--papers .*odd.json, line 1: this is not JSON, or it is"
    ):
        main(["tables", "--papers", str(tmp_path / "odd.json")])


GOOD = {"model": "bert", "scores": {"Avg": 84.8}}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([1], r" is not a paper_tables\.json \("),
        ({"a": 1}, r" is not a paper_tables\.json \("),
        ({"diet_table2_glue": {"rows": 1}}, r" is not a paper_tables\.json \("),
        ({"diet_table2_glue": {"rows": [GOOD, 1]}}, r" is not a paper_tables\.json \("),
        *(
            (
                {"diet_table2_glue": {"rows": [GOOD, {"model": "bert", **odd}]}},
                rf".* \(row 2 of {rule}",
            )
            for odd, rule in [
                ({}, "diet_table2_glue has no numbers as its scores"),
                ({"rank": 128}, "diet_table2_glue has no numbers as its scores"),
                ({"scores": {}}, "diet_table2_glue has no numbers as its scores"),
                ({"scores": {"Avg": "84.8"}}, "diet_table2_glue has no numbers as its scores"),
                ({"scores": {"Avg": 84.8}, "model": None}, "diet_table2_glue has no model"),
            ]
        ),
        (
            {"tupe_base_glue_avg": {"rows": {"tupe_r": "85"}}},
            r".* \(row 1 of tupe_base_glue_avg has",
        ),
        (
            {"diet_table2_glue": {"rows": [{"model": "bert", "scores": {"RTE": 1}}]}},
            "diet_table2_glue has no number Avg, but RTE: correct the file$",
        ),
    ],
)
def test_rows_of_the_papers_that_lack_their_numbers_are_refused(tmp_path, content, said):
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=rf"^--papers.*{said}"):
        main(["tables", "--papers", str(path)])
