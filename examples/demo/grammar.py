"""A small English-German grammar: sentences as trees that can say themselves in both languages.

Each phrase has two methods, ``english`` and ``german``. German clauses are laid out in the
topological fields of German grammars:

    front field   left bracket   middle field             right bracket    after field
    Heute         ruft           der Mann seine Tante     an,              weil er müde ist
    Heute         hat            der Mann seine Tante     angerufen
    dass                         der Mann seine Tante     angerufen hat

Main clauses put one phrase before the finite verb, questions none, subordinate clauses leave the
finite verb in the right bracket. All that differs in word order between the languages is there.

A sentence is a list of tokens. A token that ends in ``@@`` is joined to the next one: German words
have their endings and particles as tokens of their own, numbers are spelled in digits and surnames
in two pieces, so that unseen ones can be copied.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lexicon import (
    ADJECTIVES,
    ARTICLE,
    CONTRACTIONS,
    COORDINATORS,
    DETERMINERS,
    ENDING,
    FIRST,
    GLUE,
    HAVE,
    MANNERS,
    MODALS,
    NOUNS,
    PLURAL,
    PREPOSITIONS,
    PRONOUNS,
    QUESTION_WORDS,
    SUBORDINATORS,
    THIRD,
    VERBS,
)

Tokens = list[str]
Part = tuple[Tokens, Tokens]  # words of the middle field, and a relative clause to them


def spell(text: str) -> Tokens:
    """The tokens of ``text``; a number of several digits is spelled: 214 is 2@@ 1@@ 4."""
    tokens: Tokens = []
    for word in text.split():
        if word.isdigit():
            tokens += [digit + "@@" for digit in word[:-1]] + [word[-1]]
        else:
            tokens.append(word)
    return tokens


def glued(*pieces: str) -> str:
    """One word of the pieces that are not empty."""
    return GLUE.join(filter(None, pieces))


def written(tokens: Tokens) -> str:
    """The sentence as people write it: pieces joined, punctuation attached, a capital first."""
    text = " ".join(tokens).replace("@@ ", "")
    for mark in (",", ".", "?", "'s"):
        text = text.replace(" " + mark, mark)
    return text[:1].upper() + text[1:]


def punctuate(tokens: Tokens, mark: str) -> Tokens:
    """End with ``mark``. Clauses bring a comma on either side: of two that meet, one stays."""
    kept: Tokens = []
    for token in " ".join([*tokens, mark]).split():
        if kept and kept[-1] == "," and token in (",", mark):
            kept.pop()
        kept.append(token)
    return kept


# --- noun phrases -------------------------------------------------------------------------------


class Phrase:
    """What stands as subject or object: its words in a case, with a relative clause or without."""

    agree: int
    relative: Clause | None = None

    def english(self, case: str) -> Tokens:
        return self.english_core(case) + self.relative_clause("english")

    def german(self, case: str) -> Tokens:
        return self.german_core(case) + self.relative_clause("german")

    def relative_clause(self, language: str) -> Tokens:
        """The relative clause between commas, if there is one."""
        if self.relative is None:
            return []
        english = language == "english"
        return [",", *(self.relative.english() if english else self.relative.german("last")), ","]

    def english_core(self, case: str) -> Tokens:
        raise NotImplementedError

    def german_core(self, case: str) -> Tokens:
        raise NotImplementedError


@dataclass(frozen=True)
class NounPhrase(Phrase):
    """``the very old man``, ``my sister's dog``, ``23 dogs``, ``the dog, which sleeps,``.

    ``determiner`` is ``the``, one of ``DETERMINERS``, a number in digits, or empty where ``owner``
    stands for it. ``a`` has no form in the plural.
    """

    noun: str
    determiner: str = "the"
    plural: bool = False
    adjective: str = ""
    very: bool = False
    owner: NounPhrase | Name | None = None
    relative: Clause | None = None

    @property
    def agree(self) -> int:  # type: ignore[override]
        return PLURAL if self.plural else THIRD

    @property
    def gender(self) -> str:
        """Masculine, feminine, neuter, or ``pl`` in the plural, which has no genders."""
        return "pl" if self.plural else NOUNS[self.noun].gender

    @property
    def who(self) -> bool:
        """Whether English refers to it by ``who``, not ``which``."""
        return NOUNS[self.noun].kind == "person"

    def english_core(self, case: str) -> Tokens:
        noun = NOUNS[self.noun]
        words = ["very"] * self.very + [self.adjective] * bool(self.adjective)
        words.append(noun.plural if self.plural else noun.singular)
        if self.owner:
            return [*self.owner.english_core("nom"), "'s", *words]
        if self.determiner == "a":
            article = "an" if words[0][0] in "aeiou" else "a"
            return words if self.plural else [article, *words]
        if self.determiner == "this" and self.plural:
            return ["these", *words]
        return spell(self.determiner) + words

    def german_core(self, case: str) -> Tokens:
        """Determiner, adjective, noun; an owner in the genitive behind, a name in front."""
        if isinstance(self.owner, Name):
            determiner, ending_shown = self.owner.genitive(), False
        else:
            determiner, ending_shown = self.german_determiner(case)
        words = list(determiner)
        if self.adjective:
            ending = self.adjective_ending(case, ending_shown)
            words += ["sehr"] * self.very + [ADJECTIVES[self.adjective].stem + GLUE + ending]
        words.append(NOUNS[self.noun].decline(case, self.plural))
        if isinstance(self.owner, NounPhrase):
            words += self.owner.german_core("gen")
        return words

    def german_determiner(self, case: str) -> tuple[Tokens, bool]:
        """The determiner, and whether it shows case and gender by its ending."""
        if self.owner or self.determiner == "the":
            return [ARTICLE[case][self.gender]], True
        if self.determiner.isdigit():
            return spell(self.determiner), False
        if self.determiner == "a" and self.plural:
            return [], False
        stem, is_ein_word = DETERMINERS[self.determiner]
        if is_ein_word and (case, self.gender) in {("nom", "m"), ("nom", "n"), ("acc", "n")}:
            return [stem], False
        return [stem + ENDING[case][self.gender]], True

    def adjective_ending(self, case: str, ending_shown: bool) -> str:
        """Weak behind a determiner that shows the ending, strong where it does not."""
        if not ending_shown:
            return ENDING[case][self.gender]  # strong; no genitive comes here
        plain = {"nom": "mfn", "acc": "fn"}.get(case, "")
        return "e" if self.gender in plain else "en"


@dataclass(frozen=True)
class Name(Phrase):
    """``Anna``, ``Mr Lindenberg``: ``words`` are the name's tokens, ``title`` Mr or Mrs."""

    words: str
    gender: str
    title: str = ""
    relative: Clause | None = None
    agree = THIRD
    who = True

    def english_core(self, case: str) -> Tokens:
        return self.title.split() + self.words.split()

    def german_core(self, case: str) -> Tokens:
        title = {"": "", "Mrs": "Frau", "Mr": "Herr" if case == "nom" else "Herrn"}[self.title]
        return title.split() + self.words.split()

    def genitive(self) -> Tokens:
        """A first name's: Annas."""
        return [self.words + "s"]


