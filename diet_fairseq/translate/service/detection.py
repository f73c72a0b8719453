"""Detection of the language of a text, with the library py3langid (the extra ``detect``)."""

from collections.abc import Iterable
from functools import cache, cached_property
from importlib.util import find_spec
from threading import Lock
from typing import Any

from ...text.languages import find_language_and_script, measure_distance

#: number of characters of a text that are read; more characters don't change the result
MAX_CHARACTERS = 10_000
#: smallest confidence in percent of a language. A text without features of any language, such as
#: "123", has 1.4 for languages that the library knows in two scripts, and 0.7 for the others
MIN_CONFIDENCE = 1.5


def has_detection_library() -> bool:
    """Whether py3langid is installed; it is not imported."""
    return find_spec("py3langid") is not None


@cache
def load_identifier() -> Any:
    """The library's model, whose methods any thread can call."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


class LanguageDetector:
    """Detects the language of a text among some languages. Any thread can call it.

    The library's model (4 MB) is loaded when a text is detected for the first time.

    Args:
        languages: codes of the languages; languages that the library does not know are never
            detected
        default: the language of texts whose language can't be detected
    """

    def __init__(self, languages: Iterable[str], default: str) -> None:
        self.languages, self.default = list(languages), default
        self._loading = Lock()

    def detect(self, text: str) -> list[dict[str, Any]]:
        """The possible languages of a text in LibreTranslate's form, most probable first.

        Returns:
            such as ``[{"confidence": 92.0, "language": "en"}]``, with confidences in percent, which
            sum to less than 100 if the text may be in a language that is not in `languages`. A text
            whose language can't be detected has the language ``default`` and the confidence 0
        """
        with self._loading:  # since Python 3.12 cached_property has no lock
            names = self._names
        confidences = [
            {"confidence": round(100 * probability, 1), "language": names[label]}
            for label, probability in load_identifier().rank(text[:MAX_CHARACTERS])
            if label in names and 100 * probability >= MIN_CONFIDENCE
        ]
        return confidences or [{"confidence": 0.0, "language": self.default}]

    @cached_property
    def _names(self) -> dict[str, str]:
        """The library's code of a language -> the code in `languages`."""
        names = {}
        for label in load_identifier().labels:
            tag = find_language_and_script(label)
            matches = [
                name
                for name in self.languages
                if tag and (other := find_language_and_script(name)) and other[0] == tag[0]
            ]
            if matches:
                # the library does not tell scripts and regions apart
                names[label] = min(matches, key=lambda name: measure_distance(label, name))
        return names
