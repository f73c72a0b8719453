"""XTREME's tasks (Hu et al. 2020): their languages and how they are scored."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations

from ...data import answers
from ...errors import UserError
from .glue_tasks import TRAIN, Task

#: language -> rules of an answer
RulesOf = Callable[[str], answers.Rules]


@dataclass(frozen=True)
class XtremeTask:
    """A task with one test set a language; ``rules`` is None for a classification.

    With ``pairs`` it also has test sets whose questions are in another language than the text:
    ``de-en`` has German texts and English questions. They count in no mean over languages.
    """

    name: str
    languages: tuple[str, ...]
    rules: RulesOf | None = None
    pairs: bool = False

    @property
    def all_languages(self) -> list[str]:
        """The languages, and then the pairs, if it has them."""
        pairs = permutations(self.languages, 2) if self.pairs else ()
        return [*self.languages, *map("-".join, pairs)]

    def has(self, language: str) -> bool:
        return language in self.all_languages

    @property
    def metrics(self) -> tuple[str, ...]:
        return ("f1", "exact_match") if self.rules else ("accuracy",)


@dataclass(frozen=True)
class Transfer(Task):
    """A task of XTREME as it is fine-tuned: ``dev_files`` has the English dev set, which is
    selected by, and then a language for each test set.

    Its name is the benchmark's and, if it is trained on another set than in DIET, that set's, too:
    ``TyDiQA-tydiqa``.
    """

    questions: bool = False

    @property
    def benchmark(self) -> str:
        return self.name.partition("-")[0]

    @property
    def trained_on(self) -> str:
        """The training set, or nothing if it is DIET's."""
        return self.name.partition("-")[2]

    @property
    def languages(self) -> list[str]:
        return list(self.dev_files.values())[1:]

    @property
    def selected_by(self) -> list[str]:
        """English held out; the tests are the best checkpoint's."""
        return list(self.dev_files)[:1]

    @property
    def splits(self) -> list[str]:
        return [TRAIN, *self.dev_files]

    def file_of(self, split: str) -> str:
        return self.dev_files.get(split, split)

    def reported(self, split: str) -> str:
        return f"{self.name} {self.file_of(split)}"

    @property
    def dictionary(self) -> str:
        return "dict.txt" if self.questions else super().dictionary

    def flags(self) -> list[str]:
        if not self.questions:
            return super().flags()
        return ["--task", "question_answering", "--criterion", "question_answering"]


def languages(names: str) -> tuple[str, ...]:
    return tuple(names.split())


def in_english(language: str) -> answers.Rules:
    """SQuAD's rules, whatever the language."""
    return answers.squad


def of_context(language: str) -> answers.Rules:
    """MLQA's for a language, or for the text's of a pair: the answer is a part of the text."""
    return answers.mlqa(language.split("-")[0])


XTREME = {
    task.name.lower(): task
    for task in (
        XtremeTask("XNLI", languages("ar bg de el en es fr hi ru sw th tr ur vi zh")),
        XtremeTask("PAWSX", languages("de en es fr ja ko zh")),
        XtremeTask("XQuAD", languages("ar de el en es hi ru th tr vi zh"), in_english),
        XtremeTask("MLQA", answers.MLQA_LANGUAGES, of_context, pairs=True),
        XtremeTask("TyDiQA", languages("ar bn en fi id ko ru sw te"), in_english),
    )
}

#: names of those that can be fine-tuned on; others are scored only
PREPARED = ("XNLI", "XQuAD", "MLQA", "TyDiQA")


def xtreme_task(name: str) -> XtremeTask:
    """One of XTREME's that are known here, whatever the case of its name."""
    if name.lower() not in XTREME:
        known = ", ".join(task.name for task in XTREME.values())
        raise UserError(f"XTREME's task {name} is not known here: take one or more of {known}")
    return XTREME[name.lower()]
