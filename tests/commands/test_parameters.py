"""The counts of parameters are those of DIET's Table 6."""

import json

import pytest

from diet_fairseq.commands import parameters


def test_diet_s_table_6_comes_out_to_the_last_parameter(shared_data):
    tables = shared_data.parent / "paper_tables.json"
    if not tables.is_file():
        pytest.skip("no paper_tables.json beside the shared data")
    rows = json.loads(tables.read_text())["diet_table6_parameters"]["rows"]
    for paper, ours in zip(rows, parameters.TABLE_6, strict=True):
        assert (paper["english"], paper["multilingual"]) == ours.paper
        for language, size in parameters.VOCABULARIES.items():
            counted = parameters.count(ours.arch, size, **ours.options)
            exact = paper.get(f"exact_{language.lower()}")
            assert counted == exact or (exact is None and "shaw" in ours.arch)
            assert round(counted / 1e6, 1) == paper[language.lower()]


def test_the_counts_are_printed_beside_the_paper_s(capsys):
    parameters.main()
    lines = capsys.readouterr().out.splitlines()
    assert "| DIET-ABS, rank 128, share | 111,284,588 | 111.3 M | 180,093,170 | 180.1 M |" in lines
    assert lines[-1].startswith("Shaw et al.: the paper does not state its configuration")
