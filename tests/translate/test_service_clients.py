"""The service answers LibreTranslate's clients: detection, settings, spellings of codes, forms."""

import asyncio
import json
import shutil
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from urllib.parse import urlencode

import pytest

pytest.importorskip("starlette", reason="needs diet_fairseq[serve]")
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.testclient import TestClient

from diet_fairseq.translate.service.app import Limits, application
from diet_fairseq.translate.service.detection import (
    MAX_CHARACTERS,
    LanguageDetector,
    has_detection_library,
    load_identifier,
)
from diet_fairseq.translate.service.requests import TextRequest, read_fields
from diet_fairseq.translate.service.server import Server
from tests.translate.test_service import FORM, Mirror, post, until

needs_detection = pytest.mark.skipif(
    not has_detection_library(), reason="needs diet_fairseq[detect]"
)
MULTIPART = {"Content-Type": "multipart/form-data; boundary=B"}
MULTIPART_RULE = (
    "the body is not a valid form in UTF-8 with at most 100 fields and without files: send the "
    "field q"
)
ENGLISH, GERMAN = "She has a dog and a cat.", "Sie hat einen Hund und eine Katze."
FRENCH = "Elle a un chien et un chat, mais pas de cheval."


@pytest.fixture
def serve():
    """A function that starts a service for the directions, and returns its client and batches."""
    with ExitStack() as stack:

        def start(targets, **limits):
            mirror = Mirror()
            mirror.source_lang = next(iter(targets))
            mirror.target_lang = targets[mirror.source_lang][0]
            mirror.targets = targets
            mirror.directions = []
            reverse = mirror.candidates

            def candidates(lines, source_lang, target_lang, **options):
                mirror.directions.append(f"{source_lang}-{target_lang}")
                return reverse(lines, source_lang, target_lang, **options)

            mirror.candidates = candidates
            app = application(mirror, Limits(**limits), ["testserver"])
            client = TestClient(app, raise_server_exceptions=False)
            return stack.enter_context(client), mirror

        yield start


@pytest.fixture
def without_detection(monkeypatch):
    """Services that are started have no library for detection."""
    monkeypatch.setitem(sys.modules, "py3langid", None)


PAIR = {"en": ["de"]}
SEVERAL = {"en": ["de", "fr"], "de": ["en"]}
#: languages as NLLB and mBART name them
NLLB = {"eng_Latn": ["deu_Latn", "zho_Hans", "zho_Hant"], "deu_Latn": ["eng_Latn"]}
MBART = {"en_XX": ["pt_BR", "pt_PT", "de_DE"], "de_DE": ["en_XX"]}


# --- detection


@needs_detection
@pytest.mark.parametrize(
    ("targets", "text", "language"),
    [
        (SEVERAL, ENGLISH, "en"),
        (SEVERAL, GERMAN, "de"),
        (SEVERAL, [GERMAN, "", GERMAN], "de"),
        (NLLB, GERMAN, "deu_Latn"),
        (MBART, GERMAN, "de_DE"),
        ({"nb_NO": ["zho_Hant"], "zho_Hant": ["nb_NO"]}, "我有一只狗，它很大。", "zho_Hant"),
    ],
)
def test_a_language_is_detected_with_the_model_s_code(serve, targets, text, language):
    client, _ = serve(targets)
    first, *others = client.post("/detect", json={"q": text}).json()
    assert first["language"] == language
    assert 50 < first["confidence"] <= 100
    confidences = [first["confidence"], *(other["confidence"] for other in others)]
    assert confidences == sorted(confidences, reverse=True)
    assert {other["language"] for other in others} <= targets.keys() - {language}


@needs_detection
@pytest.mark.parametrize("text", ["123", " ", "\n", FRENCH])
def test_a_text_in_no_language_of_the_model_has_confidence_0(serve, text):
    client, _ = serve(SEVERAL)
    answer = client.post("/detect", json={"q": text})
    assert answer.json() == [{"confidence": 0.0, "language": "en"}]


@needs_detection
@pytest.mark.parametrize(
    ("content", "status", "text"),
    [
        (b"", 400, "q is missing"),
        (b"q=" + b"a" * 31, 400, "line 1 of q has 31 characters, more than 30: shorten it"),
        (b"q=" + b"%0A" * 9, 400, "q has 10 lines, more than 8: send fewer"),
        (b"q=" + b"a" * 99, 413, "the body has more than 100 bytes: send less text"),
    ],
)
def test_detection_has_the_limits_of_translation(serve, content, status, text):
    client, _ = serve(SEVERAL, characters=30, waiting=8, body=100)
    answer = client.post("/detect", content=content, headers=FORM)
    assert (answer.status_code, answer.json()) == (status, {"error": text})


