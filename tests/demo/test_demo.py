"""The demo: its German is right, its corpus is what it says, its report can be drawn."""

import hashlib
import importlib
import json
import re
import subprocess
import sys
from argparse import Namespace
from itertools import islice
from pathlib import Path

import pytest
import torch

DEMO = Path(__file__).parents[2] / "examples" / "demo"
sys.path.insert(0, str(DEMO))
g, lexicon, sampling, report = map(
    importlib.import_module, ("grammar", "lexicon", "corpus", "report")
)
sys.path.remove(str(DEMO))


# --- the grammar --------------------------------------------------------------------------------

noun, name, clause, adverbial, place = (
    g.NounPhrase,
    g.Name,
    g.Clause,
    g.Adverbial,
    g.Prepositional,
)
me, he, she, we, they = map(g.Pronoun, ("I", "he", "she", "we", "they"))
today = adverbial("today", "heute")
tired = clause("be", he, predicate="tired")
anna, lindenberg = name("Anna", "f"), name("Linden@@ berg", "m", "Mr")

# what it shows: English, German, the tree that says both
PAIRS = {
    "separable verb": (
        "I pick him up today.",
        "Ich hole ihn heute ab.",
        clause("pick up", me, object=he, time=today),
    ),
    "separable participle": (
        "The girls have closed a small window.",
        "Die Mädchen haben ein kleines Fenster zugemacht.",
        clause(
            "close",
            noun("girl", plural=True),
            "perfect",
            object=noun("window", "a", False, "small"),
        ),
    ),
    "separable infinitive, weak Herr": (
        "My aunt forgets to call Mr Lindenberg.",
        "Meine Tante vergisst, Herrn Lindenberg anzurufen.",
        clause(
            "forget",
            noun("aunt", "my"),
            complement=clause("call", tense="infinitive", object=lindenberg),
        ),
    ),
    "inversion after an adverbial": (
        "In 1987, the old king slept in the dark forest.",
        "Im Jahr 1987 schlief der alte König im dunklen Wald.",
        clause(
            "sleep",
            noun("king", adjective="old"),
            "past",
            front=adverbial("in 1987", "im Jahr 1987"),
            place=place("in", noun("forest", adjective="dark")),
        ),
    ),
    "inversion after a clause": (
        "Because he is tired, Anna opens the door.",
        "Weil er müde ist, macht Anna die Tür auf.",
        clause("open", anna, object=noun("door"), front=g.Subordinate("because", tired)),
    ),
    "modal at the end": (
        "The teacher says that he must wait for our sister.",
        "Der Lehrer sagt, dass er für unsere Schwester warten muss.",
        clause(
            "say",
            noun("teacher"),
            complement=clause("wait", he, "must", company=place("for", noun("sister", "our"))),
        ),
    ),
    "separable verb at the end, als": (
        "We laughed when he fell asleep.",
        "Wir lachten, als er einschlief.",
        clause(
            "laugh",
            we,
            "past",
            subordinate=g.Subordinate("when", clause("fall asleep", he, "past")),
        ),
    ),
    "whether, perfect with sein at the end": (
        "They ask whether the horses have arrived.",
        "Sie fragen, ob die Pferde angekommen sind.",
        clause("ask", they, complement=clause("arrive", noun("horse", plural=True), "perfect")),
    ),
    "recipient first, dative plural": (
        "She recommended an old book to the hungry children.",
        "Sie empfahl den hungrigen Kindern ein altes Buch.",
        clause(
            "recommend",
            she,
            "past",
            recipient=noun("child", plural=True, adjective="hungry"),
            object=noun("book", "a", adjective="old"),
        ),
    ),
    "weak nouns": (
        "This boy gives my neighbour a bear.",
        "Dieser Junge gibt meinem Nachbarn einen Bären.",
        clause(
            "give",
            noun("boy", "this"),
            recipient=noun("neighbour", "my"),
            object=noun("bear", "a"),
        ),
    ),
    "owners, dative, question": (
        "Does the old doctor's daughter trust Anna's friendly uncle?",
        "Vertraut die Tochter des alten Arztes Annas freundlichem Onkel?",
        clause(
            "trust",
            noun("daughter", "", owner=noun("doctor", adjective="old")),
            object=noun("uncle", "", adjective="friendly", owner=anna),
            question="",
        ),
    ),
    "relative clause in the middle, behind the verb": (
        "The man, whom we thanked, has bought a table, which is expensive.",
        "Der Mann, dem wir dankten, hat einen Tisch gekauft, der teuer ist.",
        clause(
            "buy",
            g.related(noun("man"), clause("thank", we, "past"), "object"),
            "perfect",
            object=g.related(noun("table", "a"), clause("be", predicate="expensive"), "subject"),
        ),
    ),
    "relative clause with a separable verb": (
        "The women, who woke me up, sing.",
        "Die Frauen, die mich aufweckten, singen.",
        clause(
            "sing",
            g.related(
                noun("woman", plural=True), clause("wake up", object=me, tense="past"), "subject"
            ),
        ),
    ),
    "kein": (
        "They do not see a horse.",
        "Sie sehen kein Pferd.",
        clause("see", they, negated=True, object=noun("horse", "a")),
    ),
    "nicht": (
        "Anna cannot find his black hats today.",
        "Anna kann heute seine schwarzen Hüte nicht finden.",
        clause("find", anna, "can", True, object=noun("hat", "his", True, "black"), time=today),
    ),
    "number, adjective without article, contraction": (
        "214 very young women have run into the house.",
        "214 sehr junge Frauen sind ins Haus gelaufen.",
        clause(
            "run",
            noun("woman", "214", True, "young", True),
            "perfect",
            place=place("into", noun("house")),
        ),
    ),
    "why": (
        "Why will she throw away these bottles in room 4711?",
        "Warum wird sie diese Flaschen in Zimmer 4711 wegwerfen?",
        clause(
            "throw away",
            she,
            "will",
            object=noun("bottle", "this", True),
            place=adverbial("in room 4711", "in Zimmer 4711"),
            question="why",
        ),
    ),
}


