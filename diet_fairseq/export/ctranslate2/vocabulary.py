"""fairseq's dictionary as a vocabulary of CTranslate2's."""

from typing import Any


def tokens(words: Any) -> list[str]:
    """A name for every entry of the dictionary, in order; all names differ.

    Of two entries that are called the same (``#fairseq:overwrite`` makes such), CTranslate2 reads
    the first where fairseq reads the last. So one that no text leads to is called ``NAME#INDEX``.
    """
    taken, names = set(words.indices), []
    for index, name in enumerate(words.symbols):
        if words.indices[name] != index:
            name = f"{name}#{index}"
            while name in taken:
                name += "#"
            taken.add(name)
        names.append(name)
    return names