@dataclass(frozen=True)
class Pronoun(Phrase):
    """``I``, ``he``, ``she``, ``we`` or ``they``."""

    word: str

    @property
    def agree(self) -> int:  # type: ignore[override]
        return int(PRONOUNS[self.word][2])

    def english_core(self, case: str) -> Tokens:
        return [PRONOUNS[self.word][0 if case == "nom" else 1]]

    def german_core(self, case: str) -> Tokens:
        return [PRONOUNS[self.word][{"nom": 3, "acc": 4, "dat": 5}[case]]]


@dataclass(frozen=True)
class RelativePronoun(Phrase):
    """Stands in a relative clause for the noun it refers to; made by `related`."""

    gender: str
    agree: int
    who: bool

    def english_core(self, case: str) -> Tokens:
        return ["which"] if not self.who else ["who"] if case == "nom" else ["whom"]

    def german_core(self, case: str) -> Tokens:
        if (case, self.gender) == ("dat", "pl"):
            return ["denen"]
        return [ARTICLE[case][self.gender]]


def related(head: NounPhrase | Name, clause: Clause, role: str) -> NounPhrase | Name:
    """``head`` with ``clause`` as relative clause; ``role``, subject or object, stands for it."""
    pronoun = RelativePronoun(head.gender, head.agree, head.who)
    if role == "subject":
        return replace(head, relative=replace(clause, subject=pronoun))
    return replace(head, relative=replace(clause, object=pronoun))


# --- adverbials ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Adverbial:
    """Words that need no rule: ``at 9 o'clock``, ``um 9 Uhr``."""

    in_english: str
    in_german: str

    def english(self) -> Tokens:
        return spell(self.in_english)

    def german(self) -> Tokens:
        return spell(self.in_german)


