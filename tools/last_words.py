"""Print the last words of sentences after which sentencex ends no sentence.

    python tools/last_words.py LANGUAGE FILE    # a sentence per line, such as Tatoeba's

`diet_fairseq.text.sentences.COMMON_LAST_WORDS` has the common words of these lists; its other words
are abbreviations and symbols, such as "etc" and "C", and words of the sentence's own names.
"""

import random
import sys
from collections import Counter
from pathlib import Path

import sentencex
from regex import search

from diet_fairseq.text.lines import read_lines

#: sentences that are tried after each sentence
TRIES = 3


def main(language: str, file: str) -> None:
    draw = random.Random(1)
    sentences = list(read_lines(Path(file)))
    capitals = [sentence for sentence in sentences if sentence[:1].isupper()]
    all_tries: Counter[str] = Counter()
    failures: Counter[str] = Counter()
    for sentence in sentences:
        last_word = search(r"^[^.!?\"“„«»()]*?\b(\p{L}+)\.$", sentence)
        if last_word is None:
            continue
        for following in draw.sample(capitals, TRIES):
            count = len(sentencex.segment(language, following))
            all_tries[last_word[1]] += 1
            failures[last_word[1]] += (
                len(sentencex.segment(language, f"{sentence} {following}")) <= count
            )
    for word, number in failures.most_common():
        if number:
            print(f"{word}\t{number} of {all_tries[word]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
