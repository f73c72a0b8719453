"""The cells of fine-tuning: devices, twins, and what is counted of them."""

import json
from collections import Counter
from types import SimpleNamespace

import pytest

from diet_fairseq.recipes.common import cells
from diet_fairseq.recipes.encoders import glue_tasks, tuning
from diet_fairseq.recipes.grid import fine_tuning
from tests.recipes.encoders.test_glue_report import cell


def test_devices_are_those_that_the_user_left_visible(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    assert [tuning.visible(one) for one in "01"] == ["4", "6"]


def test_a_cell_that_failed_waits_for_nothing(tmp_path, monkeypatch):
    row = SimpleNamespace(
        folder=tmp_path / "t/T/runs/a", training="x", data=tmp_path / "t/T", twins=[]
    )
    one = tuning.Tuning(row, 1e-4, 1, 1, waiting=Counter())
    one.waiting[one.training] = 1
    monkeypatch.setattr(cells.Cell, "run", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        one.run()
    assert one.waiting[one.training] == 0


def test_the_seconds_of_a_training_count_once(tmp_path):
    twin = tmp_path / "t/T/runs/a/lr"
    found = {"curves": {"valid": [[1, {}]]}, "parameters": 5, "updates done": 1, "seconds": 99}
    cells.save(twin / "result.json", found, [])
    row = SimpleNamespace(data=tmp_path / "t/U")
    assert tuning.Tuning._trained_in(SimpleNamespace(row=row), twin)["seconds"] == 0


def test_seconds_are_those_of_the_best_setting_alone(tmp_path, monkeypatch):
    some = []
    for rate, value, seconds in ((1e-4, 60.0, 100), (2e-4, 50.0, 7)):
        cell(tmp_path, "RTE", "ours", rate, 1, valid=[value])
        path = tmp_path / "tasks/RTE/runs/ours" / f"lr{rate}_seed1" / "result.json"
        path.write_text(json.dumps(cells.load(path) | {"seconds": seconds, "parameters": 5}))
        some.append(SimpleNamespace(result=path, row=SimpleNamespace(task=glue_tasks.GLUE["RTE"])))
    monkeypatch.setattr(fine_tuning, "tunings", lambda *_: {"ours": some})
    found = fine_tuning.finished(None, [])
    assert found == {"ours": {1: {"seconds": 100, "parameters": 5, "RTE": 60.0}}}
