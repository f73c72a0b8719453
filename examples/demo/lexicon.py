"""The words of the demo's English-German grammar, as tables, and how they are read.

German nouns are listed as in a dictionary: gender, nominative, genitive singular, plural.
Verbs are listed with their principal parts; ``|`` parts a particle from its verb in both
languages (``pick|up``, ``ab|holen``), ``_`` joins an English verb to what always follows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

# A token that ends in @@ is joined to the next one. German particles and endings are tokens of
# their own: an@@ ruf@@ en, alt@@ er. Every token is then seen often.
GLUE = "@@ "

FIRST, THIRD, PLURAL = range(3)  # the three agreements: I see, he sees, they see


def words(text: str) -> list[str]:
    """The words of ``text``."""
    return text.split()


def lines(table: str) -> list[str]:
    """The lines of a table."""
    return table.strip().splitlines()


def by_gender(forms: str) -> dict[str, str]:
    """Masculine, feminine, neuter, plural."""
    return dict(zip(("m", "f", "n", "pl"), forms.split(), strict=True))


# class     English            German: gender, nominative, genitive, plural
NOUN_TABLE = """
person      man men            m Mann Mannes Männer
person      woman women        f Frau Frau Frauen
person      child children     n Kind Kindes Kinder
person      boy boys           m Junge Jungen Jungen
person      girl girls         n Mädchen Mädchens Mädchen
person      teacher teachers   m Lehrer Lehrers Lehrer
person      doctor doctors     m Arzt Arztes Ärzte
person      neighbour neighbours  m Nachbar Nachbarn Nachbarn
person      student students   m Student Studenten Studenten
person      daughter daughters  f Tochter Tochter Töchter
person      son sons           m Sohn Sohnes Söhne
person      sister sisters     f Schwester Schwester Schwestern
person      brother brothers   m Bruder Bruders Brüder
person      aunt aunts         f Tante Tante Tanten
person      uncle uncles       m Onkel Onkels Onkel
person      queen queens       f Königin Königin Königinnen
person      king kings         m König Königs Könige
person      guest guests       m Gast Gastes Gäste
person      baker bakers       m Bäcker Bäckers Bäcker
animal      dog dogs           m Hund Hundes Hunde
animal      cat cats           f Katze Katze Katzen
animal      horse horses       n Pferd Pferdes Pferde
animal      bird birds         m Vogel Vogels Vögel
animal      bear bears         m Bär Bären Bären
animal      cow cows           f Kuh Kuh Kühe
thing       book books         n Buch Buches Bücher
thing       letter letters     m Brief Briefes Briefe
thing       picture pictures   n Bild Bildes Bilder
thing       car cars           n Auto Autos Autos
thing       ball balls         m Ball Balles Bälle
thing       key keys           m Schlüssel Schlüssels Schlüssel
thing       apple apples       m Apfel Apfels Äpfel
thing       flower flowers     f Blume Blume Blumen
thing       lamp lamps         f Lampe Lampe Lampen
thing       bottle bottles     f Flasche Flasche Flaschen
thing       hat hats           m Hut Hutes Hüte
thing       coat coats         m Mantel Mantels Mäntel
thing       chair chairs       m Stuhl Stuhles Stühle
thing       table tables       m Tisch Tisches Tische
thing       knife knives       n Messer Messers Messer
thing       suitcase suitcases  m Koffer Koffers Koffer
thing       newspaper newspapers  f Zeitung Zeitung Zeitungen
thing       bicycle bicycles   n Fahrrad Fahrrades Fahrräder
opening     door doors         f Tür Tür Türen
opening     window windows     n Fenster Fensters Fenster
opening     box boxes          f Kiste Kiste Kisten
place       garden gardens     m Garten Gartens Gärten
place       house houses       n Haus Hauses Häuser
place       school schools     f Schule Schule Schulen
place       kitchen kitchens   f Küche Küche Küchen
place       forest forests     m Wald Waldes Wälder
place       park parks         m Park Parks Parks
place       church churches    f Kirche Kirche Kirchen
place       museum museums     n Museum Museums Museen
place       hotel hotels       n Hotel Hotels Hotels
place       village villages   n Dorf Dorfes Dörfer
place       castle castles     n Schloss Schlosses Schlösser
place       city cities        f Stadt Stadt Städte
"""

# of what     English     German: predicative, stem before an ending
ADJECTIVE_TABLE = """
person        young       jung jung
person        tired       müde müd
person        famous      berühmt berühmt
person        clever      klug klug
person        friendly    freundlich freundlich
person        poor        arm arm
person        rich        reich reich
person        happy       glücklich glücklich
person,animal  hungry     hungrig hungrig
animal,thing  white       weiß weiß
animal,thing  black       schwarz schwarz
thing,opening  red        rot rot
thing,opening  green      grün grün
thing         expensive   teuer teur
thing         heavy       schwer schwer
thing,place   new         neu neu
place         dark        dunkel dunkl
place         quiet       ruhig ruhig
person,animal,thing,opening,place  old        alt alt
person,animal,thing,opening,place  small      klein klein
person,animal,thing,opening,place  beautiful  schön schön
animal,thing,opening,place         big        groß groß
"""

# frame        English: base, past, participle   German: infinitive, 3rd person, past, participle
# The frame is what the verb takes: no object, an object in a case and of a class, a recipient
# (give: "gives him a book"; send_to: "describes a book to him"), a goal, a clause.
VERB_TABLE = """
none           sleep slept slept          schlafen schläft schlief geschlafen
none           work worked worked         arbeiten arbeitet arbeitete gearbeitet
none           wait waited waited         warten wartet wartete gewartet
none           laugh laughed laughed      lachen lacht lachte gelacht
none           dance danced danced        tanzen tanzt tanzte getanzt
none           sing sang sung             singen singt sang gesungen
none           swim swam swum             schwimmen schwimmt schwamm geschwommen sein
none           arrive arrived arrived     an|kommen kommt kam gekommen sein
none           get_up got got             auf|stehen steht stand gestanden sein
none           fall_asleep fell fallen    ein|schlafen schläft schlief geschlafen sein
goal           go went gone               gehen geht ging gegangen sein
goal           run ran run                laufen läuft lief gelaufen sein
goal           return returned returned   zurück|kehren kehrt kehrte gekehrt sein
acc:person     know knew known            kennen kennt kannte gekannt
acc:person     visit visited visited      besuchen besucht besuchte besucht
acc:person     invite invited invited     ein|laden lädt lud geladen
acc:person     call called called         an|rufen ruft rief gerufen
acc:person     pick|up picked picked      ab|holen holt holte geholt
acc:person     wake|up woke woken         auf|wecken weckt weckte geweckt
acc:person     greet greeted greeted      begrüßen begrüßt begrüßte begrüßt
acc:person     admire admired admired     bewundern bewundert bewunderte bewundert
acc:person,animal,thing  see saw seen     sehen sieht sah gesehen
acc:person,animal,thing  find found found  finden findet fand gefunden
acc:person,animal,thing  look_for looked looked  suchen sucht suchte gesucht
acc:person,animal,thing  look_at looked looked   an|sehen sieht sah gesehen
acc:animal,thing  buy bought bought       kaufen kauft kaufte gekauft
acc:animal,thing  paint painted painted   malen malt malte gemalt
acc:thing      carry carried carried      tragen trägt trug getragen
acc:thing      need needed needed         brauchen braucht brauchte gebraucht
acc:thing      lose lost lost             verlieren verliert verlor verloren
acc:thing      steal stole stolen         stehlen stiehlt stahl gestohlen
acc:thing      choose chose chosen        aus|wählen wählt wählte gewählt
acc:thing      throw|away threw thrown    weg|werfen wirft warf geworfen
acc:thing      bring|along brought brought  mit|bringen bringt brachte gebracht
acc:opening    open opened opened         auf|machen macht machte gemacht
acc:opening    close closed closed        zu|machen macht machte gemacht
acc:opening    clean cleaned cleaned      putzen putzt putzte geputzt
dat:person     help helped helped         helfen hilft half geholfen
dat:person     thank thanked thanked      danken dankt dankte gedankt
dat:person     trust trusted trusted      vertrauen vertraut vertraute vertraut
dat:person     answer answered answered   antworten antwortet antwortete geantwortet
dat:person,animal  follow followed followed  folgen folgt folgte gefolgt sein
dat:person     listen_to listened listened  zu|hören hört hörte gehört
give           give gave given            geben gibt gab gegeben
give           show showed shown          zeigen zeigt zeigte gezeigt
give           send sent sent             schicken schickt schickte geschickt
give           lend lent lent             leihen leiht lieh geliehen
give_to        sell sold sold             verkaufen verkauft verkaufte verkauft
give_to        describe described described  beschreiben beschreibt beschrieb beschrieben
give_to        recommend recommended recommended  empfehlen empfiehlt empfahl empfohlen
give_to        give|back gave given       zurück|geben gibt gab gegeben
that           say said said              sagen sagt sagte gesagt
that           believe believed believed  glauben glaubt glaubte geglaubt
that           think thought thought      denken denkt dachte gedacht
that           hear heard heard           hören hört hörte gehört
whether        ask asked asked            fragen fragt fragte gefragt
to             try tried tried            versuchen versucht versuchte versucht
to             plan planned planned       planen plant plante geplant
to             promise promised promised  versprechen verspricht versprach versprochen
to             forget forgot forgotten    vergessen vergisst vergaß vergessen
to             begin began begun          beginnen beginnt begann begonnen
"""
STATIVE = frozenset(words("know admire see find need lose trust"))  # no manner: *sees quickly


class Modal(NamedTuple):
    """An auxiliary that an infinitive follows; the forms for I, he and they."""

    english: str
    german: tuple[str, str, str]
    deniable: bool = True


MODALS = {
    "will": Modal("will", ("werde", "wird", "werden")),
    "can": Modal("can", ("kann", "kann", "können")),
    "should": Modal("should", ("sollte", "sollte", "sollten")),
    "must": Modal("must", ("muss", "muss", "müssen"), deniable=False),  # must not: darf nicht
}
HAVE = (("have", "has", "have"), ("habe", "hat", "haben"))

# English subject, object, agreement      German nominative, accusative, dative
PRONOUN_TABLE = """
I me 0        ich mich mir
he him 1      er ihn ihm
she her 1     sie sie ihr
we us 2       wir uns uns
they them 2   sie sie ihnen
"""

FIRST_NAMES = {
    "f": words("Anna Clara Emma Julia Laura Maria Nina Sarah"),
    "m": words("Daniel David Emil Leon Martin Oliver Paul Robert"),
}
# Surnames are built of two pieces, so that many can be read that were never seen.
SURNAME_HEADS = words(
    "Linden Rosen Birken Buchen Eichen Tannen Adler Falken Löwen Winter Sommer "
    "Silber Gold Stein Wald Wiesen Neu Alten Hohen Mühl"
)
SURNAME_TAILS = words("berg feld bach tal stein baum hof mann burg bauer rode hausen")

# determiner: German stem, whether it is an ein-word (no ending in three places)
DETERMINERS = {
    "this": ("dies", False),
    "every": ("jed", False),
    "a": ("ein", True),
    "my": ("mein", True),
    "his": ("sein", True),
    "our": ("unser", True),
    "their": ("ihr", True),
    "no": ("kein", True),
}

ARTICLE = {
    "nom": by_gender("der die das die"),
    "acc": by_gender("den die das die"),
    "dat": by_gender("dem der dem den"),
    "gen": by_gender("des der des der"),
}
ENDING = {
    "nom": by_gender("er e es e"),
    "acc": by_gender("en e es e"),
    "dat": by_gender("em er em en"),
    "gen": by_gender("es er es er"),
}

# English preposition: German, case
COMPANY = {"with": ("mit", "dat"), "without": ("ohne", "acc"), "for": ("für", "acc")}
PLACE = {
    "in": ("in", "dat"),
    "behind": ("hinter", "dat"),
    "in front of": ("vor", "dat"),
    "next to": ("neben", "dat"),
}
GOAL = {"into": ("in", "acc"), "to": ("zu", "dat"), "through": ("durch", "acc")}
PREPOSITIONS = COMPANY | PLACE | GOAL
CONTRACTIONS = {
    ("in", "dem"): "im",
    ("in", "das"): "ins",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
}

ALWAYS = ("present", "past", "perfect", *MODALS)
AHEAD = ("will", "can", "should", "must")
# English, German ({} is a number), the tenses it goes with, the numbers
TIMES = (
    ("today", "heute", ALWAYS, None),
    ("yesterday", "gestern", ("past",), None),
    ("tomorrow", "morgen", AHEAD, None),
    ("every day", "jeden Tag", ("present", "past", *AHEAD), None),
    ("last week", "letzte Woche", ("past",), None),
    ("next year", "nächstes Jahr", AHEAD, None),
    ("on Monday", "am Montag", ("past", *AHEAD), None),
    ("on Friday", "am Freitag", ("past", *AHEAD), None),
    ("in the evening", "am Abend", ("present", "past", *AHEAD), None),
    ("at {} o'clock", "um {} Uhr", ("present", "past", *AHEAD), (1, 12)),
    ("in {}", "im Jahr {}", ("past",), (1700, 2025)),
)
ROOM = ("in room {}", "in Zimmer {}", (1, 9999))
MANNERS = {
    "quickly": "schnell",
    "slowly": "langsam",
    "carefully": "vorsichtig",
    "gladly": "gern",
    "quietly": "leise",
    "secretly": "heimlich",
}

COORDINATORS = {"and": "und", "but": "aber"}
SUBORDINATORS = {
    "because": "weil",
    "although": "obwohl",
    "while": "während",
    "before": "bevor",
    "if": "wenn",
    "when": "wenn",  # "als" in the past, see the grammar
    "that": "dass",
    "whether": "ob",
}
QUESTION_WORDS = {"why": "warum", "when": "wann", "where": "wo"}


@dataclass(frozen=True)
class Noun:
    kind: str
    singular: str
    plural: str
    gender: str
    german: str
    genitive: str
    german_plural: str

    def decline(self, case: str, plural: bool) -> str:
        """The German form. A masculine noun with the genitive in -n is weak: Junge, Jungen."""
        if plural:
            needs_n = case == "dat" and self.german_plural[-1] not in "ns"
            return self.german_plural + (GLUE + "n" if needs_n else "")
        if case == "gen" or (case != "nom" and self.genitive.endswith("n") and self.gender == "m"):
            return self.genitive
        return self.german


@dataclass(frozen=True)
class Adjective:
    kinds: tuple[str, ...]
    english: str
    german: str  # as a predicate
    stem: str  # before an ending: dunkel, dunkle


@dataclass(frozen=True)
class Verb:
    """Both languages' forms; the finite ones for I, he and they."""

    frame: str
    english: str  # the base form
    english_present: tuple[str, str, str]
    english_past: tuple[str, str, str]
    english_participle: str
    separable: str  # English particle that a pronoun goes before: pick him up
    fixed: str  # English word that stays behind the verb: look at him
    particle: str  # German particle
    infinitive: str  # without the particle, as all that follow
    present: tuple[str, str, str]
    past: tuple[str, str, str]
    participle: str
    perfect_with_sein: bool

    @property
    def name(self) -> str:
        """The verb as a dictionary lists it: pick up, look at."""
        return " ".join([self.english, *self.separable.split(), *self.fixed.split()])

    @property
    def case(self) -> str:
        """The German case of the direct object."""
        return "dat" if self.frame.startswith("dat:") else "acc"

    @property
    def kinds(self) -> tuple[str, ...]:
        """The classes of nouns that the direct object is taken from."""
        if ":" in self.frame:
            return tuple(self.frame.partition(":")[2].split(","))
        return ("thing",) if self.frame.startswith("give") else ()


