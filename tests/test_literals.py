"""A literal has the value that Python gives it, and anything else is refused."""

import tracemalloc

import pytest

from diet_fairseq.literals import literal


@pytest.mark.parametrize(
    "text",
    ["(0.9, 0.999)", "1e-4", "[(512, 10, 5)] + [(512, 3, 2)] * 4", "3 * [True]", "{'a': [-1]}",
     " None", "1,2,3", "'text'", "2 - 1", "1 / 2"],
)  # fmt: skip
def test_literals_have_the_value_python_gives_them(text):
    assert literal(text) == eval(text.strip())


@pytest.mark.parametrize(
    "text",
    ["exit()", "__import__('os')", "[].__class__", "a", "[x for x in 'ab']", "lambda: 1", "9 ** 9",
     "f'{1}'", "[0] * 10 ** 9", "[0] * 1000000000", "[0] * 999 + [0] * 999", "'a' * 1000000000",
     "{**{}}", "1 / 0", "", "(" * 10000, "1 +", "'%999999999d' % 1", "(a := 1)", "\0"],
)  # fmt: skip
def test_nothing_else_is_a_literal(text):
    with pytest.raises(ValueError, match="not a literal"):
        literal(text)


def test_many_products_in_one_text_take_little_memory():
    tracemalloc.start()
    with pytest.raises(ValueError, match="not a literal"):
        literal(f"[{'[0] * 40_000, ' * 100}]")
    with pytest.raises(ValueError, match="not a literal"):
        literal(f"'{'a' * 10_000}' * '{'b' * 10_000}'")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10_000_000
