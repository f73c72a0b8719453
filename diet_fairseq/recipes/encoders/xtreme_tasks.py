"""XTREME's tasks (Hu et al. 2020): their languages and how they are scored."""

from collections.abc import Callable
from dataclasses import dataclass

from ...data import answers
from ...errors import UserError

#: language -> rules of an answer
RulesOf = Callable[[str], answers.Rules]


@dataclass(frozen=True)
class XtremeTask:
    """A task with one test set a language; ``rules`` is None for a classification."""

    name: str
    languages: tuple[str, ...]
    rules: RulesOf | None = None

    @property
    def metrics(self) -> tuple[str, ...]:
        return ("f1", "exact_match") if self.rules else ("accuracy",)


def languages(names: str) -> tuple[str, ...]:
    return tuple(names.split())


def in_english(language: str) -> answers.Rules:
    """SQuAD's rules, whatever the language."""
    return answers.squad


XTREME = {
    task.name.lower(): task
    for task in (
        XtremeTask("XNLI", languages("ar bg de el en es fr hi ru sw th tr ur vi zh")),
        XtremeTask("PAWSX", languages("de en es fr ja ko zh")),
        XtremeTask("XQuAD", languages("ar de el en es hi ru th tr vi zh"), in_english),
        XtremeTask("MLQA", answers.MLQA_LANGUAGES, answers.mlqa),
        XtremeTask("TyDiQA", languages("ar bn en fi id ko ru sw te"), in_english),
    )
}


def xtreme_task(name: str) -> XtremeTask:
    """One of XTREME's that are known here, whatever the case of its name."""
    if name.lower() not in XTREME:
        known = ", ".join(task.name for task in XTREME.values())
        raise UserError(f"XTREME's task {name} is not known here: take one or more of {known}")
    return XTREME[name.lower()]
