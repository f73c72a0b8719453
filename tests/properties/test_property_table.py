"""The table at the end of a test run counts cases by scheme, and shows what failed."""

from types import SimpleNamespace

from tests.support.property_table import property_table


def outcome(name: str, when: str = "call") -> SimpleNamespace:
    return SimpleNamespace(nodeid=f"tests/test_x.py::test_{name}", when=when)


def test_the_table_counts_cases_and_marks_the_worst():
    lines = property_table(
        {
            "passed": [
                outcome("order_matters[t5]"),
                outcome("order_matters[t5]", when="teardown"),
                outcome("order_matters[t5-sharing=head]"),
                outcome("order_matters[shaw]"),
                outcome("something_else[t50]"),
            ],
            "failed": [outcome("order_matters[shaw-clip=2]")],
            "skipped": [outcome("nothing_from_the_future[tupe_a]", when="setup")],
        }
    )
    heads, order, future = (line.split() for line in lines[-3:])
    assert heads[3:6] == ["shaw", "t5", "tupe_a"]
    assert order == ["order", "matters", "FAIL", "2", "2"]
    assert future == ["nothing", "from", "the", "future", "s", "1"]


def test_without_properties_there_is_no_table():
    assert property_table({"passed": [outcome("something[3.9]")]}) == []
