"""The comparison of two models' outputs, for exports and imports."""

import pytest
import torch

from diet_fairseq.errors import UserError
from diet_fairseq.export.comparison import compare, random_sentences, refuse_differences


def pair(new, old):
    return torch.tensor(new), torch.tensor(old)


def test_differences_are_relative_to_the_original_s_outputs_above_1():
    large, small = pair([100.0, 104.0], [100.0, 100.0]), pair([0.5, 0.0], [0.0, 0.0])
    assert compare([large, small]) == compare([small, large]) == (0.5, 1.0)
    assert compare([large]) == (4.0, 100.0)
    refuse_differences([large], 0.05, "", "")
    with pytest.raises(UserError, match=r"^A is not B \(outputs differ by 4\): see C$"):
        refuse_differences([large], 0.03, "A is not B", "see C")


@pytest.mark.parametrize("numbers", [(float("nan"), 1.0), (1.0, float("nan"))])
def test_an_output_that_is_not_a_number_is_refused_in_any_pair(numbers):
    faulty, different = pair(*([number] for number in numbers)), pair([9.0], [1.0])
    for pairs in ([faulty, different], [different, faulty]):
        with pytest.raises(UserError, match="differ by nan"):
            refuse_differences(pairs, 100.0, "", "")


def test_sentences_have_the_words_the_lengths_and_the_end():
    words = torch.tensor([5, 8, 9])
    sentences = random_sentences(words, (50, 0, 1), torch.Generator().manual_seed(1), [2])
    assert [len(sentence) for sentence in sentences] == [51, 1, 2]
    assert {int(word) for word in sentences[0][:-1]} == {5, 8, 9}
    assert all(sentence[-1] == 2 for sentence in sentences)
    [same, *_] = random_sentences(words, (50,), torch.Generator().manual_seed(1))
    assert torch.equal(same, sentences[0][:-1])
