"""The service: each client gets its own answer, or a status and one line with the reason."""

import json
import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("starlette", reason="needs diet_fairseq[serve]")
from starlette.testclient import TestClient

from diet_fairseq.text.sentences import split_sentences
from diet_fairseq.translate.engine import Search
from diet_fairseq.translate.service.app import Limits, application
from diet_fairseq.translate.service.batching import MAX_TURN_WEIGHT, SENTENCE_CHARACTERS
from diet_fairseq.translate.service.requests import TranslationRequest
from diet_fairseq.translate.translation import Sentence, Translation

JSON = {"Content-Type": "application/json"}


class Mirror:
    """A translator that reverses lines, as soon as its gate is open."""

    source_lang, target_lang = "en", "de"
    targets = {"en": ["de"]}  # noqa: RUF012
    search = Search(beam=4)
    splits_by_default = False

    def __init__(self):
        self.gate = threading.Event()
        self.gate.set()
        self.batches = []

    def splits(self, source_lang, target_lang):
        return self.splits_by_default

    def split(self, line, source_lang):
        return split_sentences(line, source_lang)

    def find_omissions(self, source_lang, target_lang):
        return None

    def candidates(self, lines, source_lang, target_lang, nbest, split_sentences, warn):
        assert not split_sentences
        self.batches.append(list(lines))
        assert self.gate.wait(20)
        if "nothing" in lines:  # as if the search found no hypothesis
            missing = Sentence("nothing", "", -math.inf, 1)
            return [[Translation("", -math.inf, (missing,))] * nbest for _ in lines]
        if "fail" in lines:
            raise RuntimeError("out of memory")
        return [
            [Translation(line[::-1] + "'" * rank, -len(line) / 3 - rank) for rank in range(nbest)]
            for line in lines
        ]


@pytest.fixture
def mirror():
    return Mirror()


@pytest.fixture
def serve(mirror):
    """A function that starts a service with limits, and returns its client."""
    clients = []

    def start(**limits):
        client = TestClient(
            application(mirror, Limits(**limits), ["testserver"]), raise_server_exceptions=False
        )
        clients.append(client)
        return client.__enter__()

    yield start
    mirror.gate.set()
    for client in clients:
        client.__exit__(None, None, None)


def post(client, **values):
    return client.post("/translate", json=values)


def until(true):
    end = time.monotonic() + 10
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


def until_waiting(client, lines):
    """Wait until so many lines are in the queue."""
    until(lambda: client.get("/health").json()["waiting"] == lines)


def test_libretranslate_s_request_form_is_answered(serve):
    client = serve()
    whole = {"source": "en", "target": "de", "format": "text", "api_key": "", "alternatives": 0}
    assert post(client, q="abc", **whole).json() == {"translatedText": "cba"}
    assert post(client, q="d\n\nef", **whole).json() == {"translatedText": "d\n\nfe"}


def test_a_list_of_texts_is_answered_by_a_list(serve, mirror):
    client = serve()
    answer = post(client, q=["abc", "", "d\n\nef"], scores=True)
    assert answer.json() == {
        "translatedText": ["cba", "", "d\n\nfe"],
        "scores": [[-1.0], [0.0], [-0.333333, 0.0, -0.666667]],
    }
    assert mirror.batches == [["abc", "", "d", "", "ef"]]  # one batch
    assert post(client, q=["ab"]).json() == {"translatedText": ["ba"]}


PARAGRAPH = "Eve ran. Ida sat.\n\nDr. Roth left."


def test_lines_are_translated_sentence_by_sentence_by_default(serve, mirror):
    mirror.splits_by_default = True
    client = serve()
    answer = post(client, q=PARAGRAPH, scores=True)
    assert answer.json() == {
        "translatedText": " .nar evE .tas adI\n\n.tfel htoR .rD",
        "scores": [-2.833333, 0.0, -4.666667],
    }
    assert mirror.batches == [["Eve ran. ", "Ida sat.", "", "Dr. Roth left."]]


@pytest.mark.parametrize("is_split", [True, False])
def test_a_request_can_choose_whether_lines_are_split(serve, mirror, is_split):
    client = serve()
    expected = ".nar evE .tas adI" if is_split else ".tas adI .nar evE"
    for mirror.splits_by_default in (True, False):
        answer = post(client, q="Eve ran. Ida sat.", split_sentences=is_split)
        assert answer.json()["translatedText"].split() == expected.split()
    form = {"q": "Eve ran. Ida sat.", "split_sentences": str(is_split).lower()}
    assert client.post("/translate", data=form).json()["translatedText"].split() == expected.split()


