"""The made-up reading task is solved, in a language of the training text and in another."""

import pytest

from tests.support.road import script

reading = script("roberta/reading.py")


@pytest.mark.slow
def test_a_tiny_model_learns_to_read_and_answers_in_a_language_it_was_not_trained_on(
    tmp_path, capsys
):
    assert reading.main(tmp_path) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert float(first.split()[-1]) >= 95
    assert float(second.split()[-1]) >= 95
