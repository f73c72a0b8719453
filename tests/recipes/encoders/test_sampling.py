"""Text of many languages: how often each is read, by one rule and always in the same way."""

from collections import Counter

import pytest

from diet_fairseq.errors import UserError
from diet_fairseq.recipes.encoders import sampling
from tests.support.glue import run
from tests.support.road import sentences, text, use, write

SIZES = {"de": 9000, "sw": 900, "yo": 100}


def test_shares_are_powers_of_the_sizes():
    found = sampling.shares(SIZES, 0.7)
    assert sum(found.values()) == pytest.approx(1)
    assert found["de"] / found["yo"] == pytest.approx(90**0.7)
    assert sampling.shares(SIZES, 1.0)["sw"] == pytest.approx(0.09)


def test_as_much_is_read_as_there_is_and_in_those_shares():
    languages = [name for name, size in SIZES.items() for _ in range(size)]
    times = list(sampling.copies(languages, SIZES, 0.7))
    read = Counter()
    for name, number in zip(languages, times, strict=True):
        read[name] += number
    assert read.total() == pytest.approx(10_000, rel=0.01)
    for name, share in sampling.shares(SIZES, 0.7).items():
        assert read[name] / 10_000 == pytest.approx(share, rel=0.05)
    assert times == list(sampling.copies(languages, SIZES, 0.7))
    assert times != list(sampling.copies(languages, SIZES, 0.7, seed=2))


@pytest.fixture
def languages(tmp_path, monkeypatch):
    """240 lines of one language in a folder of two files, 30 of another in a file."""
    use(monkeypatch)
    lines = sentences(270)
    (tmp_path / "texts/de").mkdir(parents=True)
    write(tmp_path / "texts/de/one.txt", lines[:100])
    write(tmp_path / "texts/de/two.txt", lines[100:240])
    write(tmp_path / "texts/sw.txt", [line.upper() for line in lines[240:]])
    return tmp_path


def prepare(languages, folder, *more):
    return run("prepare", "--languages", languages / "texts", "--lines-per-document", 5,
               "--vocabulary", 160, "--valid-share", 0.1, "--folder", languages / folder,
               "--workers", 1, *more)  # fmt: skip


def test_a_small_language_is_read_several_times_and_held_out_text_never(languages, capsys):
    assert prepare(languages, "ours") == 0
    said = capsys.readouterr().out
    train = [line for line in text.read_lines(languages / "ours/sampled/train") if line]
    times = Counter(train)
    small = [times[line] for line in times if line.isupper()]
    large = [times[line] for line in times if not line.isupper()]
    assert min(small) >= 1
    assert max(small) == 2
    assert max(large) == 1
    assert f"sw {sum(small)} of {len(small)}" in said
    held_out = {line for line in text.read_lines(languages / "ours/sampled/valid") if line}
    assert held_out
    assert not held_out & set(train)
    first = (languages / "ours/sampled/train").read_bytes()
    assert prepare(languages, "again") == 0
    assert (languages / "again/sampled/train").read_bytes() == first


# Bad input


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--smoothing", "0"], "--smoothing 0.0 goes with --languages, and is above 0 and at most "
         "1: 1 reads each language as often as it is there"),
        (["{folder}/texts/sw.txt"], "--languages has all the text: leave out FILE and --wikitext"),
    ],
)  # fmt: skip
def test_options_that_do_not_fit_are_refused(languages, words, message):
    with pytest.raises(UserError) as error:
        prepare(languages, "ours", *(word.format(folder=languages) for word in words))
    assert str(error.value) == message


def test_a_folder_without_two_languages_is_refused(languages):
    (languages / "texts/sw.txt").unlink()
    with pytest.raises(UserError) as error:
        prepare(languages, "ours")
    assert str(error.value) == (
        f"--languages {languages}/texts has 1 languages: put two or more texts there, called "
        "LANGUAGE.txt, or folders of them"
    )
    with pytest.raises(UserError, match="--languages no can't be read: No such file"):
        run("prepare", "--languages", "no", "--folder", languages / "ours")
