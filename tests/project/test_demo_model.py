"""The demo's model translates all sentences of a paragraph, wherever it is used.

`make demo` makes the model; CI runs it before the tests.
"""

import json
import re
import subprocess
import sys
import urllib.request

import pytest

from diet_fairseq import Translator
from diet_fairseq.text.languages import join_sentences
from diet_fairseq.text.scores import score
from diet_fairseq.text.whitespace import normalise
from tests.support.pages import ROOT

MODEL = ROOT / "demo/results/best"
FLORES = ROOT.parent / "shared/data/flores-dev"
#: two lines of five sentences
LINES = (
    [
        "She has a dog.", "Please wait for me.", "Tom asked Mary for help.",
        "I received your letter yesterday.", "We are going to the park.",
    ],
    ["He is a teacher.", "Do you know Mr. Smith?", "Come with me.", "It is cold.", "He said no."],
)  # fmt: skip
TEXT = [" ".join(line) for line in LINES]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not MODEL.exists(), reason="needs the demo's model: make demo"),
]


@pytest.fixture(scope="module")
def expected():
    """The joined translations of each line's sentences."""
    translator = Translator(MODEL, split_sentences=False)
    sentences = [translator.translate(line) for line in LINES]
    assert all(all(line) for line in sentences)
    return [" ".join(line) for line in sentences]


def run(*words, text=""):
    command = [sys.executable, "-m", "diet_fairseq", *map(str, words)]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout


def test_the_command_and_python_translate_every_sentence(expected):
    text = "".join(f"{line}\n" for line in TEXT)
    assert run("translate", MODEL, text=text) == "".join(f"{line}\n" for line in expected)
    [best], _ = Translator(MODEL).candidates(TEXT)
    assert [sentence.source for sentence in best.sentences] == LINES[0]
    assert " ".join(sentence.text for sentence in best.sentences) == best.text == expected[0]


def test_a_ctranslate2_folder_translates_every_sentence(expected, tmp_path):
    pytest.importorskip("ctranslate2")
    run("export", "ctranslate2", MODEL, tmp_path / "exported")
    text = "".join(f"{line}\n" for line in TEXT)
    output = run("translate", tmp_path / "exported", text=text)
    assert output == "".join(f"{line}\n" for line in expected)


def test_the_service_and_its_page_translate_every_sentence(expected):
    pytest.importorskip("starlette")
    command = [sys.executable, "-m", "diet_fairseq", "serve", str(MODEL), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            address = re.search(r"http://\S+", process.stdout.readline())[0]

            def post(**fields):
                request = urllib.request.Request(
                    f"{address}/translate", json.dumps(fields).encode(),
                    {"Content-Type": "application/json"},
                )  # fmt: skip
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return json.load(answer)

            text, joined = "\n\n".join(TEXT), "\n\n".join(expected)
            assert post(q=text) == {"translatedText": joined}
            page = urllib.request.urlopen(address, timeout=60).read().decode()
            assert "const SPLITS = true;" in page
            request = {"q": text, "source": "en", "target": "de", "scores": False}
            assert post(**request, split_sentences=True) == {"translatedText": joined}
            answer = post(q=text, sentences=True)["sentences"]
            sources = [[part["source"] for part in line] for line in answer]
            assert sources == [LINES[0], [], LINES[1]]
        finally:
            process.terminate()


@pytest.mark.skipif(not FLORES.is_dir(), reason="needs FLORES' dev set in ../shared")
def test_paragraphs_of_flores_score_as_their_lines():
    lines = {}
    for language in ("en", "de"):
        text = (FLORES / f"flores-dev.{language}").read_text(encoding="utf-8")
        lines[language] = [normalise(line) for line in text.split("\n") if line.strip()][:100]

    def paragraphs(sentences):
        return [join_sentences(sentences[start : start + 5]) for start in range(0, 100, 5)]

    translator, references = Translator(MODEL), paragraphs(lines["de"])
    by_line = paragraphs(translator.translate(lines["en"], split_sentences=False))
    by_sentence = translator.translate(paragraphs(lines["en"]))
    whole = translator.translate(paragraphs(lines["en"]), split_sentences=False)
    chrf = [score(text, references)["chrF"] for text in (by_line, by_sentence, whole)]
    assert chrf[1] > 0.98 * chrf[0]
    assert chrf[2] < 0.8 * chrf[0]  # why paragraphs are split
