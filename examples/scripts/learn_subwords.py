"""Learn one subword model for all languages of a training text."""

import io
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

from sentencepiece import SentencePieceTrainer
from subword_nmt.learn_bpe import learn_bpe

from diet_fairseq.errors import exit_with_one_line
from diet_fairseq.files import atomic_file
from diet_fairseq.text.lines import read_lines
from diet_fairseq.text.moses import split_words
from diet_fairseq.text.subwords import SUBWORD_FILES

#: limit of lines to learn subwords from, evenly spaced, which bounds the memory
LINES = 1_000_000


def learn_sentencepiece(lines: list[str], size: int) -> bytes:
    """Byte pair encoding of raw text, with SentencePiece's defaults; a small text has less."""
    # The rare characters of a web crawl would fill the vocabulary, or exceed it, which is an error.
    characters = Counter(chain.from_iterable(lines))
    rare = dict.fromkeys(ord(char) for char, _ in characters.most_common()[size // 4 :])
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=(line.translate(rare) for line in lines),
        model_writer=model,
        model_type="bpe",
        vocab_size=size,
        character_coverage=1.0,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return model.getvalue()


def learn_subword_nmt(texts: dict[str, Iterator[str]], size: int) -> bytes:
    """Merges of words that Moses splits; the size of the vocabulary includes single characters."""
    words: Counter[str] = Counter()
    for language, lines in texts.items():
        for line in lines:
            words.update(split_words(line, language).split())
    table = [f"{word} {count}" for word, count in words.items()]
    codes = io.StringIO()
    learn_bpe(table, codes, size, is_dict=True, total_symbols=True)
    return codes.getvalue().encode()


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=SUBWORD_FILES)
    parser.add_argument("output", type=Path)
    parser.add_argument("--text", nargs="+", type=Path, required=True, help="one file a language")
    parser.add_argument("--languages", nargs="+", required=True)
    parser.add_argument("--size", type=int, required=True)
    args = parser.parse_args()

    step = -(-sum(1 for path in args.text for _ in read_lines(path)) // LINES)
    texts: dict[str, Iterator[str]] = {
        language: islice(filter(None, read_lines(path)), 0, None, step)
        for language, path in zip(args.languages, args.text, strict=True)
    }
    if args.kind == "sentencepiece":
        model = learn_sentencepiece([*chain.from_iterable(texts.values())], args.size)
    else:
        model = learn_subword_nmt(texts, args.size)
    with atomic_file(args.output, "wb") as output:
        output.write(model)


if __name__ == "__main__":
    with exit_with_one_line():
        main()
