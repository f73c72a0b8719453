"""Trimmed vocabularies: the same pieces and translations of the text, and fewer rows."""

import json
import re
from pathlib import Path

import pytest
import torch

pytest.importorskip("google.protobuf", reason="protobuf is not installed")
from diet_fairseq import Translator, checkpoints
from diet_fairseq.errors import UserError
from diet_fairseq.text.lines import read_lines
from diet_fairseq.translate.loading import load_model
from diet_fairseq.translate.model_files import ModelOptions, resolve_model
from diet_fairseq.translate.model_json import read_model_json
from diet_fairseq.vocabulary import ANY_LANGUAGE, VocabularySize, trim_vocabulary
from tests.support import commands, published, translating
from tests.support.texts import scrambled, sentences, train_sentencepiece, write

FLORES = Path(__file__).parents[2] / "shared/data/flores-dev"
#: fairseq-train's options of a stock model
ARCH = "--arch", "transformer"
TEXT = sentences(3, seed=5)
OTHERS = [*sentences(200, seed=6), *scrambled(50), "żółć 東京 <mask> </s> a@@ ▁"]
#: joined and separate dictionaries, tags that a task adds, every kind of subwords
LAYOUTS = [
    published.m2m100,
    *commands.slow(
        [
            published.indictrans2, published.wmt19, published.bart, published.nllb,
            published.mbart, published.multilingual, published.wmt16,
        ]
    ),
]  # fmt: skip


def describe(model) -> Path:
    """The folder of a published model, with ``model.json``."""
    if not (model.folder / "model.json").exists():
        resolve_model(model.path, ModelOptions(**model.options(model.pairs[0]))).write()
    return model.folder


def trim(folder: Path, out: Path, lines=TEXT, language=ANY_LANGUAGE):
    return trim_vocabulary(folder, out, {language: [write(out.with_suffix(".txt"), lines)]})


def load(folder: Path):
    loaded = load_model(read_model_json(folder))
    return loaded, (loaded.task.source_dictionary, loaded.task.target_dictionary)


@pytest.fixture(scope="module", params=LAYOUTS, ids=lambda layout: layout.__name__)
def trimmed(request, tmp_path_factory):
    """A folder, its trimmed copy, and the sizes of both vocabularies."""
    parent = tmp_path_factory.mktemp("published")
    model = request.param(parent / "model")
    published.import_package(model)
    return describe(model), parent / "out", *trim(model.folder, parent / "out")


def test_a_trimmed_model_reads_its_text_as_before_and_no_removed_token(trimmed):
    folder, out, before, after = trimmed
    (old, old_words), (new, new_words) = load(folder), load(out)
    old, new = old.description, new.description
    assert (before.source, before.target) == tuple(map(len, old_words))
    assert (after.source, after.target) == tuple(map(len, new_words))
    assert after.source < before.source
    assert after.bytes < before.bytes
    for side in (0, 1):
        tokenizers = old.tokenizers[side], new.tokenizers[side]
        for line in TEXT:
            tokens = tokenizers[0].encode(line)
            assert tokenizers[1].encode(line) == tokens
            assert tokenizers[1].decode(tokens) == tokenizers[0].decode(tokens)
        unknown = {old_words[side].unk_word}
        split_again = 0
        for line in OTHERS:
            tokens = tokenizers[1].encode(line)
            known_before = [token for token in tokens if token in old_words[side].indices]
            assert {*known_before} - unknown <= {*new_words[side].indices}
            split_again += tokens != tokenizers[0].encode(line)
        assert split_again > 20
    tags = old.all_directions.all_tags
    assert {*new_words[0].indices} >= tags & {*old_words[0].indices}
    assert not any(word.startswith("madeupword") for word in new_words[0].symbols)


@torch.no_grad()
def test_a_trimmed_model_computes_the_logits_of_the_tokens_that_stay(trimmed):
    folder, out, *_ = trimmed
    (old, old_words), (new, new_words) = load(folder), load(out)
    marks = old.description.all_directions.frame(*old.description.languages)
    lines = [tokenizer.encode(TEXT[0]) for tokenizer in old.description.tokenizers]
    sides = [
        [*marks.source_prefix, *lines[0], *marks.source_end],
        [marks.target_start, *marks.target_prefix, *lines[1]],
    ]

    def compute(loaded, words):
        source, target = (
            torch.tensor([[words[side].index(token) for token in sides[side]]]) for side in (0, 1)
        )
        return loaded.model(source, torch.tensor([source.numel()]), target)[0][0]

    kept = [old_words[1].index(word) for word in new_words[1].symbols]
    expected = compute(old, old_words)[:, kept]
    torch.testing.assert_close(compute(new, new_words), expected, rtol=1e-5, atol=1e-5)
    assert group_tied(old.path) == group_tied(new.path)


