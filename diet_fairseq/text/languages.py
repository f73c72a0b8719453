"""Properties of languages and scripts: words without spaces, BLEU's tokenizer."""

import re

from regex import compile as compile_script

#: languages that are written in ideographs: Chinese (a macrolanguage) and its members
CHINESE = {"zh", "zho", "chi", "cmn", "yue", "wuu", "lzh", "hak", "nan", "gan", "hsn", "cdo", "cjy"}
#: ISO 639-1 or -3 code -> sacreBLEU's tokenizer, for languages that its default, 13a, can't split:
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
#: letters of scripts without spaces, with their punctuation -> letters of a word: of FLORES' dev
#: set a Chinese sentence has 1.6 and a Thai one 5.4 of them for each English word
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
