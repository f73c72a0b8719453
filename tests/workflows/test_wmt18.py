"""The experiment of examples/wmt18 in tiny form, in both directions: downloads, rules and table.

A server stands in for WMT's. Its files have the names and the form of WMT's, and other text.
"""

import hashlib
import io
import json
import os
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import sacrebleu
import yaml

from diet_fairseq.text.lines import read_lines
from tests.workflows.conftest import EXAMPLES, Experiment

pytestmark = pytest.mark.slow

CONFIG = yaml.safe_load((EXAMPLES / "wmt18" / "config.yaml").read_text())
#: what a run of minutes needs to differ in
TINY = {
    "folder": "out", "sizes": ["tiny"], "vocabulary": 500, "updates": 20, "batch": 1000,
    "learning_rate": 0.01, "warmup": 10, "save_interval": 5, "gpus": 0, "threads": 1,
}  # fmt: skip
SHARED = Path(__file__).parents[3] / "shared" / "data"


def read_text(part: str, language: str, size: int) -> list[str]:
    """The first lines of WMT's news, or of the demo's text where the news is not present."""
    name = {"en": "eng", "de": "deu"}[language]
    news = [
        SHARED / "newstest2008-2016" / "eng-deu" / f"newstest{year}.{name}.gz"
        for year in (2014, 2015, 2016)
    ]
    file = SHARED / "newstest2017" / "eng-deu" / f"newstest2017.{name}.gz"
    if part != "test":
        file = news[int(part)]
    if not file.exists():
        file = EXAMPLES / "demo" / "data" / f"{'test' if part == 'test' else 'train'}.{language}.gz"
    return list(islice(read_lines(file), size))


def pack(**members: str) -> bytes:
    """A .tgz file of these members; "__" in a name is a slash."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        for name, text in members.items():
            data = text.encode()
            info = tarfile.TarInfo(name.replace("__", "/"))
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return content.getvalue()


def sgml(lines: list[str]) -> str:
    segments = [f'<seg id="{number}">{line}</seg>' for number, line in enumerate(lines, 1)]
    return "\n".join(['<doc docid="a" genre="news" origlang="en">', *segments, "</doc>", ""])


def publish(archives: dict[str, bytes]) -> ThreadingHTTPServer:
    """A server of these files, by path."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            content = archives.get(self.path)
            self.send_response(200 if content else 404)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


@pytest.fixture
def server():
    """Serves the archives of the config, and the files that sacreBLEU downloads."""
    archives = {}
    for number, source in enumerate(CONFIG["train"]):
        texts = {
            source["member"].format(lang=language): "\n".join(
                [*read_text(str(number), language, 200), ""]
            )
            for language in ("en", "de")
        }
        archives[urlsplit(source["url"]).path] = pack(**texts)
    text = {language: sgml(read_text("test", language, 12)) for language in ("en", "de")}
    archives["/wmt13.tgz"] = pack(
        **{f"test__newstest2013-src.{language}.sgm": text[language] for language in text}
    )
    archives["/wmt18.tgz"] = pack(
        **{
            f"test__newstest2018-{source}{target}-{kind}.{language}.sgm": text[language]
            for source, target in (("en", "de"), ("de", "en"))
            for kind, language in (("src", source), ("ref", target))
        }
    )
    server = publish(archives)
    server.archives = archives
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("languages", "subwords"), [(("en", "de"), "sentencepiece"), (("de", "en"), "subword_nmt")]
)
def test_newstest2018_is_downloaded_translated_and_scored(tmp_path, server, languages, subwords):
    url = f"http://127.0.0.1:{server.server_port}"
    sources = [source | {"url": url + urlsplit(source["url"]).path} for source in CONFIG["train"]]
    schemes = {name: CONFIG["schemes"][name] for name in ("stock", "diet_rel")}
    changes = {"languages": list(languages), "train": sources, "schemes": schemes}
    experiment = Experiment(tmp_path, **CONFIG | TINY | changes | {"subwords": subwords})
    (tmp_path / "site").mkdir()
    lines = ["from sacrebleu.dataset import DATASETS"]
    for name in ("wmt13", "wmt18"):
        digest = hashlib.md5(server.archives[f"/{name}.tgz"]).hexdigest()
        lines.append(f"DATASETS[{name!r}].data, DATASETS[{name!r}].md5 = ")
        lines[-1] += f"[{url + f'/{name}.tgz'!r}], [{digest!r}]"
    (tmp_path / "site" / "sitecustomize.py").write_text("\n".join(lines))
    experiment.environment = {
        "PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), str(EXAMPLES.parent)]),
        "SACREBLEU": str(tmp_path / "sacrebleu"),
    }
    experiment.made()
    table = experiment.path("out/results/table.md").read_text()
    references = read_text("test", languages[1], 12)
    for scheme in schemes:
        run = experiment.path(f"out/runs/{scheme}-tiny-s1-*")
        translations = list(read_lines(run / "evaluation-newstest2018" / "translations.txt"))
        bleu = sacrebleu.corpus_bleu(translations, [references])
        assert f"| {scheme}, tiny | {bleu.score:.2f} |" in table
        model = json.loads((run / "model.json").read_text())
        assert (model["beam"], model["lenpen"], model["penalty"]) == (10, 0.6, "tensor2tensor")
        assert model["sentences_per_line"] == 1.0
        assert 1 < model["training_source_length"] <= 1000
    assert f"BLEU: `nrefs:1|test:wmt18|lang:{'-'.join(languages)}|" in table