def test_a_queue_counts_sentences(serve, mirror):
    mirror.splits_by_default = True
    client = serve(waiting=3)
    answer = post(client, q="A dog ran. " * 4)
    assert answer.status_code == 400
    assert answer.json() == {"error": "q has 4 sentences, more than 3: send fewer"}
    mirror.gate.clear()
    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(post, client, q="First")
        until(lambda: mirror.batches)
        second = threads.submit(post, client, q="Eve ran. Ida sat.")
        until_waiting(client, 2)
        assert post(client, q="Eve ran. Ida sat.").status_code == 503
        mirror.gate.set()
        assert [first.result().status_code, second.result().status_code] == [200, 200]


def test_a_paragraph_delays_no_short_request(serve, mirror):
    mirror.splits_by_default = True
    client = serve(batch=16, characters=50_000)
    mirror.gate.clear()
    with ThreadPoolExecutor(2) as threads:
        long = threads.submit(post, client, q="A dog ran. " * 100)
        until(lambda: mirror.batches)
        short = threads.submit(post, client, q="short")
        until_waiting(client, 85)
        mirror.gate.set()
        assert short.result().json() == {"translatedText": "trohs"}
        assert long.result().json()["translatedText"].count(".nar god A") == 100
    assert max(map(len, mirror.batches)) <= 16 + MAX_TURN_WEIGHT


def test_a_text_is_split_into_lines_once():
    class Text(str):
        splits = 0

        def split(self, *separators):
            Text.splits += 1
            return super().split(*separators)

    fields = TranslationRequest(q=Text("ab\nc"))
    assert [len(line) for line in fields.lines] == [2, 1]
    translations = [[Translation(line, 0.0)] for line in fields.lines]
    assert fields.answer(translations) == {"translatedText": "ab\nc"}
    assert Text.splits == 1


def test_alternatives_are_the_next_best_translations(serve):
    client = serve()
    answer = post(client, q="ab\nc", alternatives=2, scores=True)
    assert answer.json() == {
        "translatedText": "ba\nc",
        "alternatives": ["ba'\nc'", "ba''\nc''"],
        "scores": [-0.666667, -0.333333],
    }
    answer = post(client, q=["ab", "c"], alternatives=1)
    assert answer.json() == {
        "translatedText": ["ba", "c"], "alternatives": [["ba'"], ["c'"]]
    }  # fmt: skip


def test_requests_with_other_alternatives_are_another_batch(serve, mirror):
    client = serve()
    mirror.gate.clear()
    with ThreadPoolExecutor(4) as threads:
        first = threads.submit(post, client, q="first")
        until(lambda: mirror.batches)
        answers = []
        for number in range(3):
            request = {"q": f"{number}", "alternatives": number % 2}
            answers.append(threads.submit(post, client, **request))
            until_waiting(client, number + 1)
        mirror.gate.set()
        assert first.result().status_code == 200
        assert [len(answer.result().json()) for answer in answers] == [1, 2, 1]
    assert mirror.batches == [["first"], ["0", "2"], ["1"]]


#: what libretranslatepy 2.1.4 sends
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def test_a_form_is_answered_as_json_is(serve):
    client = serve()
    content = b"q=%C3%A4+b%0Ac%26&source=en&target=de&api_key="
    answer = client.post("/translate", content=content, headers=FORM)
    assert answer.json() == {"translatedText": "b ä\n&c"}
    content = b"q=ab&alternatives=1&scores=true"
    answer = client.post("/translate", content=content, headers=FORM)
    assert answer.json() == {"translatedText": "ba", "alternatives": ["ba'"], "scores": [-0.666667]}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "q is missing"),
        (b"q=%ff", "the body is not a valid form in UTF-8: send q=TEXT"),
        (b"q=\xff", "the body is not a valid form in UTF-8: send q=TEXT"),
        (b"q=a" + b"&b=c" * 100, "the body is not a valid form in UTF-8: send q=TEXT"),
        (b"q=a&format=html", "format must be 'text', but is \"html\""),
    ],
)
def test_a_wrong_form_is_refused_in_one_line(serve, content, text):
    answer = serve().post("/translate", content=content, headers=FORM)
    assert (answer.status_code, answer.json()) == (400, {"error": text})


