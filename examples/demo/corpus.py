"""Random sentences of the grammar, and the demo's corpus: what to learn, and what to test.

Everything hangs on one seed and on ``random.Random.random``, whose sequence Python keeps the same
over versions and machines.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple, TypeVar

from grammar import (
    Adverbial,
    Clause,
    Name,
    NounPhrase,
    Phrase,
    Prepositional,
    Pronoun,
    Sentence,
    Subordinate,
    related,
)
from lexicon import (
    ADJECTIVES,
    COMPANY,
    COORDINATORS,
    FIRST_NAMES,
    GOAL,
    MANNERS,
    MODALS,
    NOUNS,
    PLACE,
    PRONOUNS,
    ROOM,
    STATIVE,
    SURNAME_HEADS,
    SURNAME_TAILS,
    TIMES,
    VERBS,
    Verb,
)

T = TypeVar("T")

SEED = 1
SIZES = {"train": 20_000, "valid": 200, "test": 500, "long": 200}
SHORTEST, LONGEST = 4, 40  # tokens, in either language
LONG = 2 * LONGEST  # and the long test has more than 40 words, up to 80 tokens
CLAUSES = (1,) * 11 + (2,) * 6 + (3,) * 2 + (4,)  # how many a sentence has, to choose from
TENSES = ("present", "past", "present", "past", "perfect", *MODALS)
SURNAMES = [f"{h}@@ {t}" for h in SURNAME_HEADS for t in SURNAME_TAILS if h.lower() != t]
UNSEEN_SURNAMES = SURNAMES[::6]  # in the tests only: they can be copied, not remembered


class Pair(NamedTuple):
    """A sentence and its translation, tokens parted by spaces."""

    english: str
    german: str


class Dice:
    """Choices from ``random()`` alone: the other methods may change from Python to Python."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed).random

    def number(self, low: int, high: int) -> int:
        """From ``low`` to ``high``, both included."""
        return low + int(self.random() * (high - low + 1))

    def pick(self, options: Sequence[T]) -> T:
        return options[self.number(0, len(options) - 1)]

    def chance(self, probability: float) -> bool:
        return self.random() < probability


@cache
def nouns(*kinds: str) -> list[str]:
    """The nouns of some classes."""
    return [name for name, noun in NOUNS.items() if noun.kind in kinds]


@cache
def adjectives(kind: str) -> list[str]:
    """The adjectives for a class of nouns."""
    return [name for name, adjective in ADJECTIVES.items() if kind in adjective.kinds]


@cache
def verbs(frame: str, object_kind: str = "") -> list[Verb]:
    """The verbs of a frame, those that can have ``object_kind`` as their object, if given."""
    return [
        verb
        for verb in VERBS.values()
        if verb.frame.partition(":")[0] == frame and (not object_kind or object_kind in verb.kinds)
    ]


