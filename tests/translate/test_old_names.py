"""Import paths of 0.3 that the documentation named."""

from diet_fairseq.inference.service.app import application
from diet_fairseq.inference.translator import TooLong, Translation, Translator

from diet_fairseq.translate import translator
from diet_fairseq.translate.service import app


def test_documented_modules_have_their_old_name_too():
    assert (TooLong, Translation) == (translator.TooLong, translator.Translation)
    assert Translator is translator.Translator
    assert application is app.application