def test_forms_of_web_pages_are_refused(serve, mirror):
    """Another site's page could make the service work without asking."""
    headers = FORM | {"Origin": "https://evil.example"}
    answer = serve().post("/translate", content=b"q=a", headers=headers)
    assert answer.status_code == 415
    text = "forms of web pages are refused: send application/json"
    assert answer.json() == {"error": text}
    assert mirror.batches == []


def test_a_score_of_a_missing_translation_is_null(serve):
    """JSON has no number for -inf."""
    answer = post(serve(), q="nothing", scores=True, sentences=True)
    assert answer.status_code == 200, answer.text
    assert answer.json() == {
        "translatedText": "",
        "scores": [None],
        "sentences": [[{"source": "nothing", "translation": "", "score": None}]],
    }


def test_scores_are_answered_on_demand(serve):
    client = serve()
    answer = post(client, q="abc\n\nd", scores=True)
    assert answer.json() == {"translatedText": "cba\n\nd", "scores": [-1.0, 0.0, -0.333333]}
    refused = post(client, q="abc", scores="maybe")
    assert refused.status_code == 400
    assert refused.json()["error"].startswith("scores must be a valid boolean")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({}, "q is missing"),
        ({"q": ""}, 'q must be a text or a list of texts, and not empty, but is ""'),
        ({"q": 7}, "q must be a text or a list of texts, and not empty, but is 7"),
        ({"q": []}, "q must be a text or a list of texts, and not empty, but is []"),
        ({"q": ["a", 7]},
         'q must be a text or a list of texts, and not empty, but is ["a", 7]'),
        ({"q": ["a", "b" * 31]}, "line 2 of q has 31 characters, more than 30: shorten it"),
        ({"q": ["\n" * 4, "\n" * 4]}, "q has 10 lines, more than 8: send fewer"),
        ({"q": "a", "alternatives": -1},
         "alternatives must be greater than or equal to 0, but is -1"),
        ({"q": "a", "alternatives": 4},
         "alternatives must be at most 3, because the beam is 4, but is 4"),
        ({"q": "a", "source": "fr"}, "source 'fr' is not supported: this model translates en"),
        ({"q": "a", "target": "fr"}, "target 'fr' is not supported: this model translates en"
         " to de"),
        ({"q": "a", "target": ["x"]}, 'target must be a valid string, but is ["x"]'),
        ({"q": "a", "format": "html"}, "format must be 'text', but is \"html\""),
        ({"q": "a\n" + "b" * 31}, "line 2 of q has 31 characters, more than 30: shorten it"),
        ({"q": "\n" * 9}, "q has 10 lines, more than 8: send fewer"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_refused_in_one_line(serve, values, text):
    answer = post(serve(characters=30, waiting=8), **values)
    assert (answer.status_code, answer.json()) == (400, {"error": text})


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "valid JSON in UTF-8"),
        (b"{", "valid JSON in UTF-8"),
        (b"\xff", "valid JSON in UTF-8"),
        (b'"text"', "a JSON object"),
        (b"[" * 100_000, "valid JSON in UTF-8"),
        (b'{"q": "\xe4"}', "valid JSON in UTF-8"),
        (b"1" * 5000, "valid JSON in UTF-8"),
    ],
)
def test_a_body_that_is_not_a_json_object_is_refused(serve, body, text):
    answer = serve().post("/translate", content=body, headers=JSON)
    assert answer.status_code == 400
    assert answer.json() == {"error": f"the body is not {text}: send an object with q"}


def test_a_body_that_is_too_large_is_refused(serve, mirror):
    client = serve()
    body = json.dumps({"q": "a" * 10_000_000}).encode()
    pieces = (body[start : start + (1 << 20)] for start in range(0, len(body), 1 << 20))
    for content in (body, pieces):
        answer = client.post("/translate", content=content, headers=JSON)
        assert answer.status_code == 413
        text = "the body has more than 10,000,000 bytes: send less text"
        assert answer.json() == {"error": text}
    assert mirror.batches == []


def test_other_addresses_and_methods_are_refused(serve):
    client = serve()
    for path in ("/nosuch", "/health/"):  # without a redirect
        answer = client.get(path, follow_redirects=False)
        assert (answer.status_code, answer.json()) == (404, {"error": "Not Found"})
    answer = client.get("/translate")
    assert (answer.status_code, answer.json()) == (405, {"error": "Method Not Allowed"})
    assert answer.headers["allow"] == "POST"


def test_escaped_surrogate_pairs_are_characters(serve, mirror):
    content = b'{"q": "a\\ud83d\\ude00"}'
    answer = serve().post("/translate", content=content, headers=JSON)
    assert answer.json() == {"translatedText": "\U0001f600a"}