@dataclass(frozen=True)
class Prepositional:
    """``in the old garden``; preposition and article contract in German: ``im alten Garten``."""

    preposition: str
    phrase: Phrase

    def english(self) -> Tokens:
        return self.preposition.split() + self.phrase.english("acc")

    def german(self) -> Tokens:
        preposition, case = PREPOSITIONS[self.preposition]
        words = self.phrase.german(case)
        contracted = CONTRACTIONS.get((preposition, words[0]))
        return [contracted, *words[1:]] if contracted else [preposition, *words]


# --- clauses ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Subordinate:
    """``because he is tired``, ``weil er müde ist``."""

    conjunction: str
    clause: Clause

    def english(self) -> Tokens:
        return [self.conjunction, *self.clause.english()]

    def german(self) -> Tokens:
        one_past_event = self.conjunction == "when" and self.clause.tense == "past"
        conjunction = "als" if one_past_event else SUBORDINATORS[self.conjunction]
        return [conjunction, *self.clause.german("last")]


@dataclass(frozen=True)
class Clause:
    """One verb with all that goes with it.

    ``tense`` is ``present``, ``past``, ``perfect``, one of ``MODALS``, or ``infinitive`` (without
    a subject: ``to call her``). ``front`` is an adverbial before the subject, which in German
    takes the subject's place. ``question`` is empty for yes or no. ``complement`` is what ``say``,
    ``ask`` and ``try`` need, ``subordinate`` a clause behind everything.
    """

    verb: str
    subject: Phrase | None = None
    tense: str = "present"
    negated: bool = False
    recipient: Phrase | None = None
    object: Phrase | None = None
    predicate: str = ""  # with be: an adjective
    time: Adverbial | None = None
    manner: str = ""
    company: Prepositional | None = None
    place: Adverbial | Prepositional | None = None
    front: Adverbial | Prepositional | Subordinate | None = None
    question: str | None = None
    complement: Clause | None = None
    subordinate: Subordinate | None = None

    @property
    def agree(self) -> int:
        return self.subject.agree if self.subject else FIRST

    @property
    def embedded(self) -> Subordinate | None:
        """The complement with its conjunction, unless it is an infinitive."""
        if self.complement is None or self.complement.tense == "infinitive":
            return None
        return Subordinate(VERBS[self.verb].frame, self.complement)

    # English

    def english(self) -> Tokens:
        auxiliary, main = self.english_verb()
        subject = self.subject.english("nom") if self.subject else []
        negation = ["not"] * self.negated
        if auxiliary == ["can"] and negation:
            auxiliary, negation = ["cannot"], []
        if self.question is not None:
            words = self.question.split() + auxiliary + subject + negation + main
        else:
            words = subject + auxiliary + negation + main
            if isinstance(self.object, RelativePronoun):
                words = self.object.english("acc") + words
            if self.front:
                words = [*self.front.english(), ",", *words]
        return words + self.english_rest()

    def english_verb(self) -> tuple[Tokens, Tokens]:
        """The auxiliary that ``not`` and questions need, and the main verb."""
        verb = VERBS[self.verb]
        if self.tense == "infinitive":
            return ["to"], [verb.english]
        if self.tense in MODALS:
            return [MODALS[self.tense].english], [verb.english]
        if self.tense == "perfect":
            return [HAVE[0][self.agree]], [verb.english_participle]
        forms = verb.english_past if self.tense == "past" else verb.english_present
        if self.verb == "be":
            return [forms[self.agree]], []
        if self.negated or self.question is not None:
            do = "did" if self.tense == "past" else ("do", "does", "do")[self.agree]
            return [do], [verb.english]
        return [], [forms[self.agree]]

    def english_rest(self) -> Tokens:
        """What follows the verb: objects, adverbials, clauses."""
        verb = VERBS[self.verb]
        relative = self.object is None or isinstance(self.object, RelativePronoun)
        direct = [] if relative or not self.object else self.object.english("acc")
        recipient = self.recipient.english("acc") if self.recipient else []
        separable = verb.separable.split()
        if isinstance(self.object, Pronoun):
            direct, separable = direct + separable, []
        words = verb.fixed.split() + separable
        if verb.frame == "give_to":
            words += direct + ["to", *recipient] * bool(recipient)
        else:
            words += recipient + direct
        words += self.predicate.split() + self.manner.split()
        for adverbial in (self.company, self.place, self.time):
            words += adverbial.english() if adverbial else []
        if self.embedded:
            words += self.embedded.english()
        elif self.complement:
            words += self.complement.english()
        return words + (self.subordinate.english() if self.subordinate else [])

    # German

    def german(self, order: str = "second") -> Tokens:
        """The clause with its finite verb ``first``, ``second`` or ``last``."""
        finite, particle, infinite = self.german_verb()
        front, left, right = self.german_front(), [finite], infinite or particle.split()
        subject_in_front = order == "second" and not front
        if order == "last":
            front, left, right = [], [], [*infinite, *[glued(particle, finite)] * bool(finite)]
        elif subject_in_front and self.subject:
            front = self.subject.german("nom")
        middle, relative = self.german_middle(with_subject=not subject_in_front)
        after = self.german_after()
        # Where nothing else follows, a relative clause steps behind the verb that ends the clause.
        end = [*relative, *right, *after] if after else [*right, *relative]
        return [*front, *left, *middle, *end]

    def german_verb(self) -> tuple[str, str, Tokens]:
        """Finite verb, its separable particle, and what stands in the right bracket with it."""
        verb = VERBS[self.verb]
        if self.tense == "infinitive":
            zu = [glued(verb.particle, "zu", verb.infinitive)]
            return "", "", zu if verb.particle else ["zu", verb.infinitive]
        if self.tense in MODALS:
            return (
                MODALS[self.tense].german[self.agree],
                "",
                [glued(verb.particle, verb.infinitive)],
            )
        if self.tense == "perfect":
            auxiliary = VERBS["be"].present if verb.perfect_with_sein else HAVE[1]
            return auxiliary[self.agree], "", [glued(verb.particle, verb.participle)]
        forms = verb.past if self.tense == "past" else verb.present
        return forms[self.agree], verb.particle, []

    def german_front(self) -> Tokens:
        """What stands before the verb instead of the subject."""
        if self.question:
            return [QUESTION_WORDS[self.question]]
        if isinstance(self.front, Subordinate):
            return [*self.front.german(), ","]
        return self.front.german() if self.front else []

    def german_middle(self, with_subject: bool) -> tuple[Tokens, Tokens]:
        """The middle field; apart from it the relative clause of a noun phrase that ends it."""
        verb = VERBS[self.verb]
        direct, negation = self.object, ["nicht"] * self.negated
        if self.negated and isinstance(direct, NounPhrase) and direct.determiner == "a":
            direct, negation = replace(direct, determiner="no"), []  # nicht ein: kein
        objects = [(self.recipient, "dat"), (direct, verb.case)]
        subject = [(self.subject if with_subject else None, "nom")]

        def said(phrases: list[tuple[Phrase | None, str]], *kinds: type[Phrase]) -> list[Part]:
            return [
                (phrase.german_core(case), phrase.relative_clause("german"))
                for phrase, case in phrases
                if phrase and isinstance(phrase, kinds)
            ]

        def plain(*adverbials: Adverbial | Prepositional | None) -> list[Part]:
            return [(adverbial.german(), []) for adverbial in adverbials if adverbial]

        parts = [
            *said(objects, RelativePronoun),
            *said(subject, Phrase),
            *said(objects, Pronoun),
            *plain(self.time),
            *said(objects, NounPhrase, Name),
            (negation, []),
            ([MANNERS[self.manner]] if self.manner else [], []),
            *plain(self.company, self.place),
            ([ADJECTIVES[self.predicate].german] if self.predicate else [], []),
        ]
        parts = [part for part in parts if part[0]]
        if not parts:
            return [], []
        *inner, (last, relative) = parts
        return [token for part in inner for words in part for token in words] + last, relative

    def german_after(self) -> Tokens:
        """The after field: complement and subordinate clause."""
        words: Tokens = []
        if self.embedded:
            words += [",", *self.embedded.german(), ","]
        elif self.complement:
            words += [",", *self.complement.german("last"), ","]
        if self.subordinate:
            words += [",", *self.subordinate.german(), ","]
        return words


@dataclass(frozen=True)
class Sentence:
    """Main clauses, joined by ``and`` or ``but``; or one question."""

    clauses: tuple[Clause, ...]
    coordinators: tuple[str, ...] = ()

    @property
    def mark(self) -> str:
        return "." if self.clauses[0].question is None else "?"

    def english(self) -> Tokens:
        """The tokens of the English sentence."""
        words = self.clauses[0].english()
        for coordinator, clause in zip(self.coordinators, self.clauses[1:], strict=True):
            words += [",", coordinator, *clause.english()]
        return punctuate(words, self.mark)

    def german(self) -> Tokens:
        """The tokens of the German sentence."""
        words = self.clauses[0].german("first" if self.clauses[0].question == "" else "second")
        for coordinator, clause in zip(self.coordinators, self.clauses[1:], strict=True):
            words += [",", COORDINATORS[coordinator], *clause.german()]
        return punctuate(words, self.mark)