def group_tied(path: Path) -> set[frozenset[str]]:
    """The names of parameters that share memory; a multilingual model's pairs share everything."""
    groups: dict[int, set[str]] = {}
    for name, tensor in checkpoints.read(str(path))["model"].items():
        name = re.sub(r"^models\.[^.]+\.", "", name)
        groups.setdefault(tensor.data_ptr(), set()).add(name)
    return {frozenset(group) for group in groups.values()}


def forbid(folder: Path, removed: list[int]) -> None:
    """Make the probability of some tokens 0 in float32, as training on text without them does."""
    path = read_model_json(folder).checkpoint
    content = torch.load(path, weights_only=False)
    state = content["model"]
    if (bias := state.get("decoder.output_projection.bias")) is not None:
        bias[removed] = -100.0
        torch.save(content, path)
        return
    table = state["encoder.embed_tokens.weight"]
    table[:, 0] = 1.0
    table[removed, 0] = -1.0
    for name in ("decoder.embed_tokens.weight", "decoder.output_projection.weight"):
        state[name] = table
    state["decoder.layer_norm.weight"][0] = 0.0
    state["decoder.layer_norm.bias"][:] = torch.tensor([100.0] + [0.0] * (table.size(1) - 1))
    for name, tensor in state.items():  # a random decoder hardly depends on the source
        if name.endswith("encoder_attn.out_proj.weight"):
            tensor *= 10
    torch.save(content, path)


def removed_rows(folder: Path, out: Path) -> list[int]:
    _, (old, _) = load(folder)
    _, (new, _) = load(out)
    return [number for number, word in enumerate(old.symbols) if word not in new.indices]


@pytest.mark.slow
def test_translations_are_equal_if_removed_tokens_have_no_probability(tmp_path):
    folder = describe(published.m2m100(tmp_path / "model"))
    trim(folder, tmp_path / "out")
    forbid(folder, removed_rows(folder, tmp_path / "out"))
    trim(folder, tmp_path / "again")
    old, new = Translator(folder), Translator(tmp_path / "again")
    for pair in (("en", "de"), ("fr", "en")):
        options = dict(zip(("source_lang", "target_lang"), pair, strict=True))
        theirs = old.translate(TEXT, **options)
        assert len(set(theirs)) > 1
        assert new.translate(TEXT, **options) == theirs


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_characters_without_a_piece_are_bytes_as_before(kind, tmp_path):
    """Byte pieces and user-defined pieces stay, and unknown characters keep their score."""
    folder = translating.untrained(tmp_path / "model", *ARCH)
    (folder / "sentencepiece.model").write_bytes(
        train_sentencepiece(
            [*sentences(200), *scrambled(200)], 400, model_type=kind, byte_fallback=True,
            user_defined_symbols=["(c)"],
        )
    )  # fmt: skip
    text = [*scrambled(9, seed=2), "bin (c) żółć 東京"]
    old = read_model_json(folder).tokenizers[0]
    tokens = {token for line in text for token in old.encode(line)}
    produced = old.subwords.restrict(tokens, tmp_path / "restricted.model")
    restricted = type(old.subwords)(tmp_path / "restricted.model")
    for line in text:
        assert restricted.encode(line) == old.subwords.encode(line)
        assert restricted.decode(restricted.encode(line)) == " ".join(line.split())
    assert {"(c)", "<0xE6>"} <= produced
    assert restricted.decode(restricted.encode("bun ü")) == "bun ü"
    assert {*restricted.encode("bun ü")} <= produced


def test_a_text_s_language_selects_its_side(tmp_path):
    model = published.indictrans2(tmp_path / "model")
    published.import_package(model)
    folder = describe(model)
    trim(folder, tmp_path / "out", language="tam_Taml")  # a target language alone
    size = len(load(tmp_path / "out")[1][1])
    assert size < len(load(folder)[1][1])
    with pytest.raises(UserError) as error:
        trim(folder, tmp_path / "other", language="ta")
    assert str(error.value) == (
        "the language of a text must be one of the model's languages, eng_Latn, hin_Deva, "
        "tam_Taml, but is ta: use the model's code"
    )


def test_refused_folders_and_texts_are_named_and_leave_nothing(tmp_path):
    folder = translating.untrained(tmp_path / "model", *ARCH)

    def refuse(text=("a",)):
        with pytest.raises(UserError) as error:
            trim(folder, tmp_path / "out", text)
        assert not [path for path in tmp_path.iterdir() if path.name.startswith("out") and
                    path.suffix != ".txt"]  # fmt: skip
        return str(error.value)

    assert refuse([" "]) == "the texts for the vocabulary contain no words: give other files"
    model = folder / "sentencepiece.model"
    model.write_bytes(train_sentencepiece(sentences(20), 60, model_type="word"))
    assert refuse() == (
        f"{model} must be of SentencePiece's type unigram or bpe to be trimmed, but is of the type "
        "word: keep its vocabulary"
    )
    dictionary = folder / "dict.en.txt"
    dictionary.write_text(dictionary.read_text() + "new 1\n")
    assert "dict.en.txt has " in refuse()
    content = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(content | {"engine": "transformers"}))
    assert refuse() == (
        f"{folder} is an exported model: give the folder of the checkpoint that it was exported "
        "from"
    )