def test_waiting_requests_are_translated_together_and_not_mixed_up(serve, mirror):
    client = serve()
    mirror.gate.clear()
    texts = [f"request {number}\nits end {number}" for number in range(30)]
    with ThreadPoolExecutor(31) as threads:
        first = threads.submit(post, client, q="first")
        until(lambda: mirror.batches)
        answers = [threads.submit(post, client, q=text) for text in texts]
        until_waiting(client, 60)
        mirror.gate.set()
        translations = [answer.result().json()["translatedText"] for answer in answers]
    assert first.result().json() == {"translatedText": "tsrif"}
    assert translations == ["\n".join(line[::-1] for line in text.split("\n")) for text in texts]
    assert [len(batch) for batch in mirror.batches] == [1, 60]


@pytest.mark.parametrize(
    ("line", "limits", "waiting"), [("l", {"batch": 16}, 85), ("l" * 5000, {}, 98)]
)
def test_a_request_of_many_lines_delays_no_short_one(serve, mirror, line, limits, waiting):
    """A request of long lines delays no short one, either."""
    client = serve(**limits)
    mirror.gate.clear()
    with ThreadPoolExecutor(2) as threads:
        long = threads.submit(post, client, q="\n".join([line] * 100))
        until(lambda: mirror.batches)
        short = threads.submit(post, client, q="short")
        until_waiting(client, waiting)
        mirror.gate.set()
        assert short.result().json() == {"translatedText": "trohs"}
        assert long.result().json()["translatedText"].count("\n") == 99
    assert "short" in mirror.batches[1]
    assert max(sum(map(len, batch)) for batch in mirror.batches) <= 64 * SENTENCE_CHARACTERS + 5000


def test_a_line_that_is_longer_than_a_batch_is_a_batch(serve, mirror):
    answer = post(serve(batch=2), q="\n".join(["a" * 1000, "b" * 1000, "c"]))
    assert [len(line) for line in answer.json()["translatedText"].split("\n")] == [1000, 1000, 1]
    assert [len(batch) for batch in mirror.batches] == [1, 1, 1]


def test_a_full_queue_refuses_requests(serve, mirror):
    client = serve(waiting=3)
    mirror.gate.clear()
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(post, client, q="first")
        until(lambda: mirror.batches)
        second = threads.submit(post, client, q="a\nb\nc")
        until_waiting(client, 3)
        answer = post(client, q="one more")
        assert answer.status_code == 503
        assert answer.json() == {"error": "the request queue is full: try again later"}
        assert answer.headers["retry-after"] == "1"
        mirror.gate.set()
        assert first.result().status_code == second.result().status_code == 200


def test_a_request_that_takes_too_long_fails_alone(serve, mirror):
    client = serve(seconds=0.2)
    mirror.gate.clear()
    with ThreadPoolExecutor(1) as threads:
        slow = threads.submit(post, client, q="slow").result()
        assert slow.status_code == 504
        assert slow.json() == {
            "error": "the translation took more than 0.2 seconds: send less text"
        }
        waited = threads.submit(post, client, q="waited").result()
        assert waited.status_code == 504
        mirror.gate.set()
    assert post(client, q="abc").json() == {"translatedText": "cba"}
    assert ["waited"] not in mirror.batches  # nobody waited for it any more


def test_a_request_that_fails_fails_alone(serve, mirror):
    client = serve()
    mirror.gate.clear()
    with ThreadPoolExecutor(4) as threads:
        first = threads.submit(post, client, q="first")
        until(lambda: mirror.batches)
        answers = [threads.submit(post, client, q=text) for text in ("ab\ncd", "fail", "ef")]
        until_waiting(client, 4)
        mirror.gate.set()
        assert [answer.result().status_code for answer in answers] == [200, 500, 200]
        assert answers[0].result().json() == {"translatedText": "ba\ndc"}
        assert first.result().status_code == 200


def test_a_request_that_fails_is_not_translated_to_its_end(serve, mirror):
    client = serve()
    assert post(client, q="\n".join(["fail", *["l"] * 100])).status_code == 500
    assert post(client, q="abc").status_code == 200
    assert [len(batch) for batch in mirror.batches] == [64, 8, 1]


SERVED = ("testserver", "TestServer:80", "localhost:5000", "127.0.0.1", "[::1]:5000")
REFUSED = ("10.1.2.3:80", "evil.example", "testserver.x", "127.0.0.1.evil.example", "[::1",
           "a@localhost", "")  # fmt: skip


