"""Properties of languages and scripts: codes, letters, words without spaces, BLEU's tokenizer."""

import re
from collections.abc import Iterable
from functools import cache, lru_cache
from itertools import islice
from typing import Any

from regex import compile as compile_script
from regex import error as UnknownScript

#: languages that are written in ideographs: Chinese (a macrolanguage) and its members
CHINESE = {"zh", "zho", "chi", "cmn", "yue", "wuu", "lzh", "hak", "nan", "gan", "hsn", "cdo", "cjy"}
#: ISO 639-1 or -3 code -> sacreBLEU's tokenizer, for languages that the default 13a can't split:
#: Thai, Lao, Khmer, Burmese, Shan, Tibetan and Dzongkha have no spaces between words
BLEU_TOKENIZERS = {
    **dict.fromkeys(CHINESE, "zh"),
    **dict.fromkeys(("ja", "jpn"), "ja-mecab"),
    **dict.fromkeys(("ko", "kor"), "ko-mecab"),
    **dict.fromkeys(
        ("th", "tha", "lo", "lao", "km", "khm", "my", "mya", "bur", "shn"), "flores200"
    ),
    **dict.fromkeys(("bo", "bod", "tib", "dz", "dzo"), "flores200"),
}
#: languages with a second script besides their likely script in CLDR
SEVERAL_SCRIPTS = {"az", "bs", "crh", "kk", "ks", "ku", "mn", "ms", "pa", "sd", "sr", "tg", "tk",
                   "tt", "ug", "uz"}  # fmt: skip
#: ISO 15924 subtag for several scripts, or for a variant of a script -> scripts
SCRIPT_SUBTAGS = {"Hans": "Han", "Hant": "Han", "Jpan": "Han Hiragana Katakana",
                  "Kore": "Hangul Han"}  # fmt: skip
#: a language's code: a tag such as en-US or zho_Hans, with at most 5 subtags
CODE = re.compile("[A-Za-z0-9]{1,8}([-_][A-Za-z0-9]{1,8}){0,4}")
LETTER = compile_script(r"\p{L}")
#: number of letters below which a text's script is not checked; number of letters to check
MIN_LETTERS, MAX_LETTERS = 20, 5000
#: smallest share of letters in the source language's script, and largest share of letters in the
#: target language's script, in a text of the source language
MIN_OWN_SHARE, MAX_TARGET_SHARE = 0.1, 0.5
#: letter of a script without spaces, with punctuation -> letters per word: in FLORES' dev set a
#: Chinese sentence has 1.6 and a Thai sentence 5.4 letters for each English word
LETTERS_OF_A_WORD = {
    compile_script(r"[\p{Han}\p{Hiragana}\p{Katakana}]\p{P}*"): 1.6,
    compile_script(r"[\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}]\p{P}*"): 5.4,
}
#: boundary of two parts next to an ideograph, kana or a full-width mark: it needs no space
SEAM_WITHOUT_SPACE = compile_script(
    r"(?<=[\p{Han}\p{Hiragana}\p{Katakana}\u3000-\u303f\uff00-\uffef])\n"
    r"|\n(?=[\p{Han}\p{Hiragana}\p{Katakana}\u3000-\u303f\uff00-\uffef])"
)


def bleu_tokenizer(language: str) -> str:
    """sacreBLEU's tokenizer for a language: ``zh``, ``ja-mecab``, ``ko-mecab``, ``flores200``, 13a.

    Args:
        language: an ISO 639-1 or 639-3 code in any case, with or without script and region, such as
            ``zh``, ``ZH-CN`` or ``zho_Hans``
    """
    code, *subtags = re.split("[-_]", language.lower())
    return "13a" if "latn" in subtags else BLEU_TOKENIZERS.get(code, "13a")


@lru_cache(maxsize=1000)
def parse_language(code: str) -> Any:
    """The `langcodes.Language` of a code, whatever standard and region the code has, or None.

    Its language is an ISO 639-1 code, or an ISO 639-3 code if there is no ISO 639-1 code; it is the
    macrolanguage if there is one (``zh`` for ``cmn``).

    Args:
        code: a code such as ``de``, ``DE``, ``de_AT``, ``deu_Latn`` or ``zh-Hant-TW``
    """
    from langcodes import Language, LanguageTagError  # imported when a code is read

    try:
        tag = Language.get(code)
    except LanguageTagError:
        return None
    return tag.prefer_macrolanguage() if tag.is_valid() else None


def find_base_language(code: str) -> str | None:
    """The language of a code, without script and region; None if it is not a language's code."""
    tag = parse_language(code)
    return tag.language if tag else None