def test_detection_without_the_library_is_not_found(serve, without_detection):
    client, _ = serve(SEVERAL)
    answer = client.post("/detect", json={"q": GERMAN})
    assert answer.status_code == 404
    text = "detection needs the library py3langid: install diet_fairseq[detect]"
    assert answer.json() == {"error": text}


@needs_detection
def test_any_number_of_threads_share_one_model(monkeypatch):
    from py3langid.langid import LanguageIdentifier

    identifier, loads, results = load_identifier(), [], {}

    def load(*_, **options):
        loads.append(options)
        time.sleep(0.02)
        return identifier

    def detect(number):
        results[number] = detector.detect([ENGLISH, GERMAN][number % 2])[0]["language"]

    load_identifier.cache_clear()
    monkeypatch.setattr(LanguageIdentifier, "from_model_file", load)
    detector = LanguageDetector(["en", "de"], "en")
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(detect, range(8)))
    assert results == {number: ["en", "de"][number % 2] for number in range(8)}
    assert len(loads) == 1


@needs_detection
def test_the_end_of_a_long_text_is_not_read():
    detector = LanguageDetector(["en", "de"], "en")
    start = (GERMAN + " ") * (MAX_CHARACTERS // len(GERMAN) + 1)
    assert detector.detect(start + ENGLISH * 10_000) == detector.detect(start)
    assert detector.detect("\ud800")[0]["confidence"] == 0  # JSON can contain surrogates


def test_detection_does_not_delay_other_requests(serve, monkeypatch):
    """Detection runs beside the event loop."""
    started, may_end = threading.Event(), threading.Event()

    def detect(self, text):
        started.set()
        assert may_end.wait(20)
        return [{"confidence": 90.0, "language": "de"}]

    monkeypatch.setattr("diet_fairseq.translate.service.app.has_detection_library", lambda: True)
    monkeypatch.setattr(LanguageDetector, "detect", detect)
    client, _ = serve(SEVERAL)
    answers = []
    request = threading.Thread(
        target=lambda: answers.append(client.post("/detect", json={"q": GERMAN}))
    )
    request.start()
    assert started.wait(20)
    assert client.get("/health").json()["status"] == "ok"
    assert answers == []
    may_end.set()
    request.join()
    assert answers[0].json() == [{"confidence": 90.0, "language": "de"}]


# --- source: auto


@needs_detection
@pytest.mark.parametrize(
    ("text", "direction"), [(ENGLISH, "en-fr"), (GERMAN, "de-en"), ([GERMAN, "ja"], "de-en")]
)
def test_auto_translates_from_the_detected_language(serve, text, direction):
    client, mirror = serve(SEVERAL)
    source, target = direction.split("-")
    answer = post(client, q=text, source="auto", target=target).json()
    assert mirror.directions == [direction]
    detected = answer["detectedLanguage"]
    if isinstance(text, list):
        assert answer["translatedText"] == [line[::-1] for line in text]
        assert detected == [detected[0]] * len(text)
        detected = detected[0]
    assert detected["language"] == source
    assert detected["confidence"] > 50


@needs_detection
def test_auto_with_one_source_language_says_how_likely_it_is(serve):
    client, _ = serve(PAIR)
    assert post(client, q=FRENCH, source="auto").json() == {
        "translatedText": FRENCH[::-1],
        "detectedLanguage": {"confidence": 0.0, "language": "en"},
    }


def test_auto_needs_no_library_for_one_source_language(serve, without_detection):
    client, _ = serve(PAIR)
    assert post(client, q="ab", source="auto", target="de").json() == {"translatedText": "ba"}


def test_auto_without_the_library_names_the_extra(serve, without_detection):
    client, _ = serve(SEVERAL)
    answer = post(client, q="ab", source="auto", target="de")
    text = (
        "source 'auto' needs the library py3langid: install diet_fairseq[detect], or send the "
        "language"
    )
    assert (answer.status_code, answer.json()) == (400, {"error": text})


@needs_detection
def test_a_text_in_the_target_language_is_refused(serve):
    client, _ = serve(SEVERAL)
    answer = post(client, q=GERMAN, source="auto", target="de")
    text = "target 'de' is not supported: this model translates de to en"
    assert (answer.status_code, answer.json()) == (400, {"error": text})


def test_a_service_imports_no_library_before_it_is_needed():
    program = """
import sys
sys.modules |= dict.fromkeys(["langcodes", "py3langid.langid", "numpy", "torch"])
from starlette.testclient import TestClient
from diet_fairseq.translate.service.app import application
from tests.translate.test_service import Mirror
with TestClient(application(Mirror(), None, ["testserver"])) as client:
    request = {"q": "ab", "source": "en", "target": "de"}
    print(client.post("/translate", json=request).json())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "{'translatedText': 'ba'}\n", done.stderr


# --- codes of languages


@pytest.mark.parametrize(
    ("targets", "source", "target", "direction"),
    [
        (PAIR, "EN", "DE", "en-de"),
        (PAIR, "en-US", "de_DE", "en-de"),
        (PAIR, "eng_Latn", "de-AT", "en-de"),
        (NLLB, "en", "de", "eng_Latn-deu_Latn"),
        (NLLB, "DE", "en-GB", "deu_Latn-eng_Latn"),
        (NLLB, "en", "zh-CN", "eng_Latn-zho_Hans"),
        (NLLB, "en", "zh_TW", "eng_Latn-zho_Hant"),
        (MBART, "en", "pt", "en_XX-pt_BR"),
        (MBART, "en", "pt-pt", "en_XX-pt_PT"),
        (MBART, "en", "pt-AO", "en_XX-pt_PT"),
        ({"en": ["pt", "pt_BR"]}, "en", "pt", "en-pt"),
    ],
)
def test_languages_have_any_spelling(serve, targets, source, target, direction):
    client, mirror = serve(targets)
    assert post(client, q="ab", source=source, target=target).json() == {"translatedText": "ba"}
    assert mirror.directions == [direction]


@pytest.mark.parametrize(
    ("targets", "values", "text"),
    [
        ({"en": ["de_DE", "deu_Latn"]}, {"target": "de"},
         "target 'de' is ambiguous: send one of de_DE, deu_Latn"),
        (NLLB, {"source": "nl"},
         "source 'nl' is not supported: this model translates eng_Latn, deu_Latn"),
        (NLLB, {"target": "x" * 100},
         f"target '{'x' * 40}' is not supported: this model translates eng_Latn to deu_Latn, "
         "zho_Hans, zho_Hant"),
    ],
)  # fmt: skip
def test_a_code_of_no_language_or_several_is_refused(serve, targets, values, text):
    client, mirror = serve(targets)
    answer = post(client, q="ab", **values)
    assert (answer.status_code, answer.json()) == (400, {"error": text})
    assert mirror.batches == []


# --- settings


def test_the_settings_are_the_service_s_limits(serve):
    client, _ = serve(NLLB, characters=30)
    assert client.get("/frontend/settings").json() == {
        "apiKeys": False,
        "charLimit": 30,
        "filesTranslation": False,
        "frontendTimeout": 500,
        "keyRequired": False,
        "language": {
            "source": {"code": "eng_Latn", "name": "eng_Latn"},
            "target": {"code": "deu_Latn", "name": "deu_Latn"},
        },
        "suggestions": False,
        "supportedFilesFormat": [],
    }


# --- multipart forms


def part(name, value, disposition=""):
    head = f'--B\r\nContent-Disposition: form-data; name="{name}"{disposition}\r\n\r\n'
    return head.encode() + value + b"\r\n"


def test_a_multipart_form_is_answered_as_json_is(serve):
    client, _ = serve(PAIR)
    content = part("q", "ä b\nc&".encode()) + part("scores", b"true") + part("api_key", b"")
    content += part("alternatives", b"1") + b"--B--\r\n"
    pieces = (content[start : start + 7] for start in range(0, len(content), 7))
    for body in (content, pieces):
        answer = client.post("/translate", content=body, headers=MULTIPART)
        assert answer.json() == {
            "translatedText": "b ä\n&c",
            "alternatives": ["b ä'\n&c'"],
            "scores": [-1.0, -0.666667],
        }


@pytest.mark.parametrize(
    ("content", "headers", "status", "text"),
    [
        (part("source", b"en") + b"--B--\r\n", {}, 400, "q is missing"),
        (part("q", b"") + b"--B--\r\n", {}, 400, "q is missing"),
        (part("q", b"a\xff") + b"--B--\r\n", {}, 400, MULTIPART_RULE),
        (part("q", b"a\xc3") + b"--B--\r\n", {}, 400, MULTIPART_RULE),
        (part("q", b"a") + part("file", b"b", '; filename="c"') + b"--B--\r\n", {}, 400,
         MULTIPART_RULE),
        (part("q", b"a") * 101 + b"--B--\r\n", {}, 400, MULTIPART_RULE),
        (b"q=a", {}, 400, MULTIPART_RULE),
        (part("q", b"a"), {"Content-Type": "multipart/form-data"}, 400, MULTIPART_RULE),
        (part("q", b"a") + b"--B--\r\n",
         {"Content-Type": "multipart/form-data; boundary=B; charset=punycode"}, 400,
         MULTIPART_RULE),
        (part("q", b"a") + b"--B--\r\n", {"Origin": "https://evil.example"}, 415,
         "forms of web pages are refused: send application/json"),
    ],
)  # fmt: skip
def test_a_wrong_multipart_form_is_refused_in_one_line(serve, content, headers, status, text):
    client, mirror = serve(PAIR)
    answer = client.post("/translate", content=content, headers=MULTIPART | headers)
    assert (answer.status_code, answer.json()) == (status, {"error": text})
    assert mirror.batches == []


def test_a_multipart_form_that_is_too_large_is_refused_before_its_end():
    received = []

    async def receive():
        received.append(b"a" * 900 if received else part("q", b"a" * 900)[:-2])
        return {"type": "http.request", "body": received[-1], "more_body": len(received) < 100}

    headers = [(b"content-type", MULTIPART["Content-Type"].encode())]
    request = Request({"type": "http", "headers": headers, "query_string": b""}, receive)
    with pytest.raises(HTTPException) as error:
        asyncio.run(read_fields(request, TextRequest, Limits(body=2000)))
    text = "the body has more than 2,000 bytes: send less text"
    assert (error.value.status_code, error.value.detail) == (413, text)
    assert len(received) == 3


# --- clients


@pytest.fixture
def address(serve):
    """The address of a service that other processes can use."""
    mirror = Mirror()
    mirror.targets = SEVERAL
    server = Server(application(mirror, Limits()), 10)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        until(lambda: server.started)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        server.should_exit = True
        thread.join()


@needs_detection
def test_libretranslatepy_is_answered(address):
    client = pytest.importorskip("libretranslatepy").LibreTranslateAPI(address)
    assert client.translate("aä b&c\nd", "en", "fr") == "c&b äa\nd"
    assert client.translate(GERMAN, "auto", "en") == GERMAN[::-1]
    assert client.detect(GERMAN)[0]["language"] == "de"
    assert [language["code"] for language in client.languages()] == ["en", "de", "fr"]


@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl")
def test_curl_sends_forms(address):
    command = ["curl", "-sS", "-F", "q=aä b&c", "-F", "target=fr", f"{address}translate"]
    answer = subprocess.run(command, capture_output=True, check=True, timeout=20).stdout
    assert json.loads(answer) == {"translatedText": "c&b äa"}


def test_deep_translator_sends_fields_in_the_address(serve):
    """`LibreTranslator` of deep-translator 1.11 sends a POST without a body."""
    client, mirror = serve(SEVERAL)
    query = urlencode({"q": "aä b&c\nd", "source": "en", "target": "fr", "format": "text"})
    answer = client.post(f"/translate?{query}")
    assert answer.json()["translatedText"] == "c&b äa\nd"
    answer = client.post(f"/translate?{query}", headers={"Origin": "https://evil.example"})
    assert answer.status_code == 415
    assert len(mirror.batches) == 1
    answer = client.post("/translate?q=%ff")
    assert (answer.status_code, mirror.batches[1:]) == (400, [])


def test_weblate_finds_the_codes_that_it_sends(serve):
    """Weblate's machinery sends lists in JSON, and codes with ``-``."""
    client, mirror = serve(MBART)
    codes = [language["code"] for language in client.get("/languages").json()]
    for code in set(codes) - {"en_XX"}:
        request = {"api_key": "", "q": ["ab", "c"], "source": "en-XX"}
        request["target"] = code.replace("_", "-")
        assert post(client, **request).json() == {"translatedText": ["ba", "c"]}
    assert {*mirror.directions} == {"en_XX-pt_BR", "en_XX-pt_PT", "en_XX-de_DE"}


@needs_detection
def test_mastodon_and_akkoma_are_told_to_send_text(serve):
    """Both send HTML. Mastodon reads every ``targets`` before."""
    client, mirror = serve(SEVERAL)
    languages = client.get("/languages").json()
    assert {language["code"]: language["targets"] for language in languages} == SEVERAL | {"fr": []}
    request = {"q": ["<p>ab</p>"], "source": "auto", "target": "de", "format": "html",
               "api_key": None}  # fmt: skip
    answer = post(client, **request)
    text = "format must be 'text', but is \"html\""
    assert (answer.status_code, answer.json()) == (400, {"error": text})
    assert mirror.batches == []


@needs_detection
def test_discourse_detects_before_it_translates(serve):
    """Discourse sends forms, and HTML for translation; a client of it has to send text."""
    client, mirror = serve(SEVERAL)
    form = urlencode({"q": GERMAN, "api_key": ""}).encode()
    [first, *_] = client.post("/detect", content=form, headers=FORM).json()
    form = {"q": GERMAN, "source": first["language"], "target": "en", "api_key": ""}
    for name, status in (("html", 400), ("text", 200)):
        content = urlencode(form | {"format": name}).encode()
        answer = client.post("/translate", content=content, headers=FORM)
        assert answer.status_code == status
    assert answer.json() == {"translatedText": GERMAN[::-1]}
    assert mirror.directions == ["de-en"]