@pytest.mark.parametrize("about", PAIRS)
def test_translation(about):
    english, german, tree = PAIRS[about]
    sentence = g.Sentence((tree,))
    assert g.written(sentence.english()) == english
    assert g.written(sentence.german()) == german


def test_main_clauses_are_joined():
    sentence = g.Sentence(
        (clause("sing", anna), clause("get up", we, "past", front=today)), ("but",)
    )
    assert g.written(sentence.english()) == "Anna sings, but today, we got up."
    assert g.written(sentence.german()) == "Anna singt, aber heute standen wir auf."


DECLINED = """
man      nom  der alte Mann        ein alter Mann        alte Männer
man      acc  den alten Mann       einen alten Mann      alte Männer
man      dat  dem alten Mann       einem alten Mann      alten Männern
woman    nom  die alte Frau        eine alte Frau        alte Frauen
woman    acc  die alte Frau        eine alte Frau        alte Frauen
woman    dat  der alten Frau       einer alten Frau      alten Frauen
child    nom  das alte Kind        ein altes Kind        alte Kinder
child    acc  das alte Kind        ein altes Kind        alte Kinder
child    dat  dem alten Kind       einem alten Kind      alten Kindern
"""


@pytest.mark.parametrize("line", DECLINED.strip().splitlines())
def test_declension(line):
    word, case, *german = line.split()
    forms = [noun(word, "the"), noun(word, "a"), noun(word, "a", plural=True)]
    said = [g.written(g.replace(form, adjective="old").german(case)).split() for form in forms]
    assert [word.lower() for form in said for word in form] == [word.lower() for word in german]


def test_no_english_form_hides_the_tense():
    """Where past and present look the same (read, put), German could not be told."""
    for verb in lexicon.VERBS.values():
        assert not set(verb.english_past) & set(verb.english_present), verb.name


# --- the corpus ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def corpus():
    return sampling.build()


def test_corpus_is_the_same_everywhere(corpus):
    digest = hashlib.sha256(json.dumps(corpus).encode()).hexdigest()
    assert digest[:16] == "973e8009cb510308"


def test_sizes(corpus):
    assert {split: len(pairs) for split, pairs in corpus.items()} == sampling.SIZES
    assert len(corpus["train"]) >= 20_000
    assert (len(corpus["test"]), len(corpus["long"])) == (500, 200)


def test_no_sentence_occurs_twice(corpus):
    sentences = [sentence for pairs in corpus.values() for pair in pairs for sentence in pair]
    assert len(set(sentences)) == len(sentences)


def test_lengths(corpus):
    for split, pairs in corpus.items():
        for pair in pairs:
            for side in pair:
                tokens = side.split()
                if split == "long":
                    assert sampling.words(tokens) > sampling.LONGEST
                else:
                    assert 4 <= len(tokens) <= sampling.LONGEST == 40
    lengths = {len(side.split()) for pair in corpus["train"] for side in pair}
    assert lengths == set(range(4, 41))


