"""Text of a checkpoint's configuration that Python's ``eval`` would run is recognised."""

import ast
import random
from argparse import Namespace
from itertools import product

import pytest

from diet_fairseq.checkpoints.configuration import Refused, check, is_program

HARMLESS = [
    *("", "gelu", "en-de", "data-bin/iwslt14", "checkpoint_best.pt", "de,en", "@@ ", "</s>"),
    *("/data/x (1)", "http://127.0.0.1:9/x", "a b c", "None", "True", "[1, 2]", "(0.9, 0.98)"),
    *("{'dropout': 0.1}", '{"beam": true, "x": "y"}', "[(512, 3)] * 20", "1e-5", "-1"),
    "[(512, 10, 5)] + [(512,3,2)]*4",
    *("(" * 5000, "9" * 5000, "a" * 200_000, "yes or no", "[de, en]", "null\0byte"),
]
PROGRAMS = [
    "__import__('os').system('touch x')",
    "  print(1)  ",
    "print(1)\n",
    "[print(1)]",
    "{'a': print(1)}",
    "(lambda: 1)()",
    "[x for x in y]",
    "{x: y for x in z}",
    "f'{x}'",
    "x[0]",
    "(y := 2)",
    "[0] * 10 ** 9",
    "[0] * 100",
    "[[0] * 99] * 99",
    "[f(1)] * 2",
    "9 ** 9 ** 9",
    "x * 1000000000",
    "x % y",
    "x @ y",
    "'%999999999d' % 1",
    "1 if f() else 2",
    "a.b()",
    "'print(1)'",  # a literal that is evaluated once more is a program
    "'\\x70rint(1)'",
    "[\"print(1)\"]",
    "{'a': {'b': ['print(1)']}}",
    "[x, 'print(1)']",
    "[x, 'pri' + 'nt(1)']",
    "f(\\'x\\')",  # Hydra takes the backslashes away
    "f('\\\\'')",
    "b'# coding: utf-7\\n+AGY-()'",
    "b'\\xef\\xbb\\xbff()'",
    "[b'']",
]  # fmt: skip


@pytest.mark.parametrize("text", HARMLESS, ids=lambda text: text[:20])
def test_names_places_and_literals_are_no_programs(text):
    assert not is_program(text)


@pytest.mark.parametrize("text", PROGRAMS, ids=lambda text: text[:20])
def test_programs_are_recognised(text):
    assert is_program(text)


@pytest.mark.parametrize("section", ["model", "task", "criterion", "generation", "bpe"])
def test_programs_are_refused_in_every_section_that_is_used(section):
    option = {"pipeline_encoder_balance": "print(1)"}
    for args, config in (
        (None, {section: option}),
        (None, {"model": {"w2v_args": {section: option}}}),
        (Namespace(**option), None),
    ):
        with pytest.raises(Refused, match="could run as a program"):
            check(args, config)


TOKENS = [
    *("os", "f", "x", "lambda", " for ", " in ", " if ", " else ", " or ", "not ", "None", "1"),
    *("(", ")", "[", "]", "{", "}", ",", ":", ".", "+", "-", "*", "**", "/", "%", "=", ":="),
    *("'x'", '"f()"', "'", '"', "\\", "\n", "#", " ", "@", "~", "<", "await ", "yield "),
]


class Watched:
    """Reports that an operation was called on it."""

    def __init__(self, calls):
        object.__setattr__(self, "calls", calls)

    def __call__(self, *_):
        self.calls.append("call")
        return self

    def __getitem__(self, _):
        self.calls.append("item")
        return self

    def __iter__(self):
        self.calls.append("iter")
        return iter(())


def evaluation(text):
    """The calls that happen while the text is evaluated, as fairseq evaluates it."""
    calls = []
    watched = Watched(calls)
    try:
        value = eval(text, {"os": watched, "f": watched, "x": watched})
        if isinstance(value, str):
            eval(value, {"os": watched, "f": watched, "x": watched})
    except Exception:
        pass
    return calls


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_no_random_text_that_passes_calls_anything():
    draw, passed, caught = random.Random(1), 0, 0
    for _ in range(20_000):
        text = "".join(draw.choice(TOKENS) for _ in range(draw.randint(1, 6)))
        if "**" in text:
            continue
        if is_program(text):
            caught += bool(evaluation(text))
            continue
        passed += 1
        assert evaluation(text) == [], text
    assert passed > 1000
    assert caught > 20  # the test sees calls


def test_the_check_ends_for_deeply_nested_text():
    for text in ("-" * 100_000 + "1", "(" * 50 + ")" * 50, "[" * 150 + "]" * 150, "a." * 50_000):
        assert is_program(text) in (True, False)


def in_a_string(text, quote):
    """The text as a Python string in ``quote``."""
    escaped = text.replace("\\", "\\\\").replace(quote[0], "\\" + quote[0])
    return f"{quote}{escaped}{quote}"


@pytest.mark.parametrize("levels", [1, 3, 4, 12])
def test_strings_in_strings_take_time_linear_in_the_text(levels, monkeypatch):
    parsed, parse = [], ast.parse
    monkeypatch.setattr(ast, "parse", lambda text, **way: parsed.append(text) or parse(text, **way))
    text = "x"
    for level in range(levels):
        text = in_a_string(text, "'" if level % 2 else '"')
    assert is_program(text) == (levels > 3)
    assert sum(map(len, parsed)) <= 4 * len(text)
    assert is_program(text.replace("x", "f()"))


def test_long_text_is_judged_without_parsing_it(monkeypatch):
    monkeypatch.setattr(ast, "parse", lambda *_, **__: pytest.fail("was parsed"))
    assert is_program("[" + "1," * 500_000 + "]")
    assert is_program("a" + ".b" * 500_000)
    languages = [f"l{number:02}_Latn" for number in range(202)]
    pairs = ",".join(f"{source}-{target}" for source in languages for target in languages)
    assert len(pairs) > 600_000
    assert not is_program(pairs)


#: programs before what eval takes for the end of a line, and other white space
ENDS = ["\\\n\n", "\\\n ", "\\\r\n\r\n", "\\\n\f", "\n", "\f", " ", "\\"]


def test_a_program_is_recognised_with_any_white_space_around_it():
    for begin, end in product(["", " ", "\t", "\n", "\f", "\u3000"], ENDS):
        assert is_program(f"{begin}f(){end}")
        assert is_program(repr(f"{begin}f(){end}"))