def find_language_and_script(code: str) -> tuple[str, str] | None:
    """The language and the script of a code, such as ``("de", "Latn")``, or None.

    The script is in the code, or is CLDR's most likely script of the language and the region.
    """
    tag = parse_language(code)
    if tag is None:
        return None
    # CLDR's ko is in Hangul with ideographs (Kore), and its no is nb
    script = str(tag.maximize().script).replace("Kore", "Hang")
    return {"nb": "no"}.get(tag.language, tag.language), script


def match_language(code: str, languages: Iterable[str]) -> list[str]:
    """The languages of a model that a user's code stands for.

    An equal code has priority, then a code that differs only in its case and its separators, then
    the codes with the same language and script: ``de`` and ``de-AT`` match ``deu_Latn``. If the
    regions of several codes match, the nearest region by CLDR is selected: ``pt`` matches ``pt_BR``
    and not ``pt_PT``.

    Args:
        code: any text
        languages: the languages' codes as the model has them

    Returns:
        one code of ``languages``, several if ``code`` is ambiguous, or none
    """
    names = list(languages)
    if code in names:
        return [code]
    if not CODE.fullmatch(code):  # long texts would fill the cache
        return []
    return list(_match_other_spelling(code, tuple(names)))


@lru_cache(maxsize=1000)
def _match_other_spelling(code: str, names: tuple[str, ...]) -> tuple[str, ...]:
    def unify(code: str) -> str:
        return code.replace("_", "-").lower()

    if matches := tuple(name for name in names if unify(name) == unify(code)):
        return matches
    wanted = find_language_and_script(code)
    if wanted is None:
        return ()
    distances = {
        name: measure_distance(code, name)
        for name in names
        if find_language_and_script(name) == wanted
    }
    nearest = min(distances.values(), default=0)
    return tuple(name for name, distance in distances.items() if distance == nearest)


def measure_distance(first: str, second: str) -> int:
    """CLDR's distance of two languages' codes: 0 for the same language, script and region."""
    import langcodes

    return langcodes.tag_distance(first, second)


@cache
def compile_letters(language: str) -> Any:
    """A pattern of a letter in a language's script; None if the code determines no script.

    The script is the likely script of the language by CLDR.

    Args:
        language: a code as for `bleu_tokenizer`; its script, as in ``hin_Deva``, has priority
    """
    from langcodes.data_dicts import LIKELY_SUBTAGS

    tag = parse_language(language)
    if tag is None:
        return None
    # without an entry `maximize` takes Latin letters
    script = tag.script or (tag.language in LIKELY_SUBTAGS and tag.maximize().script)
    if not script:
        return None
    try:
        names = SCRIPT_SUBTAGS.get(script, script).split()
        return compile_script("[{}]".format("".join(rf"\p{{Script={name}}}" for name in names)))
    except UnknownScript:
        return None


def explain_other_script(lines: Iterable[str], source: str, target: str) -> str | None:
    """The reason why a text is not in the source language's script, or None.

    Languages that share a script, such as English and German, can't be told apart.
    """
    tag = parse_language(source)
    if tag and not tag.script and tag.language in SEVERAL_SCRIPTS:
        return None
    found = (letter[0] for line in lines for letter in LETTER.finditer(line))
    letters = "".join(islice(found, MAX_LETTERS))
    if len(letters) < MIN_LETTERS:
        return None

    def share(language: str) -> float | None:
        pattern = compile_letters(language)
        return None if pattern is None else len(pattern.findall(letters)) / len(letters)

    own, other = share(source), share(target)
    start = f"the text does not look like {source}, the source language"
    if own is not None and own < MIN_OWN_SHARE:
        return f"{start}: {own:.0%} of its letters are in the script of {source}"
    if own is None and other is not None and other > MAX_TARGET_SHARE:
        return f"{start}: {other:.0%} of its letters are in the script of {target}"
    return None


def count_words(line: str) -> float:
    """Number of words of a line; an estimate from letters in scripts without spaces."""
    words = 0.0
    for letters, letters_of_a_word in LETTERS_OF_A_WORD.items():
        rest, number = letters.subn(" ", line)
        if number:
            words += number / letters_of_a_word
            line = rest
    return words + len(line.split())


def join_sentences(parts: list[str]) -> str:
    """One line of text from its parts, joined by spaces except in Chinese and Japanese."""
    joined = "\n".join(filter(None, parts))
    return SEAM_WITHOUT_SPACE.sub("", joined).replace("\n", " ")
