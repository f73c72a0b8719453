"""A line of text to the subwords that a model was trained on, and back."""

from ..model_json import ModelDescription
from ..recipes.common import moses
from ..spaces import normalise
from . import subwords
from .engine import UNKNOWN
from .sentences import sentences

#: what stands for something else in a vocabulary; in a text it is a word that nobody knows
MARKS = {"<s>", "</s>", "<pad>", "<unk>", "<blank>"}


class Text:
    """What is done to a line before the model and after it.

    :raises UserError: if the subword model can't be read
    """

    def __init__(self, description: ModelDescription) -> None:
        self.source, self.target = description.languages
        self.lower = description.lower
        self.moses = description.preprocessing == "moses"
        self.subwords = subwords.of(description)

    def tokens(self, line: str) -> list[str]:
        """Subwords of a line; none if there is nothing to say."""
        line = normalise(line.lower() if self.lower else line)
        if self.moses and line:
            [line] = moses.tokenise([line], self.source)
        pieces = self.subwords.encode(line) if line else []
        return [UNKNOWN if piece in MARKS else piece for piece in pieces]

    def text(self, tokens: list[str]) -> str:
        """One line of plain text."""
        line = self.subwords.decode(tokens)
        if self.moses:
            line = moses.moses("MosesDetokenizer", self.target).detokenize(line.split())
        return normalise(line)

    def parts(self, line: str, longest: int | None) -> list[list[str]]:
        """The line's subwords, or if there are too many, those of its parts, in order.

        Sentences stay whole, and as many are together as fit. One that is too long by itself is
        cut before a word, and a word that is, within it: no subword is left out.
        """
        whole = self.tokens(line)
        if not whole:
            return []
        if longest is None or len(whole) <= longest:
            return [whole]
        parts: list[list[str]] = [[]]
        for sentence in sentences(normalise(line)):
            tokens = self.tokens(sentence)
            if len(parts[-1]) + len(tokens) > longest:
                parts.append([])
            while len(tokens) > longest:
                starts = (n for n in range(longest, 0, -1) if self.subwords.starts(tokens, n))
                cut = next(starts, longest)
                parts[-1] = tokens[:cut]
                parts.append([])
                tokens = tokens[cut:]
            parts[-1] += tokens
        return [part for part in parts if part]
