"""How well one answer agrees with the right ones: exact match and F1 of words.

SQuAD's rules (Rajpurkar et al. 2016, evaluate-v1.1.py) are for English, and XTREME takes them in
every language of XQuAD and TyDiQA. MLQA (Lewis et al. 2020, mlqa_evaluation_v1.py) has rules for
each of its languages. One table of rules makes both; torchmetrics has the first alone.
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from statistics import fmean

#: language -> articles and other words that MLQA leaves out, as a regular expression
MLQA_LEAVES_OUT = {
    "ar": r"\sال^|ال",  # the first half matches nothing, in MLQA's script, too
    "de": r"\b(ein|eine|einen|einem|eines|einer|der|die|das|den|dem|des)\b",
    "en": r"\b(a|an|the)\b",
    "es": r"\b(un|una|unos|unas|el|la|los|las)\b",
    "hi": "",
    "vi": r"\b(của|là|cái|chiếc|những)\b",
    "zh": "",
}
MLQA_LANGUAGES = tuple(MLQA_LEAVES_OUT)

#: text -> its words, as they are compared
Rules = Callable[[str], list[str]]


@cache
def is_punctuation(character: str) -> bool:
    """Of ASCII, what Python counts as such: ``$+<=>^`|~``, too."""
    return character in string.punctuation or unicodedata.category(character).startswith("P")


def squad(text: str) -> list[str]:
    """Lower case, without ASCII punctuation and English articles."""
    text = "".join(one for one in text.lower() if one not in string.punctuation)
    return re.sub(MLQA_LEAVES_OUT["en"], " ", text).split()


def mlqa(language: str) -> Rules:
    """MLQA's rules for an answer in one of `MLQA_LANGUAGES`."""
    left_out = MLQA_LEAVES_OUT[language]

    def words(text: str) -> list[str]:
        text = "".join(one for one in text.lower() if not is_punctuation(one))
        if left_out:
            text = re.sub(left_out, " ", text)
        if language == "zh":  # every Chinese character is a word
            text = re.sub(r"([\u4e00-\u9fa5])", r" \1 ", text)
        return text.split()

    return words


def rules_of(name: str) -> Rules:
    """The rules called ``squad`` or ``mlqa LANGUAGE``."""
    kind, _, language = name.partition(" ")
    return mlqa(language) if kind == "mlqa" else squad


def percent(answers: Iterable[tuple[str, Sequence[str]]], rules: Rules) -> dict[str, float]:
    """F1 and exact match, in percent: means over answers, each beside the right ones."""
    pairs = list(answers)
    return {
        "f1": 100 * fmean(f1(found, right, rules) for found, right in pairs),
        "exact_match": 100 * fmean(exact_match(found, right, rules) for found, right in pairs),
    }


def exact_match(found: str, right: Iterable[str], rules: Rules) -> float:
    """1 if the answer is one of the right ones, else 0."""
    words = " ".join(rules(found))
    return float(any(words == " ".join(rules(one)) for one in right))


def f1(found: str, right: Iterable[str], rules: Rules) -> float:
    """F1 of the answer's words with those of the right answer that it is nearest to."""
    words = rules(found)
    return max(_f1(words, rules(one)) for one in right)


def _f1(found: Sequence[str], right: Sequence[str]) -> float:
    common = (Counter(found) & Counter(right)).total()
    if not common:
        return 0.0
    precision, recall = common / len(found), common / len(right)
    return 2 * precision * recall / (precision + recall)