def third_person(base: str) -> str:
    """English -s: goes, tries, watches."""
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ies"
    return base + ("es" if base.endswith(("s", "sh", "ch", "x", "o")) else "s")


def read_verb(line: str) -> Verb:
    """A verb from its line in the table."""
    frame, english, e_past, e_participle, german, third, past, participle, *sein = line.split()
    base, _, separable = english.partition("|")
    base, _, fixed = base.partition("_")
    particle, _, infinitive = german.rpartition("|")
    ending = "en" if infinitive.endswith("en") else "n"
    stem = infinitive.removesuffix(ending)
    infinitive = stem + GLUE + ending
    return Verb(
        frame=frame,
        english=base,
        english_present=(base, third_person(base), base),
        english_past=(e_past, e_past, e_past),
        english_participle=e_participle,
        separable=separable,
        fixed=fixed,
        particle=particle,
        infinitive=infinitive,
        present=(stem + GLUE + "e", third, infinitive),
        past=(past, past, past + GLUE + ("n" if past.endswith("e") else "en")),
        participle=participle,
        perfect_with_sein=bool(sein),
    )


def read_noun(line: str) -> Noun:
    """A noun from its line in the table."""
    return Noun(*line.split())


def read_adjective(line: str) -> Adjective:
    """An adjective from its line in the table."""
    kinds, english, german, stem = line.split()
    return Adjective(tuple(kinds.split(",")), english, german, stem)


BE = Verb(
    frame="be",
    english="be",
    english_present=("am", "is", "are"),
    english_past=("was", "was", "were"),
    english_participle="been",
    separable="",
    fixed="",
    particle="",
    infinitive="sein",
    present=("bin", "ist", "sind"),
    past=("war", "war", "waren"),
    participle="gewesen",
    perfect_with_sein=True,
)

NOUNS = {noun.singular: noun for noun in map(read_noun, lines(NOUN_TABLE))}
ADJECTIVES = {
    adjective.english: adjective for adjective in map(read_adjective, lines(ADJECTIVE_TABLE))
}
VERBS = {verb.name: verb for verb in (*map(read_verb, lines(VERB_TABLE)), BE)}
PRONOUNS = {line.split()[0]: line.split() for line in lines(PRONOUN_TABLE)}