def test_tests_hold_no_unknown_token_but_unseen_names(corpus):
    def tokens(*splits):
        return {t for s in splits for pair in corpus[s] for side in pair for t in side.split()}

    assert tokens("test", "long") <= tokens("train")
    names = set(sampling.UNSEEN_SURNAMES)
    in_split = {s: {n for n in names if any(n in p.english for p in corpus[s])} for s in corpus}
    assert not in_split["train"]
    assert not in_split["valid"]
    assert len(in_split["test"]) > 10


def test_translation_is_a_function_of_the_source():
    speaker = sampling.Speaker(sampling.Dice(7), sampling.SURNAMES[:2])
    translations = {}
    for english, german in islice(sampling.pairs(speaker, (1, 1, 1, 2)), 4000):
        assert translations.setdefault(english, german) == german


def test_names_and_numbers_are_copied(corpus):
    heads = {f"{head}@@" for head in lexicon.SURNAME_HEADS}
    for pair in corpus["test"]:
        english, german = (
            sorted(t for t in side.split() if t in heads or t.removesuffix("@@").isdigit())
            for side in pair
        )
        assert english == german


# --- the report ---------------------------------------------------------------------------------


def fake_checkpoint(path, tables=True):
    names = [
        f"{side}.layers.{n}.self_attn.positions.weight"
        for side in ("encoder", "decoder")
        for n in (0, 1)
    ]
    model = {name: torch.randn(2 * 7 + 1, 4) for name in names} if tables else {}
    torch.save({"args": Namespace(arch="x"), "model": model}, path)
    return path


def test_picture_of_the_biases(tmp_path):
    image = tmp_path / "offsets.png"
    assert report.plot_offsets(fake_checkpoint(tmp_path / "model.pt"), image, reach=40)
    assert image.read_bytes().startswith(b"\x89PNG")


def test_no_picture_without_biases(tmp_path):
    image = tmp_path / "offsets.png"
    assert not report.plot_offsets(fake_checkpoint(tmp_path / "model.pt", False), image, reach=40)
    assert not image.exists()


def test_scores():
    score = report.score(
        ["Der Mann singt heute laut.", "Nein."], ["Der Mann singt heute laut.", "Ja."]
    )
    assert (score.sentences, score.exact) == (2, 1)
    assert 50 < score.bleu < 100
    assert "version" in score.bleu_signature
    assert score.chrf_signature.startswith("nrefs:1")


# --- the whole ----------------------------------------------------------------------------------


def run(folder, *options):
    command = [sys.executable, str(DEMO / "run.py"), "--out", str(folder), *options]
    return subprocess.run(command, capture_output=True, text=True)


def last_line(result):
    return result.stderr.strip().splitlines()[-1]


def test_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    result = run(tmp_path / "file" / "demo")
    assert result.returncode == 1
    assert re.fullmatch(r"error: can't write to .*: .*; name another --out", last_line(result))


def test_options_out_of_range(tmp_path):
    assert "--part must be above 0 and at most 1, but is 2.0" in last_line(
        run(tmp_path, "--part", "2")
    )


@pytest.mark.slow
def test_small_run_and_second_run(tmp_path):
    """All steps at a hundredth of the size; the second run only reports; others are refused."""
    options = ("--part", "0.01", "--max-update", "12")
    first = run(tmp_path / "demo", *options, "--enough", "0")
    assert first.returncode == 0, first.stderr
    for product in ("report.md", "offsets.png", "model.pt", "test.de", "long.de"):
        assert (tmp_path / "demo" / product).stat().st_size > 0
    assert not list((tmp_path / "demo").glob("*.part"))

    times = {path: path.stat().st_mtime for path in (tmp_path / "demo").glob("*.*")}
    second = run(tmp_path / "demo", *options)
    assert second.returncode == 1
    assert re.fullmatch(r"error: BLEU \d+\.\d on the test is below 95", last_line(second))
    assert "nrefs:1" in second.stdout
    del times[tmp_path / "demo" / "settings.json"]
    assert all(path.stat().st_mtime == time for path, time in times.items())

    other = run(tmp_path / "demo", "--part", "0.01", "--max-update", "13")
    assert other.returncode == 1
    assert "holds a run with max_update 12" in last_line(other)


@pytest.mark.slow
def test_failing_step_is_named(tmp_path):
    result = run(tmp_path, "--part", "0.01", "--max-update", "1", "--arch", "no_such_model")
    assert result.returncode == 1
    assert last_line(result).startswith("error: fairseq's train ended with status ")
    assert "train.log" in last_line(result)
    assert not (tmp_path / "model.pt").exists()