@pytest.mark.parametrize("path", ["/", "/health", "/nosuch"])
def test_other_host_names_are_refused(serve, path):
    client = serve()
    for host in (*SERVED, *REFUSED):
        answer = client.get(path, headers={"Host": host})
        assert (answer.status_code == 400) == (host in REFUSED), host


@pytest.mark.parametrize("kind", ["text/plain", "multipart/mixed", "text/json", None])
def test_json_of_another_type_is_refused(serve, mirror, kind):
    headers = {"Content-Type": kind} if kind else {}
    answer = serve().post("/translate", content=b'{"q": "a"}', headers=headers)
    assert answer.status_code == 415
    assert answer.json() == {
        "error": f"Content-Type must be application/json, but is {kind or ''!r}: send JSON"
    }
    assert mirror.batches == []


def test_a_failure_of_the_model_is_logged(serve, caplog):
    client = serve()
    answer = post(client, q="fail")
    assert answer.status_code == 500
    assert answer.json() == {"error": "the translation failed: see the service's log"}
    assert "out of memory" in caplog.text
    assert post(client, q="abc").status_code == 200


def test_health(serve):
    answer = serve().get("/health")
    assert answer.json() == {"status": "ok", "source": "en", "target": "de", "waiting": 0}


def test_the_page_loads_nothing_from_elsewhere(serve):
    answer = serve().get("/")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "<title>Translate en to de</title>" in answer.text
    assert "{{" not in answer.text
    assert "://" not in answer.text


@pytest.fixture
def polyglot(mirror):
    """The mirror with three directions, whose translations begin with their languages."""
    mirror.targets = {"en": ["de", "fr"], "de": ["en"]}
    reverse = mirror.candidates

    def candidates(lines, source_lang, target_lang, **options):
        results = reverse(lines, source_lang, target_lang, **options)
        return [
            [Translation(f"{source_lang}-{target_lang} {best.text}", best.score)]
            for [best] in results
        ]

    mirror.candidates = candidates
    return mirror


def test_the_page_has_the_directions(serve, polyglot):
    page = serve().get("/").text
    assert 'const TARGETS = {"en": ["de", "fr"], "de": ["en"]};' in page
    assert "{{" not in page
    for side in ("Source", "Target"):
        assert f'aria-label="{side} language" hidden></select>' in page


def test_one_service_translates_many_directions(serve, polyglot):
    client = serve()
    for source, target in (("en", "de"), ("en", "fr"), ("de", "en")):
        answer = post(client, q="ab", source=source, target=target)
        assert answer.json() == {"translatedText": f"{source}-{target} ba"}
    assert post(client, q="ab").json() == {"translatedText": "en-de ba"}
    assert client.get("/languages").json() == [
        {"code": "en", "name": "en", "targets": ["de", "fr"]},
        {"code": "de", "name": "de", "targets": ["en"]},
        {"code": "fr", "name": "fr", "targets": []},
    ]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"source": "fr"}, "source 'fr' is not supported: this model translates en, de"),
        ({"source": "de", "target": "fr"},
         "target 'fr' is not supported: this model translates de to en"),
    ],
)  # fmt: skip
def test_a_direction_that_the_model_lacks_is_refused(serve, polyglot, values, text):
    answer = post(serve(), q="a", **values)
    assert (answer.status_code, answer.json()) == (400, {"error": text})


def test_requests_of_several_directions_wait_for_one_another(serve, polyglot):
    """A batch has one direction, and each request gets its own translations."""
    client = serve()
    polyglot.gate.clear()
    with ThreadPoolExecutor(5) as threads:
        first = threads.submit(post, client, q="first")
        until(lambda: polyglot.batches)
        pairs = [("en", "de"), ("en", "fr"), ("en", "de"), ("en", "fr")]
        answers = []
        for number, (source, target) in enumerate(pairs):
            answers.append(
                threads.submit(post, client, q=f"x\n{number}", source=source, target=target)
            )
            until_waiting(client, 2 * number + 2)
        polyglot.gate.set()
        assert first.result().json() == {"translatedText": "en-de tsrif"}
        for number, (source, target) in enumerate(pairs):
            way = f"{source}-{target}"
            expected = {"translatedText": f"{way} x\n{way} {number}"}
            assert answers[number].result().json() == expected
    assert polyglot.batches == [["first"], ["x", "0", "x", "2"], ["x", "1", "x", "3"]]