class Speaker:
    """Says random sentences."""

    def __init__(self, dice: Dice, surnames: Sequence[str]) -> None:
        self.dice = dice
        self.surnames = surnames

    # noun phrases

    def name(self) -> Name:
        gender = self.dice.pick("fm")
        if self.dice.chance(0.5):
            return Name(self.dice.pick(FIRST_NAMES[gender]), gender)
        return Name(self.dice.pick(self.surnames), gender, {"f": "Mrs", "m": "Mr"}[gender])

    def noun_phrase(self, *kinds: str, definite: bool = False, plural: float = 0.3) -> NounPhrase:
        """A noun with determiner, perhaps with an adjective or an owner.

        ``definite`` keeps to what can stand in a negated clause without a second meaning.
        """
        dice, noun = self.dice, self.dice.pick(nouns(*kinds))
        many = dice.chance(plural)
        adjective = dice.pick(adjectives(NOUNS[noun].kind)) if dice.chance(0.35) else ""
        very = bool(adjective) and dice.chance(0.2)
        if dice.chance(0.15):
            return NounPhrase(noun, "", many, adjective, very, self.owner())
        determiners = ["the", "the", "this", "my", "his", "our", "their"]
        if not definite:
            determiners += ["a", "a", "a", str(dice.number(2, 999)) if many else "every"]
        return NounPhrase(noun, dice.pick(determiners), many, adjective, very)

    def owner(self) -> NounPhrase | Name:
        gender = self.dice.pick("fm")
        if self.dice.chance(0.5):
            return Name(self.dice.pick(FIRST_NAMES[gender]), gender)
        determiner = self.dice.pick(("the", "this", "my", "our"))
        adjective = self.dice.pick(adjectives("person")) if self.dice.chance(0.3) else ""
        return NounPhrase(self.dice.pick(nouns("person")), determiner, adjective=adjective)

    def someone(self, *kinds: str, definite: bool = False) -> Phrase:
        """A noun phrase, or where a person fits, perhaps a name or a pronoun."""
        if "person" in kinds:
            if self.dice.chance(0.25):
                return self.name()
            if self.dice.chance(0.4):
                return Pronoun(self.dice.pick(list(PRONOUNS)))
        return self.noun_phrase(*kinds, definite=definite)

    # adverbials

    def time(self, tense: str) -> Adverbial | None:
        fitting = [entry for entry in TIMES if tense in entry[2]]
        if not fitting:
            return None
        english, german, _, numbers = self.dice.pick(fitting)
        number = self.dice.number(*numbers) if numbers else ""
        return Adverbial(english.format(number), german.format(number))

    def place(self, prepositions: Sequence[str] = tuple(PLACE)) -> Adverbial | Prepositional:
        if "in" in prepositions and self.dice.chance(0.15):
            english, german, numbers = ROOM
            number = self.dice.number(*numbers)
            return Adverbial(english.format(number), german.format(number))
        phrase = self.noun_phrase("place", definite=True, plural=0)
        return Prepositional(self.dice.pick(prepositions), phrase)

    def company(self) -> Prepositional:
        phrase = self.someone("person", "animal", definite=True)
        return Prepositional(self.dice.pick(list(COMPANY)), phrase)

    # clauses

    def frame(self) -> str:
        """What a verb takes, in a clause without others in it."""
        return self.dice.pick(("none", "goal", "acc", "acc", "dat", "give", "give_to", "be"))

    def clause(
        self, tense: str, frame: str, subject_kind: str = "person", object_kind: str = ""
    ) -> Clause:
        """A clause without others in it."""
        dice = self.dice
        verb = dice.pick(verbs(frame, object_kind))
        deniable = MODALS[tense].deniable if tense in MODALS else tense != "infinitive"
        negated = deniable and dice.chance(0.12)
        clause = Clause(verb.name, tense=tense, negated=negated)
        if tense != "infinitive":
            clause = replace(clause, subject=self.someone(subject_kind, definite=negated))
        if frame == "be":
            return replace(clause, predicate=dice.pick(adjectives(subject_kind)))
        if verb.kinds:
            thing = self.someone(*verb.kinds, definite=negated)
            if negated and isinstance(thing, NounPhrase) and not thing.owner and dice.chance(0.4):
                thing = replace(thing, determiner="a")  # nicht ein: kein
            clause = replace(clause, object=thing)
        if frame.startswith("give"):
            clause = replace(clause, recipient=self.someone("person", definite=negated))
        if verb.name not in STATIVE:
            if dice.chance(0.12):
                clause = replace(clause, manner=dice.pick(list(MANNERS)))
            if frame != "goal" and dice.chance(0.12):
                clause = replace(clause, company=self.company())
        if frame == "goal":
            clause = replace(clause, place=self.place(tuple(GOAL)))
        elif dice.chance(0.25):
            clause = replace(clause, place=self.place())
        return replace(clause, time=self.time(tense)) if dice.chance(0.3) else clause

    def main_clause(self, tense: str) -> Clause:
        """A clause without others in it, perhaps with an adverbial in front."""
        frame, kind = self.frame(), "person"
        if frame in ("none", "goal") and self.dice.chance(0.2):
            kind = "animal"
        elif frame == "be":
            kind = self.dice.pick(("person", "animal", "thing", "opening", "place"))
        clause = self.clause(tense, frame, kind)
        if clause.time and self.dice.chance(0.5):
            return replace(clause, front=clause.time, time=None)
        if clause.place and frame != "goal" and self.dice.chance(0.4):
            return replace(clause, front=clause.place, place=None)
        return clause

    def stating_clause(self, tense: str) -> Clause:
        """A clause that needs another: she says that, he asks whether, they try to."""
        frame = self.dice.pick(("that", "whether", "to"))
        negated = frame == "that" and tense in ("present", "past") and self.dice.chance(0.1)
        if frame == "to":
            complement = self.clause("infinitive", self.dice.pick(("none", "acc", "dat", "give")))
        else:
            complement = self.clause(self.dice.pick(TENSES), self.frame())
        subject = self.someone("person", definite=negated)
        return Clause(
            self.dice.pick(verbs(frame)).name, subject, tense, negated, complement=complement
        )

    def relative(self, head: NounPhrase | Name) -> NounPhrase | Name:
        """``head`` with a relative clause, in which it is the subject or the object."""
        kind = NOUNS[head.noun].kind if isinstance(head, NounPhrase) else "person"
        tense = self.dice.pick(TENSES)
        if kind == "place" or self.dice.chance(0.5):
            frames = {"person": self.frame(), "animal": self.dice.pick(("none", "goal", "be"))}
            return related(head, self.clause(tense, frames.get(kind, "be"), kind), "subject")
        frames_with = {"person": ("acc", "dat"), "thing": ("acc", "give", "give_to")}
        frame = self.dice.pick(frames_with.get(kind, ("acc",)))
        return related(head, self.clause(tense, frame, object_kind=kind), "object")

    def subordinate(self, tense: str) -> Subordinate:
        """A subordinate clause to a clause in ``tense``."""
        conjunction = self.dice.pick(("because", "although", "when", "while", "before", "if"))
        if tense == "past" and conjunction in ("when", "while", "before"):
            return Subordinate(conjunction, self.clause("past", self.frame()))
        if tense in ("past", "perfect") or conjunction in ("because", "although"):
            conjunction = conjunction if conjunction == "although" else "because"
            return Subordinate(conjunction, self.clause(self.dice.pick(TENSES), self.frame()))
        return Subordinate(conjunction, self.clause("present", self.frame()))

    def grown(self, clause: Clause, main: bool = False) -> Clause:
        """``clause`` with one clause more, at a random place that has room for it."""
        rooms = [
            role
            for role in ("subject", "object")
            if isinstance(phrase := getattr(clause, role), NounPhrase | Name)
            and not phrase.relative
        ]
        if clause.complement:
            rooms.append("complement")
        if clause.tense != "infinitive":
            rooms.append("subordinate")
        if main and clause.question is None and isinstance(clause.front, Subordinate | None):
            rooms.append("front")
        if not rooms:
            return clause
        room = self.dice.pick(rooms)
        there: Any = getattr(clause, room)
        more: Any
        if room in ("subject", "object"):
            more = self.relative(there)
        elif room == "complement":
            more = self.grown(there)
        elif there:
            more = replace(there, clause=self.grown(there.clause))
        else:
            more = self.subordinate(clause.tense)
        return replace(clause, **{room: more})

    # sentences

    def main_clauses(self, size: int) -> Clause:
        """A main clause with ``size`` - 1 others in it."""
        tense = self.dice.pick(TENSES)
        if size > 1 and self.dice.chance(0.35):
            clause, size = self.stating_clause(tense), size - 1
        else:
            clause = self.main_clause(tense)
        for _ in range(size - 1):
            clause = self.grown(clause, main=True)
        return clause

    def question(self, size: int) -> Sentence:
        """A question of ``size`` clauses: yes or no, or why, when, where."""
        clause = replace(self.main_clauses(size), negated=False)
        if clause.front:
            return Sentence((clause,))
        words = ["", "", "why"]
        words += ["when"] * (clause.time is None) + ["where"] * (clause.place is None)
        return Sentence((replace(clause, question=self.dice.pick(words)),))

    def sentence(self, size: int) -> Sentence:
        """A sentence of ``size`` clauses."""
        if self.dice.chance(0.1):
            return self.question(size)
        parts = 1
        while parts < size and self.dice.chance(0.3):
            parts += 1
        sizes = [size // parts + (index < size % parts) for index in range(parts)]
        coordinators = tuple(self.dice.pick(list(COORDINATORS)) for _ in sizes[1:])
        return Sentence(tuple(self.main_clauses(part) for part in sizes), coordinators)


def words(tokens: Sequence[str]) -> int:
    """How many words the tokens make."""
    return sum(not token.endswith("@@") for token in tokens)


def pairs(speaker: Speaker, sizes: Sequence[int]) -> Iterator[Pair]:
    """Random pairs without end; ``sizes`` are the numbers of clauses to choose from."""
    while True:
        sentence = speaker.sentence(speaker.dice.pick(sizes))
        yield Pair(" ".join(sentence.english()), " ".join(sentence.german()))


def build(sizes: Mapping[str, int] = SIZES, seed: int = SEED) -> dict[str, list[Pair]]:
    """The corpus: ``train``, ``valid``, ``test`` and ``long``; no sentence occurs twice.

    Sentences with a surname of the tests stay out of ``train`` and ``valid``.
    """
    dice = Dice(seed)
    anyone = Speaker(dice, SURNAMES)
    acquaintance = Speaker(dice, [name for name in SURNAMES if name not in UNSEEN_SURNAMES])
    seen: set[str] = set()
    corpus: dict[str, list[Pair]] = {}
    for split in ("test", "long", "valid", "train"):
        long = split == "long"
        speaker = anyone if split in ("test", "long") else acquaintance
        found = corpus[split] = []
        for pair in pairs(speaker, (5, 6, 7) if long else CLAUSES):
            if len(found) == sizes[split]:
                break
            tokens = [side.split() for side in pair]
            if long:
                fits = all(words(side) > LONGEST and len(side) <= LONG for side in tokens)
            else:
                fits = all(SHORTEST <= len(side) <= LONGEST for side in tokens)
            if fits and seen.isdisjoint(pair):
                seen.update(pair)
                found.append(pair)
    return corpus
