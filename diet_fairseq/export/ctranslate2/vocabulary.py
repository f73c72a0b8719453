"""CTranslate2's vocabulary of a fairseq dictionary."""

from typing import Any


def tokens(words: Any) -> list[str]:
    """Unique names of the dictionary's entries, in order.

    Of two entries with one name (from ``#fairseq:overwrite``) CTranslate2 reads the first, fairseq
    the last. So an entry that fairseq never reads is called ``NAME#INDEX``.
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
