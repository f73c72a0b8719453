"""Sentences of a line, by the library sentencex (Wikimedia), and their translations as a line.

sentencex knows the abbreviations of some 300 languages, and keeps a quotation whole. It also takes
some common words for abbreviations, never ends a sentence before a number, and keeps a quotation of
several long sentences whole. `split_sentences` cuts its parts again at these places.
"""

import logging
import re
from collections.abc import Iterator
from functools import cache, lru_cache

from regex import compile as compile_unicode

from .languages import find_base_language

logger = logging.getLogger(__name__)

#: language -> words that sentencex takes for abbreviations although they end sentences:
#: `tools/last_words.py` finds them in Tatoeba (en, de) and FLORES (es)
COMMON_LAST_WORDS = {
    "de": frozenset({"Art", "Bart", "OK", "mag", "mich"}),
    "en": frozenset({"ID", "May", "OK", "art", "ill", "may", "me", "miss", "no"}),
    "es": frozenset({"contra", "mar", "no"}),
}
#: a possible end of a sentence with the spaces after it: (1) a word with its mark and closing
#: quotes, before (2) a word that can begin a sentence, or a mark of scripts without spaces
POSSIBLE_END = compile_unicode(
    r"""(?x) (?<!\S) [\"'“„«»‘¿¡(\[]*+ (\S*? [.!?…։؟।॥۔] [\"'’”»›)\]]*) \ +
        (?= ([\p{Lu}\p{Lt}\p{Lo}\p{N}\"'“„«¿¡(] \S*) )
    | [。！？｡] (?= [^」』”’）】。！？｡\s] )"""
)
#: least number of characters on both sides of a cut in a quotation, with and without spaces between
#: words: a shorter sentence stays with its neighbour
MIN_QUOTED, MIN_QUOTED_WITHOUT_SPACES = 60, 15
#: white space that is not a plain space, on which sentencex fails
OTHER_SPACE = re.compile(r"[^\S ]")
#: a word that begins sentences in any language, for sentencex
NAME = "Anna"


def split_sentences(line: str, language: str) -> list[str]:
    """The sentences of a line, each with the spaces after it; joined, they are the line.

    The line stays whole if sentencex fails; the first failure is logged. A language without marks
    at the ends of sentences, such as Thai, is not split.

    Args:
        line: a line of any white space, which is compared as single spaces
        language: code such as ``de``, ``deu_Latn`` or ``de_AT``; sentencex has general rules for
            languages that it does not know
    """
    code = find_base_language(language) or "en"
    parts: list[str] = []
    end = 0
    for part in _segment(OTHER_SPACE.sub(" ", line), code):
        for length in _find_ends(part, code):
            parts.append(line[end : end + length])
            end += length
    return [part for part in parts if part]


def _find_ends(part: str, code: str) -> Iterator[int]:
    """The lengths of the sentences in a part of sentencex."""
    start = 0
    for end in POSSIBLE_END.finditer(part):
        if _is_end(end[1], end[2], end.end() - start, len(part) - end.end(), code):
            yield end.end() - start
            start = end.end()
    yield len(part) - start


def _is_end(word: str | None, following: str, before: int, after: int, code: str) -> bool:
    """Whether a sentence of ``before`` characters ends here, before ``after`` characters.

    Args:
        word: the last word with its mark; None: a mark of a script without spaces
    """
    if word is None:
        return min(before, after) > MIN_QUOTED_WITHOUT_SPACES
    bare = word.rstrip(".")
    if following[0].isnumeric():
        return len(bare) > 3 and _ends_sentence(word, NAME, code)
    if bare in COMMON_LAST_WORDS.get(code, ()):
        return True
    return min(before, after) > MIN_QUOTED and _ends_sentence(word, following, code)


@lru_cache(10_000)
def _ends_sentence(word: str, following: str, code: str) -> bool:
    """Whether sentencex ends a sentence between two words outside a quotation."""
    return len(_segment(f"{word} {following}", code)) > 1


def _segment(text: str, code: str) -> list[str]:
    """sentencex's parts of a text, or the whole text if the parts are not the text."""
    import sentencex

    try:
        parts = list(sentencex.segment(code, text))
    except BaseException as error:
        # pyo3's PanicException is no Exception; Ctrl-C and exits have to pass
        if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
            raise
        parts = []
    if "".join(parts) == text:
        return parts
    _warn_once()
    return [text]


@cache
def _warn_once() -> None:
    logger.warning("sentencex could not split a line, which is translated whole")
