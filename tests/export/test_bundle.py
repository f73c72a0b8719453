"""One file made of a package's own definitions: what it holds, and what can't be put into one."""

import pytest

from diet_fairseq.export import bundle as maker


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Writes the files of a package, which the maker then reads."""
    monkeypatch.setattr(maker, "PACKAGE", tmp_path)
    maker.module.cache_clear()

    def write(**files):
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(text)

    yield write
    maker.module.cache_clear()


def test_one_file_has_what_is_used_under_the_names_it_is_used_by_and_nothing_else(package):
    package(
        sizes="from math import pi\n\nunused = 0\n\ndef area(r):\n    return pi * r * r\n",
        model="from .sizes import area as surface\n\ndef build():\n    return surface(1)\n",
    )
    made = maker.bundle({"model.py": ["build"]})
    found = {}
    exec(made, found)
    assert found["build"]() == pytest.approx(3.14159, abs=1e-4)
    assert "unused" not in found


@pytest.mark.parametrize("start", ["", "from . import sizes\n"], ids=["empty", "importing it"])
def test_a_module_that_is_imported_whole_is_refused_by_name(package, start):
    package(__init__=start, sizes="width = 1\n", model="from . import sizes\n\nw = sizes.width\n")
    with pytest.raises(ValueError, match=r"imports the module sizes, .* import the names that it"):
        maker.bundle({"model.py": ["w"]})


def test_two_definitions_of_one_name_are_refused_with_both_files(package):
    package(
        sizes="width = 1\n\ntwice = 2 * width\n",
        model="from .sizes import twice\n\nwidth = 3\n\nw = width + twice\n",
    )
    with pytest.raises(ValueError, match=r"width is defined in \w+.py and in \w+.py: rename one"):
        maker.bundle({"model.py": ["w"]})