def test_an_adaptive_softmax_is_refused(tmp_path):
    folder = translating.untrained(tmp_path / "model", *ARCH)
    path = folder / "checkpoint_last.pt"
    content = torch.load(path, weights_only=False)
    content["model"]["decoder.adaptive_softmax.head.weight"] = torch.zeros(4, 16)
    torch.save(content, path)
    with pytest.raises(UserError, match="has an adaptive softmax, whose clusters depend on the"):
        trim(folder, tmp_path / "out")


def test_a_size_is_a_phrase():
    assert str(VocabularySize(256_206, 256_206, 10)) == "256,206 tokens (10 bytes of parameters)"
    size = VocabularySize(1_000, 20, 3_000)
    assert str(size) == "1,000 source and 20 target tokens (3,000 bytes of parameters)"


@pytest.mark.slow
def test_import_hf_trims_and_prints_the_sizes(tmp_path, capsys):
    pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")
    from tests.hf.conftest import take_back
    from tests.support import originals

    folder = originals.marian(tmp_path / "folder")
    take_back(folder, tmp_path / "whole")
    text = write(tmp_path / "text", ["the quick fox"])
    capsys.readouterr()
    take_back(folder, tmp_path / "out", "--keep-text", text)
    before, after = (load(tmp_path / name)[1][0] for name in ("whole", "out"))
    printed = capsys.readouterr().out
    assert "compared with transformers as text: 43 sentences, 3 translations\n" in printed
    assert f"\ntrimmed the vocabulary from {len(before)} tokens (" in printed
    assert f" to {len(after)} tokens (" in printed
    assert len(after) < len(before)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {path.name for path in (tmp_path / "whole").iterdir()} - {"original"}
    options = [(tmp_path / name / "options.txt").read_text() for name in ("whole", "out")]
    assert options[0] == options[1]
    tokenizers = [read_model_json(tmp_path / name).tokenizers[0] for name in ("whole", "out")]
    assert tokenizers[1].encode("the quick fox") == tokenizers[0].encode("the quick fox")

    with pytest.raises(UserError) as error:
        take_back(originals.bert(tmp_path / "bert"), tmp_path / "no", "--keep-text", text)
    assert str(error.value) == (
        f"--keep-text {text} is for translation models, but the folder's model is an encoder: "
        "leave it out"
    )
    assert not (tmp_path / "no").exists()


@pytest.mark.slow
@pytest.mark.skipif(not FLORES.is_dir(), reason="FLORES is not there")
def test_nllb_trimmed_to_two_languages_of_flores_translates_them_as_before(tmp_path):
    pytest.importorskip("diet_fairseq.hf", reason="transformers is not installed")
    from tests.hf.conftest import take_back
    from tests.support import originals

    def read(language):
        path = FLORES / f"flores-dev.{language}"
        return [*read_lines(path if path.exists() else path.with_name(f"{path.name}.gz"))]

    texts = {name: read(name) for name in ("en", "de", "fr", "ru", "hi", "zh", "ar", "tr")}
    lines = [line for text in texts.values() for line in text]
    take_back(
        originals.nllb(tmp_path / "folder", size=8000, text=lines, max_position_embeddings=300),
        tmp_path / "model",
    )
    files = {
        code: [write(tmp_path / f"text.{name}", texts[name])]
        for code, name in (("eng_Latn", "en"), ("deu_Latn", "de"))
    }
    trim_vocabulary(tmp_path / "model", tmp_path / "first", files)
    forbid(tmp_path / "model", removed_rows(tmp_path / "model", tmp_path / "first"))
    before, after = trim_vocabulary(tmp_path / "model", tmp_path / "out", files)
    assert before.source > 8000
    old, new = (read_model_json(tmp_path / name) for name in ("model", "out"))
    _, (words, _) = load(tmp_path / "out")
    needed = {token for name in ("en", "de") for line in texts[name]
              for token in old.tokenizers[0].encode(line)}  # fmt: skip
    single = {word for word in words.symbols if len(word) == 1}
    special = {*words.symbols[:4], *old.directions.all_tags, "<mask>"}
    assert {*words.symbols} - needed - single - special <= {"▁"}
    assert after.source < 0.6 * before.source  # 2,000 Chinese characters stay
    translators = Translator(tmp_path / "model"), Translator(tmp_path / "out")
    for name, source, target in (("en", "eng_Latn", "deu_Latn"), ("de", "deu_Latn", "eng_Latn")):
        for line in texts[name]:
            assert new.tokenizers[0].encode(line) == old.tokenizers[0].encode(line)
        theirs, ours = (
            translator.translate(
                texts[name], source_lang=source, target_lang=target, beam=2, max_len_a=0,
                max_len_b=12,
            )
            for translator in translators
        )  # fmt: skip
        assert len(set(theirs)) > 10
        assert ours == theirs
